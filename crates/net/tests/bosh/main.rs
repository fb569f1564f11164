//! BOSH tests (XEP-0124, XEP-0206) without sockets: requests on one side, a stream on the other, a manual clock.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

#[macro_use]
#[path = "../support/cases.rs"]
mod cases;
mod conformance;
mod examples;
mod harness;
mod hostile;
mod memory;
mod other_nodes;
mod property;
mod session_rules;
mod unsent;
