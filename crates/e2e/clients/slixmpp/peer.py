"""Chat partner of other clients: a slixmpp session that accepts all subscriptions and answers messages.

It logs in as XMPP_USER_A (settings as in harness.py), prints `ready ADDRESS`, approves each subscription request, requests one
in return, and answers each message with `echo: …`. It ends when its standard input is closed, so that it cannot outlive its
parent process.
"""

import asyncio
import sys

from harness import Failure, Settings, Stage


async def ended():
    """Returns when standard input is at its end."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def main():
    async with Stage(Settings()) as stage:
        peer = stage.client("a", "peer")

        def on_subscribe(presence):
            peer.say("subscribed", presence["from"].bare)
            peer.say("subscribe", presence["from"].bare)

        def answer(message):
            if message["type"] in ("chat", "normal") and message["body"]:
                message.reply(f"echo: {message['body']}").send()

        peer.add_event_handler("presence_subscribe", on_subscribe)
        peer.add_event_handler("message", answer)
        await peer.login()
        for jid in await peer.roster_items():
            await peer.roster_set(jid, remove=True)
        peer.say(None)
        await peer.presence(None, peer.boundjid.full)
        print(f"ready {peer.boundjid.bare}", flush=True)
        await ended()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except Failure as failure:
        sys.exit(f"FAIL peer {failure}")
