//! Paging through lists of any length: the API gives a page and the key behind which the next one begins. The key stands in
//! the address, so a reload and the browser's way back find the same page.
//!
//! The trap: there is no page number to jump to, and none to be wrong after somebody was added in front. Who wants a
//! place far away searches for how its addresses begin.

import { after as later, choice, field, h } from "./dom.js";
import { count } from "./format.js";

const SIZES = [25, 50, 100, 200];
const KEY = "throng-rows";

/// How many rows a page has, as it was chosen last.
export function size() {
  try {
    const n = Number(localStorage.getItem(KEY));
    return SIZES.includes(n) ? n : 50;
  } catch {
    return 50;
  }
}
function choose(n) {
  try {
    localStorage.setItem(KEY, String(n));
  } catch {
    // For this page only.
  }
}

/// The way through the pages: of those before this one the key, and the number of rows in front.
export class Trail {
  constructor() {
    this.key = null;
    this.steps = [];
  }
  /// Begins anew when something else is listed, or at the first page.
  at(key, after) {
    if (this.key !== key || !after) this.steps = [];
    this.key = key;
  }
  /// Whether the page before is known: after a reload of the page only the first one is.
  get back() {
    return this.steps.length > 0;
  }
}

/// The pages of one view. `state` holds what is listed (`keys`, as in the address), the key behind which the page begins, and
/// the number of rows in front of it; `show(place)` lists that, where `place` is what belongs into the address, and answers a
/// promise. `begin` lists from the first page, `soon` looks for what was typed, `tools` are the fields for the form, and
/// `below` stands below the table.
export function pager(trail, { values, keys = ["search"], placeholder, show }) {
  const state = { after: values.get("after") ?? "", first: Number(values.get("first") ?? 0) };
  for (const key of keys) state[key] = values.get(key) ?? "";
  const search = h("input", { type: "search", value: state.search, autocapitalize: "none", spellcheck: "false", placeholder });
  const rows = choice(SIZES.map((n) => [n, `${n} rows`]), size());
  const wide = field("Search", search);
  wide.classList.add("wide");

  const list = () => {
    trail.at([...keys.map((key) => state[key]), size()].join(" "), state.after);
    return show({ ...state, first: state.first || "" });
  };
  const begin = () => {
    [state.after, state.first] = ["", 0];
    return list();
  };
  const turn = (key, step, shown) => {
    if (step > 0) {
      trail.steps.push([state.after, state.first]);
      state.first += shown;
      state.after = key;
    } else if (step < 0) {
      [state.after, state.first] = trail.steps.pop() ?? ["", 0];
    } else {
      [state.after, state.first] = ["", 0];
    }
    list().then(() => window.scrollTo(0, 0));
  };
  const soon = later(250, () => {
    const text = search.value.trim();
    if (text === state.search) return;
    state.search = text;
    begin();
  });
  search.addEventListener("input", soon);
  rows.addEventListener("change", () => {
    choose(Number(rows.value));
    begin();
  });
  return {
    state,
    list,
    begin,
    soon,
    tools: [wide, field("Show", rows)],
    typed: () => search.value.trim(),
    below: (shown, total, next) =>
      pages({ first: state.first, rows: shown, total, next, after: state.after, back: trail.back, turn: (key, step) => turn(key, step, shown) }),
  };
}

/// What stands below a table. `turn(after, step)` opens the page behind a key; `step` is -1, 0 (the first) or 1.
function pages({ first, rows, total, next, after, back, turn }) {
  const of = typeof total === "number" ? ` of ${count(total)}` : "";
  const text = rows ? `${count(first + 1)} to ${count(first + rows)}${of}` : "Nothing here";
  const button = (label, on, act) => h("button.small", { type: "button", disabled: !on, onclick: act }, label);
  return h(
    "nav.pages",
    { "aria-label": "Pages" },
    h("span", {}, text),
    h(
      "div.row",
      {},
      button("First", after, () => turn("", 0)),
      button("Previous", back, () => turn(null, -1)),
      button("Next", next, () => turn(next, 1)),
    ),
  );
}
