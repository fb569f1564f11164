//! State of a node in the cluster: the other nodes, a link to each, and the calls of the inbox that follow from what arrives.
//!
//! No input and output, and no clock: [`super::core`] calls it with the time, under one lock.
//!
//! # Pitfalls
//!
//! A node is a member when a frame of it has arrived that names this node's link, not when its record is seen: such a frame
//! shows that messages arrive in both directions. It stays one while such frames have something new: an item that did not arrive before,
//! or the first acknowledgement of an item. Each link has a digest every three seconds, which is an item. A record, or a frame
//! that does not name the link, would keep a node to which no message arrives; a repeated frame would keep a node that is gone.

pub(super) mod receiving;

use std::collections::{BTreeMap, VecDeque};

use base::clock::Millis;
use bytes::Bytes;
use cluster::{
    Envelope, EnvelopeError, HandoverResult, InboxCall, Member, MembershipChange, NodeId, PeerViolation,
    RefusalReason, Ticket,
};

use super::directory::{Digest, Directory};
use super::entry::{MAX_NODES, NodeSlot};
use super::frame::{
    FRAME_VERSIONS, FrameHeader, ItemKind, MAX_BODY, OutgoingItem, encode_change, encode_digest,
};
use super::link::{Link, LinkPace};
use super::member_record::MemberRecord;
use super::receipts::SentEnvelopes;
use super::statistics::Statistics;

/// A node from which nothing was received for this time is gone.
pub(crate) const FAILURE_MILLIS: u64 = 10_000;
/// Changes of claims are sent after this time, or with the next envelope.
const CHANGES_MILLIS: u64 = 5;
/// Changes in one item.
const CHANGES_PER_ITEM: usize = 512;
/// Time between two digests, which also show that the node runs: several fit into [`FAILURE_MILLIS`].
const DIGEST_MILLIS: u64 = 3_000;
/// Octets of envelopes without a receipt, of all nodes together.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// Octets that each node may have in any case.
const KEPT_SHARE: usize = 1 << 20;
/// A link number of this node that is further ahead is not believed.
const MAX_OWN_LINK_STEP: u64 = 1 << 20;
/// A link number of another node that is further ahead is not believed. Greater: that node may have followed a wrong number.
const MAX_LINK_STEP: u64 = 2 * MAX_OWN_LINK_STEP;
/// Nodes that have left and whose records may still be seen; nodes whose link numbers are remembered.
const MAX_DEPARTED: usize = 256;

/// What follows from the state and is done without its lock, in order.
pub(super) enum Work {
    Call(InboxCall),
    End(EndedPeer),
}

/// A node that is gone: its envelopes return, and its claims are removed, which takes long if there are many.
pub(super) struct EndedPeer {
    pub(super) node: NodeId,
    pub(super) slot: NodeSlot,
    pub(super) envelopes: SentEnvelopes,
    pub(super) orderly: bool,
    /// The inbox knows the node.
    pub(super) is_reported: bool,
}

/// Another node.
struct Peer {
    member: Member,
    /// Of frames to it.
    version: u8,
    slot: NodeSlot,
    /// When the last frame arrived that names the link and has something new.
    received_at: Millis,
    /// Such a frame has arrived.
    joined: bool,
    /// It was notified that nothing follows.
    has_leave: bool,
    link: Link,
}

/// What this node does in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MembershipPhase {
    /// It is a member, or will be.
    Running,
    /// It hands over what it has.
    Leaving,
    /// It has left.
    Left,
    /// Another process has its name.
    Superseded,
}

/// Why a node whose record was read cannot be a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnusableMember {
    /// It reads no version of frames that this node writes, or the reverse.
    NoCommonVersion,
    /// The cluster has [`MAX_NODES`] nodes already, this one included.
    TooManyNodes,
}

/// Why a peer ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PeerEnd {
    Lost,
    Orderly,
}

/// The state.
pub(crate) struct State {
    own: Member,
    pub(super) phase: MembershipPhase,
    /// An inbox is attached.
    attached: bool,
    peers: BTreeMap<NodeId, Peer>,
    /// Epochs of nodes that have left.
    departed: BTreeMap<NodeId, u64>,
    last_ticket: u64,
    last_best_effort: u64,
    /// The number of the last link to each node.
    link_numbers: BTreeMap<NodeId, u64>,
    work: VecDeque<Work>,
    /// Slots of nodes that are gone and whose claims are not removed yet.
    ending: Vec<NodeSlot>,
    farewells: Vec<(NodeId, Vec<u8>)>,
    own_digest: Digest,
    digest_at: Millis,
    changed_at: Option<Millis>,
    /// The members have changed.
    pub(super) view_changed: bool,
    pub(super) statistics: Statistics,
}

/// What must be sent, and when to ask again.
#[derive(Debug)]
pub(crate) struct PollOutput {
    pub(crate) frames: Vec<(NodeId, Vec<u8>)>,
    pub(crate) wake_at: Millis,
}

impl State {
    pub(super) fn new(own: Member) -> State {
        State {
            own,
            phase: MembershipPhase::Running,
            attached: false,
            peers: BTreeMap::new(),
            departed: BTreeMap::new(),
            last_ticket: 0,
            last_best_effort: 0,
            link_numbers: BTreeMap::new(),
            work: VecDeque::new(),
            ending: Vec::new(),
            farewells: Vec::new(),
            own_digest: Digest::default(),
            digest_at: Millis::ZERO,
            changed_at: None,
            view_changed: false,
            statistics: Statistics::default(),
        }
    }

    fn call(&mut self, call: InboxCall) {
        if self.attached {
            self.work.push_back(Work::Call(call));
        }
    }

    pub(super) fn violation(&mut self, from: NodeId, violation: PeerViolation) {
        self.call(InboxCall::Violation(from, violation));
    }

    /// The inbox is attached: present members are reported to it.
    pub(super) fn attach(&mut self, directory: &Directory) {
        self.attached = true;
        for (name, peer) in self.peers.iter().filter(|(_, peer)| peer.joined) {
            let joined = InboxCall::Changed(MembershipChange::Joined(peer.member));
            self.work.push_back(Work::Call(joined));
            if peer.link.has_claims {
                let claims = directory.claims_of(peer.slot);
                self.work.push_back(Work::Call(InboxCall::ClaimedByJoined(*name, claims)));
            }
        }
    }

    pub(super) fn take_work(&mut self) -> VecDeque<Work> {
        std::mem::take(&mut self.work)
    }

    /// The epoch with which the node joins.
    pub(super) fn set_epoch(&mut self, epoch: u64) {
        self.own.epoch = epoch;
        self.view_changed = true;
    }

    /// The node is about to leave.
    pub(super) fn begin_drain(&mut self) {
        self.own.drains = true;
        self.view_changed = true;
    }

    pub(super) fn own(&self) -> Member {
        self.own
    }

    /// The other members, with their slots.
    pub(super) fn members(&self) -> impl Iterator<Item = (NodeSlot, Member)> {
        self.peers.values().filter(|peer| peer.joined).map(|peer| (peer.slot, peer.member))
    }

    /// The record of a node was seen, or seen again.
    pub(super) fn see_member(&mut self, now: Millis, record: &MemberRecord) -> Result<(), UnusableMember> {
        let member = record.member;
        if member.node == self.own.node {
            if member.epoch > self.own.epoch && self.phase == MembershipPhase::Running {
                self.phase = MembershipPhase::Superseded;
                self.end_all(PeerEnd::Lost);
            }
            return Ok(());
        }
        if self.phase != MembershipPhase::Running || self.departed.get(&member.node) == Some(&member.epoch) {
            return Ok(());
        }
        match self.peers.get_mut(&member.node) {
            // A record does not show that the node is reachable: only its messages do.
            Some(peer) if peer.member.epoch == member.epoch => {
                if !peer.joined {
                    peer.received_at = now;
                }
                if member.drains && !peer.member.drains {
                    peer.member.drains = true;
                    self.view_changed = true;
                }
                return Ok(());
            }
            // An earlier epoch, read late.
            Some(peer) if peer.member.epoch > member.epoch => return Ok(()),
            _ => {}
        }
        self.end(member.node, PeerEnd::Lost);
        let Some(version) = record.common_version() else {
            self.statistics.unreadable_nodes += 1;
            return Err(UnusableMember::NoCommonVersion);
        };
        self.add(now, member, version)
    }

    /// The record of a node was removed.
    pub(super) fn forget_record(&mut self, node: NodeId) {
        self.departed.remove(&node);
    }

    fn add(&mut self, now: Millis, member: Member, version: u8) -> Result<(), UnusableMember> {
        let taken = self.peers.values().map(|peer| peer.slot).chain(self.ending.iter().copied());
        let is_free = |slot: &u8| !taken.clone().any(|taken| taken.0 == *slot);
        let slots = u8::try_from(MAX_NODES).unwrap_or(u8::MAX);
        let Some(slot) = (1..slots).find(is_free) else {
            self.statistics.unreadable_nodes += 1;
            return Err(UnusableMember::TooManyNodes);
        };
        let link = Link::new(self.next_link_number(member.node));
        let peer = Peer {
            member,
            version,
            slot: NodeSlot(slot),
            received_at: now,
            joined: false,
            has_leave: false,
            link,
        };
        self.peers.insert(member.node, peer);
        Ok(())
    }

    fn next_link_number(&mut self, node: NodeId) -> u64 {
        let is_gone = |known: &NodeId| *known != node && !self.peers.contains_key(known);
        // A node that meets the first number again answers with the one that it knows.
        if self.link_numbers.len() >= MAX_DEPARTED
            && let Some(gone) = self.link_numbers.keys().copied().find(is_gone)
        {
            self.link_numbers.remove(&gone);
        }
        let number = self.link_numbers.entry(node).or_insert(0);
        *number += 1;
        *number
    }

    fn end(&mut self, node: NodeId, how: PeerEnd) {
        let Some(peer) = self.peers.remove(&node) else { return };
        if !peer.joined {
            return;
        }
        self.view_changed = true;
        self.statistics.undelivered += peer.link.envelopes.len() as u64;
        self.ending.push(peer.slot);
        self.work.push_back(Work::End(EndedPeer {
            node,
            slot: peer.slot,
            envelopes: peer.link.envelopes,
            orderly: how == PeerEnd::Orderly,
            is_reported: self.attached,
        }));
    }

    /// The claims of a node that is gone are removed.
    pub(super) fn free_slot(&mut self, slot: NodeSlot) {
        self.ending.retain(|ending| *ending != slot);
    }

    fn end_all(&mut self, how: PeerEnd) {
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.end(node, how));
    }

    /// Ends a link and begins another one with the same node.
    fn begin_again(&mut self, now: Millis, node: NodeId) {
        let Some((member, version)) = self.peers.get(&node).map(|peer| (peer.member, peer.version)) else {
            return;
        };
        self.end(node, PeerEnd::Lost);
        // Its slot may not be free yet; the next record adds it then.
        let _ = self.add(now, member, version);
    }

    /// Queues an envelope. Returns its ticket, and whether the sender must be woken.
    pub(super) fn deliver(
        &mut self,
        node: NodeId,
        envelope: &mut Envelope,
        directory: &Directory,
    ) -> Result<(Ticket, bool), RefusalReason> {
        let own = self.own;
        if node == own.node {
            return Err(RefusalReason::OwnNode);
        }
        if self.phase != MembershipPhase::Running || !self.peers.get(&node).is_some_and(|peer| peer.joined) {
            return Err(RefusalReason::UnknownNode);
        }
        // A claim that was made before the envelope arrives before it.
        let mut wakes = self.send_changes(directory);
        let (length, others) = (8 + envelope.encoded_len(), self.kept_bytes());
        let Some(peer) = self.peers.get_mut(&node) else { return Err(RefusalReason::UnknownNode) };
        let has_share =
            others + length <= MAX_KEPT_BYTES || peer.link.envelopes.bytes() + length <= KEPT_SHARE;
        let is_reliable = envelope.header.class.is_reliable();
        if !envelope.fits() || !is_reliable && length > MAX_BODY {
            return Err(RefusalReason::TooLarge);
        }
        // Before it is encoded: senders that wait for capacity try often, and this is under the lock of the whole cluster.
        let has_room = match is_reliable {
            true => peer.link.envelopes.has_room(length) && has_share,
            false => peer.link.has_room_for_best_effort(length),
        };
        if !has_room {
            return Err(RefusalReason::QueueFull);
        }
        envelope.header.origin = own.node;
        envelope.header.epoch = own.epoch;
        envelope.header.sequence = if is_reliable { self.last_ticket } else { self.last_best_effort } + 1;
        let ticket = envelope.ticket();
        let mut body = Vec::with_capacity(length);
        body.extend(ticket.sequence.to_be_bytes());
        envelope.encode(&mut body).map_err(|error| match error {
            EnvelopeError::TooLarge => RefusalReason::TooLarge,
            _ => RefusalReason::Undefined,
        })?;
        match is_reliable {
            true => self.last_ticket += 1,
            false => self.last_best_effort += 1,
        }
        wakes |= peer.link.push_envelope(ticket.sequence, body.into());
        self.statistics.envelopes_sent += 1;
        Ok((ticket, wakes))
    }

    /// Reports the result of an envelope. None if the node that sent it cannot be informed; otherwise whether this node's sending task must be woken.
    pub(super) fn settle(&mut self, from: NodeId, ticket: Ticket, result: HandoverResult) -> Option<bool> {
        let peer = self.peers.get_mut(&from).filter(|peer| peer.member.epoch == ticket.epoch)?;
        let is_first = !peer.link.received.has_unreported();
        peer.link.received.settle(ticket.sequence, result).then_some(is_first)
    }

    /// Queues the pending changes of the own claims for all members. True if the sender must be woken.
    fn send_changes(&mut self, directory: &Directory) -> bool {
        self.changed_at = None;
        if !directory.has_pending() {
            return false;
        }
        let (changes, digest) = directory.take_pending();
        self.own_digest.merge(digest);
        let mut wakes = false;
        for changes in changes.chunks(CHANGES_PER_ITEM) {
            self.statistics.claim_changes += changes.len() as u64;
            let mut body = Vec::with_capacity(21 * changes.len());
            changes.iter().for_each(|change| encode_change(change, &mut body));
            let item = OutgoingItem::new(ItemKind::Changes, body);
            for peer in self.peers.values_mut().filter(|peer| peer.joined && !peer.has_leave) {
                wakes |= peer.link.push(item.clone());
            }
        }
        wakes
    }

    fn send_digests(&mut self, directory: &Directory) {
        self.send_changes(directory);
        // Also without changes: a mistake of a reader would otherwise last until the next one.
        let item = OutgoingItem::new(ItemKind::Digest, encode_digest(self.own_digest));
        let is_due = |peer: &&mut Peer| peer.joined && !peer.has_leave && peer.link.has_sent_snapshot();
        for peer in self.peers.values_mut().filter(is_due) {
            peer.link.push(item.clone());
        }
    }

    /// Ends what has timed out, and returns frames that are due, about `budget` at most; none without a connection.
    pub(super) fn poll(
        &mut self,
        now: Millis,
        directory: &Directory,
        budget: usize,
        connected: bool,
    ) -> PollOutput {
        let is_lost = |peer: &Peer| now.since(peer.received_at) >= FAILURE_MILLIS;
        let lost: Vec<(NodeId, bool)> = self
            .peers
            .iter()
            .filter(|(_, peer)| is_lost(peer))
            .map(|(node, peer)| (*node, peer.joined))
            .collect();
        for (node, was_joined) in lost {
            self.statistics.lost_nodes += u64::from(was_joined);
            self.end(node, PeerEnd::Lost);
        }
        if directory.has_pending() && now.since(*self.changed_at.get_or_insert(now)) >= CHANGES_MILLIS {
            self.send_changes(directory);
        }
        if now >= self.digest_at {
            self.digest_at = now.plus(DIGEST_MILLIS);
            self.send_digests(directory);
        }
        let mut frames = std::mem::take(&mut self.farewells);
        let header = self.header(0, FRAME_VERSIONS.oldest);
        let pace = LinkPace::of_links(self.peers.len());
        self.peers.values_mut().for_each(|peer| peer.link.note_receipts(now));
        let mut progress = connected;
        while std::mem::take(&mut progress) && frames.len() < budget {
            for (node, peer) in &mut self.peers {
                let header = FrameHeader { to_epoch: peer.member.epoch, version: peer.version, ..header };
                if let Some(frame) = peer.link.next_frame(now, directory, pace, header) {
                    self.statistics.frames_sent += 1;
                    frames.push((*node, frame));
                    progress = true;
                }
            }
        }
        let mut wake_at = self.digest_at;
        if let Some(changed) = self.changed_at {
            wake_at = wake_at.min(changed.plus(CHANGES_MILLIS));
        }
        for peer in self.peers.values() {
            wake_at = wake_at.min(peer.received_at.plus(FAILURE_MILLIS));
            if connected {
                wake_at = wake_at.min(peer.link.due_at(pace));
            }
        }
        PollOutput { frames, wake_at }
    }

    /// A header without what the link adds.
    fn header(&self, to_epoch: u64, version: u8) -> FrameHeader {
        FrameHeader {
            version,
            from: self.own.node,
            from_epoch: self.own.epoch,
            from_link: 0,
            to_epoch,
            to_link: 0,
            received: 0,
            has_gap: false,
            first: 0,
        }
    }

    /// The header of a message of this node to itself.
    pub(super) fn echo(&self) -> FrameHeader {
        self.header(self.own.epoch, FRAME_VERSIONS.newest)
    }

    /// The connection is back: what was sent before may be lost.
    pub(super) fn reconnected(&mut self, now: Millis) {
        for peer in self.peers.values_mut() {
            peer.link.repeat(now);
            peer.link.acknowledge_by(now);
        }
    }

    /// Hands over what it has, and accepts nothing.
    pub(super) fn begin_leave(&mut self) {
        if self.phase == MembershipPhase::Running {
            self.phase = MembershipPhase::Leaving;
        }
    }

    /// Everything was acknowledged.
    pub(super) fn is_sent(&self) -> bool {
        self.peers.values().all(|peer| !peer.joined || peer.link.is_sent())
    }

    /// Tells the others that nothing follows: each when its link is empty and what has arrived from it is settled, because one of them may
    /// be gone; or all at once. True if all were notified.
    pub(super) fn send_leave(&mut self, directory: &Directory, to_all: bool) -> bool {
        self.send_changes(directory);
        for peer in self.peers.values_mut().filter(|peer| peer.joined && !peer.has_leave) {
            if to_all || peer.link.is_idle() {
                peer.link.push(OutgoingItem::new(ItemKind::Leave, Bytes::new()));
                peer.has_leave = true;
            }
        }
        to_all || self.peers.values().all(|peer| peer.has_leave)
    }

    /// It has left.
    pub(super) fn finish_leave(&mut self) {
        self.end_all(PeerEnd::Orderly);
        self.phase = MembershipPhase::Left;
        self.view_changed = true;
    }

    /// Octets of envelopes without a receipt.
    pub(super) fn kept_bytes(&self) -> usize {
        self.peers.values().map(|peer| peer.link.envelopes.bytes()).sum()
    }

    /// The header of the next frame with items to a node.
    #[cfg(test)]
    pub(super) fn next_header(&self, node: NodeId) -> Option<FrameHeader> {
        let peer = self.peers.get(&node)?;
        Some(peer.link.next_header(self.header(peer.member.epoch, peer.version)))
    }

    /// Changes what is believed to be known of a node's claims.
    #[cfg(test)]
    pub(super) fn damage_digest(&mut self, node: NodeId, change: Digest) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.link.digest.merge(change);
        }
    }
}
