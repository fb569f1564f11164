//! Tokens for programs that use the API: name, scopes, expiry. A token is shown once, when it is made.

import * as api from "../app/api.js";
import { ask, tell } from "../app/dialog.js";
import { choice, field, h, put } from "../app/dom.js";
import { moment } from "../app/format.js";
import { notice } from "../app/notice.js";
import { empty, loader, table } from "../app/table.js";

export const title = "API tokens";

const SCOPES = [
  ["read", "Read metrics, accounts, rosters, sessions and the audit log, but not the log"],
  ["metrics", "Read /metrics, for Prometheus"],
  ["accounts", "Add, change and delete accounts"],
  ["sessions", "End sessions"],
  ["messages", "Send announcements; set the message of the day and the welcome message"],
  ["node", "Read the log; reload, restart, shut down; set the password policy"],
  ["admin", "All of these; add tokens, name administrators"],
];
const DAYS = [["", "never"], ["7", "in 7 days"], ["30", "in 30 days"], ["90", "in 90 days"], ["365", "in a year"]];

export function open(context) {
  const { root, signal } = context;
  const place = h("div.card");
  const load = loader(
    place,
    (stopped) => api.get("/tokens", {}, { signal: AbortSignal.any([stopped, signal]) }),
    ({ items: tokens }) =>
      tokens.length
        ? table({
            caption: "API tokens",
            rows: tokens,
            brief: (row) => `${row.scopes.join(", ")} · ${ends(row)}`,
            columns: [
              { title: "Name", cell: (row) => row.name },
              { title: "Scopes", class: "wide-only", cell: (row) => row.scopes.map((scope) => [h("span.badge", {}, scope), " "]) },
              { title: "Made", class: "wide-only", cell: (row) => moment(row.created) },
              { title: "Ends", class: "wide-only", cell: ends },
              {
                title: "Remove",
                class: "acts",
                unseen: true,
                cell: (row) => h("button.small.grave", { type: "button", "aria-label": `Remove the token ${row.name}`, onclick: async () => (await erase(row)) && load() }, "Remove"),
              },
            ],
          })
        : empty("There are no tokens", "Programs that use the API need one."),
  );
  const more = h("button.main", { type: "button", onclick: async () => {
    const made = await add();
    if (!made) return;
    load();
    const code = h("code", { tabindex: "0" }, made.token);
    const copy = h("button", { type: "button", onclick: async () => {
      try {
        await navigator.clipboard.writeText(made.token);
        put(copy, "Copied");
      } catch {
        getSelection().selectAllChildren(code);
      }
    } }, "Copy");
    await tell("The token, this once", h("p", {}, "Keep it where your program finds it; only its hash stays here."), h("div.secret", {}, code, copy));
  } }, "Add token");
  put(root, context.head("For programs that use the API under /api/v1.", more), place);
  load();
}

const ends = (row) => (row.expires ? moment(row.expires) : "never");

async function add() {
  const name = h("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  const boxes = SCOPES.map(([scope, text]) => [scope, h("input", { type: "checkbox", checked: scope === "read" }), text]);
  const until = choice(DAYS, "90");
  let made = null;
  await ask({
    title: "Add a token",
    body: [
      field("Name", name, "What it is for, such as backup or monitoring: letters, digits, dots, hyphens."),
      h("fieldset", {}, h("legend", {}, h("strong", {}, "It may")), boxes.map(([scope, box, text]) => h("label.check", {}, box, h("span", {}, h("code", {}, scope), ` ${text}`)))),
      field("Ends", until),
    ],
    confirm: "Add",
    act: async () => {
      if (!name.value.trim()) throw new Error("Give it a name.");
      const scopes = boxes.filter(([, box]) => box.checked).map(([scope]) => scope);
      if (!scopes.length) throw new Error("Choose at least one thing that it may do.");
      const days = Number(until.value);
      made = await api.post("/tokens", { name: name.value.trim(), scopes, ...(days ? { expires: Math.floor(Date.now() / 1000) + days * 86_400 } : {}) });
    },
  });
  return made;
}

async function erase(row) {
  const done = await ask({
    title: `Remove the token ${row.name}?`,
    text: "Programs that use it are refused from now on.",
    confirm: "Remove",
    grave: true,
    act: () => api.remove(`/tokens/${api.part(row.name)}`),
  });
  if (done) notice(`The token ${row.name} was removed`);
  return done;
}
