//! Servers that a bench measures: a new `throng` with a fresh database, a running XMPP server, or the relay.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::clients::{ClientOptions, ClientSecurity};
use super::clock::now;
use super::process::{BenchFolder, ChildGuard, CpuMeter, log_tail, resident_bytes};
use super::report::print_progress;

/// The flags of every bench.
#[derive(clap::Args, Clone)]
pub(crate) struct BenchOptions {
    /// The server's program; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH", conflicts_with = "target")]
    server: Option<PathBuf>,
    /// The program whose `throng load` makes the load. Default: that of the server, or with --target one that is built.
    #[arg(long, value_name = "PATH")]
    generator: Option<PathBuf>,
    /// Measure a server that runs already, HOST:PORT; its accounts must exist. Needs --pid.
    #[arg(long, value_name = "HOST:PORT", requires = "pid")]
    pub(crate) target: Option<SocketAddr>,
    /// The process whose CPU and memory count.
    #[arg(long, requires = "target")]
    pid: Option<u32>,
    /// The domain of the accounts.
    #[arg(long, default_value = "localhost")]
    domain: String,
    /// Accounts are named by this and a number from 0.
    #[arg(long, default_value = "u")]
    prefix: String,
    /// The password of all accounts.
    #[arg(long, default_value = "secret")]
    password: String,
    /// TOML to append to the configuration that the bench writes.
    #[arg(long, value_name = "FILE")]
    config_extra: Option<PathBuf>,
    /// Keep the data folder with configuration, database and log.
    #[arg(long)]
    keep: bool,
    /// Short runs: to see that it works, not to judge.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds; the metrics are medians over them.
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// Whole seconds of each measured interval.
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
}

impl BenchOptions {
    /// The number of rounds, `usual` unless a flag says otherwise.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { usual }).max(1)
    }

    /// The length of an interval in seconds, `usual` unless a flag says otherwise.
    pub(crate) fn interval(&self, usual: u64) -> u64 {
        self.seconds.unwrap_or(if self.quick { usual.div_ceil(4) } else { usual }).max(1)
    }

    /// Clients of a server that listens on `address`.
    pub(crate) fn clients(
        &self,
        pid: u32,
        address: SocketAddr,
        security: ClientSecurity,
    ) -> Result<ClientOptions> {
        let generator = match (&self.generator, &self.server) {
            (Some(path), _) | (None, Some(path)) => absolute(path)?,
            (None, None) => super::build_server()?,
        };
        Ok(ClientOptions {
            generator,
            address,
            pid,
            database_pid: None,
            domain: self.domain.clone(),
            prefix: self.prefix.clone(),
            password: self.password.clone(),
            security,
            relay: false,
        })
    }
}

/// Accounts and listener that a bench needs.
pub(crate) struct ServerRequirements {
    /// Accounts, numbered from 0.
    pub(crate) accounts: usize,
    /// Contacts of each account.
    pub(crate) contacts_per_account: usize,
    /// How clients connect.
    pub(crate) security: ClientSecurity,
}

/// Storage of a server that is started: a new SQLite database, unless one is given.
#[derive(Default)]
pub(crate) struct NodeStorage {
    /// URL of an empty database.
    pub(crate) url: Option<String>,
    /// Process of its server.
    pub(crate) pid: Option<u32>,
    /// TOML to append to the configuration.
    pub(crate) configuration: String,
}

/// Configuration and accounts of a server, before its start.
pub(crate) struct PreparedServer {
    program: PathBuf,
    folder: BenchFolder,
    config: PathBuf,
    address: SocketAddr,
    database_pid: Option<u32>,
    /// Time of `throng account bulk`.
    pub(crate) filling: Duration,
}

impl PreparedServer {
    /// Creates the accounts.
    pub(crate) fn new(
        options: &BenchOptions,
        need: &ServerRequirements,
        storage: &NodeStorage,
    ) -> Result<Self> {
        let program = server_program(options)?;
        let folder = BenchFolder::new(options.keep)?;
        let address = free_address()?;
        let config = write_configuration(options, need, storage, folder.path(), address)?;
        let started = now();
        let mut bulk = Command::new(&program);
        let count = need.accounts.to_string();
        bulk.args(["account", "bulk", "--create", "--domain", &options.domain, "--prefix", &options.prefix])
            .args(["--from", "0", "--count", &count, "--password", &options.password])
            .args(["--roster", &format!("ring:{}", need.contacts_per_account), "--config"])
            .arg(&config);
        let log = folder.path().join("bulk.log");
        if !ChildGuard::start(&bulk, &log)?.wait()?.success() {
            bail!("`account bulk` failed: {}", log_tail(&log));
        }
        let filling = started.elapsed();
        print_progress(&format!(
            "{} accounts with {} contacts each in {:.1} s",
            need.accounts,
            need.contacts_per_account,
            filling.as_secs_f64()
        ));
        Ok(Self { program, folder, config, address, database_pid: storage.pid, filling })
    }
}

/// A server that is measured.
pub(crate) struct ServerUnderTest {
    /// Declared first: the process must end before its folder is removed.
    child: Option<ChildGuard>,
    _folder: Option<BenchFolder>,
    /// Program and configuration of a server that was started.
    started: Option<(PathBuf, PathBuf)>,
    /// Options of its clients.
    pub(crate) clients: ClientOptions,
}

impl ServerUnderTest {
    /// Starts Throng with fresh accounts, or takes the server that the flags name.
    pub(crate) fn server(options: &BenchOptions, need: &ServerRequirements) -> Result<Self> {
        if let (Some(address), Some(pid)) = (options.target, options.pid) {
            return Ok(Self::running(options.clients(pid, address, need.security)?));
        }
        Self::start(options, need, PreparedServer::new(options, need, &NodeStorage::default())?)
    }

    /// Starts Throng on its accounts.
    pub(crate) fn start(
        options: &BenchOptions,
        need: &ServerRequirements,
        prepared: PreparedServer,
    ) -> Result<Self> {
        let PreparedServer { program, folder, config, address, database_pid, .. } = prepared;
        let log = folder.path().join("server.log");
        let mut serve = Command::new(&program);
        serve.arg("serve").arg("--config").arg(&config);
        let child = ChildGuard::start(&serve, &log)?;
        let mut clients = options.clients(child.id(), address, need.security)?;
        clients.database_pid = database_pid;
        let started = Some((program, config));
        Self { child: Some(child), _folder: Some(folder), started, clients }.wait_until_listening(&log)
    }

    /// A server that runs already and ends without this value.
    pub(crate) fn running(clients: ClientOptions) -> Self {
        Self { child: None, _folder: None, started: None, clients }
    }

    /// Starts the naive relay.
    pub(crate) fn relay(options: &BenchOptions) -> Result<Self> {
        Self::relay_with(options, &[])
    }

    /// Starts the relay that gathers its writes.
    pub(crate) fn gathering_relay(options: &BenchOptions) -> Result<Self> {
        Self::relay_with(options, &["--gather"])
    }

    fn relay_with(options: &BenchOptions, flags: &[&str]) -> Result<Self> {
        let folder = BenchFolder::new(false)?;
        let address = free_address()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["relay", "--listen", &address.to_string()]).args(flags);
        let log = folder.path().join("relay.log");
        let child = ChildGuard::start(&command, &log)?;
        let mut clients = options.clients(child.id(), address, ClientSecurity::None)?;
        clients.relay = true;
        Self { child: Some(child), _folder: Some(folder), started: None, clients }.wait_until_listening(&log)
    }

    fn wait_until_listening(mut self, log: &Path) -> Result<Self> {
        let started = now();
        loop {
            if TcpStream::connect_timeout(&self.clients.address, Duration::from_secs(1)).is_ok() {
                return Ok(self);
            }
            let ended = self.child.as_mut().map_or(Ok(()), ChildGuard::check_running);
            if ended.is_err() || started.elapsed() > Duration::from_secs(60) {
                let why = ended.err().map_or_else(|| "it does not listen".into(), |error| error.to_string());
                bail!(
                    "the server on {} did not start: {why}; its log ends:\n{}",
                    self.clients.address,
                    log_tail(log)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `throng command NAME` for a server that was started.
    pub(crate) fn command(&self, name: &str) -> Result<Command> {
        let (program, config) =
            self.started.as_ref().context("only a server that the bench starts has commands")?;
        let mut command = Command::new(program);
        command.args(["command", name, "--config"]).arg(config);
        Ok(command)
    }

    /// Starts to watch the server's CPU.
    pub(crate) fn cpu(&self) -> Result<CpuMeter> {
        CpuMeter::watch(self.clients.pid)
    }

    /// The server's resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        resident_bytes(self.clients.pid)
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("there is no program {}", path.display()))
}

/// The server's program: the one given, or one that is built.
pub(crate) fn server_program(options: &BenchOptions) -> Result<PathBuf> {
    options.server.as_deref().map_or_else(super::build_server, absolute)
}

/// A free port of 127.0.0.1 below the ephemeral range, so that it is no client's source port.
fn free_address() -> Result<SocketAddr> {
    (15_222..16_222)
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
        .find(|address| TcpListener::bind(address).is_ok())
        .context("no port from 15222 to 16221 is free")
}

fn write_configuration(
    options: &BenchOptions,
    need: &ServerRequirements,
    storage: &NodeStorage,
    folder: &Path,
    address: SocketAddr,
) -> Result<PathBuf> {
    let (kind, tls) = match need.security {
        ClientSecurity::None => ("c2s", "tls = \"off\"\nallow_plain_without_tls = true\n"),
        ClientSecurity::Starttls => ("c2s", "tls = \"required\"\n"),
        ClientSecurity::Direct => ("c2s-tls", ""),
    };
    let url = storage.url.clone().unwrap_or_else(|| format!("sqlite:{}/throng.db", folder.display()));
    let mut text = format!(
        "hosts = [\"{domain}\"]\ndata_dir = \"{folder}\"\n\n[storage]\nurl = \"{url}\"\n\n\
         [[listen]]\nkind = \"{kind}\"\naddress = \"{address}\"\n{tls}",
        domain = options.domain,
        folder = folder.display(),
    );
    text.push_str(&storage.configuration);
    if let Some(extra) = &options.config_extra {
        text.push('\n');
        text.push_str(&fs::read_to_string(extra).with_context(|| extra.display().to_string())?);
    }
    let path = folder.join("throng.toml");
    fs::write(&path, text)?;
    Ok(path)
}
