//! Tables, their empty state and their error state.

import { h, replaceContent } from "./dom.js";

/// A table. `columns` are { title, class, cell(row) }; the first is the row header. `brief(row)` summarises the columns that are
/// hidden on a phone.
export function table({ caption, columns, rows, brief: mobileSummary, mark }) {
  const head = columns.map(({ title, class: kind, unseen }) =>
    h("th", { scope: "col", class: kind }, unseen ? h("span.visually-hidden", {}, title) : title),
  );
  const body = rows.map((row) => {
    const cells = columns.map(({ cell, class: kind }, i) =>
      i === 0
        ? h("th", { scope: "row", class: kind }, cell(row), mobileSummary ? h("span.brief", {}, mobileSummary(row)) : null)
        : h("td", { class: kind }, cell(row)),
    );
    return h("tr", { class: mark?.(row) }, cells);
  });
  return h(
    "div.sheet",
    {},
    h("table", {}, h("caption.visually-hidden", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)),
  );
}

/// Replaces a table without rows.
export const emptyState = (title, text) => h("div.empty", {}, h("strong", {}, title), text ?? null);

/// Replaces content that could not be loaded.
export function errorNotice(error, reload) {
  return h(
    "div.error-notice",
    { role: "alert" },
    h("span", {}, error.message),
    reload ? h("button.small", { type: "button", onclick: reload }, "Try again") : null,
  );
}

/// Returns a function that loads data and renders it with `show` into a container. The previous content stays until then, and
/// results of superseded loads are discarded.
export function loader(container, load, show) {
  let running = null;
  return async function reload() {
    running?.abort();
    const controller = new AbortController();
    running = controller;
    container.setAttribute("aria-busy", "true");
    const slow = setTimeout(() => {
      if (!container.firstChild) replaceContent(container, h("p.empty", {}, "Loading…"));
    }, 200);
    try {
      const found = await load(controller.signal);
      if (!controller.signal.aborted) replaceContent(container, show(found));
    } catch (error) {
      if (!controller.signal.aborted) replaceContent(container, errorNotice(error, reload));
    } finally {
      clearTimeout(slow);
      if (running === controller) container.removeAttribute("aria-busy");
    }
  };
}
