//! Stanzas from clients: checks, addressing, outgoing chain, routing. RFC 6120, sections 8.1, 8.2 and 10.3.

use std::cell::RefCell;
use std::sync::Arc;

use base::spawn::BoxFuture;
use jid::JidRef;
use outbox::LatencySample;
use stanza::{
    Head, IqType, NewAddresses, StanzaCondition, StanzaError, StanzaKind, StreamCondition, StreamError,
};

use super::iq_dispatch::RoutedIq;
use super::{RoutingOutcome, RoutingWork, StanzaOrigin};
use crate::host::Host;
use crate::iq::{IqReplyHandler, IqTarget};
use crate::metrics::RouteOutcome;
use crate::node::Node;
use crate::receipt::Receipts;
use crate::server_error::unreadable_stanza;
use crate::session::{Session, flags};
use crate::shared_stanza::SharedStanza;

/// Result of handling a stanza from a client.
pub enum IngestOutcome {
    /// The stanza was handled.
    Done,
    /// The stanza was handled, and is safe when these receipts are fulfilled. The next one may be handled.
    AwaitsReceipts(Receipts),
    /// The next stanza may be handled when this future completes; then this one has these receipts.
    Wait(BoxFuture<'static, Receipts>),
    /// The stream must be closed.
    Fatal(StreamError),
}

thread_local! {
    static REWRITE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
/// Buffer capacity that is retained between stanzas; a larger buffer is freed.
const REWRITE_RETAINED_BYTES: usize = 64 * 1024;
/// Room after a message, besides the recipient's bare address, for the `<stanza-id/>` (XEP-0359) that the recipient's chain
/// appends.
const CHILD_ROOM: usize = 48 + base::TimeOrderedId::CHARS;

impl Node {
    /// Handles one checked stanza of a bound session.
    pub fn ingest(self: &Arc<Self>, session: &Arc<Session>, bytes: &[u8], head: &Head) -> IngestOutcome {
        self.metrics.stanza_in(head.kind);
        let host = session.account.host();
        host.domain_counters.stanza_in(head.kind);
        let _reading = LatencySample::begin(self.seconds(), &*self.clock);
        let tracks_delivery = session.flags.has(flags::STREAM_MANAGEMENT);
        let mut work = RoutingWork { tracks_delivery, ..RoutingWork::of(StanzaOrigin::Stream) };
        if let Err(fatal) = self.ingest_stanza(&host, session, bytes, head, &mut work) {
            return IngestOutcome::Fatal(fatal);
        }
        match self.perform_effects(work) {
            RoutingOutcome::Done => IngestOutcome::Done,
            RoutingOutcome::AwaitsReceipts(receipts) => IngestOutcome::AwaitsReceipts(receipts),
            RoutingOutcome::Wait(rest) => IngestOutcome::Wait(rest),
        }
    }

    /// Answers a stanza whose `type` is not defined for its kind.
    pub fn reject_stanza(
        self: &Arc<Self>,
        session: &Arc<Session>,
        bytes: &[u8],
        head: &Head,
        error: &StanzaError,
    ) {
        let mut work = RoutingWork::default();
        self.bounce_to_session(session, bytes, head, None, error, &mut work);
        self.perform_effects_spawned(work);
    }

    fn ingest_stanza(
        self: &Arc<Self>,
        host: &Arc<Host>,
        session: &Arc<Session>,
        bytes: &[u8],
        head: &Head,
        work: &mut RoutingWork,
    ) -> Result<(), StreamError> {
        self.check_from(session, bytes, head)?;
        let written = head.to(bytes);
        let parsed = match written.as_deref().map(jid::parse) {
            None => None,
            Some(Ok(jid)) => Some(jid),
            Some(Err(error)) => {
                // RFC 6120, section 8.3.3.8. The invalid address cannot be the `from` of the error.
                let error = StanzaError::new(StanzaCondition::JidMalformed).text(error.to_string());
                self.bounce_to_session(session, bytes, head, None, &error, work);
                return Ok(());
            }
        };
        let to = parsed.as_ref().map(jid::ParsedJid::as_ref);
        match head.kind {
            StanzaKind::Iq(_) => self.ingest_iq(host, session, bytes, head, to, work),
            StanzaKind::Message(_) => {
                // RFC 6120, section 10.3.1: without `to`, the recipient is the sender's bare address.
                let to = to.unwrap_or(session.bare());
                self.rewrite_and_route(host, session, (bytes, head), (session.full(), Some(to)), work);
            }
            StanzaKind::Presence(t) => {
                // Subscriptions are between bare addresses (RFC 6121, section 3.1.2 and the sections that
                // follow it).
                let (from, to) = if t.is_subscription() {
                    (session.bare(), to.map(|t| t.bare()))
                } else {
                    (session.full(), to)
                };
                self.rewrite_and_route(host, session, (bytes, head), (from, to), work);
            }
        }
        Ok(())
    }

    /// RFC 6120, section 8.1.2.1: a `from` of another account ends the stream (section 4.9.3.9). Any resource
    /// of the sender's account is accepted and replaced with the right one: the server must add the `from` or
    /// override the client's (rule 1). Clients write the resource that they would have bound after a
    /// resumption.
    fn check_from(&self, session: &Arc<Session>, bytes: &[u8], head: &Head) -> Result<(), StreamError> {
        let Some(from) = head.from(bytes) else { return Ok(()) };
        let own = session.bare().as_str();
        if jid::parse(&from).is_ok_and(|from| from.as_ref().bare().as_str() == own) {
            Ok(())
        } else {
            Err(StreamError::new(StreamCondition::InvalidFrom)
                .text("from does not match the address of this stream"))
        }
    }

    fn ingest_iq(
        self: &Arc<Self>,
        host: &Arc<Host>,
        session: &Arc<Session>,
        bytes: &[u8],
        head: &Head,
        to: Option<JidRef<'_>>,
        work: &mut RoutingWork,
    ) {
        let request = head.kind.is_request();
        // RFC 6120, section 8.2.3: an id is required; a request has exactly one child, a result at most one.
        let bad = if head.raw_id(bytes).is_none() {
            Some("an IQ request needs an id")
        } else if request && head.child_count != 1 {
            Some("an iq of type get or set must have exactly one child")
        } else if head.kind == StanzaKind::Iq(IqType::Result) && head.child_count > 1 {
            Some("an iq of type result can have at most one child")
        } else {
            None
        };
        if let Some(text) = bad {
            let error = StanzaError::new(StanzaCondition::BadRequest).text(text);
            self.bounce_to_session(session, bytes, head, to, &error, work);
            return;
        }
        let target = match to {
            None => Some(IqTarget::OwnAccount),
            Some(to) if to.as_str() == session.bare().as_str() => Some(IqTarget::OwnAccount),
            Some(to) if to.as_str() == host.domain() => Some(IqTarget::Server),
            Some(_) => None,
        };
        match target {
            // Handled here, thus neither rewritten nor copied. The outgoing chain polices stanzas that leave,
            // not this one.
            Some(target) if request => {
                self.metrics.routed(head.kind, RouteOutcome::Server);
                let from = session.full();
                self.dispatch_iq(
                    &RoutedIq { host, service: None, target, session: Some(session), from, to, head, bytes },
                    work,
                );
            }
            // An IQ response to the server: reset the idle timer and match pending IQs.
            Some(_) => {
                if let Some(handler) = self.extensions.get::<IqReplyHandler>() {
                    (handler.0)(self, session, head, bytes, &mut work.effects);
                }
            }
            None => {
                if request && let (Some(to), Some(id)) = (to, head.id(bytes)) {
                    session.record_request(to, &id);
                }
                self.rewrite_and_route(host, session, (bytes, head), (session.full(), to), work);
            }
        }
    }

    /// Rewrites the addresses and runs the outgoing chain; a stanza that becomes too large is bounced.
    fn rewrite_and_route(
        self: &Arc<Self>,
        host: &Arc<Host>,
        session: &Arc<Session>,
        (bytes, head): (&[u8], &Head),
        (from, to): (JidRef<'_>, Option<JidRef<'_>>),
        work: &mut RoutingWork,
    ) {
        let room = match (head.kind, to) {
            (StanzaKind::Message(_), Some(to)) if to.local().is_some() => {
                u16::try_from(CHILD_ROOM + to.bare().as_str().len()).unwrap_or_default()
            }
            _ => 0,
        };
        match rewrite_addresses(bytes, head, from.as_str(), to, room) {
            Ok(stanza) => self.outgoing(host, session, stanza, to, 0, work),
            Err(error) => self.bounce_to_session(session, bytes, head, to, &unreadable_stanza(error), work),
        }
    }
}

/// Rewrites the addresses and creates the shared stanza: the only allocation of a message.
pub(super) fn rewrite_addresses(
    bytes: &[u8],
    head: &Head,
    from: &str,
    to: Option<JidRef<'_>>,
    room: u16,
) -> Result<SharedStanza, xml::Error> {
    let to = to.map(|t| t.as_str());
    REWRITE.with_borrow_mut(|out| {
        let stanza = stanza::rewrite_addresses(bytes, head, NewAddresses { from: Some(from), to }, out);
        let stanza = stanza.map(|head| SharedStanza::with_room(head, out, room));
        if out.capacity() > REWRITE_RETAINED_BYTES {
            *out = Vec::new();
        }
        stanza
    })
}
