// Scenes of strophe.js with a server, one function each; they run in Node and in a browser.
//
// RFC 7395 and XEP-0124 with XEP-0206 (`world.transport` says which), RFC 6121 (roster, presence, chat), XEP-0198 over
// WebSocket (a lost network, a reload), XEP-0280 (two tabs).
//
// A world: { library, service, transport, domain, password, users: { a, b }, cut, silence, restore }; the last three are those
// of relay.js and may be asynchronous. `library` is the exports of strophe.js.
//
// Pitfalls: handlers are lost with each connection, so they are set at each CONNECTED. strophe.js delays output over BOSH by up to
// a tenth of a second. A closed page cannot end its stream; `leave` imitates that with non-public functions.

// Milliseconds for one awaited thing, and for a scene. Far above what a loaded machine needs.
const TIMEOUT = 60_000;
const SCENE = 300_000;

const ROSTER = "jabber:iq:roster";
const CARBONS = "urn:xmpp:carbons:2";

export class Failure extends Error {}

function check(condition, reason) {
  if (!condition) throw new Failure(reason);
}

const children = (element) => Array.from(element.childNodes).filter((node) => node.nodeType === 1);
const child = (element, name) => element && children(element).find((one) => one.localName === name);
const text = (element, name) => child(element, name)?.textContent;
const bareOf = (jid) => jid?.split("/")[0];

// One tab of one person.
class Tab {
  inbox = [];
  #waiting = new Set();
  #storage;

  constructor(world, who, { resource = "tab", password, user } = {}) {
    this.world = world;
    this.bare = `${user ?? world.users[who]}@${world.domain}`;
    this.jid = `${this.bare}/${resource}`;
    this.password = password ?? world.password;
    this.#storage = new world.library.MemoryStorageBackend();
  }

  #make() {
    const { library, service } = this.world;
    this.connection = new library.Strophe.Connection(service, {
      enableStreamManagement: true,
      streamManagement: { maxUnacked: 1, max: 60, storage: this.#storage },
      // SCRAM or nothing: PLAIN would hide that SCRAM does not work.
      mechanisms: [library.Strophe.SASLSHA512, library.Strophe.SASLSHA256, library.Strophe.SASLSHA1],
    });
    return this.connection;
  }

  // Resolves with true when a stream was resumed or a session taken up, rejects with the condition that the server reported.
  #settled(begin) {
    const { Status } = this.world.library.Strophe;
    const connection = this.#make();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Failure(`${this.jid}: no session in time`)), TIMEOUT);
      const done = (settle, value) => {
        clearTimeout(timer);
        settle(value);
      };
      begin(connection, (status, condition, element) => {
        if (connection !== this.connection) return;
        const reported = (element && children(element)[0]?.localName) ?? condition;
        if (status === Status.CONNECTED || status === Status.ATTACHED) {
          this.jid = connection.jid;
          this.#listen(connection);
          done(resolve, status === Status.ATTACHED || connection.hasResumed());
        } else if (status === Status.AUTHFAIL) {
          done(reject, new Failure(`AUTHFAIL ${reported}`));
          connection.disconnect();
        } else if (status === Status.CONNFAIL || status === Status.ERROR) {
          done(reject, new Failure(`CONNFAIL ${reported}`));
          this.failed = reported;
          this.#look();
        } else if (status === Status.DISCONNECTED) {
          done(reject, new Failure(`DISCONNECTED ${condition}`));
          this.gone = true;
          this.#look();
        }
      });
    });
  }

  login() {
    this.gone = false;
    return this.#settled((connection, onStatus) => connection.connect(this.jid, this.password, onStatus, 20, 1));
  }

  // Takes up a session of BOSH, as a page does after a reload.
  attach({ sid, rid }) {
    return this.#settled((connection, onStatus) => connection.attach(this.jid, sid, rid, onStatus, 20, 1));
  }

  // As a page that is left: no goodbye. Returns what a reload would need.
  leave() {
    const { connection } = this;
    const { sid, rid } = connection._proto;
    this.connection = null;
    connection._proto._abortAllRequests();
    connection._doDisconnect();
    return { sid, rid };
  }

  // With a goodbye.
  end() {
    this.connection?.disconnect("done");
  }

  #listen(connection) {
    const take = (stanza) => {
      this.inbox.push(stanza);
      this.#look();
      if (stanza.localName === "iq") connection.send(this.world.library.$iq({ type: "result", id: stanza.getAttribute("id") }));
      return true;
    };
    for (const kind of ["message", "presence"]) connection.addHandler(take, null, kind);
    connection.addHandler(take, ROSTER, "iq", "set");
  }

  #look() {
    for (const look of this.#waiting) look();
  }

  // Waits until `fits` returns something of the inbox, which is taken out.
  expect(what, fits) {
    return this.until(what, () => {
      const index = this.inbox.findIndex(fits);
      return index < 0 ? null : this.inbox.splice(index, 1)[0];
    });
  }

  until(what, look) {
    return new Promise((resolve, reject) => {
      const again = () => {
        const found = look();
        if (!found) return;
        clearTimeout(timer);
        this.#waiting.delete(again);
        resolve(found);
      };
      const { Strophe } = this.world.library;
      const got = () => this.inbox.map((stanza) => Strophe.serialize(stanza)).join("; ").slice(0, 2_000);
      const timer = setTimeout(() => {
        this.#waiting.delete(again);
        reject(new Failure(`${this.jid}: no ${what}; got ${got() || "nothing else"}`));
      }, TIMEOUT);
      this.#waiting.add(again);
      again();
    });
  }

  ask(iq) {
    return new Promise((resolve, reject) => {
      const failed = (stanza) => {
        const response = stanza ? this.world.library.Strophe.serialize(stanza) : "no response";
        reject(new Failure(`${this.jid}: a request got ${response}`));
      };
      this.connection.sendIQ(iq, resolve, failed, TIMEOUT);
    });
  }

  async roster() {
    const answer = await this.ask(this.world.library.$iq({ type: "get" }).c("query", { xmlns: ROSTER }));
    const items = children(child(answer, "query"));
    return new Map(items.map((item) => [item.getAttribute("jid"), item.getAttribute("subscription")]));
  }

  rosterSet(attributes) {
    const iq = this.world.library.$iq({ type: "set" });
    return this.ask(iq.c("query", { xmlns: ROSTER }).c("item", attributes));
  }

  push(jid, subscription) {
    return this.expect(`roster push of ${jid} with ${subscription}`, (stanza) => {
      const item = stanza.localName === "iq" && child(child(stanza, "query"), "item");
      return item && item.getAttribute("jid") === jid && item.getAttribute("subscription") === subscription;
    });
  }

  say(attributes = {}) {
    this.connection.send(this.world.library.$pres(attributes));
  }

  presence(type, from) {
    return this.expect(`presence ${type || "available"} from ${from}`, (stanza) => {
      const sender = stanza.getAttribute("from");
      const fits = sender === from || bareOf(sender) === from;
      return stanza.localName === "presence" && (stanza.getAttribute("type") ?? "") === type && fits;
    });
  }

  chat(to, body) {
    this.connection.send(this.world.library.$msg({ to, type: "chat" }).c("body").t(body));
  }

  message(body, from) {
    return this.expect(`message '${body.slice(0, 60)}' from ${from}`, (stanza) => {
      if (stanza.localName !== "message" || text(stanza, "body") !== body) return false;
      return bareOf(stanza.getAttribute("from")) === bareOf(from);
    });
  }

  // Logged in, with an empty roster, available, and nothing in the inbox.
  async fresh() {
    await this.login();
    for (const jid of (await this.roster()).keys()) await this.rosterSet({ jid, subscription: "remove" });
    await this.here();
    this.inbox = [];
    return this;
  }

  async here() {
    this.say();
    await this.presence("", this.jid);
    return this;
  }
}

async function friends(a, b) {
  a.say({ type: "subscribe", to: b.bare });
  await b.presence("subscribe", a.bare);
  b.say({ type: "subscribed", to: a.bare });
  await a.push(b.bare, "to");
  await a.presence("", b.jid);
  b.say({ type: "subscribe", to: a.bare });
  await a.presence("subscribe", b.bare);
  a.say({ type: "subscribed", to: b.bare });
  await b.push(a.bare, "both");
  await b.presence("", a.jid);
}

async function refused(tab, wanted) {
  try {
    await tab.login();
  } catch (error) {
    check(error.message === wanted, `expected ${wanted}, got ${error.message}`);
    return;
  }
  throw new Failure("somebody else logged in");
}

const scenes = [
  async function login(stage) {
    const tab = stage.tab("a", { resource: "laptop" });
    await tab.login();
    check(tab.jid === `${tab.bare}/laptop`, `bound as ${tab.jid}`);
    check(tab.connection.scram_keys, "logged in without SCRAM");
  },

  async function wrong_password(stage) {
    await refused(stage.tab("a", { password: "not the password" }), "AUTHFAIL not-authorized");
    await stage.tab("a").login();
  },

  async function unknown_user(stage) {
    await refused(stage.tab("a", { user: "no-such-account" }), "AUTHFAIL not-authorized");
  },

  async function roster_of_two_tabs(stage) {
    const one = await stage.tab("a", { resource: "one" }).fresh();
    const two = stage.tab("a", { resource: "two" });
    await two.login();
    check((await two.roster()).size === 0, "the roster is not empty");
    await two.here();
    await one.rosterSet({ jid: "friend@elsewhere.test", name: "Ünïcödé & <friend>" });
    for (const tab of [one, two]) {
      const push = await tab.push("friend@elsewhere.test", "none");
      const name = child(child(push, "query"), "item").getAttribute("name");
      check(name === "Ünïcödé & <friend>", `the name came as ${name}`);
    }
    await two.rosterSet({ jid: "friend@elsewhere.test", subscription: "remove" });
    for (const tab of [one, two]) await tab.push("friend@elsewhere.test", "remove");
  },

  async function presence_of_friends(stage) {
    const [a, b] = await stage.pair();
    await friends(a, b);
    const { $pres } = stage.world.library;
    a.connection.send($pres().c("show").t("away").up().c("status").t("Zu Tisch – gleich zurück"));
    const away = await b.presence("", a.jid);
    check(text(away, "show") === "away" && text(away, "status") === "Zu Tisch – gleich zurück", "the status is another");
    a.end();
    await b.presence("unavailable", a.jid);
  },

  async function chat_both_ways(stage) {
    const [a, b] = await stage.pair();
    const words = ["Grüße, 你好, 🎉 & <&> \"'", "two\nlines", " spaces around ", "x".repeat(60_000)];
    for (const body of words) {
      a.chat(b.bare, body);
      await b.message(body, a.jid);
      b.chat(a.jid, body);
      await a.message(body, b.jid);
    }
  },

  async function many_messages_come_once_and_in_order(stage) {
    const [a, b] = await stage.pair();
    const count = 300;
    for (let n = 0; n < count; n += 1) {
      a.chat(b.bare, `a ${n}`);
      b.chat(a.bare, `b ${n}`);
    }
    for (const [tab, other] of [[b, "a"], [a, "b"]]) {
      const bodies = () => tab.inbox.map((stanza) => text(stanza, "body")).filter(Boolean);
      await tab.until(`${count} messages`, () => bodies().length >= count);
      const wanted = Array.from({ length: count }, (_, n) => `${other} ${n}`);
      const got = bodies();
      // COMPAT(strophe.js, 5.0.0): of two answers that are under way it takes the one that is there first, and not that of
      // the earlier request (XEP-0124 section 14.2). So over BOSH only their number tells about the server.
      if (stage.world.transport === "bosh") got.sort((one, two) => wanted.indexOf(one) - wanted.indexOf(two));
      check(got.join() === wanted.join(), `expected ${wanted[0]} to ${wanted.at(-1)}, got ${got.join()}`);
    }
  },

  async function two_tabs_see_the_same(stage) {
    const [a, b] = await stage.pair();
    const other = stage.tab("a", { resource: "other" });
    await other.login();
    await other.here();
    const { $iq } = stage.world.library;
    for (const tab of [a, other]) await tab.ask($iq({ type: "set" }).c("enable", { xmlns: CARBONS }));
    a.chat(b.bare, "from the first tab");
    await b.message("from the first tab", a.jid);
    await copy(other, "sent", "from the first tab");
    b.chat(a.jid, "to the first tab");
    await a.message("to the first tab", b.jid);
    await copy(other, "received", "to the first tab");
  },

  async function nobody_is_lost_with_the_network(stage) {
    const [a, b] = await stage.pair();
    a.chat(b.bare, "before");
    await b.message("before", a.jid);
    await stage.world.cut();
    if (stage.world.transport === "websocket") {
      // Both learn of it; a's message is written for a socket that is no more.
      for (const tab of [a, b]) await tab.until("the loss", () => tab.gone);
      await stage.world.restore();
      check(await a.login(), "a was not resumed");
      a.chat(b.bare, "meanwhile");
      check(await b.login(), "b was not resumed");
    } else {
      a.chat(b.bare, "meanwhile");
      // strophe.js tries the second time at once and the third after eight seconds.
      await new Promise((done) => setTimeout(done, 500));
      await stage.world.restore();
    }
    await b.message("meanwhile", a.jid);
    b.chat(a.bare, "after");
    await a.message("after", b.jid);
    const again = [...a.inbox, ...b.inbox].filter((stanza) => text(stanza, "body"));
    check(again.length === 0, `something came twice: ${again.map((stanza) => text(stanza, "body"))}`);
  },

  async function a_reload_takes_the_session_up(stage) {
    const [a, b] = await stage.pair();
    await friends(a, b);
    const { jid } = a;
    b.inbox = [];
    const session = a.leave();
    b.chat(a.bare, "while the page loads");
    if (stage.world.transport === "websocket") check(await a.login(), "the stream was not resumed");
    else await a.attach(session);
    check(a.jid === jid, `became ${a.jid}`);
    await a.message("while the page loads", b.jid);
    check((await a.roster()).get(b.bare) === "both", "the roster is another");
    a.chat(b.bare, "here I am");
    await b.message("here I am", a.jid);
    const left = b.inbox.filter((stanza) => stanza.getAttribute("type") === "unavailable");
    check(left.length === 0, "the friend saw the reload");
  },

  async function an_unknown_session_is_not_taken_up(stage) {
    const tab = stage.tab("a");
    if (stage.world.transport === "websocket") return;
    await tab.attach({ sid: "no-such-session", rid: 1_000_000 });
    await tab.until("item-not-found", () => tab.failed === "item-not-found" || (tab.gone && !tab.failed));
    check(tab.gone || tab.failed, "the session was taken up");
  },
];

function copy(tab, way, body) {
  return tab.expect(`copy of what was ${way}`, (stanza) => {
    const forwarded = child(child(stanza, way), "forwarded");
    return stanza.getAttribute("from") === tab.bare && text(child(forwarded, "message"), "body") === body;
  });
}

// Makes tabs for one scene and ends them after it, come what may.
class Stage {
  #tabs = [];

  constructor(world) {
    this.world = world;
  }

  tab(who, more) {
    const tab = new Tab(this.world, who, more);
    this.#tabs.push(tab);
    return tab;
  }

  async pair() {
    const a = await this.tab("a").fresh();
    const b = await this.tab("b").fresh();
    // Emptying the second roster may have sent the first one something.
    await a.roster();
    a.inbox = [];
    return [a, b];
  }

  close() {
    for (const tab of this.#tabs) tab.end();
  }
}

// Plays all scenes, or those that are named; returns a line for each: `ok NAME` or `FAIL NAME reason`.
export async function play(world, names = [], tell = () => {}) {
  const lines = [];
  for (const scene of scenes.filter(({ name }) => !names.length || names.includes(name))) {
    const stage = new Stage(world);
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Failure(`not done within ${SCENE} ms`)), SCENE);
    });
    let line = `ok ${scene.name}`;
    try {
      await Promise.race([scene(stage), late]);
    } catch (error) {
      line = `FAIL ${scene.name} ${error instanceof Failure ? error.message : error.stack}`;
    }
    clearTimeout(timer);
    await world.restore();
    stage.close();
    lines.push(line);
    await tell(line);
  }
  return lines;
}
