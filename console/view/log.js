//! Live view of the server log.
//!
//! # Pitfalls
//!
//! A busy node logs faster than anybody can read. The list keeps the last lines only and does not scroll after the user has
//! scrolled up.

import * as api from "../app/api.js";
import { debounce, selectBox, field, h, replaceContent } from "../app/dom.js";
import { clock, count, plural, dateTime, seconds } from "../app/format.js";
import { emptyState, errorNotice } from "../app/table.js";

export const title = "Log";

const MAX_LINES = 2_000;
const LEVELS = [["error", "Errors"], ["warn", "Warnings"], ["info", "Information"], ["debug", "Debug"]];

export function open(context) {
  const { root, values, signal } = context;
  let level = values.get("level") ?? "info";
  let filter = values.get("search") ?? "";
  let last = 0;
  let lines = [];
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
  const tools = h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, wide, field("Minimum level", levels));
  replaceContent(root, head, tools, errorBox, h("div.card", {}, emptyBox, list));

  const updateAddress = () => context.keep("log", { level: level === "info" ? "" : level, search: filter });
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
    const requestedLevel = level;
    try {
      const found = await api.get("/log", { after: last || undefined, level, limit: MAX_LINES }, { signal });
      if (requestedLevel !== level) return;
      replaceContent(errorBox);
      const newLines = found.lines;
      last = found.next ?? newLines.at(-1)?.number ?? last;
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
    [last, lines] = [0, []];
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
const text = (line) => `${line.level} ${line.target} ${formatEntry(line)}`;
