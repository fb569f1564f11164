//! The benches' clock. They measure real time, so the one call to the system's clock is here.

use std::time::Instant;

/// The monotonic time.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
