//! A whole node: tokens from the command line, the same commands through the admin socket and HTTP, and schemathesis, which
//! makes requests out of the OpenAPI document, valid and invalid ones, and holds the answers against it.
//!
//! The trap: a stale binary is tested as it is; `cargo build -p throng-server` comes first. What is missing on the machine
//! is installed by `clients/setup.sh` or fails the test.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::doors::{BAD, GOOD, body};

const PATIENCE: Duration = Duration::from_secs(30);

/// A folder, its configuration and the node in it.
struct Node {
    folder: PathBuf,
    http: u16,
    process: Child,
}

fn throng() -> PathBuf {
    let own = std::env::current_exe().expect("the path of the test");
    let path = own.parent().and_then(Path::parent).expect("target/debug/deps").join("throng");
    assert!(path.is_file(), "{} is missing: run `cargo build -p throng-server`", path.display());
    path
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

fn run(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(throng());
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command.output().expect("throng runs")
}

impl Node {
    fn start(name: &str) -> Node {
        let folder = std::env::temp_dir().join(format!("throng-api-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let ports = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
        let [c2s, http] = ports.map(|listener| listener.local_addr().expect("a bound port").port());
        let text = format!(
            "domains = ['example.com']\nadmins = ['admin@example.com']\ndata_dir = 'data'\n[auth]\niterations = 4096\n\
             [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{c2s}'\ntls = 'off'\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n"
        );
        fs::write(folder.join("throng.toml"), text).expect("a configuration");
        for user in ["admin", "romeo", "juliet"] {
            let user = format!("{user}@example.com");
            let words =
                ["account", "add", "--config", "throng.toml", &user, "--password", "R0m30 and juli3t"];
            let output = run(&folder, &words);
            assert!(output.status.success(), "{}", said(&output));
        }
        let log = fs::File::create(folder.join("log")).expect("a log");
        let mut command = Command::new(throng());
        command.args(["serve", "--config", "throng.toml"]).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let node = Node { folder, http, process: command.spawn().expect("throng starts") };
        for _ in 0..PATIENCE.as_millis() / 50 {
            if node.ask("GET", "/readyz", "", "").is_some_and(|(status, _)| status == 200) {
                return node;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("not ready: {}", node.log());
    }
    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
    /// `throng …` with this node's configuration, which must succeed.
    fn run(&self, words: &[&str]) -> String {
        let output = run(&self.folder, words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
    /// Status and body of an answer.
    fn ask(&self, method: &str, path: &str, secret: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
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
    /// What the admin socket answers.
    fn socket(&self, request: &Value) -> Value {
        let socket = self.folder.join("data/throng.sock");
        let mut stream = UnixStream::connect(&socket).unwrap_or_else(|e| panic!("{}: {e}", socket.display()));
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(format!("{request}\n").as_bytes()).expect("the socket takes it");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("JSON")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_token_of_the_command_line_opens_the_api_until_it_is_removed() {
    let node = Node::start("tokens");
    let config = ["--config", "throng.toml"];
    let add = |name: &str, scope: &str| {
        node.run(&[&["token", "add", name, "--scope", scope], &config[..]].concat())
    };
    let secret = add("backup", "read,accounts");
    let status = |secret: &str| node.ask("GET", "/api/v1/accounts", secret, "").map(|a| a.0);
    assert_eq!(status(&secret), Some(200));
    assert_eq!(status("throng_forged"), Some(401));
    let list = node.run(&[&["token", "list"], &config[..]].concat());
    assert!(list.contains("backup") && list.contains("read,accounts") && !list.contains(&secret), "{list}");
    let twice = run(&node.folder, &["token", "add", "backup", "--scope", "read", "--config", "throng.toml"]);
    assert!(!twice.status.success() && said(&twice).contains("already"), "{}", said(&twice));
    let unknown = run(&node.folder, &["token", "add", "x", "--scope", "all", "--config", "throng.toml"]);
    assert!(said(&unknown).contains("the scopes are read, accounts"), "{}", said(&unknown));
    node.run(&[&["token", "remove", "backup"], &config[..]].concat());
    assert_eq!(status(&secret), Some(401), "at once, on a running node");
    let log = node.log();
    assert!(log.contains("token add") && !log.contains(&secret[7..]), "{log}");
}

#[test]
fn every_command_ends_alike_behind_the_socket_and_http() {
    let (by_socket, by_http) = (Node::start("socket"), Node::start("http"));
    let secret = by_http.run(&["token", "add", "admin", "--scope", "admin", "--config", "throng.toml"]);
    // Nobody is online here.
    let offline = |name: &str| name == "end-user-session";
    for (name, values) in BAD.iter().chain(GOOD).filter(|(name, _)| !offline(name)) {
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
            // Times differ.
            None if matches!(*name, "user-stats" | "get-user-lastlogin") => assert_eq!(status, 200, "{name}"),
            None => assert_eq!((status, &one["status"]), (200, &other), "{name}"),
        }
    }
    // And the program itself.
    let line = by_socket.run(&["command", "--config", "throng.toml", "get-registered-users-num"]);
    assert_eq!(line, "The number of registered users: 3");
}

#[test]
fn schemathesis_finds_no_answer_that_is_not_declared() {
    let target = throng().parent().and_then(Path::parent).expect("target/debug").join("e2e");
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let setup = Command::new(clients.join("setup.sh")).arg(&target).output().expect("setup.sh runs");
    assert!(setup.status.success(), "{}", said(&setup));
    let node = Node::start("schemathesis");
    let secret = node.run(&["token", "add", "schemathesis", "--scope", "admin", "--config", "throng.toml"]);
    let output = Command::new(target.join("schemathesis/bin/schemathesis"))
        .args(["--config-file"])
        .arg(clients.join("schemathesis/schemathesis.toml"))
        .args(["run", &format!("http://127.0.0.1:{}/api/v1/openapi.json", node.http)])
        .args(["--header", &format!("Authorization: Bearer {secret}")])
        .current_dir(&node.folder)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("schemathesis runs");
    assert!(output.status.success(), "{}\n{}", said(&output), node.log());
}
