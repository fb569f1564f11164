//! Planned shutdown, restart or drain of the node. The program waits for it and performs it.
//!
//! There is no timer: the program calls [`check_shutdown`] once a second, with [`Node::sweep`].

use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use throng_core::Node;

/// A planned shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Second of the node's clock.
    pub at: u32,
    /// What the node does then.
    pub kind: ShutdownKind,
}

/// How a node stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownKind {
    /// Ends all streams at once.
    Stop,
    /// The same, and starts again.
    Restart,
    /// Takes no new streams, and ends those that exist at a rate, before it stops.
    Drain(Drain),
}

/// A drain of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Streams that are ended in a second; at least one.
    pub streams_per_second: u32,
    /// Host to which clients are redirected (RFC 6120, section 4.9.3.19).
    pub other_host: Option<String>,
}

#[derive(Default)]
struct State {
    planned: Option<Shutdown>,
    due: Option<Shutdown>,
    waker: Option<Waker>,
}

/// The planned shutdown and the task that waits for it.
#[derive(Default)]
struct ShutdownSignal(LeafMutex<State>);

impl ShutdownSignal {
    fn schedule(&self, shutdown: Shutdown) {
        self.0.lock().planned = Some(shutdown);
    }

    /// Checks whether the planned time has come.
    fn sweep(&self, now: u32) {
        let waker = {
            let mut state = self.0.lock();
            if state.planned.as_ref().is_none_or(|planned| now < planned.at) {
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

fn shutdown_signal(node: &Node) -> Arc<ShutdownSignal> {
    node.extensions.get_or_default()
}

/// Must be called once a second: signals a planned shutdown whose time has come.
pub fn check_shutdown(node: &Node) {
    shutdown_signal(node).sweep(node.clock.now_seconds());
}

/// Plans the shutdown after a delay; a later call replaces an earlier one.
pub fn request_shutdown(node: &Node, kind: ShutdownKind, delay_seconds: u32) {
    let at = node.clock.now_seconds().saturating_add(delay_seconds);
    let signal = shutdown_signal(node);
    signal.schedule(Shutdown { at, kind });
    if delay_seconds == 0 {
        signal.sweep(at);
    }
}

/// The planned shutdown.
pub fn shutdown_planned(node: &Node) -> Option<Shutdown> {
    shutdown_signal(node).0.lock().planned.clone()
}

/// Waits for the planned shutdown. For one waiter: the program.
pub async fn wait_for_shutdown(node: &Node) -> Shutdown {
    let signal = shutdown_signal(node);
    std::future::poll_fn(|cx| {
        let mut state = signal.0.lock();
        match state.due.take() {
            Some(shutdown) => Poll::Ready(shutdown),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
