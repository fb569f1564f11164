//! `bench route`: what a routed chat message costs the server, beside the relay in the same run.
//!
//! * 100 pairs with 1, 8 and 32 messages in flight each, closed loop: CPU a message, messages a second, one-way latency.
//! * the same pairs at half of the best rate, open loop, 8 messages of a sender at once: one-way latency. Each side at half of its own rate.
//! * the same at half of the rate with 1 in flight, each message by itself.
//! * steady: 10 000 connections with a message each every 5 s (2 000 a second), open loop.
//!
//! Relay and server take turns; figures are medians over the rounds and ratios are medians of each round's ratio, because machines are noisy.
//! The client takes one core. All of it is loopback without TLS, between sessions of one node, with the recipient's full address.
//! Not measured: offline storage, archives, messages to bare addresses, several resources, TLS, other nodes.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::driver::Driver;
use super::hist::Hist;
use super::negotiate::Security;
use super::process::CpuMeter;
use super::report::{BenchReport, median, print_progress};
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};
use super::talk::{Chat, Pace, Sample};

/// The flags of `bench route`.
#[derive(clap::Args, Clone)]
pub(crate) struct RouteBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// Pairs of the dense part.
    #[arg(long, default_value_t = 100)]
    pairs: usize,
    /// Connections of the steady part; 0 leaves it out.
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Leave the dense part out.
    #[arg(long)]
    steady_only: bool,
}

impl RouteBenchArgs {
    /// The usual sizes, for `bench all`.
    pub(crate) fn usual(options: &BenchOptions) -> Self {
        Self { options: options.clone(), pairs: 100, connections: 10_000, steady_only: false }
    }
}

/// Seconds between two messages of one connection in the steady part.
const STEADY_PERIOD_SECONDS: f64 = 5.0;
/// Messages that a sender hands over at once at half of the best rate: that rate came from senders with several in flight.
const BURST: u32 = 8;
const IN_FLIGHT: [usize; 3] = [1, 8, 32];

/// One side of the comparison, connected.
struct ConnectedSide {
    driver: Driver,
    chat: Chat,
    cpu: CpuMeter,
}

impl ConnectedSide {
    fn connect(target: &ServerUnderTest, connections: usize) -> Result<Self> {
        let mut driver = target.driver()?;
        driver.login(0, connections, 64)?;
        driver.quiet(Duration::from_millis(500), Duration::from_secs(60))?;
        let chat = Chat::new(&driver);
        Ok(Self { driver, chat, cpu: target.cpu()? })
    }
}

/// The figures of one workload over the rounds.
struct Series {
    cpu: Vec<f64>,
    rate: Vec<f64>,
    latency: Hist,
    late: Hist,
}

impl Series {
    fn new() -> Self {
        Self { cpu: Vec::new(), rate: Vec::new(), latency: Hist::new(), late: Hist::new() }
    }

    fn add(&mut self, sample: &Sample) {
        self.cpu.push(sample.cpu);
        self.rate.push(sample.rate);
        self.latency.merge(&sample.latency);
        self.late.merge(&sample.late);
    }
}

/// Relay and server over the rounds.
struct RelayAndServer {
    relay: Series,
    server: Series,
}

impl RelayAndServer {
    fn new() -> Self {
        Self { relay: Series::new(), server: Series::new() }
    }

    fn report(&self, report: &mut BenchReport, case: &str, budget: f64) {
        let ratios = self.server.cpu.iter().zip(&self.relay.cpu).map(|(server, relay)| server / relay);
        report.info(format!("route.{case}.relay.cpu"), median(self.relay.cpu.clone()), "us/message");
        report.info(format!("route.{case}.server.cpu"), median(self.server.cpu.clone()), "us/message");
        report.check(format!("route.{case}.ratio"), median(ratios.collect()), "x", budget);
        report.info(format!("route.{case}.relay.rate"), median(self.relay.rate.clone()), "message/s");
        report.info(format!("route.{case}.server.rate"), median(self.server.rate.clone()), "message/s");
    }
}

/// Reports percentiles; the 99th against `budget` in milliseconds when there is one.
fn report_latency(report: &mut BenchReport, name: &str, series: &Series, budget: Option<f64>) {
    report.info(format!("{name}.p50"), series.latency.percentile_ms(0.5), "ms");
    let p99 = series.latency.percentile_ms(0.99);
    match budget {
        Some(budget) => report.check(format!("{name}.p99"), p99, "ms", budget),
        None => report.info(format!("{name}.p99"), p99, "ms"),
    }
    report.info(format!("{name}.max"), series.latency.max_ms(), "ms");
}

/// Measures and reports.
pub(crate) fn run(args: &RouteBenchArgs, report: &mut BenchReport) -> Result<()> {
    ensure!(
        args.pairs > 0 && args.connections.is_multiple_of(2),
        "pairs must be some, connections an even number"
    );
    let options = &args.options;
    let accounts = args.connections.max(2 * args.pairs);
    let server = ServerUnderTest::server(
        options,
        &ServerRequirements { accounts, contacts_per_account: 3, security: Security::None },
    )?;
    let relay = ServerUnderTest::relay(options)?;
    if !args.steady_only {
        measure_dense(args, &relay, &server, report)?;
    }
    if args.connections > 0 {
        measure_steady(args, &relay, &server, report)?;
    }
    Ok(())
}

fn measure_dense(
    args: &RouteBenchArgs,
    relay: &ServerUnderTest,
    server: &ServerUnderTest,
    report: &mut BenchReport,
) -> Result<()> {
    let options = &args.options;
    let mut floor = ConnectedSide::connect(relay, 2 * args.pairs)?;
    let mut side = ConnectedSide::connect(server, 2 * args.pairs)?;
    let length = options.interval(3.0);
    let mut cases = IN_FLIGHT.map(|_| RelayAndServer::new());
    for round in 0..options.rounds(5) {
        for (case, flying) in cases.iter_mut().zip(IN_FLIGHT) {
            let under = floor.chat.closed(&mut floor.driver, &mut floor.cpu, flying, length)?;
            let over = side.chat.closed(&mut side.driver, &mut side.cpu, flying, length)?;
            print_progress(&format!(
                "round {round}, {flying} in flight: relay {:.2}, server {:.2} us/message",
                under.cpu, over.cpu
            ));
            case.relay.add(&under);
            case.server.add(&over);
        }
    }
    for (case, flying) in cases.iter().zip(IN_FLIGHT) {
        let budget = if flying == 1 { 2.0 } else { 1.5 };
        case.report(report, &format!("{flying}-in-flight"), budget);
        report_latency(report, &format!("route.{flying}-in-flight.server"), &case.server, None);
    }
    let best = |pick: fn(&RelayAndServer) -> &Series| {
        cases.iter().map(|case| median(pick(case).rate.clone())).fold(0.0, f64::max)
    };
    let halves = [best(|case| &case.relay) / 2.0, best(|case| &case.server) / 2.0];
    let mut half = RelayAndServer::new();
    for _ in 0..options.rounds(3) {
        for ((side, rate), series) in
            [&mut floor, &mut side].into_iter().zip(halves).zip([&mut half.relay, &mut half.server])
        {
            let pace = Pace { rate, both: false, burst: BURST };
            series.add(&side.chat.open(&mut side.driver, &mut side.cpu, pace, length / 4, length)?);
        }
    }
    report.info("route.half-rate.relay.p99", half.relay.latency.percentile_ms(0.99), "ms");
    report.info("route.half-rate.server.rate", median(half.server.rate.clone()), "message/s");
    report_latency(report, "route.half-rate.server", &half.server, Some(2.0));
    report.info("route.half-rate.client-late.p99", half.server.late.percentile_ms(0.99), "ms");
    // The rate above is what two cores can do when the client takes one of them, so the client is late there as
    // well. At half of what single messages reach, it is not.
    let rate = median(cases[0].server.rate.clone()) / 2.0;
    let mut single = Series::new();
    for _ in 0..options.rounds(3) {
        let pace = Pace { rate, both: false, burst: 1 };
        single.add(&side.chat.open(&mut side.driver, &mut side.cpu, pace, length / 4, length)?);
    }
    report.info("route.half-single.server.rate", median(single.rate.clone()), "message/s");
    report_latency(report, "route.half-single.server", &single, Some(2.0));
    report.info("route.half-single.client-late.p99", single.late.percentile_ms(0.99), "ms");
    floor.driver.close_all()?;
    side.driver.close_all()
}

fn measure_steady(
    args: &RouteBenchArgs,
    relay: &ServerUnderTest,
    server: &ServerUnderTest,
    report: &mut BenchReport,
) -> Result<()> {
    let options = &args.options;
    let pace = Pace { rate: args.connections as f64 / STEADY_PERIOD_SECONDS, both: true, burst: 1 };
    // One period of warming up: every connection has spoken once.
    let (warm, length) = (
        Duration::from_secs_f64(STEADY_PERIOD_SECONDS),
        options.interval(20.0).max(Duration::from_secs_f64(STEADY_PERIOD_SECONDS)),
    );
    let mut versus = RelayAndServer::new();
    for round in 0..options.rounds(3) {
        // One after the other: both together would need more files than a process may open.
        for (target, series) in [(relay, &mut versus.relay), (server, &mut versus.server)] {
            let mut side = ConnectedSide::connect(target, args.connections)?;
            let sample = side.chat.open(&mut side.driver, &mut side.cpu, pace, warm, length)?;
            print_progress(&format!("round {round}, steady: {:.2} us/message", sample.cpu));
            series.add(&sample);
            side.driver.close_all()?;
        }
    }
    versus.report(report, "steady", 2.0);
    report.info("route.steady.relay.p99", versus.relay.latency.percentile_ms(0.99), "ms");
    report_latency(report, "route.steady.server", &versus.server, Some(0.43));
    report.info("route.steady.client-late.p99", versus.server.late.percentile_ms(0.99), "ms");
    Ok(())
}
