//! Test of the console in Chromium: an operator signs in, watches a load, finds one user among a hundred thousand, ends
//! a session, sends an announcement, and is locked out after too many wrong passwords.
//!
//! `clients/browser/console.js` acts and checks, this file starts the node and the load. Screenshots of every view, in
//! light and dark mode, on a desktop and on a phone, are in the directory that a failing test keeps; `CONSOLE_PICTURES`
//! names a directory that always keeps them.
//!
//! # Pitfalls
//!
//! A stale binary is tested without warning (run `cargo build -p throng-server` first), and the page is part of it.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use throng_e2e::{NodeProcess, clients, describe_output, ports, program};

const DOMAIN: &str = "chat.test";
const PASSWORD: &str = "correct horse";
const ADMIN: &str = "admin";
const ADMIN_PASSWORD: &str = "the friar's own";
/// Accounts `u0`, `u1` …
const ACCOUNTS: u32 = 100_000;
/// Users who exchange messages while the metrics are viewed; the script of the page interrupts them.
const PLAN: &str = r#"
title = "Somebody to look at"
[accounts]
count = 150
[options]
hold = "15m"
drain = "1s"
[[phase]]
name = "ramp"
rate = 50
users = "connections"
[[session]]
steps = ["login", "presence", { meanwhile = { do = [{ every = "1s", message = { to = "random" } }] } }]
"#;

#[test]
fn the_console_values_match_their_formulas() {
    let (scripts, installed) = (clients::scripts_folder(), clients::install_clients());
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
    let output = Command::new(installed.join("bin/node"))
        .arg(scripts.join("browser/console_values.js"))
        .arg(console)
        .output()
        .expect("node starts");
    let text = describe_output(&output);
    assert!(output.status.success() && text.contains("ok missing_samples_are_not_summed"), "{text}");
}

#[test]
fn an_operator_uses_the_console() {
    let (scripts, installed) = (clients::scripts_folder(), clients::install_clients());

    let mut throng = NodeProcess::new("console");
    let [port, http] = ports::free();
    throng.configure(&format!(
        "hosts = ['{DOMAIN}']\nadmins = ['{ADMIN}@{DOMAIN}']\ndata_dir = 'data'\n\
         [auth]\nscram_iterations = 4096\n[limits]\nlogin_failures_per_address_and_account = 5\n\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\ntls = 'optional'\n\
         [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n"
    ));
    fs::write(throng.folder.join("plan.toml"), PLAN).expect("a plan");
    let count = ACCOUNTS.to_string();
    throng.run_ok(&[
        "account",
        "bulk",
        "--create",
        "--prefix",
        "u",
        "--count",
        &count,
        "--password",
        PASSWORD,
    ]);
    throng.add_account(&format!("{ADMIN}@{DOMAIN}"), ADMIN_PASSWORD);
    throng.start();

    let target = format!("127.0.0.1:{port}");
    let mut load =
        program(None, &["load", "plan.toml", "-n", "150", "--workers", "1", "--out", "run", "--plain"]);
    load.args(["--domain", DOMAIN, "--target", &target]);
    let load: Vec<String> = std::iter::once(load.get_program())
        .chain(load.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let kept = std::env::var_os("CONSOLE_PICTURES").map(PathBuf::from);
    let output = Command::new(installed.join("bin/node"))
        .arg(scripts.join("browser/console.js"))
        .arg(kept.unwrap_or_else(|| throng.folder.join("pictures")))
        .current_dir(&throng.folder)
        .env("BROWSER_MODULES", installed.join("browser"))
        .env("XMPP_MODULES", installed.join("xmppjs"))
        .env("CONSOLE_URL", format!("http://127.0.0.1:{http}"))
        .env("CONSOLE_ADMIN", format!("{ADMIN}@{DOMAIN}"))
        .env("CONSOLE_PASSWORD", ADMIN_PASSWORD)
        .env("CONSOLE_ACCOUNTS", &count)
        .env("XMPP_SERVICE", format!("xmpp://127.0.0.1:{port}"))
        .env("XMPP_DOMAIN", DOMAIN)
        .env("XMPP_PASSWORD", PASSWORD)
        .env("THRONG_LOAD_PASSWORD", PASSWORD)
        .env("LOAD", json!(load).to_string())
        .stdin(Stdio::null())
        .output()
        .expect("node starts");
    let text = describe_output(&output);
    assert!(output.status.success(), "{}\n{text}", throng.folder.display());
    let last = "ok wrong_passwords_are_limited";
    assert!(text.contains(last), "it stopped before the end: {text}");
    println!("{text}");
}
