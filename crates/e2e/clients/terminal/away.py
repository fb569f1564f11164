"""A slixmpp client on an interrupted network, which always resumes its stream (XEP-0198).

Started by cut.py in a network namespace. It sends each line of standard input to the account XMPP_USER_A. It prints
`message BODY` for each received message, `lost` for each lost connection and `resumed` for each resumption. It ends when its
input is closed.

It detects a silent network by a ping each second. Pitfall: slixmpp's own keep-alive closes the stream before it reconnects,
and a closed stream is not resumed.
"""

import asyncio
import contextlib
import signal
import sys

from extensions import managed
from harness import Settings, Stage
from slixmpp.xmlstream import ET

# Seconds between two looks at the connection, and for the answer to each.
LOOK = 1
ANSWER = 2


def tell(line):
    print(line, flush=True)


async def watch(client):
    """Gives up a connection that does not answer."""
    while True:
        await asyncio.sleep(LOOK)
        if client.transport is None:
            continue
        iq = client.make_iq_get(ito=client.settings.domain)
        iq.append(ET.Element("{urn:xmpp:ping}ping"))
        transport = client.transport
        with contextlib.suppress(Exception):
            await asyncio.wait_for(iq.send(timeout=ANSWER), ANSWER)
            continue
        if client.transport is transport:
            client.abort()


async def main():
    settings = Settings()
    friend = settings.bare("a")
    async with Stage(settings) as stage:
        await stage.leave(await stage.blank("b", "broom"))
        client = await managed(stage, "b", "away")
        client.add_event_handler("message", lambda m: m["body"] and tell(f"message {m['body']}"))
        client.add_event_handler("session_resumed", lambda _: tell("resumed"))

        def again(_):
            tell("lost")
            client.connect(settings.host, settings.port)

        client.add_event_handler("disconnected", again)
        tell("ready")
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        watcher = asyncio.create_task(watch(client))
        while line := await lines.readline():
            client.send_message(friend, line.decode().strip(), mtype="chat")
        watcher.cancel()
        client.del_event_handler("disconnected", again)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    asyncio.run(main())
