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
    self, AcceptedRequest, ForwardedRequestHandler, ForwardingFailure, HandleForwardedRequest,
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

    fn forward(
        &self,
        tag: u32,
        request: &[u8],
        seconds: u32,
    ) -> Result<Box<dyn ForwardedRequest>, ForwardingError> {
        let started = forwarded_requests::forward(&self.0, tag, request, seconds).map_err(error)?;
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
    fn handle(&self, request: &[u8]) -> Option<Box<dyn AcceptedRequest>> {
        let sessions = self.0.upgrade()?;
        Some(Box::new(RequestOfPeer(sessions.handle_forwarded(request))))
    }
}

struct RequestOfPeer(HeldForwardedRequest);

impl AcceptedRequest for RequestOfPeer {
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<(Vec<u8>, bool)> {
        self.0.poll_response(cx)
    }

    fn response_sent(&mut self) {
        self.0.response_sent();
    }
}
