//! Keyboard shortcuts: `/` focuses the search of a view, `g` and a letter open a view, `?` lists them. They can be disabled
//! (WCAG 2.2, section 2.1.4) and are inactive in text fields.

import { h } from "./dom.js";
import { infoDialog } from "./dialog.js";

const STORAGE_KEY = "throng-keys";
let disabled = false;
try {
  disabled = localStorage.getItem(STORAGE_KEY) === "off";
} catch {
  // Storage is unavailable: shortcuts are enabled.
}

const isTextInput = (element) => element.matches?.("input, textarea, select, [contenteditable]");

/// Installs the key listener. `views` are [letter, path, title].
export function bindShortcuts(views, go) {
  let leader = 0;
  document.addEventListener("keydown", (event) => {
    const dialog = document.querySelector("dialog[open]");
    if (event.ctrlKey || event.metaKey || event.altKey || isTextInput(event.target) || dialog || !document.querySelector("main")) return;
    if (event.key === "?") {
      event.preventDefault();
      showShortcuts(views);
      return;
    }
    if (disabled) return;
    if (event.key === "/") {
      const search = document.querySelector("main input[type=search]");
      if (search) {
        event.preventDefault();
        search.focus();
        search.select();
      }
    } else if (event.key === "g") {
      leader = event.timeStamp;
    } else if (leader && event.timeStamp - leader < 1500) {
      leader = 0;
      const view = views.find(([letter]) => letter === event.key);
      if (view) {
        event.preventDefault();
        go(view[1]);
      }
    }
  });
}

/// Opens the list of shortcuts.
export function showShortcuts(views) {
  const keys = (...names) => h("dt", {}, names.flatMap((name, i) => [i ? " then " : null, h("kbd", {}, name)]));
  const box = h("input", {
    type: "checkbox",
    checked: !disabled,
    onchange: (event) => {
      disabled = !event.target.checked;
      try {
        localStorage.setItem(STORAGE_KEY, disabled ? "off" : "on");
      } catch {
        // For this page only.
      }
    },
  });
  return infoDialog(
    "Keyboard shortcuts",
    h(
      "dl.keys",
      {},
      keys("/"),
      h("dd", {}, "Search"),
      views.flatMap(([letter, , title]) => [keys("g", letter), h("dd", {}, title)]),
      keys("?"),
      h("dd", {}, "This list"),
      h("dt", {}, h("kbd", {}, "←"), " ", h("kbd", {}, "→")),
      h("dd", {}, "In a chart: move through time, with Shift in larger steps; Home, End, Escape"),
    ),
    h("label.check", {}, box, "Enable keyboard shortcuts"),
  );
}
