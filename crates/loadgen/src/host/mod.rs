//! The server's side: processes by id, sockets of the machine, a page of metrics.

/// Resident memory of this process in bytes; 0 where /proc has none.
pub fn own_rss() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
