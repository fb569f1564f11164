//! API tokens: name, scopes, expiry. A token is shown only once, when it is created.

import * as api from "../app/api.js";
import { formDialog, infoDialog } from "../app/dialog.js";
import { selectBox, field, h, replaceContent } from "../app/dom.js";
import { dateTime } from "../app/format.js";
import { toast } from "../app/toast.js";
import { emptyState, loader, table } from "../app/table.js";

export const title = "API tokens";

const SCOPES = [
  ["read", "Read metrics, accounts, rosters, sessions and the audit log, but not the log"],
  ["metrics", "Read /metrics, for Prometheus"],
  ["accounts", "Add, change and delete accounts"],
  ["sessions", "End sessions"],
  ["messages", "Send announcements; set the message of the day and the welcome message"],
  ["node", "Read the log; reload, restart, shut down; set the password policy"],
  ["admin", "All of these; manage tokens and administrators"],
];
const EXPIRY_OPTIONS = [["", "never"], ["7", "in 7 days"], ["30", "in 30 days"], ["90", "in 90 days"], ["365", "in a year"]];

export function open(context) {
  const { root, signal } = context;
  const container = h("div.card");
  const load = loader(
    container,
    (stopped) => api.get("/tokens", {}, { signal: AbortSignal.any([stopped, signal]) }),
    ({ items: tokens }) =>
      tokens.length
        ? table({
            caption: "API tokens",
            rows: tokens,
            brief: (row) => `${row.scopes.join(", ")} · ${expiry(row)}`,
            columns: [
              { title: "Name", cell: (row) => row.name },
              { title: "Scopes", class: "wide-only", cell: (row) => row.scopes.map((scope) => [h("span.badge", {}, scope), " "]) },
              { title: "Created", class: "wide-only", cell: (row) => dateTime(row.created) },
              { title: "Expires", class: "wide-only", cell: expiry },
              {
                title: "Remove",
                class: "acts",
                unseen: true,
                cell: (row) => h("button.small.destructive", { type: "button", "aria-label": `Remove the token ${row.name}`, onclick: async () => (await deleteToken(row)) && load() }, "Remove"),
              },
            ],
          })
        : emptyState("No tokens", "Programs that use the API need one."),
  );
  const addButton = h("button.main", { type: "button", onclick: async () => {
    const made = await addToken();
    if (!made) return;
    load();
    const code = h("code", { tabindex: "0" }, made.token);
    const copy = h("button", { type: "button", onclick: async () => {
      try {
        await navigator.clipboard.writeText(made.token);
        replaceContent(copy, "Copied");
      } catch {
        getSelection().selectAllChildren(code);
      }
    } }, "Copy");
    await infoDialog("New token", h("p", {}, "Copy it now: it is not shown again. The server stores only its hash."), h("div.secret", {}, code, copy));
  } }, "Add token");
  replaceContent(root, context.head("Credentials for programs that use the API at /api/v1.", addButton), container);
  load();
}

const expiry = (row) => (row.expires ? dateTime(row.expires) : "never");

async function addToken() {
  const name = h("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  const boxes = SCOPES.map(([scope, text]) => [scope, h("input", { type: "checkbox", checked: scope === "read" }), text]);
  const expiresIn = selectBox(EXPIRY_OPTIONS, "90");
  let created = null;
  await formDialog({
    title: "Add a token",
    body: [
      field("Name", name, "Its purpose, such as backup or monitoring: letters, digits, dots, hyphens."),
      h("fieldset", {}, h("legend", {}, h("strong", {}, "Scopes")), boxes.map(([scope, box, text]) => h("label.check", {}, box, h("span", {}, h("code", {}, scope), ` ${text}`)))),
      field("Expires", expiresIn),
    ],
    confirm: "Add",
    act: async () => {
      if (!name.value.trim()) throw new Error("Enter a name.");
      const scopes = boxes.filter(([, box]) => box.checked).map(([scope]) => scope);
      if (!scopes.length) throw new Error("Select at least one scope.");
      const days = Number(expiresIn.value);
      created = await api.post("/tokens", { name: name.value.trim(), scopes, ...(days ? { expires: Math.floor(Date.now() / 1000) + days * 86_400 } : {}) });
    },
  });
  return created;
}

async function deleteToken(row) {
  const done = await formDialog({
    title: `Remove the token ${row.name}?`,
    text: "Programs that use it will be refused.",
    confirm: "Remove",
    destructive: true,
    act: () => api.remove(`/tokens/${api.pathSegment(row.name)}`),
  });
  if (done) toast(`The token ${row.name} was removed`);
  return done;
}
