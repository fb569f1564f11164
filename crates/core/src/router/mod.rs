//! Routing of stanzas: from [`Node::ingest`], where a session's stanzas enter, to the outboxes of the
//! recipients.
//!
//! RFC 6120, sections 8.1 and 10; RFC 6121, section 8.
//!
//! Deferred work is collected as futures and returned to the caller, which awaits them before it handles the next
//! stanza of the same sender. Receipts are collected, too; later stanzas do not wait for them.

mod events;
mod ingest;
mod iq_dispatch;
pub mod lanes;
mod local;
pub mod multicast;
pub mod peer_routing;
mod perform;
pub mod presence_broadcast;
mod presence_queue;
mod presence_to_address;
pub mod push;
mod receipts;
pub mod routing_table;
pub mod rules;
mod service_dispatch;
mod session_delivery;
mod undelivered;

use std::sync::Arc;

use base::spawn::BoxFuture;
use jid::{Jid, JidRef};
use stanza::{StanzaCondition, StanzaError, StanzaKind};

use crate::account::Account;
use crate::domains::{Domain, DomainRoute};
use crate::effect::Effects;
use crate::hooks::{ChainResult, Flow, InterestProbe, OutgoingCtx, StopReason};
use crate::host::Host;
use crate::iq::IqAnswer;
use crate::metrics::RouteOutcome;
use crate::node::Node;
use crate::receipt::{AttachedReceipt, Receipt, Receipts};
use crate::session::stream_management::UndeliveredStanza;
use crate::session::{QueuedStanza, Session, ToRewrite};
use crate::shared_stanza::SharedStanza;

pub use events::LifecycleEvent;
pub(crate) use events::WaitingEvent;
pub use ingest::IngestOutcome;
pub(crate) use iq_dispatch::IqReplyTarget;
pub use peer_routing::{HandedOver, HomeDecision, OnlineFilter, PeerRouting};

/// Where a stanza comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StanzaOrigin {
    /// The engine, a feature, a service or a component: no sender waits until it is safe.
    #[default]
    Engine,
    /// A client's stream, which counts the safe stanzas (XEP-0198). Its next stanza may wait for this one.
    Stream,
    /// Another node, which waits until the stanza is safe.
    Peer,
    /// A lane, whose next stanza may wait for this one.
    Lane,
    /// An event of a session or an account.
    Event,
}

impl StanzaOrigin {
    /// Whether a hand-over to another node needs a receipt.
    pub fn awaits_receipts(self) -> bool {
        matches!(self, StanzaOrigin::Stream | StanzaOrigin::Peer)
    }

    /// Whether waiting for room in a lane could be waiting for itself. What another node sends is handled in lanes, too.
    fn is_in_lane(self) -> bool {
        matches!(self, StanzaOrigin::Lane | StanzaOrigin::Peer)
    }
}

/// Pending work of a stanza that is being handled.
#[derive(Default)]
pub struct RoutingWork {
    /// Effects that must be performed.
    pub effects: Effects,
    pub(crate) pending: Vec<BoxFuture<'static, ResumedChain>>,
    /// Receipts that the stanza, or a stanza that it caused, was given.
    pub(crate) receipts: Receipts,
    /// The sender must learn when its messages are safe; see [`crate::message_backup`].
    pub tracks_delivery: bool,
    /// This is a redelivery of a stanza that was delivered before; see [`crate::hooks::DeliveredCtx`].
    pub(crate) redelivery: bool,
    /// The next stanza for [`Node::incoming`] was handed over.
    pub handed_over: Option<HandedOver>,
    /// What the stanza comes from.
    pub origin: StanzaOrigin,
}

impl RoutingWork {
    /// The work of a stanza.
    pub fn of(origin: StanzaOrigin) -> RoutingWork {
        RoutingWork { origin, ..RoutingWork::default() }
    }

    /// Whether a message has a copy here. If so, its sender waits until that is safe.
    fn attach_to_copy(&mut self, (found, receipt): (bool, Option<AttachedReceipt>)) -> bool {
        self.receipts.0.extend(receipt);
        found
    }

    /// Attaches the receipt of a hand-over.
    pub fn attach(&mut self, stanza: SharedStanza, receipt: Option<Receipt>) {
        if let Some(receipt) = receipt {
            self.receipts.0.push(AttachedReceipt { stanza, receipt });
        }
    }
}

/// Result of routing a stanza: what is still to be done for it.
pub enum RoutingOutcome {
    /// Nothing.
    Done,
    /// It is safe when these receipts are fulfilled.
    AwaitsReceipts(Receipts),
    /// Deferred work, and then these receipts.
    Wait(BoxFuture<'static, Receipts>),
}

impl RoutingOutcome {
    /// The rest for a caller that needs to know when everything is safe.
    pub(crate) fn into_future(self, node: &Arc<Node>) -> Option<BoxFuture<'static, ()>> {
        match self {
            RoutingOutcome::Done => None,
            RoutingOutcome::AwaitsReceipts(receipts) => Some(node.settle_receipts(receipts)),
            RoutingOutcome::Wait(rest) => {
                let node = node.clone();
                Some(Box::pin(async move { node.settle_receipts(rest.await).await }))
            }
        }
    }
}

/// Result of a deferred handler: its effects, and where to continue.
pub(crate) struct ResumedChain {
    pub(crate) effects: Effects,
    pub(crate) continuation: Continuation,
}

/// Position in the chains of a host: a reload may replace hosts while a handler waits.
pub(crate) struct ChainPosition {
    pub(crate) host: Arc<Host>,
    pub(crate) index: usize,
}

/// Where routing continues.
pub(crate) enum Continuation {
    Outgoing {
        session: Arc<Session>,
        stanza: SharedStanza,
        to: Option<Jid>,
        position: ChainPosition,
        flow: Flow,
    },
    Incoming {
        stanza: SharedStanza,
        from: Jid,
        to: Jid,
        position: ChainPosition,
        handed_over: Option<HandedOver>,
        flow: Flow,
    },
    /// Everything on the old path of its recipient has ended (`peers/src/handovers.rs`).
    OnNewPath {
        stanza: SharedStanza,
        from: Jid,
        to: Jid,
    },
    Undelivered {
        stanza: SharedStanza,
        from: Jid,
        to: Jid,
        position: ChainPosition,
        flow: Flow,
    },
    Event {
        event: LifecycleEvent,
        position: ChainPosition,
        waiting: WaitingEvent,
    },
    Service {
        stanza: SharedStanza,
        from: Jid,
        to: Jid,
        flow: Flow,
    },
    Checked {
        account: Arc<Account>,
        stanza: SharedStanza,
        from: Jid,
        to: Jid,
        trusted: bool,
    },
    Reply {
        reply: IqReplyTarget,
        answer: IqAnswer,
    },
    Nothing,
}

impl ResumedChain {
    /// Effects and a continuation that must run after pending work.
    fn after_pending(effects: Effects, then: Continuation) -> BoxFuture<'static, ResumedChain> {
        Box::pin(std::future::ready(ResumedChain { effects, continuation: then }))
    }
}

impl Node {
    /// Puts a stanza into the queue of one session; false if the queue is full or the connection is closed.
    pub fn enqueue(
        self: &Arc<Self>,
        session: &Arc<Session>,
        stanza: SharedStanza,
        to_rewrite: ToRewrite,
    ) -> bool {
        self.try_push(session, QueuedStanza::new(stanza, to_rewrite)).is_ok()
    }

    /// Like [`Node::enqueue`], but bypasses the shares and budgets of senders; the limit of the queue applies.
    pub fn enqueue_forced(
        self: &Arc<Self>,
        session: &Arc<Session>,
        stanza: SharedStanza,
        to_rewrite: ToRewrite,
    ) -> bool {
        self.push_item(session, QueuedStanza::new(stanza, to_rewrite), true).is_ok()
    }

    /// Runs the sender's chain from handler `at` of `host`, then routes the stanza.
    pub(crate) fn outgoing(
        self: &Arc<Self>,
        host: &Arc<Host>,
        session: &Arc<Session>,
        mut stanza: SharedStanza,
        to: Option<JidRef<'_>>,
        at: usize,
        work: &mut RoutingWork,
    ) {
        let chain = &host.hooks.outgoing;
        if chain.may_want(stanza.kind()) {
            let probe = InterestProbe::of(stanza.head(), session.flags.get() | session.account.flags.get());
            let mut ctx = OutgoingCtx {
                node: self,
                host,
                session,
                stanza: &mut stanza,
                to,
                effects: &mut work.effects,
            };
            match chain.run(&mut ctx, &probe, at) {
                ChainResult::Done => {}
                ChainResult::Stopped(verdict) => {
                    return self.apply_outgoing_stop(session, &stanza, to, verdict, work);
                }
                ChainResult::Wait { next, later } => {
                    let (session, to) = (session.clone(), to.map(|t| t.to_jid()));
                    let position = ChainPosition { host: host.clone(), index: next };
                    work.pending.push(Box::pin(async move {
                        let outcome = later.outcome().await;
                        let then =
                            Continuation::Outgoing { session, stanza, to, position, flow: outcome.flow };
                        ResumedChain { effects: outcome.effects, continuation: then }
                    }));
                    return;
                }
            }
        }
        match to {
            // The most frequent case needs no look-up of the domain.
            Some(to) if to.local().is_some() && to.domain() == host.domain() => {
                self.metrics.routed(stanza.kind(), RouteOutcome::Local);
                self.incoming_with_host(Some(host), stanza, session.full(), to, 0, work);
            }
            Some(to) => self.route(stanza, session.full(), to, work),
            // Only presence lacks a recipient here, and the presence feature consumes it.
            None => {
                tracing::debug!(
                    kind = stanza.kind().name(),
                    "no feature handled a stanza without a recipient"
                )
            }
        }
    }

    fn apply_outgoing_stop(
        self: &Arc<Self>,
        session: &Arc<Session>,
        stanza: &SharedStanza,
        to: Option<JidRef<'_>>,
        verdict: StopReason,
        work: &mut RoutingWork,
    ) {
        if let StopReason::Refused(error) = verdict {
            self.bounce_to_session(session, stanza.bytes(), stanza.head(), to, &error, work);
        }
    }

    /// Applies the stop reason of a chain on the recipient's side.
    ///
    /// Presence is never answered for a recipient: an error would disclose that the account exists (RFC 6121,
    /// section 8.5.1) or that it does not block the sender (XEP-0191, section 3.3).
    pub(crate) fn apply_stop(
        self: &Arc<Self>,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        verdict: StopReason,
        work: &mut RoutingWork,
    ) {
        let StopReason::Refused(error) = verdict else { return };
        if matches!(stanza.kind(), StanzaKind::Presence(_)) {
            tracing::debug!(%from, %to, condition = error.condition.as_str(), "presence was refused silently");
            self.metrics.stanzas_dropped.inc([stanza.class().as_str(), "refused"]);
            return;
        }
        self.bounce(stanza, from, to, &error, work);
    }

    /// Routes a stanza whose `from` and `to` have been rewritten.
    pub(crate) fn route(
        self: &Arc<Self>,
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        let domains = self.domains();
        match domains.find(to.domain()) {
            Domain::Accounts(host) if to.local().is_some() => {
                self.metrics.routed(stanza.kind(), RouteOutcome::Local);
                self.incoming_with_host(Some(host), stanza, from, to, 0, work);
            }
            Domain::Accounts(host) => {
                self.metrics.routed(stanza.kind(), RouteOutcome::Server);
                self.handle_server_stanza(host, &stanza, from, to, work);
            }
            Domain::Service(host, service) => {
                self.metrics.routed(stanza.kind(), RouteOutcome::Service);
                self.handle_service_stanza((host, service), stanza, from, to, work);
            }
            Domain::Component(route) => {
                self.metrics.routed(stanza.kind(), RouteOutcome::Component);
                self.send_by_route(&**route, &stanza, from, to, work);
            }
            Domain::Remote(route) => {
                self.metrics.routed(stanza.kind(), RouteOutcome::Remote);
                match route {
                    Some(route) => self.send_by_route(&**route, &stanza, from, to, work),
                    None => {
                        let error = StanzaError::new(StanzaCondition::RemoteServerNotFound);
                        self.bounce(&stanza, from, to, &error, work);
                    }
                }
            }
        }
    }

    fn send_by_route(
        self: &Arc<Self>,
        route: &dyn DomainRoute,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        if let Err(error) = route.send(stanza, from, to) {
            self.bounce(stanza, from, to, &error, work);
        }
    }

    /// Returns an error to the sender of a stanza, unless errors are not allowed for it.
    pub(crate) fn bounce(
        self: &Arc<Self>,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        error: &StanzaError,
        work: &mut RoutingWork,
    ) {
        let addresses = (Some(to.as_str()), from.as_str());
        if let Some(stanza) = build_error_reply(stanza.bytes(), stanza.head(), addresses, error) {
            self.metrics.stanzas_bounced.inc([error.condition.as_str()]);
            stanza.mark_server_answer();
            // Ends here, because an error never bounces again.
            self.route(stanza, to, from, work);
        }
    }

    /// Like [`Node::bounce`], for the sender's own session; the error comes from the `to` that the client
    /// wrote.
    pub(crate) fn bounce_to_session(
        self: &Arc<Self>,
        session: &Arc<Session>,
        bytes: &[u8],
        head: &stanza::Head,
        to: Option<JidRef<'_>>,
        error: &StanzaError,
        work: &mut RoutingWork,
    ) {
        let from = to.map(|t| t.as_str());
        if let Some(stanza) = build_error_reply(bytes, head, (from, session.full().as_str()), error) {
            self.metrics.stanzas_bounced.inc([error.condition.as_str()]);
            stanza.mark_server_answer();
            self.push(session, stanza, ToRewrite::None, work);
        }
    }

    /// Puts a stanza into the queue of one session, after the `deliver` chain.
    pub fn push(
        self: &Arc<Self>,
        session: &Arc<Session>,
        stanza: SharedStanza,
        to_rewrite: ToRewrite,
        work: &mut RoutingWork,
    ) {
        let is_incomplete = session.flags.has(crate::session::flags::MAY_LACK_ROSTER_PUSH);
        let stanza = if is_incomplete { stanza.with_incomplete_roster_version() } else { stanza };
        if let Err(back) = self.try_push(session, QueuedStanza::new(stanza, to_rewrite)) {
            self.reroute_undelivered(session, UndeliveredStanza { item: back.item, sent_at: None }, work);
        }
    }
}

/// Error reply to a stanza; `None` if none is allowed. The original is omitted if the reply cannot be parsed
/// with it.
fn build_error_reply(
    bytes: &[u8],
    head: &stanza::Head,
    (from, to): (Option<&str>, &str),
    error: &StanzaError,
) -> Option<SharedStanza> {
    let reply = error.reply(bytes, head, from, Some(to))?;
    SharedStanza::parse(&reply).or_else(|| {
        let error = error.clone().without_request();
        SharedStanza::parse(&error.reply(bytes, head, from, Some(to))?)
    })
}
