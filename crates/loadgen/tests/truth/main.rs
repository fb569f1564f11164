//! The generator against a scripted server that keeps its own account: every measure is checked against what happened.
//!
//! Counts are exact. Timings have a lower bound that the server enforces; upper bounds are wide, since a busy machine makes
//! everything later. Left out: the controller, which has its own tests; the driver of these adds reports up by itself.
//! Trap: nothing here waits for a time to be right; a run ends when both sides have counted the same.

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
mod garbled;
mod keys;
mod login;
mod lost;
mod messages;
mod steps;
mod timing;
mod web;
mod workers;
