//! The clock of the load generator: microseconds of CLOCK_MONOTONIC, one for all processes of a machine.
//!
//! Left out: injection. The engine takes `now` as an argument wherever a test needs to own it; only loops that wait
//! for real sockets read the clock. Trap: two machines have two of these clocks; never subtract one from the other.

/// Microseconds since an arbitrary moment (usually the boot), the same for every process of this machine.
pub fn now_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// Seconds since 1970, for display and file names only.
pub fn unix_seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

/// CPU that this process has used so far, in microseconds.
pub fn cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// CPU that this thread has used so far, in microseconds.
pub fn thread_cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}
