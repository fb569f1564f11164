//! Dialogs: the browser's own, which makes the page behind inert and closes on Escape. The focus stays inside, and goes back
//! afterwards.
//!
//! The trap: what is typed into a dialog is lost when it closes, so a failed request leaves it open and says why inside.

import { busy, fresh, h, put } from "./dom.js";

/// Keeps Tab inside: the browser's own way round leads through its address bar.
function circle(dialog) {
  dialog.addEventListener("keydown", (event) => {
    if (event.key !== "Tab") return;
    const all = [...dialog.querySelectorAll("button, input, select, textarea, a[href], [tabindex='0']")].filter((element) => !element.disabled && element.checkVisibility());
    const [first, last] = [all[0], all.at(-1)];
    const here = document.activeElement;
    if (event.shiftKey ? here === first || !dialog.contains(here) : here === last || !dialog.contains(here)) {
      event.preventDefault();
      (event.shiftKey ? last : first)?.focus();
    }
  });
}

/// Gives the focus back to where it was. The list behind may have been drawn anew; then to what has the same name there.
function giveBack(before) {
  const name = before?.getAttribute?.("aria-label");
  const same = before?.isConnected ? before : name ? document.querySelector(`main [aria-label="${CSS.escape(name)}"]`) : null;
  (same ?? document.querySelector("main h1"))?.focus();
}

/// Shows a form. `act` is called with its controls when it is submitted, and the dialog closes if that succeeds.
/// Answers whether it did.
export function ask({ title, text, body = [], confirm, grave = false, act, ready }) {
  return new Promise((done) => {
    const before = document.activeElement;
    const head = fresh("dialog");
    const trouble = h("p.form-trouble", { role: "alert" });
    const send = h("button.main", { type: "submit", class: grave ? "grave" : "" }, confirm);
    const cancel = h("button", { type: "button" }, "Cancel");
    const form = h(
      "form",
      { method: "post", novalidate: true, autocomplete: "off" },
      h("h2", { id: head }, title),
      text ? h("p", {}, text) : null,
      body,
      trouble,
      h("div.acts", {}, cancel, send),
    );
    const dialog = h("dialog", { "aria-labelledby": head }, form);
    let succeeded = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (send.disabled) return;
      put(trouble);
      busy(form, send, true);
      try {
        await act(form);
        succeeded = true;
        dialog.close();
      } catch (error) {
        put(trouble, error.message);
      } finally {
        busy(form, send, false);
        ready?.(form, send);
      }
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      giveBack(before);
      done(succeeded);
    });
    document.body.append(dialog);
    if (ready) {
      ready(form, send);
      form.addEventListener("input", () => ready(form, send));
    }
    circle(dialog);
    dialog.showModal();
    (form.querySelector("input, textarea, select") ?? (grave ? cancel : send)).focus();
  });
}

/// Shows something to read.
export function tell(title, ...body) {
  const head = fresh("dialog");
  const close = h("button.main", { type: "submit", autofocus: true }, "Close");
  const form = h("form", { method: "dialog" }, h("h2", { id: head }, title), body, h("div.acts", {}, close));
  const dialog = h("dialog", { "aria-labelledby": head }, form);
  const before = document.activeElement;
  circle(dialog);
  return new Promise((done) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      giveBack(before);
      done();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
