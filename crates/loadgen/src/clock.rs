//! Clock of the load generator: microseconds of `CLOCK_MONOTONIC`, shared by all processes of a machine.
//!
//! Not implemented: injection. The engine takes `now` as an argument wherever a test must control it; only loops that
//! wait for real sockets read the clock.
//!
//! # Pitfalls
//!
//! Clocks of two machines are unrelated; never subtract one from the other.

/// Microseconds since an arbitrary moment (usually boot), the same for every process of this machine.
pub fn now_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// Seconds since 1970, for display and file names only.
pub fn unix_seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

/// CPU time used by this process so far, in microseconds.
pub fn cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// CPU time used by this thread so far, in microseconds.
pub fn thread_cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}
