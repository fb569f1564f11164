// Builders and parsers of stanzas: RFC 6121 (roster, presence, messages), XEP-0280 (carbons), XEP-0203 (delays), XEP-0359
// (stanza ids), XEP-0199 (ping). Independent of the connection and of the page.
//
// # Pitfalls
//
// Carbons (XEP-0280, section 11) and roster pushes (RFC 6121, section 2.1.6) are valid only from the user's own account; anybody
// can send one.

const { Strophe, $iq, $msg, $pres } = globalThis;

export const NS = {
  carbons: "urn:xmpp:carbons:2",
  delay: "urn:xmpp:delay",
  forward: "urn:xmpp:forward:0",
  ping: "urn:xmpp:ping",
  roster: "jabber:iq:roster",
  sid: "urn:xmpp:sid:0",
};

// The bare address. The server has already normalised the addresses that it sends.
export const bare = (jid) => Strophe.getBareJidFromJid(jid ?? "") ?? "";

export const resource = (jid) => Strophe.getResourceFromJid(jid ?? "") ?? "";

// Normalises a typed address and adds the default domain; null if it is not a valid address.
export function address(typed, domain) {
  const text = typed.trim().toLowerCase();
  if (/[\s"&'/:<>]/.test(text)) return null;
  const full = text.includes("@") || !domain ? text : `${text}@${domain}`;
  return /^[^@]+@[^@]+$/.test(full) ? full : null;
}

const child = (element, name, ns) =>
  [...(element?.children ?? [])].find((one) => one.localName === name && (!ns || one.namespaceURI === ns)) ?? null;

const text = (element, name) => child(element, name)?.textContent ?? "";

// Time of a delayed stanza (XEP-0203), else now; milliseconds since 1970.
function sentAt(stanza) {
  const stamp = Date.parse(child(stanza, "delay", NS.delay)?.getAttribute("stamp") ?? "");
  return Number.isNaN(stamp) ? Date.now() : stamp;
}

// Text for a stanza error (RFC 6120, section 8.3).
export function errorText(stanza) {
  const error = child(stanza, "error");
  const serverText = text(error, "text");
  const condition = [...(error?.children ?? [])].find((one) => one.localName !== "text")?.localName ?? "";
  const conditionTexts = {
    "service-unavailable": "this address does not accept messages",
    "item-not-found": "this address does not exist",
    "remote-server-not-found": "this server does not exist",
    "recipient-unavailable": "the contact is not online",
    "forbidden": "this is not allowed",
    "not-allowed": "this is not allowed",
    "resource-constraint": "the recipient's message store is full",
    "policy-violation": "the server's policy does not allow it",
    "jid-malformed": "this is not a valid address",
  };
  return serverText || conditionTexts[condition] || condition.replaceAll("-", " ") || "the server refused it";
}

// Parses a message: { peer, mine, body, at, id, sid, failed }, or null if there is nothing to show. `own` is the user's bare
// address.
export function readMessage(stanza, own) {
  let message = stanza;
  let mine = false;
  for (const direction of ["sent", "received"]) {
    const copy = child(stanza, direction, NS.carbons);
    if (!copy) continue;
    if (stanza.getAttribute("from") !== own) return null;
    message = child(child(copy, "forwarded", NS.forward), "message");
    if (!message) return null;
    mine = direction === "sent";
  }
  const from = bare(message.getAttribute("from"));
  const peer = mine ? bare(message.getAttribute("to")) : from;
  const id = message.getAttribute("id");
  if (message.getAttribute("type") === "error") {
    return mine || !id ? null : { peer, id, failed: errorText(message) };
  }
  const body = text(message, "body");
  if (!body || !peer || message.getAttribute("type") === "groupchat") return null;
  // Only a stanza id that the user's own account assigned can be trusted (XEP-0359, section 6).
  const sid = [...message.children].find(
    (one) => one.localName === "stanza-id" && one.namespaceURI === NS.sid && one.getAttribute("by") === own,
  );
  const forwarded = message === stanza ? message : message.parentElement;
  return { peer, mine: mine || from === own, body, at: sentAt(forwarded), id, sid: sid?.getAttribute("id") ?? null };
}

// Parses a presence: { from, resource, type, show, status, priority }.
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

// Parses the items of a roster result or push.
export function readRoster(iq) {
  return [...(child(iq, "query", NS.roster)?.children ?? [])]
    .filter((item) => item.localName === "item" && item.getAttribute("jid"))
    .map((item) => ({
      jid: item.getAttribute("jid"),
      name: item.getAttribute("name") ?? "",
      subscription: item.getAttribute("subscription") ?? "none",
      pendingOut: item.getAttribute("ask") === "subscribe",
    }));
}

// Kind of an incoming IQ request: "roster", "ping" or "".
export function requestKind(iq) {
  if (child(iq, "query", NS.roster)) return "roster";
  return child(iq, "ping", NS.ping) ? "ping" : "";
}

export const chatMessage = (to, body, id) => $msg({ to, type: "chat", id }).c("body").t(body);

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

export function emptyResult(iq) {
  const to = iq.getAttribute("from");
  return $iq({ type: "result", id: iq.getAttribute("id"), ...(to && { to }) });
}
