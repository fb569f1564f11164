//! The nodes of the service.

import * as api from "../app/api.js";
import { h, put } from "../app/dom.js";
import { bytes, count, many, moment, NONE, span } from "../app/format.js";
import { loader, table } from "../app/table.js";

export const title = "Nodes";

export function open(context) {
  const { root, signal } = context;
  const place = h("div.card");
  const load = loader(
    place,
    (stopped) => api.get("/nodes", {}, { signal: AbortSignal.any([stopped, signal]) }),
    ({ nodes }) =>
      table({
        caption: "Nodes",
        rows: nodes,
        brief: (row) => [state(row), ` up ${span(row.up_seconds)} · ${many(row.sessions, "session")} · ${bytes(row.memory_bytes)}`],
        columns: [
          { title: "Node", cell: (row) => [row.name, row.this ? h("span.soft", {}, " (this one)") : null] },
          { title: "State", class: "wide-only", cell: state },
          { title: "Version", class: "wide-only", cell: (row) => row.version ?? NONE },
          { title: "Up for", class: "wide-only", cell: (row) => h("span", { title: row.started ? `since ${moment(row.started)}` : null }, span(row.up_seconds)) },
          { title: "Users online", class: "number wide-only", cell: (row) => count(row.accounts_online) },
          { title: "Sessions", class: "number wide-only", cell: (row) => count(row.sessions) },
          { title: "Memory", class: "number wide-only", cell: (row) => bytes(row.memory_bytes) },
        ],
      }),
  );
  const timer = setInterval(() => !document.hidden && load(), 10_000);
  put(root, context.head("One node for now; a cluster’s would stand here together."), place);
  load();
  return () => clearInterval(timer);
}

const state = ({ ready }) => (ready === false ? h("span.badge.warn", {}, "Takes no clients") : h("span.badge.good", {}, "Serving"));
