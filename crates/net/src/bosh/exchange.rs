//! One request that waits for its answer. XEP-0124 sections 7 and 14.3.
//!
//! Left out: HTTP. Trap: dropping an exchange says that its connection broke. The request stays answered or unanswered as
//! it was, and the client may send it again.

use super::Answer;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A request; ready when its answer may be sent. Dropping it means that its connection broke.
pub struct Exchange {
    ready: Option<Box<Answer>>,
}

impl Exchange {
    pub(crate) fn ready(answer: Answer) -> Exchange {
        Exchange { ready: Some(Box::new(answer)) }
    }

    /// The answer, once. Registers the task otherwise.
    pub fn poll_answer(&mut self, _cx: &mut Context<'_>) -> Poll<Answer> {
        match self.ready.take() {
            Some(answer) => Poll::Ready(*answer),
            None => Poll::Pending,
        }
    }
}

impl Future for Exchange {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        self.poll_answer(cx)
    }
}
