//! The generator against the listener that a new user has: no login without STARTTLS, a certificate that nobody signed.

use throng_e2e::said;

use crate::node::{Node, turn};
use crate::run::Run;

/// The line of the README, smaller.
const README: [&str; 7] = ["tigase-roster-10", "--connections", "20", "--time-scale", "100", "--hold", "2s"];

#[test]
fn the_line_of_the_readme_runs_against_the_usual_listener() {
    let _turn = turn();
    let node = Node::start_secure("load-secure", 20);
    let output = node.load("out", &README).output().expect("it starts");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("Logins: STARTTLS, TLSv1.3, SCRAM-") && text.contains("(security auto)"), "{text}");
    let run = Run::read(&node.folder.join("out"));
    assert_eq!((run.end(), run.count("logins")), ("finished", 20), "{}", run.told());
}

#[test]
fn a_mode_that_the_listener_refuses_is_named_with_what_it_offers() {
    let _turn = turn();
    let node = Node::start_secure("load-insecure", 20);
    let words = [&README[..], &["--security", "none"]].concat();
    let output = node.load("out", &words).output().expect("it starts");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in ["tried: no TLS (security none)", "offered: STARTTLS", "--security starttls"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}
