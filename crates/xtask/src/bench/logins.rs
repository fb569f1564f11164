//! `bench login`: what a login costs the server, from connect to roster result.
//!
//! Waves of logins (connect, stream, SASL, bind, session where the server wants it, roster), 1 and 64 at a time, with SCRAM-SHA-1 and SCRAM-SHA-256.
//! The CPU is read when the last roster of a wave is there; closing is measured apart. Beside it: the relay's empty login (connect, a line, an answer).
//! FAST is a reconnect: one flight with a token that was used before, up to `<success/>` with the resource; no roster, no write.
//! PLAIN is set against the key derivation alone, made in this program with the iteration count that the server's SCRAM challenge names.
//!
//! Not measured: TLS, database round trips (a test counts them), logins while others chat.

use std::collections::HashMap;
use std::fs;
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::clock::now;
use super::driver::Driver;
use super::negotiate::Security;
use super::process::CpuMeter;
use super::report::{BenchReport, median, print_progress};
use super::scram::Mechanism;
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};

/// The flags of `bench login`.
#[derive(clap::Args, Clone)]
pub(crate) struct LoginBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// Logins of a wave with 64 at a time; a quarter of it one at a time.
    #[arg(long, default_value_t = 2_000)]
    wave: usize,
    /// Accounts that the waves go through in turn.
    #[arg(long, default_value_t = 10_000)]
    accounts: usize,
    /// The hash of the key that the server derives for PLAIN.
    #[arg(long, value_enum, default_value = "scram-sha-256")]
    plain_kdf: Mechanism,
    /// The mechanisms to measure. PLAIN needs the SCRAM mechanism of --plain-kdf beside it.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "scram-sha-1,scram-sha-256,plain,fast")]
    mechanisms: Vec<Mechanism>,
}

impl LoginBenchArgs {
    /// The usual sizes, for `bench all`.
    pub(crate) fn usual(options: &BenchOptions) -> Self {
        Self {
            options: options.clone(),
            wave: 2_000,
            accounts: 10_000,
            plain_kdf: Mechanism::Sha256,
            mechanisms: vec![Mechanism::Sha1, Mechanism::Sha256, Mechanism::Plain, Mechanism::Fast],
        }
    }
}

/// Milliseconds of server CPU a login, at most.
pub(crate) const LOGIN_CPU_BUDGET_MS: f64 = 0.20;
/// The same for a reconnect with a token.
const FAST_CPU_BUDGET_MS: f64 = 0.12;
/// What PLAIN may cost in key derivations.
const PLAIN_DERIVATIONS_BUDGET: f64 = 1.1;

/// A wave's figures: milliseconds of CPU a login, logins a second, milliseconds of CPU a close.
pub(crate) struct LoginWave {
    pub(crate) cpu_ms_per_login: f64,
    pub(crate) logins_per_second: f64,
    cpu_ms_per_close: f64,
}

pub(crate) struct LoginBench {
    pub(crate) driver: Driver,
    pub(crate) cpu: CpuMeter,
    next: usize,
    accounts: usize,
}

impl LoginBench {
    pub(crate) fn new(target: &ServerUnderTest, accounts: usize) -> Result<Self> {
        let mut driver = target.driver()?;
        driver.profile.available = false;
        Ok(Self { driver, cpu: target.cpu()?, next: 0, accounts })
    }

    pub(crate) fn wave(&mut self, size: usize, at_once: usize) -> Result<LoginWave> {
        // Tokens are for the first accounts.
        if self.next + size > self.accounts || self.driver.profile.mechanism == Mechanism::Fast {
            self.next = 0;
        }
        let size = size.min(self.accounts);
        self.cpu.elapsed()?;
        let begun = now();
        self.driver.login(self.next as u64, size, at_once)?;
        let seconds = begun.elapsed().as_secs_f64();
        let login = self.cpu.elapsed()? as f64 / 1e6 / size as f64;
        self.driver.close_all()?;
        // What the server does after the last close belongs to the close.
        std::thread::sleep(Duration::from_millis(100));
        let close = self.cpu.elapsed()? as f64 / 1e6 / size as f64;
        self.next += size;
        Ok(LoginWave {
            cpu_ms_per_login: login,
            logins_per_second: size as f64 / seconds,
            cpu_ms_per_close: close,
        })
    }
}

/// Milliseconds of this thread's CPU for one key derivation.
fn key_derivation_ms(mechanism: Mechanism, iterations: NonZeroU32) -> Result<f64> {
    let used = || -> Result<f64> {
        let text = fs::read_to_string("/proc/thread-self/schedstat")?;
        let nanos: f64 = text.split_whitespace().next().context("schedstat is empty")?.parse()?;
        Ok(nanos / 1e6)
    };
    // Many enough that the kernel's accounting (a tick) does not matter.
    let count = (2_000_000 / iterations.get()).clamp(20, 2_000);
    let before = used()?;
    for turn in 0..count {
        std::hint::black_box(mechanism.derive("secret", &turn.to_be_bytes(), iterations));
    }
    Ok((used()? - before) / f64::from(count))
}

/// Measures and reports.
pub(crate) fn run(args: &LoginBenchArgs, report: &mut BenchReport) -> Result<()> {
    let options = &args.options;
    let wave = if options.quick { args.wave / 4 } else { args.wave }.max(4);
    let need =
        ServerRequirements { accounts: args.accounts, contacts_per_account: 3, security: Security::None };
    let server = ServerUnderTest::server(options, &need)?;
    let relay = ServerUnderTest::relay(options)?;
    let mut floor = LoginBench::new(&relay, args.accounts)?;
    let mut side = LoginBench::new(&server, args.accounts)?;
    let mechanisms = &args.mechanisms;
    for &mechanism in mechanisms.iter().filter(|mechanism| **mechanism != Mechanism::Plain) {
        // Fills the caches, the client's derived keys among them, and learns the iteration count.
        side.driver.profile.mechanism = mechanism;
        side.wave(wave / 4, 16)?;
        if mechanism == Mechanism::Fast {
            // One login that is given a token, and one that uses it first: both write.
            side.wave(wave, 64)?;
            side.wave(wave, 64)?;
        }
    }
    let mut waves: HashMap<(Option<Mechanism>, usize), Vec<LoginWave>> = HashMap::new();
    let (mut plain_ratio, mut derived) = (Vec::new(), Vec::new());
    for round in 0..options.rounds(5) {
        for at_once in [1, 64] {
            let size = if at_once == 1 { wave / 4 } else { wave };
            waves.entry((None, at_once)).or_default().push(floor.wave(size, at_once)?);
            for &mechanism in mechanisms {
                side.driver.profile.mechanism = mechanism;
                // A key derivation costs as much as many logins.
                let size = if mechanism == Mechanism::Plain { size / 4 } else { size };
                let wave = side.wave(size.max(1), at_once)?;
                print_progress(&format!(
                    "round {round}, {} {at_once} at a time: {:.3} ms",
                    mechanism.name(),
                    wave.cpu_ms_per_login
                ));
                if mechanism == Mechanism::Plain && at_once == 64 {
                    let iterations = side.driver.secrets.iterations.get(&args.plain_kdf).copied();
                    let alone = key_derivation_ms(
                        args.plain_kdf,
                        iterations.context("no SCRAM challenge was seen")?,
                    )?;
                    plain_ratio.push(wave.cpu_ms_per_login / alone);
                    derived.push(alone);
                }
                waves.entry((Some(mechanism), at_once)).or_default().push(wave);
            }
        }
    }
    let middle = |waves: &[LoginWave], pick: fn(&LoginWave) -> f64| median(waves.iter().map(pick).collect());
    for at_once in [1, 64] {
        let relay = &waves[&(None, at_once)];
        report.info(format!("login.relay.{at_once}.cpu"), middle(relay, |w| w.cpu_ms_per_login), "ms/login");
        report.info(format!("login.relay.{at_once}.rate"), middle(relay, |w| w.logins_per_second), "login/s");
        for &mechanism in mechanisms {
            let waves = &waves[&(Some(mechanism), at_once)];
            let name = format!("login.{}.{at_once}", mechanism.name().to_lowercase());
            let cpu = middle(waves, |w| w.cpu_ms_per_login);
            match mechanism {
                Mechanism::Plain => report.info(format!("{name}.cpu"), cpu, "ms/login"),
                Mechanism::Fast => report.check(format!("{name}.cpu"), cpu, "ms/login", FAST_CPU_BUDGET_MS),
                _ => report.check(format!("{name}.cpu"), cpu, "ms/login", LOGIN_CPU_BUDGET_MS),
            }
            report.info(format!("{name}.rate"), middle(waves, |w| w.logins_per_second), "login/s");
            report.info(format!("{name}.close"), middle(waves, |w| w.cpu_ms_per_close), "ms/close");
        }
    }
    if !derived.is_empty() {
        let iterations = side.driver.secrets.iterations.get(&args.plain_kdf).map_or(0, |count| count.get());
        report.info("login.plain.iterations", f64::from(iterations), "rounds");
        report.info("login.plain.derivation", median(derived), "ms");
        report.check("login.plain.ratio", median(plain_ratio), "x", PLAIN_DERIVATIONS_BUDGET);
    }
    Ok(())
}
