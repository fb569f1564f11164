//! Polling for an effect of another process, up to a time limit.
//!
//! # Pitfalls
//!
//! A test must be correct because of what it observed, not because it waited long enough. The pause between two polls only
//! yields the processor to the other processes.

use std::time::Duration;

use base::clock::{Clock, Millis, SystemClock};

/// For what a node does as soon as it can.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(30);
/// For whatever has to happen on a machine that does much else.
pub const SLOW_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Looks until there is something to see, or patience is at its end. It looks once at least.
pub fn poll<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = SystemClock::new();
    let end = Millis::ZERO + patience;
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if clock.now() >= end {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Looks until there is something to see.
///
/// # Panics
/// If there is nothing after [`SLOW_TIMEOUT`]; `what` is named then.
pub fn wait<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(SLOW_TIMEOUT, look).unwrap_or_else(|| panic!("{what}: nothing after {} s", SLOW_TIMEOUT.as_secs()))
}
