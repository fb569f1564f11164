// What the page knows: contacts with their presence, messages, what is unread, who asks. Without page and connection.
//
// It survives a reload in sessionStorage, since a resumed stream brings neither presence nor messages again. It is bounded:
// so many messages in a conversation, so many conversations with messages; the oldest go first.
//
// The trap: sessionStorage is full at about five megabytes and then throws; saving then forgets the older half and tries
// once more.

const KEPT = "throng-chat-page";
const MESSAGES = 200;
const CONVERSATIONS = 50;
// Characters of a message that survive a reload.
const LONGEST = 20_000;

// Best first. RFC 6121 section 4.7.2.1; without a word it is "available".
const SHOWS = ["chat", "", "away", "xa", "dnd"];

export class Model extends EventTarget {
  own = "";
  // By bare address: { jid, name, subscription, asked, listed, resources, messages, unread, last }.
  contacts = new Map();
  // Bare addresses that want to see us.
  requests = new Set();
  // The conversation that is open, a bare address or "".
  open = "";
  show = "";

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  forget() {
    this.own = this.open = this.show = "";
    this.contacts.clear();
    this.requests.clear();
    sessionStorage.removeItem(KEPT);
    this.#changed();
  }

  contact(jid) {
    let contact = this.contacts.get(jid);
    if (!contact) {
      contact = {
        jid,
        name: "",
        subscription: "none",
        asked: false,
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

  // The whole roster; who is not in it and has no messages is forgotten.
  roster(items) {
    const listed = new Set(items.map((item) => item.jid));
    for (const contact of [...this.contacts.values()]) {
      if (!listed.has(contact.jid)) this.#unlist(contact);
    }
    for (const item of items) this.#list(item);
    this.#changed();
  }

  // A change of the roster (RFC 6121 section 2.1.6).
  change(item) {
    if (item.subscription === "remove") this.#unlist(this.contact(item.jid));
    else this.#list(item);
    this.#changed();
  }

  #list(item) {
    Object.assign(this.contact(item.jid), item, { listed: true });
    if (["from", "both"].includes(item.subscription)) this.requests.delete(item.jid);
    if (!["to", "both"].includes(item.subscription)) this.contact(item.jid).resources.clear();
  }

  #unlist(contact) {
    Object.assign(contact, { name: "", subscription: "none", asked: false, listed: false });
    contact.resources.clear();
    if (!contact.messages.length && contact.jid !== this.open) this.contacts.delete(contact.jid);
  }

  // A new session brings the presence of all again.
  absent() {
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
      // Presence of strangers is not kept: they would fill the list.
      this.contacts.get(from)?.resources.set(resource, { show, status, priority });
    } else return;
    this.#changed();
  }

  // { show, status, online } of the resource that would be asked first.
  seen(contact) {
    const all = [...contact.resources.values()];
    if (!all.length) return { online: false, show: "", status: "" };
    const rank = (one) => SHOWS.indexOf(one.show) + 1 || SHOWS.length;
    all.sort((a, b) => b.priority - a.priority || rank(a) - rank(b));
    return { online: true, show: all[0].show, status: all[0].status };
  }

  // A message from or to somebody. `read`: it is before somebody's eyes. False if it was known already.
  message({ peer, mine, body, at, id, sid, waiting = false }, read) {
    const contact = this.contact(peer);
    const known = (one) => (sid && one.sid === sid) || (mine && id && one.mine && one.id === id);
    if (contact.messages.some(known)) return false;
    contact.messages.push({ mine, body, at, id, sid, waiting, failed: "" });
    if (contact.messages.length > MESSAGES) contact.messages.splice(0, contact.messages.length - MESSAGES);
    contact.last = Math.max(contact.last, at);
    // Who has answered, on whichever device, has read.
    contact.unread = mine || read ? 0 : contact.unread + 1;
    this.#changed();
    return true;
  }

  // A message of ours that came back.
  failed({ peer, id, failed }) {
    const message = this.contacts.get(peer)?.messages.findLast((one) => one.mine && one.id === id);
    if (!message) return;
    message.failed = failed;
    this.#changed();
  }

  // Messages of ours that have not been sent, oldest first; from now on they are.
  take() {
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

  look(jid) {
    this.open = jid;
    if (jid) this.contact(jid);
    this.#changed();
  }

  read() {
    const contact = this.contacts.get(this.open);
    if (!contact?.unread) return;
    contact.unread = 0;
    this.#changed();
  }

  decide(jid) {
    this.requests.delete(jid);
    this.#changed();
  }

  get unread() {
    let sum = 0;
    for (const contact of this.contacts.values()) sum += contact.unread;
    return sum;
  }

  // Who is shown: with the latest messages first, then who is here, then by name.
  list(filter = "") {
    const wanted = filter.trim().toLowerCase();
    const title = (contact) => (contact.name || contact.jid).toLowerCase();
    return [...this.contacts.values()]
      .filter((one) => !wanted || one.jid.includes(wanted) || title(one).includes(wanted))
      .sort(
        (a, b) =>
          b.last - a.last || (b.resources.size > 0) - (a.resources.size > 0) || title(a).localeCompare(title(b)),
      );
  }

  save() {
    if (!this.own) return;
    for (const messages of [MESSAGES, MESSAGES / 4]) {
      try {
        sessionStorage.setItem(KEPT, JSON.stringify(this.#image(messages)));
        return;
      } catch {
        // Full: once more with less.
      }
    }
    sessionStorage.removeItem(KEPT);
  }

  #image(messages) {
    const latest = [...this.contacts.values()].sort((a, b) => b.last - a.last).slice(0, CONVERSATIONS);
    const talked = new Set(latest.map((contact) => contact.jid));
    const short = (one) => (one.body.length > LONGEST ? { ...one, body: `${one.body.slice(0, LONGEST)} …` } : one);
    return {
      own: this.own,
      show: this.show,
      requests: [...this.requests],
      contacts: [...this.contacts.values()].map((contact) => ({
        ...contact,
        resources: [...contact.resources],
        messages: talked.has(contact.jid) ? contact.messages.slice(-messages).map(short) : [],
      })),
    };
  }

  // Begins for an account, with what a reload left of it.
  load(own) {
    if (this.own === own) return;
    let kept;
    try {
      kept = JSON.parse(sessionStorage.getItem(KEPT));
    } catch {
      // Damaged is as good as nothing.
    }
    this.forget();
    this.own = own;
    if (kept?.own !== own) return;
    this.show = kept.show;
    this.requests = new Set(kept.requests);
    for (const contact of kept.contacts) {
      this.contacts.set(contact.jid, { ...contact, resources: new Map(contact.resources) });
    }
    this.#changed();
  }
}
