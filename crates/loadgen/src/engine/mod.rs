//! The worker: one thread, one epoll, thousands of users.
//!
//! Users arrive and act by the clock ([`arrivals`], [`timers`]); each is a small state machine ([`user`]) that walks through
//! its flattened session ([`program`], [`steps`]), negotiates its stream ([`negotiate`]) and takes what arrives ([`input`]).
//! Its bytes go over one socket ([`connection`]), in frames on it ([`websocket`]), or over two with requests ([`bosh`]).
//! Messages are numbered and accounted for exactly ([`stamp`], [`tally`]).
//!
//! Keys for SCRAM are derived on threads of their own ([`derive`]).
//!
//! Left out: other threads. A second core is used by a second worker. Trap: everything here shares one thread, so whatever takes
//! long makes all users late; the loop's own turn is measured and reported for that reason.

mod arrivals;
mod bosh;
mod connection;
mod derive;
mod destination;
mod input;
mod management;
mod names;
mod negotiate;
mod online;
mod program;
mod rng;
mod run;
mod security;
mod stamp;
mod steps;
mod tally;
mod text;
mod timers;
mod user;
mod websocket;
mod writer;

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

/// Does the worker's part of a run, from `Ready` to `Final`. The plan lives as long as the process afterwards.
///
/// # Errors
/// The controller is gone, or the plan cannot be run here; the latter has also been reported as `Refused`.
pub fn run(assignment: Assignment, port: &mut dyn Port) -> Result<()> {
    let mut engine = match run::Engine::new(assignment) {
        Ok(engine) => engine,
        Err(error) => {
            port.send(Report::Refused(format!("{error:#}")))?;
            return Err(error);
        }
    };
    engine.derive_ahead();
    port.send(Report::Ready { rss: crate::host::own_rss() })?;
    engine.run(port)
}
