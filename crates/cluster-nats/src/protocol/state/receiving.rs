//! What arrives from other nodes: which link a frame belongs to, and what its items do.

use base::clock::Millis;
use bytes::Bytes;
use cluster::{
    Claim, ClaimChange, Envelope, HandoverResult, InboxCall, MembershipChange, NodeId, PeerViolation, Ticket,
};

use super::{MAX_DEPARTED, MAX_LINK_STEP, MAX_OWN_LINK_STEP, MembershipPhase, PeerEnd, State};
use crate::protocol::directory::{Applied, Directory, ReplacedPart, SnapshotPart};
use crate::protocol::frame::{EnvelopeBody, FrameHeader, Item, ItemKind, OutgoingItem, read_envelope};
use crate::protocol::link::{AcknowledgeOutcome, NewItems};

/// A frame whose items are handled one by one, because the lock is released between them.
pub(in crate::protocol) struct ReceivedFrame {
    from: NodeId,
    link: u64,
    pub(in crate::protocol) new: NewItems,
}

/// Time after claims had no room until another snapshot is asked for.
const REPAIR_MILLIS: u64 = 60_000;

impl State {
    /// A frame with this number of items and octets arrived. Returns which items to give to [`State::handle`].
    pub(in crate::protocol) fn receive(
        &mut self,
        now: Millis,
        header: FrameHeader,
        items: usize,
        length: usize,
    ) -> Option<ReceivedFrame> {
        if !self.accept(now, &header) {
            self.statistics.ignored_frames += 1;
            return None;
        }
        let peer = self.peers.get_mut(&header.from)?;
        self.statistics.frames_received += 1;
        let acknowledged = peer.link.acknowledge(header.received, header.has_gap, now);
        let new = peer.link.receive(header.first, items, length, now);
        // Anybody with permission to publish in NATS can repeat a frame, so a repeated one does not show that its sender runs.
        if acknowledged == AcknowledgeOutcome::Progress || new.count > 0 {
            peer.received_at = now;
        }
        let frame = ReceivedFrame { from: header.from, link: peer.link.number, new };
        if acknowledged == AcknowledgeOutcome::Invalid {
            self.violation(header.from, PeerViolation::Receipt);
        }
        Some(frame)
    }

    /// Whether a frame belongs to the link with its sender, which it may begin.
    fn accept(&mut self, now: Millis, header: &FrameHeader) -> bool {
        let (from, own) = (header.from, self.own);
        let known = self.peers.get_mut(&from).filter(|peer| {
            (peer.member.epoch, own.epoch) == (header.from_epoch, header.to_epoch) && header.from_link != 0
        });
        let Some(peer) = known else { return false };
        let (number, theirs) = (peer.link.number, peer.link.theirs);
        if header.to_link > number {
            // It knows a later link than there is.
            if header.to_link - number > MAX_OWN_LINK_STEP {
                self.violation(from, PeerViolation::Header);
            } else {
                self.link_numbers.insert(from, header.to_link);
                self.begin_again(now, from);
            }
            return false;
        }
        // It answers a frame of this link, so messages arrive in both directions.
        let answers = header.to_link == number;
        let begins = answers || header.to_link == 0;
        match theirs {
            Some(theirs) if theirs == header.from_link => {}
            None if begins => peer.link.establish(header.from_link, now),
            Some(theirs) if begins && header.from_link > theirs => {
                if header.from_link - theirs > MAX_LINK_STEP {
                    self.violation(from, PeerViolation::Header);
                    return false;
                }
                // It has begun another link, so it considered this node gone.
                if peer.link.is_confirmed() {
                    self.begin_again(now, from);
                }
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.link.establish(header.from_link, now);
                }
                return false;
            }
            _ => {
                peer.link.acknowledge_by(now);
                return false;
            }
        }
        if !answers {
            // Its items are none of this link.
            peer.link.acknowledge_by(now);
            return false;
        }
        if !peer.link.is_confirmed() {
            peer.received_at = now;
            peer.link.confirm(now);
            peer.joined = true;
            self.view_changed = true;
            let member = peer.member;
            self.call(InboxCall::Changed(MembershipChange::Joined(member)));
        }
        true
    }

    /// An item of a frame.
    pub(in crate::protocol) fn handle(
        &mut self,
        now: Millis,
        frame: &ReceivedFrame,
        item: Item,
        directory: &Directory,
    ) {
        let from = frame.from;
        // It has left within this frame, or the link ended meanwhile.
        let link = self.peers.get_mut(&from).filter(|peer| peer.link.number == frame.link);
        let Some(peer) = link else { return };
        match item {
            Item::Envelope(body) => self.receive_envelope(from, body),
            Item::EnvelopePart(octets) => {
                if peer.link.parts.len() + octets.len() > 8 + Envelope::MAX {
                    peer.link.parts = Vec::new();
                    self.violation(from, PeerViolation::Envelope);
                    return;
                }
                peer.link.parts.extend_from_slice(&octets);
            }
            Item::Changes(changes) => {
                changes.into_iter().for_each(|change| self.apply(now, from, change, directory));
            }
            Item::Snapshot { first, last, claims } => {
                self.receive_snapshot(now, from, first, last, claims, directory);
            }
            Item::Receipts(receipts) => {
                let epoch = self.own.epoch;
                let up_to = Ticket { epoch, sequence: receipts.up_to };
                let (ended, violation) = match peer.link.envelopes.end(receipts) {
                    Ok(ended) => (ended, None),
                    Err((violation, ended)) => (ended, Some(violation)),
                };
                ended.refused.into_iter().for_each(|envelope| self.call(InboxCall::Refused(from, envelope)));
                if ended.any {
                    let later = ended.later.into_iter().map(|sequence| Ticket { epoch, sequence }).collect();
                    self.call(InboxCall::Receipts(from, up_to, later));
                }
                violation.into_iter().for_each(|violation| self.violation(from, violation));
            }
            Item::Digest(digest) => {
                let link = &mut peer.link;
                let may_repair = link.refused_at.is_none_or(|at| {
                    now.since(at) >= REPAIR_MILLIS && directory.has_room_for(peer.slot, digest.count)
                });
                if digest != link.digest && may_repair && !link.requested_snapshot {
                    link.requested_snapshot = true;
                    self.statistics.digest_mismatches += 1;
                    link.push(OutgoingItem::new(ItemKind::SnapshotRequest, Bytes::new()));
                }
            }
            Item::SnapshotRequest => {
                self.statistics.snapshots_repeated += 1;
                peer.link.restart_snapshot();
            }
            Item::Leave => self.receive_leave(from),
            Item::Unknown => self.statistics.skipped_items += 1,
            Item::Invalid(violation) => self.violation(from, violation),
        }
    }

    fn apply(&mut self, now: Millis, from: NodeId, change: ClaimChange, directory: &Directory) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        match (directory.apply(peer.slot, &mut peer.link.digest, change), change) {
            (Applied::First, ClaimChange::Claimed(claim)) => self.call(InboxCall::Claimed(from, claim)),
            (Applied::Refused, _) => {
                peer.link.refused_at = Some(now);
                self.violation(from, PeerViolation::Claim);
            }
            _ => {}
        }
    }

    fn receive_snapshot(
        &mut self,
        now: Millis,
        from: NodeId,
        first: bool,
        last: bool,
        claims: Vec<Claim>,
        directory: &Directory,
    ) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let link = &mut peer.link;
        if first {
            link.snapshot_at = Some(0);
            link.is_snapshot_refused = false;
            link.joined_claims = Vec::new();
        }
        let replaced = link.snapshot_at.take().and_then(|from| {
            directory.replace(peer.slot, &mut link.digest, SnapshotPart { from, is_last: last, claims })
        });
        let Some(ReplacedPart { first, known, has_room, end }) = replaced else {
            link.requested_snapshot = false;
            self.violation(from, PeerViolation::Claim);
            return;
        };
        link.is_snapshot_refused |= !has_room;
        let reported = if link.has_claims {
            first
        } else {
            link.joined_claims.extend(first.into_iter().chain(known));
            Vec::new()
        };
        if !last {
            link.snapshot_at = Some(end);
        }
        let joined = (last && !link.has_claims).then(|| std::mem::take(&mut link.joined_claims));
        link.has_claims |= last;
        if last {
            link.requested_snapshot = false;
            link.refused_at = link.is_snapshot_refused.then_some(now);
        }
        let is_refused = last && link.is_snapshot_refused;
        reported.into_iter().for_each(|claim| self.call(InboxCall::Claimed(from, claim)));
        if let Some(claims) = joined {
            self.call(InboxCall::ClaimedByJoined(from, claims));
        }
        if is_refused {
            self.violation(from, PeerViolation::Claim);
        }
    }

    fn receive_envelope(&mut self, from: NodeId, body: EnvelopeBody) {
        let accepts = self.attached && self.phase == MembershipPhase::Running;
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let parts = std::mem::take(&mut peer.link.parts);
        let bytes = parts.len() + body.octets.len();
        let (ticket, read) = if parts.is_empty() {
            (body.octets.first_chunk().copied(), body.read)
        } else {
            let whole = [&parts[..], &body.octets[..]].concat();
            (whole.first_chunk().copied(), read_envelope(&whole))
        };
        let ticket = ticket.map_or(0, u64::from_be_bytes);
        if ticket != 0
            && let Err(violation) = peer.link.received.add(ticket, bytes)
        {
            return self.violation(from, violation);
        }
        let checked = match read {
            Ok((_, envelope)) => {
                let header = &envelope.header;
                let is_right = header.origin == from
                    && header.epoch == peer.member.epoch
                    && header.class.is_reliable() == (ticket != 0)
                    && (ticket == 0 || header.sequence == ticket);
                if is_right { Ok(envelope) } else { Err(PeerViolation::Header) }
            }
            Err(_) => Err(PeerViolation::Envelope),
        };
        if ticket != 0 && (checked.is_err() || !accepts) {
            peer.link.received.settle(ticket, HandoverResult::Refused);
        }
        match checked {
            Ok(envelope) if accepts => {
                self.statistics.envelopes_received += 1;
                self.call(InboxCall::Envelope(from, envelope));
            }
            Ok(_) => {}
            Err(violation) => self.violation(from, violation),
        }
    }

    fn receive_leave(&mut self, from: NodeId) {
        let Some(peer) = self.peers.get(&from) else { return };
        let epoch = peer.member.epoch;
        // The link ends, so nothing else would acknowledge its last item.
        let farewell = peer.link.last_frame(self.header(epoch, peer.version));
        self.farewells.push((from, farewell));
        while self.departed.len() >= MAX_DEPARTED {
            self.departed.pop_first();
        }
        self.departed.insert(from, epoch);
        self.end(from, PeerEnd::Orderly);
    }
}
