// Scenarios of xmpp.js against a running node, one function each; settings as in harness.js.
//
// RFC 6120 (login), RFC 6121 sections 2 (roster), 3 (subscriptions), 4 (presence), 5 (messages), XEP-0030, 0092,
// 0160 with 0203, 0199, 0202. xmpp.js supports SCRAM-SHA-1 only; slixmpp's scenarios cover the other mechanisms.

import { Failure, bare, befriend, check, run, settings, xml } from "./harness.js";

async function refused(stage, options, what) {
  try {
    await stage.client("a", "attacker", options).login();
  } catch (error) {
    check(error.condition === "not-authorized", `expected not-authorized, got ${error.message}`);
    return;
  }
  throw new Failure(`${what} logged in`);
}

const scenarios = [
  async function login(stage) {
    const client = await stage.client("a", "phone").login();
    check(client.mechanism === "SCRAM-SHA-1", `logged in by ${client.mechanism}`);
    // With Bind 2 the name is a tag, and the server adds to it.
    check(client.jid.startsWith(`${bare("a")}/phone`), `bound as ${client.jid}`);
    // Without a wish for a resource the server makes one.
    const other = await stage.client("a", undefined).login();
    check(other.jid.length > bare("a").length + 1, `bound as ${other.jid}`);
  },

  async function wrong_password(stage) {
    await refused(stage, { password: "not the password" }, "a wrong password");
  },

  async function unknown_user(stage) {
    await refused(stage, { user: "no-such-account" }, "an unknown user");
  },

  async function roster_get(stage) {
    const client = await stage.blank("a");
    check((await client.roster()).size === 0, "the roster of a new user is not empty");
    await client.rosterSet({ jid: "friend@elsewhere.test", name: "A friend" }, ["Friends", "Work"]);
    const item = (await client.roster()).get("friend@elsewhere.test");
    check(item?.subscription === "none" && item.name === "A friend", `item is ${JSON.stringify(item)}`);
  },

  async function roster_pushes_on_two_resources(stage) {
    const one = await stage.blank("a");
    const two = await stage.online("a", "two");
    const jid = "friend@elsewhere.test";
    const name = "Ünïcödé & <second>";
    await one.rosterSet({ jid, name: "First" }, ["Friends"]);
    for (const client of [one, two]) await client.push("added", jid, { name: "First", subscription: "none" });
    await two.rosterSet({ jid, name }, ["Work"]);
    for (const client of [one, two]) {
      const push = await client.push("renamed", jid, { name });
      const groups = push.getChild("query").getChild("item").getChildren("group").map((group) => group.text());
      check(groups.join() === "Work", `groups in the push are ${groups}`);
    }
    await one.rosterSet({ jid, subscription: "remove" });
    for (const client of [one, two]) await client.push("removed", jid, { subscription: "remove" });
    check((await two.roster()).size === 0, "the removed contact is still there");
  },

  async function subscription_dance(stage) {
    const [a, b] = await stage.pair();
    // Request and approval: a sees b.
    await a.say("subscribe", b.bare);
    await a.push("asked", b.bare, { subscription: "none", ask: "subscribe" });
    await b.presence("subscribe", a.bare);
    await b.say("subscribed", a.bare);
    await b.push("approved", a.bare, { subscription: "from" });
    await a.presence("subscribed", b.bare);
    await a.push("approved", b.bare, { subscription: "to", ask: undefined });
    await a.presence(null, b.jid);
    // The other way: both.
    await b.say("subscribe", a.bare);
    await b.push("asked", a.bare, { subscription: "from", ask: "subscribe" });
    await a.presence("subscribe", b.bare);
    await a.say("subscribed", b.bare);
    await a.push("mutual", b.bare, { subscription: "both" });
    await b.presence("subscribed", a.bare);
    await b.push("mutual", a.bare, { subscription: "both", ask: undefined });
    await b.presence(null, a.jid);
    // a cancels what it granted: b no longer sees a.
    await a.say("unsubscribed", b.bare);
    await a.push("cancelled", b.bare, { subscription: "to" });
    await b.presence("unsubscribed", a.bare);
    await b.push("cancelled", a.bare, { subscription: "from" });
    await b.presence("unavailable", a.jid);
    // a gives up what it was granted: nothing is left but the items.
    await a.say("unsubscribe", b.bare);
    await a.push("unsubscribed", b.bare, { subscription: "none" });
    await b.presence("unsubscribe", a.bare);
    await b.push("unsubscribed", a.bare, { subscription: "none" });
    // RFC 6121, 3.3.3 says from each resource; Prosody says it from the account.
    await a.presence("unavailable", b.bare);
  },

  async function subscription_denied(stage) {
    const [a, b] = await stage.pair();
    await a.say("subscribe", b.bare);
    await a.push("asked", b.bare, { subscription: "none", ask: "subscribe" });
    await b.presence("subscribe", a.bare);
    await b.say("unsubscribed", a.bare);
    await a.presence("unsubscribed", b.bare);
    await a.push("denied", b.bare, { subscription: "none", ask: undefined });
  },

  async function subscription_request_waits_for_login(stage) {
    const [a, before] = await stage.pair();
    await stage.leave(before);
    await a.say("subscribe", bare("b"));
    await a.push("asked", bare("b"), { ask: "subscribe" });
    const b = await stage.online("b", "one");
    await b.presence("subscribe", a.bare);
    await b.say("subscribed", a.bare);
    await a.presence("subscribed", b.bare);
    await a.presence(null, b.jid);
  },

  async function roster_remove_ends_both_subscriptions(stage) {
    const [a, b] = await stage.pair();
    await befriend(a, b);
    await a.rosterSet({ jid: b.bare, subscription: "remove" });
    await a.push("removed", b.bare, { subscription: "remove" });
    await b.presence("unsubscribe", a.bare);
    await b.presence("unsubscribed", a.bare);
    await b.push("ended", a.bare, { subscription: "none" });
    await b.presence("unavailable", a.jid);
  },

  async function presence_seen_by_contact(stage) {
    const [a, b] = await stage.pair();
    await befriend(a, b);
    const status = "Zu Tisch – gleich zurück";
    await a.say(null, null, xml("show", {}, "away"), xml("status", {}, status), xml("priority", {}, "5"));
    await b.presence(null, a.jid, { show: "away", status, priority: "5" });
    // A second resource learns who is there, and is seen.
    const two = await stage.online("a", "two", { max: 1 });
    await two.presence(null, b.jid);
    await two.presence(null, a.jid, { show: "away" });
    await b.presence(null, two.jid);
    await a.presence(null, two.jid);
    // One leaves politely, one without a word; the server waits for it a second (XEP-0198 section 3).
    await a.say("unavailable");
    await b.presence("unavailable", a.jid);
    two.destroy();
    await b.presence("unavailable", two.jid);
  },

  async function chat_both_ways(stage) {
    const [a, b] = await stage.pair();
    await a.chat(b.bare, "to the account");
    const first = await b.message("to the account", a.jid);
    check(first.attrs.type === "chat", `type is ${first.attrs.type}`);
    const text = "to the resource: Grüße, 你好, 🎉 & <&>";
    await b.chat(first.attrs.from, text);
    await a.message(text, b.jid);
    const count = 200;
    for (let number = 0; number < count; number += 1) {
      await a.chat(b.jid, `a ${number}`);
      await b.chat(a.jid, `b ${number}`);
    }
    for (const [client, name] of [[b, "a"], [a, "b"]]) {
      for (let number = 0; number < count; number += 1) {
        const message = await client.expect(`message ${number}`, (stanza) => stanza.is("message"));
        const body = message.getChildText("body");
        check(body === `${name} ${number}`, `at ${number} came '${body}'`);
      }
    }
  },

  async function offline_message_with_delay(stage) {
    const [a, before] = await stage.pair();
    await stage.leave(before);
    const bodies = ["while you were away", "and a second one"];
    for (const body of bodies) await a.chat(bare("b"), body);
    await a.settle();
    let b = await stage.online("b", "one");
    for (const body of bodies) {
      const message = await b.expect("offline message", (stanza) => stanza.is("message"));
      check(message.getChildText("body") === body, `expected '${body}', got ${message}`);
      check(message.attrs.from === a.jid, `from is ${message.attrs.from}`);
      const stamp = message.getChild("delay", "urn:xmpp:delay")?.attrs.stamp;
      check(Math.abs(Date.now() - Date.parse(stamp)) < 300_000, `the stamp is ${stamp}`);
    }
    await stage.leave(b);
    // Delivered once: the next login brings nothing.
    b = await stage.online("b", "one");
    await b.settle();
    const again = b.inbox.filter((stanza) => stanza.is?.("message"));
    check(again.length === 0, `delivered twice: ${again}`);
  },

  // Between resources only who shares presence is answered (RFC 6121 section 8.5.3.1).
  async function ping_both_ways(stage) {
    const [a, b] = await stage.pair();
    await befriend(a, b);
    for (const [client, to] of [[a, settings.domain], [a, b.jid], [b, a.jid]]) {
      const result = await client.ping(to);
      check(result.attrs.from === to, `the answer comes from ${result.attrs.from}`);
    }
  },

  async function disco_info_of_the_server(stage) {
    const client = await stage.blank("a");
    const ns = "http://jabber.org/protocol/disco#info";
    const result = await client.ask(xml("iq", { type: "get", to: settings.domain }, xml("query", ns)));
    const query = result.getChild("query", ns);
    const identity = query.getChildren("identity").find(({ attrs }) => attrs.category === "server" && attrs.type === "im");
    check(identity, `no identity server/im in ${query}`);
    const features = query.getChildren("feature").map((feature) => feature.attrs.var);
    for (const wanted of [ns, "urn:xmpp:ping", "jabber:iq:version", "urn:xmpp:time"]) {
      check(features.includes(wanted), `no feature ${wanted} in ${features}`);
    }
  },

  async function version_of_the_server(stage) {
    const client = await stage.blank("a");
    const ask = xml("iq", { type: "get", to: settings.domain }, xml("query", "jabber:iq:version"));
    const query = (await client.ask(ask)).getChild("query", "jabber:iq:version");
    check(query?.getChildText("name") && query.getChildText("version"), `version is ${query}`);
  },

  async function time_of_the_server(stage) {
    const client = await stage.blank("a");
    const ask = xml("iq", { type: "get", to: settings.domain }, xml("time", "urn:xmpp:time"));
    const time = (await client.ask(ask)).getChild("time", "urn:xmpp:time");
    check(Math.abs(Date.now() - Date.parse(time?.getChildText("utc"))) < 300_000, `time is ${time}`);
    check(/^([+-]\d\d:\d\d|Z)$/.test(time.getChildText("tzo")), `tzo is ${time.getChildText("tzo")}`);
  },
];

const with_peer = [
  // The partner is slixmpp: it approves, asks back, and answers each message with `echo: …`.
  async function friends_and_chat_with_slixmpp(stage) {
    const a = await stage.blank("a");
    await a.say("subscribe", settings.peer);
    await a.presence("subscribed", settings.peer);
    const available = await a.presence(null, settings.peer);
    await a.presence("subscribe", settings.peer);
    await a.say("subscribed", settings.peer);
    await a.push("mutual", settings.peer, { subscription: "both" });
    const text = "von xmpp.js: Grüße, 你好, 🎉 & <&>";
    await a.chat(settings.peer, text);
    await a.message(`echo: ${text}`, available.attrs.from);
    await a.chat(available.attrs.from, "to the resource");
    await a.message("echo: to the resource", available.attrs.from);
    await a.ping(available.attrs.from);
    await a.rosterSet({ jid: settings.peer, subscription: "remove" });
  },
];

const all = settings.peer ? [...scenarios, ...with_peer] : scenarios;
const names = process.argv.slice(2);
const chosen = names.length ? all.filter(({ name }) => names.includes(name)) : all;
if (names.length && chosen.length !== names.length) {
  console.error(`scenarios.js: one of ${names.join(" ")} does not exist`);
  process.exit(2);
}
process.exitCode = await run(chosen);
