//! What was done, in a line at the bottom for a few seconds and in a live region for those who do not see it.

import { h } from "./dom.js";
import { sentence } from "./format.js";

const STAYS = 7_000;

/// Says it to a screen reader only.
export function say(text) {
  const region = document.getElementById("said");
  region.textContent = "";
  // A region that is emptied and filled in one turn is not read again.
  requestAnimationFrame(() => {
    region.textContent = text;
  });
}

/// Shows and says it.
export function notice(text) {
  const line = sentence(text);
  const close = h("button.small", { type: "button", "aria-label": "Dismiss" }, "Dismiss");
  const box = h("div.notice", {}, h("span", {}, line), close);
  let timer = 0;
  const wait = () => {
    timer = setTimeout(() => box.remove(), STAYS);
  };
  const hold = () => clearTimeout(timer);
  close.addEventListener("click", () => box.remove());
  for (const kind of ["pointerenter", "focusin"]) box.addEventListener(kind, hold);
  for (const kind of ["pointerleave", "focusout"]) box.addEventListener(kind, wait);
  const list = document.getElementById("notices");
  while (list.children.length >= 3) list.firstChild.remove();
  list.append(box);
  say(line);
  wait();
}
