//! Paging through lists of any length: the API gives a page and the key behind which the next one begins. The key stands in
//! the address, so a reload and the browser's way back find the same page.
//!
//! The trap: there is no page number to jump to, and none to be wrong after somebody was added in front. Who wants a
//! place far away searches for how its addresses begin.

import { h } from "./dom.js";
import { count } from "./format.js";

export const SIZES = [25, 50, 100, 200];
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
export function choose(n) {
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

/// What stands below a table. `turn(after, step)` opens the page behind a key; `step` is -1, 0 (the first) or 1.
export function pages({ first, rows, total, next, after, back, turn }) {
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
