//! Envelope and its wire format: one stanza for all its recipients on one other node.
//!
//! ```text
//! octets  field                                   all numbers big-endian
//! 1       version, 3
//! 1       kind       what the receiver must do ([`EnvelopeKind`])
//! 1       class      0 control and replies, 1 messages, 2 best effort
//! 1       hops       envelopes that carried this stanza, this one included: 1 or 2
//! 1       flags      1 if the receiver tracks the delivery of the message, otherwise 0
//! 8       epoch      of the origin
//! 8       sequence   of the origin towards this receiver
//! 1 + n   origin     length, name
//! 1 + n   stanza id  length (0 or 15), the id that the stanza was given
//! 2       number of recipients, then for each
//! 1       form, then one of
//!   2 + n   0  address    length, text in normal form
//!   12      1  account    8 hash, 4 number
//!   16      2  session    8 hash, 4 number, 4 session
//! 4 + n   bytes      length, the stanza (or whatever belongs to the kind)
//! ```
//!
//! A batch is a sequence of envelopes; [`Envelope::decode`] returns the remaining octets. A node sends no
//! version above the one that its receiver announces ([`crate::Member::version`]), so a change of layout is a
//! new version, never a lenient parse of this one. Versions 1 and 2 are refused: 1 has no hops and no kinds, 2 no flags.
//!
//! Not implemented: compression and encryption, which are the transport's.
//!
//! # Pitfalls
//!
//! Lengths in the input are untrusted. No memory is reserved before that many octets are present.

use std::sync::Arc;

use base::TimeOrderedId;
use jid::JidRef;

use crate::{AddressNumber, AddressReference, EnvelopeKind, NodeId, Recipient};

/// Class of an envelope: how it is queued, and whether it survives a network failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EnvelopeClass {
    /// Control, IQ responses and presence of the engine: retained until acknowledged.
    Control = 0,
    /// Messages and IQ requests: retained until acknowledged.
    Message = 1,
    /// Sent once; lost with the connection, never reordered. For reports of usage only: lost presence would leave a wrong state.
    BestEffort = 2,
}

impl EnvelopeClass {
    /// Whether envelopes of this class are retained and sent again until they are acknowledged.
    pub fn is_reliable(self) -> bool {
        self != EnvelopeClass::BestEffort
    }

    fn from_byte(byte: u8) -> Option<EnvelopeClass> {
        [EnvelopeClass::Control, EnvelopeClass::Message, EnvelopeClass::BestEffort]
            .into_iter()
            .find(|class| *class as u8 == byte)
    }
}

/// Header of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeHeader {
    /// How the receiver handles it.
    pub kind: EnvelopeKind,
    /// How it is queued.
    pub class: EnvelopeClass,
    /// Envelopes that carried this stanza, this one included: 1 to [`Envelope::MAX_HOPS`].
    pub hops: u8,
    /// The sending node. Set by [`crate::Cluster::deliver`].
    pub origin: NodeId,
    /// The epoch of that node. Set by [`crate::Cluster::deliver`].
    pub epoch: u64,
    /// Increases in sending order from this origin to this receiver; reliable classes and best effort are numbered
    /// separately. Set by [`crate::Cluster::deliver`].
    pub sequence: u64,
    /// The stanza id that the stanza was given (XEP-0359). It keeps it, so that a stanza that arrives on two ways after a
    /// broken hand-over is recognised.
    pub stanza_id: Option<TimeOrderedId>,
    /// A client's stream waits until the message is safe (XEP-0198): the receiver settles the envelope when the recipient's
    /// client has the message, or the store. Otherwise a session's queue suffices.
    pub tracks_delivery: bool,
}

/// One stanza for addresses on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Kind, class, origin and sequence.
    pub header: EnvelopeHeader,
    /// Recipients on the receiving node; may be empty (invalidation). At most [`Envelope::MAX_RECIPIENTS`].
    pub recipients: Vec<Recipient>,
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
    /// Written by a newer or an older node.
    #[error("the envelope has the unknown version {0}")]
    Version(u8),
    /// A field has a value that is not defined in this version.
    #[error("the envelope's {0} is not valid")]
    Field(&'static str),
    /// It exceeds one of the limits.
    #[error("the envelope is too large")]
    TooLarge,
}

impl Envelope {
    /// The version that is written and read.
    pub const VERSION: u8 = 3;
    /// Maximum number of hops: to the home, and from the home to a node with other sessions.
    pub const MAX_HOPS: u8 = 2;
    /// Maximum number of recipients.
    pub const MAX_RECIPIENTS: usize = 8192;
    /// Maximum octets of the stanza: twice the default limit of a stanza (256 KiB).
    pub const MAX_BYTES: usize = 512 << 10;
    /// Maximum octets of an encoded envelope: the default limit of a message of a NATS server.
    pub const MAX: usize = 1 << 20;

    /// An envelope that has not been sent: origin and sequence are set when it is.
    pub fn new(
        kind: EnvelopeKind,
        class: EnvelopeClass,
        own: NodeId,
        recipients: Vec<Recipient>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Envelope {
        let header = EnvelopeHeader {
            kind,
            class,
            hops: 1,
            origin: own,
            epoch: 0,
            sequence: 0,
            stanza_id: None,
            tracks_delivery: false,
        };
        Envelope { header, recipients, bytes: bytes.into() }
    }

    /// The same with the id that the stanza was given.
    #[must_use]
    pub fn with_stanza_id(mut self, id: Option<TimeOrderedId>) -> Envelope {
        self.header.stanza_id = id;
        self
    }

    /// The same, whose receiver tracks the delivery of the message or not.
    #[must_use]
    pub fn with_delivery_tracking(mut self, tracks_delivery: bool) -> Envelope {
        self.header.tracks_delivery = tracks_delivery;
        self
    }

    /// An envelope with the same stanza and id for recipients on a further node. `None` after the last hop: this node
    /// must handle the stanza then.
    pub fn forwarded(&self, kind: EnvelopeKind, recipients: Vec<Recipient>) -> Option<Envelope> {
        if self.header.hops >= Self::MAX_HOPS {
            return None;
        }
        let header = EnvelopeHeader { kind, hops: self.header.hops + 1, ..self.header };
        Some(Envelope { header, recipients, bytes: self.bytes.clone() })
    }

    /// Length of the encoded envelope in octets.
    pub fn encoded_len(&self) -> usize {
        let recipients: usize = self.recipients.iter().map(Recipient::encoded_len).sum();
        let id = 1 + self.header.stanza_id.map_or(0, |_| TimeOrderedId::BYTES);
        5 + 16 + 1 + self.header.origin.as_str().len() + id + 2 + recipients + 4 + self.bytes.len()
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
    /// [`EnvelopeError::TooLarge`], or [`EnvelopeError::Field`] for a kind or a number of hops that does not exist; `out`
    /// is unchanged then.
    #[allow(clippy::cast_possible_truncation, reason = "`fits` holds every length below its field")]
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EnvelopeError> {
        if !self.fits() {
            return Err(EnvelopeError::TooLarge);
        }
        let EnvelopeHeader { kind, class, hops, origin, epoch, sequence, stanza_id, tracks_delivery } =
            self.header;
        let kind = kind.to_byte().ok_or(EnvelopeError::Field("kind"))?;
        if !(1..=Self::MAX_HOPS).contains(&hops) {
            return Err(EnvelopeError::Field("hops"));
        }
        out.reserve(self.encoded_len());
        out.extend([Self::VERSION, kind, class as u8, hops, u8::from(tracks_delivery)]);
        out.extend(epoch.to_be_bytes());
        out.extend(sequence.to_be_bytes());
        out.push(origin.as_str().len() as u8);
        out.extend(origin.as_str().as_bytes());
        match stanza_id {
            Some(id) => {
                out.push(TimeOrderedId::BYTES as u8);
                out.extend(id.to_bytes());
            }
            None => out.push(0),
        }
        out.extend((self.recipients.len() as u16).to_be_bytes());
        for recipient in &self.recipients {
            match recipient {
                Recipient::Address(jid) => {
                    out.push(FORM_ADDRESS);
                    out.extend((jid.as_str().len() as u16).to_be_bytes());
                    out.extend(jid.as_str().as_bytes());
                }
                Recipient::Account(account) => {
                    out.push(FORM_ACCOUNT);
                    encode_reference(account, out);
                }
                Recipient::Session(account, session) => {
                    out.push(FORM_SESSION);
                    encode_reference(account, out);
                    out.extend(session.to_be_bytes());
                }
            }
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
        let [version] = array(&mut rest)?;
        if version != Self::VERSION {
            return Err(EnvelopeError::Version(version));
        }
        let [kind, class, hops, flags] = array(&mut rest)?;
        let kind = EnvelopeKind::from_byte(kind).ok_or(EnvelopeError::Field("kind"))?;
        if !(1..=Self::MAX_HOPS).contains(&hops) {
            return Err(EnvelopeError::Field("hops"));
        }
        let class = EnvelopeClass::from_byte(class).ok_or(EnvelopeError::Field("class"))?;
        let tracks_delivery = match flags {
            0 => false,
            1 => true,
            _ => return Err(EnvelopeError::Field("flags")),
        };
        let epoch = u64::from_be_bytes(array(&mut rest)?);
        let sequence = u64::from_be_bytes(array(&mut rest)?);
        let [length] = array(&mut rest)?;
        let origin =
            text(&mut rest, length.into()).and_then(NodeId::new).ok_or(EnvelopeError::Field("origin"))?;
        let stanza_id = match array(&mut rest)? {
            [0] => None,
            [length] if usize::from(length) == TimeOrderedId::BYTES => {
                Some(TimeOrderedId::from_bytes(array(&mut rest)?))
            }
            _ => return Err(EnvelopeError::Field("stanza id")),
        };
        let count = usize::from(u16::from_be_bytes(array(&mut rest)?));
        if count > Self::MAX_RECIPIENTS {
            return Err(EnvelopeError::TooLarge);
        }
        // The shortest recipient has four octets.
        let mut recipients = Vec::with_capacity(count.min(rest.len() / 4));
        for _ in 0..count {
            recipients.push(decode_recipient(&mut rest)?);
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
            Envelope {
                header: EnvelopeHeader {
                    kind,
                    class,
                    hops,
                    origin,
                    epoch,
                    sequence,
                    stanza_id,
                    tracks_delivery,
                },
                recipients,
                bytes,
            },
            rest,
        ))
    }
}

const FORM_ADDRESS: u8 = 0;
const FORM_ACCOUNT: u8 = 1;
const FORM_SESSION: u8 = 2;

fn encode_reference(account: &AddressReference, out: &mut Vec<u8>) {
    out.extend(account.hash.to_be_bytes());
    out.extend(account.number.get().to_be_bytes());
}

fn decode_recipient(rest: &mut &[u8]) -> Result<Recipient, EnvelopeError> {
    const INVALID: EnvelopeError = EnvelopeError::Field("recipient");
    let [form] = array(rest)?;
    if form == FORM_ADDRESS {
        let length = u16::from_be_bytes(array(rest)?);
        let jid = text(rest, length.into()).and_then(JidRef::from_normalised);
        return Ok(Recipient::Address(jid.ok_or(INVALID)?.to_jid()));
    }
    if form > FORM_SESSION {
        return Err(INVALID);
    }
    let hash = u64::from_be_bytes(array(rest)?);
    let number = AddressNumber::new(u32::from_be_bytes(array(rest)?)).ok_or(INVALID)?;
    let account = AddressReference { hash, number };
    if form == FORM_ACCOUNT {
        return Ok(Recipient::Account(account));
    }
    Ok(Recipient::Session(account, u32::from_be_bytes(array(rest)?)))
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
