// Converse.js with personal eventing and PubSub: two devices of one user, and a contact; settings as in rooms.js.
//
// usage: nodes.js      prints one line for each scene: `ok NAME` or `FAIL NAME reason`
//
// The scenes call Converse's own functions. Converse keeps its avatar in the vCard, and the server converts it (XEP-0398).

import { ConversePage, env, finish, scene } from "./page.js";

const BOOKMARKS = "urn:xmpp:bookmarks:1";
// One pixel.
const IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

class User extends ConversePage {
  // Sends a request with this content of <pubsub/>, and returns the answer, an error included.
  pubsub(type, to, content, ns = "") {
    return this.page.evaluate(
      async ([type, to, content, ns]) => {
        const { stx, Stanza } = globalThis.converse.env;
        const stanza = stx`<iq xmlns="jabber:client" type="${type}" to="${to}">
          <pubsub xmlns="http://jabber.org/protocol/pubsub${ns}">${Stanza.unsafeXML(content)}</pubsub></iq>`;
        return (await globalThis.api.sendIQ(stanza, undefined, false)).outerHTML;
      },
      [type, to, content, ns],
    );
  }

  // Notes the texts of messages with events.
  listen() {
    return this.page.evaluate(() => {
      globalThis.events = [];
      globalThis.api.connection.get().addHandler((message) => {
        if (message.querySelector("event")) globalThis.events.push(message.outerHTML);
        return true;
      }, null, "message");
    });
  }

  receives(...texts) {
    const source = `globalThis.events.some((event) => ${JSON.stringify(texts)}.every((text) => event.includes(text)))`;
    return this.waitFor(`event with ${texts}`, source);
  }
}

const phone = await new User().start(env.XMPP_USER_A, "phone");
const tablet = await new User().start(env.XMPP_USER_A, "tablet");
const b = await new User().start(env.XMPP_USER_B, "juliet");
const service = `pubsub.${env.XMPP_DOMAIN}`;
const node = `node-${crypto.randomUUID().slice(0, 8)}`;
const room = `balcony-${crypto.randomUUID().slice(0, 8)}@conference.${env.XMPP_DOMAIN}`;
for (const user of [phone, tablet, b]) await user.listen();

await scene("publish_and_subscribe", async () => {
  const created = await phone.pubsub("set", service, `<create node="${node}"/>`);
  if (!created.includes('type="result"')) throw new Error(created);
  const answer = await b.pubsub("set", service, `<subscribe node="${node}" jid="${b.jid}"/>`);
  if (!answer.includes('subscription="subscribed"')) throw new Error(answer);
  await phone.page.evaluate(async ([service, node]) => {
    const { stx } = globalThis.converse.env;
    const item = stx`<item xmlns="http://jabber.org/protocol/pubsub" id="1"><entry xmlns="http://www.w3.org/2005/Atom">Soliloquy</entry></item>`;
    await globalThis.api.pubsub.publish(service, node, item);
  }, [service, node]);
  await b.receives(node, 'id="1"', "Soliloquy");
  const config = await phone.page.evaluate(([service, node]) => globalThis.api.pubsub.config.get(service, node), [service, node]);
  if (config.max_items !== "10" || config.persist_items !== true) throw new Error(`the configuration is ${JSON.stringify(config)}`);
});

await scene("bookmarks_on_two_devices", async () => {
  const known = (jid) => `(async () => !!(await globalThis.api.bookmarks.get(${JSON.stringify(jid)})))()`;
  await tablet.page.evaluate(() => globalThis.api.waitUntil("bookmarksInitialized").then(() => null));
  await phone.page.evaluate(async (room) => {
    await globalThis.api.waitUntil("bookmarksInitialized");
    await globalThis.api.bookmarks.set({ jid: room, name: "The Balcony", autojoin: false, nick: "romeo" }, true);
  }, room);
  // Converse 14 publishes items and is interested in the list, into which the server converts them (XEP-0411). Its handler never
  // matches, so it shows them when it logs in.
  await tablet.receives("storage:bookmarks", room);
  const stored = await tablet.pubsub("get", tablet.jid, `<items node="${BOOKMARKS}"/>`);
  if (!stored.includes(room)) throw new Error(`bookmarks are ${stored}`);
  const laptop = await new User().start(env.XMPP_USER_A, "laptop");
  await laptop.waitFor("bookmark on the laptop", known(room));
  laptop.network.close();
});

await scene("avatar", async () => {
  await phone.page.evaluate(async ([jid, image]) => {
    await globalThis.api.vcard.set(jid, { fn: "Romeo", image, image_type: "image/png" });
  }, [phone.jid, IMAGE]);
  await b.page.evaluate((jid) => globalThis.api.vcard.get(jid, true).then(() => null), phone.jid);
  const card = await b.page.evaluate((jid) => globalThis.api.vcard.get(jid, true), phone.jid);
  if (card.image !== IMAGE) throw new Error(`the vCard is ${JSON.stringify(card)}`);
  let answer = "";
  for (const deadline = Date.now() + 30_000; Date.now() < deadline && !answer.includes(IMAGE); ) {
    answer = await b.pubsub("get", phone.jid, '<items node="urn:xmpp:avatar:data"/>');
    if (!answer.includes(IMAGE)) await b.page.waitForTimeout(200);
  }
  if (!answer.includes(IMAGE)) throw new Error(`the node has ${answer}`);
});

await finish(phone, tablet, b);
