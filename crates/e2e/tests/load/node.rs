//! A node in a folder of its own, here or in a network namespace, and the commands that are run against it.
//!
//! Its figures come over the admin socket, which is a file and so within reach from every namespace; on loopback also from
//! `/metrics`.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use throng_e2e::wait::SLOW_TIMEOUT;
use throng_e2e::{TempFolder, ports, program};

pub(crate) const DOMAIN: &str = "chat.test";
pub(crate) const PASSWORD: &str = "correct horse";

/// Only one test at a time loads the machine.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn exclusive_turn() -> MutexGuard<'static, ()> {
    TURN.lock()
}

pub(crate) struct LoadNode {
    // Before its database, which must not go from under it.
    node: throng_e2e::NodeProcess,
    _database: DatabaseFolder,
    /// Where clients connect.
    pub(crate) target: String,
    http: u16,
}

impl LoadNode {
    /// A node on loopback with accounts `u0`, `u1` … that has started.
    pub(crate) fn start(name: &str, accounts: u32) -> LoadNode {
        let [port, http] = ports::free();
        LoadNode::start_at(name, None, format!("127.0.0.1:{port}"), http, accounts, "off")
    }
    /// The same with the listener that `make run` has: no login without STARTTLS.
    pub(crate) fn start_secure(name: &str, accounts: u32) -> LoadNode {
        let [port, http] = ports::free();
        LoadNode::start_at(name, None, format!("127.0.0.1:{port}"), http, accounts, "required")
    }
    /// The same in a network namespace, at an address of it.
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
        // The fewest iterations that are allowed: how slow passwords are is not the question here, nor how fast one address may
        // connect.
        node.configure(&format!(
            "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n\
             [storage]\nurl = 'sqlite:{}/throng.db'\n[auth]\nscram_iterations = 4096\n[limits]\nnew_connections_per_second = 0\nstanzas_per_second = 0\nbytes_per_second = 0\n\
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
    /// `throng load` against this node; its report goes to `out` in the node's folder.
    pub(crate) fn load(&self, out: &str, words: &[&str]) -> Command {
        self.load_in(None, out, words)
    }
    pub(crate) fn load_in(&self, space: Option<&str>, out: &str, words: &[&str]) -> Command {
        let own = ["--target", &self.target, "--domain", DOMAIN, "--out", out, "--plain"];
        let mut command = program(space, &[&["load"], words, &own].concat());
        command.env("THRONG_LOAD_PASSWORD", PASSWORD).current_dir(&self.folder).stdin(Stdio::null());
        command
    }
    /// Writes a plan into the folder.
    pub(crate) fn plan(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).expect("a plan");
    }
    /// What `throng status` says; nothing while the node is not up.
    pub(crate) fn status(&self) -> Option<Value> {
        let output = self.run(&["status", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }
    /// One of those figures.
    pub(crate) fn status_value(&self, name: &str) -> u64 {
        let figures = self.status().expect("a running node");
        figures[name].as_u64().unwrap_or_else(|| panic!("no figure {name} in {figures}"))
    }
    /// The page of metrics.
    pub(crate) fn metrics(&self) -> MetricsPage {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).expect("the node's port");
        stream.set_read_timeout(Some(SLOW_TIMEOUT)).expect("a limit");
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

/// A folder for a database, in memory where the system has such a place: how fast the machine's disk is at the moment is
/// not the question here, and a node whose database does not answer in time refuses logins and messages by right.
enum DatabaseFolder {
    /// Goes in any case, for memory is short.
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

/// A page of metrics as it was at one moment.
pub(crate) struct MetricsPage(String);

impl MetricsPage {
    /// The sum of all series whose name with labels begins with `name`; 0 where there is none yet.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        let value = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0);
        self.0.lines().filter(|line| line.starts_with(name)).map(value).sum::<f64>() as u64
    }
}
