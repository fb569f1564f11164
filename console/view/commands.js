//! Every command of the node with a form from its declaration: the same that `throng command` and XMPP clients offer.

import * as api from "../app/api.js";
import { address } from "../app/address.js";
import { ask } from "../app/dialog.js";
import { after as later, busy, choice, field, h, put } from "../app/dom.js";
import { sentence } from "../app/format.js";
import { empty, loader, table } from "../app/table.js";
import { names } from "./domain_names.js";

export const title = "Commands";

export function open(context) {
  const { root, rest, signal } = context;
  const place = h("div");
  let words = "";
  let all = [];
  const load = loader(
    place,
    async (stopped) => {
      all = (await api.get("/commands", {}, { signal: AbortSignal.any([stopped, signal]) })).items;
      return all;
    },
    () => (rest[0] ? one(all.find(({ name }) => name === rest[0]), rest[0], head.querySelector("h1")) : list()),
  );
  function list() {
    const rows = all.filter((command) => `${command.name} ${command.title} ${command.doc}`.toLowerCase().includes(words.toLowerCase()));
    if (!rows.length) return h("div.card", {}, empty("No command has these words"));
    return h(
      "div.card",
      {},
      table({
        caption: "Commands",
        rows,
        brief: (row) => row.doc,
        columns: [
          { title: "Command", cell: (row) => h("a", { href: address(`commands/${row.name}`) }, row.title) },
          { title: "What it does", class: "wide-only", cell: (row) => row.doc },
          { title: "Name", class: "wide-only", cell: (row) => h("code.soft", {}, row.name) },
        ],
      }),
    );
  }
  const head = context.head(rest[0] ? null : ["The same that ", h("code", {}, "throng command"), " and XMPP clients offer."]);
  const search = h("input", { type: "search", placeholder: "What to do", spellcheck: "false" });
  search.addEventListener("input", later(120, () => {
    words = search.value.trim();
    put(place, list());
  }));
  const wide = field("Search", search);
  wide.classList.add("wide");
  if (rest[0]) head.firstChild.prepend(h("a.up", { href: address("commands") }, "All commands"));
  put(root, head, rest[0] ? null : h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, wide), place);
  load();
}

export const titled = ([name]) => name ?? title;

/// Which control a field has, and how it is read.
function control(declared, value) {
  const { type: kind, required } = declared;
  const start = value ?? declared.default ?? "";
  const lines = (text) => text.split("\n").map((line) => line.trimEnd());
  if (kind === "bool") {
    const box = h("input", { type: "checkbox", checked: start === true || start === "true" || start === "1" });
    return { element: box, read: () => box.checked };
  }
  if (kind === "choice") {
    const menu = choice((declared.choices ?? []).map(({ value, label }) => [value, label]), start);
    return { element: menu, read: () => menu.value };
  }
  if (kind === "lines" || kind === "jids") {
    const text = h("textarea", { rows: kind === "lines" ? 5 : 3, spellcheck: kind === "lines" ? null : "false", value: Array.isArray(start) ? start.join("\n") : start });
    return { element: text, hint: kind === "jids" ? "One address in each line." : null, read: () => (text.value.trim() === "" ? undefined : kind === "jids" ? lines(text.value).filter(Boolean) : lines(text.value.replace(/\s+$/, ""))) };
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

function one(command, name, heading) {
  if (!command) return empty("There is no such command", name);
  put(heading, command.title);
  const outcome = h("div", { role: "status" });
  const trouble = h("p.form-trouble", { role: "alert" });
  const run = h("button.main", { type: "submit" }, command.changes ? command.title : "Show");
  const inputs = [];
  const place = h("div.stack");
  const domain = h("div");
  let menu = null;
  const fill = async () => {
    let present = {};
    if (command.present !== false && command.input.length) {
      present = await api.get(`/commands/${api.part(command.name)}`, { domain: menu?.value }).then((found) => found.present ?? {}, () => ({}));
    }
    inputs.length = 0;
    put(
      place,
      command.input.map((declared) => {
        const made = control(declared, present[declared.name]);
        inputs.push([declared, made]);
        const hint = [declared.doc, made.hint].filter(Boolean).join(" ") || null;
        if (declared.type === "bool") return h("label.check", {}, made.element, declared.label);
        return field(`${declared.label}${declared.required ? "" : " (may be left out)"}`, made.element, hint);
      }),
    );
  };
  names().then((list) => {
    if (list.length > 1) {
      menu = choice(list.map((name) => [name, name]), list[0], { onchange: fill });
      put(domain, field("Domain", menu));
    }
    fill();
  });
  const form = h(
    "form.card.pad.stack.narrow",
    {
      method: "post",
      novalidate: true,
      onsubmit: async (event) => {
        event.preventDefault();
        if (run.disabled) return;
        put(trouble);
        const values = {};
        for (const [declared, { element, read }] of inputs) {
          const value = read();
          if (value === undefined) {
            if (declared.required) {
              put(trouble, `“${declared.label}” must be filled in.`);
              element.focus();
              return;
            }
            continue;
          }
          values[declared.name] = value;
        }
        busy(form, run, true);
        try {
          let answer = null;
          const act = async () => {
            answer = await api.command(command.name, values, menu?.value ?? "");
          };
          if (["restart", "shutdown", "delete-user"].includes(command.name)) {
            await ask({ title: `${command.title}?`, text: command.doc, confirm: command.title, grave: true, act });
          } else await act();
          if (answer) put(outcome, result(command, answer));
        } catch (error) {
          put(trouble, error.message);
        } finally {
          busy(form, run, false);
        }
      },
    },
    h("p.soft", {}, command.doc),
    domain,
    place,
    trouble,
    h("div.row", {}, run),
  );
  return h("div.stack", {}, form, outcome);
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
