//! A node in a folder of its own, here or in a network namespace, and the commands that are run against it.
//!
//! Its figures come over the admin socket, which is a file and so within reach from every namespace; on loopback also from
//! `/metrics`.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

pub(crate) const DOMAIN: &str = "chat.test";
pub(crate) const PASSWORD: &str = "correct horse";
/// For whatever has to happen on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Only one test at a time loads the machine.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock()
}

pub(crate) struct Node {
    pub(crate) folder: PathBuf,
    /// Folder of its database.
    data: PathBuf,
    /// Namespace that it runs in.
    space: Option<String>,
    /// Where clients connect.
    pub(crate) target: String,
    http: u16,
    pub(crate) process: Option<Child>,
}

impl Node {
    /// A node on loopback with accounts `u0`, `u1` … that has started.
    pub(crate) fn start(name: &str, accounts: u32) -> Node {
        let [port, http] = free_ports();
        Node::start_at(name, None, format!("127.0.0.1:{port}"), http, accounts)
    }
    /// The same in a network namespace, at an address of it.
    pub(crate) fn start_in(space: &str, name: &str, address: Ipv4Addr, accounts: u32) -> Node {
        Node::start_at(name, Some(space.to_owned()), format!("{address}:5222"), 5280, accounts)
    }
    fn start_at(name: &str, space: Option<String>, target: String, http: u16, accounts: u32) -> Node {
        let folder = folder(name);
        let data = memory(name);
        // The fewest iterations that are allowed: how slow passwords are is not the question here.
        let text = format!(
            "domains = ['{DOMAIN}']\ndata_dir = 'data'\n\
             [storage]\nurl = 'sqlite:{}/throng.db'\n[auth]\niterations = 4096\n\
             [[listen]]\nkind = 'c2s'\naddress = '{target}'\ntls = 'off'\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n",
            data.display()
        );
        fs::write(folder.join("throng.toml"), text).expect("a configuration");
        let mut node = Node { folder, data, space, target, http, process: None };
        if accounts > 0 {
            let count = accounts.to_string();
            let words = ["account", "bulk", "--config", "throng.toml", "--prefix", "u", "--count", &count];
            let made = node.run(&[&words[..], &["--password", PASSWORD]].concat());
            assert!(made.status.success(), "{}", said(&made));
        }
        let log = fs::File::create(node.folder.join("log")).expect("a log");
        let mut command = program(node.space.as_deref(), &["serve", "--config", "throng.toml"]);
        command.current_dir(&node.folder).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        node.process = Some(command.spawn().expect("throng starts"));
        wait("the node", || {
            let ended = node.process.as_mut().and_then(|p| p.try_wait().expect("a child"));
            assert!(ended.is_none(), "the node ended: {}", node.log());
            node.figures()
        });
        node
    }
    /// A command of the program in the node's folder, run to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        program(None, words).current_dir(&self.folder).stdin(Stdio::null()).output().expect("throng starts")
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
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
    /// What `throng status` says; nothing while the node is not up.
    pub(crate) fn figures(&self) -> Option<Value> {
        let output = self.run(&["status", "--json", "--config", "throng.toml"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }
    /// One of those figures.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let figures = self.figures().expect("a running node");
        figures[name].as_u64().unwrap_or_else(|| panic!("no figure {name} in {figures}"))
    }
    /// The page of metrics.
    pub(crate) fn metrics(&self) -> Metrics {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http)).expect("the node's port");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        Metrics(text)
    }
    pub(crate) fn metrics_url(&self) -> String {
        format!("http://127.0.0.1:{}/metrics", self.http)
    }
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running node").id()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
        let _ = fs::remove_dir_all(&self.data);
    }
}

/// A page of metrics as it was at one moment.
pub(crate) struct Metrics(String);

impl Metrics {
    /// The sum of all series whose name with labels begins with `name`; 0 where there is none yet.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        let value = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0);
        self.0.lines().filter(|line| line.starts_with(name)).map(value).sum::<f64>() as u64
    }
}

/// Ends a process that a failing test leaves behind.
pub(crate) struct Guard(pub(crate) Child);

impl Guard {
    /// Waits for the end; a process that does not end fails the test.
    pub(crate) fn end(&mut self, what: &str) -> ExitStatus {
        wait(what, || self.0.try_wait().expect("a child"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(sent.expect("sh").success(), "no process {pid}");
}

/// The program, in a network namespace if one is named. The process that is started is the program's own.
pub(crate) fn program(space: Option<&str>, words: &[&str]) -> Command {
    let own = std::env::current_exe().expect("the path of the test");
    let path = own.parent().and_then(Path::parent).expect("target/debug/deps").join("throng");
    assert!(path.is_file(), "{} is missing: run `cargo build -p throng-server`", path.display());
    let mut command = match space {
        None => Command::new(&path),
        Some(space) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", space]).arg(&path);
            command
        }
    };
    command.args(words);
    command
}

/// A new folder that only this process uses. Short, for the path of the admin socket has room for a hundred bytes.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("throng-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A folder for a database, in memory where the system has such a place: how fast the machine's disk is at the moment is
/// not the question here, and a node whose database does not answer in time refuses logins and messages by right.
fn memory(name: &str) -> PathBuf {
    let shared = Path::new("/dev/shm");
    let name = format!("throng-{}-{name}-db", std::process::id());
    let inside = shared.join(&name);
    if shared.is_dir() && fs::create_dir_all(&inside).is_ok() {
        return inside;
    }
    folder(&name)
}

pub(crate) fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let all = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    all.map(|listener| listener.local_addr().expect("a bound port").port())
}

/// Looks until there is something to see.
pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: nothing after {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(25));
    }
}
