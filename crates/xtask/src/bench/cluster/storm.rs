//! `bench storm`: the clients of a node that dies connect to the others.
//!
//! A NATS server, a PostgreSQL server and `--nodes` nodes with `--clients` connections each, as in `bench half-million`: empty rosters,
//! the traffic of `tigase-500k`, stream management. When all have arrived and some time has passed, the first node is killed. Its clients
//! notice it at once, and connect to the others, which accept them at `[limits] accepted_connections_per_second`.
//!
//! *The others* are the clients of the nodes that live: reported is p99 of a message between two clients of one node from the kill until
//! the last client is back, as an upper bound: the value that at most a hundredth of these messages would exceed if every slower message
//! of the whole run were one of them. Beside it is the highest p99 in any second, which with about a hundred messages a second is nearly the
//! slowest message. Messages between nodes include those to clients that are not back yet, which wait for them.
//!
//! Not measured: TLS, rosters, nodes on several machines.
//!
//! # Pitfalls
//!
//! The rate does not count connections from loopback unless it is set, so the configuration of the nodes sets it.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::report::{BenchReport, print_progress};
use super::half_million::{CONNECTIONS_PER_NODE, LoadOfConnections, STORAGE, enter_own_network, run_load};
use super::nodes::{BenchAccounts, BenchCluster, BenchServers};

/// The flags of `bench storm`.
#[derive(clap::Args, Clone)]
pub(crate) struct StormArgs {
    /// The program of the nodes; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// The program whose `throng load` makes the load. Default: that of the nodes.
    #[arg(long, value_name = "PATH")]
    generator: Option<PathBuf>,
    /// Clients of each node.
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u32).range(100..))]
    clients: u32,
    /// Nodes, one of which is killed. The others must have room for its clients.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(2..=26))]
    nodes: u16,
    /// Arrivals per second.
    #[arg(long, default_value_t = 800, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// `[limits] accepted_connections_per_second` of each node.
    ///
    /// The default of the program, 1 000, is for a node that has a machine. Here four nodes share two cores with the generator.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    accepted: u32,
    /// Keep the folder with configurations, logs and reports.
    #[arg(long)]
    keep: bool,
}

/// Seconds of traffic before the kill, of which the last [`BEFORE`] are reported, and after it.
const SETTLE: u32 = 40;
const BEFORE: u32 = 20;
const AFTER: u32 = 60;

/// p99 of a message between clients of one living node, in milliseconds.
const BUDGET_MS: f64 = 100.0;

/// Measures and reports.
pub(crate) fn run(args: &StormArgs, report: &mut BenchReport) -> Result<()> {
    let connections = args.clients * u32::from(args.nodes);
    let living = u32::from(args.nodes) - 1;
    ensure!(
        connections <= living * CONNECTIONS_PER_NODE,
        "{living} nodes have no room for {connections} connections: more --nodes or fewer --clients"
    );
    let (program, generator) = super::programs(args.server.as_ref(), args.generator.as_ref())?;
    enter_own_network()?;
    let accounts = BenchAccounts { count: connections, contacts: 0 };
    let settings = format!("{STORAGE}\n[limits]\naccepted_connections_per_second = {}\n", args.accepted);
    let servers = BenchServers::start(&program, accounts, &settings, args.keep)?;
    let cluster = BenchCluster::start(&servers, args.nodes)?;
    print_progress(&format!("{} nodes with {} clients each", args.nodes, args.clients));
    let killed = connections.div_ceil(args.rate) + SETTLE;
    let victim = *cluster.pids().first().context("no node runs")?;
    let load =
        LoadOfConnections { connections, rate: args.rate, hold: SETTLE + AFTER, processes: args.nodes };
    let mut load = load.command(&generator, &servers, &cluster);
    load.args(["--chaos", &format!("kill={victim}@{killed}s")]);
    let run = run_load(&load, servers.folder.path())?;

    let seconds = run["seconds"].as_array().context("the report has no seconds")?;
    let (before, after) = (killed - BEFORE..killed, killed..killed + AFTER);
    let total = |name: &str| run["totals"]["counters"][name]["total"].as_f64().unwrap_or(0.0);
    report.info("storm.clients", f64::from(args.clients), "clients");
    let returned = last_with(seconds, &after, "logins").map_or(0, |at| at - killed);
    report.info("storm.returned", f64::from(returned), "s");
    report.info("storm.logins", sum(seconds, &after, "logins"), "logins");
    let storm = killed..killed + returned + 1;
    let all = &run["totals"]["timings"]["message_same_node"]["histogram"]["buckets"];
    let p99 = p99_bound(all, count(seconds, &storm, "message_same_node"))?;
    report.check("storm.same_node.p99", p99, "ms", BUDGET_MS);
    for (name, range) in [("before", &before), ("after", &after)] {
        for kind in ["same_node", "cross_node"] {
            let highest = highest_p99(seconds, range, &format!("message_{kind}"));
            report.info(format!("storm.{name}.{kind}.highest_p99"), highest, "ms");
        }
    }
    report.check("storm.messages_acknowledged_lost", total("messages_acknowledged_lost"), "messages", 0.0);
    report.info("storm.messages_duplicate", total("messages_duplicate"), "messages");
    Ok(())
}

fn seconds_in<'a>(seconds: &'a [Value], range: &'a Range<u32>) -> impl Iterator<Item = (u32, &'a Value)> {
    let at = |second: &Value| second["at"].as_u64().and_then(|at| u32::try_from(at).ok());
    seconds.iter().filter_map(move |second| Some((at(second)?, second))).filter(|(at, _)| range.contains(at))
}

/// The highest p99 of a timing in any of the seconds, in milliseconds.
fn highest_p99(seconds: &[Value], range: &Range<u32>, timing: &str) -> f64 {
    let p99 = |(_, second): (u32, &Value)| second["timings"][timing]["p99"].as_f64();
    seconds_in(seconds, range).filter_map(p99).fold(0.0, f64::max) / 1e3
}

/// Upper bound of p99, in milliseconds, of `count` values that are among those of a histogram of pairs (microseconds, values).
fn p99_bound(histogram: &Value, count: u64) -> Result<f64> {
    let buckets = histogram.as_array().context("the report has no histogram")?;
    let pair = |bucket: &Value| Some((bucket[0].as_u64()?, bucket[1].as_u64()?));
    let mut above = 0;
    for (value, values) in buckets.iter().rev().filter_map(pair) {
        above += values;
        if above > count / 100 {
            #[allow(clippy::cast_precision_loss)]
            return Ok(value as f64 / 1e3);
        }
    }
    anyhow::bail!("the histogram has fewer values than its part")
}

fn count(seconds: &[Value], range: &Range<u32>, timing: &str) -> u64 {
    seconds_in(seconds, range).filter_map(|(_, second)| second["timings"][timing]["count"].as_u64()).sum()
}

fn sum(seconds: &[Value], range: &Range<u32>, counter: &str) -> f64 {
    seconds_in(seconds, range).filter_map(|(_, second)| second["counters"][counter].as_f64()).sum()
}

/// The last of the seconds in which something was counted.
fn last_with(seconds: &[Value], range: &Range<u32>, counter: &str) -> Option<u32> {
    let counted = |(at, second): (u32, &Value)| {
        second["counters"][counter].as_u64().filter(|count| *count > 0).map(|_| at)
    };
    seconds_in(seconds, range).filter_map(counted).max()
}

#[cfg(test)]
mod tests {
    use super::{count, highest_p99, last_with, p99_bound, sum};
    use serde_json::json;

    #[test]
    fn only_the_seconds_of_the_range_are_read() {
        let second = |at: u32| json!({ "at": at, "counters": { "logins": at % 3 }, "timings": { "m": { "p99": at * 1_000, "count": at } } });
        let seconds: Vec<_> = (0..10).map(second).collect();
        assert!((highest_p99(&seconds, &(2..5), "m") - 4.0).abs() < 1e-9);
        assert!((highest_p99(&seconds, &(2..5), "other")).abs() < 1e-9);
        assert!((sum(&seconds, &(2..5), "logins") - 3.0).abs() < 1e-9);
        assert_eq!(last_with(&seconds, &(2..4), "logins"), Some(2));
        assert_eq!(last_with(&seconds, &(3..4), "logins"), None);
        assert_eq!(count(&seconds, &(2..5), "m"), 9);
    }

    #[test]
    fn p99_of_a_part_is_bounded_as_if_it_had_the_slowest_values() {
        let histogram = json!([[1_000, 500], [50_000, 2], [90_000, 1], [200_000, 2]]);
        assert!((p99_bound(&histogram, 199).unwrap() - 200.0).abs() < 1e-9);
        assert!((p99_bound(&histogram, 200).unwrap() - 90.0).abs() < 1e-9);
        assert!((p99_bound(&histogram, 300).unwrap() - 50.0).abs() < 1e-9);
        assert!((p99_bound(&histogram, 505).unwrap() - 1.0).abs() < 1e-9);
        assert!(p99_bound(&histogram, 60_000).is_err());
    }
}
