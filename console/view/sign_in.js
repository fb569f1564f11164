//! Sign-in form for the XMPP address and password of an administrator. With a single domain, the domain may be omitted.

import * as api from "../app/api.js";
import { setBusy, field, h, replaceContent } from "../app/dom.js";
import { sentence } from "../app/format.js";

/// Shows the form in `app`; `done` is called with the session.
export function signIn(app, why, done) {
  const jid = h("input", {
    name: "jid",
    type: "text",
    required: true,
    autocomplete: "username",
    autocapitalize: "none",
    spellcheck: "false",
    inputmode: "email",
    placeholder: "admin@example.org",
  });
  const password = h("input", { name: "password", type: "password", required: true, autocomplete: "current-password" });
  const errorText = h("p.form-error", { role: "alert" }, why ? sentence(why) : null);
  const submit = h("button.main", { type: "submit" }, "Sign in");
  const form = h(
    "form",
    { method: "post", novalidate: true },
    h("div", {}, h("h1", { tabindex: "-1" }, "Sign in"), h("p", {}, "With an administrator’s XMPP account.")),
    errorText,
    field("Address", jid),
    field("Password", password),
    submit,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (submit.disabled) return;
    replaceContent(errorText);
    for (const [input, what] of [[jid, "Enter your address, such as admin@example.org."], [password, "Enter your password."]]) {
      if (input.value === "") {
        replaceContent(errorText, what);
        input.focus();
        return;
      }
    }
    setBusy(form, submit, true);
    try {
      done(await api.signIn(jid.value.trim(), password.value));
    } catch (error) {
      replaceContent(errorText, error.message);
      setBusy(form, submit, false);
      password.focus();
      password.select();
    }
  });
  const logo = h("img", { src: "/console/icon.svg", alt: "", width: 28, height: 28 });
  replaceContent(app, h("main.sign-in", {}, h("p.brand", {}, logo, "Throng"), form));
  jid.focus();
}
