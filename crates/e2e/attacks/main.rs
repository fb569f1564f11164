//! The attacker's suite: one file a case, from hostile clients of TCP, WebSocket, BOSH and HTTP.
//!
//! The opening comment of a case has a first sentence, which is its title, and three paragraphs: `Done: ` is what the
//! attacker does, `Rule: ` what it is measured by and where that stands, `Right: ` what a right server does. A case is
//! deterministic, waits for nothing but answers, is bounded, and takes about a second. To add one: a file, and a line below
//! in alphabetical order.
//!
//! The trap: a file without its line is not run; `each_file_is_listed_and_says_its_rule` fails then.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    unused_imports,
    reason = "tests fail loudly; not every helper is used at any time"
)]

mod support;

mod abandoned_connections;
mod account_floods;
mod amplified_parsing;
mod another_domain;
mod another_ones_password;
mod answer_spoofing;
mod authorization_identity;
mod billion_laughs;
mod blocked_but_curious;
mod bosh_prefix_amplification;
mod bosh_session_theft;
mod caps_poisoning;
mod client_certificate_names;
mod colliding_names;
mod command_session_theft;
mod compression_bomb;
mod console_cross_site;
mod detached_sessions_filled;
mod disguised_names;
mod forged_at_the_limit;
mod forged_carbon;
mod forged_client_address;
mod forged_delay;
mod forged_log_line;
mod forged_sender;
mod forged_subscription;
mod guessable_identifiers;
mod hostile_queries;
mod http2_floods;
mod http_path_traversal;
mod http_reflections;
mod http_smuggling;
mod huge_credentials;
mod log_floods;
mod log_injection;
mod look_alike_names;
mod metrics_for_strangers;
mod offline_store_filled;
mod parallel_guesses;
mod pipelined_before_tls;
mod poison_for_expat;
mod presence_leak;
mod probed_roster;
mod reconnect_for_a_burst;
mod registration_race;
mod resumption_of_another;
mod scram_downgrade;
mod second_header;
mod smuggled_bytes;
mod stolen_tokens;
mod token_becomes_administrator;
mod unproved_reads;
mod unsolicited_answers;
mod websocket_cross_site;
mod websocket_floods;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn each_file_is_listed_and_says_its_rule() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/attacks"));
    let main = include_str!("main.rs");
    let listed: Vec<&str> =
        main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    let cases = &listed[1..];
    assert!(cases.is_sorted(), "the cases are not in alphabetical order: {cases:?}");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> =
        files.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect();
    let expected: BTreeSet<String> = cases.iter().copied().chain(["main"]).map(str::to_owned).collect();
    assert_eq!(files, expected, "files on the left, lines of main.rs on the right");
    for case in cases {
        let text = fs::read_to_string(folder.join(format!("{case}.rs"))).unwrap();
        let opening: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        for part in ["Done: ", "Rule: ", "Right: "] {
            let said = opening.iter().filter(|line| line.trim_start().starts_with(part)).count();
            assert_eq!(
                said, 1,
                "{case}.rs: its opening comment needs one paragraph that begins with \"{part}\""
            );
        }
    }
}
