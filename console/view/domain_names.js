//! The names of the domains, asked for once while the page lives; a reload of the configuration asks again.

import * as api from "../app/api.js";

let known = null;

/// All names, the default first; empty if they cannot be read, and then views leave their menus of domains out.
export async function names() {
  try {
    known ??= (await api.get("/domains")).domains.sort((a, b) => Number(b.default) - Number(a.default)).map(({ name }) => name);
    return known;
  } catch {
    return [];
  }
}

/// They may have changed.
export function forget() {
  known = null;
}
