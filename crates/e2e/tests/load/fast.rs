//! Tests of logins with tokens (XEP-0484) and streams resumed in the same flight (XEP-0198), with a node that has
//! both.

use throng_e2e::describe_output;

use crate::node::{LoadNode, exclusive_turn};
use crate::run_report::RunReport;

const PLAN: &str = r#"
connections = 20

[[phase]]
concurrency = 4
users = "connections"

[[session]]
name = "commuter"
steps = [
  { login = { fast = true, stream_management = true } },
  "presence",
  { barrier = { users = "connections", timeout = "120s" } },
  "cut",
  { think = "100ms" },
  "resume",
  { ping = "server" },
  "disconnect",
  { login = { fast = true } },
  "roster",
  "disconnect",
]
"#;

#[test]
fn a_token_resumes_a_stream_and_logs_in_again_in_one_flight() {
    let _turn = exclusive_turn();
    let node = LoadNode::start_secure("load-fast", 20);
    node.plan("commuter.toml", PLAN);
    let output = node.load("out", &["commuter.toml"]).output().expect("it starts");
    let text = describe_output(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let run = RunReport::read(&node.folder.join("out"));
    assert_eq!(run.end_reason(), "finished", "{}", run.messages());
    let counts = ["logins", "sessions_resumed", "login_errors", "sessions_lost", "users_finished"];
    assert_eq!(counts.map(|name| run.count(name)), [40, 20, 0, 0, 20], "{}", run.messages());
    let used = &run.0["totals"]["used"];
    assert_eq!(used["STARTTLS, TLSv1.3, HT-SHA-256-NONE"].as_u64(), Some(20), "{used}");
    // Only the disconnections of the plan.
    assert_eq!(
        run.0["totals"]["errors"].as_object().map(serde_json::Map::len),
        Some(1),
        "{}",
        run.messages()
    );
    // The seconds of the run can be aligned with measurements of another program.
    assert!(run.0["about"]["started_monotonic"].as_u64() > Some(0));
}
