//! Synthetic run for tests and previews of reports.
//!
//! Users arrive, stay and leave; the server is a little slower under load, and much slower during one period on
//! request.
//!
//! # Pitfalls
//!
//! The values come from a small pseudo-random generator, so they say nothing about any server.

use std::collections::BTreeMap;

use throng_loadgen::measure::TimingHistogram;
use throng_loadgen::report::model::{
    CounterTotal, PhaseRun, RunInfo, RunRecord, RunTotals, SecondReport, ServerSample, TimingTotal, WorkerRun,
};

/// Parameters of the synthetic run.
#[derive(Clone, Debug)]
pub(crate) struct SampleRun {
    /// Name of the plan.
    pub(crate) plan: String,
    /// Name of the server.
    pub(crate) label: String,
    /// Length in seconds.
    pub(crate) seconds: u32,
    /// Peak number of users.
    pub(crate) users: u32,
    /// Factor of all times.
    pub(crate) slowness: f64,
    /// Whether there is a period of trouble in the middle: slow answers, errors, lost messages, a late generator, a
    /// dead worker.
    pub(crate) with_failures: bool,
}

impl Default for SampleRun {
    fn default() -> Self {
        Self {
            plan: "tigase-500k".to_owned(),
            label: "Throng 0.1.0".to_owned(),
            seconds: 1_200,
            users: 19_000,
            slowness: 1.0,
            with_failures: false,
        }
    }
}

struct SampleRng(fastrand::Rng);

impl SampleRng {
    /// Returns a number between 0 and 1.
    fn next(&mut self) -> f64 {
        self.0.f64()
    }

    /// Returns a time from a long-tailed distribution.
    fn time(&mut self, typical_us: f64) -> u64 {
        let tail = if self.next() > 0.996 { 8.0 + self.next() * 12.0 } else { 1.0 };
        (typical_us * (0.6 - self.next().max(1e-9).ln() * 0.4) * tail) as u64
    }
}

#[derive(Default)]
struct SampleTotals {
    histograms: BTreeMap<String, TimingHistogram>,
    means: BTreeMap<String, BTreeMap<u32, (f64, u64)>>,
    rates: BTreeMap<String, u64>,
    counters: BTreeMap<String, CounterTotal>,
    errors: BTreeMap<String, CounterTotal>,
}

impl SampleTotals {
    fn time(
        &mut self,
        second: &mut SecondReport,
        random: &mut SampleRng,
        name: &str,
        count: u64,
        typical_us: f64,
    ) {
        if count == 0 {
            return;
        }
        // Enough values for percentiles, few enough for runs of hours.
        let mut histogram = TimingHistogram::new();
        (0..count.min(120)).for_each(|_| histogram.record(random.time(typical_us)));
        let summary = histogram.summary();
        self.histograms.entry(name.to_owned()).or_default().add(&histogram.to_sparse());
        let mean = self.means.entry(name.to_owned()).or_default().entry(second.at / 10).or_default();
        mean.0 += summary.mean * summary.count as f64;
        mean.1 += summary.count;
        let rate = self.rates.entry(name.to_owned()).or_default();
        *rate = (*rate).max(summary.count);
        second.timings.insert(name.to_owned(), summary);
    }

    fn count(&mut self, second: &mut SecondReport, name: &str, count: u64) {
        let total = self.counters.entry(name.to_owned()).or_default();
        total.total += count;
        total.highest_rate = total.highest_rate.max(count as f64);
        if count > 0 {
            second.counters.insert(name.to_owned(), count);
        }
    }

    fn error(&mut self, second: &mut SecondReport, kind: &str, count: u64) {
        if count > 0 {
            let total = self.errors.entry(kind.to_owned()).or_default();
            total.total += count;
            total.highest_rate = total.highest_rate.max(count as f64);
            second.errors.insert(kind.to_owned(), count);
        }
    }

    fn totals(mut self, run: &RunRecord) -> RunTotals {
        let length = f64::from(run.seconds.len().max(1) as u32);
        for total in self.counters.values_mut().chain(self.errors.values_mut()) {
            total.mean_rate = total.total as f64 / length;
        }
        let mut gauges: BTreeMap<String, i64> = BTreeMap::new();
        for (name, value) in run.seconds.iter().flat_map(|s| &s.gauges) {
            let most = gauges.entry(name.clone()).or_default();
            *most = (*most).max(*value);
        }
        let timings = self.histograms.iter().map(|(name, histogram)| {
            let means: Vec<f64> = self.means[name].values().map(|(sum, count)| sum / *count as f64).collect();
            let summary = histogram.summary();
            let total = TimingTotal {
                summary,
                highest_10s: means.iter().copied().fold(f64::MIN, f64::max),
                lowest_10s: means.iter().copied().fold(f64::MAX, f64::min),
                highest_rate: self.rates[name] as f64,
                mean_rate: summary.count as f64 / length,
                histogram: histogram.to_sparse(),
            };
            (name.clone(), total)
        });
        let timings = timings.collect();
        RunTotals { counters: self.counters, gauges, timings, errors: self.errors, ..RunTotals::default() }
    }
}

/// Generates a run.
pub(crate) fn run(sample: &SampleRun) -> RunRecord {
    let mut random = SampleRng(fastrand::Rng::with_seed(sample.seconds.into()));
    let mut sums = SampleTotals::default();
    let length = f64::from(sample.seconds);
    let mut run = RunRecord { format: 1, ..RunRecord::default() };
    let mut scraped: Vec<(String, Vec<(u32, f64)>)> = [
        "throng_sessions",
        "throng_stanzas_total{kind=\"message\"}",
        "throng_stanzas_total{kind=\"presence\"}",
        "throng_session_queue_bytes",
        "throng_build_info{version=\"0.1.0\"}",
    ]
    .map(|name| (name.to_owned(), Vec::new()))
    .into();
    let mut stanzas = [0.0, 0.0];
    for at in 0..sample.seconds {
        let part = f64::from(at) / length;
        let with_failures = sample.with_failures && (0.55..0.63).contains(&part);
        let filled = (part / 0.4).min(1.0) * ((1.0 - part) / 0.06).min(1.0);
        let users = (f64::from(sample.users) * filled) as i64;
        let arrivals = if part < 0.4 {
            f64::from(sample.users) / (length * 0.4) * (0.8 + 0.4 * random.next())
        } else {
            0.0
        } as u64;
        let slow = sample.slowness * (1.0 + filled) * if with_failures { 300.0 } else { 1.0 };
        let mut second = SecondReport {
            at,
            generator_cpu: 0.1 + 0.5 * filled + 0.1 * random.next(),
            busiest_cpu: if with_failures { 0.97 } else { 0.1 + 0.4 * filled },
            generator_rss: 20_000_000 + 900 * users as u64,
            ..SecondReport::default()
        };
        let s = &mut second;
        for (name, share) in [
            ("users", 1.0),
            ("connected", 0.998),
            ("online", 0.995),
            ("online_acceptable", if with_failures { 0.4 } else { 0.994 }),
        ] {
            s.gauges.insert(name.to_owned(), (users as f64 * share) as i64);
        }
        let messages = (users as f64 / 25.0 * (0.9 + 0.2 * random.next())) as u64;
        let presence = arrivals * 3 + users as u64 / 60;
        sums.count(s, "users_started", arrivals);
        sums.count(s, "connections", arrivals);
        sums.count(s, "logins", arrivals);
        sums.count(s, "messages_sent", messages);
        sums.count(s, "messages_to_online", messages * 97 / 100);
        sums.count(s, "messages_delivered", messages * 99 / 100);
        sums.count(s, "presence_sent", presence);
        sums.count(s, "presence_received", presence * 2);
        sums.count(s, "iq_sent", arrivals);
        sums.count(s, "iq_answered", arrivals);
        sums.count(s, "bytes_sent", messages * 190 + arrivals * 900);
        sums.count(s, "bytes_received", messages * 240 + arrivals * 2_400);
        sums.count(s, "stanzas_sent", messages + presence);
        sums.count(s, "stanzas_received", messages + presence * 2);
        let late = if with_failures { messages / 2 } else { 0 };
        sums.count(s, "acceptable", messages + arrivals - late);
        sums.count(s, "unacceptable", late);
        if with_failures {
            sums.count(s, "messages_lost", 1);
            sums.error(s, "timeout", messages / 40);
            sums.error(s, "connect:refused", u64::from(at % 7 == 0));
        }
        for (name, count, typical) in [
            ("connect", arrivals, 90.0),
            ("authenticate", arrivals, 2_100.0),
            ("login", arrivals, 3_400.0),
            ("roster", arrivals, 700.0),
            ("presence_self", arrivals, 400.0),
            ("message", messages, 450.0),
            ("presence", presence, 800.0),
            ("tr:first message", arrivals, 5_000.0),
        ] {
            sums.time(s, &mut random, name, count, typical * slow);
        }
        let turns = if with_failures { 21_000.0 } else { 180.0 };
        sums.time(s, &mut random, "lateness", messages + 1, turns);
        sums.time(s, &mut random, "loop_turn", 100, turns / 2.0);
        run.server.push(ServerSample {
            at,
            cpu: 0.05 + 0.9 * filled * (0.9 + 0.2 * random.next()),
            rss: 60_000_000 + users as u64 * 6_200,
            pss: 58_000_000 + users as u64 * 6_100,
            threads: 7,
            files: 40 + users as u32,
            sockets: users as u64 * 2_600,
        });
        if at % 5 == 0 {
            stanzas[0] += messages as f64 * 5.0;
            stanzas[1] += presence as f64 * 5.0;
            let queue = if with_failures { 4e6 * random.next() } else { 2e4 * random.next() };
            for (slot, value) in scraped.iter_mut().zip([users as f64, stanzas[0], stanzas[1], queue, 1.0]) {
                slot.1.push((at, value));
            }
        }
        run.seconds.push(second);
    }
    run.about = RunInfo {
        plan: sample.plan.clone(),
        title: "One login every 5 ms; presence, messages to users online, a looped script".to_owned(),
        target: "127.0.0.1:5222".to_owned(),
        label: sample.label.clone(),
        started: 1_795_310_000,
        length: length + 3.2,
        connections: sample.users,
        time_scale: 4.0,
        acceptable_ms: 1_000,
        command: format!(
            "throng load {} --target 127.0.0.1:5222 --connections {}",
            sample.plan, sample.users
        ),
        version: "0.1.0".to_owned(),
        cores: 2,
        memory: 25_000_000_000,
        end: "finished".to_owned(),
        ..RunInfo::default()
    };
    run.phases = [("arrival", 0.0), ("steady", 0.4), ("departure", 0.94)]
        .map(|(name, part)| PhaseRun { name: name.to_owned(), from: (part * length) as u32 })
        .into();
    run.workers = (0..2)
        .map(|index| WorkerRun {
            name: "local".to_owned(),
            pid: 4_100 + index,
            users: sample.users / 2,
            cpu: length * 0.22,
            rss: 12_000_000 + u64::from(sample.users) * 450,
            rss_empty: 8_000_000,
            died: (sample.with_failures && index == 1).then_some((sample.seconds * 3 / 5, 40)),
        })
        .collect();
    if sample.with_failures {
        run.warnings.push("The generator had more than 5 ms of its own delay at p99 in 96 seconds; the limit was the processor.".to_owned());
        run.log.push("connection 7731: <stream:error><system-shutdown xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>".to_owned());
    }
    run.scraped = scraped;
    let totals = sums.totals(&run);
    run.totals = totals;
    run
}
