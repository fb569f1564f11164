//! Faults of networks and servers on real processes: three nodes, each in a network namespace of its own, with PostgreSQL and a
//! NATS server, and clients with stream management (XEP-0198) that send messages all the time.
//!
//! For each fault: nothing that was acknowledged to its sender is lost; nothing is delivered twice, except what a client had not
//! acknowledged, with the same stanza-id; a message that was returned was not delivered, unless its receipt was on the way when the fault
//! began and the message could not be stored; contacts see `unavailable` within the time of docs/cluster.md; the presence of all is
//! right within 15 s after the fault, and shows no session that has ended.
//!
//! The cases of a test run at the same time, each with a cluster of its own, because they mostly wait for seconds to pass. They print
//! what they count: `cargo test -p throng-e2e --test cluster_network -- --nocapture`. `THRONG_CASE=name` runs one case.
//!
//! # Pitfalls
//!
//! They need root, or sudo without a password, `ip` and `nft`. Cargo does not build another package's binary for a test: run
//! `cargo build -p throng-server` first.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the lints exempt functions marked as tests, not what those call; clients of real processes have no injected time"
)]

mod accounts;
mod cluster;
mod links;
mod managed_client;
mod network;
mod received;
mod servers;
mod traffic;
mod trial;

use std::thread;

use throng_e2e::run_as_root;

use crate::network::remove_stale_namespaces;

/// A case: its name, and what it does in a cluster of its own.
type Case = (&'static str, fn(&'static str));

#[test]
fn nothing_is_lost_when_links_fail() {
    run_as_root("nothing_is_lost_when_links_fail", || run_cases(&links::CASES));
}

#[test]
fn nothing_is_lost_when_servers_and_nodes_fail() {
    run_as_root("nothing_is_lost_when_servers_and_nodes_fail", || run_cases(&servers::CASES));
}

/// Runs cases at the same time, and fails with the names of those that have failed.
fn run_cases(cases: &'static [Case]) {
    remove_stale_namespaces();
    let chosen = std::env::var("THRONG_CASE").ok();
    let cases = cases.iter().filter(|(name, _)| chosen.as_ref().is_none_or(|chosen| chosen == name));
    let running: Vec<_> = cases
        .map(|&(name, case)| {
            let thread = thread::Builder::new().name(name.to_owned());
            (name, thread.spawn(move || case(name)).expect("a thread"))
        })
        .collect();
    // All are waited for, so that each has removed its namespaces.
    let failed: Vec<_> =
        running.into_iter().filter_map(|(name, case)| case.join().is_err().then_some(name)).collect();
    assert!(failed.is_empty(), "{failed:?} failed; their messages are above");
}
