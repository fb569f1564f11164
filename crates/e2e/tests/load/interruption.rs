//! Tests of interrupted runs: by the user, and by the death of the controller.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use throng_e2e::{KillOnDrop, describe_output, signal, wait};

use crate::node::LoadNode;
use crate::run_report::RunReport;

/// Users who exchange messages until the run is ended.
const CHAT_PLAN: &str = r#"
title = "Talk until the end"
[options]
hold = "10m"
[[phase]]
rate = 200
users = "connections"
[[session]]
steps = ["login", "presence", { meanwhile = { do = [{ every = "1s", message = { to = "online" } }] } }]
"#;

/// The workers have process groups of their own, so a signal to the controller alone has the effect of Ctrl-C.
#[test]
fn ctrl_c_ends_the_run_gracefully_and_the_report_is_written() {
    let (node, mut load, workers) = start_chatting_run("interrupt");
    signal(load.0.id(), "INT");
    let status = load.wait_for_exit("the run");
    assert_eq!(status.code(), Some(0), "{}", error(&node));
    for pid in &workers {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "worker {pid} is left behind");
    }
    let run = RunReport::read(&node.folder.join("out"));
    assert_eq!(run.end_reason(), "interrupted", "{}", run.messages());
    let reported: BTreeSet<u64> = run.list("workers").iter().filter_map(|w| w["pid"].as_u64()).collect();
    assert_eq!(reported, workers.iter().map(|pid| u64::from(*pid)).collect(), "{}", run.messages());
    // Clean shutdown: messages in flight have arrived, and every user closed its stream.
    assert_eq!(run.count("users_finished"), 200, "{}", run.messages());
    assert_eq!(run.count("sessions_lost") + run.count("messages_lost"), 0, "{}", run.messages());
    assert!(run.count("messages_sent") > 0, "{}", run.messages());
    assert_eq!(run.count("messages_sent"), run.count("messages_delivered"), "{}", run.messages());
    assert_eq!(run.count("messages_sent"), node.status_value("messages_in"), "{}", run.messages());
    for name in ["report.html", "summary.txt"] {
        let length = fs::metadata(node.folder.join("out").join(name)).map(|m| m.len()).unwrap_or(0);
        assert!(length > 500, "{name} has {length} bytes");
    }
}

/// A user with stored messages never logs in, and the plan waits for ten minutes.
#[test]
fn a_second_ctrl_c_ends_the_run_immediately_with_a_partial_report() {
    let talk =
        CHAT_PLAN.replace("to = \"online\"", "to = \"random\"").replace("hold =", "drain = \"10m\"\nhold =");
    let (node, mut load, workers) = start_run_with_plan("twice", &talk, 300);
    signal(load.0.id(), "INT");
    wait("the end to begin", || {
        error(&node).contains("press Ctrl-C again to stop it immediately").then_some(())
    });
    assert!(load.0.try_wait().expect("a child").is_none(), "it did not wait: {}", error(&node));
    signal(load.0.id(), "INT");
    let status = load.wait_for_exit("the run");
    assert_eq!(status.code(), Some(0), "{}", error(&node));
    for pid in &workers {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "worker {pid} is left behind");
    }
    let run = RunReport::read(&node.folder.join("out"));
    assert_eq!(run.end_reason(), "interrupted", "{}", run.messages());
    assert_eq!(run.count("logins"), 200, "{}", run.messages());
    assert!(run.warnings().contains("the number of lost messages is unknown"), "{}", run.messages());
}

#[test]
fn workers_exit_when_the_controller_is_killed() {
    let (node, mut load, workers) = start_chatting_run("orphans");
    signal(load.0.id(), "KILL");
    load.wait_for_exit("the controller");
    wait("the workers to end", || {
        workers.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    wait("the connections to end", || (node.status_value("sessions") == 0).then_some(()));
}

/// A node, a run with two workers in which all users are online and have exchanged messages, and the worker processes.
fn start_chatting_run(name: &str) -> (LoadNode, KillOnDrop, Vec<u32>) {
    start_run_with_plan(name, CHAT_PLAN, 200)
}

/// Starts a run with this plan and number of accounts.
fn start_run_with_plan(name: &str, plan: &str, accounts: u32) -> (LoadNode, KillOnDrop, Vec<u32>) {
    let node = LoadNode::start(name, accounts);
    node.plan("talk.toml", plan);
    let accounts = accounts.to_string();
    let log = fs::File::create(node.folder.join("load.log")).expect("a log");
    let mut load = node.load("out", &["talk.toml", "-n", "200", "--count", &accounts, "--workers", "2"]);
    load.stdout(log.try_clone().expect("a log")).stderr(log);
    let mut load = KillOnDrop(load.spawn().expect("throng starts"));
    wait("messages among all users", || {
        let ended = load.0.try_wait().expect("a child");
        assert!(ended.is_none(), "the run ended: {}", error(&node));
        (node.status_value("sessions") == 200 && node.status_value("messages_out") > 200).then_some(())
    });
    let workers = children(load.0.id());
    assert_eq!(workers.len(), 2, "{workers:?}");
    (node, load, workers)
}

fn error(node: &LoadNode) -> String {
    fs::read_to_string(node.folder.join("load.log")).unwrap_or_default()
}

/// Child processes of `pid`.
fn children(pid: u32) -> Vec<u32> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let parent = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    let all = fs::read_dir("/proc").expect("/proc").filter_map(|entry| number(entry.ok()?));
    all.filter(|child| parent(*child) == Some(pid)).collect()
}

/// The exit status reports the end of the run as well: here a login fails in the first second.
#[test]
fn a_run_that_fails_leaves_a_report_and_status_1() {
    let node = LoadNode::start("fails", 0);
    node.plan("talk.toml", CHAT_PLAN);
    let words = ["talk.toml", "-n", "200", "--workers", "2", "--quiet"];
    let output = node.load("out", &words).stdout(Stdio::null()).output().expect("throng starts");
    assert_eq!(output.status.code(), Some(1), "{}", describe_output(&output));
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(sentence.contains("first login") && sentence.contains("not-authorized"), "{sentence}");
    let run = RunReport::read(&node.folder.join("out"));
    assert!(sentence.contains(run.end_reason()), "{sentence}\n{}", run.messages());
    assert_eq!(run.count("logins"), 0, "{}", run.messages());
}
