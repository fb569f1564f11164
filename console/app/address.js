//! URLs of views, such as `#/users?search=a`. They are fragments, so the server has a single page and never sees them.

import { h } from "./dom.js";

/// The URL of a view, without empty values. `path` is already encoded.
export function address(path, values = {}) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const query = new URLSearchParams(given).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

/// A link to the page of an account; `text` defaults to the address.
export function account(jid, text) {
  return h("a.address", { href: address(`users/${encodeURIComponent(jid)}`) }, text ?? jid);
}

/// The bare address of a full one.
export const bare = (jid) => jid.split("/", 1)[0];
/// The resource of a full address.
export const resource = (jid) => jid.slice(bare(jid).length + 1);
