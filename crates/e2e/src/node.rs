//! A node of the real program in its own folder: configuration, start, commands, end.
//!
//! Not implemented: the content of the configuration and the clients' logins, which belong to each test.
//!
//! # Pitfalls
//!
//! Commands run on this side of a network namespace. They reach a node in another namespace through its admin socket, which is
//! a file; that node's ports cannot be reached.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use base::clock::{Clock, SystemClock};

use crate::folder::TempFolder;
use crate::process::{KillOnDrop, describe_output, program, signal};
use crate::wait::{NODE_TIMEOUT, SLOW_TIMEOUT, poll};

const CONFIG: &str = "throng.toml";
const LOG: &str = "log";
/// The last line of the greeting, which comes when every port and the admin socket are open.
const READY: &str = "Stop with";

/// A folder with a configuration, and the node in it while it runs. A node that runs is killed with the value.
#[derive(Debug)]
pub struct NodeProcess {
    // Before the folder, for values go in this order: nobody writes there any more when it is removed.
    process: Option<KillOnDrop>,
    /// Where it runs; `throng.toml` and `log` are in it.
    pub folder: TempFolder,
    netns: Option<String>,
}

impl NodeProcess {
    /// A node that has not started, in a folder of this name.
    pub fn new(name: &str) -> NodeProcess {
        NodeProcess::new_in_netns(None, name)
    }

    /// The same in a network namespace, if one is named.
    pub fn new_in_netns(space: Option<String>, name: &str) -> NodeProcess {
        NodeProcess { process: None, folder: TempFolder::new(name), netns: space }
    }

    /// The network namespace that it runs in.
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

    /// A command of the program with the node's configuration, run to its end.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn run(&self, words: &[&str]) -> Output {
        self.run_with(words, "")
    }

    /// The same with something to read on its standard input.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn run_with(&self, words: &[&str], input: &str) -> Output {
        let mut command = self.program(words);
        command.args(["--config", CONFIG]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("throng starts");
        // A command that fails early closes its end; its own words say more than the broken pipe.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().expect("throng ends")
    }

    /// What a command printed that must succeed.
    ///
    /// # Panics
    /// If it does not.
    pub fn run_ok(&self, words: &[&str]) -> String {
        self.run_ok_with(words, "")
    }

    /// The same with something to read on its standard input.
    ///
    /// # Panics
    /// If it does not succeed.
    pub fn run_ok_with(&self, words: &[&str], input: &str) -> String {
        let output = self.run_with(words, input);
        assert!(output.status.success(), "{words:?}: {}\n{}", describe_output(&output), self.log_tail());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Makes an account, and the database if the node was never started.
    ///
    /// # Panics
    /// If that fails.
    pub fn add_account(&self, jid: &str, password: &str) {
        self.run_ok(&["account", "add", "--create", "--password", password, jid]);
    }

    /// Starts it and waits until it has opened all its ports and its admin socket.
    ///
    /// # Panics
    /// If it ends before, or takes longer than [`SLOW_TIMEOUT`].
    pub fn start(&mut self) {
        // Appended to: what the node before a `kill -9` said is part of the story.
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join(LOG)).expect("a log");
        let greetings = || self.log().matches(READY).count();
        let before = greetings();
        let mut command = program(self.netns(), &["serve", "--config", CONFIG]);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        let mut process = KillOnDrop(command.spawn().expect("throng starts"));
        let up = poll(SLOW_TIMEOUT, || {
            if let Some(status) = process.0.try_wait().expect("a child") {
                panic!("the node ended with {status}:\n{}", self.log_tail());
            }
            (greetings() > before).then_some(())
        });
        assert!(
            up.is_some(),
            "the node is not ready after {} s:\n{}",
            SLOW_TIMEOUT.as_secs(),
            self.log_tail()
        );
        self.process = Some(process);
    }

    /// All that it has printed.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.folder.join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The end of that, for the message of a failure.
    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Waits until the log has this.
    ///
    /// # Panics
    /// If it does not within [`NODE_TIMEOUT`].
    pub fn wait_for_log(&self, what: &str) {
        let seen = poll(NODE_TIMEOUT, || self.log().contains(what).then_some(()));
        assert!(seen.is_some(), "no {what} in {}", self.log());
    }

    /// Id of its process.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running node").0.id()
    }

    /// Ends it by SIGKILL.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self) {
        signal(self.pid(), "KILL");
        self.wait_for_exit();
    }

    /// Ends it as an operator does, by SIGTERM, which it must answer with status 0. How long that took.
    ///
    /// # Panics
    /// If it does not run, does not end, or ends in another way.
    pub fn stop(&mut self) -> Duration {
        let clock = SystemClock::new();
        signal(self.pid(), "TERM");
        let status = self.wait_for_exit();
        assert!(status.success(), "the node left with {status} after SIGTERM:\n{}", self.log_tail());
        Duration::from_millis(clock.now().0)
    }

    /// Waits for an end that something else brings about.
    ///
    /// # Panics
    /// If it does not run, or does not end within [`NODE_TIMEOUT`].
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("a running node");
        let status = poll(NODE_TIMEOUT, || process.0.try_wait().expect("a child"));
        status.unwrap_or_else(|| panic!("the node does not end:\n{}", self.log_tail()))
    }
}
