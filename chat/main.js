// Entry point of the page: turns events of the view into stanzas and received stanzas into changes of the model.

import * as stanzas from "./stanzas.js";
import { Model } from "./model.js";
import { Session } from "./session.js";
import { View } from "./view.js";

// Relative to the page, so that it works behind a proxy that serves the node below a path.
const relativeUrl = (path) => new URL(path, location.href);
const websocketUrl = relativeUrl("../ws");
websocketUrl.protocol = location.protocol === "https:" ? "wss:" : "ws:";
websocketUrl.hash = "";

const model = new Model();
const view = new View(model);
const session = new Session({ websocket: websocketUrl.href, bosh: relativeUrl("../bosh").pathname });
let domain = null;
// The presence changed while there was no connection.
let presencePending = false;

session.addEventListener("state", () => {
  const { state } = session;
  view.showConnection(state);
  document.documentElement.dataset.connection = state.name;
  document.documentElement.dataset.transport = session.transport;
  const appVisible = !document.getElementById("app").hidden;
  if (state.name === "out" || state.name === "ended") {
    model.clear();
    location.hash = "";
    view.showSignIn({ why: state.why });
  } else if (state.name === "online" || appVisible) view.showApp();
  // Between two attempts the form can be edited and submitted again.
  else view.showSignIn({ busy: state.name === "connecting" && !state.again });
});

session.addEventListener("online", async ({ detail: { resumed } }) => {
  document.documentElement.dataset.session = `${resumed ? "resumed" : "new"} ${session.jid}`;
  model.load(session.own);
  view.showApp();
  try {
    if (!resumed) {
      model.clearPresence();
      session.request(stanzas.carbons()).catch(() => {
        // Without carbons this tab does not show what another one sends.
      });
    }
    model.roster(stanzas.readRoster(await session.request(stanzas.rosterGet())));
    // After the roster, so that the presence of contacts finds its entries.
    if (!resumed || presencePending) session.send(stanzas.presence(model.show));
    presencePending = false;
    for (const { peer, body, id } of model.takeUnsent()) session.send(stanzas.chatMessage(peer, body, id));
  } catch (error) {
    console.error(error);
  }
});

session.addEventListener("stanza", ({ detail: stanza }) => {
  if (stanza.nodeName === "iq") return stanzas.readRoster(stanza).forEach((item) => model.rosterPush(item));
  if (stanza.nodeName === "presence") return model.presence(stanzas.readPresence(stanza));
  const message = stanzas.readMessage(stanza, session.own);
  if (!message) return;
  if (message.failed) model.failed(message);
  else model.message(message, isVisible(message.peer));
});

const isVisible = (jid) => model.open === jid && !document.hidden && document.hasFocus();
const markOpenRead = () => isVisible(model.open) && model.markRead();
addEventListener("focus", markOpenRead);
document.addEventListener("visibilitychange", markOpenRead);

// Subscribes both ways: approves the contact's subscription and requests our own. Without a pending request the approval is a
// pre-approval, so that each user clicks once; it is sent only if the server offers that (RFC 6121, section 3.4.1).
function subscribeTo(jid) {
  const sendsApproval = model.requests.has(jid) || session.preApproval;
  if (sendsApproval && !session.send(stanzas.subscription(jid, "subscribed"))) return;
  const subscribed = ["to", "both"].includes(model.contacts.get(jid)?.subscription);
  if (!subscribed && !session.send(stanzas.subscription(jid, "subscribe"))) return;
  model.removeRequest(jid);
}

const onViewEvent = (name, then) => view.addEventListener(name, ({ detail }) => then(detail));

onViewEvent("sign-in", ({ address, password }) => {
  const jid = stanzas.address(address, domain);
  if (!jid) return view.showSignIn({ why: domain ? "This is not a valid address." : "Enter the full address: name@domain." });
  session.signIn(jid, password);
});

onViewEvent("sign-out", () => session.signOut());
onViewEvent("retry", () => session.retry());

onViewEvent("show", (show) => {
  model.show = show;
  presencePending = !session.send(stanzas.presence(show));
});

onViewEvent("open", (jid) => {
  // A domain has no @ and may have sent an announcement.
  model.openConversation(model.contacts.has(jid) ? jid : (stanzas.address(jid, null) ?? ""));
  markOpenRead();
});

onViewEvent("say", (body) => {
  const id = crypto.randomUUID();
  const waiting = !session.send(stanzas.chatMessage(model.open, body, id));
  model.message({ peer: model.open, mine: true, body, at: Date.now(), id, sid: null, waiting }, true);
});

onViewEvent("add", async ({ jid: typed, name }) => {
  const jid = stanzas.address(typed, domain);
  if (!jid) return view.openAddDialog("This is not a valid address.");
  if (jid === session.own) return view.openAddDialog("This is your own address.");
  try {
    await session.request(stanzas.rosterSet(jid, name ? { name } : {}));
  } catch (error) {
    return view.openAddDialog(`The contact could not be added: ${error.message}.`);
  }
  subscribeTo(jid);
  view.closeAddDialog();
  location.hash = encodeURIComponent(jid);
});

onViewEvent("remove", (jid) => {
  session.request(stanzas.rosterSet(jid, { subscription: "remove" })).catch((error) => console.error(error));
});

onViewEvent("accept", subscribeTo);

onViewEvent("refuse", (jid) => {
  if (session.send(stanzas.subscription(jid, "unsubscribed"))) model.removeRequest(jid);
});

// The session saves its own state; the model must be saved before the page is unloaded.
addEventListener("pagehide", () => model.save());

async function loadSettings() {
  try {
    const answer = await fetch("settings.json", { signal: AbortSignal.timeout(5_000) });
    domain = (await answer.json()).domain;
  } catch {
    // Users then type the full address.
  }
}

async function start() {
  if (!isSecureContext || !crypto.subtle) {
    return view.showUnavailable(
      "Browsers allow the cryptography that a login needs only on encrypted pages. Open this page over https, or at localhost.",
    );
  }
  await loadSettings();
  view.setAddressHint(domain ? `name@${domain}, or just the name` : "name@domain");
  if (!(await session.restore())) return view.showSignIn();
  // Show the saved state while a WebSocket session is being resumed.
  model.load(session.own);
  model.openConversation(stanzas.address(view.hash(), null) ?? "");
  view.showApp();
}

start();
