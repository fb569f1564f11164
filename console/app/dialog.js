//! Modal dialogs with the `dialog` element, which makes the rest of the page inert and closes on Escape. Focus stays inside and
//! is restored afterwards.
//!
//! # Pitfalls
//!
//! Input is lost when a dialog closes, so after a failed request it stays open and shows the error.

import { setBusy, uniqueId, h, replaceContent } from "./dom.js";

/// Keeps Tab inside the dialog: by default it also visits the browser's address bar.
function trapFocus(dialog) {
  dialog.addEventListener("keydown", (event) => {
    if (event.key !== "Tab") return;
    const all = [...dialog.querySelectorAll("button, input, select, textarea, a[href], [tabindex='0']")].filter((element) => !element.disabled && element.checkVisibility());
    const [first, last] = [all[0], all.at(-1)];
    const focused = document.activeElement;
    if (event.shiftKey ? focused === first || !dialog.contains(focused) : focused === last || !dialog.contains(focused)) {
      event.preventDefault();
      (event.shiftKey ? last : first)?.focus();
    }
  });
}

/// Restores the focus. If the list was rendered again, the element with the same label gets it.
function restoreFocus(previousFocus) {
  const name = previousFocus?.getAttribute?.("aria-label");
  const target = previousFocus?.isConnected ? previousFocus : name ? document.querySelector(`main [aria-label="${CSS.escape(name)}"]`) : null;
  (target ?? document.querySelector("main h1"))?.focus();
}

/// Shows a form. `act` is called when it is submitted, and the dialog closes if that succeeds. Resolves to whether it did.
export function formDialog({ title, text, body = [], confirm, destructive = false, act, ready }) {
  return new Promise((done) => {
    const before = document.activeElement;
    const head = uniqueId("dialog");
    const errorText = h("p.form-error", { role: "alert" });
    const submit = h("button.main", { type: "submit", class: destructive ? "destructive" : "" }, confirm);
    const cancel = h("button", { type: "button" }, "Cancel");
    const form = h(
      "form",
      { method: "post", novalidate: true, autocomplete: "off" },
      h("h2", { id: head }, title),
      text ? h("p", {}, text) : null,
      body,
      errorText,
      h("div.acts", {}, cancel, submit),
    );
    const dialog = h("dialog", { "aria-labelledby": head }, form);
    let succeeded = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (submit.disabled) return;
      replaceContent(errorText);
      setBusy(form, submit, true);
      try {
        await act(form);
        succeeded = true;
        dialog.close();
      } catch (error) {
        replaceContent(errorText, error.message);
      } finally {
        setBusy(form, submit, false);
        ready?.(form, submit);
      }
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      restoreFocus(before);
      done(succeeded);
    });
    document.body.append(dialog);
    if (ready) {
      ready(form, submit);
      form.addEventListener("input", () => ready(form, submit));
    }
    trapFocus(dialog);
    dialog.showModal();
    (form.querySelector("input, textarea, select") ?? (destructive ? cancel : submit)).focus();
  });
}

/// Shows information with a close button.
export function infoDialog(title, ...body) {
  const headingId = uniqueId("dialog");
  const close = h("button.main", { type: "submit", autofocus: true }, "Close");
  const form = h("form", { method: "dialog" }, h("h2", { id: headingId }, title), body, h("div.acts", {}, close));
  const dialog = h("dialog", { "aria-labelledby": headingId }, form);
  const before = document.activeElement;
  trapFocus(dialog);
  return new Promise((done) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      restoreFocus(before);
      done();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
