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
use net::{Event, Scratch};
use stanza::{Element, Head, IqType, Kind, StanzaCondition, StanzaError, StreamCondition, StreamError};
use throng_core::session::{Batch, Item, Stamp, Taken};
use throng_core::{Frame, Ingest, Node, Session};
use xml::{Ns, Scope};

use crate::c2s::{Connection, Next};
use crate::rates::Rates;

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
        if let Some(next) = self.alarm(session, now) {
            return next;
        }
        if let Some(next) = self.read(session, now, cx, lent) {
            return next;
        }
        self.write(session, now, cx, lent)
    }

    /// Reads until there is nothing more, or until a stanza has to wait.
    fn read(
        &mut self,
        session: &Arc<Session>,
        now: u32,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Option<Next> {
        let node = self.service.node.clone();
        for count in 0.. {
            if let Some(waiting) = &mut self.waiting {
                match guarded(session, || waiting.as_mut().poll(cx)) {
                    Ok(Poll::Ready(())) => self.waiting = None,
                    Ok(Poll::Pending) => return None,
                    Err(error) => {
                        self.waiting = None;
                        return Some(Next::End(Some(error)));
                    }
                }
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
                let limits = node.limits();
                self.link.set_deadline(now.saturating_add(limits.idle_seconds));
                Rates::follow(&mut self.rates, &limits);
            }
            let taken = match event {
                Event::Element(bytes) => {
                    let taken = guarded(session, || take_element(self, session, bytes));
                    self.charge(bytes.len(), now);
                    taken.and_then(|taken| taken)
                }
                Event::Close => return Some(Next::End(None)),
                Event::Eof => return Some(Next::Gone),
                // RFC 6120 section 4.9.3.1: no second header without a restart.
                Event::Open(_) => Err(StreamError::new(StreamCondition::BadFormat)),
            };
            match taken {
                Ok(Taking::Done) => {}
                Ok(Taking::Wait(later)) => self.waiting = Some(later),
                Ok(Taking::Farewell) => return Some(Next::End(None)),
                Err(error) => return Some(Next::End(Some(error))),
            }
        }
        None
    }

    /// Counts what was read against the limits of the session.
    fn charge(&self, bytes: usize, now: u32) {
        if let Some(class) = self.rates.as_ref().and_then(|rates| rates.borrow_mut().read(bytes, now)) {
            self.service.node.metrics.limited(class);
        }
    }

    /// Whether the session has sent too much for now. The sweep wakes it when it is read from again.
    fn slowed(&self, now: u32) -> bool {
        let Some(rates) = &self.rates else { return false };
        let until = rates.borrow().until();
        if until == 0 {
            return false;
        }
        let over = now >= until;
        if over {
            rates.borrow_mut().resume();
        }
        let idle = now.saturating_add(self.service.node.limits().idle_seconds);
        self.link.set_deadline(if over { idle } else { until });
        !over
    }

    /// Writes what is queued.
    fn write(&mut self, session: &Arc<Session>, now: u32, cx: &mut Context<'_>, lent: &mut Scratch) -> Next {
        for _ in 0..ROUNDS {
            let taken = if self.stream.unsent() < ENOUGH {
                self.fill(session, cx, lent)
            } else {
                Taken { ending: self.link.register(cx), more: true }
            };
            let before = self.stream.unsent();
            match self.stream.poll_flush(cx, lent) {
                Poll::Ready(Ok(())) => {
                    if std::mem::take(&mut self.blocked) != 0 {
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
                        let patience = self.service.node.limits().blocked_seconds;
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
    fn fill(&mut self, session: &Session, cx: &mut Context<'_>, lent: &mut Scratch) -> Taken {
        BATCH.with_borrow_mut(|batch| {
            let taken = self.link.take_some(cx, batch, ENOUGH as u32);
            for item in batch.drain(..) {
                put(&mut self.stream, session, &item, lent);
            }
            if batch.spilled() {
                // Taking swaps: the next queue would get this one's memory, and keep it while idle.
                *batch = Batch::new();
            }
            taken
        })
    }

    /// Before the stream ends, the peer gets what was meant for it (RFC 6120 section 4.4): answers to what it sent
    /// before its closing tag, stanzas before an error. One that may be dead gets nothing; see `leftover`.
    pub(crate) fn last_frames(&mut self, session: &Session, cx: &mut Context<'_>, lent: &mut Scratch) {
        while self.blocked == 0 && !self.probed && self.stream.unsent() < ENOUGH {
            let more = self.fill(session, cx, lent).more;
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
            if now.saturating_sub(self.blocked) >= limits.blocked_seconds {
                tracing::info!(jid = %session.jid, "closed: the client does not read");
                return Some(Next::End(Some(
                    StreamError::new(StreamCondition::ResourceConstraint).text("the client does not read"),
                )));
            }
            return None;
        }
        // Nothing was heard because nothing was read.
        if now < self.link.deadline() || self.rates.as_ref().is_some_and(|r| r.borrow().until() != 0) {
            return None;
        }
        // The roster that the login read is of no use any more if nobody asked for it by now.
        session.account.with(|state| drop(state.take_prefetched()));
        if self.probed {
            // RFC 6120 section 4.6.1.
            return Some(Next::End(Some(
                StreamError::new(StreamCondition::ConnectionTimeout).text("no sign of life"),
            )));
        }
        let probe = session.account.host().idle_probe.and_then(|make| make(session));
        let Some(frame) = probe else {
            self.link.set_deadline(now.saturating_add(limits.idle_seconds));
            return None;
        };
        self.probed = true;
        self.link.set_deadline(now.saturating_add(limits.ping_seconds));
        self.service.node.enqueue(session, frame, Stamp::None);
        None
    }
}

/// What became of an element.
enum Taking {
    /// It is where it belongs.
    Done,
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
                _ => Err(StreamCondition::UnsupportedStanzaType.into()),
            }
        }
        Element::BadType(head) => Ok(bad_type(node, session, bytes, &head)),
        Element::Other { ns, ns_text, name } => {
            match ns.and_then(|ns| node.nonza(session, ns, name, bytes)) {
                Some(done) => done.map(|()| Taking::Done),
                None => unknown(ns, ns_text, name).map(|()| Taking::Farewell),
            }
        }
    }
}

fn take_stanza(
    connection: &Connection,
    session: &Arc<Session>,
    bytes: &[u8],
    head: &Head,
) -> Result<Taking, StreamError> {
    let node = &connection.service.node;
    if let Some(rates) = &connection.rates
        && let Err((class, error)) = rates.borrow_mut().stanza(head, bytes, node.seconds())
    {
        node.metrics.limited(class);
        node.refuse(session, bytes, head, &error);
        return Ok(Taking::Done);
    }
    let binds = head.kind == Kind::Iq(IqType::Set) && head.first.is_some_and(|f| f.ns == Some(Ns::Bind));
    if binds && head.to(bytes).is_none_or(|to| to == session.account.host.domain()) {
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
