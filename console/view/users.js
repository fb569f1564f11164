//! Accounts: search by how an address begins, page through as many as there are, add one.

import * as api from "../app/api.js";
import { account as link } from "../app/address.js";
import { choice, field, h, put } from "../app/dom.js";
import { count, day, many, NONE } from "../app/format.js";
import { pager, size, Trail } from "../app/paging.js";
import { empty, loader, table } from "../app/table.js";
import { add } from "./account_acts.js";
import { names } from "./domain_names.js";

export const title = "Users";

const trail = new Trail();
/// Where the API stops counting what a search finds.
const COUNTED = 10_000;
/// Of the first page; the others do not count again.
let all;

const called = ({ name, nick }) => [name, nick && nick !== name ? `“${nick}”` : ""].filter(Boolean).join(" ");

/// The state of an account, as a badge.
export function badge({ disabled, sessions }) {
  if (disabled) return h("span.badge.warn", {}, "Disabled");
  return sessions > 0 ? h("span.badge.good", {}, sessions === 1 ? "Online" : `Online, ${count(sessions)} sessions`) : h("span.soft", {}, "Offline");
}

export function open(context) {
  const { root, values, signal } = context;
  const place = h("div.card", { "aria-live": "off" });
  const domains = h("div.field", { hidden: true });
  const total = h("p", {});
  const show = (at) => {
    context.keep("users", at);
    return load();
  };
  const list = pager(trail, { values, keys: ["domain", "search"], placeholder: "How a name or an address begins", show });
  const { state } = list;

  const load = loader(
    place,
    async (stopped) => {
      const { domain, search, after } = state;
      return api.get("/accounts", { domain, search, after, limit: size() }, { signal: AbortSignal.any([stopped, signal]) });
    },
    ({ items: accounts, next, total: counted }) => {
      // Only the first page is counted, and a search no further than this.
      if (!state.after) all = counted;
      if (typeof all === "number") put(total, state.search ? `${many(all, "account")}${all >= COUNTED ? " or more" : ""} found` : many(all, "account"));
      else put(total);
      if (!accounts.length && !state.after) {
        return state.search
          ? empty("Nobody is found", `No user name, name or address begins with “${state.search}”.`)
          : empty("There are no accounts yet", "Add the first one above, or many with: throng account bulk");
      }
      return [
        table({
          caption: "Accounts",
          rows: accounts,
          brief: (row) => [badge(row), called(row) ? ` · ${called(row)}` : null],
          columns: [
            { title: "Address", cell: ({ jid }) => link(jid) },
            { title: "State", class: "wide-only", cell: badge },
            { title: "Name", class: "wide-only", cell: (row) => called(row) || h("span.soft", {}, NONE) },
            { title: "E-mail", class: "wide-only spare", cell: (row) => row.email || h("span.soft", {}, NONE) },
            { title: "Created", class: "wide-only", cell: ({ created }) => day(created) },
          ],
        }),
        list.below(accounts.length, state.search && all >= COUNTED ? undefined : all, next),
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
        // Enter opens the only one that was found.
        const links = place.querySelectorAll("tbody a");
        if (links.length === 1 && list.typed() === state.search) location.hash = links[0].getAttribute("href");
        else list.soon();
      },
    },
    list.tools[0],
    domains,
    list.tools[1],
  );
  const more = h("button.main", { type: "button", onclick: async () => {
    const jid = await add(await names());
    if (jid) context.go(`users/${encodeURIComponent(jid)}`);
  } }, "Add user");
  const head = context.head("", more);
  head.querySelector("p")?.remove();
  head.firstChild.append(total);
  put(root, head, tools, place);

  names().then((served) => {
    if (served.length < 2 || signal.aborted) return;
    const menu = choice(served.map((name) => [name, name]), state.domain || served[0], {
      onchange: () => {
        state.domain = menu.value;
        list.begin();
      },
    });
    domains.replaceWith(field("Domain", menu));
  });
  list.list();
}
