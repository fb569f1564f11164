//! `throng load capacity`: search for the largest number of users, arrivals or messages within latency limits.
//!
//! Each probe is a complete run with its report. A probe passes if the 99th percentiles of delivery and of login are
//! within their limits, no message was lost, and errors do not exceed the allowed share.
//!
//! # Pitfalls
//!
//! A probe that fails while the generator itself was late proves nothing about the server; the search ends there.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::run::{self, execute_run};
use super::search::{CapacitySearch, ProbeOutcome, SearchEnd};
use super::{CapacityArgs, CapacityTarget, CommandFailure, RunArgs, output, plan};
use crate::clock;
use crate::control::interrupt::InterruptCounter;
use crate::control::salts::SaltCache;
use crate::measure::{Counter, Timing};
use crate::plan::TimeSpan;
use crate::report;
use crate::report::model;
use crate::report::verdict::{late_keys, most_frequent};

/// Time for which a probe continues after its users have arrived, unless flags or the plan end it earlier.
/// Milliseconds.
const STAY_MS: u64 = 30_000;
/// Lateness of the generator at p99, as a share of a limit, above which a failed probe is inconclusive.
const LATE_SHARE: f64 = 0.1;
/// Share of a run's seconds with a busy worker above which a failed probe is inconclusive.
const BUSY_SHARE: f64 = 0.25;

/// Errors of accounts that do not exist, are disabled, or have another password.
const ACCOUNTS: [&str; 6] = [
    "login:not-authorized",
    "login:account-disabled",
    "login:credentials-expired",
    "login:invalid-authzid",
    "register:refused",
    "no-free-user",
];

/// Results of a probe.
#[derive(Clone, Debug, Default, Serialize)]
struct ProbeResult {
    /// Users, arrivals per second or messages per second.
    value: u64,
    good: bool,
    /// Reason why it failed.
    reason: Option<String>,
    delivery_p99_ms: f64,
    login_p99_ms: f64,
    messages_sent: u64,
    messages_lost: u64,
    logins: u64,
    errors: u64,
    online: i64,
    generator_late_p99_ms: f64,
}

/// Contents of the report.
#[derive(Serialize)]
struct CapacityReport {
    plan: String,
    label: String,
    by: &'static str,
    /// Largest value that passed.
    capacity: Option<u64>,
    /// Outcome of the search in one sentence.
    end: String,
    delivery_ms: f64,
    login_ms: f64,
    probes: Vec<ProbeResult>,
}

/// Runs `throng load capacity`.
pub(super) fn capacity(args: &CapacityArgs) -> Result<(), CommandFailure> {
    args.run.failures.refuse("capacity")?;
    let mut base = args.run.clone();
    if base.shape.hold.is_none() && base.shape.duration.is_none() {
        base.shape.hold = Some(STAY_MS);
    }
    run::ensure_token(&mut base)?;
    let resolved = plan::read(&base)?;
    let (name, connections) = (resolved.plan.name.clone(), resolved.plan.options.connections);
    let least = 2;
    let most = match args.by {
        CapacityTarget::Users => highest(&base, args.max.unwrap_or(1_000_000))?,
        CapacityTarget::Rate | CapacityTarget::Messages => args.max.unwrap_or(10_000_000),
    };
    let limit = limit_reason(&base, args.by, most);
    let mut search =
        CapacitySearch::new(args.from.unwrap_or(100), least, most, args.precision / 100.0, args.probes);
    let directory = run::directory(&base.output, &format!("capacity-{name}"), clock::unix_seconds());
    run::writable(&directory)?;
    let interrupts = InterruptCounter::listen()?;
    // Salts learned in one probe spare the next one the same key derivations under load.
    let mut salts = None;
    let mut probes = Vec::new();
    let mut label = String::new();
    while let Some(value) = search.next() {
        let mut probe = base.clone();
        apply(&mut probe, args.by, value, connections)?;
        probe.output.out = Some(directory.join(format!("probe-{:02}-{value}", probes.len() + 1)));
        let run = run_one(&probe, &mut salts, &interrupts)?;
        label.clone_from(&run.about.label);
        if interrupts.count() > 0 {
            break;
        }
        let (probe_result, outcome) = evaluate_probe(&run, value, args);
        output::error(&line(&probe_result, args.by));
        probes.push(probe_result);
        search.record_outcome(outcome);
        if search.next().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(args.pause));
        }
    }
    let (good, end) = search.result();
    let interrupted = interrupts.count() > 0;
    let end = describe_end(end, good, (most, &limit), interrupted, &probes);
    let found = CapacityReport {
        plan: name,
        label,
        by: args.by.name(),
        capacity: good,
        end,
        delivery_ms: args.delivery_ms,
        login_ms: args.login_ms,
        probes,
    };
    write_report(&found, args, &directory)
}

/// Largest number of users up to `most` that this machine supports, according to the plan checks and without a run.
fn highest(base: &RunArgs, most: u64) -> Result<u64, CommandFailure> {
    if base.worker_pool.listen.is_some() {
        return Ok(most);
    }
    let possible = |users: u64| -> Result<bool, CommandFailure> {
        let mut run = base.clone();
        apply(&mut run, CapacityTarget::Users, users, 0)?;
        let resolved = plan::read(&run)?;
        Ok(run::check_plan(&run, &resolved).is_empty())
    };
    let (mut low, mut high) = (2, most.min(u64::from(u32::MAX)) + 1);
    if !possible(low)? {
        // The limit is not the number of users; the first probe reports it.
        return Ok(most);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if possible(middle)? { low = middle } else { high = middle }
    }
    Ok(low)
}

fn apply(run: &mut RunArgs, by: CapacityTarget, value: u64, connections: u32) -> Result<(), CommandFailure> {
    match by {
        CapacityTarget::Users => {
            run.shape.connections = Some(
                u32::try_from(value)
                    .context("the number of users is too large")
                    .map_err(CommandFailure::Usage)?,
            );
        }
        CapacityTarget::Rate => run.shape.rate = Some(value as f64),
        // Each of them sends its share.
        CapacityTarget::Messages => {
            run.shape.every = Some(TimeSpan::Fixed(f64::from(connections) * 1_000.0 / value as f64))
        }
    }
    Ok(())
}

fn run_one(
    probe: &RunArgs,
    salts: &mut Option<SaltCache>,
    interrupts: &InterruptCounter,
) -> Result<model::RunRecord, CommandFailure> {
    let resolved = plan::read(probe)?;
    let mut setup = run::setup(probe, resolved)?;
    let shared = salts.get_or_insert_with(|| setup.salts.take().unwrap_or_default());
    setup.salts = Some(shared.clone());
    let run = execute_run(setup, probe, interrupts)?;
    run::save_salts(probe, Some(shared));
    if let Some(out) = &probe.output.out {
        report::write(out, &run)?;
    }
    let counted = |counter: Counter| run.totals.counters.contains_key(counter.name());
    match run.about.end.as_str() {
        "finished" | "interrupted" => Ok(run),
        // Without a single login the failure is not the server's capacity.
        failed if !counted(Counter::Logins) => Err(CommandFailure::Run(anyhow::anyhow!(failed.to_owned()))),
        _ => Ok(run),
    }
}

/// Results of a run and whether it is within the limits.
fn evaluate_probe(run: &model::RunRecord, value: u64, args: &CapacityArgs) -> (ProbeResult, ProbeOutcome) {
    let total = |counter: Counter| run.totals.counters.get(counter.name()).map_or(0, |total| total.total);
    let p99 = |timing: Timing| {
        run.totals.timings.get(timing.name()).map_or(0.0, |total| total.summary.p99 as f64 / 1_000.0)
    };
    let errors = [Counter::ConnectErrors, Counter::LoginErrors, Counter::SessionsLost, Counter::Timeouts];
    let done = [Counter::Logins, Counter::IqSent];
    let errors: u64 = errors.into_iter().map(total).sum();
    let done: u64 = done.into_iter().map(total).sum();
    let probe = ProbeResult {
        value,
        good: false,
        reason: None,
        delivery_p99_ms: p99(Timing::Message).max(p99(Timing::RoomMessage)).max(p99(Timing::NodeEvent)),
        login_p99_ms: p99(Timing::Login),
        messages_sent: [Counter::MessagesSent, Counter::RoomMessagesSent, Counter::NodePublications]
            .into_iter()
            .map(total)
            .sum(),
        messages_lost: [
            Counter::MessagesLost,
            Counter::RoomMessagesUnreceived,
            Counter::RoomCopiesLost,
            Counter::NodeEventsLost,
        ]
        .into_iter()
        .map(total)
        .sum(),
        logins: total(Counter::Logins),
        errors,
        online: run.totals.gauges.get("online").copied().unwrap_or(0),
        generator_late_p99_ms: p99(Timing::Lateness),
    };
    let allowed = args.errors / 100.0 * (done + errors) as f64;
    let frequent = most_frequent(run);
    let often = frequent
        .map(|(kind, count)| format!("; most frequent error: {kind}, {count} times"))
        .unwrap_or_default();
    let missed = run.thresholds.iter().find(|threshold| threshold.missed);
    // Failures come first, because the times exclude what failed.
    let reason = if !matches!(run.about.end.as_str(), "finished" | "interrupted") {
        Some(format!("{}{often}", run.about.end))
    } else if errors as f64 > allowed {
        Some(format!("{errors} connections, logins or requests failed{often}"))
    } else if probe.messages_lost > 0 {
        Some(format!("{} messages were lost{often}", probe.messages_lost))
    } else if let Some(missed) = missed {
        Some(format!("{}: {}{often}", missed.expression, missed.measured))
    } else if probe.delivery_p99_ms > args.delivery_ms {
        Some(format!("delivery took {:.0} ms at p99{often}", probe.delivery_p99_ms))
    } else if probe.login_p99_ms > args.login_ms {
        Some(format!("login took {:.0} ms at p99{often}", probe.login_p99_ms))
    } else {
        None
    };
    let Some(reason) = reason else { return (ProbeResult { good: true, ..probe }, ProbeOutcome::Good) };
    let of_accounts = frequent.is_some_and(|(kind, _)| ACCOUNTS.contains(&kind));
    if of_accounts && errors as f64 > allowed {
        let reason = format!(
            "{} of {} logins were refused as if the account did not exist ({}); {} succeeded",
            total(Counter::LoginErrors),
            total(Counter::LoginErrors) + probe.logins,
            frequent.map_or("", |(kind, _)| kind),
            probe.online
        );
        return (ProbeResult { reason: Some(reason), ..probe }, ProbeOutcome::Accounts);
    }
    let busy = run.seconds.iter().filter(|second| second.busiest_cpu > 0.9).count();
    let strained = late_keys(run).is_some()
        || probe.generator_late_p99_ms > LATE_SHARE * args.delivery_ms.min(args.login_ms)
        || busy as f64 > BUSY_SHARE * run.seconds.len() as f64
        || run.totals.errors.keys().any(|kind| kind.ends_with("-left"));
    let outcome = if strained { ProbeOutcome::Unclear } else { ProbeOutcome::Bad };
    (ProbeResult { reason: Some(reason), ..probe }, outcome)
}

fn line(probe: &ProbeResult, by: CapacityTarget) -> String {
    let verdict =
        probe.reason.as_deref().map_or_else(|| "passes".to_owned(), |reason| format!("fails: {reason}"));
    format!(
        "{} {}: delivery p99 {:.1} ms, login p99 {:.1} ms, {} messages, {} lost, {} errors, generator \
         lateness p99 {:.1} ms; {verdict}",
        probe.value,
        by.unit(),
        probe.delivery_p99_ms,
        probe.login_p99_ms,
        probe.messages_sent,
        probe.messages_lost,
        probe.errors,
        probe.generator_late_p99_ms
    )
}

/// Reason why no more users can be tried: the first error of a plan with one more.
fn limit_reason(base: &RunArgs, by: CapacityTarget, most: u64) -> String {
    if by != CapacityTarget::Users || base.worker_pool.listen.is_some() {
        return String::new();
    }
    let mut run = base.clone();
    let resolved =
        apply(&mut run, CapacityTarget::Users, most.saturating_add(1), 0).and_then(|()| plan::read(&run));
    let first = resolved.ok().and_then(|resolved| run::check_plan(&run, &resolved).into_iter().next());
    first.map(|error| format!(": {error}")).unwrap_or_default()
}

fn describe_end(
    end: SearchEnd,
    good: Option<u64>,
    (most, limit): (u64, &str),
    interrupted: bool,
    probes: &[ProbeResult],
) -> String {
    let reason = probes.iter().rev().find_map(|probe| probe.reason.clone()).unwrap_or_default();
    let smallest = probes.iter().filter(|probe| !probe.good).map(|probe| probe.value).min().unwrap_or(0);
    match end {
        _ if interrupted => {
            "interrupted; the result is the largest number that had passed by then".to_owned()
        }
        SearchEnd::Found => format!("{smallest} fails ({reason})"),
        SearchEnd::Highest => {
            format!(
                "{most} is the largest number that can be tested here{limit}; the capacity of the \
             server is at least that"
            )
        }
        SearchEnd::Generator => format!(
            "the generator was the bottleneck at {smallest} ({reason}), so this is a lower bound; add workers \
             or machines (--workers, --listen)"
        ),
        SearchEnd::Accounts => format!(
            "accounts were missing at {smallest} ({reason}), so the server was not tested above; create more \
             with `throng load prepare` or the server's tools, and check --user-prefix, --first and the password"
        ),
        SearchEnd::Nothing => format!("the smallest number fails ({reason})"),
        SearchEnd::Probes if good.is_some() => "the limit of probes was reached (--probes)".to_owned(),
        SearchEnd::Probes => {
            format!("the limit of probes was reached (--probes), and none had passed ({reason})")
        }
    }
}

fn write_report(found: &CapacityReport, args: &CapacityArgs, directory: &Path) -> Result<(), CommandFailure> {
    let json = serde_json::to_string_pretty(found).context("cannot write the capacity as JSON")?;
    let path = directory.join("capacity.json");
    std::fs::write(&path, format!("{json}\n"))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    if args.run.output.json {
        output::line(&json);
        return Ok(());
    }
    match found.capacity {
        Some(value) => {
            output::line(&format!("Capacity of {}: {value} {}", found.label, args.by.unit()));
            if let Some(best) = found.probes.iter().rfind(|probe| probe.good && probe.value == value) {
                output::line(&format!("  {}", line(best, args.by)));
            }
        }
        None => output::line("Capacity: none found"),
    }
    output::line(&format!("  {}", found.end));
    output::line(&format!("  {}", path.display()));
    match found.capacity {
        Some(_) => Ok(()),
        None => Err(CommandFailure::Run(anyhow::anyhow!("no number passed; {}", found.end))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::TimingSummary;
    use crate::report::model::{CounterTotal, SecondReport, TimingTotal};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        capacity: CapacityArgs,
    }

    fn args() -> CapacityArgs {
        Line::parse_from(["x", "steady", "--delivery-ms", "100"]).capacity
    }

    fn run(delivery_ms: u64, login_ms: u64, counters: &[(Counter, u64)]) -> model::RunRecord {
        let mut run = model::RunRecord::default();
        run.about.end = "finished".to_owned();
        for (timing, ms) in [(Timing::Message, delivery_ms), (Timing::Login, login_ms)] {
            let summary = TimingSummary { count: 1, p99: ms * 1_000, ..TimingSummary::default() };
            run.totals
                .timings
                .insert(timing.name().to_owned(), TimingTotal { summary, ..TimingTotal::default() });
        }
        for (counter, total) in counters {
            let total = CounterTotal { total: *total, ..CounterTotal::default() };
            run.totals.counters.insert(counter.name().to_owned(), total);
        }
        run.seconds = vec![SecondReport::default(); 10];
        run
    }

    #[test]
    fn a_probe_is_judged_by_each_limit() {
        let logins = (Counter::Logins, 1_000);
        let outcome = |run: &model::RunRecord| {
            let (probe, outcome) = evaluate_probe(run, 7, &args());
            (outcome, probe.reason.unwrap_or_default())
        };
        assert_eq!(outcome(&run(100, 1_000, &[logins])).0, ProbeOutcome::Good);
        assert_eq!(
            outcome(&run(101, 10, &[logins])),
            (ProbeOutcome::Bad, "delivery took 101 ms at p99".to_owned())
        );
        assert_eq!(outcome(&run(1, 1_001, &[logins])).1, "login took 1001 ms at p99");
        assert_eq!(outcome(&run(1, 1, &[logins, (Counter::MessagesLost, 1)])).1, "1 messages were lost");
        let failed = outcome(&run(1, 1, &[logins, (Counter::LoginErrors, 2)]));
        assert_eq!(failed, (ProbeOutcome::Bad, "2 connections, logins or requests failed".to_owned()));
        // Missing accounts are neither a latency nor the server's limit.
        let mut missing = run(5_000, 1, &[logins, (Counter::LoginErrors, 480)]);
        let total = CounterTotal { total: 480, ..CounterTotal::default() };
        missing.totals.errors.insert("login:not-authorized".to_owned(), total);
        missing
            .totals
            .errors
            .insert("timeout".to_owned(), CounterTotal { total: 3, ..CounterTotal::default() });
        let (found, reason) = outcome(&missing);
        assert_eq!(found, ProbeOutcome::Accounts);
        assert!(
            reason.contains("480 of 1480 logins were refused as if the account did not exist"),
            "{reason}"
        );
        let mut broken = run(1, 1, &[logins, (Counter::Timeouts, 480)]);
        broken.totals.errors.insert("timeout".to_owned(), total);
        let (found, reason) = outcome(&broken);
        assert_eq!(found, ProbeOutcome::Bad);
        assert!(reason.ends_with("failed; most frequent error: timeout, 480 times"), "{reason}");
        let mut late = run(101, 10, &[logins]);
        for second in &mut late.seconds[..3] {
            second.busiest_cpu = 0.95;
        }
        assert_eq!(outcome(&late).0, ProbeOutcome::Unclear);
    }
}
