//! Warnings about a run's metrics, as sentences: was the generator itself the bottleneck?

use crate::measure::{Counter, Timing};
use crate::report::model::RunRecord;
use crate::report::verdict::late_keys;

/// Lateness at p99, in microseconds, above which latencies include the generator's own queueing.
const LATE_US: u64 = 5_000;
/// CPU usage above which a worker counts as busy, in cores.
const BUSY: f64 = 0.9;
/// Share of the machine's cores above which all its processes wait.
const FULL: f64 = 0.95;

/// Errors caused by limits of the generator's machine, and their fixes.
const LIMITS: &[(&str, &str)] = &[
    (
        "connect:no-files-left",
        "the limit of open files was reached; raise it (ulimit -n) or add workers (--workers)",
    ),
    ("connect:no-ports-left", "no local port was free; add source addresses (--source A-B)"),
];

/// Warnings that follow from the metrics.
pub(crate) fn run_warnings(run: &RunRecord) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(lateness_warning(run));
    found.extend(cpu_warning(run));
    found.extend(key_derivation_warning(run));
    for (kind, sentence) in LIMITS {
        if let Some(count) = run.totals.errors.get(*kind) {
            found.push(format!("The generator is the bottleneck: {sentence} ({} times)", count.total));
        }
    }
    found
}

fn lateness_warning(run: &RunRecord) -> Option<String> {
    let lateness = |timings: &std::collections::BTreeMap<String, crate::measure::TimingSummary>| {
        timings.get(Timing::Lateness.name()).map_or(0, |summary| summary.p99)
    };
    let late: Vec<_> = run.seconds.iter().filter(|s| lateness(&s.timings) > LATE_US).collect();
    let worst = late.iter().max_by_key(|s| lateness(&s.timings))?;
    let busy = late.iter().filter(|s| s.busiest_cpu > BUSY).count();
    let cores = f64::from(run.about.cores);
    let server = |at: u32| run.server.iter().find(|s| s.at == at).map_or(0.0, |s| s.cpu);
    let full = late.iter().filter(|s| cores > 0.0 && s.generator_cpu + server(s.at) > FULL * cores).count();
    let limit = if 2 * busy > late.len() {
        "the CPU of a worker; add workers (--workers) or machines (--listen)"
    } else if 2 * full > late.len() {
        "the CPU of this machine, which the server shares; run the generator on another machine (--listen)"
    } else {
        "not the CPU of the workers; other programs on the machine may use it"
    };
    Some(format!(
        "The generator was late: in {} of {} seconds more than {} ms at p99 (worst {:.1} ms in second {}), \
         so latencies in these seconds include its own queueing; the bottleneck was {limit}",
        late.len(),
        run.seconds.len(),
        LATE_US / 1_000,
        lateness(&worst.timings) as f64 / 1_000.0,
        worst.at
    ))
}

fn key_derivation_warning(run: &RunRecord) -> Option<String> {
    let waits = late_keys(run)?;
    let total = |counter: Counter| run.totals.counters.get(counter.name()).map_or(0, |c| c.total);
    Some(format!(
        "The generator derived {} SCRAM keys for logins (one salt per account), which took {:.1} s of CPU, \
         and logins waited up to {:.1} s for them: the login rate was limited by the generator and not by the server; use --salts FILE to derive the keys before the next run starts, a lower --rate, or more machines (--listen)",
        total(Counter::KeysDerived) - total(Counter::KeysAhead).min(total(Counter::KeysDerived)),
        total(Counter::KeysCpu) as f64 / 1e6,
        waits.max as f64 / 1e6
    ))
}

fn cpu_warning(run: &RunRecord) -> Option<String> {
    let busy: Vec<_> = run.seconds.iter().filter(|s| s.busiest_cpu > BUSY).collect();
    let worst = busy.iter().map(|s| s.busiest_cpu).fold(0.0, f64::max);
    (!busy.is_empty()).then(|| {
        format!(
            "A worker used more than 90 % of its core in {} of {} seconds (at most {:.0} %); add workers (--workers) or machines (--listen)",
            busy.len(),
            run.seconds.len(),
            worst * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::TimingSummary;
    use crate::report::model::{CounterTotal, SecondReport};

    fn second(at: u32, lateness: u64, cpu: f64) -> SecondReport {
        let summary = TimingSummary { count: 1, p99: lateness, ..TimingSummary::default() };
        SecondReport {
            at,
            timings: [("lateness".to_owned(), summary)].into(),
            busiest_cpu: cpu,
            generator_cpu: cpu,
            ..SecondReport::default()
        }
    }

    #[test]
    fn a_generator_that_keeps_up_produces_no_warning() {
        let run =
            RunRecord { seconds: vec![second(0, 4_999, 0.5), second(1, 0, 0.9)], ..RunRecord::default() };
        assert_eq!(run_warnings(&run), [""; 0]);
    }

    #[test]
    fn a_lateness_warning_names_the_limit() {
        let run =
            RunRecord { seconds: vec![second(0, 0, 0.1), second(1, 12_300, 0.97)], ..RunRecord::default() };
        let found = run_warnings(&run);
        assert!(
            found[0].starts_with(
                "The generator was late: in 1 of 2 seconds more than 5 ms at p99 (worst 12.3 ms in second 1)"
            ),
            "{found:?}"
        );
        assert!(found[0].contains("the CPU of a worker"));
        assert!(
            found[1].starts_with("A worker used more than 90 % of its core in 1 of 2 seconds (at most 97 %)")
        );
        let idle = RunRecord { seconds: vec![second(0, 6_000, 0.1)], ..RunRecord::default() };
        assert!(run_warnings(&idle)[0].contains("not the CPU of the workers"));
    }

    #[test]
    fn logins_limited_by_key_derivation_produce_a_warning() {
        use crate::report::model::TimingTotal;
        let mut run = RunRecord::default();
        let summary = TimingSummary { count: 9, p99: 100_000, max: 2_000_000, ..TimingSummary::default() };
        run.totals
            .timings
            .insert("key_derivation".to_owned(), TimingTotal { summary, ..TimingTotal::default() });
        assert_eq!(run_warnings(&run), [""; 0]);
        if let Some(total) = run.totals.timings.get_mut("key_derivation") {
            total.summary.p99 += 1;
        }
        for (name, total) in [("keys_derived", 9), ("keys_ahead", 2), ("keys_cpu_us", 31_000_000)] {
            run.totals.counters.insert(name.to_owned(), CounterTotal { total, ..CounterTotal::default() });
        }
        let found = run_warnings(&run);
        assert!(
            found[0].starts_with("The generator derived 7 SCRAM keys") && found[0].contains("31.0 s"),
            "{found:?}"
        );
        assert!(found[0].contains("waited up to 2.0 s") && found[0].contains("--salts"), "{found:?}");
    }

    #[test]
    fn machine_limits_produce_warnings() {
        let mut run = RunRecord::default();
        let total = CounterTotal { total: 7, ..CounterTotal::default() };
        run.totals.errors.insert("connect:no-files-left".to_owned(), total);
        assert!(run_warnings(&run)[0].contains("limit of open files was reached"));
    }
}
