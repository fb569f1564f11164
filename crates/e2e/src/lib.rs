//! Tests of the whole system: scenarios, real clients, attacks.
//!
//! The tests are in `tests/` and `attacks/`. This crate holds what tests that start the real program share, a
//! [`NodeProcess`] in its own folder, with its ports and processes; and the seeded [`simulation`] of several nodes, which
//! `cargo xtask simulate` runs, too. Helpers of a single test stay with that test.
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first, or a stale
//! binary is tested.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the whole crate is tests")]

pub mod chain_observer;
pub mod clients;
pub mod folder;
pub mod node;
pub mod process;
pub mod several_nodes;
pub mod simulation;
pub mod text_client;
pub mod wait;

pub use folder::TempFolder;
pub use node::NodeProcess;
pub use process::{KillOnDrop, describe_output, program, program_path, run_as_root, signal};
pub use test_databases::ports;
pub use wait::{TIMEOUT, poll, wait, wait_for_progress};
