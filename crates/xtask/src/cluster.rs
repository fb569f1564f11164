//! `cargo xtask cluster`: several nodes with NATS and PostgreSQL on this machine, to try a cluster.
//!
//! The nodes have their folders below `target/cluster`; the two servers run from a temporary folder, as in the tests, because root's
//! run as `nobody`. SIGINT, SIGTERM and SIGHUP stop all of them. Each start begins without data.
//!
//! # Pitfalls
//!
//! A node that ends does not end the others: killing one is what a person may want to try.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use ring::rand::{SecureRandom, SystemRandom};
use test_databases::{NatsServer, Server, ServerKind, ServerSetup, ports};

use crate::bench::clock::now;
use crate::bench::peers::command::signals;
use crate::bench::process::{ChildGuard, log_tail};
use crate::bench::report::{print_progress, print_result};

const DOMAIN: &str = "localhost";
const ADMINISTRATOR: &str = "admin@localhost";

/// Ports of the first node for clients and for HTTP; those of the next one are [`PORT_STEP`] higher.
const FIRST_PORTS: [u16; 2] = [5222, 5280];
const PORT_STEP: u16 = 10;

/// Time for the nodes to find each other.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two looks at the nodes.
const INTERVAL: Duration = Duration::from_millis(200);

/// The flags of `cargo xtask cluster`.
#[derive(clap::Args)]
pub(crate) struct ClusterArgs {
    /// Number of nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
    nodes: u16,
    /// The program of the nodes.
    #[arg(long, value_name = "PATH", default_value = "target/release/throng")]
    program: PathBuf,
    /// Folder of the nodes. Its former content is removed.
    #[arg(long, value_name = "DIR", default_value = "target/cluster")]
    directory: PathBuf,
    /// Use any free ports instead of 5222, 5232, … for clients and 5280, 5290, … for HTTP.
    #[arg(long)]
    free_ports: bool,
}

/// Runs the cluster until a signal. Exit code 2 when it fails.
pub(crate) fn run(args: &ClusterArgs) -> ExitCode {
    match run_until_signal(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_progress(&format!("xtask cluster: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// A node: its configuration, ports and process.
pub(crate) struct ClusterNode {
    pub(crate) name: String,
    pub(crate) config: PathBuf,
    pub(crate) log: PathBuf,
    /// Port for clients.
    pub(crate) clients: u16,
    /// Port of the console and the metrics.
    pub(crate) http: u16,
    /// Absent once its end was noticed.
    pub(crate) process: Option<ChildGuard>,
}

fn run_until_signal(args: &ClusterArgs) -> Result<()> {
    let program = fs::canonicalize(&args.program).with_context(|| {
        format!(
            "{} is missing; build it with `cargo build --release -p throng-server`",
            args.program.display()
        )
    })?;
    let ready = Arc::new(AtomicBool::new(false));
    let ended = signals(Arc::clone(&ready))?;
    print_progress("starting PostgreSQL and NATS");
    let read_committed = vec![("default_transaction_isolation", "read committed")];
    let setup = ServerSetup { settings: read_committed, ..ServerSetup::default() };
    let database = Server::start_with(ServerKind::Postgres, &setup);
    let nats = NatsServer::start();
    make_folder(&args.directory)?;
    let folder = fs::canonicalize(&args.directory)?;
    let mut nodes = (1..=args.nodes)
        .map(|number| {
            let ports = if args.free_ports { ports::free() } else { usual_ports(number) };
            configure(&folder, number, ports, &database.default_url(), &nats.url())
        })
        .collect::<Result<Vec<_>>>()?;
    let password = random_password()?;
    add_administrator(&program, &nodes[0].config, &password)?;
    for node in &mut nodes {
        let mut serve = Command::new(&program);
        serve.arg("serve").arg("--config").arg(&node.config);
        node.process = Some(ChildGuard::start(&serve, &node.log)?);
    }
    wait_until_connected(&mut nodes)?;
    ready.store(true, Ordering::SeqCst);

    print_result(&format!("{} nodes serve {DOMAIN}", nodes.len()));
    for node in &nodes {
        let (name, clients, http) = (&node.name, node.clients, node.http);
        print_result(&format!("  {name:<13}  clients 127.0.0.1:{clients}  console http://127.0.0.1:{http}/"));
    }
    print_result(&format!("  administrator  {ADMINISTRATOR}, password {password}"));
    let (program, config) = (args.program.display(), nodes[0].config.display());
    print_result(&format!("  add a user     {program} account add --config {config} alice@{DOMAIN}"));
    print_result(&format!("  PostgreSQL     {}", database.default_url()));
    print_result(&format!("  NATS           {}", nats.url()));
    print_result(&format!("  logs           {}", args.directory.join("node-*/log").display()));
    print_result("Stop all with Ctrl-C; their data are lost then.");
    while ended.recv_timeout(INTERVAL).is_err() {
        notice_ends(&mut nodes);
        ensure!(nodes.iter().any(|node| node.process.is_some()), "all nodes have ended");
    }
    print_progress("stopping");
    // The last node finds the database and NATS.
    drop(nodes);
    drop((nats, database));
    Ok(())
}

fn usual_ports(number: u16) -> [u16; 2] {
    FIRST_PORTS.map(|first| first + PORT_STEP * (number - 1))
}

/// An empty folder. One with something else than nodes is left as it is.
fn make_folder(folder: &Path) -> Result<()> {
    if let Ok(entries) = fs::read_dir(folder) {
        for entry in entries {
            let entry = entry?;
            let is_node = entry.file_name().to_string_lossy().starts_with("node-");
            ensure!(is_node, "{} is not of a node; choose another --directory", entry.path().display());
            fs::remove_dir_all(entry.path())?;
        }
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn configure(
    folder: &Path,
    number: u16,
    [clients, http]: [u16; 2],
    database: &str,
    nats: &str,
) -> Result<ClusterNode> {
    let name = format!("node-{number}");
    let folder = folder.join(&name);
    fs::create_dir(&folder)?;
    let data = folder.join("data");
    // Connections do not leave this machine, and no client trusts the certificates.
    let text = format!(
        "hosts = ['{DOMAIN}']\nadmins = ['{ADMINISTRATOR}']\ndata_dir = {data:?}\n\n\
         [storage]\nurl = '{database}'\n\n[cluster]\nnats = ['{nats}']\nnode = '{name}'\n\n\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{clients}'\ntls = 'optional'\n\n\
         [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n"
    );
    let (config, log) = (folder.join("throng.toml"), folder.join("log"));
    fs::write(&config, text)?;
    Ok(ClusterNode { name, config, log, clients, http, process: None })
}

fn random_password() -> Result<String> {
    let mut bytes = [0; 12];
    SystemRandom::new().fill(&mut bytes).ok().context("no random numbers")?;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}

/// Creates the tables and the account of the administrator.
fn add_administrator(program: &Path, config: &Path, password: &str) -> Result<()> {
    let mut add = Command::new(program);
    add.args(["account", "add", "--config"]).arg(config).arg(ADMINISTRATOR);
    add.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = add.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        writeln!(input, "{password}")?;
    }
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "`account add` failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Waits until every node accepts clients and knows all others.
pub(crate) fn wait_until_connected(nodes: &mut [ClusterNode]) -> Result<()> {
    let (begun, count) = (now(), nodes.len());
    loop {
        for node in nodes.iter_mut() {
            if let Some(process) = &mut node.process
                && process.check_running().is_err()
            {
                bail!("{} has ended:\n{}", node.name, log_tail(&node.log));
            }
        }
        let missing = nodes.iter().find(|node| !is_connected(node.http, count));
        let Some(missing) = missing else { return Ok(()) };
        if begun.elapsed() > START_TIMEOUT {
            bail!("{} does not find the others:\n{}", missing.name, log_tail(&missing.log));
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Whether the node with this HTTP port is ready in a cluster of this size.
fn is_connected(http: u16, count: usize) -> bool {
    let Ok(metrics) = read_page(http, "/metrics") else { return false };
    let value = |name| {
        let line = metrics.lines().find_map(|line: &str| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok())
    };
    let members = u32::try_from(count).ok().map(f64::from);
    value("throng_ready") == Some(1.0) && value("throng_cluster_members") == members
}

/// An HTTP answer of a server on this machine, with its headers.
pub(crate) fn read_page(http: u16, path: &str) -> std::io::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, http));
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// Prints which nodes have ended since the last call.
fn notice_ends(nodes: &mut [ClusterNode]) {
    for node in nodes {
        if let Some(process) = &mut node.process
            && let Err(error) = process.check_running()
        {
            print_progress(&format!("{}: {error}; its log is {}", node.name, node.log.display()));
            node.process = None;
        }
    }
}
