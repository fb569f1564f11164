//! The plays of `plays/`, acted over memory against a node with every feature and its defaults, as on TCP, by WebSocket
//! and by BOSH.
//!
//! One test a play, so that a failure has the play's name. The syntax is described at `testkit::play`; the same files run
//! against a server on a port by `cargo xtask plays --against HOST:PORT`.
//!
//! The trap: a play that is not in the list below fails `the_list_is_the_folder`, whatever it would do itself.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

use features::registry::ALL;
use testkit::play::{Play, Stage, parse, run};
use testkit::wire::Setup;

macro_rules! plays {
    ($($name:ident),* $(,)?) => {
        const PLAYS: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            act(stringify!($name), Way::Plain);
        })*
        mod websocket {
            $(#[test]
            fn $name() {
                super::act(stringify!($name), super::Way::WebSocket);
            })*
        }
        mod bosh {
            $(#[test]
            fn $name() {
                super::act(stringify!($name), super::Way::Bosh);
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

fn play(name: &str) -> Play {
    let text = std::fs::read_to_string(folder().join(format!("{name}.play"))).expect("the play's file");
    parse(name, &text).unwrap_or_else(|error| panic!("{error}"))
}

/// How the clients of a play come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    WebSocket,
    Bosh,
}

fn act(name: &str, way: Way) {
    // Its server shows channel binding, which there is none of where a proxy has the TLS.
    if way != Way::Plain && name == "sasl2" {
        return;
    }
    // Each request is a sign of life, so the server asks for none.
    if way == Way::Bosh && name == "ping_silence" {
        return;
    }
    let play = play(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (websocket, bosh) = (way == Way::WebSocket, way == Way::Bosh);
        let wire = Setup { features: ALL.to_vec(), websocket, bosh, ..Setup::default() }.start();
        if let Err(error) = run(&play, &Stage::Memory(Box::new(wire))).await {
            panic!("{}\n{error}", play.title);
        }
    });
}

#[test]
fn the_list_is_the_folder() {
    let files = std::fs::read_dir(folder()).expect("the folder of plays");
    let names: BTreeSet<String> =
        files.map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned()).collect();
    let listed: BTreeSet<String> = PLAYS.iter().map(|name| format!("{name}.play")).collect();
    assert_eq!(names, listed);
}

#[test]
fn each_feature_has_a_play() {
    let shown: BTreeSet<String> = PLAYS.iter().flat_map(|name| play(name).features).collect();
    let known: BTreeSet<String> = ALL.iter().map(|feature| feature.name.to_owned()).collect();
    assert_eq!(shown, known, "features of the plays on the left, of the registry on the right");
}
