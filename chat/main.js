// Puts the page together: what people do becomes stanzas, what arrives goes into the model, and the view draws it.

import * as stanzas from "./stanzas.js";
import { Model } from "./model.js";
import { Session } from "./session.js";
import { View } from "./view.js";

// Beside the page, so that it works behind a proxy that puts the node below a path.
const beside = (path) => new URL(path, location.href);
const socket = beside("../ws");
socket.protocol = location.protocol === "https:" ? "wss:" : "ws:";
socket.hash = "";

const model = new Model();
const view = new View(model);
const session = new Session({ websocket: socket.href, bosh: beside("../bosh").pathname });
let domain = null;
// The presence was changed while nobody could be told.
let changed = false;

session.addEventListener("state", () => {
  const { state } = session;
  view.bar(state);
  document.documentElement.dataset.connection = state.name;
  document.documentElement.dataset.transport = session.transport;
  const inside = !document.getElementById("app").hidden;
  if (state.name === "out" || state.name === "ended") {
    model.forget();
    location.hash = "";
    view.entry({ why: state.why });
  } else if (state.name === "online" || inside) view.app();
  // Between two attempts the form can be changed and sent again.
  else view.entry({ busy: state.name === "connecting" && !state.again });
});

session.addEventListener("online", async ({ detail: { resumed } }) => {
  document.documentElement.dataset.session = `${resumed ? "resumed" : "new"} ${session.jid}`;
  model.load(session.own);
  view.app();
  try {
    if (!resumed) {
      model.absent();
      session.request(stanzas.carbons()).catch(() => {
        // Without copies this tab just does not see what another one writes.
      });
    }
    model.roster(stanzas.readRoster(await session.request(stanzas.rosterGet())));
    // After the roster, so that the presence that answers finds its contacts.
    if (!resumed || changed) session.send(stanzas.presence(model.show));
    changed = false;
    for (const { peer, body, id } of model.take()) session.send(stanzas.chat(peer, body, id));
  } catch (error) {
    console.error(error);
  }
});

session.addEventListener("stanza", ({ detail: stanza }) => {
  if (stanza.nodeName === "iq") return stanzas.readRoster(stanza).forEach((item) => model.change(item));
  if (stanza.nodeName === "presence") return model.presence(stanzas.readPresence(stanza));
  const message = stanzas.readMessage(stanza, session.own);
  if (!message) return;
  if (message.failed) model.failed(message);
  else model.message(message, looking(message.peer));
});

const looking = (jid) => model.open === jid && !document.hidden && document.hasFocus();
const seen = () => looking(model.open) && model.read();
addEventListener("focus", seen);
document.addEventListener("visibilitychange", seen);

// Lets somebody see us, and asks to see them. An approval answers a request. Without one it is a pre-approval, so that each of the
// two clicks once, and is sent only if the server offers that (RFC 6121 section 3.4.1).
function befriend(jid) {
  const approves = model.requests.has(jid) || session.preApproval;
  if (approves && !session.send(stanzas.subscription(jid, "subscribed"))) return;
  const sees = ["to", "both"].includes(model.contacts.get(jid)?.subscription);
  if (!sees && !session.send(stanzas.subscription(jid, "subscribe"))) return;
  model.decide(jid);
}

const on = (name, then) => view.addEventListener(name, ({ detail }) => then(detail));

on("sign-in", ({ address, password }) => {
  const jid = stanzas.address(address, domain);
  if (!jid) return view.entry({ why: domain ? "This is no address." : "Please type the whole address: name@domain." });
  session.signIn(jid, password);
});

on("sign-out", () => session.signOut());
on("retry", () => session.retry());

on("show", (show) => {
  model.show = show;
  changed = !session.send(stanzas.presence(show));
});

on("open", (jid) => {
  // A domain has no @, and may have sent an announcement.
  model.look(model.contacts.has(jid) ? jid : (stanzas.address(jid, null) ?? ""));
  seen();
});

on("say", (body) => {
  const id = crypto.randomUUID();
  const waiting = !session.send(stanzas.chat(model.open, body, id));
  model.message({ peer: model.open, mine: true, body, at: Date.now(), id, sid: null, waiting }, true);
});

on("add", async ({ jid: typed, name }) => {
  const jid = stanzas.address(typed, domain);
  if (!jid) return view.ask("This is no address.");
  if (jid === session.own) return view.ask("This is your own address.");
  try {
    await session.request(stanzas.rosterSet(jid, name ? { name } : {}));
  } catch (error) {
    return view.ask(`It did not work: ${error.message}.`);
  }
  befriend(jid);
  view.asked();
  location.hash = encodeURIComponent(jid);
});

on("remove", (jid) => {
  session.request(stanzas.rosterSet(jid, { subscription: "remove" })).catch((error) => console.error(error));
});

on("accept", befriend);

on("refuse", (jid) => {
  if (session.send(stanzas.subscription(jid, "unsubscribed"))) model.decide(jid);
});

// Everything that is not in the session's own keeping must be put away before the page goes.
addEventListener("pagehide", () => model.save());

async function settings() {
  try {
    const answer = await fetch("settings.json", { signal: AbortSignal.timeout(5_000) });
    domain = (await answer.json()).domain;
  } catch {
    // Then addresses are typed in full.
  }
}

async function begin() {
  if (!isSecureContext || !crypto.subtle) {
    return view.impossible(
      "The browser keeps what a login needs from pages that came without encryption. Open this page by https, or on the machine of the node itself.",
    );
  }
  await settings();
  view.hint(domain ? `name@${domain}, or just the name` : "name@domain");
  if (!(await session.restore())) return view.entry();
  // Over WebSocket there is no session yet; what is known can be read meanwhile.
  model.load(session.own);
  model.look(stanzas.address(view.hash(), null) ?? "");
  view.app();
}

begin();
