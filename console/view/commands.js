//! All commands of the node with forms generated from their declarations, as in `throng command` and XMPP clients.

import * as api from "../app/api.js";
import { address } from "../app/address.js";
import { formDialog } from "../app/dialog.js";
import { debounce, setBusy, selectBox, field, h, replaceContent } from "../app/dom.js";
import { sentence } from "../app/format.js";
import { emptyState, loader, table } from "../app/table.js";
import { domainNames } from "./domain_names.js";

export const title = "Commands";

export function open(context) {
  const { root, rest, signal } = context;
  const container = h("div");
  let filter = "";
  let all = [];
  const load = loader(
    container,
    async (stopped) => {
      all = (await api.get("/commands", {}, { signal: AbortSignal.any([stopped, signal]) })).items;
      return all;
    },
    () => (rest[0] ? commandForm(all.find(({ name }) => name === rest[0]), rest[0], head.querySelector("h1")) : list()),
  );
  function list() {
    const rows = all.filter((command) => `${command.name} ${command.title} ${command.doc}`.toLowerCase().includes(filter.toLowerCase()));
    if (!rows.length) return h("div.card", {}, emptyState("No matching commands"));
    return h(
      "div.card",
      {},
      table({
        caption: "Commands",
        rows,
        brief: (row) => row.doc,
        columns: [
          { title: "Command", cell: (row) => h("a", { href: address(`commands/${row.name}`) }, row.title) },
          { title: "Description", class: "wide-only", cell: (row) => row.doc },
          { title: "Name", class: "wide-only", cell: (row) => h("code.soft", {}, row.name) },
        ],
      }),
    );
  }
  const head = context.head(rest[0] ? null : ["Also available with ", h("code", {}, "throng command"), " and in XMPP clients."]);
  const search = h("input", { type: "search", placeholder: "Name or description", spellcheck: "false" });
  search.addEventListener("input", debounce(120, () => {
    filter = search.value.trim();
    replaceContent(container, list());
  }));
  const wide = field("Search", search);
  wide.classList.add("wide");
  if (rest[0]) head.firstChild.prepend(h("a.up", { href: address("commands") }, "All commands"));
  replaceContent(root, head, rest[0] ? null : h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, wide), container);
  load();
}

export const titled = ([name]) => name ?? title;

/// The control of a declared field and a function that reads its value.
function control(declared, value) {
  const { type: kind, required } = declared;
  const start = value ?? declared.default ?? "";
  const lines = (text) => text.split("\n").map((line) => line.trimEnd());
  if (kind === "bool") {
    const box = h("input", { type: "checkbox", checked: start === true || start === "true" || start === "1" });
    return { element: box, read: () => box.checked };
  }
  if (kind === "choice") {
    const menu = selectBox((declared.choices ?? []).map(({ value, label }) => [value, label]), start);
    return { element: menu, read: () => menu.value };
  }
  if (kind === "lines" || kind === "jids") {
    const text = h("textarea", { rows: kind === "lines" ? 5 : 3, spellcheck: kind === "lines" ? null : "false", value: Array.isArray(start) ? start.join("\n") : start });
    return { element: text, hint: kind === "jids" ? "One address per line." : null, read: () => (text.value.trim() === "" ? undefined : kind === "jids" ? lines(text.value).filter(Boolean) : lines(text.value.replace(/\s+$/, ""))) };
  }
  const input = h("input", {
    type: kind === "secret" ? "password" : kind === "int" ? "number" : "text",
    autocomplete: kind === "secret" ? "new-password" : "off",
    min: kind === "int" ? declared.minimum : null,
    max: kind === "int" ? declared.maximum : null,
    required,
    value: Array.isArray(start) ? start.join(" ") : start,
    autocapitalize: "none",
    spellcheck: "false",
  });
  return { element: input, read: () => (input.value === "" ? undefined : kind === "int" ? Number(input.value) : input.value) };
}

function commandForm(command, name, heading) {
  if (!command) return emptyState("Unknown command", name);
  replaceContent(heading, command.title);
  const resultBox = h("div", { role: "status" });
  const errorText = h("p.form-error", { role: "alert" });
  const submit = h("button.main", { type: "submit" }, command.changes ? command.title : "Show");
  const inputs = [];
  const container = h("div.stack");
  const domain = h("div");
  let menu = null;
  const loadFields = async () => {
    let present = {};
    if (command.present !== false && command.input.length) {
      present = await api.get(`/commands/${api.pathSegment(command.name)}`, { domain: menu?.value }).then((found) => found.present ?? {}, () => ({}));
    }
    inputs.length = 0;
    replaceContent(
      container,
      command.input.map((declared) => {
        const input = control(declared, present[declared.name]);
        inputs.push([declared, input]);
        const hint = [declared.doc, input.hint].filter(Boolean).join(" ") || null;
        if (declared.type === "bool") return h("label.check", {}, input.element, declared.label);
        return field(`${declared.label}${declared.required ? "" : " (optional)"}`, input.element, hint);
      }),
    );
  };
  domainNames().then((list) => {
    if (list.length > 1) {
      menu = selectBox(list.map((name) => [name, name]), list[0], { onchange: loadFields });
      replaceContent(domain, field("Domain", menu));
    }
    loadFields();
  });
  const form = h(
    "form.card.pad.stack.narrow",
    {
      method: "post",
      novalidate: true,
      onsubmit: async (event) => {
        event.preventDefault();
        if (submit.disabled) return;
        replaceContent(errorText);
        const values = {};
        for (const [declared, { element, read }] of inputs) {
          const value = read();
          if (value === undefined) {
            if (declared.required) {
              replaceContent(errorText, `“${declared.label}” is required.`);
              element.focus();
              return;
            }
            continue;
          }
          values[declared.name] = value;
        }
        setBusy(form, submit, true);
        try {
          let answer = null;
          const act = async () => {
            answer = await api.command(command.name, values, menu?.value ?? "");
          };
          if (["restart", "shutdown", "delete-user"].includes(command.name)) {
            await formDialog({ title: `${command.title}?`, text: command.doc, confirm: command.title, destructive: true, act });
          } else await act();
          if (answer) replaceContent(resultBox, result(command, answer));
        } catch (error) {
          replaceContent(errorText, error.message);
        } finally {
          setBusy(form, submit, false);
        }
      },
    },
    h("p.soft", {}, command.doc),
    domain,
    container,
    errorText,
    h("div.row", {}, submit),
  );
  return h("div.stack", {}, form, resultBox);
}

function result(command, { note, ...values }) {
  const shown = (value) => (Array.isArray(value) ? value.map((text) => h("div", {}, String(text))) : typeof value === "boolean" ? (value ? "yes" : "no") : String(value));
  const rows = (command.output ?? []).filter(({ name }) => values[name] !== undefined).map(({ name, label, columns }) => {
    const value = values[name];
    if (columns && Array.isArray(value)) {
            return h("div", {}, h("h3", {}, label), value.length ? table({ caption: label, rows: value, columns: columns.map((column) => ({ title: column.label, cell: (row) => shown(row[column.name] ?? "") })) }) : h("p.soft", {}, "None."));
    }
    return h("div", {}, h("dt.soft", {}, label), h("dd", {}, shown(value)));
  });
  return h("section.card.pad.stack", { "aria-label": "Outcome" }, h("h2", {}, note ? sentence(note) : rows.length ? "Outcome" : "Done."), rows.length ? h("dl.stack", {}, rows) : null);
}
