//! The program under test, and processes that do not outlive the test that started them.
//!
//! # Pitfalls
//!
//! The id of a process that has been waited for may be another process's; signals are sent only to processes that are
//! still held.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};

use crate::wait::wait;

/// Path of the program, beside the folder of the test's own executable.
///
/// # Panics
/// If the program was not built.
pub fn program_path() -> PathBuf {
    let own = std::env::current_exe().expect("the path of the test");
    let path = own.parent().and_then(Path::parent).expect("target/debug/deps").join("throng");
    assert!(path.is_file(), "{} is missing: run `cargo build -p throng-server`", path.display());
    path
}

/// The program with these arguments, in a network namespace if one is named.
pub fn program(space: Option<&str>, words: &[&str]) -> Command {
    let mut command = command_in_netns(space, &program_path());
    command.args(words);
    command
}

/// Any program, in a network namespace if one is named. The started process is the program itself, because `ip`
/// executes it in its place.
pub fn command_in_netns(space: Option<&str>, program: &Path) -> Command {
    let Some(space) = space else { return Command::new(program) };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", space]).arg(program);
    command
}

/// Exit status and output of a process, for failure messages.
pub fn describe_output(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Sends a signal, such as `TERM`, to one process.
///
/// # Panics
/// If there is no such process.
pub fn signal(pid: u32, name: &str) {
    // The shell's `kill`, because /bin/kill is not installed everywhere.
    let sent = Command::new("sh").args(["-c", "kill -\"$1\" \"$2\"", "sh", name, &pid.to_string()]).status();
    assert!(sent.expect("sh").success(), "no process {pid}");
}

/// Runs `test` as root: directly, or by starting the test of this name again through sudo. Fails if neither is
/// possible.
///
/// # Panics
/// If the test fails, or cannot be run as root.
pub fn run_as_root(name: &str, test: impl FnOnce()) {
    let user = fs::metadata("/proc/self").expect("/proc").uid();
    if user == 0 {
        return test();
    }
    let own = std::env::current_exe().expect("the path of the test");
    let again = Command::new("sudo").arg("-n").arg(own).args(["--exact", name, "--nocapture"]).output();
    let hint = "this test needs root: run it as root, or allow sudo without a password";
    let output = again.unwrap_or_else(|error| panic!("{hint} (sudo: {error})"));
    assert!(
        output.status.success(),
        "{hint}, unless what follows says otherwise\n{}",
        describe_output(&output)
    );
    // An unknown name runs no test and succeeds.
    let ran_it = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(ran_it, "this program has no test {name}\n{}", describe_output(&output));
}

/// A process that is killed when the value is dropped.
#[derive(Debug)]
pub struct KillOnDrop(pub Child);

impl KillOnDrop {
    /// Waits until the process ends.
    ///
    /// # Panics
    /// If it does not end; the message names `what`.
    pub fn wait_for_exit(&mut self, what: &str) -> ExitStatus {
        wait(what, || self.0.try_wait().expect("a child"))
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
