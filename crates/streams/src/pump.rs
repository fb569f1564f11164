//! The pump of a bound stream: elements in, queue out. RFC 6120 sections 8 and 10.
//!
//! One poll reads what is there, then writes what is queued in as few system calls as possible; several stanzas
//! that arrive together for the same receiver leave together. Reading stops while a stanza waits for the store
//! (order), and while the peer does not read (memory).
//!
//! The trap: whatever leaves `write` with frames in the queue must know who wakes the task: the socket (it was not
//! writable) or the task itself. The link wakes it only for what is new.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::spawn::BoxFuture;
use net::{Event, Scratch, Transport};
use stanza::{Element, Head, IqType, Kind, StanzaCondition, StanzaError, StreamCondition, StreamError};
use throng_core::inquiry::Facts;
use throng_core::session::ack::ASK_AGAIN_SECONDS;
use throng_core::session::{Batch, Item, Stamp, Taken, flags};
use throng_core::{Frame, Ingest, Node, Session};
use xml::{Ns, Scope, Tree};

use crate::c2s::{Connection, Next};
use crate::sm;

/// Elements read in one poll before other tasks get their turn.
const FAIR: usize = 128;
/// Output is filled up to here from the queue. What is unsent is less than twice this and one stanza.
const ENOUGH: usize = 32 * 1024;
/// Times that one poll fills the output before other tasks get their turn.
const ROUNDS: usize = 16;

thread_local! {
    static BATCH: RefCell<Batch> = RefCell::new(Batch::new());
}

impl Connection {
    pub(crate) fn pump(&mut self, session: &Arc<Session>, cx: &mut Context<'_>, lent: &mut Scratch) -> Next {
        let now = self.service.node.seconds();
        if self.link.wanted()
            && let Some(next) = self.let_go(session, cx)
        {
            return next;
        }
        if self.link.inquired() {
            let facts = self.facts(session, now);
            self.service.node.inquired(&self.link, Some(facts));
        }
        if let Some(next) = self.alarm(session, now) {
            return next;
        }
        if let Some(next) = self.read(session, now, cx, lent) {
            return next;
        }
        self.write(session, now, cx, lent)
    }

    /// What this connection knows of itself. The alarm tells since when the peer is silent: it is set anew with whatever
    /// is read.
    fn facts(&self, session: &Session, now: u32) -> Facts {
        let facts = self.stream.facts();
        let limits = self.service.node.limits();
        let left = self.link.deadline().saturating_sub(now);
        let waits =
            session.flags.has(flags::MANAGED) && (self.link.asked().is_some() || self.link.is_stalled());
        let silent = match (self.blocked, self.probed) {
            (0, true) => Some(
                limits.idle_ping_seconds.saturating_add(limits.ping_timeout_seconds.saturating_sub(left)),
            ),
            (0, false) if !waits => Some(limits.idle_ping_seconds.saturating_sub(left)),
            _ => None,
        };
        let transport = format!("{:?}", facts.transport).to_lowercase();
        Facts { peer: facts.peer, transport, secure: facts.secure, silent }
    }

    /// Another connection wants the session: it gets it when the stanza that is under way is where it belongs. `None` if
    /// it does not want it any more.
    fn let_go(&mut self, session: &Arc<Session>, cx: &mut Context<'_>) -> Option<Next> {
        self.link.register(cx);
        match self.finish_stanza(session, cx) {
            Poll::Pending => Some(Next::Sleep),
            Poll::Ready(Err(error)) => Some(Next::End(Some(error))),
            Poll::Ready(Ok(())) => self.link.release().then_some(Next::Replaced),
        }
    }

    /// Waits for the stanza that is under way, and counts it.
    fn finish_stanza(
        &mut self,
        session: &Arc<Session>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), StreamError>> {
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(Ok(())) };
        let done = match guarded(session, || waiting.as_mut().poll(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => {
                self.handled(session);
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.waiting = None;
        Poll::Ready(done)
    }

    /// A stanza is where it must survive.
    fn handled(&self, session: &Session) {
        if session.flags.has(flags::MANAGED) {
            self.link.count_handled();
        }
    }

    /// Sets the alarm for silence: of everything, or of the acknowledgement that was asked for.
    fn rest(&self, session: &Session, now: u32) {
        let limits = self.service.node.limits();
        let mut deadline = now.saturating_add(limits.idle_ping_seconds);
        if session.flags.has(flags::MANAGED) {
            if let Some(asked) = self.link.asked() {
                deadline = deadline.min(asked.saturating_add(limits.ping_timeout_seconds));
            } else if self.link.is_stalled() {
                deadline = deadline.min(now.saturating_add(ASK_AGAIN_SECONDS));
            }
        }
        self.link.set_deadline(deadline);
    }

    /// Reads until there is nothing more, or until a stanza has to wait.
    fn read(
        &mut self,
        session: &Arc<Session>,
        now: u32,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Option<Next> {
        for count in 0.. {
            match self.finish_stanza(session, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => return None,
                Poll::Ready(Err(error)) => return Some(Next::End(Some(error))),
            }
            // A peer that does not read is not read from either.
            if self.blocked != 0 {
                return None;
            }
            if self.slowed(now) {
                return None;
            }
            if count == FAIR {
                cx.waker().wake_by_ref();
                return None;
            }
            let event = match self.stream.poll_event(cx, lent) {
                Poll::Pending => return None,
                Poll::Ready(Err(error)) => return Some(self.failed(error)),
                Poll::Ready(Ok(event)) => event,
            };
            if count == 0 {
                self.probed = false;
                self.rest(session, now);
                self.service.node.follow_rates(session, self.is_local());
            }
            let taken = match event {
                Event::Element(bytes) => {
                    let taken = guarded(session, || take_element(self, session, bytes));
                    let bytes = bytes.len();
                    self.charge(session, bytes, now);
                    taken.and_then(|taken| taken)
                }
                Event::Close => return Some(Next::End(None)),
                Event::Eof => return Some(Next::Gone),
                // RFC 6120 section 4.9.3.1: no second header without a restart.
                Event::Open(_) => Err(StreamError::new(StreamCondition::BadFormat)),
            };
            match taken {
                Ok(Taking::Done) => self.handled(session),
                Ok(Taking::Wait(later)) => self.waiting = Some(later),
                Ok(Taking::Nonza) => {}
                Ok(Taking::Acknowledged) => self.rest(session, now),
                Ok(Taking::Said(answer)) => self.stream.queue(&answer, lent),
                Ok(Taking::Farewell) => return Some(Next::End(None)),
                Err(error) => return Some(Next::End(Some(error))),
            }
        }
        None
    }

    /// Counts what was read against the limits of the session.
    fn charge(&mut self, session: &Session, bytes: usize, now: u32) {
        if let Some((class, until)) = session.rates(|rates| rates.read(bytes, now)).flatten() {
            self.slowed = until;
            self.service.node.metrics.limited(class);
        }
    }

    /// Whether the session has sent too much for now. The sweep wakes it when it is read from again.
    fn slowed(&mut self, now: u32) -> bool {
        let until = self.slowed;
        if until == 0 {
            return false;
        }
        let over = now >= until;
        if over {
            self.slowed = 0;
        }
        let idle = now.saturating_add(self.service.node.limits().idle_ping_seconds);
        self.link.set_deadline(if over { idle } else { until });
        !over
    }

    /// Writes what is queued.
    fn write(&mut self, session: &Arc<Session>, now: u32, cx: &mut Context<'_>, lent: &mut Scratch) -> Next {
        for _ in 0..ROUNDS {
            let taken = if !self.stream.takes_output() {
                // Nobody waits for it; the queue keeps it, with the promises that the queue makes.
                Taken { ending: self.link.register(cx), more: false, ask: false }
            } else if self.stream.unsent() < ENOUGH {
                self.fill(session, now, cx, lent)
            } else {
                Taken { ending: self.link.register(cx), more: true, ask: false }
            };
            let before = self.stream.unsent();
            match self.stream.poll_flush(cx, lent) {
                Poll::Ready(Ok(())) => {
                    self.service.node.written(&self.link);
                    if std::mem::take(&mut self.blocked) != 0 {
                        self.link.put_off(now);
                        self.rest(session, now);
                        // There is room again: take what has piled up, and read on.
                        return Next::Again;
                    }
                    if taken.more {
                        continue;
                    }
                }
                Poll::Ready(Err(error)) => return self.failed(error),
                Poll::Pending => {
                    // A slow peer is not a dead one: its time begins anew with everything that it takes.
                    if self.blocked == 0 || self.stream.unsent() < before {
                        self.blocked = now.max(1);
                        let patience = self.service.node.limits().write_stall_timeout_seconds;
                        self.link.set_deadline(now.saturating_add(patience));
                    }
                }
            }
            return if taken.ending { Next::End(self.link.wish()) } else { Next::Sleep };
        }
        cx.waker().wake_by_ref();
        Next::Sleep
    }

    /// Moves a part of the queue into the output: with more than that unsent, the limits of the queue do the rest.
    fn fill(&mut self, session: &Session, now: u32, cx: &mut Context<'_>, lent: &mut Scratch) -> Taken {
        BATCH.with_borrow_mut(|batch| {
            let taken = self.link.take_some(cx, batch, ENOUGH as u32, now);
            for item in batch.drain(..) {
                put(&mut self.stream, session, &item, lent);
            }
            if batch.spilled() {
                // Taking swaps: the next queue would get this one's memory, and keep it while idle.
                *batch = Batch::new();
            }
            if taken.ask
                && let Some(terms) = self.link.terms()
            {
                self.stream.queue(sm::request(terms), lent);
                let patience = self.service.node.limits().ping_timeout_seconds;
                self.link.set_deadline(self.link.deadline().min(now.saturating_add(patience)));
            }
            taken
        })
    }

    /// Before the stream ends, the peer gets what was meant for it (RFC 6120 section 4.4): answers to what it sent
    /// before its closing tag, stanzas before an error. One that may be dead gets nothing; see `leftover`. One that
    /// acknowledges will not do so any more, and gets no messages: they would arrive twice.
    pub(crate) fn last_frames(&mut self, session: &Session, cx: &mut Context<'_>, lent: &mut Scratch) {
        if session.flags.has(flags::MANAGED) {
            let mut answers = Batch::new();
            self.link.take_answers(&mut answers);
            for item in answers.iter().filter(|_| self.blocked == 0 && !self.probed) {
                put(&mut self.stream, session, item, lent);
            }
            return;
        }
        let now = self.service.node.seconds();
        while self.blocked == 0 && !self.probed && self.stream.unsent() < ENOUGH && self.stream.takes_output()
        {
            let more = self.fill(session, now, cx, lent).more;
            if !more || !matches!(self.stream.poll_flush(cx, lent), Poll::Ready(Ok(()))) {
                return;
            }
        }
    }

    /// What the sweep's alarm means for a bound stream: silence, or a peer that does not read.
    fn alarm(&mut self, session: &Arc<Session>, now: u32) -> Option<Next> {
        if !self.link.rang() {
            return None;
        }
        let limits = self.service.node.limits();
        if self.blocked != 0 {
            if now.saturating_sub(self.blocked) >= limits.write_stall_timeout_seconds {
                tracing::info!(jid = %session.jid, "closed: the client does not read");
                return Some(Next::Lost(
                    StreamError::new(StreamCondition::ResourceConstraint).text("the client does not read"),
                ));
            }
            return None;
        }
        // Nothing was heard because nothing was read.
        if now < self.link.deadline() || self.slowed != 0 {
            return None;
        }
        if session.flags.has(flags::MANAGED)
            && self.link.asked().is_some_and(|asked| now.saturating_sub(asked) >= limits.ping_timeout_seconds)
        {
            return Some(Next::Lost(
                StreamError::new(StreamCondition::ConnectionTimeout).text("no acknowledgement"),
            ));
        }
        if self.link.is_stalled() {
            // The write that follows asks, and sets the alarm for the answer. It also is a question for a sign of life.
            self.link.ask_again();
            self.link.set_deadline(now.saturating_add(limits.idle_ping_seconds));
            return None;
        }
        // The roster that the login read is of no use any more if nobody asked for it by now.
        session.account.with(|state| drop(state.take_prefetched()));
        session.drop_full_rates(now);
        if self.stream.facts().transport == Transport::Bosh {
            // Every request is a sign of life, and a session without one ends by itself (XEP-0124 section 10). A ping would
            // only wake a radio (XEP-0286 section 4).
            self.link.set_deadline(now.saturating_add(limits.idle_ping_seconds));
            return None;
        }
        if self.probed {
            // RFC 6120 section 4.6.1.
            return Some(Next::Lost(
                StreamError::new(StreamCondition::ConnectionTimeout).text("no sign of life"),
            ));
        }
        let probe = session.account.host().idle_probe.and_then(|make| make(session));
        let Some(frame) = probe else {
            self.link.set_deadline(now.saturating_add(limits.idle_ping_seconds));
            return None;
        };
        self.probed = true;
        self.link.set_deadline(now.saturating_add(limits.ping_timeout_seconds));
        self.service.node.enqueue(session, frame, Stamp::None);
        None
    }
}

/// What became of an element.
enum Taking {
    /// The stanza is where it belongs.
    Done,
    /// No stanza, and nothing more to do.
    Nonza,
    /// An acknowledgement was taken.
    Acknowledged,
    /// No stanza; this is to be said.
    Said(Vec<u8>),
    /// It will be, later; until then nothing is read.
    Wait(BoxFuture<'static, ()>),
    /// It was the client's stream error: the stream ends (RFC 6120 section 4.9.1.1).
    Farewell,
}

static CLIENT: Scope = Scope::client();

/// A fault of ours ends this stream (RFC 6120 section 4.9.3.8) and no other.
fn guarded<T>(session: &Session, work: impl FnOnce() -> T) -> Result<T, StreamError> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        tracing::error!(jid = %session.jid, "a stanza's handling panicked; the stream is closed");
        StreamError::new(StreamCondition::InternalServerError)
    })
}

/// Hands one element to the engine.
fn take_element(
    connection: &Connection,
    session: &Arc<Session>,
    bytes: &[u8],
) -> Result<Taking, StreamError> {
    let limits = &connection.service.limits;
    let node = &connection.service.node;
    match Element::read(bytes, &connection.scope, limits)? {
        Element::Stanza(head) => take_stanza(connection, session, bytes, &head),
        Element::NotPortable => {
            let mut out = Vec::with_capacity(bytes.len() + 64);
            xml::normalise(bytes, &connection.scope, limits, &mut out)?;
            match Element::read(&out, &CLIENT, limits)? {
                Element::Stanza(head) => take_stanza(connection, session, &out, &head),
                Element::BadType(head) => Ok(bad_type(node, session, &out, &head)),
                Element::Other { ns: Some(ns @ (Ns::Sm3 | Ns::Sm2)), name, .. } => {
                    take_management(session, ns, name, &out, &CLIENT, limits)
                }
                _ => Err(StreamCondition::UnsupportedStanzaType.into()),
            }
        }
        Element::BadType(head) => Ok(bad_type(node, session, bytes, &head)),
        Element::Other { ns: Some(ns @ (Ns::Sm3 | Ns::Sm2)), name, .. } => {
            take_management(session, ns, name, bytes, &connection.scope, limits)
        }
        Element::Other { ns, ns_text, name } => {
            match ns.and_then(|ns| node.nonza(session, ns, name, bytes)) {
                Some(done) => done.map(|()| Taking::Nonza),
                None => unknown(ns, ns_text, name).map(|()| Taking::Farewell),
            }
        }
    }
}

/// An element of stream management (XEP-0198) on a stream with a resource.
fn take_management(
    session: &Arc<Session>,
    ns: Ns,
    name: &str,
    bytes: &[u8],
    scope: &Scope,
    limits: &xml::Limits,
) -> Result<Taking, StreamError> {
    let managed = session.flags.has(flags::MANAGED);
    if session.account.host().management.is_none() && !managed {
        return unknown(Some(ns), ns.as_str(), name).map(|()| Taking::Farewell);
    }
    let tree = Tree::parse(bytes, scope, limits)?;
    match name {
        "r" if managed => Ok(Taking::Said(sm::answer(session))),
        "a" if managed => sm::acknowledge(session, tree.root()).map(|()| Taking::Acknowledged),
        "enable" => Ok(Taking::Said(sm::enable(session, tree.root()))),
        // A resource is bound: too late (section 5). And nothing is counted before it is agreed on.
        "resume" | "r" | "a" => Ok(Taking::Said(sm::unexpected(ns))),
        _ => unknown(Some(ns), ns.as_str(), name).map(|()| Taking::Farewell),
    }
}

fn take_stanza(
    connection: &Connection,
    session: &Arc<Session>,
    bytes: &[u8],
    head: &Head,
) -> Result<Taking, StreamError> {
    let node = &connection.service.node;
    let counted = session.rates(|rates| rates.stanza(head, bytes, node.seconds()));
    if let Some(Err((class, error))) = counted {
        node.metrics.limited(class);
        node.refuse(session, bytes, head, &error);
        return Ok(Taking::Done);
    }
    let binds = head.kind == Kind::Iq(IqType::Set) && head.first.is_some_and(|f| f.ns == Some(Ns::Bind));
    if binds && head.to(bytes).is_none_or(|to| to == session.account.host().domain()) {
        // RFC 6120 section 7.1: a stream has one resource.
        let error = StanzaError::new(StanzaCondition::NotAllowed).text("this stream has its resource");
        node.refuse(session, bytes, head, &error);
        return Ok(Taking::Done);
    }
    match node.ingest(session, bytes, head) {
        Ingest::Done => Ok(Taking::Done),
        Ingest::Wait(later) => Ok(Taking::Wait(later)),
        Ingest::Fatal(error) => Err(error),
    }
}

/// A first-level element that is no stanza: `Ok` if it is the client's stream error.
///
/// # Errors
/// Everything else ends the stream: RFC 6120 section 4.8.3 for stanzas of another content namespace, section 4.8.4
/// for the rest.
pub(crate) fn unknown(ns: Option<Ns>, ns_text: &str, name: &str) -> Result<(), StreamError> {
    let text = format!("<{name}> in the namespace \"{ns_text}\" is not understood here");
    match (ns, name) {
        (Some(Ns::Stream), "error") => Ok(()),
        (Some(Ns::Client), _) => Err(StreamError::new(StreamCondition::UnsupportedStanzaType).text(text)),
        (_, "message" | "presence" | "iq") => {
            Err(StreamError::new(StreamCondition::InvalidNamespace).text(text))
        }
        _ => Err(StreamError::new(StreamCondition::UnsupportedStanzaType).text(text)),
    }
}

fn bad_type(node: &Arc<Node>, session: &Arc<Session>, bytes: &[u8], head: &Head) -> Taking {
    let error = StanzaError::new(StanzaCondition::BadRequest).text("this stanza has no such type");
    node.refuse(session, bytes, head, &error);
    Taking::Done
}

/// Writes one queue entry, with the receiver's address where the sender left it open.
fn put(stream: &mut net::Stream, session: &Session, item: &Item, lent: &mut Scratch) {
    let frame: &Frame = &item.frame;
    let to = match item.stamp {
        Stamp::None => return stream.queue(frame.bytes(), lent),
        Stamp::Bare => session.bare(),
        Stamp::Full => session.full(),
    };
    let (start, rest) = frame.bytes().split_at(frame.head().insert_at());
    stream.queue(start, lent);
    stream.queue(b" to='", lent);
    let text = to.as_str();
    if text.bytes().any(|b| matches!(b, b'\'' | b'&' | b'<' | b'>' | b'"' | b'\t' | b'\n' | b'\r')) {
        let mut escaped = Vec::with_capacity(text.len() + 16);
        xml::escape::attr(text, &mut escaped);
        stream.queue(&escaped, lent);
    } else {
        stream.queue(text.as_bytes(), lent);
    }
    stream.queue(b"'", lent);
    stream.queue(rest, lent);
}
