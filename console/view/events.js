//! Recent events: warnings and errors of the log, and administrative actions.
//!
//! # Pitfalls
//!
//! The lists of each node have separate numbering, so they are merged by time, and only the newest entries of each are requested.

import * as api from "../app/api.js";
import { address } from "../app/address.js";
import { h, replaceContent } from "../app/dom.js";
import { dateTime, seconds } from "../app/format.js";
import { emptyState } from "../app/table.js";

const SHOWN = 8;
const LEVELS = { error: ["bad", "Error"], warn: ["warn", "Warning"] };

const logEvent = ({ time, level, message }) => ({ at: seconds(time), kind: LEVELS[level], text: message, way: address("log", { level: "warn" }) });
const auditEvent = ({ at, who, what, on, outcome }) => ({
  at: seconds(at),
  kind: outcome === "done" ? ["", "Done"] : ["warn", "Refused"],
  text: `${who}: ${[what, on].filter(Boolean).join(" ")}${outcome === "done" ? "" : `, ${outcome}`}`,
  way: address("audit"),
});

/// A section and a function that refreshes it. `selectedNode()` is the node whose events are shown; empty for all.
export function events(signal, selectedNode) {
  const list = h("div");
  const element = h("section.part", { "aria-label": "Recent events" }, h("h2", {}, "Recent events"), h("div.card", {}, list));
  const load = async () => {
    const get = (path, values) => api.get(path, values, { signal });
    const [log, audit] = await Promise.all([get("/log", { level: "warn", limit: SHOWN, node: selectedNode() }), get("/audit", { limit: SHOWN, node: selectedNode() })]);
    const rows = [...log.lines.map(logEvent), ...audit.items.map(auditEvent)].sort((a, b) => b.at - a.at).slice(0, SHOWN);
    const row = ({ at, kind: [tint, word], text, way }) =>
      h("li", {}, h("time", { datetime: new Date(at * 1000).toISOString() }, dateTime(at, true)), h("span.badge", { class: tint }, word), h("a", { href: way }, text));
    replaceContent(list, rows.length ? h("ol.events", {}, rows.map(row)) : emptyState("No recent events"));
  };
  return { element, load };
}
