//! The last lines of the log, as they come.
//!
//! The trap: a busy node writes faster than anybody reads. The list keeps the last lines only, and it does not run away from
//! somebody who scrolled up.

import * as api from "../app/api.js";
import { after as later, choice, field, h, put } from "../app/dom.js";
import { clock, count, many, moment, seconds } from "../app/format.js";
import { empty, trouble } from "../app/table.js";

export const title = "Log";

const KEPT = 2_000;
const LEVELS = [["error", "Errors"], ["warn", "Warnings"], ["info", "Information"], ["debug", "Debug"]];

export function open(context) {
  const { root, values, signal } = context;
  let level = values.get("level") ?? "info";
  let words = values.get("search") ?? "";
  let last = 0;
  let lines = [];
  let following = true;
  let running = 0;

  const list = h("ol.log", { role: "log", "aria-live": "off", "aria-label": "Log lines", tabindex: "0" });
  const none = h("div");
  const problem = h("div");
  const number = h("p", {});
  const levels = choice(LEVELS, level, { onchange: () => {
    level = levels.value;
    begin();
  } });
  const search = h("input", { type: "search", value: words, placeholder: "In these lines", spellcheck: "false", autocapitalize: "none" });
  const follow = h("button", { type: "button", "aria-pressed": "true", onclick: () => set(!following) }, "Pause");
  search.addEventListener("input", later(150, () => {
    words = search.value.trim();
    keep();
    draw();
  }));
  const wide = field("Search", search);
  wide.classList.add("wide");
  const head = context.head("", follow);
  head.firstChild.append(number);
  const tools = h("form.tools", { role: "search", method: "post", onsubmit: (event) => event.preventDefault() }, wide, field("Least level", levels));
  put(root, head, tools, problem, h("div.card", {}, none, list));

  const keep = () => context.keep("log", { level: level === "info" ? "" : level, search: words });
  const holds = (line) => !words || text(line).toLowerCase().includes(words.toLowerCase());

  function set(on) {
    following = on;
    put(follow, on ? "Pause" : "Continue");
    follow.setAttribute("aria-pressed", String(on));
    if (on) tick();
  }

  function row(line) {
    const at = seconds(line.time) ?? 0;
    return h(
      "li",
      { class: line.level.toUpperCase() },
      h("time", { datetime: new Date(at * 1000).toISOString(), title: moment(at, true) }, clock(at)),
      h("span.level", {}, line.level.toUpperCase()),
      h("span.text", {}, h("span.target", {}, `${line.target} `), said(line)),
    );
  }

  function draw() {
    const shown = lines.filter(holds);
    put(list, shown.map(row));
    settle(shown.length);
    list.scrollTop = list.scrollHeight;
  }
  function settle(shown) {
    list.hidden = !shown;
    put(none, shown ? null : lines.length ? empty("No line has these words") : empty("No lines of this level yet"));
    put(number, words ? `${count(shown)} of the last ${many(lines.length, "line")}` : many(lines.length, "line"));
  }

  async function tick() {
    clearTimeout(running);
    if (!following || signal.aborted || document.hidden) return;
    const asked = level;
    try {
      const found = await api.get("/log", { after: last || undefined, level, limit: KEPT }, { signal });
      if (asked !== level) return;
      put(problem);
      const fresh = found.lines;
      last = found.next ?? fresh.at(-1)?.number ?? last;
      const low = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
      lines = lines.concat(fresh).slice(-KEPT);
      const shown = fresh.filter(holds);
      list.append(...shown.map(row));
      while (list.children.length > KEPT) list.firstChild.remove();
      settle(list.children.length);
      if (shown.length && low) list.scrollTop = list.scrollHeight;
    } catch (error) {
      if (signal.aborted) return;
      put(problem, trouble(error));
    }
    clearTimeout(running);
    running = setTimeout(tick, 2_000);
  }
  function begin() {
    [last, lines] = [0, []];
    put(list);
    keep();
    tick();
  }
  document.addEventListener("visibilitychange", tick, { signal });
  begin();
  return () => clearTimeout(running);
}

/// The message with its fields.
function said({ message, fields }) {
  const rest = Object.entries(fields ?? {}).filter(([, value]) => value !== "").map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [message, ...rest].filter(Boolean).join("  ");
}
const text = (line) => `${line.level} ${line.target} ${said(line)}`;
