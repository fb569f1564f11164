//! Keyset pagination: the API returns a page and the key after which the next one starts. The key is part of the URL, so a reload
//! and the browser's history lead to the same page.
//!
//! # Pitfalls
//!
//! There are no page numbers to jump to, which an insertion would invalidate anyway. Users search for the prefix of an address
//! instead.

import { debounce, selectBox, field, h } from "./dom.js";
import { count } from "./format.js";

const PAGE_SIZES = [25, 50, 100, 200];
const KEY = "throng-rows";

/// Rows per page, as last selected.
export function pageSize() {
  try {
    const n = Number(localStorage.getItem(KEY));
    return PAGE_SIZES.includes(n) ? n : 50;
  } catch {
    return 50;
  }
}
function storePageSize(n) {
  try {
    localStorage.setItem(KEY, String(n));
  } catch {
    // For this page only.
  }
}

/// The previous pages of a list: for each its key and the number of rows before it.
export class PageHistory {
  constructor() {
    this.key = null;
    this.steps = [];
  }
  /// Clears the history when another list or the first page is shown.
  sync(key, after) {
    if (this.key !== key || !after) this.steps = [];
    this.key = key;
  }
  /// Whether the previous page is known; after a reload only the first page is.
  get hasPrevious() {
    return this.steps.length > 0;
  }
}

/// Pagination of one view. `state` holds the filters (`keys`, as in the URL), the key after which the page starts and the number
/// of rows before it; `show(values)` lists that page, where `values` belong into the URL, and returns a promise. `restart` shows
/// the first page, `searchSoon` applies the search field, `tools` are the form's fields, and `below` creates the page navigation.
export function pager(pageHistory, { values, keys = ["search"], placeholder, show }) {
  const state = { after: values.get("after") ?? "", first: Number(values.get("first") ?? 0) };
  for (const key of keys) state[key] = values.get(key) ?? "";
  const search = h("input", { type: "search", value: state.search, autocapitalize: "none", spellcheck: "false", placeholder });
  const pageSizes = selectBox(PAGE_SIZES.map((n) => [n, `${n} rows`]), pageSize());
  const searchField = field("Search", search);
  searchField.classList.add("wide");

  const list = () => {
    pageHistory.sync([...keys.map((key) => state[key]), pageSize()].join(" "), state.after);
    return show({ ...state, first: state.first || "" });
  };
  const restart = () => {
    [state.after, state.first] = ["", 0];
    return list();
  };
  const goToPage = (key, step, shown) => {
    if (step > 0) {
      pageHistory.steps.push([state.after, state.first]);
      state.first += shown;
      state.after = key;
    } else if (step < 0) {
      [state.after, state.first] = pageHistory.steps.pop() ?? ["", 0];
    } else {
      [state.after, state.first] = ["", 0];
    }
    list().then(() => window.scrollTo(0, 0));
  };
  const searchSoon = debounce(250, () => {
    const text = search.value.trim();
    if (text === state.search) return;
    state.search = text;
    restart();
  });
  search.addEventListener("input", searchSoon);
  pageSizes.addEventListener("change", () => {
    storePageSize(Number(pageSizes.value));
    restart();
  });
  return {
    state,
    list,
    restart,
    searchSoon,
    tools: [searchField, field("Show", pageSizes)],
    typed: () => search.value.trim(),
    below: (shown, total, next) =>
      pages({ first: state.first, rows: shown, total, next, after: state.after, hasPrevious: pageHistory.hasPrevious, goToPage: (key, step) => goToPage(key, step, shown) }),
  };
}

/// The page navigation below a table. `goToPage(after, step)` opens the page after a key; `step` is -1, 0 (the first) or 1.
function pages({ first, rows, total, next, after, hasPrevious, goToPage }) {
  const of = typeof total === "number" ? ` of ${count(total)}` : "";
  const text = rows ? `${count(first + 1)} to ${count(first + rows)}${of}` : "No entries";
  const button = (label, on, act) => h("button.small", { type: "button", disabled: !on, onclick: act }, label);
  return h(
    "nav.pages",
    { "aria-label": "Pages" },
    h("span", {}, text),
    h(
      "div.row",
      {},
      button("First", after, () => goToPage("", 0)),
      button("Previous", hasPrevious, () => goToPage(null, -1)),
      button("Next", next, () => goToPage(next, 1)),
    ),
  );
}
