//! A link: items of this node to one other and back, numbered, acknowledged and sent again.
//!
//! Items are numbered from 1 within a link. An acknowledgement covers all items below a number; what is not acknowledged is sent
//! again in order. A link ends when one of the nodes considers the other one gone. Each node numbers its links to each other one, so that
//! frames of an earlier link are recognised.
//!
//! Order of sending: receipts, the snapshot of the own claims, then envelopes and changes of claims in the order in which they were
//! made. So the other node knows a claim before it receives an envelope that was delivered after it.
//!
//! Each frame wakes a thread of the sender, of NATS and of the receiver, so its cost does not depend on what it carries. On an
//! idle link, items are sent immediately, except receipts, which wait to be piggybacked on envelopes. On a busy link, items
//! wait for the next frame ([`LinkPace`]).
//!
//! # Pitfalls
//!
//! An acknowledgement says that an item arrived. Envelopes are kept until their receipt ([`super::receipts`]).

use std::collections::VecDeque;

use base::clock::Millis;
use bytes::Bytes;
use cluster::Claim;

use super::directory::{Digest, Directory};
use super::frame::{
    FrameHeader, HEADER, ITEM_HEADER, ItemKind, MAX_BODY, OutgoingItem, encode_frame, encode_snapshot,
};
use super::receipts::{ReceivedEnvelopes, SentEnvelopes};

/// Time for which a receipt waits for a frame that carries something else.
const RECEIPT_MILLIS: u64 = 10;
/// Items of a frame, unless a single one is longer.
const BATCH_BYTES: usize = 64 << 10;
/// Octets of items that are not acknowledged.
const WINDOW_BYTES: usize = 2 << 20;
/// An acknowledgement that no other frame carries is sent after this time.
const ACK_MILLIS: u64 = 200;
/// Or after this number of octets.
const ACK_BYTES: usize = 256 << 10;
/// Time after which items without an acknowledgement are sent again for the first time; twice as long after each time.
const RESEND_MILLIS: u64 = 500;
const MAX_RESEND_MILLIS: u64 = 4_000;
/// A gap is reported, and causes items to be sent again, at most this often.
const GAP_MILLIS: u64 = 20;
/// Greetings until the other node answers.
const GREETING_MILLIS: u64 = 200;
/// A link without other frames sends one after this time.
const KEEPALIVE_MILLIS: u64 = 3_000;
/// Claims in an item: they are read, and applied, under the lock.
const CLAIMS_PER_ITEM: usize = 2 << 10;
/// Octets of queued changes of claims; instead of more, another snapshot is sent.
const MAX_CHANGE_BYTES: usize = 4 << 20;
/// Items with receipts that are not acknowledged.
const MAX_RECEIPT_ITEMS: usize = 16;
/// Maximum octets of queued envelopes of the class [`cluster::EnvelopeClass::BestEffort`].
const MAX_BEST_EFFORT_BYTES: usize = 1 << 20;

/// Minimum time between two frames of a link, in milliseconds; a full frame does not wait. It grows with the number of links, so that
/// the total frame rate of a node does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkPace {
    /// Before a frame with envelopes.
    envelope_millis: u64,
    /// Before a frame with only claim changes and digests: each login is a change that goes to all nodes.
    change_millis: u64,
}

impl LinkPace {
    const ENVELOPES_MILLIS: u64 = 2;
    const MAX_ENVELOPES_MILLIS: u64 = 25;
    const CHANGES_MILLIS: u64 = 5;
    const MAX_CHANGES_MILLIS: u64 = 125;

    /// Of each link of a node with this number of them.
    pub(super) fn of_links(links: usize) -> LinkPace {
        let links = u64::try_from(links).unwrap_or(u64::MAX).max(1);
        LinkPace {
            envelope_millis: links.saturating_mul(Self::ENVELOPES_MILLIS).min(Self::MAX_ENVELOPES_MILLIS),
            change_millis: links.saturating_mul(Self::CHANGES_MILLIS).min(Self::MAX_CHANGES_MILLIS),
        }
    }
}

/// Whether an item of this kind waits for [`LinkPace::change_millis`].
fn can_wait(kind: ItemKind) -> bool {
    matches!(kind, ItemKind::Changes | ItemKind::Digest)
}

/// State of a link.
pub(super) struct Link {
    /// Its number at this node.
    pub(super) number: u64,
    /// Its number at the other node, once a frame of that arrived.
    pub(super) theirs: Option<u64>,
    /// The other node knows the number of this link: frames arrive in both directions.
    is_confirmed: bool,
    queue: VecDeque<OutgoingItem>,
    queue_bytes: usize,
    /// Queued items that are not patient.
    urgent_items: usize,
    change_bytes: usize,
    best_effort_bytes: usize,
    /// The bucket from which the next part of the snapshot is read.
    snapshot: Option<usize>,
    /// Numbered and not acknowledged.
    sent: VecDeque<OutgoingItem>,
    first_sent: u64,
    /// Position in `sent` of the next item to transmit.
    next: usize,
    in_flight: usize,
    receipt_items: usize,
    pub(super) envelopes: SentEnvelopes,
    pub(super) received: ReceivedEnvelopes,
    /// The number of the next item of the other node.
    expected: u64,
    /// Parts of an envelope that is not complete.
    pub(super) parts: Vec<u8>,
    /// The bucket with which the next part of the other node's snapshot begins; none without a snapshot.
    pub(super) snapshot_at: Option<usize>,
    /// Some claims of this snapshot had no room.
    pub(super) is_snapshot_refused: bool,
    /// Claims of the first snapshot, until it is complete.
    pub(super) joined_claims: Vec<Claim>,
    /// Whether there was a snapshot.
    pub(super) has_claims: bool,
    /// Of the other node's claims.
    pub(super) digest: Digest,
    /// When some of its claims had no room; none if all have.
    pub(super) refused_at: Option<Millis>,
    pub(super) requested_snapshot: bool,
    has_gap: bool,
    unacknowledged: usize,
    ack_at: Option<Millis>,
    resend_at: Option<Millis>,
    resend_after: u64,
    repeated_at: Option<Millis>,
    gap_at: Option<Millis>,
    flushed_at: Option<Millis>,
    /// Since when a receipt waits.
    receipts_since: Option<Millis>,
    /// When the last frame was sent.
    spoke_at: Option<Millis>,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcknowledgeOutcome {
    /// It covers items that no earlier one covered.
    Progress,
    /// An earlier one covered as much.
    Known,
    /// It covers items that were never sent.
    Invalid,
}

/// Which items of a frame are news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewItems {
    /// Known ones at the start.
    pub(super) skip: usize,
    /// Those that follow.
    pub(super) count: usize,
}

impl Link {
    pub(super) fn new(number: u64) -> Link {
        Link {
            number,
            theirs: None,
            is_confirmed: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            urgent_items: 0,
            change_bytes: 0,
            best_effort_bytes: 0,
            snapshot: None,
            sent: VecDeque::new(),
            first_sent: 1,
            next: 0,
            in_flight: 0,
            receipt_items: 0,
            envelopes: SentEnvelopes::default(),
            received: ReceivedEnvelopes::default(),
            expected: 1,
            parts: Vec::new(),
            snapshot_at: None,
            is_snapshot_refused: false,
            joined_claims: Vec::new(),
            has_claims: false,
            digest: Digest::default(),
            refused_at: None,
            requested_snapshot: false,
            has_gap: false,
            unacknowledged: 0,
            ack_at: None,
            resend_at: None,
            resend_after: RESEND_MILLIS,
            repeated_at: None,
            gap_at: None,
            flushed_at: None,
            receipts_since: None,
            spoke_at: None,
        }
    }

    /// A frame of the other node arrived: it is answered at once.
    pub(super) fn establish(&mut self, theirs: u64, now: Millis) {
        self.theirs = Some(theirs);
        self.ack_at = Some(now);
    }

    /// The other node has answered a frame of this link: the snapshot begins.
    pub(super) fn confirm(&mut self, now: Millis) {
        self.is_confirmed = true;
        self.snapshot = Some(0);
        self.ack_at = Some(now);
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Begins another snapshot.
    pub(super) fn restart_snapshot(&mut self) {
        self.snapshot = Some(0);
    }

    pub(super) fn has_sent_snapshot(&self) -> bool {
        self.snapshot.is_none()
    }

    /// Queues an item. True if the sender must be woken.
    pub(super) fn push(&mut self, item: OutgoingItem) -> bool {
        let was_full = self.queue_bytes >= BATCH_BYTES;
        let is_first = if can_wait(item.kind) {
            self.queue.is_empty()
        } else {
            self.urgent_items += 1;
            self.urgent_items == 1
        };
        self.queue_bytes += item.len();
        if item.kind == ItemKind::Changes {
            self.change_bytes += item.len();
        }
        self.queue.push_back(item);
        if self.change_bytes > MAX_CHANGE_BYTES {
            self.queue.retain(|item| item.kind != ItemKind::Changes);
            self.queue_bytes -= self.change_bytes;
            self.change_bytes = 0;
            self.restart_snapshot();
        }
        is_first || !was_full && self.queue_bytes >= BATCH_BYTES
    }

    /// Queues an envelope, divided if it is long; its ticket is 0 for best effort. True if the sender must be woken.
    pub(super) fn push_envelope(&mut self, ticket: u64, body: Bytes) -> bool {
        if ticket == 0 {
            self.best_effort_bytes += body.len();
        } else {
            self.envelopes.keep(ticket, body.clone());
        }
        let mut rest = body;
        let mut wakes = false;
        while rest.len() > MAX_BODY {
            wakes |= self.push(OutgoingItem::new(ItemKind::EnvelopePart, rest.split_to(MAX_BODY)));
        }
        self.push(OutgoingItem::new(ItemKind::Envelope, rest)) | wakes
    }

    /// Whether there is room for an envelope of this length that is not retained.
    pub(super) fn has_room_for_best_effort(&self, bytes: usize) -> bool {
        self.best_effort_bytes + bytes <= MAX_BEST_EFFORT_BYTES
    }

    /// Everything was acknowledged and settled, in both directions.
    pub(super) fn is_idle(&self) -> bool {
        self.is_sent() && self.envelopes.is_empty() && !self.received.has_outstanding()
    }

    /// Everything was acknowledged.
    pub(super) fn is_sent(&self) -> bool {
        self.queue.is_empty()
            && self.sent.is_empty()
            && self.snapshot.is_none()
            && !self.received.has_unreported()
    }

    /// An acknowledgement from the other node.
    pub(super) fn acknowledge(&mut self, received: u64, has_gap: bool, now: Millis) -> AcknowledgeOutcome {
        if received > self.first_sent + self.sent.len() as u64 {
            return AcknowledgeOutcome::Invalid;
        }
        let mut progress = false;
        while self.first_sent < received
            && let Some(item) = self.sent.pop_front()
        {
            progress = true;
            self.first_sent += 1;
            self.next = self.next.saturating_sub(1);
            self.in_flight -= item.len();
            if item.kind == ItemKind::Receipts {
                self.receipt_items -= 1;
            }
        }
        if progress {
            self.resend_after = RESEND_MILLIS;
            self.resend_at = (!self.sent.is_empty()).then(|| now.plus(RESEND_MILLIS));
        }
        // A frame that acknowledges fewer items than an earlier one is late or was repeated: its gap is outdated.
        let is_current = received == self.first_sent;
        if has_gap && is_current && self.repeated_at.is_none_or(|at| now.since(at) >= GAP_MILLIS) {
            self.repeat(now);
        }
        if progress { AcknowledgeOutcome::Progress } else { AcknowledgeOutcome::Known }
    }

    /// Sends everything again that is not acknowledged.
    pub(super) fn repeat(&mut self, now: Millis) {
        self.next = 0;
        self.repeated_at = Some(now);
    }

    /// Items arrived. Returns which of them must be handled.
    pub(super) fn receive(&mut self, first: u64, count: usize, bytes: usize, now: Millis) -> NewItems {
        if count == 0 {
            return NewItems { skip: 0, count: 0 };
        }
        if first > self.expected {
            if self.gap_at.is_none_or(|at| now.since(at) >= GAP_MILLIS) {
                self.gap_at = Some(now);
                self.has_gap = true;
                self.ack_at = Some(now);
            }
            return NewItems { skip: 0, count: 0 };
        }
        let skip = usize::try_from(self.expected - first).unwrap_or(usize::MAX).min(count);
        let new = count - skip;
        self.expected += new as u64;
        self.unacknowledged += bytes;
        let delay = if new == 0 || self.unacknowledged >= ACK_BYTES { 0 } else { ACK_MILLIS };
        self.acknowledge_by(now.plus(delay));
        NewItems { skip, count: new }
    }

    /// Sends a frame at this time at the latest.
    pub(super) fn acknowledge_by(&mut self, at: Millis) {
        self.ack_at = Some(self.ack_at.map_or(at, |known| known.min(at)));
    }

    fn has_receipts(&self) -> bool {
        self.received.has_unreported() && self.receipt_items < MAX_RECEIPT_ITEMS
    }

    /// When the next frame with items may be sent; none without items.
    fn items_due_at(&self, pace: LinkPace) -> Option<Millis> {
        let after_last = |millis| self.flushed_at.map_or(Millis::ZERO, |at| at.plus(millis));
        if self.next < self.sent.len() {
            return Some(after_last(pace.envelope_millis));
        }
        if self.in_flight >= WINDOW_BYTES {
            return None;
        }
        if self.queue_bytes >= BATCH_BYTES || self.snapshot.is_some() {
            return Some(Millis::ZERO);
        }
        let queued = match () {
            () if self.urgent_items > 0 => Some(after_last(pace.envelope_millis)),
            () if !self.queue.is_empty() => Some(after_last(pace.change_millis)),
            () => None,
        };
        let receipts = self.receipts_since.filter(|_| self.has_receipts()).map(|at| at.plus(RECEIPT_MILLIS));
        [queued, receipts].into_iter().flatten().min()
    }

    /// Records when receipts began to wait. Call this before [`Link::due_at`]: settling an envelope does not know the time.
    pub(super) fn note_receipts(&mut self, now: Millis) {
        if self.has_receipts() {
            self.receipts_since.get_or_insert(now);
        }
    }

    /// When [`Link::next_frame`] has a frame.
    pub(super) fn due_at(&self, pace: LinkPace) -> Millis {
        let spoke = self.spoke_at;
        if !self.is_confirmed {
            let greeting = spoke.map_or(Millis::ZERO, |at| at.plus(GREETING_MILLIS));
            return self.ack_at.map_or(greeting, |at| at.min(greeting));
        }
        let mut due = spoke.map_or(Millis::ZERO, |at| at.plus(KEEPALIVE_MILLIS));
        if let Some(items) = self.items_due_at(pace) {
            due = due.min(items);
        }
        [self.ack_at, self.resend_at].into_iter().flatten().fold(due, Millis::min)
    }

    /// The next frame, if one is due.
    pub(super) fn next_frame(
        &mut self,
        now: Millis,
        directory: &Directory,
        pace: LinkPace,
        header: FrameHeader,
    ) -> Option<Vec<u8>> {
        if self.due_at(pace) > now {
            return None;
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            self.repeat(now);
            self.resend_after = (2 * self.resend_after).min(MAX_RESEND_MILLIS);
            self.resend_at = Some(now.plus(self.resend_after));
        }
        let mut bytes = 0;
        let start = self.next;
        if self.is_confirmed {
            while let Some(length) = self.peek(directory)
                && (bytes == 0 || bytes + length <= BATCH_BYTES)
                && self.next - start < usize::from(u16::MAX)
            {
                bytes += length;
                self.next += 1;
            }
        }
        if self.next > start {
            self.flushed_at = Some(now);
            if self.resend_at.is_none() {
                self.resend_at = Some(now.plus(self.resend_after));
            }
        }
        self.ack_at = None;
        self.unacknowledged = 0;
        self.spoke_at = Some(now);
        let header = FrameHeader {
            from_link: self.number,
            to_link: self.theirs.unwrap_or(0),
            received: self.expected,
            has_gap: std::mem::take(&mut self.has_gap),
            first: self.first_sent + start as u64,
            ..header
        };
        Some(encode_frame(&header, self.sent.range(start..self.next)))
    }

    /// A frame that acknowledges everything and has no items.
    pub(super) fn last_frame(&self, header: FrameHeader) -> Vec<u8> {
        encode_frame(&self.next_header(header), [].iter())
    }

    /// The header of a frame with items that are not numbered yet.
    pub(super) fn next_header(&self, header: FrameHeader) -> FrameHeader {
        FrameHeader {
            from_link: self.number,
            to_link: self.theirs.unwrap_or(0),
            received: self.expected,
            first: self.first_sent + self.sent.len() as u64,
            ..header
        }
    }

    /// The length of the next item to transmit, which becomes the last numbered one if there was none.
    fn peek(&mut self, directory: &Directory) -> Option<usize> {
        if self.next == self.sent.len() {
            if self.in_flight >= WINDOW_BYTES {
                return None;
            }
            let item = self.take_source(directory)?;
            self.in_flight += item.len();
            self.sent.push_back(item);
        }
        self.sent.get(self.next).map(OutgoingItem::len)
    }

    fn take_source(&mut self, directory: &Directory) -> Option<OutgoingItem> {
        if self.receipt_items < MAX_RECEIPT_ITEMS
            && let Some(receipts) = self.received.take_receipts()
        {
            self.receipt_items += 1;
            self.receipts_since = None;
            return Some(OutgoingItem::new(ItemKind::Receipts, receipts.encode()));
        }
        if let Some(from) = self.snapshot {
            let (claims, next) = directory.own_chunk(from, CLAIMS_PER_ITEM);
            self.snapshot = next;
            let body = encode_snapshot(from == 0, next.is_none(), &claims);
            return Some(OutgoingItem::new(ItemKind::Snapshot, body));
        }
        let item = self.queue.pop_front()?;
        self.queue_bytes -= item.len();
        self.urgent_items -= usize::from(!can_wait(item.kind));
        match item.kind {
            ItemKind::Changes => self.change_bytes -= item.len(),
            ItemKind::Envelope if item.body.first_chunk::<8>() == Some(&[0; 8]) => {
                self.best_effort_bytes = self.best_effort_bytes.saturating_sub(item.body.len());
            }
            _ => {}
        }
        Some(item)
    }
}

// A frame has room for the largest item.
const _: () = assert!(HEADER + ITEM_HEADER + MAX_BODY + BATCH_BYTES <= super::frame::MAX_FRAME);
// A part of a snapshot is an item: a bucket has few claims.
const _: () = assert!(CLAIMS_PER_ITEM * 21 * 5 / 4 <= MAX_BODY);
