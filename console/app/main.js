//! The console: signs in, draws the frame, and shows the view that the address names (`#/users?search=a`).
//!
//! Each view is a module with `title` and `open(context)`, which fills `context.root` and may answer a function that ends
//! what it began. The trap: a view that is left must not draw any more; requests carry `context.signal`.

import * as api from "./api.js";
import { address } from "./address.js";
import { choice, h, put } from "./dom.js";
import { clock } from "./format.js";
import { help, listen } from "./keys.js";
import { notice, say } from "./notice.js";
import { signIn } from "../view/sign_in.js";
import * as overview from "../view/overview.js";
import * as users from "../view/users.js";
import * as user from "../view/user.js";
import * as sessions from "../view/sessions.js";
import * as messages from "../view/messages.js";
import * as domains from "../view/domains.js";
import * as nodes from "../view/nodes.js";
import * as commands from "../view/commands.js";
import * as tokens from "../view/tokens.js";
import * as log from "../view/log.js";
import * as audit from "../view/audit.js";

/// Groups of the navigation: [letter, path, view].
const WAYS = [
  ["Live", [["o", "overview", overview], ["s", "sessions", sessions], ["n", "nodes", nodes]]],
  ["People", [["u", "users", users], ["m", "messages", messages]]],
  ["Server", [["d", "domains", domains], ["c", "commands", commands], ["t", "tokens", tokens]]],
  ["Records", [["l", "log", log], ["a", "audit", audit]]],
];
const VIEWS = new Map(WAYS.flatMap(([, ways]) => ways.map(([, path, view]) => [path, view])));
const KEYS = WAYS.flatMap(([, ways]) => ways.map(([letter, path, view]) => [letter, path, view.title]));

const app = document.getElementById("app");
let leave = () => {};
let main = null;

function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...rest] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { name: name || "overview", rest, values: new URLSearchParams(query) };
}

function show({ focus = true } = {}) {
  if (!main) return;
  leave();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  const { name, rest, values } = here();
  const view = name === "users" && rest[0] ? user : VIEWS.get(name);
  const ended = new AbortController();
  const root = h("div");
  put(main, root);
  for (const link of document.querySelectorAll(".ways a")) {
    if (link.dataset.path === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.querySelector(".side").classList.remove("open");
  document.querySelector(".menu").setAttribute("aria-expanded", "false");
  if (!view) {
    document.title = "Not found · Throng";
    put(root, h("div.head", {}, h("h1", { tabindex: "-1" }, "There is no such page")), h("p", {}, h("a", { href: address("overview") }, "To the overview")));
    return;
  }
  const title = view.titled?.(rest) ?? view.title;
  document.title = `${title} · Throng`;
  const heading = h("h1", { tabindex: "-1" }, title);
  const context = {
    root,
    rest,
    values,
    signal: ended.signal,
    /// The head of a view: what it is, a line about it, and what can be done.
    head: (text, ...acts) => h("div.head", {}, h("div", {}, heading, text ? h("p", {}, text) : null), acts.length ? h("div.acts", {}, acts) : null),
    /// Changes the address of this view without a step for the browser's way back.
    keep: (path, values) => history.replaceState(null, "", address(path, values)),
    go: (path, values) => {
      location.hash = address(path, values);
    },
    session,
  };
  const end = view.open(context);
  leave = () => {
    ended.abort();
    end?.();
    leave = () => {};
  };
  window.scrollTo(0, 0);
  if (focus) heading.focus({ preventScroll: true });
  say(title);
}

let session = null;

/// Says on every view that the node does not answer, and since when; nothing looks as if it were of this moment then.
const lost = h("p.lost", { role: "alert", hidden: true });
let since = 0;
function mark() {
  lost.hidden = !since;
  put(lost, since ? `The node does not answer. Its last answer was at ${clock(since)}; the data shown is from that time. It is asked again every five seconds.` : null);
  main?.classList.toggle("stale", Boolean(since));
}

function frame() {
  const menu = h("button.menu", { type: "button", "aria-expanded": "false", "aria-controls": "drawer" }, "Menu");
  const ways = WAYS.map(([title, group]) => {
    const links = group.map(([, path, view]) => h("li", {}, h("a", { href: address(path), "data-path": path }, view.title)));
    return h("div", {}, h("h2", {}, title), h("ul", {}, links));
  });
  const themes = choice([["", "Theme: system"], ["light", "Theme: light"], ["dark", "Theme: dark"]], window.theme.choice, {
    "aria-label": "Theme",
    onchange: (event) => {
      window.theme.choice = event.target.value;
    },
  });
  const out = h("button.small", { type: "button" }, "Sign out");
  const side = h(
    "div.side",
    {},
    h("a.brand", { href: address("overview") }, h("img", { src: "/console/icon.svg", alt: "", width: 28, height: 28 }), "Throng"),
    menu,
    h(
      "div.drawer",
      { id: "drawer" },
      h("nav.ways", { "aria-label": "Views" }, ways),
      h(
        "div.who",
        {},
        h("p.name", { title: session.jid }, "Signed in as ", h("strong", {}, session.jid)),
        h("div.acts", {}, themes, h("button.small", { type: "button", onclick: () => help(KEYS) }, "Keys"), out),
      ),
    ),
  );
  const open = (on) => {
    side.classList.toggle("open", on);
    menu.setAttribute("aria-expanded", String(on));
  };
  menu.addEventListener("click", () => open(!side.classList.contains("open")));
  side.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && side.classList.contains("open")) {
      open(false);
      menu.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!side.contains(event.target)) open(false);
  });
  out.addEventListener("click", async () => {
    out.disabled = true;
    try {
      await api.signOut();
    } catch (error) {
      notice(error.message);
    }
    enter("");
  });
  main = h("main", { id: "main" });
  const skip = h("a.skip", { href: "#main", onclick: (event) => {
    event.preventDefault();
    main.querySelector("h1")?.focus();
  } }, "Skip to the content");
  put(app, skip, h("div.frame", {}, side, h("div.page", {}, lost, main)));
  mark();
}

/// Shows the page for signing in; `why` says why it is there again.
function enter(why) {
  leave();
  main = null;
  session = null;
  for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
  document.title = "Sign in · Throng";
  signIn(app, why, (found) => {
    session = found;
    frame();
    show();
  });
}

api.onEnd((error) => {
  if (main) enter(error.message);
});
api.onReach((at = 0) => {
  since = at;
  mark();
});
window.addEventListener("hashchange", () => show());
listen(KEYS, (path) => {
  location.hash = address(path);
});

try {
  session = api.remembered() ? await api.session() : null;
} catch (error) {
  enter(error.message);
}
if (session) {
  frame();
  show({ focus: false });
} else if (!app.firstChild) {
  enter("");
}
