//! The worker: one thread, one epoll, thousands of users.

use std::os::fd::BorrowedFd;

use anyhow::Result;

use crate::control::message::{Assignment, Command, Report};

/// What a worker talks to its controller through.
pub trait Port {
    /// What to wait on for commands.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// The commands that are there; never waits. An error means that the controller is gone and the run ends.
    fn receive(&mut self) -> Result<Vec<Command>>;
    /// Sends a report; may keep it until the next call when the connection is full.
    fn send(&mut self, report: Report) -> Result<()>;
}

/// Does the worker's part of a run, from `Ready` to `Final`.
pub fn run(_assignment: Assignment, _port: &mut dyn Port) -> Result<()> {
    anyhow::bail!("not there")
}
