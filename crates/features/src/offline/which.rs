//! Which messages are kept: XEP-0160 section 3, with the hints of XEP-0334 section 4.

use stanza::Content;
use throng_core::Frame;
use xml::{Ns, NsSet};

/// What is to be done with a message that nobody took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Keep it.
    Store,
    /// Not kept; others may still take it, or the sender is told.
    Pass,
    /// Not kept and not worth an error: a typing notification that came too late.
    Forget,
}

/// Decides for a message of type chat or normal.
pub(super) fn decide(frame: &Frame) -> Verdict {
    let (head, bytes) = (frame.head(), frame.bytes());
    if !head.payloads().intersects(NsSet::of(&[Ns::Hints, Ns::Chatstates])) {
        return Verdict::Store;
    }
    let content = Content::of(head, bytes);
    if content.any(Content::NO_STORE.and(Content::UNREADABLE)) {
        return Verdict::Pass;
    }
    // XEP-0085 section 5.6; what belongs to the conversation and not to the text does not change that.
    if content.is_lone_state() && !content.has(Content::STORE) { Verdict::Forget } else { Verdict::Store }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(children: &str, expect: Verdict) {
        let frame = Frame::read(format!("<message type='chat'>{children}</message>").as_bytes()).unwrap();
        assert_eq!(decide(&frame), expect, "{children}");
    }

    #[test]
    fn section_3_chat_states_alone_are_not_kept() {
        let composing = "<composing xmlns='http://jabber.org/protocol/chatstates'/>";
        check("<body>Hi</body>", Verdict::Store);
        check("", Verdict::Store);
        check("<encrypted xmlns='eu.siacs.conversations.axolotl'/>", Verdict::Store);
        check(composing, Verdict::Forget);
        check(
            &format!("<thread>1</thread>{composing}<origin-id xmlns='urn:xmpp:sid:0' id='1'/>"),
            Verdict::Forget,
        );
        check(&format!("<body>Hi</body>{composing}"), Verdict::Store);
        check(&format!("{composing}<x xmlns='urn:unknown'/>"), Verdict::Store);
        check(&format!("{composing}<store xmlns='urn:xmpp:hints'/>"), Verdict::Store);
    }

    #[test]
    fn xep_0334_section_4_hints() {
        check("<body>Hi</body><no-store xmlns='urn:xmpp:hints'/>", Verdict::Pass);
        // 3.3: stored temporarily as a normal part of delivery.
        check("<body>Hi</body><no-permanent-store xmlns='urn:xmpp:hints'/>", Verdict::Store);
        check("<body>Hi</body><no-copy xmlns='urn:xmpp:hints'/>", Verdict::Store);
    }
}
