//! What tests share: the engine without sockets, and comparison of stanzas.
//!
//! No part of the product may depend on this crate; features and streams use it as a dev-dependency.
//!
//! The trap: it must not depend on any feature, or a feature's tests would link two copies of it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the whole crate is tests")]

pub mod counted;
pub mod engine;
pub mod expat;
pub mod play;
pub mod same;
pub mod tasks;
pub mod tls;
pub mod wire;

pub use engine::{Client, Engine};
pub use same::{assert_same, canonical};
