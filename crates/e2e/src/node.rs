//! A node of the real program in its own folder: configuration, start, commands, end.
//!
//! Not implemented: the content of the configuration and the clients' logins, which belong to each test.
//!
//! # Pitfalls
//!
//! Commands run on this side of a network namespace. They reach a node in another namespace through its admin socket,
//! which is a file; that node's ports cannot be reached.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Command, ExitStatus, Output, Stdio};

use crate::folder::TempFolder;
use crate::process::{KillOnDrop, describe_output, program, signal};
use crate::wait::{TIMEOUT, poll};

const CONFIG: &str = "throng.toml";
const LOG: &str = "log";
/// Last line of the greeting, printed when every port and the admin socket are open.
const READY: &str = "Stop with";

/// A folder with a configuration, and the node in it while it runs. A running node is killed when the value is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    // Before the folder, because fields are dropped in this order: no process writes to the folder when it is removed.
    process: Option<KillOnDrop>,
    /// Working folder with `throng.toml` and `log`.
    pub folder: TempFolder,
    netns: Option<String>,
}

impl NodeProcess {
    /// Creates a node in a folder of this name, without starting it.
    pub fn new(name: &str) -> NodeProcess {
        NodeProcess::new_in_netns(None, name)
    }

    /// Like [`NodeProcess::new`], in a network namespace if one is named.
    pub fn new_in_netns(space: Option<String>, name: &str) -> NodeProcess {
        NodeProcess { process: None, folder: TempFolder::new(name), netns: space }
    }

    /// Network namespace of the node.
    pub fn netns(&self) -> Option<&str> {
        self.netns.as_deref()
    }

    /// Writes its configuration.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn configure(&self, text: &str) {
        fs::write(self.folder.join(CONFIG), text).expect("a configuration");
    }

    /// The program in the node's folder, without its configuration.
    pub fn program(&self, words: &[&str]) -> Command {
        let mut command = program(None, words);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Runs a command of the program with the node's configuration.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn run(&self, words: &[&str]) -> Output {
        self.run_with(words, "")
    }

    /// The same with text on standard input.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn run_with(&self, words: &[&str], input: &str) -> Output {
        let mut command = self.program(words);
        command.args(["--config", CONFIG]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("throng starts");
        // A command that fails early closes its input; its own message is more useful than the broken pipe.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().expect("throng ends")
    }

    /// Output of a command that must succeed.
    ///
    /// # Panics
    /// If it fails.
    pub fn run_ok(&self, words: &[&str]) -> String {
        self.run_ok_with(words, "")
    }

    /// The same with text on standard input.
    ///
    /// # Panics
    /// If it fails.
    pub fn run_ok_with(&self, words: &[&str], input: &str) -> String {
        let output = self.run_with(words, input);
        assert!(output.status.success(), "{words:?}: {}\n{}", describe_output(&output), self.log_tail());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Creates an account, and the database if the node was never started.
    ///
    /// # Panics
    /// If the command fails.
    pub fn add_account(&self, jid: &str, password: &str) {
        self.run_ok(&["account", "add", "--create", "--password", password, jid]);
    }

    /// Starts the node and waits until all its ports and its admin socket are open.
    ///
    /// # Panics
    /// If it ends first, or takes longer than [`TIMEOUT`].
    pub fn start(&mut self) {
        // Appended, to keep the log of the process before a `kill -9`.
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join(LOG)).expect("a log");
        let greetings = || self.log().matches(READY).count();
        let before = greetings();
        let mut command = program(self.netns(), &["serve", "--config", CONFIG]);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        let mut process = KillOnDrop(command.spawn().expect("throng starts"));
        let up = poll(TIMEOUT, || {
            if let Some(status) = process.0.try_wait().expect("a child") {
                panic!("the node ended with {status}:\n{}", self.log_tail());
            }
            (greetings() > before).then_some(())
        });
        assert!(up.is_some(), "the node is not ready after {} s:\n{}", TIMEOUT.as_secs(), self.log_tail());
        self.process = Some(process);
    }

    /// The complete log.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.folder.join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The end of the log, for failure messages.
    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Waits until the log contains this text.
    ///
    /// # Panics
    /// If it does not within [`TIMEOUT`].
    pub fn wait_for_log(&self, what: &str) {
        let seen = poll(TIMEOUT, || self.log().contains(what).then_some(()));
        assert!(seen.is_some(), "no {what} in {}", self.log());
    }

    /// Process id.
    ///
    /// # Panics
    /// If the node is not running.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running node").0.id()
    }

    /// Kills the node with SIGKILL.
    ///
    /// # Panics
    /// If the node is not running.
    pub fn kill(&mut self) {
        signal(self.pid(), "KILL");
        self.wait_for_exit();
    }

    /// Stops the node with SIGTERM; it must exit with status 0.
    ///
    /// # Panics
    /// If it is not running, does not end within [`TIMEOUT`], or ends with another status.
    pub fn stop(&mut self) {
        signal(self.pid(), "TERM");
        let status = self.wait_for_exit();
        assert!(status.success(), "the node left with {status} after SIGTERM:\n{}", self.log_tail());
    }

    /// Like [`Self::stop`]; every connection must end before the node gives up waiting for it.
    ///
    /// # Panics
    /// As `stop`, and if a connection did not end in time.
    pub fn stop_in_order(&mut self) {
        self.stop();
        let log = self.log();
        assert!(!log.contains("did not end in time"), "{}", self.log_tail());
    }

    /// Waits until the node ends for another reason.
    ///
    /// # Panics
    /// If it does not run, or does not end within [`TIMEOUT`].
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("a running node");
        let status = poll(TIMEOUT, || process.0.try_wait().expect("a child"));
        status.unwrap_or_else(|| panic!("the node does not end:\n{}", self.log_tail()))
    }
}
