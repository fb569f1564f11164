//! `bench login`: cost of a login for the server, from connect to roster result.
//!
//! Waves of logins (connect, stream, SASL, bind, session where the server requires it, roster), 1 and 64 at a time,
//! with SCRAM-SHA-1 and SCRAM-SHA-256. Closing is measured apart. Beside it: the same login at the relay, which answers
//! with fixed bytes. FAST is a reconnect: one flight with a token that was used before, up to `<success/>` with the
//! resource; no roster, no write. PLAIN is compared with the key derivation alone, made in this program with the
//! iteration count of the server's SCRAM challenges.
//!
//! Not measured: TLS, database round trips (a test counts them), logins while others chat.

use std::collections::HashMap;
use std::fs;
use std::num::NonZeroU32;

use anyhow::{Context as _, Result, ensure};
use ring::pbkdf2;

use super::clients::{BenchPlan, ClientOptions, ClientSecurity};
use super::report::{BenchReport, median, print_progress};
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};

/// A way to log in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, clap::ValueEnum)]
pub(crate) enum LoginMechanism {
    /// SCRAM-SHA-1.
    #[value(name = "scram-sha-1")]
    ScramSha1,
    /// SCRAM-SHA-256.
    #[value(name = "scram-sha-256")]
    ScramSha256,
    /// PLAIN: the server derives the key.
    Plain,
    /// FAST (XEP-0484): a token from an earlier login, in one flight.
    Fast,
}

impl LoginMechanism {
    /// The name in results.
    fn label(self) -> &'static str {
        match self {
            Self::ScramSha1 => "scram-sha-1",
            Self::ScramSha256 => "scram-sha-256",
            Self::Plain => "plain",
            Self::Fast => "ht-sha-256-none",
        }
    }

    /// The registered name of the mechanism; the one that requests a token for FAST.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ScramSha1 | Self::Fast => "SCRAM-SHA-1",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::Plain => "PLAIN",
        }
    }

    /// The key derivation of a server for PLAIN.
    fn derive(self, password: &str, salt: &[u8], iterations: NonZeroU32) -> [u8; 32] {
        let mut salted = [0; 32];
        let (algorithm, length) = match self {
            Self::ScramSha256 => (pbkdf2::PBKDF2_HMAC_SHA256, 32),
            _ => (pbkdf2::PBKDF2_HMAC_SHA1, 20),
        };
        pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut salted[..length]);
        salted
    }
}

/// The flags of `bench login`.
#[derive(clap::Args, Clone)]
pub(crate) struct LoginBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// Logins of a wave with 64 at a time; a quarter of it one at a time.
    #[arg(long, default_value_t = 2_000)]
    wave: usize,
    /// Accounts that the waves use in turn.
    #[arg(long, default_value_t = 10_000)]
    accounts: usize,
    /// The hash of the key that the server derives for PLAIN.
    #[arg(long, value_enum, default_value = "scram-sha-256")]
    plain_kdf: LoginMechanism,
    /// The mechanisms to measure. PLAIN needs the SCRAM mechanism of --plain-kdf beside it.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "scram-sha-1,scram-sha-256,plain,fast")]
    mechanisms: Vec<LoginMechanism>,
}

impl LoginBenchArgs {
    /// The usual sizes, for `bench all`.
    pub(crate) fn usual(options: &BenchOptions) -> Self {
        use LoginMechanism::{Fast, Plain, ScramSha1, ScramSha256};
        Self {
            options: options.clone(),
            wave: 2_000,
            accounts: 10_000,
            plain_kdf: ScramSha256,
            mechanisms: vec![ScramSha1, ScramSha256, Plain, Fast],
        }
    }
}

/// Milliseconds of server CPU per login with SCRAM, at most: alone, and with 64 at a time.
const LONE_LOGIN_CPU_BUDGET_MS: f64 = 0.20;
pub(crate) const LOGIN_CPU_BUDGET_MS: f64 = 0.10;
/// The same for a reconnect with a token.
const FAST_CPU_BUDGET_MS: f64 = 0.12;
/// The cost of PLAIN in key derivations, at most.
const PLAIN_DERIVATIONS_BUDGET: f64 = 1.1;

/// Metrics of a wave.
pub(crate) struct LoginWave {
    pub(crate) cpu_ms_per_login: f64,
    pub(crate) logins_per_second: f64,
    /// CPU of the database, if it is not in the server's process.
    pub(crate) database_cpu_ms_per_login: f64,
    cpu_ms_per_close: f64,
    /// Iteration count of the SCRAM challenges.
    iterations: Option<u32>,
}

/// Waves of logins at one server.
pub(crate) struct LoginBench<'a> {
    clients: &'a ClientOptions,
    next: usize,
    accounts: usize,
}

impl<'a> LoginBench<'a> {
    pub(crate) fn new(clients: &'a ClientOptions, accounts: usize) -> Self {
        Self { clients, next: 0, accounts }
    }

    /// `size` logins, `concurrency` at a time.
    pub(crate) fn wave(
        &mut self,
        mechanism: LoginMechanism,
        size: usize,
        concurrency: usize,
    ) -> Result<LoginWave> {
        if self.next + size > self.accounts {
            self.next = 0;
        }
        let size = size.min(self.accounts);
        let (first, clients) = (self.next, self.clients);
        self.next += size;
        let body = if mechanism == LoginMechanism::Fast {
            fast_waves(concurrency)
        } else {
            let login = clients.login(mechanism.name());
            format!(
                "[[phase]]\nconcurrency = {concurrency}\nusers = \"connections\"\n\n\
                 [[session]]\nsteps = [\n  {{ transaction = {{ name = \"wave\", steps = [{login}, \"roster\"] }} }},\n  \
                 {{ think = \"1000h\" }},\n]\n"
            )
        };
        let run = clients.run(&BenchPlan { connections: size, first, hold: "2s".into(), body })?;
        let bursts = run.bursts("logins");
        let wave = bursts.last().context("there were no logins")?;
        let logins = run.total("logins");
        ensure!(logins >= size as u64, "{logins} of {size} users logged in");
        let closing = run.closing()?;
        // Connections that are open at the end of the run are closed gracefully.
        let close = run.cpu_ns_from(closing)?;
        // Little's law: `concurrency` logins are under way all the time.
        let rate = concurrency.min(size) as f64 * 1e3 / run.total_ms("tr:wave", "mean");
        Ok(LoginWave {
            cpu_ms_per_login: run.cpu_ns(&wave.seconds)? / 1e6 / size as f64,
            logins_per_second: rate,
            database_cpu_ms_per_login: run.database_cpu_ns(&wave.seconds)? / 1e6 / size as f64,
            cpu_ms_per_close: close / 1e6 / size as f64,
            iterations: run.scram_iterations(),
        })
    }
}

/// Two waves that request and first use a token, both of which write, and after a pause the one that is measured.
fn fast_waves(concurrency: usize) -> String {
    let visit = "users = \"connections\"\nweights = { visit = 1, stay = 0 }\nwait_all_end = true\n";
    let pause = "[[phase]]\nduration = \"3s\"\n\n";
    format!(
        "[[phase]]\nconcurrency = 64\n{visit}\n{pause}[[phase]]\nconcurrency = 64\n{visit}\n{pause}\
         [[phase]]\nconcurrency = {concurrency}\nusers = \"connections\"\nweights = {{ visit = 0, stay = 1 }}\n\n\
         [[session]]\nname = \"visit\"\nsteps = [{FAST_LOGIN}, \"disconnect\"]\n\n\
         [[session]]\nname = \"stay\"\nsteps = [\n  {{ transaction = {{ name = \"wave\", steps = [{FAST_LOGIN}] }} }},\n  \
         {{ think = \"1000h\" }},\n]\n"
    )
}

/// A login with a token, or one that requests it.
pub(crate) const FAST_LOGIN: &str = "{ login = { fast = true, mechanisms = \"SCRAM-SHA-1\" } }";

/// Milliseconds of this thread's CPU for one key derivation.
fn key_derivation_ms(mechanism: LoginMechanism, iterations: NonZeroU32) -> Result<f64> {
    let used = || -> Result<f64> {
        let text = fs::read_to_string("/proc/thread-self/schedstat")?;
        let nanos: f64 = text.split_whitespace().next().context("schedstat is empty")?.parse()?;
        Ok(nanos / 1e6)
    };
    // Enough of them that the granularity of the kernel's accounting (a tick) does not matter.
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
    let need = ServerRequirements {
        accounts: args.accounts,
        contacts_per_account: 3,
        security: ClientSecurity::None,
    };
    let server = ServerUnderTest::server(options, &need)?;
    let relay = ServerUnderTest::relay(options)?;
    let mut relay_bench = LoginBench::new(&relay.clients, args.accounts);
    let mut measured = LoginBench::new(&server.clients, args.accounts);
    let mechanisms = &args.mechanisms;
    let mut iterations = None;
    for &mechanism in mechanisms {
        if matches!(mechanism, LoginMechanism::ScramSha1 | LoginMechanism::ScramSha256) {
            // Fills the server's caches, and reads the iteration count.
            let warm = measured.wave(mechanism, (wave / 4).max(1), 16)?;
            if mechanism == args.plain_kdf {
                iterations = warm.iterations.and_then(NonZeroU32::new);
            }
        }
    }
    let mut waves: HashMap<(Option<LoginMechanism>, usize), Vec<LoginWave>> = HashMap::new();
    let (mut plain_ratio, mut derived) = (Vec::new(), Vec::new());
    for round in 0..options.rounds(5) {
        for concurrency in [1, 64] {
            let size = if concurrency == 1 { wave / 4 } else { wave };
            let empty = relay_bench.wave(LoginMechanism::Plain, size, concurrency)?;
            waves.entry((None, concurrency)).or_default().push(empty);
            for &mechanism in mechanisms {
                // A key derivation costs as much as many logins.
                let size = if mechanism == LoginMechanism::Plain { size / 4 } else { size };
                let wave = measured.wave(mechanism, size.max(1), concurrency)?;
                print_progress(&format!(
                    "round {round}, {} {concurrency} at a time: {:.3} ms",
                    mechanism.label(),
                    wave.cpu_ms_per_login
                ));
                if mechanism == LoginMechanism::Plain && concurrency == 64 {
                    let iterations = iterations.context("no SCRAM challenge was seen")?;
                    let alone = key_derivation_ms(args.plain_kdf, iterations)?;
                    plain_ratio.push(wave.cpu_ms_per_login / alone);
                    derived.push(alone);
                }
                waves.entry((Some(mechanism), concurrency)).or_default().push(wave);
            }
        }
    }
    let middle = |waves: &[LoginWave], pick: fn(&LoginWave) -> f64| median(waves.iter().map(pick).collect());
    for concurrency in [1, 64] {
        let relay = &waves[&(None, concurrency)];
        report.info(
            format!("login.relay.{concurrency}.cpu"),
            middle(relay, |w| w.cpu_ms_per_login),
            "ms/login",
        );
        report.info(
            format!("login.relay.{concurrency}.rate"),
            middle(relay, |w| w.logins_per_second),
            "login/s",
        );
        for &mechanism in mechanisms {
            let waves = &waves[&(Some(mechanism), concurrency)];
            let name = format!("login.{}.{concurrency}", mechanism.label());
            let cpu = middle(waves, |w| w.cpu_ms_per_login);
            match mechanism {
                LoginMechanism::Plain => report.info(format!("{name}.cpu"), cpu, "ms/login"),
                LoginMechanism::Fast => {
                    report.check(format!("{name}.cpu"), cpu, "ms/login", FAST_CPU_BUDGET_MS)
                }
                _ => {
                    let budget =
                        if concurrency == 1 { LONE_LOGIN_CPU_BUDGET_MS } else { LOGIN_CPU_BUDGET_MS };
                    report.check(format!("{name}.cpu"), cpu, "ms/login", budget);
                }
            }
            report.info(format!("{name}.rate"), middle(waves, |w| w.logins_per_second), "login/s");
            report.info(format!("{name}.close"), middle(waves, |w| w.cpu_ms_per_close), "ms/close");
        }
    }
    if !derived.is_empty() {
        report.info("login.plain.iterations", f64::from(iterations.map_or(0, NonZeroU32::get)), "rounds");
        report.info("login.plain.derivation", median(derived), "ms");
        report.check("login.plain.ratio", median(plain_ratio), "x", PLAIN_DERIVATIONS_BUDGET);
    }
    Ok(())
}
