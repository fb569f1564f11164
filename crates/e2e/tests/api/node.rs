//! Tests of the API with a complete node: tokens from the command line, the same commands through the admin socket and
//! HTTP, and schemathesis, which generates valid and invalid requests from the OpenAPI document and checks the
//! responses against it.
//!
//! # Pitfalls
//!
//! A stale binary is tested without warning; run `cargo build -p throng-server` first. Missing programs are installed
//! by `clients/setup.sh` or fail the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use throng_e2e::{TIMEOUT, clients, describe_output, ports, wait};

use crate::command_interfaces::{INVALID_VALUES, VALID_VALUES, body};

/// A node with an administrator and two users.
struct ApiNode {
    node: throng_e2e::NodeProcess,
    http: u16,
}

impl ApiNode {
    fn start(name: &str) -> ApiNode {
        let [c2s, http] = ports::free();
        let mut node = throng_e2e::NodeProcess::new(&format!("api-{name}"));
        node.configure(&format!(
            "hosts = ['example.com']\nadmins = ['admin@example.com']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\n\
             [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{c2s}'\ntls = 'off'\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n"
        ));
        for user in ["admin", "romeo", "juliet"] {
            node.add_account(&format!("{user}@example.com"), "R0m30 and juli3t");
        }
        node.start();
        let node = ApiNode { node, http };
        let ready = node.ask("GET", "/readyz", "", "");
        assert!(ready.as_ref().is_some_and(|(status, _)| *status == 200), "{ready:?}: {}", node.log());
        node
    }

    /// Creates a token of this scope.
    fn token(&self, name: &str, scope: &str) -> String {
        self.run_ok(&["token", "add", name, "--scope", scope]).trim().to_owned()
    }

    /// Status and body of a response.
    fn ask(&self, method: &str, path: &str, secret: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {secret}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let status = text.split(' ').nth(1)?.parse().ok()?;
        Some((status, text.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())))
    }

    /// Response of the admin socket.
    fn socket(&self, request: &Value) -> Value {
        let socket = self.folder.join("data/throng.sock");
        let mut stream = UnixStream::connect(&socket).unwrap_or_else(|e| panic!("{}: {e}", socket.display()));
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream.write_all(format!("{request}\n").as_bytes()).expect("the socket takes it");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("JSON")
    }
}

impl Deref for ApiNode {
    type Target = throng_e2e::NodeProcess;
    fn deref(&self) -> &throng_e2e::NodeProcess {
        &self.node
    }
}

#[test]
fn a_token_of_the_command_line_opens_the_api_until_it_is_removed() {
    let node = ApiNode::start("tokens");
    let secret = node.token("backup", "read,accounts");
    let status = |secret: &str| node.ask("GET", "/api/v1/accounts", secret, "").map(|a| a.0);
    assert_eq!(status(&secret), Some(200));
    assert_eq!(status("throng_forged"), Some(401));
    let list = node.run_ok(&["token", "list"]);
    assert!(list.contains("backup") && list.contains("read,accounts") && !list.contains(&secret), "{list}");
    let twice = node.run(&["token", "add", "backup", "--scope", "read"]);
    assert!(
        !twice.status.success() && describe_output(&twice).contains("already"),
        "{}",
        describe_output(&twice)
    );
    let unknown = node.run(&["token", "add", "x", "--scope", "all"]);
    assert!(
        describe_output(&unknown).contains("the scopes are read, metrics, accounts"),
        "{}",
        describe_output(&unknown)
    );
    node.run_ok(&["token", "remove", "backup"]);
    assert_eq!(status(&secret), Some(401), "at once, on a running node");
    let log = node.log();
    assert!(log.contains("token add") && !log.contains(&secret[7..]), "{log}");
}

#[test]
fn every_command_has_the_same_result_over_the_socket_and_http() {
    let (by_socket, by_http) = (ApiNode::start("socket"), ApiNode::start("http"));
    let secret = by_http.token("admin", "admin");
    // No user is online here, and a drain would end both nodes.
    let is_possible = |(name, _): &&(&str, _)| !matches!(*name, "end-user-session" | "drain");
    for (name, values) in INVALID_VALUES.iter().chain(VALID_VALUES).filter(is_possible) {
        let pairs: Vec<(&str, &str)> =
            values.iter().flat_map(|(k, list)| list.iter().map(|v| (*k, *v))).collect();
        let one = by_socket
            .socket(&json!({ "do": "command", "domain": "example.com", "name": name, "values": pairs }));
        let path = format!("/api/v1/commands/{name}");
        let (status, text) =
            by_http.ask("POST", &path, &secret, &body(values).to_string()).expect("an answer");
        let other: Value = serde_json::from_str(&text).expect("JSON");
        match one["error"].as_str() {
            Some(error) => {
                assert_eq!((status == 200, other["detail"].as_str()), (false, Some(error)), "{name}")
            }
            // The times and the memory differ.
            None if matches!(*name, "user-stats" | "get-user-lastlogin" | "get-nodes-list") => {
                assert_eq!(status, 200, "{name}")
            }
            None => assert_eq!((status, &one["status"]), (200, &other), "{name}"),
        }
    }
    // The command line gives the same result.
    let line = by_socket.run_ok(&["command", "get-registered-users-num"]);
    assert_eq!(line.trim(), "The number of registered users: 3");
}

#[test]
fn the_overview_history_survives_a_restart() {
    let mut node = ApiNode::start("history");
    let secret = node.token("reader", "read");
    // Waits for an overview with a point that satisfies `wanted`.
    let overview = |node: &ApiNode, wanted: &dyn Fn(&Value) -> bool| {
        wait::wait("a point of the overview", || {
            let (status, text) = node.ask("GET", "/api/v1/overview", &secret, "")?;
            assert_eq!(status, 200, "{text}");
            serde_json::from_str::<Value>(&text).ok().filter(wanted)
        })
    };
    let points = |overview: &Value| overview["series"]["memory"].as_array().expect("points").clone();
    let first = overview(&node, &|o| o["now"] != 0);
    let (saved, value) = (first["now"].as_u64().expect("seconds"), points(&first).pop().expect("a point"));
    node.node.stop();
    node.node.start();
    let again = overview(&node, &|o| o["now"].as_u64() > Some(saved));
    let behind = (again["now"].as_u64().expect("seconds") - saved) / 2;
    let list = points(&again);
    let at = list.len().checked_sub(1 + usize::try_from(behind).expect("few")).expect("an older point");
    assert_eq!(list[at], value, "the point of {saved} among {list:?}");

    // A damaged file costs only the history and one line of the log.
    node.node.stop();
    std::fs::write(node.folder.join("data/overview.history"), "nothing of that kind").expect("a file");
    node.node.start();
    let anew = overview(&node, &|o| o["now"] != 0);
    assert!(anew["now"].as_u64() > again["now"].as_u64());
    let lines = node.log().matches("cannot read the saved metrics history of the overview").count();
    assert_eq!(lines, 1, "{}", node.log());
}

#[test]
fn schemathesis_finds_no_undeclared_response() {
    let installed = clients::install_clients();
    let node = ApiNode::start("schemathesis");
    let secret = node.token("schemathesis", "admin");
    let output = Command::new(installed.join("schemathesis/bin/schemathesis"))
        .args(["--config-file"])
        .arg(clients::scripts_folder().join("schemathesis/schemathesis.toml"))
        .args(["run", &format!("http://127.0.0.1:{}/api/v1/openapi.json", node.http)])
        .args(["--header", &format!("Authorization: Bearer {secret}")])
        .current_dir(&node.folder)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("schemathesis runs");
    assert!(output.status.success(), "{}\n{}", describe_output(&output), node.log());
}
