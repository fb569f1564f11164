//! A stanza ready to be routed: its bytes and its head in one shared allocation.
//!
//! A frame never changes. What differs from recipient to recipient (the `to` of a presence broadcast) is put
//! in while writing, at [`stanza::Head::attr_insert_offset`]; so one allocation serves every recipient.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use stanza::{Element, Head, StanzaKind};
use triomphe::ThinArc;
use xml::NamespaceContext;

use crate::limits::FRAME_LIMITS;

static CLIENT: NamespaceContext = NamespaceContext::client();

/// Shared, immutable stanza. Cloning costs one atomic increment.
#[derive(Clone)]
pub struct SharedStanza(ThinArc<StanzaHeader, u8>);

struct StanzaHeader {
    head: Head,
    delivery_state: AtomicU64,
}

/// The store holds the message; its number there is in the bits below.
const STORED: u64 = 1 << 63;
/// One of several sessions has got the message for sure.
const DELIVERED: u64 = 1 << 62;
/// The message carries the time at which it was first sent.
const DELAYED: u64 = 1 << 61;
/// An answer that the session asked for.
const REQUESTED: u64 = 1 << 60;
/// An error that the server made in the name of the recipient of a request.
const SERVER_ERROR: u64 = 1 << 59;
/// How many sessions share the message, if more than one got it.
const PENDING_RECIPIENTS: u64 = u32::MAX as u64;

/// What may be dropped first when queues are full: presence, and answers that nobody asked for (`session/shed.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueClass {
    /// IQ and anything that a client waits for.
    Control,
    /// Messages: never dropped, moved to the store instead.
    Message,
    /// Presence: only the newest counts.
    Presence,
}

impl SharedStanza {
    /// A frame of bytes whose head is known.
    pub fn new(head: Head, bytes: &[u8]) -> SharedStanza {
        SharedStanza::with(head, bytes, 0)
    }

    fn with(head: Head, bytes: &[u8], fate: u64) -> SharedStanza {
        SharedStanza(ThinArc::from_header_and_slice(
            StanzaHeader { head, delivery_state: AtomicU64::new(fate) },
            bytes,
        ))
    }

    /// A message on its way out of the offline store, which keeps it under the number `seq` until it is delivered.
    /// `None` as for [`SharedStanza::parse`].
    pub fn from_store(bytes: &[u8], seq: u64) -> Option<SharedStanza> {
        Some(SharedStanza::with(*SharedStanza::parse(bytes)?.head(), bytes, STORED | seq))
    }

    /// A message that was given to a session before and now carries the time of that (XEP-0203). `None` as for
    /// [`SharedStanza::parse`].
    pub fn delayed(bytes: &[u8]) -> Option<SharedStanza> {
        Some(SharedStanza::with(*SharedStanza::parse(bytes)?.head(), bytes, DELAYED))
    }

    /// Whether the store still holds this message, so that losing the frame loses nothing.
    pub fn is_stored(&self) -> bool {
        self.stored().is_some()
    }

    /// The number under which the store holds this message.
    pub fn stored(&self) -> Option<u64> {
        let fate = self.delivery_state().load(Ordering::Relaxed);
        (fate & STORED != 0).then_some(fate & !STORED)
    }

    /// Whether it was made by [`SharedStanza::delayed`].
    pub fn is_delayed(&self) -> bool {
        let fate = self.delivery_state().load(Ordering::Relaxed);
        fate & STORED == 0 && fate & DELAYED != 0
    }

    /// It is an answer that the session which gets it asked for; to be said before it is queued.
    pub(crate) fn mark_requested(&self) {
        self.delivery_state().fetch_or(REQUESTED, Ordering::Relaxed);
    }

    /// Whether it is an answer that its session asked for.
    pub(crate) fn is_requested(&self) -> bool {
        let fate = self.delivery_state().load(Ordering::Relaxed);
        fate & STORED == 0 && fate & REQUESTED != 0
    }

    /// It is an error that the server made, with the address of somebody else as RFC 6120 section 8.3.1 has it; to be said
    /// before it is queued.
    pub(crate) fn mark_server_error(&self) {
        self.delivery_state().fetch_or(SERVER_ERROR, Ordering::Relaxed);
    }

    /// Whether the server made it in the name of somebody else.
    pub(crate) fn is_server_error(&self) -> bool {
        let fate = self.delivery_state().load(Ordering::Relaxed);
        fate & STORED == 0 && fate & SERVER_ERROR != 0
    }

    /// The same message goes to several sessions; to be said before the first gets it. It is lost only when all of
    /// them lose it.
    pub fn add_recipients(&self, sessions: usize) {
        self.delivery_state().fetch_add(sessions as u64 & PENDING_RECIPIENTS, Ordering::Relaxed);
    }

    /// Whether several sessions got this message.
    pub fn is_shared(&self) -> bool {
        let fate = self.delivery_state().load(Ordering::Relaxed);
        fate & STORED == 0 && fate & PENDING_RECIPIENTS != 0
    }

    /// One of the sessions that share it has got it for sure.
    pub fn mark_delivered(&self) {
        if self.is_shared() {
            self.delivery_state().fetch_or(DELIVERED, Ordering::AcqRel);
        }
    }

    /// A session will not get it. True if none has it and no other may get it: then something is to be done.
    pub fn release_copy(&self) -> bool {
        if !self.is_shared() {
            return true;
        }
        let before = self.delivery_state().fetch_sub(1, Ordering::AcqRel);
        before & DELIVERED == 0 && before & PENDING_RECIPIENTS == 1
    }

    fn delivery_state(&self) -> &AtomicU64 {
        &self.0.header.header.delivery_state
    }

    /// Reads bytes that the server wrote itself or took from its store; `None` if they are no portable stanza.
    pub fn parse(bytes: &[u8]) -> Option<SharedStanza> {
        match Element::read(bytes, &CLIENT, &FRAME_LIMITS) {
            Ok(Element::Stanza(head)) => Some(SharedStanza::new(head, bytes)),
            _ => {
                tracing::error!(bytes = bytes.len(), "a stanza written by the server is not readable");
                None
            }
        }
    }

    /// Builds a frame with the writer.
    pub fn build(write: impl FnOnce(&mut xml::Writer<'_>)) -> Option<SharedStanza> {
        let mut out = Vec::with_capacity(256);
        write(&mut xml::Writer::new(&mut out));
        SharedStanza::parse(&out)
    }

    /// Positions and facts.
    pub fn head(&self) -> &Head {
        &self.0.header.header.head
    }
    /// The stanza.
    pub fn bytes(&self) -> &[u8] {
        &self.0.slice
    }
    /// Kind and type.
    pub fn kind(&self) -> StanzaKind {
        self.head().kind
    }
    /// The class that decides about queues.
    pub fn class(&self) -> QueueClass {
        match self.kind() {
            StanzaKind::Message(_) => QueueClass::Message,
            StanzaKind::Iq(_) => QueueClass::Control,
            // Subscription requests are stored and answered; only plain presence may be shed.
            StanzaKind::Presence(p) if p.is_subscription() => QueueClass::Control,
            StanzaKind::Presence(_) => QueueClass::Presence,
        }
    }
    /// The stanza without what `choose` adds to its list: for each child the child's range, or ranges in it, in their order.
    /// `None` if that is nothing.
    ///
    /// # Errors
    /// If it cannot be read: it may have such children then.
    pub fn without(
        &self,
        choose: impl Fn(&xml::TreeNode<'_>, &mut Vec<Range<usize>>),
    ) -> Result<Option<SharedStanza>, xml::Error> {
        let tree = self.tree()?;
        let mut gone = Vec::new();
        tree.root().child_elements().for_each(|child| choose(&child, &mut gone));
        if gone.is_empty() {
            return Ok(None);
        }
        let bytes = self.bytes();
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        for range in gone {
            out.extend_from_slice(&bytes[at..range.start]);
            at = range.end;
        }
        out.extend_from_slice(&bytes[at..]);
        SharedStanza::parse(&out)
            .map(Some)
            .ok_or(xml::Error::NotWellFormed("a stanza without some of its children"))
    }
    /// A tree over the bytes, for features that read payloads.
    ///
    /// # Errors
    /// Only if the frame was built from bytes that were never checked.
    pub fn tree(&self) -> Result<xml::Tree<'_>, xml::Error> {
        tree(self.bytes())
    }
}

/// Whether [`SharedStanza::parse`] will read these bytes.
///
/// # Errors
/// What is wrong with them.
pub fn check(bytes: &[u8]) -> Result<(), xml::Error> {
    match Element::read(bytes, &CLIENT, &FRAME_LIMITS)? {
        Element::Stanza(_) => Ok(()),
        _ => Err(xml::Error::NotWellFormed("no stanza")),
    }
}

/// A tree over a checked stanza.
///
/// # Errors
/// Only for bytes that were never checked.
pub fn tree(bytes: &[u8]) -> Result<xml::Tree<'_>, xml::Error> {
    xml::Tree::parse(bytes, &CLIENT, &FRAME_LIMITS)
}

impl std::fmt::Debug for SharedStanza {
    /// Shows kind and size, never content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame({:?}, {} bytes)", self.kind(), self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_message_is_lost_when_its_last_copy_is_released() {
        let frame = || SharedStanza::parse(b"<message/>").unwrap();
        let alone = frame();
        alone.mark_delivered();
        assert!(alone.release_copy());
        let lost = frame();
        lost.add_recipients(2);
        assert!(!lost.release_copy() && lost.release_copy());
        let arrived = frame();
        arrived.add_recipients(2);
        arrived.mark_delivered();
        assert!(!arrived.release_copy());
        let late = frame();
        late.add_recipients(3);
        assert!(!late.release_copy());
        late.mark_delivered();
        assert!(!late.release_copy());
    }

    #[test]
    fn a_stored_message_knows_its_number() {
        let frame = SharedStanza::from_store(b"<message/>", 7).unwrap();
        assert_eq!((frame.stored(), frame.is_shared(), frame.is_delayed()), (Some(7), false, false));
        assert!(frame.release_copy());
        assert!(SharedStanza::delayed(b"<message/>").unwrap().is_delayed() && !frame.is_delayed());
    }
}
