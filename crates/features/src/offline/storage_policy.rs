//! Which messages are kept: XEP-0160 section 3, with the hints of XEP-0334 section 4.

use stanza::MessageTraits;
use throng_core::SharedStanza;
use xml::{Ns, NsSet};

/// What is to be done with a message that nobody took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageDecision {
    /// Keep it.
    Store,
    /// Not kept; others may still take it, or the sender is told.
    Skip,
    /// Not kept and not worth an error: a typing notification that came too late.
    Discard,
}

/// Decides for a message of type chat or normal.
pub(super) fn decide(frame: &SharedStanza) -> StorageDecision {
    let (head, bytes) = (frame.head(), frame.bytes());
    if !head.payloads().intersects(NsSet::of(&[Ns::Hints, Ns::Chatstates])) {
        return StorageDecision::Store;
    }
    let content = MessageTraits::of(head, bytes);
    if content.intersects(MessageTraits::NO_STORE.union(MessageTraits::UNREADABLE)) {
        return StorageDecision::Skip;
    }
    // XEP-0085 section 5.6; what belongs to the conversation and not to the text does not change that.
    if content.is_standalone_chat_state() && !content.contains(MessageTraits::STORE) {
        StorageDecision::Discard
    } else {
        StorageDecision::Store
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(children: &str, expect: StorageDecision) {
        let frame =
            SharedStanza::parse(format!("<message type='chat'>{children}</message>").as_bytes()).unwrap();
        assert_eq!(decide(&frame), expect, "{children}");
    }

    #[test]
    fn section_3_chat_states_alone_are_not_kept() {
        let composing = "<composing xmlns='http://jabber.org/protocol/chatstates'/>";
        check("<body>Hi</body>", StorageDecision::Store);
        check("", StorageDecision::Store);
        check("<encrypted xmlns='eu.siacs.conversations.axolotl'/>", StorageDecision::Store);
        check(composing, StorageDecision::Discard);
        check(
            &format!("<thread>1</thread>{composing}<origin-id xmlns='urn:xmpp:sid:0' id='1'/>"),
            StorageDecision::Discard,
        );
        check(&format!("<body>Hi</body>{composing}"), StorageDecision::Store);
        check(&format!("{composing}<x xmlns='urn:unknown'/>"), StorageDecision::Store);
        check(&format!("{composing}<store xmlns='urn:xmpp:hints'/>"), StorageDecision::Store);
    }

    #[test]
    fn xep_0334_section_4_hints() {
        check("<body>Hi</body><no-store xmlns='urn:xmpp:hints'/>", StorageDecision::Skip);
        // 3.3: stored temporarily as a normal part of delivery.
        check("<body>Hi</body><no-permanent-store xmlns='urn:xmpp:hints'/>", StorageDecision::Store);
        check("<body>Hi</body><no-copy xmlns='urn:xmpp:hints'/>", StorageDecision::Store);
    }
}
