//! Tests that run the plays of `plays/` over memory against a node with every feature and default settings, as on TCP,
//! over WebSocket and over BOSH.
//!
//! There is one test per play, so that a failure has the play's name. `testkit::scenario` describes the syntax;
//! `cargo xtask plays --against HOST:PORT` runs the same files against a server on a port.
//!
//! # Pitfalls
//!
//! A play that is missing in the list below fails `the_list_is_the_folder`.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

use features::registry::ALL;
use testkit::scenario::{Scenario, ScenarioTarget, parse, run};
use testkit::server::TestServerConfig;

macro_rules! plays {
    ($($name:ident),* $(,)?) => {
        const PLAYS: &[&str] = &[$(stringify!($name)),*];
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

plays! {
    adhoc,
    administration,
    blocking,
    blocking_offline,
    avatar,
    caps,
    caps_clients,
    carbons,
    claims,
    client_state,
    disco,
    external_services,
    fast,
    headers,
    iq_addresses,
    last,
    message_resources,
    message_types,
    offline,
    offline_priority,
    own_resource,
    ping,
    ping_silence,
    presence,
    presence_directed,
    private,
    registration,
    resource_conflict,
    roster,
    roster_versions,
    sasl2,
    sasl2_stream_management,
    scram_upgrade,
    search,
    session,
    stanza_id,
    statistics,
    stream_management,
    stream_resumption,
    stream_resumption_refused,
    subscription,
    subscription_offline,
    time,
    vcard,
    version,
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/plays"))
}

fn load_scenario(name: &str) -> Scenario {
    let text = std::fs::read_to_string(folder().join(format!("{name}.play"))).expect("the play's file");
    parse(name, &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Transport of the clients of a play.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScenarioTransport {
    Plain,
    WebSocket,
    Bosh,
}

fn run_scenario(name: &str, way: ScenarioTransport) {
    // The play requires channel binding, which is unavailable if a proxy terminates TLS.
    if way != ScenarioTransport::Plain && name == "sasl2" {
        return;
    }
    // Each request counts as activity, so the server sends no ping.
    if way == ScenarioTransport::Bosh && name == "ping_silence" {
        return;
    }
    let play = load_scenario(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (websocket, bosh) = (way == ScenarioTransport::WebSocket, way == ScenarioTransport::Bosh);
        let wire =
            TestServerConfig { features: ALL.to_vec(), websocket, bosh, ..TestServerConfig::default() }
                .start();
        if let Err(error) = run(&play, &ScenarioTarget::Memory(Box::new(wire))).await {
            panic!("{}\n{error}", play.title);
        }
    });
}

#[test]
fn every_scenario_in_the_folder_is_listed() {
    let files = std::fs::read_dir(folder()).expect("the folder of plays");
    let names: BTreeSet<String> =
        files.map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned()).collect();
    let listed: BTreeSet<String> = PLAYS.iter().map(|name| format!("{name}.play")).collect();
    assert_eq!(names, listed);
}

#[test]
fn each_feature_has_a_scenario() {
    let shown: BTreeSet<String> = PLAYS.iter().flat_map(|name| load_scenario(name).features).collect();
    let known: BTreeSet<String> = ALL.iter().map(|feature| feature.name.to_owned()).collect();
    assert_eq!(shown, known, "features of the plays on the left, of the registry on the right");
}
