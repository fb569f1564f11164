//! `bench memory`: what an idle session costs in resident memory.
//!
//! A session is authenticated, bound, has fetched its roster and is available; its contacts are online as the accounts come.
//! The figure is the slope of `Rss` between a third of the sessions and all of them (5 000 and 15 000), each read when the server has fallen quiet.
//! Then all close and the same number comes again: growth by the second wave is what was not given back or not used again.
//! Rosters of 50 and 150 contacts are set against the session with 3.
//!
//! Not measured: memory of the kernel (sockets), of other processes (a database), of sessions that talk.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::clock::now;
use super::driver::Driver;
use super::negotiate::Security;
use super::report::{BenchReport, print_progress};
use super::scram::Mechanism;
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
    tls: Option<Security>,
    /// The mechanism to log in with.
    #[arg(long, value_enum, default_value = "scram-sha-1")]
    mechanism: Mechanism,
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
            mechanism: Mechanism::Sha1,
            one_wave: false,
        }
    }
}

/// The growth by the second wave, in per cent.
const GROWTH_BUDGET_PERCENT: f64 = 5.0;

/// Bytes of memory a session, at most.
fn budget(security: Security) -> f64 {
    if security == Security::None { 2_500.0 } else { 6_000.0 }
}

/// What a roster may cost more than one of 3 contacts: 24 bytes a contact.
fn roster_budget(contacts: usize) -> f64 {
    24.0 * contacts as f64
}

/// Measures and reports.
pub(crate) fn run(args: &MemoryBenchArgs, report: &mut BenchReport) -> Result<()> {
    let single = args.roster.is_some() || args.tls.is_some() || args.options.target.is_some();
    if single {
        let (contacts, security) = (args.roster.unwrap_or(3), args.tls.unwrap_or(Security::None));
        measure_variant(args, contacts, security, report)?;
        return Ok(());
    }
    let base = measure_variant(args, 3, Security::None, report)?;
    for contacts in [50, 150] {
        let slope = measure_variant(args, contacts, Security::None, report)?;
        report.check(
            format!("memory.roster-{contacts}.more"),
            slope - base,
            "B/session",
            roster_budget(contacts),
        );
    }
    measure_variant(args, 3, Security::Direct, report)?;
    Ok(())
}

/// One server with accounts of `contacts` contacts. Returns bytes a session.
fn measure_variant(
    args: &MemoryBenchArgs,
    contacts: usize,
    security: Security,
    report: &mut BenchReport,
) -> Result<f64> {
    let options = &args.options;
    let sessions = if options.quick { args.sessions / 5 } else { args.sessions };
    ensure!(sessions >= 30, "with {sessions} sessions the slope means nothing");
    let target = ServerUnderTest::server(
        options,
        &ServerRequirements { accounts: sessions, contacts_per_account: contacts, security },
    )?;
    let mut driver = target.driver()?;
    driver.profile.mechanism = args.mechanism;
    let name = match security {
        Security::None => format!("memory.roster-{contacts}"),
        Security::Starttls => format!("memory.starttls.roster-{contacts}"),
        Security::Direct => format!("memory.tls.roster-{contacts}"),
    };
    let idle = wait_for_stable_memory(&target, &mut driver)?;
    report.info(format!("{name}.idle-server"), idle / 1e6, "MB");
    let third = sessions / 3;
    let mut readings = Vec::new();
    for step in 0..3 {
        let count = if step == 2 { sessions - 2 * third } else { third };
        let begun = now();
        driver.login((step * third) as u64, count, 64)?;
        print_progress(&format!("{name}: {:.0} logins/s", count as f64 / begun.elapsed().as_secs_f64()));
        let reading = wait_for_stable_memory(&target, &mut driver)?;
        let have = step * third + count;
        report.info(format!("{name}.at-{have}"), reading / 1e6, "MB");
        readings.push(reading);
    }
    let slope = (readings[2] - readings[0]) / (sessions - third) as f64;
    if contacts <= 3 {
        report.check(format!("{name}.session"), slope, "B/session", budget(security));
    } else {
        report.info(format!("{name}.session"), slope, "B/session");
    }
    if args.one_wave {
        driver.close_all()?;
        return Ok(slope);
    }
    driver.close_all()?;
    let empty = wait_for_stable_memory(&target, &mut driver)?;
    report.info(format!("{name}.after-close"), empty / 1e6, "MB");
    driver.login(0, sessions, 64)?;
    let again = wait_for_stable_memory(&target, &mut driver)?;
    report.info(format!("{name}.second-wave"), again / 1e6, "MB");
    report.check(format!("{name}.growth"), (again / readings[2] - 1.0) * 100.0, "%", GROWTH_BUDGET_PERCENT);
    driver.close_all()?;
    Ok(slope)
}

/// Resident bytes when the server is idle and its memory no longer moves.
pub(super) fn wait_for_stable_memory(target: &ServerUnderTest, driver: &mut Driver) -> Result<f64> {
    const STEP: Duration = Duration::from_millis(500);
    let mut cpu = target.cpu()?;
    let (begun, mut last, mut quiet) = (now(), 0_u64, 0);
    loop {
        driver.run_until(now() + STEP, |_, _, _| {})?;
        let (used, resident) = (cpu.elapsed()?, target.resident()?);
        let busy = used as f64 > STEP.as_nanos() as f64 * 0.02;
        // Three readings in a row within 0.1 % (a server's timers may touch a page).
        let moved = resident.abs_diff(last) > (resident / 1_000).max(65_536);
        quiet = if busy || moved { 0 } else { quiet + 1 };
        last = resident;
        if quiet >= 3 {
            return Ok(resident as f64);
        }
        if begun.elapsed() > Duration::from_secs(120) {
            bail!("the server does not fall quiet: {used} ns of CPU in half a second, {resident} bytes");
        }
    }
}
