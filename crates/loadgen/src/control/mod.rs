//! The controller, the workers, and what they say to one another.
//!
//! [`drive`] runs a plan; [`conduct`] is the course of it without sockets, [`merge`] and [`ledger`] its arithmetic.
//! Workers come in through [`gate`] and [`handshake`], live behind [`crew`] on this side and [`link`] on theirs.

pub(crate) mod conduct;
pub(crate) mod crew;
pub(crate) mod drive;
pub(crate) mod frame;
pub(crate) mod gate;
pub(crate) mod handshake;
pub(crate) mod interrupt;
pub(crate) mod ledger;
pub(crate) mod link;
pub(crate) mod local;
pub(crate) mod merge;
pub mod message;
pub(crate) mod salts;
pub(crate) mod shard;
#[cfg(test)]
mod sockets;
pub(crate) mod warn;
pub(crate) mod worker;
