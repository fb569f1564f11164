//! The overview: charts of the last hour with a common time axis, of all nodes or of one, health warnings, recent events and
//! metrics by domain.
//!
//! # Pitfalls
//!
//! A page in the background must not poll every two seconds; it stops, and fills the gap when it becomes visible.

import * as api from "../app/api.js";
import { Chart } from "../app/chart.js";
import { address } from "../app/address.js";
import { h, replaceContent } from "../app/dom.js";
import { bytes, clock, count, day, NONE, duration, value } from "../app/format.js";
import { announce } from "../app/toast.js";
import { History } from "../app/series.js";
import { missingNotice, nodeSelect } from "../app/nodes.js";
import { table, errorNotice } from "../app/table.js";
import { OVERVIEW_CHARTS } from "./overview_charts.js";
import { healthWarnings } from "./health_warnings.js";
import { domainMetrics } from "./domain_metrics.js";
import { events } from "./events.js";

export const title = "Overview";

const RANGES = [[300, "5 min"], [900, "15 min"], [3600, "1 hour"]];
/// Kept for the lifetime of the page, so that the view has data immediately when it is opened again.
const history = new History();
/// The node whose metrics the history has; empty for sums over all nodes.
let node = "";
/// The selected range in seconds; 0 until the user selects one.
let chosen = 0;

/// Poll interval of data that changes slowly, in milliseconds.
const SLOW_POLL_MS = 10_000;

const range = () => chosen || (history.span <= 300 ? 300 : 900);

/// Another node has other values.
function selectNode(name) {
  if (node === name) return;
  node = name;
  history.clear();
}

export function open(context) {
  const { root, values, signal } = context;
  selectNode(values.get("node") ?? "");
  const board = {
    history,
    at: null,
    /// Whether the cursor was moved by keyboard: then it moves with time; under a pointer it stays there.
    byKeyboard: false,
    get samples() {
      return Math.max(2, Math.round(range() / history.step));
    },
    moveCursor(index, byKeyboard = false) {
      const last = this.samples - 1;
      const at = index === null ? null : Math.min(last, Math.max(0, index));
      this.byKeyboard = byKeyboard;
      if (at === this.at) return;
      this.at = at;
      updateCursor();
    },
  };
  const groups = OVERVIEW_CHARTS.map(([name, specs]) => [name, specs.map((spec) => new Chart(spec, board))]);
  const charts = groups.flatMap(([, list]) => list);

  const timeLabel = h("span.moment", {});
  const ranges = h(
    "fieldset.segments",
    {},
    h("legend.visually-hidden", {}, "Time shown"),
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
      replaceContent(pause, paused ? "Continue" : "Pause");
      if (!paused) poll();
      else updateCursor();
    },
  }, "Pause");

  const nodes = nodeSelect(node, {
    signal,
    changed: (name) => {
      selectNode(name);
      context.keep("overview", { node });
      board.at = null;
      requested?.abort();
      poll();
      pollSlow();
    },
  });
  const errorBox = h("div");
  const state = h("div.state.card", {}, h("p.verdict", {}, "Loading…"));
  const dataTable = h("details", { ontoggle: () => dataTable.open && renderTable() }, h("summary", {}, "Show as a table"), h("div"));
  const plots = h(
    "div",
    {},
    groups.map(([name, list], i) =>
      h("section", { class: i ? "part" : null, "aria-label": name }, i ? h("h2", {}, name) : h("h2.visually-hidden", {}, name), h("div.board", {}, list.map((chart) => chart.element))),
    ),
  );
  const sections = [events(signal, () => node), domainMetrics(signal, 2)];
  replaceContent(root, context.head(null, nodes.element, timeLabel, ranges, pause), errorBox, state, plots, sections.map(({ element }) => element), h("section.part", {}, dataTable));

  function updateCursor() {
    for (const chart of charts) chart.showValues();
    const { samples, at } = board;
    if (!history.end) replaceContent(timeLabel);
    else if (at === null) replaceContent(timeLabel, paused ? `Paused at ${clock(history.end)}` : `At ${clock(history.end)}`);
    else replaceContent(timeLabel, `At ${clock(history.end - (samples - 1 - at) * history.step)}`);
  }

  function renderTable() {
    const rows = charts.flatMap((chart) => chart.rows());
    const cell = (pick) => (row) => (row.summary ? value(pick(row.summary), row.kind) : NONE);
    const last = dataTable.lastChild;
    replaceContent(
      last,
      h(
        "div.card.figures",
        {},
        table({
          caption: `Metrics of the last ${duration(range())}`,
          rows,
          columns: [
            { title: "Metric", cell: (row) => (row.label === row.title ? row.title : `${row.title}: ${row.label}`) },
            { title: "Now", class: "number", cell: (row) => value(row.now, row.kind) },
            { title: "Mean", class: "number", cell: cell((s) => s.mean) },
            { title: "Minimum", class: "number wide-only", cell: cell((s) => s.least) },
            { title: "Maximum", class: "number", cell: cell((s) => s.most) },
          ],
        }),
      ),
    );
  }

  let lastVerdict = "";
  function updateHealth() {
    const { current } = history;
    const warnings = healthWarnings(history);
    const severity = warnings.some(({ critical }) => critical) ? "bad" : warnings.length ? "warn" : "";
    const text = warnings.length ? `${count(warnings.length)} ${warnings.length === 1 ? "thing needs" : "things need"} attention` : "Nothing needs attention";
    const { certificates = [], disk_free_bytes: free, disk_size_bytes: size, database_bytes: database } = history.resources;
    const [first] = certificates;
    const errors = Math.round(history.sum("log_errors"));
    const facts = [
      ["Nodes", current.nodes > 1 ? h("a", { href: address("nodes") }, count(current.nodes)) : null],
      [current.nodes > 1 ? "Last start before" : "Up for", duration(current.up_seconds)],
      ["Version", current.version],
      ["Connections", count(current.connections)],
      ["Errors, last hour", errors ? h("a", { href: address("log", { level: "error" }) }, count(errors)) : history.has("log_errors") ? "0" : null],
      ["Certificate until", first ? h("span", { title: first.names.join(", ") }, day(first.not_after)) : null],
      ["Disk free", typeof free === "number" ? `${bytes(free)} of ${bytes(size)}` : null],
      ["Database", bytes(database)],
    ].filter(([, text]) => text !== undefined && text !== null && text !== NONE);
    replaceContent(
      state,
      h("p.verdict", {}, h("span.lamp", { class: severity || null, "aria-hidden": "true" }), text),
      facts.map(([name, text]) => h("p.fact", {}, `${name} `, h("strong", {}, text))),
      warnings.length ? h("ul", {}, warnings.map(({ text }) => h("li", {}, text))) : null,
    );
    if (lastVerdict && lastVerdict !== text) announce(text);
    lastVerdict = text;
  }

  function draw() {
    const shown = ranges.querySelector(`[value="${range()}"]`);
    if (!shown.checked) shown.checked = true;
    for (const chart of charts) chart.draw();
    updateCursor();
    if (dataTable.open) renderTable();
  }

  let timer = 0;
  let polling = false;
  /// Aborts the request when another node is selected.
  let requested = null;
  let failed = false;
  async function poll() {
    clearTimeout(timer);
    if (signal.aborted || paused || polling || document.hidden) return;
    polling = true;
    requested = new AbortController();
    const { signal: aborted } = requested;
    try {
      const end = history.end;
      const found = await api.get("/overview", { since: history.since, node }, { signal: AbortSignal.any([aborted, signal]) });
      history.add(found);
      const elapsedSamples = end ? Math.round((history.end - end) / history.step) : 0;
      failed = false;
      replaceContent(errorBox, missingNotice(found.missing));
      updateHealth();
      if (board.at !== null && board.byKeyboard) board.at = Math.max(0, board.at - elapsedSamples);
      draw();
    } catch (error) {
      if (signal.aborted || aborted.aborted) return;
      // An unreachable node is shown in the banner above every view.
      if (!failed && error.status) replaceContent(errorBox, errorNotice(new Error(`${error.message} The console retries every few seconds.`)));
      failed = true;
      lastVerdict = error.message;
      const dataTime = history.end ? h("p.fact", {}, "Metrics of ", h("strong", {}, clock(history.end))) : null;
      replaceContent(state, h("p.verdict", {}, h("span.lamp.bad", { "aria-hidden": "true" }), error.message), dataTime);
    } finally {
      polling = false;
      timer = setTimeout(poll, aborted.aborted ? 0 : failed ? 5_000 : history.step * 1_000);
    }
  }

  let slowTimer = 0;
  async function pollSlow() {
    clearTimeout(slowTimer);
    if (signal.aborted || document.hidden) return;
    // poll() reports failures; it runs more often.
    if (!paused) await Promise.allSettled([nodes, ...sections].map(({ load }) => load()));
    slowTimer = setTimeout(pollSlow, SLOW_POLL_MS);
  }

  const resizeObserver = new ResizeObserver(() => draw());
  resizeObserver.observe(plots);
  document.addEventListener("visibilitychange", () => {
    poll();
    pollSlow();
  }, { signal });
  if (history.end) updateHealth();
  draw();
  poll();
  pollSlow();
  return () => {
    clearTimeout(timer);
    clearTimeout(slowTimer);
    resizeObserver.disconnect();
  };
}
