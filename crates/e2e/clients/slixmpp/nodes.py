"""Scenarios of slixmpp with PubSub and personal eventing, one function each; settings as in harness.py.

XEP-0060 and 0248 at pubsub.XMPP_DOMAIN; on accounts XEP-0163 with 0084, 0107 and 0402, by slixmpp's plugins.
"""

import uuid

from slixmpp.exceptions import IqError
from slixmpp.xmlstream import ET

from harness import TIMEOUT, Failure, befriend, main
from scenarios import check

EVENT = "{http://jabber.org/protocol/pubsub#event}"
SHIM = "{http://jabber.org/protocol/shim}"
METADATA = "urn:xmpp:avatar:metadata"
BOOKMARKS = "urn:xmpp:bookmarks:1"
PRIVATE = {"pubsub#persist_items": "true", "pubsub#max_items": "max", "pubsub#access_model": "whitelist", "pubsub#send_last_published_item": "never"}
PLUGINS = ("xep_0060", "xep_0084", "xep_0107", "xep_0115", "xep_0163", "xep_0402")


class Nodes:
    """The service, and a node of one scenario."""

    def __init__(self, stage):
        self.service = f"pubsub.{stage.settings.domain}"
        self.name = f"node-{uuid.uuid4().hex[:12]}"

    def use(self, *clients):
        for client in clients:
            for plugin in PLUGINS:
                client.register_plugin(plugin)

    def form(self, client, kind, **fields):
        form = client.plugin["xep_0004"].make_form(ftype="submit")
        form.add_field(var="FORM_TYPE", ftype="hidden", value=f"http://jabber.org/protocol/pubsub#{kind}")
        for name, value in fields.items():
            form.add_field(var=f"pubsub#{name}", value=value)
        return form

    async def create(self, client, name=None, **fields):
        config = self.form(client, "node_config", **fields) if fields else None
        await client.plugin["xep_0060"].create_node(self.service, name or self.name, config=config, timeout=TIMEOUT)

    async def publish(self, client, id_, text, name=None):
        entry = ET.Element("{http://www.w3.org/2005/Atom}entry")
        entry.text = text
        await client.plugin["xep_0060"].publish(self.service, name or self.name, id=id_, payload=entry, timeout=TIMEOUT)

    async def receives(self, client, path, node=None, sender=None, **wanted):
        """An event with an element at this path below the event's content, with these attributes."""

        def fits(stanza):
            if stanza.name != "message" or stanza["from"].bare != (sender or self.service):
                return False
            event = stanza.xml.find(f"{EVENT}event")
            if event is None or len(event) == 0 or event[0].get("node") != (node or self.name):
                return False
            found = event[0] if not path else event[0].find(f"{EVENT}{path}")
            return found is not None and all(found.get(key) == value for key, value in wanted.items())

        return await client.expect(f"event {path} {wanted} of {node or self.name}", fits)


async def refused(condition, awaitable):
    try:
        await awaitable
    except IqError as error:
        check(error.condition == condition, f"expected {condition}, got {error.condition}")
    else:
        raise Failure(f"expected {condition}, and it succeeded")


async def with_interest(stage, who, resource, *nodes):
    """A client that announces `+notify` for these nodes. Its capabilities are new, so the server asks for them, and knows them then."""
    client = stage.client(who, resource)
    for plugin in PLUGINS:
        client.register_plugin(plugin)
    await client.login()
    client.plugin["xep_0030"].add_feature(f"urn:example:{uuid.uuid4()}")
    for node in nodes:
        client.plugin["xep_0163"].add_interest(node)
    await client.plugin["xep_0115"].update_caps(broadcast=False)
    await client.roster_items()
    client.say(None)
    await client.presence(None, client.boundjid.full)
    query = "{http://jabber.org/protocol/disco#info}query"
    await client.expect("query for capabilities", lambda s: s.name == "iq" and s["type"] == "get" and s.xml.find(query) is not None)
    await client.settle()
    return client


async def publish_and_subscribe(stage):
    a, b = await stage.pair()
    nodes = Nodes(stage)
    nodes.use(a, b)
    pubsub = b.plugin["xep_0060"]
    await nodes.create(a, title="Musings", notify_retract="1")
    await refused("conflict", nodes.create(a))
    await refused("item-not-found", pubsub.subscribe(nodes.service, "no-such-node", timeout=TIMEOUT))
    await pubsub.subscribe(nodes.service, nodes.name, timeout=TIMEOUT)
    await refused("forbidden", nodes.publish(b, "x", "not a publisher"))
    for number in range(5):
        await nodes.publish(a, str(number), f"item {number}")
    for number in range(5):
        await nodes.receives(b, "item", id=str(number))
    items = await pubsub.get_items(nodes.service, nodes.name, timeout=TIMEOUT)
    ids = [item["id"] for item in items["pubsub"]["items"]]
    check(ids == ["0", "1", "2", "3", "4"], f"items are {ids}")
    await a.plugin["xep_0060"].retract(nodes.service, nodes.name, "3", notify=True, timeout=TIMEOUT)
    await nodes.receives(b, "retract", id="3")
    own = await pubsub.get_subscriptions(nodes.service, timeout=TIMEOUT)
    check(nodes.name in str(own), f"subscriptions are {own}")
    await a.plugin["xep_0060"].delete_node(nodes.service, nodes.name, timeout=TIMEOUT)
    await nodes.receives(b, "")
    await refused("item-not-found", pubsub.get_items(nodes.service, nodes.name, timeout=TIMEOUT))


async def approval(stage):
    """8.6: an owner admits a subscriber by a form."""
    a, b = await stage.pair()
    nodes = Nodes(stage)
    nodes.use(a, b)
    await nodes.create(a, access_model="authorize")
    answer = await b.plugin["xep_0060"].subscribe(nodes.service, nodes.name, timeout=TIMEOUT)
    check(answer["pubsub"]["subscription"]["subscription"] == "pending", f"the answer is {answer}")
    request = await a.expect("request", lambda s: s.name == "message" and "pubsub#allow" in str(s))
    reply = a.make_message(nodes.service)
    form = request["form"]
    form["type"] = "submit"
    form.set_values({"pubsub#allow": True})
    reply.append(form)
    reply.send()
    await b.expect("approval", lambda s: s.name == "message" and 'subscription="subscribed"' in str(s))
    await nodes.publish(a, "1", "for members")
    await nodes.receives(b, "item", id="1")
    await a.plugin["xep_0060"].delete_node(nodes.service, nodes.name, timeout=TIMEOUT)


async def collection(stage):
    """XEP-0248: items of a leaf arrive through its collection."""
    a, b = await stage.pair()
    nodes = Nodes(stage)
    nodes.use(a, b)
    blogs = f"{nodes.name}-blogs"
    await nodes.create(a, blogs, node_type="collection")
    await nodes.create(a, collection=blogs)
    options = nodes.form(b, "subscribe_options", subscription_type="items", subscription_depth="all")
    await b.plugin["xep_0060"].subscribe(nodes.service, blogs, options=options, timeout=TIMEOUT)
    await nodes.publish(a, "1", "through the collection")
    event = await nodes.receives(b, "item", id="1")
    headers = [header.text for header in event.xml.iter(f"{SHIM}header") if header.get("name") == "Collection"]
    check(headers == [blogs], f"the collection is {headers} in {event}")
    listed = await b.plugin["xep_0030"].get_items(nodes.service, blogs, timeout=TIMEOUT)
    check(nodes.name in str(listed), f"the collection has {listed}")
    await a.plugin["xep_0060"].delete_node(nodes.service, blogs, timeout=TIMEOUT)
    await a.plugin["xep_0060"].delete_node(nodes.service, nodes.name, timeout=TIMEOUT)


async def avatar(stage):
    """XEP-0084: a contact that is interested learns of the avatar, reads it, and receives it again with its next login."""
    a, b = await stage.pair()
    nodes = Nodes(stage)
    nodes.use(a)
    await stage.leave(b)
    b = await with_interest(stage, "b", "gallery", METADATA)
    await befriend(a, b)
    image = uuid.uuid4().bytes
    id_ = a.plugin["xep_0084"].generate_id(image)
    await a.plugin["xep_0084"].publish_avatar(image, timeout=TIMEOUT)
    info = {"id": id_, "bytes": len(image), "type": "image/png"}
    await a.plugin["xep_0084"].publish_avatar_metadata([info], timeout=TIMEOUT)
    owner = a.boundjid.bare
    await nodes.receives(b, "item", node=METADATA, sender=owner, id=id_)
    found = await b.plugin["xep_0084"].retrieve_avatar(owner, id_, timeout=TIMEOUT)
    data = found["pubsub"]["items"]["item"]["avatar_data"]["value"]
    check(data == image, f"the image is {data}")
    await stage.leave(b)
    b = await with_interest(stage, "b", "gallery", METADATA)
    await nodes.receives(b, "item", node=METADATA, sender=owner, id=id_)


async def mood(stage):
    """XEP-0107: a contact receives it, and one that does not announce an interest does not."""
    a, b = await stage.pair()
    nodes = Nodes(stage)
    nodes.use(a, b)
    await befriend(a, b)
    listener = await with_interest(stage, "b", "listening", "http://jabber.org/protocol/mood")
    await listener.presence(None, a.boundjid.full)
    b.inbox.clear()
    await a.plugin["xep_0107"].publish_mood("happy", "the sun rises", timeout=TIMEOUT)
    event = await nodes.receives(listener, "item", node="http://jabber.org/protocol/mood", sender=a.boundjid.bare)
    check("the sun rises" in str(event), f"the event is {event}")
    await b.settle()
    received = [stanza for stanza in b.inbox if stanza.name == "message" and "protocol/mood" in str(stanza)]
    check(not received, f"b received {received}")


async def bookmarks_on_two_devices(stage):
    """XEP-0402: another device receives a bookmark, and its removal; nobody else reads them."""
    a, b = await stage.pair()
    nodes = Nodes(stage)
    nodes.use(a, b)
    device = await with_interest(stage, "a", "tablet", BOOKMARKS)
    options = nodes.form(a, "publish-options")
    for var, value in PRIVATE.items():
        options.add_field(var=var, value=value)
    room = f"balcony-{uuid.uuid4().hex[:8]}@conference.{stage.settings.domain}"
    conference = ET.Element(f"{{{BOOKMARKS}}}conference", {"name": "The Balcony", "autojoin": "true"})
    owner = a.boundjid.bare
    await a.plugin["xep_0060"].publish(owner, BOOKMARKS, id=room, payload=conference, options=options, timeout=TIMEOUT)
    event = await nodes.receives(device, "item", node=BOOKMARKS, sender=owner, id=room)
    check("The Balcony" in str(event), f"the event is {event}")
    items = await device.plugin["xep_0060"].get_items(owner, BOOKMARKS, timeout=TIMEOUT)
    kept = {item["id"]: item["conference"]["autojoin"] for item in items["pubsub"]["items"]}
    check(kept.get(room) is True, f"bookmarks are {kept}")
    # XEP-0411: a client that knows only XEP-0048 finds it, too.
    await refused("item-not-found", b.plugin["xep_0060"].get_items(owner, BOOKMARKS, timeout=TIMEOUT))
    await device.plugin["xep_0060"].retract(owner, BOOKMARKS, room, notify=True, timeout=TIMEOUT)
    await nodes.receives(device, "retract", node=BOOKMARKS, sender=owner, id=room)


SCENARIOS = (publish_and_subscribe, approval, collection, avatar, mood, bookmarks_on_two_devices)

if __name__ == "__main__":
    main(SCENARIOS)
