//! `bench memory`: resident memory of an idle session.
//!
//! A session is authenticated, bound, has fetched its roster and is available; its contacts come online as the accounts
//! do. The result is the slope of `Rss` between a third of the sessions and all of them (5 000 and 15 000), each read
//! when the server is idle. Then all close and the same number logs in again: growth by the second wave is memory that
//! was neither returned nor reused. Rosters of 50 and 150 contacts are compared with a session of 3.
//!
//! Not measured: memory of the kernel (sockets), of other processes (a database), of sessions that chat.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::clients::{BenchPlan, ClientSecurity, LoadRun, established};
use super::clock::now;
use super::logins::LoginMechanism;
use super::report::{BenchReport, print_progress};
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};

/// The flags of `bench memory`.
#[derive(clap::Args, Clone)]
pub(crate) struct MemoryBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// Sessions at the end; a third of them at the first reading.
    #[arg(long, default_value_t = 15_000)]
    sessions: usize,
    /// Contacts of each account: 3, 50 or 150. Without it: 3, 50 and 150 on plain TCP, then 3 over TLS.
    #[arg(long)]
    roster: Option<usize>,
    /// TLS 1.3 instead of plain TCP; the bare flag means from the first byte.
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "direct")]
    tls: Option<ClientSecurity>,
    /// The mechanism to log in with.
    #[arg(long, value_enum, default_value = "scram-sha-1")]
    mechanism: LoginMechanism,
    /// Leave the second wave out.
    #[arg(long)]
    one_wave: bool,
}

impl MemoryBenchArgs {
    /// The usual sizes, for `bench all`.
    pub(crate) fn usual(options: &BenchOptions) -> Self {
        Self {
            options: options.clone(),
            sessions: 15_000,
            roster: None,
            tls: None,
            mechanism: LoginMechanism::ScramSha1,
            one_wave: false,
        }
    }
}

/// The growth by the second wave, in per cent, at most.
const GROWTH_BUDGET_PERCENT: f64 = 5.0;

/// Bytes of memory per session, at most.
fn budget(security: ClientSecurity) -> f64 {
    if security == ClientSecurity::None { 1_800.0 } else { 5_300.0 }
}

/// Additional memory of a roster above 3 contacts: 16 bytes per contact.
fn roster_budget(contacts: usize) -> f64 {
    16.0 * contacts.saturating_sub(3) as f64
}

/// Measures and reports.
pub(crate) fn run(args: &MemoryBenchArgs, report: &mut BenchReport) -> Result<()> {
    let single = args.roster.is_some() || args.tls.is_some() || args.options.target.is_some();
    if single {
        let (contacts, security) = (args.roster.unwrap_or(3), args.tls.unwrap_or(ClientSecurity::None));
        measure_variant(args, contacts, security, report)?;
        return Ok(());
    }
    let base = measure_variant(args, 3, ClientSecurity::None, report)?;
    for contacts in [50, 150] {
        let slope = measure_variant(args, contacts, ClientSecurity::None, report)?;
        report.check(
            format!("memory.roster-{contacts}.more"),
            slope - base,
            "B/session",
            roster_budget(contacts),
        );
    }
    measure_variant(args, 3, ClientSecurity::Direct, report)?;
    Ok(())
}

/// One server with accounts of `contacts` contacts. Returns bytes per session.
fn measure_variant(
    args: &MemoryBenchArgs,
    contacts: usize,
    security: ClientSecurity,
    report: &mut BenchReport,
) -> Result<f64> {
    let options = &args.options;
    let sessions = if options.quick { args.sessions / 5 } else { args.sessions };
    ensure!(sessions >= 30, "with {sessions} sessions the slope means nothing");
    let need = ServerRequirements { accounts: sessions, contacts_per_account: contacts, security };
    let server = ServerUnderTest::server(options, &need)?;
    let name = match security {
        ClientSecurity::None => format!("memory.roster-{contacts}"),
        ClientSecurity::Starttls => format!("memory.starttls.roster-{contacts}"),
        ClientSecurity::Direct => format!("memory.tls.roster-{contacts}"),
    };
    let mut idle = IdleSessions::new(&server, args.mechanism);
    report.info(format!("{name}.idle-server"), idle.wait_for_stable_memory()? / 1e6, "MB");
    let third = sessions / 3;
    let mut readings = Vec::new();
    for step in 0..3 {
        let count = if step == 2 { sessions - 2 * third } else { third };
        let reading = idle.add(count)?;
        report.info(format!("{name}.at-{}", idle.online), reading / 1e6, "MB");
        readings.push(reading);
    }
    let slope = (readings[2] - readings[0]) / (sessions - third) as f64;
    if contacts <= 3 {
        report.check(format!("{name}.session"), slope, "B/session", budget(security));
    } else {
        report.info(format!("{name}.session"), slope, "B/session");
    }
    idle.close()?;
    if args.one_wave {
        return Ok(slope);
    }
    report.info(format!("{name}.after-close"), idle.wait_for_stable_memory()? / 1e6, "MB");
    let again = idle.add(sessions)?;
    report.info(format!("{name}.second-wave"), again / 1e6, "MB");
    let growth = (again / readings[2] - 1.0) * 100.0;
    report.check(format!("{name}.growth"), growth, "%", GROWTH_BUDGET_PERCENT);
    idle.close()?;
    Ok(slope)
}

/// Sessions of a server that do nothing, in runs that are added to one another.
pub(crate) struct IdleSessions<'a> {
    server: &'a ServerUnderTest,
    mechanism: LoginMechanism,
    runs: Vec<(LoadRun, usize)>,
    /// Sessions of all runs.
    online: usize,
}

impl<'a> IdleSessions<'a> {
    pub(crate) fn new(server: &'a ServerUnderTest, mechanism: LoginMechanism) -> Self {
        Self { server, mechanism, runs: Vec::new(), online: 0 }
    }

    /// Logs in the next `count` accounts. Returns the server's resident bytes when it is idle with them.
    pub(crate) fn add(&mut self, count: usize) -> Result<f64> {
        let clients = &self.server.clients;
        let login = clients.login(self.mechanism.name());
        let body = format!(
            "[[phase]]\nconcurrency = 64\nusers = \"connections\"\n\n\
             [[session]]\nsteps = [{login}, \"roster\", \"presence\", {{ think = \"1000h\" }}]\n"
        );
        let plan = BenchPlan { connections: count, first: self.online, hold: "1000h".into(), body };
        let (begun, before) = (now(), established(clients.address));
        let mut run = clients.start(&plan)?;
        self.online += count;
        // Other connections may be there, such as those of a database; only the growth counts.
        let (mut there, mut progress) = (0, now());
        while there < count {
            run.check_running()?;
            let grown = established(clients.address).saturating_sub(before);
            if grown > there {
                (there, progress) = (grown, now());
            }
            if progress.elapsed() > Duration::from_secs(30) {
                bail!("no connection was added in 30 s; {there} of {count} are open");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        print_progress(&format!("{count} sessions in {:.1} s", begun.elapsed().as_secs_f64()));
        self.runs.push((run, count));
        self.wait_for_stable_memory()
    }

    /// Closes all sessions.
    pub(crate) fn close(&mut self) -> Result<()> {
        for (run, count) in self.runs.drain(..) {
            let run = run.stop()?;
            let online = run.highest("online");
            ensure!(online >= count as u64, "only {online} of {count} users were online");
        }
        self.online = 0;
        Ok(())
    }

    /// Resident bytes when the server is idle and its memory no longer changes.
    pub(crate) fn wait_for_stable_memory(&mut self) -> Result<f64> {
        const STEP: Duration = Duration::from_millis(500);
        let mut cpu = self.server.cpu()?;
        let (begun, mut last, mut quiet) = (now(), 0_u64, 0);
        loop {
            std::thread::sleep(STEP);
            for (run, _) in &mut self.runs {
                run.check_running()?;
            }
            let (used, resident) = (cpu.elapsed()?, self.server.resident()?);
            let busy = used as f64 > STEP.as_nanos() as f64 * 0.02;
            // Three readings in a row within 0.1 % (a server's timers may touch a page).
            let moved = resident.abs_diff(last) > (resident / 1_000).max(65_536);
            quiet = if busy || moved { 0 } else { quiet + 1 };
            last = resident;
            if quiet >= 3 {
                return Ok(resident as f64);
            }
            if begun.elapsed() > Duration::from_secs(120) {
                bail!("the server does not become idle: {used} ns of CPU in half a second, {resident} bytes");
            }
        }
    }
}
