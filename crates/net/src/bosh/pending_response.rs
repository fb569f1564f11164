//! One request that waits for its answer. XEP-0124 sections 7 and 14.3.
//!
//! Left out: HTTP. Trap: dropping an exchange says that its connection broke. The request is still known, and the client
//! may send it again; so an exchange must live as long as its connection does.

use super::BoshResponse;
use super::session::BoshSession;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A request; ready when its answer may be sent. Dropping it before says that its connection broke.
pub struct PendingResponse {
    session: Option<Arc<BoshSession>>,
    ticket: u32,
    ready: Option<Box<BoshResponse>>,
}

const _: () = assert!(size_of::<PendingResponse>() <= 24);

impl PendingResponse {
    pub(super) fn ready(answer: BoshResponse) -> PendingResponse {
        PendingResponse { session: None, ticket: 0, ready: Some(Box::new(answer)) }
    }

    pub(super) fn wait(session: Arc<BoshSession>, ticket: u32) -> PendingResponse {
        PendingResponse { session: Some(session), ticket, ready: None }
    }

    /// The answer, once. Until then the task is woken when it is there; the last one that asked counts.
    pub fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<BoshResponse> {
        if let Some(answer) = self.ready.take() {
            return Poll::Ready(*answer);
        }
        let Some(session) = &self.session else { return Poll::Pending };
        let Some(answer) = session.poll(self.ticket, cx.waker()) else { return Poll::Pending };
        self.session = None;
        Poll::Ready(answer)
    }
}

impl Future for PendingResponse {
    type Output = BoshResponse;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BoshResponse> {
        self.poll_response(cx)
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.request_dropped(self.ticket);
        }
    }
}
