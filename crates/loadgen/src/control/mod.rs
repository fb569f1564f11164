//! Distributed control of a run: controller, workers, and the protocol between them.
//!
//! [`controller`] runs a plan; [`run_state`] is its state machine without sockets, [`merge`] and [`message_accounting`]
//! its arithmetic. Workers join through [`accept`] and [`handshake`]; [`worker_connection`] is the controller's end of
//! their connection and [`controller_connection`] theirs.

pub(crate) mod accept;
pub(crate) mod chaos;
pub(crate) mod controller;
pub(crate) mod controller_connection;
pub(crate) mod framing;
pub(crate) mod handshake;
pub(crate) mod interrupt;
pub(crate) mod local_workers;
pub(crate) mod merge;
pub mod message;
pub(crate) mod message_accounting;
pub(crate) mod partition;
pub mod room_accounting;
pub(crate) mod room_order;
pub mod room_report;
pub(crate) mod run_state;
pub(crate) mod salts;
#[cfg(test)]
mod tests;
pub(crate) mod warnings;
pub(crate) mod worker;
pub(crate) mod worker_connection;
