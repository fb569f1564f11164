//! Table of the nodes of the service.

import * as api from "../app/api.js";
import { h, replaceContent } from "../app/dom.js";
import { bytes, count, plural, dateTime, NONE, duration } from "../app/format.js";
import { loader, table } from "../app/table.js";

export const title = "Nodes";

export function open(context) {
  const { root, signal } = context;
  const container = h("div.card");
  const load = loader(
    container,
    (stopped) => api.get("/nodes", {}, { signal: AbortSignal.any([stopped, signal]) }),
    ({ nodes }) =>
      table({
        caption: "Nodes",
        rows: nodes,
        brief: (row) => [stateBadge(row), ` up ${duration(row.up_seconds)} · ${plural(row.sessions, "session")} · ${bytes(row.memory_bytes)}`],
        columns: [
          { title: "Node", cell: (row) => [row.name, row.this ? h("span.soft", {}, " (this one)") : null] },
          { title: "State", class: "wide-only", cell: stateBadge },
          { title: "Version", class: "wide-only", cell: (row) => row.version ?? NONE },
          { title: "Up for", class: "wide-only", cell: (row) => h("span", { title: row.started ? `since ${dateTime(row.started)}` : null }, duration(row.up_seconds)) },
          { title: "Users online", class: "number wide-only", cell: (row) => count(row.accounts_online) },
          { title: "Sessions", class: "number wide-only", cell: (row) => count(row.sessions) },
          { title: "Memory", class: "number wide-only", cell: (row) => bytes(row.memory_bytes) },
        ],
      }),
  );
  const timer = setInterval(() => !document.hidden && load(), 10_000);
  replaceContent(root, context.head("The nodes of this service."), container);
  load();
  return () => clearInterval(timer);
}

const stateBadge = ({ ready }) => (ready === false ? h("span.badge.warn", {}, "Not accepting clients") : h("span.badge.good", {}, "Serving"));
