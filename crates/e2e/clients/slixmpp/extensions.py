"""Scenarios of slixmpp for extensions of a running node, one function each; settings as in harness.py.

XEP-0012, 0049, 0050 with 0133, 0054, 0055 with 0059, 0065, 0077, 0115, 0128, 0157, 0191, 0198, 0215, 0280, 0352, 0363. The first user
is an administrator of the node. Not implemented: what slixmpp does not support (SASL2 and its extensions; see xmppjs).
"""

import asyncio
import io

import aiohttp
import yarl
from slixmpp.exceptions import IqError
from slixmpp.xmlstream import ET

from harness import TIMEOUT, Failure, befriend, main
from scenarios import check

COMMANDS = "http://jabber.org/protocol/commands"
ADMIN = "http://jabber.org/protocol/admin#"
DATA = "{jabber:x:data}"


async def iq(client, type_, payload, to=None):
    """Sends a payload written as XML; returns the answer's payload, or raises IqError."""
    stanza = client.make_iq(ito=to, itype=type_)
    stanza.append(ET.fromstring(payload))
    answer = await stanza.send(timeout=TIMEOUT)
    return next(iter(answer.xml), None)


async def refused(condition, awaitable):
    """The request must fail with this condition."""
    try:
        answer = await awaitable
    except IqError as error:
        check(error.condition == condition, f"expected {condition}, got {error.condition}")
    else:
        raise Failure(f"expected {condition}, got {answer if answer is None else ET.tostring(answer)}")


def is_message(body, **wanted):
    """A filter for `expect`: a message that holds a text anywhere."""
    return lambda s: s.name == "message" and body in str(s) and all(str(s[k]) == v for k, v in wanted.items())


async def carbons(stage):
    """XEP-0280: the other client sees what one of them sends and gets, and nobody sees what is private."""
    one, b = await stage.pair()
    two = await stage.online("a", "two")
    await iq(two, "set", "<enable xmlns='urn:xmpp:carbons:2'/>")
    b.send_message(one.boundjid, "only for one", mtype="chat")
    await one.chat("only for one", b.boundjid.full)
    copy = await two.expect("received carbon", is_message("only for one"))
    check("received" in str(copy) and copy["from"] == two.boundjid.bare, f"the copy is {copy}")
    one.send_message(b.boundjid, "said by one", mtype="chat")
    await b.chat("said by one", one.boundjid.full)
    copy = await two.expect("sent carbon", is_message("said by one"))
    check("sent" in str(copy) and copy["from"] == two.boundjid.bare, f"the copy is {copy}")
    private = one.make_message(b.boundjid, "nobody else's business", mtype="chat")
    private.append(ET.fromstring("<private xmlns='urn:xmpp:carbons:2'/>"))
    private.append(ET.fromstring("<no-copy xmlns='urn:xmpp:hints'/>"))
    private.send()
    await b.chat("nobody else's business", one.boundjid.full)
    await iq(two, "set", "<disable xmlns='urn:xmpp:carbons:2'/>")
    b.send_message(one.boundjid, "after the end", mtype="chat")
    await one.chat("after the end", b.boundjid.full)
    await two.settle()
    seen = [str(s) for s in two.inbox if getattr(s, "name", "") == "message"]
    check(not seen, f"the other client got {seen}")
    check(not [s for s in one.inbox if "carbons" in str(s)], "a copy came to who did not ask")


async def forged_carbons_stay_with_the_forger(stage):
    a, b = await stage.pair()
    forged = b.make_message(a.boundjid, mtype="chat")
    forged.append(ET.fromstring(
        "<received xmlns='urn:xmpp:carbons:2'><forwarded xmlns='urn:xmpp:forward:0'>"
        f"<message xmlns='jabber:client' from='boss@{a.boundjid.domain}' type='chat'><body>send money</body></message>"
        "</forwarded></received>"
    ))
    forged.send()
    await b.settle()
    await a.settle()
    for stanza in a.inbox:
        check("send money" not in str(stanza) or stanza["from"].bare != a.boundjid.bare, f"believed: {stanza}")


async def blocking(stage):
    """XEP-0191: nothing comes, nothing goes, and unblocking shows the contact again."""
    a, b = await stage.pair()
    await befriend(a, b)
    await iq(a, "get", "<blocklist xmlns='urn:xmpp:blocking'/>")
    block = f"<block xmlns='urn:xmpp:blocking'><item jid='{b.boundjid.bare}'/></block>"
    await iq(a, "set", block)
    await a.expect("push", lambda s: s.name == "iq" and s["type"] == "set" and "urn:xmpp:blocking" in str(s))
    await b.presence("unavailable", a.boundjid.full)
    b.send_message(a.boundjid, "hello?", mtype="chat")
    error = await b.expect("error", lambda s: s.name == "message" and s["type"] == "error")
    check("service-unavailable" in str(error), f"the blocked user gets {error}")
    await refused("service-unavailable", iq(b, "get", "<query xmlns='jabber:iq:version'/>", a.boundjid))
    a.send_message(b.boundjid, "no", mtype="chat")
    error = await a.expect("error", lambda s: s.name == "message" and s["type"] == "error")
    check("not-acceptable" in str(error) and "urn:xmpp:blocking:errors" in str(error), f"the blocking user gets {error}")
    b.send_presence(pstatus="still there")
    await b.settle()
    await iq(a, "set", f"<unblock xmlns='urn:xmpp:blocking'><item jid='{b.boundjid.bare}'/></unblock>")
    await b.presence(None, a.boundjid.full)
    await a.settle()
    listed = await iq(a, "get", "<blocklist xmlns='urn:xmpp:blocking'/>")
    check(not len(listed), f"still listed: {ET.tostring(listed)}")
    b.send_message(a.boundjid, "and now?", mtype="chat")
    await a.chat("and now?", b.boundjid.full)


async def idle_clients_are_left_alone(stage):
    """XEP-0352: presence waits, in its newest form, until something important comes."""
    a, b = await stage.pair()
    await befriend(a, b)
    await a.settle()
    a.send_raw("<inactive xmlns='urn:xmpp:csi:0'/>")
    await a.settle()
    # An acknowledgement (XEP-0198) that the client still sends releases what waits, as all that it sends does.
    for _ in range(3):
        a.inbox.clear()
        for status in ("one", "two", "three"):
            b.send_presence(pstatus=status)
        await b.settle()
        if not a.inbox:
            break
    check(not a.inbox, f"woken by {a.inbox}")
    b.send_message(a.boundjid, "wake up", mtype="chat")
    await a.chat("wake up", b.boundjid.full)
    seen = [s["status"] for s in a.inbox if s.name == "presence"]
    check(seen == ["three"], f"presence before the message: {seen}")
    a.send_raw("<active xmlns='urn:xmpp:csi:0'/>")
    b.send_presence(pstatus="four")
    await a.presence(None, b.boundjid.full, status="four")


async def vcard(stage):
    """XEP-0054 and 0153; one of a megabyte is refused and changes nothing."""
    a, b = await stage.pair()
    await iq(a, "set", "<vCard xmlns='vcard-temp'><FN>Romeo Montague</FN><NICKNAME>Romeo</NICKNAME></vCard>")
    seen = await iq(b, "get", "<vCard xmlns='vcard-temp'/>", a.boundjid.bare)
    check(seen.findtext("{vcard-temp}FN") == "Romeo Montague", f"the vCard is {ET.tostring(seen)}")
    huge = f"<vCard xmlns='vcard-temp'><DESC>{'x' * 150_000}</DESC></vCard>"
    try:
        await iq(a, "set", huge)
    except IqError:
        pass
    else:
        raise Failure("a vCard of 150 kB was taken")
    seen = await iq(b, "get", "<vCard xmlns='vcard-temp'/>", a.boundjid.bare)
    check(seen.findtext("{vcard-temp}NICKNAME") == "Romeo", f"the vCard is {ET.tostring(seen)[:200]}")
    await refused("forbidden", iq(b, "set", "<vCard xmlns='vcard-temp'/>", a.boundjid.bare))


async def private_storage(stage):
    """XEP-0049: kept over logins, and nobody else's business."""
    a, b = await stage.pair()
    await iq(a, "set", "<query xmlns='jabber:iq:private'><x xmlns='urn:test:a'><y/></x></query>")
    await stage.leave(a)
    again = await stage.client("a", "again").login()
    got = await iq(again, "get", "<query xmlns='jabber:iq:private'><x xmlns='urn:test:a'/></query>")
    check(got.find("{urn:test:a}x/{urn:test:a}y") is not None, f"got {ET.tostring(got)}")
    try:
        await iq(b, "get", "<query xmlns='jabber:iq:private'><x xmlns='urn:test:a'/></query>", again.boundjid.bare)
    except IqError as error:
        check(error.condition in ("forbidden", "service-unavailable"), f"another user got {error.condition}")
    else:
        raise Failure("another user read private storage")


async def last_activity(stage):
    """XEP-0012, of the server, of a friend who left, and of a user without a subscription."""
    a, b = await stage.pair()
    uptime = await iq(a, "get", "<query xmlns='jabber:iq:last'/>", a.boundjid.domain)
    check(int(uptime.get("seconds")) < 86_400, f"uptime is {ET.tostring(uptime)}")
    await refused("forbidden", iq(a, "get", "<query xmlns='jabber:iq:last'/>", b.boundjid.bare))
    await befriend(a, b)
    address = b.boundjid.bare
    b.send_presence(ptype="unavailable", pstatus="good night")
    await a.presence("unavailable", b.boundjid.full)
    await stage.leave(b)
    await a.settle()
    last = await iq(a, "get", "<query xmlns='jabber:iq:last'/>", address)
    check(int(last.get("seconds")) < 60 and last.text == "good night", f"last activity is {ET.tostring(last)}")


async def change_the_password(stage):
    """XEP-0077 section 3.3."""
    a = await stage.client("a", "one").login()
    change = "<query xmlns='jabber:iq:register'><username>{}</username><password>{}</password></query>"
    await iq(a, "set", change.format(a.boundjid.local, "quite another one"), a.boundjid.domain)
    await stage.leave(a)
    try:
        await stage.client("a", "old", mechanism="SCRAM-SHA-1").login()
    except Failure as failure:
        check(str(failure) == "not-authorized", f"the old password: {failure}")
    else:
        raise Failure("the old password still logs in")
    again = await stage.client("a", "two", password="quite another one").login()
    await iq(again, "set", change.format(again.boundjid.local, stage.settings.password), again.boundjid.domain)


async def execute(client, command, fields=None, to=None):
    """Runs an ad-hoc command to its end with these fields; returns the last command element."""
    to = to or client.boundjid.domain
    node = command if ":" in command else ADMIN + command
    answer = await iq(client, "set", f"<command xmlns='{COMMANDS}' node='{node}' action='execute'/>", to)
    if answer.get("status") != "executing":
        return answer
    form = "".join(
        f"<field var='{var}'>" + "".join(f"<value>{v}</value>" for v in values) + "</field>"
        for var, values in (fields or {}).items()
    )
    return await iq(
        client,
        "set",
        f"<command xmlns='{COMMANDS}' node='{node}' sessionid='{answer.get('sessionid')}' action='complete'>"
        f"<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>"
        f"<value>http://jabber.org/protocol/admin</value></field>{form}</x></command>",
        to,
    )


def values(command, var):
    """The values of one field of a command's result."""
    for field in command.iter(DATA + "field"):
        if field.get("var") == var:
            return [value.text for value in field.iter(DATA + "value")]
    return []


async def administration(stage):
    """XEP-0050 and 0133: an account's whole life, by an administrator and by nobody else."""
    a, b = await stage.pair()
    domain = a.boundjid.domain
    items = await iq(a, "get", f"<query xmlns='http://jabber.org/protocol/disco#items' node='{COMMANDS}'/>", domain)
    nodes = {item.get("node").removeprefix(ADMIN) for item in items}
    wanted = {
        "add-user", "delete-user", "disable-user", "reenable-user", "end-user-session", "change-user-password",
        "get-user-roster", "get-user-lastlogin", "get-registered-users-num", "get-online-users-num",
        "get-registered-users-list", "get-online-users-list", "announce", "set-motd", "edit-motd", "delete-motd",
        "set-welcome", "edit-admin", "shutdown",
    }
    check(wanted <= nodes, f"missing: {sorted(wanted - nodes)} of {sorted(nodes)}")
    await refused("forbidden", execute(b, "get-online-users-num"))
    mercutio = f"mercutio@{domain}"
    fields = {"accountjid": [mercutio], "password": ["a plague o' both"], "password-verify": ["a plague o' both"]}
    done = await execute(a, "add-user", {key: [v.replace("'", "&apos;") for v in value] for key, value in fields.items()})
    check(done.get("status") == "completed", f"add-user: {ET.tostring(done)}")
    stage.settings.users["mercutio"] = "mercutio"
    guest = await stage.client("mercutio", "one", password="a plague o' both").login()
    guest.say(None)
    await guest.presence(None, guest.boundjid.full)
    online = values(await execute(a, "get-online-users-list", {"max_items": ["100"]}), "onlineuserjids")
    check(any(mercutio in jid for jid in online), f"online: {online}")
    await execute(a, "announce", {"subject": ["Attention"], "announcement": ["The feast begins"]})
    for client in (b, guest):
        await client.expect("announcement", is_message("The feast begins"))
    # The future of this connection; afterwards there is another one for the next.
    gone = guest.disconnected
    await execute(a, "end-user-session", {"accountjids": [mercutio]})
    await asyncio.wait_for(gone, TIMEOUT)
    stage.clients.remove(guest)
    await execute(a, "disable-user", {"accountjids": [mercutio]})
    try:
        await stage.client("mercutio", "two", password="a plague o' both").login()
    except Failure:
        pass
    else:
        raise Failure("a disabled account logged in")
    await execute(a, "reenable-user", {"accountjids": [mercutio]})
    await stage.leave(await stage.client("mercutio", "three", password="a plague o' both").login())
    await execute(a, "delete-user", {"accountjids": [mercutio]})
    try:
        await stage.client("mercutio", "four", password="a plague o' both").login()
    except Failure:
        pass
    else:
        raise Failure("a deleted account logged in")
    del stage.settings.users["mercutio"]


async def message_of_the_day(stage):
    """XEP-0133 sections 4.24 to 4.26: each user sees it once."""
    a = await stage.blank("a", "one")
    await execute(a, "set-motd", {"motd": ["Two households, both alike"]})
    b = await stage.online("b", "one")
    await b.expect("message of the day", is_message("Two households"))
    await stage.leave(b)
    b = await stage.online("b", "two")
    await b.settle()
    check(not [s for s in b.inbox if "Two households" in str(s)], "it came a second time")
    await execute(a, "delete-motd", {})


async def search(stage):
    """XEP-0055 with pages (0059); characters that mean something elsewhere mean nothing here."""
    a, b = await stage.pair()
    await iq(b, "set", "<vCard xmlns='vcard-temp'><FN>Juliet Capulet</FN><NICKNAME>Jule</NICKNAME></vCard>")
    await iq(a, "get", "<query xmlns='jabber:iq:search'/>", a.boundjid.domain)
    found = await iq(a, "set", "<query xmlns='jabber:iq:search'><nick>Jul</nick></query>", a.boundjid.domain)
    jids = [item.get("jid") for item in found.iter("{jabber:iq:search}item")]
    check(jids == [b.boundjid.bare], f"found {jids}: {ET.tostring(found)}")
    for wild in ("*", "%", "_ul"):
        found = await iq(a, "set", f"<query xmlns='jabber:iq:search'><nick>{wild}</nick></query>", a.boundjid.domain)
        jids = [item.get("jid") for item in found.iter("{jabber:iq:search}item")]
        check(jids == [], f"{wild} found {jids}")


async def what_is_offered(stage):
    """XEP-0030, 0115, 0157: the domain says what it has, and its hash of it is right."""
    a = await stage.blank("a", "one")
    info = await iq(a, "get", "<query xmlns='http://jabber.org/protocol/disco#info'/>", a.boundjid.domain)
    own = await iq(a, "get", "<query xmlns='http://jabber.org/protocol/disco#info'/>", a.boundjid.bare)
    offered = {f.get("var") for tree in (info, own) for f in tree.iter("{http://jabber.org/protocol/disco#info}feature")}
    wanted = {
        "urn:xmpp:carbons:2", "urn:xmpp:blocking", "vcard-temp", "jabber:iq:private", "jabber:iq:last",
        "jabber:iq:search", "http://jabber.org/protocol/commands", "urn:xmpp:ping", "urn:xmpp:extdisco:2",
    }
    # External services are offered where some are configured.
    check(wanted - offered <= {"urn:xmpp:extdisco:2"}, f"not offered: {sorted(wanted - offered)}")


class Received:
    """What a client receives over a bytestream."""

    def __init__(self, client):
        self.data = bytearray()
        self._changed = asyncio.Event()
        self.closed = asyncio.get_running_loop().create_future()
        client.add_event_handler("socks5_data", self._add)
        client.add_event_handler("socks5_closed", lambda _: self.closed.done() or self.closed.set_result(True))

    def _add(self, data):
        self.data += data
        self._changed.set()

    async def size(self, wanted):
        while len(self.data) < wanted:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), TIMEOUT)


async def file_transfer_through_the_proxy(stage):
    """XEP-0065: the proxy is found by discovery, relays a megabyte each way, and is activated by the requester only."""
    a, b = await stage.pair()
    for client in (a, b):
        client.register_plugin("xep_0065")
    b.plugin["xep_0065"].auto_accept = True
    # Requests are delivered to a resource for those who may see its presence.
    b.say(None, a.boundjid.full)
    await a.presence(None, b.boundjid.full)
    at_a, at_b = Received(a), Received(b)
    accepted = asyncio.get_running_loop().create_future()
    b.add_event_handler("socks5_stream", lambda stream: accepted.done() or accepted.set_result(stream))
    sent = bytes(range(256)) * 4096
    outgoing = await asyncio.wait_for(a.plugin["xep_0065"].handshake(b.boundjid, sid="file-1"), TIMEOUT)
    incoming = await asyncio.wait_for(accepted, TIMEOUT)
    await outgoing.write(sent)
    await at_b.size(len(sent))
    await incoming.write(sent[::-1])
    await at_a.size(len(sent))
    check(bytes(at_b.data) == sent and bytes(at_a.data) == sent[::-1], "the bytes have changed on the way")
    outgoing.transport.close()
    await asyncio.wait_for(at_b.closed, TIMEOUT)
    proxy = f"proxy.{a.boundjid.domain}"
    for client, sid in ((a, "file-1"), (b, "file-2")):
        await refused("item-not-found", client.plugin["xep_0065"].activate(proxy, sid, b.boundjid, timeout=TIMEOUT))


async def http_upload(stage):
    """XEP-0363: the service is found by discovery; a file is sent for a message and for a profile, and read by its URL."""
    a = await stage.online("a", "upload")
    a.register_plugin("xep_0363")
    upload = a.plugin["xep_0363"]
    content = bytes(range(256)) * 4096
    for purpose in (None, "profile"):
        url = await asyncio.wait_for(
            upload.upload_file("très cool.jpg", input_file=io.BytesIO(content), purpose=purpose), TIMEOUT
        )
        check(url.endswith("/tr%C3%A8s%20cool.jpg"), f"the address is {url}")
        async with aiohttp.ClientSession() as session:
            async with session.get(yarl.URL(url, encoded=True)) as answer:
                check(answer.status == 200 and await answer.read() == content, f"the answer is {answer}")
                check(answer.headers["Content-Type"] == "image/jpeg", f"the headers are {answer.headers}")
            async with session.get(yarl.URL(url, encoded=True), headers={"Range": "bytes=-256"}) as answer:
                check(answer.status == 206 and await answer.read() == content[-256:], f"the range is {answer}")
    try:
        await upload.request_slot(upload.upload_service, "a", upload.max_file_size + 1, timeout=TIMEOUT)
        raise Failure("a slot for a file that is too large")
    except IqError as error:
        maximum = error.iq.xml.find(".//{urn:xmpp:http:upload:0}max-file-size")
        check(int(maximum.text) == upload.max_file_size, f"the error is {error.iq}")


class Cut:
    """Loses a client's connection without a word."""

    @staticmethod
    async def now(client):
        client.abort()
        await asyncio.wait_for(client.disconnected, TIMEOUT)


async def managed(stage, who, resource):
    """A client under stream management, available."""
    client = stage.client(who, resource)
    client.register_plugin("xep_0198")
    enabled = asyncio.get_running_loop().create_future()
    client.add_event_handler("sm_enabled", lambda _: enabled.done() or enabled.set_result(True))
    await client.login()
    await asyncio.wait_for(enabled, TIMEOUT)
    client.say(None)
    await client.presence(None, client.boundjid.full)
    return client


async def a_lost_connection_is_resumed(stage):
    """XEP-0198: 1 000 messages around a dozen cuts; each comes once, in order, and presence never changes."""
    b = await stage.blank("b", "one")
    await stage.leave(await stage.blank("a", "broom"))
    a = await managed(stage, "a", "phone")
    full = a.boundjid.full
    sent, got = 0, []
    for _ in range(12):
        resumed = asyncio.get_running_loop().create_future()
        handler = lambda _, done=resumed: done.done() or done.set_result(True)  # noqa: E731
        a.add_event_handler("session_resumed", handler)
        for _ in range(40):
            b.send_message(full, f"number {sent}", mtype="chat")
            sent += 1
        await Cut.now(a)
        for _ in range(44):
            b.send_message(full, f"number {sent}", mtype="chat")
            sent += 1
        await b.settle()
        a.inbox[:] = [s for s in a.inbox if not isinstance(s, Failure)]
        a.connect(a.settings.host, a.settings.port)
        await asyncio.wait_for(resumed, TIMEOUT)
        a.del_event_handler("session_resumed", handler)
        a.inbox[:] = [s for s in a.inbox if not isinstance(s, Failure)]
    check(a.boundjid.full == full, f"resumed as {a.boundjid}")
    await a.settle()
    got = [s["body"] for s in a.inbox if not isinstance(s, Failure) and s.name == "message"]
    check(got == [f"number {n}" for n in range(sent)], f"{len(got)} of {sent}; lost, doubled or out of order")
    check(sent > 1000, f"only {sent} messages")


async def a_session_that_never_comes_back_leaves_its_messages(stage):
    """XEP-0198 section 4: what was not acknowledged goes to the other resource."""
    b = await stage.blank("b", "one")
    a = await managed(stage, "a", "phone")
    other = await stage.online("a", "laptop")
    full = a.boundjid.full
    await a.settle()
    await Cut.now(a)
    for n in range(5):
        b.send_message(full, f"for the phone {n}", mtype="chat")
    await b.settle()
    stage.clients.remove(a)
    # A new session under the same name ends the old one for good.
    again = await stage.client("a", "phone").login()
    for n in range(5):
        await other.chat(f"for the phone {n}", b.boundjid.full)
    await stage.leave(again)


async def foreign_sessions_are_not_resumed(stage):
    """XEP-0198: the id of another user's session is as good as none."""
    a = await managed(stage, "a", "phone")
    theirs = a.plugin["xep_0198"].sm_id
    attacker = stage.client("b", "attacker")
    attacker.register_plugin("xep_0198")
    attacker.plugin["xep_0198"].sm_id = theirs
    failed = asyncio.get_running_loop().create_future()
    attacker.add_event_handler("sm_failed", lambda s: failed.done() or failed.set_result(s))
    await attacker.login()
    answer = await asyncio.wait_for(failed, TIMEOUT)
    check("item-not-found" in str(answer), f"the answer was {answer}")
    check(attacker.boundjid.bare == stage.settings.bare("b"), f"bound as {attacker.boundjid}")
    await a.settle()


SCENARIOS = [
    what_is_offered,
    carbons,
    forged_carbons_stay_with_the_forger,
    blocking,
    idle_clients_are_left_alone,
    vcard,
    private_storage,
    last_activity,
    search,
    administration,
    message_of_the_day,
    change_the_password,
    file_transfer_through_the_proxy,
    http_upload,
    a_lost_connection_is_resumed,
    a_session_that_never_comes_back_leaves_its_messages,
    foreign_sessions_are_not_resumed,
]

if __name__ == "__main__":
    main(SCENARIOS)
