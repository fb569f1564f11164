//! Whole-system tests of Throng: scenarios, real clients, cluster simulations.
//!
//! The tests are in `tests/`. Here is what those share that start the real program: a [`Node`] in a folder of its own, and
//! what it takes to run one. What only one of them needs stays with it.
//!
//! The trap: cargo does not build another package's binary for a test; `cargo build -p throng-server` comes first, and a
//! stale binary is tested as it is.
#![allow(clippy::expect_used, clippy::panic, reason = "the whole crate is tests")]

pub mod clients;
pub mod folder;
pub mod node;
pub mod ports;
pub mod process;
pub mod wait;

pub use folder::TempFolder;
pub use node::NodeProcess;
pub use process::{KillOnDrop, describe_output, program, signal};
pub use wait::{poll, wait};
