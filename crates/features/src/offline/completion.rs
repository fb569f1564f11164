//! One-shot result from a task to a future: the task that stores messages reports to the streams that wait for it.
//!
//! # Pitfalls
//!
//! A result that never comes would block a stream permanently, so dropping the [`Completer`] resolves the future too.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;

enum CompletionState<T> {
    Pending(Option<Waker>),
    Completed(T),
    Abandoned,
}

/// Sending half.
pub(super) struct Completer<T>(Arc<LeafMutex<CompletionState<T>>>);

/// Receiving half. Resolves to `None` if the [`Completer`] was dropped.
pub(super) struct Completion<T>(Arc<LeafMutex<CompletionState<T>>>);

/// Creates both halves.
pub(super) fn completion_pair<T>() -> (Completer<T>, Completion<T>) {
    let state = Arc::new(LeafMutex::new(CompletionState::Pending(None)));
    (Completer(state.clone()), Completion(state))
}

impl<T> Completer<T> {
    pub(super) fn complete(self, value: T) {
        self.resolve(CompletionState::Completed(value));
    }

    fn resolve(&self, state: CompletionState<T>) {
        let mut inner = self.0.lock();
        if let CompletionState::Pending(waker) = &mut *inner {
            let waker = waker.take();
            *inner = state;
            drop(inner);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        self.resolve(CompletionState::Abandoned);
    }
}

impl<T> Future for Completion<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut inner = self.0.lock();
        match std::mem::replace(&mut *inner, CompletionState::Abandoned) {
            CompletionState::Pending(_) => {
                *inner = CompletionState::Pending(Some(cx.waker().clone()));
                Poll::Pending
            }
            CompletionState::Completed(value) => Poll::Ready(Some(value)),
            CompletionState::Abandoned => Poll::Ready(None),
        }
    }
}
