//! Tests of the generator against a scripted server with its own accounting: every measurement is checked.
//!
//! Counts are exact. Timings have a lower bound that the server enforces; upper bounds are wide, since a busy machine
//! delays everything.
//!
//! Not implemented: the controller, which has its own tests; the test driver adds up the reports itself.
//!
//! # Pitfalls
//!
//! No test waits for a fixed time; a run ends when both sides have counted the same.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends at the first thing that is not as it should be"
)]

extern crate throng_loadgen as loadgen;

#[path = "../support/mod.rs"]
mod support;

mod closed_loop;
mod destinations;
mod failover;
mod garbled;
mod keys;
mod login;
mod lost;
mod messages;
mod nodes;
mod rooms;
mod steps;
mod timing;
mod web;
mod workers;
