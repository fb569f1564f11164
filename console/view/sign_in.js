//! Signing in with the XMPP address and password of an administrator. Where there is one domain only, its name may be left out.

import * as api from "../app/api.js";
import { busy, field, h, put } from "../app/dom.js";
import { sentence } from "../app/format.js";

/// Shows the form in `app`; `done` gets the session.
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
  const trouble = h("p.form-trouble", { role: "alert" }, why ? sentence(why) : null);
  const send = h("button.main", { type: "submit" }, "Sign in");
  const form = h(
    "form",
    { method: "post", novalidate: true },
    h("div", {}, h("h1", { tabindex: "-1" }, "Sign in"), h("p", {}, "With an administrator’s XMPP account.")),
    trouble,
    field("Address", jid),
    field("Password", password),
    send,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (send.disabled) return;
    put(trouble);
    for (const [input, what] of [[jid, "Enter your address, such as admin@example.org."], [password, "Enter your password."]]) {
      if (input.value === "") {
        put(trouble, what);
        input.focus();
        return;
      }
    }
    busy(form, send, true);
    try {
      done(await api.signIn(jid.value.trim(), password.value));
    } catch (error) {
      put(trouble, error.message);
      busy(form, send, false);
      password.focus();
      password.select();
    }
  });
  const logo = h("img", { src: "/console/icon.svg", alt: "", width: 28, height: 28 });
  put(app, h("main.gate", {}, h("p.brand", {}, logo, "Throng"), form));
  jid.focus();
}
