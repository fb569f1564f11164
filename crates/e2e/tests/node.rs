//! Tests of the guarantees to operators: accounts, checks, HTTP, certificates, draining, and no loss on `kill -9`.
//!
//! Each test starts its own program in its own directory; clients are the connections of `testkit::scenario`. One test
//! counts round trips to SQLite and therefore assembles a node itself.
//!
//! Not implemented: real client libraries (`clients/`), and clusters.
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
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use base::Clock as _;
use store::{BulkItem, BulkRoster, CreateOutcome, NewAccount, Subscription};
use store_sql::SqlStores;
use testkit::scenario::{RemoteServer, Scenario, ScenarioTarget, parse, run};
use throng_e2e::{KillOnDrop, TIMEOUT, TempFolder, describe_output, poll, ports, signal};

const DOMAIN: &str = "chat.test";
const PASSWORD: &str = "correct horse";

/// A node with its listeners.
struct ScenarioNode {
    node: throng_e2e::NodeProcess,
    port: u16,
    tls: u16,
    http: u16,
}

impl ScenarioNode {
    /// A node that has not been started; `more` is appended to its configuration.
    fn new(name: &str, more: &str) -> ScenarioNode {
        let [port, tls, http] = ports::free();
        let node = ScenarioNode { node: throng_e2e::NodeProcess::new(name), port, tls, http };
        node.configure(more);
        node
    }

    fn configure(&self, more: &str) {
        self.configure_with("off", more);
    }

    /// Configures STARTTLS on the client port as `off`, `optional` or `required`.
    fn configure_with(&self, starttls: &str, more: &str) {
        let text = format!(
            "hosts = ['{DOMAIN}', 'other.test']\ndata_dir = 'data'\n{}\n{more}",
            ["c2s", "c2s-tls", "http"]
                .iter()
                .zip([self.port, self.tls, self.http])
                .map(|(kind, port)| {
                    let tls = if *kind == "c2s" { format!("tls = '{starttls}'\n") } else { String::new() };
                    format!("[[listen]]\nkind = '{kind}'\naddress = '127.0.0.1:{port}'\n{tls}")
                })
                .collect::<String>()
        );
        self.node.configure(&text);
    }

    /// Runs `throng account …`, which must succeed, and returns its output. Adding accounts may create the database.
    fn account(&self, words: &[&str], input: &str) -> String {
        let create: &[&str] =
            if matches!(words.first(), Some(&"add" | &"bulk")) { &["--create"] } else { &[] };
        self.run_ok_with(&[&["account"], words, create].concat(), input)
    }

    /// Runs `throng command …`, which must succeed, and returns its output.
    fn command(&self, words: &[&str], input: &str) -> String {
        self.run_ok_with(&[&["command"], words].concat(), input)
    }

    fn start(&mut self) {
        self.node.start();
        let ready = self.get("/readyz");
        let good = ready.as_ref().is_some_and(|answer| answer.starts_with("HTTP/1.1 200"));
        assert!(good, "{ready:?}: {}", self.log());
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Value of a metric; labels are part of its name.
    fn status_value(&self, name: &str) -> Option<u64> {
        let text = self.get("/metrics")?;
        text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<f64>().ok()).map(|v| v as u64)
    }

    fn target(&self) -> ScenarioTarget {
        ScenarioTarget::Remote(RemoteServer {
            address: format!("127.0.0.1:{}", self.port),
            domain: DOMAIN.into(),
            password: PASSWORD.into(),
            own_users: false,
        })
    }

    /// Runs a scenario against this node, preceded by `title:`.
    fn run_scenario(&self, text: &str) {
        if let Err(error) = run_scenario(&parse_scenario(text), &self.target()) {
            panic!("{error}\n{text}\n{}", self.log());
        }
    }
}

impl Deref for ScenarioNode {
    type Target = throng_e2e::NodeProcess;
    fn deref(&self) -> &throng_e2e::NodeProcess {
        &self.node
    }
}

impl DerefMut for ScenarioNode {
    fn deref_mut(&mut self) -> &mut throng_e2e::NodeProcess {
        &mut self.node
    }
}

fn parse_scenario(text: &str) -> Scenario {
    parse("node", &format!("title: a node\nignores: urn:xmpp:sid:0 urn:xmpp:delay\n{text}"))
        .expect("a scenario")
}

fn run_scenario(
    scenario: &Scenario,
    target: &ScenarioTarget,
) -> Result<(), testkit::scenario::ScenarioError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(scenario, target))
}

#[test]
fn acknowledged_messages_survive_kill_9_and_arrive_once() {
    let mut node = ScenarioNode::new("kill", "");
    for user in ["romeo", "juliet"] {
        node.account(&["add", &format!("{user}@{DOMAIN}")], PASSWORD);
    }
    node.start();
    // The ping is answered after the message was processed, because order is preserved.
    node.run_scenario(
        "client romeo is romeo/orchard\nclient juliet is juliet/balcony\nromeo connects\nromeo sends:\n \
         <message to='{juliet}' type='chat' id='1'><body>Remember</body></message>\n \
         <iq to='{server}' type='get' id='2'><ping xmlns='urn:xmpp:ping'/></iq>\nromeo receives:\n \
         <iq from='{server}' to='{romeo.full}' type='result' id='2'/>\n",
    );
    node.kill();
    node.start();
    let read = "client juliet is juliet/balcony\njuliet connects\njuliet sends:\n <presence/>\njuliet receives:\n \
                <presence from='{juliet.full}' to='{juliet}'/>\n";
    let message = " <message from='romeo@chat.test/orchard' to='{juliet}' type='chat' id='1'><body>Remember</body></message>\n";
    node.run_scenario(&format!("{read}{message}juliet receives nothing\njuliet disconnects\n"));
    node.run_scenario(&format!("{read}juliet receives nothing\n"));
    node.stop();
}

#[test]
fn sigterm_ends_two_hundred_streams_and_exits_with_0() {
    let mut node = ScenarioNode::new("drain", "");
    node.account(&["bulk", "--prefix", "u", "--count", "200", "--password", PASSWORD], "");
    node.start();
    let lines = |form: &str| (0..200).map(|n| form.replace('#', &n.to_string())).collect::<String>();
    let text = lines("client c# is u#/x\n")
        + &lines("c# connects\n")
        + &lines("c# is disconnected by system-shutdown\n");
    let (scenario, target) = (parse_scenario(&text), node.target());
    let clients = std::thread::spawn(move || run_scenario(&scenario, &target));
    let all = poll(TIMEOUT, || (node.status_value("throng_sessions ") == Some(200)).then_some(()));
    assert!(all.is_some() || clients.is_finished(), "{}", node.log());
    node.stop_in_order();
    clients.join().expect("the clients").expect("system-shutdown for each");
}

#[test]
fn a_drain_redirects_clients_at_a_rate_and_takes_no_new_ones() {
    const RATE: usize = 10;
    const CLIENTS: usize = 3 * RATE;
    let mut node = ScenarioNode::new("redirect", "");
    node.account(&["bulk", "--prefix", "u", "--count", &CLIENTS.to_string(), "--password", PASSWORD], "");
    node.start();
    let lines = |form: &str| (0..CLIENTS).map(|n| form.replace('#', &n.to_string())).collect::<String>();
    let text = lines("client c# is u#/x\n")
        + &lines("c# connects\n")
        + &lines("c# is disconnected by see-other-host\n");
    let (scenario, target) = (parse_scenario(&text), node.target());
    let clients = std::thread::spawn(move || run_scenario(&scenario, &target));
    let all = poll(TIMEOUT, || (node.status_value("throng_sessions ") == Some(CLIENTS as u64)).then_some(()));
    assert!(all.is_some() || clients.is_finished(), "{}", node.log());
    let mut unauthenticated = TcpStream::connect((Ipv4Addr::LOCALHOST, node.port)).expect("a connection");
    unauthenticated.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    write!(unauthenticated, "<stream:stream to='{DOMAIN}' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>")
        .expect("a stream header");

    let clock = base::SystemClock::new();
    let begun = clock.now();
    let rate = RATE.to_string();
    let mut command = node.program(&["drain", "--config", "throng.toml", "--rate", &rate]);
    command.args(["--see-other-host", "other.test:5299"]);
    let mut command = KillOnDrop(command.stdout(Stdio::piped()).spawn().expect("throng drain starts"));
    let refused =
        poll(TIMEOUT, || TcpStream::connect((Ipv4Addr::LOCALHOST, node.port)).is_err().then_some(()));
    assert!(refused.is_some(), "new connections are refused");
    // As long as the node has clients, it says that it is not ready.
    let answer = node.get("/readyz").expect("pages are served meanwhile");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    clients.join().expect("the clients").expect("see-other-host for each");
    assert!(clock.now().since(begun) >= 2_500, "{CLIENTS} clients and one stream more at {RATE} a second");
    let mut said = String::new();
    unauthenticated.read_to_string(&mut said).expect("the end of the stream");
    assert!(said.contains("<system-shutdown") && !said.contains("see-other-host"), "{said}");
    assert!(node.wait_for_exit().success(), "{}", node.log());
    assert!(command.0.wait().expect("throng drain ends").success());
    let mut said = String::new();
    command.0.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(said.ends_with("the node has stopped\n"), "{said}");
}

#[test]
fn the_first_start_without_a_file_prints_a_password_once() {
    let node = ScenarioNode::new("first", "");
    let listen = format!("[{{kind='c2s', address='127.0.0.1:{}'}}]", node.port);
    let start = || {
        let mut command = node.program(&["serve"]);
        command.env("THRONG__LISTEN", &listen).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = KillOnDrop(command.spawn().expect("throng starts"));
        let mut said = String::new();
        for line in BufReader::new(process.0.stdout.take().expect("piped")).lines() {
            let line = line.expect("text");
            said += &format!("{line}\n");
            if line.starts_with("Stop with") {
                break;
            }
        }
        (process, said)
    };
    let stop = |mut process: KillOnDrop| {
        signal(process.0.id(), "TERM");
        assert!(process.wait_for_exit("the node").success());
    };
    let (process, said) = start();
    let password = said.split("password ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let password = password.unwrap_or_else(|| panic!("no password: {said}")).to_owned();
    let target = ScenarioTarget::Remote(RemoteServer {
        address: format!("127.0.0.1:{}", node.port),
        domain: "localhost".into(),
        password,
        own_users: false,
    });
    run_scenario(&parse_scenario("client admin is admin/x\nadmin connects\n"), &target)
        .expect("a login over STARTTLS");
    stop(process);
    let (process, said) = start();
    assert!(!said.contains("password"), "{said}");
    run_scenario(&parse_scenario("client admin is admin/x\nadmin connects\n"), &target)
        .expect("the same login");
    stop(process);
}

#[test]
fn check_lists_all_errors_and_wrong_usage_exits_with_2() {
    let node = ScenarioNode::new("check", "");
    let check = |node: &ScenarioNode| node.run(&["check"]);
    let good = check(&node);
    assert!(good.status.success(), "{}", describe_output(&good));
    // All errors in the file are reported at once; then those of its environment.
    let assert_output = |more: &str, parts: &[&str]| {
        node.configure(more);
        let bad = check(&node);
        let text = describe_output(&bad);
        assert_eq!(bad.status.code(), Some(1), "{text}");
        for part in parts {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    };
    assert_output(
        "[modules]\nofline = true\n[limits]\nstanza_byte = 100000\n",
        &["2 errors found", "did you mean \"offline\"?", "did you mean \"stanza_bytes\"?"],
    );
    let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, node.port)).expect("the port");
    let port = node.port.to_string();
    assert_output(
        "[[tls.certificates]]\ncertificate = 'none.pem'\nkey = 'none.pem'\n",
        &["2 errors", "none.pem", &port],
    );
    node.configure("[limits]\nstanza_byte = 100000\n");
    let bad = check(&node);
    assert!(
        bad.status.code() == Some(1) && describe_output(&bad).contains("did you mean \"stanza_bytes\"?"),
        "{}",
        describe_output(&bad)
    );
    for usage in [&["serve", "--nonsense"][..], &["account"], &["account", "add"], &["dance"], &[]] {
        let wrong = node.program(usage).output().expect("throng starts");
        assert_eq!(wrong.status.code(), Some(2), "{usage:?}: {}", describe_output(&wrong));
    }
}

#[test]
fn account_commands_work_on_a_stopped_and_a_running_node() {
    let mut node = ScenarioNode::new("accounts", "");
    for running in [false, true] {
        if running {
            node.start();
        }
        let own = if running { "juliet" } else { "romeo" };
        let jid = format!("{own}@{DOMAIN}");
        node.account(&["add", &jid], "first\n");
        let twice = node.run_with(&["account", "add", &jid], "first");
        assert!(
            twice.status.code() == Some(1) && describe_output(&twice).contains("already exists"),
            "{}",
            describe_output(&twice)
        );
        node.account(&["passwd", &jid, "--password", PASSWORD], "");
        assert!(node.account(&["show", &jid], "").contains(&jid));
        let prefix = format!("{own}-");
        let bulk = [
            "bulk",
            "--prefix",
            &prefix,
            "--from",
            "5",
            "--count",
            "10",
            "--roster",
            "ring:2",
            "--password",
            "x",
        ];
        assert!(node.account(&bulk, "").contains("10 accounts added"));
        assert!(node.account(&bulk, "").contains("0 accounts added, 10 already existed"));
        assert!(node.account(&["show", &format!("{own}-14@{DOMAIN}")], "").contains("contacts  2"));
        let list = node.account(&["list"], "");
        assert!(list.contains(&jid) && list.contains(&format!("{own}-5@{DOMAIN}")), "{list}");
        node.account(&["remove", &format!("{own}-14@{DOMAIN}")], "");
        let gone = node.run(&["account", "show", &format!("{own}-14@{DOMAIN}")]);
        assert_eq!(gone.status.code(), Some(1), "{}", describe_output(&gone));
    }
    node.run_scenario(
        "client romeo is romeo/x\nclient juliet is juliet/x\nromeo connects\njuliet connects\n",
    );
    node.run_scenario("client romeo is romeo/x with password first\nromeo is refused not-authorized\n");
}

#[test]
fn metrics_are_served_in_the_text_format_and_change() {
    let mut node = ScenarioNode::new("figures", "");
    node.account(&["add", &format!("romeo@{DOMAIN}")], PASSWORD);
    node.start();
    assert!(node.get("/healthz").expect("an answer").starts_with("HTTP/1.1 200"));
    assert!(node.get("/nowhere").expect("an answer").starts_with("HTTP/1.1 404"));
    assert_eq!(node.status_value("throng_sessions_opened_total "), Some(0));
    node.run_scenario("client romeo is romeo/x\nromeo connects\nromeo disconnects\n");
    assert_eq!(node.status_value("throng_sessions_opened_total "), Some(1));
    assert_eq!(node.status_value("throng_sessions_closed_total "), Some(1));
    let answer = node.get("/metrics").expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.to_ascii_lowercase().contains("content-type: application/openmetrics-text"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let word = comment.split(' ').next();
            assert!(matches!(word, Some("HELP" | "TYPE" | "UNIT" | "EOF")), "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let labels = series.trim_start_matches(name);
        assert!(series.len() > labels.len() && value.parse::<f64>().is_ok(), "{line}");
        assert!(labels.is_empty() || labels.starts_with('{') && labels.ends_with('}'), "{line}");
    }
}

/// Writes a new self-signed certificate and returns its DER form.
fn certify(folder: &Path, name: &str, domain: &str) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(vec![domain.to_owned()]).expect("a certificate");
    fs::write(folder.join(format!("{name}-key.pem")), made.signing_key.serialize_pem()).expect("a key");
    fs::write(folder.join(format!("{name}.pem")), made.cert.pem()).expect("a certificate");
    made.cert.der().to_vec()
}

/// Whether a new connection that names `domain` receives this certificate, and it is valid for the domain.
fn shows(node: &ScenarioNode, domain: &str, certificate: &[u8]) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.to_vec().into()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = domain.to_owned().try_into().expect("a domain");
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, node.tls)).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    while tls.is_handshaking() {
        if tls.complete_io(&mut stream).is_err() {
            return false;
        }
    }
    tls.peer_certificates().is_some_and(|shown| shown[0].as_ref() == certificate)
}

#[test]
fn certificates_are_chosen_by_domain_and_reloaded_when_replaced() {
    let mut node = ScenarioNode::new(
        "tls",
        "[[tls.certificates]]\ncertificate = 'one.pem'\nkey = 'one-key.pem'\n[[tls.certificates]]\ncertificate = 'two.pem'\nkey = 'two-key.pem'\n",
    );
    let one = certify(&node.folder, "one", DOMAIN);
    let two = certify(&node.folder, "two", "other.test");
    node.start();
    assert!(shows(&node, DOMAIN, &one) && shows(&node, "other.test", &two), "{}", node.log());
    assert!(!shows(&node, DOMAIN, &two));
    let new = certify(&node.folder, "one", DOMAIN);
    assert!(poll(TIMEOUT, || shows(&node, DOMAIN, &new).then_some(())).is_some(), "{}", node.log());
    assert!(!shows(&node, DOMAIN, &one) && shows(&node, "other.test", &two));
}

/// Tasks on the runtime of the test.
struct Tasks(tokio::runtime::Handle);

impl base::spawn::Spawner for Tasks {
    fn spawn(&self, _what: &'static str, task: base::spawn::BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        self.0.spawn_blocking(job);
    }
}

#[test]
fn a_login_with_roster_and_presence_is_two_round_trips_to_sqlite() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(round_trips());
}

async fn round_trips() {
    let folder = TempFolder::new("trips");
    let tasks = Tasks(tokio::runtime::Handle::current());
    let clock = Arc::new(base::clock::SystemClock::new());
    let url = format!("sqlite:{}", folder.join("throng.db").display());
    let database = SqlStores::open(&url, &store_sql::DatabaseOptions::default(), clock.clone(), &tasks)
        .await
        .expect("a database");
    let stores = database.stores();

    // Two accounts, one with 150 mutual contacts, one without.
    let credentials: Arc<[u8]> = sasl::Credentials::derive(testkit::server::PASSWORD, 64, b"salt")
        .expect("credentials")
        .encode()
        .into();
    let account = |name: String| NewAccount {
        jid: jid::Jid::parse(&format!("{name}@example.com")).expect("an address"),
        credentials: credentials.clone(),
    };
    let accounts = ["many", "none"].map(str::to_owned).into_iter().chain((0..150).map(|n| format!("u{n}")));
    let made = stores.accounts.create_bulk(accounts.map(account).collect()).await.expect("accounts");
    let ids: Vec<_> = made.into_iter().map(CreateOutcome::id).collect();
    let items = ids[2..].iter().map(|contact| BulkItem {
        contact: *contact,
        name: Some("Nurse".into()),
        groups: Vec::new(),
        subscription: Subscription::BOTH.with(Subscription::IN_ROSTER),
    });
    let roster = BulkRoster { owner: ids[0], items: items.collect() };
    stores.roster.put_bulk(vec![roster]).await.expect("a roster");

    let limits = throng_core::NodeLimits::default();
    let enabled = features::registry::enable(&std::collections::BTreeMap::new()).expect("the defaults");
    let host = feature_api::build_host("example.com", &enabled, &limits).expect("a host");
    let hasher = cluster::AddressHasher::new([1; 16]);
    let node = throng_core::Node::new(throng_core::NodeComponents {
        hosts: [("example.com".to_owned(), Arc::new(host))].into_iter().collect(),
        stores,
        cluster: Arc::new(cluster::SingleNode::new(cluster::NodeId::new("test").expect("a name"))),
        peers: Box::new(peers::PeerRouter::default()),
        account_views: Box::new(testkit::StoreBackedViews::new(hasher)),
        clock,
        spawner: Arc::new(tasks),
        metrics: throng_core::metrics::Metrics::new(&mut prometheus_client::registry::Registry::default()),
        limits,
        hasher,
        admins: vec![],
        passwords: throng_core::passwords::PlainPasswords::shared(),
        version: "test",
    });
    // The harness provides its port and clients; the service belongs to the test.
    let test_server = testkit::server::TestServer::new();
    let secret = base::Secret::new(*b"secret");
    let policy = testkit::server::TestServerConfig::default().policy;
    let service = streams::C2sContext::new(node.clone(), None, policy, &secret, "example.com".to_owned());

    // The first resource on a node looks up the message of the day.
    let mut warm = false;
    for (user, contacts) in [("none", 0), ("many", 150), ("none", 0)] {
        for mechanism in [sasl::Mechanism::ScramSha1, sasl::Mechanism::ScramSha256] {
            let (stream, pipe) = net::Stream::memory(test_server.port.clone(), testkit::server::PIPE_BYTES);
            let permit =
                test_server.connection_limiter.try_acquire(Ipv4Addr::LOCALHOST.into()).expect("room");
            tokio::runtime::Handle::current().spawn(streams::C2sConnection::new(
                stream,
                permit,
                service.clone(),
            ));
            let mut client = test_server.client_over(pipe);
            client.open().await;
            let before = database.round_trips();
            client.finish_login(mechanism, user, "x").await;
            client.send("<iq type='get' id='1'><query xmlns='jabber:iq:roster'/></iq><presence/>").await;
            let roster = client.element().await;
            assert_eq!(roster.all("item").len(), contacts, "{}", roster.0);
            let presence = client.element().await;
            assert_eq!(presence.name(), "presence");
            // All effects of the presence are complete when a later request is answered.
            assert!(client.sync().await.is_empty());
            let trips = database.round_trips() - before;
            assert_eq!(
                trips,
                if std::mem::replace(&mut warm, true) { 2 } else { 3 },
                "{user}, {mechanism:?}"
            );
            client.send("</stream:stream>").await;
            client.expect_end().await;
        }
    }
    database.close().await;
}

#[test]
fn commands_run_through_the_admin_socket() {
    let mut node = ScenarioNode::new("commands", "");
    let stopped = node.run(&["command", "--list"]);
    assert!(
        !stopped.status.success() && describe_output(&stopped).contains("no node is running"),
        "{}",
        describe_output(&stopped)
    );
    node.start();
    let list = node.command(&["--list"], "");
    for part in ["add-user", "user=", "secret", "shutdown"] {
        assert!(list.contains(part), "{part}: {list}");
    }
    let romeo = format!("romeo@{DOMAIN}");
    assert!(
        node.command(&["add-user", &format!("user={romeo}")], &format!("{PASSWORD}\n")).contains("was added")
    );
    assert_eq!(node.command(&["get-registered-users-list"], "").trim(), romeo);
    let number = node.command(&["get-registered-users-num", "--json"], "");
    assert_eq!(number.trim(), "{\"number\":1}");
    node.run_scenario("client romeo is romeo/orchard\nromeo connects");
    for (words, part) in [
        (&["add-usr"][..], "did you mean \"add-user\"?"),
        (&["add-user", "usr=x"], "its fields: user, password"),
        (&["add-user", "user"], "FIELD=VALUE"),
        (&["delete-user", "user=nobody@chat.test"], "there is no account"),
        (&["get-online-users-num", "--domain", "example.net"], "example.net is not served here"),
    ] {
        let output = node.run_with(&[&["command"], words].concat(), "secret-9\n");
        assert!(
            !output.status.success() && describe_output(&output).contains(part),
            "{words:?}: {}",
            describe_output(&output)
        );
        assert!(!describe_output(&output).contains("secret-9"), "{}", describe_output(&output));
    }
    let refused = "client romeo is romeo/orchard\nromeo is refused account-disabled";
    node.account(&["disable", &romeo], "");
    node.run_scenario(refused);
    node.account(&["enable", &romeo], "");
    node.run_scenario("client romeo is romeo/orchard\nromeo connects");

    // Administrators appointed by a command persist over a restart, which keeps the process id.
    node.command(&["edit-admin", &format!("admin={romeo}")], "");
    node.command(&["restart", "delay=1"], "");
    let again = || node.log().matches("serves ").count() >= 2 && node.get("/readyz").is_some();
    assert!(poll(TIMEOUT, || again().then_some(())).is_some(), "not again: {}", node.log());
    assert!(
        node.log().contains(
            "the administrators set with the command edit-admin replace those of the configuration"
        ),
        "{}",
        node.log()
    );
    let log = node.log();
    for part in ["command who=\"operator\"", "add-user", "account disable", "edit-admin", "restart"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains(PASSWORD), "{log}");
    node.command(&["shutdown", "delay=1"], "");
    assert!(node.wait_for_exit().success(), "{}", node.log());
}

/// What scenarios verify over memory holds on a port too, with the program, SQLite and a real clock.
#[test]
fn scenarios_pass_over_tcp_sockets() {
    let node = ScenarioNode::new("scenarios", "");
    let address = format!("127.0.0.1:{}", node.port);
    run_all_scenarios(node, address, "");
}

/// The same over WebSocket: the handshake, frames and the real port, under TLS.
#[test]
fn scenarios_pass_over_websocket_sockets() {
    let node = ScenarioNode::new("websocket", "");
    let [https] = ports::free();
    let listener = format!("[[listen]]\nkind = 'https'\naddress = '127.0.0.1:{https}'\n");
    run_all_scenarios(node, format!("wss://127.0.0.1:{https}/ws"), &listener);
}

/// Without TLS, under the other path, with a lost connection and a resumed session.
#[test]
fn a_plain_websocket_is_served_where_tls_is_optional() {
    let mut node = ScenarioNode::new("ws", "");
    node.account(&["add", &format!("romeo@{DOMAIN}")], PASSWORD);
    node.start();
    let ScenarioTarget::Remote(host) = node.target() else { return };
    let target = ScenarioTarget::Remote(RemoteServer {
        address: format!("ws://127.0.0.1:{}/xmpp-websocket", node.http),
        ..host
    });
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/stream_resumption.scenario"));
    let resumption = parse("stream_resumption", &text.expect("the scenario's file")).expect("a scenario");
    for (_, local, password) in resumption.accounts(&target) {
        if local != "romeo" {
            node.account(&["add", &format!("{local}@{DOMAIN}")], &password);
        }
    }
    if let Err(error) = run_scenario(&resumption, &target) {
        panic!("{error}\n{}", node.log());
    }
}

/// Runs all scenarios against the node at this address.
fn run_all_scenarios(mut node: ScenarioNode, address: String, more: &str) {
    // Tokens and registration require TLS; the clients use STARTTLS if offered.
    let off = features::registry::ALL.iter().filter(|feature| !feature.default_on);
    let switches: String = off.map(|feature| format!("{} = true\n", feature.name)).collect();
    // Uploads have no address that clients reach on a node with loopback listeners.
    let http = format!("[http]\npublic_url = 'https://{DOMAIN}'\n");
    node.configure_with("optional", &format!("{more}{http}[modules]\n{switches}"));
    node.start();
    let ScenarioTarget::Remote(host) = node.target() else { return };
    let target = ScenarioTarget::Remote(RemoteServer { address, own_users: true, ..host });
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let mut acted = 0;
    for entry in fs::read_dir(folder).expect("the scenarios") {
        let path = entry.expect("a file").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let scenario = parse(&name, &fs::read_to_string(&path).expect("text")).expect("a scenario");
        if scenario.needs_time() {
            continue;
        }
        for (_, local, password) in scenario.accounts(&target) {
            node.account(&["add", &format!("{local}@{DOMAIN}")], &password);
        }
        if !scenario.administrators.is_empty() {
            let accounts = scenario.accounts(&target);
            let local = |user: &String| accounts.iter().find(|a| a.0 == *user).expect("an account").1.clone();
            let admins: Vec<String> = scenario
                .administrators
                .iter()
                .map(|user| format!("admin={}@{DOMAIN}", local(user)))
                .collect();
            let words: Vec<&str> = admins.iter().map(String::as_str).collect();
            node.command(&[&["edit-admin"], words.as_slice()].concat(), "");
        }
        if let Err(error) = run_scenario(&scenario, &target) {
            panic!("{error}\n{}", node.log());
        }
        acted += 1;
    }
    assert!(acted >= 19, "only {acted} scenarios");
}
