//! Tests of the generator against the default listener: no login without STARTTLS, a self-signed certificate.

use throng_e2e::describe_output;

use crate::node::{LoadNode, exclusive_turn};
use crate::run_report::RunReport;

/// The command line of the README with fewer users.
const README: [&str; 7] = ["tigase-roster-10", "--connections", "20", "--time-scale", "100", "--hold", "2s"];

#[test]
fn the_readme_command_runs_against_the_default_listener() {
    let _turn = exclusive_turn();
    let node = LoadNode::start_secure("load-secure", 20);
    let output = node.load("out", &README).output().expect("it starts");
    let text = describe_output(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("Logins: STARTTLS, TLSv1.3, SCRAM-") && text.contains("(security auto)"), "{text}");
    let run = RunReport::read(&node.folder.join("out"));
    assert_eq!((run.end_reason(), run.count("logins")), ("finished", 20), "{}", run.messages());
}

#[test]
fn a_refused_security_mode_is_reported_with_the_offered_ones() {
    let _turn = exclusive_turn();
    let node = LoadNode::start_secure("load-insecure", 20);
    let words = [&README[..], &["--security", "none"]].concat();
    let output = node.load("out", &words).output().expect("it starts");
    let text = describe_output(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in ["tried: no TLS (security none)", "offered: STARTTLS", "--security starttls"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

/// Four sessions as in the example of Tsung's distribution: XEP-0078 with a password, and two kinds of digest.
const TSUNG: &str = include_str!("../../../loadgen/tests/tsung/published.xml");

#[test]
fn the_example_of_tsungs_distribution_runs_unmodified() {
    let _turn = exclusive_turn();
    let node = LoadNode::start_secure("load-tsung", 40);
    node.plan("jabber.xml", TSUNG);
    let words = [
        "jabber.xml",
        "-n",
        "12",
        "--time-scale",
        "60",
        "--user-prefix",
        "u",
        "--first",
        "0",
        "--count",
        "40",
    ];
    let output = node.load("out", &words).output().expect("it starts");
    let text = describe_output(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in [
        "session by digest is skipped: this version does not run digest logins of XEP-0078",
        "session by SIP digest is skipped: this version does not run SIP digest logins",
        "Logins: STARTTLS, TLSv1.3, PLAIN",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let run = RunReport::read(&node.folder.join("out"));
    assert!(run.count("logins") > 0 && run.count("login_errors") == 0, "{}", run.messages());
    assert_eq!(run.count("users_finished"), run.count("users_started"), "{}", run.messages());
    assert!(run.timing("roster", "count") > 0, "{}", run.messages());
}
