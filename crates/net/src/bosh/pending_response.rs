//! Pending response: one BOSH request that waits for its response (XEP-0124, sections 7 and 14.3).
//!
//! Not implemented: HTTP.
//!
//! # Pitfalls
//!
//! Dropping the future marks the connection of the request as broken, after which the client may send the request
//! again. So the future must live as long as the connection, or until [`PendingResponse::response_sent`]: messages in a
//! response that was not sent are rerouted when the session ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::BoshResponse;
use super::session::BoshSession;

/// A request; ready when its response may be sent. Dropping it before the response was sent marks its connection as
/// broken.
pub struct PendingResponse {
    session: Option<Arc<BoshSession>>,
    ticket: u32,
    /// The session has answered.
    answered: bool,
    ready: Option<Box<BoshResponse>>,
}

const _: () = assert!(size_of::<PendingResponse>() <= 24);

impl PendingResponse {
    pub(super) fn ready(answer: BoshResponse) -> PendingResponse {
        PendingResponse { session: None, ticket: 0, answered: true, ready: Some(Box::new(answer)) }
    }

    /// The response of another request, which was not sent.
    pub(super) fn repeated(session: Arc<BoshSession>, ticket: u32, answer: BoshResponse) -> PendingResponse {
        PendingResponse { session: Some(session), ticket, answered: true, ready: Some(Box::new(answer)) }
    }

    pub(super) fn wait(session: Arc<BoshSession>, ticket: u32) -> PendingResponse {
        PendingResponse { session: Some(session), ticket, answered: false, ready: None }
    }

    /// The response, once. Until then the task is woken when it is ready; only the last waker is stored.
    pub fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<BoshResponse> {
        if let Some(answer) = self.ready.take() {
            return Poll::Ready(*answer);
        }
        let Some(session) = self.session.as_ref().filter(|_| !self.answered) else { return Poll::Pending };
        let Some((answer, has_payload)) = session.poll(self.ticket, cx.waker()) else { return Poll::Pending };
        self.answered = true;
        if !has_payload {
            self.session = None;
        }
        Poll::Ready(answer)
    }

    /// The kernel has taken the response.
    pub fn response_sent(&mut self) {
        if self.answered
            && let Some(session) = self.session.take()
        {
            session.response_sent(self.ticket);
        }
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
