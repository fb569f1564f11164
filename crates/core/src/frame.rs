//! A stanza ready to be routed: its bytes and its head in one shared allocation.
//!
//! A frame never changes. What differs from recipient to recipient (the `to` of a presence broadcast) is put
//! in while writing, at [`stanza::Head::insert_at`]; so one allocation serves every recipient.

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
    stored: bool,
}

/// What may be dropped first when queues are full (the order of shedding is presence, then nothing else).
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
        Frame(ThinArc::from_header_and_slice(Facts { head, stored: false }, bytes))
    }

    /// A message on its way out of the offline store, which keeps it until it is delivered. `None` as for
    /// [`Frame::read`].
    pub fn from_store(bytes: &[u8]) -> Option<Frame> {
        let head = *Frame::read(bytes)?.head();
        Some(Frame(ThinArc::from_header_and_slice(Facts { head, stored: true }, bytes)))
    }

    /// Whether the store still holds this message, so that losing the frame loses nothing.
    pub fn is_stored(&self) -> bool {
        self.0.header.header.stored
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
    /// A tree over the bytes, for features that read payloads.
    ///
    /// # Errors
    /// Only if the frame was built from bytes that were never checked.
    pub fn tree(&self) -> Result<xml::Tree<'_>, xml::Error> {
        tree(self.bytes())
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
