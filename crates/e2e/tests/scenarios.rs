//! Tests that run the scenarios of `scenarios/` in memory against nodes with every feature and default settings: on
//! one node over TCP's framing, WebSocket and BOSH, and with the clients spread over two and over three nodes.
//!
//! There is one test per scenario and placement, so that a failure has the scenario's name. Scenarios that fail on
//! several nodes are in [`NOT_YET_ON_SEVERAL_NODES`](throng_e2e::several_nodes::NOT_YET_ON_SEVERAL_NODES), and their
//! tests assert that they do. `testkit::scenario` describes the syntax;
//! `cargo xtask scenarios --against HOST:PORT` runs the same files against a server on a port.
//!
//! # Pitfalls
//!
//! The list of the tests comes from the folder, by `build.rs`; the file's name is the test's.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

use features::registry::ALL;
use testkit::scenario::{Scenario, ScenarioTarget, parse, run};
use testkit::server::TestServerConfig;
use throng_commands::cluster_admin::answer_other_nodes;
use throng_e2e::several_nodes::{assert_entries_name_tests, assert_outcome};

/// Makes the tests of each scenario: over TCP, over WebSocket and over BOSH, on two and on three nodes.
macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        const SCENARIOS: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            run_scenario(stringify!($name), ScenarioTransport::Plain);
        })*
        mod websocket {
            $(#[test]
            fn $name() {
                super::run_scenario(stringify!($name), super::ScenarioTransport::WebSocket);
            })*
        }
        mod bosh {
            $(#[test]
            fn $name() {
                super::run_scenario(stringify!($name), super::ScenarioTransport::Bosh);
            })*
        }
        mod two_nodes {
            $(#[test]
            fn $name() {
                super::run_on_several_nodes(stringify!($name), 2);
            })*
        }
        mod three_nodes {
            $(#[test]
            fn $name() {
                super::run_on_several_nodes(stringify!($name), 3);
            })*
        }
    };
}

// `scenarios! { … }` with every file of the folder; `build.rs` writes it.
include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios"))
}

fn load_scenario(name: &str) -> Scenario {
    let text =
        std::fs::read_to_string(folder().join(format!("{name}.scenario"))).expect("the scenario's file");
    parse(name, &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Transport of the clients of a scenario.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScenarioTransport {
    Plain,
    WebSocket,
    Bosh,
}

fn run_scenario(name: &str, transport: ScenarioTransport) {
    // The scenario requires channel binding, which is unavailable if a proxy terminates TLS.
    if transport != ScenarioTransport::Plain && name == "sasl2" {
        return;
    }
    // Each request counts as activity, so the server sends no ping.
    if transport == ScenarioTransport::Bosh && name == "ping_silence" {
        return;
    }
    let scenario = load_scenario(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (websocket, bosh) =
            (transport == ScenarioTransport::WebSocket, transport == ScenarioTransport::Bosh);
        let server =
            TestServerConfig { features: ALL.to_vec(), websocket, bosh, ..TestServerConfig::default() }
                .start();
        if let Err(error) = run(&scenario, &ScenarioTarget::Memory(Box::new(server))).await {
            panic!("{}\n{error}", scenario.title);
        }
    });
}

fn run_on_several_nodes(name: &str, nodes: usize) {
    let scenario = load_scenario(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runtime.block_on(async {
        let servers = TestServerConfig { features: ALL.to_vec(), ..TestServerConfig::default() };
        let servers = servers.start_cluster(nodes);
        servers.nodes.iter().for_each(|server| answer_other_nodes(&server.node));
        run(&scenario, &ScenarioTarget::Cluster(servers)).await
    });
    let outcome = outcome.map_err(|error| format!("{}\n{error}", scenario.title));
    assert_outcome(&format!("scenarios/{name}"), nodes, outcome);
}

/// Session transfer between nodes with the transports of browsers, which load balancers spread over all nodes.
#[test]
fn a_stream_is_resumed_at_another_node_over_websocket_and_bosh() {
    let scenario = load_scenario("stream_resumption");
    for (websocket, bosh) in [(true, false), (false, true)] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let outcome = runtime.block_on(async {
            let features = ALL.to_vec();
            let servers = TestServerConfig { features, websocket, bosh, ..TestServerConfig::default() };
            run(&scenario, &ScenarioTarget::Cluster(servers.start_cluster(2))).await
        });
        outcome.unwrap_or_else(|error| panic!("WebSocket: {websocket}, BOSH: {bosh}\n{error}"));
    }
}

#[test]
fn each_known_failure_names_a_scenario() {
    let names: Vec<String> = SCENARIOS.iter().map(|name| format!("scenarios/{name}")).collect();
    assert_entries_name_tests("scenarios/", &names);
}

#[test]
fn each_feature_has_a_scenario() {
    let shown: BTreeSet<String> = SCENARIOS.iter().flat_map(|name| load_scenario(name).features).collect();
    let known: BTreeSet<String> = ALL.iter().map(|feature| feature.name.to_owned()).collect();
    let without: Vec<&String> = known.difference(&shown).collect();
    assert!(
        without.is_empty(),
        "no scenario shows {without:?}; add `scenarios/NAME.scenario`, or the name to `features:` of a scenario that shows it"
    );
    let unknown: Vec<&String> = shown.difference(&known).collect();
    assert!(
        unknown.is_empty(),
        "`features:` of a scenario has {unknown:?}, which `registry::ALL` does not list"
    );
}
