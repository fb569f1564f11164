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
use super::super::logins::Bench as Logins;
use super::super::memory::settled;
use super::super::negotiate::{Profile, Security};
use super::super::process::Cpu;
use super::super::report::{note, out};
use super::super::scram::Mechanism;
use super::super::talk::{Chat, Pace};
use super::super::target::Target;
use super::broadcasts::Broadcasts;
use super::table::{Expected, Row, markdown};
use super::{DOMAIN, Form, Peer, Running, Wanted, command, throng, up};

/// Flags of `cargo xtask bench peers`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Throng's program; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Sessions at the second reading of memory; a quarter of them at the first.
    #[arg(long, default_value_t = 8_000)]
    sessions: usize,
    /// Measure these only.
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<Part>,
    /// Prosody with its default, the incremental collector. Less memory, more CPU.
    #[arg(long)]
    incremental: bool,
    /// Short runs: to see that it works, not to judge.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Memory,
    Login,
    Message,
    Presence,
}

/// The columns of the table, Throng first.
const SERVERS: [(Peer, Form); 5] = [
    (Peer::Throng, Form::Stock),
    (Peer::Ejabberd, Form::Stock),
    (Peer::Ejabberd, Form::Lean),
    (Peer::Prosody, Form::Stock),
    (Peer::Prosody, Form::Lean),
];
const COLUMNS: usize = SERVERS.len();
const ALL: &[usize] = &[1, 2, 3, 4];
const STOCK: &[usize] = &[1, 3];

/// What the comparison has to show.
const MEMORY: f64 = 10.0;
const FLOOD: f64 = 10.0;
const STEADY: f64 = 4.0;

/// Contacts of the accounts with contacts.
const CONTACTS: usize = 50;
/// Logins at a time.
const AT_ONCE: usize = 64;
/// Pairs and messages in flight of the flood.
const PAIRS: usize = 100;
const FLYING: usize = 8;
/// Users of the steady part; each sends one message a second.
const USERS: usize = 1_000;
const PASSWORD: &str = "secret";

/// Measures, prints the table and says whether all that is expected is met.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let begun = now();
    command::setup(&["ejabberd", "prosody"])
        .context("ejabberd and Prosody are needed from Debian's packages")?;
    let accounts = if args.quick { args.sessions / 4 } else { args.sessions };
    ensure!(accounts >= USERS, "--sessions {} are too few: at least {USERS} are needed", args.sessions);
    let program = throng::program(args.server.as_deref())?;
    let bench = Bench { program, accounts, incremental: args.incremental, quick: args.quick };
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    let mut found = Found::default();
    if wants(Part::Memory) {
        for contacts in [0, CONTACTS] {
            found.add(bench.memory(contacts));
        }
    }
    if wants(Part::Login) || wants(Part::Message) {
        found.with(bench.start_all(0), |found, servers| {
            if wants(Part::Login) {
                found.add(bench.logins(servers, 0));
            }
            if wants(Part::Message) {
                found.add(bench.flood(servers));
                found.add(bench.steady(servers));
            }
        });
    }
    if wants(Part::Login) || wants(Part::Presence) {
        found.with(bench.start_all(CONTACTS), |found, servers| {
            if wants(Part::Login) {
                found.add(bench.logins(servers, CONTACTS));
            }
            if wants(Part::Presence) {
                found.add(bench.presence(servers));
            }
        });
    }
    let names: Vec<String> = SERVERS.iter().map(|(peer, form)| name(*peer, *form)).collect();
    let (table, misses) = markdown(&names, &found.rows);
    out(table.trim_end());
    note(&format!("{:.0} s; {misses} rows are below what is expected", begun.elapsed().as_secs_f64()));
    ensure!(found.failed.is_empty(), "{}", found.failed.join("; "));
    Ok(if misses == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was measured, and what could not be: one part must not take the others' figures with it.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    failed: Vec<String>,
}

impl Found {
    fn add(&mut self, row: Result<Row>) {
        match row {
            Ok(row) => self.rows.push(row),
            Err(error) => self.fail(&error),
        }
    }

    fn with(&mut self, servers: Result<Vec<Server>>, measure: impl FnOnce(&mut Self, &[Server])) {
        match servers {
            Ok(servers) => {
                measure(self, &servers);
                servers.into_iter().for_each(Server::kill);
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &anyhow::Error) {
        note(&format!("{error:#}"));
        self.failed.push(format!("{error:#}"));
    }
}

fn name(peer: Peer, form: Form) -> String {
    let peer = match peer {
        Peer::Throng => return "Throng".to_owned(),
        Peer::Ejabberd => "ejabberd",
        Peer::Prosody => "Prosody",
    };
    format!("{peer}, {}", if form == Form::Lean { "lean" } else { "stock" })
}

struct Bench {
    program: PathBuf,
    accounts: usize,
    incremental: bool,
    quick: bool,
}

/// A server that runs.
struct Server {
    name: String,
    running: Running,
    target: Target,
}

impl Server {
    fn kill(self) {
        self.running.kill();
    }
}

/// Clients of one server.
struct Side<'a> {
    name: &'a str,
    driver: Driver,
    cpu: Cpu,
}

impl<'a> Side<'a> {
    /// The first `count` accounts, online.
    fn connect(server: &'a Server, count: usize) -> Result<Self> {
        let connect = || -> Result<Driver> {
            let mut driver = server.target.driver()?;
            driver.login(0, count, AT_ONCE)?;
            driver.quiet(Duration::from_millis(500), Duration::from_secs(60))?;
            Ok(driver)
        };
        let driver = connect().with_context(|| format!("clients of {}", server.name))?;
        Ok(Self { name: &server.name, driver, cpu: server.target.cpu()? })
    }
}

impl Bench {
    fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    fn seconds(&self, usual: f64) -> Duration {
        Duration::from_secs_f64(if self.quick { usual / 3.0 } else { usual })
    }

    fn start(&self, peer: Peer, form: Form, contacts: usize) -> Result<Server> {
        let wanted = Wanted {
            form,
            incremental: self.incremental,
            server: Some(self.program.clone()),
            ..Wanted::new(self.accounts, contacts)
        };
        let running = up(peer, &wanted)?;
        let profile = Profile {
            domain: DOMAIN.to_owned(),
            prefix: wanted.prefix,
            mechanism: Mechanism::Sha1,
            security: Security::None,
            available: true,
            relay: false,
            managed: false,
        };
        let target = Target::running(running.id(), running.address(), profile, PASSWORD);
        Ok(Server { name: name(peer, form), running, target })
    }

    fn start_all(&self, contacts: usize) -> Result<Vec<Server>> {
        SERVERS.iter().map(|(peer, form)| self.start(*peer, *form, contacts)).collect()
    }

    /// Bytes of resident memory that a session adds.
    fn memory(&self, contacts: usize) -> Result<Row> {
        let expected = Expected { times: MEMORY, columns: ALL, of: "all" };
        let what = format!("memory of an idle session, {contacts} contacts, B");
        let mut row = Row::new(what, COLUMNS, Some(expected));
        for (column, (peer, form)) in SERVERS.iter().enumerate() {
            let server = self.start(*peer, *form, contacts)?;
            let slope = self.slope(&server).with_context(|| format!("memory of {}", server.name))?;
            note(&format!("{}, {contacts} contacts: {slope:.0} bytes a session", server.name));
            row.push(column, slope);
            server.kill();
        }
        Ok(row)
    }

    fn slope(&self, server: &Server) -> Result<f64> {
        let mut driver = server.target.driver()?;
        let few = self.accounts / 4;
        let empty = settled(&server.target, &mut driver)?;
        driver.login(0, few, AT_ONCE)?;
        let less = settled(&server.target, &mut driver)?;
        driver.login(few as u64, self.accounts - few, AT_ONCE)?;
        let more = settled(&server.target, &mut driver)?;
        note(&format!(
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
    fn logins(&self, servers: &[Server], contacts: usize) -> Result<Row> {
        let mut row = Row::new(format!("CPU of a login, {contacts} contacts, ms"), COLUMNS, None);
        let size = if self.quick { 300 } else { 1_000 };
        let mut waves = Vec::new();
        for server in servers {
            let mut logins = Logins::new(&server.target, self.accounts)?;
            // Caches, and the clients' derived keys.
            logins.wave(size / 2, AT_ONCE).with_context(|| format!("logins of {}", server.name))?;
            waves.push((server, logins));
        }
        for round in 0..self.rounds() {
            for (column, (server, logins)) in waves.iter_mut().enumerate() {
                let wave =
                    logins.wave(size, AT_ONCE).with_context(|| format!("logins of {}", server.name))?;
                let (cost, rate) = (wave.login, wave.rate);
                note(&format!("round {round}, {}: {cost:.3} ms a login, {rate:.0} a second", server.name));
                row.push(column, cost);
            }
        }
        Ok(row)
    }

    /// Microseconds of CPU a message, as fast as they go.
    fn flood(&self, servers: &[Server]) -> Result<Row> {
        let expected = Expected { times: FLOOD, columns: STOCK, of: "stock" };
        let mut row = Row::new("CPU of a chat message, flood, µs", COLUMNS, Some(expected));
        let mut sides = sides(servers, 2 * PAIRS)?;
        let mut chats: Vec<Chat> = sides.iter().map(|side| Chat::new(&side.driver)).collect();
        for round in 0..self.rounds() {
            for (column, (side, chat)) in sides.iter_mut().zip(&mut chats).enumerate() {
                let sample = chat
                    .closed(&mut side.driver, &mut side.cpu, FLYING, self.seconds(2.0))
                    .with_context(|| format!("flood of {}", side.name))?;
                let (cost, rate) = (sample.cpu, sample.rate);
                note(&format!("round {round}, {}: {cost:.2} us a message, {rate:.0} a second", side.name));
                row.push(column, cost);
            }
        }
        close(sides)?;
        Ok(row)
    }

    /// Microseconds of CPU a message at a rate that all can keep.
    fn steady(&self, servers: &[Server]) -> Result<Row> {
        let expected = Expected { times: STEADY, columns: STOCK, of: "stock" };
        let what = format!("CPU of a chat message, {USERS} a second of {USERS} users, µs");
        let mut row = Row::new(what, COLUMNS, Some(expected));
        let mut sides = sides(servers, USERS)?;
        let mut chats: Vec<Chat> = sides.iter().map(|side| Chat::new(&side.driver)).collect();
        let pace = Pace { rate: USERS as f64, both: true, burst: 1 };
        // Wake-ups differ more from one moment to the next than anything else that is measured here.
        let rounds = if self.quick { 1 } else { 5 };
        for round in 0..rounds {
            for (column, (side, chat)) in sides.iter_mut().zip(&mut chats).enumerate() {
                let warm = Duration::from_secs(1);
                let sample = chat
                    .open(&mut side.driver, &mut side.cpu, pace, warm, self.seconds(4.0))
                    .with_context(|| format!("steady rate of {}", side.name))?;
                let (cost, share) = (sample.cpu, sample.cpu * sample.rate / 1e4);
                note(&format!(
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
    fn presence(&self, servers: &[Server]) -> Result<Row> {
        let mut row = Row::new(format!("CPU of a presence to one of {CONTACTS} contacts, µs"), COLUMNS, None);
        let mut sides = sides(servers, Broadcasts::connections(CONTACTS))?;
        let mut loads: Vec<Broadcasts> = sides.iter().map(|_| Broadcasts::new(CONTACTS)).collect();
        for round in 0..self.rounds() {
            for (column, (side, load)) in sides.iter_mut().zip(&mut loads).enumerate() {
                let cost = load
                    .run(&mut side.driver, &mut side.cpu, self.seconds(2.0))
                    .with_context(|| format!("presence of {}", side.name))?;
                note(&format!("round {round}, {}: {cost:.2} us a presence", side.name));
                row.push(column, cost);
            }
        }
        close(sides)?;
        Ok(row)
    }
}

fn sides(servers: &[Server], count: usize) -> Result<Vec<Side<'_>>> {
    servers.iter().map(|server| Side::connect(server, count)).collect()
}

fn close(sides: Vec<Side<'_>>) -> Result<()> {
    for mut side in sides {
        side.driver.close_all().with_context(|| format!("clients of {}", side.name))?;
    }
    Ok(())
}
