// What the console computes without a page: numbers for people, axes, the joined history; and its colours.
//
// usage: console_values.js CONSOLE     CONSOLE is the folder of the page's files
//
// Prints `ok NAME` or `FAIL NAME reason`; the status is 1 when one failed.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";

// None of these imports another. Older versions of node take a file outside of a package for CommonJS.
const load = (file) => import(`data:text/javascript,${encodeURIComponent(readFileSync(path.join(process.argv[2], "app", file), "utf8"))}`);
const { bytes, clock, count, plural, dateTime, parts, sentence, short, duration, value } = await load("format.js");
const { timeTicks, axisMaximum } = await load("scale.js");
const { History, summary } = await load("series.js");

const plain = (text) => text.replaceAll("\u202f", " ");

const scenarios = {
  numbers_have_three_digits_and_a_unit() {
    for (const [n, kind, shown] of [
      [0, "count", "0"],
      [9_999, "count", "9999"],
      [1_234_567, "count", "1 234 567"],
      [0, "seconds", "0 ms"],
      [0.000_31, "seconds", "310 µs"],
      [0.002_5, "seconds", "2.50 ms"],
      [12.34, "seconds", "12.3 s"],
      [61_234_567, "bytes", "61.2 MB"],
      [0.004, "rate", "< 0.01/s"],
      [17.25, "rate", "17.3/s"],
      [63.4, "percent", "63%"],
      [Number.NaN, "rate", "–"],
      [undefined, "bytes", "–"],
    ]) {
      assert.equal(plain(value(n, kind)), shown, `${n} as ${kind}`);
    }
    assert.deepEqual(parts(null, "count"), ["–", ""], "absence is not zero");
    assert.equal(plain(bytes(1500)), "1.50 kB");
    assert.deepEqual([count(1), plural(1, "user"), plural(0, "user"), plural(20_000, "user")].map(plain), ["1", "1 user", "0 users", "20 000 users"]);
  },

  axes_are_short_and_round() {
    const labels = [[20_000, "count"], [1_500, "rate"], [10, "count"], [0.002, "seconds"], [150_000, "bytes"], [2.5, "rate"], [0, "bytes"], [100, "percent"]];
    assert.deepEqual(labels.map(([n, kind]) => plain(short(n, kind))), ["20k", "1.5k", "10", "2 ms", "150 kB", "2.5", "0", "100%"]);
    for (const most of [0, 0.3, 1, 7, 9.99, 101, 12_345, 1e9]) {
      for (const kind of ["count", "rate", "bytes", "seconds", "percent"]) {
        const end = axisMaximum(most, kind);
        assert.ok(end >= most && end > 0, `${end} for ${most}`);
        assert.ok(end <= Math.max(most * 2.01, { bytes: 1e3, seconds: 1e-3, percent: 10, rate: 2, count: 4 }[kind]), `${end} for ${most} as ${kind} wastes the space`);
      }
    }
    const hour = timeTicks(1_000_000, 1_003_600, 5);
    assert.ok(hour.length >= 3 && hour.length <= 5 && hour.every((at) => at % 60 === 0), `${hour}`);
  },

  times_are_read_in_every_form() {
    assert.deepEqual([duration(5), duration(61), duration(7_300), duration(90_000), duration(86_400)], ["5 s", "1 min", "2 h 1 min", "1 d 1 h", "1 d"]);
    const at = Date.now();
    assert.equal(dateTime(at), dateTime(at / 1000), "milliseconds and seconds");
    assert.equal(dateTime(new Date(at).toISOString()), clock(at / 1000, false));
    assert.equal(dateTime(null), "–");
    assert.match(dateTime(1.7e9), /^2023-11-1\d \d\d:\d\d$/);
  },

  sentences_begin_and_end() {
    assert.equal(sentence("there is no account a@b"), "There is no account a@b.");
    assert.equal(sentence("a@b.org is not served here"), "a@b.org is not served here.");
    assert.equal(sentence("Is it?"), "Is it?");
    assert.equal(sentence(""), "");
  },

  responses_join_without_gap_or_overlap() {
    const history = new History();
    history.add({ now: 1_000, interval: 2, series: { a: [1, 2, null] } });
    assert.deepEqual(history.last("a", 4), [Number.NaN, 1, 2, Number.NaN]);
    assert.equal(history.since, 1_000);
    history.add({ now: 1_000, interval: 2, series: { a: [] } });
    history.add({ now: 1_004, interval: 2, series: { a: [4, 5] } });
    assert.deepEqual(history.last("a", 5), [1, 2, Number.NaN, 4, 5]);
    // The page slept for longer than the node remembers: a gap, not a line across.
    history.add({ now: 1_012, interval: 2, series: { a: [9] } });
    assert.deepEqual(history.last("a", 5), [5, Number.NaN, Number.NaN, Number.NaN, 9]);
    for (let now = 1_014; now < 9_000; now += 2) history.add({ now, interval: 2, series: { a: [now] } });
    assert.equal(history.seriesByName.get("a").length, 1_800, "an hour is kept, no more");
  },

  rates_are_summed() {
    const history = new History();
    assert.equal(history.sum("errors"), 0);
    history.add({ now: 1_000, interval: 2, series: { errors: [0.5, null, 1, 0] }, resources: { disk_free_bytes: 7 } });
    assert.deepEqual([history.sum("errors"), history.resources.disk_free_bytes], [3, 7]);
  },

  a_restarted_node_is_queried_for_all_samples() {
    const history = new History();
    history.add({ now: 5_000, interval: 2, series: { a: [1] } });
    history.add({ now: 4_000, interval: 2, series: { a: [] } });
    assert.equal(history.since, undefined);
    history.add({ now: 4_002, interval: 2, series: { a: [7, 8] } });
    assert.deepEqual(history.last("a", 3), [Number.NaN, 7, 8]);
    history.add({ now: 0, interval: 2, series: {}, current: { up_seconds: 1 } });
    assert.deepEqual([history.since, history.current.up_seconds], [4_002, 1], "no point was taken yet");
  },

  // WCAG 2.2, sections 1.4.3 and 1.4.11, by day and by night.
  colours_are_distinguishable() {
    const css = readFileSync(path.join(process.argv[2], "style", "base.css"), "utf8");
    const pairs = Object.fromEntries([...css.matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g)].map(([, name, day, night]) => [name, [day, night]]));
    const light = (hex) => {
      const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const grounds = ["ground", "surface", "raised"];
    for (const [front, behind, least] of [
      ["ink", [...grounds, "hover"], 4.5],
      ["soft", [...grounds, "hover"], 4.5],
      ["accent", grounds, 4.5],
      ["accent-strong", ["accent-soft"], 4.5],
      ["on-accent", ["accent", "accent-strong"], 4.5],
      ["good", ["good-soft"], 4.5],
      ["warn", ["warn-soft"], 4.5],
      ["bad", ["bad-soft", "surface"], 4.5],
      ["surface", ["bad"], 4.5],
      ["edge", grounds, 3],
    ]) {
      for (const ground of behind) {
        pairs[front].forEach((colour, i) => {
          const [low, high] = [light(colour), light(pairs[ground][i])].sort((a, b) => a - b);
          assert.ok((high + 0.05) / (low + 0.05) >= least, `--${front} on --${ground}, ${i ? "night" : "day"}`);
        });
      }
    }
  },

  missing_samples_are_not_summed() {
    assert.equal(summary([Number.NaN, Number.NaN]), null);
    assert.deepEqual(summary([1, Number.NaN, 3]), { least: 1, most: 3, mean: 2, n: 2 });
  },
};

let failed = 0;
for (const [name, play] of Object.entries(scenarios)) {
  try {
    play();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name} ${error.message}`);
  }
}
process.exit(failed ? 1 : 0);
