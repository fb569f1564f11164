//! `bench resume`: what a storm of resumptions costs the server, all at once, as after a network that was cut.
//!
//! Clients log in with tokens (XEP-0484) and stream management (XEP-0198), lose their connections without a word, and
//! all come back in the same moment: one flight with token and `<resume/>`, up to `<resumed/>`. Beside it the same storm
//! of logins that bind anew. The CPU of a resumption is held against the budget of a login.
//!
//! Not measured: TLS, stanzas that are sent again.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::clock::now;
use super::logins::{LOGIN_CPU_BUDGET_MS, LoginBench};
use super::negotiate::Security;
use super::report::{BenchReport, median, print_progress};
use super::scram::Mechanism;
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};

/// The flags of `bench resume`.
#[derive(clap::Args, Clone)]
pub(crate) struct ResumeBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// Sessions that are lost and come back at once.
    #[arg(long, default_value_t = 15_000)]
    sessions: usize,
}

/// Measures and reports.
pub(crate) fn run(args: &ResumeBenchArgs, report: &mut BenchReport) -> Result<()> {
    let options = &args.options;
    let sessions = if options.quick { args.sessions / 10 } else { args.sessions }.max(10);
    let need = ServerRequirements { accounts: sessions, contacts_per_account: 3, security: Security::None };
    let server = ServerUnderTest::server(options, &need)?;
    let mut side = LoginBench::new(&server, sessions)?;
    side.driver.profile.mechanism = Mechanism::Fast;
    // One login that is given a token, and one that uses it first.
    for _ in 0..2 {
        side.wave(sessions, 64)?;
    }
    let (mut resumed, mut bound, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds(3) {
        let anew = side.wave(sessions, sessions)?;
        side.driver.profile.managed = true;
        side.driver.secrets.streams.clear();
        side.driver.login(0, sessions, 64)?;
        ensure!(side.driver.secrets.streams.len() == sessions, "the server does not let streams be resumed");
        side.driver.abandon_all();
        side.wait_until_idle()?;
        let begun = now();
        side.driver.login(0, sessions, sessions)?;
        let seconds = begun.elapsed().as_secs_f64();
        let cost = side.cpu_ms_per_item(sessions)?;
        print_progress(&format!(
            "round {round}: {cost:.3} ms a resumption, {:.3} ms a new session",
            anew.cpu_ms_per_login
        ));
        resumed.push(cost);
        bound.push(anew.cpu_ms_per_login);
        rates.push(sessions as f64 / seconds);
        side.driver.close_all()?;
        side.driver.profile.managed = false;
        side.wait_until_idle()?;
    }
    report.info("resume.sessions", sessions as f64, "at once");
    report.check("resume.cpu", median(resumed), "ms/resumption", LOGIN_CPU_BUDGET_MS);
    report.info("resume.new-session.cpu", median(bound), "ms/login");
    report.info("resume.rate", median(rates), "resumption/s");
    Ok(())
}

impl LoginBench {
    /// Waits until the server has done what closed connections leave to do.
    fn wait_until_idle(&mut self) -> Result<()> {
        for _ in 0..100 {
            self.cpu.elapsed()?;
            std::thread::sleep(Duration::from_millis(200));
            if self.cpu.elapsed()? < 10_000_000 {
                return Ok(());
            }
        }
        Ok(())
    }
    /// Milliseconds of CPU since the last lap, for each of so many.
    fn cpu_ms_per_item(&mut self, count: usize) -> Result<f64> {
        Ok(self.cpu.elapsed()? as f64 / 1e6 / count as f64)
    }
}
