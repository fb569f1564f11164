//! Addresses of views: `#/users?search=a`. Behind the `#`, so the server has one page only and reads nothing of it.

import { h } from "./dom.js";

/// The address of a view; what is empty is left out. `path` is encoded already.
export function address(path, values = {}) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const query = new URLSearchParams(given).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

/// A link to the page of an account; `text` is what it says, the address if absent.
export function account(jid, text) {
  return h("a.address", { href: address(`users/${encodeURIComponent(jid)}`) }, text ?? jid);
}

/// The bare address of a full one.
export const bare = (jid) => jid.split("/", 1)[0];
/// The resource of a full address.
export const resource = (jid) => jid.slice(bare(jid).length + 1);
