//! Worker of the load generator: one thread, one epoll instance, thousands of users.
//!
//! Users arrive and act by the clock ([`arrivals`], [`timers`]). Each is a small state machine ([`virtual_user`]) that
//! runs its compiled session ([`bytecode`], [`interpreter`]), negotiates its stream ([`negotiate`]) and handles
//! [`input`]. Its bytes go over one socket ([`connection`]), in frames on it ([`websocket`]), or over two in requests
//! ([`bosh`]). Messages are numbered and accounted for exactly ([`message_id`], [`delivery_accounting`]), those
//! in rooms ([`rooms`], [`room_input`]) as well ([`room_message_id`], [`room_accounting`]). SCRAM keys are derived on
//! separate threads ([`key_derivation`]).
//!
//! Not implemented: multi-threading; a second core is used by a second worker.
//!
//! # Pitfalls
//!
//! All users share this thread, so any slow operation makes all of them late. The duration of each loop iteration is
//! therefore measured and reported.

mod account_names;
mod acknowledgement_accounting;
mod arrivals;
mod bosh;
mod bytecode;
mod connection;
mod delivery_accounting;
mod destination;
mod event_loop;
mod failover;
mod fast;
mod final_report;
mod input;
mod interpreter;
mod key_derivation;
mod message_id;
mod negotiate;
mod node_input;
mod nodes;
mod online_users;
mod rng;
mod room_accounting;
mod room_input;
mod room_message_id;
mod rooms;
mod security;
mod slot;
mod stream_management;
mod target_spread;
mod text;
mod timers;
mod virtual_user;
mod websocket;
mod writer;

use std::os::fd::BorrowedFd;

use anyhow::Result;

use crate::control::message::{Assignment, WorkerCommand, WorkerReport};

#[cfg(test)]
pub(crate) use room_accounting::RoomTable;

/// Worker's side of the connection to its controller.
pub trait ControllerPort {
    /// Descriptor to poll for commands.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Takes the pending commands without waiting. An error means that the connection to the controller was lost and
    /// the run ends.
    fn receive(&mut self) -> Result<Vec<WorkerCommand>>;
    /// Sends a report; may buffer it until the next call when the connection is full.
    fn send(&mut self, report: WorkerReport) -> Result<()>;
}

/// Runs the worker's part of a run, from `Ready` to `Final`.
///
/// # Errors
/// The controller is gone, or the plan cannot be run here; the latter has also been reported as `Refused`.
pub fn run(mut assignment: Assignment, port: &mut dyn ControllerPort) -> Result<()> {
    let target = &mut assignment.plan.target;
    if let (true, Some(first)) = (target.web.host.is_empty(), target.addresses.first()) {
        target.web.host = first.to_string();
    }
    let mut engine = match event_loop::WorkerEngine::new(&assignment) {
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
