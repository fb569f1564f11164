//! Tests that run the scenarios of `scenarios/` on real nodes: two and three processes with one PostgreSQL and one NATS server, the
//! clients spread over them as over the memory bus (`tests/scenarios.rs`). The cluster of a test is started once, and each scenario
//! has accounts of its own.
//!
//! Scenarios that cannot run on processes are in [`NOT_ON_PROCESSES`]. `THRONG_SCENARIO=name` runs one.
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use features::registry::ALL;
use serde_json::json;
use test_databases::{NatsServer, Server, ServerKind};
use testkit::scenario::{RemoteCluster, RemoteServer, Scenario, ScenarioTarget, parse, run};
use throng_e2e::{NodeProcess, TIMEOUT, ports, wait};

const DOMAIN: &str = "chat.test";
const PASSWORD: &str = "correct horse";

/// Scenarios that are not run, with the reason.
const NOT_ON_PROCESSES: [(&str, &str); 3] = [
    ("ping_silence", "ten minutes pass in it: processes have no injected time"),
    ("last_activity", "a logout is written to the database up to a second later, where other nodes read it"),
    ("statistics", "it counts the accounts of the domain, which has those of all scenarios"),
];

fn read_scenarios() -> Vec<Scenario> {
    let chosen = std::env::var("THRONG_SCENARIO").ok();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let paths = fs::read_dir(folder).expect("the scenarios").map(|entry| entry.expect("a file").path());
    let mut scenarios: Vec<Scenario> = paths
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("text");
            parse(&name, &text).unwrap_or_else(|error| panic!("{error}"))
        })
        .filter(|scenario| chosen.as_ref().is_none_or(|name| *name == scenario.name))
        .collect();
    scenarios.sort_by(|one, other| one.name.cmp(&other.name));
    scenarios
}

/// Why a scenario is not run.
fn reason_against(scenario: &Scenario) -> Option<&'static str> {
    NOT_ON_PROCESSES.iter().find_map(|(name, reason)| (*name == scenario.name).then_some(*reason))
}

/// A node and its HTTP port.
struct Member {
    node: NodeProcess,
    http: u16,
}

impl Member {
    /// The text of a response.
    fn request(&self, request: &str) -> String {
        let mut page = String::new();
        let read = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).and_then(|mut stream| {
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut page)
        });
        read.expect("an answer");
        page
    }

    /// Values of metrics without labels.
    fn metrics<const N: usize>(&self, names: [&str; N]) -> [Option<u64>; N] {
        let page = self.request("GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n");
        names.map(|name| {
            let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value?.trim_end_matches(".0").parse().ok()
        })
    }
}

/// Whether no node has anything for another one, and each knows the addresses of the others.
fn is_settled(members: &[Member]) -> bool {
    let names =
        ["unsettled_bytes", "own_addresses", "peer_addresses"].map(|name| format!("throng_cluster_{name}"));
    let figures: Vec<[Option<u64>; 3]> =
        members.iter().map(|member| member.metrics(names.each_ref().map(String::as_str))).collect();
    let own: Option<u64> = figures.iter().map(|[_, own, _]| *own).sum();
    let Some(all) = own else { return false };
    figures.iter().all(|figures| match figures {
        [Some(unsettled), Some(own), Some(peers)] => *unsettled == 0 && own + peers == all,
        _ => false,
    })
}

fn run_on_processes(count: usize) {
    let (database, nats) = (Server::start(ServerKind::Postgres), NatsServer::start());
    let scenarios = read_scenarios();
    let mut servers = Vec::new();
    let mut members: Vec<Member> = (1..=count)
        .map(|number| {
            let [clients, http] = ports::free();
            servers.push(RemoteServer {
                address: format!("127.0.0.1:{clients}"),
                domain: DOMAIN.into(),
                password: PASSWORD.into(),
                own_users: true,
            });
            let node = NodeProcess::new(&format!("scenarios-{count}-{number}"));
            node.configure(&configuration(number, [clients, http], &database, &nats));
            Member { node, http }
        })
        .collect();
    let accounts_target = RemoteCluster { nodes: servers.clone(), is_settled: Box::new(|| true) };
    let accounts_target = ScenarioTarget::RemoteCluster(accounts_target);
    members.iter_mut().for_each(|member| member.node.start());
    for member in &members {
        let all = [Some(count as u64), Some(1)];
        let connected = || member.metrics(["throng_cluster_members", "throng_ready"]) == all;
        wait("the other nodes", || connected().then_some(()));
    }
    let secret = members[0].node.run_ok(&["token", "add", "bulk", "--scope", "accounts"]);
    create_accounts(&members[0], secret.trim(), &scenarios, &accounts_target);
    let members = std::sync::Arc::new(members);
    let asked = members.clone();
    let is_settled = Box::new(move || is_settled(&asked));
    let target = ScenarioTarget::RemoteCluster(RemoteCluster { nodes: servers, is_settled });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut failures = Vec::new();
    for scenario in &scenarios {
        if let Some(reason) = reason_against(scenario) {
            println!("{} is not run: {reason}", scenario.name);
            continue;
        }
        members.iter().for_each(|member| set_administrators(member, scenario, &target));
        let outcome = runtime.block_on(run(scenario, &target));
        println!("{} on {count} processes: {outcome:?}", scenario.name);
        failures.extend(outcome.err().map(|error| format!("{}: {error}", scenario.title)));
    }
    assert!(failures.is_empty(), "{} scenarios failed:\n{}", failures.len(), failures.join("\n"));
}

fn configuration(number: usize, [clients, http]: [u16; 2], database: &Server, nats: &NatsServer) -> String {
    let off = ALL.iter().filter(|feature| !feature.default_on);
    let switches: String = off.map(|feature| format!("{} = true\n", feature.name)).collect();
    // Tokens and registration require TLS; the clients use STARTTLS if offered. Uploads have no address that clients reach on a
    // node with loopback listeners.
    format!(
        "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\n\
         [storage]\nurl = '{}'\n[cluster]\nnats = ['{}']\nnode = 'node-{number}'\n\
         [limits]\nnew_connections_per_second = 0\n\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{clients}'\ntls = 'optional'\n\
         [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n\
         [http]\npublic_url = 'https://{DOMAIN}'\n[modules]\n{switches}",
        database.default_url(),
        nats.url()
    )
}

/// Creates the accounts of all scenarios with one request.
fn create_accounts(member: &Member, secret: &str, scenarios: &[Scenario], target: &ScenarioTarget) {
    let accounts = scenarios.iter().flat_map(|scenario| scenario.accounts(target));
    let line = |(_, local, password): (String, String, String)| {
        json!({ "jid": format!("{local}@{DOMAIN}"), "password": password }).to_string() + "\n"
    };
    let body: String = accounts.map(line).collect();
    let answer = member.request(&format!(
        "POST /api/v1/accounts/bulk?results=failed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Authorization: Bearer {secret}\r\nContent-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert!(answer.contains("\"done\"") && answer.contains("\"failed\":0"), "{answer}");
}

/// Makes the users administrators that a scenario needs.
fn set_administrators(member: &Member, scenario: &Scenario, target: &ScenarioTarget) {
    let accounts = scenario.accounts(target);
    let local =
        |user: &String| accounts.iter().find(|account| account.0 == *user).expect("an account").1.clone();
    let admins = scenario.administrators.iter().map(|user| format!("admin={}@{DOMAIN}", local(user)));
    let admins: Vec<String> = admins.collect();
    if !admins.is_empty() {
        let words: Vec<&str> = admins.iter().map(String::as_str).collect();
        member.node.run_ok(&[&["command", "edit-admin"], words.as_slice()].concat());
    }
}

#[test]
fn scenarios_pass_on_two_processes() {
    run_on_processes(2);
}

#[test]
fn scenarios_pass_on_three_processes() {
    run_on_processes(3);
}

#[test]
fn each_exception_names_a_scenario() {
    let scenarios = read_scenarios();
    if std::env::var_os("THRONG_SCENARIO").is_none() {
        for (name, _) in NOT_ON_PROCESSES {
            assert!(scenarios.iter().any(|scenario| scenario.name == name), "there is no scenario {name}");
        }
    }
    let passing: Vec<&str> = scenarios
        .iter()
        .filter(|scenario| scenario.needs_time() && reason_against(scenario).is_none())
        .map(|scenario| scenario.name.as_str())
        .collect();
    assert_eq!(passing, [""; 0], "these need time to pass");
}
