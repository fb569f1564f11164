"""Scenarios of nbxmpp, Gajim's library, in rooms, one function each; settings as in ../slixmpp/harness.py.

XEP-0045 by nbxmpp's module, with 0249, 0410, 0421 and 0425. The service is at conference.XMPP_DOMAIN. Each scenario has a room of
its own, which ends with its last occupant. Joining is written as a stanza, as Gajim does it.
"""

import sys
import uuid

from nbxmpp.const import InviteType
from nbxmpp.protocol import JID, Presence
from nbxmpp.simplexml import Node

from harness import Settings, run
from scenarios import check

MUC = "http://jabber.org/protocol/muc"
MODERATE = "urn:xmpp:message-moderate:1"


class Room:
    """A room of one scenario."""

    def __init__(self, stage):
        self.text = f"room-{uuid.uuid4().hex[:12]}@conference.{stage.settings.domain}"
        self.jid = JID.from_string(self.text)

    def answer(self, client, nick):
        """Asks to join and returns the self-presence, or the error."""
        presence = Presence(to=f"{self.text}/{nick}")
        presence.addChild(node=Node(node=f"<x xmlns='{MUC}'/>"))
        client.client.send_stanza(presence)
        return client.expect(
            f"answer to {nick}",
            lambda s: s.name == "presence"
            and s.sender == f"{self.text}/{nick}"
            and (s.type == "error" or 'code="110"' in s.text),
        )

    def enter(self, client, nick):
        seen = self.answer(client, nick)
        check(seen.type != "error", f"{nick} cannot join: {seen}")
        return seen

    def refuse(self, condition, client, nick):
        seen = self.answer(client, nick)
        check(condition in seen.text, f"expected {condition}, got {seen}")

    def create(self, client, nick, **fields):
        """Creates the room with fields of muc#roomconfig."""
        check('code="201"' in self.enter(client, nick).text, "the room existed")
        muc = client.module("MUC")
        form = client.wait(muc.request_config(self.jid)).form
        for name, value in fields.items():
            form[f"muc#roomconfig_{name}"].value = value
        form.type_ = "submit"
        client.wait(muc.set_config(self.jid, form))

    def say(self, client, body):
        client.say(self.text, body, kind="groupchat")

    def receives(self, client, body, nick):
        return client.expect(
            f"'{body}' from {nick}",
            lambda s: s.name == "message" and s.type == "groupchat" and s.body == body and s.sender == f"{self.text}/{nick}",
        )

    def sees(self, client, nick, kind=None, *texts):
        return client.expect(
            f"presence {kind or 'available'} {texts} of {nick}",
            lambda s: s.name == "presence"
            and s.sender == f"{self.text}/{nick}"
            and s.type == kind
            and all(text in s.text for text in texts),
        )


def refused(client, condition, task):
    result = client.outcome(task)
    check(condition in repr(result) + str(getattr(result, "condition", "")), f"expected {condition}, got {result!r}")


def create_and_configure(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    room = Room(stage)
    room.enter(a, "romeo")
    room.refuse("item-not-found", b, "juliet")
    muc = a.module("MUC")
    form = a.wait(muc.request_config(room.jid)).form
    form["muc#roomconfig_roomname"].value = "The Orchard"
    form.type_ = "submit"
    a.wait(muc.set_config(room.jid, form))
    room.enter(b, "juliet")
    info = b.wait(b.module("MUC").request_info(room.jid, request_vcard=False)).info
    check(info.muc_name == "The Orchard", f"the name is {info.muc_name}")
    check(info.has_message_moderation, "moderation is not offered")


def join_and_talk(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    room = Room(stage)
    room.create(a, "romeo")
    room.enter(b, "juliet")
    room.sees(a, "juliet", None, 'role="participant"', "occupant-id")
    for number in range(5):
        room.say(a, f"a{number}")
        room.say(b, f"b{number}")
    for listener in (a, b):
        for number in range(5):
            check("urn:xmpp:sid:0" in room.receives(listener, f"a{number}", "romeo").text, "no stanza-id")
            room.receives(listener, f"b{number}", "juliet")
    b.say(f"{room.text}/romeo", "only for you")
    a.chat("only for you", f"{room.text}/juliet")


def invitations(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    room = Room(stage)
    room.create(a, "romeo", membersonly=True)
    room.refuse("registration-required", b, "juliet")
    muc, to = a.module("MUC"), JID.from_string(b.bare)
    muc.invite(room.jid, to, None, "Hey, come in")
    b.expect("invitation", lambda s: s.name == "message" and "<invite" in s.text and "Hey, come in" in s.text)
    room.enter(b, "juliet")
    room.sees(a, "juliet", None, 'affiliation="member"')
    muc.invite(room.jid, to, None, "again", type_=InviteType.DIRECT)
    b.expect("direct invitation", lambda s: s.name == "message" and "jabber:x:conference" in s.text and "again" in s.text)


def kick_and_ban(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    room = Room(stage)
    room.create(a, "romeo")
    room.enter(b, "juliet")
    muc, other = a.module("MUC"), JID.from_string(b.bare)
    refused(b, "forbidden", b.module("MUC").set_role(room.jid, "romeo", "none"))
    a.wait(muc.set_role(room.jid, "juliet", "none", "too loud"))
    room.sees(b, "juliet", "unavailable", 'code="307"', "too loud")
    room.enter(b, "juliet")
    a.wait(muc.set_affiliation(room.jid, {other: {"affiliation": "outcast"}}))
    room.sees(b, "juliet", "unavailable", 'code="301"')
    room.refuse("forbidden", b, "juliet")
    banned = a.wait(muc.get_affiliation(room.jid, "outcast")).users
    check([str(jid) for jid in banned] == [b.bare], f"banned are {banned}")
    a.wait(muc.set_affiliation(room.jid, {other: {"affiliation": "none"}}))
    room.enter(b, "juliet")


def moderation(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    room = Room(stage)
    room.create(a, "romeo")
    room.enter(b, "juliet")
    room.say(b, "spam")
    text = room.receives(a, "spam", "juliet").text
    stanza_id = text.split("<stanza-id", 1)[1].split('id="', 1)[1].split('"', 1)[0]
    a.module("MUC").moderate_message(MODERATE, room.jid, stanza_id, "off topic")
    b.expect("moderation", lambda s: s.name == "message" and "<moderated" in s.text and stanza_id in s.text and "off topic" in s.text)


def rejoin_after_a_cut(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    room = Room(stage)
    room.create(a, "romeo")
    room.enter(b, "juliet")
    own = JID.from_string(f"{room.text}/juliet")
    b.wait(b.module("Ping").ping(own))
    b.leave()
    room.sees(a, "juliet", "unavailable")
    room.say(a, "while you were away")
    room.receives(a, "while you were away", "romeo")
    again = stage.online("b", "one")
    refused(again, "not-acceptable", again.module("Ping").ping(own))
    room.enter(again, "juliet")
    room.receives(again, "while you were away", "romeo")


def destroyed_room(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    room = Room(stage)
    room.create(a, "romeo")
    room.enter(b, "juliet")
    refused(b, "forbidden", b.module("MUC").destroy(room.jid))
    venue = f"tomb@conference.{stage.settings.domain}"
    a.wait(a.module("MUC").destroy(room.jid, "dawn", venue))
    room.sees(b, "juliet", "unavailable", "<destroy", venue, "dawn")


SCENARIOS = (
    create_and_configure, join_and_talk, invitations, kick_and_ban, moderation, rejoin_after_a_cut, destroyed_room,
)

if __name__ == "__main__":
    wanted = sys.argv[1:]
    sys.exit(run([it for it in SCENARIOS if not wanted or it.__name__ in wanted], Settings()))
