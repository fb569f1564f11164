"""Shared parts of the nbxmpp scenarios: a client with an inbox on GLib's main loop, and a runner.

nbxmpp is Gajim's library: GLib's sockets and TLS, its own XML parser and its own stream management, so it shares only
the specifications with slixmpp. Settings come from the environment, as in ../slixmpp/harness.py.

Nothing here sleeps: `until` runs the main loop until a condition holds or the timeout elapses.
Pitfall: nbxmpp keeps weak references to callbacks; the caller must hold them.
"""

import os
import sys
import traceback

import gi

gi.require_version("Soup", "3.0")
from gi.repository import Gio, GLib  # noqa: E402
from nbxmpp.client import Client as Library  # noqa: E402
from nbxmpp.const import ConnectionProtocol, ConnectionType, Mode, StreamState  # noqa: E402
from nbxmpp.errors import is_error  # noqa: E402
from nbxmpp.protocol import JID, Iq, Message, Presence  # noqa: E402
from nbxmpp.simplexml import Node  # noqa: E402

TIMEOUT = 60
LOOP = GLib.MainContext.default()


class Failure(Exception):
    """A scenario's expectation was not met; the text is the reason that is printed."""


def until(what, holds):
    """Turns the main loop until `holds` returns something true, and returns that."""
    late = []
    timer = GLib.timeout_add_seconds(TIMEOUT, lambda: late.append(True) and False)
    try:
        while not (found := holds()):
            if late:
                raise Failure(f"no {what} within {TIMEOUT} s")
            LOOP.iteration(True)
        return found
    finally:
        if not late:
            GLib.source_remove(timer)


class Settings:
    """The environment, read once; a missing name is one line and status 2."""

    def __init__(self, env=os.environ):
        try:
            self.host = env["XMPP_HOST"]
            self.port = int(env["XMPP_PORT"])
            self.transport = env["XMPP_TRANSPORT"]
            self.domain = env["XMPP_DOMAIN"]
            self.password = env["XMPP_PASSWORD"]
            self.users = {"a": env["XMPP_USER_A"], "b": env["XMPP_USER_B"]}
        except KeyError as missing:
            sys.exit(f"harness: {missing.args[0]} is not set; see ../slixmpp/harness.py")
        ca = env.get("XMPP_CA")
        self.ca = Gio.TlsCertificate.new_from_file(ca) if ca else None
        self.mechanisms = env.get("XMPP_MECHANISMS", "SCRAM-SHA-1").split()

    def bare(self, who):
        return f"{self.users[who]}@{self.domain}"


class Seen:
    """A stanza that arrived."""

    def __init__(self, node):
        self.text = str(node)
        self.name, self.type, self.id = node.getName(), node.getAttr("type"), node.getAttr("id")
        self.sender = node.getAttr("from") or ""
        self.body, self.status = node.getTagData("body"), node.getTagData("status")

    def __str__(self):
        return self.text


class Client:
    """One account's resource. Everything that arrives is kept as a tree of nbxmpp's own parser."""

    def __init__(self, settings, who, resource, password=None, mechanism=None, mode=Mode.CLIENT):
        self.settings, self.who, self.password = settings, who, password or settings.password
        self.inbox, self.news, self.gone = [], [], False
        self.client = client = Library(log_context=f"{who}/{resource}")
        client.set_username(settings.users.get(who, who))
        client.set_domain(settings.domain)
        client.set_resource(resource)
        client.set_password(self.password)
        client.set_mode(mode)
        kind = ConnectionType.DIRECT_TLS if settings.transport == "tls" else ConnectionType.START_TLS
        client.set_custom_host(f"{settings.host}:{settings.port}", ConnectionProtocol.TCP, kind)
        client.set_connection_types([kind])
        # GLib trusts the system's authorities and takes no others; the chain is checked below instead.
        client.set_ignore_tls_errors(True)
        if mechanism:
            client.set_mechs({mechanism})
        for signal in (
            "connected", "connection-failed", "disconnected", "login-successful",
            "resume-failed", "resume-successful",
        ):
            client.subscribe(signal, self._signal)
        client.subscribe("stanza-received", self._received)

    def _signal(self, _client, name, *_):
        self.news.append(name)

    def _received(self, _client, _name, stanza):
        self.inbox.append(Seen(stanza))

    @property
    def full(self):
        return str(self.client.get_bound_jid())

    @property
    def bare(self):
        return self.client.get_bound_jid().bare

    def connect(self, wanted=("connected",)):
        """Connects and returns the signal that ended the wait: one of `wanted`, or the login failed."""
        self.news.clear()
        self.client.connect()
        ends = set(wanted) | {"disconnected", "connection-failed", "resume-failed"}
        until("outcome of the login", lambda: ends & set(self.news))
        got = next(name for name in self.news if name in ends)
        if got not in wanted:
            domain, error, text = self.client.get_error()
            raise Failure(f"{got}: {error} {text or ''}".strip())
        if not self.client.is_stream_secure:
            raise Failure("the stream is not under TLS")
        if self.settings.ca:
            certificate, _ = self.client._con.peer_certificate  # Before the scenario cuts the connection.
            if certificate and certificate.verify(None, self.settings.ca) & Gio.TlsCertificateFlags.UNKNOWN_CA:
                raise Failure("the server's certificate is not signed by the authority of the test")
        return got

    def login(self):
        self.connect()
        self.wait(self.module("Roster").request_roster())
        self.presence()
        self.expect("own presence", lambda s: s.name == "presence" and s.sender == self.full)
        return self

    def module(self, name):
        return self.client.get_module(name)

    def wait(self, task):
        """The result of one of nbxmpp's tasks; an error is a Failure."""
        result = self.outcome(task)
        if is_error(result) or isinstance(result, Exception):
            raise Failure(f"{self.full}: {result!r}")
        return result

    def outcome(self, task):
        """The result of one of nbxmpp's tasks, errors included."""
        done = []
        # A finished task forgets its result as soon as its callbacks are done.
        task.add_done_callback(lambda finished: done.append(finished.get_result()), weak=False)
        until("answer", lambda: done)
        return done[0]

    def ask(self, kind, child, to=None):
        """Sends an IQ with a child written as XML and returns the answer as a node."""
        iq = Iq(kind, to=to)
        iq.addChild(node=Node(node=child))
        answers = []
        self.client.send_stanza(iq, callback=lambda _client, answer, *_: answers.append(answer))
        until("answer to an IQ", lambda: answers)
        return answers[0]

    def nonza(self, xml):
        self.client.send_nonza(Node(node=xml))

    def presence(self, **more):
        self.client.send_stanza(Presence(**more))

    def say(self, to, body, kind="chat", children=()):
        message = Message(to=str(to), body=body, typ=kind)
        for child in children:
            message.addChild(node=Node(node=child))
        return self.client.send_stanza(message)

    def expect(self, what, fits):
        """Takes the first stanza for which `fits` is true out of the inbox; waits for it if need be."""

        def find():
            for index, stanza in enumerate(self.inbox):
                if fits(stanza):
                    return self.inbox.pop(index)

        try:
            return until(what, find)
        except Failure as failure:
            seen = "; ".join(str(stanza) for stanza in self.inbox) or "nothing else"
            raise Failure(f"{self.who}: {failure}; got {seen}") from None

    def chat(self, body, sender):
        return self.expect(
            f"message '{body}' from {sender}",
            lambda s: s.name == "message" and s.body == body and s.sender.startswith(sender),
        )

    def settle(self):
        """A round trip to the server. Order is kept, so all that was due before has been received."""
        self.ask("get", "<ping xmlns='urn:xmpp:ping'/>", to=self.settings.domain)

    def bodies(self):
        return [s.body for s in self.inbox if s.name == "message" and s.body]

    def cut(self):
        """Closes the socket without a word, as a lost network does, and keeps what nbxmpp needs to resume."""
        self.client.disconnect(immediate=True)
        until("end of the connection", lambda: self.client.state == StreamState.DISCONNECTED)

    def leave(self):
        if self.gone:
            return
        self.gone = True
        if self.client.state != StreamState.DISCONNECTED:
            self.client.disconnect()
            until("end of the stream", lambda: self.client.state == StreamState.DISCONNECTED)
        self.client.destroy()


class Stage:
    """Makes clients for one scenario and closes them after it, come what may."""

    def __init__(self, settings):
        self.settings, self.clients = settings, []

    def client(self, who, resource, **more):
        client = Client(self.settings, who, resource, **more)
        self.clients.append(client)
        return client

    def online(self, who, resource):
        return self.client(who, resource).login()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for client in self.clients:
            try:
                client.leave()
            except Exception:  # What went wrong first is what counts.
                if kind is None:
                    raise


def run(scenarios, settings):
    """Runs each scenario; prints `ok NAME` or `FAIL NAME reason`; returns the exit status."""
    failed = 0
    for scenario in scenarios:
        name = scenario.__name__
        try:
            with Stage(settings) as stage:
                scenario(stage)
            print(f"ok {name}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAIL {name} {failure}", flush=True)
        except Exception as error:  # A defect of the scenario is a failure like any other.
            failed += 1
            traceback.print_exc()
            print(f"FAIL {name} {error!r}", flush=True)
    return 1 if failed else 0
