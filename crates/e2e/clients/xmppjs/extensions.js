// Scenarios of xmpp.js for extensions of a running node, one function each; settings as in harness.js.
//
// XEP-0388, 0386 and 0484 (login, and login with a token), 0198 (a lost connection), 0280, 0191, 0352, 0049, 0054, 0012.
// Not implemented: administration and search; slixmpp's scenarios cover them.

import { Failure, TIMEOUT, bare, check, connect, counting, run, service, settings, xml } from "./harness.js";

// A client that logs in by SASL2 where it is offered, and by a token once it has one. `mechanisms` holds the mechanisms it used.
function modern(stage, who, { installation, tokens, tag, resumable } = {}) {
  const client = stage.client(who, tag);
  const mechanisms = [];
  client.xmpp.reconnect.stop();
  client.xmpp = counting(connect({
    service,
    domain: settings.domain,
    resource: tag,
    timeout: TIMEOUT,
    username: settings.users[who],
    password: settings.password,
    userAgent: xml("user-agent", { id: installation ?? crypto.randomUUID() }, xml("software", {}, "xmpp.js scenario")),
  }));
  if (!resumable) client.xmpp.reconnect.stop();
  if (tokens) {
    client.xmpp.fast.saveToken = async (token) => { tokens.held = token; };
    client.xmpp.fast.fetchToken = async () => tokens.held;
    client.xmpp.fast.deleteToken = async () => { delete tokens.held; };
  }
  client.xmpp.on("error", () => {});
  client.xmpp.on("stanza", (stanza) => client.receive(stanza));
  client.xmpp.on("send", (element) => {
    if (element.is?.("authenticate", "urn:xmpp:sasl:2")) mechanisms.push(element.attrs.mechanism);
  });
  return { client, mechanisms };
}

const text = (stanza) => stanza.getChildText("body");

const scenarios = [
  async function login_by_sasl2_and_again_by_token(stage) {
    const [installation, tokens] = [crypto.randomUUID(), {}];
    const first = modern(stage, "a", { installation, tokens, tag: "web" });
    await first.client.login();
    check(first.mechanisms.length === 1 && first.mechanisms[0].startsWith("SCRAM-"), `logged in by ${first.mechanisms}`);
    check(first.client.jid.startsWith(`${bare("a")}/web`), `bound as ${first.client.jid}`);
    check(tokens.held?.token, "the server gave no token");
    await stage.leave(first.client);
    const again = modern(stage, "a", { installation, tokens, tag: "web" });
    await again.client.login();
    check(again.mechanisms.join() === "HT-SHA-256-NONE", `the second login was by ${again.mechanisms}`);
    check(again.client.jid === first.client.jid, `the same client got another resource: ${again.client.jid}`);
    await again.client.settle();
    await stage.leave(again.client);
  },

  async function a_wrong_token_falls_back_to_the_password(stage) {
    const [installation, tokens] = [crypto.randomUUID(), {}];
    const first = modern(stage, "a", { installation, tokens });
    await first.client.login();
    await stage.leave(first.client);
    tokens.held = { ...tokens.held, token: "x".repeat(tokens.held.token.length) };
    const again = modern(stage, "a", { installation, tokens });
    await again.client.login();
    check(again.mechanisms.length === 2 && again.mechanisms[1].startsWith("SCRAM-"), `logged in by ${again.mechanisms}`);
    await stage.leave(again.client);
  },

  async function a_token_is_of_no_use_to_others(stage) {
    const tokens = {};
    const owner = modern(stage, "a", { installation: crypto.randomUUID(), tokens });
    await owner.client.login();
    // The same token, from another client of the same user: it was given to one user installation.
    const attacker = modern(stage, "a", { installation: crypto.randomUUID(), tokens: { held: tokens.held } });
    await attacker.client.login();
    check(attacker.mechanisms[0]?.startsWith("HT-") && attacker.mechanisms.length === 2, `the other client logged in by ${attacker.mechanisms}`);
  },

  async function a_lost_connection_is_resumed_inline(stage) {
    const { client: b } = modern(stage, "b");
    await b.login();
    await b.say(null);
    const { client: a } = modern(stage, "a", { installation: crypto.randomUUID(), tokens: {}, resumable: true });
    await a.login();
    await a.say(null);
    await a.settle();
    check(a.xmpp.streamManagement.enabled && a.xmpp.streamManagement.id, "stream management is not on");
    let sent = 0;
    for (let cut = 0; cut < 3; cut += 1) {
      for (let n = 0; n < 30; n += 1, sent += 1) await b.chat(a.jid, `number ${sent}`);
      const resumed = new Promise((resolve) => a.xmpp.streamManagement.once("resumed", resolve));
      a.destroy();
      for (let n = 0; n < 30; n += 1, sent += 1) await b.chat(a.jid, `number ${sent}`);
      const late = new Promise((_, reject) => setTimeout(() => reject(new Failure("not resumed")), TIMEOUT).unref());
      await Promise.race([resumed, late]);
    }
    await a.settle();
    await a.message(`number ${sent - 1}`, b.jid);
    const got = a.inbox.filter((s) => s.is?.("message")).map(text);
    check(got.length === sent - 1 && got.every((body, n) => body === `number ${n}`), `got ${got.length} of ${sent - 1}: ${got}`);
    a.xmpp.reconnect.stop();
  },

  async function carbons_and_client_state(stage) {
    const b = await stage.blank("b");
    const [one, two] = [await stage.online("a", "one"), await stage.online("a", "two")];
    await two.ask(xml("iq", { type: "set" }, xml("enable", "urn:xmpp:carbons:2")));
    await b.chat(one.jid, "for one");
    await one.message("for one", b.jid);
    await two.expect("carbon", (s) => s.is("message") && s.getChild("received", "urn:xmpp:carbons:2"));
    await one.chat(b.jid, "from one");
    await two.expect("carbon", (s) => s.is("message") && s.getChild("sent", "urn:xmpp:carbons:2"));
    await two.send(xml("inactive", "urn:xmpp:csi:0"));
    await two.settle();
    await two.send(xml("active", "urn:xmpp:csi:0"));
    await two.settle();
  },

  async function blocking(stage) {
    const b = await stage.blank("b");
    const a = await stage.online("a", "one");
    const list = (name) => xml("iq", { type: "set" }, xml(name, "urn:xmpp:blocking", xml("item", { jid: b.bare })));
    await a.ask(list("block"));
    await b.chat(a.jid, "hello?");
    const error = await b.expect("error", (s) => s.is("message") && s.attrs.type === "error");
    check(error.getChild("error").getChild("service-unavailable"), `the blocked user gets ${error}`);
    await a.ask(list("unblock"));
    await b.chat(a.jid, "and now?");
    await a.message("and now?", b.jid);
  },

  async function profile_and_storage(stage) {
    const b = await stage.blank("b");
    const a = await stage.online("a", "one");
    await a.ask(xml("iq", { type: "set" }, xml("vCard", "vcard-temp", xml("FN", {}, "Grüße"))));
    const card = await b.ask(xml("iq", { type: "get", to: a.bare }, xml("vCard", "vcard-temp")));
    check(card.getChild("vCard", "vcard-temp").getChildText("FN") === "Grüße", `the vCard is ${card}`);
    const query = (...children) => xml("query", "jabber:iq:private", ...children);
    await a.ask(xml("iq", { type: "set" }, query(xml("tabs", { xmlns: "urn:test:tabs", open: "3" }))));
    const kept = await a.ask(xml("iq", { type: "get" }, query(xml("tabs", "urn:test:tabs"))));
    check(kept.getChild("query").getChild("tabs").attrs.open === "3", `private storage has ${kept}`);
    const last = await a.ask(xml("iq", { type: "get", to: settings.domain }, xml("query", "jabber:iq:last")));
    check(Number(last.getChild("query").attrs.seconds) >= 0, `uptime is ${last}`);
  },
];

process.exitCode = await run(scenarios);
