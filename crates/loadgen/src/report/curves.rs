//! Selection of the charts on the page of a run.
//!
//! # Pitfalls
//!
//! Charts without values are dropped and listed in one line, so that the page of a small run stays short.

use super::chart::{Chart, ChartAxis, ChartCurve, CurveStyle};
use super::model::RunRecord;
use super::series::{BucketAggregate, CurvePoint, SeriesBuckets, timing_title, timings, transactions};
use super::table::varies;
use super::unit::{DisplayUnit, time};
use super::verdict::{BUSY, LATE};
use crate::measure::{Counter, Gauge, Timing, TimingSummary};

/// Maximum number of charts of scraped metrics; the JSON has the rest.
const MOST_METRICS: usize = 24;
/// Maximum number of lines in one of these charts.
const MOST_LABELS: usize = 6;

/// A section of the page.
pub(super) struct ChartSection {
    pub(super) title: &'static str,
    /// Anchor for links.
    pub(super) id: &'static str,
    /// Charts, including those without values.
    pub(super) charts: Vec<Chart>,
    /// Whether the section is collapsed initially.
    pub(super) folded: bool,
}

struct ChartBuilder<'a> {
    run: &'a RunRecord,
    steps: SeriesBuckets,
    length: f64,
}

/// Selects a statistic of a timing.
type Figure = fn(&TimingSummary) -> f64;
/// Name and values of a scraped metric.
type Series<'a> = (&'a str, &'a [(u32, f64)]);

/// All charts of the run.
pub(super) fn sections(run: &RunRecord) -> Vec<ChartSection> {
    let steps = SeriesBuckets::new(run, super::series::MOST_STEPS);
    let maker = ChartBuilder {
        run,
        steps,
        length: run.about.length.clamp(f64::from(steps.end), f64::from(steps.end) + 60.0),
    };
    let small = ChartBuilder { steps: SeriesBuckets::new(run, 160), ..maker };
    let section = |title, id, charts| ChartSection { title, id, charts, folded: false };
    let main = [Timing::Login, Timing::Message, Timing::Presence, Timing::Roster];
    let others = timings(run).into_iter().chain(transactions(run)).filter(|name| {
        let known = [
            Timing::Login,
            Timing::Message,
            Timing::Presence,
            Timing::Roster,
            Timing::Lateness,
            Timing::Turn,
        ];
        !known.iter().any(|t| t.name() == *name)
    });
    vec![
        section(
            "Users and rates",
            "load",
            vec![maker.users(), maker.logins(), maker.messages(), maker.presence()],
        ),
        section(
            "Response times",
            "latency",
            main.iter().map(|t| maker.percentiles(t.name())).chain([distribution(run)]).collect(),
        ),
        section("Errors and network", "faults", vec![maker.errors(), maker.network(), maker.requests()]),
        section(
            "Server",
            "server-charts",
            vec![maker.server_cpu(), maker.server_memory(), maker.server_handles()],
        ),
        section(
            "Generator",
            "generator-charts",
            vec![maker.generator_cpu(), maker.generator_memory(), maker.lateness()],
        ),
        ChartSection {
            title: "Metrics of the server",
            id: "metrics",
            charts: small.metrics(),
            folded: false,
        },
        ChartSection {
            title: "More response times",
            id: "more",
            charts: others.take(24).map(|name| small.percentiles(name)).collect(),
            folded: true,
        },
    ]
}

fn line(name: impl Into<String>, look: CurveStyle, points: Vec<CurvePoint>) -> ChartCurve {
    ChartCurve { name: name.into(), look, points }
}

impl ChartBuilder<'_> {
    fn chart(&self, id: &str, title: &str, unit: DisplayUnit, lines: Vec<ChartCurve>) -> Chart {
        Chart {
            id: id.to_owned(),
            title: title.to_owned(),
            note: self.steps.caption(BucketAggregate::Mean),
            unit,
            log: false,
            axis: ChartAxis {
                shutdown: self.run.about.closing.map_or(f64::MAX, f64::from),
                ..ChartAxis::time(self.length, self.steps.width)
            },
            lines,
            phases: self.run.phases.iter().map(|p| (f64::from(p.from), p.name.clone())).collect(),
            limit: None,
            marks: false,
        }
    }

    fn users(&self) -> Chart {
        let gauge = |gauge| self.steps.gauge(self.run, gauge);
        self.chart(
            "users",
            "Users",
            DisplayUnit::Count,
            vec![
                line("users", CurveStyle::Area(0), gauge(Gauge::Users)),
                line("connected", CurveStyle::Kind(4), gauge(Gauge::Connected)),
                line("online", CurveStyle::Kind(2), gauge(Gauge::Online)),
                line("acceptable", CurveStyle::Kind(1), gauge(Gauge::Acceptable)),
            ],
        )
    }

    fn rates(&self, id: &str, title: &str, lines: &[(&str, usize, Counter)]) -> Chart {
        let lines = lines.iter().map(|(name, n, counter)| {
            line(*name, CurveStyle::Kind(*n), self.steps.counter(self.run, *counter))
        });
        self.chart(id, title, DisplayUnit::Rate, lines.collect())
    }

    fn logins(&self) -> Chart {
        self.rates(
            "logins",
            "Arrivals and logins",
            &[
                ("arrivals", 0, Counter::UsersStarted),
                ("logins", 2, Counter::Logins),
                ("failed", 1, Counter::LoginErrors),
                ("finished", 3, Counter::UsersFinished),
            ],
        )
    }

    fn messages(&self) -> Chart {
        self.rates(
            "messages",
            "Messages",
            &[
                ("sent", 0, Counter::MessagesSent),
                ("delivered", 2, Counter::MessagesDelivered),
                ("stored", 5, Counter::MessagesDelayed),
                ("refused", 1, Counter::MessagesRefused),
                ("elsewhere", 3, Counter::MessagesElsewhere),
            ],
        )
    }

    fn presence(&self) -> Chart {
        self.rates(
            "presence",
            "Presence",
            &[("sent", 0, Counter::PresenceSent), ("received", 2, Counter::PresenceReceived)],
        )
    }

    fn requests(&self) -> Chart {
        self.rates(
            "requests",
            "Requests (IQ)",
            &[
                ("sent", 0, Counter::IqSent),
                ("answered", 2, Counter::IqAnswered),
                ("errors", 1, Counter::IqErrors),
                ("missing", 3, Counter::Timeouts),
            ],
        )
    }

    fn percentiles(&self, name: &str) -> Chart {
        let picks: [(&str, Figure); 4] = [
            ("p50", |s| s.p50 as f64),
            ("p90", |s| s.p90 as f64),
            ("p99", |s| s.p99 as f64),
            ("p99.9", |s| s.p999 as f64),
        ];
        let lines = picks.iter().enumerate().map(|(index, (title, pick))| {
            line(*title, CurveStyle::Percentile(index), self.steps.timing(self.run, name, *pick))
        });
        let id: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let number = self.run.totals.timings.keys().position(|k| k == name).unwrap_or(0);
        let mut chart =
            self.chart(&format!("t{number}-{id}"), &timing_title(name), DisplayUnit::Time, lines.collect());
        chart.log = true;
        chart.note = self.steps.caption(BucketAggregate::Highest);
        let length = name != Timing::Session.name() && !name.starts_with("tr:");
        let limit = self.run.about.acceptable_ms as f64 * 1e3;
        chart.limit = (length && limit > 0.0).then(|| (limit, format!("acceptable: {}", time(limit))));
        chart
    }

    fn errors(&self) -> Chart {
        let mut kinds: Vec<_> = self.run.totals.errors.iter().filter(|(_, e)| e.total > 0).collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.1.total));
        let lines = kinds.iter().take(MOST_LABELS).enumerate();
        let lines =
            lines.map(|(n, (kind, _))| line(*kind, CurveStyle::Kind(n), self.steps.errors(self.run, kind)));
        let mut chart = self.chart("errors-chart", "Errors", DisplayUnit::Rate, lines.collect());
        if kinds.len() > MOST_LABELS {
            chart.note.push_str(&format!(" {} more kinds are in the table.", kinds.len() - MOST_LABELS));
        }
        chart
    }

    fn network(&self) -> Chart {
        let mut chart = self.rates(
            "bytes",
            "Network",
            &[("sent", 0, Counter::BytesOut), ("received", 2, Counter::BytesIn)],
        );
        chart.unit = DisplayUnit::ByteRate;
        chart
    }

    fn sampled(&self, pick: fn(&super::model::ServerSample) -> f64) -> Vec<CurvePoint> {
        let points = self.steps.curve(BucketAggregate::Mean, self.run.server.iter().map(|s| (s.at, pick(s))));
        if points.iter().any(|p| p.high > 0.0) { points } else { Vec::new() }
    }

    fn server_cpu(&self) -> Chart {
        self.chart(
            "server-cpu",
            "CPU of the server",
            DisplayUnit::Cores,
            vec![line("CPU", CurveStyle::Area(1), self.sampled(|s| s.cpu))],
        )
    }

    fn server_memory(&self) -> Chart {
        self.chart(
            "server-memory",
            "Memory of the server",
            DisplayUnit::Bytes,
            vec![
                line("resident", CurveStyle::Area(1), self.sampled(|s| s.rss as f64)),
                line("proportional", CurveStyle::Kind(2), self.sampled(|s| s.pss as f64)),
                line("sockets", CurveStyle::Kind(0), self.sampled(|s| s.sockets as f64)),
            ],
        )
    }

    fn server_handles(&self) -> Chart {
        self.chart(
            "server-files",
            "Open files and threads of the server",
            DisplayUnit::Count,
            vec![
                line("open files", CurveStyle::Kind(0), self.sampled(|s| f64::from(s.files))),
                line("threads", CurveStyle::Kind(1), self.sampled(|s| f64::from(s.threads))),
            ],
        )
    }

    fn generator_cpu(&self) -> Chart {
        let (all, busiest) = (
            self.steps.second(self.run, |s| s.generator_cpu),
            self.steps.second(self.run, |s| s.busiest_cpu),
        );
        let one = self.run.workers.len() == 1;
        let mut lines = vec![line("all workers", CurveStyle::Area(3), all)];
        if !one {
            lines.push(line("busiest", CurveStyle::Kind(0), busiest));
        }
        let mut chart = self.chart("generator-cpu", "CPU of the generator", DisplayUnit::Cores, lines);
        chart.lines.retain(|l| l.points.iter().any(|p| p.high > 0.0));
        chart.limit = Some((BUSY, format!("limit of one worker: {BUSY}")));
        chart
    }

    fn generator_memory(&self) -> Chart {
        let mut points = self.steps.second(self.run, |s| s.generator_rss as f64);
        points.retain(|p| p.high > 0.0);
        self.chart(
            "generator-memory",
            "Memory of the generator",
            DisplayUnit::Bytes,
            vec![line("resident", CurveStyle::Area(3), points)],
        )
    }

    fn lateness(&self) -> Chart {
        let timing = |timing: Timing, pick| self.steps.timing(self.run, timing.name(), pick);
        let mut chart = self.chart(
            "lateness",
            "Lateness of the generator",
            DisplayUnit::Time,
            vec![
                line("late p50", CurveStyle::Percentile(0), timing(Timing::Lateness, |s| s.p50 as f64)),
                line("late p99", CurveStyle::Percentile(2), timing(Timing::Lateness, |s| s.p99 as f64)),
                line("loop p99", CurveStyle::Percentile(3), timing(Timing::Turn, |s| s.p99 as f64)),
            ],
        );
        chart.log = true;
        chart.note = format!(
            "Delay between due and sent, and duration of an event-loop turn. {}",
            self.steps.caption(BucketAggregate::Highest)
        );
        chart.limit = Some((LATE as f64, format!("limit: {}", time(LATE as f64))));
        chart
    }

    /// One chart per metric name, with one line per set of labels.
    fn metrics(&self) -> Vec<Chart> {
        let mut groups: Vec<(&str, Vec<Series<'_>>)> = Vec::new();
        for (name, values) in self.run.scraped.iter().filter(|(_, values)| varies(values)) {
            let (base, labels) =
                name.split_once('{').map_or((name.as_str(), ""), |(b, l)| (b, l.trim_end_matches('}')));
            match groups.iter_mut().find(|g| g.0 == base) {
                Some(group) => group.1.push((labels, values)),
                None => groups.push((base, vec![(labels, values)])),
            }
        }
        let more = groups.len().saturating_sub(MOST_METRICS);
        let mut charts = Vec::new();
        for (number, (base, mut series)) in groups.into_iter().take(MOST_METRICS).enumerate() {
            let counts = ["_total", "_count", "_sum", "_bucket"].iter().any(|end| base.ends_with(end));
            let peak = |values: &[(u32, f64)]| values.iter().map(|v| v.1).fold(0.0, f64::max);
            series.sort_by(|a, b| peak(b.1).total_cmp(&peak(a.1)));
            let lines = series.iter().take(MOST_LABELS).enumerate().map(|(n, (labels, values))| {
                let points = if counts {
                    self.steps.curve(BucketAggregate::Mean, rates(values).into_iter())
                } else {
                    self.steps.curve(BucketAggregate::Mean, values.iter().copied())
                };
                line(if labels.is_empty() { "value" } else { *labels }, CurveStyle::Kind(n), points)
            });
            let lines = lines.collect();
            let unit = match (base.contains("bytes"), counts) {
                (true, true) => DisplayUnit::ByteRate,
                (true, false) => DisplayUnit::Bytes,
                (false, true) => DisplayUnit::Rate,
                (false, false) => DisplayUnit::Count,
            };
            let mut chart = self.chart(&format!("m{number}"), base, unit, lines);
            if series.len() > MOST_LABELS {
                chart.note.push_str(&format!(" {} more series are in run.json.", series.len() - MOST_LABELS));
            }
            charts.push(chart);
        }
        if let (Some(last), true) = (charts.last_mut(), more > 0) {
            last.note.push_str(&format!(" {more} more metrics are in run.json."));
        }
        charts
    }
}

/// Increase of a counter per second. A falling counter has been restarted.
fn rates(values: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let pairs = values.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    pairs
        .map(|pair| (pair[1].0, (pair[1].1 - pair[0].1).max(0.0) / f64::from(pair[1].0 - pair[0].0)))
        .collect()
}

/// Time against the share of answers within it, for the main timings.
fn distribution(run: &RunRecord) -> Chart {
    const ENDS: [(f64, &str); 6] =
        [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")];
    let place = |share: f64| -(1.0 - share).log10();
    let main = [
        Timing::Login,
        Timing::Roster,
        Timing::Message,
        Timing::Presence,
        Timing::MessageStored,
        Timing::Ping,
    ];
    let lines = main.iter().enumerate().filter_map(|(n, timing)| {
        let buckets = &run.totals.timings.get(timing.name())?.histogram.buckets;
        let count: u64 = buckets.iter().map(|b| u64::from(b.1)).sum();
        let mut points: Vec<CurvePoint> = Vec::new();
        let mut below = 0;
        for &(value, many) in buckets {
            // A value spans the range of shares from the answers below it to the answers up to it.
            let from = place(below as f64 / count.max(1) as f64);
            below += u64::from(many);
            let share = below as f64 / count.max(1) as f64;
            let to = if below < count { place(share) } else { place(1.0 - 0.5 / count.max(1) as f64) };
            let near = points.last().is_some_and(|p| to - p.x < 0.012 && below < count);
            if near {
                continue;
            }
            if points.is_empty() {
                points.push(CurvePoint { x: from, low: value as f64, y: value as f64, high: value as f64 });
            }
            points.push(CurvePoint { x: to, low: value as f64, y: value as f64, high: value as f64 });
        }
        let name = match timing {
            Timing::MessageStored => "stored".to_owned(),
            other => other.name().to_owned(),
        };
        Some(line(name, CurveStyle::Kind(n), points))
    });
    let lines: Vec<ChartCurve> = lines.collect();
    let to = lines.iter().filter_map(|l| l.points.last()).map(|p| p.x).fold(2.0, f64::max).min(7.0);
    Chart {
        id: "distribution".to_owned(),
        title: "Distribution over the whole run".to_owned(),
        note: "Percentage of responses within each time. The axis gives each additional nine the same space."
            .to_owned(),
        unit: DisplayUnit::Time,
        log: true,
        axis: ChartAxis {
            shutdown: f64::MAX,
            from: 0.0,
            to,
            ticks: ENDS
                .iter()
                .map(|(q, text)| (place(*q), (*text).to_owned()))
                .filter(|t| t.0 <= to)
                .collect(),
            title: "per cent".to_owned(),
            gap: f64::MAX,
        },
        lines,
        phases: Vec::new(),
        limit: None,
        marks: false,
    }
}
