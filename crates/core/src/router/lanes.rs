//! Lanes: for each recipient, one queue of the stanzas that do not come from a client's stream (from other nodes,
//! services, multicasts, components). They are handled in order, even when a handler waits.
//!
//! A lane exists while a stanza of it is being handled. It is bounded in bytes, and so are all lanes together. A source
//! whose stanza finds a full lane is held back: it waits before it sends its next stanza, or reads the next one from its
//! stream. Other lanes go on. Stanzas of other nodes are kept by the sender's node until they are settled, which bounds
//! them; an envelope that is not retained ([`EnvelopeClass::BestEffort`]) is dropped by a full lane.
//!
//! Later stanzas do not wait for the receipts of earlier ones, so that the store writes many at once; a stanza counts for the
//! bounds until its receipts are settled. Those of other nodes do not count: they could depend on a stanza that must pass the
//! same lane.
//!
//! What a stanza of a lane causes enters lanes without waiting for room, because that room could be its own. The stanzas that
//! are handled bound it.
//!
//! These two have a bound of their own over all lanes, so that a node or a handler that exceeds its share cannot take the
//! memory. Beyond it, the envelope is refused, so that its sender's node keeps the stanza; any other stanza returns with an error.
//!
//! # Pitfalls
//!
//! A lane whose task ends early refuses what other nodes have sent, so that they handle it, and returns errors to the other
//! senders.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use base::lock::LeafMutex;
use base::spawn::{BoxFuture, yield_now};
use cluster::{Envelope, EnvelopeClass, HandoverResult, NodeId};
use jid::{Jid, JidRef};
use queues::keyed_queues::{KeyedPushOutcome, KeyedQueueLimits, KeyedQueues, RetainedCapacity};
use stanza::{StanzaCondition, StanzaError};

use super::{HandedOver, RoutingOutcome, RoutingWork, StanzaOrigin};
use crate::metrics::StanzaSource;
use crate::node::Node;
use crate::receipt::{FailedReceipt, Receipts};
use crate::shared_stanza::SharedStanza;

/// Bounds of one lane and of all lanes together. Forced are stanzas of other nodes, whose queues have a few megabytes each,
/// and what handlers cause.
const LIMITS: KeyedQueueLimits =
    KeyedQueueLimits { bytes_per_key: 256 << 10, bytes: 64 << 20, forced_bytes: 256 << 20 };
/// Counted for each item besides its stanza and its addresses.
const ITEM_OVERHEAD: usize = 128;
/// Stanzas of a lane that are handled before its task yields.
const YIELD_EVERY: usize = 64;
/// Stanzas of a lane whose receipts may be outstanding while later ones are handled.
const MAX_UNSETTLED: usize = 256;
/// Maximum number of sources whose full lanes are logged.
const MAX_LOGGED_SOURCES: usize = 256;

/// A stanza in a lane.
pub struct LaneStanza {
    /// The stanza.
    pub stanza: SharedStanza,
    /// Its sender.
    pub from: Jid,
    /// Its recipient.
    pub to: Jid,
    /// How far it has come.
    pub stage: LaneStage,
    /// What follows when it is safe.
    pub completion: Option<Box<dyn LaneCompletion>>,
}

/// How far a stanza has come.
#[derive(Clone, Copy)]
pub enum LaneStage {
    /// It must be routed.
    Unrouted,
    /// Another node has handed it over, or it has returned: only the chain and the delivery on this node follow.
    BeforeChain(HandedOver),
    /// Its chain has run here, and it has returned from the node with its session. The number of envelopes that have
    /// carried it.
    AfterChain(u8),
}

/// What follows when a stanza was handled and is safe. Dropping it says that the stanza is not safe here.
pub trait LaneCompletion: Send {
    /// Whether the sender's stream waits until the stanza is safe, see [`crate::message_backup`].
    fn tracks_delivery(&self) -> bool;

    /// The stanza was routed: later ones may follow it.
    fn routed(&mut self);

    /// The stanza is safe, or its sender has received an error.
    fn complete(self: Box<Self>);
}

/// A completion that several stanzas share: it follows when all of them are safe, and is dropped if one is not.
struct SharedCompletion {
    completion: LeafMutex<Option<Box<dyn LaneCompletion>>>,
    is_safe: AtomicBool,
}

impl Drop for SharedCompletion {
    fn drop(&mut self) {
        let completion = self.completion.lock().take();
        if let Some(completion) = completion.filter(|_| self.is_safe.load(Ordering::Acquire)) {
            completion.complete();
        }
    }
}

/// The part of one stanza in a completion that several stanzas share.
pub struct CompletionShare {
    shared: Arc<SharedCompletion>,
    is_safe: bool,
}

impl CompletionShare {
    /// The first share of a completion. The completion does not follow before this share has ended, too.
    pub fn new(completion: Box<dyn LaneCompletion>) -> CompletionShare {
        let shared =
            SharedCompletion { completion: LeafMutex::new(Some(completion)), is_safe: AtomicBool::new(true) };
        CompletionShare { shared: Arc::new(shared), is_safe: false }
    }

    /// A share for a further stanza.
    #[must_use = "dropping a share says that its stanza is not safe"]
    pub fn share(&self) -> CompletionShare {
        CompletionShare { shared: self.shared.clone(), is_safe: false }
    }
}

impl LaneCompletion for CompletionShare {
    /// No sender waits for a single one of several stanzas.
    fn tracks_delivery(&self) -> bool {
        false
    }

    fn routed(&mut self) {}

    fn complete(mut self: Box<Self>) {
        self.is_safe = true;
    }
}

impl Drop for CompletionShare {
    fn drop(&mut self) {
        if !self.is_safe {
            self.shared.is_safe.store(false, Ordering::Release);
        }
    }
}

enum LaneItem {
    Envelope(NodeId, Envelope),
    Stanza(LaneStanza),
}

/// Lanes by the hash of their recipient. Recipients with the same hash share a lane.
pub(crate) struct RecipientLanes {
    queues: KeyedQueues<u64, LaneItem>,
    /// Sources whose full lanes have been logged.
    logged: LeafMutex<BTreeSet<(StanzaSource, Box<str>)>>,
}

impl Default for RecipientLanes {
    fn default() -> RecipientLanes {
        RecipientLanes { queues: KeyedQueues::new(LIMITS), logged: LeafMutex::default() }
    }
}

impl RecipientLanes {
    /// Whether this is the first full lane of a source with this address.
    fn record_first(&self, source: StanzaSource, domain: &str) -> bool {
        let mut logged = self.logged.lock();
        logged.len() < MAX_LOGGED_SOURCES && logged.insert((source, domain.into()))
    }
}

/// Result of handling an item.
enum LaneStep {
    /// The next item may be handled.
    Handled,
    /// The item is being handled.
    Wait(BoxFuture<'static, LaneStep>),
    /// The next item may be handled. The future ends when the receipts of this one are settled.
    Unsettled(BoxFuture<'static, ()>),
}

/// An open lane.
struct OpenLane {
    node: Arc<Node>,
    key: u64,
    /// Stanzas that were handled and are not safe, in order. They count for the bounds of the lane.
    unsettled: VecDeque<(RetainedCapacity, BoxFuture<'static, ()>)>,
    closed: bool,
}

impl OpenLane {
    fn next(&mut self) -> Option<LaneItem> {
        let next = self.node.lanes.queues.next(&self.key);
        self.closed = next.is_none();
        next
    }

    /// Handles the rest of the lane.
    async fn run(mut self, mut step: LaneStep) {
        let mut handled = 0;
        loop {
            match step {
                LaneStep::Handled => {}
                LaneStep::Wait(pending) => {
                    step = pending.await;
                    continue;
                }
                LaneStep::Unsettled(settled) => {
                    let retained = self.node.lanes.queues.retain_handled(&self.key);
                    self.unsettled.push_back((retained, settled));
                }
            }
            handled += 1;
            if handled % YIELD_EVERY == 0 {
                yield_now().await;
            }
            let Some(item) = poll_fn(|cx| self.poll_next(cx)).await else { break };
            step = self.node.handle_lane_item(item);
        }
    }

    /// Settles receipts in order, and takes the next item. The lane ends when nothing is left.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<LaneItem>> {
        while let Some((_, settled)) = self.unsettled.front_mut()
            && settled.as_mut().poll(cx).is_ready()
        {
            if let Some((retained, _)) = self.unsettled.pop_front() {
                self.node.lanes.queues.release_retained(&self.key, retained);
            }
        }
        if self.unsettled.len() >= MAX_UNSETTLED {
            return Poll::Pending;
        }
        let next = self.node.lanes.queues.poll_next(&self.key, self.unsettled.is_empty(), cx);
        self.closed = matches!(next, Poll::Ready(None));
        next
    }
}

impl Drop for OpenLane {
    /// The lane has ended early: senders of what it held must know.
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        for (retained, settled) in self.unsettled.drain(..) {
            self.node.lanes.queues.release_retained(&self.key, retained);
            self.node.spawner.spawn("routing", settled);
        }
        for item in self.node.lanes.queues.close(&self.key) {
            self.node.refuse_lane_item(item, "lane-ended", StanzaCondition::InternalServerError);
        }
    }
}

impl Node {
    /// Handles an envelope with a stanza after those before it for the same recipient.
    pub fn receive_in_lane(self: &Arc<Self>, key: u64, from: NodeId, envelope: Envelope) {
        let size = envelope.encoded_len().saturating_add(ITEM_OVERHEAD);
        let best_effort = envelope.header.class == EnvelopeClass::BestEffort;
        self.force_into_lane(StanzaSource::Node, key, LaneItem::Envelope(from, envelope), size, !best_effort);
    }

    /// Routes a stanza that does not come from a client's stream; its `from` and `to` equal the two addresses. It is handled
    /// after those before it for the same recipient.
    ///
    /// If the lane of the recipient is full, the stanza is routed by the returned future. The source must await it
    /// before it sends its next stanza, or reads it from its stream.
    #[must_use = "the returned future routes the stanza"]
    pub fn route_in_lane(
        self: &Arc<Self>,
        source: StanzaSource,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
    ) -> Option<BoxFuture<'static, ()>> {
        let (from, to) = (from.to_jid(), to.to_jid());
        self.enter_lane(source, LaneStanza { stanza, from, to, stage: LaneStage::Unrouted, completion: None })
    }

    /// As [`Node::route_in_lane`].
    pub(super) fn enter_lane(
        self: &Arc<Self>,
        source: StanzaSource,
        stanza: LaneStanza,
    ) -> Option<BoxFuture<'static, ()>> {
        let (key, size) = self.lane_of(&stanza);
        match self.lanes.queues.push(key, LaneItem::Stanza(stanza), size) {
            KeyedPushOutcome::Owner(first) => self.run_lane(key, first),
            KeyedPushOutcome::Queued => {}
            KeyedPushOutcome::Full(mut item) => {
                self.report_full_lane(source, &item);
                let node = self.clone();
                return Some(Box::pin(async move {
                    loop {
                        poll_fn(|cx| node.lanes.queues.poll_capacity(&key, size, cx)).await;
                        match node.lanes.queues.push(key, item, size) {
                            KeyedPushOutcome::Owner(first) => return node.run_lane(key, first),
                            KeyedPushOutcome::Queued => return,
                            KeyedPushOutcome::Full(back) => item = back,
                        }
                    }
                }));
            }
        }
        None
    }

    /// Like [`Node::enter_lane`], for a stanza of another node, or one that a stanza of a lane has caused. `reliable`: something
    /// else bounds it; any other is dropped by a full lane.
    pub fn enter_lane_now(self: &Arc<Self>, source: StanzaSource, stanza: LaneStanza, reliable: bool) {
        let (key, size) = self.lane_of(&stanza);
        self.force_into_lane(source, key, LaneItem::Stanza(stanza), size, reliable);
    }

    fn force_into_lane(
        self: &Arc<Self>,
        source: StanzaSource,
        key: u64,
        item: LaneItem,
        size: usize,
        reliable: bool,
    ) {
        let queues = &self.lanes.queues;
        let entered =
            if reliable { queues.push_forced(key, item, size) } else { queues.push(key, item, size) };
        match entered {
            KeyedPushOutcome::Owner(first) => self.run_lane(key, first),
            KeyedPushOutcome::Queued => {}
            KeyedPushOutcome::Full(item) if reliable => {
                self.report_full_lane(source, &item);
                self.refuse_lane_item(item, "queue-full", StanzaCondition::ResourceConstraint);
            }
            KeyedPushOutcome::Full(_) => self.metrics.stanzas_dropped.inc(["presence", "queue-full"]),
        }
    }

    /// An item that no lane handles: its sender, or the sender's node, must know.
    fn refuse_lane_item(self: &Arc<Self>, item: LaneItem, reason: &'static str, condition: StanzaCondition) {
        match item {
            LaneItem::Envelope(from, envelope) => {
                self.peer_routing().settle(self, from, &envelope, HandoverResult::Refused);
            }
            // The sender's node handles it, or reports the error.
            LaneItem::Stanza(LaneStanza { completion: Some(completion), .. }) => drop(completion),
            LaneItem::Stanza(LaneStanza { stanza, .. }) => {
                self.metrics.stanzas_dropped.inc([stanza.class().as_str(), reason]);
                self.return_failed(FailedReceipt { stanza, error: StanzaError::new(condition) });
            }
        }
    }

    /// Key of the recipient's lane, and the size of the stanza in it.
    fn lane_of(&self, stanza: &LaneStanza) -> (u64, usize) {
        let LaneStanza { stanza, from, to, .. } = stanza;
        let addresses = from.as_str().len() + to.as_str().len();
        let size = stanza.bytes().len().saturating_add(addresses + ITEM_OVERHEAD);
        (self.routing_table.hash(to.as_ref()), size)
    }

    fn report_full_lane(&self, source: StanzaSource, item: &LaneItem) {
        self.metrics.lanes_full.inc([source.as_str()]);
        let (sender, to) = match item {
            LaneItem::Envelope(node, _) => (node.as_str(), None),
            LaneItem::Stanza(LaneStanza { from, to, .. }) => (from.domain(), Some(to)),
        };
        if self.lanes.record_first(source, sender) {
            let source = source.as_str();
            tracing::warn!(
                source,
                sender,
                to = to.map(tracing::field::display),
                "stanzas arrive faster than they are handled, so their source is held back or refused; further ones \
                 are counted only"
            );
        }
    }

    /// Whether stanzas for the recipient with this hash are being handled, so that a further one must enter the lane.
    pub fn has_lane(&self, hash: u64) -> bool {
        self.lanes.queues.contains(&hash)
    }

    fn run_lane(self: &Arc<Self>, key: u64, first: LaneItem) {
        let mut lane = OpenLane { node: self.clone(), key, unsettled: VecDeque::new(), closed: false };
        let mut next = Some(first);
        for handled in 1..=YIELD_EVERY {
            let Some(item) = next else { return };
            let step = self.handle_lane_item(item);
            if handled == YIELD_EVERY || !matches!(step, LaneStep::Handled) {
                return self.spawner.spawn("routing", Box::pin(lane.run(step)));
            }
            next = lane.next();
        }
    }

    fn handle_lane_item(self: &Arc<Self>, item: LaneItem) -> LaneStep {
        let LaneStanza { stanza, from, to, stage, completion } = match item {
            LaneItem::Envelope(from, envelope) => {
                return match self.peer_routing().receive_stanza(self, from, envelope) {
                    None => LaneStep::Handled,
                    Some(pending) => LaneStep::Wait(Box::pin(async move {
                        pending.await;
                        LaneStep::Handled
                    })),
                };
            }
            LaneItem::Stanza(stanza) => stanza,
        };
        let origin = if completion.is_some() { StanzaOrigin::Peer } else { StanzaOrigin::Lane };
        let mut work = RoutingWork::of(origin);
        work.tracks_delivery = completion.as_ref().is_some_and(|completion| completion.tracks_delivery());
        match stage {
            LaneStage::Unrouted => self.route(stanza, from.as_ref(), to.as_ref(), &mut work),
            LaneStage::BeforeChain(handed_over) => {
                work.handed_over = Some(handed_over);
                self.incoming(stanza, from.as_ref(), to.as_ref(), 0, &mut work);
            }
            LaneStage::AfterChain(hops) => {
                self.deliver_returned(stanza, from.as_ref(), to.as_ref(), hops, &mut work);
            }
        }
        match self.perform_effects(work) {
            RoutingOutcome::Done => self.complete_lane_stanza(completion, Receipts::default()),
            RoutingOutcome::AwaitsReceipts(receipts) => self.complete_lane_stanza(completion, receipts),
            RoutingOutcome::Wait(rest) => {
                let node = self.clone();
                LaneStep::Wait(Box::pin(async move {
                    let receipts = rest.await;
                    node.complete_lane_stanza(completion, receipts)
                }))
            }
        }
    }

    /// A stanza of a lane was routed, and is safe when these receipts are fulfilled.
    fn complete_lane_stanza(
        self: &Arc<Self>,
        mut completion: Option<Box<dyn LaneCompletion>>,
        receipts: Receipts,
    ) -> LaneStep {
        if let Some(completion) = &mut completion {
            completion.routed();
        }
        if receipts.is_empty() {
            if let Some(completion) = completion {
                completion.complete();
            }
            return LaneStep::Handled;
        }
        let settled = self.settle_receipts(receipts);
        // Only the lane bounds what its sources have written.
        let Some(completion) = completion else { return LaneStep::Unsettled(settled) };
        // A receipt of another node could depend on a stanza that must pass this lane. Nodes bound what is not settled.
        let task = async move {
            settled.await;
            completion.complete();
        };
        self.spawner.spawn("routing", Box::pin(task));
        LaneStep::Handled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_is_logged_once_for_each_source_and_the_names_are_bounded() {
        let lanes = RecipientLanes::default();
        assert!(lanes.record_first(StanzaSource::Component, "irc.example.com"));
        assert!(!lanes.record_first(StanzaSource::Component, "irc.example.com"));
        assert!(lanes.record_first(StanzaSource::RemoteServer, "irc.example.com"));
        let logged =
            (0..1_000).filter(|n| lanes.record_first(StanzaSource::RemoteServer, &n.to_string())).count();
        assert_eq!(logged, MAX_LOGGED_SOURCES - 2);
    }
}
