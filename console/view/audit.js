//! The audit log: who did what, when, from where and with which outcome; newest entries first.

import * as api from "../app/api.js";
import { account } from "../app/address.js";
import { debounce, field, h, replaceContent } from "../app/dom.js";
import { dateTime, NONE, seconds } from "../app/format.js";
import { missingNotice, nodeSelect } from "../app/nodes.js";
import { emptyState, loader, table } from "../app/table.js";

export const title = "Audit";

const succeeded = (outcome) => outcome === "done";
const interfaces = { http: "HTTP", socket: "command line", xmpp: "XMPP" };

export function open(context) {
  const { root, values, signal } = context;
  const container = h("div.card");
  let filter = "";
  let entries = [];
  let missing = [];
  let node = values.get("node") ?? "";
  const show = () => {
    const rows = entries.filter((row) => !filter || JSON.stringify(row).toLowerCase().includes(filter.toLowerCase()));
    if (!rows.length) return filter ? emptyState("No matching entries") : emptyState("No entries yet", "Administrative actions from the console, the API, the command line and XMPP clients are listed here.");
    const severalNodes = entries.some((entry) => entry.node !== entries[0].node);
    const list = table({
      caption: "Audit log",
      rows,
      brief: (row) => `${row.who} · ${[row.what, row.on].filter(Boolean).join(" ")} · ${row.outcome}`,
      columns: [
        { title: "When", class: "line", cell: (row) => h("time", { datetime: iso(row.at) }, dateTime(row.at, true)) },
        severalNodes ? { title: "Node", class: "wide-only line", cell: (row) => row.node } : null,
        { title: "Who", class: "wide-only", cell: (row) => (String(row.who).includes("@") ? account(row.who) : row.who) },
        { title: "What", class: "wide-only line", cell: (row) => row.what },
        { title: "Target", class: "wide-only", cell: (row) => h("div.clip", { title: row.on || null }, row.on || NONE) },
        { title: "Interface", class: "wide-only line", cell: (row) => [interfaces[row.interface] ?? row.interface, row.from ? h("span.soft", {}, ` from ${row.from}`) : null] },
        { title: "Outcome", class: "wide-only", cell: (row) => h("span.badge", { class: succeeded(row.outcome) ? "good" : "bad" }, row.outcome) },
      ].filter(Boolean),
    });
    return [missingNotice(missing), list];
  };
  const load = loader(
    container,
    async (stopped) => {
      const { items, missing: absent } = await api.get("/audit", { limit: 500, node }, { signal: AbortSignal.any([stopped, signal]) });
      entries = [...items].reverse();
      missing = absent;
      return entries;
    },
    show,
  );
  const nodes = nodeSelect(node, {
    signal,
    changed: (name) => {
      node = name;
      context.keep("audit", { node });
      load();
    },
  });
  nodes.load().catch(() => {});
  const search = h("input", { type: "search", placeholder: "Who, what or target", spellcheck: "false", autocapitalize: "none" });
  search.addEventListener("input", debounce(150, () => {
    filter = search.value.trim();
    replaceContent(container, show());
  }));
  const wide = field("Search", search);
  wide.classList.add("wide");
  const tools = h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, wide, nodes.element);
  replaceContent(root, context.head("Administrative actions of all interfaces. The server log keeps the same entries permanently.", h("button", { type: "button", onclick: load }, "Refresh")), tools, container);
  load();
}

const iso = (time) => new Date((seconds(time) ?? 0) * 1000).toISOString();
