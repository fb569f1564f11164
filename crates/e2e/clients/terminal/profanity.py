"""Test of profanity in tmux, by typing and by reading the screen.

Profanity uses the account XMPP_USER_B; its chat partner is a slixmpp session with XMPP_USER_A (settings as in
slixmpp/harness.py, whose folder must be on PYTHONPATH). The certificate is self-signed, so profanity asks and it is
accepted; with XMPP_CA set, the fingerprint on the screen must be that of the file.

Each step prints `ok NAME` or `FAIL NAME reason`; the first failure ends the run, because later steps depend on earlier
ones. The screen is polled until a deadline. Pitfalls: profanity ignores a line that is typed before its screen is drawn,
and wraps lines wider than the pane, so the pane is wide.
"""

import asyncio
import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import ssl
import sys
import tempfile
import time

from harness import TIMEOUT, Failure, Settings, Stage

# Seconds between two looks at the screen.
GLANCE = 0.05


class Terminal:
    """Profanity in a tmux server of its own, with an empty home that is thrown away.

    `before` stands before the program in its command line, such as `ip netns exec SPACE`; `words` after it."""

    def __init__(self, before=(), words=()):
        self.home = tempfile.mkdtemp(prefix="throng-terminal-")
        self.socket = f"throng-e2e-{os.getpid()}"
        self.before, self.words = before, words

    async def tmux(self, *words):
        process = await asyncio.create_subprocess_exec(
            "tmux", "-L", self.socket, "-f", "/dev/null", *words,
            env={"PATH": os.environ["PATH"], "TMUX_TMPDIR": self.home, "LANG": "C.UTF-8", "TERM": "xterm"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        if process.returncode:
            raise Failure(f"tmux {words[0]}: {output.strip()}")
        return output

    async def start(self):
        home = self.home
        names = {"HOME": home, "XDG_CONFIG_HOME": f"{home}/config", "XDG_DATA_HOME": f"{home}/data"}
        names |= {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "screen-256color"}
        words = [f"{name}={value}" for name, value in names.items()]
        # Profanity's last words stay on the screen when it dies, for the reader of the failure.
        await self.tmux(
            "new-session", "-d", "-x", "160", "-y", "50",
            *self.before, "env", "-i", *words, "profanity", *self.words,
            ";", "set-option", "-g", "remain-on-exit", "on",
        )
        await self.see("Type '/help' to show complete help.")

    async def screen(self):
        return await self.tmux("capture-pane", "-p")

    async def type(self, line):
        await self.tmux("send-keys", "-l", "--", line)
        await self.tmux("send-keys", "Enter")

    async def see(self, *texts, timeout=TIMEOUT):
        """Waits until all the texts are on the screen, and returns it."""
        deadline = time.monotonic() + timeout
        while True:
            screen = await self.screen()
            missing = [text for text in texts if text not in screen]
            if not missing:
                return screen
            if time.monotonic() > deadline:
                shown = "\n".join(line for line in screen.splitlines() if line.strip())
                raise Failure(f"never on the screen: {missing[0]!r}; the screen:\n{shown}")
            await asyncio.sleep(GLANCE)

    async def stop(self):
        with contextlib.suppress(Failure):
            await self.tmux("kill-server")
        shutil.rmtree(self.home, ignore_errors=True)


async def log_in(settings, terminal, me):
    """Connects, and accepts the certificate after it was compared, since profanity knows no authority that signed it."""
    # "legacy" is what profanity called direct TLS before 0.14, and still takes.
    tls = "legacy" if settings.transport == "tls" else "force"
    await terminal.type(f"/connect {me} server {settings.host} port {settings.port} tls {tls}")
    await terminal.see("Enter password:")
    await terminal.type(settings.password)
    screen = await terminal.see("TLS certificate verification failed", "Fingerprint", "/tls deny")
    if settings.ca:
        der = ssl.PEM_cert_to_DER_cert(pathlib.Path(settings.ca).read_text())
        if hashlib.sha1(der).hexdigest() not in screen:
            raise Failure(f"another certificate than {settings.ca}:\n{screen}")
    await terminal.type("/tls allow")
    screen = await terminal.see(f"{me}/", "logged in successfully, online")
    if settings.password in screen:
        raise Failure("the password is on the screen")


class Person:
    """The steps, in order; each leans on the ones before."""

    def __init__(self, settings, terminal, friend):
        self.settings = settings
        self.terminal = terminal
        self.friend = friend
        self.me = settings.bare("b")
        self.other = settings.bare("a")

    async def log_in(self):
        await log_in(self.settings, self.terminal, self.me)

    async def add_a_contact(self):
        await self.terminal.type(f"/roster add {self.other} Friend")
        await self.terminal.see(f"Roster item added: {self.other} (Friend)")
        await self.terminal.type(f"/sub request {self.other}")
        await self.terminal.see(f"Sent subscription request to {self.other}.")
        await self.friend.presence("subscribe", self.me)
        self.friend.say("subscribed", self.me)
        await self.terminal.see(f"Subscription received from {self.other}", "++ Friend (friend) is online")

    async def be_added(self):
        self.friend.say("subscribe", self.me)
        await self.terminal.see(f"Received authorization request from {self.other}")
        await self.terminal.type(f"/sub allow {self.other}")
        await self.terminal.see(f"Accepted subscription for {self.other}")
        await self.friend.presence("subscribed", self.me)
        await self.friend.presence(None, self.me)
        await self.terminal.type("/roster")
        await self.terminal.see(f"{self.other} (Friend) - both")

    async def write_a_message(self):
        await self.terminal.type(f"/msg {self.other} Grüße aus dem Terminal & <zurück>")
        message = await self.friend.chat("Grüße aus dem Terminal & <zurück>", self.me)
        await self.terminal.see("me: Grüße aus dem Terminal & <zurück>")
        self.address = message["from"]

    async def read_a_message(self):
        self.friend.send_message(mto=self.address, mbody="Ünd eine Antwort: 5 > 3", mtype="chat")
        await self.terminal.see("Friend/friend: Ünd eine Antwort: 5 > 3")
        # The window of the chat is open: plain typing answers.
        await self.terminal.type("typed into the window")
        await self.friend.chat("typed into the window", self.me)

    async def see_the_contact_change(self):
        # The title of the open window shows the friend's presence; then the friend leaves.
        await self.terminal.see("[online]")
        self.friend.send_presence(pshow="dnd", pstatus="busy now")
        await self.terminal.see("[dnd]")
        await self.terminal.type("/win 1")
        self.friend.say("unavailable")
        await self.terminal.see("-- Friend (friend) is offline")
        self.friend.say(None)
        await self.friend.presence(None, self.me)

    async def be_seen_away(self):
        await self.terminal.type('/status set away "at lunch"')
        seen = await self.friend.presence(None, self.me, show="away")
        if seen["status"] != "at lunch":
            raise Failure(f"status is {seen['status']!r}")

    async def ping_the_server(self):
        # Not right after the login: profanity pings nobody before it has the answer of its own disco#info.
        await self.terminal.type("/ping")
        await self.terminal.see("Ping response from server")

    async def log_out(self):
        await self.terminal.type("/disconnect")
        await self.friend.presence("unavailable", self.me)
        await self.terminal.see("logged out successfully.")

    STEPS = (
        log_in, add_a_contact, be_added, write_a_message, read_a_message, see_the_contact_change,
        be_seen_away, ping_the_server, log_out,
    )


async def act(settings, person, terminals=1):
    """A whole evening: `person` is made of settings, terminals and friend, and has STEPS; returns the exit status."""
    screens = [Terminal() for _ in range(terminals)]
    name = "start"
    try:
        async with Stage(settings) as stage:
            # Leftovers of an earlier run would be seen on the screen.
            await stage.leave(await stage.blank("b", "broom"))
            friend = await stage.blank("a", "friend")
            await asyncio.gather(*(screen.start() for screen in screens))
            actor = person(settings, *screens, friend)
            for step in person.STEPS:
                name = step.__name__
                await step(actor)
                print(f"ok {name}", flush=True)
        return 0
    except Failure as failure:
        print(f"FAIL {name} {failure}", flush=True)
        return 1
    finally:
        for screen in screens:
            await screen.stop()


async def until_ended(evening):
    # Ended from outside, the tmux servers must not stay.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    return await evening


def main(evening):
    """Runs an evening and ends the program with its exit status."""
    try:
        sys.exit(asyncio.run(until_ended(evening)))
    except asyncio.CancelledError:
        sys.exit("FAIL ended by a signal")


if __name__ == "__main__":
    main(act(Settings(), Person))
