//! Delivery to local accounts: RFC 6121, section 8.5, by the decisions of [`super::rules`].
//!
//! Long because delivery, refusal by a queue and redelivery call each other.

use std::sync::Arc;

use arc_swap::Guard;
use base::spawn::BoxFuture;
use cluster::{Envelope, NodeId};
use jid::JidRef;
use outbox::{QUEUE_FULL_CONDITION, is_iq_response};
use smallvec::SmallVec;
use stanza::{MessageType, StanzaCondition, StanzaError, StanzaKind};
use store::Subscription;

use super::iq_dispatch::RoutedIq;
use super::peers::HomeDecision;
use super::rules::{self, AddressForm, DeliveryAction, ResourceSummary};
use super::{ChainPosition, Continuation, ResumedChain, RoutingWork};
use crate::account::{Account, PeerSession};
use crate::effect::Effects;
use crate::hooks::{
    ChainResult, DeliverCtx, DeliveredCtx, IncomingCtx, InterestProbe, StopReason, UndeliveredCtx,
};
use crate::host::Host;
use crate::iq::IqTarget;
use crate::metrics::RouteOutcome;
use crate::node::Node;
use crate::provided::AddDelay;
use crate::receipt::{AttachedReceipt, Receipt};
use crate::session::stream_management::UndeliveredStanza;
use crate::session::{AdmissionContext, PushOutcome, QueuedStanza, Session, ToRewrite, Urgency, flags};
use crate::shared_stanza::{QueueClass, SharedStanza};

/// A recipient on this node.
#[derive(Clone, Copy)]
struct LocalRecipient<'a> {
    /// Its host, loaded once for the stanza.
    host: &'a Arc<Host>,
    /// The account, if one of its resources is connected here.
    account: Option<&'a Arc<Account>>,
    /// A resource that does not receive the stanza.
    except: Option<&'a Arc<Session>>,
    scope: DeliveryScope,
}

/// Which of an account's sessions may receive a stanza.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeliveryScope {
    /// All: this node acts as the home. The number is that of the envelopes that have carried the stanza.
    AllNodes(u8),
    /// Those here: another node is the home, which has run the chain and runs the `delivered` chain.
    Here,
    /// Those here, and others have received the stanza: it is dropped if these do not accept it.
    Copy,
}

impl LocalRecipient<'_> {
    /// Envelopes that have carried the stanza, if it may go to further nodes.
    fn hops(&self) -> Option<u8> {
        match self.scope {
            DeliveryScope::AllNodes(hops) => Some(hops).filter(|hops| *hops < Envelope::MAX_HOPS),
            DeliveryScope::Here | DeliveryScope::Copy => None,
        }
    }
}

/// A stanza that a queue rejected.
pub struct RejectedPush {
    /// The stanza.
    pub item: QueuedStanza,
    /// The queue had no room; otherwise the connection is closed.
    pub full: bool,
}

impl Node {
    /// Runs the recipient's chain from handler `at`, then delivers the stanza.
    pub fn incoming(
        self: &Arc<Self>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        at: usize,
        work: &mut RoutingWork,
    ) {
        self.incoming_with_host(None, stanza, from, to, at, work);
    }

    /// Like [`Node::incoming`], with the host with which the chain started.
    pub(super) fn incoming_with_host(
        self: &Arc<Self>,
        host: Option<&Arc<Host>>,
        mut stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        at: usize,
        work: &mut RoutingWork,
    ) {
        let handed_over = work.handed_over.take();
        let account = self.routing_table.find(to);
        if at == 0
            && let Some(peers) = self.peers()
        {
            match peers.hand_to_home(self, &stanza, to, account.as_ref(), handed_over, work) {
                HomeDecision::HandedOver(receipt) => {
                    self.metrics.routed(stanza.kind(), RouteOutcome::Node);
                    return work.attach(stanza, receipt);
                }
                HomeDecision::Wait(old_way) => {
                    let continuation =
                        Continuation::OnNewWay { stanza, from: from.to_jid(), to: to.to_jid() };
                    work.pending.push(Box::pin(async move {
                        old_way.await;
                        ResumedChain { effects: Effects::default(), continuation }
                    }));
                    return;
                }
                HomeDecision::Refused(condition) => {
                    return self.bounce(&stanza, from, to, &StanzaError::new(condition), work);
                }
                HomeDecision::Own => {}
            }
        }
        // Its chain has run where it was sent first, and its result is lost with that node.
        if at == 0
            && let Some(peers) = self.peers()
            && let Some(account) = &account
            && let Some(id) = handed_over.and_then(|handed_over| handed_over.stanza_id)
            && work.attach_to_copy(peers.find_copy_with_id(self, account, id))
        {
            return;
        }
        let found;
        let host = match host {
            Some(host) => host,
            None => match self.host(to.domain()) {
                Some(host) => {
                    found = host;
                    &found
                }
                None => {
                    // A reload has removed the domain.
                    let error = StanzaError::new(StanzaCondition::RemoteServerNotFound);
                    return self.bounce(&stanza, from, to, &error, work);
                }
            },
        };
        let chain = &host.hooks.incoming;
        if chain.may_want(stanza.kind()) {
            let flags = account.as_ref().map_or(0, |a| a.flags.get());
            let probe = InterestProbe::of(stanza.head(), flags);
            let mut ctx = IncomingCtx {
                node: self,
                host,
                account: account.as_ref(),
                stanza: &mut stanza,
                from,
                to,
                stanza_id: handed_over.and_then(|handed_over| handed_over.stanza_id),
                effects: &mut work.effects,
            };
            match chain.run(&mut ctx, &probe, at) {
                ChainResult::Done => {}
                ChainResult::Stopped(verdict) => return self.apply_stop(&stanza, from, to, verdict, work),
                ChainResult::Wait { next, later } => {
                    let (from, to) = (from.to_jid(), to.to_jid());
                    let position = ChainPosition { host: host.clone(), index: next };
                    work.pending.push(Box::pin(async move {
                        let outcome = later.outcome().await;
                        let flow = outcome.flow;
                        let then = Continuation::Incoming { stanza, from, to, position, handed_over, flow };
                        ResumedChain { effects: outcome.effects, continuation: then }
                    }));
                    return;
                }
            }
        }
        let scope = DeliveryScope::AllNodes(handed_over.map_or(0, |handed_over| handed_over.hops));
        let recipient = LocalRecipient { host, account: account.as_ref(), except: None, scope };
        match &account {
            Some(account) => self.deliver(recipient, account, stanza, from, to, work),
            None => self.apply_delivery_action(
                recipient,
                rules::decide(stanza.kind(), address_form(to), ResourceSummary::default()),
                stanza,
                from,
                to,
                work,
            ),
        }
    }

    /// Delivers a stanza whose recipient's chain has run on another node. False if no session here is one that must receive
    /// it. `copy`: other sessions have received it.
    pub fn deliver_after_chain(
        self: &Arc<Self>,
        account: &Arc<Account>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        copy: bool,
        work: &mut RoutingWork,
    ) -> bool {
        let Some(host) = self.host(to.domain()) else { return false };
        let scope = if copy { DeliveryScope::Copy } else { DeliveryScope::Here };
        let recipient = LocalRecipient { host: &host, account: Some(account), except: None, scope };
        let resource = to.resource();
        let takes = account.sessions().iter().any(|session| {
            resource.is_some_and(|resource| resource == session.resource())
                || match stanza.class() {
                    QueueClass::Presence => resource.is_none() && session.is_available(),
                    _ => session.priority().is_some_and(|priority| priority >= 0),
                }
        });
        if takes {
            if let Some(peers) = self.peers() {
                if work.attach_to_copy(peers.find_copy(self, account, &stanza, !copy)) {
                    return true;
                }
                peers.record_copy(account, &stanza, !copy);
            }
            self.deliver(recipient, account, stanza, from, to, work);
        }
        takes
    }

    /// Continues with a request to a resource when the store has answered whether its sender is trusted.
    pub(super) fn deliver_checked(
        self: &Arc<Self>,
        account: &Arc<Account>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        trusted: bool,
        work: &mut RoutingWork,
    ) {
        let session = to.resource().and_then(|resource| account.session(resource));
        match session.filter(|_| trusted) {
            Some(session) => {
                let (host, scope) = (&account.host(), DeliveryScope::AllNodes(0));
                let recipient = LocalRecipient { host, account: Some(account), except: None, scope };
                self.deliver_to(recipient, &session, stanza, from, to, work);
            }
            None => {
                let error = StanzaError::new(StanzaCondition::ServiceUnavailable);
                self.bounce(&stanza, from, to, &error, work);
            }
        }
    }

    /// Delivers to the resources of an account, which is that of `recipient`.
    fn deliver(
        self: &Arc<Self>,
        recipient: LocalRecipient<'_>,
        account: &Arc<Account>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        let LocalRecipient { host, except, .. } = recipient;
        let kind = stanza.kind();
        let resource = to.resource();
        let mut peer = None;
        let mut known = ResourceSummary::default();
        let mut exact = None;
        let mut flushing = false;
        account.with(|state| {
            // Others have received a copy, so it must not be stored; what is being delivered here is delayed and says so.
            flushing = state.flushing && recipient.scope != DeliveryScope::Copy;
            for session in &state.sessions {
                if except.is_some_and(|e| Arc::ptr_eq(e, session)) {
                    continue;
                }
                if let Some(priority) = session.priority() {
                    known.available += 1;
                    known.non_negative += usize::from(priority >= 0);
                }
                if resource.is_some_and(|r| r == session.resource()) {
                    exact = Some(session.clone());
                }
            }
            if recipient.hops().is_some() {
                for at in state.peers() {
                    for session in &at.sessions {
                        if let Some(priority) = session.priority {
                            known.available += 1;
                            known.non_negative += usize::from(priority >= 0);
                        }
                        if exact.is_none() && resource == Some(&*session.resource) {
                            peer = Some(at.node);
                        }
                    }
                }
            }
        });
        known.exact_match = exact.is_some() || peer.is_some();
        known.sender_trusted = match &exact {
            Some(session) if kind.is_request() => may_see_presence(self, (host, account), session, from),
            // The node of the resource decides, which knows to whom it has sent directed presence.
            _ => peer.is_some(),
        };
        if kind.is_request()
            && exact.is_some()
            && !known.sender_trusted
            && let Some(later) = self.trust_check(account, &stanza, from, to)
        {
            work.pending.push(later);
            return;
        }
        // A full address of the only resource that receives messages, while stored messages are being delivered
        // to it.
        let only = known.non_negative == 1 && exact.as_ref().is_some_and(|s| s.priority() >= Some(0));
        match rules::decide(kind, address_form(to), known) {
            DeliveryAction::Exact if flushing && only && is_stored_offline(kind) => {
                self.undelivered(stanza, from, to, 0, work)
            }
            DeliveryAction::Exact => {
                if let Some(node) = peer {
                    return self.deliver_to_exact_peer(recipient, node, stanza, from, to, work);
                }
                if let Some(session) = exact {
                    if is_iq_response(kind)
                        && let Some(id) = stanza.head().id(stanza.bytes())
                        && session.take_pending_request(from, &id)
                    {
                        stanza.mark_requested();
                    }
                    self.deliver_to(recipient, &session, stanza, from, to, work);
                }
            }
            // Stored messages are still being delivered: this one must follow them.
            DeliveryAction::NonNegative if flushing && kind != StanzaKind::Message(MessageType::Headline) => {
                self.undelivered(stanza, from, to, 0, work);
            }
            action => self.apply_delivery_action(recipient, action, stanza, from, to, work),
        }
    }

    /// The rest of the delivery of a request whose sender may be a contact with sessions on other nodes only.
    fn trust_check(
        &self,
        account: &Arc<Account>,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
    ) -> Option<BoxFuture<'static, ResumedChain>> {
        let check = self.check_contact_elsewhere(account, from)?;
        let (account, stanza, from, to) = (account.clone(), stanza.clone(), from.to_jid(), to.to_jid());
        Some(Box::pin(async move {
            let trusted = check.run().await.unwrap_or_else(|error| {
                tracing::warn!(account = %account.jid, %error, "refused a request: its sender cannot be checked");
                false
            });
            let continuation = Continuation::Checked { account, stanza, from, to, trusted };
            ResumedChain { effects: Effects::default(), continuation }
        }))
    }

    /// Sends a stanza to the node of the resource in `to`.
    fn deliver_to_exact_peer(
        self: &Arc<Self>,
        recipient: LocalRecipient<'_>,
        node: NodeId,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        let Some(account) = recipient.account else { return };
        let hops = recipient.hops().unwrap_or_default();
        let delivered = self.peers().is_some_and(|peers| {
            peers.deliver_to_peer(self, node, account, &stanza, to, (hops, false), work)
        });
        if !delivered {
            return self.undelivered(stanza, from, to, 0, work);
        }
        if copy_for_delivered_chain(recipient.host, account, &stanza, work).is_some() {
            let resource = to.resource().unwrap_or_default().into();
            self.run_delivered(recipient, &stanza, from, to, (&[], &[resource]), work);
        }
    }

    /// Delivers to one resource.
    fn deliver_to(
        self: &Arc<Self>,
        recipient: LocalRecipient<'_>,
        session: &Arc<Session>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        let recipient = LocalRecipient { account: Some(&session.account), ..recipient };
        let LocalRecipient { host, scope, .. } = recipient;
        let watched = match scope {
            DeliveryScope::AllNodes(_) => copy_for_delivered_chain(host, &session.account, &stanza, work),
            DeliveryScope::Here | DeliveryScope::Copy => None,
        };
        let tracked = self.track_delivery(host, session, &stanza, work).then(|| stanza.clone());
        let item = QueuedStanza::new(stanza, ToRewrite::None);
        let RejectedPush { item, full } = match self.push_item_with_host(host, session, item, false) {
            Ok(()) => {
                if let Some(stanza) = tracked {
                    self.await_delivery(std::slice::from_ref(session), stanza, work);
                }
                if let Some(stanza) = watched {
                    let taken: (&[Arc<Session>], &[Box<str>]) = (std::slice::from_ref(session), &[]);
                    self.run_delivered(recipient, &stanza, from, to, taken, work);
                }
                return;
            }
            Err(back) => back,
        };
        match item.stanza.kind() {
            StanzaKind::Message(_) if self.has_connected_alternative(session) => {
                // Another resource is connected, so the message does not wait for this one to resume.
                let account = &session.account;
                let recipient = LocalRecipient { except: Some(session), ..recipient };
                self.deliver(recipient, account, item.stanza, from, to.bare(), work);
            }
            StanzaKind::Message(_) if scope == DeliveryScope::Copy => {
                self.forget_copy(&session.account, &item.stanza);
            }
            StanzaKind::Message(_) => self.undelivered(item.stanza, from, to, 0, work),
            // RFC 6120, section 8.2.3: a request must be answered.
            kind if kind.is_request() => {
                let condition = if full { QUEUE_FULL_CONDITION } else { StanzaCondition::ServiceUnavailable };
                self.bounce(&item.stanza, from, to, &StanzaError::new(condition), work);
            }
            _ => {}
        }
    }

    /// Tracks the delivery of a message to this session, if its sender must learn when it is safe. Must be called before the
    /// message is queued.
    fn track_delivery(
        &self,
        host: &Host,
        session: &Session,
        stanza: &SharedStanza,
        work: &RoutingWork,
    ) -> bool {
        work.tracks_delivery
            && is_stored_offline(stanza.kind())
            && host.message_backup.is_some()
            && !session.flags.has(flags::EPHEMERAL)
            && stanza.track_delivery(self.clock.now())
    }

    /// A tracked message is in the queues of these sessions: it is safe when one of them has delivered it.
    fn await_delivery(&self, sessions: &[Arc<Session>], stanza: SharedStanza, work: &mut RoutingWork) {
        for session in sessions {
            self.watch_delivery(session);
        }
        let receipt = Receipt::of_delivery(&stanza);
        work.receipts.0.push(AttachedReceipt { stanza, receipt });
    }

    /// Whether a session is detached while another resource of its account accepts messages.
    fn has_connected_alternative(&self, session: &Arc<Session>) -> bool {
        session.outbox.is_detached()
            && session.account.sessions().iter().any(|other| {
                !Arc::ptr_eq(other, session)
                    && !other.is_ended()
                    && !other.outbox.is_detached()
                    && other.priority().is_some_and(|priority| priority >= 0)
            })
    }

    /// Runs the `delivered` chain for the sessions in `taken`, here and by resource on other nodes.
    fn run_delivered(
        self: &Arc<Self>,
        recipient: LocalRecipient<'_>,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        (taken, taken_by_peers): (&[Arc<Session>], &[Box<str>]),
        work: &mut RoutingWork,
    ) {
        let LocalRecipient { host, account: Some(account), .. } = recipient else { return };
        let probe = InterestProbe::of(stanza.head(), account.flags.get());
        let mut ctx = DeliveredCtx {
            node: self,
            account,
            stanza,
            from,
            to,
            accepted_by: taken,
            accepted_by_peers: taken_by_peers,
            effects: &mut work.effects,
        };
        if let ChainResult::Wait { .. } = host.hooks.delivered.run(&mut ctx, &probe, 0) {
            // The stanza is already delivered, so a deferred outcome has no effect.
            tracing::error!("skipped a delivery handler that waits for the store");
        }
    }

    /// Puts a message into the queue of every resource with non-negative priority; returns those that accepted
    /// it.
    pub fn deliver_to_non_negative(
        self: &Arc<Self>,
        account: &Account,
        stanza: &SharedStanza,
        except: Option<&Arc<Session>>,
    ) -> SmallVec<[Arc<Session>; 1]> {
        self.deliver_to_non_negative_with_host(&account.host(), account, stanza, except)
    }

    fn deliver_to_non_negative_with_host(
        self: &Arc<Self>,
        host: &Arc<Host>,
        account: &Account,
        stanza: &SharedStanza,
        except: Option<&Arc<Session>>,
    ) -> SmallVec<[Arc<Session>; 1]> {
        let mut sessions = account.sessions();
        sessions
            .retain(|s| s.priority().is_some_and(|p| p >= 0) && !except.is_some_and(|e| Arc::ptr_eq(e, s)));
        if sessions.len() > 1 {
            stanza.add_recipients(sessions.len());
        }
        sessions.retain(|session| {
            let item = QueuedStanza::new(stanza.clone(), ToRewrite::None);
            let taken = self.push_item_with_host(host, session, item, false).is_ok();
            taken || {
                stanza.release_copy();
                false
            }
        });
        sessions
    }

    /// Like [`Node::deliver_to_non_negative`], but only if `first` accepts the message: otherwise none does. Runs only the
    /// `deliver` chain: for messages that were on their way to the store.
    pub fn deliver_if_first_accepts(
        self: &Arc<Self>,
        account: &Account,
        stanza: &SharedStanza,
        first: &Arc<Session>,
    ) -> SmallVec<[Arc<Session>; 1]> {
        let mut others = account.sessions();
        others.retain(|s| s.priority().is_some_and(|p| p >= 0) && !Arc::ptr_eq(first, s));
        if !others.is_empty() {
            stanza.add_recipients(others.len() + 1);
        }
        // `first` bypasses budgets, because `Outbox::has_room_for` has found room for the whole batch: storing
        // a part of it would change the order.
        let push = |session: &Arc<Session>| {
            let item = QueuedStanza::new(stanza.clone(), ToRewrite::None);
            let taken = self.push_item(session, item, Arc::ptr_eq(session, first)).is_ok();
            taken || {
                stanza.release_copy();
                false
            }
        };
        if !push(first) {
            for _ in &others {
                stanza.release_copy();
            }
            return SmallVec::new();
        }
        others.retain(|session| push(session));
        others.push(first.clone());
        others
    }

    fn apply_delivery_action(
        self: &Arc<Self>,
        recipient: LocalRecipient<'_>,
        action: DeliveryAction,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        let LocalRecipient { host, account, except, scope } = recipient;
        match (action, account) {
            (DeliveryAction::NonNegative, Some(account)) => {
                let tracked = work.tracks_delivery
                    && account
                        .sessions()
                        .first()
                        .is_some_and(|session| self.track_delivery(host, session, &stanza, work));
                let taken = self.deliver_to_non_negative_with_host(host, account, &stanza, except);
                if tracked && !taken.is_empty() {
                    self.await_delivery(&taken, stanza.clone(), work);
                }
                let taken_by_peers =
                    self.deliver_to_peers(recipient, account, &stanza, to, !taken.is_empty(), work);
                if let Some(peers) = self.peers().filter(|_| !taken.is_empty() && !taken_by_peers.is_empty())
                {
                    peers.record_copy(account, &stanza, true);
                }
                if taken.is_empty() && taken_by_peers.is_empty() {
                    if scope == DeliveryScope::Copy {
                        self.forget_copy(account, &stanza);
                    } else {
                        self.undelivered(stanza, from, to, 0, work);
                    }
                } else if matches!(scope, DeliveryScope::AllNodes(_))
                    && copy_for_delivered_chain(host, account, &stanza, work).is_some()
                {
                    let taken = (&taken[..], &taken_by_peers[..]);
                    self.run_delivered(recipient, &stanza, from, to, taken, work);
                }
            }
            (DeliveryAction::Available, Some(account)) => {
                self.deliver_to_peers(recipient, account, &stanza, to, true, work);
                for session in account.sessions() {
                    if session.is_available() && !except.is_some_and(|e| Arc::ptr_eq(e, &session)) {
                        let item = QueuedStanza::new(stanza.clone(), ToRewrite::None);
                        let _ = self.push_item_with_host(host, &session, item, false);
                    }
                }
            }
            (DeliveryAction::Undelivered | DeliveryAction::Bounce(_), _) if scope == DeliveryScope::Copy => {}
            (DeliveryAction::Undelivered, _) => self.undelivered(stanza, from, to, 0, work),
            (DeliveryAction::Bounce(condition), _) => {
                self.bounce(&stanza, from, to, &StanzaError::new(condition), work)
            }
            (DeliveryAction::Server, _) if stanza.kind().is_request() => {
                let own = from.bare().as_str() == to.bare().as_str();
                let target = if own { IqTarget::OwnAccount } else { IqTarget::Account };
                let (head, bytes) = (stanza.head(), stanza.bytes());
                let request =
                    RoutedIq { host, service: None, target, session: None, from, to: Some(to), head, bytes };
                self.dispatch_iq(&request, work);
            }
            _ => {}
        }
    }

    /// Sends a stanza to the other nodes with sessions that receive what is sent to the bare address: messages to those of
    /// non-negative priority, presence to the available ones. Returns the resources; `taken`: other sessions have it.
    fn deliver_to_peers(
        self: &Arc<Self>,
        recipient: LocalRecipient<'_>,
        account: &Account,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        mut taken: bool,
        work: &mut RoutingWork,
    ) -> SmallVec<[Box<str>; 1]> {
        let mut resources = SmallVec::new();
        let (Some(routing), Some(hops)) = (self.peers(), recipient.hops()) else { return resources };
        let peers = account.with(|state| state.peers().to_vec());
        let presence = stanza.class() == QueueClass::Presence;
        for peer in peers {
            let receives =
                |session: &&PeerSession| session.priority.is_some_and(|priority| presence || priority >= 0);
            let mut receivers = peer.sessions.iter().filter(receives).peekable();
            if receivers.peek().is_some()
                && routing.deliver_to_peer(self, peer.node, account, stanza, to, (hops, taken), work)
            {
                taken = true;
                resources.extend(receivers.map(|session| session.resource.clone()));
            }
        }
        resources
    }

    /// Runs the `undelivered` chain for a message that no resource accepted, then bounces it.
    pub(crate) fn undelivered(
        self: &Arc<Self>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        at: usize,
        work: &mut RoutingWork,
    ) {
        self.undelivered_with_host(None, stanza, from, to, at, work);
    }

    /// Like [`Node::undelivered`], with the host with which the chain started.
    pub(super) fn undelivered_with_host(
        self: &Arc<Self>,
        host: Option<Arc<Host>>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        at: usize,
        work: &mut RoutingWork,
    ) {
        let account = self.routing_table.find(to);
        if at == 0 {
            self.metrics.routed(stanza.kind(), RouteOutcome::Undelivered);
            // What is stored must be delivered to the sessions here.
            if let Some(account) = &account {
                self.forget_copy(account, &stanza);
            }
        }
        let host = match (host, &account) {
            (Some(host), _) => host,
            (None, Some(account)) => Guard::into_inner(account.host()),
            (None, None) => match self.host(to.domain()) {
                Some(host) => host,
                None => return,
            },
        };
        let flags = account.as_ref().map_or(0, |a| a.flags.get());
        let probe = InterestProbe::of(stanza.head(), flags);
        let mut ctx = UndeliveredCtx {
            node: self,
            host: &host,
            account: account.as_ref(),
            stanza: &stanza,
            from,
            to,
            tracks_delivery: work.tracks_delivery,
            redelivery: work.redelivery,
            effects: &mut work.effects,
        };
        match host.hooks.undelivered.run(&mut ctx, &probe, at) {
            ChainResult::Done => {
                let error = StanzaError::new(StanzaCondition::ServiceUnavailable);
                self.bounce(&stanza, from, to, &error, work);
            }
            ChainResult::Stopped(verdict) => self.apply_stop(&stanza, from, to, verdict, work),
            ChainResult::Wait { next, later } => {
                let (from, to) = (from.to_jid(), to.to_jid());
                work.pending.push(Box::pin(async move {
                    let outcome = later.outcome().await;
                    let position = ChainPosition { host, index: next };
                    let then = Continuation::Undelivered { stanza, from, to, position, flow: outcome.flow };
                    ResumedChain { effects: outcome.effects, continuation: then }
                }));
            }
        }
    }

    /// Puts a stanza into a queue; returns it if the queue is full or the connection is closed.
    pub(crate) fn try_push(
        self: &Arc<Self>,
        session: &Arc<Session>,
        item: QueuedStanza,
    ) -> Result<(), RejectedPush> {
        self.push_item(session, item, false)
    }

    /// Like [`Node::try_push`]; `forced` bypasses shares and budgets, but not the limits of the queue.
    pub(super) fn push_item(
        self: &Arc<Self>,
        session: &Arc<Session>,
        item: QueuedStanza,
        forced: bool,
    ) -> Result<(), RejectedPush> {
        self.push_item_with_host(&session.account.host(), session, item, forced)
    }

    /// Like [`Node::push_item`], with the session's host, which is loaded once for several sessions.
    pub fn push_item_with_host(
        self: &Arc<Self>,
        host: &Arc<Host>,
        session: &Arc<Session>,
        item: QueuedStanza,
        forced: bool,
    ) -> Result<(), RejectedPush> {
        let chain = &host.hooks.deliver;
        let kind = item.stanza.kind();
        let mut urgency = if session.flags.has(flags::BATCHES_PRESENCE)
            && self.presence_batcher.should_delay(session.bare().as_str(), &item.stanza)
        {
            Urgency::Soon
        } else {
            Urgency::Now
        };
        if chain.may_want(kind) {
            let probe =
                InterestProbe::of(item.stanza.head(), session.flags.get() | session.account.flags.get());
            let mut ctx = DeliverCtx { node: self, session, stanza: &item.stanza, urgency: &mut urgency };
            match chain.run(&mut ctx, &probe, 0) {
                // Handlers of `deliver` must not defer; one that does is skipped.
                ChainResult::Done | ChainResult::Wait { .. } => {}
                ChainResult::Stopped(StopReason::Consumed | StopReason::Refused(_)) => {
                    item.stanza.settle_delivery();
                    return Ok(());
                }
            }
        }
        let limits = self.limits().outbox();
        let room = AdmissionContext {
            limits: &limits,
            backlog: Some((&self.backlog, session.bare())),
            bypass_budgets: forced,
        };
        let class = item.stanza.class();
        let item = self.mark_unsubscribed(session, item);
        match session.outbox.push_accounted(item.clone(), urgency, &room) {
            PushOutcome::Queued => {}
            PushOutcome::StartedDelay(token) => {
                self.presence_batcher.schedule(&session.outbox, token, self.clock.now())
            }
            PushOutcome::DroppedOlder(count) => {
                let reason = if class == QueueClass::Control { "unsolicited" } else { "queue-full" };
                let class = class.as_str();
                self.metrics.stanzas_dropped.add([class, reason], u64::from(count));
                self.metrics.session_queue_full.inc([class]);
            }
            PushOutcome::LimitReached(full) => {
                let name = class.as_str();
                self.metrics.session_queue_full.inc([name]);
                self.metrics.stanzas_refused.inc([name, full.as_str()]);
                if class == QueueClass::Message || kind.is_request() {
                    return Err(RejectedPush { item, full: true });
                }
                // Presence, subscription requests (which are stored) and responses: the sender receives no
                // error.
                let unsolicited = is_iq_response(kind) && !item.stanza.is_requested();
                let reason = if unsolicited { "unsolicited" } else { "queue-full" };
                self.metrics.stanzas_dropped.inc([name, reason]);
                return Ok(());
            }
            PushOutcome::Closed => return Err(RejectedPush { item, full: false }),
        }
        self.metrics.stanza_out(kind);
        host.domain_counters.stanza_out(kind);
        Ok(())
    }

    /// Handles a stanza that a session will not receive: messages are rerouted, requests are answered with an
    /// error, the rest is dropped.
    pub(crate) fn reroute_undelivered(
        self: &Arc<Self>,
        session: &Arc<Session>,
        left: UndeliveredStanza,
        work: &mut RoutingWork,
    ) {
        let left = with_address_of_multicast(session, left);
        let stanza = &left.item.stanza;
        let wanted = stanza.class() == QueueClass::Message || stanza.kind().is_request();
        // A stanza whose `to` is inserted at writing was made for this session, or for each of many: it is not
        // rerouted.
        if !wanted || left.item.to_rewrite != ToRewrite::None {
            self.metrics.stanzas_dropped.inc([stanza.class().as_str(), "session-gone"]);
            return;
        }
        if stanza.is_stored() {
            return keep_stored_before_later(session);
        }
        // Unless another session has the message or will reroute it.
        if stanza.release_copy() {
            if !self.forget_copy(&session.account, stanza) {
                return;
            }
            if self.abandon_to_backup(&session.account, stanza) {
                return keep_stored_before_later(session);
            }
            work.redelivery = true;
            self.redeliver(session, left, work);
            work.redelivery = false;
        }
    }

    fn redeliver(self: &Arc<Self>, session: &Arc<Session>, left: UndeliveredStanza, work: &mut RoutingWork) {
        let UndeliveredStanza { item: QueuedStanza { mut stanza, .. }, sent_at: sent } = left;
        let (account, bytes) = (&session.account, stanza.bytes());
        let host = &account.host();
        let scope = DeliveryScope::AllNodes(0);
        let recipient = LocalRecipient { host, account: Some(account), except: Some(session), scope };
        let from = stanza.head().from(bytes).and_then(|f| jid::Jid::parse(&f).ok());
        let Some(from) = from else { return };
        let to = stanza.head().to(bytes).and_then(|t| jid::Jid::parse(&t).ok());
        let to = to.unwrap_or_else(|| account.jid.clone());
        let (from, to) = (from.as_ref(), to.as_ref());
        // Queued stanzas of a session that was never resumed also get a delay stamp, with the current time,
        // because the queueing time is not recorded.
        let sent = sent.or_else(|| session.flags.has(flags::STREAM_MANAGEMENT).then(|| self.seconds()));
        if let Some(sent) = sent.filter(|_| stanza.class() == QueueClass::Message)
            && let Some(AddDelay(add_delay)) = host.extensions.get::<AddDelay>()
        {
            let ago = u64::from(self.seconds().saturating_sub(sent)) * 1000;
            stanza = add_delay(&stanza, host.domain(), self.clock.unix_millis().saturating_sub(ago))
                .unwrap_or(stanza);
        }
        self.deliver_without_resource(recipient, account, stanza, from, to, work);
    }

    /// Delivers a stanza whose recipient's chain has run, and which returned from another node.
    pub fn deliver_returned(
        self: &Arc<Self>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        hops: u8,
        work: &mut RoutingWork,
    ) {
        let Some(account) = self.routing_table.find(to) else {
            return self.undelivered(stanza, from, to, 0, work);
        };
        let (host, scope) = (&account.host(), DeliveryScope::AllNodes(hops));
        let recipient = LocalRecipient { host, account: Some(&account), except: None, scope };
        work.redelivery = true;
        self.deliver_without_resource(recipient, &account, stanza, from, to, work);
        work.redelivery = false;
    }

    /// Delivers a stanza whose recipient's chain has run, as if the resource in `to` were gone.
    fn deliver_without_resource(
        self: &Arc<Self>,
        recipient: LocalRecipient<'_>,
        account: &Arc<Account>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        let kind = stanza.kind();
        match rules::decide(kind, address_form(to), ResourceSummary::default()) {
            DeliveryAction::Undelivered => {
                let ended = |s: &Arc<Session>| {
                    s.is_ended() || recipient.except.is_some_and(|except| Arc::ptr_eq(except, s))
                };
                let others = account
                    .with(|state| !state.peers().is_empty() || state.sessions.iter().any(|s| !ended(s)));
                if others {
                    // The recipient's chain has run: a second run would add a stanza-id and copies again.
                    self.deliver(recipient, account, stanza, from, to.bare(), work);
                } else {
                    self.undelivered(stanza, from, to, 0, work);
                }
            }
            // The rules bounce a normal message to the full address of an absent resource; this one was
            // accepted for a resource, so it is preserved.
            DeliveryAction::Bounce(_) if kind == StanzaKind::Message(MessageType::Normal) => {
                self.undelivered(stanza, from, to, 0, work);
            }
            action => self.apply_delivery_action(recipient, action, stanza, from, to, work),
        }
    }
}

/// The store has a message that this session held: later messages must not overtake it.
fn keep_stored_before_later(session: &Arc<Session>) {
    session.account.with(|state| {
        let others = state
            .sessions
            .iter()
            .any(|s| !Arc::ptr_eq(s, session) && !s.is_ended() && s.priority().is_some_and(|p| p >= 0));
        state.may_have_offline_messages = true;
        state.flushing |= others;
    });
}

/// A message of a multicast gets the address that would have been written: it was sent to this recipient, not copied.
fn with_address_of_multicast(session: &Session, mut left: UndeliveredStanza) -> UndeliveredStanza {
    let to = match left.item.to_rewrite {
        ToRewrite::None => return left,
        ToRewrite::Bare => session.bare(),
        ToRewrite::Full => session.full(),
    };
    if left.item.stanza.is_multicast()
        && let Some(stanza) = left.item.stanza.with_to(Some(to))
    {
        left.item = QueuedStanza::new(stanza, ToRewrite::None);
    }
    left
}

/// Copy of the stanza for the `delivered` chain, if a handler wants it.
fn copy_for_delivered_chain(
    host: &Host,
    account: &Account,
    stanza: &SharedStanza,
    work: &RoutingWork,
) -> Option<SharedStanza> {
    let chain = &host.hooks.delivered;
    let wanted = !work.redelivery
        && chain.may_want(stanza.kind())
        && chain.wants(&InterestProbe::of(stanza.head(), account.flags.get()));
    wanted.then(|| stanza.clone())
}

/// Whether messages of this kind must follow others of their kind in the store.
pub(super) fn is_stored_offline(kind: StanzaKind) -> bool {
    matches!(kind, StanzaKind::Message(MessageType::Chat | MessageType::Normal))
}

/// Whether the sender may see the presence of the recipient's resource (RFC 6121, section 8.5.3.1).
fn may_see_presence(
    node: &Node,
    (host, account): (&Host, &Account),
    session: &Session,
    from: JidRef<'_>,
) -> bool {
    let bare = from.bare();
    bare.as_str() == account.jid.as_ref().as_str()
        || host.iq_without_subscription
        // A host of this server may always send requests.
        || bare.local().is_none() && bare.as_str() == host.domain()
        || node.subscription(account, bare).contains(Subscription::FROM)
        || session.has_directed_presence_to(from)
}

pub(super) fn address_form(to: JidRef<'_>) -> AddressForm {
    if to.resource().is_some() { AddressForm::Full } else { AddressForm::Bare }
}
