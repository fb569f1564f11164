//! Tests of an operator's first steps: commands in a wrong directory, typed passwords, output of `serve`, `check` and
//! `status`, and the self-signed certificate.
//!
//! Each test has its own directory. The terminal is provided by `script` of util-linux.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy sees helpers outside of #[test] as ordinary code"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use throng_e2e::{
    KillOnDrop, NodeProcess, TIMEOUT, TempFolder, describe_output, poll, ports, process, program,
};

const DOMAIN: &str = "chat.test";

/// A node that has not been started.
fn node(name: &str) -> NodeProcess {
    let node = NodeProcess::new(name);
    node.configure(&configuration(""));
    node
}

fn configuration(more: &str) -> String {
    let [port, http] = ports::free();
    format!(
        "hosts = ['{DOMAIN}']\nadmins = ['boss@{DOMAIN}']\ndata_dir = 'data'\n{more}\
         [auth]\nscram_iterations = 4096\n\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\n\
         [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n"
    )
}

/// Everything below a directory: path, length, and modification time.
fn folder_listing(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let about = entry.metadata().expect("a file");
            if about.is_dir() {
                folders.push(entry.path());
            }
            all.push((entry.path(), about.len(), about.modified().expect("a time")));
        }
    }
    all.sort();
    all
}

#[test]
fn commands_do_not_create_a_missing_database() {
    let node = node("nowhere");
    let empty = TempFolder::new("nowhere-else");
    let before = folder_listing(&node.folder);
    let jid = format!("romeo@{DOMAIN}");
    for words in [
        &["account", "add", &jid][..],
        &["account", "passwd", &jid],
        &["account", "remove", &jid],
        &["account", "disable", &jid],
        &["account", "show", &jid],
        &["account", "list"],
        &["account", "bulk", "--prefix", "u", "--count", "2", "--password", "x"],
        &["token", "add", "x", "--scope", "read"],
        &["token", "list"],
    ] {
        let refused = node.run_with(words, "secret\n");
        let text = describe_output(&refused);
        assert_eq!(refused.status.code(), Some(1), "{words:?}: {text}");
        assert!(
            text.contains("the database") && text.contains("throng.db does not exist"),
            "{words:?}: {text}"
        );
        assert!(text.contains("serve --config throng.toml"), "{words:?}: {text}");
        assert_eq!(folder_listing(&node.folder), before, "{words:?}");
        // Without the configuration, in a directory that is not the node's.
        let words: Vec<&str> =
            words.iter().map(|word| if *word == jid { "romeo@localhost" } else { word }).collect();
        let refused =
            program(None, &words).current_dir(&empty).stdin(Stdio::null()).output().expect("throng");
        assert_eq!(refused.status.code(), Some(1), "{words:?}: {}", describe_output(&refused));
        assert!(describe_output(&refused).contains("does not exist"), "{}", describe_output(&refused));
        assert!(folder_listing(&empty).is_empty(), "{words:?}");
    }
    // On request a database is created, and its location is printed.
    let made = node.run_with(&["account", "add", "--create", &jid], "secret\n");
    assert!(made.status.success(), "{}", describe_output(&made));
    let database = node.folder.join("data/throng.db");
    assert!(
        describe_output(&made).contains(&format!("using the database {}", database.display())),
        "{}",
        describe_output(&made)
    );
    let list = node.run(&["account", "list"]);
    assert!(describe_output(&list).contains(&database.display().to_string()), "{}", describe_output(&list));
    assert_eq!(
        String::from_utf8_lossy(&list.stdout),
        format!("{jid}\n"),
        "only the list is on standard output"
    );
}

#[test]
fn the_address_is_validated_before_the_password_prompt() {
    let mut node = node("address");
    node.add_account(&format!("romeo@{DOMAIN}"), "x");
    for running in [false, true] {
        if running {
            node.start();
        }
        for (words, part) in [
            (["account", "add", "romeo@elsewhere.test"], "elsewhere.test is not served here"),
            (["account", "add", "romeo"], "write NAME@DOMAIN"),
            (["account", "add", "a b@chat.test"], "is not a valid address"),
            (["account", "add", "romeo@chat.test"], "account passwd --config throng.toml romeo@chat.test"),
            (["account", "passwd", "juliet@chat.test"], "account add --config throng.toml juliet@chat.test"),
        ] {
            let mut command = node.program(&words);
            command.args(["--config", "throng.toml"]).stdin(Stdio::piped());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = KillOnDrop(command.spawn().expect("throng starts"));
            // Nothing is written and the pipe stays open: a command that reads a password first would block
            // permanently.
            let status = child.wait_for_exit("a command with a wrong address");
            let mut text = String::new();
            child.0.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
            assert_eq!(status.code(), Some(1), "{words:?}: {text}");
            assert!(text.contains(part), "{words:?}, running {running}: {text}");
        }
    }
}

/// Runs a command on a terminal; each of `keys` is typed when its prompt appears.
fn on_a_terminal(node: &NodeProcess, words: &str, keys: &[(&str, &str)]) -> (bool, String) {
    // Output of the previous command.
    let _ = fs::remove_file(node.folder.join("typed"));
    let line = format!("'{}' {words} --config throng.toml", process::program_path().display());
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--command", &line, "typed"]).current_dir(&node.folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = KillOnDrop(command.spawn().expect("script of util-linux"));
    let mut input = child.0.stdin.take().expect("piped");
    let shown = || {
        fs::read(node.folder.join("typed"))
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .unwrap_or_default()
    };
    for (question, key) in keys {
        let asked = poll(TIMEOUT, || shown().contains(question).then_some(()));
        assert!(asked.is_some(), "no {question} in {}", shown());
        input.write_all(key.as_bytes()).expect("keys");
        input.flush().expect("keys");
    }
    // `script` ends with its input.
    drop(input);
    let status = child.wait_for_exit("a command on a terminal");
    (status.success(), shown())
}

#[test]
fn a_password_is_typed_twice_and_never_shown() {
    let mut node = node("typed");
    node.start();
    let jid = format!("alice@{DOMAIN}");
    let add = format!("account add {jid}");
    let again = "repeat it: ";
    let question = format!("password for {jid}: ");
    let (good, text) = on_a_terminal(&node, &add, &[(&question, "hunter22\r"), (again, "hunter23\r")]);
    assert!(!good && text.contains("the two entries differ") && !text.contains("hunter2"), "{text}");
    let (good, text) = on_a_terminal(&node, &add, &[(&question, "hunt\u{3}")]);
    assert!(!good && text.contains("interrupted") && !text.contains("hunt"), "{text}");
    let missing = node.run(&["account", "show", &jid]);
    assert_eq!(missing.status.code(), Some(1), "nothing was made: {}", describe_output(&missing));
    let (good, text) = on_a_terminal(&node, &add, &[(&question, "hunter22\r"), (again, "hunter22\r")]);
    assert!(good && text.contains("added") && !text.contains("hunter2"), "{text}");
    node.stop();
}

#[test]
fn check_writes_nothing() {
    let mut node = node("look");
    let look = |node: &NodeProcess, words: &[&str]| {
        let before = folder_listing(&node.folder);
        let output = node.run(words);
        assert_eq!(folder_listing(&node.folder), before, "{}", describe_output(&output));
        output
    };
    // Before the first start.
    let output = look(&node, &["check"]);
    let text = describe_output(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("a self-signed one will be generated") && text.contains("throng.db will be created"),
        "{text}"
    );
    // In an unwritable directory. Root can write everywhere, which is not the command's fault.
    let mode = |node: &NodeProcess, mode| {
        fs::set_permissions(&*node.folder, fs::Permissions::from_mode(mode)).expect("a mode")
    };
    mode(&node, 0o555);
    let output = look(&node, &["check"]);
    mode(&node, 0o755);
    assert!(
        output.status.success() || describe_output(&output).contains("is not writable"),
        "{}",
        describe_output(&output)
    );
    // With a database: on a running node, a killed one, and a stopped one.
    node.add_account(&format!("romeo@{DOMAIN}"), "x");
    node.start();
    // The node writes its own files, so only new ones would be those of the command.
    let paths = |node: &NodeProcess| {
        folder_listing(&node.folder).into_iter().map(|(path, ..)| path).collect::<Vec<PathBuf>>()
    };
    let before = paths(&node);
    let running = node.run(&["check"]);
    assert_eq!(paths(&node), before, "{}", describe_output(&running));
    assert!(
        running.status.success() && describe_output(&running).contains("a node is running"),
        "{}",
        describe_output(&running)
    );
    node.kill();
    let killed = look(&node, &["check"]);
    assert!(
        killed.status.success() && describe_output(&killed).contains("database  "),
        "{}",
        describe_output(&killed)
    );
    node.start();
    node.stop();
    let stopped = look(&node, &["check"]);
    assert!(
        stopped.status.success() && describe_output(&stopped).contains(", schema "),
        "{}",
        describe_output(&stopped)
    );
    // With an error in the configuration.
    node.configure("[limits]\nstanza_byte = 3\n");
    let wrong = look(&node, &["check"]);
    assert_eq!(wrong.status.code(), Some(1));
    look(&node, &["check", "--compliance"]);
}

#[test]
fn check_and_serve_refuse_renamed_keys_with_their_new_names() {
    let node = node("renamed");
    node.configure("[limits]\nhalf_open = 5\n[modules]\nlast = false\n[modules.offline]\nlimit = 9\n");
    for command in ["check", "serve"] {
        let mut program = node.program(&[command, "--config", "throng.toml"]);
        let output = program.env("THRONG__LIMITS__BLOCKED_SECONDS", "5").output().expect("throng");
        let text = describe_output(&output);
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
        for part in [
            "throng.toml:2:1: [limits] half_open has been renamed to unauthenticated_connections",
            "throng.toml:4:1: [modules] last has been renamed to last_activity",
            "throng.toml:6:1: [modules.offline] limit has been renamed to max_messages",
            "THRONG__LIMITS__BLOCKED_SECONDS: [limits] blocked_seconds has been renamed to write_stall_timeout_seconds",
        ] {
            assert!(text.contains(part), "{command}: {part} is missing in {text}");
        }
    }
}

#[test]
fn check_names_all_errors_by_line_and_column() {
    let node = node("lines");
    node.configure(
        "host = 'a.org'\n[limits]\nstanza_bytes = 'x'\n\n[modules]\n  ofline = true\nping = maybe\n",
    );
    let output = node.run(&["check"]);
    let text = describe_output(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [
        "throng.toml:1:1: host must be a section: [host]; did you mean \"hosts\"?",
        "throng.toml:3:1: [limits] stanza_bytes must be",
        "throng.toml:6:3: unknown module \"ofline\" under [modules]; did you mean \"offline\"?",
        "throng.toml:7:1: modules.ping must be true, false or a table of options",
        "throng.toml:7:8: not valid TOML",
        "5 errors found",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let serve = node.run(&["serve"]);
    assert!(describe_output(&serve).contains("throng.toml:6:3: "), "{}", describe_output(&serve));
}

#[test]
fn serve_lists_administrators_without_an_account_with_a_command_hint() {
    let mut node = node("boss");
    node.start();
    let said = node.log();
    assert!(said.contains(&format!("administrator  boss@{DOMAIN} has no account; add it with:")), "{said}");
    let hint =
        said.lines().find(|line| line.contains("account add") && line.contains("boss")).expect("a hint");
    assert!(hint.trim().ends_with(&format!("account add --config throng.toml boss@{DOMAIN}")), "{hint}");
    assert!(said.contains(&format!("account add --config throng.toml alice@{DOMAIN}")), "{said}");
    // The hint works as printed in a shell.
    let line = format!("echo secret | {}", hint.trim());
    let done = Command::new("sh").args(["-c", &line]).current_dir(&node.folder).output().expect("sh");
    assert!(done.status.success(), "{}", throng_e2e::describe_output(&done));
    node.stop();
    let before = node.log().len();
    node.start();
    let said = node.log().split_off(before);
    assert!(!said.contains("has no account"), "{said}");
    node.stop();
}

#[test]
fn the_fingerprint_of_a_self_signed_certificate_is_consistent() {
    let mut node = node("print");
    node.start();
    let file = node.folder.join("data/tls/self-signed-cert.pem");
    let print = |text: &str| {
        let is_print = |word: &&str| word.len() == 95 && word.matches(':').count() == 31;
        text.split_whitespace().find(is_print).map(str::to_owned)
    };
    let log = node.log();
    let shown = print(&log).unwrap_or_else(|| panic!("no fingerprint in {log}"));
    assert!(log.contains(&format!("self-signed, for {DOMAIN}, until ")), "{log}");
    assert!(log.contains(&file.display().to_string()), "how to trust it: {log}");
    for words in [&["check"][..], &["status"]] {
        let text = node.run_ok(words);
        assert_eq!(print(&text).as_deref(), Some(shown.as_str()), "{words:?}: {text}");
    }
    node.stop();
    node.start();
    assert_eq!(print(&node.log()).as_deref(), Some(shown.as_str()), "a restart keeps it");
    node.stop();
}

#[test]
fn status_prints_one_column_with_units_and_the_current_number_of_accounts() {
    let mut node = node("status");
    node.start();
    let figure = |name: &str| {
        let text = node.run_ok(&["status"]);
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}  ")).map(str::trim));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    };
    assert_eq!(figure("accounts"), "0");
    node.add_account(&format!("romeo@{DOMAIN}"), "x");
    let changed = |name: &str, value: &str| poll(TIMEOUT, || (figure(name) == value).then_some(()));
    assert!(changed("accounts", "1").is_some(), "{}", figure("accounts"));
    node.run_ok(&["account", "bulk", "--prefix", "u", "--count", "1200", "--password", "x"]);
    assert!(changed("accounts", "1 201").is_some(), "{}", figure("accounts"));
    node.run_ok(&["account", "remove", &format!("romeo@{DOMAIN}")]);
    assert!(changed("accounts", "1 200").is_some(), "{}", figure("accounts"));
    let memory = figure("memory");
    assert!(memory.ends_with(" kB") || memory.ends_with(" MB"), "{memory}");
    let text = node.run_ok(&["status"]);
    let column = |line: &str| line.find("  ").map(|at| line.len() - line[at..].trim_start().len());
    let columns: Vec<_> = text.lines().map(column).collect();
    assert!(columns.iter().all(|at| at.is_some() && *at == columns[0]), "{text}");
    let json: serde_json::Value = serde_json::from_str(&node.run_ok(&["status", "--json"])).expect("JSON");
    assert!(json["memory_bytes"].is_u64() && json["accounts"] == 1200, "{json}");
    node.stop();
}

#[test]
fn check_reports_a_port_in_use() {
    let node = node("taken");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("an address").port();
    node.configure(&format!("data_dir = 'data'\n[[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\n"));
    let output = node.run(&["check"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(describe_output(&output).contains(&port.to_string()), "{}", describe_output(&output));
    assert!(!node.folder.join("data").exists());
}
