//! Clock of the benches. They measure real time; the only call to the system's clock is here.

use std::time::Instant;

/// The monotonic time.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
