//! The wish to end the node: when, and whether it is to come back. The program waits for it and does the rest.
//!
//! There is no timer: [`ShutdownSignal::sweep`] looks at the node's clock once a second, with everything else that is due.

use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use crate::node::Node;

/// What is wished for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Second of the node's clock.
    pub at: u32,
    /// The node is to start again.
    pub restart: bool,
}

#[derive(Default)]
struct State {
    planned: Option<Shutdown>,
    due: Option<Shutdown>,
    waker: Option<Waker>,
}

/// The wish to end the node.
#[derive(Default)]
pub struct ShutdownSignal(Mutex<State>);

impl ShutdownSignal {
    fn schedule(&self, shutdown: Shutdown) {
        self.0.lock().planned = Some(shutdown);
    }
    /// Looks whether the time has come.
    pub(crate) fn sweep(&self, now: u32) {
        let waker = {
            let mut state = self.0.lock();
            if state.planned.is_none_or(|s| now < s.at) {
                return;
            }
            state.due = state.planned.take();
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Node {
    /// Plans the node's end after a delay; a later call takes the place of an earlier one.
    pub fn request_shutdown(&self, restart: bool, delay_seconds: u32) {
        let shutdown = Shutdown { at: self.clock.now_seconds().saturating_add(delay_seconds), restart };
        self.shutdown_signal.schedule(shutdown);
        if delay_seconds == 0 {
            self.shutdown_signal.sweep(shutdown.at);
        }
    }
    /// What is planned.
    pub fn shutdown_planned(&self) -> Option<Shutdown> {
        self.shutdown_signal.0.lock().planned
    }
    /// Waits until the node is to end. For one waiter: the program.
    pub async fn wait_for_shutdown(self: &Arc<Self>) -> Shutdown {
        std::future::poll_fn(|cx| {
            let mut state = self.shutdown_signal.0.lock();
            match state.due {
                Some(shutdown) => Poll::Ready(shutdown),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}
