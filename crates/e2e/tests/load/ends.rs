//! Runs that are stopped in the middle: by the person, and by the death of the controller.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use throng_e2e::{Guard, said, signal, wait};

use crate::node::Node;
use crate::run::Run;

/// Users who talk until somebody ends it.
const TALK: &str = r#"
title = "Talk until the end"
[options]
hold = "10m"
[[phase]]
rate = 200
users = "connections"
[[session]]
steps = ["login", "presence", { meanwhile = { do = [{ every = "1s", message = { to = "online" } }] } }]
"#;

/// The workers are process groups of their own, so a signal to the controller alone is what Ctrl-C is to all.
#[test]
fn ctrl_c_ends_the_run_in_order_and_the_report_is_written() {
    let (node, mut load, workers) = talking("interrupt");
    signal(load.0.id(), "INT");
    let status = load.end("the run");
    assert_eq!(status.code(), Some(0), "{}", error(&node));
    for pid in &workers {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "worker {pid} is left behind");
    }
    let run = Run::read(&node.folder.join("out"));
    assert_eq!(run.end(), "interrupted", "{}", run.told());
    let reported: BTreeSet<u64> = run.list("workers").iter().filter_map(|w| w["pid"].as_u64()).collect();
    assert_eq!(reported, workers.iter().map(|pid| u64::from(*pid)).collect(), "{}", run.told());
    // In order: what was under way has arrived, and every user said good-bye.
    assert_eq!(run.count("users_finished"), 200, "{}", run.told());
    assert_eq!(run.count("sessions_lost") + run.count("messages_lost"), 0, "{}", run.told());
    assert!(run.count("messages_sent") > 0, "{}", run.told());
    assert_eq!(run.count("messages_sent"), run.count("messages_delivered"), "{}", run.told());
    assert_eq!(run.count("messages_sent"), node.figure("messages_in"), "{}", run.told());
    for name in ["report.html", "summary.txt"] {
        let length = fs::metadata(node.folder.join("out").join(name)).map(|m| m.len()).unwrap_or(0);
        assert!(length > 500, "{name} has {length} bytes");
    }
}

/// Somebody for whom messages wait never comes, and the plan says to wait for ten minutes.
#[test]
fn a_second_ctrl_c_ends_the_run_at_once_with_what_is_known() {
    let talk =
        TALK.replace("to = \"online\"", "to = \"random\"").replace("hold =", "drain = \"10m\"\nhold =");
    let (node, mut load, workers) = talking_so("twice", &talk, 300);
    signal(load.0.id(), "INT");
    wait("the end to begin", || error(&node).contains("Ctrl-C again ends it at once").then_some(()));
    assert!(load.0.try_wait().expect("a child").is_none(), "it did not wait: {}", error(&node));
    signal(load.0.id(), "INT");
    let status = load.end("the run");
    assert_eq!(status.code(), Some(0), "{}", error(&node));
    for pid in &workers {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "worker {pid} is left behind");
    }
    let run = Run::read(&node.folder.join("out"));
    assert_eq!(run.end(), "interrupted", "{}", run.told());
    assert_eq!(run.count("logins"), 200, "{}", run.told());
    assert!(run.warnings().contains("lost messages are not known"), "{}", run.told());
}

#[test]
fn workers_end_by_themselves_when_the_controller_is_killed() {
    let (node, mut load, workers) = talking("orphans");
    signal(load.0.id(), "KILL");
    load.end("the controller");
    wait("the workers to end", || {
        workers.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    wait("the connections to end", || (node.figure("sessions") == 0).then_some(()));
}

/// A node, a run with two workers in which all users are online and have talked, and the workers' processes.
fn talking(name: &str) -> (Node, Guard, Vec<u32>) {
    talking_so(name, TALK, 200)
}

/// The same with another plan and so many accounts.
fn talking_so(name: &str, plan: &str, accounts: u32) -> (Node, Guard, Vec<u32>) {
    let node = Node::start(name, accounts);
    node.plan("talk.toml", plan);
    let accounts = accounts.to_string();
    let log = fs::File::create(node.folder.join("load.log")).expect("a log");
    let mut load = node.load("out", &["talk.toml", "-n", "200", "--count", &accounts, "--workers", "2"]);
    load.stdout(log.try_clone().expect("a log")).stderr(log);
    let mut load = Guard(load.spawn().expect("throng starts"));
    wait("messages among all users", || {
        let ended = load.0.try_wait().expect("a child");
        assert!(ended.is_none(), "the run ended: {}", error(&node));
        (node.figure("sessions") == 200 && node.figure("messages_out") > 200).then_some(())
    });
    let workers = children(load.0.id());
    assert_eq!(workers.len(), 2, "{workers:?}");
    (node, load, workers)
}

fn error(node: &Node) -> String {
    fs::read_to_string(node.folder.join("load.log")).unwrap_or_default()
}

/// Processes whose parent is `pid`.
fn children(pid: u32) -> Vec<u32> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let parent = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    let all = fs::read_dir("/proc").expect("/proc").filter_map(|entry| number(entry.ok()?));
    all.filter(|child| parent(*child) == Some(pid)).collect()
}

/// The end of a run is told by its status, too: here a login that fails in the first second.
#[test]
fn a_run_that_fails_leaves_a_report_and_status_1() {
    let node = Node::start("fails", 0);
    node.plan("talk.toml", TALK);
    let words = ["talk.toml", "-n", "200", "--workers", "2", "--quiet"];
    let output = node.load("out", &words).stdout(Stdio::null()).output().expect("throng starts");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(sentence.contains("first login") && sentence.contains("not-authorized"), "{sentence}");
    let run = Run::read(&node.folder.join("out"));
    assert!(sentence.contains(run.end()), "{sentence}\n{}", run.told());
    assert_eq!(run.count("logins"), 0, "{}", run.told());
}
