//! What can be done to an account: add, password, disable, enable, delete, end sessions. Each asks in a dialog, says what will
//! happen, and answers whether it was done.

import * as api from "../app/api.js";
import { bare } from "../app/address.js";
import { ask } from "../app/dialog.js";
import { choice, field, h } from "../app/dom.js";
import { many } from "../app/format.js";
import { notice } from "../app/notice.js";

const path = (jid) => `/accounts/${api.part(jid)}`;

const secret = () => h("input", { type: "password", autocomplete: "new-password", required: true });

function passwords(first, second) {
  if (first.value === "") throw new Error("Enter a password.");
  if (first.value !== second.value) throw new Error("The two passwords differ.");
}

/// Adds an account; its address, or `null`.
export async function add(domains) {
  const name = h("input", { type: "text", autocapitalize: "none", spellcheck: "false", autocomplete: "off", required: true });
  const [first, second] = [secret(), secret()];
  const menu = domains.length > 1 ? choice(domains.map((d) => [d, d]), domains[0]) : null;
  const hint = menu ? "The part in front of the @." : domains.length ? `The part in front of @${domains[0]}.` : "A whole address, such as alice@example.org.";
  let jid = "";
  const done = await ask({
    title: "Add user",
    body: [field("Name", name, hint), menu ? field("Domain", menu) : null, field("Password", first), field("Password again", second)],
    confirm: "Add",
    act: async () => {
      const text = name.value.trim();
      if (!text) throw new Error("Enter a name.");
      passwords(first, second);
      jid = text.includes("@") || !domains.length ? text : `${text}@${menu?.value ?? domains[0]}`;
      const found = await api.post("/accounts", { jid, password: first.value });
      jid = found.jid ?? jid;
    },
  });
  if (done) notice(`${jid} was added`);
  return done ? jid : null;
}

/// Sets another password.
export async function password(jid, own) {
  const [first, second] = [secret(), secret()];
  const done = await ask({
    title: `New password for ${jid}`,
    text: own
      ? "This is the account that you are using: you sign in here again with the new password."
      : "Sessions that are online stay online. The next login needs the new password.",
    body: [field("Password", first), field("Password again", second)],
    confirm: "Change password",
    act: async () => {
      passwords(first, second);
      await api.replace(`${path(jid)}/password`, { password: first.value });
    },
  });
  if (done) notice(`The password of ${jid} was changed`);
  return done;
}

/// Disables or enables.
export async function disable(jid, on) {
  const done = await ask({
    title: on ? `Disable ${jid}?` : `Enable ${jid}?`,
    text: on ? "Its sessions end and its logins are refused until it is enabled again. Nothing of its data is lost." : "Its user may log in again.",
    confirm: on ? "Disable" : "Enable",
    act: () => api.post(`${path(jid)}/${on ? "disable" : "enable"}`),
  });
  if (done) notice(`${jid} was ${on ? "disabled" : "enabled"}`);
  return done;
}

/// Deletes, after the name was typed.
export async function erase(jid) {
  const name = jid.split("@", 1)[0];
  const typed = h("input", { type: "text", autocapitalize: "none", spellcheck: "false", autocomplete: "off" });
  const done = await ask({
    title: `Delete ${jid}?`,
    text: "The account goes with its contacts, messages and files, its sessions end, and its contacts are told. This cannot be undone.",
    body: [field(`Type ${name} to confirm`, typed)],
    confirm: "Delete for ever",
    grave: true,
    ready: (form, send) => {
      send.disabled = typed.value.trim().toLowerCase() !== name.toLowerCase();
    },
    act: () => api.remove(path(jid)),
  });
  if (done) notice(`${jid} was deleted`);
  return done;
}

/// Ends one session.
export async function end(jid) {
  const done = await ask({
    title: "End this session?",
    text: `${jid} is disconnected. Most clients come back by themselves after a while; to keep somebody out, disable the account ${bare(jid)}.`,
    confirm: "End session",
    act: () => api.remove(`/sessions/${api.part(jid)}`),
  });
  if (done) notice(`The session ${jid} was ended`);
  return done;
}

/// Ends all sessions of an account.
export async function endAll(jid, number) {
  const done = await ask({
    title: `End ${many(number, "session")} of ${jid}?`,
    text: "All its clients are disconnected. Most come back by themselves after a while.",
    confirm: "End sessions",
    act: () => api.command("end-user-session", { user: [jid] }, jid.slice(jid.indexOf("@") + 1)),
  });
  if (done) notice(`The sessions of ${jid} were ended`);
  return done;
}
