//! Attack suite: hostile clients over TCP, WebSocket, BOSH and HTTP, one file for each case.
//!
//! The opening comment of a case has a title as its first sentence and three paragraphs: `Done: ` is the attack, `Rule:
//! ` the requirement and its source, `Right: ` the correct behaviour. A case is deterministic, waits only for
//! responses, is bounded, and takes about a second. A case that is added needs a file and a line below, in alphabetical
//! order.
//!
//! # Pitfalls
//!
//! A file without its line does not run; `each_file_is_listed_and_says_its_rule` then fails.
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
mod account_data_exhaustion;
mod address_hash_collision;
mod api_token_privilege_escalation;
mod authorization_identity;
mod billion_laughs;
mod block_detection;
mod bosh_prefix_amplification;
mod bosh_session_theft;
mod caps_poisoning;
mod check_bypass_at_limits;
mod client_certificate_names;
mod command_session_theft;
mod compression_bomb;
mod confusable_addresses;
mod console_csrf;
mod cross_domain_login;
mod cross_site_websocket_hijacking;
mod detached_session_exhaustion;
mod disguised_elements;
mod forged_carbon;
mod forged_client_address;
mod forged_delay;
mod forged_log_line;
mod forged_sender;
mod forged_subscription;
mod guesses_over_nodes;
mod http2_floods;
mod http_path_traversal;
mod http_request_smuggling;
mod iq_response_spoofing;
mod largest_stanza;
mod log_floods;
mod log_injection;
mod offline_store_exhaustion;
mod oversized_credentials;
mod parallel_password_guessing;
mod parser_amplification;
mod password_of_another_account;
mod predictable_identifiers;
mod presence_leak;
mod reads_before_authentication;
mod reconnect_for_a_burst;
mod reflected_content;
mod registration_race;
mod roster_read_amplification;
mod scram_downgrade;
mod second_stream_header;
mod sql_injection;
mod stanza_smuggling;
mod stanzas_that_expat_rejects;
mod starttls_injection;
mod stolen_tokens;
mod stream_resumption_theft;
mod unauthenticated_metrics;
mod unread_responses;
mod unsolicited_iq_responses;
mod upload_slot_abuse;
mod websocket_floods;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn each_attack_is_listed_and_states_its_rule() {
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
