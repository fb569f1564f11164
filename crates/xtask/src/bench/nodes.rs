//! `bench pubsub`: events of PubSub nodes (XEP-0060) of Throng, ejabberd and Prosody, beside a loop that writes the same bytes to
//! the same sockets.
//!
//! Each server alone and fresh, on plain TCP over loopback; the clients share its cores. The loop is the gathering relay
//! (`relay_nodes.rs`): one thread that parses nothing. All users subscribe to one node with the server's default
//! configuration; its creator publishes. Runs, for each number of subscribers:
//!
//! * an item a second: CPU and delivery times of an event when nothing else happens;
//! * four items at once, ten times a second: several events on their way together.
//!
//! Lost, duplicate and reordered events are those of the generator's account (`loadgen/src/control/room_accounting.rs`).
//!
//! Not measured: TLS, several nodes of a cluster, retrieval, nodes of more subscribers than are online
//! (`bench subscriptions`, and the workload `pubsub-1m-subscribers`).

use anyhow::{Result, ensure};

use super::clients::{BenchPlan, ClientOptions};
use super::report::{BenchReport, print_progress, print_result};
use super::rooms::{RoomBenchTable, RoomServer, RoomServerKind, install};
use super::server_under_test::{BenchOptions, server_program};

/// Bytes of an item's content; an event has some 420.
const BODY_BYTES: usize = 100;

/// Budgets: times the loop's, of an item a second and of several at once.
const EVENT_BUDGET: f64 = 1.5;
const BURST_BUDGET: f64 = 2.5;
const P99_BUDGET: f64 = 1.25;

/// Rows of faults, of which there must be none, and their counters.
const FAULTS: [(&str, &str); 5] = [
    ("events lost", "node_events_lost"),
    ("events doubled", "node_events_duplicate"),
    ("events out of order", "node_events_reordered"),
    ("sessions lost", "sessions_lost"),
    ("subscriptions failed", "node_subscription_errors"),
];

/// The flags of `bench pubsub`.
#[derive(clap::Args, Clone)]
pub(crate) struct NodeBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// These servers only.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<RoomServerKind>,
    /// Subscribers of the node, two runs each.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    subscribers: Vec<usize>,
}

/// How items are published.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Single,
    Burst,
}

impl Pace {
    const ALL: [Pace; 2] = [Pace::Single, Pace::Burst];

    const fn name(self) -> &'static str {
        match self {
            Pace::Single => "single",
            Pace::Burst => "burst",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Pace::Single => "an item a second",
            Pace::Burst => "four items at once, ten times a second",
        }
    }

    const fn activity(self) -> &'static str {
        match self {
            Pace::Single => "every = \"1s\"",
            Pace::Burst => "every = \"100ms\", batch = 4",
        }
    }
}

/// Measures, prints a table for each run, and reports Throng's budgets.
pub(crate) fn run(args: &NodeBenchArgs, report: &mut BenchReport) -> Result<()> {
    let options = &args.options;
    ensure!(options.target.is_none(), "bench pubsub starts the servers itself: leave --target out");
    ensure!(args.subscribers.iter().all(|it| *it >= 10), "--subscribers must be at least 10");
    let wanted = |kind: &RoomServerKind| args.only.is_empty() || args.only.contains(kind);
    let servers: Vec<RoomServerKind> = RoomServerKind::ALL.into_iter().filter(wanted).collect();
    install(&servers)?;
    let program = server_program(options)?;
    let mut failed = Vec::new();
    for subscribers in &args.subscribers {
        for pace in Pace::ALL {
            let mut table =
                RoomBenchTable::new(format!("{subscribers} subscribers, {}", pace.title()), &servers);
            for kind in &servers {
                let server = RoomServer::start_with_nodes(options, &program, *kind, *subscribers);
                // One that cannot be measured must not lose the results of the others.
                let measured = server
                    .and_then(|server| measure(options, *kind, server, (*subscribers, pace), &mut table));
                if let Err(error) = measured {
                    print_progress(&format!("{}: {error:#}", kind.name()));
                    failed.push(format!("{}: {error:#}", kind.name()));
                }
            }
            print_result(&table.markdown());
            check(report, &table, *subscribers, pace);
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn check(report: &mut BenchReport, table: &RoomBenchTable, subscribers: usize, pace: Pace) {
    let name = |figure: &str| format!("pubsub.{subscribers}.{}.{figure}", pace.name());
    let faults: Vec<f64> =
        FAULTS.iter().filter_map(|(row, _)| table.value(RoomServerKind::Throng, row)).collect();
    if !faults.is_empty() {
        report.check(name("faults"), faults.iter().sum(), "", 0.0);
    }
    let budget = if pace == Pace::Single { EVENT_BUDGET } else { BURST_BUDGET };
    if let Some(ratio) = table.ratio("CPU of an event, us") {
        report.check(name("event.ratio"), ratio, "x", budget);
    }
    if let Some(ratio) = table.ratio("delivery p99, ms") {
        report.check(name("p99.ratio"), ratio, "x", P99_BUDGET);
    }
}

fn measure(
    options: &BenchOptions,
    kind: RoomServerKind,
    server: RoomServer,
    (subscribers, pace): (usize, Pace),
    table: &mut RoomBenchTable,
) -> Result<()> {
    let plan = plan(server.clients(), subscribers, pace, options.interval(30));
    let run = server.clients().start_monitored(&plan)?.finish_with_faults();
    server.end();
    let run = run?;
    print_progress(&format!("{}: errors {}", kind.name(), run.errors()));
    table.set(kind, "subscribed", run.total("node_subscriptions") as f64);
    let window = run.steady("node_events")?;
    table.set(kind, "CPU of an event, us", run.cpu_ns(&window.seconds)? / 1e3 / window.count as f64);
    table.set(kind, "events a second", window.rate());
    for (name, statistic) in
        [("delivery p50, ms", "p50"), ("delivery p99, ms", "p99"), ("delivery, longest, ms", "max")]
    {
        table.set(kind, name, run.total_ms("node_event", statistic));
    }
    table.set(kind, "answer to a publication, p99, ms", run.total_ms("node_publish", "p99"));
    table.set(kind, "items", run.total("node_publications") as f64);
    table.set(kind, "items refused", run.total("node_publications_refused") as f64);
    table.set(kind, "events", run.total("node_events") as f64);
    for (name, counter) in FAULTS {
        table.set(kind, name, run.total(counter) as f64);
    }
    table.set(kind, "the generator late by, p99, ms", run.total_ms("lateness", "p99"));
    Ok(())
}

/// The first user creates the node before all subscribe.
fn plan(clients: &ClientOptions, subscribers: usize, pace: Pace, seconds: u64) -> BenchPlan {
    let login = clients.login(clients.usual_mechanism());
    let barrier = "{ barrier = { users = \"connections\", timeout = \"180s\" } }";
    let body = format!(
        "[[phase]]\nname = \"login\"\nconcurrency = 64\nusers = \"connections\"\n\n\
         [[session]]\nname = \"subscriber\"\nsteps = [\n  {login},\n  \"presence\",\n  {{ set = {{ number = \"{{n}}\" }} }},\n  \
         {{ if = {{ variable = \"number\", below = 1, steps = [{{ pubsub_create = {{ node = \"n\" }} }}] }} }},\n  {barrier},\n  \
         {{ pubsub_subscribe = {{ node = \"n\" }} }},\n  {barrier},\n  {{ think = \"3s\" }},\n  \
         {{ if = {{ variable = \"number\", below = 1, steps = [{{ meanwhile = {{ do = [{{ {activity}, \
         pubsub_publish = {{ node = \"n\", size = {BODY_BYTES}, wait = \"none\" }} }}] }} }}] }} }},\n  {{ think = \"1000h\" }},\n]\n",
        activity = pace.activity(),
    );
    let hold = format!("{}s", 10 + subscribers as u64 / 500 + seconds);
    BenchPlan { connections: subscribers, first: 0, hold, body }
}
