//! Delivery of a [`Multicast`] in chunks, so that other sessions are served in between.
//!
//! Not implemented: XEP-0033 (Extended Stanza Addressing).
//!
//! # Pitfalls
//!
//! A recipient whose lane is open must be routed a copy in that lane: an earlier stanza of the sender may be waiting there.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use base::spawn::{BoxFuture, yield_now};
use cluster::{Envelope, EnvelopeKind, NodeId, Recipient};
use jid::JidRef;
use outbox::QUEUE_FULL_CONDITION;
use smallvec::SmallVec;
use stanza::{MessageType, StanzaCondition, StanzaError, StanzaKind};

use super::lanes::{CompletionShare, LaneCompletion, LaneStage, LaneStanza};
use super::local::{address_form, is_stored_offline};
use super::peer_routing::{address_number, envelope_class};
use super::rules::{self, AddressForm, DeliveryAction, ResourceSummary};
use super::{Continuation, ResumedChain, RoutingWork, build_error_reply};
use crate::account::Account;
use crate::domains::{Domain, DomainTable};
use crate::effect::{Effect, Effects};
use crate::hooks::InterestProbe;
use crate::host::Host;
use crate::metrics::{RouteOutcome, StanzaSource};
use crate::multicast::{Multicast, RecipientList, UndeliveredRecipient};
use crate::node::Node;
use crate::receipt::{AttachedReceipt, ReceiptIssuer, Receipts};
use crate::session::{QueuedStanza, Session, ToRewrite};
use crate::shared_stanza::{QueueClass, SharedStanza};

/// A multicast for recipients on this node, whose stanza has no `to`.
pub const MULTICAST: EnvelopeKind = EnvelopeKind::Engine(7);

/// Recipients that are handled before the task yields: about 0.2 ms of work.
pub(super) const CHUNK: usize = 256;
/// Multicasts that are performed together; few enough for the queues of their recipients.
pub(super) const MAX_GROUP: usize = 64;
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

/// Multicasts to the same recipients, each of which gets all stanzas before the next recipient does: one wake-up of its connection and
/// one write.
struct MulticastRun {
    recipients: RecipientList,
    /// In order.
    multicasts: SmallVec<[Multicast; 1]>,
    /// Position of the next recipient.
    next: usize,
    /// Recipients that are routed copies.
    copies: Vec<RoutedCopy>,
    /// Positions of recipients by the node that is their home.
    by_node: BTreeMap<NodeId, Vec<usize>>,
    undelivered: Vec<(usize, UndeliveredRecipient)>,
    /// Shares of the receipts of multicasts, by their positions.
    completions: SmallVec<[Option<Box<CompletionShare>>; 1]>,
}

/// Positions of a recipient and a multicast.
#[derive(Clone, Copy)]
struct RoutedCopy {
    recipient: usize,
    multicast: usize,
}

impl MulticastRun {
    fn new(mut multicasts: SmallVec<[Multicast; 1]>) -> MulticastRun {
        let recipients = multicasts.first().map(|first| first.recipients.clone()).unwrap_or_default();
        let (copies, undelivered) = (Vec::new(), Vec::new());
        let completion = |multicast: &mut Multicast| {
            let receipt = MulticastReceipt(multicast.receipt.take()?);
            Some(Box::new(CompletionShare::new(Box::new(receipt))))
        };
        let completions = multicasts.iter_mut().map(completion).collect();
        let by_node = BTreeMap::new();
        MulticastRun { recipients, multicasts, next: 0, copies, by_node, undelivered, completions }
    }

    /// Handles the next recipients.
    fn step(&mut self, node: &Arc<Node>) -> MulticastStep {
        let recipients = self.recipients.clone();
        let chunk = (CHUNK / self.multicasts.len().max(1)).max(1);
        let end = recipients.len().min(self.next + chunk);
        if self.next < end {
            let domains = node.domains();
            while self.next < end {
                if let Some(to) = recipients.get(self.next) {
                    self.send_or_collect(node, &domains, to);
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

    /// Sends all stanzas to the next recipient, or puts it into the lists of what remains to be done.
    fn send_or_collect(&mut self, node: &Arc<Node>, domains: &DomainTable, to: JidRef<'_>) {
        let all = 0..self.multicasts.len();
        let (host, account) = match self.home_of(node, domains, to) {
            RecipientHome::Here(host, account) => (host, account),
            RecipientHome::Node(home) => return self.by_node.entry(home).or_default().push(self.next),
            RecipientHome::Unknown => return self.collect_copies(all),
        };
        for multicast in all.clone() {
            let stanza = &self.multicasts[multicast].stanza;
            match node.deliver_multicast(host, account.as_ref(), stanza, to) {
                LocalOutcome::Done => {}
                // Later stanzas must not overtake it.
                LocalOutcome::NeedsCopy => return self.collect_copies(multicast..all.end),
                LocalOutcome::Undelivered(condition) => {
                    self.undelivered.push((multicast, UndeliveredRecipient { to: to.to_jid(), condition }));
                }
            }
        }
    }

    fn collect_copies(&mut self, multicasts: Range<usize>) {
        let recipient = self.next;
        self.copies.extend(multicasts.map(|multicast| RoutedCopy { recipient, multicast }));
    }

    fn home_of<'a>(&self, node: &Arc<Node>, domains: &'a DomainTable, to: JidRef<'_>) -> RecipientHome<'a> {
        let host = match domains.find(to.domain()) {
            Domain::Accounts(host) if to.local().is_some() => host,
            _ => return RecipientHome::Unknown,
        };
        let hash = node.routing_table.hash(to);
        if node.has_lane(hash) {
            return RecipientHome::Unknown;
        }
        let account = node.routing_table.find_with_hash(hash, to);
        if !node.is_single() {
            let location = node.cluster.locate(hash, account.as_deref().and_then(address_number));
            let own = node.cluster.node();
            if let Some(home) = location.home(own).filter(|home| *home != own) {
                return RecipientHome::Node(home);
            }
            if location.other_nodes(own).next().is_some() {
                return RecipientHome::Unknown;
            }
        }
        RecipientHome::Here(host, account)
    }

    /// Routes copies in the lanes of their recipients until one is full.
    fn route_copies(&mut self, node: &Arc<Node>) -> Option<BoxFuture<'static, ()>> {
        let mut copies = std::mem::take(&mut self.copies).into_iter();
        for copy in copies.by_ref() {
            let Some(to) = self.recipients.get(copy.recipient) else { continue };
            let Multicast { stanza, from, .. } = &self.multicasts[copy.multicast];
            let Some(stanza) = stanza.with_to(Some(to)) else { continue };
            let completion = self.completions[copy.multicast].as_ref();
            let stanza = LaneStanza {
                stanza,
                from: from.clone(),
                to: to.to_jid(),
                stage: LaneStage::Unrouted,
                completion: completion.map(|one| Box::new(one.share()) as Box<dyn LaneCompletion>),
            };
            if let Some(wait) = node.enter_lane(StanzaSource::Multicast, stanza) {
                self.copies = copies.collect();
                return Some(wait);
            }
        }
        None
    }

    /// Sends one envelope for each stanza to each node; recipients of a node that takes none are routed copies.
    fn send_envelopes(&mut self, node: &Arc<Node>) {
        let by_node = std::mem::take(&mut self.by_node);
        if by_node.is_empty() {
            return;
        }
        for (multicast, Multicast { stanza, .. }) in self.multicasts.iter().enumerate() {
            let class = envelope_class(stanza);
            let bytes: Arc<[u8]> = stanza.bytes().into();
            let completion = self.completions[multicast].as_ref();
            let mut receipts = Receipts::default();
            for (home, positions) in &by_node {
                for part in positions.chunks(ENVELOPE_RECIPIENTS) {
                    let address = |position: &usize| {
                        self.recipients.get(*position).map(|to| Recipient::Address(to.to_jid()))
                    };
                    let to = part.iter().filter_map(address).collect();
                    let envelope = Envelope::new(MULTICAST, class, node.cluster.node(), to, bytes.clone());
                    let is_sent = match completion {
                        None => node.cluster.deliver(*home, envelope).is_ok(),
                        Some(_) => {
                            let sent = node.peer_routing().send_with_receipt(node, *home, envelope);
                            let is_sent = sent.is_ok();
                            let receipt = sent.ok().flatten();
                            let attach = |receipt| AttachedReceipt { stanza: stanza.clone(), receipt };
                            receipts.0.extend(receipt.map(attach));
                            is_sent
                        }
                    };
                    if is_sent {
                        node.metrics.routed(stanza.kind(), RouteOutcome::Node);
                    } else {
                        let copy = |recipient: &usize| RoutedCopy { recipient: *recipient, multicast };
                        self.copies.extend(part.iter().map(copy));
                    }
                }
            }
            if let Some(completion) = completion {
                complete_after(node, completion, receipts);
            }
        }
    }

    /// The effects after all recipients: reports to the senders.
    fn finish(mut self, node: &Arc<Node>) -> Effects {
        let mut effects = Effects::default();
        for completion in self.completions.drain(..).flatten() {
            completion.complete();
        }
        if self.undelivered.is_empty() {
            return effects;
        }
        for (position, Multicast { stanza, from, on_undelivered, .. }) in
            self.multicasts.into_iter().enumerate()
        {
            let of_this = self.undelivered.iter().filter(|(multicast, _)| *multicast == position);
            let mut undelivered = of_this.map(|(_, recipient)| recipient.clone()).peekable();
            match on_undelivered {
                _ if undelivered.peek().is_none() => {}
                Some(handler) => effects.0.extend(handler.handle(node, undelivered.collect()).0),
                None => effects.0.extend(undelivered.filter_map(|UndeliveredRecipient { to, condition }| {
                    node.undelivered_report(&stanza, from.as_ref(), to.as_ref(), condition)
                })),
            }
        }
        effects
    }
}

/// Keeps a share of a receipt until these receipts of other nodes have an outcome.
fn complete_after(node: &Arc<Node>, completion: &CompletionShare, mut receipts: Receipts) {
    if receipts.is_empty() {
        return;
    }
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

/// Where a recipient receives a multicast.
enum RecipientHome<'a> {
    /// Only on this node.
    Here(&'a Arc<Host>, Option<Arc<Account>>),
    /// On one other node.
    Node(NodeId),
    /// Its copy must be routed.
    Unknown,
}

impl Node {
    /// Sends multicasts to the same recipients. What must run after the first of them is deferred work.
    pub(super) fn multicast(self: &Arc<Self>, multicasts: SmallVec<[Multicast; 1]>, work: &mut RoutingWork) {
        for Multicast { stanza, .. } in &multicasts {
            if stanza.class() == QueueClass::Message {
                stanza.mark_multicast();
            }
        }
        let is_full = multicasts.len() >= MAX_GROUP && !work.origin.is_in_lane();
        let mut run = MulticastRun::new(multicasts);
        let first = run.step(self);
        if let MulticastStep::Done = first {
            work.effects.0.extend(run.finish(self).0);
            if is_full {
                // Before more follow, the connections write what they have: a newcomer to a room receives everybody's presence.
                work.pending.push(Box::pin(async {
                    yield_now().await;
                    ResumedChain { effects: Effects::default(), continuation: Continuation::Nothing }
                }));
            }
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
        if let Some(outcome) = self.deliver_to_resource(host, account, stanza, to) {
            return outcome;
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

    /// The short way of [`Node::deliver_multicast`] for most copies of a room: to a resource that is connected, of a stanza that is
    /// never stored. `None` if it is not one of them.
    fn deliver_to_resource(
        self: &Arc<Self>,
        host: &Arc<Host>,
        account: Option<&Arc<Account>>,
        stanza: &SharedStanza,
        to: JidRef<'_>,
    ) -> Option<LocalOutcome> {
        let (kind, resource) = (stanza.kind(), to.resource()?);
        let known = ResourceSummary { exact_match: true, ..ResourceSummary::default() };
        if is_stored_offline(kind) || rules::decide(kind, AddressForm::Full, known) != DeliveryAction::Exact {
            return None;
        }
        let session = account?
            .with(|state| state.sessions.iter().find(|session| session.resource() == resource).cloned())?;
        self.metrics.routed(kind, RouteOutcome::Local);
        let item = QueuedStanza::new(stanza.clone(), ToRewrite::Full);
        Some(match self.push_item_with_host(host, &session, item, false) {
            Ok(_) => LocalOutcome::Done,
            Err(_) if stanza.class() != QueueClass::Message => LocalOutcome::Done,
            Err(_) if kind == StanzaKind::Message(MessageType::Headline) => {
                LocalOutcome::Undelivered(QUEUE_FULL_CONDITION)
            }
            Err(_) => LocalOutcome::NeedsCopy,
        })
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
