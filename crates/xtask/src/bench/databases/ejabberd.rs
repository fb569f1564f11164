//! Throng and ejabberd on the same PostgreSQL server, with the same accounts and clients, taking turns.
//!
//! ejabberd is configured as in `peers/ejabberd.rs`, with its tables in SQL (`peers/ejabberd_sql.rs`). CPU of PostgreSQL is
//! listed beside that of each server, and the ratio is that of both together.
//!
//! # Pitfalls
//!
//! ejabberd keeps accounts and rosters in caches of 1 000 items, its default. Waves use more accounts than that in turn, so
//! most logins read the database, as after a restart.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use test_databases::{Server, ServerKind};

use super::super::clients::{ClientOptions, ClientSecurity};
use super::super::logins::{LoginBench, LoginMechanism};
use super::super::peers::{DOMAIN, PeerDatabase, PeerOptions, PeerServer, command, start_peer};
use super::super::report::{BenchReport, median, print_progress};
use super::client_writes::{CostSample, ROSTER_USERS, SENDERS, WritingClients};
use super::nodes::start_node;
use super::{CONCURRENT_LOGINS, CONTACTS_PER_ACCOUNT, DatabaseBenchArgs, start_database};

/// What is measured, in the order of [`Samples`].
const KINDS: [(&str, &str); 3] = [("login", "ms/login"), ("offline", "us/write"), ("roster", "us/write")];

/// Samples of a server, by kind and round.
type Samples = [Vec<CostSample>; KINDS.len()];

/// Measures and reports.
pub(super) fn measure(args: &DatabaseBenchArgs, report: &mut BenchReport) -> Result<()> {
    command::setup(&["ejabberd"]).context("ejabberd is needed from Debian's package")?;
    let database = start_database(ServerKind::Postgres);
    let node = start_node(args, Some((&database, database.default_url())))?;
    let name = "ejabberd";
    create_database(&database, name)?;
    let wanted = PeerOptions {
        database: Some(PeerDatabase {
            url: database.url(name),
            port: database.address().port(),
            name: name.to_owned(),
            user: database.user().to_owned(),
            password: database.password().to_owned(),
        }),
        ..PeerOptions::new(args.accounts, CONTACTS_PER_ACCOUNT)
    };
    let peer = start_peer(PeerServer::Ejabberd, &wanted)?;
    let clients = ClientOptions {
        address: peer.address(),
        pid: peer.id(),
        domain: DOMAIN.to_owned(),
        prefix: wanted.prefix,
        password: wanted.password,
        security: ClientSecurity::None,
        ..node.clients.clone()
    };
    let servers = [("throng", &node.clients), (name, &clients)];
    let mut logins = servers.map(|(_, clients)| LoginBench::new(clients, args.accounts));
    let mut samples = <[Samples; 2]>::default();
    for round in 0..=args.options.rounds(3) {
        for (((name, clients), logins), samples) in servers.into_iter().zip(&mut logins).zip(&mut samples) {
            let measured =
                measure_round(args, logins, clients).with_context(|| format!("{name} on PostgreSQL"))?;
            // The first round fills caches.
            if round == 0 {
                continue;
            }
            let rates: Vec<String> = measured.iter().map(|sample| format!("{:.0}", sample.rate)).collect();
            print_progress(&format!(
                "round {round}, {name}: {} logins, offline messages and roster changes a second",
                rates.join(", ")
            ));
            for (kind, sample) in samples.iter_mut().zip(measured) {
                kind.push(sample);
            }
        }
    }
    peer.kill();
    add(report, &servers.map(|(name, _)| name), &samples);
    Ok(())
}

/// A sample of each kind.
fn measure_round(
    args: &DatabaseBenchArgs,
    logins: &mut LoginBench<'_>,
    clients: &ClientOptions,
) -> Result<[CostSample; KINDS.len()]> {
    let wave = logins.wave(LoginMechanism::ScramSha1, args.wave(), CONCURRENT_LOGINS)?;
    let logins = CostSample {
        rate: wave.logins_per_second,
        cpu_us: wave.cpu_ms_per_login * 1e3,
        database_cpu_us: wave.database_cpu_ms_per_login * 1e3,
    };
    let writing = WritingClients { clients, accounts: args.accounts, seconds: args.options.interval(6) };
    Ok([logins, writing.messages(SENDERS)?, writing.roster_changes(ROSTER_USERS)?])
}

fn add(report: &mut BenchReport, names: &[&str; 2], samples: &[Samples; 2]) {
    for (at, (kind, unit)) in KINDS.into_iter().enumerate() {
        let scale = if unit.starts_with("ms") { 1e3 } else { 1.0 };
        let per_round = |server: usize, pick: fn(&CostSample) -> f64| -> Vec<f64> {
            samples[server][at].iter().map(pick).collect()
        };
        for (server, name) in names.iter().enumerate() {
            let name = format!("databases.{name}.{kind}");
            report.info(format!("{name}.rate"), median(per_round(server, |sample| sample.rate)), "/s");
            report.info(format!("{name}.cpu"), median(per_round(server, |s| s.cpu_us)) / scale, unit);
            let database = median(per_round(server, |sample| sample.database_cpu_us)) / scale;
            report.info(format!("{name}.database"), database, unit);
        }
        let ratio = |pick: fn(&CostSample) -> f64| {
            let pairs = per_round(1, pick).into_iter().zip(per_round(0, pick));
            median(pairs.map(|(peer, own)| peer / own).collect())
        };
        let name = format!("databases.ejabberd.{kind}");
        report.info(format!("{name}.rate.ratio"), ratio(|sample| sample.rate), "x throng");
        report.info(format!("{name}.cpu.ratio"), ratio(|s| s.cpu_us + s.database_cpu_us), "x throng");
    }
}

fn create_database(server: &Server, name: &str) -> Result<()> {
    let mut psql = Command::new("psql");
    psql.args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command"]);
    let status = psql.arg(format!("CREATE DATABASE {name}")).arg(server.admin_url()).status();
    ensure!(status.context("psql is needed")?.success(), "psql cannot create a database");
    Ok(())
}
