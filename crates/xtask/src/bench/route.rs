//! `bench route`: cost of a routed chat message, beside two relays in the same run: a naive one and, for dense traffic, one
//! that gathers its writes (the lower bound).
//!
//! * 100 pairs with 1, 8 and 32 messages in flight per pair, closed loop: CPU per message, messages per second,
//!   latency.
//! * the same pairs at half of the best rate, open loop, 8 messages of a sender at once: latency. Each side at half of
//!   its own rate.
//! * the same at half of the rate with 1 in flight, each message alone.
//! * steady: 10 000 connections with a message each every 5 s (2 000 a second), open loop.
//!
//! Relays and server take turns; results are medians over the rounds, and ratios are medians of each round's ratio,
//! because machines are noisy. The clients take one core. All of it is loopback without TLS, between sessions of one
//! node, with the recipient's full address.
//!
//! Not measured: offline storage, archives, messages to bare addresses, several resources, TLS, other nodes.
//!
//! # Pitfalls
//!
//! Latency counts from the moment at which a message was due, so the lateness of the clients is part of it; their 99th
//! percentile stands beside it. Near the best rate a client that shares cores with the server is late.

use anyhow::{Result, ensure};

use super::clients::{BenchPlan, ClientOptions, ClientSecurity};
use super::report::{BenchReport, median, print_progress};
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};

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

/// Bytes of a message's body; with its tags and both addresses a delivered message has some 265.
const BODY_BYTES: usize = 135;
/// Seconds between two messages of one connection in the steady part.
const STEADY_PERIOD_SECONDS: f64 = 5.0;
/// Messages that a sender sends at once at half of the best rate: that rate came from senders with several in flight.
const BURST: u32 = 8;
/// Most times the CPU of the relay that gathers its writes, with several messages in flight.
const GATHERING_BUDGET: f64 = 2.0;
const IN_FLIGHT: [usize; 3] = [1, 8, 32];

/// Measurements of one interval.
pub(crate) struct ChatSample {
    /// Microseconds of server CPU for each message delivered.
    pub(crate) cpu_us: f64,
    /// Messages delivered in a second.
    pub(crate) rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// 99th percentile of how late the clients sent.
    late_p99_ms: f64,
}

/// Chat between pairs of connections.
pub(crate) struct PairChat<'a> {
    pub(crate) clients: &'a ClientOptions,
    pub(crate) connections: usize,
    /// Whole seconds that are measured.
    pub(crate) seconds: u64,
}

impl PairChat<'_> {
    /// Keeps `in_flight` messages of each pair on the way.
    pub(crate) fn closed(&self, in_flight: usize) -> Result<ChatSample> {
        let step = format!(
            "{{ bounce = {{ in_flight = {in_flight}, start = \"even\", size = {BODY_BYTES}, resource = \"bench\" }} }}"
        );
        self.measure(&step)
    }

    /// Sends `rate` messages a second, `burst` of a user at once, whatever is delivered.
    pub(crate) fn open(&self, rate: f64, burst: u32) -> Result<ChatSample> {
        let every_ms = self.connections as f64 * f64::from(burst) * 1e3 / rate;
        let step = format!(
            "{{ meanwhile = {{ do = [{{ every = \"{every_ms:.3}ms\", batch = {burst}, \
             message = {{ to = \"partner/bench\", size = {BODY_BYTES} }} }}] }} }}"
        );
        self.measure(&step)
    }

    fn measure(&self, step: &str) -> Result<ChatSample> {
        let login = self.clients.login(self.clients.usual_mechanism());
        let body = format!(
            "[[phase]]\nname = \"login\"\nconcurrency = 64\nusers = \"connections\"\n\n\
             [[session]]\nname = \"chat\"\nsteps = [\n  {login},\n  \"roster\",\n  \"presence\",\n  \
             {{ barrier = {{ users = \"connections\", timeout = \"2m\" }} }},\n  {step},\n]\n"
        );
        // The first and the last second are not whole ones.
        let hold = format!("{}s", self.seconds + 3);
        let run = self.clients.run(&BenchPlan { connections: self.connections, first: 0, hold, body })?;
        let window = run.steady("messages_delivered")?;
        Ok(ChatSample {
            cpu_us: run.cpu_ns(&window.seconds)? / 1e3 / window.count as f64,
            rate: window.rate(),
            p50_ms: run.after_arrivals_ms("message", "p50"),
            p99_ms: run.after_arrivals_ms("message", "p99"),
            max_ms: run.after_arrivals_ms("message", "max"),
            late_p99_ms: run.after_arrivals_ms("lateness", "p99"),
        })
    }
}

/// Samples of one workload over the rounds.
#[derive(Default)]
struct ChatSeries(Vec<ChatSample>);

impl ChatSeries {
    fn median(&self, pick: fn(&ChatSample) -> f64) -> f64 {
        median(self.0.iter().map(pick).collect())
    }
}

/// Relays and server over the rounds.
#[derive(Default)]
struct RelayAndServer {
    relay: ChatSeries,
    /// Empty in the steady part, where nothing can be gathered.
    gathering_relay: ChatSeries,
    server: ChatSeries,
}

impl RelayAndServer {
    /// Median of each round's ratio of the server's CPU to that of a relay.
    fn ratio(&self, relay: &ChatSeries) -> f64 {
        let rounds = self.server.0.iter().zip(&relay.0);
        median(rounds.map(|(server, relay)| server.cpu_us / relay.cpu_us).collect())
    }

    fn report(&self, report: &mut BenchReport, case: &str, budget: f64) {
        report.info(format!("route.{case}.relay.cpu"), self.relay.median(|s| s.cpu_us), "us/message");
        report.info(format!("route.{case}.server.cpu"), self.server.median(|s| s.cpu_us), "us/message");
        report.check(format!("route.{case}.ratio"), self.ratio(&self.relay), "x", budget);
        report.info(format!("route.{case}.relay.rate"), self.relay.median(|s| s.rate), "message/s");
        report.info(format!("route.{case}.server.rate"), self.server.median(|s| s.rate), "message/s");
    }
}

impl RelayAndServer {
    /// Reports the server beside the relay that gathers its writes. One message in flight leaves nothing to gather.
    fn report_dense(&self, report: &mut BenchReport, in_flight: usize) {
        let relay = &self.gathering_relay;
        report.info(
            format!("route.{in_flight}-in-flight.gathering-relay.cpu"),
            relay.median(|s| s.cpu_us),
            "us/message",
        );
        report.info(
            format!("route.{in_flight}-in-flight.gathering-relay.rate"),
            relay.median(|s| s.rate),
            "message/s",
        );
        let name = format!("route.{in_flight}-in-flight.gathering-ratio");
        match in_flight {
            1 => report.info(name, self.ratio(relay), "x"),
            _ => report.check(name, self.ratio(relay), "x", GATHERING_BUDGET),
        }
    }
}

/// Reports percentiles; the 99th against `budget` in milliseconds when there is one.
fn report_latency(report: &mut BenchReport, name: &str, series: &ChatSeries, budget: Option<f64>) {
    report.info(format!("{name}.p50"), series.median(|s| s.p50_ms), "ms");
    let p99 = series.median(|s| s.p99_ms);
    match budget {
        Some(budget) => report.check(format!("{name}.p99"), p99, "ms", budget),
        None => report.info(format!("{name}.p99"), p99, "ms"),
    }
    report.info(format!("{name}.max"), series.0.iter().map(|s| s.max_ms).fold(0.0, f64::max), "ms");
}

/// Measures and reports.
pub(crate) fn run(args: &RouteBenchArgs, report: &mut BenchReport) -> Result<()> {
    ensure!(
        args.pairs > 0 && args.connections.is_multiple_of(2),
        "--pairs must be at least 1, --connections an even number"
    );
    let options = &args.options;
    let accounts = args.connections.max(2 * args.pairs);
    let need = ServerRequirements { accounts, contacts_per_account: 3, security: ClientSecurity::None };
    let server = ServerUnderTest::server(options, &need)?;
    let relay = ServerUnderTest::relay(options)?;
    if !args.steady_only {
        let gathering_relay = ServerUnderTest::gathering_relay(options)?;
        measure_dense(args, [&relay, &gathering_relay], &server, report)?;
    }
    if args.connections > 0 {
        measure_steady(args, &relay, &server, report)?;
    }
    Ok(())
}

fn measure_dense(
    args: &RouteBenchArgs,
    [relay, gathering_relay]: [&ServerUnderTest; 2],
    server: &ServerUnderTest,
    report: &mut BenchReport,
) -> Result<()> {
    let options = &args.options;
    let (connections, seconds) = (2 * args.pairs, options.interval(3));
    let relay = PairChat { clients: &relay.clients, connections, seconds };
    let gathering_relay = PairChat { clients: &gathering_relay.clients, connections, seconds };
    let server = PairChat { clients: &server.clients, connections, seconds };
    let mut cases = IN_FLIGHT.map(|_| RelayAndServer::default());
    for round in 0..options.rounds(5) {
        for (case, in_flight) in cases.iter_mut().zip(IN_FLIGHT) {
            let (relay_cost, measured) = (relay.closed(in_flight)?, server.closed(in_flight)?);
            let gathering_cost = gathering_relay.closed(in_flight)?;
            print_progress(&format!(
                "round {round}, {in_flight} in flight: relay {:.2}, gathering relay {:.2}, server {:.2} us/message",
                relay_cost.cpu_us, gathering_cost.cpu_us, measured.cpu_us
            ));
            case.relay.0.push(relay_cost);
            case.gathering_relay.0.push(gathering_cost);
            case.server.0.push(measured);
        }
    }
    for (case, in_flight) in cases.iter().zip(IN_FLIGHT) {
        let budget = if in_flight == 1 { 2.0 } else { 1.5 };
        case.report(report, &format!("{in_flight}-in-flight"), budget);
        case.report_dense(report, in_flight);
        report_latency(report, &format!("route.{in_flight}-in-flight.server"), &case.server, None);
    }
    let best = |pick: fn(&RelayAndServer) -> &ChatSeries| {
        cases.iter().map(|case| pick(case).median(|s| s.rate)).fold(0.0, f64::max)
    };
    let halves = [best(|case| &case.relay) / 2.0, best(|case| &case.server) / 2.0];
    let mut half = RelayAndServer::default();
    for _ in 0..options.rounds(3) {
        half.relay.0.push(relay.open(halves[0], BURST)?);
        half.server.0.push(server.open(halves[1], BURST)?);
    }
    report.info("route.half-rate.relay.p99", half.relay.median(|s| s.p99_ms), "ms");
    report.info("route.half-rate.server.rate", half.server.median(|s| s.rate), "message/s");
    report_latency(report, "route.half-rate.server", &half.server, Some(2.0));
    report.info("route.half-rate.client-late.p99", half.server.median(|s| s.late_p99_ms), "ms");
    // The rate above is what two cores can do when the client takes one of them, so the client is late there as
    // well. At half of the rate of single messages, it is not.
    let rate = cases[0].server.median(|s| s.rate) / 2.0;
    let mut single = ChatSeries::default();
    for _ in 0..options.rounds(3) {
        single.0.push(server.open(rate, 1)?);
    }
    report.info("route.half-single.server.rate", single.median(|s| s.rate), "message/s");
    report_latency(report, "route.half-single.server", &single, Some(2.0));
    report.info("route.half-single.client-late.p99", single.median(|s| s.late_p99_ms), "ms");
    Ok(())
}

fn measure_steady(
    args: &RouteBenchArgs,
    relay: &ServerUnderTest,
    server: &ServerUnderTest,
    report: &mut BenchReport,
) -> Result<()> {
    let options = &args.options;
    let rate = args.connections as f64 / STEADY_PERIOD_SECONDS;
    // One period of warming up: every connection has sent once.
    let seconds = options.interval(20).max(STEADY_PERIOD_SECONDS as u64) + STEADY_PERIOD_SECONDS as u64;
    let mut both = RelayAndServer::default();
    for round in 0..options.rounds(3) {
        // One after the other: both together would need more files than a process may open.
        for (measured, series) in [(relay, &mut both.relay), (server, &mut both.server)] {
            let chat = PairChat { clients: &measured.clients, connections: args.connections, seconds };
            let sample = chat.open(rate, 1)?;
            print_progress(&format!("round {round}, steady: {:.2} us/message", sample.cpu_us));
            series.0.push(sample);
        }
    }
    both.report(report, "steady", 2.0);
    report.info("route.steady.relay.p99", both.relay.median(|s| s.p99_ms), "ms");
    report_latency(report, "route.steady.server", &both.server, Some(0.43));
    report.info("route.steady.client-late.p99", both.server.median(|s| s.late_p99_ms), "ms");
    Ok(())
}
