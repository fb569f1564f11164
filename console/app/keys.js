//! Single keys: `/` for the search of a view, `g` and a letter for a view, `?` for the list of them. They can be switched
//! off (WCAG 2.2, section 2.1.4), and they never act while somebody types.

import { h } from "./dom.js";
import { tell } from "./dialog.js";

const KEY = "throng-keys";
let off = false;
try {
  off = localStorage.getItem(KEY) === "off";
} catch {
  // They are on.
}

const typing = (element) => element.matches?.("input, textarea, select, [contenteditable]");

/// Begins to listen. `views` are [letter, path, title].
export function listen(views, go) {
  let leader = 0;
  document.addEventListener("keydown", (event) => {
    const dialog = document.querySelector("dialog[open]");
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || dialog || !document.querySelector("main")) return;
    if (event.key === "?") {
      event.preventDefault();
      help(views);
      return;
    }
    if (off) return;
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

/// The list of keys.
export function help(views) {
  const keys = (...names) => h("dt", {}, names.flatMap((name, i) => [i ? " then " : null, h("kbd", {}, name)]));
  const box = h("input", {
    type: "checkbox",
    checked: !off,
    onchange: (event) => {
      off = !event.target.checked;
      try {
        localStorage.setItem(KEY, off ? "off" : "on");
      } catch {
        // For this page only.
      }
    },
  });
  return tell(
    "Keys",
    h(
      "dl.keys",
      {},
      keys("/"),
      h("dd", {}, "Search"),
      views.flatMap(([letter, , title]) => [keys("g", letter), h("dd", {}, title)]),
      keys("?"),
      h("dd", {}, "This list"),
      h("dt", {}, h("kbd", {}, "←"), " ", h("kbd", {}, "→")),
      h("dd", {}, "In a chart: through time, with Shift in longer steps; Home, End, Escape"),
    ),
    h("label.check", {}, box, "Single keys are on"),
  );
}
