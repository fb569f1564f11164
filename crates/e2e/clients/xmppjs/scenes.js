// Scenes of xmpp.js with a server over WebSocket in a browser; scenarios.js and extensions.js cover more, in Node.
//
// RFC 7395, RFC 6121 (roster, chat), XEP-0198. In a browser xmpp.js 0.14 has no SCRAM and uses PLAIN, which servers offer
// under TLS only.
//
// A world: { library, service, domain, password, users: { a, b }, cut, restore }; `library` is the object XMPP of xmpp.min.js.
//
// COMPAT(xmpp.js, 0.14.0): it removes responses to its requests before its stream management counts them, and would receive the
// last stanzas again after a resumption (`counting`).

const TIMEOUT = 60_000;
const ROSTER = "jabber:iq:roster";

function counting(xmpp) {
  xmpp.prependListener("element", (stanza) => {
    const answer = stanza.is("iq") && ["result", "error"].includes(stanza.attrs.type);
    if (answer && xmpp.iqCaller.handlers.has(stanza.attrs.id)) xmpp.streamManagement.inbound += 1;
  });
  return xmpp;
}

class Tab {
  inbox = [];
  #waiting = new Set();

  constructor(world, who, password = world.password) {
    const { client } = world.library;
    this.xml = world.library.xml;
    const { service, domain } = world;
    const username = world.users[who];
    this.bare = `${username}@${domain}`;
    this.xmpp = counting(client({ service, domain, username, password, resource: "tab", timeout: TIMEOUT }));
    this.xmpp.on("error", () => {});
    this.xmpp.on("stanza", (stanza) => {
      this.inbox.push(stanza);
      for (const look of this.#waiting) look();
    });
  }

  async login() {
    this.jid = (await this.xmpp.start()).toString();
    await this.xmpp.send(this.xml("presence"));
    await this.expect("own presence", (stanza) => stanza.is("presence") && stanza.attrs.from === this.jid);
    return this;
  }

  expect(what, fits) {
    return new Promise((resolve, reject) => {
      const look = () => {
        const index = this.inbox.findIndex(fits);
        if (index < 0) return;
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve(this.inbox.splice(index, 1)[0]);
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(look);
        reject(new Error(`${this.bare}: no ${what}; got ${this.inbox.join("; ") || "nothing"}`));
      }, TIMEOUT);
      this.#waiting.add(look);
      look();
    });
  }

  once(event) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${this.bare}: no ${event}`)), TIMEOUT);
      const source = event === "resumed" ? this.xmpp.streamManagement : this.xmpp;
      source.once(event, () => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  chat(to, body) {
    return this.xmpp.send(this.xml("message", { to, type: "chat" }, this.xml("body", {}, body)));
  }

  message(body) {
    return this.expect(`message '${body}'`, (stanza) => stanza.is("message") && stanza.getChildText("body") === body);
  }

  async ask(type, ...children) {
    const iq = this.xml("iq", { type }, this.xml("query", ROSTER, ...children));
    return (await this.xmpp.iqCaller.request(iq, TIMEOUT)).getChild("query", ROSTER);
  }
}

const scenes = [
  async function login_and_roster({ tab, world }) {
    const a = await tab("a").login();
    await a.ask("set", a.xml("item", { jid: "friend@elsewhere.test", name: "Ünïcödé & <friend>" }));
    const items = (await a.ask("get")).getChildren("item").map((item) => item.attrs.name);
    if (!items.includes("Ünïcödé & <friend>")) throw new Error(`the roster holds ${items} at ${world.domain}`);
    await a.ask("set", a.xml("item", { jid: "friend@elsewhere.test", subscription: "remove" }));
  },

  async function wrong_password({ tab }) {
    const attacker = tab("a", "not the password");
    const error = await attacker.login().then(() => null, (error) => error);
    if (error?.condition !== "not-authorized") throw new Error(`expected not-authorized, got ${error}`);
  },

  async function chat_both_ways({ tab }) {
    const [a, b] = [await tab("a").login(), await tab("b").login()];
    for (const body of ["Grüße, 你好, 🎉 & <&>", "x".repeat(60_000)]) {
      await a.chat(b.bare, body);
      await b.message(body);
      await b.chat(a.jid, body);
      await a.message(body);
    }
  },

  async function a_lost_network_is_resumed({ tab, world }) {
    const [a, b] = [await tab("a").login(), await tab("b").login()];
    const back = [a.once("resumed"), b.once("resumed")];
    const gone = [a.once("disconnect"), b.once("disconnect")];
    await world.cut();
    await Promise.all(gone);
    await world.restore();
    await Promise.all(back);
    await a.chat(b.bare, "after the loss");
    await b.message("after the loss");
  },
];

// Plays all scenes; returns a line for each: `ok NAME` or `FAIL NAME reason`.
export async function play(world) {
  const lines = [];
  for (const scene of scenes) {
    const tabs = [];
    const tab = (who, password) => {
      tabs.push(new Tab(world, who, password));
      return tabs.at(-1);
    };
    let line = `ok ${scene.name}`;
    try {
      await scene({ tab, world });
    } catch (error) {
      line = `FAIL ${scene.name} ${error.stack ?? error}`;
    }
    await world.restore();
    await Promise.allSettled(tabs.map(({ xmpp }) => (xmpp.reconnect.stop(), xmpp.stop())));
    lines.push(line);
  }
  return lines;
}
