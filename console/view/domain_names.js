//! Cached names of the domains, which a reload of the configuration invalidates, and the menu that chooses one.

import * as api from "../app/api.js";
import { field, selectBox } from "../app/dom.js";

let cached = null;

/// All names, the default domain first; empty if they cannot be loaded, and views then omit their domain menus.
export async function domainNames() {
  try {
    cached ??= (await api.get("/domains")).domains.sort((a, b) => Number(b.default) - Number(a.default)).map(({ name }) => name);
    return cached;
  } catch {
    return [];
  }
}

/// Replaces an element by a menu of the domains unless there is only one. A choice is in `state.domain` when `changed` is called.
export async function showDomainMenu(place, state, signal, changed) {
  const served = await domainNames();
  if (served.length < 2 || signal.aborted) return;
  const menu = selectBox(served.map((name) => [name, name]), state.domain || served[0], {
    onchange: () => {
      state.domain = menu.value;
      changed();
    },
  });
  place.replaceWith(field("Domain", menu));
}

/// Discards the cached names.
export function invalidate() {
  cached = null;
}
