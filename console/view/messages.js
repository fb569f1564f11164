//! Messages from the operator: announcement to online users, message of the day, welcome message for new accounts.

import * as api from "../app/api.js";
import { formDialog } from "../app/dialog.js";
import { setBusy, selectBox, field, uniqueId, h, replaceContent } from "../app/dom.js";
import { count, plural, sentence } from "../app/format.js";
import { toast } from "../app/toast.js";
import { domainNames } from "./domain_names.js";

export const title = "Messages";

/// The server's limit for a message, in bytes.
const MAX_TEXT_BYTES = 32_768;

export function open(context) {
  const { root, signal } = context;
  const container = h("div");
  const domainPicker = h("div");
  replaceContent(root, context.head("Messages to all users of a domain."), domainPicker, container);
  domainNames().then((list) => {
    if (signal.aborted) return;
    const showDomain = (domain) => replaceContent(container, h("div.columns", {}, announcementCard(domain, signal), motdCard(domain, signal), welcomeCard(domain, signal)));
    if (list.length > 1) {
      const menu = selectBox(list.map((name) => [name, name]), list[0], { onchange: () => showDomain(menu.value) });
      replaceContent(domainPicker, h("div.tools", {}, field("Domain", menu)));
    }
    showDomain(list[0] ?? "");
  });
}

function lines(text) {
  const all = text.value.replace(/\s+$/, "").split("\n");
  if (all.every((line) => line.trim() === "")) {
    text.focus();
    throw new Error("Enter a message.");
  }
  if (new TextEncoder().encode(text.value).length > MAX_TEXT_BYTES) throw new Error(`The message is longer than ${count(MAX_TEXT_BYTES)} bytes.`);
  return all;
}

/// A card with a text field, and functions that add buttons to it.
function card(heading, about, label) {
  const id = uniqueId("card");
  const text = h("textarea", { rows: 5 });
  const errorText = h("p.form-error", { role: "alert" });
  const row = h("div.row", {});
  const state = h("span", {});
  const control = field(label, text);
  control.firstChild.classList.add("visually-hidden");
  const form = h("form", { method: "post", onsubmit: (event) => event.preventDefault() }, control, errorText, row);
  const head = h("div", {}, h("div.row", {}, h("h2", { id }, heading), state), h("p.soft", {}, about));
  const box = h("section.card.pad.message", { "aria-labelledby": id }, head, form);
  async function run(button, act) {
    replaceContent(errorText);
    setBusy(form, button, true);
    try {
      await act();
    } catch (error) {
      replaceContent(errorText, sentence(error.message));
    } finally {
      setBusy(form, button, false);
    }
  }
  const actionButton = (label, kind, what) => {
    const button = h(`button${kind}`, { type: "button", onclick: () => run(button, what) }, label);
    return button;
  };
  return { box, text, row, state, act: actionButton };
}

function announcementCard(domain, signal) {
  const { box, text, row, act } = card("Announcement", "Sent to users who are online. It is not stored for others.", "Announcement");
  const send = act("Send announcement", ".main", async () => {
    const words = lines(text);
    const online = await api.command("get-online-users-num", {}, domain).then(({ number }) => number, () => null);
    if (signal.aborted) return;
    const sent = await formDialog({
      title: "Send this announcement?",
      text: online === null || online === undefined ? "It is sent to all users who are online." : `It is sent to ${plural(online, "user")} who ${online === 1 ? "is" : "are"} online.`,
      body: [h("blockquote.soft", {}, words.slice(0, 6).join(" ").slice(0, 280))],
      confirm: "Send",
      act: async () => {
        const { note } = await api.command("announce", { text: words }, domain);
        text.value = "";
        toast(note || "The announcement is being sent");
      },
    });
    if (sent) text.focus();
  });
  replaceContent(row, send);
  return box;
}

/// The current text of a message; empty if there is none.
async function loadCurrent(name, domain, signal) {
  const { present } = await api.get(`/commands/${name}`, { domain }, { signal });
  return (present?.text ?? []).join("\n");
}

function motdCard(domain, signal) {
  const { box, text, row, state, act } = card(
    "Message of the day",
    "Sent to each account once: immediately if it is online, else at its next login. An edit applies to accounts that have not received it yet.",
    "Message of the day",
  );
  const done = async (name, values) => {
    const { note } = await api.command(name, values, domain);
    toast(note || "Done");
    await load();
  };
  const set = act("Send to all", ".main", () => done("set-motd", { text: lines(text) }));
  const edit = act("Edit without sending again", "", () => done("edit-motd", { text: lines(text) }));
  const clear = act("Remove", ".destructive", () => done("delete-motd", {}));
  replaceContent(row, set, edit, clear);
  async function load() {
    // What is typed before the current text arrives would be replaced by it.
    text.readOnly = true;
    try {
      const now = await loadCurrent("edit-motd", domain, signal);
      if (signal.aborted) return;
      text.value = now;
      replaceContent(state, now ? h("span.badge.accent", {}, "Set") : h("span.badge", {}, "None"));
      edit.hidden = clear.hidden = !now;
    } catch (error) {
      if (signal.aborted) return;
      replaceContent(state, h("span.badge.bad", {}, "Unknown"));
      toast(error.message);
    } finally {
      text.readOnly = false;
    }
  }
  load();
  return box;
}

function welcomeCard(domain, signal) {
  const { box, text, row, state, act } = card("Welcome message", "Sent to new users at their first login.", "Welcome message");
  const done = async (name, values) => {
    const { note } = await api.command(name, values, domain);
    toast(note || "Done");
    await load();
  };
  const set = act("Save", ".main", () => done("set-welcome", { text: lines(text) }));
  const clear = act("Remove", ".destructive", () => done("delete-welcome", {}));
  replaceContent(row, set, clear);
  async function load() {
    // What is typed before the current text arrives would be replaced by it.
    text.readOnly = true;
    try {
      const now = await loadCurrent("set-welcome", domain, signal);
      if (signal.aborted) return;
      text.value = now;
      replaceContent(state, now ? h("span.badge.accent", {}, "Set") : h("span.badge", {}, "None"));
      clear.hidden = !now;
    } catch (error) {
      if (signal.aborted) return;
      replaceContent(state, h("span.badge.bad", {}, "Unknown"));
      toast(error.message);
    } finally {
      text.readOnly = false;
    }
  }
  load();
  return box;
}
