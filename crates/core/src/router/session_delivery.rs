//! Delivery to sessions: those of one account here, and those on other nodes; the queue of a session, and the `delivered` chain.

use std::sync::Arc;

use cluster::NodeId;
use jid::JidRef;
use outbox::{QUEUE_FULL_CONDITION, RefusedPush, is_iq_response};
use smallvec::SmallVec;
use stanza::{StanzaCondition, StanzaError, StanzaKind};

use super::RoutingWork;
use super::local::{DeliveryScope, LocalRecipient, copy_for_delivered_chain, is_stored_offline};
use crate::account::{Account, PeerSession};
use crate::hooks::{ChainResult, DeliverCtx, DeliveredCtx, InterestProbe, StopReason};
use crate::host::Host;
use crate::node::Node;
use crate::receipt::{AttachedReceipt, Receipt};
use crate::session::{AdmissionContext, PushOutcome, QueuedStanza, Session, ToRewrite, Urgency, flags};
use crate::shared_stanza::{QueueClass, SharedStanza};

/// How a session has taken a stanza.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedPush {
    /// Its queue has it, or has dropped it as one of its kind may be.
    Queued,
    /// A handler has consumed it.
    Consumed,
}

/// A stanza that a queue rejected.
pub struct RejectedPush {
    /// The stanza.
    pub item: QueuedStanza,
    /// The queue had no room; otherwise the connection is closed.
    pub full: bool,
}

impl Node {
    /// Sends a stanza to the node of the resource in `to`.
    pub(super) fn deliver_to_exact_peer(
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
        let delivered = self
            .peers()
            .is_some_and(|peers| peers.deliver_to_peer(self, node, account, &stanza, to, hops, false, work));
        if !delivered {
            return self.undelivered(stanza, from, to, 0, work);
        }
        if copy_for_delivered_chain(recipient.host, account, &stanza, work).is_some() {
            let resource = to.resource().unwrap_or_default().into();
            self.run_delivered(recipient, &stanza, from, to, (&[], &[resource]), work);
        }
    }

    /// Delivers to one resource.
    pub(super) fn deliver_to(
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
            Ok(_) => {
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
    pub(super) fn track_delivery(
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
    pub(super) fn await_delivery(
        &self,
        sessions: &[Arc<Session>],
        stanza: SharedStanza,
        work: &mut RoutingWork,
    ) {
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
    pub(super) fn run_delivered(
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
    pub(super) fn deliver_to_non_negative(
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
        self.push_to_each(host, &mut sessions, stanza, false);
        sessions
    }

    /// Keeps the sessions that accept the message. `consumed`: a handler has consumed it for another session. False, and none
    /// is kept, if nobody has it: those that accepted it have ended meanwhile, and left it to the others.
    fn push_to_each(
        self: &Arc<Self>,
        host: &Arc<Host>,
        sessions: &mut SmallVec<[Arc<Session>; 1]>,
        stanza: &SharedStanza,
        mut consumed: bool,
    ) -> bool {
        let mut unheld = false;
        sessions.retain(|session| {
            let item = QueuedStanza::new(stanza.clone(), ToRewrite::None);
            let pushed = self.push_item_with_host(host, session, item, false);
            consumed |= matches!(pushed, Ok(AcceptedPush::Consumed));
            unheld |= pushed.is_err() && stanza.release_copy();
            pushed.is_ok()
        });
        if unheld && consumed {
            stanza.settle_delivery();
        } else if unheld {
            sessions.clear();
        }
        consumed || !unheld
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
        let item = QueuedStanza::new(stanza.clone(), ToRewrite::None);
        let Ok(pushed) = self.push_item(first, item, true) else {
            (0..=others.len()).for_each(|_| _ = stanza.release_copy());
            return SmallVec::new();
        };
        if self.push_to_each(&account.host(), &mut others, stanza, pushed == AcceptedPush::Consumed) {
            others.push(first.clone());
        }
        others
    }

    /// Sends a stanza to the other nodes with sessions that receive what is sent to the bare address: messages to those of
    /// non-negative priority, presence to the available ones. Returns the resources; `taken`: other sessions have it.
    pub(super) fn deliver_to_peers(
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
                && routing.deliver_to_peer(self, peer.node, account, stanza, to, hops, taken, work)
            {
                taken = true;
                resources.extend(receivers.map(|session| session.resource.clone()));
            }
        }
        resources
    }

    /// Puts a stanza into a queue; returns it if the queue is full or the connection is closed.
    pub(crate) fn try_push(
        self: &Arc<Self>,
        session: &Arc<Session>,
        item: QueuedStanza,
    ) -> Result<AcceptedPush, RejectedPush> {
        self.push_item(session, item, false)
    }

    /// Like [`Node::try_push`]; with `bypass_budgets`, shares and budgets do not apply, but the limits of the queue do.
    pub(super) fn push_item(
        self: &Arc<Self>,
        session: &Arc<Session>,
        item: QueuedStanza,
        bypass_budgets: bool,
    ) -> Result<AcceptedPush, RejectedPush> {
        self.push_item_with_host(&session.account.host(), session, item, bypass_budgets)
    }

    /// Like [`Node::push_item`], with the session's host, which is loaded once for several sessions.
    pub fn push_item_with_host(
        self: &Arc<Self>,
        host: &Arc<Host>,
        session: &Arc<Session>,
        item: QueuedStanza,
        bypass_budgets: bool,
    ) -> Result<AcceptedPush, RejectedPush> {
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
                    // Another session that shares the message may still lose it.
                    if item.stanza.release_copy() {
                        item.stanza.settle_delivery();
                    }
                    return Ok(AcceptedPush::Consumed);
                }
            }
        }
        let limits = self.limits().outbox();
        let room = AdmissionContext {
            limits: &limits,
            backlog: Some((&self.backlog, session.bare())),
            bypass_budgets,
        };
        let class = item.stanza.class();
        let item = self.mark_unsubscribed(session, item);
        match session.outbox.push_or_return(item, urgency, &room) {
            Ok(PushOutcome::StartedDelay(token)) => {
                self.presence_batcher.schedule(&session.outbox, token, self.clock.now())
            }
            Ok(PushOutcome::DroppedOlder(count)) => {
                let reason = if class == QueueClass::Control { "unsolicited" } else { "queue-full" };
                let class = class.as_str();
                self.metrics.stanzas_dropped.add([class, reason], u64::from(count));
                self.metrics.session_queue_full.inc([class]);
            }
            Ok(_) => {}
            Err(RefusedPush { item, outcome: PushOutcome::LimitReached(full) }) => {
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
                return Ok(AcceptedPush::Queued);
            }
            Err(RefusedPush { item, .. }) => return Err(RejectedPush { item, full: false }),
        }
        self.metrics.stanza_out(kind);
        host.domain_counters.stanza_out(kind);
        Ok(AcceptedPush::Queued)
    }
}
