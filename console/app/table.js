//! Tables, and what takes their place: nothing there, or trouble.

import { h, put } from "./dom.js";

/// A table. `columns` are { title, class, cell(row) }; the first is the head of its row. `brief(row)` says on a phone what
/// the hidden columns would.
export function table({ caption, columns, rows, brief, mark }) {
  const head = columns.map(({ title, class: kind, unseen }) =>
    h("th", { scope: "col", class: kind }, unseen ? h("span.unseen", {}, title) : title),
  );
  const body = rows.map((row) => {
    const cells = columns.map(({ cell, class: kind }, i) =>
      i === 0
        ? h("th", { scope: "row", class: kind }, cell(row), brief ? h("span.brief", {}, brief(row)) : null)
        : h("td", { class: kind }, cell(row)),
    );
    return h("tr", { class: mark?.(row) }, cells);
  });
  return h(
    "div.sheet",
    {},
    h("table", {}, h("caption.unseen", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)),
  );
}

/// In place of a table without rows.
export const empty = (title, text) => h("div.empty", {}, h("strong", {}, title), text ?? null);

/// In place of what could not be loaded.
export function trouble(error, again) {
  return h(
    "div.trouble",
    { role: "alert" },
    h("span", {}, error.message),
    again ? h("button.small", { type: "button", onclick: again }, "Try again") : null,
  );
}

/// Fills a place with what `load` answers. Says so while it lasts, keeps what was there before, and leaves what comes too
/// late. `show` draws it.
export function loader(place, load, show) {
  let running = null;
  return async function again() {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    place.setAttribute("aria-busy", "true");
    const slow = setTimeout(() => {
      if (!place.firstChild) put(place, h("p.empty", {}, "Loading…"));
    }, 200);
    try {
      const found = await load(mine.signal);
      if (!mine.signal.aborted) put(place, show(found));
    } catch (error) {
      if (!mine.signal.aborted) put(place, trouble(error, again));
    } finally {
      clearTimeout(slow);
      if (running === mine) place.removeAttribute("aria-busy");
    }
  };
}
