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
    BoshForwarder, ForwardedFor, ForwardedResponse, ForwardingError, MAX_HEAD_BYTES, decode_request,
    encode_head, encode_request, failure, node_tag,
};
use super::forwarding_limits::NewRequest;
use super::request::{BoshRequest, BoshRequestError};
use super::response::Condition;
use super::session::{BoshSession, refusal};
use super::session_table::LEGACY_SID_BIT;
use super::{BoshBody, BoshResponse, BoshSessionTable, PendingResponse, RequestSource, TerminationReason};

/// Seconds that a response may take in addition to the time for which a request is held.
const MARGIN_SECONDS: u32 = 10;

/// A request that another node has received.
pub struct HeldForwardedRequest {
    progress: RequestProgress,
    /// The session exists.
    found: bool,
    /// Maximum octets of the response.
    max_bytes: usize,
    session: Option<(Arc<BoshSession>, u64)>,
}

enum RequestProgress {
    /// Its payloads must be read.
    Unread(Vec<u8>),
    Pending(PendingResponse),
}

/// A response for another node. The whole is the head, then the body.
pub struct ForwardedResponseParts {
    /// Octets before the body.
    pub head: Vec<u8>,
    /// The body, which the session may also keep.
    pub body: BoshBody,
    /// [`HeldForwardedRequest::response_sent`] must be called when the client has it.
    pub awaits_confirmation: bool,
}

impl HeldForwardedRequest {
    /// Identifier of the session, id of the request in it, and maximum number of such requests under way: those that the
    /// session permits, and as many responses that are being sent.
    pub fn place(&self) -> Option<(u128, u64, usize)> {
        let (session, rid) = self.session.as_ref()?;
        Some((session.params.sid, *rid, 2 * (usize::from(session.params.requests) + 1)))
    }

    /// Handles the request. To be called once, before [`HeldForwardedRequest::poll_response`]; for the requests of a session in the
    /// order in which they arrived.
    pub fn handle(&mut self) {
        let RequestProgress::Unread(octets) = &self.progress else { return };
        let Some((session, _)) = &self.session else { return };
        let limits = &session.listener.limits;
        let body = decode_request(octets).map(|(_, _, body)| body).unwrap_or_default();
        let pending = match BoshRequest::read_head(body, limits) {
            Ok(mut request) => {
                request.read_payloads(limits, session.params.max_unread_bytes);
                session.handle_payloads(request)
            }
            Err(_) => session.refusal(Condition::BadRequest),
        };
        self.progress = RequestProgress::Pending(pending);
    }

    /// The response for the other node, once. Until then the task is woken when it is ready.
    pub fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<ForwardedResponseParts> {
        let RequestProgress::Pending(pending) = &mut self.progress else { return Poll::Pending };
        let Poll::Ready(mut response) = pending.poll_response(cx) else { return Poll::Pending };
        if let Some((session, _)) = &self.session
            && response.body.len().saturating_add(MAX_HEAD_BYTES) > self.max_bytes
        {
            // The client could repeat the request forever.
            session.end(TerminationReason::Policy);
            let legacy = session.params.version.is_none();
            let (status, body) =
                (Condition::PolicyViolation.status(legacy), Condition::PolicyViolation.body());
            response = BoshResponse { status, body, ..response };
            *pending = PendingResponse::ready(response.clone());
        }
        let awaits_confirmation = pending.awaits_confirmation();
        let head = encode_head(&response, self.found);
        Poll::Ready(ForwardedResponseParts { head, body: response.body, awaits_confirmation })
    }

    /// The other node has sent the response to its client.
    pub fn response_sent(&mut self) {
        if let RequestProgress::Pending(pending) = &mut self.progress {
            pending.response_sent();
        }
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
                let (request, table) = (Some(request), self.clone());
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
        let octets = encode_request(origin.secure, sid, body);
        if octets.len() > forwarder.max_request_bytes() {
            return Err(ForwardingError::TooLarge);
        }
        let (settings, now) = (self.settings(), self.common.clock.now());
        let address = base::network_number(origin.peer.ip());
        let request = NewRequest { sid, address, octets: octets.len(), rate: settings.requests_per_second };
        let forwarded = self.forwarding_limits.lock().begin(&request, now).ok_or(ForwardingError::Retry)?;
        let seconds = settings.max_wait_seconds.saturating_add(MARGIN_SECONDS);
        let started = forwarder.forward(node_tag(sid), address, &octets, seconds);
        if started.is_err() {
            // No other node has work because of it.
            self.forwarding_limits.lock().refund(&forwarded, now);
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

    /// Takes a request that another node has received, in the form in which it was given to its [`BoshForwarder`]. Its payloads
    /// are not read: all requests of all nodes may arrive in one task.
    pub fn take_forwarded(self: &Arc<Self>, octets: Vec<u8>) -> HeldForwardedRequest {
        let max_bytes = self.forwarder.get().map_or(usize::MAX, |forwarder| forwarder.max_response_bytes());
        let answered = |pending, found| HeldForwardedRequest {
            progress: RequestProgress::Pending(pending),
            found,
            max_bytes,
            session: None,
        };
        let Some((secure, sid, body)) = decode_request(&octets) else {
            return answered(refusal(Condition::BadRequest, false), false);
        };
        let legacy = sid & LEGACY_SID_BIT != 0;
        let Some(session) = self.session(sid) else {
            return answered(refusal(Condition::ItemNotFound, legacy), false);
        };
        if let Some(refused) = session.refuse_insecure(secure) {
            return answered(refused, true);
        }
        let refuse = |condition| {
            session.count_refused();
            answered(refusal(condition, legacy), true)
        };
        if body.len() > self.settings().body_bytes {
            return refuse(Condition::PolicyViolation);
        }
        let request = match BoshRequest::read_head(body, &session.listener.limits) {
            Ok(request) if request.sid == Some(Some(sid)) => request,
            Err(BoshRequestError::TooLarge) => return refuse(Condition::PolicyViolation),
            Ok(_) | Err(BoshRequestError::Malformed) => return refuse(Condition::BadRequest),
        };
        let rid = request.rid.unwrap_or_default();
        let pending = session.begin_request(secure, &request);
        let progress = pending.map_or(RequestProgress::Unread(octets), RequestProgress::Pending);
        HeldForwardedRequest { progress, found: true, max_bytes, session: Some((session, rid)) }
    }
}
