"""Test of a network that is cut repeatedly: of 1 000 messages, profanity and slixmpp each receive every one once and in order.

Runs in the network namespace XMPP_WIRES-1, where the node listens. The clients are in XMPP_WIRES-2, and the link between them is
set down at XMPP_WIRES-hub (../../netns/lossy.sh creates these; root). XMPP_USER_A is a slixmpp session next to the node, which
writes to both; XMPP_USER_B uses profanity, XMPP_USER_C is away.py; other settings as in ../slixmpp/harness.py.

Two kinds of interruptions alternate, because profanity 0.13.1 on libstrophe 0.12.2 (Debian 12) handles them differently:

- **reset**: the link is down in the middle of a flood of messages; afterwards sending fails, as behind a router that lost the
  state of the connection. Profanity keeps its state and resumes (XEP-0198, section 5).
- **silent**: nothing answers. Profanity detects it by its own pings (`/autoping`), but discards its state: it logs in again with
  its old resource. The server treats the new session as the successor and delivers what the old one did not acknowledge. Without
  a resumption the fate of messages on the link is unknown, so they are read before.

away.py resumes after both, and what it sends into an interrupted link must arrive once and in order. For profanity's own messages
this is not required: libstrophe 0.12.2 miscounts and does not retransmit after a resumption (fixed in 0.12.3). They must not be
duplicated.

Messages received by profanity are read from its chat log on disk, which has a line for each message, including duplicates. Only
namespaces and nftables are needed: netem (tc) is missing in some kernels, so an interruption is a link that is down.

Pitfalls: when the link is up again, the kernel still sends data of the old connection, even if its program has closed it. And
profanity discards the state for a resumption if its first attempt to connect fails; hence `/reconnect 3`, within which the link is
up again.
"""

import asyncio
import os
import pathlib
import re
import sys

from harness import Failure, Settings, Stage
from profanity import Terminal, main

MESSAGES = 1000
CUTS = 4
# Messages in each round while the wire is down, and again as soon as it is up.
MEANWHILE = 40
# For a login over a wire that comes back: the kernel asks again after 1, 3 and 7 seconds.
TIMEOUT = 120

# ip and nft are there, and not on every PATH.
os.environ["PATH"] += ":/usr/sbin:/sbin"
HERE = pathlib.Path(__file__).parent
# In profanity's log.
LOST, FOUND, RESUMED = "XMPP_CONN_DISCONNECT", "logged in successfully", "Session resumed successfully"

RESET = """table ip forgetful {
  chain out {
    type filter hook output priority 0
    tcp dport PORT reject with tcp reset
  }
}
"""


async def command(*words, text=b""):
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate(text)
    if process.returncode:
        raise Failure(f"{' '.join(words)}: {output.decode().strip()}")


class Wire:
    """The wire of the person's namespace."""

    def __init__(self, name, port):
        self.name = name
        self.rule = RESET.replace("PORT", str(port)).encode()
        self.space = f"{name}-2"

    async def cut(self):
        await command("ip", "-n", f"{self.name}-hub", "link", "set", f"to-{self.space}", "down")

    async def restore(self):
        await command("ip", "-n", f"{self.name}-hub", "link", "set", f"to-{self.space}", "up")

    async def reset(self):
        """From now on sending fails at once."""
        await command("ip", "netns", "exec", self.space, "nft", "-f", "-", text=self.rule)

    async def forgive(self):
        await command("ip", "netns", "exec", self.space, "nft", "delete", "table", "ip", "forgetful")


class Away:
    """away.py at the far end."""

    def __init__(self, settings, space):
        self.settings, self.space = settings, space
        self.got, self.lost, self.resumed, self.sent = [], 0, 0, 0

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(
            "ip", "netns", "exec", self.space, sys.executable, str(HERE / "away.py"),
            env=os.environ | {"XMPP_USER_B": os.environ["XMPP_USER_C"]},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        line = await asyncio.wait_for(self.process.stdout.readline(), TIMEOUT)
        if line != b"ready\n":
            raise Failure(f"away.py said {line}")
        self.reader = asyncio.create_task(self._read())

    async def _read(self):
        while line := await self.process.stdout.readline():
            kind, _, body = line.decode().strip().partition(" ")
            if kind == "lost":
                self.lost += 1
            elif kind == "resumed":
                self.resumed += 1
            else:
                self.got.append(body)

    def say(self, count):
        for _ in range(count):
            self.process.stdin.write(f"from away {self.sent}\n".encode())
            self.sent += 1

    async def stop(self):
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), TIMEOUT)
        except asyncio.TimeoutError:
            self.process.kill()


class Cut:
    def __init__(self, settings, terminal, away, friend, wire):
        self.terminal, self.away, self.friend, self.wire = terminal, away, friend, wire
        self.settings = settings
        self.me, self.other = settings.bare("b"), settings.bare("a")
        self.far = f"{os.environ['XMPP_USER_C']}@{settings.domain}"
        self.sent = 0

    def say(self, count):
        """The friend sends this many messages to each."""
        for _ in range(min(count, MESSAGES - self.sent)):
            for to in (self.me, self.far):
                self.friend.send_message(to, f"number {self.sent}", mtype="chat")
            self.sent += 1

    def log(self, sort):
        """A log of profanity's, whatever day it began."""
        root = pathlib.Path(self.terminal.home) / "data/profanity" / sort
        return "".join(path.read_text() for path in sorted(root.rglob("*.log")))

    def read(self):
        """What the chat log says was read from the friend."""
        return re.findall(rf"- {re.escape(self.other)}: (.*)", self.log("chatlogs"))

    def happened(self, what):
        """How often something is in the log of the program."""
        return self.log("logs").count(what)

    async def until(self, what, holds):
        for _ in range(TIMEOUT * 10):
            if holds():
                return
            await asyncio.sleep(0.1)
        shown = "\n".join(line for line in (await self.terminal.screen()).splitlines() if line.strip())
        figures = f"{self.sent} sent, {len(self.read())} read, {len(self.away.got)} came to away.py"
        raise Failure(f"{what}: not after {TIMEOUT} s; {figures}; the screen:\n{shown}")

    async def all_is_read(self):
        await self.until("all is read", lambda: min(len(self.read()), len(self.away.got)) >= self.sent)

    async def log_in(self):
        settings, terminal = self.settings, self.terminal
        for line in ("/logging chat on", "/reconnect 3", "/autoping set 0", "/autoping timeout 1"):
            await terminal.type(line)
        await terminal.type(f"/connect {self.me} server {settings.host} port {settings.port} tls force")
        await terminal.see("Enter password:")
        await terminal.type(settings.password)
        await terminal.see("Fingerprint", "/tls deny")
        # "allow" would be asked again at the next connection.
        await terminal.type("/tls always")
        await terminal.see("logged in successfully, online")
        await terminal.type(f"/msg {self.other} hello")
        await self.friend.chat("hello", self.me)
        await self.away.start()

    async def round(self, number, kind):
        lost, found = self.happened(LOST), self.happened(FOUND)
        resumed = self.happened(RESUMED)
        lost_away, resumed_away = self.away.lost, self.away.resumed
        self.say(MESSAGES // CUTS - 2 * MEANWHILE)
        if kind == "silent":
            await self.all_is_read()
            # Comes behind the acknowledgement of all that was read.
            await self.terminal.type(f"before {number}")
            await self.friend.chat(f"before {number}", self.me)
        await self.wire.cut()
        self.say(MEANWHILE)
        self.away.say(MEANWHILE)
        await self.terminal.type(f"typed {number}")
        await self.friend.settle()
        if kind == "reset":
            await self.wire.reset()
        else:
            await self.terminal.type("/autoping set 1")
        await self.until("both notice", lambda: self.happened(LOST) > lost and self.away.lost > lost_away)
        if kind == "reset":
            await self.wire.forgive()
        else:
            await self.terminal.type("/autoping set 0")
        await self.wire.restore()
        self.say(MEANWHILE)
        await self.until("the next login", lambda: self.happened(FOUND) > found)
        await self.until("the resumption of away.py", lambda: self.away.resumed > resumed_away)
        if kind == "reset" and self.happened(RESUMED) == resumed:
            raise Failure(f"profanity did not resume after cut {number}")

    async def play(self):
        await self.log_in()
        print("ok log_in", flush=True)
        for number in range(CUTS):
            kind = "silent" if number % 2 else "reset"
            await self.round(number, kind)
            print(f"ok cut {number} {kind}, {self.sent} sent", flush=True)
        self.say(MESSAGES)
        await self.all_is_read()
        self.away.say(1)
        await self.terminal.type("the end")
        await self.friend.chat("the end", self.me)
        await self.friend.chat(f"from away {self.away.sent - 1}", self.far)
        wanted = [f"number {n}" for n in range(MESSAGES)]
        once("profanity's chat log", wanted, self.read())
        once("away.py", wanted, self.away.got)
        bodies = [s["body"] for s in self.friend.inbox if getattr(s, "name", "") == "message" and s["body"]]
        from_away = [body for body in bodies if body.startswith("from away")]
        once("the friend", [f"from away {n}" for n in range(self.away.sent - 1)], from_away)
        typed = [body for body in bodies if not body.startswith("from away")]
        if len(set(typed)) < len(typed):
            raise Failure(f"typed once, came twice: {typed}")
        print(
            f"ok each of {MESSAGES} once and in order; resumptions: profanity {self.happened(RESUMED)}, "
            f"slixmpp {self.away.resumed}; {len(typed)} of {CUTS} typed into a cut arrived", flush=True
        )


def once(where, wanted, got):
    """What came must be what was sent, in order."""
    if got != wanted:
        doubled = sorted({line for line in got if got.count(line) > 1})
        missing = sorted(set(wanted) - set(got))
        first = next((n for n, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]), None)
        raise Failure(f"{where}: {len(got)} of {len(wanted)}, missing {missing}, doubled {doubled}, wrong from {first}")


async def play(settings, wires):
    """Returns the exit status."""
    wire = Wire(wires, settings.port)
    terminal = Terminal(before=("ip", "netns", "exec", wire.space), words=("--log", "DEBUG"))
    away = Away(settings, wire.space)
    try:
        async with Stage(settings) as stage:
            await stage.leave(await stage.blank("b", "broom"))
            friend = await stage.blank("a", "friend")
            await terminal.start()
            await Cut(settings, terminal, away, friend, wire).play()
        return 0
    except Failure as failure:
        print(f"FAIL {failure}", flush=True)
        return 1
    finally:
        if hasattr(away, "process"):
            await away.stop()
        await terminal.stop()


if __name__ == "__main__":
    main(play(Settings(), os.environ["XMPP_WIRES"]))
