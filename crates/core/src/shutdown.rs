//! Planned shutdown or restart of the node. The program waits for it and performs it.
//!
//! There is no timer: [`ShutdownSignal::sweep`] compares the node's clock once a second, with all other
//! deadlines.

use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;

use crate::node::Node;

/// A planned shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Second of the node's clock.
    pub at: u32,
    /// Whether the node must start again.
    pub restart: bool,
}

#[derive(Default)]
struct State {
    planned: Option<Shutdown>,
    due: Option<Shutdown>,
    waker: Option<Waker>,
}

/// The planned shutdown and the task that waits for it.
#[derive(Default)]
pub struct ShutdownSignal(LeafMutex<State>);

impl ShutdownSignal {
    fn schedule(&self, shutdown: Shutdown) {
        self.0.lock().planned = Some(shutdown);
    }

    /// Checks whether the planned time has come.
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
    /// Plans the shutdown after a delay; a later call replaces an earlier one.
    pub fn request_shutdown(&self, restart: bool, delay_seconds: u32) {
        let shutdown = Shutdown { at: self.clock.now_seconds().saturating_add(delay_seconds), restart };
        self.shutdown_signal.schedule(shutdown);
        if delay_seconds == 0 {
            self.shutdown_signal.sweep(shutdown.at);
        }
    }

    /// The planned shutdown.
    pub fn shutdown_planned(&self) -> Option<Shutdown> {
        self.shutdown_signal.0.lock().planned
    }

    /// Waits for the planned shutdown. For one waiter: the program.
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
