//! Short notifications at the bottom of the page, repeated in a live region for screen readers.

import { h } from "./dom.js";
import { sentence } from "./format.js";

const VISIBLE_MS = 7_000;

/// Announces a text to screen readers only.
export function announce(text) {
  const region = document.getElementById("announcer");
  region.textContent = "";
  // A region that is cleared and filled in the same frame is not read again.
  requestAnimationFrame(() => {
    region.textContent = text;
  });
}

/// Shows a notification and announces it.
export function toast(text) {
  const line = sentence(text);
  const close = h("button.small", { type: "button", "aria-label": "Dismiss" }, "Dismiss");
  const box = h("div.toast", {}, h("span", {}, line), close);
  let timer = 0;
  const scheduleRemoval = () => {
    timer = setTimeout(() => box.remove(), VISIBLE_MS);
  };
  const cancelRemoval = () => clearTimeout(timer);
  close.addEventListener("click", () => box.remove());
  for (const kind of ["pointerenter", "focusin"]) box.addEventListener(kind, cancelRemoval);
  for (const kind of ["pointerleave", "focusout"]) box.addEventListener(kind, scheduleRemoval);
  const list = document.getElementById("toasts");
  while (list.children.length >= 3) list.firstChild.remove();
  list.append(box);
  announce(line);
  scheduleRemoval();
}
