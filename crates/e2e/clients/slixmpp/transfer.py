"""Data of three accounts, a room and PubSub nodes: written to another server (`fill`), and looked for after an import (`check`). Settings as in
harness.py, and XMPP_USER_C, a third account."""

import asyncio
import os
import sys

from slixmpp.xmlstream import ET

from harness import TIMEOUT, Settings, Stage, befriend, run
from nodes import Nodes
from rooms import Room, refused

TYBALT = "tybalt@example.net"
TEXTS = ["first <&> text", "second \u2603 text"]
STORAGE = "<notes xmlns='urn:example:notes'><note>Zu\u0308rich</note></notes>"
CARD = "<vCard xmlns='vcard-temp'><FN>Juliet Capulet</FN><NICKNAME>Jule</NICKNAME></vCard>"


def check(condition, text):
    if not condition:
        raise AssertionError(text)


async def iq(client, type_, payload):
    """Sends a payload written as XML to the own account; returns the payload of the answer."""
    stanza = client.make_iq(itype=type_)
    stanza.append(ET.fromstring(payload))
    answer = await stanza.send(timeout=TIMEOUT)
    return next(iter(answer.xml), None)


def orchard(stage):
    """The room, at the address that all servers have for rooms."""
    return Room.at(f"orchard@conference.{stage.settings.domain}")


async def fill_room(stage, a, b):
    room = orchard(stage)
    await room.create(a, "romeo", roomname="The Orchard", persistentroom=True, membersonly=True)
    muc = a.plugin["xep_0045"]
    await muc.set_affiliation(room.jid, "member", jid=b.boundjid.bare, timeout=TIMEOUT)
    await muc.set_affiliation(room.jid, "outcast", jid=TYBALT, timeout=TIMEOUT)
    muc.set_subject(room.jid, "Balconies")
    await a.expect("the subject", lambda s: s.name == "message" and s["subject"] == "Balconies")
    muc.leave_muc(room.jid, "romeo")
    await room.sees(a, "romeo", "unavailable")


async def fill_nodes(stage, a, b):
    nodes = Nodes(stage)
    nodes.use(a, b)
    await nodes.create(a, "musings", title="Musings", persist_items="1")
    await b.plugin["xep_0060"].subscribe(nodes.service, "musings", timeout=TIMEOUT)
    for id_ in ("1", "2"):
        await nodes.publish(a, id_, f"item {id_}", "musings")
    for id_ in ("1", "2"):
        await nodes.receives(b, "item", node="musings", id=id_)
    await a.plugin["xep_0107"].publish_mood("happy", "the sun rises", timeout=TIMEOUT)


async def imported_nodes(stage, a, b):
    nodes = Nodes(stage)
    nodes.use(a, b)
    pubsub = b.plugin["xep_0060"]
    items = await pubsub.get_items(nodes.service, "musings", timeout=TIMEOUT)
    found = [(item["id"], "".join(item["payload"].itertext())) for item in items["pubsub"]["items"]]
    check(found == [("1", "item 1"), ("2", "item 2")], f"items are {found}")
    own = await pubsub.get_subscriptions(nodes.service, timeout=TIMEOUT)
    check("musings" in str(own), f"subscriptions are {own}")
    config = await a.plugin["xep_0060"].get_node_config(nodes.service, "musings", timeout=TIMEOUT)
    title = config["pubsub_owner"]["configure"]["form"].get_values()["pubsub#title"]
    check(title == "Musings", f"the title is {title}")
    await nodes.publish(a, "3", "item 3", "musings")
    await nodes.receives(b, "item", node="musings", id="3")
    mood = await pubsub.get_items(a.boundjid.bare, "http://jabber.org/protocol/mood", timeout=TIMEOUT)
    check("the sun rises" in str(mood), f"the mood is {mood}")


async def imported_room(stage, a, b, c):
    room = orchard(stage)
    entered = await room.enter(b, "juliet")
    check(entered.subject["subject"] == "Balconies", f"the subject is {entered.subject}")
    check(entered.presence["muc"]["affiliation"] == "member", f"juliet is {entered.presence}")
    for plugin in ("xep_0045", "xep_0030"):
        c.register_plugin(plugin)
    await refused("registration-required", c.plugin["xep_0045"].join_muc_wait(room.jid, "nurse", timeout=TIMEOUT))
    entered = await room.enter(a, "romeo")
    check(entered.presence["muc"]["affiliation"] == "owner", f"romeo is {entered.presence}")
    info = await a.plugin["xep_0030"].get_info(room.jid, timeout=TIMEOUT)
    names = [identity[3] for identity in info["disco_info"]["identities"]]
    check(names == ["The Orchard"], f"the name is {names}")
    banned = await a.plugin["xep_0045"].get_affiliation_list(room.jid, "outcast", timeout=TIMEOUT)
    check([str(jid) for jid in banned] == [TYBALT], f"banned are {banned}")


async def fill(stage):
    a, b = await stage.pair()
    await fill_room(stage, a, b)
    await befriend(a, b)
    await fill_nodes(stage, a, b)
    await a.roster_set(b.boundjid.bare, name="Bee & Co", groups=("Friends", "Verona"))
    await iq(a, "set", f"<query xmlns='jabber:iq:private'>{STORAGE}</query>")
    await iq(a, "set", CARD)
    await iq(a, "set", f"<block xmlns='urn:xmpp:blocking'><item jid='{TYBALT}'/></block>")
    a.say("subscribe", stage.settings.bare("c"))
    await a.settle()
    receiver = b.boundjid.bare
    await stage.leave(b)
    for text in TEXTS:
        a.send_message(receiver, text, mtype="chat")
    await a.settle()


async def imported(stage):
    a = await stage.client("a", "one").login()
    contact = stage.settings.bare("b")
    roster = await iq(a, "get", "<query xmlns='jabber:iq:roster'/>")
    items = {item.get("jid"): item for item in roster}
    item = items[contact]
    check(item.get("subscription") == "both" and item.get("name") == "Bee & Co", ET.tostring(item))
    groups = {group.text for group in item}
    check(groups == {"Friends", "Verona"}, groups)
    asked = items[stage.settings.bare("c")]
    check(asked.get("ask") == "subscribe" and asked.get("subscription") == "none", ET.tostring(asked))
    stored = await iq(a, "get", "<query xmlns='jabber:iq:private'><notes xmlns='urn:example:notes'/></query>")
    check("".join(stored.itertext()) == "Zu\u0308rich", ET.tostring(stored))
    card = await iq(a, "get", "<vCard xmlns='vcard-temp'/>")
    check(card.findtext("{vcard-temp}FN") == "Juliet Capulet", ET.tostring(card))
    blocked = await iq(a, "get", "<blocklist xmlns='urn:xmpp:blocking'/>")
    check([item.get("jid") for item in blocked] == [TYBALT], ET.tostring(blocked))
    b = await stage.client("b", "one").login()
    b.say(None)
    for text in TEXTS:
        message = await b.chat(text, stage.settings.bare("a"))
        check(message.xml.find("{urn:xmpp:delay}delay") is not None, "no delay")
    c = await stage.client("c", "one").login()
    await c.roster_items()
    c.say(None)
    await c.presence("subscribe", stage.settings.bare("a"))
    await imported_room(stage, a, b, c)
    await imported_nodes(stage, a, b)


def main():
    settings = Settings()
    settings.users["c"] = os.environ["XMPP_USER_C"]
    scenario = {"fill": fill, "check": imported}[sys.argv[1]]
    return asyncio.run(run([scenario], settings))


if __name__ == "__main__":
    sys.exit(main())
