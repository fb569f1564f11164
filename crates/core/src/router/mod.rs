//! Routing: what a session sends goes in at [`Node::ingest`], what others receive comes out at a link.
//!
//! RFC 6120 sections 8.1 and 10, RFC 6121 section 8.
//!
//! Work that has to wait is collected as futures and handed to the caller, who runs them before it reads the
//! next stanza of the same sender.

pub mod fanout;
mod ingest;
mod local;
mod remote;
mod reply;
pub mod rules;
pub mod table;

use std::sync::Arc;

use base::spawn::BoxFuture;
use jid::{Jid, JidRef};
use stanza::{StanzaCondition, StanzaError};

use crate::effect::{Effect, Effects};
use crate::frame::Frame;
use crate::hooks::{AvailableCtx, Flow, OutgoingCtx, Probe, Ran, Verdict};
use crate::host::Host;
use crate::iq::IqAnswer;
use crate::metrics::Way;
use crate::node::Node;
use crate::session::ack::Left;
use crate::session::{Item, Session, Stamp};

pub use ingest::Ingest;
pub use remote::Arrivals;
pub(crate) use reply::Reply;

/// What is still to be done while a stanza is handled.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) effects: Effects,
    pub(crate) pending: Vec<BoxFuture<'static, Resumed>>,
    /// What is delivered now was delivered before; see [`crate::hooks::DeliveredCtx`].
    pub(crate) again: bool,
}

/// A slow answer came back: what to do besides, and where to go on.
pub(crate) struct Resumed {
    pub(crate) effects: Effects,
    pub(crate) then: Then,
}

/// A place in the chains of a host: a reload may swap hosts while a handler waits.
pub(crate) struct Place {
    pub(crate) host: Arc<Host>,
    pub(crate) at: usize,
}

/// Where to go on.
pub(crate) enum Then {
    Outgoing { session: Arc<Session>, frame: Frame, to: Option<Jid>, place: Place, flow: Flow },
    Incoming { frame: Frame, from: Jid, to: Jid, place: Place, flow: Flow },
    Undelivered { frame: Frame, from: Jid, to: Jid, place: Place, flow: Flow },
    Available { session: Arc<Session>, place: Place, flow: Flow },
    Reply { reply: Reply, answer: IqAnswer },
    Nothing,
}

impl Resumed {
    /// What has to come behind something that waits.
    fn behind(effects: Effects, then: Then) -> BoxFuture<'static, Resumed> {
        Box::pin(std::future::ready(Resumed { effects, then }))
    }
}

impl Node {
    /// Performs all effects; what has to wait comes back as one future.
    pub(crate) fn settle(self: &Arc<Self>, mut work: Work) -> Option<BoxFuture<'static, ()>> {
        self.perform_now(&mut work);
        if work.pending.is_empty() {
            return None;
        }
        self.metrics.blocked_on_store.inc();
        let node = self.clone();
        Some(Box::pin(async move {
            let mut queue = std::collections::VecDeque::from(work.pending);
            while let Some(later) = queue.pop_front() {
                let resumed = later.await;
                let mut work = Work { effects: resumed.effects, ..Work::default() };
                node.perform_now(&mut work);
                if work.pending.is_empty() {
                    node.resume(resumed.then, &mut work);
                    node.perform_now(&mut work);
                } else {
                    work.pending.push(Resumed::behind(Effects::default(), resumed.then));
                }
                // What the resumed stanza waits for comes before anything that was behind it.
                for later in work.pending.into_iter().rev() {
                    queue.push_front(later);
                }
            }
        }))
    }

    /// The same for work that no session waits for.
    pub(crate) fn settle_detached(self: &Arc<Self>, work: Work) {
        if let Some(rest) = self.settle(work) {
            self.spawner.spawn("routing", rest);
        }
    }

    /// Performs effects in order. Behind a routed stanza that has to wait the rest waits as well: what one
    /// handler sends to one recipient must arrive in that order.
    fn perform_now(self: &Arc<Self>, work: &mut Work) {
        while !work.effects.is_empty() {
            let mut effects = std::mem::take(&mut work.effects).0.into_iter();
            while let Some(effect) = effects.next() {
                let (routed, waiting) = (matches!(effect, Effect::Route { .. }), work.pending.len());
                self.perform_one(effect, work);
                if routed && work.pending.len() > waiting && effects.len() > 0 {
                    work.pending.push(Resumed::behind(Effects(effects.collect()), Then::Nothing));
                    break;
                }
            }
        }
    }

    fn perform_one(self: &Arc<Self>, effect: Effect, work: &mut Work) {
        match effect {
            Effect::Send(session, frame) => self.push(&session, frame, Stamp::None, work),
            Effect::SendTo(session, frame) => self.push(&session, frame, Stamp::Bare, work),
            Effect::Route { frame, from, to } => self.route(frame, from.as_ref(), to.as_ref(), work),
            Effect::Push(account, frame) => {
                for session in account.sessions() {
                    if session.flags.has(crate::session::flags::INTERESTED) {
                        self.push(&session, frame.clone(), Stamp::Full, work);
                    }
                }
            }
            Effect::Copy { account, flags, except, frame } => {
                for session in account.sessions() {
                    if session.flags.has(flags) && !except.iter().any(|e| Arc::ptr_eq(e, &session)) {
                        self.push(&session, frame.clone(), Stamp::Full, work);
                    }
                }
            }
            Effect::Broadcast { account, frame, to } => self.broadcast(&account, &frame, to, work),
            Effect::Siblings { except, frame } => {
                for session in except.account.sessions() {
                    if !Arc::ptr_eq(&session, &except) && session.is_available() {
                        self.push(&session, frame.clone(), Stamp::Bare, work);
                    }
                }
            }
            Effect::Close(session, why) => session.link.close(why),
            Effect::Available(session) => {
                let place = Place { host: session.account.host().clone(), at: 0 };
                self.available(session, place, work);
            }
        }
    }

    fn resume(self: &Arc<Self>, then: Then, work: &mut Work) {
        match then {
            Then::Outgoing { session, frame, to, place, flow } => match flow {
                Flow::Stop(verdict) => {
                    self.outgoing_verdict(&session, &frame, to.as_ref().map(Jid::as_ref), verdict, work)
                }
                _ => {
                    let to = to.as_ref().map(Jid::as_ref);
                    self.outgoing_on(&place.host, &session, frame, to, place.at, work);
                }
            },
            Then::Incoming { frame, from, to, place, flow } => match flow {
                Flow::Stop(verdict) => self.verdict(&frame, from.as_ref(), to.as_ref(), verdict, work),
                _ => {
                    self.incoming_on(Some(&place.host), frame, from.as_ref(), to.as_ref(), place.at, work);
                }
            },
            Then::Undelivered { frame, from, to, place, flow } => match flow {
                Flow::Stop(verdict) => self.verdict(&frame, from.as_ref(), to.as_ref(), verdict, work),
                _ => {
                    self.undelivered_on(Some(place.host), frame, from.as_ref(), to.as_ref(), place.at, work);
                }
            },
            Then::Available { session, place, flow } => {
                if !matches!(flow, Flow::Stop(_)) {
                    self.available(session, place, work);
                }
            }
            Then::Reply { reply, answer } => self.reply(reply, answer, work),
            Then::Nothing => {}
        }
    }

    /// Runs the chain for a resource that became available.
    fn available(self: &Arc<Self>, session: Arc<Session>, place: Place, work: &mut Work) {
        let Place { host, at } = place;
        if !host.keeps_messages {
            // A reload came in between: nobody else would clear it.
            session.account.with(|state| state.flushing = false);
        }
        let mut ctx = AvailableCtx { node: self, session: &session, effects: &mut work.effects };
        if let Ran::Wait { next, later } = host.hooks.available.run(&mut ctx, &Probe::EVENT, at) {
            work.pending.push(Box::pin(async move {
                let outcome = later.await;
                let place = Place { host, at: next };
                let then = Then::Available { session, place, flow: outcome.flow };
                Resumed { effects: outcome.effects, then }
            }));
        }
    }

    /// Puts a stanza into the queue of one session; false if the queue is full or the connection gone.
    pub fn enqueue(self: &Arc<Self>, session: &Arc<Session>, frame: Frame, stamp: Stamp) -> bool {
        self.try_push(session, Item::new(frame, stamp)).is_ok()
    }

    /// The same, and past the shares and budgets of what others send; not past the limit of the queue.
    pub fn enqueue_forced(self: &Arc<Self>, session: &Arc<Session>, frame: Frame, stamp: Stamp) -> bool {
        self.push_item(session, Item::new(frame, stamp), true).is_ok()
    }

    /// Runs the sender's chain from handler `at` on, then routes.
    pub(crate) fn outgoing(
        self: &Arc<Self>,
        session: &Arc<Session>,
        frame: Frame,
        to: Option<JidRef<'_>>,
        at: usize,
        work: &mut Work,
    ) {
        self.outgoing_on(session.account.host(), session, frame, to, at, work);
    }

    fn outgoing_on(
        self: &Arc<Self>,
        host: &Arc<Host>,
        session: &Arc<Session>,
        mut frame: Frame,
        to: Option<JidRef<'_>>,
        at: usize,
        work: &mut Work,
    ) {
        let chain = &host.hooks.outgoing;
        if chain.may_want(frame.kind()) {
            let probe = Probe::of(frame.head(), session.flags.get() | session.account.flags.get());
            let mut ctx =
                OutgoingCtx { node: self, session, frame: &mut frame, to, effects: &mut work.effects };
            match chain.run(&mut ctx, &probe, at) {
                Ran::Done => {}
                Ran::Stopped(verdict) => return self.outgoing_verdict(session, &frame, to, verdict, work),
                Ran::Wait { next, later } => {
                    let (session, to) = (session.clone(), to.map(|t| t.to_jid()));
                    let place = Place { host: host.clone(), at: next };
                    work.pending.push(Box::pin(async move {
                        let outcome = later.await;
                        let then = Then::Outgoing { session, frame, to, place, flow: outcome.flow };
                        Resumed { effects: outcome.effects, then }
                    }));
                    return;
                }
            }
        }
        match to {
            Some(to) => self.route(frame, session.full(), to, work),
            // Only presence has no recipient here, and the presence feature takes it.
            None => {
                tracing::debug!(kind = ?frame.kind(), "a stanza without a recipient was not taken by any feature")
            }
        }
    }

    fn outgoing_verdict(
        self: &Arc<Self>,
        session: &Arc<Session>,
        frame: &Frame,
        to: Option<JidRef<'_>>,
        verdict: Verdict,
        work: &mut Work,
    ) {
        if let Verdict::Refused(error) = verdict {
            self.bounce_to_session(session, frame.bytes(), frame.head(), to, &error, work);
        }
    }

    /// Carries out what a chain on the recipient's side decided.
    pub(crate) fn verdict(
        self: &Arc<Self>,
        frame: &Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        verdict: Verdict,
        work: &mut Work,
    ) {
        if let Verdict::Refused(error) = verdict {
            self.bounce(frame, from, to, &error, work);
        }
    }

    /// Routes a stanza whose addresses are stamped.
    pub(crate) fn route(self: &Arc<Self>, frame: Frame, from: JidRef<'_>, to: JidRef<'_>, work: &mut Work) {
        if self.is_local(to.domain()) {
            if to.local().is_none() {
                self.metrics.routed(frame.kind(), Way::Server);
                self.to_server(&frame, from, to, work);
            } else {
                self.metrics.routed(frame.kind(), Way::Local);
                self.incoming(frame, from, to, 0, work);
            }
        } else {
            self.metrics.routed(frame.kind(), Way::Remote);
            let error = StanzaError::new(StanzaCondition::RemoteServerNotFound);
            self.bounce(&frame, from, to, &error, work);
        }
    }

    /// Whether a domain is served here.
    pub(crate) fn is_local(&self, domain: &str) -> bool {
        self.hosts_contain(domain)
    }

    /// Sends an error back to where the stanza came from, unless none may be sent.
    pub(crate) fn bounce(
        self: &Arc<Self>,
        frame: &Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        error: &StanzaError,
        work: &mut Work,
    ) {
        // Presence is never answered for a recipient: it would tell who exists (RFC 6121 section 8.5.1).
        let addresses = (Some(to.as_str()), from.as_str());
        if let Some(frame) = error_frame(frame.bytes(), frame.head(), addresses, error) {
            self.metrics.bounced.inc([error.condition.as_str()]);
            // An error never bounces again, so this ends.
            self.route(frame, to, from, work);
        }
    }

    /// The same for the sender's own session, which may use what it wrote as `to`.
    pub(crate) fn bounce_to_session(
        self: &Arc<Self>,
        session: &Arc<Session>,
        bytes: &[u8],
        head: &stanza::Head,
        to: Option<JidRef<'_>>,
        error: &StanzaError,
        work: &mut Work,
    ) {
        let from = to.map(|t| t.as_str());
        if let Some(frame) = error_frame(bytes, head, (from, session.full().as_str()), error) {
            self.metrics.bounced.inc([error.condition.as_str()]);
            frame.set_servers();
            self.push(session, frame, Stamp::None, work);
        }
    }

    /// Puts a frame into the queue of one session, behind the `deliver` chain.
    pub(crate) fn push(
        self: &Arc<Self>,
        session: &Arc<Session>,
        frame: Frame,
        stamp: Stamp,
        work: &mut Work,
    ) {
        if let Err(back) = self.try_push(session, Item::new(frame, stamp)) {
            self.reroute(session, Left { item: back.item, sent: None }, work);
        }
    }
}

/// The error that answers a stanza; `None` where none may be sent. Where it cannot be read with the original inside, without it.
fn error_frame(
    bytes: &[u8],
    head: &stanza::Head,
    (from, to): (Option<&str>, &str),
    error: &StanzaError,
) -> Option<Frame> {
    let reply = error.reply(bytes, head, from, Some(to))?;
    Frame::read(&reply).or_else(|| {
        let error = error.clone().without_request();
        Frame::read(&error.reply(bytes, head, from, Some(to))?)
    })
}
