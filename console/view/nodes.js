//! Table of the nodes of the service with their load, and sums.

import * as api from "../app/api.js";
import { address } from "../app/address.js";
import { h, replaceContent } from "../app/dom.js";
import { bytes, count, plural, dateTime, NONE, duration, value } from "../app/format.js";
import { missingNotice } from "../app/nodes.js";
import { loader, table } from "../app/table.js";

export const title = "Nodes";

export function open(context) {
  const { root, signal } = context;
  const container = h("div.card");
  const load = loader(
    container,
    (stopped) => api.get("/nodes", {}, { signal: AbortSignal.any([stopped, signal]) }),
    ({ nodes, totals, missing }) => [missingNotice(missing), nodeTable(nodes.length > 1 ? [...nodes, { ...totals, name: "All nodes", sum: true }] : nodes)],
  );
  const timer = setInterval(() => !document.hidden && load(), 10_000);
  replaceContent(root, context.head("The nodes of this service. A user with sessions on several nodes counts on each.", h("button", { type: "button", onclick: load }, "Refresh")), container);
  load();
  return () => clearInterval(timer);
}

function nodeTable(rows) {
  return table({
    caption: "Nodes",
    rows,
    brief: (row) => [stateBadge(row), ` ${row.sum ? "" : `up ${duration(row.up_seconds)} · `}${plural(row.sessions, "session")} · ${bytes(row.memory_bytes)}`],
    columns: [
      { title: "Node", cell: (row) => (row.sum ? h("strong", {}, row.name) : [h("a", { href: address("overview", { node: row.name }) }, row.name), row.this ? h("span.soft", {}, " (this one)") : null]) },
      { title: "State", class: "wide-only", cell: stateBadge },
      { title: "Version", class: "wide-only", cell: (row) => row.version ?? NONE },
      { title: "Up for", class: "wide-only", cell: (row) => (row.sum ? NONE : h("span", { title: row.started ? `since ${dateTime(row.started)}` : null }, duration(row.up_seconds))) },
      { title: "Users online", class: "number wide-only", cell: (row) => count(row.accounts_online) },
      { title: "Sessions", class: "number wide-only", cell: (row) => (row.sum ? count(row.sessions) : h("a", { href: address("sessions", { node: row.name }) }, count(row.sessions))) },
      { title: "Memory", class: "number wide-only", cell: (row) => bytes(row.memory_bytes) },
      { title: "CPU", class: "number wide-only spare", cell: (row) => (typeof row.cpu_percent === "number" ? value(row.cpu_percent, "percent") : NONE) },
      { title: "Queued", class: "number wide-only", cell: (row) => h("span", { title: `messages ${bytes(row.queued_message_bytes)}, presence ${bytes(row.queued_presence_bytes)}, control ${bytes(row.queued_control_bytes)}` }, bytes(row.queued_bytes)) },
      { title: "Queue full", class: "number wide-only spare", cell: (row) => count(row.queue_full) },
    ],
  });
}

const stateBadge = ({ ready, sum }) => {
  if (sum) return null;
  return ready === false ? h("span.badge.warn", {}, "Not accepting clients") : h("span.badge.good", {}, "Serving");
};
