//! Processes of a bench: start, end, CPU and resident memory.
//!
//! CPU and memory are those of a process with all its descendants. CPU is the sum of `/proc/PID/task/*/schedstat`
//! (nanoseconds). Threads that ended between two readings count as they were last seen; `/proc/PID/stat` (10 ms steps,
//! ended threads included) is the check on it. Kernel work for the process is counted as the kernel accounts it:
//! loopback delivery mostly counts for the sender.
//!
//! Every child is in one list. It ends with its guard, with a panic, and with SIGINT, SIGTERM or SIGHUP; if the bench
//! is killed (SIGKILL), its children end through `setpriv --pdeathsig`, where that program exists.
#![allow(
    clippy::disallowed_types,
    reason = "a tool does not use `base`; no other lock is acquired while this one is held"
)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use super::clock::now;
use super::peers::process_tree::pids;
use super::report::print_progress;

/// Children and data folders to remove when a signal ends the bench.
static CLEANUP_ON_SIGNAL: Mutex<(Vec<u32>, Vec<PathBuf>)> = Mutex::new((Vec::new(), Vec::new()));

/// Time for a child to end after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(12);

/// Ends the children when a signal ends the bench. Call once.
pub(crate) fn end_children_on_signals() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let received = runtime.block_on(async {
            let kinds = (SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup());
            if let (Ok(mut int), Ok(mut term), Ok(mut hup)) =
                (signal(kinds.0), signal(kinds.1), signal(kinds.2))
            {
                tokio::select! { _ = int.recv() => true, _ = term.recv() => true, _ = hup.recv() => true }
            } else {
                false
            }
        });
        if !received {
            return;
        }
        let (children, folders) = std::mem::take(&mut *CLEANUP_ON_SIGNAL.lock());
        for id in children {
            send_signal(id, Signal::KILL);
        }
        for folder in folders {
            // A process that is still ending may create another file there.
            for _ in 0..40 {
                if fs::remove_dir_all(&folder).is_ok() || !folder.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        std::process::exit(130);
    })?;
    Ok(())
}

fn send_signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // It may have ended already.
        let _ = kill_process(pid, signal);
    }
}

/// A child process that ends with this guard.
pub(crate) struct ChildGuard(Child);

impl ChildGuard {
    /// Starts the command with its output in `log`; its standard input stays open as long as this process lives.
    pub(crate) fn start(command: &Command, log: &Path) -> Result<Self> {
        let log = File::create(log)?;
        let mut command = killed_with_parent(command);
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("{command:?} cannot be started"))?;
        CLEANUP_ON_SIGNAL.lock().0.push(child.id());
        Ok(Self(child))
    }

    /// The process's id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.0.wait()?)
    }

    /// Asks the process to end in order (SIGINT).
    pub(crate) fn interrupt(&self) {
        send_signal(self.id(), Signal::INT);
    }

    /// Ends the process at once (SIGKILL) and waits for its end.
    pub(crate) fn kill(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Fails when the process has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("process {} ended unexpectedly: {status}", self.id()),
            None => Ok(()),
        }
    }
}

/// The last lines of a log.
pub(crate) fn log_tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// The same command, killed with its parent. The process id is that of the command, because `setpriv` replaces itself.
fn killed_with_parent(command: &Command) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    let mut wrapped = if setpriv.exists() {
        let mut wrapped = Command::new(setpriv);
        wrapped.args(["--pdeathsig", "TERM", "--"]).arg(command.get_program());
        wrapped
    } else {
        Command::new(command.get_program())
    };
    wrapped.args(command.get_args());
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            wrapped.env(key, value);
        }
    }
    wrapped
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let id = self.id();
        if matches!(self.0.try_wait(), Ok(None)) {
            send_signal(id, Signal::TERM);
            let requested_at = now();
            while matches!(self.0.try_wait(), Ok(None)) {
                if requested_at.elapsed() > TERMINATION_TIMEOUT {
                    print_progress(&format!(
                        "process {id} did not end within {} s of SIGTERM: killed",
                        TERMINATION_TIMEOUT.as_secs()
                    ));
                    let _ = self.0.kill();
                    let _ = self.0.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        CLEANUP_ON_SIGNAL.lock().0.retain(|child| *child != id);
    }
}

/// A folder below the system's temporary folder, removed with this guard.
pub(crate) struct BenchFolder {
    path: PathBuf,
    keep: bool,
}

impl BenchFolder {
    /// Creates an empty folder.
    pub(crate) fn new(keep: bool) -> Result<Self> {
        let base = std::env::temp_dir();
        let path = (0_u32..)
            .map(|turn| base.join(format!("throng-bench-{}-{turn}", std::process::id())))
            .find(|path| !path.exists())
            .context("no name is free in the temporary folder")?;
        fs::create_dir_all(&path).with_context(|| format!("{} cannot be created", path.display()))?;
        if !keep {
            CLEANUP_ON_SIGNAL.lock().1.push(path.clone());
        }
        Ok(Self { path, keep })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        if self.keep {
            print_progress(&format!("kept {}", self.path.display()));
        } else {
            let _ = fs::remove_dir_all(&self.path);
            CLEANUP_ON_SIGNAL.lock().1.retain(|path| *path != self.path);
        }
    }
}

/// CPU time of a process and its descendants.
pub(crate) struct CpuMeter {
    root: u32,
    /// Nanoseconds by process and thread.
    threads: HashMap<(u32, u32), u64>,
    /// User and system time by process, in nanoseconds.
    processes: HashMap<u32, u64>,
    last: (u64, u64),
}

impl CpuMeter {
    /// Starts to watch a process.
    pub(crate) fn watch(root: u32) -> Result<Self> {
        let mut cpu = Self { root, threads: HashMap::new(), processes: HashMap::new(), last: (0, 0) };
        cpu.last = cpu.read()?;
        Ok(cpu)
    }

    fn read(&mut self) -> Result<(u64, u64)> {
        for id in pids(self.root) {
            if self.read_one(id).is_none() && id == self.root {
                bail!("there is no process {id}");
            }
        }
        Ok((self.threads.values().sum(), self.processes.values().sum()))
    }

    /// `None` when the process has ended; its CPU until then stays counted.
    fn read_one(&mut self, id: u32) -> Option<()> {
        for task in fs::read_dir(format!("/proc/{id}/task")).ok()? {
            // A thread may end between the listing and the reading.
            let Ok(task) = task else { continue };
            let thread = task.file_name().to_str().and_then(|name| name.parse().ok());
            let text = fs::read_to_string(task.path().join("schedstat"));
            let nanos = text.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
            if let (Some(thread), Some(nanos)) = (thread, nanos) {
                self.threads.insert((id, thread), nanos);
            }
        }
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // Fields 14 and 15 (user and system time, in hundredths of a second); the name in field 2 may contain spaces.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks: u64 =
            fields.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
        self.processes.insert(id, ticks * 10_000_000);
        Some(())
    }

    /// Nanoseconds of CPU since the last call (or since `watch`).
    pub(crate) fn elapsed(&mut self) -> Result<u64> {
        let next = self.read()?;
        let fine = next.0.saturating_sub(self.last.0);
        let coarse = next.1.saturating_sub(self.last.1);
        self.last = next;
        // Short-lived threads are only in the coarse value.
        Ok(if coarse > fine + 20_000_000 { coarse } else { fine })
    }
}

/// Resident memory of a process and its descendants in bytes (`Rss` of `/proc/PID/smaps_rollup`; shared pages count in
/// each).
pub(crate) fn resident_bytes(root: u32) -> Result<u64> {
    let one = |id: u32| -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup"))
            .with_context(|| format!("the memory of process {id} cannot be read"))?;
        text.lines()
            .find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
            .map(|kilobytes| kilobytes * 1024)
            .context("smaps_rollup has no Rss")
    };
    let descendants = pids(root).into_iter().filter(|id| *id != root);
    // A descendant may end between the listing and the reading.
    Ok(one(root)? + descendants.filter_map(|id| one(id).ok()).sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::{CpuMeter, resident_bytes};

    #[test]
    fn cpu_and_memory_of_this_process_are_measured() {
        let mut cpu = CpuMeter::watch(std::process::id()).unwrap();
        let mut sum = 0_u64;
        let mut lap = 0;
        // Until some CPU is seen: the kernel counts a running thread at its next tick.
        while lap == 0 {
            for i in 0..10_000_000_u64 {
                sum = sum.wrapping_mul(31).wrapping_add(std::hint::black_box(i));
            }
            lap = cpu.elapsed().unwrap();
        }
        assert!(std::hint::black_box(sum) != 1);
        assert!(resident_bytes(std::process::id()).unwrap() > 500_000);
    }
}
