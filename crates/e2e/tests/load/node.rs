//! A node in its own directory, here or in a network namespace, and the commands run against it.
//!
//! Its metrics come over the admin socket, which is a file and hence reachable from every namespace; on loopback also
//! from `/metrics`.
#![allow(clippy::disallowed_types, reason = "a test holds this lock from its start to its end")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use throng_e2e::TIMEOUT;
use throng_e2e::{TempFolder, ports, program};

pub(crate) const DOMAIN: &str = "chat.test";
pub(crate) const PASSWORD: &str = "correct horse";

/// Only one test at a time loads the machine.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn exclusive_turn() -> MutexGuard<'static, ()> {
    TURN.lock()
}

pub(crate) struct LoadNode {
    // Declared before its database, so that it is dropped first.
    node: throng_e2e::NodeProcess,
    _database: DatabaseFolder,
    /// Address for clients.
    pub(crate) target: String,
    http: u16,
}

impl LoadNode {
    /// Starts a node on loopback with accounts `u0`, `u1` …
    pub(crate) fn start(name: &str, accounts: u32) -> LoadNode {
        let [port, http] = ports::free();
        LoadNode::start_at(name, None, format!("127.0.0.1:{port}"), http, accounts, "off")
    }

    /// Like `start`, with the listener of `make run`: no login without STARTTLS.
    pub(crate) fn start_secure(name: &str, accounts: u32) -> LoadNode {
        let [port, http] = ports::free();
        LoadNode::start_at(name, None, format!("127.0.0.1:{port}"), http, accounts, "required")
    }

    /// Like `start`, in a network namespace, at an address there.
    pub(crate) fn start_in(space: &str, name: &str, address: Ipv4Addr, accounts: u32) -> LoadNode {
        LoadNode::start_at(name, Some(space.to_owned()), format!("{address}:5222"), 5280, accounts, "off")
    }

    fn start_at(
        name: &str,
        space: Option<String>,
        target: String,
        http: u16,
        accounts: u32,
        tls: &str,
    ) -> LoadNode {
        let mut node = throng_e2e::NodeProcess::new_in_netns(space, name);
        let database = DatabaseFolder::new(name);
        // The minimum of iterations and no rate limits, because neither the cost of password hashing nor those limits
        // are under test.
        node.configure(&format!(
            "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n\
             [storage]\nurl = 'sqlite:{}/throng.db'\n[auth]\nscram_iterations = 4096\n[limits]\nnew_connections_per_second = 0\naccepted_connections_per_second = 0\nstanzas_per_second = 0\nbytes_per_second = 0\n\
             [[listen]]\nkind = 'c2s'\naddress = '{target}'\ntls = '{tls}'\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n",
            database.path().display()
        ));
        if accounts > 0 {
            let count = accounts.to_string();
            node.run_ok(&[
                "account",
                "bulk",
                "--create",
                "--prefix",
                "u",
                "--count",
                &count,
                "--password",
                PASSWORD,
            ]);
        }
        node.start();
        LoadNode { node, _database: database, target, http }
    }

    /// `throng load` against this node; its report goes to `out` in the node's directory.
    pub(crate) fn load(&self, out: &str, words: &[&str]) -> Command {
        self.load_in(None, out, words)
    }

    pub(crate) fn load_in(&self, space: Option<&str>, out: &str, words: &[&str]) -> Command {
        let own = ["--target", &self.target, "--domain", DOMAIN, "--out", out, "--plain"];
        let mut command = program(space, &[&["load"], words, &own].concat());
        command.env("THRONG_LOAD_PASSWORD", PASSWORD).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Writes a plan into the directory.
    pub(crate) fn plan(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).expect("a plan");
    }

    /// Output of `throng status`; `None` while the node is not running.
    pub(crate) fn status(&self) -> Option<Value> {
        let output = self.run(&["status", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// One metric of `throng status`.
    pub(crate) fn status_value(&self, name: &str) -> u64 {
        let figures = self.status().expect("a running node");
        figures[name].as_u64().unwrap_or_else(|| panic!("no figure {name} in {figures}"))
    }

    /// The metrics page.
    pub(crate) fn metrics(&self) -> MetricsPage {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).expect("the node's port");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        MetricsPage(text)
    }

    pub(crate) fn metrics_url(&self) -> String {
        format!("http://127.0.0.1:{}/metrics", self.http)
    }
}

impl Deref for LoadNode {
    type Target = throng_e2e::NodeProcess;
    fn deref(&self) -> &throng_e2e::NodeProcess {
        &self.node
    }
}

/// Directory for a database, in memory if the system has such a place: the speed of the disk is not under test, and a
/// node whose database responds too late rightly refuses logins and messages.
enum DatabaseFolder {
    /// Always removed, because memory is scarce.
    Memory(PathBuf),
    Disk(TempFolder),
}

impl DatabaseFolder {
    fn new(name: &str) -> DatabaseFolder {
        let shared = Path::new("/dev/shm");
        let name = format!("{name}-db");
        let inside = shared.join(format!("throng-{}-{name}", std::process::id()));
        if shared.is_dir() && fs::create_dir_all(&inside).is_ok() {
            return DatabaseFolder::Memory(inside);
        }
        DatabaseFolder::Disk(TempFolder::new(&name))
    }

    fn path(&self) -> &Path {
        match self {
            DatabaseFolder::Memory(path) => path,
            DatabaseFolder::Disk(folder) => folder,
        }
    }
}

impl Drop for DatabaseFolder {
    fn drop(&mut self) {
        if let DatabaseFolder::Memory(path) = self {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Metrics page at one moment.
pub(crate) struct MetricsPage(String);

impl MetricsPage {
    /// Sum of all series whose name with labels begins with `name`; 0 if there is none.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        let value = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0);
        self.0.lines().filter(|line| line.starts_with(name)).map(value).sum::<f64>() as u64
    }
}
