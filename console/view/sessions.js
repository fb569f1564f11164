//! Everybody who is online, one row for each session.

import * as api from "../app/api.js";
import { after as later, choice, field, h, put } from "../app/dom.js";
import { many } from "../app/format.js";
import { choose, pages, size, SIZES, Trail } from "../app/paging.js";
import { empty, loader } from "../app/table.js";
import { sessionTable } from "./session_table.js";

export const title = "Sessions";

const trail = new Trail();

export function open(context) {
  const { root, values, signal } = context;
  const state = { search: values.get("search") ?? "", after: values.get("after") ?? "", first: Number(values.get("first") ?? 0) };
  const place = h("div.card");
  const total = h("p", {});
  const search = h("input", { type: "search", value: state.search, autocapitalize: "none", spellcheck: "false", placeholder: "Part of an address" });
  const rows = choice(SIZES.map((n) => [n, `${n} rows`]), size());

  const load = loader(
    place,
    (stopped) =>
      api.get("/sessions", { search: state.search, after: state.after, limit: size() }, { signal: AbortSignal.any([stopped, signal]) }),
    ({ items: sessions, next, total: all }) => {
      if (typeof all === "number") put(total, `${many(all, "session")} online`);
      if (!sessions.length && !state.after) {
        return state.search ? empty("Nobody is found", `No session’s address has “${state.search}” in it.`) : empty("Nobody is online");
      }
      return [
        sessionTable(sessions, { changed: load, caption: "Online sessions" }),
        pages({ first: state.first, rows: sessions.length, total: state.search ? undefined : all, next, after: state.after, back: trail.back, turn: (key, step) => turn(key, step, sessions.length) }),
      ];
    },
  );
  function list() {
    trail.at(`${state.search} ${size()}`, state.after);
    context.keep("sessions", { search: state.search, after: state.after, first: state.first || "" });
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
    list().then(() => window.scrollTo(0, 0));
  }
  const begin = () => {
    [state.after, state.first] = ["", 0];
    list();
  };
  const soon = later(250, () => {
    if (search.value.trim() === state.search) return;
    state.search = search.value.trim();
    begin();
  });
  search.addEventListener("input", soon);
  rows.addEventListener("change", () => {
    choose(Number(rows.value));
    begin();
  });
  const wide = field("Search", search);
  wide.classList.add("wide");
  const head = context.head("", h("button", { type: "button", onclick: load }, "Refresh"));
  head.firstChild.append(total);
  put(root, head, h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, wide, field("Show", rows)), place);
  list();
}
