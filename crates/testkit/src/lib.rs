//! What tests share: the engine without sockets, and comparison of stanzas.
//!
//! No part of the product may depend on this crate; features and streams use it as a dev-dependency.
//!
//! The trap: it must not depend on any feature, or a feature's tests would link two copies of it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the whole crate is tests")]

pub mod compare;
pub mod counting_store;
pub mod engine;
pub mod expat;
pub mod manual_spawner;
pub mod scenario;
pub mod server;
pub mod tls;

pub use compare::{assert_same, canonical};
pub use engine::{NodeClient, TestNode};
