//! One value from a task to a future: how the task that stores messages answers those who wait for it.
//!
//! The trap: an answer that never comes would hold a stream for ever; so dropping the [`Teller`] is an answer too.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

enum State<T> {
    Open(Option<Waker>),
    Told(T),
    Lost,
}

/// The side that answers.
pub(super) struct Teller<T>(Arc<Mutex<State<T>>>);

/// The side that waits. `None` means that nobody will answer any more.
pub(super) struct Told<T>(Arc<Mutex<State<T>>>);

/// Both sides.
pub(super) fn pair<T>() -> (Teller<T>, Told<T>) {
    let state = Arc::new(Mutex::new(State::Open(None)));
    (Teller(state.clone()), Told(state))
}

impl<T> Teller<T> {
    pub(super) fn tell(self, value: T) {
        self.put(State::Told(value));
    }
    fn put(&self, state: State<T>) {
        let mut inner = self.0.lock();
        if let State::Open(waker) = &mut *inner {
            let waker = waker.take();
            *inner = state;
            drop(inner);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        self.put(State::Lost);
    }
}

impl<T> Future for Told<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut inner = self.0.lock();
        match std::mem::replace(&mut *inner, State::Lost) {
            State::Open(_) => {
                *inner = State::Open(Some(cx.waker().clone()));
                Poll::Pending
            }
            State::Told(value) => Poll::Ready(Some(value)),
            State::Lost => Poll::Ready(None),
        }
    }
}
