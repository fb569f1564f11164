//! A connection of a client, from accept to close, as one future.
//!
//! RFC 6120 section 4. Three phases: negotiating (boxed, see `negotiate`), bound (see `pump`), closing (see
//! `closing`). Each poll runs the phase until it has nothing to do; buffers are lent by the worker thread for the
//! length of the poll.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::spawn::BoxFuture;
use net::{NetError, Pass, Scratch, Stream};
use stanza::{StreamCondition, StreamError};
use throng_core::{Link, Node, Session};
use xml::Scope;

use crate::closing::Closing;
use crate::dormant::Dormant;
use crate::negotiate::Negotiation;
use crate::service::Service;

/// A connection of a client.
pub struct Connection {
    pub(crate) stream: Stream,
    pub(crate) service: Arc<Service>,
    pub(crate) link: Arc<Link>,
    pub(crate) phase: Phase,
    /// What the last stanza waits for; nothing more is read until it is done.
    pub(crate) waiting: Option<BoxFuture<'static, ()>>,
    /// Namespaces of the client's stream header.
    pub(crate) scope: Scope,
    /// Second since which the peer does not read; 0 while it does.
    pub(crate) blocked: u32,
    /// Second until which nothing is read because the session sent too much; 0 while it did not.
    pub(crate) slowed: u32,
    /// A sign of life was asked for and has not come.
    pub(crate) probed: bool,
    /// Said before a stream error: a SASL or TLS failure.
    pub(crate) last_words: Option<Vec<u8>>,
    /// The place at the gate; it counts until it is dropped.
    pass: Pass,
}

pub(crate) enum Phase {
    Negotiating(Box<Negotiation>),
    Bound(Arc<Session>),
    Closing(Closing),
    Over,
}

/// What a phase wants next.
pub(crate) enum Next {
    /// Nothing to do until something wakes the task.
    Sleep,
    /// Run the (perhaps new) phase again.
    Again,
    /// End the stream: with an error, or in answer to the peer's `</stream:stream>`.
    End(Option<StreamError>),
    /// End the connection without a word: TLS failed, and no stream is left to speak in (RFC 6120 section 5.4.3.2).
    Silent,
    /// The transport is gone.
    Gone,
    /// The peer does not react: the stream ends with this error, the session may be resumed.
    Lost(StreamError),
    /// Another connection has the session.
    Replaced,
}

impl Connection {
    /// A connection that was just accepted.
    pub fn new(stream: Stream, pass: Pass, service: Arc<Service>) -> Connection {
        let link = Arc::new(Link::new());
        let node = &service.node;
        let deadline = node.seconds().saturating_add(node.limits().negotiation_timeout_seconds);
        link.set_deadline(deadline);
        node.links.add(link.clone());
        let phase = Phase::Negotiating(Box::new(Negotiation::new(deadline, node.clock.micros())));
        Connection {
            stream,
            service,
            link,
            phase,
            waiting: None,
            scope: Scope::client(),
            blocked: 0,
            slowed: 0,
            probed: false,
            last_words: None,
            pass,
        }
    }

    fn drive(&mut self, cx: &mut Context<'_>, lent: &mut Scratch) -> Poll<()> {
        loop {
            let next = match &mut self.phase {
                Phase::Negotiating(_) => self.negotiate(cx, lent),
                Phase::Bound(session) => {
                    let session = session.clone();
                    self.pump(&session, cx, lent)
                }
                Phase::Closing(_) => self.close(cx, lent),
                Phase::Over => return Poll::Ready(()),
            };
            match next {
                Next::Again => {}
                Next::Sleep => match self.stream.park(lent) {
                    Ok(()) => return Poll::Pending,
                    Err(error) => {
                        tracing::error!(%error, "a stream lost its buffers");
                        self.leave();
                    }
                },
                Next::End(error) => self.end(error, cx, lent),
                // Whatever broke the encryption is no wish of the client.
                Next::Silent => match self.lose() {
                    true => self.say_last(None, lent),
                    false => self.finish(LOST),
                },
                Next::Gone => match self.lose() {
                    true => self.enter(Phase::Over),
                    false => self.leave(),
                },
                Next::Lost(error) => match self.lose() {
                    true => self.say_last(Some(&error), lent),
                    false => self.end(Some(error), cx, lent),
                },
                Next::Replaced => {
                    self.link = Arc::new(Link::new());
                    let error =
                        StreamError::new(StreamCondition::Conflict).text("the session was resumed elsewhere");
                    self.say_last(Some(&error), lent);
                }
            }
        }
    }

    /// Goes on with a session that another connection has let go of.
    pub(crate) fn adopt(&mut self, session: Arc<Session>) {
        self.service.node.links.remove(&self.link);
        let _ = self.link.end();
        self.link = session.link.clone();
        self.bound(session);
    }

    /// Whether the client is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.stream.facts().peer.ip().to_canonical().is_loopback()
    }

    /// The stream has its session.
    pub(crate) fn bound(&mut self, session: Arc<Session>) {
        // It no longer counts as unauthenticated.
        self.pass.authenticated();
        let node = &self.service.node;
        if let Phase::Negotiating(state) = &self.phase {
            node.metrics.negotiation.record(node.clock.micros().saturating_sub(state.since));
        }
        let now = node.seconds();
        self.link.set_deadline(now.saturating_add(node.limits().idle_ping_seconds));
        // What was spent over an earlier connection is still spent.
        node.follow_rates(&session, self.is_local());
        self.slowed = session.rates(|rates| rates.debt(now)).flatten().map_or(0, |(_, until)| until);
        self.enter(Phase::Bound(session));
    }

    /// The next phase; sessions with a connection are counted by transport.
    fn enter(&mut self, phase: Phase) {
        let counts = |phase: &Phase| matches!(phase, Phase::Bound(_));
        let (before, after) = (counts(&self.phase), counts(&phase));
        if before != after {
            let transport = [self.stream.facts().transport.name()];
            let sessions = &self.service.node.metrics.sessions;
            if after { sessions.inc(transport) } else { sessions.dec(transport) }
        }
        self.phase = phase;
    }

    /// The connection is of no use any more. True if its session waits for another one; this one has a line of its own
    /// then.
    fn lose(&mut self) -> bool {
        let Phase::Bound(session) = &self.phase else { return false };
        if session.link.terms().is_none_or(|terms| terms.seconds == 0) || session.link.wish().is_some() {
            return false;
        }
        let waiting = self.waiting.take();
        Dormant::start(&self.service.node, session, waiting);
        self.link = Arc::new(Link::new());
        true
    }

    /// Says the last words on a stream that has no session any more.
    fn say_last(&mut self, error: Option<&StreamError>, lent: &mut Scratch) {
        if let Some(error) = error {
            let mut out = Vec::with_capacity(128);
            self.write_error(error, &mut out);
            stanza::stream::close(&mut out);
            self.stream.queue(&out, lent);
        }
        self.enter(Phase::Closing(Closing::new(&self.service, &self.link)));
    }

    fn write_error(&self, error: &StreamError, out: &mut Vec<u8>) {
        self.service.node.metrics.stream_errors.inc([error.condition.as_str()]);
        tracing::debug!(peer = %self.stream.facts().peer, condition = error.condition.as_str(), text = error.text.as_deref().unwrap_or_default(), "stream ended");
        error.write(out);
    }

    /// Says the last words and waits for them to leave.
    fn end(&mut self, error: Option<StreamError>, cx: &mut Context<'_>, lent: &mut Scratch) {
        let mut out = Vec::with_capacity(128);
        match &self.phase {
            Phase::Negotiating(negotiation) => negotiation.open_for_error(&self.service, &mut out),
            Phase::Bound(session) => {
                let session = session.clone();
                self.last_frames(&session, cx, lent);
                // So that the client need not send again what has arrived.
                out.extend(crate::sm::answer(&session));
            }
            _ => {}
        }
        out.extend(self.last_words.take().unwrap_or_default());
        if let Some(error) = &error {
            self.write_error(error, &mut out);
        }
        stanza::stream::close(&mut out);
        self.stream.queue(&out, lent);
        self.finish(error.map_or("closed", |error| error.condition.as_str()));
    }

    /// Nothing more will be said; what was said is to arrive.
    fn finish(&mut self, reason: &'static str) {
        self.forget(reason);
        self.enter(Phase::Closing(Closing::new(&self.service, &self.link)));
    }

    /// The transport is gone: nothing more can be said.
    fn leave(&mut self) {
        self.forget(LOST);
        self.enter(Phase::Over);
    }

    /// The session is over as far as others can see. What was still in the queue goes on elsewhere.
    fn forget(&mut self, reason: &'static str) {
        if let Some(waiting) = self.waiting.take() {
            // The stanza was accepted while the stream was whole, so it gets where it belongs.
            self.service.node.spawner.spawn("last stanza", waiting);
        }
        if let Phase::Bound(session) = &self.phase {
            note_ended(&self.service.node, session, reason);
            self.service.node.end_session(session);
            // What was read after somebody else ended it was charged, too.
            self.service.node.keep_rates(session);
        }
        self.service.node.links.remove(&self.link);
        let _ = self.link.end();
    }

    /// Translates a transport error into what is said to the peer.
    pub(crate) fn failed(&self, error: NetError) -> Next {
        match error {
            NetError::Xml(error) => Next::End(Some(error.into())),
            // RFC 7395 section 3.4: stream errors are messages. The closing handshake will say the code.
            NetError::WebSocket(violation) => {
                Next::End(Some(StreamError::new(StreamCondition::BadFormat).text(violation.reason)))
            }
            NetError::TooLong => Next::End(Some(
                StreamError::new(StreamCondition::PolicyViolation).text("the element is larger than allowed"),
            )),
            error => {
                tracing::debug!(peer = %self.stream.facts().peer, %error, "connection lost");
                // The alert, if there is one, is to arrive.
                if matches!(error, NetError::Tls(_)) { Next::Silent } else { Next::Gone }
            }
        }
    }
}

/// Into the log. Before the link leaves the list that knows when it was made.
pub(crate) fn note_ended(node: &Node, session: &Session, reason: &str) {
    let now = node.seconds();
    let since = node.links.since(&session.link, now);
    node.login_log.ended(now, session, reason, now.saturating_sub(since));
}

/// Why a session ended whose connection broke and that nobody may resume.
const LOST: &str = "connection lost";

impl Future for Connection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        net::with_scratch(|lent| self.drive(cx, lent))
    }
}

impl Drop for Connection {
    /// A task that is dropped (the runtime ends) leaves the engine in order all the same.
    fn drop(&mut self) {
        if !matches!(self.phase, Phase::Over | Phase::Closing(_)) {
            self.forget("stopped");
            self.enter(Phase::Over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_fits_its_budget() {
        assert!(size_of::<Connection>() <= 320, "{}", size_of::<Connection>());
    }
}
