//! The table among the nodes of a cluster: forwards requests for sessions of other nodes, and answers what others forward
//! (`forwarding`).
//!
//! # Pitfalls
//!
//! The holder's limits apply to a forwarded request: those of its settings, of the listener that created the session, and the
//! rate of the session. The other node knows none of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use super::forwarding::{
    BoshForwarder, ForwardedFor, ForwardedResponse, ForwardingError, decode_request, encode_request,
    encode_response, failure, node_tag,
};
use super::request::{BoshRequest, BoshRequestError};
use super::response::Condition;
use super::session::refusal;
use super::session_table::{LEGACY_SID_BIT, max_unread_bytes};
use super::{BoshSessionTable, PendingResponse, RequestSource};

/// Seconds that a response may take in addition to the time for which a request is held.
const MARGIN_SECONDS: u32 = 10;

/// A request that another node has received.
pub struct HeldForwardedRequest {
    pending: PendingResponse,
    found: bool,
}

impl HeldForwardedRequest {
    /// The response for the other node, once, and whether [`HeldForwardedRequest::response_sent`] must be called when the
    /// client has it.
    pub fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<(Vec<u8>, bool)> {
        self.pending
            .poll_response(cx)
            .map(|response| (encode_response(&response, self.found), self.pending.awaits_confirmation()))
    }

    /// The other node has sent the response to its client.
    pub fn response_sent(&mut self) {
        self.pending.response_sent();
    }
}

impl BoshSessionTable {
    /// Connects the table with those of other nodes, before the first session. Only the first call has an effect.
    pub fn set_forwarder(&self, forwarder: Arc<dyn BoshForwarder>) {
        let _ = self.forwarder.set(forwarder);
    }

    /// Handles a request whose session is not here.
    pub(super) fn forward(
        self: &Arc<Self>,
        sid: Option<u128>,
        origin: &RequestSource,
        body: &[u8],
    ) -> PendingResponse {
        let legacy = sid.is_some_and(|sid| sid & LEGACY_SID_BIT != 0);
        let started = match (self.forwarder.get(), sid) {
            (Some(forwarder), Some(sid)) if node_tag(sid) != forwarder.own_tag() => {
                self.start_forwarding(&**forwarder, sid, origin, body)
            }
            _ => Err(ForwardingError::NoSession),
        };
        match started {
            Ok((request, forwarded)) => {
                self.common.forwarded.fetch_add(1, Relaxed);
                let table = self.clone();
                PendingResponse::forwarded(ForwardedResponse { request, table, forwarded, legacy })
            }
            Err(error) => {
                if error == ForwardingError::NoSession {
                    self.common.unknown_session.fetch_add(1, Relaxed);
                }
                PendingResponse::ready(failure(error, legacy))
            }
        }
    }

    fn start_forwarding(
        &self,
        forwarder: &dyn BoshForwarder,
        sid: u128,
        origin: &RequestSource,
        body: &[u8],
    ) -> Result<(Box<dyn super::ForwardedRequest>, ForwardedFor), ForwardingError> {
        if self.closed.load(Relaxed) {
            return Err(ForwardingError::Retry);
        }
        let address = base::network_number(origin.peer.ip());
        let forwarded =
            self.forwarding_limits.lock().begin(sid, address, body.len(), self.common.clock.now());
        let forwarded = forwarded.ok_or(ForwardingError::Retry)?;
        let seconds = self.settings().max_wait_seconds.saturating_add(MARGIN_SECONDS);
        let octets = encode_request(origin.secure, sid, body);
        let started = forwarder.forward(node_tag(sid), &octets, seconds);
        if started.is_err() {
            // No other node has work because of it.
            self.forwarding_limits.lock().end(&forwarded, None, self.common.clock.now());
        }
        started.map(|request| (request, forwarded))
    }

    /// A forwarded request has its response. `found`: whether the session exists, if that is known.
    pub(super) fn on_forwarded_response(&self, forwarded: &ForwardedFor, found: Option<bool>) {
        if found == Some(false) {
            self.common.unknown_session.fetch_add(1, Relaxed);
        }
        self.forwarding_limits.lock().end(forwarded, found, self.common.clock.now());
    }

    /// Handles a request that another node has received, in the form in which it was given to its [`BoshForwarder`].
    pub fn handle_forwarded(self: &Arc<Self>, octets: &[u8]) -> HeldForwardedRequest {
        let refused =
            |condition, legacy, found| HeldForwardedRequest { pending: refusal(condition, legacy), found };
        let Some((secure, sid, body)) = decode_request(octets) else {
            return refused(Condition::BadRequest, false, false);
        };
        let legacy = sid & LEGACY_SID_BIT != 0;
        let Some(session) = self.session(sid) else { return refused(Condition::ItemNotFound, legacy, false) };
        let most = self.settings().body_bytes;
        if body.len() > most {
            return refused(Condition::PolicyViolation, legacy, true);
        }
        match BoshRequest::read(body, &session.listener.limits, max_unread_bytes(most)) {
            Ok(request) if request.sid == Some(Some(sid)) => {
                HeldForwardedRequest { pending: session.handle_request(secure, request), found: true }
            }
            Err(BoshRequestError::TooLarge) => refused(Condition::PolicyViolation, legacy, true),
            Ok(_) | Err(BoshRequestError::Malformed) => refused(Condition::BadRequest, legacy, true),
        }
    }
}
