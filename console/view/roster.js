//! The contacts of a user (RFC 6121 section 2), to look at: pages, with a search. They are the user's own; nothing is changed.

import * as api from "../app/api.js";
import { account, bare } from "../app/address.js";
import { h } from "../app/dom.js";
import { many, NONE } from "../app/format.js";
import { pager, size, Trail } from "../app/paging.js";
import { empty, loader, table } from "../app/table.js";
import { names } from "./domain_names.js";

const trail = new Trail();
const SEES = { both: "Both see each other", to: "The user sees the contact", from: "The contact sees the user", none: "Neither sees the other" };
const OPEN = [["ask", "asked", "The user has asked, and has no answer yet"], ["request", "asks", "The contact has asked, and has no answer yet"], ["approved", "approved", "Approved before it asked"]];

const state = (row) => [
  h("span", { title: SEES[row.subscription] }, row.subscription),
  OPEN.filter(([key]) => row[key]).map(([, text, title]) => [" ", h("span.badge", { title }, text)]),
];

/// The section of the page of this user.
export function roster({ keep, values, signal }, jid) {
  const place = h("div");
  const title = h("h2", {}, "Contacts");
  const path = api.part(jid);
  const show = (at) => {
    keep(`users/${path}`, at);
    return load();
  };
  const list = pager(trail, { values, placeholder: "Part of an address, a name or a group", show });
  const load = loader(
    place,
    async (stopped) => {
      const { search, after } = list.state;
      const options = { signal: AbortSignal.any([stopped, signal]) };
      const [found, served] = await Promise.all([api.get(`/accounts/${path}/roster`, { search, after, limit: size() }, options), names()]);
      return { ...found, served };
    },
    ({ items, next, total, served }) => {
      title.textContent = list.state.search ? `${many(total, "contact")} found` : many(total, "contact");
      if (!items.length && !list.state.after) return empty(list.state.search ? "No contact is found" : "No contacts");
      const here = (row) => served.includes(bare(row.jid).split("@").at(-1));
      return [
        table({
          caption: `Contacts of ${jid}`,
          rows: items,
          brief: (row) => [row.name && `${row.name} · `, state(row)],
          columns: [
            { title: "Contact", cell: (row) => (here(row) && row.jid.includes("@") ? account(row.jid) : h("span.address", {}, row.jid)) },
            { title: "Name", class: "wide-only", cell: (row) => row.name || h("span.soft", {}, NONE) },
            { title: "Subscription", class: "wide-only", cell: state },
            { title: "Groups", class: "wide-only spare", cell: (row) => row.groups.join(", ") || h("span.soft", {}, NONE) },
          ],
        }),
        list.below(items.length, total, next),
      ];
    },
  );
  list.list();
  const tools = h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, list.tools);
  return h("section.card", { "aria-label": "Contacts" }, h("header", {}, title), tools, place);
}
