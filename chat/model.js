// State of the chat: contacts with presence, messages, unread counts and subscription requests. Independent of the page and of
// the connection.
//
// It is saved in sessionStorage across reloads, since a resumed stream repeats neither presence nor messages. It is bounded:
// MAX_MESSAGES per conversation, MAX_CONVERSATIONS with messages; the oldest are dropped first.
//
// # Pitfalls
//
// sessionStorage throws when it is full, at about five megabytes. Saving is then retried with a quarter of the messages.

const STORAGE_KEY = "throng-chat-page";
const MAX_MESSAGES = 200;
const MAX_CONVERSATIONS = 50;
// Characters of a message that survive a reload.
const MAX_BODY_CHARS = 20_000;

// RFC 6121, section 4.7.2.1, most available first; an empty value is "available".
const SHOW_ORDER = ["chat", "", "away", "xa", "dnd"];

export class Model extends EventTarget {
  own = "";
  // By bare address: { jid, name, subscription, pendingOut, listed, resources, messages, unread, last }.
  contacts = new Map();
  // Bare addresses with a pending subscription request.
  requests = new Set();
  // Bare address of the open conversation, or "".
  open = "";
  show = "";

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  clear() {
    this.own = this.open = this.show = "";
    this.contacts.clear();
    this.requests.clear();
    sessionStorage.removeItem(STORAGE_KEY);
    this.#changed();
  }

  contact(jid) {
    let contact = this.contacts.get(jid);
    if (!contact) {
      contact = {
        jid,
        name: "",
        subscription: "none",
        pendingOut: false,
        listed: false,
        resources: new Map(),
        messages: [],
        unread: 0,
        last: 0,
      };
      this.contacts.set(jid, contact);
    }
    return contact;
  }

  // Replaces the roster; contacts that are not in it and have no messages are removed.
  roster(items) {
    const listed = new Set(items.map((item) => item.jid));
    for (const contact of [...this.contacts.values()]) {
      if (!listed.has(contact.jid)) this.#removeFromRoster(contact);
    }
    for (const item of items) this.#addToRoster(item);
    this.#changed();
  }

  // Applies a roster push (RFC 6121, section 2.1.6).
  rosterPush(item) {
    if (item.subscription === "remove") this.#removeFromRoster(this.contact(item.jid));
    else this.#addToRoster(item);
    this.#changed();
  }

  #addToRoster(item) {
    Object.assign(this.contact(item.jid), item, { listed: true });
    if (["from", "both"].includes(item.subscription)) this.requests.delete(item.jid);
    if (!["to", "both"].includes(item.subscription)) this.contact(item.jid).resources.clear();
  }

  #removeFromRoster(contact) {
    Object.assign(contact, { name: "", subscription: "none", pendingOut: false, listed: false });
    contact.resources.clear();
    if (!contact.messages.length && contact.jid !== this.open) this.contacts.delete(contact.jid);
  }

  // A new session receives the presence of all contacts again.
  clearPresence() {
    for (const contact of this.contacts.values()) contact.resources.clear();
    this.#changed();
  }

  presence({ from, resource, type, show, status, priority }) {
    if (from === this.own) return;
    if (type === "subscribe") {
      if (!["from", "both"].includes(this.contacts.get(from)?.subscription)) this.requests.add(from);
    } else if (type === "unsubscribe") {
      this.requests.delete(from);
    } else if (type === "unavailable") {
      const resources = this.contacts.get(from)?.resources;
      if (resource) resources?.delete(resource);
      else resources?.clear();
    } else if (type === "") {
      // Presence from addresses that are not contacts is ignored: it could fill the list.
      this.contacts.get(from)?.resources.set(resource, { show, status, priority });
    } else return;
    this.#changed();
  }

  // { show, status, online } of the resource with the highest priority.
  availability(contact) {
    const all = [...contact.resources.values()];
    if (!all.length) return { online: false, show: "", status: "" };
    const rank = (one) => SHOW_ORDER.indexOf(one.show) + 1 || SHOW_ORDER.length;
    all.sort((a, b) => b.priority - a.priority || rank(a) - rank(b));
    return { online: true, show: all[0].show, status: all[0].status };
  }

  // Adds a sent or received message; `read`: the conversation is visible. False for a duplicate.
  message({ peer, mine, body, at, id, sid, waiting = false }, read) {
    const contact = this.contact(peer);
    const isDuplicate = (one) => (sid && one.sid === sid) || (mine && id && one.mine && one.id === id);
    if (contact.messages.some(isDuplicate)) return false;
    contact.messages.push({ mine, body, at, id, sid, waiting, failed: "" });
    if (contact.messages.length > MAX_MESSAGES) contact.messages.splice(0, contact.messages.length - MAX_MESSAGES);
    contact.last = Math.max(contact.last, at);
    // A reply from any device marks the conversation as read.
    contact.unread = mine || read ? 0 : contact.unread + 1;
    this.#changed();
    return true;
  }

  // Marks a sent message as failed.
  failed({ peer, id, failed }) {
    const message = this.contacts.get(peer)?.messages.findLast((one) => one.mine && one.id === id);
    if (!message) return;
    message.failed = failed;
    this.#changed();
  }

  // Returns the unsent messages, oldest first, and marks them as sent.
  takeUnsent() {
    const waiting = [];
    for (const { jid, messages } of this.contacts.values()) {
      for (const message of messages) {
        if (!message.waiting) continue;
        message.waiting = false;
        waiting.push({ peer: jid, ...message });
      }
    }
    if (waiting.length) this.#changed();
    return waiting.sort((a, b) => a.at - b.at);
  }

  openConversation(jid) {
    this.open = jid;
    if (jid) this.contact(jid);
    this.#changed();
  }

  markRead() {
    const contact = this.contacts.get(this.open);
    if (!contact?.unread) return;
    contact.unread = 0;
    this.#changed();
  }

  removeRequest(jid) {
    this.requests.delete(jid);
    this.#changed();
  }

  get unread() {
    let sum = 0;
    for (const contact of this.contacts.values()) sum += contact.unread;
    return sum;
  }

  // Contacts that match the filter: latest message first, then online ones, then by name.
  sortedContacts(filter = "") {
    const needle = filter.trim().toLowerCase();
    const title = (contact) => (contact.name || contact.jid).toLowerCase();
    return [...this.contacts.values()]
      .filter((one) => !needle || one.jid.includes(needle) || title(one).includes(needle))
      .sort(
        (a, b) =>
          b.last - a.last || (b.resources.size > 0) - (a.resources.size > 0) || title(a).localeCompare(title(b)),
      );
  }

  save() {
    if (!this.own) return;
    for (const messages of [MAX_MESSAGES, MAX_MESSAGES / 4]) {
      try {
        sessionStorage.setItem(STORAGE_KEY, JSON.stringify(this.#snapshot(messages)));
        return;
      } catch {
        // Storage is full: retry with fewer messages.
      }
    }
    sessionStorage.removeItem(STORAGE_KEY);
  }

  #snapshot(messages) {
    const latest = [...this.contacts.values()].sort((a, b) => b.last - a.last).slice(0, MAX_CONVERSATIONS);
    const withMessages = new Set(latest.map((contact) => contact.jid));
    const truncate = (one) => (one.body.length > MAX_BODY_CHARS ? { ...one, body: `${one.body.slice(0, MAX_BODY_CHARS)} …` } : one);
    return {
      own: this.own,
      show: this.show,
      requests: [...this.requests],
      contacts: [...this.contacts.values()].map((contact) => ({
        ...contact,
        resources: [...contact.resources],
        messages: withMessages.has(contact.jid) ? contact.messages.slice(-messages).map(truncate) : [],
      })),
    };
  }

  // Switches to an account and restores its saved state.
  load(own) {
    if (this.own === own) return;
    let saved;
    try {
      saved = JSON.parse(sessionStorage.getItem(STORAGE_KEY));
    } catch {
      // Ignore damaged state.
    }
    this.clear();
    this.own = own;
    if (saved?.own !== own) return;
    this.show = saved.show;
    this.requests = new Set(saved.requests);
    for (const contact of saved.contacts) {
      this.contacts.set(contact.jid, { ...contact, resources: new Map(contact.resources) });
    }
    this.#changed();
  }
}
