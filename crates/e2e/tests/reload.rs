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

use throng_e2e::{TIMEOUT, describe_output, ports, signal};

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
}

impl Deref for ReloadNode {
    type Target = throng_e2e::NodeProcess;
    fn deref(&self) -> &throng_e2e::NodeProcess {
        &self.node
    }
}

/// A client: a socket and unprocessed input.
struct SocketClient {
    socket: TcpStream,
    received: String,
}

impl SocketClient {
    /// Opens a stream whose features are still unread.
    fn open(node: &ReloadNode, domain: &str) -> SocketClient {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, node.port)).expect("a connection");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut client = SocketClient { socket, received: String::new() };
        client.header(domain);
        client
    }

    fn header(&mut self, domain: &str) {
        self.send(&format!(
            "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='{domain}' \
             version='1.0'>"
        ));
    }

    fn login(node: &ReloadNode, jid: &str) -> SocketClient {
        let (user, domain) = jid.split_once('@').expect("an address");
        let mut client = SocketClient::open(node, domain);
        client.until("</stream:features>");
        let plain = base64(format!("\0{user}\0{PASSWORD}").as_bytes());
        client.send(&format!(
            "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>"
        ));
        client.until("<success");
        client.header(domain);
        client.until("</stream:features>");
        client.send("<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
        client.until("</iq>");
        client
    }

    fn send(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).expect("the node reads");
    }

    /// Reads up to and including `what`; panics at the end of the stream.
    fn until(&mut self, what: &str) -> String {
        loop {
            if let Some(at) = self.received.find(what) {
                let rest = self.received.split_off(at + what.len());
                return std::mem::replace(&mut self.received, rest);
            }
            let mut buffer = [0; 4096];
            let count = self.socket.read(&mut buffer).unwrap_or(0);
            assert!(count > 0, "no {what} in {}", self.received);
            self.received.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }

    /// Whether the node answers a request for its time.
    fn asks_time(&mut self, domain: &str) -> bool {
        self.send(&format!("<iq type='get' id='t' to='{domain}'><time xmlns='urn:xmpp:time'/></iq>"));
        let answer = self.until("</iq>");
        assert!(answer.contains("<utc>") || answer.contains("<service-unavailable"), "{answer}");
        answer.contains("<utc>")
    }
}

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().fold(0_u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sign = SIGNS[(n >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= chunk.len() { char::from(sign) } else { '=' });
        }
    }
    out
}

#[test]
fn a_reload_applies_to_live_sessions_and_reports_settings_that_need_a_restart() {
    let both = "hosts = ['a.test', 'b.test']\n";
    let node = ReloadNode::start("reload", both, &["romeo@a.test", "juliet@b.test"]);
    let mut romeo = SocketClient::login(&node, "romeo@a.test");
    let mut juliet = SocketClient::login(&node, "juliet@b.test");
    assert!(romeo.asks_time("a.test") && juliet.asks_time("b.test"));

    // One domain without a module.
    node.configure(&format!("{both}[host.'b.test'.modules]\nentity_time = false\n"));
    assert_eq!(node.reload(), "applied: modules of b.test: entity_time\n");
    assert!(romeo.asks_time("a.test") && !juliet.asks_time("b.test"));

    // One domain is removed, another added; one change requires a restart.
    node.configure(
        "hosts = ['a.test', 'c.test']\nadmins = ['romeo@a.test']\n[storage]\npool_size = 5\n\
         [limits]\nidle_ping_seconds = 300\n[log]\nlevel = 'debug'\n",
    );
    let said = node.reload();
    for line in [
        "applied: log level debug",
        "applied: limits: idle_ping_seconds",
        "applied: administrators romeo@a.test",
        "applied: domain c.test was added",
        "applied: domain b.test was removed",
        "applied: 1 sessions of removed domains were ended",
        "requires a restart: [storage] pool_size",
    ] {
        assert!(said.lines().any(|l| l == line), "no \"{line}\" in:\n{said}");
    }
    assert!(juliet.until("</stream:stream>").contains("<host-gone"));
    assert!(romeo.asks_time("a.test"), "others stay");
    node.add_account("paris@c.test", PASSWORD);
    assert!(SocketClient::login(&node, "paris@c.test").asks_time("c.test"));
    let mut late = SocketClient::open(&node, "b.test");
    assert!(late.until("</stream:stream>").contains("<host-unknown"));

    // A second reload has nothing to apply, and the restart is still due.
    assert_eq!(node.reload(), "nothing to apply\nrequires a restart: [storage] pool_size\n");
}

#[test]
fn an_invalid_file_changes_nothing() {
    let node = ReloadNode::start("wrong", "hosts = ['a.test']\n", &["romeo@a.test"]);
    let mut romeo = SocketClient::login(&node, "romeo@a.test");
    node.configure(
        "hosts = ['a.test']\nadmin = 3\n[log]\nlevel = 'debug'\n[modules]\nentity_time = false\n[limits]\nidle = 5\n",
    );
    let output = node.run(&["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let text = describe_output(&output);
    for part in ["nothing was changed", "unknown key \"admin\"", "unknown key \"idle\" in [limits]"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(romeo.asks_time("a.test"));
    // Invalid TOML.
    fs::write(node.folder.join("throng.toml"), "data_dir = 'data'\nhosts = [").expect("a file");
    let output = node.run(&["reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(describe_output(&output).contains("not valid TOML"), "{}", describe_output(&output));
    assert!(romeo.asks_time("a.test"));
    // SIGHUP reports the same in the log.
    node.send_sighup();
    node.wait_for_log("not valid TOML");
}

#[test]
fn sighup_changes_the_login_policy_of_new_clients_only() {
    let node = ReloadNode::start("hup", "hosts = ['a.test', 'b.test']\n", &["romeo@a.test"]);
    let mut romeo = SocketClient::login(&node, "romeo@a.test");
    let offers = |domain: &str| {
        SocketClient::open(&node, domain).until("</stream:features>").contains("<mechanism>PLAIN<")
    };
    assert!(offers("a.test") && offers("b.test"));
    node.configure("hosts = ['a.test', 'b.test']\n[host.'a.test'.auth]\nmechanisms = ['SCRAM-SHA-1']\n");
    node.send_sighup();
    node.wait_for_log("authentication of a.test");
    assert!(!offers("a.test") && offers("b.test"));
    assert!(romeo.asks_time("a.test"));
}

#[test]
fn no_message_is_lost_or_duplicated_during_reloads() {
    const MESSAGES: u32 = 400;
    let node = ReloadNode::start("traffic", "hosts = ['a.test']\n", &["romeo@a.test", "juliet@a.test"]);
    let mut romeo = SocketClient::login(&node, "romeo@a.test");
    let mut juliet = SocketClient::login(&node, "juliet@a.test");
    let sender = std::thread::spawn(move || {
        for n in 0..MESSAGES {
            // Half of them while juliet is disconnected.
            romeo.send(&format!(
                "<message to='juliet@a.test' type='chat' id='m{n}'><body>n{n};</body></message>"
            ));
            if n % 20 == 0 {
                romeo.asks_time("a.test");
            }
        }
        romeo.asks_time("a.test");
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
    let mut got = Vec::new();
    while got.len() < MESSAGES as usize {
        let text = juliet.until(";</body>");
        let number = text.rsplit_once("<body>n").expect("a number").1.trim_end_matches(";</body>");
        got.push(number.parse::<u32>().expect("a number"));
    }
    assert_eq!(got, (0..MESSAGES).collect::<Vec<_>>());
    assert!(juliet.asks_time("a.test") && !juliet.received.contains("<body>"), "{}", juliet.received);
    assert!(romeo.asks_time("a.test") && !romeo.received.contains("<error"), "{}", romeo.received);
}

#[test]
fn status_and_top_show_the_traffic() {
    let node = ReloadNode::start("top", "hosts = ['a.test']\n", &["romeo@a.test"]);
    let mut romeo = SocketClient::login(&node, "romeo@a.test");
    romeo.send("<presence/>");
    assert!(romeo.asks_time("a.test"));
    let picture = node.run_ok(&["top", "--once"]);
    assert!(picture.lines().count() <= 24 && picture.lines().all(|l| l.chars().count() <= 80), "{picture}");
    for part in ["users 1  sessions 1", "streams c2s 1", "messages in", "lag ", "q quits"] {
        assert!(picture.contains(part), "no {part} in:\n{picture}");
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
