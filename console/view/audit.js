//! Who did what, when, from where, and how it ended: the last entries, newest first.

import * as api from "../app/api.js";
import { account } from "../app/address.js";
import { after as later, field, h, put } from "../app/dom.js";
import { moment, NONE, seconds } from "../app/format.js";
import { empty, loader, table } from "../app/table.js";

export const title = "Audit";

const good = (outcome) => outcome === "done";
const interfaces = { http: "HTTP", socket: "command line", xmpp: "XMPP" };

export function open(context) {
  const { root, signal } = context;
  const place = h("div.card");
  let words = "";
  let found = [];
  const show = () => {
    const rows = found.filter((row) => !words || JSON.stringify(row).toLowerCase().includes(words.toLowerCase()));
    if (!rows.length) return words ? empty("No entry has these words") : empty("Nothing was done yet", "Whatever is done through this page, the API, the command line or a client stands here.");
    return table({
      caption: "Audit log",
      rows,
      brief: (row) => `${row.who} · ${[row.what, row.on].filter(Boolean).join(" ")} · ${row.outcome}`,
      columns: [
        { title: "When", class: "line", cell: (row) => h("time", { datetime: iso(row.at) }, moment(row.at, true)) },
        { title: "Who", class: "wide-only", cell: (row) => (String(row.who).includes("@") ? account(row.who) : row.who) },
        { title: "What", class: "wide-only line", cell: (row) => row.what },
        { title: "On", class: "wide-only", cell: (row) => h("div.clip", { title: row.on || null }, row.on || NONE) },
        { title: "Through", class: "wide-only line", cell: (row) => [interfaces[row.interface] ?? row.interface, row.from ? h("span.soft", {}, ` from ${row.from}`) : null] },
        { title: "Outcome", class: "wide-only", cell: (row) => h("span.badge", { class: good(row.outcome) ? "good" : "bad" }, row.outcome) },
      ],
    });
  };
  const load = loader(
    place,
    async (stopped) => {
      const { items } = await api.get("/audit", { limit: 500 }, { signal: AbortSignal.any([stopped, signal]) });
      found = [...items].sort((a, b) => b.number - a.number);
      return found;
    },
    show,
  );
  const search = h("input", { type: "search", placeholder: "Who, what, or on whom", spellcheck: "false", autocapitalize: "none" });
  search.addEventListener("input", later(150, () => {
    words = search.value.trim();
    put(place, show());
  }));
  const wide = field("Search", search);
  wide.classList.add("wide");
  const tools = h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, wide);
  put(root, context.head("What was done by whom, through every interface. The log has the same lines for good.", h("button", { type: "button", onclick: load }, "Refresh")), tools, place);
  load();
}

const iso = (time) => new Date((seconds(time) ?? 0) * 1000).toISOString();
