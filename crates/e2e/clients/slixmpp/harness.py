"""Shared parts of the slixmpp scenarios and the partners of other clients: settings, a client with an inbox, a runner.

Settings are environment variables, the same for every client in this folder:

    XMPP_HOST XMPP_PORT        address of the server; XMPP_TRANSPORT is that of the port
    XMPP_TRANSPORT             starttls | tls (direct TLS, with ALPN xmpp-client, XEP-0368)
    XMPP_DOMAIN                the virtual host of the accounts
    XMPP_CA                    PEM file to verify the server's certificate; default: not verified
    XMPP_USER_A XMPP_USER_B    localparts of two accounts whose rosters may be deleted
    XMPP_PASSWORD              the password of both
    XMPP_MECHANISMS            SASL mechanisms to test, separated by spaces; default SCRAM-SHA-1

Nothing here sleeps: a client stores received stanzas, and `expect` waits for the first one that matches.
Pitfall: `expect` removes the stanza from the inbox, so what is expected twice must arrive twice.
"""

import asyncio
import logging
import os
import ssl
import sys
import time
import traceback

import slixmpp
from slixmpp.exceptions import IqError, IqTimeout
from slixmpp.xmlstream import ET

# Seconds that one awaited thing may take, and a whole scenario. Far above what a loaded machine needs.
TIMEOUT = 60
SCENARIO = 300

# What an event says about a login that goes on.
PENDING = object()


# Set XMPP_DEBUG to anything to read the streams. What slixmpp would say otherwise is said by the failures.
logging.basicConfig(level=logging.DEBUG if os.environ.get("XMPP_DEBUG") else logging.CRITICAL)


class Failure(Exception):
    """A scenario's expectation was not met; the text is the reason that is printed."""


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
            sys.exit(f"harness: {missing.args[0]} is not set; see the top of harness.py")
        if self.transport not in ("starttls", "tls"):
            sys.exit("harness: XMPP_TRANSPORT is starttls or tls")
        self.ca = env.get("XMPP_CA") or None
        self.mechanisms = env.get("XMPP_MECHANISMS", "SCRAM-SHA-1").split()

    def bare(self, who):
        return f"{self.users[who]}@{self.domain}"


class Client(slixmpp.ClientXMPP):
    """One session. It answers nothing by itself but what slixmpp's plugins answer (ping, version, disco)."""

    def __init__(self, settings, who, resource, password=None, mechanism=None):
        super().__init__(
            f"{settings.bare(who)}/{resource}",
            password or settings.password,
            sasl_mech=mechanism,
        )
        self.settings = settings
        self.enable_plaintext = False
        self.enable_direct_tls = settings.transport == "tls"
        self.enable_starttls = settings.transport == "starttls"
        if settings.ca:
            self.ca_certs = settings.ca
            # Python's own default from 3.13 on, so that older ones judge alike.
            self.ssl_context.verify_flags |= ssl.VERIFY_X509_STRICT
        else:
            self.ssl_context.check_hostname = False
            self.ssl_context.verify_mode = ssl.CERT_NONE
        if settings.transport == "tls":
            self.ssl_context.set_alpn_protocols(["xmpp-client"])
        # The scenarios say themselves who may subscribe.
        self.roster.auto_authorize = None
        self.roster.auto_subscribe = False
        for plugin in ("xep_0030", "xep_0092", "xep_0199", "xep_0202", "xep_0203"):
            self.register_plugin(plugin)
        self.plugin["xep_0092"].software_name = "slixmpp scenario"
        self.plugin["xep_0092"].version = "1"
        self.inbox = []
        self._news = asyncio.Event()
        self._outcome = asyncio.get_running_loop().create_future()
        self.add_filter("in", self._keep)
        for event, result in (
            ("session_start", lambda _: None),
            # Without a mechanism to insist on, slixmpp tries the next one after a failure.
            ("failed_auth", lambda stanza: Failure(stanza["condition"]) if mechanism else PENDING),
            ("failed_all_auth", lambda _: Failure("every mechanism failed")),
            ("no_auth", lambda _: Failure(f"the server does not offer {mechanism}")),
            ("connection_failed", lambda why: Failure(f"cannot connect: {why}")),
            ("ssl_invalid_chain", lambda why: Failure(f"certificate refused: {why}")),
            ("stream_error", lambda error: Failure(f"stream error {error['condition']}")),
            ("disconnected", lambda why: Failure(f"disconnected: {why}")),
        ):
            self.add_event_handler(event, lambda data, result=result: self._settle(result(data)))

    def _settle(self, outcome):
        if outcome is PENDING:
            return
        if not self._outcome.done():
            self._outcome.set_result(outcome)
        if isinstance(outcome, Failure):
            self.inbox.append(outcome)
            self._news.set()

    def _keep(self, stanza):
        if stanza.name in ("presence", "message", "iq"):
            self.inbox.append(stanza)
            self._news.set()
        return stanza

    async def login(self):
        """Connects, authenticates and binds; raises Failure with the SASL condition or the reason."""
        self.connect(self.settings.host, self.settings.port)
        try:
            outcome = await asyncio.wait_for(asyncio.shield(self._outcome), TIMEOUT)
        except asyncio.TimeoutError:
            raise Failure("no outcome of the login") from None
        if outcome is not None:
            raise outcome
        if self.socket is None or not hasattr(self.socket, "version"):
            raise Failure("the stream is not under TLS")
        return self

    @property
    def tls_version(self):
        return self.socket.version()

    @property
    def mechanism(self):
        return self.plugin["feature_mechanisms"].mech.name

    async def expect(self, what, fits):
        """Takes the first stanza for which `fits` is true out of the inbox; waits for it if need be."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            for index, stanza in enumerate(self.inbox):
                if isinstance(stanza, Failure):
                    raise Failure(f"{self.boundjid}: {stanza} while waiting for {what}")
                if fits(stanza):
                    return self.inbox.pop(index)
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                seen = "; ".join(str(stanza) for stanza in self.inbox) or "nothing else"
                raise Failure(f"{self.boundjid}: no {what}; got {seen}") from None

    async def push(self, what, jid, **wanted):
        """Awaits a roster push for `jid` whose item has the wanted subscription, ask, name."""

        def fits(stanza):
            if stanza.name != "iq" or stanza["type"] != "set":
                return False
            items = stanza.xml.findall("{jabber:iq:roster}query/{jabber:iq:roster}item")
            return len(items) == 1 and items[0].get("jid") == jid and all(
                items[0].get(key) == value for key, value in wanted.items()
            )

        shape = " ".join(f"{key}={value}" for key, value in wanted.items())
        return await self.expect(f"roster push {jid} {shape} ({what})", fits)

    async def presence(self, type_, from_, **wanted):
        """Awaits presence: type_ is None for available, else the attribute; from_ is bare or full."""

        def fits(stanza):
            if stanza.name != "presence" or stanza.xml.get("type") != type_:
                return False
            sender = stanza["from"]
            return from_ in (sender.full, sender.bare) and all(
                stanza[key] == value for key, value in wanted.items()
            )

        return await self.expect(f"presence {type_ or 'available'} {wanted or ''} from {from_}", fits)

    async def chat(self, body, from_):
        return await self.expect(
            f"message '{body}' from {from_}",
            lambda stanza: stanza.name == "message"
            and stanza["body"] == body
            and from_ in (stanza["from"].full, stanza["from"].bare),
        )

    async def ask(self, iq):
        """Sends an IQ and returns its result; an error or silence is a Failure."""
        try:
            return await iq.send(timeout=TIMEOUT)
        except IqError as error:
            raise Failure(f"{self.boundjid}: error {error.condition} to {iq}") from None
        except IqTimeout:
            raise Failure(f"{self.boundjid}: no answer to {iq}") from None

    async def settle(self):
        """A round trip to the server. Order is kept, so all that was due before has been received.

        Any answer will do, an error too: whether the server answers pings is a scenario of its own."""
        iq = self.make_iq_get(ito=self.settings.domain)
        iq.append(ET.Element("{urn:xmpp:ping}ping"))
        try:
            await iq.send(timeout=TIMEOUT)
        except IqError:
            pass
        except IqTimeout:
            raise Failure(f"{self.boundjid}: no answer to {iq}") from None

    async def roster_items(self):
        """The roster as the server tells it now: {jid: attributes of the item}."""
        iq = self.make_iq_get()
        iq.append(ET.Element("{jabber:iq:roster}query"))
        result = await self.ask(iq)
        items = result.xml.findall("{jabber:iq:roster}query/{jabber:iq:roster}item")
        return {item.get("jid"): dict(item.attrib) for item in items}

    async def roster_set(self, jid, name=None, groups=(), remove=False):
        """Adds, changes or removes one item (RFC 6121, 2.3 to 2.5) and awaits the result."""
        iq = self.make_iq_set()
        query = ET.Element("{jabber:iq:roster}query")
        item = ET.SubElement(query, "{jabber:iq:roster}item", jid=jid)
        if remove:
            item.set("subscription", "remove")
        if name is not None:
            item.set("name", name)
        for group in groups:
            ET.SubElement(item, "{jabber:iq:roster}group").text = group
        iq.append(query)
        await self.ask(iq)

    def say(self, type_, to=None):
        """Sends presence of a type; None is available."""
        self.send_presence(pto=to, ptype=type_)


class Stage:
    """Makes clients for one scenario and closes them after it, come what may."""

    def __init__(self, settings):
        self.settings = settings
        self.clients = []

    def client(self, who, resource, **more):
        client = Client(self.settings, who, resource, **more)
        self.clients.append(client)
        return client

    async def online(self, who, resource):
        """A client that has fetched its roster and is available."""
        client = await self.client(who, resource).login()
        await client.roster_items()
        client.say(None)
        await client.presence(None, client.boundjid.full)
        return client

    async def blank(self, who, resource):
        """A client as by `online` whose roster is emptied first, with nothing left in the inbox.

        Scenarios begin with it, so that none leans on the one before; offline messages are thrown away too."""
        client = await self.client(who, resource).login()
        for jid in await client.roster_items():
            await client.roster_set(jid, remove=True)
        client.say(None)
        await client.presence(None, client.boundjid.full)
        await client.settle()
        client.inbox.clear()
        return client

    async def pair(self):
        """a and b, blank and online."""
        return await self.blank("a", "one"), await self.blank("b", "one")

    async def leave(self, client):
        """Closes a client's stream; a server that does not close its own in return is a Failure."""
        self.clients.remove(client)
        client.cancel_connection_attempt()
        since = time.monotonic()
        await client.disconnect(wait=TIMEOUT)
        if time.monotonic() - since >= TIMEOUT:
            raise Failure(f"{client.boundjid}: the server did not close its stream")
        # slixmpp leaves this task to the garbage collector, which complains of it.
        if sender := client._run_out_filters:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, *_):
        leaving = [self.leave(client) for client in list(self.clients)]
        results = await asyncio.gather(*leaving, return_exceptions=True)
        for result in results:
            if kind is None and result is not None:
                raise result


async def befriend(a, b):
    """Mutual subscription between two available clients; all pushes and presence of it are taken in."""
    jid_a, jid_b = a.boundjid.bare, b.boundjid.bare
    a.say("subscribe", jid_b)
    await b.presence("subscribe", jid_a)
    b.say("subscribed", jid_a)
    await a.presence("subscribed", jid_b)
    await a.push("approved", jid_b, subscription="to")
    await a.presence(None, b.boundjid.full)
    b.say("subscribe", jid_a)
    await a.presence("subscribe", jid_b)
    a.say("subscribed", jid_b)
    await b.presence("subscribed", jid_a)
    await b.push("approved", jid_a, subscription="both")
    await a.push("mutual", jid_b, subscription="both")
    await b.presence(None, a.boundjid.full)


async def run(scenarios, settings):
    """Runs each scenario; prints `ok NAME` or `FAIL NAME reason`; returns the exit status."""
    failed = 0
    for scenario in scenarios:
        name = scenario.__name__
        try:
            async with Stage(settings) as stage:
                await asyncio.wait_for(scenario(stage), SCENARIO)
            print(f"ok {name}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAIL {name} {failure}", flush=True)
        except IqError as error:
            failed += 1
            print(f"FAIL {name} {error.condition}: {error.text or ''} in answer to {str(error.iq)[:300]}", flush=True)
        except asyncio.TimeoutError:
            failed += 1
            print(f"FAIL {name} not done within {SCENARIO} s", flush=True)
        except Exception as error:  # A defect of the scenario is a failure like any other.
            failed += 1
            traceback.print_exc()
            print(f"FAIL {name} {error!r}", flush=True)
    return 1 if failed else 0


def main(scenarios):
    """Runs the scenarios that the command line names, or all, and exits."""
    wanted = sys.argv[1:]
    chosen = [scenario for scenario in scenarios if not wanted or scenario.__name__ in wanted]
    if len(chosen) < len(wanted):
        sys.exit(f"{os.path.basename(sys.argv[0])}: no such scenario among {wanted}")
    sys.exit(asyncio.run(run(chosen, Settings())))
