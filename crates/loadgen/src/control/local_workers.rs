//! Worker processes of this machine: started, monitored, and ended with the controller.
//!
//! The token is passed in the environment, since command lines are visible to all users of the machine. Each worker is
//! a separate process group, so that Ctrl-C reaches only the controller, which then ends all gracefully.
//!
//! # Pitfalls
//!
//! A controller that is killed cannot end its workers; they exit when their connection closes.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;

use anyhow::{Context, Result};

use super::worker_connection::ControllerEvent;

/// Environment variable that holds the token.
pub(crate) const TOKEN: &str = "THRONG_LOAD_TOKEN";
/// Stderr lines kept per worker.
const LINES: usize = 200;

/// Worker processes of this machine.
#[derive(Default)]
pub(crate) struct LocalWorkers {
    children: Vec<Child>,
}

impl LocalWorkers {
    /// Starts `count` workers that join at `join`.
    pub(crate) fn start(
        count: u16,
        join: SocketAddr,
        token: &str,
        events: &SyncSender<ControllerEvent>,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("cannot determine the path of the program")?;
        let mut local = Self::default();
        for _ in 0..count {
            let mut child = Command::new(&program)
                .args(["load", "worker", "--name", "local", "--join"])
                .arg(join.to_string())
                .env(TOKEN, token)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .process_group(0)
                .spawn()
                .with_context(|| format!("cannot start a worker from {}", program.display()))?;
            if let Some(stderr) = child.stderr.take() {
                let events = events.clone();
                std::thread::spawn(move || {
                    // Further lines are read and dropped, or the worker would block on a full pipe.
                    for (number, line) in
                        BufReader::new(stderr).split(b'\n').map_while(Result::ok).enumerate()
                    {
                        if number < LINES {
                            let line = String::from_utf8_lossy(&line).into_owned();
                            let _ = events.send(ControllerEvent::WorkerOutput(line));
                        }
                    }
                });
            }
            local.children.push(child);
        }
        Ok(local)
    }

    /// Exit status of a worker, if one has exited.
    pub(crate) fn try_wait(&mut self) -> Option<(u32, ExitStatus)> {
        self.children.iter_mut().find_map(|child| Some((child.id(), child.try_wait().ok()??)))
    }
}

impl Drop for LocalWorkers {
    fn drop(&mut self) {
        // Their connections are closed at this point, which ends them; a stuck one is killed.
        for _ in 0..40 {
            if self.children.iter_mut().all(|child| !matches!(child.try_wait(), Ok(None))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
