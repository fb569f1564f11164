//! Connection of the BOSH sessions of a node with those of the other nodes of its cluster: what `net` needs, by what `peers`
//! provides.
//!
//! # Pitfalls
//!
//! The node owns the handler, and the table owns the node, so the handler must not own the table.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use net::bosh::{BoshForwarder, BoshSessionTable, ForwardedRequest, ForwardingError, HeldForwardedRequest};
use peers::forwarded_requests::{
    self, AcceptedRequest, ForwardedRequestHandler, ForwardingFailure, HandleForwardedRequest, HeldResponse,
    MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, RequestGroup,
};
use throng_core::Node;

/// Lets requests for sessions of other nodes reach them, and those of other nodes reach `sessions`. To be called before the
/// first session.
pub fn connect_bosh_sessions(node: &Arc<Node>, sessions: &Arc<BoshSessionTable>) {
    if node.is_single() {
        return;
    }
    sessions.set_forwarder(Arc::new(PeerForwarder(node.clone())));
    let handler = SessionsOfNode(Arc::downgrade(sessions));
    node.extensions.insert(ForwardedRequestHandler(Arc::new(handler)));
}

struct PeerForwarder(Arc<Node>);

impl BoshForwarder for PeerForwarder {
    fn own_tag(&self) -> u32 {
        forwarded_requests::own_tag(&self.0)
    }

    fn max_request_bytes(&self) -> usize {
        MAX_REQUEST_BYTES
    }

    fn max_response_bytes(&self) -> usize {
        MAX_RESPONSE_BYTES
    }

    fn forward(
        &self,
        tag: u32,
        client: u64,
        request: &[u8],
        seconds: u32,
    ) -> Result<Box<dyn ForwardedRequest>, ForwardingError> {
        let started = forwarded_requests::forward(&self.0, tag, client, request, seconds).map_err(error)?;
        Ok(Box::new(RequestToPeer(started)))
    }

    fn close(&self) {
        forwarded_requests::end_all(&self.0);
    }
}

const fn error(failure: ForwardingFailure) -> ForwardingError {
    match failure {
        ForwardingFailure::NoNode => ForwardingError::NoSession,
        ForwardingFailure::Retry => ForwardingError::Retry,
    }
}

struct RequestToPeer(forwarded_requests::OutboundRequest);

impl ForwardedRequest for RequestToPeer {
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, ForwardingError>> {
        self.0.poll_response(cx).map_err(error)
    }

    fn response_sent(&mut self) {
        self.0.response_sent();
    }
}

struct SessionsOfNode(Weak<BoshSessionTable>);

impl HandleForwardedRequest for SessionsOfNode {
    fn take(&self, request: Vec<u8>) -> Option<Box<dyn AcceptedRequest>> {
        let sessions = self.0.upgrade()?;
        Some(Box::new(RequestOfPeer(sessions.take_forwarded(request))))
    }
}

struct RequestOfPeer(HeldForwardedRequest);

impl AcceptedRequest for RequestOfPeer {
    fn group(&self) -> Option<RequestGroup> {
        let (id, position, most) = self.0.place()?;
        Some(RequestGroup { id, position, most })
    }

    fn handle(&mut self) {
        self.0.handle();
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<HeldResponse> {
        self.0.poll_response(cx).map(|response| HeldResponse {
            head: response.head,
            body: Box::new(response.body),
            awaits_end: response.awaits_confirmation,
        })
    }

    fn response_sent(&mut self) {
        self.0.response_sent();
    }
}
