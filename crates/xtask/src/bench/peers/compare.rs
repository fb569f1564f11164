//! `cargo xtask bench peers`: Throng with every module on beside ejabberd and Prosody, each in two forms, all in one run and through the same clients.
//!
//! The forms are **stock** (the modules that Debian's package switches on) and **lean** (roster, presence and messages, disco and ping); how each
//! is set for load stands at the head of its file. All over plain TCP on loopback, passwords as SCRAM-SHA-1 keys of 4096 rounds.
//!
//! * **Memory** of an idle session (bound, roster fetched, available) without contacts and with 50 of them online: the slope of the resident
//!   memory of all processes of a server between a quarter of the sessions and all, each server alone and fresh.
//! * **CPU of a login** with SCRAM-SHA-1, from connect to the roster's result, 64 at a time.
//! * **CPU of a chat message**: 100 pairs with 8 in flight each, as fast as it goes; and 1 000 users with one message a second each.
//! * **CPU of a presence** delivered to a contact, 16 users with 50 online contacts each changing state at once.
//!
//! For CPU all five servers run beside one another, idle but for the one that is measured, and take turns. CPU is what the kernel counts for all
//! threads of a server's processes (`process.rs`), divided by what the clients got. Nothing is written but the table on standard output and the progress
//! on standard error; data are below `target/peers`.
//!
//! Not measured: TLS, several resources, offline messages, archives, latency. Idle schedulers of Erlang spin before they sleep, and garbage of Erlang
//! and Lua stays resident until it is collected: both are part of what these servers cost, and are left as they are packaged.
//!
//! The trap: a server that is at its limit costs less a message than one that wakes up for each. The steady rate must be far below the limit
//! of each, and the progress tells the share of a core that it took.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::super::clock::now;
use super::super::driver::Driver;
use super::super::logins::LoginBench as Logins;
use super::super::memory::wait_for_stable_memory;
use super::super::negotiate::{Profile, Security};
use super::super::process::CpuMeter;
use super::super::report::{print_progress, print_result};
use super::super::scram::Mechanism;
use super::super::server_under_test::ServerUnderTest;
use super::super::talk::{Chat, Pace};
use super::presence_broadcasts::PresenceBroadcasts;
use super::table::{ComparisonRow, ExpectedFactor, markdown};
use super::{DOMAIN, ModuleSet, PeerOptions, PeerServer, RunningPeer, command, start_peer, throng};

/// Flags of `cargo xtask bench peers`.
#[derive(clap::Args)]
pub(crate) struct ComparisonArgs {
    /// Throng's program; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Sessions at the second reading of memory; a quarter of them at the first.
    #[arg(long, default_value_t = 8_000)]
    sessions: usize,
    /// Measure these only.
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<ComparisonPart>,
    /// Prosody with its default, the incremental collector. Less memory, more CPU.
    #[arg(long)]
    incremental: bool,
    /// Short runs: to see that it works, not to judge.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ComparisonPart {
    Memory,
    Login,
    Message,
    Presence,
}

/// The columns of the table, Throng first.
const SERVERS: [(PeerServer, ModuleSet); 5] = [
    (PeerServer::Throng, ModuleSet::Stock),
    (PeerServer::Ejabberd, ModuleSet::Stock),
    (PeerServer::Ejabberd, ModuleSet::Lean),
    (PeerServer::Prosody, ModuleSet::Stock),
    (PeerServer::Prosody, ModuleSet::Lean),
];
const COLUMNS: usize = SERVERS.len();
const ALL_PEERS: &[usize] = &[1, 2, 3, 4];
const STOCK_PEERS: &[usize] = &[1, 3];

/// What the comparison has to show.
const MEMORY_FACTOR: f64 = 10.0;
const FLOOD_FACTOR: f64 = 10.0;
const STEADY_FACTOR: f64 = 4.0;

/// Contacts of the accounts with contacts.
const CONTACTS_PER_ACCOUNT: usize = 50;
/// Logins at a time.
const CONCURRENT_LOGINS: usize = 64;
/// Pairs and messages in flight of the flood.
const PAIRS: usize = 100;
const IN_FLIGHT: usize = 8;
/// Users of the steady part; each sends one message a second.
const STEADY_USERS: usize = 1_000;
const PASSWORD: &str = "secret";

/// Measures, prints the table and says whether all that is expected is met.
pub(crate) fn run(args: &ComparisonArgs) -> Result<ExitCode> {
    let begun = now();
    command::setup(&["ejabberd", "prosody"])
        .context("ejabberd and Prosody are needed from Debian's packages")?;
    let accounts = if args.quick { args.sessions / 4 } else { args.sessions };
    ensure!(
        accounts >= STEADY_USERS,
        "--sessions {} are too few: at least {STEADY_USERS} are needed",
        args.sessions
    );
    let program = throng::program(args.server.as_deref())?;
    let bench = ComparisonBench { program, accounts, incremental: args.incremental, quick: args.quick };
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    let mut found = ComparisonResults::default();
    if wants(ComparisonPart::Memory) {
        for contacts in [0, CONTACTS_PER_ACCOUNT] {
            found.add(bench.memory(contacts));
        }
    }
    if wants(ComparisonPart::Login) || wants(ComparisonPart::Message) {
        found.with_servers(bench.start_all(0), |found, servers| {
            if wants(ComparisonPart::Login) {
                found.add(bench.logins(servers, 0));
            }
            if wants(ComparisonPart::Message) {
                found.add(bench.flood(servers));
                found.add(bench.steady(servers));
            }
        });
    }
    if wants(ComparisonPart::Login) || wants(ComparisonPart::Presence) {
        found.with_servers(bench.start_all(CONTACTS_PER_ACCOUNT), |found, servers| {
            if wants(ComparisonPart::Login) {
                found.add(bench.logins(servers, CONTACTS_PER_ACCOUNT));
            }
            if wants(ComparisonPart::Presence) {
                found.add(bench.presence(servers));
            }
        });
    }
    let names: Vec<String> = SERVERS.iter().map(|(peer, form)| name(*peer, *form)).collect();
    let (table, misses) = markdown(&names, &found.rows);
    print_result(table.trim_end());
    print_progress(&format!(
        "{:.0} s; {misses} rows are below what is expected",
        begun.elapsed().as_secs_f64()
    ));
    ensure!(found.failures.is_empty(), "{}", found.failures.join("; "));
    Ok(if misses == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was measured, and what could not be: one part must not take the others' figures with it.
#[derive(Default)]
struct ComparisonResults {
    rows: Vec<ComparisonRow>,
    failures: Vec<String>,
}

impl ComparisonResults {
    fn add(&mut self, row: Result<ComparisonRow>) {
        match row {
            Ok(row) => self.rows.push(row),
            Err(error) => self.fail(&error),
        }
    }

    fn with_servers(
        &mut self,
        servers: Result<Vec<StartedServer>>,
        measure: impl FnOnce(&mut Self, &[StartedServer]),
    ) {
        match servers {
            Ok(servers) => {
                measure(self, &servers);
                servers.into_iter().for_each(StartedServer::kill);
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &anyhow::Error) {
        print_progress(&format!("{error:#}"));
        self.failures.push(format!("{error:#}"));
    }
}

fn name(peer: PeerServer, form: ModuleSet) -> String {
    let peer = match peer {
        PeerServer::Throng => return "Throng".to_owned(),
        PeerServer::Ejabberd => "ejabberd",
        PeerServer::Prosody => "Prosody",
    };
    format!("{peer}, {}", if form == ModuleSet::Lean { "lean" } else { "stock" })
}

struct ComparisonBench {
    program: PathBuf,
    accounts: usize,
    incremental: bool,
    quick: bool,
}

/// A server that runs.
struct StartedServer {
    name: String,
    running: RunningPeer,
    target: ServerUnderTest,
}

impl StartedServer {
    fn kill(self) {
        self.running.kill();
    }
}

/// Clients of one server.
struct ConnectedClients<'a> {
    name: &'a str,
    driver: Driver,
    cpu: CpuMeter,
}

impl<'a> ConnectedClients<'a> {
    /// The first `count` accounts, online.
    fn connect(server: &'a StartedServer, count: usize) -> Result<Self> {
        let connect = || -> Result<Driver> {
            let mut driver = server.target.driver()?;
            driver.login(0, count, CONCURRENT_LOGINS)?;
            driver.quiet(Duration::from_millis(500), Duration::from_secs(60))?;
            Ok(driver)
        };
        let driver = connect().with_context(|| format!("clients of {}", server.name))?;
        Ok(Self { name: &server.name, driver, cpu: server.target.cpu()? })
    }
}

impl ComparisonBench {
    fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    fn seconds(&self, usual: f64) -> Duration {
        Duration::from_secs_f64(if self.quick { usual / 3.0 } else { usual })
    }

    fn start(&self, peer: PeerServer, form: ModuleSet, contacts: usize) -> Result<StartedServer> {
        let wanted = PeerOptions {
            form,
            incremental: self.incremental,
            server: Some(self.program.clone()),
            ..PeerOptions::new(self.accounts, contacts)
        };
        let running = start_peer(peer, &wanted)?;
        let profile = Profile {
            domain: DOMAIN.to_owned(),
            prefix: wanted.prefix,
            mechanism: Mechanism::Sha1,
            security: Security::None,
            available: true,
            relay: false,
            managed: false,
        };
        let target = ServerUnderTest::running(running.id(), running.address(), profile, PASSWORD);
        Ok(StartedServer { name: name(peer, form), running, target })
    }

    fn start_all(&self, contacts: usize) -> Result<Vec<StartedServer>> {
        SERVERS.iter().map(|(peer, form)| self.start(*peer, *form, contacts)).collect()
    }

    /// Bytes of resident memory that a session adds.
    fn memory(&self, contacts: usize) -> Result<ComparisonRow> {
        let expected = ExpectedFactor { min_factor: MEMORY_FACTOR, columns: ALL_PEERS, columns_name: "all" };
        let what = format!("memory of an idle session, {contacts} contacts, B");
        let mut row = ComparisonRow::new(what, COLUMNS, Some(expected));
        for (column, (peer, form)) in SERVERS.iter().enumerate() {
            let server = self.start(*peer, *form, contacts)?;
            let slope = self.slope(&server).with_context(|| format!("memory of {}", server.name))?;
            print_progress(&format!("{}, {contacts} contacts: {slope:.0} bytes a session", server.name));
            row.push(column, slope);
            server.kill();
        }
        Ok(row)
    }

    fn slope(&self, server: &StartedServer) -> Result<f64> {
        let mut driver = server.target.driver()?;
        let few = self.accounts / 4;
        let empty = wait_for_stable_memory(&server.target, &mut driver)?;
        driver.login(0, few, CONCURRENT_LOGINS)?;
        let less = wait_for_stable_memory(&server.target, &mut driver)?;
        driver.login(few as u64, self.accounts - few, CONCURRENT_LOGINS)?;
        let more = wait_for_stable_memory(&server.target, &mut driver)?;
        print_progress(&format!(
            "{}: {:.1} MB empty, {:.1} MB with {few}, {:.1} MB with {} sessions",
            server.name,
            empty / 1e6,
            less / 1e6,
            more / 1e6,
            self.accounts
        ));
        Ok((more - less) / (self.accounts - few) as f64)
    }

    /// Milliseconds of CPU a login.
    fn logins(&self, servers: &[StartedServer], contacts: usize) -> Result<ComparisonRow> {
        let mut row = ComparisonRow::new(format!("CPU of a login, {contacts} contacts, ms"), COLUMNS, None);
        let size = if self.quick { 300 } else { 1_000 };
        let mut waves = Vec::new();
        for server in servers {
            let mut logins = Logins::new(&server.target, self.accounts)?;
            // Caches, and the clients' derived keys.
            logins.wave(size / 2, CONCURRENT_LOGINS).with_context(|| format!("logins of {}", server.name))?;
            waves.push((server, logins));
        }
        for round in 0..self.rounds() {
            for (column, (server, logins)) in waves.iter_mut().enumerate() {
                let wave = logins
                    .wave(size, CONCURRENT_LOGINS)
                    .with_context(|| format!("logins of {}", server.name))?;
                let (cost, rate) = (wave.cpu_ms_per_login, wave.logins_per_second);
                print_progress(&format!(
                    "round {round}, {}: {cost:.3} ms a login, {rate:.0} a second",
                    server.name
                ));
                row.push(column, cost);
            }
        }
        Ok(row)
    }

    /// Microseconds of CPU a message, as fast as they go.
    fn flood(&self, servers: &[StartedServer]) -> Result<ComparisonRow> {
        let expected =
            ExpectedFactor { min_factor: FLOOD_FACTOR, columns: STOCK_PEERS, columns_name: "stock" };
        let mut row = ComparisonRow::new("CPU of a chat message, flood, µs", COLUMNS, Some(expected));
        let mut sides = sides(servers, 2 * PAIRS)?;
        let mut chats: Vec<Chat> = sides.iter().map(|side| Chat::new(&side.driver)).collect();
        for round in 0..self.rounds() {
            for (column, (side, chat)) in sides.iter_mut().zip(&mut chats).enumerate() {
                let sample = chat
                    .closed(&mut side.driver, &mut side.cpu, IN_FLIGHT, self.seconds(2.0))
                    .with_context(|| format!("flood of {}", side.name))?;
                let (cost, rate) = (sample.cpu, sample.rate);
                print_progress(&format!(
                    "round {round}, {}: {cost:.2} us a message, {rate:.0} a second",
                    side.name
                ));
                row.push(column, cost);
            }
        }
        close(sides)?;
        Ok(row)
    }

    /// Microseconds of CPU a message at a rate that all can keep.
    fn steady(&self, servers: &[StartedServer]) -> Result<ComparisonRow> {
        let expected =
            ExpectedFactor { min_factor: STEADY_FACTOR, columns: STOCK_PEERS, columns_name: "stock" };
        let what = format!("CPU of a chat message, {STEADY_USERS} a second of {STEADY_USERS} users, µs");
        let mut row = ComparisonRow::new(what, COLUMNS, Some(expected));
        let mut sides = sides(servers, STEADY_USERS)?;
        let mut chats: Vec<Chat> = sides.iter().map(|side| Chat::new(&side.driver)).collect();
        let pace = Pace { rate: STEADY_USERS as f64, both: true, burst: 1 };
        // Wake-ups differ more from one moment to the next than anything else that is measured here.
        let rounds = if self.quick { 1 } else { 5 };
        for round in 0..rounds {
            for (column, (side, chat)) in sides.iter_mut().zip(&mut chats).enumerate() {
                let warm = Duration::from_secs(1);
                let sample = chat
                    .open(&mut side.driver, &mut side.cpu, pace, warm, self.seconds(4.0))
                    .with_context(|| format!("steady rate of {}", side.name))?;
                let (cost, share) = (sample.cpu, sample.cpu * sample.rate / 1e4);
                print_progress(&format!(
                    "round {round}, {}: {cost:.1} us a message, {share:.1} % of a core",
                    side.name
                ));
                row.push(column, cost);
            }
        }
        close(sides)?;
        Ok(row)
    }

    /// Microseconds of CPU a presence that a contact gets.
    fn presence(&self, servers: &[StartedServer]) -> Result<ComparisonRow> {
        let mut row = ComparisonRow::new(
            format!("CPU of a presence to one of {CONTACTS_PER_ACCOUNT} contacts, µs"),
            COLUMNS,
            None,
        );
        let mut sides = sides(servers, PresenceBroadcasts::connections(CONTACTS_PER_ACCOUNT))?;
        let mut loads: Vec<PresenceBroadcasts> =
            sides.iter().map(|_| PresenceBroadcasts::new(CONTACTS_PER_ACCOUNT)).collect();
        for round in 0..self.rounds() {
            for (column, (side, load)) in sides.iter_mut().zip(&mut loads).enumerate() {
                let cost = load
                    .run(&mut side.driver, &mut side.cpu, self.seconds(2.0))
                    .with_context(|| format!("presence of {}", side.name))?;
                print_progress(&format!("round {round}, {}: {cost:.2} us a presence", side.name));
                row.push(column, cost);
            }
        }
        close(sides)?;
        Ok(row)
    }
}

fn sides(servers: &[StartedServer], count: usize) -> Result<Vec<ConnectedClients<'_>>> {
    servers.iter().map(|server| ConnectedClients::connect(server, count)).collect()
}

fn close(sides: Vec<ConnectedClients<'_>>) -> Result<()> {
    for mut side in sides {
        side.driver.close_all().with_context(|| format!("clients of {}", side.name))?;
    }
    Ok(())
}
