//! A connection, or a task for another node, that requests the takeover of an outbox.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use crate::outbox::Outbox;

pub(super) struct Claimant {
    pub(super) id: u64,
    pub(super) waker: Option<Waker>,
}

impl Outbox {
    /// A number for a connection, or for another node, that requests takeovers.
    pub fn next_claimant() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}
