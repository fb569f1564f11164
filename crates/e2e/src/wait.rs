//! Polling for an effect of another process, up to a time limit.
//!
//! # Pitfalls
//!
//! A test must be correct because of what it observed, not because it waited long enough. The pause between two polls
//! only yields the processor to the other processes.

use std::time::Duration;

use base::clock::{Clock, Millis, SystemClock};

/// Timeout for anything that another process does, on a busy machine too. Only a failure takes this long.
pub const TIMEOUT: Duration = Duration::from_secs(120);
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
/// If there is none after [`TIMEOUT`]; the message names `what`.
pub fn wait<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(TIMEOUT, look).unwrap_or_else(|| panic!("{what}: nothing after {} s", TIMEOUT.as_secs()))
}

/// Polls until there is a value, as long as the error, which describes the progress, changes: so work takes the time that the
/// machine needs for it.
///
/// # Panics
/// If the progress is the same for [`TIMEOUT`]; the message names `what`.
pub fn wait_for_progress<T, P: PartialEq + std::fmt::Debug>(
    what: &str,
    mut look: impl FnMut() -> Result<T, P>,
) -> T {
    let mut last = None;
    loop {
        let changed = poll(TIMEOUT, || match look() {
            Ok(value) => Some(Ok(value)),
            Err(progress) if last.as_ref() != Some(&progress) => Some(Err(progress)),
            Err(_) => None,
        });
        match changed {
            Some(Ok(value)) => return value,
            Some(Err(progress)) => last = Some(progress),
            None => panic!("{what}: no progress in {} s after {last:?}", TIMEOUT.as_secs()),
        }
    }
}
