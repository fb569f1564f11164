//! Servers beside Throng, started the same way with the same accounts: ejabberd and Prosody as Debian packages them.
//!
//! `peers/setup.sh` installs them. Each server has its own port, its data under `target/peers/NAME`, the domain
//! `localhost`, no TLS (SCRAM-SHA-1 and PLAIN over plain TCP), no rate limits, and the modules of its [`ModuleSet`].
//! Each server uses its own store: SQLite, Mnesia, files. Passwords are SCRAM keys of 4096 rounds.
//!
//! Accounts are `u0`, `u1`, …, one password for all, with the mutual ring roster of [`ring_roster`]. After each start
//! one of them logs in and its contacts are counted, so that a server without its rosters is never measured.
//!
//! # Pitfalls
//!
//! Results of a peer are worth as much as its configuration. The opening of each server's file says what is set and
//! why.

pub(crate) mod bosh;
pub(crate) mod command;
pub(crate) mod compare;
mod ejabberd;
pub(crate) mod ejabberd_cluster;
mod ejabberd_sql;
pub(crate) mod generator;
pub(crate) mod load;
mod login_check;
pub(crate) mod process_tree;
mod prosody;
pub(crate) mod reports;
mod ring_roster;
mod table;
mod throng;
mod tsung;

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::clock::now;
use super::process::{ChildGuard, log_tail};
use super::report::print_progress;

pub(crate) use ejabberd_sql::PeerDatabase;

/// The domain that every server serves.
pub(crate) const DOMAIN: &str = "localhost";

/// Time for a server to answer after its start: ejabberd rebuilds the index of a million contacts first.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// A server to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum PeerServer {
    /// Ours.
    Throng,
    /// ejabberd of Debian.
    Ejabberd,
    /// Prosody of Debian.
    Prosody,
}

impl PeerServer {
    /// The name, also of its folder.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Throng => "throng",
            Self::Ejabberd => "ejabberd",
            Self::Prosody => "prosody",
        }
    }

    /// The default port: a server can run with several module sets at the same time.
    fn port(self, form: ModuleSet) -> u16 {
        let first = match self {
            Self::Throng => 5622,
            Self::Ejabberd => 5322,
            Self::Prosody => 5422,
        };
        first + form as u16
    }
}

/// Which modules a server runs with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum ModuleSet {
    /// Roster, presence, messages, offline messages, disco, ping, time and version; Throng: its defaults.
    Usual,
    /// All modules that Debian's packages enable; Throng: every module.
    Stock,
    /// Roster, presence and messages, with disco and ping; nothing is stored for offline users. Not for Throng.
    Lean,
}

impl ModuleSet {
    /// Suffix of the server's name, also of its folder.
    fn suffix(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Stock => "-stock",
            Self::Lean => "-lean",
        }
    }
}

/// How a server stores passwords.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum PasswordStorage {
    /// As keys of SCRAM-SHA-1: PLAIN costs the server a key derivation.
    Scram,
    /// Readable: PLAIN is a comparison. For measuring generators; Throng does not support it.
    Plain,
    /// Readable, and followed by the number of the account, as Tsung sends it.
    Numbered,
}

/// Rooms of a server (XEP-0045), at `conference.localhost`, without limits of occupants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum RoomPresence {
    /// Occupants receive the presence of everybody in the room.
    Standard,
    /// Occupants receive their own presence only.
    Reduced,
}

/// Options of a server to start.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PeerOptions {
    /// Accounts, numbered from 0.
    #[arg(long, default_value_t = 1000)]
    pub(crate) accounts: usize,
    /// Contacts of each account: its nearest neighbours, mutual.
    #[arg(long, default_value_t = 0)]
    pub(crate) roster: usize,
    /// The port on 127.0.0.1; each server has its own by default.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Accounts are named by this and a number from 0.
    #[arg(long, default_value = "u")]
    pub(crate) prefix: String,
    /// The password of all accounts.
    #[arg(long, default_value = "secret")]
    pub(crate) password: String,
    /// The modules.
    #[arg(long, value_enum, default_value_t = ModuleSet::Usual)]
    pub(crate) form: ModuleSet,
    /// How the server stores passwords.
    #[arg(long, value_enum, default_value_t = PasswordStorage::Scram)]
    pub(crate) passwords: PasswordStorage,
    /// Throng's program; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    pub(crate) server: Option<PathBuf>,
    /// Prosody only: the incremental collector, its default, instead of the generational one: less memory, more CPU.
    #[arg(long)]
    pub(crate) incremental: bool,
    /// Enable BOSH (/http-bind) and WebSocket (/xmpp-websocket) too, on a port 1000 above.
    #[arg(long)]
    pub(crate) web: bool,
    /// Enable rooms, with the presence of all or of nobody else.
    #[arg(long, value_enum)]
    pub(crate) rooms: Option<RoomPresence>,
    /// Enable PubSub at `pubsub.localhost`, without limits of rates.
    #[arg(long)]
    pub(crate) nodes: bool,
    /// Offer STARTTLS; Throng only.
    #[arg(long)]
    pub(crate) offer_tls: bool,
    /// ejabberd only: an empty database for its tables, instead of Mnesia.
    #[arg(skip)]
    pub(crate) database: Option<PeerDatabase>,
}

impl PeerOptions {
    /// `accounts` accounts `u0`, `u1`, … with `roster` contacts each, and the defaults of the flags.
    pub(crate) fn new(accounts: usize, roster: usize) -> Self {
        Self {
            accounts,
            roster,
            port: None,
            prefix: "u".into(),
            password: "secret".into(),
            form: ModuleSet::Usual,
            passwords: PasswordStorage::Scram,
            server: None,
            incremental: false,
            web: false,
            rooms: None,
            nodes: false,
            offer_tls: false,
            database: None,
        }
    }

    fn user(&self, number: usize) -> String {
        format!("{}{number}", self.prefix)
    }

    fn secret(&self, number: usize) -> String {
        match self.passwords {
            PasswordStorage::Numbered => format!("{}{number}", self.password),
            PasswordStorage::Scram | PasswordStorage::Plain => self.password.clone(),
        }
    }

    fn check(&self) -> Result<()> {
        ensure!(self.accounts > 0, "--accounts must be at least 1");
        ensure!(self.roster < self.accounts, "--roster {} needs more than {0} accounts", self.roster);
        // They are written unescaped into files of Lua and Erlang.
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        ensure!(plain(&self.prefix), "--prefix must be letters and digits");
        ensure!(self.prefix.bytes().all(|b| !b.is_ascii_uppercase()), "--prefix must be lower case");
        ensure!(plain(&self.password), "--password must be letters and digits");
        Ok(())
    }
}

/// Distance from a server's XMPP port to its HTTP port.
const WEB_PORT_OFFSET: u16 = 1000;

/// Address of BOSH and WebSocket for an address of streams.
fn web_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port() + WEB_PORT_OFFSET)
}

/// A running server with its accounts. It ends in order with this value.
pub(crate) struct RunningPeer {
    child: ChildGuard,
    name: String,
    address: SocketAddr,
    log: PathBuf,
}

impl RunningPeer {
    /// Address for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of its HTTP, if enabled.
    pub(crate) fn web(&self) -> SocketAddr {
        web_address(self.address)
    }

    /// The main process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// All processes of the server, the main one first.
    pub(crate) fn pids(&self) -> Vec<u32> {
        process_tree::pids(self.child.id())
    }

    /// Fails when the server has ended, with the end of its log.
    pub(crate) fn check(&mut self) -> Result<()> {
        let log = &self.log;
        self.child.check_running().with_context(|| format!("{}; its log ends:\n{}", self.name, log_tail(log)))
    }

    /// Ends the server immediately (SIGKILL): with thousands of sessions an orderly end takes long, and its data are
    /// not used again.
    pub(crate) fn kill(self) {
        self.child.kill();
    }
}

/// Starts a server with its accounts and waits until one of them can log in.
pub(crate) fn start_peer(peer: PeerServer, wanted: &PeerOptions) -> Result<RunningPeer> {
    wanted.check()?;
    raise_file_limit();
    let address = SocketAddr::from(([127, 0, 0, 1], wanted.port.unwrap_or(peer.port(wanted.form))));
    let name = format!("{}{}", peer.name(), wanted.form.suffix());
    let bound = TcpListener::bind(address);
    drop(bound.with_context(|| format!("{address} is not free; {name} must listen there"))?);
    let folder = peer_folder(&name)?;
    let started = now();
    let log = folder.join("start.log");
    let command = match peer {
        PeerServer::Throng => throng::prepare(wanted, &folder, address)?,
        PeerServer::Ejabberd => ejabberd::prepare(wanted, &folder, address)?,
        PeerServer::Prosody => prosody::prepare(wanted, &folder, address)?,
    };
    let prepared = started.elapsed();
    let mut child = ChildGuard::start(&command, &log)?;
    let waiting = now();
    while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
        let ended = child.check_running().err().map(|error| error.to_string());
        if ended.is_some() || waiting.elapsed() > START_TIMEOUT {
            let why = ended.unwrap_or_else(|| format!("it does not listen on {address}"));
            bail!("{name} did not start: {why}; its log ends:\n{}", log_tail(&log));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let number = wanted.accounts / 2;
    let expected = ring_roster::neighbours(number, wanted.accounts, wanted.roster).len();
    let contacts = login_check::contacts(address, DOMAIN, &wanted.user(number), &wanted.secret(number))
        .with_context(|| format!("{name} started but does not work"))?;
    ensure!(
        contacts == expected,
        "{name} has {contacts} contacts of {}, not {expected}",
        wanted.user(number)
    );
    print_progress(&format!(
        "{name}: {} accounts with {expected} contacts each on {address}; data in {:.1} s, start in {:.1} s",
        wanted.accounts,
        prepared.as_secs_f64(),
        waiting.elapsed().as_secs_f64()
    ));
    Ok(RunningPeer { child, name, address, log })
}

/// The folder of a server or tool: `target/peers/NAME`, absolute.
fn peer_folder(name: &str) -> Result<PathBuf> {
    let root = crate::tidy::root();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = target.join("peers").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be created", folder.display()))?;
    Ok(folder.canonicalize()?)
}

/// A file beside `peers/setup.sh`.
fn peers_file(name: &str) -> PathBuf {
    crate::tidy::root().join("crates/xtask/peers").join(name)
}

/// Empties a folder, or creates it.
fn empty_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("{} cannot be emptied", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be created", folder.display()))
}

/// Runs a command to its end with its output in `log`.
fn run_to_end(command: &Command, log: &Path, what: &str) -> Result<()> {
    let status = ChildGuard::start(command, log)?.wait()?;
    ensure!(status.success(), "{what} failed with {status}: {}", log_tail(log));
    Ok(())
}

/// Fails when a program is not installed.
fn check_installed(program: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ensure!(
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file()),
        "{program} is not installed: run crates/xtask/peers/setup.sh"
    );
    Ok(())
}

/// Servers inherit the limit of open files; the soft limit is often 1024 and the hard one much higher.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, excess connections fail instead.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
