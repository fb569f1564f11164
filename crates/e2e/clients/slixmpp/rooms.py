"""Scenarios of slixmpp in rooms, one function each; settings as in harness.py.

XEP-0045 by slixmpp's plugin, with 0249, 0410, 0421, 0424 and 0425. The service is at conference.XMPP_DOMAIN. Each scenario has a
room of its own, which ends with its last occupant.
"""

import uuid
from collections import namedtuple

from slixmpp import JID
from slixmpp.exceptions import IqError, PresenceError

from harness import TIMEOUT, Failure, main
from scenarios import check

MUC = "http://jabber.org/protocol/muc"
USER = "{http://jabber.org/protocol/muc#user}"
PLUGINS = ("xep_0045", "xep_0249", "xep_0410", "xep_0421", "xep_0424", "xep_0425", "xep_0359")


# What slixmpp returns for a join.
Joined = namedtuple("Joined", "presence subject occupants history")


class Room:
    """A room of one scenario, and what clients do in it."""

    def __init__(self, stage):
        self.jid = JID(f"room-{uuid.uuid4().hex[:12]}@conference.{stage.settings.domain}")

    @classmethod
    def at(cls, jid):
        """The room at an address."""
        room = cls.__new__(cls)
        room.jid = JID(jid)
        return room

    async def enter(self, client, nick, **more):
        """Joins and returns slixmpp's result; the self-presence has status 110."""
        for plugin in PLUGINS:
            client.register_plugin(plugin)
        result = Joined(*await client.plugin["xep_0045"].join_muc_wait(self.jid, nick, timeout=TIMEOUT, **more))
        check(110 in result.presence["muc"]["status_codes"], f"self-presence is {result.presence}")
        return result

    async def create(self, client, nick, **fields):
        """Creates the room and configures it with fields of muc#roomconfig."""
        result = await self.enter(client, nick)
        check(201 in result.presence["muc"]["status_codes"], f"the room existed: {result.presence}")
        muc = client.plugin["xep_0045"]
        form = await muc.get_room_config(self.jid, timeout=TIMEOUT)
        known = form.get_fields()
        for name, value in fields.items():
            check(f"muc#roomconfig_{name}" in known, f"the form has no {name}: {list(known)}")
        form["type"] = "submit"
        form.set_values({f"muc#roomconfig_{name}": value for name, value in fields.items()})
        await muc.set_room_config(self.jid, form, timeout=TIMEOUT)
        return result

    def say(self, client, body):
        client.send_message(self.jid, body, mtype="groupchat")

    async def receives(self, client, body, nick):
        """The message, as the room relays it."""
        return await client.expect(
            f"'{body}' from {nick}",
            lambda s: s.name == "message" and s["type"] == "groupchat" and s["body"] == body and s["from"].resource == nick,
        )

    async def sees(self, client, who, type_=None, **item):
        """A presence of an occupant; `item` are attributes of its muc#user item, `code` a status."""
        code = item.pop("code", None)

        def fits(stanza):
            if stanza.name != "presence" or stanza["from"] != f"{self.jid}/{who}" or stanza.xml.get("type") != type_:
                return False
            found = stanza.xml.find(f"{USER}x/{USER}item")
            codes = [int(status.get("code")) for status in stanza.xml.findall(f"{USER}x/{USER}status")]
            return (
                found is not None
                and all(found.get(key) == value for key, value in item.items())
                and (code is None or code in codes)
            )

        return await client.expect(f"presence {type_ or 'available'} {item} {code or ''} of {who}", fits)


async def refused(condition, awaitable):
    """The join or request must fail with this condition."""
    try:
        await awaitable
    except (IqError, PresenceError) as error:
        check(error.condition == condition, f"expected {condition}, got {error.condition}")
    else:
        raise Failure(f"expected {condition}, and it succeeded")


async def create_and_configure(stage):
    """A room is locked for others until its creator has configured it."""
    a, b = await stage.pair()
    room = Room(stage)
    await room.enter(a, "romeo")
    for plugin in PLUGINS:
        b.register_plugin(plugin)
    await refused("item-not-found", b.plugin["xep_0045"].join_muc_wait(room.jid, "juliet", timeout=TIMEOUT))
    muc = a.plugin["xep_0045"]
    form = await muc.get_room_config(room.jid, timeout=TIMEOUT)
    form["type"] = "submit"
    form.set_values({"muc#roomconfig_roomname": "The Orchard", "muc#roomconfig_whois": "anyone"})
    await muc.set_room_config(room.jid, form, timeout=TIMEOUT)
    await room.enter(b, "juliet")
    info = await b.plugin["xep_0030"].get_info(room.jid, timeout=TIMEOUT)
    names = [identity[3] for identity in info["disco_info"]["identities"]]
    features = info["disco_info"]["features"]
    check(names == ["The Orchard"], f"the name is {names}")
    for feature in (MUC, "muc_nonanonymous", "muc_temporary", "urn:xmpp:sid:0", "urn:xmpp:occupant-id:0"):
        check(feature in features, f"no {feature} in {features}")


async def join_and_talk(stage):
    """Both see each other, receive everything in one order with ids of the room, and newcomers get subject and history."""
    a, b = await stage.pair()
    room = Room(stage)
    await room.create(a, "romeo")
    await room.enter(b, "juliet")
    await room.sees(a, "juliet", role="participant", affiliation="none")
    for number in range(10):
        room.say(a, f"a{number}")
        room.say(b, f"b{number}")
    for listener in (a, b):
        for number in range(10):
            copy = await room.receives(listener, f"a{number}", "romeo")
            check(copy["stanza_id"]["by"] == room.jid, f"no stanza-id of the room in {copy}")
            check(copy["occupant-id"]["id"], f"no occupant-id in {copy}")
            await room.receives(listener, f"b{number}", "juliet")
    a.plugin["xep_0045"].set_subject(room.jid, "Balconies")
    await b.expect("the subject", lambda s: s.name == "message" and s["subject"] == "Balconies")
    b.send_message(f"{room.jid}/romeo", "only for you", mtype="chat")
    await a.chat("only for you", f"{room.jid}/juliet")
    late = await stage.online("b", "two")
    result = await room.enter(late, "nurse", maxstanzas=3)
    check(result.subject["subject"] == "Balconies", f"the subject is {result.subject}")
    check(len(result.history) == 3, f"history of {len(result.history)} messages")
    nicks = {presence["from"].resource for presence in result.occupants}
    check({"romeo", "juliet"} <= nicks, f"occupants {nicks}")
    new = await late.plugin["xep_0045"].set_self_nick(room.jid, "angelica")
    check(new == "angelica", f"the nickname is {new}")
    await room.sees(a, "nurse", "unavailable", code=303, nick="angelica")
    await room.sees(a, "angelica")


async def invitations(stage):
    """Mediated (7.8.2) and direct (XEP-0249) invitations; into a members-only room the mediated one makes a member."""
    a, b = await stage.pair()
    room = Room(stage)
    await room.create(a, "romeo", membersonly=True)
    for plugin in PLUGINS:
        b.register_plugin(plugin)
    await refused("registration-required", b.plugin["xep_0045"].join_muc_wait(room.jid, "juliet", timeout=TIMEOUT))
    a.plugin["xep_0045"].invite(room.jid, b.boundjid.bare, "Hey, come in")
    invitation = await b.expect(
        "the invitation", lambda s: s.name == "message" and s.xml.find(f"{USER}x/{USER}invite") is not None
    )
    check(invitation["from"] == room.jid, f"the invitation is {invitation}")
    check(invitation["muc"]["invite"]["reason"] == "Hey, come in", f"the reason of {invitation}")
    await room.enter(b, "juliet")
    await room.sees(a, "juliet", affiliation="member")
    a.plugin["xep_0249"].send_invitation(b.boundjid, room.jid, reason="again")
    direct = await b.expect("the direct invitation", lambda s: s.name == "message" and s["groupchat_invite"]["jid"])
    check(direct["groupchat_invite"]["jid"] == room.jid, f"the direct invitation is {direct}")


async def kick_and_ban(stage):
    """8.2 and 9.1: the removed one learns why, others see it, and only the banned one cannot return."""
    a, b = await stage.pair()
    room = Room(stage)
    await room.create(a, "romeo")
    await room.enter(b, "juliet")
    muc = a.plugin["xep_0045"]
    await refused("forbidden", b.plugin["xep_0045"].set_role(room.jid, "romeo", "none", timeout=TIMEOUT))
    await muc.set_role(room.jid, "juliet", "none", reason="too loud", timeout=TIMEOUT)
    kicked = await room.sees(b, "juliet", "unavailable", code=307)
    check("too loud" in str(kicked), f"no reason in {kicked}")
    await room.sees(a, "juliet", "unavailable", code=307)
    await room.enter(b, "juliet")
    await muc.set_affiliation(room.jid, "outcast", jid=b.boundjid.bare, timeout=TIMEOUT)
    await room.sees(b, "juliet", "unavailable", code=301)
    await refused("forbidden", b.plugin["xep_0045"].join_muc_wait(room.jid, "juliet", timeout=TIMEOUT))
    banned = await muc.get_affiliation_list(room.jid, "outcast", timeout=TIMEOUT)
    check([str(jid) for jid in banned] == [b.boundjid.bare], f"banned are {banned}")
    await muc.set_affiliation(room.jid, "none", jid=b.boundjid.bare, timeout=TIMEOUT)
    await room.enter(b, "juliet")


async def voice(stage):
    """7.13 and 8.3: a visitor of a moderated room asks for voice."""
    a, b = await stage.pair()
    room = Room(stage)
    await room.create(a, "romeo", moderatedroom=True)
    await room.enter(b, "juliet")
    await room.sees(a, "juliet", role="visitor")
    room.say(b, "without voice")
    await b.expect("the refusal", lambda s: s.name == "message" and s["type"] == "error" and s["error"]["condition"] == "forbidden")
    b.plugin["xep_0045"].request_voice(room.jid, "participant")
    await a.expect("the request", lambda s: s.name == "message" and "muc#request" in str(s))
    await a.plugin["xep_0045"].set_role(room.jid, "juliet", "participant", timeout=TIMEOUT)
    await room.sees(b, "juliet", role="participant")
    room.say(b, "with voice")
    await room.receives(a, "with voice", "juliet")


async def moderation(stage):
    """XEP-0424 and XEP-0425: the author and a moderator retract messages; others learn of it."""
    a, b = await stage.pair()
    room = Room(stage)
    await room.create(a, "romeo")
    await room.enter(b, "juliet")
    room.say(b, "spam")
    spam = (await room.receives(a, "spam", "juliet"))["stanza_id"]["id"]
    await refused("forbidden", b.plugin["xep_0425"].moderate(room.jid, spam, timeout=TIMEOUT))
    await a.plugin["xep_0425"].moderate(room.jid, spam, "off topic", timeout=TIMEOUT)
    retraction = await b.expect(
        "the moderation", lambda s: s.name == "message" and s.xml.find("{urn:xmpp:message-retract:1}retract") is not None
    )
    check(retraction["from"] == room.jid and retraction["retract"]["id"] == spam, f"the moderation is {retraction}")
    check("off topic" in str(retraction), f"no reason in {retraction}")
    late = await stage.online("b", "two")
    result = await room.enter(late, "nurse")
    check(all(message["body"] != "spam" for message in result.history), f"history {result.history}")


async def rejoin_after_a_cut(stage):
    """A connection breaks: others see the occupant leave; it notices by XEP-0410 and enters again with what it missed."""
    a, b = await stage.pair()
    room = Room(stage)
    await room.create(a, "romeo")
    await room.enter(b, "juliet")
    own = f"{room.jid}/juliet"
    await b.plugin["xep_0199"].send_ping(JID(own), timeout=TIMEOUT)
    stage.clients.remove(b)
    b.abort()
    await room.sees(a, "juliet", "unavailable")
    room.say(a, "while you were away")
    await room.receives(a, "while you were away", "romeo")
    again = await stage.online("b", "one")
    await refused("not-acceptable", again.plugin["xep_0199"].send_ping(JID(own), timeout=TIMEOUT))
    result = await room.enter(again, "juliet")
    bodies = [message["body"] for message in result.history]
    check(bodies == ["while you were away"], f"history {bodies}")
    await again.plugin["xep_0199"].send_ping(JID(own), timeout=TIMEOUT)


async def destroyed_room(stage):
    """10.9: everybody learns where the conversation goes on."""
    a, b = await stage.pair()
    room = Room(stage)
    await room.create(a, "romeo")
    await room.enter(b, "juliet")
    await refused("forbidden", b.plugin["xep_0045"].destroy(room.jid, timeout=TIMEOUT))
    venue = f"tomb@conference.{stage.settings.domain}"
    await a.plugin["xep_0045"].destroy(room.jid, "dawn", altroom=venue, timeout=TIMEOUT)
    end = await room.sees(b, "juliet", "unavailable")
    check(venue in str(end) and "dawn" in str(end), f"the end is {end}")
    rooms = await b.plugin["xep_0030"].get_items(f"conference.{stage.settings.domain}", timeout=TIMEOUT)
    check(str(room.jid) not in str(rooms), f"it is still listed: {rooms}")


SCENARIOS = (
    create_and_configure,
    join_and_talk,
    invitations,
    kick_and_ban,
    voice,
    moderation,
    rejoin_after_a_cut,
    destroyed_room,
)

if __name__ == "__main__":
    main(SCENARIOS)
