//! The overview: what the node does now and did in the last hour, as charts that share their time.
//!
//! The trap: a page in the background must not ask every two seconds; it stops, and fills the gap when it is looked at.

import * as api from "../app/api.js";
import { Chart } from "../app/chart.js";
import { address } from "../app/address.js";
import { h, put } from "../app/dom.js";
import { bytes, clock, count, day, NONE, span, value } from "../app/format.js";
import { say } from "../app/notice.js";
import { History } from "../app/series.js";
import { table, trouble } from "../app/table.js";
import { BOARD } from "./board.js";
import { concerns } from "./concerns.js";
import { domainMetrics } from "./domain_metrics.js";
import { events } from "./events.js";

export const title = "Overview";

const RANGES = [[300, "5 min"], [900, "15 min"], [3600, "1 hour"]];
/// Kept while the page lives, so that coming back shows at once what is known.
const history = new History();
/// What somebody chose; until then as much as there is to see.
let chosen = 0;

/// Milliseconds between two looks at what changes slowly.
const SLOW = 10_000;

const range = () => chosen || (history.span <= 300 ? 300 : 900);

export function open(context) {
  const { root, signal } = context;
  const board = {
    history,
    at: null,
    /// Whether the moment was chosen by key: then it moves with time; under a pointer it stays where the pointer is.
    held: false,
    get samples() {
      return Math.max(2, Math.round(range() / history.step));
    },
    point(index, held = false) {
      const last = this.samples - 1;
      const at = index === null ? null : Math.min(last, Math.max(0, index));
      this.held = held;
      if (at === this.at) return;
      this.at = at;
      read();
    },
  };
  const groups = BOARD.map(([name, specs]) => [name, specs.map((spec) => new Chart(spec, board))]);
  const charts = groups.flatMap(([, list]) => list);

  const moment = h("span.moment", {});
  const ranges = h(
    "fieldset.segments",
    {},
    h("legend.unseen", {}, "Time shown"),
    RANGES.map(([seconds, text]) => {
      const radio = h("input", {
        type: "radio",
        name: "range",
        value: seconds,
        checked: seconds === range(),
        onchange: () => {
          chosen = seconds;
          board.at = null;
          draw();
        },
      });
      return h("label", {}, radio, h("span", {}, text));
    }),
  );
  let paused = false;
  const pause = h("button", {
    type: "button",
    onclick: () => {
      paused = !paused;
      put(pause, paused ? "Continue" : "Pause");
      if (!paused) tick();
      else read();
    },
  }, "Pause");

  const problem = h("div");
  const state = h("div.state.card", {}, h("p.verdict", {}, "Asking the node…"));
  const figures = h("details", { ontoggle: () => figures.open && tabulate() }, h("summary", {}, "The same as a table"), h("div"));
  const plots = h(
    "div",
    {},
    groups.map(([name, list], i) =>
      h("section", { class: i ? "part" : null, "aria-label": name }, i ? h("h2", {}, name) : h("h2.unseen", {}, name), h("div.board", {}, list.map((chart) => chart.element))),
    ),
  );
  const parts = [events(signal), domainMetrics(signal, 2)];
  put(root, context.head(null, moment, ranges, pause), problem, state, plots, parts.map(({ element }) => element), h("section.part", {}, figures));

  function read() {
    for (const chart of charts) chart.read();
    const { samples, at } = board;
    if (!history.end) put(moment);
    else if (at === null) put(moment, paused ? `Paused at ${clock(history.end)}` : `At ${clock(history.end)}`);
    else put(moment, `At ${clock(history.end - (samples - 1 - at) * history.step)}`);
  }

  function tabulate() {
    const rows = charts.flatMap((chart) => chart.rows());
    const cell = (pick) => (row) => (row.summary ? value(pick(row.summary), row.kind) : NONE);
    const last = figures.lastChild;
    put(
      last,
      h(
        "div.card.figures",
        {},
        table({
          caption: `Figures of the last ${span(range())}`,
          rows,
          columns: [
            { title: "Figure", cell: (row) => (row.label === row.title ? row.title : `${row.title}: ${row.label}`) },
            { title: "Now", class: "number", cell: (row) => value(row.now, row.kind) },
            { title: "Mean", class: "number", cell: cell((s) => s.mean) },
            { title: "Least", class: "number wide-only", cell: cell((s) => s.least) },
            { title: "Most", class: "number", cell: cell((s) => s.most) },
          ],
        }),
      ),
    );
  }

  let verdict = "";
  function judge() {
    const { current } = history;
    const found = concerns(history);
    const worst = found.some(({ grave }) => grave) ? "bad" : found.length ? "warn" : "";
    const text = found.length ? `${count(found.length)} ${found.length === 1 ? "thing needs" : "things need"} attention` : "Nothing needs attention";
    const { certificates = [], disk_free_bytes: free, disk_size_bytes: size, database_bytes: database } = history.resources;
    const [first] = certificates;
    const errors = Math.round(history.sum("log_errors"));
    const facts = [
      ["Up for", span(current.up_seconds)],
      ["Version", current.version],
      ["Connections", count(current.connections)],
      ["Errors, last hour", errors ? h("a", { href: address("log", { level: "error" }) }, count(errors)) : history.has("log_errors") ? "0" : null],
      ["Certificate until", first ? h("span", { title: first.names.join(", ") }, day(first.not_after)) : null],
      ["Disk free", typeof free === "number" ? `${bytes(free)} of ${bytes(size)}` : null],
      ["Database", bytes(database)],
    ].filter(([, text]) => text !== undefined && text !== null && text !== NONE);
    put(
      state,
      h("p.verdict", {}, h("span.lamp", { class: worst || null, "aria-hidden": "true" }), text),
      facts.map(([name, text]) => h("p.fact", {}, `${name} `, h("strong", {}, text))),
      found.length ? h("ul", {}, found.map(({ text }) => h("li", {}, text))) : null,
    );
    if (verdict && verdict !== text) say(text);
    verdict = text;
  }

  function draw() {
    const shown = ranges.querySelector(`[value="${range()}"]`);
    if (!shown.checked) shown.checked = true;
    for (const chart of charts) chart.draw();
    read();
    if (figures.open) tabulate();
  }

  let timer = 0;
  let asking = false;
  let failed = false;
  async function tick() {
    clearTimeout(timer);
    if (signal.aborted || paused || asking || document.hidden) return;
    asking = true;
    try {
      const end = history.end;
      history.add(await api.get("/overview", { since: history.since }, { signal }));
      const passed = end ? Math.round((history.end - end) / history.step) : 0;
      failed = false;
      put(problem);
      judge();
      if (board.at !== null && board.held) board.at = Math.max(0, board.at - passed);
      draw();
    } catch (error) {
      if (signal.aborted) return;
      // That it cannot be reached stands above every view.
      if (!failed && error.status) put(problem, trouble(new Error(`${error.message} It is asked again every few seconds.`)));
      failed = true;
      verdict = error.message;
      const known = history.end ? h("p.fact", {}, "Metrics of ", h("strong", {}, clock(history.end))) : null;
      put(state, h("p.verdict", {}, h("span.lamp.bad", { "aria-hidden": "true" }), error.message), known);
    } finally {
      asking = false;
      timer = setTimeout(tick, failed ? 5_000 : history.step * 1_000);
    }
  }

  let asked = 0;
  async function look() {
    clearTimeout(asked);
    if (signal.aborted || document.hidden) return;
    // What fails is said by the other question, which is asked more often.
    if (!paused) await Promise.allSettled(parts.map(({ load }) => load()));
    asked = setTimeout(look, SLOW);
  }

  const watch = new ResizeObserver(() => draw());
  watch.observe(plots);
  document.addEventListener("visibilitychange", () => {
    tick();
    look();
  }, { signal });
  if (history.end) judge();
  draw();
  tick();
  look();
  return () => {
    clearTimeout(timer);
    clearTimeout(asked);
    watch.disconnect();
  };
}
