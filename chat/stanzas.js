// What stanzas say: RFC 6121 (roster, presence, messages), XEP-0280 (carbons), XEP-0203 (delays), XEP-0359 (stanza ids),
// XEP-0199 (ping). Builds what the page sends and reads what it gets; knows no connection and no page.
//
// The trap: a copy of a message (XEP-0280 section 11) or a change of the roster (RFC 6121 section 2.1.6) counts only when it
// comes from one's own account; anybody can send one.

const { Strophe, $iq, $msg, $pres } = globalThis;

export const NS = {
  carbons: "urn:xmpp:carbons:2",
  delay: "urn:xmpp:delay",
  forward: "urn:xmpp:forward:0",
  ping: "urn:xmpp:ping",
  roster: "jabber:iq:roster",
  sid: "urn:xmpp:sid:0",
};

// The part before the slash, in lower case as far as it matters here: the server has normalised what it sends.
export const bare = (jid) => Strophe.getBareJidFromJid(jid ?? "") ?? "";

export const resource = (jid) => Strophe.getResourceFromJid(jid ?? "") ?? "";

// A typed address, completed by the domain of the page; null if it cannot be one.
export function address(typed, domain) {
  const text = typed.trim().toLowerCase();
  if (/[\s"&'/:<>]/.test(text)) return null;
  const full = text.includes("@") || !domain ? text : `${text}@${domain}`;
  return /^[^@]+@[^@]+$/.test(full) ? full : null;
}

const child = (element, name, ns) =>
  [...(element?.children ?? [])].find((one) => one.localName === name && (!ns || one.namespaceURI === ns)) ?? null;

const text = (element, name) => child(element, name)?.textContent ?? "";

// When a delayed stanza was sent, by the word of the server; else now. Milliseconds.
function sent(stanza) {
  const stamp = Date.parse(child(stanza, "delay", NS.delay)?.getAttribute("stamp") ?? "");
  return Number.isNaN(stamp) ? Date.now() : stamp;
}

// Why something came back, in words. RFC 6120 section 8.3.
export function reason(stanza) {
  const error = child(stanza, "error");
  const said = text(error, "text");
  const condition = [...(error?.children ?? [])].find((one) => one.localName !== "text")?.localName ?? "";
  const words = {
    "service-unavailable": "nobody takes messages at this address",
    "item-not-found": "there is no such address",
    "remote-server-not-found": "there is no such server",
    "recipient-unavailable": "the contact is not online",
    "forbidden": "this is not allowed",
    "not-allowed": "this is not allowed",
    "resource-constraint": "too much is waiting there already",
    "policy-violation": "the server's rules refuse it",
    "jid-malformed": "this is no address",
  };
  return said || words[condition] || condition.replaceAll("-", " ") || "the server refused it";
}

// A message to show: { peer, mine, body, at, id, sid, failed }; null if there is nothing to see. `own` is the bare address.
export function readMessage(stanza, own) {
  let message = stanza;
  let mine = false;
  for (const way of ["sent", "received"]) {
    const copy = child(stanza, way, NS.carbons);
    if (!copy) continue;
    if (stanza.getAttribute("from") !== own) return null;
    message = child(child(copy, "forwarded", NS.forward), "message");
    if (!message) return null;
    mine = way === "sent";
  }
  const from = bare(message.getAttribute("from"));
  const peer = mine ? bare(message.getAttribute("to")) : from;
  const id = message.getAttribute("id");
  if (message.getAttribute("type") === "error") {
    return mine || !id ? null : { peer, id, failed: reason(message) };
  }
  const body = text(message, "body");
  if (!body || !peer || message.getAttribute("type") === "groupchat") return null;
  // Of several ids only that of one's own account can be trusted (XEP-0359 section 6).
  const sid = [...message.children].find(
    (one) => one.localName === "stanza-id" && one.namespaceURI === NS.sid && one.getAttribute("by") === own,
  );
  const forwarded = message === stanza ? message : message.parentElement;
  return { peer, mine: mine || from === own, body, at: sent(forwarded), id, sid: sid?.getAttribute("id") ?? null };
}

// A presence: { from, resource, type, show, status, priority }.
export function readPresence(stanza) {
  const from = stanza.getAttribute("from");
  const priority = Number.parseInt(text(stanza, "priority"), 10);
  return {
    from: bare(from),
    resource: resource(from),
    type: stanza.getAttribute("type") ?? "",
    show: text(stanza, "show"),
    status: text(stanza, "status"),
    priority: Number.isNaN(priority) ? 0 : priority,
  };
}

// The items of a roster or of a change of it.
export function readRoster(iq) {
  return [...(child(iq, "query", NS.roster)?.children ?? [])]
    .filter((item) => item.localName === "item" && item.getAttribute("jid"))
    .map((item) => ({
      jid: item.getAttribute("jid"),
      name: item.getAttribute("name") ?? "",
      subscription: item.getAttribute("subscription") ?? "none",
      asked: item.getAttribute("ask") === "subscribe",
    }));
}

// What a request asks for: "roster", "ping" or "".
export function asks(iq) {
  if (child(iq, "query", NS.roster)) return "roster";
  return child(iq, "ping", NS.ping) ? "ping" : "";
}

export const chat = (to, body, id) => $msg({ to, type: "chat", id }).c("body").t(body);

export function presence(show) {
  const stanza = $pres();
  return show ? stanza.c("show").t(show) : stanza;
}

export const subscription = (to, type) => $pres({ to, type });

export const rosterGet = () => $iq({ type: "get" }).c("query", { xmlns: NS.roster });

export function rosterSet(jid, attributes) {
  return $iq({ type: "set" }).c("query", { xmlns: NS.roster }).c("item", { jid, ...attributes });
}

export const ping = () => $iq({ type: "get" }).c("ping", { xmlns: NS.ping });

export const carbons = () => $iq({ type: "set" }).c("enable", { xmlns: NS.carbons });

export function result(iq) {
  const to = iq.getAttribute("from");
  return $iq({ type: "result", id: iq.getAttribute("id"), ...(to && { to }) });
}
