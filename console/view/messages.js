//! Messages to everybody: an announcement to who is online, the message of the day, the welcome for new accounts.

import * as api from "../app/api.js";
import { ask } from "../app/dialog.js";
import { busy, choice, field, fresh, h, put } from "../app/dom.js";
import { count, many, sentence } from "../app/format.js";
import { notice } from "../app/notice.js";
import { names } from "./domain_names.js";

export const title = "Messages";

/// Bytes of a message; the server refuses more.
const MOST = 32_768;

export function open(context) {
  const { root, signal } = context;
  const place = h("div");
  const pick = h("div");
  put(root, context.head("To everybody on a domain."), pick, place);
  names().then((list) => {
    if (signal.aborted) return;
    const fill = (domain) => put(place, h("div.columns", {}, announcement(domain, signal), day(domain, signal), welcome(domain, signal)));
    if (list.length > 1) {
      const menu = choice(list.map((name) => [name, name]), list[0], { onchange: () => fill(menu.value) });
      put(pick, h("div.tools", {}, field("Domain", menu)));
    }
    fill(list[0] ?? "");
  });
}

function lines(text) {
  const all = text.value.replace(/\s+$/, "").split("\n");
  if (all.every((line) => line.trim() === "")) {
    text.focus();
    throw new Error("Write the message first.");
  }
  if (new TextEncoder().encode(text.value).length > MOST) throw new Error(`The message is longer than ${count(MOST)} bytes.`);
  return all;
}

/// A card with a text and what can be done with it. `acts` are [label, kind, run(lines)].
function card(heading, about, label) {
  const id = fresh("card");
  const text = h("textarea", { rows: 5 });
  const trouble = h("p.form-trouble", { role: "alert" });
  const row = h("div.row", {});
  const state = h("span", {});
  const control = field(label, text);
  control.firstChild.classList.add("unseen");
  const form = h("form", { method: "post", onsubmit: (event) => event.preventDefault() }, control, trouble, row);
  const head = h("div", {}, h("div.row", {}, h("h2", { id }, heading), state), h("p.soft", {}, about));
  const box = h("section.card.pad.message", { "aria-labelledby": id }, head, form);
  async function run(button, act) {
    put(trouble);
    busy(form, button, true);
    try {
      await act();
    } catch (error) {
      put(trouble, sentence(error.message));
    } finally {
      busy(form, button, false);
    }
  }
  const act = (label, kind, what) => {
    const button = h(`button${kind}`, { type: "button", onclick: () => run(button, what) }, label);
    return button;
  };
  return { box, text, row, state, act };
}

function announcement(domain, signal) {
  const { box, text, row, act } = card("Announcement", "Reaches who is online now. It is not kept for the others.", "Announcement");
  const send = act("Send announcement", ".main", async () => {
    const words = lines(text);
    const online = await api.command("get-online-users-num", {}, domain).then(({ number }) => number, () => null);
    if (signal.aborted) return;
    const sent = await ask({
      title: "Send this announcement?",
      text: online === null || online === undefined ? "It goes to everybody who is online." : `It goes to ${many(online, "user")} who ${online === 1 ? "is" : "are"} online.`,
      body: [h("blockquote.soft", {}, words.slice(0, 6).join(" ").slice(0, 280))],
      confirm: "Send",
      act: async () => {
        const { note } = await api.command("announce", { text: words }, domain);
        text.value = "";
        notice(note || "The announcement is on its way");
      },
    });
    if (sent) text.focus();
  });
  put(row, send);
  return box;
}

/// The present text of a message; empty if there is none.
async function present(name, domain, signal) {
  const { present } = await api.get(`/commands/${name}`, { domain }, { signal });
  return (present?.text ?? []).join("\n");
}

function day(domain, signal) {
  const { box, text, row, state, act } = card(
    "Message of the day",
    "Reaches each account once: who is online at once, the others when they next come. A change is for the rest: those who have not seen it.",
    "Message of the day",
  );
  const done = async (name, values) => {
    const { note } = await api.command(name, values, domain);
    notice(note || "Done");
    await load();
  };
  const set = act("Send to everybody", ".main", () => done("set-motd", { text: lines(text) }));
  const edit = act("Change for the rest", "", () => done("edit-motd", { text: lines(text) }));
  const clear = act("Remove", ".grave", () => done("delete-motd", {}));
  put(row, set, edit, clear);
  async function load() {
    try {
      const now = await present("edit-motd", domain, signal);
      if (signal.aborted) return;
      text.value = now;
      put(state, now ? h("span.badge.accent", {}, "Set") : h("span.badge", {}, "None"));
      edit.hidden = clear.hidden = !now;
    } catch (error) {
      if (signal.aborted) return;
      put(state, h("span.badge.bad", {}, "Unknown"));
      notice(error.message);
    }
  }
  load();
  return box;
}

function welcome(domain, signal) {
  const { box, text, row, state, act } = card("Welcome message", "New users find it when they first log in.", "Welcome message");
  const done = async (name, values) => {
    const { note } = await api.command(name, values, domain);
    notice(note || "Done");
    await load();
  };
  const set = act("Save", ".main", () => done("set-welcome", { text: lines(text) }));
  const clear = act("Remove", ".grave", () => done("delete-welcome", {}));
  put(row, set, clear);
  async function load() {
    try {
      const now = await present("set-welcome", domain, signal);
      if (signal.aborted) return;
      text.value = now;
      put(state, now ? h("span.badge.accent", {}, "Set") : h("span.badge", {}, "None"));
      clear.hidden = !now;
    } catch (error) {
      if (signal.aborted) return;
      put(state, h("span.badge.bad", {}, "Unknown"));
      notice(error.message);
    }
  }
  load();
  return box;
}
