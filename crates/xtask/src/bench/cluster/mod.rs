//! `bench cluster`: what more nodes cost, with the load of the published test of a cluster (`atom-cluster-K`).
//!
//! A NATS server, a PostgreSQL server and 1, 2 and 5 nodes in turn, all on this machine with one database. The load is the
//! same for each number of nodes: the same users with the same rosters, each node with an equal part of them, and every time
//! of the plan divided by `--factor`, so that some thousand users make a core busy. For each number of nodes: CPU of all
//! nodes and of NATS for each stanza that a client received, delivery times on the same node and between nodes, messages and
//! bytes between nodes.
//!
//! A single node has no `[cluster]`, so that the ratios include all that a cluster costs. *Nodes to load* is the load that K
//! nodes on K machines take, relative to that of one: K divided by the ratio of the CPU for each stanza.
//!
//! A stanza costs a node more the less it has to do, because fewer of them share a wake-up. Each of K nodes has a K-th of the load, so
//! one node with a K-th of the users is measured, too: the ratio to it is what the cluster itself costs.
//!
//! Not measured: TLS, nodes on several machines, logins (the measured seconds begin after the last one).
//!
//! # Pitfalls
//!
//! All processes share the cores of this machine. A saturated machine has longer batches, which makes stanzas cheaper and
//! slower: the sum of the cores in use is printed, and must be below that of the machine.

mod ejabberd;
pub(super) mod half_million;
mod nodes;
mod run;
mod samples;
pub(super) mod storm;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nodes::{BenchAccounts, BenchCluster, BenchServers};
use run::{ClusterLoad, ClusterRun};

use super::report::{BenchReport, median, print_progress, print_result};

/// The flags of `bench cluster`.
#[derive(clap::Args, Clone)]
pub(crate) struct ClusterBenchArgs {
    /// The program of the nodes; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// The program whose `throng load` makes the load. Default: that of the nodes.
    #[arg(long, value_name = "PATH")]
    generator: Option<PathBuf>,
    /// Numbers of nodes.
    #[arg(long, value_name = "K", value_delimiter = ',', default_value = "1,2,5", value_parser = clap::value_parser!(u16).range(1..=5))]
    nodes: Vec<u16>,
    /// Users, all of them online. There are five accounts for each, as in the published test.
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(100..=18_000))]
    users: u32,
    /// How many times faster than published users send: published are a message each 100 s and a change of presence each 600 s.
    #[arg(long, value_name = "X", default_value_t = 300.0)]
    factor: f64,
    /// Logins per second.
    #[arg(long, default_value_t = 400)]
    rate: u32,
    /// Measured seconds of each run.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..))]
    seconds: u32,
    /// Rounds through all numbers of nodes; the results are medians.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Instead of the measurement: kill each node of the largest cluster in turn under load, start it again, and account for every
    /// message.
    #[arg(long)]
    chaos: bool,
    /// Measure ejabberd's cluster instead of Throng's.
    #[arg(long, conflicts_with = "chaos")]
    ejabberd: bool,
    /// Keep the folders with configurations, logs and reports.
    #[arg(long)]
    keep: bool,
}

/// Accounts for each user and contacts of each account, as in the published test: a fifth of the contacts is online.
const ACCOUNTS_PER_USER: u32 = 5;
const CONTACTS: u32 = 150;

/// CPU for a delivered stanza, NATS included, relative to one node.
const RATIO_BUDGET: f64 = 1.25;

/// Lateness of the generator at p99 above which a run is not valid, in milliseconds.
const LATENESS_BUDGET_MS: f64 = 20.0;

/// Load of the published cluster relative to one node, by number of nodes.
const PUBLISHED: [(u16, f64); 4] = [(2, 1.1), (3, 1.5), (4, 1.8), (5, 2.2)];

/// Measures and reports.
pub(crate) fn run(args: &ClusterBenchArgs, report: &mut BenchReport) -> Result<()> {
    ensure!(args.factor > 0.0 && args.factor.is_finite(), "--factor must be above 0");
    let (program, generator) = programs(args.server.as_ref(), args.generator.as_ref())?;
    let most = *args.nodes.iter().max().context("--nodes has no number")?;
    let accounts = BenchAccounts { count: args.users * ACCOUNTS_PER_USER, contacts: CONTACTS };
    let load = ClusterLoad {
        generator,
        users: args.users,
        factor: args.factor,
        rate: args.rate,
        seconds: args.seconds,
        chaos: args.chaos,
    };
    print_result(&format!(
        "{} users, {} times faster than published: a message each {:.2} s, a change of presence each {:.2} s",
        args.users,
        args.factor,
        100.0 / args.factor,
        600.0 / args.factor
    ));
    if args.ejabberd {
        return ejabberd::measure(args, accounts, &load, report);
    }
    let servers = BenchServers::start(&program, accounts, "", args.keep)?;
    if args.chaos {
        ensure!(most > 1, "--chaos needs two nodes: give --nodes");
        let cluster = BenchCluster::start(&servers, most)?;
        let (summary, account) = load.account_for_messages(&servers, &cluster)?;
        let stored = servers.stored_messages()?;
        print_result(&summary);
        let total = |name: &str| account["totals"]["counters"][name]["total"].as_f64().unwrap_or(0.0);
        for name in [
            "messages_sent",
            "messages_delivered",
            "messages_duplicate_same_id",
            "messages_duplicate_other_id",
        ] {
            report.info(format!("cluster.chaos.{name}"), total(name), "messages");
        }
        // A message in the store is not lost: its recipient gets it at its next login.
        report.info("cluster.chaos.messages_stored".to_owned(), stored, "messages");
        report.check(
            "cluster.chaos.messages_acknowledged_lost",
            total("messages_acknowledged_lost"),
            "messages",
            0.0,
        );
        return Ok(());
    }
    let mut results: Vec<NodeCount> = args.nodes.iter().map(|nodes| NodeCount::new(*nodes)).collect();
    for round in 0..args.rounds.max(1) {
        for NodeCount { nodes, runs, baseline } in &mut results {
            let cluster = BenchCluster::start(&servers, *nodes)?;
            let result = load.measure(&servers, &cluster).with_context(|| format!("{nodes} nodes"))?;
            print_progress(&format!("round {round}, {nodes} nodes: {result}"));
            runs.push(result);
            drop(cluster);
            if *nodes > 1 {
                let share = ClusterLoad { users: load.users / u32::from(*nodes), ..load.clone() };
                let cluster = BenchCluster::start(&servers, 1)?;
                let result =
                    share.measure(&servers, &cluster).context("one node with a part of the users")?;
                print_progress(&format!("round {round}, one node with {} users: {result}", share.users));
                baseline.push(result);
            }
        }
    }
    let single = results.iter().find(|count| count.nodes == 1).map(|count| costs(&count.runs));
    for count in &results {
        print_node_count(count, single, report);
    }
    Ok(())
}

/// The runs of a number of nodes.
struct NodeCount {
    nodes: u16,
    runs: Vec<ClusterRun>,
    /// Runs of a single node with as many users as one of these nodes has.
    baseline: Vec<ClusterRun>,
}

impl NodeCount {
    fn new(nodes: u16) -> NodeCount {
        NodeCount { nodes, runs: Vec::new(), baseline: Vec::new() }
    }
}

/// Installs the servers, and returns the programs of the nodes and of the generator.
fn programs(server: Option<&PathBuf>, generator: Option<&PathBuf>) -> Result<(PathBuf, PathBuf)> {
    let setup = crate::tidy::root().join("crates/test-databases/setup.sh");
    let status = Command::new("sh").arg(setup).status()?;
    ensure!(status.success(), "test-databases/setup.sh ended with {status}");
    let existing = |path: &PathBuf| {
        path.canonicalize().with_context(|| format!("there is no program {}", path.display()))
    };
    let program = server.map_or_else(super::build_server, existing)?;
    let generator = generator.map_or_else(|| Ok(program.clone()), existing)?;
    Ok((program, generator))
}

/// CPU of nodes and NATS for a delivered stanza, in microseconds.
fn costs(runs: &[ClusterRun]) -> (f64, f64) {
    let of = |cost: fn(&ClusterRun) -> f64| median(runs.iter().map(cost).collect());
    (of(ClusterRun::node_us), of(ClusterRun::nats_us))
}

fn print_node_count(count: &NodeCount, single: Option<(f64, f64)>, report: &mut BenchReport) {
    let NodeCount { nodes, runs, baseline } = count;
    let nodes = *nodes;
    let of = |value: &dyn Fn(&ClusterRun) -> f64| median(runs.iter().map(value).collect());
    let name = |what: &str| format!("cluster.{nodes}.{what}");
    let (node_us, nats_us) = costs(runs);
    report.info(name("stanzas"), of(&|run| run.per_second(run.delivered)), "delivered/s");
    report.info(name("nodes.cpu"), node_us, "us/stanza");
    report.info(name("nats.cpu"), nats_us, "us/stanza");
    if let Some((single_node, single_nats)) = single {
        let base = single_node + single_nats;
        let ratio = (node_us + nats_us) / base;
        if nodes > 1 {
            report.check(name("ratio"), ratio, "x", RATIO_BUDGET);
            report.info(name("ratio.without-nats"), node_us / base, "x");
            report.info(name("nodes-to-load"), nodes_to_load(nodes, ratio), "x");
            if let Some((_, published)) = PUBLISHED.iter().find(|(count, _)| *count == nodes) {
                report.info(name("nodes-to-load.published"), *published, "x");
            }
        }
    }
    if !baseline.is_empty() {
        let (baseline_node, baseline_nats) = costs(baseline);
        let base = baseline_node + baseline_nats;
        report.info(name("baseline.cpu"), base, "us/stanza");
        report.info(name("baseline.ratio"), (node_us + nats_us) / base, "x");
        report.info(name("baseline.ratio.without-nats"), node_us / base, "x");
    }
    for (kind, timings) in [
        ("message", ["message_same_node", "message_cross_node"]),
        ("presence", ["presence_same_node", "presence_cross_node"]),
    ] {
        let timings = if nodes == 1 {
            vec![(kind, "same")]
        } else {
            timings.into_iter().zip(["same", "cross"]).collect()
        };
        for (timing, place) in timings {
            for percentile in ["p50", "p99"] {
                let value = of(&|run| run.latency_ms(timing, percentile));
                report.info(name(&format!("{kind}.{place}.{percentile}")), value, "ms");
            }
        }
    }
    // A late generator sends less than the plan wants, and its delays are in the times of deliveries.
    report.check(name("generator.late.p99"), of(&ClusterRun::lateness_ms), "ms", LATENESS_BUDGET_MS);
    report.info(name("nats.messages"), of(&|run| run.per_second(run.cluster.messages)), "message/s");
    report.info(name("nats.envelopes"), of(&|run| run.per_second(run.cluster.envelopes)), "envelope/s");
    report.info(name("nats.bytes"), of(&|run| run.per_second(run.cluster.bytes)), "B/s");
    report.info(name("clients.bytes"), of(&|run| run.per_second(run.client_bytes)), "B/s");
    report.info(name("cores"), of(&ClusterRun::cores), "cores");
}

/// Load that this number of nodes takes on as many machines, relative to one node.
fn nodes_to_load(nodes: u16, ratio: f64) -> f64 {
    f64::from(nodes) / ratio
}

#[cfg(test)]
mod tests {
    use super::{PUBLISHED, nodes_to_load};

    #[test]
    fn more_nodes_take_as_many_times_more_load_as_their_stanzas_are_not_dearer() {
        assert!((nodes_to_load(5, 1.25) - 4.0).abs() < 1e-9);
        assert!((nodes_to_load(1, 1.0) - 1.0).abs() < 1e-9);
        // Connections of the published test: 24 000, 27 000, 37 000, 43 000 and 53 000.
        let connections = [27.0, 37.0, 43.0, 53.0];
        for ((_, published), thousands) in PUBLISHED.iter().zip(connections) {
            assert!((thousands / 24.0_f64 - published).abs() < 0.05, "{published}");
        }
    }
}
