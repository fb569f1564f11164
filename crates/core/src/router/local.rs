//! Stanzas for local accounts: the `incoming` chain, and the sessions that receive them (RFC 6121, section 8.5) by the
//! decisions of [`super::rules`]. `session_delivery` puts them into queues; `undelivered` handles what no session accepts.

use std::sync::Arc;

use base::spawn::BoxFuture;
use cluster::Envelope;
use jid::JidRef;
use outbox::is_iq_response;
use stanza::{MessageType, StanzaCondition, StanzaError, StanzaKind};
use store::Subscription;

use super::iq_dispatch::RoutedIq;
use super::peer_routing::HomeDecision;
use super::rules::{self, AddressForm, DeliveryAction, ResourceSummary};
use super::{ChainPosition, Continuation, ResumedChain, RoutingWork};
use crate::account::Account;
use crate::effect::Effects;
use crate::hooks::{ChainResult, IncomingCtx, InterestProbe};
use crate::host::Host;
use crate::metrics::RouteOutcome;
use crate::node::Node;
use crate::session::{QueuedStanza, Session, ToRewrite};
use crate::shared_stanza::{QueueClass, SharedStanza};

/// A recipient on this node.
#[derive(Clone, Copy)]
pub(super) struct LocalRecipient<'a> {
    /// Its host, loaded once for the stanza.
    pub(super) host: &'a Arc<Host>,
    /// The account, if one of its resources is connected here.
    pub(super) account: Option<&'a Arc<Account>>,
    /// A resource that does not receive the stanza.
    pub(super) except: Option<&'a Arc<Session>>,
    pub(super) scope: DeliveryScope,
}

/// Which of an account's sessions may receive a stanza.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryScope {
    /// All: this node acts as the home. The number is that of the envelopes that have carried the stanza.
    AllNodes(u8),
    /// Those here: another node is the home, which has run the chain and runs the `delivered` chain.
    Here,
    /// Those here, and others have received the stanza: it is dropped if these do not accept it.
    Copy,
}

impl LocalRecipient<'_> {
    /// Envelopes that have carried the stanza, if it may go to further nodes.
    pub(super) fn hops(&self) -> Option<u8> {
        match self.scope {
            DeliveryScope::AllNodes(hops) => Some(hops).filter(|hops| *hops < Envelope::MAX_HOPS),
            DeliveryScope::Here | DeliveryScope::Copy => None,
        }
    }
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
                HomeDecision::Wait(old_path) => {
                    let continuation =
                        Continuation::OnNewPath { stanza, from: from.to_jid(), to: to.to_jid() };
                    work.pending.push(Box::pin(async move {
                        old_path.await;
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
            && work.attach_to_copy(peers.recognise_copy_with_id(self, account, id))
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
                if work.attach_to_copy(peers.recognise_copy(self, account, &stanza, !copy)) {
                    return true;
                }
                peers.record_copy(account, &stanza, !copy);
                if copy && is_stored_offline(stanza.kind()) {
                    stanza.mark_node_copy();
                }
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
    pub(super) fn deliver(
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

    pub(super) fn apply_delivery_action(
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
                let taken = self.deliver_to_non_negative(host, account, &stanza, except);
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
                self.dispatch_iq(&RoutedIq::to_account(host, &stanza, (from, to)), work);
            }
            _ => {}
        }
    }
}

/// Copy of the stanza for the `delivered` chain, if a handler wants it.
pub(super) fn copy_for_delivered_chain(
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
