//! The controller, the workers, and what they say to one another.
//!
//! [`drive`] runs a plan; [`conduct`] is the course of it without sockets, [`merge`] and [`ledger`] its arithmetic.
//! Workers come in through [`gate`] and [`handshake`], live behind [`crew`] on this side and [`link`] on theirs.

pub(crate) mod accept;
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
pub(crate) mod run_state;
pub(crate) mod salts;
#[cfg(test)]
mod sockets;
pub(crate) mod warnings;
pub(crate) mod worker;
pub(crate) mod worker_connection;
