//! Delivery to local accounts: RFC 6121 section 8.5, by the decisions of [`super::rules`].

use std::sync::Arc;

use jid::JidRef;
use smallvec::SmallVec;
use stanza::{Kind, MessageType, StanzaCondition, StanzaError};
use store::Subscription;

use super::reply::Request;
use super::rules::{self, Action, Form, Resources};
use super::{Place, Resumed, Then, Work};
use crate::account::Account;
use crate::frame::{Class, Frame};
use crate::hooks::{DeliverCtx, DeliveredCtx, IncomingCtx, Probe, Ran, UndeliveredCtx, Verdict};
use crate::host::Host;
use crate::iq::Target;
use crate::metrics::{Metrics, Way};
use crate::node::Node;
use crate::session::ack::Left;
use crate::session::link::FULL;
use crate::session::shed::is_answer;
use crate::session::{Item, Pushed, Room, Session, Stamp, Urgency, flags};

/// What a queue did not take.
pub(crate) struct Back {
    pub(crate) item: Item,
    /// It had no room; otherwise the connection is gone.
    pub(crate) full: bool,
}

impl Node {
    /// Runs the recipient's chain from handler `at` on, then delivers.
    pub(crate) fn incoming(
        self: &Arc<Self>,
        frame: Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        at: usize,
        work: &mut Work,
    ) {
        self.incoming_on(None, frame, from, to, at, work);
    }

    /// The same with the host that the chain began with.
    pub(super) fn incoming_on(
        self: &Arc<Self>,
        host: Option<&Arc<Host>>,
        mut frame: Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        at: usize,
        work: &mut Work,
    ) {
        let account = self.table.find(to);
        if account.is_none() && !self.cluster.is_single() && self.elsewhere(&frame, to) {
            self.metrics.routed(frame.kind(), Way::Node);
            return;
        }
        let found;
        let host = match (host, &account) {
            (Some(host), _) => host,
            (None, Some(account)) => account.host(),
            (None, None) => match self.host(to.domain()) {
                Some(host) => {
                    found = host;
                    &found
                }
                None => return,
            },
        };
        let chain = &host.hooks.incoming;
        if chain.may_want(frame.kind()) {
            let flags = account.as_ref().map_or(0, |a| a.flags.get());
            let probe = Probe::of(frame.head(), flags);
            let mut ctx = IncomingCtx {
                node: self,
                host,
                account: account.as_ref(),
                frame: &mut frame,
                from,
                to,
                effects: &mut work.effects,
            };
            match chain.run(&mut ctx, &probe, at) {
                Ran::Done => {}
                Ran::Stopped(verdict) => return self.verdict(&frame, from, to, verdict, work),
                Ran::Wait { next, later } => {
                    let (from, to) = (from.to_jid(), to.to_jid());
                    let place = Place { host: host.clone(), at: next };
                    work.pending.push(Box::pin(async move {
                        let outcome = later.await;
                        let then = Then::Incoming { frame, from, to, place, flow: outcome.flow };
                        Resumed { effects: outcome.effects, then }
                    }));
                    return;
                }
            }
        }
        match &account {
            Some(account) => self.deliver(account, frame, from, to, None, work),
            None => self.act(
                (None, None),
                rules::decide(frame.kind(), form(to), Resources::default()),
                frame,
                from,
                to,
                work,
            ),
        }
    }

    /// Delivers to the resources of an account, as if `except` were not there.
    fn deliver(
        self: &Arc<Self>,
        account: &Arc<Account>,
        frame: Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        except: Option<&Arc<Session>>,
        work: &mut Work,
    ) {
        let kind = frame.kind();
        let resource = to.resource();
        let mut known = Resources::default();
        let mut exact = None;
        let mut flushing = false;
        account.with(|state| {
            flushing = state.flushing;
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
        });
        known.exact = exact.is_some();
        known.trusted = match &exact {
            Some(session) if kind.is_request() => trusts(self, account, session, from),
            _ => false,
        };
        // A full address whose resource is the only one that takes what is on its way out of the store.
        let only = known.non_negative == 1 && exact.as_ref().is_some_and(|s| s.priority() >= Some(0));
        match rules::decide(kind, form(to), known) {
            Action::Exact if flushing && only && kept(kind) => self.undelivered(frame, from, to, 0, work),
            Action::Exact => {
                if let Some(session) = exact {
                    if is_answer(kind)
                        && let Some(id) = frame.head().id(frame.bytes())
                        && session.has_asked(from, &id)
                    {
                        frame.set_asked_for();
                    }
                    self.deliver_to(&session, frame, from, to, work);
                }
            }
            // Older messages are still on their way out of the store: this one queues up behind them.
            Action::NonNegative if flushing && kind != Kind::Message(MessageType::Headline) => {
                self.undelivered(frame, from, to, 0, work);
            }
            action => self.act((Some(account), except), action, frame, from, to, work),
        }
    }

    fn deliver_to(
        self: &Arc<Self>,
        session: &Arc<Session>,
        frame: Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut Work,
    ) {
        let watched = watched(&session.account, &frame, work);
        let Back { item, full } = match self.try_push(session, Item::new(frame, Stamp::None)) {
            Ok(()) => {
                if let Some(frame) = watched {
                    self.delivered(&frame, from, to, std::slice::from_ref(session), work);
                }
                return;
            }
            Err(back) => back,
        };
        match item.frame.kind() {
            Kind::Message(_) if self.is_elsewhere(session) => {
                // Another resource is there: nobody waits for this one to come back.
                self.deliver(&session.account, item.frame, from, to.bare(), Some(session), work);
            }
            Kind::Message(_) => self.undelivered(item.frame, from, to, 0, work),
            // RFC 6120 section 8.2.3: a request gets an answer.
            kind if kind.is_request() => {
                let condition = if full { FULL } else { StanzaCondition::ServiceUnavailable };
                self.bounce(&item.frame, from, to, &StanzaError::new(condition), work);
            }
            _ => {}
        }
    }

    /// Whether a session has no connection while another resource of its account takes messages.
    fn is_elsewhere(&self, session: &Arc<Session>) -> bool {
        session.link.is_dormant()
            && session.account.sessions().iter().any(|other| {
                !Arc::ptr_eq(other, session)
                    && !other.is_ended()
                    && !other.link.is_dormant()
                    && other.priority().is_some_and(|priority| priority >= 0)
            })
    }

    /// Runs the chain for what the sessions in `taken` took; all are of one account.
    fn delivered(
        self: &Arc<Self>,
        frame: &Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        taken: &[Arc<Session>],
        work: &mut Work,
    ) {
        let Some(account) = taken.first().map(|session| &session.account) else { return };
        let probe = Probe::of(frame.head(), account.flags.get());
        let mut ctx =
            DeliveredCtx { node: self, account, frame, from, to, taken, effects: &mut work.effects };
        if let Ran::Wait { .. } = account.host().hooks.delivered.run(&mut ctx, &probe, 0) {
            // It is delivered; nothing can wait for anything any more.
            tracing::error!("a handler of what was delivered waits; it is passed over");
        }
    }

    /// Puts a message into the queue of every resource of non-negative priority; returns those that took it.
    pub fn deliver_now(
        self: &Arc<Self>,
        account: &Account,
        frame: &Frame,
        except: Option<&Arc<Session>>,
    ) -> SmallVec<[Arc<Session>; 1]> {
        let mut sessions = account.sessions();
        sessions
            .retain(|s| s.priority().is_some_and(|p| p >= 0) && !except.is_some_and(|e| Arc::ptr_eq(e, s)));
        if sessions.len() > 1 {
            frame.share(sessions.len());
        }
        sessions.retain(|session| {
            let taken = self.try_push(session, Item::new(frame.clone(), Stamp::None)).is_ok();
            taken || {
                frame.give_up();
                false
            }
        });
        sessions
    }

    /// The same, but only if `first` takes it. Runs no chain but `deliver`: for messages that were on their way into the
    /// store.
    pub fn deliver_behind(self: &Arc<Self>, account: &Account, frame: &Frame, first: &Arc<Session>) -> bool {
        let mut others = account.sessions();
        others.retain(|s| s.priority().is_some_and(|p| p >= 0) && !Arc::ptr_eq(first, s));
        if !others.is_empty() {
            frame.share(others.len() + 1);
        }
        // What waited on the desk takes the room that `Link::fits` has found: part of it in the store would change the order.
        let push = |session: &Arc<Session>| {
            let item = Item::new(frame.clone(), Stamp::None);
            let taken = self.push_item(session, item, Arc::ptr_eq(session, first)).is_ok();
            taken || {
                frame.give_up();
                false
            }
        };
        if !push(first) {
            for _ in &others {
                frame.give_up();
            }
            return false;
        }
        for session in &others {
            push(session);
        }
        true
    }

    fn act(
        self: &Arc<Self>,
        (account, except): (Option<&Arc<Account>>, Option<&Arc<Session>>),
        action: Action,
        frame: Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut Work,
    ) {
        match (action, account) {
            (Action::NonNegative, Some(account)) => {
                let taken = self.deliver_now(account, &frame, except);
                if taken.is_empty() {
                    self.undelivered(frame, from, to, 0, work);
                } else if watched(account, &frame, work).is_some() {
                    self.delivered(&frame, from, to, &taken, work);
                }
            }
            (Action::Available, Some(account)) => {
                for session in account.sessions() {
                    if session.is_available() && !except.is_some_and(|e| Arc::ptr_eq(e, &session)) {
                        let _ = self.try_push(&session, Item::new(frame.clone(), Stamp::None));
                    }
                }
            }
            (Action::Undelivered, _) => self.undelivered(frame, from, to, 0, work),
            (Action::Bounce(condition), _) => {
                self.bounce(&frame, from, to, &StanzaError::new(condition), work)
            }
            (Action::Server, _) if frame.kind().is_request() => {
                let host = match account {
                    Some(account) => Some(account.host().clone()),
                    None => self.host(to.domain()),
                };
                let Some(host) = host else { return };
                let own = from.bare().as_str() == to.bare().as_str();
                let target = if own { Target::OwnAccount } else { Target::Account };
                let (head, bytes) = (frame.head(), frame.bytes());
                self.serve(
                    &Request { host: &host, target, session: None, from, to: Some(to), head, bytes },
                    work,
                );
            }
            _ => {}
        }
    }

    /// Runs the chain for messages that nobody took, then bounces.
    pub(crate) fn undelivered(
        self: &Arc<Self>,
        frame: Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        at: usize,
        work: &mut Work,
    ) {
        self.undelivered_on(None, frame, from, to, at, work);
    }

    /// The same with the host that the chain began with.
    pub(super) fn undelivered_on(
        self: &Arc<Self>,
        host: Option<Arc<Host>>,
        frame: Frame,
        from: JidRef<'_>,
        to: JidRef<'_>,
        at: usize,
        work: &mut Work,
    ) {
        if at == 0 {
            self.metrics.routed(frame.kind(), Way::Undelivered);
        }
        let account = self.table.find(to);
        let host = match (host, &account) {
            (Some(host), _) => host,
            (None, Some(account)) => account.host().clone(),
            (None, None) => match self.host(to.domain()) {
                Some(host) => host,
                None => return,
            },
        };
        let flags = account.as_ref().map_or(0, |a| a.flags.get());
        let probe = Probe::of(frame.head(), flags);
        let mut ctx = UndeliveredCtx {
            node: self,
            host: &host,
            account: account.as_ref(),
            frame: &frame,
            from,
            to,
            effects: &mut work.effects,
        };
        match host.hooks.undelivered.run(&mut ctx, &probe, at) {
            Ran::Done => {
                let error = StanzaError::new(StanzaCondition::ServiceUnavailable);
                self.bounce(&frame, from, to, &error, work);
            }
            Ran::Stopped(verdict) => self.verdict(&frame, from, to, verdict, work),
            Ran::Wait { next, later } => {
                let (from, to) = (from.to_jid(), to.to_jid());
                work.pending.push(Box::pin(async move {
                    let outcome = later.await;
                    let place = Place { host, at: next };
                    let then = Then::Undelivered { frame, from, to, place, flow: outcome.flow };
                    Resumed { effects: outcome.effects, then }
                }));
            }
        }
    }

    /// Puts a frame into a queue; gives it back when the queue is full or the connection gone.
    pub(crate) fn try_push(self: &Arc<Self>, session: &Arc<Session>, item: Item) -> Result<(), Back> {
        self.push_item(session, item, false)
    }

    /// The same; `forced` past shares and budgets, not past the limits of the queue.
    pub(super) fn push_item(
        self: &Arc<Self>,
        session: &Arc<Session>,
        item: Item,
        forced: bool,
    ) -> Result<(), Back> {
        let chain = &session.account.host().hooks.deliver;
        let kind = item.frame.kind();
        let mut urgency = if self.gather.wants(session, &item.frame) { Urgency::Soon } else { Urgency::Now };
        if chain.may_want(kind) {
            let probe = Probe::of(item.frame.head(), session.flags.get() | session.account.flags.get());
            let mut ctx = DeliverCtx { node: self, session, frame: &item.frame, urgency: &mut urgency };
            match chain.run(&mut ctx, &probe, 0) {
                // Nothing slow may happen in front of a queue; a handler that waits is passed over.
                Ran::Done | Ran::Wait { .. } => {}
                Ran::Stopped(Verdict::Consumed | Verdict::Refused(_)) => return Ok(()),
            }
        }
        let limits = self.limits();
        let room = Room { limits: &limits, account: Some((&self.ledger, session.bare())), forced };
        let class = item.frame.class();
        match session.link.push_within(item.clone(), urgency, &room) {
            Pushed::Queued => {}
            Pushed::Begun(turn) => self.gather.begin(&session.link, turn, self.clock.now()),
            Pushed::Shed(count) => {
                let reason = if class == Class::Control { "unsolicited" } else { "queue-full" };
                let class = Metrics::class_name(class);
                self.metrics.dropped.add([class, reason], u64::from(count));
                self.metrics.queue_full.inc([class]);
            }
            Pushed::Full(full) => {
                let name = Metrics::class_name(class);
                self.metrics.queue_full.inc([name]);
                self.metrics.queue_refused.inc([name, full.as_str()]);
                if class == Class::Message || kind.is_request() {
                    return Err(Back { item, full: true });
                }
                // Presence, subscription requests (which the store has) and answers: nobody is told.
                let unsolicited = is_answer(kind) && !item.frame.is_asked_for();
                let reason = if unsolicited { "unsolicited" } else { "queue-full" };
                self.metrics.dropped.inc([name, reason]);
                return Ok(());
            }
            Pushed::Closed => return Err(Back { item, full: false }),
        }
        self.metrics.stanza_out(kind);
        session.account.host().traffic.stanza_out(kind);
        Ok(())
    }

    /// A frame that a session will not get: messages go on, requests are answered with an error, the rest ends here.
    pub(crate) fn reroute(self: &Arc<Self>, session: &Arc<Session>, left: Left, work: &mut Work) {
        let frame = &left.item.frame;
        let wanted = frame.class() == Class::Message || frame.kind().is_request();
        // What is stamped while it is written was made for this session, or for each of many: nobody else misses it.
        if !wanted || left.item.stamp != Stamp::None {
            self.metrics.dropped.inc([Metrics::class_name(frame.class()), "session-gone"]);
            return;
        }
        if frame.is_stored() {
            // It still is in the store: what is behind it must not get ahead of it.
            session.account.with(|state| {
                let others = state.sessions.iter().any(|s| {
                    !Arc::ptr_eq(s, session) && !s.is_ended() && s.priority().is_some_and(|p| p >= 0)
                });
                state.waiting = true;
                state.flushing |= others;
            });
            return;
        }
        // Unless another session has it, or will see to it.
        if frame.give_up() {
            work.again = true;
            self.redirect(session, left, work);
            work.again = false;
        }
    }

    fn redirect(self: &Arc<Self>, session: &Arc<Session>, left: Left, work: &mut Work) {
        let Left { item: Item { mut frame, .. }, sent } = left;
        let (account, kind, bytes) = (&session.account, frame.kind(), frame.bytes());
        let from = frame.head().from(bytes).and_then(|f| jid::Jid::parse(&f).ok());
        let Some(from) = from else { return };
        let to = frame.head().to(bytes).and_then(|t| jid::Jid::parse(&t).ok());
        let to = to.unwrap_or_else(|| account.jid.clone());
        let (from, to) = (from.as_ref(), to.as_ref());
        // What waited for a connection that did not come back is late as well; since when, nobody noted.
        let sent = sent.or_else(|| session.flags.has(flags::MANAGED).then(|| self.seconds()));
        if let Some(sent) = sent.filter(|_| frame.class() == Class::Message)
            && let Some(late) = account.host().late
        {
            let ago = u64::from(self.seconds().saturating_sub(sent)) * 1000;
            frame = late(&frame, account.host().domain(), self.clock.unix_millis().saturating_sub(ago))
                .unwrap_or(frame);
        }
        // The resource is gone: the rules decide as for one that is not there.
        match rules::decide(kind, form(to), Resources::default()) {
            Action::Undelivered => {
                let others = account.sessions().iter().any(|s| !Arc::ptr_eq(s, session) && !s.is_ended());
                if others {
                    // The recipient's chain has seen it: a second run would stamp and copy it again.
                    self.deliver(account, frame, from, to.bare(), Some(session), work);
                } else {
                    self.undelivered(frame, from, to, 0, work);
                }
            }
            // A normal message to a full address bounces when the resource was never there; here it was
            // accepted, so it is kept.
            Action::Bounce(_) if kind == Kind::Message(MessageType::Normal) => {
                self.undelivered(frame, from, to, 0, work);
            }
            action => self.act((Some(account), Some(session)), action, frame, from, to, work),
        }
    }
}

/// The frame once more, if somebody wants to know who takes it.
fn watched(account: &Account, frame: &Frame, work: &Work) -> Option<Frame> {
    let chain = &account.host().hooks.delivered;
    let wanted = !work.again
        && chain.may_want(frame.kind())
        && chain.wants(&Probe::of(frame.head(), account.flags.get()));
    wanted.then(|| frame.clone())
}

/// Messages that stay behind others of their kind in the store.
fn kept(kind: Kind) -> bool {
    matches!(kind, Kind::Message(MessageType::Chat | MessageType::Normal))
}

/// Whether the sender may know that the recipient's resource is there (RFC 6121 section 8.5.3.1).
fn trusts(node: &Node, account: &Arc<Account>, session: &Arc<Session>, from: JidRef<'_>) -> bool {
    let bare = from.bare();
    bare.as_str() == account.jid.as_ref().as_str()
        || account.host().iq_without_subscription
        // A host of this server may always ask.
        || bare.local().is_none() && bare.as_str() == account.host().domain()
        || node.subscription(account, bare).has(Subscription::FROM)
        || session.with(|state| {
            state.directed.as_ref().is_some_and(|list| list.iter().any(|d| d.as_ref().bare().as_str() == bare.as_str()))
        })
}

fn form(to: JidRef<'_>) -> Form {
    if to.resource().is_some() { Form::Full } else { Form::Bare }
}
