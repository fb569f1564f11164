//! What happened last: warnings and errors of the log, and what was done through the API, commands and the command line.
//!
//! The trap: two lists with numbers of their own; they are put in order by time, and only the newest of each are asked for.

import * as api from "../app/api.js";
import { address } from "../app/address.js";
import { h, put } from "../app/dom.js";
import { moment, seconds } from "../app/format.js";
import { empty } from "../app/table.js";

const SHOWN = 8;
const LEVELS = { error: ["bad", "Error"], warn: ["warn", "Warning"] };

const logged = ({ time, level, message }) => ({ at: seconds(time), kind: LEVELS[level], text: message, way: address("log", { level: "warn" }) });
const done = ({ at, who, what, on, outcome }) => ({
  at: seconds(at),
  kind: outcome === "done" ? ["", "Done"] : ["warn", "Refused"],
  text: `${who}: ${[what, on].filter(Boolean).join(" ")}${outcome === "done" ? "" : `, ${outcome}`}`,
  way: address("audit"),
});

/// A section, and a function that asks again.
export function events(signal) {
  const list = h("div");
  const element = h("section.part", { "aria-label": "Recent events" }, h("h2", {}, "Recent events"), h("div.card", {}, list));
  const load = async () => {
    const get = (path, values) => api.get(path, values, { signal });
    const [log, audit] = await Promise.all([get("/log", { level: "warn", limit: SHOWN }), get("/audit", { limit: SHOWN })]);
    const rows = [...log.lines.map(logged), ...audit.items.map(done)].sort((a, b) => b.at - a.at).slice(0, SHOWN);
    const row = ({ at, kind: [tint, word], text, way }) =>
      h("li", {}, h("time", { datetime: new Date(at * 1000).toISOString() }, moment(at, true)), h("span.badge", { class: tint }, word), h("a", { href: way }, text));
    put(list, rows.length ? h("ol.events", {}, rows.map(row)) : empty("No recent events"));
  };
  return { element, load };
}
