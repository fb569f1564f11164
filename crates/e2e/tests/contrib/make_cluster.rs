//! Test of `cargo xtask cluster`, which is `make cluster`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sasl::ScramHash;
use throng_e2e::text_client::TextClient;
use throng_e2e::{KillOnDrop, TempFolder, program, program_path, signal, wait};

use crate::output_of;

const PASSWORD: &str = "correct horse";

/// A process, by its id and the time of its start: another process may get the id.
type Process = (u32, String);

/// State and time of the start of a process.
fn stat(pid: u32) -> Option<(String, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which may have spaces, ends with the last bracket.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.nth(18)?.to_owned()))
}

fn descendants(pid: u32) -> BTreeSet<Process> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let mut all = BTreeSet::new();
    for child in
        children.flat_map(|line| line.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<u32>>())
    {
        all.extend(stat(child).map(|(_, start)| (child, start)));
        all.extend(descendants(child));
    }
    all
}

fn is_running((pid, start): &Process) -> bool {
    stat(*pid).is_some_and(|(state, its_start)| state != "Z" && its_start == *start)
}

/// The word after `before` in a line of the output.
fn word_after<'a>(line: &'a str, before: &str) -> &'a str {
    let rest = line.split_once(before).unwrap_or_else(|| panic!("no {before} in {line}")).1;
    rest.split([' ', '\n']).next().unwrap_or_default()
}

#[test]
fn users_of_two_nodes_chat_and_ctrl_c_leaves_no_process() {
    let folder = TempFolder::new("make-cluster");
    let (nodes, log) = (folder.join("nodes"), folder.join("output"));
    let output = File::create(&log).expect("a file");
    let mut command = Command::new(program_path().with_file_name("throng-xtask"));
    command.args(["cluster", "--free-ports", "--program"]).arg(program_path());
    command.arg("--directory").arg(&nodes).stdin(Stdio::null());
    command.stdout(output.try_clone().expect("a file")).stderr(output);
    let mut cluster = KillOnDrop(command.spawn().expect("throng-xtask; run `cargo build -p throng-xtask`"));
    let printed = || fs::read_to_string(&log).unwrap_or_default();
    wait("the cluster", || {
        let ended = cluster.0.try_wait().expect("a child");
        assert!(ended.is_none(), "{}", printed());
        printed().contains("Stop all with Ctrl-C").then_some(())
    });
    let text = printed();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("clients 127.0.0.1:")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    let port = |line: &str| word_after(line, "clients 127.0.0.1:").parse::<u16>().expect("a port");
    let administrator = word_after(&text, "admin@localhost, password ");

    let config: PathBuf = nodes.join("node-1/throng.toml");
    let mut add = program(None, &["account", "add", "--password", PASSWORD, "romeo@localhost", "--config"]);
    output_of(add.arg(&config));
    let mut romeo = login(port(lines[0]), "romeo", PASSWORD);
    let mut admin = login(port(lines[1]), "admin", administrator);
    romeo.send("<message to='admin@localhost' type='chat'><body>from node 1</body></message>");
    admin.read_to("<body>from node 1</body>");
    admin.send("<message to='romeo@localhost' type='chat'><body>from node 2</body></message>");
    romeo.read_to("<body>from node 2</body>");

    let processes = descendants(cluster.0.id());
    // Three nodes, and each server with its supervisor.
    assert!(processes.len() >= 7 && processes.iter().all(is_running), "{processes:?}");
    signal(cluster.0.id(), "INT");
    let status = cluster.wait_for_exit("the end of the cluster");
    assert!(status.success(), "{status}\n{}", printed());
    let left: Vec<&Process> = processes.iter().filter(|process| is_running(process)).collect();
    assert!(left.is_empty(), "{left:?} of {processes:?}");
}

fn login(port: u16, user: &str, password: &str) -> TextClient {
    let mut client = TextClient::connect(port, "localhost");
    client.read_to("</stream:features>");
    client.scram(ScramHash::Sha256, user, password).expect("a login");
    client.send("<presence/>");
    // Its own presence comes back when it is available.
    client.read_to("<presence");
    client
}
