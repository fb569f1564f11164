//! The way of one value from a serial task to the request that waits for it.
//!
//! # Pitfalls
//!
//! A task that ends drops its messages, and a sender that is dropped wakes the receiver: no request waits permanently.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;

struct AnswerSlot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    is_closed: bool,
}

/// Sends the value.
pub struct AnswerSender<T>(Arc<LeafMutex<AnswerSlot<T>>>);

/// Receives the value.
pub struct AnswerReceiver<T>(Arc<LeafMutex<AnswerSlot<T>>>);

/// A channel for one value.
pub fn answer_channel<T>() -> (AnswerSender<T>, AnswerReceiver<T>) {
    let slot = Arc::new(LeafMutex::new(AnswerSlot { value: None, waker: None, is_closed: false }));
    (AnswerSender(slot.clone()), AnswerReceiver(slot))
}

impl<T> AnswerSender<T> {
    /// Sends the value.
    pub fn send(self, value: T) {
        self.0.lock().value = Some(value);
        // Dropping it wakes the receiver.
    }
}

impl<T> Drop for AnswerSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.lock();
            slot.is_closed = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> AnswerReceiver<T> {
    /// The value; `None` if its sender was dropped.
    pub async fn receive(self) -> Option<T> {
        poll_fn(|cx| {
            let mut slot = self.0.lock();
            if slot.value.is_some() || slot.is_closed {
                return Poll::Ready(slot.value.take());
            }
            slot.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn a_value_arrives_and_a_dropped_sender_ends_the_wait() {
        let mut cx = Context::from_waker(Waker::noop());
        let (sender, receiver) = answer_channel();
        let mut receive = pin!(receiver.receive());
        assert!(receive.as_mut().poll(&mut cx).is_pending());
        sender.send(7);
        assert_eq!(receive.poll(&mut cx), Poll::Ready(Some(7)));
        let (sender, receiver) = answer_channel::<u8>();
        drop(sender);
        assert_eq!(pin!(receiver.receive()).poll(&mut cx), Poll::Ready(None));
    }
}
