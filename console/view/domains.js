//! Domains with their modules, the state and options of these, and a reload of the configuration.

import * as api from "../app/api.js";
import { formDialog } from "../app/dialog.js";
import { h, replaceContent } from "../app/dom.js";
import { count, plural } from "../app/format.js";
import { toast } from "../app/toast.js";
import { emptyState, loader } from "../app/table.js";
import { domainMetrics } from "./domain_metrics.js";
import { invalidate } from "./domain_names.js";

export const title = "Domains";
export const titled = () => "Domains and modules";

/// Renders names in backticks as code.
const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
const formatOption = (value) => (typeof value === "object" && value !== null ? (Array.isArray(value) ? value.join(" ") : JSON.stringify(value)) : String(value));

export function open(context) {
  const { root, signal } = context;
  const container = h("div.stack");
  const messages = h("div");
  const load = loader(
    container,
    (stopped) => api.get("/domains", {}, { signal: AbortSignal.any([stopped, signal]) }),
    ({ domains }) => (domains.length ? domains.map(domain) : emptyState("No domains")),
  );
  const reload = h("button", { type: "button", onclick: async () => {
    let found = null;
    const done = await formDialog({
      title: "Reload the configuration?",
      text: "The node reads its configuration file again and applies the changes that need no restart, all or none. Sessions stay online.",
      confirm: "Reload",
      act: async () => {
        found = await api.post("/reload");
      },
    });
    if (!done) return;
    invalidate();
    const lines = found.lines ?? found.messages ?? [];
    replaceContent(messages, lines.length ? h("div.remark", { role: "status" }, h("ul", {}, lines.map((line) => h("li", {}, line)))) : null);
    toast(found.note ?? "The configuration was reloaded");
    load();
  } }, "Reload configuration");
  const metrics = domainMetrics(signal);
  replaceContent(root, context.head(null, reload), messages, container, metrics.element);
  load();
  const pollMetrics = () => document.hidden || metrics.load().catch(() => {});
  pollMetrics();
  const timer = setInterval(pollMetrics, 10_000);
  return () => clearInterval(timer);
}

function domain({ name, modules, accounts, online, default: first }) {
  const on = modules.filter((module) => module.enabled);
  const counts = [
    typeof accounts === "number" ? plural(accounts, "account") : null,
    typeof online === "number" ? `${count(online)} online` : null,
    `${count(on.length)} of ${plural(modules.length, "module")} on`,
  ].filter(Boolean);
  return h(
    "section.card.pad",
    { "aria-label": name },
    h("div.head", {}, h("div", {}, h("h2", {}, name, " ", first ? h("span.badge", {}, "default") : null), h("p.soft", {}, counts.join(", ")))),
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
            module.summary ? h("div.soft", {}, h("small", {}, withCode(module.summary))) : null,
            options.length ? h("div.options", {}, options.map(([key, value]) => `${key} = ${formatOption(value)}`).join(", ")) : null,
          ),
          module.enabled ? h("span.badge.good", {}, "On") : h("span.badge", {}, "Off"),
        );
      }),
    ),
  );
}
