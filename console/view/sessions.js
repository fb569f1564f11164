//! All online sessions, searchable and paginated.

import * as api from "../app/api.js";
import { h, replaceContent } from "../app/dom.js";
import { plural } from "../app/format.js";
import { missingNotice, nodeSelect } from "../app/nodes.js";
import { pager, pageSize, PageHistory } from "../app/paging.js";
import { emptyState, loader } from "../app/table.js";
import { sessionTable } from "./session_table.js";

export const title = "Sessions";

const pageHistory = new PageHistory();

export function open(context) {
  const { root, values, signal } = context;
  const container = h("div.card");
  const total = h("p", {});
  const show = (at) => {
    context.keep("sessions", at);
    return load();
  };
  const list = pager(pageHistory, { values, keys: ["search", "node"], placeholder: "Part of an address", show });
  const { state } = list;

  const load = loader(
    container,
    (stopped) =>
      api.get("/sessions", { search: state.search, node: state.node, after: state.after, limit: pageSize() }, { signal: AbortSignal.any([stopped, signal]) }),
    ({ items: sessions, next, total: all, missing }) => {
      if (typeof all === "number") replaceContent(total, `${plural(all, "session")} online`);
      if (!sessions.length && !state.after) {
        return [missingNotice(missing), state.search ? emptyState("No matching sessions", `No session address contains “${state.search}”.`) : emptyState("No users are online")];
      }
      return [
        missingNotice(missing),
        sessionTable(sessions, { changed: load, caption: "Online sessions", nodes: true }),
        list.below(sessions.length, state.search ? undefined : all, next),
      ];
    },
  );
  const nodes = nodeSelect(state.node, {
    signal,
    changed: (name) => {
      state.node = name;
      return list.restart();
    },
  });
  nodes.load().catch(() => {});
  const head = context.head("", h("button", { type: "button", onclick: load }, "Refresh"));
  head.firstChild.append(total);
  replaceContent(root, head, h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, list.tools, nodes.element), container);
  list.list();
}
