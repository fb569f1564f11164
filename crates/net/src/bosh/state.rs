//! The rules of a session, without I/O, locks or a clock. XEP-0124 sections 8 to 14.
//!
//! A request with the next id is *accepted*: its payloads go to the stream, and it is *held* until there is an answer. One
//! that comes too soon is *early* and waits for those before it. What was answered is *cached*, for a client whose
//! connection broke. Requests are always answered in the order of their ids.
//!
//! Left out: who wakes whom is collected in [`Wakes`] and done without the lock.
//! Trap: a request whose connection broke is still held, but nothing may be put into its answer while there is a choice:
//! the client may never come for it. [`State::ready`] and [`State::deliver`] only count requests that are alive.

use super::answer::{self, Condition, Cut, EMPTY, Head, RECOVERABLE};
use super::keys::Keys;
use super::parts::{Agreed, CROWDED, Cached, Early, Given, Held, Over, Read, Reply, Rest, Swept, Wakes};
use super::request::{self, Bad, Item, MAX_RID, Request};
use super::{Body, End};
use base::clock::Millis;
use base::limit::Meter;
use std::task::Waker;

/// An answer that is missed is reported when it was sent so long ago, in milliseconds; it may still be under way before.
const REPORT: u64 = 1000;

/// A session.
pub(super) struct State {
    /// Highest id accepted.
    last: u64,
    held: Vec<Held>,
    early: Vec<Early>,
    given: Vec<Given>,
    cache: Vec<Cached>,
    inbox: Vec<u8>,
    task: Option<Waker>,
    /// The stream wants to say something and found no request.
    starved: bool,
    /// The session request was answered.
    greeted: bool,
    /// The latest request was empty.
    empty: bool,
    /// So was its answer.
    blank: bool,
    ticket: u32,
    /// Seconds of a pause, while there is one.
    pause: Option<u32>,
    /// The latest moment at which a request was answered or broke.
    quiet: Millis,
    /// When the latest new request came.
    arrived: Millis,
    /// It was empty and too soon, and was forgiven.
    forgiven: bool,
    /// An answer that the client seems not to have.
    missed: Option<u64>,
    meter: Meter,
    keys: Option<Box<Keys>>,
    over: Over,
}

impl State {
    /// A session whose first request has this id, and its items for the stream. That request waits as number 0.
    pub(super) fn new(rid: u64, items: Vec<u8>, keys: Option<Keys>, meter: Meter, now: Millis) -> State {
        State {
            last: rid,
            held: vec![Held { rid, ticket: 0, since: now, waker: None, live: true }],
            early: Vec::new(),
            given: Vec::new(),
            cache: Vec::new(),
            inbox: items,
            task: None,
            starved: false,
            greeted: false,
            empty: false,
            blank: false,
            ticket: 0,
            pause: None,
            quiet: now,
            arrived: now,
            forgiven: false,
            missed: None,
            meter,
            keys: keys.map(Box::new),
            over: Over::Open,
        }
    }

    fn live(&self) -> bool {
        self.held.iter().any(|held| held.live) || self.early.iter().any(|early| early.live)
    }

    /// Requests that wait for an answer.
    pub(super) fn waiting(&self) -> usize {
        self.held.iter().filter(|held| held.live).count()
            + self.early.iter().filter(|early| early.live).count()
    }

    fn wake_task(&mut self, wakes: &mut Wakes) {
        self.starved = false;
        wakes.add(self.task.clone());
    }

    /// When [`State::sweep`] has something to do.
    pub(super) fn due(&self, agreed: &Agreed) -> Millis {
        let mut due = Millis::NEVER;
        if let Some(held) = self.held.first() {
            due = due.min(held.since.plus(agreed.patience()));
        }
        if self.held.len() > agreed.most()
            && let Some(held) = self.held.last()
        {
            due = due.min(held.since.plus(CROWDED));
        }
        for early in &self.early {
            due = due.min(early.since.plus(agreed.patience()));
        }
        if !self.live() {
            let seconds = self.pause.unwrap_or(agreed.inactivity);
            due = due.min(self.quiet.plus(u64::from(seconds) * 1000));
        }
        due
    }

    /// Takes a request for this session.
    pub(super) fn request(
        &mut self,
        agreed: &Agreed,
        mut request: Request<'_>,
        now: Millis,
        wakes: &mut Wakes,
    ) -> Reply {
        if self.is_gone() {
            return Reply::Gone;
        }
        if !self.meter.take(1, now) {
            return self.fail(End::Policy, wakes);
        }
        let Some(rid) = request.rid else { return self.fail(End::BadRequest, wakes) };
        if rid <= self.last || self.early.iter().any(|early| early.rid == rid) {
            return self.replay(rid, request.key, now, wakes);
        }
        if let Over::Ended(last) = &mut self.over {
            return last.take().map_or(Reply::Gone, Reply::Last);
        }
        let requests =
            usize::from(agreed.requests) + usize::from(request.pause.is_some() || request.terminate);
        if rid - self.last > requests as u64 {
            return self.fail(End::Sequence, wakes);
        }
        if self.overactive(agreed, &request, rid, requests, now) {
            return self.fail(End::Policy, wakes);
        }
        let empty = request.is_empty();
        let rest = Rest { ack: request.ack, pause: request.pause, empty: empty && !request.terminate };
        let mut items = match std::mem::replace(&mut request.items, Ok(Vec::new())) {
            Ok(items) if self.unread() + items.len() > agreed.unread => {
                return self.fail(End::Policy, wakes);
            }
            Ok(items) => items,
            Err(Bad::Form) => return self.fail(End::BadRequest, wakes),
            Err(Bad::Limit) => return self.fail(End::Policy, wakes),
        };
        if request.restart {
            request::push(&mut items, Item::Open, &request.header(agreed.to.as_deref()));
        }
        if request.terminate {
            request::push(&mut items, Item::Close, b"");
        }
        self.arrived = now;
        self.empty = rest.empty;
        self.blank = false;
        self.pause = None;
        self.ticket = self.ticket.wrapping_add(1);
        let ticket = self.ticket;
        if rid != self.last + 1 {
            let own = |text: Option<&str>| text.map(Into::into);
            let (key, newkey) = (own(request.key), own(request.newkey));
            let early = Early { rid, ticket, since: now, waker: None, live: true, items, rest, key, newkey };
            self.early.push(early);
            return Reply::Early(ticket);
        }
        if !self.proven(agreed, rid, request.key, request.newkey) {
            return self.fail(End::Sequence, wakes);
        }
        let held = Held { rid, ticket, since: now, waker: None, live: true };
        self.accept(agreed, held, items, rest, now, wakes);
        while let Some(at) = self.early.iter().position(|early| early.rid == self.last + 1) {
            let mut early = self.early.remove(at);
            let (key, newkey) = (early.key.take(), early.newkey.take());
            if !self.proven(agreed, early.rid, key.as_deref(), newkey.as_deref()) {
                // It has its place among those that are told.
                self.early.push(early);
                return self.fail(End::Sequence, wakes);
            }
            let Early { rid, ticket, since, waker, live, items, rest, .. } = early;
            self.accept(agreed, Held { rid, ticket, since, waker, live }, items, rest, now, wakes);
        }
        if self.starved || !self.inbox.is_empty() {
            self.wake_task(wakes);
        } else {
            self.settle(agreed, now, wakes);
        }
        Reply::Wait(ticket)
    }

    fn unread(&self) -> usize {
        self.inbox.len() + self.early.iter().map(|early| early.items.len()).sum::<usize>()
    }

    /// Sections 11 and 12: too many requests at a time, or empty ones too soon. One that is too soon while another one is
    /// held is forgiven: a page that was loaded again sends it before anybody knows that the old page is gone.
    fn overactive(
        &mut self,
        agreed: &Agreed,
        request: &Request<'_>,
        rid: u64,
        requests: usize,
        now: Millis,
    ) -> bool {
        if self.held.len() + self.early.len() + 1 > requests {
            return true;
        }
        let soon = now.since(self.arrived) < u64::from(agreed.polling) * 1000;
        let forgiven = std::mem::take(&mut self.forgiven);
        if !soon || !request.is_empty() || request.pause.is_some() || request.terminate {
            return false;
        }
        if agreed.polls() {
            return self.empty && self.blank && self.held.is_empty();
        }
        // One that a newer request has overtaken was made when nothing was held; only the last one may be at fault.
        if self.early.iter().any(|early| early.rid > rid) {
            return false;
        }
        // One whose connection broke is none that the client is still waiting for.
        self.forgiven = self.waiting() + 1 == usize::from(agreed.requests);
        self.forgiven && forgiven
    }

    /// Section 15: whether the key of the next request is the right one, where there are keys.
    fn proven(&mut self, agreed: &Agreed, rid: u64, key: Option<&str>, newkey: Option<&str>) -> bool {
        let keep = usize::from(agreed.requests) + 1;
        self.keys.as_mut().is_none_or(|keys| keys.accept(rid, key, newkey, keep))
    }

    /// The next request in order.
    fn accept(
        &mut self,
        agreed: &Agreed,
        held: Held,
        items: Vec<u8>,
        rest: Rest,
        now: Millis,
        wakes: &mut Wakes,
    ) {
        let rid = held.rid;
        self.last = rid;
        self.held.push(held);
        if self.inbox.is_empty() {
            self.inbox = items;
        } else {
            self.inbox.extend_from_slice(&items);
        }
        if agreed.acks {
            self.acknowledge(rest.ack, rid, now);
        }
        if let Some(pause) = rest.pause
            && pause <= agreed.max_pause_seconds
        {
            // Section 10: everything is answered at once, and without payloads.
            while !self.held.is_empty() {
                self.answer_blank(agreed, now, wakes);
            }
            self.pause = Some(pause);
        } else if let Some(missed) = self.missed.take() {
            self.report(agreed, missed, now, wakes);
        }
    }

    /// Section 8.2: what the client has need not be kept, and what it seems not to have it is told of.
    fn acknowledge(&mut self, ack: Option<u64>, rid: u64, now: Millis) {
        // Without the attribute the client has the answers to all requests before.
        let ack = ack.unwrap_or(rid - 1);
        self.cache.retain(|cached| cached.rid > ack);
        let missed = self.cache.iter().find(|cached| cached.rid == ack + 1);
        self.missed = missed.filter(|cached| now.since(cached.at) >= REPORT).map(|cached| cached.rid);
    }

    fn report(&mut self, agreed: &Agreed, rid: u64, now: Millis, wakes: &mut Wakes) {
        let Some(at) = self.cache.iter().find(|cached| cached.rid == rid).map(|cached| cached.at) else {
            return;
        };
        let Some(held) = self.held.first() else { return };
        let head = Head { report: Some((rid, now.since(at))), ..self.head(agreed, held.rid) };
        let body = answer::body(&head, b"");
        self.answer(agreed, body, true, now, wakes);
    }

    /// Section 14.3: a request that was received before.
    fn replay(&mut self, rid: u64, key: Option<&str>, now: Millis, wakes: &mut Wakes) -> Reply {
        self.ticket = self.ticket.wrapping_add(1);
        let ticket = self.ticket;
        if let Some(early) = self.early.iter_mut().find(|early| early.rid == rid) {
            if early.key.as_deref() != key {
                return self.fail(End::Sequence, wakes);
            }
            let before = std::mem::replace(&mut early.ticket, ticket);
            (early.since, early.live) = (now, true);
            let waker = early.waker.take();
            self.give(before, RECOVERABLE, waker, wakes);
            return Reply::Repeat(ticket);
        }
        if self.keys.as_ref().is_some_and(|keys| !keys.repeats(rid, key)) {
            return self.fail(End::Sequence, wakes);
        }
        if let Some(held) = self.held.iter_mut().find(|held| held.rid == rid) {
            let before = std::mem::replace(&mut held.ticket, ticket);
            let was_live = std::mem::replace(&mut held.live, true);
            held.since = now;
            let waker = held.waker.take();
            if was_live {
                self.give(before, RECOVERABLE, waker, wakes);
            }
            if self.starved {
                self.wake_task(wakes);
            }
            return Reply::Repeat(ticket);
        }
        match self.cache.iter().find(|cached| cached.rid == rid) {
            Some(cached) => {
                self.quiet = now;
                Reply::Again(cached.body.clone())
            }
            None => match &mut self.over {
                Over::Ended(last @ Some(_)) => last.take().map_or(Reply::Gone, Reply::Last),
                _ => self.fail(End::Sequence, wakes),
            },
        }
    }

    /// Hands an answer to whoever holds a ticket.
    fn give(&mut self, ticket: u32, body: Body, waker: Option<Waker>, wakes: &mut Wakes) {
        self.given.push(Given { ticket, body });
        wakes.add(waker);
    }

    fn head(&self, agreed: &Agreed, rid: u64) -> Head<'static> {
        Head {
            created: (!self.greeted).then(|| agreed.created(rid)),
            ack: (agreed.acks && self.last != rid).then_some(self.last),
            ..Head::default()
        }
    }

    /// Answers the oldest request.
    fn answer(&mut self, agreed: &Agreed, body: Body, blank: bool, now: Millis, wakes: &mut Wakes) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.remove(0);
        self.greeted = true;
        self.blank |= blank && held.rid == self.last;
        if held.live {
            self.quiet = now;
        }
        if self.cache.len() >= usize::from(agreed.requests) {
            self.cache.remove(0);
        }
        self.cache.push(Cached { rid: held.rid, at: now, body: body.clone() });
        if held.live {
            self.give(held.ticket, body, held.waker, wakes);
        }
    }

    fn answer_blank(&mut self, agreed: &Agreed, now: Millis, wakes: &mut Wakes) {
        let Some(held) = self.held.first() else { return };
        let head = self.head(agreed, held.rid);
        let body =
            if head.created.is_none() && head.ack.is_none() { EMPTY } else { answer::body(&head, b"") };
        self.answer(agreed, body, true, now, wakes);
    }

    /// Answers the requests that are more than may be held, once the stream has seen all that came with them.
    pub(super) fn settle(&mut self, agreed: &Agreed, now: Millis, wakes: &mut Wakes) {
        if self.inbox.is_empty() && matches!(self.over, Over::Open) {
            while self.held.len() > agreed.most() {
                self.answer_blank(agreed, now, wakes);
            }
        }
    }

    /// The session ends because of a request or of silence. What was accepted before is still for the stream to read.
    pub(super) fn fail(&mut self, end: End, wakes: &mut Wakes) -> Reply {
        let others = if end == End::Shutdown { Condition::SystemShutdown } else { Condition::OtherRequest };
        for held in std::mem::take(&mut self.held).into_iter().filter(|held| held.live) {
            self.give(held.ticket, others.body(), held.waker, wakes);
        }
        for early in std::mem::take(&mut self.early).into_iter().filter(|early| early.live) {
            self.give(early.ticket, others.body(), early.waker, wakes);
        }
        self.cache = Vec::new();
        self.over = Over::Lost;
        wakes.add(self.task.take());
        Reply::Failed(end)
    }

    /// Whether the session is of no use to anybody.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.over, Over::Lost | Over::Ended(None))
    }

    /// Whether the stream goes on.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.over, Over::Open)
    }

    /// An answer for the request with this ticket. Without one the waker is kept.
    pub(super) fn poll(&mut self, ticket: u32, waker: &Waker) -> Option<Body> {
        if let Some(at) = self.given.iter().position(|given| given.ticket == ticket) {
            let given = self.given.swap_remove(at);
            if self.given.is_empty() {
                self.given = Vec::new();
            }
            return Some(given.body);
        }
        let held = self.held.iter_mut().map(|held| (held.ticket, &mut held.waker));
        let early = self.early.iter_mut().map(|early| (early.ticket, &mut early.waker));
        let Some((_, place)) = held.chain(early).find(|(found, _)| *found == ticket) else {
            return Some(Condition::ItemNotFound.body());
        };
        if !place.as_ref().is_some_and(|old| old.will_wake(waker)) {
            *place = Some(waker.clone());
        }
        None
    }

    /// The connection of the request with this ticket broke, or its answer was sent.
    pub(super) fn forget(&mut self, ticket: u32, now: Millis) {
        self.given.retain(|given| given.ticket != ticket);
        let held = self.held.iter_mut().find(|held| held.ticket == ticket);
        if let Some(held) = held {
            (held.live, held.waker) = (false, None);
            self.quiet = now;
        } else if let Some(early) = self.early.iter_mut().find(|early| early.ticket == ticket) {
            (early.live, early.waker) = (false, None);
            self.quiet = now;
        }
    }

    /// What time asks for.
    pub(super) fn sweep(&mut self, agreed: &Agreed, now: Millis, wakes: &mut Wakes) -> Swept {
        let late = |since: Millis| since.plus(agreed.patience()) <= now;
        while self.held.first().is_some_and(|held| late(held.since)) {
            self.answer_blank(agreed, now, wakes);
        }
        if self.held.last().is_some_and(|held| held.since.plus(CROWDED) <= now) {
            while self.held.len() > agreed.most() {
                self.answer_blank(agreed, now, wakes);
            }
        }
        while let Some(at) = self.early.iter().position(|early| late(early.since)) {
            // Those before it never came; the client is to send all of them again.
            let early = self.early.remove(at);
            if early.live {
                self.quiet = now;
                self.give(early.ticket, RECOVERABLE, early.waker, wakes);
            }
        }
        let seconds = self.pause.unwrap_or(agreed.inactivity);
        if !self.live() && self.quiet.plus(u64::from(seconds) * 1000) <= now {
            if self.is_open() {
                self.fail(End::Inactivity, wakes);
            } else {
                self.over = Over::Ended(None);
            }
            return Swept::Dead;
        }
        Swept::Lives
    }

    /// The stream reads.
    pub(super) fn read(&mut self, waker: &Waker) -> Read {
        if !self.inbox.is_empty() {
            return Read::Items(std::mem::take(&mut self.inbox));
        }
        if !self.is_open() {
            return Read::End;
        }
        self.register(waker);
        Read::Nothing
    }

    fn register(&mut self, waker: &Waker) {
        if !self.task.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.task = Some(waker.clone());
        }
    }

    /// Whether somebody waits for what the stream has to say. If not, the next request wakes the stream.
    pub(super) fn ready(&mut self, waker: Option<&Waker>) -> bool {
        let ready = self.is_open() && self.held.iter().any(|held| held.live);
        if let Some(waker) = waker {
            self.register(waker);
        }
        self.starved = !ready;
        ready
    }

    /// Puts elements into the answer of the oldest request that is alive. False: there is none.
    pub(super) fn deliver(
        &mut self,
        agreed: &Agreed,
        cut: &Cut,
        payload: &[u8],
        now: Millis,
        wakes: &mut Wakes,
    ) -> bool {
        if !self.is_open() || !self.skip_broken(agreed, now, wakes) {
            return false;
        }
        let Some(held) = self.held.first() else { return false };
        let mut head = self.head(agreed, held.rid);
        head.prefixed = cut.prefixed;
        if let Some(created) = &mut head.created {
            created.opened = cut.opened.as_ref();
        }
        let blank = payload.is_empty() && head.created.is_none();
        let body = if blank && head.ack.is_none() { EMPTY } else { answer::body(&head, payload) };
        self.answer(agreed, body, blank, now, wakes);
        true
    }

    /// Answers what is broken before the first request that is alive, if there is one.
    fn skip_broken(&mut self, agreed: &Agreed, now: Millis, wakes: &mut Wakes) -> bool {
        if !self.held.iter().any(|held| held.live) {
            return false;
        }
        while self.held.first().is_some_and(|held| !held.live) {
            self.answer_blank(agreed, now, wakes);
        }
        true
    }

    /// The stream ends with these words. Section 13: they go to the oldest request, all others are answered.
    pub(super) fn finish(
        &mut self,
        agreed: &Agreed,
        cut: &Cut,
        payload: &[u8],
        now: Millis,
        wakes: &mut Wakes,
    ) {
        if !self.is_open() {
            return;
        }
        let condition = match cut {
            Cut { closed: false, .. } => Some(Condition::RemoteConnectionFailed),
            cut => cut.error,
        };
        let head = Head { terminate: Some(condition), prefixed: cut.prefixed, ..Head::default() };
        let body = answer::body(&head, payload);
        self.task = None;
        self.inbox = Vec::new();
        if !self.skip_broken(agreed, now, wakes) {
            self.held = Vec::new();
            self.over = Over::Ended(Some(body));
            return;
        }
        self.answer(agreed, body, false, now, wakes);
        while !self.held.is_empty() {
            self.answer(agreed, EMPTY, true, now, wakes);
        }
        for early in std::mem::take(&mut self.early).into_iter().filter(|early| early.live) {
            self.give(early.ticket, EMPTY, early.waker, wakes);
        }
        self.over = Over::Ended(None);
    }
}

/// Whether an id may begin a session: there must be others after it.
pub(super) fn may_begin(rid: u64) -> bool {
    rid < MAX_RID
}
