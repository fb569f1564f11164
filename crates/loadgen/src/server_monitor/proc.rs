//! Reader of `/proc` (proc(5)): CPU, memory, threads and files of a process, and the sockets of the machine.
//!
//! # Pitfalls
//!
//! The second field of `stat` is the program name, which may contain spaces and parentheses; count fields after the
//! last closing parenthesis.

use std::collections::BTreeSet;

/// Fields of `stat` of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessStat {
    /// Parent process.
    pub(super) parent: u32,
    /// CPU time used so far, in seconds.
    pub(super) cpu: f64,
    /// Threads.
    pub(super) threads: u32,
    /// Resident memory in bytes.
    pub(super) rss: u64,
}

/// Reads the fields; `None` if there is no such process.
pub(super) fn stat(pid: u32) -> Option<ProcessStat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text, rustix::param::page_size() as u64, rustix::param::clock_ticks_per_second() as f64)
}

fn parse_stat(text: &str, page: u64, ticks: f64) -> Option<ProcessStat> {
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    // The first of these is field 3, the state.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(ProcessStat {
        parent: u32::try_from(number(4)?).ok()?,
        cpu: (number(14)? + number(15)?) as f64 / ticks,
        threads: u32::try_from(number(20)?).ok()?,
        rss: number(24)? * page,
    })
}

/// Proportional memory (PSS) in bytes; 0 if it cannot be read, as for processes of other users.
pub(super) fn pss(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    kilobytes(&text, "Pss:")
}

/// Number of open files; 0 if they cannot be listed.
pub(super) fn files(pid: u32) -> u32 {
    // The kernel reports their number as the size of the directory since 6.2; counting works everywhere.
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .map_or(0, |entries| u32::try_from(entries.count()).unwrap_or(u32::MAX))
}

/// These processes and all their descendants.
pub(super) fn descendants(roots: &[u32]) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    process_tree(roots, &pids.filter_map(|pid| Some((pid, stat(pid)?.parent))).collect::<Vec<_>>())
}

fn process_tree(roots: &[u32], parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found: BTreeSet<u32> = roots.iter().copied().collect();
    loop {
        let before = found.len();
        for (pid, parent) in parents {
            if found.contains(parent) {
                found.insert(*pid);
            }
        }
        if found.len() == before {
            return found.into_iter().collect();
        }
    }
}

/// Memory of all TCP sockets of the machine in bytes.
pub(super) fn tcp_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    parse_sockstat(&text) * rustix::param::page_size() as u64
}

/// Result in pages.
fn parse_sockstat(text: &str) -> u64 {
    let tcp = text.lines().find_map(|line| line.strip_prefix("TCP:"));
    let mut words = tcp.unwrap_or_default().split_ascii_whitespace();
    words.find(|word| *word == "mem");
    words.next().and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// Reads a line of `/proc/meminfo`, in bytes.
pub(super) fn memory(key: &str) -> u64 {
    kilobytes(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), key)
}

fn kilobytes(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1_024
}

/// First and last ephemeral port; the defaults of the kernel if they cannot be read.
pub(super) fn ports() -> (u16, u16) {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse::<u16>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(last))) => (first, last),
        _ => (32_768, 60_999),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_may_contain_any_character() {
        let text =
            "42 (a) b (c)) S 7 42 42 0 -1 4194560 9 0 0 0 1250 250 5 5 20 0 33 0 999 123456789 2560 184 1";
        let stat = parse_stat(text, 4_096, 100.0).unwrap();
        assert_eq!(stat, ProcessStat { parent: 7, cpu: 15.0, threads: 33, rss: 2_560 * 4_096 });
        assert_eq!(parse_stat("42 (x) S 1", 4_096, 100.0), None);
        assert_eq!(parse_stat("", 4_096, 100.0), None);
    }

    #[test]
    fn sockets_and_memory() {
        let text = "sockets: used 290\nTCP: inuse 9 orphan 0 tw 2 alloc 11 mem 37\nUDP: inuse 1 mem 5\n";
        assert_eq!(parse_sockstat(text), 37);
        assert_eq!(parse_sockstat(""), 0);
        let rollup = "Rss:  900 kB\nPss:                 512 kB\nPss_Anon: 1 kB\n";
        assert_eq!(kilobytes(rollup, "Pss:"), 512 * 1_024);
    }

    #[test]
    fn a_process_tree_has_grandchildren_and_no_other_processes() {
        let parents = [(5, 4), (4, 2), (2, 1), (9, 1), (3, 2), (10, 9)];
        assert_eq!(process_tree(&[2], &parents), [2, 3, 4, 5]);
        assert_eq!(process_tree(&[2, 10], &parents), [2, 3, 4, 5, 10]);
    }
}
