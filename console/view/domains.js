//! Domains and their modules with state and options; reading the configuration anew.

import * as api from "../app/api.js";
import { ask } from "../app/dialog.js";
import { h, put } from "../app/dom.js";
import { count, many } from "../app/format.js";
import { notice } from "../app/notice.js";
import { empty, loader } from "../app/table.js";
import { domainMetrics } from "./domain_metrics.js";
import { forget } from "./domain_names.js";

export const title = "Domains";
export const titled = () => "Domains and modules";

/// Names stand between backticks.
const marked = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
const shown = (value) => (typeof value === "object" && value !== null ? (Array.isArray(value) ? value.join(" ") : JSON.stringify(value)) : String(value));

export function open(context) {
  const { root, signal } = context;
  const place = h("div.stack");
  const outcome = h("div");
  const load = loader(
    place,
    (stopped) => api.get("/domains", {}, { signal: AbortSignal.any([stopped, signal]) }),
    ({ domains }) => (domains.length ? domains.map(domain) : empty("There are no domains")),
  );
  const reload = h("button", { type: "button", onclick: async () => {
    let found = null;
    const done = await ask({
      title: "Reload the configuration?",
      text: "The node reads its file again and takes over what can be changed while it runs, all of it or nothing. Sessions stay.",
      confirm: "Reload",
      act: async () => {
        found = await api.post("/reload");
      },
    });
    if (!done) return;
    forget();
    const lines = found.lines ?? found.messages ?? [];
    put(outcome, lines.length ? h("div.remark", { role: "status" }, h("ul", {}, lines.map((line) => h("li", {}, line)))) : null);
    notice(found.note ?? "The configuration was read again");
    load();
  } }, "Reload configuration");
  const metrics = domainMetrics(signal);
  put(root, context.head(null, reload), outcome, place, metrics.element);
  load();
  const look = () => document.hidden || metrics.load().catch(() => {});
  look();
  const timer = setInterval(look, 10_000);
  return () => clearInterval(timer);
}

function domain({ name, modules, accounts, online, default: first }) {
  const on = modules.filter((module) => module.enabled);
  const figures = [
    typeof accounts === "number" ? many(accounts, "account") : null,
    typeof online === "number" ? `${count(online)} online` : null,
    `${count(on.length)} of ${many(modules.length, "module")} on`,
  ].filter(Boolean);
  return h(
    "section.card.pad",
    { "aria-label": name },
    h("div.head", {}, h("div", {}, h("h2", {}, name, " ", first ? h("span.badge", {}, "default") : null), h("p.soft", {}, figures.join(", ")))),
    h(
      "ul.modules",
      {},
      modules.map((module) => {
        const options = Object.entries(module.options ?? {}).filter(([, value]) => value !== "" && !(Array.isArray(value) && !value.length));
        return h(
          "li",
          {},
          h(
            "div",
            {},
            h("strong", {}, module.name),
            module.summary ? h("div.soft", {}, h("small", {}, marked(module.summary))) : null,
            options.length ? h("div.options", {}, options.map(([key, value]) => `${key} = ${shown(value)}`).join(", ")) : null,
          ),
          module.enabled ? h("span.badge.good", {}, "On") : h("span.badge", {}, "Off"),
        );
      }),
    ),
  );
}
