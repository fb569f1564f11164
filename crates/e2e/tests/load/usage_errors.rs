//! Tests of errors that are reported before the first connection: one sentence with the fix, status 2, and no
//! directory.
//!
//! Errors that only the server or another machine can detect (missing accounts, a wrong token) are reported on first
//! use, with status 1.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Output};

use throng_e2e::{TempFolder, describe_output, ports, program};

use crate::node::{LoadNode, PASSWORD};
use crate::run_report::RunReport;

/// A listener in place of a server, which detects any connection.
struct SilentServer(TcpListener);

impl SilentServer {
    fn new() -> SilentServer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        SilentServer(listener)
    }

    fn target(&self) -> String {
        self.0.local_addr().expect("a bound port").to_string()
    }
}

/// Runs the command, which must be refused as wrong usage with all of these parts in its message.
fn refused(mut command: Command, silent: &SilentServer, parts: &[&str]) {
    let out = std::env::temp_dir().join(format!("throng-{}-never", std::process::id()));
    let output = command.arg("--out").arg(&out).output().expect("it starts");
    let text = describe_output(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    assert!(output.stdout.is_empty(), "errors belong on standard error: {text}");
    assert!(silent.0.accept().is_err(), "it connected: {text}");
    assert!(!out.exists(), "a directory is left behind: {text}");
}

fn load(words: &[&str]) -> Command {
    program(None, &[&["load"], words].concat())
}

#[test]
fn unknown_names_are_reported_with_the_nearest_known_one() {
    let silent = SilentServer::new();
    let target = silent.target();
    refused(load(&["tigase-300", "--target", &target]), &silent, &["did you mean \"tigase-30k\"?"]);
    refused(load(&["idel", "--target", &target]), &silent, &["did you mean \"idle\"?"]);
    // All errors of a plan are reported at once, each with its line.
    let folder = TempFolder::new("unknown");
    let plan = folder.join("plan.toml");
    let text = "[options]\nholt = '1s'\n[[phase]]\nrate = 1\nusers = 1\n[[session]]\nsteps = ['login', 'presense']\n";
    fs::write(&plan, text).expect("a plan");
    let plan_name = plan.to_string_lossy().into_owned();
    refused(
        load(&[&plan_name, "--target", &target]),
        &silent,
        &["2 errors", "line 2", "did you mean \"hold\"?", "line 7", "did you mean \"presence\"?"],
    );
    refused(load(&["missing.toml", "--target", &target]), &silent, &["missing.toml", "cannot be read"]);
    refused(load(&["idle", "--conections", "5"]), &silent, &["--connections"]);
    refused(load(&[]), &silent, &["--list"]);
}

#[test]
fn an_unreachable_server_is_reported_before_workers_start() {
    let silent = SilentServer::new();
    let [port] = ports::free();
    let target = format!("127.0.0.1:{port}");
    refused(load(&["idle", "--target", &target]), &silent, &["cannot connect to", &target, "--target"]);
    let unknown = ["idle", "--target", "nowhere.invalid:5222"];
    refused(load(&unknown), &silent, &["nowhere.invalid", "not found"]);
    // One reachable target does not make up for the other.
    let both = ["idle", "--target", &target, "--target", &silent.target()];
    refused(load(&both), &silent, &["cannot connect to", &target]);
}

#[test]
fn missing_machine_resources_are_reported_with_the_fix() {
    let silent = SilentServer::new();
    let target = silent.target();
    let many = ["idle", "--target", &target, "--connections", "140000"];
    // Whatever the range of local ports, it has fewer than 65 536, and so has one address.
    refused(load(&many), &silent, &["140000 connections", "ports", "--source 127.0.0.2-"]);
    let few = load(&["idle", "--target", &target, "--connections", "400"]);
    refused(with_files(200, few), &silent, &["only 200 files", "ulimit -n"]);
    let many =
        load(&["idle", "--target", &target, "--connections", "60000", "--source", "127.0.0.2-127.0.0.9"]);
    refused(with_files(300, many), &silent, &["60000 connections", "300 open files", "ulimit -n"]);
    let fewer = ["idle", "--target", &target, "--connections", "100", "--count", "10"];
    refused(load(&fewer), &silent, &["100 connections", "there are 10", "--connections 10"]);
}

/// The same command with a lower limit of open files.
fn with_files(files: u32, command: Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    limited
}

/// Only the server knows the accounts, so one login is needed to find out.
#[test]
fn accounts_that_do_not_exist_stop_the_run_at_the_first_login() {
    let node = LoadNode::start("nobody", 0);
    let run = |more: &[&str]| -> Output {
        let words = ["idle", "-n", "20", "--hold", "1s", "--workers", "1"];
        node.load("out", &[&words, more].concat()).output().expect("throng starts")
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", describe_output(&output));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in ["@chat.test", "first login", "not-authorized"] {
        assert!(text.contains(part), "no {part} in: {text}");
    }
    let report = RunReport::read(&node.folder.join("out"));
    assert_eq!(report.count("logins"), 0, "{}", report.messages());
    assert!(report.count("users_started") < 20, "it went on: {}", report.messages());

    // With `--keep-going` failures are counted, and a run with failed logins still fails.
    let refused = || node.metrics().sum("throng_login_failures_total{");
    let before = refused();
    let output = run(&["--keep-going"]);
    assert_eq!(output.status.code(), Some(1), "{}", describe_output(&output));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("20 of 20 logins failed (most frequent error: login:not-authorized, 20 times)"),
        "{text}"
    );
    let report = RunReport::read(&node.folder.join("out"));
    assert_eq!(report.end_reason(), "finished", "{}", report.messages());
    assert_eq!(report.count("login_errors"), 20, "{}", report.messages());
    assert_eq!(refused() - before, 20, "{}", report.messages());

    // Unless a threshold allows that many.
    let output = run(&["--keep-going", "--fail-on", "count(login_errors) > 20"]);
    assert_eq!(output.status.code(), Some(0), "{}", describe_output(&output));

    // With the accounts created, the same command succeeds.
    node.run_ok(&["account", "bulk", "--prefix", "u", "--count", "20", "--password", PASSWORD]);
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", describe_output(&output));
    assert_eq!(RunReport::read(&node.folder.join("out")).count("logins"), 20);
}

/// Both sides report it: the worker and the waiting controller.
#[test]
fn a_worker_needs_the_token_and_a_controller() {
    let node = LoadNode::start("token", 1);
    let [port] = ports::free();
    let join = format!("127.0.0.1:{port}");
    let worker = |token: &str, retry_for: &str| {
        program(None, &["load", "worker", "--join", &join, "--retry-for", retry_for])
            .env("THRONG_LOAD_TOKEN", token)
            .output()
            .expect("throng starts")
    };
    let output = worker("right", "0s");
    assert_eq!(output.status.code(), Some(1), "{}", describe_output(&output));
    assert!(
        describe_output(&output).contains(&format!("no controller at {join}")),
        "{}",
        describe_output(&output)
    );

    let words = ["idle", "-n", "1", "--hold", "1s", "--listen", &join, "--expect", "1"];
    let mut load = node.load("out", &words);
    load.env("THRONG_LOAD_TOKEN", "right");
    let controller = std::thread::spawn(move || load.output().expect("throng starts"));
    let output = worker("wrong", "30s");
    assert_eq!(output.status.code(), Some(1), "{}", describe_output(&output));
    assert!(
        describe_output(&output).contains("the token is wrong; give the worker the --token"),
        "{}",
        describe_output(&output)
    );
    let output = worker("right", "30s");
    assert_eq!(output.status.code(), Some(0), "{}", describe_output(&output));
    let output = controller.join().expect("the controller");
    assert_eq!(output.status.code(), Some(0), "{}", describe_output(&output));
    assert!(
        describe_output(&output).contains("may not join: the token is wrong"),
        "{}",
        describe_output(&output)
    );
    // A given secret must appear neither on the screen nor in the report.
    let report = fs::read_to_string(node.folder.join("out/run.json")).expect("a report");
    assert!(!report.contains(PASSWORD) && !report.contains("THRONG_LOAD"), "a secret is in the report");
}

#[test]
fn a_condition_that_is_met_fails_the_run_and_an_invalid_one_is_a_usage_error() {
    let node = LoadNode::start("thresholds", 10);
    let run = |more: &[&str]| -> Output {
        let words = ["idle", "-n", "10", "--hold", "1s", "--workers", "1"];
        node.load("out", &[&words, more].concat()).output().expect("throng starts")
    };
    let output = run(&["--fail-on", "count(logins) < 10", "--fail-on", "max(login) > 1h"]);
    assert_eq!(output.status.code(), Some(0), "{}", describe_output(&output));
    let output = run(&["--fail-on", "count(logins) < 10", "--fail-on", "max(online) >= 10"]);
    assert_eq!(output.status.code(), Some(1), "{}", describe_output(&output));
    let text = describe_output(&output);
    for part in ["max(online) >= 10: 10", "FAILED", "passed"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let report = RunReport::read(&node.folder.join("out"));
    let missed: Vec<bool> =
        report.list("thresholds").iter().map(|one| one["missed"].as_bool().expect("a verdict")).collect();
    assert_eq!(missed, [false, true]);
    let page = fs::read_to_string(node.folder.join("out/report.html")).expect("a page");
    assert!(page.contains("Failure conditions of the run"), "no table of thresholds");
    let output = run(&["--fail-on", "p99(mesage) > 50ms"]);
    assert_eq!(output.status.code(), Some(2), "{}", describe_output(&output));
    assert!(describe_output(&output).contains("did you mean \"message\"?"), "{}", describe_output(&output));
}

#[test]
fn a_search_that_runs_out_of_accounts_names_the_accounts() {
    let node = LoadNode::start("few", 30);
    let words = [
        "capacity",
        "idle",
        "--from",
        "20",
        "--max",
        "80",
        "--hold",
        "1s",
        "--pause",
        "0s",
        "--workers",
        "1",
    ];
    let output = node.load("out", &words).output().expect("throng starts");
    let text = describe_output(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in
        ["Capacity of", ": 20 users", "accounts were missing at 40", "login:not-authorized", "30 succeeded"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}
