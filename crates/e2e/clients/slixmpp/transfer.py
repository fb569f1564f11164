"""Data of three accounts: written to another server (`fill`), and looked for after an import (`check`). Settings as in
harness.py, and XMPP_USER_C, a third account."""

import asyncio
import os
import sys

from slixmpp.xmlstream import ET

from harness import TIMEOUT, Settings, Stage, befriend, run

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


async def fill(stage):
    a, b = await stage.pair()
    await befriend(a, b)
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


def main():
    settings = Settings()
    settings.users["c"] = os.environ["XMPP_USER_C"]
    scenario = {"fill": fill, "check": imported}[sys.argv[1]]
    return asyncio.run(run([scenario], settings))


if __name__ == "__main__":
    sys.exit(main())
