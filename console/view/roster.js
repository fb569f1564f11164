//! The contacts of a user (RFC 6121, section 2), paginated and searchable. Read-only: a roster belongs to its user.

import * as api from "../app/api.js";
import { account, bare } from "../app/address.js";
import { h } from "../app/dom.js";
import { plural, NONE } from "../app/format.js";
import { pager, pageSize, PageHistory } from "../app/paging.js";
import { emptyState, loader, table } from "../app/table.js";
import { domainNames } from "./domain_names.js";

const pageHistory = new PageHistory();
const SUBSCRIPTION_LABELS = { both: "Both see each other", to: "The user sees the contact", from: "The contact sees the user", none: "Neither sees the other" };
const PENDING_LABELS = [["ask", "requested", "The user requested a subscription; the contact has not replied"], ["request", "requests", "The contact requested a subscription; the user has not replied"], ["approved", "approved", "Pre-approved by the user"]];

const subscriptionState = (row) => [
  h("span", { title: SUBSCRIPTION_LABELS[row.subscription] }, row.subscription),
  PENDING_LABELS.filter(([key]) => row[key]).map(([, text, title]) => [" ", h("span.badge", { title }, text)]),
];

/// The contacts section of the page of a user.
export function roster({ keep, values, signal }, jid) {
  const container = h("div");
  const title = h("h2", {}, "Contacts");
  const path = api.pathSegment(jid);
  const show = (at) => {
    keep(`users/${path}`, at);
    return load();
  };
  const list = pager(pageHistory, { values, placeholder: "Part of an address, a name or a group", show });
  const load = loader(
    container,
    async (stopped) => {
      const { search, after } = list.state;
      const options = { signal: AbortSignal.any([stopped, signal]) };
      const [found, served] = await Promise.all([api.get(`/accounts/${path}/roster`, { search, after, limit: pageSize() }, options), domainNames()]);
      return { ...found, served };
    },
    ({ items, next, total, served }) => {
      title.textContent = list.state.search ? `${plural(total, "contact")} found` : plural(total, "contact");
      if (!items.length && !list.state.after) return emptyState(list.state.search ? "No matching contacts" : "No contacts");
      const isLocal = (row) => served.includes(bare(row.jid).split("@").at(-1));
      return [
        table({
          caption: `Contacts of ${jid}`,
          rows: items,
          brief: (row) => [row.name && `${row.name} · `, subscriptionState(row)],
          columns: [
            { title: "Contact", cell: (row) => (isLocal(row) && row.jid.includes("@") ? account(row.jid) : h("span.address", {}, row.jid)) },
            { title: "Name", class: "wide-only", cell: (row) => row.name || h("span.soft", {}, NONE) },
            { title: "Subscription", class: "wide-only", cell: subscriptionState },
            { title: "Groups", class: "wide-only spare", cell: (row) => row.groups.join(", ") || h("span.soft", {}, NONE) },
          ],
        }),
        list.below(items.length, total, next),
      ];
    },
  );
  list.list();
  const tools = h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, list.tools);
  return h("section.card", { "aria-label": "Contacts" }, h("header", {}, title), tools, container);
}
