// Two users of Converse.js in rooms, each in a Chromium of its own profile, over WebSocket.
//
// usage: rooms.js      prints one line for each scene: `ok NAME` or `FAIL NAME reason`
//
//   CHAT_URL          the node's HTTP listener
//   XMPP_DOMAIN, XMPP_USER_A, XMPP_USER_B, XMPP_PASSWORD
//   BROWSER_MODULES, CONVERSE_MODULES   folders with the node_modules of setup.sh
//   BROWSER           browser; default: chromium
//
// The scenes act as a user does, with slash commands in the text field, or call Converse's own functions where its user interface
// has a dialog of several steps. They continue each other: one room for all. Nothing sleeps: `until` waits for a state of the page.
// Pitfall: Converse stores its state in the browser, so both users need a profile of their own.

import { ConversePage, TIMEOUT, env, finish, scene } from "./page.js";

const room = `orchard-${crypto.randomUUID().slice(0, 8)}@conference.${env.XMPP_DOMAIN}`;

// One user in the room.
class User extends ConversePage {
  // Waits until a function of the room's model is true in the page.
  async until(what, test, argument = null) {
    const source = `(async (room, argument) => {
      const model = await globalThis.api.rooms.get(room);
      return !!model && !!(${test})(model, argument);
    })(${JSON.stringify(room)}, ${JSON.stringify(argument)})`;
    const deadline = Date.now() + TIMEOUT;
    while (Date.now() < deadline) {
      if (await this.page.evaluate(source).catch(() => false)) return;
      await this.page.waitForTimeout(100);
    }
    const state = await this.page.evaluate(async (room) => {
      const model = await globalThis.api.rooms.get(room);
      return JSON.stringify({ session: model?.session?.attributes, messages: model?.messages?.map((it) => it.get("body") ?? it.get("message")),
        occupants: model?.occupants?.map((it) => [it.get("nick"), it.get("role"), it.get("affiliation"), it.get("show")]) });
    }, room);
    throw new Error(`${this.nick}: no ${what}; ${state}; ${this.faults.join("; ")}`);
  }

  entered() {
    return this.until("entering of the room", "(model) => model.session.get('connection_status') === 5");
  }

  receives(body) {
    return this.until(`'${body}'`, "(model, body) => model.messages.models.some((it) => it.get('body') === body)", body);
  }

  sees(nick, role) {
    return this.until(`${nick} as ${role}`,
      "(model, [nick, role]) => model.occupants.models.some((it) => it.get('nick') === nick && it.get('role') === role && it.get('presence') !== 'offline')",
      [nick, role]);
  }

  // Types a line into the text field of the room.
  async type(line) {
    const field = this.page.locator(`converse-muc[jid="${room}"] textarea.chat-textarea`);
    await field.fill(line);
    await field.press("Enter");
  }

  open(settings = {}) {
    return this.page.evaluate(([room, settings]) => globalThis.api.rooms.open(room, settings, true).then(() => null), [room, { nick: this.nick, ...settings }]);
  }
}

const a = await new User().start(env.XMPP_USER_A, "romeo");
const b = await new User().start(env.XMPP_USER_B, "juliet");

await scene("create_and_configure", async () => {
  await a.open({ auto_configure: true, roomconfig: { roomname: "The Orchard", whois: "anyone", persistentroom: true } });
  await a.entered();
  await a.until("features of the configuration", "(model) => model.features.get('nonanonymous') && model.features.get('persistent')");
});

await scene("invite_and_join", async () => {
  await a.page.evaluate(async ([room, to]) => (await globalThis.api.rooms.get(room)).directInvite(to, "Hey"), [room, b.jid]);
  await b.open();
  await b.entered();
  await a.sees("juliet", "participant");
});

await scene("talk", async () => {
  for (let n = 0; n < 5; n += 1) {
    await a.type(`from romeo ${n}`);
    await b.receives(`from romeo ${n}`);
    await b.type(`from juliet ${n}`);
    await a.receives(`from juliet ${n}`);
  }
  await b.until("no message twice", "(model) => model.messages.models.filter((it) => it.get('body') === 'from juliet 0').length === 1");
  await a.type("/topic Balconies");
  await b.until("the subject", "(model) => model.get('subject')?.text === 'Balconies'");
  await b.type("/nick angelica");
  await a.sees("angelica", "participant");
  await b.type("/nick juliet");
  await a.sees("juliet", "participant");
});

await scene("moderate", async () => {
  await b.type("spam");
  await a.receives("spam");
  await a.page.evaluate(async (room) => {
    const model = await globalThis.api.rooms.get(room);
    await model.retractOtherMessage(model.messages.models.find((it) => it.get("body") === "spam"), "off topic");
  }, room);
  const moderated = "(model) => model.messages.models.some((it) => it.get('moderated') === 'retracted')";
  await a.until("own moderation", moderated);
  await b.until("moderation", moderated);
});

await scene("voice", async () => {
  await a.type("/mute juliet");
  await b.sees("juliet", "visitor");
  await a.type("/voice juliet");
  await b.sees("juliet", "participant");
});

await scene("kick", async () => {
  await a.type("/kick juliet too loud");
  await b.until("the kick", "(model) => model.session.get('connection_status') !== 5");
  await b.page.evaluate(async (room) => (await globalThis.api.rooms.get(room)).rejoin(), room);
  await b.entered();
  await a.sees("juliet", "participant");
});

await scene("rejoin_after_a_cut", async () => {
  b.network.cut();
  await b.until("the cut", "() => !globalThis.api.connection.connected()");
  await a.type("while you were away");
  b.network.restore();
  await b.entered();
  await b.receives("while you were away");
  await b.type("back again");
  await a.receives("back again");
});

await scene("ban", async () => {
  await a.type(`/ban juliet`);
  await b.until("the ban", "(model) => model.session.get('connection_status') !== 5");
  const banned = await a.page.evaluate(async (room) => (await globalThis.api.rooms.affiliations.get("outcast", room)).map((it) => it.jid), room);
  if (banned.join() !== b.jid) throw new Error(`banned are ${banned}`);
});

// Converse ignores the presence by which the room ends.
await scene("destroy", async () => {
  const rooms = await a.page.evaluate(async ([room, service]) => {
    await (await globalThis.api.rooms.get(room)).sendDestroyIQ("dawn");
    const { $iq } = globalThis.converse.env;
    const items = $iq({ type: "get", to: service }).c("query", { xmlns: "http://jabber.org/protocol/disco#items" });
    return (await globalThis.api.sendIQ(items)).outerHTML;
  }, [room, `conference.${env.XMPP_DOMAIN}`]);
  if (rooms.includes(room)) throw new Error(`it is still listed: ${rooms}`);
});

await finish(a, b);
