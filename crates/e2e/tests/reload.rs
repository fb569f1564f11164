//! Tests of configuration reload on a running node: `throng reload` and SIGHUP with connected clients, an invalid file,
//! concurrent traffic; and the output of `throng status` and `throng top --once`.
//!
//! Each test starts its own program in its own directory. Clients are sockets and text, because they must stay
//! connected over several steps and what they receive is under test.
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;

use throng_e2e::text_client::TextClient;
use throng_e2e::{describe_output, ports, signal, wait};

const PASSWORD: &str = "correct horse";

/// A node with its listeners.
struct ReloadNode {
    node: throng_e2e::NodeProcess,
    port: u16,
    http: u16,
}

impl ReloadNode {
    /// Starts a node with accounts and with `more` appended to the configuration of its listeners.
    fn start(name: &str, more: &str, accounts: &[&str]) -> ReloadNode {
        let [port, http] = ports::free();
        let mut node = ReloadNode { node: throng_e2e::NodeProcess::new(name), port, http };
        node.configure(more);
        for account in accounts {
            node.add_account(account, PASSWORD);
        }
        node.node.start();
        node
    }

    fn configure(&self, more: &str) {
        let ReloadNode { port, http, .. } = self;
        self.node.configure(&format!(
            "data_dir = 'data'\n{more}\n[[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\ntls = 'off'\n\
             allow_plain_without_tls = true\n[[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n"
        ));
    }

    fn reload(&self) -> String {
        self.run_ok(&["reload"])
    }

    fn send_sighup(&self) {
        signal(self.pid(), "HUP");
    }

    /// The value of a metric, read over a connection of its own.
    fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).expect("the node's port");
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("a request");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("the metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
    }
}

impl Deref for ReloadNode {
    type Target = throng_e2e::NodeProcess;
    fn deref(&self) -> &throng_e2e::NodeProcess {
        &self.node
    }
}

fn open(node: &ReloadNode, domain: &str) -> TextClient {
    TextClient::connect(node.port, domain)
}

fn login(node: &ReloadNode, address: &str) -> TextClient {
    TextClient::login_plain(node.port, address, PASSWORD).expect("a login")
}

/// Whether the node answers a request for its time.
fn answers_time_request(client: &mut TextClient, domain: &str) -> bool {
    client.send(&format!("<iq type='get' id='t' to='{domain}'><time xmlns='urn:xmpp:time'/></iq>"));
    let answer = client.read_to("</iq>");
    assert!(answer.contains("<utc>") || answer.contains("<service-unavailable"), "{answer}");
    answer.contains("<utc>")
}

#[test]
fn a_reload_applies_to_live_sessions_and_reports_settings_that_need_a_restart() {
    let both = "hosts = ['a.test', 'b.test']\n";
    let node = ReloadNode::start("reload", both, &["romeo@a.test", "juliet@b.test"]);
    let mut romeo = login(&node, "romeo@a.test");
    let mut juliet = login(&node, "juliet@b.test");
    assert!(answers_time_request(&mut romeo, "a.test") && answers_time_request(&mut juliet, "b.test"));

    // A module is disabled on one domain.
    node.configure(&format!("{both}[host.'b.test'.modules]\nentity_time = false\n"));
    assert_eq!(node.reload(), "applied: modules of b.test: entity_time\n");
    assert!(answers_time_request(&mut romeo, "a.test") && !answers_time_request(&mut juliet, "b.test"));

    // One domain is removed and another is added; one change requires a restart.
    node.configure(
        "hosts = ['a.test', 'c.test']\nadmins = ['romeo@a.test']\n[storage]\npool_size = 5\n\
         [limits]\nidle_ping_seconds = 300\n[log]\nlevel = 'debug'\n",
    );
    let report = node.reload();
    for line in [
        "applied: log level debug",
        "applied: limits: idle_ping_seconds",
        "applied: administrators romeo@a.test",
        "applied: domain c.test was added",
        "applied: domain b.test was removed",
        "applied: 1 sessions of removed domains were ended",
        "requires a restart: [storage] pool_size",
    ] {
        assert!(report.lines().any(|l| l == line), "no \"{line}\" in:\n{report}");
    }
    assert!(juliet.read_to("</stream:stream>").contains("<host-gone"));
    assert!(answers_time_request(&mut romeo, "a.test"), "sessions of other domains stay");
    node.add_account("paris@c.test", PASSWORD);
    assert!(answers_time_request(&mut login(&node, "paris@c.test"), "c.test"));
    let mut removed = open(&node, "b.test");
    assert!(removed.read_to("</stream:stream>").contains("<host-unknown"));

    // A second reload has nothing to apply, and the restart is still due.
    assert_eq!(node.reload(), "nothing to apply\nrequires a restart: [storage] pool_size\n");
}

#[test]
fn an_invalid_file_changes_nothing() {
    let node = ReloadNode::start("wrong", "hosts = ['a.test']\n", &["romeo@a.test"]);
    let mut romeo = login(&node, "romeo@a.test");
    node.configure(
        "hosts = ['a.test']\nadmin = 3\n[log]\nlevel = 'debug'\n[modules]\nentity_time = false\n[limits]\nidle = 5\n",
    );
    let output = node.run(&["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let text = describe_output(&output);
    for part in ["nothing was changed", "unknown key \"admin\"", "unknown key \"idle\" in [limits]"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(answers_time_request(&mut romeo, "a.test"));
    // Invalid TOML.
    fs::write(node.folder.join("throng.toml"), "data_dir = 'data'\nhosts = [").expect("a file");
    let output = node.run(&["reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(describe_output(&output).contains("not valid TOML"), "{}", describe_output(&output));
    assert!(answers_time_request(&mut romeo, "a.test"));
    // SIGHUP reports the same in the log.
    node.send_sighup();
    node.wait_for_log("not valid TOML");
}

#[test]
fn sighup_changes_the_login_policy_of_new_clients_only() {
    let node = ReloadNode::start("hup", "hosts = ['a.test', 'b.test']\n", &["romeo@a.test"]);
    let mut romeo = login(&node, "romeo@a.test");
    let offers =
        |domain: &str| open(&node, domain).read_to("</stream:features>").contains("<mechanism>PLAIN<");
    assert!(offers("a.test") && offers("b.test"));
    node.configure("hosts = ['a.test', 'b.test']\n[host.'a.test'.auth]\nmechanisms = ['SCRAM-SHA-1']\n");
    node.send_sighup();
    node.wait_for_log("authentication of a.test");
    assert!(!offers("a.test") && offers("b.test"));
    assert!(answers_time_request(&mut romeo, "a.test"));
}

#[test]
fn clients_above_the_accept_rate_wait_and_connected_ones_are_not_disturbed() {
    const HOST: &str = "hosts = ['a.test']\n";
    let node = ReloadNode::start("accept-rate", HOST, &["romeo@a.test"]);
    let mut romeo = login(&node, "romeo@a.test");
    node.configure(&format!("{HOST}[limits]\naccepted_connections_per_second = 1\n"));
    assert_eq!(node.reload(), "applied: limits: accepted_connections_per_second\n");
    let mut clients: Vec<_> = (0..3).map(|_| open(&node, "a.test")).collect();
    for client in &mut clients {
        assert!(answers_time_request(&mut romeo, "a.test"));
        client.read_to("</stream:features>");
    }
    assert!(node.metric("throng_connections_delayed_total{listener=\"xmpp\"}") >= 1.0);
    // Each request of the metrics opens a connection, so the rate delays some of them as well.
    wait("a delayed HTTP connection", || {
        (node.metric("throng_connections_delayed_total{listener=\"http\"}") >= 1.0).then_some(())
    });
    assert_eq!(node.metric("throng_connections_refused_total{listener=\"xmpp\",reason=\"rate\"}"), 0.0);
    // Without the option the default rate applies, which exempts loopback.
    node.configure(HOST);
    node.reload();
    for _ in 0..20 {
        clients.push(open(&node, "a.test"));
    }
    clients.iter_mut().skip(3).for_each(|client| drop(client.read_to("</stream:features>")));
    assert!(answers_time_request(&mut romeo, "a.test"));
}

#[test]
fn no_message_is_lost_or_duplicated_during_reloads() {
    const MESSAGES: u32 = 400;
    let node = ReloadNode::start("traffic", "hosts = ['a.test']\n", &["romeo@a.test", "juliet@a.test"]);
    let mut romeo = login(&node, "romeo@a.test");
    let mut juliet = login(&node, "juliet@a.test");
    let sender = std::thread::spawn(move || {
        for n in 0..MESSAGES {
            // Juliet is unavailable while some of them are sent.
            romeo.send(&format!(
                "<message to='juliet@a.test' type='chat' id='m{n}'><body>n{n};</body></message>"
            ));
            if n % 20 == 0 {
                answers_time_request(&mut romeo, "a.test");
            }
        }
        answers_time_request(&mut romeo, "a.test");
        romeo
    });
    for round in 0..12 {
        let limit = 5000 + round;
        node.configure(&format!(
            "hosts = ['a.test']\n[modules.offline]\nmax_messages = {limit}\n[limits]\nidle_ping_seconds = {}\n",
            200 + round
        ));
        node.reload();
        match round {
            3 => juliet.send("<presence/>"),
            6 => juliet.send("<presence type='unavailable'/>"),
            8 => juliet.send("<presence/>"),
            _ => {}
        }
    }
    let mut romeo = sender.join().expect("the sender");
    let mut received = Vec::new();
    while received.len() < MESSAGES as usize {
        let text = juliet.read_to(";</body>");
        let number = text.rsplit_once("<body>n").expect("a number").1;
        received.push(number.parse::<u32>().expect("a number"));
    }
    assert_eq!(received, (0..MESSAGES).collect::<Vec<_>>());
    assert!(
        answers_time_request(&mut juliet, "a.test") && !juliet.input.contains("<body>"),
        "{}",
        juliet.input
    );
    assert!(answers_time_request(&mut romeo, "a.test") && !romeo.input.contains("<error"), "{}", romeo.input);
}

#[test]
fn status_and_top_show_the_traffic() {
    let node = ReloadNode::start("top", "hosts = ['a.test']\n", &["romeo@a.test"]);
    let mut romeo = login(&node, "romeo@a.test");
    romeo.send("<presence/>");
    assert!(answers_time_request(&mut romeo, "a.test"));
    let screen = node.run_ok(&["top", "--once"]);
    assert!(screen.lines().count() <= 24 && screen.lines().all(|l| l.chars().count() <= 80), "{screen}");
    for part in ["users 1  sessions 1", "streams c2s 1", "messages in", "lag ", "q quits"] {
        assert!(screen.contains(part), "no {part} in:\n{screen}");
    }
    let status: serde_json::Value = serde_json::from_str(&node.run_ok(&["status", "--json"])).expect("JSON");
    assert_eq!(status["logins_by_mechanism"]["PLAIN"], 1);
    assert_eq!(status["streams"]["c2s"], 1);
    assert!(status["cpu_seconds"].as_f64().expect("a number") > 0.0);
    let lines = node.run_ok(&["status"]);
    assert!(lines.contains("accounts online") && lines.contains("connections refused rate"), "{lines}");
    let suites = node.run_ok(&["check", "--compliance"]);
    assert!(suites.contains("Core, server: ") && suites.contains("module disco"), "{suites}");
    assert!(suites.contains("a [[listen]] has tls = \"off\""), "{suites}");
}
