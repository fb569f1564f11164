//! `bench broadcast`: an announcement to 10 000 sessions, beside a loop that writes as many bytes to as many sockets.
//!
//! All sessions are of one node, available and idle. The loop is the gathering relay's: one thread, one `write` for each
//! socket. Both are triggered every half second; CPU counts from before the first trigger until the process is idle.
//! A pair of further sessions exchanges messages in a process of its own, first alone and then meanwhile: the
//! difference of the 99th percentiles is what a broadcast costs others.
//!
//! Not measured: TLS, several resources, recipients on other nodes, recipients that do not read.
//!
//! # Pitfalls
//!
//! The clients' process reads 10 000 sockets meanwhile. With as few cores as two, the pair waits for a core as well,
//! beside the relay as much as beside the server: compare the two.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::clients::{BenchPlan, ClientOptions, ClientSecurity, LoadRun, established};
use super::clock::now;
use super::report::{BenchReport, median, print_progress};
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};

/// The flags of `bench broadcast`.
#[derive(clap::Args, Clone)]
pub(crate) struct BroadcastBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// Sessions that receive it.
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
}

const RATIO_BUDGET: f64 = 1.5;
/// Budget of what a broadcast adds to the 99th percentile of another pair, milliseconds.
const P99_BUDGET_MS: f64 = 2.0;
/// Characters of the announcement.
const TEXT_CHARACTERS: usize = 135;
/// Time between two broadcasts.
const PERIOD: Duration = Duration::from_millis(500);
/// Time for the last broadcast to end.
const END: Duration = Duration::from_secs(1);

/// Measurements of one round.
struct BroadcastSample {
    /// Microseconds of CPU for each recipient.
    cpu_us: f64,
    /// 99th percentile of the pair alone, milliseconds.
    quiet_p99_ms: f64,
    /// The same during broadcasts.
    broadcast_p99_ms: f64,
    /// Bytes that a recipient received for each broadcast.
    bytes: f64,
}

/// Measures and reports.
pub(crate) fn run(args: &BroadcastBenchArgs, report: &mut BenchReport) -> Result<()> {
    let (options, sessions) = (&args.options, args.sessions);
    ensure!(sessions > 0, "--sessions must be at least 1");
    ensure!(options.target.is_none(), "bench broadcast starts the server itself: leave --target out");
    let need = ServerRequirements {
        accounts: sessions + 3,
        contacts_per_account: 0,
        security: ClientSecurity::None,
    };
    let server = ServerUnderTest::server(options, &need)?;
    let relay = ServerUnderTest::gathering_relay(options)?;
    let count = usize::try_from(2 * options.interval(5))?;
    let (mut low, mut high) = (Vec::new(), Vec::new());
    for round in 0..options.rounds(3) {
        let relay_sample =
            measure(&relay.clients, sessions, count, || broadcast_by_relay(&relay.clients, sessions, count))?;
        let sample = measure(&server.clients, sessions, count, || announce(&server, count))?;
        print_progress(&format!(
            "round {round}: relay {:.2}, server {:.2} us per recipient; p99 of a pair {:.2} to {:.2} ms, {:.2} to {:.2} ms",
            relay_sample.cpu_us,
            sample.cpu_us,
            relay_sample.quiet_p99_ms,
            relay_sample.broadcast_p99_ms,
            sample.quiet_p99_ms,
            sample.broadcast_p99_ms
        ));
        low.push(relay_sample);
        high.push(sample);
    }
    let of = |samples: &[BroadcastSample], pick: fn(&BroadcastSample) -> f64| {
        median(samples.iter().map(pick).collect())
    };
    report.info("broadcast.relay.cpu", of(&low, |s| s.cpu_us), "us/recipient");
    report.info("broadcast.server.cpu", of(&high, |s| s.cpu_us), "us/recipient");
    report.info("broadcast.relay.bytes", of(&low, |s| s.bytes), "byte/recipient");
    report.info("broadcast.server.bytes", of(&high, |s| s.bytes), "byte/recipient");
    let ratios = high.iter().zip(&low).map(|(server, relay)| server.cpu_us / relay.cpu_us).collect();
    report.check("broadcast.ratio", median(ratios), "x", RATIO_BUDGET);
    for (name, samples) in [("relay", &low), ("server", &high)] {
        report.info(format!("broadcast.{name}.quiet.p99"), of(samples, |s| s.quiet_p99_ms), "ms");
        report.info(format!("broadcast.{name}.p99"), of(samples, |s| s.broadcast_p99_ms), "ms");
    }
    let added = of(&high, |s| s.broadcast_p99_ms - s.quiet_p99_ms);
    report.check("broadcast.server.p99-added", added, "ms", P99_BUDGET_MS);
    Ok(())
}

/// Sends `count` broadcasts alone, then beside a pair.
fn measure(
    clients: &ClientOptions,
    sessions: usize,
    count: usize,
    broadcast: impl Fn() -> Result<()>,
) -> Result<BroadcastSample> {
    let mut recipients = recipients(clients, sessions)?;
    // Warms up: buffers and pools have their size afterwards.
    broadcast()?;
    let mut cpu = super::process::CpuMeter::watch(clients.pid)?;
    broadcast()?;
    let used = cpu.elapsed()?;
    let quiet = pair(clients, sessions, count)?;
    std::thread::sleep(PERIOD * u32::try_from(count)? + END);
    let quiet_p99_ms = quiet.stop()?.after_arrivals_ms("message", "p99");
    let busy = pair(clients, sessions, count)?;
    broadcast()?;
    let broadcast_p99_ms = busy.stop()?.after_arrivals_ms("message", "p99");
    recipients.check_running()?;
    let run = recipients.stop()?;
    let broadcasts = 3 * count;
    let received = run.total("messages_foreign") + run.total("presence_received");
    ensure!(
        received >= (broadcasts * sessions) as u64,
        "only {received} of {} deliveries arrived",
        broadcasts * sessions
    );
    Ok(BroadcastSample {
        cpu_us: used as f64 / 1e3 / (count * sessions) as f64,
        quiet_p99_ms,
        broadcast_p99_ms,
        bytes: run.total("bytes_received") as f64 / (broadcasts * sessions) as f64,
    })
}

/// The sessions that receive the broadcasts, all available.
fn recipients(clients: &ClientOptions, sessions: usize) -> Result<LoadRun> {
    let login = clients.login(clients.usual_mechanism());
    let body = format!(
        "[[phase]]\nconcurrency = 64\nusers = \"connections\"\n\n\
         [[session]]\nsteps = [{login}, \"presence\", {{ think = \"1000h\" }}]\n"
    );
    let plan = BenchPlan { connections: sessions, first: 0, hold: "1000h".into(), body };
    let (begun, before) = (now(), established(clients.address));
    let mut run = clients.start(&plan)?;
    while established(clients.address).saturating_sub(before) < sessions {
        run.check_running()?;
        ensure!(begun.elapsed() < Duration::from_secs(300), "{sessions} sessions are not there after 300 s");
        std::thread::sleep(Duration::from_millis(200));
    }
    // The last of them have connected but are not available yet.
    std::thread::sleep(2 * END);
    Ok(run)
}

/// Two further sessions, which send each other 200 messages a second in all until they are stopped.
pub(super) fn pair(clients: &ClientOptions, first: usize, count: usize) -> Result<LoadRun> {
    let login = clients.login(clients.usual_mechanism());
    let body = format!(
        "[[phase]]\nconcurrency = 2\nusers = \"connections\"\n\n\
         [[session]]\nsteps = [{login}, \"presence\", {{ barrier = {{ users = \"connections\", timeout = \"1m\" }} }}, \
         {{ meanwhile = {{ do = [{{ every = \"10ms\", message = {{ to = \"partner/bench\", size = 135 }} }}] }} }}]\n"
    );
    let hold = format!("{}s", 60 + count);
    let run = clients.start(&BenchPlan { connections: 2, first, hold, body })?;
    std::thread::sleep(END);
    Ok(run)
}

/// Announces through the command line, as an administrator does.
fn announce(server: &ServerUnderTest, count: usize) -> Result<()> {
    let text = format!("text={}", "x".repeat(TEXT_CHARACTERS));
    for _ in 0..count {
        let due = now() + PERIOD;
        let mut command: Command = server.command("announce")?;
        let output = command.arg(&text).output()?;
        ensure!(output.status.success(), "announce failed: {}", String::from_utf8_lossy(&output.stderr));
        std::thread::sleep(due.saturating_duration_since(now()));
    }
    std::thread::sleep(END);
    Ok(())
}

/// Has the relay write to all connections, by a client that sends presence.
fn broadcast_by_relay(clients: &ClientOptions, first: usize, count: usize) -> Result<()> {
    let login = clients.login(clients.usual_mechanism());
    // The announcement has addresses, an id and a subject besides its text.
    let status = "x".repeat(TEXT_CHARACTERS + 71);
    let body = format!(
        "[[phase]]\nconcurrency = 1\nusers = \"connections\"\n\n\
         [[session]]\nsteps = [{login}, {{ repeat = {{ times = {count}, steps = [\
         {{ presence = {{ show = \"away\", status = \"{status}\" }} }}, {{ think = \"{}ms\" }}] }} }}]\n",
        PERIOD.as_millis()
    );
    let hold = format!("{}ms", PERIOD.as_millis() * count as u128 + END.as_millis());
    clients.run(&BenchPlan { connections: 1, first: first + 2, hold, body })?;
    Ok(())
}
