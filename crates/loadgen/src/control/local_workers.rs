//! Worker processes of this machine: started, listened to, and ended with the controller.
//!
//! The token goes through the environment, since command lines are open to everybody on the machine. Each worker is a
//! process group of its own, so that Ctrl-C reaches the controller alone, which then ends all in order.
//! Trap: a controller that is killed cannot end its workers; they end themselves when their connection does.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;

use anyhow::{Context, Result};

use super::worker_connection::ControllerEvent;

/// Variable of the environment that holds the token.
pub(crate) const TOKEN: &str = "THRONG_LOAD_TOKEN";
/// Lines of one worker that are kept.
const LINES: usize = 200;

/// The workers of this machine.
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
        let program = std::env::current_exe().context("the program's own file is not known")?;
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
                    // Further lines are read, or the worker would block on a full pipe, and dropped.
                    for (number, line) in
                        BufReader::new(stderr).split(b'\n').map_while(Result::ok).enumerate()
                    {
                        if number < LINES {
                            let line = String::from_utf8_lossy(&line).into_owned();
                            let _ = events.send(ControllerEvent::Said(line));
                        }
                    }
                });
            }
            local.children.push(child);
        }
        Ok(local)
    }

    /// How a worker ended, if one has.
    pub(crate) fn try_wait(&mut self) -> Option<(u32, ExitStatus)> {
        self.children.iter_mut().find_map(|child| Some((child.id(), child.try_wait().ok()??)))
    }
}

impl Drop for LocalWorkers {
    fn drop(&mut self) {
        // Their connections are closed by now, and that ends them; a stuck one is killed.
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
