//! [`Envelope`]: one stanza on its way to one other node, with everyone there whom it concerns, and its wire form.
//!
//! ```text
//! octets  field                                   all numbers big-endian
//! 1       version, 1
//! 1       kind       what the receiver is to do; numbered by the engine, opaque here
//! 1       class      0 control and replies, 1 messages, 2 presence
//! 8       epoch      of the origin
//! 8       sequence   of the origin towards this receiver
//! 1 + n   origin     length, name
//! 2       number of recipients, then for each
//! 2 + n     address  length, text in normal form
//! 4 + n   bytes      length, the stanza (or whatever belongs to the kind)
//! ```
//!
//! A batch is parcels one behind another; [`Envelope::decode`] gives back what follows. A node sends no version above
//! what its receiver announces ([`crate::Member::version`]), so a change of layout is a new version, never a
//! lenient reading of this one. Left out: compression, encryption (the transport's).
//!
//! Trap: lengths in the input are promises of a stranger. Nothing is reserved before that many octets are there.

use std::sync::Arc;

use jid::{Jid, JidRef};

use crate::NodeId;

/// How a parcel is queued and what becomes of it when the network fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EnvelopeClass {
    /// Control and IQ replies: kept until acknowledged.
    Control = 0,
    /// Messages and IQ requests: kept until acknowledged.
    Message = 1,
    /// Presence: sent once; lost with the connection, never reordered.
    Presence = 2,
}

impl EnvelopeClass {
    /// Whether parcels of this class are kept and sent again until they are acknowledged.
    pub fn is_reliable(self) -> bool {
        self != EnvelopeClass::Presence
    }

    fn from_byte(byte: u8) -> Option<EnvelopeClass> {
        [EnvelopeClass::Control, EnvelopeClass::Message, EnvelopeClass::Presence]
            .into_iter()
            .find(|class| *class as u8 == byte)
    }
}

/// What is known about a parcel apart from its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeHeader {
    /// What the receiver is to do with it. The engine numbers the kinds and ignores unknown ones.
    pub kind: u8,
    /// How it is queued.
    pub class: EnvelopeClass,
    /// The node that sent it. Written by [`crate::Cluster::deliver`].
    pub origin: NodeId,
    /// Which life of that node. Written likewise.
    pub epoch: u64,
    /// Rises by the order of sending from this origin to this receiver; kept classes and presence are counted apart.
    /// Written likewise.
    pub sequence: u64,
}

/// One stanza for some addresses on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Kind, class and origin.
    pub header: EnvelopeHeader,
    /// Whom it concerns on the receiving node; may be empty (invalidation). At most [`Envelope::MAX_RECIPIENTS`].
    pub recipients: Vec<Jid>,
    /// The stanza, serialised and portable. At most [`Envelope::MAX_BYTES`]; shared, as several nodes may get the same.
    pub bytes: Arc<[u8]>,
}

/// Why octets are not a parcel, or a parcel cannot become octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// More was promised than is there.
    #[error("the parcel is cut off")]
    Truncated,
    /// Written by a newer node than this one understands.
    #[error("the parcel has the unknown version {0}")]
    Version(u8),
    /// A field has a value that version 1 does not have.
    #[error("the parcel's {0} is not valid")]
    Field(&'static str),
    /// Over one of the limits.
    #[error("the parcel is too large")]
    TooLarge,
}

impl Envelope {
    /// The version that is written, and the highest that is read.
    pub const VERSION: u8 = 1;
    /// Recipients of one parcel.
    pub const MAX_RECIPIENTS: usize = 8192;
    /// Octets of the stanza: the default limit of a stanza (256 KiB) twice.
    pub const MAX_BYTES: usize = 512 << 10;
    /// Octets of the whole: what a NATS server takes in one message unless told otherwise.
    pub const MAX: usize = 1 << 20;

    /// A parcel that has not been sent: origin and sequence are written when it is.
    pub fn new(
        kind: u8,
        class: EnvelopeClass,
        own: NodeId,
        recipients: Vec<Jid>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Envelope {
        let facts = EnvelopeHeader { kind, class, origin: own, epoch: 0, sequence: 0 };
        Envelope { header: facts, recipients, bytes: bytes.into() }
    }

    /// Octets of the wire form.
    pub fn encoded_len(&self) -> usize {
        let addresses: usize = self.recipients.iter().map(|jid| 2 + jid.as_str().len()).sum();
        3 + 16 + 1 + self.header.origin.as_str().len() + 2 + addresses + 4 + self.bytes.len()
    }

    /// Whether it is within the limits; one that is not must be split by its recipients or refused.
    pub fn fits(&self) -> bool {
        self.recipients.len() <= Self::MAX_RECIPIENTS
            && self.bytes.len() <= Self::MAX_BYTES
            && self.encoded_len() <= Self::MAX
    }

    /// Appends the wire form to `out`.
    ///
    /// # Errors
    /// [`EnvelopeError::TooLarge`]; then `out` is as it was.
    #[allow(clippy::cast_possible_truncation, reason = "`fits` holds every length below its field")]
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EnvelopeError> {
        if !self.fits() {
            return Err(EnvelopeError::TooLarge);
        }
        let EnvelopeHeader { kind, class, origin, epoch, sequence } = self.header;
        out.reserve(self.encoded_len());
        out.extend([Self::VERSION, kind, class as u8]);
        out.extend(epoch.to_be_bytes());
        out.extend(sequence.to_be_bytes());
        out.push(origin.as_str().len() as u8);
        out.extend(origin.as_str().as_bytes());
        out.extend((self.recipients.len() as u16).to_be_bytes());
        for jid in &self.recipients {
            out.extend((jid.as_str().len() as u16).to_be_bytes());
            out.extend(jid.as_str().as_bytes());
        }
        out.extend((self.bytes.len() as u32).to_be_bytes());
        out.extend(&self.bytes[..]);
        Ok(())
    }

    /// Reads one parcel and returns it with the octets behind it.
    ///
    /// Addresses are taken as they are, in normal form: nodes of a cluster trust one another.
    ///
    /// # Errors
    /// The first thing wrong with the input.
    pub fn decode(input: &[u8]) -> Result<(Envelope, &[u8]), EnvelopeError> {
        let mut rest = input;
        let [version, kind, class] = array(&mut rest)?;
        if version != Self::VERSION {
            return Err(EnvelopeError::Version(version));
        }
        let class = EnvelopeClass::from_byte(class).ok_or(EnvelopeError::Field("class"))?;
        let epoch = u64::from_be_bytes(array(&mut rest)?);
        let sequence = u64::from_be_bytes(array(&mut rest)?);
        let [length] = array(&mut rest)?;
        let origin =
            text(&mut rest, length.into()).and_then(NodeId::new).ok_or(EnvelopeError::Field("origin"))?;
        let count = usize::from(u16::from_be_bytes(array(&mut rest)?));
        if count > Self::MAX_RECIPIENTS {
            return Err(EnvelopeError::TooLarge);
        }
        // The shortest address takes three octets.
        let mut recipients = Vec::with_capacity(count.min(rest.len() / 3));
        for _ in 0..count {
            let length = u16::from_be_bytes(array(&mut rest)?);
            let jid = text(&mut rest, length.into()).and_then(JidRef::from_normalised);
            recipients.push(jid.ok_or(EnvelopeError::Field("recipient"))?.to_jid());
        }
        let length = u32::from_be_bytes(array(&mut rest)?) as usize;
        if length > Self::MAX_BYTES {
            return Err(EnvelopeError::TooLarge);
        }
        let bytes = Arc::from(take(&mut rest, length).ok_or(EnvelopeError::Truncated)?);
        if input.len() - rest.len() > Self::MAX {
            return Err(EnvelopeError::TooLarge);
        }
        Ok((
            Envelope { header: EnvelopeHeader { kind, class, origin, epoch, sequence }, recipients, bytes },
            rest,
        ))
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn text<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a str> {
    std::str::from_utf8(take(rest, length)?).ok()
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], EnvelopeError> {
    let (head, tail) = rest.split_first_chunk().ok_or(EnvelopeError::Truncated)?;
    *rest = tail;
    Ok(*head)
}
