//! The load of `bench cluster` on ejabberd's cluster: what more nodes cost there.
//!
//! `peers/ejabberd_cluster.rs` starts the nodes; their accounts are in PostgreSQL, as Throng's are. ejabberd uses more CPU for each stanza,
//! so it needs a smaller load: choose `--factor` so that one node saturates a core, and K nodes do not saturate the machine.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use test_databases::{Server, ServerKind, ServerSetup, ports};

use super::super::peers::ejabberd_cluster::EjabberdClusters;
use super::super::peers::{PeerDatabase, PeerOptions, command};
use super::super::process::BenchFolder;
use super::super::report::{BenchReport, median, print_progress};
use super::nodes::{BenchAccounts, PASSWORD};
use super::run::{ClusterLoad, ClusterRun, MeasuredCluster};
use super::{ClusterBenchArgs, nodes_to_load};

/// Measures each number of nodes and reports.
pub(super) fn measure(
    args: &ClusterBenchArgs,
    accounts: BenchAccounts,
    load: &ClusterLoad,
    report: &mut BenchReport,
) -> Result<()> {
    command::setup(&["ejabberd"]).context("ejabberd is needed from Debian's package")?;
    let folder = BenchFolder::new(args.keep)?;
    let database = Server::start_with(ServerKind::Postgres, &ServerSetup::measured(ServerKind::Postgres));
    let tables = PeerDatabase {
        url: database.default_url(),
        port: database.address().port(),
        name: "postgres".to_owned(),
        user: database.user().to_owned(),
        password: database.password().to_owned(),
    };
    let wanted = PeerOptions {
        password: PASSWORD.to_owned(),
        ..PeerOptions::new(usize::try_from(accounts.count)?, usize::try_from(accounts.contacts)?)
    };
    let [mapper] = ports::free();
    let clusters = EjabberdClusters::new(wanted, tables, mapper, folder.path())?;
    let mut results: Vec<(u16, Vec<ClusterRun>)> =
        args.nodes.iter().map(|count| (*count, Vec::new())).collect();
    for round in 0..args.rounds.max(1) {
        for (count, runs) in &mut results {
            let clients: Vec<SocketAddr> = (0..*count)
                .map(|_| {
                    let [port] = ports::free();
                    SocketAddr::from(([127, 0, 0, 1], port))
                })
                .collect();
            let cluster = clusters.start(&clients)?;
            let measured = MeasuredCluster {
                clients: cluster.addresses(),
                nodes: cluster.pids(),
                nats: None,
                database: database.process(),
                folder: folder.path(),
            };
            let run = load.measure_cpu(&measured).with_context(|| format!("{count} nodes of ejabberd"))?;
            print_progress(&format!("round {round}, {count} nodes of ejabberd: {run}"));
            let faults = run.faults();
            if !faults.is_empty() {
                print_progress(&format!("round {round}, {count} nodes of ejabberd: {}", faults.join(", ")));
            }
            runs.push(run);
        }
    }
    let cost = |runs: &[ClusterRun]| median(runs.iter().map(ClusterRun::node_us).collect());
    let single = results.iter().find(|(count, _)| *count == 1).map(|(_, runs)| cost(runs));
    for (count, runs) in &results {
        let name = |what: &str| format!("cluster.ejabberd.{count}.{what}");
        let of = |value: &dyn Fn(&ClusterRun) -> f64| median(runs.iter().map(value).collect());
        report.info(name("stanzas"), of(&|run| run.per_second(run.delivered)), "delivered/s");
        report.info(name("nodes.cpu"), cost(runs), "us/stanza");
        if let Some(single) = single.filter(|_| *count > 1) {
            let ratio = cost(runs) / single;
            report.info(name("ratio"), ratio, "x");
            report.info(name("nodes-to-load"), nodes_to_load(*count, ratio), "x");
        }
        let messages = if *count == 1 { "message" } else { "message_cross_node" };
        report.info(name("message.p50"), of(&|run| run.latency_ms(messages, "p50")), "ms");
        report.info(name("message.p99"), of(&|run| run.latency_ms(messages, "p99")), "ms");
        report.info(name("cores"), of(&ClusterRun::cores), "cores");
    }
    Ok(())
}
