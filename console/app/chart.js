//! A time-series chart of the overview: lines or stacked areas. SVG in CSS pixels, so text is not scaled.
//!
//! The pointer or the arrow keys move one cursor through all charts, and the values in their headers become those at the cursor;
//! there is no tooltip that covers the data.
//!
//! # Pitfalls
//!
//! There are more samples than pixels. Each bucket shows its mean as a line and its range as a band, so a spike of two seconds
//! is visible in an hour.

import { h, s, replaceContent } from "./dom.js";
import { clock, parts, short, value } from "./format.js";
import { summary } from "./series.js";
import { timeTicks, axisMaximum } from "./scale.js";

const HEIGHT = 116;
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 8, 8, 20];
/// Width of a bucket in pixels.
const BUCKET_PIXELS = 1.5;

export class Chart {
  /// `spec`: title, kind, series of [name, label, class], layers (whether they are stacked).
  constructor(spec, board) {
    this.spec = spec;
    this.board = board;
    this.width = 0;
    this.values = h("dl.values", { class: spec.series.length > 2 ? "many" : null });
    this.svg = s("svg", { "aria-hidden": "true", height: HEIGHT });
    this.plot = h(
      "div.plot",
      {
        tabindex: "0",
        role: "slider",
        "aria-label": `${spec.title}: move through time`,
        "aria-orientation": "horizontal",
        "aria-valuemin": "0",
      },
      this.svg,
    );
    const unit = spec.kind === "rate" ? "per second" : spec.per;
    this.element = h(
      "section.chart.card",
      { "aria-label": spec.title },
      h("header", {}, h("h3", {}, spec.title, unit ? h("span.unit", {}, ` ${unit}`) : null), this.values),
      this.plot,
    );
    this.cursor = s("g", {});
    for (const kind of ["pointermove", "pointerdown"]) this.plot.addEventListener(kind, (event) => this.onPointer(event));
    this.plot.addEventListener("pointerleave", () => board.moveCursor(null));
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    this.plot.addEventListener("blur", () => board.moveCursor(null));
  }

  onPointer(event) {
    const box = this.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / Math.max(1, box.width - LEFT - RIGHT);
    this.board.moveCursor(Math.round(share * (this.board.samples - 1)));
  }

  onKey(event) {
    const last = this.board.samples - 1;
    const at = this.board.at ?? last;
    const step = event.shiftKey || event.key.startsWith("Page") ? Math.max(1, Math.round(last / 20)) : 1;
    const to = {
      ArrowLeft: at - step,
      ArrowDown: at - step,
      PageDown: at - step,
      ArrowRight: at + step,
      ArrowUp: at + step,
      PageUp: at + step,
      Home: 0,
      End: last,
      Escape: null,
    }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.board.moveCursor(to, true);
  }

  /// Redraws from the history.
  draw() {
    const { history, samples } = this.board;
    const { series, layers, kind } = this.spec;
    this.width = this.plot.clientWidth || this.width;
    this.data = series.map(([name]) => history.last(name, samples));
    if (!this.width) return;
    const [w, height] = [this.width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM];
    const buckets = Math.max(2, Math.min(samples, Math.floor(w / BUCKET_PIXELS)));
    const shapes = this.data.map((values) => downsample(values, buckets));
    if (layers) stack(shapes);
    const maximum = Math.max(0, ...shapes.map((shape) => shape.most));
    this.top = axisMaximum(maximum, kind);
    const x = (i) => round(LEFT + (i / (buckets - 1)) * w);
    const y = (n) => round(TOP + height * (1 - n / this.top));
    this.y = y;

    const out = [];
    for (const share of [1, 0.5, 0]) {
      const level = y(this.top * share);
      out.push(s("line", { class: share ? "grid" : "base", x1: LEFT, x2: LEFT + w, y1: level, y2: level }));
      out.push(s("text", { class: "y", x: LEFT - 7, y: level + 4 }, short(this.top * share, kind)));
    }
    const [from, to] = [history.end - (samples - 1) * history.step, history.end];
    if (to > 0) {
      for (const at of timeTicks(from, to, Math.max(2, w / 74))) {
        const px = round(LEFT + ((at - from) / (to - from)) * w);
        const exact = to - from < 120;
        const half = exact ? 26 : 16;
        out.push(s("line", { class: "tick", x1: px, x2: px, y1: TOP + height, y2: TOP + height + 3 }));
        // The outermost labels are moved inwards so that they are not clipped.
        const label = Math.min(LEFT + w + RIGHT - half, Math.max(LEFT - 4 + half, px));
        if (Math.abs(label - px) < half) out.push(s("text", { class: "x", x: label, y: HEIGHT - 4 }, clock(at, exact)));
      }
    }
    const known = shapes.some((shape) => shape.known);
    // An error series without errors is not drawn in red.
    const tints = series.map(([, , tint], i) => (tint === "kbad" && shapes[i].most === 0 ? "k1" : tint));
    if (known && layers) {
      for (let i = shapes.length - 1; i >= 0; i--) {
        const below = i ? shapes[i - 1].mean : null;
        const d = area(shapes[i].mean, below ? (j) => y(below[j]) : () => y(0), x, y);
        out.push(s("path", { class: `layer ${series[i][2]}`, d }));
      }
    } else if (known) {
      shapes.forEach((shape, i) => {
        const tint = tints[i];
        if (i === 0) out.push(s("path", { class: `area ${tint}`, d: area(shape.mean, () => y(0), x, y) }));
        if (buckets < samples) out.push(s("path", { class: `band ${tint}`, d: area(shape.high, (j) => y(shape.low[j]), x, y) }));
      });
      for (let i = shapes.length - 1; i >= 0; i--) {
        out.push(s("path", { class: `line ${tints[i]}`, d: line(shapes[i].mean, x, y) }));
      }
    } else {
      const text = this.spec.none ?? (history.end ? "No data yet" : "Loading");
      out.push(s("text", { class: "none", x: LEFT + w / 2, y: TOP + height / 2 - 12 }, text));
    }
    replaceContent(this.svg, out, this.cursor);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.showValues();
  }

  /// Shows the values at the cursor.
  showValues() {
    const { history, samples, at } = this.board;
    const { series, layers, kind } = this.spec;
    if (!this.data) return;
    const index = at ?? samples - 1;
    const now = this.data.map((values) => values[index]);
    const shown = series.map(([, label, tint], i) => {
      const [text, unit] = parts(now[i], kind);
      const swatch = h("span.swatch", { class: `${tint}${layers ? "" : " line"}` });
      const name = series.length > 1 ? h("dt", {}, swatch, label) : h("dt.visually-hidden", {}, label);
      return h("div", {}, name, h("dd", {}, text, unit && kind !== "rate" ? h("span.u", {}, unit) : null));
    });
    replaceContent(this.values, shown);

    const spokenValues = series.map(([, label], i) => `${series.length > 1 ? `${label} ` : ""}${value(now[i], kind)}`).join(", ");
    const time = history.end ? clock(history.end - (samples - 1 - index) * history.step) : "";
    // A screen reader reads every change of the focused element; only a key press may cause one.
    if (document.activeElement !== this.plot || this.announcedAt !== at) {
      this.plot.setAttribute("aria-valuemax", samples - 1);
      this.plot.setAttribute("aria-valuenow", index);
      this.plot.setAttribute("aria-valuetext", `${time}: ${spokenValues}`);
    }
    this.announcedAt = at;

    const marks = [];
    if (at !== null && this.width) {
      const px = Math.round(LEFT + (index / Math.max(1, samples - 1)) * (this.width - LEFT - RIGHT)) + 0.5;
      marks.push(s("line", { class: "cursor", x1: px, x2: px, y1: TOP, y2: HEIGHT - BOTTOM }));
      let sum = 0;
      series.forEach(([, , tint], i) => {
        if (Number.isNaN(now[i])) return;
        sum = layers ? sum + now[i] : now[i];
        marks.push(s("circle", { class: `dot ${tint}`, cx: px, cy: this.y(Math.min(sum, this.top)), r: 4 }));
      });
    }
    replaceContent(this.cursor, marks);
  }

  /// For the table below the charts: a row for each series.
  rows() {
    return this.spec.series.map(([, label], i) => ({
      title: this.spec.title,
      label,
      kind: this.spec.kind,
      summary: summary(this.data?.[i] ?? []),
      now: this.data?.[i]?.at(-1),
    }));
  }
}

const round = (n) => Math.round(n * 10) / 10;

/// Mean, minimum and maximum of each bucket; NaN where there is no data.
function downsample(values, n) {
  const [mean, low, high] = [new Array(n), new Array(n), new Array(n)];
  let most = 0;
  let known = false;
  for (let i = 0; i < n; i++) {
    const from = Math.floor((i * values.length) / n);
    const found = summary(values.slice(from, Math.max(from + 1, Math.floor(((i + 1) * values.length) / n))));
    mean[i] = found ? found.mean : Number.NaN;
    low[i] = found ? found.least : Number.NaN;
    high[i] = found ? found.most : Number.NaN;
    if (found) {
      known = true;
      most = Math.max(most, found.most);
    }
  }
  return { mean, low, high, most, known };
}

/// Stacks each layer on those before it.
function stack(shapes) {
  for (let i = 1; i < shapes.length; i++) {
    const [below, here] = [shapes[i - 1].mean, shapes[i].mean];
    for (let j = 0; j < here.length; j++) {
      if (Number.isNaN(here[j])) here[j] = below[j];
      else if (!Number.isNaN(below[j])) here[j] += below[j];
    }
    shapes[i].most = here.reduce((most, n) => (n > most ? n : most), 0);
  }
}

/// Ranges without a gap, as pairs of first and last index.
function segments(values) {
  const out = [];
  let from = -1;
  for (let i = 0; i <= values.length; i++) {
    const there = i < values.length && !Number.isNaN(values[i]);
    if (there && from < 0) from = i;
    if (!there && from >= 0) {
      out.push([from, i - 1]);
      from = -1;
    }
  }
  return out;
}

function line(values, x, y) {
  return segments(values)
    .map(([from, to]) => {
      // A single sample is a short dash: a line of length zero is hardly visible.
      if (from === to) return `M${x(from) - 1.5},${y(values[from])}h3`;
      const points = [];
      for (let i = from; i <= to; i++) points.push(`${x(i)},${y(values[i])}`);
      return `M${points.join("L")}`;
    })
    .join("");
}

function area(values, floor, x, y) {
  return segments(values)
    .map(([from, to]) => {
      const [over, under] = [[], []];
      for (let i = from; i <= to; i++) {
        over.push(`${x(i)},${y(values[i])}`);
        under.unshift(`${x(i)},${floor(i)}`);
      }
      return `M${over.join("L")}L${under.join("L")}Z`;
    })
    .join("");
}
