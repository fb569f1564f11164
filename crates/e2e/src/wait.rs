//! Polling for an effect of another process, up to a time limit.
//!
//! # Pitfalls
//!
//! A test must be correct because of what it observed, not because it waited long enough. The pause between two polls
//! only yields the processor to the other processes.

use std::time::Duration;

use base::clock::{Clock, Millis, SystemClock};

/// Timeout for reactions without work.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for anything on a busy machine.
pub const SLOW_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Polls until there is a value or the time limit is over; at least once.
pub fn poll<T>(timeout: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = SystemClock::new();
    let end = Millis::ZERO + timeout;
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

/// Polls until there is a value.
///
/// # Panics
/// If there is none after [`SLOW_TIMEOUT`]; the message names `what`.
pub fn wait<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(SLOW_TIMEOUT, look).unwrap_or_else(|| panic!("{what}: nothing after {} s", SLOW_TIMEOUT.as_secs()))
}
