//! Frames: what a node publishes on the subject of another one. A frame carries consecutive items of a link.
//!
//! ```text
//! octets  field                                   all numbers big-endian
//! 1       version, 1
//! 1 + n   from       length, name of the sending node
//! 8       from epoch
//! 8       from link  number of the link at the sender
//! 8       to epoch
//! 8       to link    number of the link at the receiver, 0 if the sender does not know it
//! 8       received   every item of the receiver below this number has arrived
//! 1       flags      1 if items after that number are missing
//! 8       first      number of the first item
//! 2       number of items, then for each
//! 1       kind
//! 4 + n   body       length, octets
//! ```
//!
//! 16 octets with the code of all that ([`ClusterKey`](crate::ClusterKey)) follow in the message of NATS.
//!
//! | Kind | Item | Body |
//! | --- | --- | --- |
//! | 1 | envelope | 8 ticket (0 for best effort), the envelope |
//! | 2 | part of an envelope | the next octets of the body of item 1 or 2 that follows |
//! | 3 | changes of claims | for each 1 flags, 8 hash, 4 number, and 8 time unless it is released |
//! | 4 | part of a snapshot of claims | 1 flags (1 first, 2 last), then as changes |
//! | 5 | receipts | 8 up to, 4 number of later ones, 8 each, 4 number of refused ones, then for each 8 ticket, 2 number of positions (65535: all), 2 each |
//! | 6 | digest of the claims | 8 count, 8 exclusive or |
//! | 7 | request of a snapshot | – |
//! | 8 | the sender leaves: its last item | – |
//!
//! # Versions
//!
//! A node reads a range of versions, which its record states ([`super::member_record`]), and writes to each other node the highest
//! version that both read; without one they do not communicate, and both report it. A change of layout is a new version. A version
//! may add kinds of items, and fields at the end of the bodies of kinds 5 to 8. They are written only to nodes that read that
//! version. A reader skips kinds that it does not know and ignores the rest of such bodies, and refuses unknown flags and kinds of
//! envelopes. A release reads the versions of the release before, so nodes can be upgraded one after the other.
//!
//! # Pitfalls
//!
//! Lengths in the input are untrusted: no memory is reserved before that many octets are present. An item with a body that is not
//! valid keeps its number; a frame with another header than this one is ignored as a whole.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use cluster::{
    AddressNumber, Claim, ClaimChange, Envelope, EnvelopeError, HandoverResult, NodeId, PeerViolation,
};

use super::directory::Digest;
use super::version_range::VersionRange;

/// The versions that are read.
pub(crate) const FRAME_VERSIONS: VersionRange = VersionRange { oldest: 1, newest: 1 };
/// Largest frame. A NATS server must accept messages of this size; its default is 1 MiB.
pub(crate) const MAX_FRAME: usize = 512 << 10;
/// Largest body of an item. Longer envelopes are divided.
pub(crate) const MAX_BODY: usize = 256 << 10;
/// Octets of the header before the first item, at most.
pub(crate) const HEADER: usize = 2 + NodeId::MAX + 8 * 6 + 1 + 2;
/// Octets of an item besides its body.
pub(crate) const ITEM_HEADER: usize = 5;

const MISSING: u8 = 1;
const RELEASED: u8 = 1;
const TAKES_MESSAGES: u8 = 2;
const FIRST: u8 = 1;
const LAST: u8 = 2;
const ALL_POSITIONS: u16 = u16::MAX;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) version: u8,
    pub(crate) from: NodeId,
    pub(crate) from_epoch: u64,
    pub(crate) from_link: u64,
    pub(crate) to_epoch: u64,
    pub(crate) to_link: u64,
    /// Every item of the receiver below this number has arrived.
    pub(crate) received: u64,
    /// Items after these are missing: the receiver sends them again without waiting.
    pub(crate) has_gap: bool,
    /// Number of the first item.
    pub(crate) first: u64,
}

/// Kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ItemKind {
    Envelope = 1,
    EnvelopePart = 2,
    Changes = 3,
    Snapshot = 4,
    Receipts = 5,
    Digest = 6,
    SnapshotRequest = 7,
    Leave = 8,
}

/// An item that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutgoingItem {
    pub(crate) kind: ItemKind,
    pub(crate) body: Bytes,
}

impl OutgoingItem {
    pub(crate) fn new(kind: ItemKind, body: impl Into<Bytes>) -> OutgoingItem {
        OutgoingItem { kind, body: body.into() }
    }

    /// Octets in a frame.
    pub(crate) fn len(&self) -> usize {
        ITEM_HEADER + self.body.len()
    }
}

/// An item that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// An envelope with its ticket's sequence, 0 for best effort; after parts only the last octets of it.
    Envelope(EnvelopeBody),
    EnvelopePart(Bytes),
    Changes(Vec<ClaimChange>),
    Snapshot {
        first: bool,
        last: bool,
        claims: Vec<Claim>,
    },
    Receipts(ReceiptItem),
    Digest(Digest),
    SnapshotRequest,
    Leave,
    /// Of a later version.
    Unknown,
    /// The body does not fit the kind.
    Invalid(PeerViolation),
}

/// Octets of an envelope item, read as far as they are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnvelopeBody {
    pub(crate) octets: Bytes,
    /// Read already, unless it needs the parts before it.
    pub(crate) read: Result<(u64, Envelope), EnvelopeError>,
}

impl EnvelopeBody {
    pub(crate) fn new(octets: Bytes) -> EnvelopeBody {
        let read = read_envelope(&octets);
        EnvelopeBody { octets, read }
    }
}

/// Reads the body of an envelope item: the sequence of its ticket, and the envelope.
pub(crate) fn read_envelope(octets: &[u8]) -> Result<(u64, Envelope), EnvelopeError> {
    let (ticket, octets) = octets.split_first_chunk().ok_or(EnvelopeError::Truncated)?;
    match Envelope::decode(octets)? {
        (envelope, []) => Ok((u64::from_be_bytes(*ticket), envelope)),
        _ => Err(EnvelopeError::Field("length")),
    }
}

/// Receipts of envelopes by the sequences of their tickets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiptItem {
    /// Everything up to this one is settled.
    pub(crate) up_to: u64,
    /// These are, too: in order.
    pub(crate) later: Vec<u64>,
    /// Of these, what was not safe.
    pub(crate) refused: Vec<(u64, HandoverResult)>,
}

impl ReceiptItem {
    /// Octets of a refusal in the body.
    pub(crate) fn refusal_len(result: &HandoverResult) -> usize {
        10 + if let HandoverResult::RefusedFor(positions) = result { 2 * positions.len() } else { 0 }
    }

    #[allow(clippy::cast_possible_truncation, reason = "an item has at most MAX_BODY octets")]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + 8 * self.later.len() + 10 * self.refused.len());
        out.extend(self.up_to.to_be_bytes());
        out.extend((self.later.len() as u32).to_be_bytes());
        self.later.iter().for_each(|ticket| out.extend(ticket.to_be_bytes()));
        out.extend((self.refused.len() as u32).to_be_bytes());
        for (ticket, result) in &self.refused {
            out.extend(ticket.to_be_bytes());
            let positions = match result {
                HandoverResult::RefusedFor(positions) => positions,
                _ => {
                    out.extend(ALL_POSITIONS.to_be_bytes());
                    continue;
                }
            };
            out.extend((positions.len() as u16).to_be_bytes());
            positions.iter().for_each(|position| out.extend(position.to_be_bytes()));
        }
        out
    }

    fn decode(mut rest: &[u8]) -> Option<ReceiptItem> {
        let rest = &mut rest;
        let up_to = u64::from_be_bytes(array(rest)?);
        let count = u32::from_be_bytes(array(rest)?) as usize;
        let later = take(rest, count.checked_mul(8)?)?;
        let later = later.chunks_exact(8).filter_map(|octets| octets.try_into().ok()).map(u64::from_be_bytes);
        let later = later.collect();
        let count = u32::from_be_bytes(array(rest)?) as usize;
        // The shortest refusal has ten octets.
        let mut refused = Vec::with_capacity(count.min(rest.len() / 10));
        for _ in 0..count {
            let ticket = u64::from_be_bytes(array(rest)?);
            let result = match u16::from_be_bytes(array(rest)?) {
                ALL_POSITIONS => HandoverResult::Refused,
                count => {
                    let positions = take(rest, usize::from(count) * 2)?.chunks_exact(2);
                    let positions = positions.filter_map(|octets| octets.try_into().ok());
                    HandoverResult::RefusedFor(positions.map(u16::from_be_bytes).collect())
                }
            };
            refused.push((ticket, result));
        }
        Some(ReceiptItem { up_to, later, refused })
    }
}

/// Appends a change of claims.
pub(crate) fn encode_change(change: &ClaimChange, out: &mut Vec<u8>) {
    let (flags, address, number, since) = match change {
        ClaimChange::Claimed(claim) => {
            let flags = if claim.takes_messages { TAKES_MESSAGES } else { 0 };
            (flags, claim.address, claim.number, Some(claim.since))
        }
        ClaimChange::Released(address, number) => (RELEASED, *address, *number, None),
    };
    out.push(flags);
    out.extend(address.to_be_bytes());
    out.extend(number.map_or(0, AddressNumber::get).to_be_bytes());
    out.extend(since.iter().flat_map(|since| since.to_be_bytes()));
}

fn decode_changes(mut rest: &[u8]) -> Option<Vec<ClaimChange>> {
    let rest = &mut rest;
    let mut changes = Vec::with_capacity(rest.len() / 13);
    while !rest.is_empty() {
        let [flags] = array(rest)?;
        let address = u64::from_be_bytes(array(rest)?);
        let number = AddressNumber::new(u32::from_be_bytes(array(rest)?));
        changes.push(match flags {
            RELEASED => ClaimChange::Released(address, number),
            0 | TAKES_MESSAGES => {
                let since = u64::from_be_bytes(array(rest)?);
                ClaimChange::Claimed(Claim { address, number, since, takes_messages: flags != 0 })
            }
            _ => return None,
        });
    }
    Some(changes)
}

/// The body of a part of a snapshot.
pub(crate) fn encode_snapshot(first: bool, last: bool, claims: &[Claim]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + 21 * claims.len());
    out.push(if first { FIRST } else { 0 } | if last { LAST } else { 0 });
    claims.iter().for_each(|claim| encode_change(&ClaimChange::Claimed(*claim), &mut out));
    out
}

fn decode_snapshot(rest: &[u8]) -> Option<Item> {
    let (flags, rest) = rest.split_first()?;
    if *flags > FIRST | LAST {
        return None;
    }
    let claim = |change| match change {
        ClaimChange::Claimed(claim) => Some(claim),
        ClaimChange::Released(..) => None,
    };
    let claims = decode_changes(rest)?.into_iter().map(claim).collect::<Option<_>>()?;
    Some(Item::Snapshot { first: flags & FIRST != 0, last: flags & LAST != 0, claims })
}

/// The body of a digest.
pub(crate) fn encode_digest(digest: Digest) -> Vec<u8> {
    [digest.count.to_be_bytes(), digest.xor.to_be_bytes()].concat()
}

fn decode_digest(mut rest: &[u8]) -> Option<Digest> {
    let [count, xor] = [array(&mut rest)?, array(&mut rest)?].map(u64::from_be_bytes);
    Some(Digest { count, xor })
}

/// Encodes a frame.
#[allow(clippy::cast_possible_truncation, reason = "items are at most MAX_BODY octets, frames MAX_FRAME")]
pub(crate) fn encode_frame<'a>(
    header: &FrameHeader,
    items: impl ExactSizeIterator<Item = &'a OutgoingItem> + Clone,
) -> Vec<u8> {
    let bodies: usize = items.clone().map(OutgoingItem::len).sum();
    let mut out = Vec::with_capacity(HEADER + bodies);
    let name = header.from.as_str();
    out.extend([header.version, name.len() as u8]);
    out.extend(name.as_bytes());
    let FrameHeader { from_epoch, from_link, to_epoch, to_link, received, .. } = *header;
    [from_epoch, from_link, to_epoch, to_link, received]
        .iter()
        .for_each(|number| out.extend(number.to_be_bytes()));
    out.push(if header.has_gap { MISSING } else { 0 });
    out.extend(header.first.to_be_bytes());
    out.extend((items.len() as u16).to_be_bytes());
    for item in items {
        out.push(item.kind as u8);
        out.extend((item.body.len() as u32).to_be_bytes());
        out.extend(&item.body[..]);
    }
    out
}

/// Why octets are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// They are shorter or longer than their lengths say, or a field has no valid value.
    #[error("a length or a field of the frame is not valid")]
    Malformed,
    /// Written by a node with another version.
    #[error("the frame has the unknown version {0}")]
    Version(u8),
}

/// Decodes a frame.
pub(crate) fn decode_frame(input: &Bytes) -> Result<(FrameHeader, Vec<Item>), FrameError> {
    let mut rest = &input[..];
    let [version] = array(&mut rest).ok_or(FrameError::Malformed)?;
    if !FRAME_VERSIONS.contains(version) {
        return Err(FrameError::Version(version));
    }
    decode_body(version, input, &mut rest).filter(|_| rest.is_empty()).ok_or(FrameError::Malformed)
}

fn decode_body(version: u8, input: &Bytes, rest: &mut &[u8]) -> Option<(FrameHeader, Vec<Item>)> {
    if input.len() > MAX_FRAME {
        return None;
    }
    let [length] = array(rest)?;
    let from = std::str::from_utf8(take(rest, length.into())?).ok().and_then(NodeId::new)?;
    let mut number = || array(rest).map(u64::from_be_bytes);
    let [from_epoch, from_link, to_epoch, to_link, received] =
        [number()?, number()?, number()?, number()?, number()?];
    let [flags] = array(rest)?;
    if flags > MISSING {
        return None;
    }
    let first = u64::from_be_bytes(array(rest)?);
    let count = usize::from(u16::from_be_bytes(array(rest)?));
    let mut items = Vec::with_capacity(count.min(rest.len() / ITEM_HEADER));
    for _ in 0..count {
        let [kind] = array(rest)?;
        let length = u32::from_be_bytes(array(rest)?) as usize;
        let body = input.slice_ref(take(rest, length)?);
        items.push(decode_item(kind, body));
    }
    let header = FrameHeader {
        version,
        from,
        from_epoch,
        from_link,
        to_epoch,
        to_link,
        received,
        has_gap: flags == MISSING,
        first,
    };
    Some((header, items))
}

fn decode_item(kind: u8, body: Bytes) -> Item {
    const CLAIM: Item = Item::Invalid(PeerViolation::Claim);
    match kind {
        1 => Item::Envelope(EnvelopeBody::new(body)),
        2 => Item::EnvelopePart(body),
        3 => decode_changes(&body).map_or(CLAIM, Item::Changes),
        4 => decode_snapshot(&body).unwrap_or(CLAIM),
        5 => ReceiptItem::decode(&body).map_or(Item::Invalid(PeerViolation::Receipt), Item::Receipts),
        6 => decode_digest(&body).map_or(CLAIM, Item::Digest),
        7 => Item::SnapshotRequest,
        8 => Item::Leave,
        _ => Item::Unknown,
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}
