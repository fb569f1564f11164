//! Live view of the logs of all nodes or of one.
//!
//! # Pitfalls
//!
//! A busy node logs faster than anybody can read. The list keeps the last lines only and does not scroll after the user has
//! scrolled up.

import * as api from "../app/api.js";
import { debounce, selectBox, field, h, replaceContent } from "../app/dom.js";
import { clock, count, plural, dateTime, seconds } from "../app/format.js";
import { missingNotice, nodeSelect } from "../app/nodes.js";
import { emptyState, errorNotice } from "../app/table.js";

export const title = "Log";

const MAX_LINES = 2_000;
const LEVELS = [["error", "Errors"], ["warn", "Warnings"], ["info", "Information"], ["debug", "Debug"]];

export function open(context) {
  const { root, values, signal } = context;
  let level = values.get("level") ?? "info";
  let filter = values.get("search") ?? "";
  let node = values.get("node") ?? "";
  let last = "";
  let lines = [];
  /// Whether lines show their node.
  let severalNodes = false;
  let following = true;
  let pollTimer = 0;

  const list = h("ol.log", { role: "log", "aria-live": "off", "aria-label": "Log lines", tabindex: "0" });
  const emptyBox = h("div");
  const errorBox = h("div");
  const countText = h("p", {});
  const levels = selectBox(LEVELS, level, { onchange: () => {
    level = levels.value;
    restart();
  } });
  const nodes = nodeSelect(node, {
    signal,
    changed: (name) => {
      node = name;
      restart();
    },
  });
  nodes.load().catch(() => {});
  const search = h("input", { type: "search", value: filter, placeholder: "Text in these lines", spellcheck: "false", autocapitalize: "none" });
  const follow = h("button", { type: "button", "aria-pressed": "true", onclick: () => setFollowing(!following) }, "Pause");
  search.addEventListener("input", debounce(150, () => {
    filter = search.value.trim();
    updateAddress();
    draw();
  }));
  const wide = field("Search", search);
  wide.classList.add("wide");
  const head = context.head("", follow);
  head.firstChild.append(countText);
  const tools = h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, wide, field("Minimum level", levels), nodes.element);
  replaceContent(root, head, tools, errorBox, h("div.card", {}, emptyBox, list));

  const updateAddress = () => context.keep("log", { level: level === "info" ? "" : level, search: filter, node });
  const matches = (line) => !filter || text(line).toLowerCase().includes(filter.toLowerCase());

  function setFollowing(on) {
    following = on;
    replaceContent(follow, on ? "Pause" : "Continue");
    follow.setAttribute("aria-pressed", String(on));
    if (on) poll();
  }

  function row(line) {
    const at = seconds(line.time) ?? 0;
    return h(
      "li",
      { class: line.level.toUpperCase() },
      h("time", { datetime: new Date(at * 1000).toISOString(), title: dateTime(at, true) }, clock(at)),
      h("span.level", {}, line.level.toUpperCase()),
      severalNodes ? h("span.target", {}, `${line.node} `) : null,
      h("span.text", {}, h("span.target", {}, `${line.target} `), formatEntry(line)),
    );
  }

  function draw() {
    const shown = lines.filter(matches);
    replaceContent(list, shown.map(row));
    updateCount(shown.length);
    list.scrollTop = list.scrollHeight;
  }
  function updateCount(shown) {
    list.hidden = !shown;
    replaceContent(emptyBox, shown ? null : lines.length ? emptyState("No matching lines") : emptyState("No lines of this level yet"));
    replaceContent(countText, filter ? `${count(shown)} of the last ${plural(lines.length, "line")}` : plural(lines.length, "line"));
  }

  async function poll() {
    clearTimeout(pollTimer);
    if (!following || signal.aborted || document.hidden) return;
    const requested = `${level} ${node}`;
    try {
      const found = await api.get("/log", { after: last || undefined, node, level, limit: MAX_LINES }, { signal });
      if (requested !== `${level} ${node}`) return;
      replaceContent(errorBox, missingNotice(found.missing));
      const newLines = found.lines;
      last = found.next;
      const several = !node && last.includes(",");
      if (several !== severalNodes) {
        severalNodes = several;
        draw();
      }
      const atBottom = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
      lines = lines.concat(newLines).slice(-MAX_LINES);
      const shown = newLines.filter(matches);
      list.append(...shown.map(row));
      while (list.children.length > MAX_LINES) list.firstChild.remove();
      updateCount(list.children.length);
      if (shown.length && atBottom) list.scrollTop = list.scrollHeight;
    } catch (error) {
      if (signal.aborted) return;
      replaceContent(errorBox, errorNotice(error));
    }
    clearTimeout(pollTimer);
    pollTimer = setTimeout(poll, 2_000);
  }
  function restart() {
    [last, lines] = ["", []];
    replaceContent(list);
    updateAddress();
    poll();
  }
  document.addEventListener("visibilitychange", poll, { signal });
  restart();
  return () => clearTimeout(pollTimer);
}

/// The message followed by its fields.
function formatEntry({ message, fields }) {
  const rest = Object.entries(fields ?? {}).filter(([, value]) => value !== "").map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [message, ...rest].filter(Boolean).join("  ");
}
const text = (line) => `${line.level} ${line.node} ${line.target} ${formatEntry(line)}`;
