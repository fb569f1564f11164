//! Logins on each database, in waves that take turns.
//!
//! The ratio to SQLite is the median of the ratios of each round, because the machine changes between rounds.

use anyhow::{Context as _, Result};

use super::super::logins::{LoginBench, LoginMechanism, LoginWave};
use super::super::report::{BenchReport, median, print_progress};
use super::nodes::DatabaseNode;
use super::{CONCURRENT_LOGINS, DatabaseBenchArgs};

/// CPU of a login in the node's process, beside that on SQLite, at most.
const CPU_RATIO_BUDGET: f64 = 1.15;
/// Rounds; with fewer the noise of the machine is larger than the budget.
const ROUNDS: usize = 7;

/// Measures and reports.
pub(super) fn measure(
    args: &DatabaseBenchArgs,
    nodes: &[DatabaseNode],
    report: &mut BenchReport,
) -> Result<()> {
    let mut benches: Vec<LoginBench<'_>> =
        nodes.iter().map(|node| LoginBench::new(&node.node.clients, args.accounts)).collect();
    for (node, bench) in nodes.iter().zip(&mut benches) {
        // Fills the caches of node and database.
        wave(bench, args.wave() / 2, node)?;
    }
    let mut waves: Vec<Vec<LoginWave>> = nodes.iter().map(|_| Vec::new()).collect();
    for round in 0..args.options.rounds(ROUNDS) {
        for ((node, bench), waves) in nodes.iter().zip(&mut benches).zip(&mut waves) {
            let wave = wave(bench, args.wave(), node)?;
            print_progress(&format!(
                "round {round}, {}: {:.3} ms per login, {:.3} ms of the database, {:.0} a second",
                node.name, wave.cpu_ms_per_login, wave.database_cpu_ms_per_login, wave.logins_per_second
            ));
            waves.push(wave);
        }
    }
    let Some(reference) = waves.first() else { return Ok(()) };
    for (node, own) in nodes.iter().zip(&waves) {
        let middle = |pick: fn(&LoginWave) -> f64| median(own.iter().map(pick).collect());
        let ratio = |pick: fn(&LoginWave) -> f64| {
            median(own.iter().zip(reference).map(|(own, first)| pick(own) / pick(first)).collect())
        };
        let name = format!("databases.login.{}", node.name);
        report.info(format!("{name}.rate"), middle(|w| w.logins_per_second), "login/s");
        report.info(format!("{name}.cpu"), middle(|w| w.cpu_ms_per_login), "ms/login");
        if !std::ptr::eq(own, reference) {
            report.info(format!("{name}.database"), middle(|w| w.database_cpu_ms_per_login), "ms/login");
            report.info(format!("{name}.rate.ratio"), ratio(|w| w.logins_per_second), "x sqlite");
            report.check(
                format!("{name}.cpu.ratio"),
                ratio(|w| w.cpu_ms_per_login),
                "x sqlite",
                CPU_RATIO_BUDGET,
            );
        }
    }
    Ok(())
}

fn wave(bench: &mut LoginBench<'_>, size: usize, node: &DatabaseNode) -> Result<LoginWave> {
    let wave = bench.wave(LoginMechanism::ScramSha1, size, CONCURRENT_LOGINS);
    wave.with_context(|| format!("logins on {}", node.name))
}
