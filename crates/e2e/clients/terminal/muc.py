"""Test of profanity in a room (XEP-0045), by typing and by reading the screen; Terminal and steps as in profanity.py.

Profanity uses the account XMPP_USER_B and creates the room; its partner is a slixmpp session with XMPP_USER_A, which joins, is
kicked, comes back and is banned. Each step prints `ok NAME` or `FAIL NAME reason`.

Pitfall: profanity shows occupants in a panel beside the window, which would cut texts; it is hidden first.
"""

import uuid

from harness import Settings
from profanity import act, log_in, main
from rooms import Room


class Host:
    """The steps, in order; each leans on the ones before."""

    def __init__(self, settings, terminal, friend):
        self.settings, self.terminal, self.friend = settings, terminal, friend
        self.me = settings.bare("b")
        self.room = Room.at(f"room-{uuid.uuid4().hex[:8]}@conference.{settings.domain}")

    async def log_in(self):
        await log_in(self.settings, self.terminal, self.me)
        await self.terminal.type("/occupants default hide")

    async def create_a_room(self):
        await self.terminal.type(f"/join {self.room.jid} nick host")
        await self.terminal.see("Room locked, requires configuration.")
        await self.terminal.type("/room accept")
        await self.terminal.see("Room unlocked.")

    async def see_a_friend_join_and_talk(self):
        await self.room.enter(self.friend, "friend")
        self.room.say(self.friend, "Grüße an alle")
        await self.terminal.see("friend: Grüße an alle")
        await self.terminal.type("and from the terminal")
        await self.room.receives(self.friend, "and from the terminal", "host")
        await self.terminal.type("/subject set Balconies")
        await self.friend.expect("the subject", lambda s: s.name == "message" and s["subject"] == "Balconies")

    async def kick(self):
        await self.terminal.type("/kick friend too loud")
        await self.room.sees(self.friend, "friend", "unavailable", code=307)

    async def invite(self):
        await self.terminal.type(f"/invite send {self.settings.bare('a')} come back")
        await self.friend.expect("the invitation", lambda s: s.name == "message" and str(self.room.jid) in str(s) and "come back" in str(s))
        await self.room.enter(self.friend, "friend")

    async def ban(self):
        await self.terminal.type(f"/ban {self.settings.bare('a')} for good")
        await self.room.sees(self.friend, "friend", "unavailable", code=301)

    async def leave_and_come_back(self):
        await self.terminal.type("/leave")
        await self.terminal.type(f"/join {self.room.jid} nick again")
        await self.terminal.see("Room locked, requires configuration.")

    STEPS = (log_in, create_a_room, see_a_friend_join_and_talk, kick, invite, ban, leave_and_come_back)


if __name__ == "__main__":
    main(act(Settings(), Host))
