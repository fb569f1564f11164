//! Delivery of a [`Multicast`] in chunks, so that other sessions are served in between.
//!
//! Not implemented: XEP-0033 (Extended Stanza Addressing).
//!
//! # Pitfalls
//!
//! A recipient whose lane is open must be routed a copy in that lane: an earlier stanza of the sender may be waiting there.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use base::spawn::{BoxFuture, yield_now};
use cluster::{Envelope, EnvelopeKind, NodeId, Recipient};
use jid::{Jid, JidRef};
use outbox::QUEUE_FULL_CONDITION;
use smallvec::SmallVec;
use stanza::{MessageType, StanzaCondition, StanzaError, StanzaKind};

use super::lanes::{CompletionShare, LaneCompletion, LaneStage, LaneStanza};
use super::local::{address_form, is_stored_offline};
use super::peer_routing::{address_number, envelope_class};
use super::rules::{self, DeliveryAction, ResourceSummary};
use super::{Continuation, ResumedChain, RoutingWork, build_error_reply};
use crate::account::Account;
use crate::domains::{Domain, DomainTable};
use crate::effect::{Effect, Effects};
use crate::hooks::InterestProbe;
use crate::host::Host;
use crate::metrics::{RouteOutcome, StanzaSource};
use crate::multicast::{Multicast, UndeliveredRecipient};
use crate::node::Node;
use crate::receipt::{AttachedReceipt, ReceiptIssuer, Receipts};
use crate::session::{QueuedStanza, Session, ToRewrite};
use crate::shared_stanza::{QueueClass, SharedStanza};

/// A multicast for recipients on this node, whose stanza has no `to`.
pub const MULTICAST: EnvelopeKind = EnvelopeKind::Engine(7);

/// Recipients that are handled before the task yields: about 0.2 ms of work.
pub(super) const CHUNK: usize = 256;
/// Recipients of an envelope, which the receiver handles without yielding.
const ENVELOPE_RECIPIENTS: usize = 2_048;

/// What became of a recipient on this node.
pub enum LocalOutcome {
    /// Its sessions have it, or none must receive it.
    Done,
    /// A copy with its address must be routed.
    NeedsCopy,
    /// Its sender must receive this error.
    Undelivered(StanzaCondition),
}

/// Progress of a multicast.
enum MulticastStep {
    Done,
    /// More recipients follow.
    Yield,
    /// The lane of a recipient is full.
    Wait(BoxFuture<'static, ()>),
}

/// The receipt of a multicast, which follows when all recipients are done.
struct MulticastReceipt(ReceiptIssuer);

impl LaneCompletion for MulticastReceipt {
    fn tracks_delivery(&self) -> bool {
        false
    }

    fn routed(&mut self) {}

    fn complete(self: Box<Self>) {
        self.0.settle(Ok(()));
    }
}

struct MulticastRun {
    multicast: Multicast,
    /// Position of the next recipient.
    next: usize,
    /// Positions of recipients that are routed a copy.
    copies: Vec<usize>,
    /// Positions of recipients by the node that is their home.
    by_node: BTreeMap<NodeId, Vec<usize>>,
    undelivered: Vec<UndeliveredRecipient>,
    /// Share of the receipt, if it has one.
    completion: Option<Box<CompletionShare>>,
}

impl MulticastRun {
    fn new(mut multicast: Multicast) -> MulticastRun {
        let (copies, undelivered) = (Vec::new(), Vec::new());
        let receipt = multicast.receipt.take();
        let completion =
            receipt.map(|receipt| Box::new(CompletionShare::new(Box::new(MulticastReceipt(receipt)))));
        MulticastRun { multicast, next: 0, copies, by_node: BTreeMap::new(), undelivered, completion }
    }

    /// Handles the next recipients.
    fn step(&mut self, node: &Arc<Node>) -> MulticastStep {
        let recipients = self.multicast.recipients.clone();
        let end = recipients.len().min(self.next + CHUNK);
        if self.next < end {
            let domains = node.domains();
            while self.next < end {
                let to = &recipients[self.next];
                match self.home_or_deliver(node, &domains, to) {
                    LocalOutcome::Done => {}
                    LocalOutcome::NeedsCopy => self.copies.push(self.next),
                    LocalOutcome::Undelivered(condition) => {
                        self.undelivered.push(UndeliveredRecipient { to: to.clone(), condition });
                    }
                }
                self.next += 1;
            }
        }
        if let Some(wait) = self.route_copies(node) {
            return MulticastStep::Wait(wait);
        }
        if self.next < recipients.len() {
            return MulticastStep::Yield;
        }
        self.send_envelopes(node);
        match self.route_copies(node) {
            Some(wait) => MulticastStep::Wait(wait),
            None => MulticastStep::Done,
        }
    }

    fn home_or_deliver(&mut self, node: &Arc<Node>, domains: &DomainTable, to: &Jid) -> LocalOutcome {
        let to = to.as_ref();
        let host = match domains.find(to.domain()) {
            Domain::Accounts(host) if to.local().is_some() => host,
            _ => return LocalOutcome::NeedsCopy,
        };
        let hash = node.routing_table.hash(to);
        if node.has_lane(hash) {
            return LocalOutcome::NeedsCopy;
        }
        let account = node.routing_table.find_with_hash(hash, to);
        if !node.is_single() {
            let location = node.cluster.locate(hash, account.as_deref().and_then(address_number));
            let own = node.cluster.node();
            if let Some(home) = location.home(own).filter(|home| *home != own) {
                self.by_node.entry(home).or_default().push(self.next);
                return LocalOutcome::Done;
            }
            if location.other_nodes(own).next().is_some() {
                return LocalOutcome::NeedsCopy;
            }
        }
        node.deliver_multicast(host, account.as_ref(), &self.multicast.stanza, to)
    }

    /// Routes copies in the lanes of their recipients until one is full.
    fn route_copies(&mut self, node: &Arc<Node>) -> Option<BoxFuture<'static, ()>> {
        let mut copies = std::mem::take(&mut self.copies).into_iter();
        for position in copies.by_ref() {
            let to = &self.multicast.recipients[position];
            let Some(stanza) = self.multicast.stanza.with_to(Some(to.as_ref())) else { continue };
            let share = self.completion.as_ref().map(|completion| completion.share());
            let stanza = LaneStanza {
                stanza,
                from: self.multicast.from.clone(),
                to: to.clone(),
                stage: LaneStage::Unrouted,
                completion: share.map(|share| Box::new(share) as Box<dyn LaneCompletion>),
            };
            if let Some(wait) = node.enter_lane(StanzaSource::Multicast, stanza) {
                self.copies = copies.collect();
                return Some(wait);
            }
        }
        None
    }

    /// Sends one envelope to each node; recipients of a node that takes none are routed copies.
    fn send_envelopes(&mut self, node: &Arc<Node>) {
        let Multicast { stanza, recipients, .. } = &self.multicast;
        let class = envelope_class(stanza);
        let bytes: Arc<[u8]> = stanza.bytes().into();
        let mut receipts = Receipts::default();
        for (home, positions) in std::mem::take(&mut self.by_node) {
            for part in positions.chunks(ENVELOPE_RECIPIENTS) {
                let to = part.iter().map(|position| Recipient::Address(recipients[*position].clone()));
                let own = node.cluster.node();
                let envelope = Envelope::new(MULTICAST, class, own, to.collect(), bytes.clone());
                let sent = match self.completion {
                    None => node.cluster.deliver(home, envelope).is_ok(),
                    Some(_) => match node.peer_routing().send_with_receipt(node, home, envelope) {
                        Ok(receipt) => {
                            let attached = |receipt| AttachedReceipt { stanza: stanza.clone(), receipt };
                            receipts.0.extend(receipt.map(attached));
                            true
                        }
                        Err(_) => false,
                    },
                };
                if sent {
                    node.metrics.routed(stanza.kind(), RouteOutcome::Node);
                } else {
                    self.copies.extend(part);
                }
            }
        }
        if let Some(completion) = self.completion.as_ref().filter(|_| !receipts.is_empty()) {
            let share = Box::new(completion.share());
            let acknowledged = async move {
                let mut is_safe = true;
                poll_fn(|cx| match receipts.poll(cx, &mut |_| is_safe = false) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                })
                .await;
                if is_safe {
                    share.complete();
                }
            };
            node.spawner.spawn("multicast", Box::pin(acknowledged));
        }
    }

    /// The effects after all recipients: reports to the sender.
    fn finish(mut self, node: &Arc<Node>) -> Effects {
        if let Some(completion) = self.completion.take() {
            completion.complete();
        }
        let Multicast { stanza, from, on_undelivered, .. } = self.multicast;
        if self.undelivered.is_empty() {
            return Effects::default();
        }
        if let Some(handler) = on_undelivered {
            return handler.handle(node, self.undelivered);
        }
        let errors = self.undelivered.into_iter().filter_map(|UndeliveredRecipient { to, condition }| {
            node.undelivered_report(&stanza, from.as_ref(), to.as_ref(), condition)
        });
        Effects(errors.collect())
    }
}

impl Node {
    /// Sends a multicast. What must run after its first recipients is deferred work.
    pub(super) fn multicast(self: &Arc<Self>, multicast: Multicast, work: &mut RoutingWork) {
        if multicast.stanza.class() == QueueClass::Message {
            multicast.stanza.mark_multicast();
        }
        let mut run = MulticastRun::new(multicast);
        let first = run.step(self);
        if let MulticastStep::Done = first {
            work.effects.0.extend(run.finish(self).0);
            return;
        }
        let node = self.clone();
        let rest = async move {
            let mut step = first;
            loop {
                match step {
                    MulticastStep::Done => break,
                    MulticastStep::Yield => yield_now().await,
                    MulticastStep::Wait(room) => room.await,
                }
                step = run.step(&node);
            }
            ResumedChain { effects: run.finish(&node), continuation: Continuation::Nothing }
        };
        if !work.origin.is_in_lane() {
            return work.pending.push(Box::pin(rest));
        }
        // It may wait for room in the lane whose stanza has caused it.
        let node = self.clone();
        self.spawner.spawn("multicast", Box::pin(async move { node.perform(rest.await.effects) }));
    }

    /// Puts a stanza of a multicast into the queues of a recipient on this node, unless its account needs more than that.
    pub fn deliver_multicast(
        self: &Arc<Self>,
        host: &Arc<Host>,
        account: Option<&Arc<Account>>,
        stanza: &SharedStanza,
        to: JidRef<'_>,
    ) -> LocalOutcome {
        let kind = stanza.kind();
        let probe = InterestProbe::of(stanza.head(), account.map_or(0, |account| account.flags.get()));
        if host.hooks.incoming.wants(&probe) || host.hooks.delivered.wants(&probe) {
            return LocalOutcome::NeedsCopy;
        }
        let mut known = ResourceSummary::default();
        let mut sessions: SmallVec<[Arc<Session>; 1]> = SmallVec::new();
        let (mut flushing, mut elsewhere) = (false, false);
        if let Some(account) = account {
            account.with(|state| {
                (flushing, elsewhere) = (state.flushing, !state.peers().is_empty());
                for session in &state.sessions {
                    let priority = session.priority();
                    known.available += usize::from(priority.is_some());
                    known.non_negative += usize::from(priority.is_some_and(|priority| priority >= 0));
                    let receives = match to.resource() {
                        Some(resource) => resource == session.resource(),
                        None if stanza.class() == QueueClass::Presence => priority.is_some(),
                        None => priority.is_some_and(|priority| priority >= 0),
                    };
                    if receives {
                        sessions.push(session.clone());
                    }
                }
            });
        }
        known.exact_match = to.resource().is_some() && !sessions.is_empty();
        let stored = is_stored_offline(kind);
        let to_rewrite = match rules::decide(kind, address_form(to), known) {
            // It must follow messages that are being delivered from the store.
            DeliveryAction::Exact | DeliveryAction::NonNegative if flushing && stored => {
                return LocalOutcome::NeedsCopy;
            }
            DeliveryAction::Exact => ToRewrite::Full,
            // The sessions of one recipient share a message, and lose it together.
            DeliveryAction::NonNegative if elsewhere || stored && known.non_negative > 1 => {
                return LocalOutcome::NeedsCopy;
            }
            DeliveryAction::Available if elsewhere => return LocalOutcome::NeedsCopy,
            // A message to a resource that is gone is delivered to the others with the address of that resource.
            DeliveryAction::NonNegative if to.resource().is_some() => return LocalOutcome::NeedsCopy,
            DeliveryAction::NonNegative | DeliveryAction::Available => ToRewrite::Bare,
            DeliveryAction::Undelivered | DeliveryAction::Server => return LocalOutcome::NeedsCopy,
            DeliveryAction::Bounce(_) if elsewhere => return LocalOutcome::NeedsCopy,
            DeliveryAction::Bounce(condition) => return LocalOutcome::Undelivered(condition),
            DeliveryAction::Drop if elsewhere => return LocalOutcome::NeedsCopy,
            DeliveryAction::Drop => return LocalOutcome::Done,
        };
        self.metrics.routed(kind, RouteOutcome::Local);
        let mut accepted = stanza.class() != QueueClass::Message;
        for session in &sessions {
            let item = QueuedStanza::new(stanza.clone(), to_rewrite);
            accepted |= self.push_item_with_host(host, session, item, false).is_ok();
        }
        if accepted {
            LocalOutcome::Done
        } else if kind == StanzaKind::Message(MessageType::Headline) {
            LocalOutcome::Undelivered(QUEUE_FULL_CONDITION)
        } else {
            LocalOutcome::NeedsCopy
        }
    }

    /// The error for the sender of a multicast.
    pub fn undelivered_report(
        &self,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        condition: StanzaCondition,
    ) -> Option<Effect> {
        let error = StanzaError::new(condition);
        let addresses = (Some(to.as_str()), from.as_str());
        let stanza = build_error_reply(stanza.bytes(), stanza.head(), addresses, &error)?;
        self.metrics.stanzas_bounced.inc([condition.as_str()]);
        Some(Effect::Route { stanza, from: to.to_jid(), to: from.to_jid() })
    }
}
