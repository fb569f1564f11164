"""Test of two profanity clients of one user: carbons (XEP-0280) and blocking (XEP-0191), as shown on the screen.

Both clients use the account XMPP_USER_B; the chat partner is a slixmpp session with XMPP_USER_A, as in profanity.py, whose
Terminal is used. Each step prints `ok NAME` or `FAIL NAME reason`.

Pitfall: profanity's own messages are in its first window, chats are in others; `/win` switches between them.
"""


from harness import Failure, Settings
from profanity import act, log_in, main


class Two:
    """The steps, in order; each leans on the ones before."""

    def __init__(self, settings, laptop, sofa, friend):
        self.settings = settings
        self.laptop, self.sofa, self.friend = laptop, sofa, friend
        self.me, self.other = settings.bare("b"), settings.bare("a")

    async def log_in_twice(self):
        for terminal in (self.laptop, self.sofa):
            await log_in(self.settings, terminal, self.me)
            # On from the start in this version, which says the same again.
            await terminal.type("/carbons on")
            await terminal.see("Message carbons preference enabled.")

    async def read_what_came_to_the_other(self):
        # The friend answers one of the two, and both have it.
        await self.laptop.type(f"/msg {self.other} hello from the laptop")
        message = await self.friend.chat("hello from the laptop", self.me)
        self.address = message["from"]
        self.friend.send_message(mto=self.address, mbody="an answer to the laptop", mtype="chat")
        await self.laptop.see("an answer to the laptop")
        await self.sofa.type(f"/msg {self.other}")
        await self.sofa.see("an answer to the laptop")

    async def read_what_the_other_said(self):
        await self.sofa.see("hello from the laptop")
        await self.sofa.type("typed on the sofa")
        await self.friend.chat("typed on the sofa", self.me)
        screen = await self.laptop.see("typed on the sofa")
        for text in ("hello from the laptop", "an answer to the laptop", "typed on the sofa"):
            if screen.count(text) != 1:
                raise Failure(f"{text!r} is {screen.count(text)} times on the screen:\n{screen}")

    async def block_the_friend(self):
        await self.laptop.type("/win 1")
        await self.laptop.type(f"/blocked add {self.other}")
        await self.laptop.see(f"User {self.other} successfully blocked.")
        self.friend.send_message(mto=self.me, mbody="can you hear me?", mtype="chat")
        self.friend.send_message(mto=self.address, mbody="can the laptop read me?", mtype="chat")
        for _ in range(2):
            error = await self.friend.expect("error", lambda s: s.name == "message" and s["type"] == "error")
            if error["error"]["condition"] != "service-unavailable":
                raise Failure(f"the blocked user gets {error}")

    async def let_the_friend_speak_again(self):
        await self.laptop.type(f"/blocked remove {self.other}")
        await self.laptop.see(f"User {self.other} successfully unblocked.")
        await self.laptop.type("/win 2")
        self.friend.send_message(mto=self.address, mbody="at last", mtype="chat")
        for terminal in (self.laptop, self.sofa):
            screen = await terminal.see("at last")
            if "hear me" in screen:
                raise Failure(f"a message of the blocked is on the screen:\n{screen}")

    STEPS = (
        log_in_twice, read_what_came_to_the_other, read_what_the_other_said, block_the_friend,
        let_the_friend_speak_again,
    )


if __name__ == "__main__":
    main(act(Settings(), Two, terminals=2))
