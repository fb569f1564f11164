//! The process of a large import: killed and continued, its memory, its progress on a terminal.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use test_databases::{Server, ServerKind};
use throng_e2e::clients::install_clients;
use throng_e2e::process::program_path;
use throng_e2e::{KillOnDrop, NodeProcess, describe_output};

use super::{DOMAIN, PASSWORD};

const IMPORT: [&str; 4] = ["import", "--create", "xep-0227", "accounts.xml"];

/// Reported in the first pass, when the account is created, and in the second pass.
const REPORTS: [&str; 2] = ["the account has no password", "private value"];

/// A node with these lines for storage, and accounts to import: each has keys, a contact, and two equal messages of this size.
/// One in the middle has no password, a later one a private value that cannot be taken.
fn node(name: &str, storage: &str, accounts: usize, message_bytes: usize) -> NodeProcess {
    let node = NodeProcess::new(name);
    node.configure(&format!("hosts = ['{DOMAIN}']\ndata_dir = 'data'\n{storage}"));
    let keys = sasl::Credentials::derive(PASSWORD, 4096, b"salt").unwrap().sha1.unwrap();
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    let (stored, server) = (encode(keys.stored_key.expose()), encode(keys.server_key.expose()));
    let keys = format!(
        "<scram-credentials xmlns='urn:xmpp:pie:0#scram' mechanism='SCRAM-SHA-1'><iter-count>4096</iter-count>\
         <salt>{}</salt><server-key>{server}</server-key><stored-key>{stored}</stored-key></scram-credentials>",
        encode(b"salt")
    );
    let message = format!(
        "<message xmlns='jabber:client' from='x@example.net' type='chat'><body>{}</body>\
         <delay xmlns='urn:xmpp:delay' from='{DOMAIN}' stamp='2023-11-14T22:13:20Z'/></message>",
        "x".repeat(message_bytes)
    );
    let mut text = format!("<server-data xmlns='urn:xmpp:pie:0'><host jid='{DOMAIN}'>");
    for number in 0..accounts {
        let keys = if number == accounts / 2 { "" } else { keys.as_str() };
        let private =
            if number == accounts * 3 / 4 { "<query xmlns='jabber:iq:private'><x/></query>" } else { "" };
        write!(
            text,
            "<user name='user{number}'>{keys}<query xmlns='jabber:iq:roster'><item jid='x@example.net' subscription='both'/>\
             </query>{private}<offline-messages>{message}{message}</offline-messages></user>"
        )
        .unwrap();
    }
    text.push_str("</host></server-data>");
    fs::write(node.folder.join("accounts.xml"), text).unwrap();
    node
}

/// Runs the import up to a report, and kills it.
fn kill_at(node: &NodeProcess, report: &str) {
    let mut command = node.program(&IMPORT);
    command.args(["--config", "throng.toml"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut import = KillOnDrop(command.spawn().unwrap());
    let lines = BufReader::new(import.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut read = Vec::new();
    for line in lines {
        let found = line.contains(report);
        read.push(line);
        if found {
            break;
        }
    }
    import.0.kill().unwrap();
    let status = import.0.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "it ended before it was killed: {read:?}");
}

/// An import that is killed in each pass has the same result as one that is not.
fn kill_and_continue(name: &str, storage: &str) {
    const ACCOUNTS: usize = 6_000;
    let complete = node(&format!("{name}-complete"), "", ACCOUNTS, 10);
    complete.run_ok(&IMPORT);
    let node = node(name, storage, ACCOUNTS, 10);
    for report in REPORTS {
        kill_at(&node, report);
    }
    let output = node.run_ok(&IMPORT);
    assert!(output.contains("continued an interrupted import"), "{output}");
    assert!(output.contains(&format!("{ACCOUNTS:>12} accounts\n")), "{output}");
    let exported = node.run_ok(&["export", "-"]);
    assert_eq!(exported.matches("<message ").count(), 2 * ACCOUNTS);
    assert!(exported == complete.run_ok(&["export", "-"]), "data were lost, doubled or changed");
}

#[test]
fn a_killed_import_continues_and_nothing_is_lost_or_doubled() {
    kill_and_continue("killed-import", "");
}

#[test]
fn a_killed_import_into_postgresql_continues_and_nothing_is_lost_or_doubled() {
    let server = Server::start(ServerKind::Postgres);
    kill_and_continue("killed-import-postgres", &format!("[storage]\nurl = '{}'\n", server.default_url()));
}

/// The largest resident memory of an import, in kilobytes.
fn peak_memory(accounts: usize) -> u64 {
    const MEASURE: &str = "import os, sys\n\
        process = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])\n\
        _, status, usage = os.wait4(process, 0)\n\
        print('peak', usage.ru_maxrss)\n\
        sys.exit(os.waitstatus_to_exitcode(status))\n";
    let node = node(&format!("memory-of-import-{accounts}"), "", accounts, 1_000);
    let mut command = Command::new(install_clients().join("venv/bin/python"));
    command.args(["-c", MEASURE]).arg(program_path()).args(IMPORT).args(["--config", "throng.toml"]);
    let output = command.current_dir(&node.folder).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", describe_output(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("{accounts:>12} accounts\n")), "{text}");
    text.lines().find_map(|line| line.strip_prefix("peak ")?.parse().ok()).unwrap()
}

#[test]
fn the_memory_of_an_import_does_not_grow_with_the_data() {
    let [small, large] = [2_000, 20_000].map(peak_memory);
    // The data are 40 MB more.
    assert!(large < small + 10_000, "{small} kB for 2 000 accounts, {large} kB for 20 000");
}

#[test]
fn an_import_shows_its_progress_on_a_terminal_only() {
    let shown = node("progress", "", 3_000, 10);
    let command = format!("{} {} --config throng.toml", program_path().display(), IMPORT.join(" "));
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    let output = terminal.current_dir(&shown.folder).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", describe_output(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for pass in ["\rpass 1 of 2, ", "\rpass 2 of 2, "] {
        let line = text.split_once(pass).and_then(|(_, line)| line.split_once("\x1b[K"));
        let (line, _) = line.unwrap_or_else(|| panic!("no line {pass:?} in {text:?}"));
        assert!(line.contains(" %: ") && line.ends_with(" offline messages"), "{line:?}");
    }
    // The result replaces the last line.
    let (_, result) = text.rsplit_once("\r\x1b[K").unwrap();
    assert!(result.contains("        3000 accounts"), "{result:?}");
    // A report is a line of its own.
    assert!(text.contains("\r\x1b[Kskipped: "), "{text:?}");

    let plain = node("no-progress", "", 3_000, 10);
    let output = plain.run(&IMPORT);
    assert!(output.status.success(), "{}", describe_output(&output));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains(['\r', '\x1b']) && !text.contains("pass 1 of 2"), "{text:?}");
    assert_eq!(text.matches("skipped: ").count(), 2, "{text:?}");
}
