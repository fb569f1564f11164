//! Writes that clients cause, until the server has confirmed them: offline messages (XEP-0198) and roster changes (RFC 6121,
//! section 2.4).
//!
//! * Offline messages: as `bench offline`, of one sender and of 16, each with 128 messages that are not acknowledged; and the
//!   time to an acknowledgement at half of the rate that is expected, or of the rate of the 16 if that is lower.
//! * Roster changes: 256 users, each of whom renames a contact, waits for the result and begins again.
//!
//! # Pitfalls
//!
//! Recipients keep their messages, and senders fill them: a recipient stores 1 000 messages and 500 of one sender.

use anyhow::{Context as _, Result};

use super::super::clients::{BenchPlan, ClientOptions, MeasuredRun};
use super::super::offline;
use super::super::report::{BenchReport, median, print_progress};
use super::DatabaseBenchArgs;
use super::nodes::DatabaseNode;

/// Senders of offline messages.
pub(super) const SENDERS: usize = 16;
/// Users that change their rosters.
pub(super) const ROSTER_USERS: usize = 256;

/// Rate at which the time of an acknowledgement is measured: half of the 20 000 messages a second that are expected.
const MEASURED_RATE: f64 = 10_000.0;

/// Confirmed operations of a run.
pub(super) struct CostSample {
    /// In a second.
    pub(super) rate: f64,
    /// Microseconds of CPU of one, in the server.
    pub(super) cpu_us: f64,
    /// The same in the database's server.
    pub(super) database_cpu_us: f64,
}

/// Clients of one server.
pub(super) struct WritingClients<'a> {
    pub(super) clients: &'a ClientOptions,
    pub(super) accounts: usize,
    /// Whole seconds of a run.
    pub(super) seconds: u64,
}

impl WritingClients<'_> {
    /// Messages to offline users, as fast as they are acknowledged.
    pub(super) fn messages(&self, senders: usize) -> Result<CostSample> {
        let run = self.run(self.accounts, self.send(senders, &offline::closed_loop()))?;
        sample(&run, "stanzas_acknowledged")
    }

    /// The 99th percentile of the time to an acknowledgement, in milliseconds, at a rate.
    pub(super) fn acknowledgement_ms(&self, senders: usize, rate: f64) -> Result<f64> {
        let step = offline::open_loop(rate / senders as f64);
        let run = self.run(self.accounts, self.send(senders, &step))?;
        Ok(run.after_arrivals_ms("sm_ack", "p99"))
    }

    /// Roster changes, as fast as they are confirmed.
    pub(super) fn roster_changes(&self, users: usize) -> Result<CostSample> {
        let login = self.clients.login(self.clients.usual_mechanism());
        let body = format!(
            "[[phase]]\nconcurrency = {users}\nusers = {users}\n\n[[session]]\nsteps = [\n  {login},\n  \
             {{ repeat = {{ steps = [{{ roster_set = {{ to = \"ring+1\", name = \"{{unique}}\" }} }}] }} }},\n]\n"
        );
        // Contacts are the neighbours in the ring of all accounts.
        sample(&self.run(self.accounts, body)?, "timing:roster_set")
    }

    fn send(&self, senders: usize, step: &str) -> String {
        offline::senders(&self.clients.login(self.clients.usual_mechanism()), senders, step)
    }

    fn run(&self, connections: usize, body: String) -> Result<MeasuredRun> {
        // The first and the last second are not whole ones.
        let hold = format!("{}s", self.seconds + 3);
        self.clients.run(&BenchPlan { connections, first: 0, hold, body })
    }
}

fn sample(run: &MeasuredRun, count: &str) -> Result<CostSample> {
    let window = run.steady(count)?;
    let each = window.count.max(1) as f64;
    Ok(CostSample {
        rate: window.rate(),
        cpu_us: run.cpu_ns(&window.seconds)? / 1e3 / each,
        database_cpu_us: run.database_cpu_ns(&window.seconds)? / 1e3 / each,
    })
}

/// Measures and reports.
pub(super) fn measure(
    args: &DatabaseBenchArgs,
    nodes: &[DatabaseNode],
    report: &mut BenchReport,
) -> Result<()> {
    let each = nodes.len();
    let [mut lone, mut many, mut roster] = [(); 3].map(|()| CostSamples::new(each));
    let mut slowest: Vec<Vec<f64>> = vec![Vec::new(); each];
    for round in 0..args.options.rounds(3) {
        for (at, node) in nodes.iter().enumerate() {
            let clients = WritingClients {
                clients: &node.node.clients,
                accounts: args.accounts,
                seconds: args.options.interval(6),
            };
            let what = |what: &str| format!("{what} on {}", node.name);
            lone.push(at, clients.messages(1).with_context(|| what("messages"))?);
            let messages = clients.messages(SENDERS).with_context(|| what("messages"))?;
            let p99 = clients.acknowledgement_ms(SENDERS, MEASURED_RATE.min(messages.rate / 2.0));
            let p99 = p99.with_context(|| what("acknowledgements"))?;
            let changes = clients.roster_changes(ROSTER_USERS).with_context(|| what("roster changes"))?;
            print_progress(&format!(
                "round {round}, {}: {:.0} acknowledged a second, p99 {p99:.1} ms at half of the goal, {:.0} roster changes",
                node.name, messages.rate, changes.rate
            ));
            many.push(at, messages);
            slowest[at].push(p99);
            roster.push(at, changes);
        }
    }
    for (at, node) in nodes.iter().enumerate() {
        let name = node.name;
        lone.report(at, &format!("databases.offline.{name}.1"), report);
        many.report(at, &format!("databases.offline.{name}.{SENDERS}"), report);
        report.info(format!("databases.offline.{name}.ack.p99"), median(slowest[at].clone()), "ms");
        roster.report(at, &format!("databases.roster.{name}"), report);
    }
    Ok(())
}

/// Samples of several servers.
pub(super) struct CostSamples(Vec<Vec<CostSample>>);

impl CostSamples {
    pub(super) fn new(servers: usize) -> Self {
        Self((0..servers).map(|_| Vec::new()).collect())
    }

    pub(super) fn push(&mut self, server: usize, sample: CostSample) {
        self.0[server].push(sample);
    }

    /// Reports medians.
    pub(super) fn report(&self, server: usize, name: &str, report: &mut BenchReport) {
        let middle = |pick: fn(&CostSample) -> f64| median(self.0[server].iter().map(pick).collect());
        report.info(format!("{name}.rate"), middle(|sample| sample.rate), "write/s");
        report.info(format!("{name}.cpu"), middle(|sample| sample.cpu_us), "us/write");
        let database = middle(|sample| sample.database_cpu_us);
        if database > 0.0 {
            report.info(format!("{name}.database"), database, "us/write");
        }
    }
}
