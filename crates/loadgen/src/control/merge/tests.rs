//! Tests of merging: every metric against a value computed by hand.

use super::*;
use crate::report::model::WorkerRun;

fn merger(workers: usize) -> SnapshotMerger {
    let run = RunRecord { workers: vec![WorkerRun::default(); workers], ..RunRecord::default() };
    SnapshotMerger::new(run, vec!["buy".to_owned()], vec!["rise".to_owned(), "stay".to_owned()])
}

fn snapshot(second: u32, users: i64, sent: u64, times: &[u64]) -> WorkerSnapshot {
    let mut counters = vec![0; Counter::ALL.len()];
    counters[Counter::MessagesSent as usize] = sent;
    let mut gauges = vec![0; Gauge::ALL.len()];
    gauges[Gauge::Users as usize] = users;
    let mut histogram = TimingHistogram::new();
    times.iter().for_each(|us| histogram.record(*us));
    let timings = vec![(Timing::Message.into(), histogram.to_sparse())];
    WorkerSnapshot {
        second,
        counters,
        gauges,
        timings,
        cpu_us: 100_000,
        rss: 1_000,
        ..WorkerSnapshot::default()
    }
}

#[test]
fn percentiles_are_those_of_all_workers_together() {
    let mut merger = merger(2);
    let slow: Vec<u64> = (1..=100).map(|n| n * 1_000).collect();
    merger.add(0, snapshot(0, 5, 7, &[10; 900]));
    merger.add(1, snapshot(0, 3, 8, &slow));
    merger.refresh(1.0);
    let second = &merger.run.seconds[0];
    assert_eq!((second.counters["messages_sent"], second.gauges["users"]), (15, 8));
    assert_eq!((second.generator_cpu, second.busiest_cpu, second.generator_rss), (0.2, 0.1, 2_000));
    let message = second.timings["message"];
    // 10 % of all are slow, so the 99th percentile of all is the 90th of the slow ones.
    assert_eq!((message.count, message.p50), (1_000, 10));
    assert!(message.p99.abs_diff(90_000) < 100, "{message:?}");
    let run = merger.finish(1.0);
    let total = &run.totals.timings["message"];
    assert_eq!(total.summary, message);
    assert_eq!(total.histogram.buckets.iter().map(|b| u64::from(b.1)).sum::<u64>(), 1_000);
}

#[test]
fn a_late_worker_counts_in_its_own_second() {
    let mut merger = merger(2);
    for second in 0..5 {
        merger.add(0, snapshot(second, 10, 1, &[100]));
    }
    merger.add(1, snapshot(0, 1, 1, &[100]));
    merger.refresh(5.0);
    assert_eq!(merger.run.seconds[2].counters["messages_sent"], 1);
    // Its users keep their number until its next report.
    assert_eq!(merger.run.seconds[2].gauges["users"], 11);
    merger.add(1, snapshot(2, 4, 6, &[900]));
    merger.refresh(5.0);
    let run = &merger.run;
    assert_eq!(run.seconds[2].counters["messages_sent"], 7);
    assert_eq!(run.seconds[2].timings["message"].count, 2);
    let users: Vec<i64> = run.seconds.iter().map(|s| s.gauges["users"]).collect();
    assert_eq!(users, [11, 11, 14, 14, 14]);
    assert_eq!(run.workers[1].users, 4);
}

#[test]
fn a_worker_that_left_counts_no_users() {
    let mut merger = merger(2);
    for second in 0..3 {
        merger.add(0, snapshot(second, 10, 1, &[]));
        merger.add(1, snapshot(second.min(1), 5, 1, &[]));
    }
    merger.worker_left(1, 2);
    merger.refresh(3.0);
    let users: Vec<i64> = merger.run.seconds.iter().map(|s| s.gauges["users"]).collect();
    assert_eq!(users, [15, 15, 10]);
    assert_eq!(merger.gauge(Gauge::Users), 10);
    assert_eq!(merger.run.totals.gauges["users"], 15);
}

#[test]
fn memory_is_that_of_the_newest_seconds_and_summaries_cover_all() {
    let mut merger = merger(1);
    let seconds = OPEN as u32 * 3;
    for second in 0..seconds {
        merger.add(0, snapshot(second, i64::from(second), u64::from(second), &[u64::from(second) * 1_000]));
        merger.refresh(f64::from(second + 1));
        assert!(merger.open.len() <= OPEN);
        assert_eq!(merger.run.seconds.len() as u32, second + 1);
    }
    // Too late for its histogram, but not for its counters.
    merger.add(0, snapshot(3, 0, 1_000, &[7_000_000]));
    let run = merger.finish(f64::from(seconds));
    assert!(run.seconds.iter().enumerate().all(|(at, s)| s.at as usize == at));
    assert_eq!(run.seconds[3].counters["messages_sent"], 1_003);
    let sent = run.totals.counters["messages_sent"];
    assert_eq!(sent.total, u64::from(seconds * (seconds - 1) / 2) + 1_000);
    assert_eq!(sent.highest_rate, f64::from(seconds - 1));
    assert_eq!(run.totals.gauges["users"], i64::from(seconds - 1));
    let time = &run.totals.timings["message"];
    assert_eq!(time.summary.count, u64::from(seconds) + 1);
    assert!(time.summary.max.abs_diff(7_000_000) < 8_000);
}

#[test]
fn means_of_ten_seconds_are_exact() {
    let mut merger = merger(1);
    for second in 0..30 {
        // 10, 20 and 30 ms; a varying number of values each second.
        let times = vec![u64::from(second / 10 + 1) * 10_000; second as usize % 3 + 1];
        merger.add(0, snapshot(second, 0, 0, &times));
    }
    let run = merger.finish(30.0);
    let time = &run.totals.timings["message"];
    assert_eq!((time.lowest_10s, time.highest_10s), (10_000.0, 30_000.0));
    assert_eq!((time.highest_rate, time.mean_rate), (3.0, 2.0));
}

#[test]
fn joined_sparse_forms_are_one_histogram() {
    let values: Vec<u64> = (0..3_000_u64).map(|n| n * n % 9_000_001).collect();
    let mut joined = SparseHistogram::default();
    for part in values.chunks(700) {
        let mut histogram = TimingHistogram::new();
        part.iter().for_each(|us| histogram.record(*us));
        join(&mut joined, histogram.to_sparse());
    }
    let mut all = TimingHistogram::new();
    values.iter().for_each(|us| all.record(*us));
    assert_eq!(joined.buckets, all.to_sparse().buckets);
    assert!(joined.buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
}

#[test]
fn phases_begin_with_the_first_worker() {
    let mut merger = merger(2);
    merger.add(0, WorkerSnapshot { second: 0, phase: 0, ..WorkerSnapshot::default() });
    merger.add(1, WorkerSnapshot { second: 4, phase: 1, ..WorkerSnapshot::default() });
    merger.add(0, WorkerSnapshot { second: 5, phase: 1, ..WorkerSnapshot::default() });
    // A phase that the plan does not have is an error of the worker.
    merger.add(0, WorkerSnapshot { second: 6, phase: 9, ..WorkerSnapshot::default() });
    let phases: Vec<_> = merger.run.phases.iter().map(|p| (p.name.as_str(), p.from)).collect();
    assert_eq!(phases, [("rise", 0), ("stay", 4)]);
}

#[test]
fn unknown_phase_numbers_are_ignored() {
    let mut merger = merger(1);
    let mut strange = snapshot(0, 1, 1, &[5]);
    strange.timings.push((TimingId(u16::MAX), strange.timings[0].1.clone()));
    strange.counters.push(7);
    strange.gauges.clear();
    merger.add(0, strange);
    merger.add(9, WorkerSnapshot::default());
    merger.refresh(1.0);
    assert!(merger.run.seconds[0].timings.contains_key("tr:?"));
}
