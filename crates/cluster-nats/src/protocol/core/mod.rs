//! The cluster without a network: the interface of [`cluster::Cluster`] over the directory and the links, driven by frames, records
//! and the time.
//!
//! # Pitfalls
//!
//! One task calls [`Core::receive`] and [`Core::run_calls`], so that the inbox is called in order. The other methods may be called from
//! any thread.

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use base::clock::Millis;
use base::lock::{RankedMutex, rank};
use bytes::Bytes;
use cluster::{
    AddressLocation, AddressNumber, BroadcastResult, Claim, Envelope, HandoverResult, Inbox, InboxCall,
    Member, MembershipChange, NodeClaim, NodeId, PeerViolation, RefusalReason, RefusedEnvelope, Ticket,
};

use super::directory::{Directory, DirectoryLimits, OWN_SLOT};
use super::entry::{MAX_NODES, NodeSlot};
use super::frame::{FrameError, decode_frame, encode_frame};
use super::member_record::MemberRecord;
use super::state::{EndedPeer, MembershipPhase, PollOutput, State, UnusableMember, Work};
use super::statistics::Statistics;
use crate::cluster_key::ClusterKey;

/// The members as readers see them.
struct View {
    members: Vec<Member>,
    slots: [Option<NodeId>; MAX_NODES],
}

/// A node in the cluster.
pub(crate) struct Core {
    node: NodeId,
    key: ClusterKey,
    inbox: OnceLock<Arc<dyn Inbox>>,
    directory: Directory,
    state: RankedMutex<State, { rank::CLUSTER_LINKS }>,
    view: ArcSwap<View>,
}

/// Values for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreStatus {
    pub(crate) members: usize,
    pub(crate) kept_bytes: usize,
    pub(crate) own_claims: usize,
    pub(crate) peer_claims: usize,
    pub(crate) statistics: Statistics,
}

impl Core {
    pub(crate) fn new(node: NodeId, key: ClusterKey, limits: DirectoryLimits) -> Core {
        let own = Member { node, epoch: 0, version: Envelope::VERSION, drains: false };
        let core = Core {
            node,
            key,
            inbox: OnceLock::new(),
            directory: Directory::new(limits),
            state: RankedMutex::new(State::new(own)),
            view: ArcSwap::from_pointee(View { members: Vec::new(), slots: [None; MAX_NODES] }),
        };
        core.with(|state| state.view_changed = true);
        core
    }

    /// Runs `f` on the state, and publishes the members if they changed.
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = f(&mut state);
        if std::mem::take(&mut state.view_changed) {
            let own = state.own();
            let mut view = View { members: Vec::new(), slots: [None; MAX_NODES] };
            if state.phase != MembershipPhase::Left {
                view.members.push(own);
                view.members.extend(state.members().map(|(_, member)| member));
                view.members.sort_by_key(|member| member.node);
            }
            for (slot, node) in
                state.members().map(|(slot, member)| (slot, member.node)).chain([(OWN_SLOT, own.node)])
            {
                if let Some(name) = view.slots.get_mut(usize::from(slot.0)) {
                    *name = Some(node);
                }
            }
            self.view.store(Arc::new(view));
        }
        result
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn attach(&self, inbox: Arc<dyn Inbox>) {
        // A second inbox is a bug of the caller; the first one stays.
        if self.inbox.set(inbox).is_ok() {
            self.with(|state| state.attach(&self.directory));
        }
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        self.view.load().members.clone()
    }

    pub(crate) fn locate(&self, address: u64, number: Option<AddressNumber>) -> AddressLocation {
        let found = self.directory.locate(address, number);
        let view = self.view.load();
        let name = |slot: NodeSlot| view.slots.get(usize::from(slot.0)).copied().flatten();
        let mut claims =
            found.iter().filter_map(|(slot, claim)| Some(NodeClaim { node: name(*slot)?, claim: *claim }));
        let Some(first) = claims.next() else { return AddressLocation::Nowhere };
        match claims.next() {
            None if first.node == self.node => AddressLocation::Here,
            None => AddressLocation::Node(first),
            Some(second) => {
                AddressLocation::of(self.node, [first, second].into_iter().chain(claims).collect())
            }
        }
    }

    /// True if the sender must be woken.
    pub(crate) fn claim(&self, claim: Claim) -> bool {
        self.directory.claim(claim)
    }

    /// True if the sender must be woken.
    pub(crate) fn set_takes_messages(
        &self,
        address: u64,
        number: Option<AddressNumber>,
        takes_messages: bool,
    ) -> bool {
        self.directory.set_takes_messages(address, number, takes_messages)
    }

    /// True if the sender must be woken.
    pub(crate) fn release(&self, address: u64, number: Option<AddressNumber>) -> bool {
        self.directory.release(address, number)
    }

    /// Returns the ticket, and whether the sender must be woken.
    pub(crate) fn deliver(
        &self,
        node: NodeId,
        mut envelope: Envelope,
    ) -> Result<(Ticket, bool), Box<RefusedEnvelope>> {
        self.with(|state| state.deliver(node, &mut envelope, &self.directory))
            .map_err(|reason| Box::new(RefusedEnvelope { node, reason, envelope }))
    }

    /// Returns the result, and whether the sender must be woken.
    pub(crate) fn broadcast(&self, envelope: Envelope) -> (BroadcastResult, bool) {
        let (mut result, mut wakes) = (BroadcastResult::default(), false);
        let others = self.members().into_iter().map(|member| member.node).filter(|node| *node != self.node);
        for node in others {
            match self.deliver(node, envelope.clone()) {
                Ok((ticket, wake)) => {
                    wakes |= wake;
                    result.accepted.push((node, ticket));
                }
                // It has left meanwhile.
                Err(refused) if refused.reason == RefusalReason::UnknownNode => {}
                Err(refused) => result.refused.push(*refused),
            }
        }
        (result, wakes)
    }

    /// None if the node that sent the envelope cannot be informed; otherwise whether this node's sending task must be woken.
    pub(crate) fn settle(&self, from: NodeId, ticket: Ticket, result: HandoverResult) -> Option<bool> {
        self.with(|state| state.settle(from, ticket, result))
    }

    /// The node joins with this epoch.
    pub(crate) fn start(&self, epoch: u64) -> MemberRecord {
        self.with(|state| state.set_epoch(epoch));
        MemberRecord::new(self.node, epoch)
    }

    /// The node joins with an epoch after this one, which an earlier start had.
    pub(crate) fn start_after(&self, earlier: u64) {
        self.with(|state| {
            if state.own().epoch <= earlier {
                state.set_epoch(earlier.saturating_add(1));
            }
        });
    }

    /// What the others must know of this node.
    pub(crate) fn record(&self) -> MemberRecord {
        let own = self.with(|state| state.own());
        MemberRecord { member: own, ..MemberRecord::new(self.node, own.epoch) }
    }

    /// The node owns nothing any more; the others learn it from its record.
    pub(crate) fn begin_drain(&self) {
        self.with(State::begin_drain);
    }

    /// False if the two nodes have no common version.
    pub(crate) fn see_member(&self, now: Millis, record: &MemberRecord) -> Result<(), UnusableMember> {
        self.with(|state| state.see_member(now, record))
    }

    pub(crate) fn forget_record(&self, node: NodeId) {
        self.with(|state| state.forget_record(node));
    }

    /// A message of this node to itself, which shows that messages to it arrive.
    pub(crate) fn echo(&self) -> Vec<u8> {
        let frame = encode_frame(&self.with(|state| state.echo()), [].iter());
        self.key.seal_frame(self.node.as_str(), frame)
    }

    /// Octets arrived on the subject of this node. True if they are [`Core::echo`].
    pub(crate) fn receive(&self, now: Millis, octets: &Bytes) -> bool {
        let Some(octets) = self.key.open_frame(self.node.as_str(), octets) else {
            self.with(|state| state.statistics.forged_frames += 1);
            return false;
        };
        // Outside of the lock: it copies envelopes.
        match decode_frame(&octets) {
            Ok((header, items)) => {
                if items.is_empty() && header == self.with(|state| state.echo()) {
                    return true;
                }
                let frame = self.with(|state| state.receive(now, header, items.len(), octets.len()));
                let Some(frame) = frame else { return false };
                for item in items.into_iter().skip(frame.new.skip).take(frame.new.count) {
                    self.with(|state| state.handle(now, &frame, item, &self.directory));
                }
            }
            Err(error) => {
                tracing::debug!(%error, octets = octets.len(), "a message of the cluster is no frame");
                self.with(|state| state.statistics.ignored_frames += 1);
                if let FrameError::Malformed = error
                    && let Some(from) = claimed_sender(&octets).filter(|from| self.is_other_member(*from))
                {
                    self.with(|state| state.violation(from, PeerViolation::Envelope));
                }
            }
        }
        false
    }

    fn is_other_member(&self, node: NodeId) -> bool {
        node != self.node && self.view.load().members.iter().any(|member| member.node == node)
    }

    pub(crate) fn poll(&self, now: Millis, budget: usize, connected: bool) -> PollOutput {
        let mut output = self.with(|state| state.poll(now, &self.directory, budget, connected));
        for (node, frame) in &mut output.frames {
            *frame = self.key.seal_frame(node.as_str(), std::mem::take(frame));
        }
        output
    }

    /// Calls the inbox, as long as there is something to report.
    pub(crate) fn run_calls(&self) -> bool {
        let mut any = false;
        loop {
            let work = self.with(State::take_work);
            if work.is_empty() {
                return any;
            }
            any = true;
            for work in work {
                match work {
                    Work::Call(call) => self.report(call),
                    Work::End(ended) => self.finish_end(ended),
                }
            }
        }
    }

    fn report(&self, call: InboxCall) {
        let Some(inbox) = self.inbox.get() else { return };
        // One envelope must not end the connection to all nodes.
        if catch_unwind(AssertUnwindSafe(|| call.run(&**inbox))).is_err() {
            tracing::error!("handling what another node sent panicked");
        }
    }

    fn finish_end(&self, ended: EndedPeer) {
        let EndedPeer { node, slot, envelopes, orderly, is_reported } = ended;
        let claims = self.directory.remove(slot);
        self.with(|state| state.free_slot(slot));
        if is_reported {
            envelopes
                .into_envelopes()
                .for_each(|envelope| self.report(InboxCall::Undelivered(node, envelope)));
            self.report(InboxCall::Changed(MembershipChange::Left { node, claims, orderly }));
        }
    }

    pub(crate) fn reconnected(&self, now: Millis) {
        self.with(|state| state.reconnected(now));
    }

    pub(crate) fn phase(&self) -> MembershipPhase {
        self.with(|state| state.phase)
    }

    pub(crate) fn begin_leave(&self) {
        self.with(State::begin_leave);
    }

    /// Nothing is in transit.
    pub(crate) fn is_quiet(&self) -> bool {
        // In this order: changes that are taken are queued under the lock of the state.
        !self.directory.has_pending() && self.is_sent()
    }

    /// Everything that was queued is acknowledged.
    pub(crate) fn is_sent(&self) -> bool {
        self.with(|state| state.is_sent())
    }

    /// Tells the nodes whose links are idle, or all, that nothing follows. True if all were notified.
    pub(crate) fn send_leave(&self, to_all: bool) -> bool {
        self.with(|state| state.send_leave(&self.directory, to_all))
    }

    pub(crate) fn finish_leave(&self) {
        self.with(|state| state.finish_leave());
    }

    pub(crate) fn status(&self) -> CoreStatus {
        let members = self.view.load().members.len();
        self.with(|state| CoreStatus {
            members,
            kept_bytes: state.kept_bytes(),
            own_claims: self.directory.len(OWN_SLOT),
            peer_claims: self.directory.peer_claims(),
            statistics: state.statistics,
        })
    }
}

/// The name in the header of octets that are no frame.
fn claimed_sender(octets: &[u8]) -> Option<NodeId> {
    let length = usize::from(*octets.get(1)?);
    std::str::from_utf8(octets.get(2..2 + length)?).ok().and_then(NodeId::new)
}
