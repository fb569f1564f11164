//! Tests that run the scenarios of `scenarios/` in memory against a node with every feature and default settings, over
//! TCP's framing, WebSocket and BOSH.
//!
//! There is one test per scenario, so that a failure has the scenario's name. `testkit::scenario` describes the syntax;
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

/// Makes the tests of each scenario: over TCP, over WebSocket and over BOSH.
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

#[test]
fn each_feature_has_a_scenario() {
    let shown: BTreeSet<String> = SCENARIOS.iter().flat_map(|name| load_scenario(name).features).collect();
    let known: BTreeSet<String> = ALL.iter().map(|feature| feature.name.to_owned()).collect();
    assert_eq!(shown, known, "features of the scenarios on the left, of the registry on the right");
}
