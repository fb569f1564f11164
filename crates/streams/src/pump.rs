//! The pump of a bound stream: elements in, queue out. RFC 6120 sections 8 and 10.
//!
//! One poll reads what is there, then writes what is queued in as few system calls as possible; several stanzas
//! that arrive together for the same receiver leave together. Reading stops while a stanza waits for the store
//! (order), and while the peer does not read (memory).

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll};

use net::{Event, Scratch};
use stanza::{Element, StanzaCondition, StanzaError, StreamCondition, StreamError};
use throng_core::router::Ingest;
use throng_core::session::{Batch, Item, Stamp};
use throng_core::{Frame, Session};

use crate::c2s::{Connection, Next};

/// Elements read in one poll before other tasks get their turn.
const FAIR: usize = 128;
/// With more than this unsent, the queue is left alone: its limits do the rest.
const ENOUGH: usize = 32 * 1024;

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
                match waiting.as_mut().poll(cx) {
                    Poll::Ready(()) => self.waiting = None,
                    Poll::Pending => return None,
                }
            }
            // A peer that does not read is not read from either.
            if self.blocked != 0 {
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
                self.link.set_deadline(now.saturating_add(node.limits.idle_seconds));
            }
            let taken = match event {
                Event::Element(bytes) => take_element(self, session, bytes),
                Event::Close => return Some(Next::End(None)),
                Event::Eof => return Some(Next::Gone),
                // RFC 6120 section 4.9.3.1: no second header without a restart.
                Event::Open(_) => Err(StreamError::new(StreamCondition::BadFormat)),
            };
            match taken {
                Ok(None) => {}
                Ok(Some(later)) => self.waiting = Some(later),
                Err(error) => return Some(Next::End(Some(error))),
            }
        }
        None
    }

    /// Writes what is queued.
    fn write(&mut self, session: &Arc<Session>, now: u32, cx: &mut Context<'_>, lent: &mut Scratch) -> Next {
        let ending = if self.stream.unsent() < ENOUGH {
            BATCH.with_borrow_mut(|batch| {
                let ending = self.link.take(cx, batch);
                for item in batch.drain(..) {
                    put(&mut self.stream, session, &item, lent);
                }
                ending
            })
        } else {
            self.link.register(cx)
        };
        match self.stream.poll_flush(cx, lent) {
            Poll::Ready(Ok(())) => {
                if std::mem::take(&mut self.blocked) != 0 {
                    // There is room again: take what has piled up, and read on.
                    return Next::Again;
                }
            }
            Poll::Ready(Err(error)) => return self.failed(error),
            Poll::Pending => {
                if self.blocked == 0 {
                    self.blocked = now.max(1);
                    self.link.set_deadline(now.saturating_add(self.service.node.limits.blocked_seconds));
                }
            }
        }
        if ending {
            return Next::End(self.link.wish());
        }
        Next::Sleep
    }

    /// What the sweep's alarm means for a bound stream: silence, or a peer that does not read.
    fn alarm(&mut self, session: &Arc<Session>, now: u32) -> Option<Next> {
        if !self.link.rang() {
            return None;
        }
        let limits = &self.service.node.limits;
        if self.blocked != 0 {
            if now.saturating_sub(self.blocked) >= limits.blocked_seconds {
                tracing::info!(jid = %session.jid, "closed: the client does not read");
                return Some(Next::End(Some(
                    StreamError::new(StreamCondition::ResourceConstraint).text("the client does not read"),
                )));
            }
            return None;
        }
        if now < self.link.deadline() {
            return None;
        }
        // The roster that the login read is of no use any more if nobody asked for it by now.
        session.account.with(|state| state.prefetched = None);
        if self.probed {
            // RFC 6120 section 4.6.1.
            return Some(Next::End(Some(
                StreamError::new(StreamCondition::ConnectionTimeout).text("no sign of life"),
            )));
        }
        let probe = session.account.host.idle_probe.and_then(|make| make(session));
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

type Later = Option<base::spawn::BoxFuture<'static, ()>>;

/// Hands one element to the engine.
fn take_element(connection: &Connection, session: &Arc<Session>, bytes: &[u8]) -> Result<Later, StreamError> {
    let limits = &connection.service.limits;
    let node = &connection.service.node;
    let ingest = |bytes: &[u8], head: &stanza::Head| match node.ingest(session, bytes, head) {
        Ingest::Done => Ok(None),
        Ingest::Wait(later) => Ok(Some(later)),
        Ingest::Fatal(error) => Err(error),
    };
    match Element::read(bytes, &connection.scope, limits)? {
        Element::Stanza(head) => ingest(bytes, &head),
        Element::NotPortable => {
            let mut out = Vec::with_capacity(bytes.len() + 64);
            xml::normalise(bytes, &connection.scope, limits, &mut out)?;
            match Element::read(&out, &Scope::CLIENT, limits)? {
                Element::Stanza(head) => ingest(&out, &head),
                Element::BadType(head) => Ok(bad_type(connection, session, &out, &head)),
                _ => Err(StreamCondition::UnsupportedStanzaType.into()),
            }
        }
        Element::BadType(head) => Ok(bad_type(connection, session, bytes, &head)),
        Element::Other { ns_text, name, .. } => Err(StreamError::new(StreamCondition::UnsupportedStanzaType)
            .text(format!("<{name}> in the namespace \"{ns_text}\" is no stanza"))),
    }
}

struct Scope;
impl Scope {
    const CLIENT: xml::Scope = xml::Scope::client();
}

fn bad_type(connection: &Connection, session: &Arc<Session>, bytes: &[u8], head: &stanza::Head) -> Later {
    let error = StanzaError::new(StanzaCondition::BadRequest).text("this stanza has no such type");
    connection.service.node.refuse(session, bytes, head, &error);
    None
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
