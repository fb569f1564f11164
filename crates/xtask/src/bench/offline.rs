//! `bench offline`: messages to offline users, from one sender with stream management (XEP-0198), to a server with SQLite.
//!
//! The server acknowledges a message when it is durable, so the sender's acknowledgements measure the store.
//!
//! * closed loop: 128 messages are sent, then all their acknowledgements awaited: acknowledged messages per second.
//! * open loop at half of the budget of that, 8 messages at once: time from `<r/>` to the `<a/>` that covers what was sent
//!   before it.
//!
//! Recipients are chosen at random, so most batches have one message for each recipient.
//!
//! Not measured: several senders, delivery at a login, recipients that are online, other databases.
//!
//! # Pitfalls
//!
//! The disk decides: each group is synchronised to it. A recipient stores 1 000 messages and 500 of one sender, so the
//! number of accounts bounds what a run may send.

use anyhow::{Result, ensure};

use super::clients::{BenchPlan, ClientSecurity, MeasuredRun};
use super::report::{BenchReport, median, print_progress};
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};

/// The flags of `bench offline`.
#[derive(clap::Args, Clone)]
pub(crate) struct OfflineBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// Recipients.
    #[arg(long, default_value_t = 4_000)]
    recipients: usize,
}

/// Bytes of a message's body, as in `bench route`.
const BODY_BYTES: usize = 135;
/// Messages of the closed loop that are not acknowledged: half of what the server lets wait.
const IN_FLIGHT: usize = 128;
/// Messages sent at once in the open loop: the load generator requests an acknowledgement after as many.
const BURST: usize = 8;
/// Acknowledged messages per second, at least.
const RATE_BUDGET: f64 = 5_000.0;
/// 99th percentile of the time to an acknowledgement, in milliseconds.
const ACK_BUDGET_MS: f64 = 20.0;

/// Measures and reports.
pub(crate) fn run(args: &OfflineBenchArgs, report: &mut BenchReport) -> Result<()> {
    let options = &args.options;
    let accounts = args.recipients.max(IN_FLIGHT) + 1;
    let need = ServerRequirements { accounts, contacts_per_account: 3, security: ClientSecurity::None };
    let server = ServerUnderTest::server(options, &need)?;
    // The first and the last second are not whole ones.
    let hold = format!("{}s", options.interval(5) + 3);
    let measure = |step: &str| -> Result<MeasuredRun> {
        let login = server.clients.login(server.clients.usual_mechanism());
        let body = senders(&login, 1, step);
        server.clients.run(&BenchPlan { connections: accounts, first: 0, hold: hold.clone(), body })
    };
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    let (mut half, mut slowest, mut longest) = (Vec::new(), Vec::new(), 0_f64);
    for round in 0..options.rounds(3) {
        let closed = measure(&closed_loop())?;
        let window = closed.steady("stanzas_acknowledged")?;
        let cost = closed.cpu_ns(&window.seconds)? / 1e3 / window.count as f64;
        let open = measure(&open_loop(RATE_BUDGET / 2.0))?;
        let (p50, p99) = (open.after_arrivals_ms("sm_ack", "p50"), open.after_arrivals_ms("sm_ack", "p99"));
        ensure!(p99 > 0.0, "no acknowledgement was measured; give a newer generator with --generator");
        let rate = window.rate();
        print_progress(&format!(
            "round {round}: {rate:.0} acknowledged/s, {cost:.1} us each, p99 {p99:.2} ms"
        ));
        rates.push(rate);
        costs.push(cost);
        half.push(p50);
        slowest.push(p99);
        longest = longest.max(open.after_arrivals_ms("sm_ack", "max"));
    }
    let rate = median(rates);
    report.info("offline.rate", rate, "acknowledged/s");
    // Budgets are upper bounds.
    report.check("offline.time", 1e6 / rate, "us/message", 1e6 / RATE_BUDGET);
    report.info("offline.cpu", median(costs), "us/message");
    report.info("offline.ack.p50", median(half), "ms");
    report.check("offline.ack.p99", median(slowest), "ms", ACK_BUDGET_MS);
    report.info("offline.ack.max", longest, "ms");
    Ok(())
}

/// A plan with some users, each of whom runs this step.
pub(crate) fn senders(login: &str, count: usize, step: &str) -> String {
    format!(
        "[[phase]]\nconcurrency = {count}\nusers = {count}\n\n\
         [[session]]\nname = \"sender\"\nsteps = [\n  {login},\n  \"stream_management\",\n  {step},\n]\n"
    )
}

/// Sends [`IN_FLIGHT`] messages, waits for their acknowledgement, and begins again. Written out, because a user runs a
/// bounded number of steps at a time and a loop inside would count as well.
pub(crate) fn closed_loop() -> String {
    let message = format!("{{ message = {{ to = \"offline\", size = {BODY_BYTES} }} }},\n    ");
    format!(
        "{{ repeat = {{ steps = [\n    {}\
         {{ message = {{ to = \"offline\", size = {BODY_BYTES}, wait = \"acknowledged\" }} }},\n  ] }} }}",
        message.repeat(IN_FLIGHT - 1)
    )
}

/// Sends `rate` messages a second, whatever is acknowledged.
pub(crate) fn open_loop(rate: f64) -> String {
    let every_ms = BURST as f64 * 1e3 / rate;
    format!(
        "{{ meanwhile = {{ do = [{{ every = \"{every_ms:.3}ms\", batch = {BURST}, \
         message = {{ to = \"offline\", size = {BODY_BYTES} }} }}] }} }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_loop_sends_half_of_the_budget() {
        let step = open_loop(RATE_BUDGET / 2.0);
        assert!(step.contains("every = \"3.200ms\", batch = 8"), "{step}");
    }

    #[test]
    fn the_closed_loop_waits_once_for_all_its_messages() {
        let plan = senders("\"login\"", 1, &closed_loop());
        let count = |word: &str| plan.matches(word).count();
        assert_eq!((count("message = "), count("\"acknowledged\"")), (IN_FLIGHT, 1), "{plan}");
    }
}
