// Scenarios of xmpp.js with PubSub and personal eventing, one function each; settings as in harness.js.
//
// XEP-0060 and 0248 at pubsub.XMPP_DOMAIN, and on accounts XEP-0163 with 0084 and 0402, written as stanzas: xmpp.js has no code for
// nodes. Clients announce their interest in capabilities (XEP-0115), and answer the server's query for them.

import { createHash } from "node:crypto";

import { befriend, check, fails, run, settings, xml } from "./harness.js";

const PUBSUB = "http://jabber.org/protocol/pubsub";
const OWNER = `${PUBSUB}#owner`;
const EVENT = `${PUBSUB}#event`;
const DISCO = "http://jabber.org/protocol/disco#info";
const CAPS = "http://jabber.org/protocol/caps";
const METADATA = "urn:xmpp:avatar:metadata";
const DATA = "urn:xmpp:avatar:data";
const BOOKMARKS = "urn:xmpp:bookmarks:1";
const service = `pubsub.${settings.domain}`;

const newNode = () => `node-${crypto.randomUUID().slice(0, 12)}`;

function form(kind, fields) {
  const values = { FORM_TYPE: `${PUBSUB}#${kind}`, ...Object.fromEntries(Object.entries(fields).map(([name, value]) => [`pubsub#${name}`, value])) };
  const all = Object.entries(values).map(([name, value]) => xml("field", { var: name }, xml("value", {}, value)));
  return xml("x", { xmlns: "jabber:x:data", type: "submit" }, ...all);
}

const request = (type, to, ns, ...children) => xml("iq", { type, to }, xml("pubsub", ns, ...children));
const set = (client, to, ...children) => client.ask(request("set", to, PUBSUB, ...children));
const get = (client, to, ...children) => client.ask(request("get", to, PUBSUB, ...children));
const owner = (client, to, ...children) => client.ask(request("set", to, OWNER, ...children));
const create = (client, node, fields = {}) => set(client, service, xml("create", { node }), xml("configure", {}, form("node_config", fields)));
const entry = (text) => xml("entry", "http://www.w3.org/2005/Atom", xml("title", {}, text));
const publish = (client, to, node, id, payload, ...more) => set(client, to, xml("publish", { node }, xml("item", { id }, payload)), ...more);
const ids = (answer) => answer.getChild("pubsub").getChild("items").getChildren("item").map((it) => it.attrs.id);

// An event of a node with a child of this name and id.
function receives(client, from, node, name, id) {
  return client.expect(`event ${name} ${id ?? ""} of ${node}`, (s) => {
    const content = s.is("message") && s.attrs.from === from && s.getChild("event", EVENT)?.children.find((it) => it.attrs?.node === node);
    if (!content) return false;
    return content.name === name || content.getChildren(name).some((it) => it.attrs.id === id);
  });
}

// A client that announces `+notify` for these nodes. Its capabilities are new, so the server asks for them, and knows them then.
async function interested(stage, who, resource, ...nodes) {
  const client = await stage.client(who, resource).login();
  const features = [DISCO, `urn:example:${crypto.randomUUID()}`, ...nodes.map((node) => `${node}+notify`)].sort();
  const info = () => xml("query", { xmlns: DISCO }, xml("identity", { category: "client", type: "pc", name: "xmpp.js" }), ...features.map((it) => xml("feature", { var: it })));
  client.xmpp.iqCallee.get(DISCO, "query", info);
  const text = ["client/pc//xmpp.js", ...features].map((it) => `${it}<`).join("");
  const ver = createHash("sha1").update(text).digest("base64");
  await client.roster();
  await client.say(null, null, xml("c", { xmlns: CAPS, hash: "sha-1", node: "https://example.org", ver }));
  await client.presence(null, client.jid);
  await client.expect("query for capabilities", (s) => s.is("iq") && s.attrs.type === "get" && s.getChild("query", DISCO));
  await client.settle();
  return client;
}

const scenarios = [
  async function publish_and_subscribe(stage) {
    const [a, b] = await stage.pair();
    const node = newNode();
    await create(a, node, { title: "Musings", notify_retract: "1" });
    await fails("conflict", create(a, node));
    await fails("forbidden", publish(b, service, node, "x", entry("not a publisher")));
    const answer = await set(b, service, xml("subscribe", { node, jid: b.bare }));
    check(answer.getChild("pubsub").getChild("subscription").attrs.subscription === "subscribed", `the answer is ${answer}`);
    for (let n = 0; n < 5; n += 1) await publish(a, service, node, String(n), entry(`item ${n}`));
    for (let n = 0; n < 5; n += 1) await receives(b, service, node, "item", String(n));
    const kept = ids(await get(b, service, xml("items", { node })));
    check(kept.join() === "0,1,2,3,4", `items are ${kept}`);
    const order = xml("order", { xmlns: "urn:xmpp:order-by:1", by: "creation", desc: "true" });
    const newest = ids(await get(b, service, xml("items", { node, max_items: "2" }), order));
    check(newest.join() === "4,3", `the newest are ${newest}`);
    await set(a, service, xml("retract", { node }, xml("item", { id: "3" })));
    await receives(b, service, node, "retract", "3");
    await owner(a, service, xml("delete", { node }));
    await receives(b, service, node, "delete");
    await fails("item-not-found", get(b, service, xml("items", { node })));
  },

  async function collection(stage) {
    const [a, b] = await stage.pair();
    const [blogs, node] = [newNode(), newNode()];
    await create(a, blogs, { node_type: "collection" });
    await set(b, service, xml("subscribe", { node: blogs, jid: b.bare }));
    await create(a, node, { collection: blogs });
    const created = await receives(b, service, node, "create");
    check(String(created).includes(`>${blogs}</header>`), `the collection is not named in ${created}`);
    await owner(a, service, xml("collection", { node: blogs }, xml("dissociate", { node })));
    await receives(b, service, blogs, "collection");
    await fails("not-allowed", owner(a, service, xml("collection", { node: blogs }, xml("associate", { node: blogs }))));
    for (const name of [blogs, node]) await owner(a, service, xml("delete", { node: name }));
  },

  async function avatar(stage) {
    const [a, old] = await stage.pair();
    await stage.leave(old);
    const b = await interested(stage, "b", "gallery", METADATA);
    await befriend(a, b);
    const image = Buffer.from(crypto.randomUUID());
    const id = createHash("sha1").update(image).digest("hex");
    await publish(a, undefined, DATA, id, xml("data", DATA, image.toString("base64")));
    const info = xml("info", { id, bytes: String(image.length), type: "image/png" });
    await publish(a, undefined, METADATA, id, xml("metadata", METADATA, info));
    await receives(b, a.bare, METADATA, "item", id);
    const found = await get(b, a.bare, xml("items", { node: DATA }, xml("item", { id })));
    check(String(found).includes(image.toString("base64")), `the image is ${found}`);
    await stage.leave(b);
    await receives(await interested(stage, "b", "gallery", METADATA), a.bare, METADATA, "item", id);
  },

  async function bookmarks_on_two_devices(stage) {
    const [a, b] = await stage.pair();
    const tablet = await interested(stage, "a", "tablet", BOOKMARKS);
    const room = `balcony-${crypto.randomUUID().slice(0, 8)}@conference.${settings.domain}`;
    const options = xml("publish-options", {}, form("publish-options", {
      persist_items: "true", max_items: "max", send_last_published_item: "never", access_model: "whitelist",
    }));
    await publish(a, undefined, BOOKMARKS, room, xml("conference", { xmlns: BOOKMARKS, name: "The Balcony", autojoin: "true" }), options);
    await receives(tablet, a.bare, BOOKMARKS, "item", room);
    const kept = ids(await get(tablet, undefined, xml("items", { node: BOOKMARKS })));
    check(kept.includes(room), `bookmarks are ${kept}`);
    await fails("item-not-found", get(b, a.bare, xml("items", { node: BOOKMARKS })));
    await set(tablet, undefined, xml("retract", { node: BOOKMARKS, notify: "true" }, xml("item", { id: room })));
    await receives(tablet, a.bare, BOOKMARKS, "retract", room);
  },
];

const wanted = process.argv.slice(2);
process.exitCode = await run(scenarios.filter((it) => !wanted.length || wanted.includes(it.name)));
