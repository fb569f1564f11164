"""Scenarios of nbxmpp against a running node, one function each; settings as in ../slixmpp/harness.py.

RFC 6120 (login), RFC 6121 (roster, presence, messages), XEP-0012, 0030, 0049, 0050, 0054, 0077, 0092, 0115, 0191, 0198,
0199, 0202, 0280, 0352. Not implemented: what nbxmpp does not support (SASL2, search); slixmpp and the scenarios of
`crates/e2e/scenarios` cover it.
"""

import sys

from nbxmpp.const import AdHocAction
from nbxmpp.modules.dataforms import extend_form
from nbxmpp.modules.vcard_temp import VCard
from nbxmpp.protocol import JID

from harness import Failure, Settings, run


def check(condition, reason):
    if not condition:
        raise Failure(reason)


def login_by_each_mechanism(stage):
    for mechanism in stage.settings.mechanisms:
        client = stage.client("a", "phone", mechanism=mechanism)
        client.connect()
        check(client.full == f"{stage.settings.bare('a')}/phone", f"bound as {client.full}")
        client.leave()


def wrong_password(stage):
    try:
        stage.client("a", "attacker", password="not the password").connect()
    except Failure as failure:
        check("not-authorized" in str(failure), f"expected not-authorized, got {failure}")
    else:
        raise Failure("a wrong password logged in")


def what_the_server_offers(stage):
    a = stage.online("a", "one")
    info = a.wait(a.module("Discovery").disco_info(a.settings.domain))
    for var in (
        "urn:xmpp:ping", "urn:xmpp:carbons:2", "urn:xmpp:blocking", "vcard-temp", "jabber:iq:private",
        "jabber:iq:last", "http://jabber.org/protocol/commands",
    ):
        own = a.wait(a.module("Discovery").disco_info(a.bare))
        check(var in info.features or var in own.features, f"{var} is not offered")
    a.wait(a.module("Ping").ping(JID.from_string(a.settings.domain)))
    version = a.wait(a.module("SoftwareVersion").request_software_version(JID.from_string(a.settings.domain)))
    check(version.name == "Throng", f"the server calls itself {version.name}")
    a.wait(a.module("EntityTime").request_entity_time(JID.from_string(a.settings.domain)))


def roster_and_chat(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    friend = JID.from_string("friend@elsewhere.test")
    a.wait(a.module("Roster").set_item(friend, "A friend", {"Work"}))
    roster = a.wait(a.module("Roster").request_roster())
    check([str(item.jid) for item in roster.items if item.name == "A friend"] == [str(friend)], f"{roster}")
    a.wait(a.module("Roster").delete_item(friend))
    a.say(b.full, "hello")
    b.chat("hello", a.full)
    b.say(a.bare, "hello yourself")
    a.chat("hello yourself", b.full)


def vcard(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    card = VCard(data={"FN": "Romeo Montague", "NICKNAME": "Romeo"})
    a.wait(a.module("VCardTemp").set_vcard(card))
    bare = JID.from_string(a.bare)
    a.leave()
    seen = b.wait(b.module("VCardTemp").request_vcard(bare))
    check(seen.data.get("FN") == "Romeo Montague", f"the vCard is {seen.data}")


def private_storage(stage):
    a = stage.online("a", "one")
    answer = a.ask("set", "<query xmlns='jabber:iq:private'><notes xmlns='urn:test:notes'><n>one</n></notes></query>")
    check(answer.getType() == "result", f"set: {answer}")
    a.leave()
    again = stage.online("a", "two")
    answer = again.ask("get", "<query xmlns='jabber:iq:private'><notes xmlns='urn:test:notes'/></query>")
    check("<n>one</n>" in str(answer), f"get: {answer}")


def last_activity(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    befriend(a, b)
    bare = b.bare
    b.presence(typ="unavailable", status="gone to bed")
    b.leave()
    a.settle()
    answer = a.ask("get", "<query xmlns='jabber:iq:last'/>", to=bare)
    query = answer.getQuery()
    check(answer.getType() == "result", f"last activity: {answer}")
    check(int(query.getAttr("seconds")) < 60, f"last activity: {answer}")


def befriend(a, b):
    """Mutual subscription, whatever was before."""
    for one, other in ((a, b), (b, a)):
        one.presence(to=other.bare, typ="subscribe")
        other.presence(to=one.bare, typ="subscribed")
        one.settle()
        other.settle()
    a.settle()


def blocking(stage):
    a, b = stage.online("a", "one"), stage.online("b", "one")
    module = a.module("Blocking")
    a.wait(module.block([JID.from_string(b.bare)]))
    listed = a.wait(module.request_blocking_list())
    check([str(jid) for jid in listed] == [b.bare], f"the list is {listed}")
    identifier = b.say(a.full, "do you hear me?")
    error = b.expect("error", lambda s: s.name == "message" and s.id == identifier)
    check(error.type == "error" and "service-unavailable" in error.text, f"answer of the blocked: {error}")
    identifier = a.say(b.full, "and you?")
    error = a.expect("error", lambda s: s.name == "message" and s.id == identifier)
    check(error.type == "error" and "not-acceptable" in error.text, f"answer to the blocker: {error}")
    a.wait(module.unblock([JID.from_string(b.bare)]))
    b.say(a.full, "and now?")
    a.chat("and now?", b.full)
    check("do you hear me?" not in a.bodies(), "a message of a blocked contact came through")


def carbons(stage):
    one, two, b = stage.online("a", "one"), stage.online("a", "two"), stage.online("b", "one")
    answer = two.ask("set", "<enable xmlns='urn:xmpp:carbons:2'/>")
    check(answer.getType() == "result", f"enable: {answer}")
    b.say(one.full, "only for one")
    one.chat("only for one", b.full)
    two.expect("received carbon", lambda s: "urn:xmpp:carbons:2" in s.text and "<received" in s.text
               and "only for one" in s.text and s.sender == two.bare)
    one.say(b.bare, "from the other client")
    b.chat("from the other client", one.full)
    two.expect("sent carbon", lambda s: "<sent" in s.text and "from the other client" in s.text)
    one.settle()
    check(not [s for s in one.inbox if s.name == "message" and "carbons" in s.text], "a carbon came to who did not ask")


def client_state(stage):
    a, b = stage.online("a", "phone"), stage.online("b", "one")
    befriend(a, b)
    a.settle()
    a.inbox.clear()
    a.nonza("<inactive xmlns='urn:xmpp:csi:0'/>")
    a.settle()
    b.presence(status="first")
    b.presence(status="second")
    b.say(a.full, None, children=["<composing xmlns='http://jabber.org/protocol/chatstates'/>"])
    b.settle()
    b.say(a.full, "important")
    a.chat("important", b.full)
    # What was held back came before the important one, the newer presence in place of the older. Whatever the client sends
    # lets it out, too, and nbxmpp may have answered a request for an acknowledgement only after the first.
    statuses = [s.status for s in a.inbox if s.name == "presence" and s.sender == b.full]
    check(statuses in (["second"], ["first", "second"]), f"presence while idle: {statuses}")
    a.nonza("<active xmlns='urn:xmpp:csi:0'/>")
    a.settle()


def commands(stage):
    """The first user is an administrator, the second is not."""
    a, b = stage.online("a", "one"), stage.online("b", "one")
    offered = a.wait(a.module("AdHoc").request_command_list(a.settings.domain))
    nodes = {command.node.rpartition("#")[2]: command for command in offered}
    for name in ("add-user", "delete-user", "end-user-session", "get-online-users-num", "announce", "set-motd"):
        check(name in nodes, f"{name} is not among {sorted(nodes)}")
    done = a.wait(a.module("AdHoc").execute_command(nodes["get-online-users-num"]))
    if done.status.value == "executing":
        done = a.wait(a.module("AdHoc").execute_command(done, AdHocAction.COMPLETE, extend_form(done.data)))
    check(done.status.value == "completed" and done.data is not None, f"{done}")
    refused = b.outcome(b.module("AdHoc").execute_command(nodes["get-online-users-num"]))
    check("forbidden" in str(refused), f"a user who is no administrator got {refused}")


def change_password(stage):
    a = stage.online("a", "one")
    a.wait(a.module("Register").change_password("a new one, longer"))
    a.leave()
    again = stage.client("a", "two", password="a new one, longer")
    again.login()
    again.wait(again.module("Register").change_password(stage.settings.password))


def a_cut_connection_is_resumed(stage):
    a, b = stage.online("a", "phone"), stage.online("b", "one")
    until_resumable(a)
    full = a.full
    for n in range(10):
        b.say(full, f"before {n}")
    a.chat("before 9", b.full)
    a.cut()
    for n in range(100):
        b.say(full, f"while away {n}")
    b.settle()
    a.connect(wanted=("resume-successful",))
    check(a.full == full, f"resumed as {a.full}")
    a.chat("while away 99", b.full)
    a.settle()
    got = [body for body in a.bodies() if body.startswith("while")]
    check(got == [f"while away {n}" for n in range(99)], f"after the resumption: {got}")
    a.say(b.full, "back again")
    b.chat("back again", full)


def what_was_sent_in_vain_comes_after_the_resumption(stage):
    a, b = stage.online("a", "phone"), stage.online("b", "one")
    until_resumable(a)
    for n in range(50):
        a.say(b.full, f"from a {n}")
    a.cut()
    a.connect(wanted=("resume-successful",))
    b.chat("from a 49", a.full)
    b.settle()
    got = [body for body in b.bodies() if body.startswith("from a")]
    check(got == [f"from a {n}" for n in range(49)], f"lost, doubled or out of order: {got}")


def until_resumable(client):
    client.settle()
    check(client.client.resumeable, "stream management with resumption is not on")


SCENARIOS = [
    login_by_each_mechanism,
    wrong_password,
    roster_and_chat,
    what_the_server_offers,
    vcard,
    private_storage,
    last_activity,
    blocking,
    carbons,
    client_state,
    commands,
    change_password,
    a_cut_connection_is_resumed,
    what_was_sent_in_vain_comes_after_the_resumption,
]

if __name__ == "__main__":
    sys.exit(run(SCENARIOS, Settings()))
