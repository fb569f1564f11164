//! Messages that no session accepts, and stanzas that sessions leave unread: the `undelivered` chain, and redelivery to the
//! account's other sessions.

use std::sync::Arc;

use arc_swap::Guard;
use jid::JidRef;
use stanza::{MessageType, StanzaCondition, StanzaError, StanzaKind};

use super::local::{DeliveryScope, LocalRecipient, address_form};
use super::rules::{self, DeliveryAction, ResourceSummary};
use super::{ChainPosition, Continuation, ResumedChain, RoutingWork};
use crate::account::Account;
use crate::hooks::{ChainResult, InterestProbe, UndeliveredCtx};
use crate::host::Host;
use crate::metrics::RouteOutcome;
use crate::node::Node;
use crate::provided::AddDelay;
use crate::session::stream_management::UndeliveredStanza;
use crate::session::{QueuedStanza, Session, ToRewrite, flags};
use crate::shared_stanza::{QueueClass, SharedStanza};

impl Node {
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
        let account = &session.account;
        let host = &account.host();
        let scope = DeliveryScope::AllNodes(0);
        let recipient = LocalRecipient { host, account: Some(account), except: Some(session), scope };
        let Some(from) = stanza.sender() else { return };
        let to = stanza.recipient().unwrap_or_else(|| account.jid.clone());
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
