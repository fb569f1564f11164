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
use super::forwarding::ForwardedResponse;
use super::session::BoshSession;

/// A request; ready when its response may be sent. Dropping it before the response was sent marks its connection as
/// broken.
pub struct PendingResponse(ResponseOrigin);

/// Where the response comes from.
enum ResponseOrigin {
    Local {
        session: Option<Arc<BoshSession>>,
        ready: Option<Box<BoshResponse>>,
        ticket: u32,
        /// The session has answered.
        answered: bool,
    },
    OtherNode(Box<ForwardedResponse>),
}

const _: () = assert!(size_of::<PendingResponse>() <= 24);

impl PendingResponse {
    fn local(session: Option<Arc<BoshSession>>, ticket: u32, ready: Option<BoshResponse>) -> PendingResponse {
        let answered = ready.is_some();
        PendingResponse(ResponseOrigin::Local { session, ready: ready.map(Box::new), ticket, answered })
    }

    pub(super) fn ready(answer: BoshResponse) -> PendingResponse {
        PendingResponse::local(None, 0, Some(answer))
    }

    /// The response of another request, which was not sent.
    pub(super) fn repeated(session: Arc<BoshSession>, ticket: u32, answer: BoshResponse) -> PendingResponse {
        PendingResponse::local(Some(session), ticket, Some(answer))
    }

    pub(super) fn wait(session: Arc<BoshSession>, ticket: u32) -> PendingResponse {
        PendingResponse::local(Some(session), ticket, None)
    }

    /// The response of the node that has the session.
    pub(super) fn forwarded(response: ForwardedResponse) -> PendingResponse {
        PendingResponse(ResponseOrigin::OtherNode(Box::new(response)))
    }

    /// The response, once. Until then the task is woken when it is ready; only the last waker is stored.
    pub fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<BoshResponse> {
        let (session, ready, ticket, answered) = match &mut self.0 {
            ResponseOrigin::OtherNode(response) => return response.poll(cx),
            ResponseOrigin::Local { session, ready, ticket, answered } => (session, ready, ticket, answered),
        };
        if let Some(answer) = ready.take() {
            return Poll::Ready(*answer);
        }
        let Some(waiting) = session.as_ref().filter(|_| !*answered) else { return Poll::Pending };
        let Some((answer, has_payload)) = waiting.poll(*ticket, cx.waker()) else { return Poll::Pending };
        *answered = true;
        if !has_payload {
            *session = None;
        }
        Poll::Ready(answer)
    }

    /// Whether the session waits for [`PendingResponse::response_sent`], after the response was fetched.
    pub(super) const fn awaits_confirmation(&self) -> bool {
        matches!(self.0, ResponseOrigin::Local { session: Some(_), .. })
    }

    /// The kernel has taken the response.
    pub fn response_sent(&mut self) {
        match &mut self.0 {
            ResponseOrigin::OtherNode(response) => {
                response.request.iter_mut().for_each(|request| request.response_sent());
            }
            ResponseOrigin::Local { session, ticket, answered: true, .. } => {
                if let Some(session) = session.take() {
                    session.response_sent(*ticket);
                }
            }
            ResponseOrigin::Local { .. } => {}
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
        if let ResponseOrigin::Local { session, ticket, .. } = &mut self.0
            && let Some(session) = session.take()
        {
            session.request_dropped(*ticket);
        }
    }
}
