// Scenarios of xmpp.js in rooms, one function each; settings as in harness.js.
//
// XEP-0045 with 0249, 0410, 0421 and 0425, written as stanzas: xmpp.js has no code for rooms. The service is at
// conference.XMPP_DOMAIN. Each scenario has a room of its own, which ends with its last occupant.

import { Failure, TIMEOUT, check, fails, run, settings, xml } from "./harness.js";

const MUC = "http://jabber.org/protocol/muc";
const USER = `${MUC}#user`;
const ADMIN = `${MUC}#admin`;
const OWNER = `${MUC}#owner`;
const DISCO = "http://jabber.org/protocol/disco#info";

const codes = (stanza) => (stanza.getChild("x", USER)?.getChildren("status") ?? []).map((it) => Number(it.attrs.code));
const item = (stanza) => stanza.getChild("x", USER)?.getChild("item")?.attrs ?? {};
const body = (stanza) => stanza.getChildText("body");

class Room {
  constructor() {
    this.jid = `room-${crypto.randomUUID().slice(0, 12)}@conference.${settings.domain}`;
  }

  // Asks to join and returns the self-presence, or the error.
  async enter(client, nick, ...children) {
    await client.say(null, `${this.jid}/${nick}`, xml("x", MUC, ...children));
    return client.expect(`the answer to ${nick}`, (s) =>
      s.is("presence") && s.attrs.from === `${this.jid}/${nick}` && (s.attrs.type === "error" || codes(s).includes(110)));
  }

  async joined(client, nick, ...children) {
    const answer = await this.enter(client, nick, ...children);
    check(answer.attrs.type !== "error", `${nick} cannot join: ${answer}`);
    return answer;
  }

  async refused(condition, client, nick) {
    const answer = await this.enter(client, nick);
    check(answer.getChild("error")?.getChild(condition), `expected ${condition}, got ${answer}`);
  }

  // Creates the room with fields of muc#roomconfig.
  async create(client, nick, fields = {}) {
    const presence = await this.joined(client, nick);
    check(codes(presence).includes(201), `the room existed: ${presence}`);
    const form = await client.ask(xml("iq", { type: "get", to: this.jid }, xml("query", OWNER)));
    const known = form.getChild("query").getChild("x").getChildren("field").map((it) => it.attrs.var);
    const values = { FORM_TYPE: `${MUC}#roomconfig` };
    for (const [name, value] of Object.entries(fields)) {
      check(known.includes(`muc#roomconfig_${name}`), `the form has no ${name}: ${known}`);
      values[`muc#roomconfig_${name}`] = value;
    }
    const submitted = Object.entries(values).map(([name, value]) => xml("field", { var: name }, xml("value", {}, value)));
    const x = xml("x", { xmlns: "jabber:x:data", type: "submit" }, ...submitted);
    await client.ask(xml("iq", { type: "set", to: this.jid }, xml("query", OWNER, x)));
  }

  say(client, text) {
    return client.send(xml("message", { to: this.jid, type: "groupchat" }, xml("body", {}, text)));
  }

  receives(client, text, nick) {
    return client.expect(`'${text}' from ${nick}`, (s) =>
      s.is("message") && s.attrs.type === "groupchat" && body(s) === text && s.attrs.from === `${this.jid}/${nick}`);
  }

  // A presence of an occupant with these attributes of its item.
  sees(client, nick, type, { code, ...wanted } = {}) {
    return client.expect(`presence ${type ?? "available"} ${JSON.stringify(wanted)} ${code ?? ""} of ${nick}`, (s) =>
      s.is("presence") && s.attrs.from === `${this.jid}/${nick}` && s.attrs.type === type &&
      Object.entries(wanted).every(([key, value]) => item(s)[key] === value) && (!code || codes(s).includes(code)));
  }

  admin(client, attrs, reason) {
    const change = xml("item", attrs, ...(reason ? [xml("reason", {}, reason)] : []));
    return client.ask(xml("iq", { type: "set", to: this.jid }, xml("query", ADMIN, change)));
  }
}

const scenarios = [
  async function create_and_configure(stage) {
    const [a, b] = await stage.pair();
    const room = new Room();
    check(codes(await room.joined(a, "romeo")).includes(201), "the room was not created");
    await room.refused("item-not-found", b, "juliet");
    const x = xml("x", { xmlns: "jabber:x:data", type: "submit" });
    await a.ask(xml("iq", { type: "set", to: room.jid }, xml("query", OWNER, x)));
    await room.joined(b, "juliet");
    const info = await b.ask(xml("iq", { type: "get", to: room.jid }, xml("query", DISCO)));
    const features = info.getChild("query").getChildren("feature").map((it) => it.attrs.var);
    for (const feature of [MUC, "muc_semianonymous", "muc_open", "urn:xmpp:occupant-id:0"]) {
      check(features.includes(feature), `no ${feature} in ${features}`);
    }
  },

  async function join_and_talk(stage) {
    const [a, b] = await stage.pair();
    const room = new Room();
    await room.create(a, "romeo", { roomname: "The Orchard" });
    await room.joined(b, "juliet");
    await room.sees(a, "juliet", undefined, { role: "participant", affiliation: "none" });
    for (let n = 0; n < 10; n += 1) await Promise.all([room.say(a, `a${n}`), room.say(b, `b${n}`)]);
    for (const listener of [a, b]) {
      for (let n = 0; n < 10; n += 1) {
        const copy = await room.receives(listener, `a${n}`, "romeo");
        check(copy.getChild("stanza-id", "urn:xmpp:sid:0")?.attrs.by === room.jid, `no stanza-id in ${copy}`);
        check(copy.getChild("occupant-id", "urn:xmpp:occupant-id:0")?.attrs.id, `no occupant-id in ${copy}`);
        await room.receives(listener, `b${n}`, "juliet");
      }
    }
    await a.send(xml("message", { to: room.jid, type: "groupchat" }, xml("subject", {}, "Balconies")));
    await b.expect("the subject", (s) => s.is("message") && s.getChildText("subject") === "Balconies");
    await b.chat(`${room.jid}/romeo`, "only for you");
    await a.message("only for you", `${room.jid}/juliet`);
    const late = await stage.online("b", "two");
    await room.joined(late, "nurse", xml("history", { maxstanzas: "3" }));
    await late.expect("the subject", (s) => s.is("message") && s.getChildText("subject") === "Balconies");
    const history = late.inbox.filter((s) => s.is("message") && s.getChild("delay", "urn:xmpp:delay"));
    check(history.length === 3, `history of ${history.length} messages`);
    await late.say(null, `${room.jid}/angelica`);
    await room.sees(a, "nurse", "unavailable", { nick: "angelica", code: 303 });
    await room.sees(a, "angelica");
  },

  async function invitations(stage) {
    const [a, b] = await stage.pair();
    const room = new Room();
    await room.create(a, "romeo", { membersonly: "1" });
    await room.refused("registration-required", b, "juliet");
    const invite = xml("invite", { to: b.bare }, xml("reason", {}, "Hey, come in"));
    await a.send(xml("message", { to: room.jid }, xml("x", USER, invite)));
    const invitation = await b.expect("the invitation", (s) => s.is("message") && s.getChild("x", USER)?.getChild("invite"));
    check(invitation.attrs.from === room.jid && String(invitation).includes("Hey, come in"), `it is ${invitation}`);
    await room.joined(b, "juliet");
    await room.sees(a, "juliet", undefined, { affiliation: "member" });
  },

  async function kick_and_ban(stage) {
    const [a, b] = await stage.pair();
    const room = new Room();
    await room.create(a, "romeo");
    await room.joined(b, "juliet");
    await fails("forbidden", room.admin(b, { nick: "romeo", role: "none" }));
    await room.admin(a, { nick: "juliet", role: "none" }, "too loud");
    const kicked = await room.sees(b, "juliet", "unavailable", { code: 307 });
    check(String(kicked).includes("too loud"), `no reason in ${kicked}`);
    await room.joined(b, "juliet");
    await room.admin(a, { jid: b.bare, affiliation: "outcast" });
    await room.sees(b, "juliet", "unavailable", { code: 301 });
    await room.refused("forbidden", b, "juliet");
    await room.admin(a, { jid: b.bare, affiliation: "none" });
    await room.joined(b, "juliet");
  },

  async function moderation(stage) {
    const [a, b] = await stage.pair();
    const room = new Room();
    await room.create(a, "romeo");
    await room.joined(b, "juliet");
    await room.say(b, "spam");
    const id = (await room.receives(a, "spam", "juliet")).getChild("stanza-id").attrs.id;
    const moderate = () =>
      xml("iq", { type: "set", to: room.jid }, xml("moderate", { xmlns: "urn:xmpp:message-moderate:1", id },
        xml("retract", "urn:xmpp:message-retract:1"), xml("reason", {}, "off topic")));
    await fails("forbidden", b.ask(moderate()));
    await a.ask(moderate());
    const retraction = await b.expect("the moderation", (s) =>
      s.is("message") && s.getChild("retract", "urn:xmpp:message-retract:1")?.attrs.id === id);
    check(retraction.attrs.from === room.jid && String(retraction).includes("off topic"), `it is ${retraction}`);
    const late = await stage.online("b", "two");
    await room.joined(late, "nurse");
    await late.settle();
    check(!late.inbox.some((s) => s.is("message") && body(s) === "spam"), "the history still has it");
  },

  async function rejoin_after_a_cut(stage) {
    const a = await stage.blank("a");
    const room = new Room();
    // xmpp.js enables resumption: the session lasts for this many seconds after the cut.
    const b = await stage.online("b", "cut", { max: 1 });
    await room.create(a, "romeo");
    await room.joined(b, "juliet");
    await b.ping(`${room.jid}/juliet`);
    b.xmpp.reconnect.stop();
    b.destroy();
    await room.sees(a, "juliet", "unavailable");
    await room.say(a, "while you were away");
    await room.receives(a, "while you were away", "romeo");
    const again = await stage.online("b", "again");
    await fails("not-acceptable", again.ping(`${room.jid}/juliet`));
    await room.joined(again, "juliet");
    await room.receives(again, "while you were away", "romeo");
    await again.ping(`${room.jid}/juliet`);
  },

  async function a_resumed_stream_is_still_in_its_room(stage) {
    const a = await stage.blank("a");
    const room = new Room();
    const b = await stage.online("b", "resuming");
    await room.create(a, "romeo");
    await room.joined(b, "juliet");
    await b.settle();
    const resumed = new Promise((resolve) => b.xmpp.streamManagement.once("resumed", resolve));
    b.xmpp.reconnect.start();
    b.destroy();
    await room.say(a, "meanwhile");
    const late = new Promise((_, reject) => setTimeout(() => reject(new Failure("not resumed")), TIMEOUT).unref());
    await Promise.race([resumed, late]);
    b.xmpp.reconnect.stop();
    await room.receives(b, "meanwhile", "romeo");
    await room.say(b, "still here");
    await room.receives(a, "still here", "juliet");
    check(!a.inbox.some((s) => s.is("presence") && s.attrs.type === "unavailable"), `romeo saw ${a.inbox}`);
  },

  async function destroyed_room(stage) {
    const [a, b] = await stage.pair();
    const room = new Room();
    await room.create(a, "romeo");
    await room.joined(b, "juliet");
    const venue = `tomb@conference.${settings.domain}`;
    const destroy = () => xml("iq", { type: "set", to: room.jid }, xml("query", OWNER,
      xml("destroy", { jid: venue }, xml("reason", {}, "dawn"))));
    await fails("forbidden", b.ask(destroy()));
    await a.ask(destroy());
    const end = await room.sees(b, "juliet", "unavailable");
    check(String(end).includes(venue) && String(end).includes("dawn"), `the end is ${end}`);
  },
];

const wanted = process.argv.slice(2);
process.exitCode = await run(scenarios.filter((it) => !wanted.length || wanted.includes(it.name)));
