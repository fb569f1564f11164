//! Tests of a node's metrics with their consumers: a real Prometheus from Debian, promtool, and the API.
//!
//! The dashboard (`contrib/grafana`), the alert rules (`contrib/prometheus`) and `docs/metrics.md` name metrics; each
//! name is looked up in the output of a running node and in a Prometheus. After a change of metrics,
//! `THRONG_WRITE_DOCS=1 cargo test -p throng-e2e --test metrics` rewrites the table of the document.
//!
//! Not implemented: Grafana itself, which shows whatever the file says.
//!
//! # Pitfalls
//!
//! As for all tests here, run `cargo build -p throng-server` first. `clients/setup.sh` installs Prometheus; if it is
//! missing the tests fail and are not skipped.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use throng_e2e::{KillOnDrop, TIMEOUT, describe_output, poll, ports, signal, wait};

const DOMAIN: &str = "chat.test";
const PASSWORD: &str = "correct horse";

/// Root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn promtool(words: &[&str]) {
    let mut command = Command::new("promtool");
    command.args(words).current_dir(root().join("contrib/prometheus"));
    let output = command.output().expect("promtool; crates/e2e/clients/setup.sh installs it");
    assert!(output.status.success(), "promtool {}: {}", words.join(" "), describe_output(&output));
}

#[test]
fn promtool_accepts_the_configuration_and_the_alerts_fire_as_tested() {
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["check", "rules", "alerts.yml"]);
    promtool(&["test", "rules", "alerts_test.yml"]);
}

/// One request over HTTP/1.0, so that the response is not chunked: status, head and body.
fn ask(port: u16, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the port");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, head.to_owned(), body.to_owned())
}

fn json(port: u16, path: &str, headers: &str) -> Value {
    let (status, _, body) = ask(port, "GET", path, headers, "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"))
}

/// A node with twenty accounts, the first of which is the administrator.
struct MetricsNode {
    node: throng_e2e::NodeProcess,
    http: u16,
    clients: u16,
}

impl MetricsNode {
    fn start(name: &str) -> MetricsNode {
        let [clients, http, proxy] = ports::free();
        let mut node = throng_e2e::NodeProcess::new(name);
        node.configure(&format!(
            "hosts = ['{DOMAIN}']\nadmins = ['u0@{DOMAIN}']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\n\
             [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{clients}'\ntls = 'off'\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n\
             [[listen]]\nkind = 'socks5-proxy'\naddress = '127.0.0.1:{proxy}'\n[modules]\nproxy65 = true\nupload = true\n"
        ));
        node.run_ok(&[
            "account",
            "bulk",
            "--create",
            "--prefix",
            "u",
            "--count",
            "20",
            "--password",
            PASSWORD,
        ]);
        node.start();
        MetricsNode { node, http, clients }
    }

    /// Twenty users log in and exchange messages for three seconds; five more have no account.
    fn generate_traffic(&self) {
        let plan = "title = 'Some life'\n[accounts]\nprefix = 'u'\ncount = 25\n\
                    [options]\nhold = '3s'\ndrain = '1s'\nkeep_going = true\nfail_on = 'count(login_errors) > 5'\n\
                    [[phase]]\nrate = 50\nusers = 'connections'\n[[session]]\nsteps = ['login', 'roster', 'presence', \
                    { meanwhile = { do = [{ every = '500ms', message = { to = 'random' } }] } }]\n";
        fs::write(self.folder.join("life.toml"), plan).expect("a plan");
        let target = format!("127.0.0.1:{}", self.clients);
        let words = ["load", "life.toml", "-n", "25", "--workers", "1", "--quiet", "--plain", "--out", "out"];
        let mut load = self.program(&words);
        load.args(["--target", &target, "--domain", DOMAIN]).env("THRONG_LOAD_PASSWORD", PASSWORD);
        let output = load.output().expect("throng load");
        assert!(output.status.success(), "{}", describe_output(&output));
    }

    fn page(&self) -> String {
        let (status, head, page) = ask(self.http, "GET", "/metrics", "", "");
        assert_eq!(status, 200);
        assert!(
            head.to_lowercase().contains("content-type: application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        assert!(page.ends_with("# EOF\n"), "{page}");
        page
    }
}

impl Deref for MetricsNode {
    type Target = throng_e2e::NodeProcess;
    fn deref(&self) -> &throng_e2e::NodeProcess {
        &self.node
    }
}

/// One metric family of a page.
#[derive(Default)]
struct MetricFamily {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    samples: usize,
}

/// Families of a page, by name.
fn families(page: &str) -> BTreeMap<String, MetricFamily> {
    let mut all: BTreeMap<String, MetricFamily> = BTreeMap::new();
    let mut name = String::new();
    for line in page.lines() {
        if let Some((of, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            all.entry(of.to_owned()).or_default().help = help.to_owned();
        } else if let Some((of, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind.clone_into(&mut all.entry(of.to_owned()).or_default().kind);
            of.clone_into(&mut name);
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&name), "{line} stands under {name}");
            let family = all.get_mut(&name).expect("a type before its samples");
            family.samples += 1;
            let labels =
                line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map(|(labels, _)| labels);
            for label in labels.unwrap_or_default().split("\",") {
                let key = label.split('=').next().unwrap_or_default();
                if !key.is_empty() && key != "le" {
                    family.labels.insert(key.to_owned());
                }
            }
        }
    }
    all
}

const BEGIN: &str = "<!-- The table is written by the test crates/e2e/tests/metrics. -->\n";
const END: &str = "<!-- End of the table. -->\n";

fn table(families: &BTreeMap<String, MetricFamily>) -> String {
    let mut table = "\n| Name | Type | Labels | What |\n| --- | --- | --- | --- |\n".to_owned();
    for (name, family) in families {
        let total = if family.kind == "counter" { "_total" } else { "" };
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, help) = (&family.kind, family.help.trim_end_matches('.'));
        let _ = writeln!(table, "| `{name}{total}` | {kind} | {} | {help} |", labels.join(", "));
    }
    table + "\n"
}

#[test]
fn the_document_names_every_metric_as_the_node_prints_it() {
    let node = MetricsNode::start("metrics-doc");
    node.generate_traffic();
    let families = families(&node.page());
    for (name, family) in &families {
        assert!(!family.help.is_empty() && !family.kind.is_empty() && family.samples > 0, "{name}");
        assert!(name.starts_with("throng_") || name.starts_with("process_"), "{name}");
        assert!(!name.ends_with("_total"), "{name}: the ending belongs to the samples");
    }
    let renamed = renamed_metrics();
    assert!(renamed.len() > 30, "{renamed:?}");
    for (old, new) in &renamed {
        let known = |name: &str| {
            families.get(name.strip_suffix("_total").unwrap_or(name)).is_some_and(|family| {
                family.kind.as_str()
                    == if name.ends_with("_total") { "counter" } else { family.kind.as_str() }
            })
        };
        assert!(!known(old), "{old} is renamed to {new} and still printed");
        assert!(known(new), "{old} is renamed to {new}, which the node does not print");
    }
    let written = table(&families);
    let document = read("docs/metrics.md");
    let (before, rest) = document.split_once(BEGIN).expect("the beginning of the table");
    let (stands, after) = rest.split_once(END).expect("the end of the table");
    if std::env::var_os("THRONG_WRITE_DOCS").is_some() {
        let text = format!("{before}{BEGIN}{written}{END}{after}");
        fs::write(root().join("docs/metrics.md"), text).expect("docs/metrics.md");
    } else {
        assert_eq!(stands, written, "docs/metrics.md is not what the node prints: see the head of this test");
    }
}

#[test]
fn sessions_are_counted_by_transport_from_the_first_to_the_last() {
    let node = MetricsNode::start("metrics-web");
    let plan = "title = 'Ten of each'\n[accounts]\nprefix = 'u'\ncount = 20\n[options]\nhold = '10m'\ndrain = '1s'\n\
                [[phase]]\nrate = 50\nusers = 'connections'\n[[session]]\nsteps = ['login', 'presence', { think = '1h' }]\n";
    fs::write(node.folder.join("stay.toml"), plan).expect("a plan");
    let web = format!("127.0.0.1:{}", node.http);
    let count = |name: &str| {
        let page = node.page();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
    };
    for (transport, target) in [
        ("tcp", format!("127.0.0.1:{}", node.clients)),
        ("websocket", format!("ws://{web}/ws")),
        ("bosh", format!("http://{web}/bosh")),
    ] {
        let words =
            ["load", "stay.toml", "-n", "10", "--workers", "1", "--quiet", "--plain", "--out", transport];
        let mut load = node.program(&words);
        load.args(["--target", &target, "--domain", DOMAIN]).env("THRONG_LOAD_PASSWORD", PASSWORD);
        load.stdout(Stdio::null());
        let mut load = KillOnDrop(load.spawn().expect("throng load"));
        let gauge = |name: &str| format!("throng_sessions_connected{{transport=\"{name}\"}}");
        wait(transport, || (count(&gauge(transport)) == 10.0).then_some(()));
        for other in ["tcp", "tls", "websocket", "bosh"] {
            assert_eq!(count(&gauge(other)), if other == transport { 10.0 } else { 0.0 }, "{other}");
        }
        if transport == "bosh" {
            assert_eq!(count("throng_bosh_sessions"), 10.0);
            wait("each to hold a request", || (count("throng_bosh_held_requests") == 10.0).then_some(()));
        }
        signal(load.0.id(), "INT");
        assert!(load.wait_for_exit(transport).success());
        wait("all to be gone", || {
            (count(&gauge(transport)) == 0.0 && count("throng_sessions") == 0.0).then_some(())
        });
    }
    assert_eq!(count("throng_http_upgraded_total"), 10.0);
    assert_eq!(count("throng_bosh_sessions_created_total"), 10.0);
    assert_eq!(count("throng_bosh_sessions_terminated_total{reason=\"client\"}"), 10.0);
    assert_eq!(count("throng_bosh_held_requests"), 0.0);
}

/// Pairs of old and new names in `contrib/prometheus/rename-metrics.sed`.
fn renamed_metrics() -> Vec<(String, String)> {
    let script = read("contrib/prometheus/rename-metrics.sed");
    let lines = script.lines().filter(|line| !line.starts_with('#'));
    let metric =
        |text: &str| text.trim_start_matches("\\b").split(['(', '\\']).next().unwrap_or_default().to_owned();
    lines
        .map(|line| {
            let parts: Vec<&str> = line.split('/').collect();
            assert!(parts.len() == 4 && parts[0] == "s" && parts[3] == "g", "{line}");
            (metric(parts[1]), metric(parts[2]))
        })
        .collect()
}

#[test]
fn every_renamed_metric_is_in_the_upgrade_notes_and_no_document_uses_its_old_name() {
    let mut notes = String::new();
    for entry in fs::read_dir(root().join("UPGRADING")).expect("a folder") {
        notes += &fs::read_to_string(entry.expect("an entry").path()).expect("a note");
    }
    for (old, new) in renamed_metrics() {
        assert!(notes.contains(&format!("| `{old}` | `{new}` |")), "{old} is missing in UPGRADING");
        for file in [
            "contrib/grafana/throng.json",
            "contrib/prometheus/alerts.yml",
            "contrib/prometheus/alerts_test.yml",
            "docs/metrics.md",
            "docs/config.md",
            "docs/logins.md",
            "docs/load.md",
        ] {
            let text = read(file);
            let words = names(&text);
            let is_used =
                ["", "_bucket", "_count", "_sum"].iter().any(|end| words.contains(&format!("{old}{end}")));
            assert!(!is_used, "{file} uses {old}; its name is {new}");
        }
    }
}

/// Names of metrics in expressions.
fn names(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("throng_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

/// Collects the expressions of a dashboard at any depth.
fn expressions(value: &Value, into: &mut String) {
    match value {
        Value::Object(parts) => parts.iter().for_each(|(key, value)| match (key.as_str(), value) {
            ("expr" | "query", Value::String(text)) => {
                into.push_str(text);
                into.push('\n');
            }
            _ => expressions(value, into),
        }),
        Value::Array(list) => list.iter().for_each(|value| expressions(value, into)),
        _ => {}
    }
}

#[test]
fn prometheus_scrapes_every_metric_that_dashboard_and_alerts_query() {
    let node = MetricsNode::start("metrics-prom");
    let folder = node.folder.join("prometheus");
    fs::create_dir_all(&folder).expect("a folder");
    let config = read("contrib/prometheus/prometheus.yml");
    assert!(config.contains("localhost:5280") && config.contains("_interval: 15s"), "{config}");
    let config = config.replace("localhost:5280", &format!("127.0.0.1:{}", node.http)).replace("15s", "1s");
    fs::write(folder.join("prometheus.yml"), config).expect("a configuration");
    fs::write(folder.join("alerts.yml"), read("contrib/prometheus/alerts.yml")).expect("rules");
    let [port] = ports::free();
    let log = fs::File::create(folder.join("log")).expect("a log");
    let mut command = Command::new("prometheus");
    command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
    command.arg(format!("--web.listen-address=127.0.0.1:{port}")).current_dir(&folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let _prometheus =
        KillOnDrop(command.spawn().expect("prometheus; crates/e2e/clients/setup.sh installs it"));
    node.generate_traffic();
    let target = wait("the target to be read", || {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        drop(stream);
        let (status, _, body) = ask(port, "GET", "/api/v1/targets", "", "");
        let answer: Value = serde_json::from_str(&body).ok().filter(|_| status == 200)?;
        let target = answer["data"]["activeTargets"].get(0)?.clone();
        (target["health"] != "unknown").then_some(target)
    });
    assert_eq!((&target["health"], &target["lastError"]), (&"up".into(), &"".into()), "{target}");

    let mut drawn = String::new();
    expressions(&serde_json::from_str(&read("contrib/grafana/throng.json")).expect("JSON"), &mut drawn);
    let wanted: BTreeSet<String> =
        names(&drawn).into_iter().chain(names(&strip(&read("contrib/prometheus/alerts.yml")))).collect();
    assert!(wanted.len() > 60, "{wanted:?}");
    let missing = wait_for_names(port, &wanted);
    assert!(
        missing.is_empty(),
        "no node prints these, but the dashboard or an alert asks for them: {missing:?}"
    );

    // Every rule was evaluated without an error, and none fires on a healthy node.
    let rules = wait("the rules to be evaluated", || {
        let answer = json(port, "/api/v1/rules", "");
        let groups = answer["data"]["groups"].as_array().cloned().unwrap_or_default();
        let rules: Vec<Value> =
            groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect();
        (!rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown")).then_some(rules)
    });
    assert!(rules.len() >= 15, "{rules:?}");
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert_ne!(rule["state"], "firing", "{rule}");
    }
    // The values are those of the run.
    let value = |query: &str| {
        let answer = json(port, &format!("/api/v1/query?query={query}"), "");
        let value = answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned);
        value.and_then(|v| v.parse::<f64>().ok()).unwrap_or_default()
    };
    wait("all logins to be stored", || (value("sum(throng_logins_total)") >= 20.0).then_some(()));
    assert!(value("sum(throng_login_failures_total)") >= 5.0);
    assert!(value("throng_stanza_delivery_seconds_count%7Bclass%3D%22message%22%7D") >= 1.0);
    assert!(value("sum(throng_store_operation_seconds_count)") >= 20.0);
}

/// Removes annotations and comments, which are for people.
fn strip(rules: &str) -> String {
    let human = ["summary:", "description:", "#"];
    let lines = rules.lines().filter(|line| !human.iter().any(|word| line.trim_start().starts_with(word)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Names that Prometheus still lacks after some time.
fn wait_for_names(port: u16, wanted: &BTreeSet<String>) -> Vec<String> {
    let mut missing = Vec::new();
    let _ = poll(TIMEOUT, || {
        let answer = json(port, "/api/v1/label/__name__/values", "");
        let known: BTreeSet<String> = answer["data"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|n| n.as_str().map(str::to_owned))
            .collect();
        missing = wanted.difference(&known).cloned().collect();
        missing.is_empty().then_some(())
    });
    missing
}

#[test]
fn the_overview_follows_the_node_and_the_audit_log_records_commands() {
    let node = MetricsNode::start("metrics-api");
    for path in ["overview", "log", "nodes", "domains"] {
        let (status, _, body) = ask(node.http, "GET", &format!("/api/v1/{path}"), "", "");
        assert_eq!(status, 401, "{path}: {body}");
    }
    let login = serde_json::json!({ "jid": format!("u0@{DOMAIN}"), "password": PASSWORD }).to_string();
    let (status, head, body) =
        ask(node.http, "POST", "/api/v1/session", "Content-Type: application/json\r\n", &login);
    assert!(status < 300, "{status}: {body}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap_or_default());
    let csrf =
        serde_json::from_str::<Value>(&body).expect("JSON")["csrf"].as_str().expect("a token").to_owned();

    node.generate_traffic();
    let seen = wait("the run to be in the history", || {
        let answer = json(node.http, "/api/v1/overview", &cookie);
        let most = |name: &str| {
            let values = answer["series"][name].as_array().cloned().unwrap_or_default();
            values.iter().filter_map(Value::as_f64).fold(0.0, f64::max)
        };
        let moved =
            ["users_online", "sessions_tcp", "logins", "login_failures", "messages_in", "messages_out"];
        let measured = ["delivery_p99", "database_ops", "database_p99", "memory", "cpu"];
        moved.iter().chain(&measured).all(|name| most(name) > 0.0).then_some(answer)
    });
    assert_eq!((&seen["interval"], &seen["current"]["version"]), (&2.into(), &"0.1.0".into()), "{seen}");
    let lengths: BTreeSet<usize> = seen["series"]
        .as_object()
        .expect("series")
        .values()
        .map(|v| v.as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(lengths.len(), 1, "all series have the same length");
    let now = seen["now"].as_u64().expect("a time");
    let newer = wait("the next point", || {
        let answer = json(node.http, &format!("/api/v1/overview?since={now}"), &cookie);
        (answer["now"].as_u64() > Some(now)).then_some(answer)
    });
    let length = newer["series"]["cpu"].as_array().map_or(0, Vec::len);
    assert!((1..10).contains(&length), "only what is new: {length}");

    let log = json(node.http, "/api/v1/log?limit=2000", &cookie);
    let text = log["lines"].to_string();
    assert!(text.contains("listening") && text.contains("login failed"), "{text}");
    assert!(!text.contains(PASSWORD), "the log has a password");
    let next = log["next"].as_str().expect("a text");
    assert_eq!(
        json(node.http, &format!("/api/v1/log?after={next}&level=error"), &cookie)["lines"],
        serde_json::json!([])
    );

    let nodes = json(node.http, "/api/v1/nodes", &cookie);
    assert_eq!((&nodes["nodes"][0]["this"], &nodes["nodes"][0]["ready"]), (&true.into(), &true.into()));
    let domains = json(node.http, "/api/v1/domains", &cookie);
    let first = &domains["domains"][0];
    assert_eq!((&first["name"], &first["accounts"]), (&DOMAIN.into(), &20.into()), "{first}");
    let modules = first["modules"].as_array().expect("modules");
    assert!(modules.iter().any(|module| module["name"] == "ping" && module["enabled"] == true), "{first}");

    // Changes require the token of the session, and a reload reports its result.
    let (status, ..) = ask(node.http, "POST", "/api/v1/reload", &cookie, "");
    assert_eq!(status, 403);
    let text = fs::read_to_string(node.folder.join("throng.toml")).expect("the configuration");
    node.configure(&format!("{text}entity_time = false\n"));
    let headers = format!("{cookie}X-CSRF-Token: {csrf}\r\n");
    let (status, _, body) = ask(node.http, "POST", "/api/v1/reload", &headers, "");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("modules of chat.test: entity_time"), "{body}");
    node.configure(&format!("{text}entity_tyme = false\n"));
    let (status, _, body) = ask(node.http, "POST", "/api/v1/reload", &headers, "");
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("did you mean") && body.contains("entity_time"), "{body}");
}
