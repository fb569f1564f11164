//! Tests of accounts, messages and presence on several nodes that share a store: single cases, numbers of envelopes, and
//! a seeded simulation.
//!
//! The nodes have no sockets and every feature ([`testkit::TestNodes`]). Conversations between clients are scenarios
//! instead (`tests/scenarios.rs`). What fails today is in
//! [`NOT_YET_ON_SEVERAL_NODES`](throng_e2e::several_nodes::NOT_YET_ON_SEVERAL_NODES), and the tests assert that it
//! does.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking"
)]

mod announcements;
mod bad_input;
mod blocking;
mod bosh;
mod cases;
mod directed_presence;
mod envelopes;
mod full_queues;
mod handovers;
mod node_queries;
mod order;
mod presence;
mod releases;
mod resumption;
mod roster_pushes;
mod rosters;
mod simulation;
mod stored_messages;
