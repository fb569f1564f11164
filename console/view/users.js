//! Accounts: prefix search, pagination, and a button that adds one.

import * as api from "../app/api.js";
import { account as link } from "../app/address.js";
import { h, replaceContent } from "../app/dom.js";
import { count, day, plural, NONE } from "../app/format.js";
import { pager, pageSize, PageHistory } from "../app/paging.js";
import { emptyState, loader, table } from "../app/table.js";
import { addAccount } from "./account_actions.js";
import { domainNames, showDomainMenu } from "./domain_names.js";

export const title = "Users";

const pageHistory = new PageHistory();
/// The API counts matches of a search up to this number.
const MAX_COUNTED = 10_000;
/// Total of the first page; later pages do not count again.
let firstPageTotal;

const displayName = ({ name, nick }) => [name, nick && nick !== name ? `“${nick}”` : ""].filter(Boolean).join(" ");

/// Badge for the state of an account.
export function badge({ disabled, sessions }) {
  if (disabled) return h("span.badge.warn", {}, "Disabled");
  return sessions > 0 ? h("span.badge.good", {}, sessions === 1 ? "Online" : `Online, ${count(sessions)} sessions`) : h("span.soft", {}, "Offline");
}

export function open(context) {
  const { root, values, signal } = context;
  const container = h("div.card", { "aria-live": "off" });
  const domains = h("div.field", { hidden: true });
  const total = h("p", {});
  const show = (at) => {
    context.keep("users", at);
    return load();
  };
  const list = pager(pageHistory, { values, keys: ["domain", "search"], placeholder: "Start of a name or an address", show });
  const { state } = list;

  const load = loader(
    container,
    async (stopped) => {
      const { domain, search, after } = state;
      return api.get("/accounts", { domain, search, after, limit: pageSize() }, { signal: AbortSignal.any([stopped, signal]) });
    },
    ({ items: accounts, next, total: counted }) => {
      // Only the first page has a total, and a search counts up to MAX_COUNTED.
      if (!state.after) firstPageTotal = counted;
      if (typeof firstPageTotal === "number") replaceContent(total, state.search ? `${plural(firstPageTotal, "account")}${firstPageTotal >= MAX_COUNTED ? " or more" : ""} found` : plural(firstPageTotal, "account"));
      else replaceContent(total);
      if (!accounts.length && !state.after) {
        return state.search
          ? emptyState("No matching accounts", `No user name, name or address starts with “${state.search}”.`)
          : emptyState("No accounts yet", "Add one above, or import many with: throng account bulk");
      }
      return [
        table({
          caption: "Accounts",
          rows: accounts,
          brief: (row) => [badge(row), displayName(row) ? ` · ${displayName(row)}` : null],
          columns: [
            { title: "Address", cell: ({ jid }) => link(jid) },
            { title: "State", class: "wide-only", cell: badge },
            { title: "Name", class: "wide-only", cell: (row) => displayName(row) || h("span.soft", {}, NONE) },
            { title: "E-mail", class: "wide-only spare", cell: (row) => row.email || h("span.soft", {}, NONE) },
            { title: "Created", class: "wide-only", cell: ({ created }) => day(created) },
          ],
        }),
        list.below(accounts.length, state.search && firstPageTotal >= MAX_COUNTED ? undefined : firstPageTotal, next),
      ];
    },
  );

  const tools = h(
    "form.tools",
    {
      role: "search",
      method: "post",
      onsubmit: (event) => {
        event.preventDefault();
        // Enter opens a single match.
        const links = container.querySelectorAll("tbody a");
        if (links.length === 1 && list.typed() === state.search) location.hash = links[0].getAttribute("href");
        else list.searchSoon();
      },
    },
    list.tools[0],
    domains,
    list.tools[1],
  );
  const addButton = h("button.main", { type: "button", onclick: async () => {
    const jid = await addAccount(await domainNames());
    if (jid) context.go(`users/${encodeURIComponent(jid)}`);
  } }, "Add user");
  const head = context.head("", addButton);
  head.querySelector("p")?.remove();
  head.firstChild.append(total);
  replaceContent(root, head, tools, container);

  showDomainMenu(domains, state, signal, () => list.restart());
  list.list();
}
