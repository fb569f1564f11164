"""Scenarios of nbxmpp, Gajim's library, with PubSub and personal eventing, one function each; settings as in ../slixmpp/harness.py.

By nbxmpp's modules, as Gajim uses them: nodes of pubsub.XMPP_DOMAIN, avatars (XEP-0084), moods (XEP-0107) and bookmarks (XEP-0402).
"""

import sys
import uuid
from collections import namedtuple

from nbxmpp.modules.user_avatar import Avatar
from nbxmpp.namespaces import Namespace
from nbxmpp.protocol import JID, Presence
from nbxmpp.simplexml import Node
from nbxmpp.structs import BookmarkData, DiscoIdentity

from harness import Settings, run
from scenarios import check

IDENTITY = DiscoIdentity(category="client", type="pc", name="nbxmpp scenario")


def interested(stage, who, resource, *nodes):
    """A client that announces `+notify` for these nodes, as Gajim does. Its capabilities are new, so the server asks for them, and
    knows them then."""
    client = stage.client(who, resource)
    client.connect()
    features = [Namespace.DISCO_INFO, f"urn:example:{uuid.uuid4()}", *(f"{node}+notify" for node in nodes)]
    client.module("EntityCaps").set_caps([IDENTITY], features, "https://example.org")
    client.wait(client.module("Roster").request_roster())
    presence = Presence()
    presence.setTag("c", namespace=Namespace.CAPS, attrs=client.module("EntityCaps").caps._asdict())
    client.client.send_stanza(presence)
    client.expect("own presence", lambda s: s.name == "presence" and s.sender == client.full)
    client.expect("query for capabilities", lambda s: s.name == "iq" and s.type == "get" and "disco#info" in s.text)
    client.settle()
    return client


def event(client, node, sender, *texts):
    return client.expect(
        f"event of {node} with {texts}",
        lambda s: s.name == "message" and s.sender == sender and f'node="{node}"' in s.text and all(text in s.text for text in texts),
    )


def befriend(a, b):
    """Each sees the presence of the other; what an earlier scenario has left is kept."""
    for one, other in ((a, b), (b, a)):
        one.presence(to=other.bare, typ="subscribe")
        other.expect("request", lambda s: s.name == "presence" and s.sender.startswith(one.bare) and s.type == "subscribe")
        other.presence(to=one.bare, typ="subscribed")
        one.expect("approval", lambda s: s.name == "presence" and s.sender.startswith(other.bare) and s.type == "subscribed")


def forget(client, other):
    client.ask("set", f"<query xmlns='jabber:iq:roster'><item jid='{other}' subscription='remove'/></query>")
    client.settle()
    client.inbox.clear()


def refused(client, condition, task):
    result = client.outcome(task)
    check(condition in repr(result) + str(getattr(result, "condition", "")), f"expected {condition}, got {result!r}")


def publish_and_subscribe(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    service, node = f"pubsub.{stage.settings.domain}", f"node-{uuid.uuid4().hex[:12]}"
    a.ask("set", f"<pubsub xmlns='{Namespace.PUBSUB}'><create node='{node}'/></pubsub>", to=service)
    entry = Node(node="<entry xmlns='http://www.w3.org/2005/Atom'><title>Soliloquy</title></entry>")
    to = JID.from_string(service)
    refused(b, "forbidden", b.module("PubSub").publish(node, entry, "0", jid=to))
    b.wait(b.module("PubSub").subscribe(node, service))
    for number in range(5):
        a.wait(a.module("PubSub").publish(node, entry, str(number), jid=to))
    for number in range(5):
        event(b, node, service, f'id="{number}"', "Soliloquy")
    items = b.wait(b.module("PubSub").request_items(node, jid=to))
    check([item.getAttr("id") for item in items] == ["0", "1", "2", "3", "4"], f"items are {items}")
    a.wait(a.module("PubSub").retract(node, "3", jid=to))
    event(b, node, service, "<retract", 'id="3"')
    b.wait(b.module("PubSub").unsubscribe(node, service))
    a.wait(a.module("PubSub").delete(node, jid=to))
    refused(b, "item-not-found", b.module("PubSub").request_items(node, jid=to))


def avatar(stage):
    a, b = stage.online("a", "one"), interested(stage, "b", "gallery", Namespace.AVATAR_METADATA)
    forget(a, b.bare)
    forget(b, a.bare)
    befriend(a, b)
    image = Avatar()
    image.add_image_source(uuid.uuid4().bytes, "image/png", 1, 1)
    a.wait(a.module("UserAvatar").set_avatar(image))
    (info, data), = image.data.items()
    event(b, Namespace.AVATAR_METADATA, a.bare, info.id)
    owner = JID.from_string(a.bare)
    found = b.wait(b.module("UserAvatar").request_avatar_data(info.id, owner))
    check(found.data == data.data, f"the image is {found}")
    b.leave()
    again = interested(stage, "b", "gallery", Namespace.AVATAR_METADATA)
    event(again, Namespace.AVATAR_METADATA, a.bare, info.id)
    # Everybody may see it: the server copies it to the vCard, for clients that know no other avatars.
    a.wait(a.module("UserAvatar").set_avatar(image, public=True))
    again.expect("hash of the vCard", lambda s: s.name == "presence" and s.sender == a.full and info.id in s.text)
    card = again.ask("get", "<vCard xmlns='vcard-temp'/>", to=a.bare)
    check("BINVAL" in str(card), f"the vCard is {card}")


def mood(stage):
    a, b = stage.online("a", "one"), interested(stage, "b", "listening", Namespace.MOOD)
    forget(a, b.bare)
    forget(b, a.bare)
    befriend(a, b)
    # nbxmpp 7.4 reads a field that its own MoodData does not have.
    a.wait(a.module("Mood").set_mood(namedtuple("Mood", "mood text")("happy", "the sun rises")))
    event(b, Namespace.MOOD, a.bare, "<happy", "the sun rises")


def bookmarks_on_two_devices(stage):
    a, tablet = stage.online("a", "one"), interested(stage, "a", "tablet", Namespace.BOOKMARKS_1)
    room = f"balcony-{uuid.uuid4().hex[:8]}@conference.{stage.settings.domain}"
    bookmark = BookmarkData(jid=JID.from_string(room), name="The Balcony", autojoin=True)
    # Its task is done before the answers arrive.
    a.module("NativeBookmarks").store_bookmarks([bookmark])
    event(tablet, Namespace.BOOKMARKS_1, a.bare, f'id="{room}"', "The Balcony")
    kept = {str(one.jid): one.autojoin for one in tablet.wait(tablet.module("NativeBookmarks").request_bookmarks())}
    check(kept.get(room) is True, f"bookmarks are {kept}")
    tablet.wait(tablet.module("NativeBookmarks").retract_bookmark(JID.from_string(room)))
    event(tablet, Namespace.BOOKMARKS_1, a.bare, "<retract", room)


SCENARIOS = (publish_and_subscribe, avatar, mood, bookmarks_on_two_devices)

if __name__ == "__main__":
    wanted = sys.argv[1:]
    sys.exit(run([it for it in SCENARIOS if not wanted or it.__name__ in wanted], Settings()))
