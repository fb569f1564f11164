// One person's connection to the server, kept up: WebSocket first, BOSH if that does not come about, again after a loss, and
// across a reload of the page. Uses strophe.js 5; RFC 7395, XEP-0124, XEP-0206, XEP-0198.
//
// Events: "state" (see STATES), "online" with detail { resumed }, "stanza" with detail element.
//
// What survives a reload is in sessionStorage, which belongs to this tab and ends with it:
//   throng-chat          the address, the transport, whether pre-approval is offered, and the keys that SCRAM made of the
//                        password (never the password)
//   strophe-sm:…         over WebSocket what XEP-0198 needs to resume, kept by strophe.js
//   strophe-bosh-session over BOSH the session's id and next request, kept by strophe.js
// So a reload resumes the stream, and where the server no longer has it, logs in anew without asking.
//
// The traps: strophe.js calls back for connections that are long given up, so each attempt has a connection of its own and
// others are not listened to. A tab that the browser duplicates has a copy of sessionStorage; two that resume one stream
// would push each other out for ever, so a lock says who is the first. And a WebSocket over a dead network stays open for
// minutes: a ping finds out.

import { asks, bare, ping, reason, resource, result } from "./stanzas.js";

const { Strophe } = globalThis;

// out: nobody signed in · connecting: `unreached` if the last attempt did not reach the server · online · waiting: `at` says when
// the next attempt is due, `unreached` whether the server was not reached or the connection to it was lost · ended: the server
// does not want us, with a reason.
export const STATES = ["out", "connecting", "online", "waiting", "ended"];

const KEPT = "throng-chat";
const BOSH_SESSION = "strophe-bosh-session";
// Milliseconds. A WebSocket that says nothing for so long is given up; so is a ping.
const FIRST_WORD = 6_000;
const PATIENCE = 10_000;
const BETWEEN_PINGS = 45_000;
// Seconds for which the server shall wait for a lost tab.
const RESUMABLE = 180;
// A WebSocket that has worked in this tab has so many attempts before BOSH is tried.
const LOYALTY = 3;
// The longest pause between two attempts.
const LONGEST = 30_000;

export class Session extends EventTarget {
  #services;
  #kept = null;
  #secret = null;
  #connection = null;
  #failures = 0;
  #spoken = false;
  #timers = new Set();
  #alone = null;
  #left = null;
  state = { name: "out" };

  // `services`: { websocket, bosh }, the two addresses.
  constructor(services) {
    super();
    this.#services = services;
    addEventListener("online", () => this.#soon());
    addEventListener("offline", () => this.#probe(2_000));
    document.addEventListener("visibilitychange", () => document.hidden || this.#soon());
    // A page that comes back from the browser's memory has lost its sockets without being told.
    addEventListener("pageshow", (event) => event.persisted && this.#soon());
  }

  get jid() {
    return this.#kept?.jid ?? "";
  }

  get own() {
    return bare(this.jid);
  }

  get transport() {
    return this.#kept?.transport ?? "websocket";
  }

  // Whether the server offers to approve subscriptions in advance (RFC 6121 section 3.4).
  get preApproval() {
    return this.#kept?.preApproval ?? false;
  }

  // Takes up what a reload left; false if there is nothing.
  async restore() {
    const kept = read();
    if (!kept) return false;
    this.#kept = kept;
    this.#secret = kept.keys;
    if (!(await this.#first())) {
      // A copy of a tab that lives: the account is the same, the session must be another.
      sessionStorage.removeItem(BOSH_SESSION);
      sessionStorage.removeItem(`strophe-sm:${this.own}`);
      this.#kept = { ...kept, jid: `${this.own}/${name()}`, tab: crypto.randomUUID() };
      await this.#first();
    }
    if (kept.transport === "bosh" && sessionStorage.getItem(BOSH_SESSION)) this.#attempt(true);
    else if (this.#secret) this.#attempt();
    else return this.#leave(), false;
    return true;
  }

  signIn(own, password) {
    this.#kept = { jid: `${own}/${name()}`, transport: "websocket", worked: false, keys: null, tab: crypto.randomUUID() };
    this.#secret = password;
    this.#failures = 0;
    // What an earlier session of this tab left must not be resumed.
    sessionStorage.removeItem(BOSH_SESSION);
    sessionStorage.removeItem(`strophe-sm:${own}`);
    this.#first();
    this.#attempt();
  }

  signOut() {
    const connection = this.#connection;
    this.#leave();
    // By now nobody listens to it; it says goodbye on its own.
    connection?.disconnect("signed out");
  }

  // Tries at once instead of at the end of the pause.
  retry() {
    if (this.state.name === "waiting") this.#attempt();
  }

  // False if there is no connection; then nothing is kept for later.
  send(stanza) {
    if (this.state.name !== "online" && !this.state.stuttering) return false;
    this.#connection.send(stanza);
    return true;
  }

  // The answer to a request; rejects with an Error whose message is for people.
  request(iq) {
    const connection = this.#connection;
    return new Promise((resolve, reject) => {
      const failed = (stanza) => reject(new Error(stanza ? reason(stanza) : "the server does not answer"));
      if (!connection?.authenticated) failed(null);
      else connection.sendIQ(iq, resolve, failed, PATIENCE);
    });
  }

  #enter(state) {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  #later(milliseconds, then) {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      then();
    }, milliseconds);
    this.#timers.add(timer);
    return timer;
  }

  #calm() {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }

  #save() {
    sessionStorage.setItem(KEPT, JSON.stringify(this.#kept));
  }

  // Holds a lock with the tab's name as long as the page lives; false if another page holds it. The page before a reload
  // may still be leaving, so there is a moment's patience.
  #first() {
    const locks = navigator.locks;
    if (!locks) return Promise.resolve(true);
    this.#alone?.();
    return new Promise((resolve) => {
      const held = () => {
        resolve(true);
        return new Promise((release) => (this.#alone = release));
      };
      locks
        .request(`throng-chat-${this.#kept.tab}`, { signal: AbortSignal.timeout(1_000) }, held)
        .catch(() => resolve(false));
    });
  }

  #attempt(attach = false) {
    this.#calm();
    this.#drop();
    const { jid, transport } = this.#kept;
    this.#spoken = false;
    this.#enter({ name: "connecting", again: this.#failures > 0 || attach, unreached: Boolean(this.state.unreached) });
    const connection = new Strophe.Connection(this.#services[transport], {
      keepalive: true,
      enableStreamManagement: true,
      streamManagement: { maxUnacked: 1, max: RESUMABLE },
      // PLAIN would tell the password to whoever listens; the others are for no one who types one.
      mechanisms: [
        Strophe.SASLSHA512,
        Strophe.SASLSHA256,
        Strophe.SASLSHA1,
        ...(location.protocol === "https:" ? [Strophe.SASLPlain] : []),
      ],
    });
    this.#connection = connection;
    connection.xmlInput = () => this.#heard(connection);
    connection.addProtocolErrorHandler("HTTP", 0, () => this.#stuttering(connection));
    for (const status of [502, 503, 504]) {
      connection.addProtocolErrorHandler("HTTP", status, () => this.#stuttering(connection));
    }
    let condition = null;
    const told = (status, why, element) => {
      if (connection !== this.#connection) return;
      condition = why || condition;
      this.#told(connection, status, condition, element);
    };
    if (attach) {
      try {
        this.#left = JSON.parse(sessionStorage.getItem(BOSH_SESSION));
        connection.restore(jid, told, 60, 1);
        return;
      } catch {
        // What was kept is damaged; the keys may still be good.
        sessionStorage.removeItem(BOSH_SESSION);
        if (!this.#secret) return this.#end("Please sign in again.");
      }
    }
    if (transport === "websocket") {
      this.#later(FIRST_WORD, () => this.#spoken || this.#lost(connection));
    }
    connection.connect(jid, this.#secret, told, 60, 1);
  }

  #heard(connection) {
    if (connection !== this.#connection) return;
    this.#spoken = true;
    if (this.state.name === "connecting" && this.state.stuttering) this.#enter({ name: "online" });
  }

  // A request of BOSH went wrong. Within a session strophe.js sends it again and again for about two minutes, and people
  // are told; where there is none yet, the other transport is more likely to help.
  #stuttering(connection) {
    if (connection !== this.#connection) return;
    if (this.state.name === "online") {
      this.#enter({ name: "connecting", again: true, stuttering: true });
      this.#knock(connection);
    } else if (!this.#spoken && !this.state.stuttering) this.#lost(connection);
  }

  // The request that went wrong is sent again some time, and then held: nobody would hear that all is well. So as soon as
  // the server can be reached something is asked that it answers at once. Not before: after five errors strophe.js gives up.
  async #knock(connection) {
    const waiting = () => connection === this.#connection && this.state.stuttering;
    const reached = await fetch(this.#services.bosh, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) }).then(
      (answer) => answer.status < 500,
      () => false,
    );
    if (!waiting()) return;
    if (reached) return connection.sendIQ(ping());
    if (!this.state.unreached) this.#enter({ ...this.state, unreached: true });
    this.#later(2_000, () => waiting() && this.#knock(connection));
  }

  #told(connection, status, condition, element) {
    const S = Strophe.Status;
    switch (status) {
      case S.CONNECTED:
        return this.#ready(connection, connection.hasResumed());
      case S.ATTACHED:
        return this.#attached(connection);
      case S.AUTHFAIL:
        return this.#refused(element);
      case S.ERROR:
      case S.CONNFAIL:
        if (["conflict", "not-authorized", "policy-violation", "host-gone"].includes(condition)) this.#expelled(condition);
        return;
      case S.DISCONNECTED:
        return this.#lost(connection);
    }
  }

  #listen(connection) {
    const hand = (stanza) => {
      if (connection === this.#connection) this.#take(connection, stanza);
      return true;
    };
    for (const kind of ["message", "presence"]) connection.addHandler(hand, null, kind);
    connection.addHandler(hand, null, "iq", "set");
    connection.addHandler(hand, null, "iq", "get");
  }

  #ready(connection, resumed, attached = false) {
    this.#calm();
    this.#failures = 0;
    this.#secret = connection.scram_keys ?? this.#secret;
    this.#kept = { ...this.#kept, jid: connection.jid, keys: typeof this.#secret === "string" ? null : this.#secret };
    // A session of BOSH that a reload took up is not told the features again.
    const offers = connection.features?.getElementsByTagNameNS("urn:xmpp:features:pre-approval", "sub");
    if (offers) this.#kept.preApproval = offers.length > 0;
    this.#kept.worked ||= this.#kept.transport === "websocket";
    this.#save();
    if (!attached) this.#listen(connection);
    this.#enter({ name: "online" });
    this.dispatchEvent(new CustomEvent("online", { detail: { resumed } }));
    this.#watch(connection);
  }

  // strophe.js says this before it has asked the server anything. The server may have forgotten the session; then the first
  // request says so, and there are still the keys.
  #attached(connection) {
    this.#listen(connection);
    this.#catchUp(connection);
    const told = (answer) => {
      if (connection !== this.#connection) return;
      if (answer) this.#ready(connection, true, true);
      else this.#lost(connection);
    };
    connection.sendIQ(ping(), told, told, PATIENCE);
  }

  // Until the server has a request of this page, it may put what comes into the answer of the last one of the page before, and
  // nobody reads that. Whoever sends a request again gets its answer again (XEP-0124 section 14.3).
  async #catchUp(connection) {
    const { sid, rid } = this.#left;
    const body = document.implementation.createDocument("http://jabber.org/protocol/httpbind", "body");
    body.documentElement.setAttribute("sid", sid);
    body.documentElement.setAttribute("rid", rid - 1);
    const answer = await fetch(this.#services.bosh, {
      method: "POST",
      headers: { "Content-Type": "text/xml; charset=utf-8" },
      body: new XMLSerializer().serializeToString(body),
      signal: AbortSignal.timeout(PATIENCE),
    }).then(
      (response) => response.text(),
      () => "",
    );
    if (connection !== this.#connection) return;
    const read = new DOMParser().parseFromString(answer, "text/xml").documentElement;
    // Of an end the next request hears as well. There is no public way in for what strophe.js did not ask for itself.
    if (read.localName === "body" && !read.hasAttribute("type")) connection._dataRecv({ getResponse: () => read });
  }

  #take(connection, stanza) {
    try {
      if (stanza.nodeName === "iq") {
        const from = stanza.getAttribute("from");
        const what = asks(stanza);
        const mine = !from || bare(from) === this.own;
        if (what === "ping" || (what === "roster" && mine)) connection.send(result(stanza));
        if (what !== "roster" || !mine) return;
      }
      this.dispatchEvent(new CustomEvent("stanza", { detail: stanza }));
    } catch (error) {
      // strophe.js would silently take away a handler that throws.
      console.error(error);
    }
  }

  // BOSH has a request under way at any time and needs no further sign of life.
  #watch(connection) {
    if (this.transport !== "websocket") return;
    const ask = () => this.#probe(PATIENCE, () => this.#later(BETWEEN_PINGS, ask));
    if (connection === this.#connection) this.#later(BETWEEN_PINGS, ask);
  }

  // Gives the connection up if a ping has no answer in time.
  #probe(patience, then) {
    const connection = this.#connection;
    if (this.state.name !== "online" || this.transport !== "websocket") return;
    const late = this.#later(patience, () => this.#lost(connection));
    const answered = () => {
      clearTimeout(late);
      this.#timers.delete(late);
      if (connection === this.#connection) then?.();
    };
    connection.sendIQ(ping(), answered, answered);
  }

  // Something says that the network may be back, or that somebody looks.
  #soon() {
    if (this.state.name === "waiting") this.#attempt();
    else this.#probe(5_000);
  }

  // Takes the connection away without a goodbye, so that the server keeps the session for a resumption.
  #drop() {
    const connection = this.#connection;
    this.#connection = null;
    if (!connection) return;
    // There is no public way to give up at once: disconnect() waits and throws away what is needed to resume.
    connection._proto._abortAllRequests();
    connection._doDisconnect();
  }

  #lost(connection) {
    if (connection !== this.#connection) return;
    this.#calm();
    this.#drop();
    sessionStorage.removeItem(BOSH_SESSION);
    if (!this.#secret) return this.#end("The session has ended. Please sign in again.");
    const silent = !this.#spoken;
    this.#failures += 1;
    const { transport, worked } = this.#kept;
    let at = 0;
    if (silent && (transport === "bosh" || !worked || this.#failures >= LOYALTY)) {
      this.#kept.transport = transport === "bosh" ? "websocket" : "bosh";
      // The other way is tried at once, and only when both are closed there is a pause.
      at = transport === "bosh" ? this.#pause() : 0;
    } else {
      at = this.#failures === 1 ? 0 : this.#pause();
    }
    this.#enter({ name: "waiting", at: Date.now() + at, unreached: silent });
    this.#later(at, () => this.#attempt());
  }

  // 1, 2, 4 … 30 seconds, and less by chance, so that all tabs do not come back in the same moment.
  #pause() {
    const longest = Math.min(LONGEST, 1_000 * 2 ** Math.max(0, this.#failures - 2));
    return longest * (0.6 + 0.4 * Math.random());
  }

  #refused(element) {
    if (element?.localName === "iq") return this.#end(`The server refuses the session: ${reason(element)}.`);
    const condition = element?.firstElementChild?.localName ?? "";
    const words = {
      "account-disabled": "This account is disabled.",
      "credentials-expired": "The password has expired.",
      "temporary-auth-failure": "The server takes no logins here for a while, perhaps after too many wrong passwords. Try again later.",
    };
    const typed = typeof this.#secret === "string";
    const wrong = typed ? "The address or the password is wrong." : "The password has changed. Please sign in again.";
    this.#end(words[condition] ?? wrong);
  }

  #expelled(condition) {
    const words = {
      "conflict": "This session was taken over by another one.",
      "not-authorized": "The server has ended this session. Please sign in again.",
      "policy-violation": "The server has ended this session because its rules were broken, perhaps by too many wrong passwords.",
      "host-gone": "The server no longer serves this address.",
    };
    this.#end(words[condition]);
  }

  // Ends for good: what is kept would only fail again.
  #end(why) {
    this.#leave({ name: "ended", why });
  }

  #leave(state = { name: "out" }) {
    this.#calm();
    if (state.name === "ended") this.#drop();
    this.#connection = null;
    this.#kept = null;
    this.#secret = null;
    this.#failures = 0;
    this.#alone?.();
    this.#alone = null;
    for (const key of Object.keys(sessionStorage)) {
      if (key === KEPT || key === BOSH_SESSION || key.startsWith("strophe-sm:")) sessionStorage.removeItem(key);
    }
    this.#enter(state);
  }
}

// A new resource; what others see of it is only that it is this page.
const name = () => `chat-${Array.from(crypto.getRandomValues(new Uint8Array(4)), (n) => n.toString(16).padStart(2, "0")).join("")}`;

function read() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT));
    return kept?.jid && resource(kept.jid) ? kept : null;
  } catch {
    return null;
  }
}
