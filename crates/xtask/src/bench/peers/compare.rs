//! `cargo xtask bench peers`: Throng with every module on beside ejabberd and Prosody, each with two sets of modules,
//! in one run and with the same clients.
//!
//! The sets are **stock** (the modules that Debian's package switches on) and **lean** (roster, presence and messages,
//! disco and ping); how each is configured for load is in the opening of its file. All over plain TCP on loopback,
//! passwords as SCRAM-SHA-1 keys of 4096 rounds.
//!
//! * **Memory** of an idle session (bound, roster fetched, available) without contacts and with 50 of them online: the
//!   slope of the resident memory of all processes of a server between a quarter of the sessions and all, each server
//!   alone and fresh.
//! * **CPU of a login** with SCRAM-SHA-1, from connect to the roster's result, 64 at a time.
//! * **CPU of a chat message**: 100 pairs with 8 in flight each, as fast as it goes; and 1 000 users with one message a
//!   second each.
//! * **CPU of a presence** delivered to a contact, 16 users with 50 online contacts each changing state at once.
//!
//! For CPU all five servers run beside one another, idle but for the one that is measured, and take turns. CPU is that
//! of all threads of a server's processes (`process.rs`), divided by what the clients received. Only the table is
//! written to standard output, and progress to standard error; data are below `target/peers`.
//!
//! Not measured: TLS, several resources, offline messages, archives, latency. Idle schedulers of Erlang spin before
//! they sleep, and garbage of Erlang and Lua stays resident until it is collected: both are part of what these servers
//! cost, and are left as they are packaged.
//!
//! # Pitfalls
//!
//! A server at its limit costs less per message than one that wakes up for each. The steady rate must be far below the
//! limit of each server; the progress shows the share of a core that it took.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use super::super::clients::{ClientOptions, ClientSecurity};
use super::super::clock::now;
use super::super::logins::{LoginBench, LoginMechanism};
use super::super::memory::IdleSessions;
use super::super::presence::PresenceChanges;
use super::super::report::{print_progress, print_result};
use super::super::route::PairChat;
use super::super::server_under_test::ServerUnderTest;
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
    /// Prosody with its default, the incremental collector: less memory, more CPU.
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

/// Factors that the comparison must show.
const MEMORY_FACTOR: f64 = 10.0;
const FLOOD_FACTOR: f64 = 10.0;
const STEADY_FACTOR: f64 = 4.0;

/// Contacts of the accounts that have any.
const CONTACTS_PER_ACCOUNT: usize = 50;
/// Logins at a time.
const CONCURRENT_LOGINS: usize = 64;
/// Pairs and messages in flight of the flood.
const PAIRS: usize = 100;
const IN_FLIGHT: usize = 8;
/// Users of the steady part; each sends one message per second.
const STEADY_USERS: usize = 1_000;
/// Users that change state at a time.
const PRESENCE_SENDERS: usize = 16;
const PASSWORD: &str = "secret";

/// Measures, prints the table and returns whether all expectations are met.
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
        "{:.0} s; {misses} rows are below their expectation",
        begun.elapsed().as_secs_f64()
    ));
    ensure!(found.failures.is_empty(), "{}", found.failures.join("; "));
    Ok(if misses == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Results, and what could not be measured: one part must not lose the results of the others.
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

/// A running server.
struct StartedServer {
    name: String,
    running: RunningPeer,
    measured: ServerUnderTest,
}

impl StartedServer {
    fn kill(self) {
        self.running.kill();
    }
}

impl ComparisonBench {
    fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    fn seconds(&self, usual: u64) -> u64 {
        if self.quick { usual.div_ceil(3) } else { usual }
    }

    fn start(&self, peer: PeerServer, form: ModuleSet, contacts: usize) -> Result<StartedServer> {
        let wanted = PeerOptions {
            form,
            incremental: self.incremental,
            server: Some(self.program.clone()),
            ..PeerOptions::new(self.accounts, contacts)
        };
        let running = start_peer(peer, &wanted)?;
        let clients = ClientOptions {
            generator: self.program.clone(),
            address: running.address(),
            pid: running.id(),
            database_pid: None,
            domain: DOMAIN.to_owned(),
            prefix: wanted.prefix,
            password: PASSWORD.to_owned(),
            security: ClientSecurity::None,
            relay: false,
        };
        Ok(StartedServer { name: name(peer, form), running, measured: ServerUnderTest::running(clients) })
    }

    fn start_all(&self, contacts: usize) -> Result<Vec<StartedServer>> {
        SERVERS.iter().map(|(peer, form)| self.start(*peer, *form, contacts)).collect()
    }

    /// Bytes of resident memory per session.
    fn memory(&self, contacts: usize) -> Result<ComparisonRow> {
        let expected = ExpectedFactor { min_factor: MEMORY_FACTOR, columns: ALL_PEERS, columns_name: "all" };
        let title = format!("memory of an idle session, {contacts} contacts, B");
        let mut row = ComparisonRow::new(title, COLUMNS, Some(expected));
        for (column, (peer, form)) in SERVERS.iter().enumerate() {
            let server = self.start(*peer, *form, contacts)?;
            let slope = self.slope(&server).with_context(|| format!("memory of {}", server.name))?;
            print_progress(&format!("{}, {contacts} contacts: {slope:.0} bytes per session", server.name));
            row.push(column, slope);
            server.kill();
        }
        Ok(row)
    }

    fn slope(&self, server: &StartedServer) -> Result<f64> {
        let mut idle = IdleSessions::new(&server.measured, LoginMechanism::ScramSha1);
        let few = self.accounts / 4;
        let empty = idle.wait_for_stable_memory()?;
        let less = idle.add(few)?;
        let more = idle.add(self.accounts - few)?;
        print_progress(&format!(
            "{}: {:.1} MB empty, {:.1} MB with {few}, {:.1} MB with {} sessions",
            server.name,
            empty / 1e6,
            less / 1e6,
            more / 1e6,
            self.accounts
        ));
        idle.close()?;
        Ok((more - less) / (self.accounts - few) as f64)
    }

    /// Milliseconds of CPU per login.
    fn logins(&self, servers: &[StartedServer], contacts: usize) -> Result<ComparisonRow> {
        let mut row = ComparisonRow::new(format!("CPU of a login, {contacts} contacts, ms"), COLUMNS, None);
        let size = if self.quick { 300 } else { 1_000 };
        let wave = |logins: &mut LoginBench<'_>, size, server: &StartedServer| {
            let wave = logins.wave(LoginMechanism::ScramSha1, size, CONCURRENT_LOGINS);
            wave.with_context(|| format!("logins of {}", server.name))
        };
        let mut benches = Vec::new();
        for server in servers {
            let mut logins = LoginBench::new(&server.measured.clients, self.accounts);
            // Fills caches.
            wave(&mut logins, size / 2, server)?;
            benches.push((server, logins));
        }
        for round in 0..self.rounds() {
            for (column, (server, logins)) in benches.iter_mut().enumerate() {
                let wave = wave(logins, size, server)?;
                let (cost, rate) = (wave.cpu_ms_per_login, wave.logins_per_second);
                print_progress(&format!(
                    "round {round}, {}: {cost:.3} ms per login, {rate:.0} a second",
                    server.name
                ));
                row.push(column, cost);
            }
        }
        Ok(row)
    }

    /// Microseconds of CPU per message, as fast as they go.
    fn flood(&self, servers: &[StartedServer]) -> Result<ComparisonRow> {
        let expected =
            ExpectedFactor { min_factor: FLOOD_FACTOR, columns: STOCK_PEERS, columns_name: "stock" };
        let mut row = ComparisonRow::new("CPU of a chat message, flood, µs", COLUMNS, Some(expected));
        for round in 0..self.rounds() {
            for (column, server) in servers.iter().enumerate() {
                let clients = &server.measured.clients;
                let chat = PairChat { clients, connections: 2 * PAIRS, seconds: self.seconds(2) };
                let sample = chat.closed(IN_FLIGHT).with_context(|| format!("flood of {}", server.name))?;
                let (cost, rate) = (sample.cpu_us, sample.rate);
                print_progress(&format!(
                    "round {round}, {}: {cost:.2} us per message, {rate:.0} a second",
                    server.name
                ));
                row.push(column, cost);
            }
        }
        Ok(row)
    }

    /// Microseconds of CPU per message at a rate that all can keep.
    fn steady(&self, servers: &[StartedServer]) -> Result<ComparisonRow> {
        let expected =
            ExpectedFactor { min_factor: STEADY_FACTOR, columns: STOCK_PEERS, columns_name: "stock" };
        let title = format!("CPU of a chat message, {STEADY_USERS} a second of {STEADY_USERS} users, µs");
        let mut row = ComparisonRow::new(title, COLUMNS, Some(expected));
        // Wake-ups differ more from one moment to the next than anything else that is measured here.
        let rounds = if self.quick { 1 } else { 5 };
        for round in 0..rounds {
            for (column, server) in servers.iter().enumerate() {
                let clients = &server.measured.clients;
                let chat = PairChat { clients, connections: STEADY_USERS, seconds: self.seconds(4) };
                let sample = chat
                    .open(STEADY_USERS as f64, 1)
                    .with_context(|| format!("steady rate of {}", server.name))?;
                let (cost, share) = (sample.cpu_us, sample.cpu_us * sample.rate / 1e4);
                print_progress(&format!(
                    "round {round}, {}: {cost:.1} us per message, {share:.1} % of a core",
                    server.name
                ));
                row.push(column, cost);
            }
        }
        Ok(row)
    }

    /// Microseconds of CPU per presence delivered to a contact.
    fn presence(&self, servers: &[StartedServer]) -> Result<ComparisonRow> {
        let title = format!("CPU of a presence to one of {CONTACTS_PER_ACCOUNT} contacts, µs");
        let mut row = ComparisonRow::new(title, COLUMNS, None);
        for round in 0..self.rounds() {
            for (column, server) in servers.iter().enumerate() {
                // Several senders at once, so that the server is measured at work and not at waking up.
                let changes = PresenceChanges {
                    clients: &server.measured.clients,
                    before: CONTACTS_PER_ACCOUNT,
                    senders: PRESENCE_SENDERS,
                    contacts: CONTACTS_PER_ACCOUNT,
                    seconds: self.seconds(2),
                };
                let cost = changes.cpu_us().with_context(|| format!("presence of {}", server.name))?;
                print_progress(&format!("round {round}, {}: {cost:.2} us per presence", server.name));
                row.push(column, cost);
            }
        }
        Ok(row)
    }
}
