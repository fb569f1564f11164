//! Account actions: add, change password, disable, enable, delete, end sessions. Each opens a dialog that explains the effect,
//! and resolves to whether it was done.

import * as api from "../app/api.js";
import { bare } from "../app/address.js";
import { formDialog } from "../app/dialog.js";
import { selectBox, field, h } from "../app/dom.js";
import { plural } from "../app/format.js";
import { toast } from "../app/toast.js";

const path = (jid) => `/accounts/${api.pathSegment(jid)}`;

const passwordInput = () => h("input", { type: "password", autocomplete: "new-password", required: true });

function checkPasswords(first, second) {
  if (first.value === "") throw new Error("Enter a password.");
  if (first.value !== second.value) throw new Error("The two passwords differ.");
}

/// Adds an account; resolves to its address, or `null`.
export async function addAccount(domains) {
  const name = h("input", { type: "text", autocapitalize: "none", spellcheck: "false", autocomplete: "off", required: true });
  const [first, second] = [passwordInput(), passwordInput()];
  const domainSelect = domains.length > 1 ? selectBox(domains.map((d) => [d, d]), domains[0]) : null;
  const hint = domainSelect ? "The part before the @." : domains.length ? `The part before @${domains[0]}.` : "A full address, such as alice@example.org.";
  let jid = "";
  const done = await formDialog({
    title: "Add user",
    body: [field("Name", name, hint), domainSelect ? field("Domain", domainSelect) : null, field("Password", first), field("Password again", second)],
    confirm: "Add",
    act: async () => {
      const text = name.value.trim();
      if (!text) throw new Error("Enter a name.");
      checkPasswords(first, second);
      jid = text.includes("@") || !domains.length ? text : `${text}@${domainSelect?.value ?? domains[0]}`;
      const found = await api.post("/accounts", { jid, password: first.value });
      jid = found.jid ?? jid;
    },
  });
  if (done) toast(`${jid} was added`);
  return done ? jid : null;
}

/// Changes the password.
export async function changePassword(jid, own) {
  const [first, second] = [passwordInput(), passwordInput()];
  const done = await formDialog({
    title: `New password for ${jid}`,
    text: own
      ? "This is your own account: you must sign in here again with the new password."
      : "Existing sessions stay online. The next login requires the new password.",
    body: [field("Password", first), field("Password again", second)],
    confirm: "Change password",
    act: async () => {
      checkPasswords(first, second);
      await api.put(`${path(jid)}/password`, { password: first.value });
    },
  });
  if (done) toast(`The password of ${jid} was changed`);
  return done;
}

/// Disables or enables the account.
export async function setDisabled(jid, on) {
  const done = await formDialog({
    title: on ? `Disable ${jid}?` : `Enable ${jid}?`,
    text: on ? "Its sessions end and logins are refused until it is enabled again. Its data is kept." : "The user can log in again.",
    confirm: on ? "Disable" : "Enable",
    act: () => api.post(`${path(jid)}/${on ? "disable" : "enable"}`),
  });
  if (done) toast(`${jid} was ${on ? "disabled" : "enabled"}`);
  return done;
}

/// Deletes the account after its name was typed.
export async function deleteAccount(jid) {
  const name = jid.split("@", 1)[0];
  const typed = h("input", { type: "text", autocapitalize: "none", spellcheck: "false", autocomplete: "off" });
  const done = await formDialog({
    title: `Delete ${jid}?`,
    text: "Deletes the account with its contacts and messages, ends its sessions and notifies its contacts. This cannot be undone.",
    body: [field(`Type ${name} to confirm`, typed)],
    confirm: "Delete permanently",
    destructive: true,
    ready: (form, send) => {
      send.disabled = typed.value.trim().toLowerCase() !== name.toLowerCase();
    },
    act: () => api.remove(path(jid)),
  });
  if (done) toast(`${jid} was deleted`);
  return done;
}

/// Ends one session.
export async function endSession(jid) {
  const done = await formDialog({
    title: "End this session?",
    text: `Disconnects ${jid}. Most clients reconnect automatically; to prevent that, disable the account ${bare(jid)}.`,
    confirm: "End session",
    act: () => api.remove(`/sessions/${api.pathSegment(jid)}`),
  });
  if (done) toast(`The session ${jid} was ended`);
  return done;
}

/// Ends all sessions of an account.
export async function endAllSessions(jid, number) {
  const done = await formDialog({
    title: `End ${plural(number, "session")} of ${jid}?`,
    text: "Disconnects all its clients. Most reconnect automatically.",
    confirm: "End sessions",
    act: () => api.command("end-user-session", { user: [jid] }, jid.slice(jid.indexOf("@") + 1)),
  });
  if (done) toast(`The sessions of ${jid} were ended`);
  return done;
}
