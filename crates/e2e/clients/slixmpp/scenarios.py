"""Scenarios of slixmpp against a running node, one function each; settings as in harness.py.

RFC 6120 (login), RFC 6121 sections 2 (roster), 3 (subscriptions), 4 (presence), 5 (messages), XEP-0030, 0092,
0160 with 0203, 0199, 0202. Not implemented: errors of the client.
"""

import datetime
import ssl

from slixmpp.plugins import xep_0082

from harness import Failure, befriend, main


def check(condition, reason):
    if not condition:
        raise Failure(reason)


async def login(stage):
    client = await stage.client("a", "phone").login()
    check(client.mechanism.startswith("SCRAM-"), f"logged in by {client.mechanism}")
    check(client.boundjid.full == f"{stage.settings.bare('a')}/phone", f"bound as {client.boundjid}")
    check(client.tls_version == "TLSv1.3", f"the stream is under {client.tls_version}")


async def login_by_each_mechanism(stage):
    for mechanism in stage.settings.mechanisms:
        client = await stage.client("a", "phone", mechanism=mechanism).login()
        check(client.mechanism == mechanism, f"asked for {mechanism}, used {client.mechanism}")
        await stage.leave(client)


async def login_over_tls_1_2(stage):
    """slixmpp offers tls-unique for each -PLUS then, whatever the server wants; it goes on until one works."""
    client = stage.client("a", "phone")
    client.ssl_context.maximum_version = ssl.TLSVersion.TLSv1_2
    await client.login()
    check(client.tls_version == "TLSv1.2", f"the stream is under {client.tls_version}")
    check(client.mechanism.startswith("SCRAM-"), f"logged in by {client.mechanism}")


async def wrong_password(stage):
    for who in "ab":
        client = stage.client(who, "attacker", password="not the password", mechanism="SCRAM-SHA-1")
        try:
            await client.login()
        except Failure as failure:
            check(str(failure) == "not-authorized", f"expected not-authorized, got {failure}")
        else:
            raise Failure("a wrong password logged in")


async def unknown_user(stage):
    stage.settings.users["nobody"] = "no-such-account"
    try:
        await stage.client("nobody", "attacker", mechanism="SCRAM-SHA-1").login()
    except Failure as failure:
        check(str(failure) == "not-authorized", f"expected not-authorized, got {failure}")
    else:
        raise Failure("an unknown user logged in")


async def roster_get(stage):
    client = await stage.blank("a", "one")
    check(await client.roster_items() == {}, "the roster of a new user is not empty")
    await client.roster_set("friend@elsewhere.test", name="A friend", groups=["Friends", "Work"])
    items = await client.roster_items()
    check(list(items) == ["friend@elsewhere.test"], f"roster is {items}")
    check(items["friend@elsewhere.test"].get("subscription") == "none", f"item is {items}")


async def roster_pushes_on_two_resources(stage):
    one = await stage.blank("a", "one")
    two = await stage.online("a", "two")
    jid = "friend@elsewhere.test"
    await one.roster_set(jid, name="First", groups=["Friends"])
    for client in (one, two):
        await client.push("added", jid, name="First", subscription="none")
    await two.roster_set(jid, name="Ünïcödé & <second>", groups=["Work"])
    for client in (one, two):
        push = await client.push("renamed", jid, name="Ünïcödé & <second>")
        groups = [group.text for group in push.xml.iter("{jabber:iq:roster}group")]
        check(groups == ["Work"], f"groups in the push are {groups}")
    await one.roster_set(jid, remove=True)
    for client in (one, two):
        await client.push("removed", jid, subscription="remove")
    check(await two.roster_items() == {}, "the removed contact is still there")


async def subscription_dance(stage):
    a, b = await stage.pair()
    jid_a, jid_b = a.boundjid.bare, b.boundjid.bare
    # Request and approval: a sees b.
    a.say("subscribe", jid_b)
    await a.push("asked", jid_b, subscription="none", ask="subscribe")
    await b.presence("subscribe", jid_a)
    b.say("subscribed", jid_a)
    await b.push("approved", jid_a, subscription="from")
    await a.presence("subscribed", jid_b)
    await a.push("approved", jid_b, subscription="to")
    await a.presence(None, b.boundjid.full)
    # The other way: both.
    b.say("subscribe", jid_a)
    await b.push("asked", jid_a, subscription="from", ask="subscribe")
    await a.presence("subscribe", jid_b)
    a.say("subscribed", jid_b)
    await a.push("mutual", jid_b, subscription="both")
    await b.presence("subscribed", jid_a)
    await b.push("mutual", jid_a, subscription="both")
    await b.presence(None, a.boundjid.full)
    # a cancels what it granted: b no longer sees a.
    a.say("unsubscribed", jid_b)
    await a.push("cancelled", jid_b, subscription="to")
    await b.presence("unsubscribed", jid_a)
    await b.push("cancelled", jid_a, subscription="from")
    await b.presence("unavailable", a.boundjid.full)
    # a gives up what it was granted: nothing is left but the items.
    a.say("unsubscribe", jid_b)
    await a.push("unsubscribed", jid_b, subscription="none")
    await b.presence("unsubscribe", jid_a)
    await b.push("unsubscribed", jid_a, subscription="none")
    # RFC 6121, 3.3.3 says from each resource; Prosody says it from the account.
    await a.presence("unavailable", jid_b)


async def subscription_denied(stage):
    a, b = await stage.pair()
    a.say("subscribe", b.boundjid.bare)
    await a.push("asked", b.boundjid.bare, subscription="none", ask="subscribe")
    await b.presence("subscribe", a.boundjid.bare)
    b.say("unsubscribed", a.boundjid.bare)
    await a.presence("unsubscribed", b.boundjid.bare)
    push = await a.push("denied", b.boundjid.bare, subscription="none")
    check("ask=" not in str(push), f"the request is still pending: {push}")


async def subscription_request_waits_for_login(stage):
    a, b = await stage.pair()
    await stage.leave(b)
    a.say("subscribe", stage.settings.bare("b"))
    await a.push("asked", stage.settings.bare("b"), ask="subscribe")
    b = await stage.online("b", "one")
    await b.presence("subscribe", a.boundjid.bare)
    b.say("subscribed", a.boundjid.bare)
    await a.presence("subscribed", b.boundjid.bare)
    await a.presence(None, b.boundjid.full)


async def roster_remove_ends_both_subscriptions(stage):
    a, b = await stage.pair()
    await befriend(a, b)
    await a.roster_set(b.boundjid.bare, remove=True)
    await a.push("removed", b.boundjid.bare, subscription="remove")
    await b.presence("unsubscribe", a.boundjid.bare)
    await b.presence("unsubscribed", a.boundjid.bare)
    await b.push("ended", a.boundjid.bare, subscription="none")
    await b.presence("unavailable", a.boundjid.full)


async def presence_seen_by_contact(stage):
    a, b = await stage.pair()
    await befriend(a, b)
    a.send_presence(pshow="away", pstatus="Zu Tisch – gleich zurück", ppriority=5)
    seen = await b.presence(None, a.boundjid.full, show="away")
    check(seen["status"] == "Zu Tisch – gleich zurück", f"status is {seen['status']!r}")
    check(seen["priority"] == 5, f"priority is {seen['priority']}")
    # A second resource learns who is there, and is seen.
    two = await stage.online("a", "two")
    await two.presence(None, b.boundjid.full)
    await two.presence(None, a.boundjid.full, show="away")
    await b.presence(None, two.boundjid.full)
    await a.presence(None, two.boundjid.full)
    # One leaves politely, one without a word.
    a.say("unavailable")
    await b.presence("unavailable", a.boundjid.full)
    two_jid = two.boundjid.full
    two.transport.abort()
    await b.presence("unavailable", two_jid)


async def chat_both_ways(stage):
    a, b = await stage.pair()
    a.send_message(mto=b.boundjid.bare, mbody="to the account", mtype="chat")
    first = await b.chat("to the account", a.boundjid.full)
    check(first["type"] == "chat", f"type is {first['type']}")
    b.send_message(mto=first["from"], mbody="to the resource: Grüße, 你好, 🎉 & <&>", mtype="chat")
    await a.chat("to the resource: Grüße, 你好, 🎉 & <&>", b.boundjid.full)
    count = 200
    for number in range(count):
        a.send_message(mto=b.boundjid.full, mbody=f"a {number}", mtype="chat")
        b.send_message(mto=a.boundjid.full, mbody=f"b {number}", mtype="chat")
    for client, sender in ((b, "a"), (a, "b")):
        for number in range(count):
            message = await client.expect(f"message {number}", lambda stanza: stanza.name == "message")
            check(message["body"] == f"{sender} {number}", f"at {number} came {message['body']!r}")


async def offline_message_with_delay(stage):
    a, b = await stage.pair()
    await stage.leave(b)
    bodies = ["while you were away", "and a second one"]
    for body in bodies:
        a.send_message(mto=stage.settings.bare("b"), mbody=body, mtype="chat")
    await a.settle()
    b = await stage.online("b", "one")
    for body in bodies:
        message = await b.expect("offline message", lambda stanza: stanza.name == "message")
        check(message["body"] == body, f"expected {body!r}, got {message['body']!r}")
        check(message["from"] == a.boundjid, f"from is {message['from']}")
        check(message.xml.find("{urn:xmpp:delay}delay") is not None, f"no delay in {message}")
        age = datetime.datetime.now(datetime.timezone.utc) - message["delay"]["stamp"]
        check(abs(age) < datetime.timedelta(minutes=5), f"the stamp is {age} old")
    await stage.leave(b)
    # Delivered once: the next login brings nothing.
    b = await stage.online("b", "one")
    await b.settle()
    again = [stanza for stanza in b.inbox if stanza.name == "message"]
    check(not again, f"delivered twice: {again}")


async def ping_both_ways(stage):
    """Between resources only who shares presence is answered (RFC 6121 section 8.5.3.1)."""
    a, b = await stage.pair()
    await befriend(a, b)
    for client, to in ((a, stage.settings.domain), (a, b.boundjid.full), (b, a.boundjid.full)):
        iq = client.make_iq_get(ito=to)
        iq.enable("ping")
        result = await client.ask(iq)
        check(result["from"].full == to, f"the answer comes from {result['from']}")


async def disco_info_of_the_server(stage):
    client = await stage.client("a", "one").login()
    iq = client.make_iq_get(ito=stage.settings.domain)
    iq.enable("disco_info")
    info = (await client.ask(iq))["disco_info"]
    identities = {(category, type_) for category, type_, _, _ in info["identities"]}
    check(("server", "im") in identities, f"identities are {identities}")
    wanted = {"http://jabber.org/protocol/disco#info", "urn:xmpp:ping", "jabber:iq:version", "urn:xmpp:time"}
    check(wanted <= set(info["features"]), f"features lack {wanted - set(info['features'])}")


async def version_of_the_server(stage):
    client = await stage.client("a", "one").login()
    iq = client.make_iq_get(ito=stage.settings.domain)
    iq.enable("software_version")
    version = (await client.ask(iq))["software_version"]
    check(version["name"] and version["version"], f"version is {version}")


async def time_of_the_server(stage):
    client = await stage.client("a", "one").login()
    iq = client.make_iq_get(ito=stage.settings.domain)
    iq.enable("entity_time")
    # slixmpp's own reading of <utc/> chokes on the Z that XEP-0202 asks for.
    reported = xep_0082.parse((await client.ask(iq)).xml.findtext("{urn:xmpp:time}time/{urn:xmpp:time}utc"))
    off = datetime.datetime.now(datetime.timezone.utc) - reported
    check(abs(off) < datetime.timedelta(minutes=5), f"the server's clock is {off} off")


async def same_resource_twice(stage):
    """RFC 6120, 7.7.2.2: the newer session stays, whatever the server does about the older one."""
    older = await stage.client("a", "same").login()
    newer = await stage.client("a", "same").login()
    check(newer.boundjid.bare == older.boundjid.bare, f"bound as {newer.boundjid}")
    await newer.settle()


SCENARIOS = [
    login,
    login_by_each_mechanism,
    login_over_tls_1_2,
    wrong_password,
    unknown_user,
    roster_get,
    roster_pushes_on_two_resources,
    subscription_dance,
    subscription_denied,
    subscription_request_waits_for_login,
    roster_remove_ends_both_subscriptions,
    presence_seen_by_contact,
    chat_both_ways,
    offline_message_with_delay,
    ping_both_ways,
    disco_info_of_the_server,
    version_of_the_server,
    time_of_the_server,
    same_resource_twice,
]

if __name__ == "__main__":
    main(SCENARIOS)
