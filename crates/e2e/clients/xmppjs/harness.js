// Shared parts of the xmpp.js scenarios: settings, a client with an inbox, a runner.
//
// Settings are the environment variables of slixmpp/harness.py and:
//   XMPP_MODULES         folder with the node_modules of setup.sh; default: e2e/xmppjs in the target directory
//   XMPP_PEER            address of a running slixmpp/peer.py; without it, scenarios that need it are skipped
//   XMPP_URL             for the transport `websocket`: the service, ws:// or wss://
//   NODE_EXTRA_CA_CERTS  Node's own variable: the same file as XMPP_CA, set before Node starts
//
// Nothing here sleeps: a client stores received stanzas, and `expect` waits for the first one that matches.
// Pitfalls: xmpp.js checks a direct TLS certificate against the host it connects to and sends neither SNI
// (for an address) nor ALPN; over STARTTLS it checks against the domain. It reconnects automatically unless disabled.
// It enables stream management wherever it is offered, and does not count responses to its own requests (`counting`).

import { createRequire } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";
import path from "node:path";

// Milliseconds that one awaited thing may take, and a whole scenario. Far above what a loaded machine needs.
export const TIMEOUT = 60_000;
const SCENARIO = 300_000;

const here = path.dirname(fileURLToPath(import.meta.url));
const target = process.env.CARGO_TARGET_DIR ?? path.join(here, "../../../../target");
const modules = process.env.XMPP_MODULES ?? path.join(target, "e2e/xmppjs");
const entry = createRequire(path.join(path.resolve(modules), "package.json")).resolve("@xmpp/client");
export const { client: connect, xml, jid } = await import(pathToFileURL(entry));
// One that can be broken off without a word, which node's own cannot.
const ws = createRequire(path.join(path.resolve(modules), "package.json")).resolve("ws");
globalThis.WebSocket = (await import(pathToFileURL(ws))).default;

// A scenario's expectation was not met; the message is the reason that is printed.
export class Failure extends Error {}

export function check(condition, reason) {
  if (!condition) throw new Failure(reason);
}

// The request is answered with this condition.
export async function fails(condition, promise) {
  let answer;
  try {
    answer = await promise;
  } catch (error) {
    check(error.message.includes(condition), `expected ${condition}, got ${error.message}`);
    return;
  }
  throw new Failure(`expected ${condition}, got ${answer}`);
}

// xmpp.js looks at an answer only after its own write is done; an error that is quicker counts as unhandled until
// then, and node would end the process. The caller gets it all the same.
process.on("unhandledRejection", (error) => {
  if (error?.name !== "StanzaError") throw error;
});

function setting(name) {
  const value = process.env[name];
  if (!value) {
    console.error(`harness: ${name} is not set; see the top of slixmpp/harness.py`);
    process.exit(2);
  }
  return value;
}

export const settings = {
  host: setting("XMPP_HOST"),
  port: Number(setting("XMPP_PORT")),
  transport: setting("XMPP_TRANSPORT"),
  url: process.env.XMPP_URL,
  domain: setting("XMPP_DOMAIN"),
  password: setting("XMPP_PASSWORD"),
  users: { a: setting("XMPP_USER_A"), b: setting("XMPP_USER_B") },
  peer: process.env.XMPP_PEER,
};
const scheme = { starttls: "xmpp", tls: "xmpps" }[settings.transport];
// What xmpp.js connects to.
export const service = scheme ? `${scheme}://${settings.host}:${settings.port}` : settings.url;
if (process.env.XMPP_CA && process.env.NODE_EXTRA_CA_CERTS !== process.env.XMPP_CA) {
  console.error("harness: NODE_EXTRA_CA_CERTS must name the same file as XMPP_CA");
  process.exit(2);
}
if (!process.env.XMPP_CA) process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";

export const bare = (who) => `${settings.users[who]}@${settings.domain}`;

const ROSTER = "jabber:iq:roster";

// xmpp.js 0.14.0 takes the answers to its requests away before its stream management counts them, acknowledges too little
// and so gets the last stanzas once more after a resumption, from any server. Here they count.
// It also notes a sent stanza only when its write is done, and fails at an acknowledgement that is quicker. Here it notes it
// when the write begins.
export function counting(xmpp) {
  xmpp.send = async (element) => {
    if (!scheme) element.attrs.xmlns ??= xmpp.NS;
    element.parent = xmpp.root;
    const written = xmpp.write(element.toString());
    xmpp.emit("send", element);
    await written;
  };
  xmpp.prependListener("element", (stanza) => {
    const answer = stanza.is("iq") && ["result", "error"].includes(stanza.attrs.type);
    if (answer && xmpp.iqCaller.handlers.has(stanza.attrs.id)) xmpp.streamManagement.inbound += 1;
  });
  return xmpp;
}

// One session. xmpp.js answers pings by itself, and roster pushes are answered here.
export class Client {
  // `max`: seconds that the server shall wait for it after a lost connection.
  constructor(who, resource, { password, user, max } = {}) {
    this.inbox = [];
    this.waiting = new Set();
    this.mechanism = null;
    this.xmpp = counting(connect({
      service,
      domain: settings.domain,
      resource,
      timeout: TIMEOUT,
      // SCRAM or nothing: PLAIN would hide that SCRAM does not work.
      credentials: async (authenticate, mechanisms) => {
        this.mechanism = mechanisms.find((name) => name.startsWith("SCRAM-"));
        check(this.mechanism, `the server offers no SCRAM: ${mechanisms}`);
        const username = user ?? settings.users[who];
        await authenticate({ username, password: password ?? settings.password }, this.mechanism);
      },
    }));
    this.xmpp.reconnect.stop();
    this.xmpp.streamManagement.preferredMaximum = max ?? null;
    this.xmpp.iqCallee.set(ROSTER, "query", () => true);
    this.xmpp.on("error", (error) => this.receive(new Failure(`stream: ${error.message}`)));
    this.xmpp.on("stanza", (stanza) => this.receive(stanza));
  }

  receive(stanza) {
    this.inbox.push(stanza);
    for (const look of this.waiting) look();
  }

  // Connects, authenticates and binds; throws what xmpp.js throws.
  async login() {
    const address = await this.xmpp.start();
    this.jid = address.toString();
    this.bare = address.bare().toString();
    check(this.xmpp.isSecure(), "the stream is not under TLS");
    return this;
  }

  // The connection breaks, without a goodbye.
  destroy() {
    const { socket } = this.xmpp;
    if (scheme) (socket.socket ?? socket).destroy();
    else socket.socket.terminate();
  }

  async stop() {
    if (this.xmpp.status === "offline" || this.xmpp.status === "disconnect") return;
    await this.xmpp.stop();
  }

  send(element) {
    return this.xmpp.send(element);
  }

  // Sends presence of a type; null is available.
  say(type, to, ...children) {
    return this.send(xml("presence", { ...(type && { type }), ...(to && { to }) }, ...children));
  }

  chat(to, body) {
    return this.send(xml("message", { to, type: "chat" }, xml("body", {}, body)));
  }

  // Sends an IQ and returns the result; an error or silence is a Failure.
  async ask(iq) {
    try {
      return await this.xmpp.iqCaller.request(iq, TIMEOUT);
    } catch (error) {
      throw new Failure(`${this.jid}: ${error.message} to ${iq}`);
    }
  }

  // A round trip to the server. Order is kept, so all that was due before has been received.
  // Any answer will do, an error too: whether the server answers pings is a scenario of its own.
  async settle() {
    const iq = xml("iq", { type: "get", to: settings.domain }, xml("ping", "urn:xmpp:ping"));
    try {
      await this.xmpp.iqCaller.request(iq, TIMEOUT);
    } catch (error) {
      if (!error.condition) throw new Failure(`${this.jid}: no answer to ${iq}`);
    }
  }

  ping(to) {
    return this.ask(xml("iq", { type: "get", to }, xml("ping", "urn:xmpp:ping")));
  }

  // Forgets all that the server had to say so far.
  async wipe() {
    await this.settle();
    this.inbox.length = 0;
  }

  // The roster as the server tells it now: a map from address to attributes.
  async roster() {
    const result = await this.ask(xml("iq", { type: "get" }, xml("query", ROSTER)));
    const items = result.getChild("query", ROSTER)?.getChildren("item") ?? [];
    return new Map(items.map((item) => [item.attrs.jid, item.attrs]));
  }

  rosterSet(attrs, groups = []) {
    const item = xml("item", attrs, ...groups.map((group) => xml("group", {}, group)));
    return this.ask(xml("iq", { type: "set" }, xml("query", ROSTER, item)));
  }

  // Takes the first stanza for which `fits` is true out of the inbox; waits for it if need be.
  expect(what, fits) {
    return new Promise((resolve, reject) => {
      const done = (settle, value) => {
        clearTimeout(timer);
        this.waiting.delete(look);
        settle(value);
      };
      const look = () => {
        const index = this.inbox.findIndex((stanza) => stanza instanceof Failure || fits(stanza));
        if (index < 0) return;
        const [stanza] = this.inbox.splice(index, 1);
        if (stanza instanceof Failure) done(reject, new Failure(`${stanza.message} while waiting for ${what}`));
        else done(resolve, stanza);
      };
      const late = () =>
        done(reject, new Failure(`${this.jid}: no ${what}; got ${this.inbox.join("; ") || "nothing else"}`));
      const timer = setTimeout(late, TIMEOUT);
      this.waiting.add(look);
      look();
    });
  }

  // Awaits a roster push for an address, with the wanted attributes; undefined wants the attribute's absence.
  push(what, address, wanted = {}) {
    return this.expect(`roster push ${address} ${JSON.stringify(wanted)} (${what})`, (stanza) => {
      if (!stanza.is("iq") || stanza.attrs.type !== "set") return false;
      const items = stanza.getChild("query", ROSTER)?.getChildren("item") ?? [];
      if (items.length !== 1 || items[0].attrs.jid !== address) return false;
      return Object.entries(wanted).every(([key, value]) => items[0].attrs[key] === value);
    });
  }

  // Awaits presence: type null is available; from is bare or full; children are texts that it must hold.
  presence(type, from, children = {}) {
    return this.expect(`presence ${type ?? "available"} ${JSON.stringify(children)} from ${from}`, (stanza) => {
      if (!stanza.is("presence") || stanza.attrs.type !== (type ?? undefined)) return false;
      if (!sender(stanza, from)) return false;
      return Object.entries(children).every(([name, text]) => stanza.getChildText(name) === text);
    });
  }

  message(body, from) {
    return this.expect(
      `message '${body}' from ${from}`,
      (stanza) => stanza.is("message") && stanza.getChildText("body") === body && sender(stanza, from),
    );
  }
}

function sender(stanza, from) {
  const address = stanza.attrs.from;
  return address === from || address?.split("/")[0] === from;
}

// Sessions between two scenarios, by account.
const kept = new Map();

// Makes clients for one scenario and closes them after it, come what may.
export class Stage {
  clients = [];

  client(who, resource, more) {
    const client = new Client(who, resource, more);
    this.clients.push(client);
    return client;
  }

  // A client that has fetched its roster and is available.
  async online(who, resource, more) {
    const client = await this.client(who, resource, more).login();
    await client.roster();
    await client.say(null);
    await client.presence(null, client.jid);
    return client;
  }

  // A client as by `online` whose roster is emptied first, with nothing left in the inbox.
  // Scenarios begin with it, so that none leans on the one before; offline messages are thrown away too.
  // The session of a scenario that went well is taken over, for SCRAM costs xmpp.js most of a second.
  async blank(who) {
    let client = kept.get(who);
    kept.delete(who);
    if (client) this.clients.push(client);
    else client = await this.client(who, "one").login();
    client.blank = who;
    for (const address of (await client.roster()).keys()) {
      await client.rosterSet({ jid: address, subscription: "remove" });
    }
    await client.say(null);
    await client.presence(null, client.jid);
    await client.wipe();
    return client;
  }

  // a and b, blank and online.
  async pair() {
    const pair = [await this.blank("a"), await this.blank("b")];
    await pair[0].wipe(); // b's emptying may have sent a something.
    return pair;
  }

  leave(client) {
    this.clients.splice(this.clients.indexOf(client), 1);
    return client.stop();
  }

  async close(well) {
    const keep = (client) => well && client.blank && client.xmpp.status === "online" && !kept.has(client.blank);
    const leaving = [];
    for (const client of this.clients) {
      if (keep(client)) kept.set(client.blank, client);
      else leaving.push(client.stop());
    }
    await Promise.allSettled(leaving);
  }
}

// Mutual subscription between two available clients; all pushes and presence of it are taken in.
export async function befriend(a, b) {
  await a.say("subscribe", b.bare);
  await b.presence("subscribe", a.bare);
  await b.say("subscribed", a.bare);
  await a.presence("subscribed", b.bare);
  await a.push("approved", b.bare, { subscription: "to" });
  await a.presence(null, b.jid);
  await b.say("subscribe", a.bare);
  await a.presence("subscribe", b.bare);
  await a.say("subscribed", b.bare);
  await b.presence("subscribed", a.bare);
  await b.push("approved", a.bare, { subscription: "both" });
  await a.push("mutual", b.bare, { subscription: "both" });
  await b.presence(null, a.jid);
}

// Runs each scenario; prints `ok NAME` or `FAIL NAME reason`; returns the exit status.
export async function run(scenarios) {
  let failed = 0;
  for (const scenario of scenarios) {
    const stage = new Stage();
    let timer;
    let well = false;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Failure(`not done within ${SCENARIO} ms`)), SCENARIO);
    });
    try {
      await Promise.race([scenario(stage), late]);
      well = true;
      console.log(`ok ${scenario.name}`);
    } catch (error) {
      failed += 1;
      if (!(error instanceof Failure)) console.error(error.stack);
      console.log(`FAIL ${scenario.name} ${error.message}`);
    } finally {
      clearTimeout(timer);
      await stage.close(well);
    }
  }
  await Promise.allSettled([...kept.values()].map((client) => client.stop()));
  return failed ? 1 : 0;
}
