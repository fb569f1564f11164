//! Waiting for what another process does: looking until it is there, for as long as the test has patience.
//!
//! The trap: a test is right because of what it saw, never because it waited long enough. The pause between two looks only
//! leaves the machine to those who are waited for.

use std::time::Duration;

use base::clock::{Clock, Millis, SystemClock};

/// For what a node does as soon as it can.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// For whatever has to happen on a machine that does much else.
pub const LONG: Duration = Duration::from_secs(120);
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(25);

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
        std::thread::sleep(GLANCE);
    }
}

/// Looks until there is something to see.
///
/// # Panics
/// If there is nothing after [`LONG`]; `what` is named then.
pub fn wait<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(LONG, look).unwrap_or_else(|| panic!("{what}: nothing after {} s", LONG.as_secs()))
}
