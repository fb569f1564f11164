//! Storage policy of offline messages: XEP-0160 1.0.1, section 3, with the hints of XEP-0334 1.0.0, section 4.

use stanza::{MessageTraits, PayloadNs, PayloadSet};
use throng_core::SharedStanza;

/// Action for a message that no resource accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageDecision {
    /// Store it.
    Store,
    /// Do not store it; other handlers may still take it, or the sender gets an error.
    Skip,
    /// Do not store it and send no error: a typing notification that came too late.
    Discard,
}

/// Decides on a message of type chat or normal.
pub(super) fn decide(frame: &SharedStanza) -> StorageDecision {
    let (head, bytes) = (frame.head(), frame.bytes());
    if !head.payloads().intersects(PayloadSet::of(&[PayloadNs::Hints, PayloadNs::Chatstates])) {
        return StorageDecision::Store;
    }
    let content = MessageTraits::of(head, bytes);
    if content.intersects(MessageTraits::NO_STORE.union(MessageTraits::UNREADABLE)) {
        return StorageDecision::Skip;
    }
    // XEP-0085, section 5.6. Payloads that belong to the conversation and not to the text do not change that.
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
    fn section_3_standalone_chat_states_are_not_stored() {
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
        // XEP-0334, section 3.3: stored temporarily as a normal part of delivery.
        check("<body>Hi</body><no-permanent-store xmlns='urn:xmpp:hints'/>", StorageDecision::Store);
        check("<body>Hi</body><no-copy xmlns='urn:xmpp:hints'/>", StorageDecision::Store);
    }
}
