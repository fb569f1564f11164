//! CPU time and memory of a process with all its descendants, from `/proc` (proc(5)).
//!
//! Servers and generators are trees: Erlang's helpers, a shell above the virtual machine, the workers of `throng load`.
//! CPU is user and system time in steps of 10 ms; CPU of descendants that ended stays counted. Memory is `Rss` and
//! `Pss` of `smaps_rollup`.
//!
//! # Pitfalls
//!
//! A process whose parent ended is adopted by init and is no longer in the tree (`epmd` does that on purpose and is not
//! counted).

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// Current resource usage of a tree of processes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct TreeUsage {
    /// User and system time since the processes began.
    pub(super) cpu: Duration,
    /// Resident bytes; shared pages count in each process.
    pub(super) rss: u64,
    /// Resident bytes; a shared page is divided among its users.
    pub(super) pss: u64,
    /// Number of processes.
    pub(super) processes: usize,
}

/// CPU and memory of one tree.
pub(super) struct ProcessTree {
    root: u32,
    /// CPU of each process as it was last seen, by id and start time: an id may be used again.
    seen: HashMap<(u32, u64), Duration>,
}

impl ProcessTree {
    /// Watches `root` and its descendants.
    pub(super) fn new(root: u32) -> Self {
        Self { root, seen: HashMap::new() }
    }

    /// Reads the tree. Processes that ended since then keep their CPU.
    pub(super) fn sample(&mut self) -> TreeUsage {
        let mut usage = TreeUsage::default();
        for process in tree_processes(self.root) {
            self.seen.insert((process.id, process.started), process.cpu);
            let (rss, pss) = read_memory(process.id);
            usage.rss += rss;
            usage.pss += pss;
            usage.processes += 1;
        }
        usage.cpu = self.seen.values().sum();
        usage
    }
}

/// The ids of `root` and its descendants, the root first.
pub(crate) fn pids(root: u32) -> Vec<u32> {
    tree_processes(root).iter().map(|process| process.id).collect()
}

struct ProcStat {
    id: u32,
    parent: u32,
    started: u64,
    cpu: Duration,
}

fn tree_processes(root: u32) -> Vec<ProcStat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut rest: Vec<ProcStat> = ids.filter_map(read_process).collect();
    let mut family: Vec<ProcStat> = Vec::new();
    let (first, others) = rest.drain(..).partition(|process| process.id == root);
    family.extend::<Vec<_>>(first);
    rest = others;
    let mut at = 0;
    while let Some(parent) = family.get(at).map(|process| process.id) {
        let (children, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|p| p.parent == parent);
        family.extend(children);
        rest = others;
        at += 1;
    }
    family
}

/// Fields 4 (parent), 14 and 15 (CPU in hundredths of a second) and 22 (start) of `/proc/PID/stat`.
fn read_process(id: u32) -> Option<ProcStat> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in field 2 may hold spaces and parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(ProcStat {
        id,
        parent: u32::try_from(number(4)?).ok()?,
        started: number(22)?,
        cpu: Duration::from_millis(10 * (number(14)? + number(15)?)),
    })
}

fn read_memory(id: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
    let bytes = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
            .map_or(0, |kilobytes| kilobytes * 1024)
    };
    (bytes("Rss:"), bytes("Pss:"))
}

#[cfg(test)]
mod tests {
    use super::{ProcessTree, pids};
    use std::process::{Command, Stdio};

    #[test]
    fn cpu_of_ended_descendants_is_included() {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read line";
        let mut child = Command::new("sh")
            .args(["-c", &format!("(echo ready; {script}); true")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut tree = ProcessTree::new(child.id());
        // Until the grandchild is there and has used some CPU.
        let busy = loop {
            let usage = tree.sample();
            if usage.processes == 2 && !usage.cpu.is_zero() {
                break usage;
            }
        };
        assert!(busy.rss > 500_000 && busy.pss <= busy.rss);
        assert_eq!(pids(child.id()).len(), 2);
        drop(child.stdin.take());
        child.wait().unwrap();
        let after = tree.sample();
        assert_eq!(after.processes, 0);
        assert!(after.cpu >= busy.cpu);
    }
}
