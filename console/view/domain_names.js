//! Cached names of the domains; a reload of the configuration invalidates them.

import * as api from "../app/api.js";

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

/// Discards the cached names.
export function invalidate() {
  cached = null;
}
