//! A stanza ready to be routed: its bytes and its head in one shared allocation.
//!
//! A frame never changes. What differs from recipient to recipient (the `to` of a presence broadcast) is put
//! in while writing, at [`stanza::Head::insert_at`]; so one allocation serves every recipient.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use stanza::{Element, Head, Kind};
use triomphe::ThinArc;
use xml::Scope;

use crate::limits::FRAME_LIMITS;

static CLIENT: Scope = Scope::client();

/// Shared, immutable stanza. Cloning costs one atomic increment.
#[derive(Clone)]
pub struct Frame(ThinArc<Facts, u8>);

struct Facts {
    head: Head,
    fate: AtomicU64,
}

/// The store holds the message; its number there is in the bits below.
const STORED: u64 = 1 << 63;
/// One of several sessions has got the message for sure.
const ARRIVED: u64 = 1 << 62;
/// The message carries the time at which it was first sent.
const LATE: u64 = 1 << 61;
/// An answer that the session asked for.
const ASKED: u64 = 1 << 60;
/// An error that the server made in the name of the recipient of a request.
const SERVERS: u64 = 1 << 59;
/// How many sessions share the message, if more than one got it.
const SHARES: u64 = u32::MAX as u64;

/// What may be dropped first when queues are full: presence, and answers that nobody asked for (`session/shed.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// IQ and anything that a client waits for.
    Control,
    /// Messages: never dropped, moved to the store instead.
    Message,
    /// Presence: only the newest counts.
    Presence,
}

impl Frame {
    /// A frame of bytes whose head is known.
    pub fn new(head: Head, bytes: &[u8]) -> Frame {
        Frame::with(head, bytes, 0)
    }

    fn with(head: Head, bytes: &[u8], fate: u64) -> Frame {
        Frame(ThinArc::from_header_and_slice(Facts { head, fate: AtomicU64::new(fate) }, bytes))
    }

    /// A message on its way out of the offline store, which keeps it under the number `seq` until it is delivered.
    /// `None` as for [`Frame::read`].
    pub fn from_store(bytes: &[u8], seq: u64) -> Option<Frame> {
        Some(Frame::with(*Frame::read(bytes)?.head(), bytes, STORED | seq))
    }

    /// A message that was given to a session before and now carries the time of that (XEP-0203). `None` as for
    /// [`Frame::read`].
    pub fn late(bytes: &[u8]) -> Option<Frame> {
        Some(Frame::with(*Frame::read(bytes)?.head(), bytes, LATE))
    }

    /// Whether the store still holds this message, so that losing the frame loses nothing.
    pub fn is_stored(&self) -> bool {
        self.stored().is_some()
    }

    /// The number under which the store holds this message.
    pub fn stored(&self) -> Option<u64> {
        let fate = self.fate().load(Ordering::Relaxed);
        (fate & STORED != 0).then_some(fate & !STORED)
    }

    /// Whether it was made by [`Frame::late`].
    pub fn is_late(&self) -> bool {
        let fate = self.fate().load(Ordering::Relaxed);
        fate & STORED == 0 && fate & LATE != 0
    }

    /// It is an answer that the session which gets it asked for; to be said before it is queued.
    pub(crate) fn set_asked_for(&self) {
        self.fate().fetch_or(ASKED, Ordering::Relaxed);
    }

    /// Whether it is an answer that its session asked for.
    pub(crate) fn is_asked_for(&self) -> bool {
        let fate = self.fate().load(Ordering::Relaxed);
        fate & STORED == 0 && fate & ASKED != 0
    }

    /// It is an error that the server made, with the address of somebody else as RFC 6120 section 8.3.1 has it; to be said
    /// before it is queued.
    pub(crate) fn set_servers(&self) {
        self.fate().fetch_or(SERVERS, Ordering::Relaxed);
    }

    /// Whether the server made it in the name of somebody else.
    pub(crate) fn is_servers(&self) -> bool {
        let fate = self.fate().load(Ordering::Relaxed);
        fate & STORED == 0 && fate & SERVERS != 0
    }

    /// The same message goes to several sessions; to be said before the first gets it. It is lost only when all of
    /// them lose it.
    pub fn share(&self, sessions: usize) {
        self.fate().fetch_add(sessions as u64 & SHARES, Ordering::Relaxed);
    }

    /// Whether several sessions got this message.
    pub fn is_shared(&self) -> bool {
        let fate = self.fate().load(Ordering::Relaxed);
        fate & STORED == 0 && fate & SHARES != 0
    }

    /// One of the sessions that share it has got it for sure.
    pub fn arrived(&self) {
        if self.is_shared() {
            self.fate().fetch_or(ARRIVED, Ordering::AcqRel);
        }
    }

    /// A session will not get it. True if none has it and no other may get it: then something is to be done.
    pub fn give_up(&self) -> bool {
        if !self.is_shared() {
            return true;
        }
        let before = self.fate().fetch_sub(1, Ordering::AcqRel);
        before & ARRIVED == 0 && before & SHARES == 1
    }

    fn fate(&self) -> &AtomicU64 {
        &self.0.header.header.fate
    }

    /// Reads bytes that the server wrote itself or took from its store; `None` if they are no portable stanza.
    pub fn read(bytes: &[u8]) -> Option<Frame> {
        match Element::read(bytes, &CLIENT, &FRAME_LIMITS) {
            Ok(Element::Stanza(head)) => Some(Frame::new(head, bytes)),
            _ => {
                tracing::error!(bytes = bytes.len(), "a stanza written by the server is not readable");
                None
            }
        }
    }

    /// Builds a frame with the writer.
    pub fn build(write: impl FnOnce(&mut xml::Writer<'_>)) -> Option<Frame> {
        let mut out = Vec::with_capacity(256);
        write(&mut xml::Writer::new(&mut out));
        Frame::read(&out)
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
    pub fn kind(&self) -> Kind {
        self.head().kind
    }
    /// The class that decides about queues.
    pub fn class(&self) -> Class {
        match self.kind() {
            Kind::Message(_) => Class::Message,
            Kind::Iq(_) => Class::Control,
            // Subscription requests are stored and answered; only plain presence may be shed.
            Kind::Presence(p) if p.is_subscription() => Class::Control,
            Kind::Presence(_) => Class::Presence,
        }
    }
    /// The stanza without what `choose` adds to its list: for each child the child's range, or ranges in it, in their order.
    /// `None` if that is nothing.
    ///
    /// # Errors
    /// If it cannot be read: it may have such children then.
    pub fn without(
        &self,
        choose: impl Fn(&xml::Node<'_>, &mut Vec<Range<usize>>),
    ) -> Result<Option<Frame>, xml::Error> {
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
        Frame::read(&out).map(Some).ok_or(xml::Error::NotWellFormed("a stanza without some of its children"))
    }
    /// A tree over the bytes, for features that read payloads.
    ///
    /// # Errors
    /// Only if the frame was built from bytes that were never checked.
    pub fn tree(&self) -> Result<xml::Tree<'_>, xml::Error> {
        tree(self.bytes())
    }
}

/// Whether [`Frame::read`] will read these bytes.
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

impl std::fmt::Debug for Frame {
    /// Shows kind and size, never content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame({:?}, {} bytes)", self.kind(), self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_sessions_got_is_lost_when_all_lose_it() {
        let frame = || Frame::read(b"<message/>").unwrap();
        let alone = frame();
        alone.arrived();
        assert!(alone.give_up());
        let lost = frame();
        lost.share(2);
        assert!(!lost.give_up() && lost.give_up());
        let arrived = frame();
        arrived.share(2);
        arrived.arrived();
        assert!(!arrived.give_up());
        let late = frame();
        late.share(3);
        assert!(!late.give_up());
        late.arrived();
        assert!(!late.give_up());
    }

    #[test]
    fn a_stored_message_knows_its_number() {
        let frame = Frame::from_store(b"<message/>", 7).unwrap();
        assert_eq!((frame.stored(), frame.is_shared(), frame.is_late()), (Some(7), false, false));
        assert!(frame.give_up());
        assert!(Frame::late(b"<message/>").unwrap().is_late() && !frame.is_late());
    }
}
