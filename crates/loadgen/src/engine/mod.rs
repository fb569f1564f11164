//! The worker: one thread, one epoll, thousands of users.
//!
//! Users arrive and act by the clock ([`arrivals`], [`timers`]); each is a small state machine ([`user`]) that walks through
//! its flattened session ([`program`], [`steps`]), negotiates its stream ([`negotiate`]) and takes what arrives ([`input`]).
//! Its bytes go over one socket ([`connection`]), in frames on it ([`websocket`]), or over two with requests ([`bosh`]).
//! Messages are numbered and accounted for exactly ([`timestamp`], [`tally`]).
//!
//! Keys for SCRAM are derived on threads of their own ([`derive`]).
//!
//! Left out: other threads. A second core is used by a second worker. Trap: everything here shares one thread, so whatever takes
//! long makes all users late; the loop's own turn is measured and reported for that reason.

mod account_names;
mod arrivals;
mod bosh;
mod bytecode;
mod connection;
mod delivery_accounting;
mod destination;
mod event_loop;
mod fast;
mod input;
mod interpreter;
mod key_derivation;
mod message_id;
mod negotiate;
mod online_users;
mod rng;
mod security;
mod stream_management;
mod text;
mod timers;
mod virtual_user;
mod websocket;
mod writer;

use std::os::fd::BorrowedFd;

use anyhow::Result;

use crate::control::message::{Assignment, WorkerCommand, WorkerReport};

/// What a worker talks to its controller through.
pub trait ControllerPort {
    /// What to wait on for commands.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// The commands that are there; never waits. An error means that the controller is gone and the run ends.
    fn receive(&mut self) -> Result<Vec<WorkerCommand>>;
    /// Sends a report; may keep it until the next call when the connection is full.
    fn send(&mut self, report: WorkerReport) -> Result<()>;
}

/// Does the worker's part of a run, from `Ready` to `FinalReport`. The plan lives as long as the process afterwards.
///
/// # Errors
/// The controller is gone, or the plan cannot be run here; the latter has also been reported as `Refused`.
pub fn run(assignment: Assignment, port: &mut dyn ControllerPort) -> Result<()> {
    let mut engine = match event_loop::WorkerEngine::new(assignment) {
        Ok(engine) => engine,
        Err(error) => {
            port.send(WorkerReport::Refused(format!("{error:#}")))?;
            return Err(error);
        }
    };
    engine.derive_ahead();
    port.send(WorkerReport::Ready { rss: crate::server_monitor::own_rss() })?;
    engine.run(port)
}
