//! Envelope and its wire format: one stanza for all its recipients on one other node.
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
//! A batch is a sequence of envelopes; [`Envelope::decode`] returns the remaining octets. A node sends no
//! version above the one that its receiver announces ([`crate::Member::version`]), so a change of layout is a
//! new version, never a lenient parse of this one.
//!
//! Not implemented: compression and encryption, which are the transport's.
//!
//! # Pitfalls
//!
//! Lengths in the input are untrusted. No memory is reserved before that many octets are present.

use std::sync::Arc;

use jid::{Jid, JidRef};

use crate::NodeId;

/// Class of an envelope: how it is queued, and whether it survives a network failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EnvelopeClass {
    /// Control and IQ responses: retained until acknowledged.
    Control = 0,
    /// Messages and IQ requests: retained until acknowledged.
    Message = 1,
    /// Presence: sent once; lost with the connection, never reordered.
    Presence = 2,
}

impl EnvelopeClass {
    /// Whether envelopes of this class are retained and sent again until they are acknowledged.
    pub fn is_reliable(self) -> bool {
        self != EnvelopeClass::Presence
    }

    fn from_byte(byte: u8) -> Option<EnvelopeClass> {
        [EnvelopeClass::Control, EnvelopeClass::Message, EnvelopeClass::Presence]
            .into_iter()
            .find(|class| *class as u8 == byte)
    }
}

/// Header of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeHeader {
    /// How the receiver handles it. The engine numbers the kinds and ignores unknown ones.
    pub kind: u8,
    /// How it is queued.
    pub class: EnvelopeClass,
    /// The sending node. Set by [`crate::Cluster::deliver`].
    pub origin: NodeId,
    /// The epoch of that node. Set by [`crate::Cluster::deliver`].
    pub epoch: u64,
    /// Increases in sending order from this origin to this receiver; reliable classes and presence are numbered
    /// separately. Set by [`crate::Cluster::deliver`].
    pub sequence: u64,
}

/// One stanza for addresses on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Kind, class, origin and sequence.
    pub header: EnvelopeHeader,
    /// Recipients on the receiving node; may be empty (invalidation). At most [`Envelope::MAX_RECIPIENTS`].
    pub recipients: Vec<Jid>,
    /// The serialised stanza with all its namespace declarations. At most [`Envelope::MAX_BYTES`]; shared,
    /// because several nodes may receive the same.
    pub bytes: Arc<[u8]>,
}

/// Why octets cannot be decoded, or an envelope cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The input is shorter than its lengths.
    #[error("the envelope is truncated")]
    Truncated,
    /// Written by a newer node.
    #[error("the envelope has the unknown version {0}")]
    Version(u8),
    /// A field has a value that is not defined in version 1.
    #[error("the envelope's {0} is not valid")]
    Field(&'static str),
    /// It exceeds one of the limits.
    #[error("the envelope is too large")]
    TooLarge,
}

impl Envelope {
    /// The version that is written, and the highest that is read.
    pub const VERSION: u8 = 1;
    /// Maximum number of recipients.
    pub const MAX_RECIPIENTS: usize = 8192;
    /// Maximum octets of the stanza: twice the default limit of a stanza (256 KiB).
    pub const MAX_BYTES: usize = 512 << 10;
    /// Maximum octets of an encoded envelope: the default limit of a message of a NATS server.
    pub const MAX: usize = 1 << 20;

    /// An envelope that has not been sent: origin and sequence are set when it is.
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

    /// Length of the encoded envelope in octets.
    pub fn encoded_len(&self) -> usize {
        let addresses: usize = self.recipients.iter().map(|jid| 2 + jid.as_str().len()).sum();
        3 + 16 + 1 + self.header.origin.as_str().len() + 2 + addresses + 4 + self.bytes.len()
    }

    /// Whether it is within the limits; otherwise it must be split by recipients or refused.
    pub fn fits(&self) -> bool {
        self.recipients.len() <= Self::MAX_RECIPIENTS
            && self.bytes.len() <= Self::MAX_BYTES
            && self.encoded_len() <= Self::MAX
    }

    /// Appends the encoded envelope to `out`.
    ///
    /// # Errors
    /// [`EnvelopeError::TooLarge`]; `out` is unchanged then.
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

    /// Decodes one envelope and returns it with the remaining octets.
    ///
    /// Addresses are accepted as they are, in normal form: nodes of a cluster trust one another.
    ///
    /// # Errors
    /// The first error in the input.
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
        // The shortest address has three octets.
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
