//! One client-to-server connection, from accept to close, as a single future.
//!
//! RFC 6120, section 4. The phases are negotiating (boxed, see `negotiate`), bound (see `session_io`) and closing (see
//! `closing`). Each poll runs the current phase until it has nothing to do. Buffers are borrowed from the worker thread
//! for the duration of the poll.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use access::session_log::session_log;
use net::{ConnectionPermit, NetError, Scratch, Stream};
use stanza::{StreamCondition, StreamError};
use throng_core::{Node, Outbox, Session};
use xml::NamespaceContext;

use crate::closing::Closing;
use crate::context::C2sContext;
use crate::detached::DetachedSession;
use crate::drained::drain_error;
use crate::negotiate::Negotiation;
use crate::unfinished::UnfinishedStanzas;

/// A client-to-server connection.
pub struct C2sConnection {
    pub(crate) stream: Stream,
    pub(crate) context: Arc<C2sContext>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) phase: ConnectionPhase,
    /// Stanzas that were read and are not safe yet.
    pub(crate) unfinished: Option<Box<UnfinishedStanzas>>,
    /// Namespaces of the client's stream header.
    pub(crate) scope: NamespaceContext,
    /// Second since which the peer has not accepted output; 0 while it does.
    pub(crate) write_stalled_since: u32,
    /// Second until which reading is suspended because the session exceeded its rate; 0 if it is not throttled.
    pub(crate) throttled_until: u32,
    /// A keep-alive ping was sent and has no answer yet.
    pub(crate) ping_sent: bool,
    /// The outbox keeps messages that the kernel has not taken.
    pub(crate) has_unflushed: bool,
    /// Element sent before a stream error: a SASL or TLS failure.
    pub(crate) final_element: Option<Vec<u8>>,
    /// Permit of the connection limiter; the connection counts until it is dropped.
    permit: ConnectionPermit,
}

pub(crate) enum ConnectionPhase {
    Negotiating(Box<Negotiation>),
    Bound(Arc<Session>),
    Closing(Closing),
    Finished,
}

/// Action of the connection after a phase was polled.
pub(crate) enum PhaseOutcome {
    /// Nothing to do until something wakes the task.
    Sleep,
    /// Poll the current phase, which may have changed, again.
    Again,
    /// End the stream with an error, or in reply to the peer's `</stream:stream>`.
    EndStream(Option<StreamError>),
    /// Close without sending anything: TLS failed, so no stream is left to send on (RFC 6120, section 5.4.3.2).
    CloseSilently,
    /// The transport is closed.
    TransportClosed,
    /// The peer does not respond: the stream ends with this error, and the session may be resumed.
    PeerUnresponsive(StreamError),
    /// Another connection has taken over the session.
    SessionTakenOver,
}

impl C2sConnection {
    /// Creates the connection for an accepted stream.
    pub fn new(stream: Stream, permit: ConnectionPermit, context: Arc<C2sContext>) -> C2sConnection {
        let outbox = Arc::new(Outbox::new());
        let node = &context.node;
        let deadline = node.seconds().saturating_add(node.limits().negotiation_timeout_seconds);
        outbox.set_deadline(deadline);
        node.outboxes.add(outbox.clone());
        let phase =
            ConnectionPhase::Negotiating(Box::new(Negotiation::new(deadline, node.clock.now_micros())));
        C2sConnection {
            stream,
            context,
            outbox,
            phase,
            unfinished: None,
            scope: NamespaceContext::client(),
            write_stalled_since: 0,
            throttled_until: 0,
            ping_sent: false,
            has_unflushed: false,
            final_element: None,
            permit,
        }
    }

    fn drive(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<()> {
        loop {
            let next = match &mut self.phase {
                ConnectionPhase::Negotiating(_) => self.negotiate(cx, scratch),
                ConnectionPhase::Bound(session) => {
                    let session = session.clone();
                    self.poll_bound(&session, cx, scratch)
                }
                ConnectionPhase::Closing(_) => self.close(cx, scratch),
                ConnectionPhase::Finished => return Poll::Ready(()),
            };
            match next {
                PhaseOutcome::Again => {}
                PhaseOutcome::Sleep => match self.stream.release_buffers(scratch) {
                    Ok(()) => return Poll::Pending,
                    Err(error) => {
                        tracing::error!(%error, "a stream could not return its buffers");
                        self.abort();
                    }
                },
                PhaseOutcome::EndStream(error) => self.end_stream(error, cx, scratch),
                // A broken TLS connection does not mean that the client wanted to end its session.
                PhaseOutcome::CloseSilently => match self.detach_session() {
                    true => self.send_final(None, scratch),
                    false => self.close_after_flush(CONNECTION_LOST),
                },
                PhaseOutcome::TransportClosed => match self.detach_session() {
                    true => self.set_phase(ConnectionPhase::Finished),
                    false => self.abort(),
                },
                PhaseOutcome::PeerUnresponsive(error) => match self.detach_session() {
                    true => self.send_final(Some(&error), scratch),
                    false => self.end_stream(Some(error), cx, scratch),
                },
                PhaseOutcome::SessionTakenOver => {
                    self.outbox = Arc::new(Outbox::new());
                    let error = drain_error(&self.context.node).unwrap_or_else(|| {
                        StreamError::new(StreamCondition::Conflict).text("the session was resumed elsewhere")
                    });
                    self.send_final(Some(&error), scratch);
                }
            }
        }
    }

    /// Attaches the connection to a session that another connection has handed over.
    pub(crate) fn attach_session(&mut self, session: Arc<Session>) {
        self.context.node.outboxes.remove(&self.outbox);
        let _ = self.outbox.close_and_drain();
        self.outbox = session.outbox.clone();
        self.on_bound(session);
    }

    /// Whether the client connects from this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.stream.info().peer.ip().to_canonical().is_loopback()
    }

    /// Enters the bound phase.
    pub(crate) fn on_bound(&mut self, session: Arc<Session>) {
        // The connection no longer counts as unauthenticated.
        self.permit.mark_authenticated();
        let node = &self.context.node;
        if let ConnectionPhase::Negotiating(state) = &self.phase {
            node.metrics.negotiation.record(node.clock.now_micros().saturating_sub(state.connected_at));
        }
        let now = node.seconds();
        self.outbox.set_deadline(now.saturating_add(node.limits().idle_ping_seconds));
        // Rates charged on an earlier connection of the session still count.
        node.start_rates(&session, self.is_local());
        self.throttled_until = session.rates(|rates| rates.debt(now)).flatten().map_or(0, |(_, until)| until);
        self.set_phase(ConnectionPhase::Bound(session));
    }

    /// Sets the phase and counts attached sessions per transport.
    fn set_phase(&mut self, phase: ConnectionPhase) {
        let counts = |phase: &ConnectionPhase| matches!(phase, ConnectionPhase::Bound(_));
        let (before, after) = (counts(&self.phase), counts(&phase));
        if before != after {
            let transport = [self.stream.info().transport.name()];
            let sessions = &self.context.node.metrics.sessions;
            if after { sessions.inc(transport) } else { sessions.dec(transport) }
        }
        self.phase = phase;
    }

    /// Detaches the session when the connection has become unusable. True if it was detached or ended; the connection
    /// then has an outbox without a session. False if the session was not resumable and is still attached.
    fn detach_session(&mut self) -> bool {
        let ConnectionPhase::Bound(session) = &self.phase else { return false };
        if session.outbox.management_terms().is_none_or(|terms| terms.resume_seconds == 0)
            || session.outbox.close_reason().is_some()
            // Only a stream that was not closed cleanly is unfinished (XEP-0198, section 7).
            || self.is_closing()
        {
            return false;
        }
        let unfinished = self.unfinished.take();
        DetachedSession::start(&self.context.node, session, unfinished);
        self.outbox = Arc::new(Outbox::new());
        true
    }

    /// Sends the stream error and the closing tag on a stream without a session.
    fn send_final(&mut self, error: Option<&StreamError>, scratch: &mut Scratch) {
        if let Some(error) = error {
            let mut out = Vec::with_capacity(128);
            self.write_error(error, &mut out);
            stanza::stream::write_close(&mut out);
            self.stream.queue(&out, scratch);
        }
        self.set_phase(ConnectionPhase::Closing(Closing::new(&self.context, &self.outbox)));
    }

    fn write_error(&self, error: &StreamError, out: &mut Vec<u8>) {
        self.context.node.metrics.stream_errors.inc([error.condition.as_str()]);
        tracing::debug!(peer = %self.stream.info().peer, condition = error.condition.as_str(), text = error.text.as_deref().unwrap_or_default(), "stream ended");
        error.write(out);
    }

    /// Ends the stream: sends what is pending, the error and the closing tag, then closes after the flush.
    fn end_stream(&mut self, error: Option<StreamError>, cx: &mut Context<'_>, scratch: &mut Scratch) {
        let mut out = Vec::with_capacity(128);
        match &self.phase {
            ConnectionPhase::Negotiating(negotiation) => negotiation.open_for_error(&self.context, &mut out),
            ConnectionPhase::Bound(session) => {
                let session = session.clone();
                self.send_final_stanzas(&session, cx, scratch);
                // Acknowledged so that the client does not resend stanzas that were handled.
                out.extend(crate::stream_management::ack(&session));
            }
            _ => {}
        }
        out.extend(self.final_element.take().unwrap_or_default());
        if let Some(error) = &error {
            self.write_error(error, &mut out);
        }
        stanza::stream::write_close(&mut out);
        self.stream.queue(&out, scratch);
        self.close_after_flush(error.map_or("closed", |error| error.condition.as_str()));
    }

    /// Ends the session and closes the connection after the output is flushed.
    fn close_after_flush(&mut self, reason: &'static str) {
        self.drop_session(reason);
        self.set_phase(ConnectionPhase::Closing(Closing::new(&self.context, &self.outbox)));
    }

    /// Ends the session of a connection whose transport is closed.
    fn abort(&mut self) {
        self.drop_session(CONNECTION_LOST);
        self.set_phase(ConnectionPhase::Finished);
    }

    /// Ends the session. Stanzas left in its outbox are rerouted.
    fn drop_session(&mut self, reason: &'static str) {
        if let ConnectionPhase::Bound(session) = &self.phase {
            let session = session.clone();
            self.confirm_unflushed(&session);
            if let Some(unfinished) = self.unfinished.take() {
                unfinished.complete_in_background(&self.context.node, &session);
            }
            log_session_end(&self.context.node, &session, reason);
            self.context.node.end_session(&session);
            // Input read after another task ended the session was charged as well.
            self.context.node.keep_rates(&session);
        }
        self.context.node.outboxes.remove(&self.outbox);
        let _ = self.outbox.close_and_drain();
    }

    /// Maps a transport error to the way the connection ends.
    pub(crate) fn on_transport_error(&self, error: NetError) -> PhaseOutcome {
        match error {
            NetError::Xml(error) => PhaseOutcome::EndStream(Some(error.into())),
            // RFC 7395, section 3.4: stream errors are messages. The closing handshake reports the code.
            NetError::WebSocket(violation) => PhaseOutcome::EndStream(Some(
                StreamError::new(StreamCondition::BadFormat).text(violation.reason),
            )),
            NetError::TooLong => PhaseOutcome::EndStream(Some(
                StreamError::new(StreamCondition::PolicyViolation).text("the element is larger than allowed"),
            )),
            error => {
                tracing::debug!(peer = %self.stream.info().peer, %error, "connection lost");
                // A TLS alert, if there is one, must still reach the peer.
                if matches!(error, NetError::Tls(_)) {
                    PhaseOutcome::CloseSilently
                } else {
                    PhaseOutcome::TransportClosed
                }
            }
        }
    }
}

/// Logs the end of a session. Must run before its outbox leaves the registry, which knows when it was created.
pub(crate) fn log_session_end(node: &Node, session: &Session, reason: &str) {
    let now = node.seconds();
    let since = node.outboxes.created_at(&session.outbox, now);
    session_log(node).session_ended(now, session, reason, now.saturating_sub(since));
}

/// Reason of a session's end: its connection broke and the session cannot be resumed.
const CONNECTION_LOST: &str = "connection lost";

impl Future for C2sConnection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        net::with_scratch(|scratch| self.drive(cx, scratch))
    }
}

impl Drop for C2sConnection {
    /// Ends the session also when the task is dropped at shutdown of the runtime.
    fn drop(&mut self) {
        if !matches!(self.phase, ConnectionPhase::Finished | ConnectionPhase::Closing(_)) {
            self.drop_session("stopped");
            self.set_phase(ConnectionPhase::Finished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_fits_its_budget() {
        assert!(size_of::<C2sConnection>() <= 320, "{}", size_of::<C2sConnection>());
    }
}
