//! Everybody who is online, one row for each session.

import * as api from "../app/api.js";
import { h, put } from "../app/dom.js";
import { many } from "../app/format.js";
import { pager, size, Trail } from "../app/paging.js";
import { empty, loader } from "../app/table.js";
import { sessionTable } from "./session_table.js";

export const title = "Sessions";

const trail = new Trail();

export function open(context) {
  const { root, values, signal } = context;
  const place = h("div.card");
  const total = h("p", {});
  const show = (at) => {
    context.keep("sessions", at);
    return load();
  };
  const list = pager(trail, { values, placeholder: "Part of an address", show });
  const { state } = list;

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
        list.below(sessions.length, state.search ? undefined : all, next),
      ];
    },
  );
  const head = context.head("", h("button", { type: "button", onclick: load }, "Refresh"));
  head.firstChild.append(total);
  put(root, head, h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, list.tools), place);
  list.list();
}
