//! Accounts: search by how an address begins, page through as many as there are, add one.

import * as api from "../app/api.js";
import { account as link } from "../app/address.js";
import { after as later, choice, field, h, put } from "../app/dom.js";
import { count, day, many, NONE } from "../app/format.js";
import { choose, pages, size, SIZES, Trail } from "../app/paging.js";
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
  const state = {
    domain: values.get("domain") ?? "",
    search: values.get("search") ?? "",
    after: values.get("after") ?? "",
    first: Number(values.get("first") ?? 0),
  };
  const place = h("div.card", { "aria-live": "off" });
  const search = h("input", { type: "search", value: state.search, autocapitalize: "none", spellcheck: "false", placeholder: "How a name or an address begins" });
  const domains = h("div.field", { hidden: true });
  const rows = choice(SIZES.map((n) => [n, `${n} rows`]), size());
  const total = h("p", {});

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
        pages({ first: state.first, rows: accounts.length, total: state.search && all >= COUNTED ? undefined : all, next, after: state.after, back: trail.back, turn: (key, step) => turn(key, step, accounts.length) }),
      ];
    },
  );

  function list() {
    trail.at(`${state.domain} ${state.search} ${size()}`, state.after);
    context.keep("users", { domain: state.domain, search: state.search, after: state.after, first: state.first || "" });
    return load();
  }

  function turn(key, step, shown) {
    if (step > 0) {
      trail.steps.push([state.after, state.first]);
      state.first += shown;
      state.after = key;
    } else if (step < 0) {
      [state.after, state.first] = trail.steps.pop() ?? ["", 0];
    } else {
      [state.after, state.first] = ["", 0];
    }
    list().then(() => {
      place.querySelector(".pages span")?.scrollIntoView?.({ block: "nearest" });
      window.scrollTo(0, 0);
    });
  }

  const begin = () => {
    [state.after, state.first] = ["", 0];
    list();
  };
  const soon = later(250, () => {
    const text = search.value.trim();
    if (text === state.search) return;
    state.search = text;
    begin();
  });
  search.addEventListener("input", soon);
  rows.addEventListener("change", () => {
    choose(Number(rows.value));
    begin();
  });
  const tools = h(
    "form.tools",
    {
      role: "search",
      method: "post",
      onsubmit: (event) => {
        event.preventDefault();
        // Enter opens the only one that was found.
        const links = place.querySelectorAll("tbody a");
        if (links.length === 1 && search.value.trim() === state.search) location.hash = links[0].getAttribute("href");
        else soon();
      },
    },
    (() => {
      const wide = field("Search", search);
      wide.classList.add("wide");
      return wide;
    })(),
    domains,
    field("Show", rows),
  );
  const more = h("button.main", { type: "button", onclick: async () => {
    const jid = await add(await names());
    if (jid) context.go(`users/${encodeURIComponent(jid)}`);
  } }, "Add user");
  const head = context.head("", more);
  head.querySelector("p")?.remove();
  head.firstChild.append(total);
  put(root, head, tools, place);

  names().then((list) => {
    if (list.length < 2 || signal.aborted) return;
    const menu = choice(list.map((name) => [name, name]), state.domain || list[0], {
      onchange: () => {
        state.domain = menu.value;
        begin();
      },
    });
    domains.replaceWith(field("Domain", menu));
  });
  list();
}
