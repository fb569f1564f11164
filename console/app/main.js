//! Entry point of the console: sign-in, layout and routing by the URL's fragment (`#/users?search=a`).
//!
//! Each view is a module with `title` and `open(context)`, which fills `context.root` and may return a function that disposes of
//! it.
//!
//! # Pitfalls
//!
//! A view that was left must not render any more; its requests carry `context.signal`.

import * as api from "./api.js";
import { address } from "./address.js";
import { selectBox, h, replaceContent } from "./dom.js";
import { clock } from "./format.js";
import { showShortcuts, bindShortcuts } from "./shortcuts.js";
import { toast, announce } from "./toast.js";
import { signIn } from "../view/sign_in.js";
import * as overview from "../view/overview.js";
import * as users from "../view/users.js";
import * as user from "../view/user.js";
import * as sessions from "../view/sessions.js";
import * as messages from "../view/messages.js";
import * as rooms from "../view/rooms.js";
import * as pubsub from "../view/pubsub.js";
import * as domains from "../view/domains.js";
import * as nodes from "../view/nodes.js";
import * as commands from "../view/commands.js";
import * as tokens from "../view/tokens.js";
import * as log from "../view/log.js";
import * as audit from "../view/audit.js";

/// Groups of the navigation: [letter, path, view].
const NAVIGATION = [
  ["Live", [["o", "overview", overview], ["s", "sessions", sessions], ["n", "nodes", nodes]]],
  ["People", [["u", "users", users], ["r", "rooms", rooms], ["p", "pubsub", pubsub], ["m", "messages", messages]]],
  ["Server", [["d", "domains", domains], ["c", "commands", commands], ["t", "tokens", tokens]]],
  ["Records", [["l", "log", log], ["a", "audit", audit]]],
];
const VIEWS = new Map(NAVIGATION.flatMap(([, entries]) => entries.map(([, path, view]) => [path, view])));
const KEYS = NAVIGATION.flatMap(([, entries]) => entries.map(([letter, path, view]) => [letter, path, view.title]));

const app = document.getElementById("app");
let leaveView = () => {};
let main = null;

function currentRoute() {
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
  leaveView();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  const { name, rest, values } = currentRoute();
  const view = name === "users" && rest[0] ? user : VIEWS.get(name);
  const controller = new AbortController();
  const root = h("div");
  replaceContent(main, root);
  for (const link of document.querySelectorAll(".navigation a")) {
    if (link.dataset.path === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.querySelector(".side").classList.remove("open");
  document.querySelector(".menu").setAttribute("aria-expanded", "false");
  if (!view) {
    document.title = "Not found · Throng";
    replaceContent(root, h("div.head", {}, h("h1", { tabindex: "-1" }, "Page not found")), h("p", {}, h("a", { href: address("overview") }, "Go to the overview")));
    return;
  }
  const title = view.titled?.(rest) ?? view.title;
  document.title = `${title} · Throng`;
  const heading = h("h1", { tabindex: "-1" }, title);
  const context = {
    root,
    rest,
    values,
    signal: controller.signal,
    /// The header of a view: title, description and actions.
    head: (text, ...acts) => h("div.head", {}, h("div", {}, heading, text ? h("p", {}, text) : null), acts.length ? h("div.acts", {}, acts) : null),
    /// Replaces the URL of this view without an entry in the browser's history.
    keep: (path, values) => history.replaceState(null, "", address(path, values)),
    go: (path, values) => {
      location.hash = address(path, values);
    },
    session,
  };
  const dispose = view.open(context);
  leaveView = () => {
    controller.abort();
    dispose?.();
    leaveView = () => {};
  };
  window.scrollTo(0, 0);
  if (focus) heading.focus({ preventScroll: true });
  announce(title);
}

let session = null;

/// Banner above every view while the node is unreachable, with the time of its last response.
const offlineBanner = h("p.offline-banner", { role: "alert", hidden: true });
let unreachableSince = 0;
function updateOfflineBanner() {
  offlineBanner.hidden = !unreachableSince;
  replaceContent(offlineBanner, unreachableSince ? `The node does not respond. Its last response was at ${clock(unreachableSince)}; the data shown is from that time. The console retries every five seconds.` : null);
  main?.classList.toggle("stale", Boolean(unreachableSince));
}

function renderLayout() {
  const menu = h("button.menu", { type: "button", "aria-expanded": "false", "aria-controls": "drawer" }, "Menu");
  const groups = NAVIGATION.map(([title, group]) => {
    const links = group.map(([, path, view]) => h("li", {}, h("a", { href: address(path), "data-path": path }, view.title)));
    return h("div", {}, h("h2", {}, title), h("ul", {}, links));
  });
  const themeSelect = selectBox([["", "Theme: system"], ["light", "Theme: light"], ["dark", "Theme: dark"]], window.theme.choice, {
    "aria-label": "Theme",
    onchange: (event) => {
      window.theme.choice = event.target.value;
    },
  });
  const signOutButton = h("button.small", { type: "button" }, "Sign out");
  const sidebar = h(
    "div.side",
    {},
    h("a.brand", { href: address("overview") }, h("img", { src: "/console/icon.svg", alt: "", width: 28, height: 28 }), "Throng"),
    menu,
    h(
      "div.drawer",
      { id: "drawer" },
      h("nav.navigation", { "aria-label": "Views" }, groups),
      h(
        "div.who",
        {},
        h("p.name", { title: session.jid }, "Signed in as ", h("strong", {}, session.jid)),
        h("div.acts", {}, themeSelect, h("button.small", { type: "button", onclick: () => showShortcuts(KEYS) }, "Shortcuts"), signOutButton),
      ),
    ),
  );
  const open = (on) => {
    sidebar.classList.toggle("open", on);
    menu.setAttribute("aria-expanded", String(on));
  };
  menu.addEventListener("click", () => open(!sidebar.classList.contains("open")));
  sidebar.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && sidebar.classList.contains("open")) {
      open(false);
      menu.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!sidebar.contains(event.target)) open(false);
  });
  signOutButton.addEventListener("click", async () => {
    signOutButton.disabled = true;
    try {
      await api.signOut();
    } catch (error) {
      toast(error.message);
    }
    showSignIn("");
  });
  main = h("main", { id: "main" });
  const skip = h("a.skip", { href: "#main", onclick: (event) => {
    event.preventDefault();
    main.querySelector("h1")?.focus();
  } }, "Skip to content");
  replaceContent(app, skip, h("div.frame", {}, sidebar, h("div.page", {}, offlineBanner, main)));
  updateOfflineBanner();
}

/// Shows the sign-in page; `why` is the reason if a session ended.
function showSignIn(why) {
  leaveView();
  main = null;
  session = null;
  for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
  document.title = "Sign in · Throng";
  signIn(app, why, (found) => {
    session = found;
    renderLayout();
    show();
  });
}

api.onSessionEnd((error) => {
  if (main) showSignIn(error.message);
});
api.onReachability((at = 0) => {
  unreachableSince = at;
  updateOfflineBanner();
});
window.addEventListener("hashchange", () => show());
bindShortcuts(KEYS, (path) => {
  location.hash = address(path);
});

try {
  session = api.hasRememberedSignIn() ? await api.session() : null;
} catch (error) {
  showSignIn(error.message);
}
if (session) {
  renderLayout();
  show({ focus: false });
} else if (!app.firstChild) {
  showSignIn("");
}
