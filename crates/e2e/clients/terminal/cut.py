"""Profanity on a network that is cut again and again: of 1 000 messages each is read once and in order.

Runs in the network namespace XMPP_WIRES-1, where the node listens; the person's terminal is in XMPP_WIRES-2, and the wire
between them is set down at XMPP_WIRES-hub (../../netns/lossy.sh makes these; root). The friend is a slixmpp session with
XMPP_USER_A beside the node, the person has XMPP_USER_B, other settings as in ../slixmpp/harness.py.

There are two kinds of cuts, in turns, for profanity 0.13.1 on libstrophe 0.12.2 knows two:

- **reset**: the wire is down in the middle of a flood of messages, then whatever is sent fails, as behind a router that
  forgot the connection. Profanity keeps its state and resumes (XEP-0198 section 5), and what was typed meanwhile arrives once.
- **silent**: nothing answers. Profanity notices by its own pings (`/autoping`), but throws its state away then: it logs
  in anew under its old resource. The server takes the new session for the successor and gives it what the old one did not
  acknowledge. Without a resumption nobody knows what became of messages that were on the wire, so they are read before.

What was read is taken from the chat log on disk, which profanity writes a line into for each message, doubled or not.
No kernel feature but namespaces is asked for: netem (tc) is missing in some kernels, so a cut is a wire that is down, and
the reset is nftables'.

The trap: libstrophe 0.12.2 counts from zero what has to be sent again, and loses the first unacknowledged stanza at each
resumption (libstrophe's issue 222, mended in 0.12.3). Here that is presence, not the message behind it.
"""

import asyncio
import os
import pathlib
import re
import signal
import sys

from harness import Failure, Settings, Stage
from profanity import Terminal

MESSAGES = 1000
CUTS = 6
# For a login over a wire that comes back: the kernel asks again after 1, 3 and 7 seconds.
PATIENCE = 40

RESET = b"""table ip forgetful {
  chain out {
    type filter hook output priority 0
    tcp dport 5222 reject with tcp reset
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

    def __init__(self, name):
        self.name = name
        self.space = f"{name}-2"

    async def cut(self):
        await command("ip", "-n", f"{self.name}-hub", "link", "set", f"to-{self.space}", "down")

    async def mend(self):
        await command("ip", "-n", f"{self.name}-hub", "link", "set", f"to-{self.space}", "up")

    async def reset(self):
        """From now on sending fails at once."""
        await command("ip", "netns", "exec", self.space, "nft", "-f", "-", text=RESET)

    async def forgive(self):
        await command("ip", "netns", "exec", self.space, "nft", "delete", "table", "ip", "forgetful")


class Cut:
    def __init__(self, settings, terminal, friend, wire):
        self.terminal, self.friend, self.wire = terminal, friend, wire
        self.settings = settings
        self.me, self.other = settings.bare("b"), settings.bare("a")
        self.sent = 0
        self.typed = []

    def say(self, count):
        """The friend sends so many messages."""
        for _ in range(min(count, MESSAGES - self.sent)):
            self.friend.send_message(self.me, f"number {self.sent}", mtype="chat")
            self.sent += 1

    async def type(self, text):
        self.typed.append(text)
        await self.terminal.type(text)

    def log(self, sort, name):
        """A log of profanity's, whatever day it began."""
        root = pathlib.Path(self.terminal.home) / "data/profanity" / sort
        return "".join(path.read_text() for path in sorted(root.rglob(name)))

    def read(self):
        """What the chat log says was read from the friend."""
        return re.findall(rf"- {re.escape(self.other)}: (.*)", self.log("chatlogs", "*.log"))

    def resumptions(self):
        return self.log("logs", "*.log").count("Session resumed successfully")

    async def until(self, what, holds, patience=PATIENCE):
        for _ in range(patience * 20):
            if holds():
                return
            await asyncio.sleep(0.05)
        shown = "\n".join(line for line in (await self.terminal.screen()).splitlines() if line.strip())
        read = self.read()
        raise Failure(f"{what}: not after {patience} s; {len(read)} of {self.sent} read; the screen:\n{shown}")

    async def log_in(self):
        settings, terminal = self.settings, self.terminal
        for line in ("/reconnect 1", "/autoping set 0", "/autoping timeout 1"):
            await terminal.type(line)
        await terminal.type(f"/connect {self.me} server {settings.host} port {settings.port} tls force")
        await terminal.see("Enter password:")
        await terminal.type(settings.password)
        await terminal.see("Fingerprint", "/tls deny")
        # "allow" would be asked again at the next connection.
        await terminal.type("/tls always")
        await terminal.see("logged in successfully, online")
        await terminal.type("/win 1")
        await terminal.type(f"/msg {self.other} hello")
        await self.friend.chat("hello", self.me)

    def reconnections(self):
        return self.log("logs", "*.log").count("logged in successfully")

    async def lost_and_found(self, notice, meanwhile):
        """From the cut to the next login; `notice` makes profanity see it, `meanwhile` happens when it has."""
        lost = self.log("logs", "*.log").count("XMPP_CONN_DISCONNECT")
        logins = self.reconnections()
        await notice()
        await self.until("the cut is noticed", lambda: self.log("logs", "*.log").count("XMPP_CONN_DISCONNECT") > lost)
        await meanwhile()
        await self.wire.mend()
        self.say(40)
        await self.until("the new login", lambda: self.reconnections() > logins)

    async def reset(self, number):
        share = MESSAGES // CUTS - 80
        resumed = self.resumptions()

        async def notice():
            self.say(share)
            await self.wire.cut()
            # Lost by libstrophe, which sees to it that what is typed next is not.
            await self.terminal.type(f"/status set away \"cut {number}\"")
            await self.type(f"typed into the cut {number}")
            self.say(40)
            await self.friend.settle()
            await self.wire.reset()

        await self.lost_and_found(notice, self.wire.forgive)
        await self.friend.chat(f"typed into the cut {number}", self.me)
        if self.resumptions() != resumed + 1:
            raise Failure(f"cut {number} was not resumed")

    async def silent(self, number):
        share = MESSAGES // CUTS - 80
        self.say(share)
        await self.until("all is read", lambda: len(self.read()) >= self.sent)
        # What is typed comes behind the acknowledgement of all that was read.
        await self.type(f"typed before the cut {number}")
        await self.friend.chat(f"typed before the cut {number}", self.me)

        async def notice():
            await self.wire.cut()
            self.say(40)
            await self.terminal.type("/autoping set 1")

        async def meanwhile():
            await self.terminal.type("/autoping set 0")

        await self.lost_and_found(notice, meanwhile)

    async def play(self):
        await self.log_in()
        print("ok log_in", flush=True)
        for number in range(CUTS):
            kind = self.silent if number % 2 else self.reset
            await kind(number)
            print(f"ok cut {number} {kind.__name__}, {self.sent} sent", flush=True)
        self.say(MESSAGES)
        await self.until("all is read", lambda: len(self.read()) >= MESSAGES)
        await self.type("the end")
        await self.friend.chat("the end", self.me)
        read = self.read()
        if read != [f"number {n}" for n in range(MESSAGES)]:
            doubled = sorted({line for line in read if read.count(line) > 1})
            missing = [n for n in range(MESSAGES) if f"number {n}" not in read]
            wrong = next((n for n, line in enumerate(read) if line != f"number {n}"), None)
            raise Failure(f"{len(read)} read; missing {missing}, doubled {doubled}, first wrong one at {wrong}")
        # The friend took each of those that were typed; a doubled one would still be there.
        await self.friend.settle()
        again = [s["body"] for s in self.friend.inbox if s.name == "message" and s["body"]]
        if again:
            raise Failure(f"came a second time: {again}")
        print(f"ok each of {MESSAGES} once and in order, {self.resumptions()} resumptions", flush=True)


async def play(settings, wires):
    """Returns the exit status."""
    wire = Wire(wires)
    terminal = Terminal(before=("ip", "netns", "exec", wire.space), words=("--log", "DEBUG"))
    try:
        async with Stage(settings) as stage:
            await stage.leave(await stage.blank("b", "broom"))
            friend = await stage.blank("a", "friend")
            await terminal.start()
            await Cut(settings, terminal, friend, wire).play()
        return 0
    except Failure as failure:
        print(f"FAIL {failure}", flush=True)
        return 1
    finally:
        await terminal.stop()


async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    return await play(Settings(), os.environ["XMPP_WIRES"])


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except asyncio.CancelledError:
        sys.exit("FAIL ended by a signal")
