//! Process statistics from `/proc/self`, as Prometheus's client libraries report them.
//!
//! Not implemented: systems other than Linux, where the values are zero.
//!
//! # Pitfalls
//!
//! These values are read on each scrape, so files that walk the page tables (`smaps`) must not be read here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Statistics of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ProcessStats {
    /// Resident memory by kind in bytes: anonymous (allocations), file-backed (the program), shared.
    pub(crate) resident_bytes: [u64; 3],
    pub(crate) virtual_bytes: u64,
    pub(crate) threads: u64,
    pub(crate) open_files: u64,
    pub(crate) max_open_files: u64,
}

impl ProcessStats {
    /// Reads the current values.
    pub(crate) fn read() -> ProcessStats {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let open_files = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        // Listing the directory opens one descriptor itself.
        let files = (open_files.saturating_sub(1), most.unwrap_or_default());
        ProcessStats { open_files: files.0, max_open_files: files.1, ..ProcessStats::parse(&status) }
    }

    fn parse(status: &str) -> ProcessStats {
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
        };
        ProcessStats {
            resident_bytes: ["RssAnon", "RssFile", "RssShmem"].map(|name| number(name) * 1024),
            virtual_bytes: number("VmSize") * 1024,
            threads: number("Threads"),
            ..ProcessStats::default()
        }
    }
}

/// Resident memory of this process in bytes; 0 if the system does not report it.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|s| s.split_whitespace().nth(1).and_then(|p| p.parse::<u64>().ok()));
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// CPU time of this process in seconds; 0 if the system does not report it.
pub(crate) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    (seconds * 1000.0).round() / 1000.0
}

/// Start time of the process in seconds since 1970, from its age and the wall clock.
pub(crate) fn process_start_time(unix_millis: u64, age: Duration) -> u64 {
    let now = UNIX_EPOCH + Duration::from_millis(unix_millis);
    let started = now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_status_is_parsed() {
        let page = "Name:\tthrong\nVmSize:\t  123456 kB\nRssAnon:\t     100 kB\nRssFile:\t      20 kB\n\
                    RssShmem:\t       3 kB\nThreads:\t7\n";
        let seen = ProcessStats::parse(page);
        assert_eq!(seen.resident_bytes, [102_400, 20_480, 3_072]);
        assert_eq!((seen.virtual_bytes, seen.threads), (123_456 * 1024, 7));
        assert_eq!(ProcessStats::parse("nonsense"), ProcessStats::default());
    }

    #[test]
    fn this_process_has_memory_files_and_threads() {
        let seen = ProcessStats::read();
        assert!(seen.resident_bytes[0] > 0 && seen.threads > 0 && seen.open_files > 0, "{seen:?}");
        assert!(
            seen.max_open_files >= seen.open_files && resident_bytes() > 0 && cpu_seconds() >= 0.0,
            "{seen:?}"
        );
    }

    #[test]
    fn the_start_is_as_long_ago_as_the_process_is_old() {
        assert_eq!(process_start_time(1_700_000_010_500, Duration::from_secs(10)), 1_700_000_000);
        assert_eq!(process_start_time(5_000, Duration::from_secs(10)), 0);
    }
}
