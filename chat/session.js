// The user's XMPP session: connects over WebSocket, falls back to BOSH, reconnects after a loss and resumes after a reload of
// the page. Uses strophe.js 5; RFC 7395, XEP-0124, XEP-0206, XEP-0198.
//
// Events: "state" (see STATES), "online" with detail { resumed }, "stanza" with detail element.
//
// State that survives a reload is in sessionStorage, which belongs to this tab:
//   throng-chat          address, transport, whether the server offers pre-approval, and the SCRAM keys derived from the
//                        password (never the password)
//   strophe-sm:…         WebSocket: XEP-0198 state for resumption, written by strophe.js
//   strophe-bosh-session BOSH: session id and next request id, written by strophe.js
// A reload resumes the stream, or logs in again without a prompt if the server no longer has the session.
//
// # Pitfalls
//
// strophe.js invokes callbacks of abandoned connections, so each attempt has its own connection and callbacks of others are
// ignored. A duplicated tab has a copy of sessionStorage; two tabs that resume one stream would disconnect each other endlessly,
// so a lock gives the session to one of them. A WebSocket on a dead network stays open for minutes, so pings detect the loss.

import { requestKind, bare, ping, errorText, resource, emptyResult } from "./stanzas.js";

const { Strophe } = globalThis;

// out: not signed in · connecting: `unreached` if the last attempt did not reach the server · online · waiting: `at` is the time
// of the next attempt, `unreached` if the server could not be reached, else the connection was lost · ended: the server ended
// the session, `why` is the reason.
export const STATES = ["out", "connecting", "online", "waiting", "ended"];

const STORAGE_KEY = "throng-chat";
const BOSH_SESSION = "strophe-bosh-session";
// Milliseconds.
const FIRST_RESPONSE_TIMEOUT = 6_000;
const REQUEST_TIMEOUT = 10_000;
const PING_INTERVAL = 45_000;
// Resumption time that is requested from the server, in seconds.
const RESUMPTION_SECONDS = 180;
// Attempts before BOSH is tried if a WebSocket has worked in this tab.
const WEBSOCKET_ATTEMPTS = 3;
// Longest pause between two attempts, in milliseconds.
const MAX_BACKOFF = 30_000;

export class Session extends EventTarget {
  #services;
  #saved = null;
  #credentials = null;
  #connection = null;
  #failures = 0;
  #responded = false;
  #timers = new Set();
  #releaseLock = null;
  #previousBosh = null;
  state = { name: "out" };

  // `services`: { websocket, bosh }, the URLs.
  constructor(services) {
    super();
    this.#services = services;
    addEventListener("online", () => this.#reconnect());
    addEventListener("offline", () => this.#ping(2_000));
    document.addEventListener("visibilitychange", () => document.hidden || this.#reconnect());
    // A page restored from the back-forward cache has lost its sockets without an event.
    addEventListener("pageshow", (event) => event.persisted && this.#reconnect());
  }

  get jid() {
    return this.#saved?.jid ?? "";
  }

  get own() {
    return bare(this.jid);
  }

  get transport() {
    return this.#saved?.transport ?? "websocket";
  }

  // Whether the server offers pre-approval of subscriptions (RFC 6121, section 3.4).
  get preApproval() {
    return this.#saved?.preApproval ?? false;
  }

  // Restores the session that was saved before a reload; false if there is none.
  async restore() {
    const saved = loadSaved();
    if (!saved) return false;
    this.#saved = saved;
    this.#credentials = saved.keys;
    if (!(await this.#acquireTabLock())) {
      // A duplicate of an open tab: same account, but it needs its own session.
      sessionStorage.removeItem(BOSH_SESSION);
      sessionStorage.removeItem(`strophe-sm:${this.own}`);
      this.#saved = { ...saved, jid: `${this.own}/${randomResource()}`, tab: crypto.randomUUID() };
      await this.#acquireTabLock();
    }
    if (saved.transport === "bosh" && sessionStorage.getItem(BOSH_SESSION)) this.#connect(true);
    else if (this.#credentials) this.#connect();
    else return this.#reset(), false;
    return true;
  }

  signIn(account, password) {
    this.#saved = { jid: `${account}/${randomResource()}`, transport: "websocket", worked: false, keys: null, tab: crypto.randomUUID() };
    this.#credentials = password;
    this.#failures = 0;
    // An earlier session of this tab must not be resumed.
    sessionStorage.removeItem(BOSH_SESSION);
    sessionStorage.removeItem(`strophe-sm:${account}`);
    this.#acquireTabLock();
    this.#connect();
  }

  signOut() {
    const connection = this.#connection;
    this.#reset();
    // Its callbacks are ignored already; strophe.js closes the stream.
    connection?.disconnect("signed out");
  }

  // Ends the pause and connects immediately.
  retry() {
    if (this.state.name === "waiting") this.#connect();
  }

  // False if there is no connection; the stanza is not queued.
  send(stanza) {
    if (this.state.name !== "online" && !this.state.retrying) return false;
    this.#connection.send(stanza);
    return true;
  }

  // Sends an IQ and returns the result; rejects with an Error whose message can be shown.
  request(iq) {
    const connection = this.#connection;
    return new Promise((resolve, reject) => {
      const failed = (stanza) => reject(new Error(stanza ? errorText(stanza) : "the server does not answer"));
      if (!connection?.authenticated) failed(null);
      else connection.sendIQ(iq, resolve, failed, REQUEST_TIMEOUT);
    });
  }

  #setState(state) {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  #setTimer(milliseconds, then) {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      then();
    }, milliseconds);
    this.#timers.add(timer);
    return timer;
  }

  #clearTimers() {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }

  #save() {
    sessionStorage.setItem(STORAGE_KEY, JSON.stringify(this.#saved));
  }

  // Acquires the tab's lock for the lifetime of the page; false if another page holds it. The previous page may still be
  // unloading, so it waits for a second.
  #acquireTabLock() {
    const locks = navigator.locks;
    if (!locks) return Promise.resolve(true);
    this.#releaseLock?.();
    return new Promise((resolve) => {
      const onGranted = () => {
        resolve(true);
        return new Promise((release) => (this.#releaseLock = release));
      };
      locks
        .request(`throng-chat-${this.#saved.tab}`, { signal: AbortSignal.timeout(1_000) }, onGranted)
        .catch(() => resolve(false));
    });
  }

  #connect(attach = false) {
    this.#clearTimers();
    this.#abort();
    const { jid, transport } = this.#saved;
    this.#responded = false;
    this.#setState({ name: "connecting", again: this.#failures > 0 || attach, unreached: Boolean(this.state.unreached) });
    const connection = new Strophe.Connection(this.#services[transport], {
      keepalive: true,
      enableStreamManagement: true,
      streamManagement: { maxUnacked: 1, max: RESUMPTION_SECONDS },
      // Without TLS, PLAIN would expose the password. Other mechanisms take no password.
      mechanisms: [
        Strophe.SASLSHA512,
        Strophe.SASLSHA256,
        Strophe.SASLSHA1,
        ...(location.protocol === "https:" ? [Strophe.SASLPlain] : []),
      ],
    });
    this.#connection = connection;
    connection.xmlInput = () => this.#onInput(connection);
    connection.addProtocolErrorHandler("HTTP", 0, () => this.#onBoshError(connection));
    for (const status of [502, 503, 504]) {
      connection.addProtocolErrorHandler("HTTP", status, () => this.#onBoshError(connection));
    }
    let condition = null;
    const onStatus = (status, why, element) => {
      if (connection !== this.#connection) return;
      condition = why || condition;
      this.#onStatus(connection, status, condition, element);
    };
    if (attach) {
      try {
        this.#previousBosh = JSON.parse(sessionStorage.getItem(BOSH_SESSION));
        connection.restore(jid, onStatus, 60, 1);
        return;
      } catch {
        // The saved BOSH session is damaged; the keys may still be valid.
        sessionStorage.removeItem(BOSH_SESSION);
        if (!this.#credentials) return this.#endSession("Please sign in again.");
      }
    }
    if (transport === "websocket") {
      this.#setTimer(FIRST_RESPONSE_TIMEOUT, () => this.#responded || this.#onDisconnected(connection));
    }
    connection.connect(jid, this.#credentials, onStatus, 60, 1);
  }

  #onInput(connection) {
    if (connection !== this.#connection) return;
    this.#responded = true;
    if (this.state.name === "connecting" && this.state.retrying) this.#setState({ name: "online" });
  }

  // A BOSH request failed. Within a session, strophe.js repeats it for about two minutes and the page shows the state; without
  // a session, the other transport is tried.
  #onBoshError(connection) {
    if (connection !== this.#connection) return;
    if (this.state.name === "online") {
      this.#setState({ name: "connecting", again: true, retrying: true });
      this.#probeBosh(connection);
    } else if (!this.#responded && !this.state.retrying) this.#onDisconnected(connection);
  }

  // strophe.js repeats the failed request, and the server then holds it, so a recovery would go unnoticed. Once the server can be
  // reached, a ping gets an immediate answer. Not earlier: strophe.js gives up after five errors.
  async #probeBosh(connection) {
    const waiting = () => connection === this.#connection && this.state.retrying;
    const reached = await fetch(this.#services.bosh, { cache: "no-store", signal: AbortSignal.timeout(REQUEST_TIMEOUT) }).then(
      (answer) => answer.status < 500,
      () => false,
    );
    if (!waiting()) return;
    if (reached) return connection.sendIQ(ping());
    if (!this.state.unreached) this.#setState({ ...this.state, unreached: true });
    this.#setTimer(2_000, () => waiting() && this.#probeBosh(connection));
  }

  #onStatus(connection, status, condition, element) {
    const S = Strophe.Status;
    switch (status) {
      case S.CONNECTED:
        return this.#onOnline(connection, connection.hasResumed());
      case S.ATTACHED:
        return this.#attached(connection);
      case S.AUTHFAIL:
        return this.#onAuthFailure(element);
      case S.ERROR:
      case S.CONNFAIL:
        if (["conflict", "not-authorized", "policy-violation", "host-gone"].includes(condition)) this.#onStreamError(condition);
        return;
      case S.DISCONNECTED:
        return this.#onDisconnected(connection);
    }
  }

  #addHandlers(connection) {
    const deliver = (stanza) => {
      if (connection === this.#connection) this.#dispatchStanza(connection, stanza);
      return true;
    };
    for (const kind of ["message", "presence"]) connection.addHandler(deliver, null, kind);
    connection.addHandler(deliver, null, "iq", "set");
    connection.addHandler(deliver, null, "iq", "get");
  }

  #onOnline(connection, resumed, attached = false) {
    this.#clearTimers();
    this.#failures = 0;
    this.#credentials = connection.scram_keys ?? this.#credentials;
    this.#saved = { ...this.#saved, jid: connection.jid, keys: typeof this.#credentials === "string" ? null : this.#credentials };
    // A restored BOSH session does not receive the stream features again.
    const offers = connection.features?.getElementsByTagNameNS("urn:xmpp:features:pre-approval", "sub");
    if (offers) this.#saved.preApproval = offers.length > 0;
    this.#saved.worked ||= this.#saved.transport === "websocket";
    this.#save();
    if (!attached) this.#addHandlers(connection);
    this.#setState({ name: "online" });
    this.dispatchEvent(new CustomEvent("online", { detail: { resumed } }));
    this.#startPings(connection);
  }

  // strophe.js reports ATTACHED before it contacts the server. If the session has expired, the first request fails and the keys
  // are used to log in again.
  #attached(connection) {
    this.#addHandlers(connection);
    this.#fetchLostResponse(connection);
    const onReply = (answer) => {
      if (connection !== this.#connection) return;
      if (answer) this.#onOnline(connection, true, true);
      else this.#onDisconnected(connection);
    };
    connection.sendIQ(ping(), onReply, onReply, REQUEST_TIMEOUT);
  }

  // Until the server has a request from this page, it may deliver stanzas in the response to the last request of the previous
  // page, which nobody reads. Repeating that request returns the same response (XEP-0124, section 14.3).
  async #fetchLostResponse(connection) {
    const { sid, rid } = this.#previousBosh;
    const body = document.implementation.createDocument("http://jabber.org/protocol/httpbind", "body");
    body.documentElement.setAttribute("sid", sid);
    body.documentElement.setAttribute("rid", rid - 1);
    const answer = await fetch(this.#services.bosh, {
      method: "POST",
      headers: { "Content-Type": "text/xml; charset=utf-8" },
      body: new XMLSerializer().serializeToString(body),
      signal: AbortSignal.timeout(REQUEST_TIMEOUT),
    }).then(
      (response) => response.text(),
      () => "",
    );
    if (connection !== this.#connection) return;
    const parsed = new DOMParser().parseFromString(answer, "text/xml").documentElement;
    // The next request reports a terminated session as well. strophe.js has no public method for a response it did not request.
    if (parsed.localName === "body" && !parsed.hasAttribute("type")) connection._dataRecv({ getResponse: () => parsed });
  }

  #dispatchStanza(connection, stanza) {
    try {
      if (stanza.nodeName === "iq") {
        const from = stanza.getAttribute("from");
        const what = requestKind(stanza);
        const mine = !from || bare(from) === this.own;
        if (what === "ping" || (what === "roster" && mine)) connection.send(emptyResult(stanza));
        if (what !== "roster" || !mine) return;
      }
      this.dispatchEvent(new CustomEvent("stanza", { detail: stanza }));
    } catch (error) {
      // strophe.js silently removes a handler that throws.
      console.error(error);
    }
  }

  // BOSH always has a request in flight and needs no pings.
  #startPings(connection) {
    if (this.transport !== "websocket") return;
    const schedulePing = () => this.#ping(REQUEST_TIMEOUT, () => this.#setTimer(PING_INTERVAL, schedulePing));
    if (connection === this.#connection) this.#setTimer(PING_INTERVAL, schedulePing);
  }

  // Pings the server; without a response in time the connection counts as lost.
  #ping(milliseconds, then) {
    const connection = this.#connection;
    if (this.state.name !== "online" || this.transport !== "websocket") return;
    const timeout = this.#setTimer(milliseconds, () => this.#onDisconnected(connection));
    const answered = () => {
      clearTimeout(timeout);
      this.#timers.delete(timeout);
      if (connection === this.#connection) then?.();
    };
    connection.sendIQ(ping(), answered, answered);
  }

  // The network may be back, or the page became visible.
  #reconnect() {
    if (this.state.name === "waiting") this.#connect();
    else this.#ping(5_000);
  }

  // Drops the connection without closing the stream, so that the server keeps the session for resumption.
  #abort() {
    const connection = this.#connection;
    this.#connection = null;
    if (!connection) return;
    // There is no public method for this: disconnect() waits and discards the resumption state.
    connection._proto._abortAllRequests();
    connection._doDisconnect();
  }

  #onDisconnected(connection) {
    if (connection !== this.#connection) return;
    this.#clearTimers();
    this.#abort();
    sessionStorage.removeItem(BOSH_SESSION);
    if (!this.#credentials) return this.#endSession("The session has ended. Please sign in again.");
    const unresponsive = !this.#responded;
    this.#failures += 1;
    const { transport, worked } = this.#saved;
    let at = 0;
    if (unresponsive && (transport === "bosh" || !worked || this.#failures >= WEBSOCKET_ATTEMPTS)) {
      this.#saved.transport = transport === "bosh" ? "websocket" : "bosh";
      // The other transport is tried immediately; only after both failed there is a pause.
      at = transport === "bosh" ? this.#backoff() : 0;
    } else {
      at = this.#failures === 1 ? 0 : this.#backoff();
    }
    this.#setState({ name: "waiting", at: Date.now() + at, unreached: unresponsive });
    this.#setTimer(at, () => this.#connect());
  }

  // 1, 2, 4 … 30 seconds with jitter, so that tabs do not reconnect at the same moment.
  #backoff() {
    const longest = Math.min(MAX_BACKOFF, 1_000 * 2 ** Math.max(0, this.#failures - 2));
    return longest * (0.6 + 0.4 * Math.random());
  }

  #onAuthFailure(element) {
    if (element?.localName === "iq") return this.#endSession(`The server refuses the session: ${errorText(element)}.`);
    const condition = element?.firstElementChild?.localName ?? "";
    const words = {
      "account-disabled": "This account is disabled.",
      "credentials-expired": "The password has expired.",
      "temporary-auth-failure": "The server refuses logins for a while, probably after too many wrong passwords. Try again later.",
    };
    const typed = typeof this.#credentials === "string";
    const wrong = typed ? "The address or the password is wrong." : "The password has changed. Please sign in again.";
    this.#endSession(words[condition] ?? wrong);
  }

  #onStreamError(condition) {
    const words = {
      "conflict": "This session was replaced by another one.",
      "not-authorized": "The server has ended this session. Please sign in again.",
      "policy-violation": "The server has ended this session because of a policy violation, for example too many wrong passwords.",
      "host-gone": "The server no longer serves this address.",
    };
    this.#endSession(words[condition]);
  }

  // Ends permanently and deletes the saved state, which would only fail again.
  #endSession(why) {
    this.#reset({ name: "ended", why });
  }

  #reset(state = { name: "out" }) {
    this.#clearTimers();
    if (state.name === "ended") this.#abort();
    this.#connection = null;
    this.#saved = null;
    this.#credentials = null;
    this.#failures = 0;
    this.#releaseLock?.();
    this.#releaseLock = null;
    for (const key of Object.keys(sessionStorage)) {
      if (key === STORAGE_KEY || key === BOSH_SESSION || key.startsWith("strophe-sm:")) sessionStorage.removeItem(key);
    }
    this.#setState(state);
  }
}

// A random resource; it reveals only that the client is this page.
const randomResource = () => `chat-${Array.from(crypto.getRandomValues(new Uint8Array(4)), (n) => n.toString(16).padStart(2, "0")).join("")}`;

function loadSaved() {
  try {
    const saved = JSON.parse(sessionStorage.getItem(STORAGE_KEY));
    return saved?.jid && resource(saved.jid) ? saved : null;
  } catch {
    return null;
  }
}
