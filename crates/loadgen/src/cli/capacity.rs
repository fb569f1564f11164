//! `throng load capacity`: the largest number of users, arrivals or messages for which times stay within limits.
//!
//! Each probe is a whole run with its report. A probe passes if the 99th percentiles of delivery and of login are within
//! their limits, no message was lost, and errors are at most the share that is allowed.
//! Trap: a probe that fails while the generator itself was late says nothing about the server; the search ends there.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::once::{self, perform};
use super::search::{End, Outcome, Search};
use super::{By, Capacity, Failure, Run, out, plan};
use crate::clock;
use crate::control::interrupt::Interrupts;
use crate::control::salts::Book;
use crate::measure::{Counter, Timing};
use crate::plan::Time;
use crate::report;
use crate::report::model;
use crate::report::verdict::{late_keys, most_frequent};

/// How long a probe stays after its users have arrived, if neither flags nor plan end it earlier. Milliseconds.
const STAY_MS: u64 = 30_000;
/// Lateness of the generator at p99 beyond this share of a limit makes a failed probe unclear.
const LATE_SHARE: f64 = 0.1;
/// Share of a run's seconds in which a worker was busy that makes a failed probe unclear.
const BUSY_SHARE: f64 = 0.25;

/// Errors of accounts that are not there, are closed, or have another password.
const ACCOUNTS: [&str; 6] = [
    "login:not-authorized",
    "login:account-disabled",
    "login:credentials-expired",
    "login:invalid-authzid",
    "register:refused",
    "no-free-user",
];

/// The figures of a probe.
#[derive(Clone, Debug, Default, Serialize)]
struct Probe {
    /// Users, arrivals a second or messages a second.
    value: u64,
    good: bool,
    /// Why it did not pass.
    why: Option<String>,
    delivery_p99_ms: f64,
    login_p99_ms: f64,
    messages_sent: u64,
    messages_lost: u64,
    logins: u64,
    errors: u64,
    online: i64,
    generator_late_p99_ms: f64,
}

/// What is written down.
#[derive(Serialize)]
struct Found {
    plan: String,
    label: String,
    by: &'static str,
    /// The largest value that passed.
    capacity: Option<u64>,
    /// How the search ended: one sentence.
    end: String,
    delivery_ms: f64,
    login_ms: f64,
    probes: Vec<Probe>,
}

/// `throng load capacity`.
pub(super) fn capacity(asked: &Capacity) -> Result<(), Failure> {
    let mut base = asked.run.clone();
    if base.shape.hold.is_none() && base.shape.duration.is_none() {
        base.shape.hold = Some(STAY_MS);
    }
    once::one_token(&mut base)?;
    let given = plan::read(&base)?;
    let (name, connections) = (given.plan.name.clone(), given.plan.options.connections);
    let least = 2;
    let most = match asked.by {
        By::Users => highest(&base, asked.max.unwrap_or(1_000_000))?,
        By::Rate | By::Messages => asked.max.unwrap_or(10_000_000),
    };
    let limit = highest_why(&base, asked.by, most);
    let mut search =
        Search::new(asked.from.unwrap_or(100), least, most, asked.precision / 100.0, asked.probes);
    let directory = once::directory(&base.output, &format!("capacity-{name}"), clock::unix_seconds());
    once::writable(&directory)?;
    let interrupts = Interrupts::listen()?;
    // What one probe learns of the server's salts spares the next one the same derivations under load.
    let mut book = None;
    let mut probes = Vec::new();
    let mut label = String::new();
    while let Some(value) = search.next() {
        let mut probe = base.clone();
        apply(&mut probe, asked.by, value, connections)?;
        probe.output.out = Some(directory.join(format!("probe-{:02}-{value}", probes.len() + 1)));
        let run = run_one(&probe, &mut book, &interrupts)?;
        label.clone_from(&run.about.label);
        if interrupts.count() > 0 {
            break;
        }
        let (figures, outcome) = judge(&run, value, asked);
        out::error(&line(&figures, asked.by));
        probes.push(figures);
        search.record(outcome);
        if search.next().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(asked.pause));
        }
    }
    let (good, end) = search.result();
    let interrupted = interrupts.count() > 0;
    let end = sentence(end, good, (most, &limit), interrupted, &probes);
    let found = Found {
        plan: name,
        label,
        by: asked.by.name(),
        capacity: good,
        end,
        delivery_ms: asked.delivery_ms,
        login_ms: asked.login_ms,
        probes,
    };
    tell(&found, asked, &directory)
}

/// The largest number of users that this machine can have, below `most`: the checks of a plan tell it without a run.
fn highest(base: &Run, most: u64) -> Result<u64, Failure> {
    if base.crew.listen.is_some() {
        return Ok(most);
    }
    let possible = |users: u64| -> Result<bool, Failure> {
        let mut run = base.clone();
        apply(&mut run, By::Users, users, 0)?;
        let given = plan::read(&run)?;
        Ok(once::mistakes(&run, &given).is_empty())
    };
    let (mut low, mut high) = (2, most.min(u64::from(u32::MAX)) + 1);
    if !possible(low)? {
        // It is something else than the number; the first probe says what.
        return Ok(most);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if possible(middle)? { low = middle } else { high = middle }
    }
    Ok(low)
}

fn apply(run: &mut Run, by: By, value: u64, connections: u32) -> Result<(), Failure> {
    match by {
        By::Users => {
            run.shape.connections =
                Some(u32::try_from(value).context("more users than can be counted").map_err(Failure::Usage)?);
        }
        By::Rate => run.shape.rate = Some(value as f64),
        // Each of them sends its share.
        By::Messages => run.shape.every = Some(Time::Fixed(f64::from(connections) * 1_000.0 / value as f64)),
    }
    Ok(())
}

fn run_one(probe: &Run, book: &mut Option<Book>, interrupts: &Interrupts) -> Result<model::Run, Failure> {
    let given = plan::read(probe)?;
    let mut setup = once::setup(probe, given)?;
    let shared = book.get_or_insert_with(|| setup.salts.take().unwrap_or_default());
    setup.salts = Some(shared.clone());
    let run = perform(setup, probe, interrupts)?;
    once::keep(probe, Some(shared));
    if let Some(out) = &probe.output.out {
        report::write(out, &run)?;
    }
    let counted = |counter: Counter| run.totals.counters.contains_key(counter.name());
    match run.about.end.as_str() {
        "finished" | "interrupted" => Ok(run),
        // Without a single login it is not the server's capacity that is missing.
        failed if !counted(Counter::Logins) => Err(Failure::Run(anyhow::anyhow!(failed.to_owned()))),
        _ => Ok(run),
    }
}

/// The figures of a run, and whether it is within the limits.
fn judge(run: &model::Run, value: u64, asked: &Capacity) -> (Probe, Outcome) {
    let total = |counter: Counter| run.totals.counters.get(counter.name()).map_or(0, |total| total.total);
    let p99 = |timing: Timing| {
        run.totals.timings.get(timing.name()).map_or(0.0, |total| total.summary.p99 as f64 / 1_000.0)
    };
    let errors = [Counter::ConnectErrors, Counter::LoginErrors, Counter::SessionsLost, Counter::Timeouts];
    let done = [Counter::Logins, Counter::IqSent];
    let errors: u64 = errors.into_iter().map(total).sum();
    let done: u64 = done.into_iter().map(total).sum();
    let probe = Probe {
        value,
        good: false,
        why: None,
        delivery_p99_ms: p99(Timing::Message),
        login_p99_ms: p99(Timing::Login),
        messages_sent: total(Counter::MessagesSent),
        messages_lost: total(Counter::MessagesLost),
        logins: total(Counter::Logins),
        errors,
        online: run.totals.gauges.get("online").copied().unwrap_or(0),
        generator_late_p99_ms: p99(Timing::Lateness),
    };
    let allowed = asked.errors / 100.0 * (done + errors) as f64;
    let frequent = most_frequent(run);
    let often = frequent
        .map(|(kind, count)| format!("; most frequent error: {kind}, {count} times"))
        .unwrap_or_default();
    let missed = run.thresholds.iter().find(|threshold| threshold.missed);
    // Failures first: what failed is not in the times.
    let why = if !matches!(run.about.end.as_str(), "finished" | "interrupted") {
        Some(format!("{}{often}", run.about.end))
    } else if errors as f64 > allowed {
        Some(format!("{errors} connections, logins or answers failed{often}"))
    } else if probe.messages_lost > 0 {
        Some(format!("{} messages were lost{often}", probe.messages_lost))
    } else if let Some(missed) = missed {
        Some(format!("{}: {}{often}", missed.expression, missed.measured))
    } else if probe.delivery_p99_ms > asked.delivery_ms {
        Some(format!("delivery took {:.0} ms at p99{often}", probe.delivery_p99_ms))
    } else if probe.login_p99_ms > asked.login_ms {
        Some(format!("login took {:.0} ms at p99{often}", probe.login_p99_ms))
    } else {
        None
    };
    let Some(why) = why else { return (Probe { good: true, ..probe }, Outcome::Good) };
    let of_accounts = frequent.is_some_and(|(kind, _)| ACCOUNTS.contains(&kind));
    if of_accounts && errors as f64 > allowed {
        let why = format!(
            "{} of {} logins were refused as if there were no such account ({}); {} could log in",
            total(Counter::LoginErrors),
            total(Counter::LoginErrors) + probe.logins,
            frequent.map_or("", |(kind, _)| kind),
            probe.online
        );
        return (Probe { why: Some(why), ..probe }, Outcome::Accounts);
    }
    let busy = run.seconds.iter().filter(|second| second.busiest_cpu > 0.9).count();
    let strained = late_keys(run).is_some()
        || probe.generator_late_p99_ms > LATE_SHARE * asked.delivery_ms.min(asked.login_ms)
        || busy as f64 > BUSY_SHARE * run.seconds.len() as f64
        || run.totals.errors.keys().any(|kind| kind.ends_with("-left"));
    let outcome = if strained { Outcome::Unclear } else { Outcome::Bad };
    (Probe { why: Some(why), ..probe }, outcome)
}

fn line(probe: &Probe, by: By) -> String {
    let verdict = probe.why.as_deref().map_or_else(|| "passes".to_owned(), |why| format!("fails: {why}"));
    format!(
        "{} {}: delivery p99 {:.1} ms, login p99 {:.1} ms, {} messages, {} lost, {} errors, generator late p99 {:.1} ms; {verdict}",
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

/// Why no more users than these can be tried: the first mistake of a plan with one more.
fn highest_why(base: &Run, by: By, most: u64) -> String {
    if by != By::Users || base.crew.listen.is_some() {
        return String::new();
    }
    let mut run = base.clone();
    let given = apply(&mut run, By::Users, most.saturating_add(1), 0).and_then(|()| plan::read(&run));
    let first = given.ok().and_then(|given| once::mistakes(&run, &given).into_iter().next());
    first.map(|mistake| format!(": {mistake}")).unwrap_or_default()
}

fn sentence(
    end: End,
    good: Option<u64>,
    (most, limit): (u64, &str),
    interrupted: bool,
    probes: &[Probe],
) -> String {
    let why = probes.iter().rev().find_map(|probe| probe.why.clone()).unwrap_or_default();
    let smallest = probes.iter().filter(|probe| !probe.good).map(|probe| probe.value).min().unwrap_or(0);
    match end {
        _ if interrupted => "interrupted; the number is what had passed by then".to_owned(),
        End::Found => format!("{smallest} fails ({why})"),
        End::Highest => {
            format!("{most} is the most that can be tried here{limit}; the server serves at least that")
        }
        End::Generator => format!(
            "the generator itself was the limit at {smallest} ({why}), so it is at least that; add workers or machines (--workers, --listen)"
        ),
        End::Accounts => format!(
            "the accounts were the limit at {smallest} ({why}), which says nothing about the server; make more with `throng load prepare` or the server's own tools, and check --user-prefix, --first and the password"
        ),
        End::Nothing => format!("not even the smallest number passes ({why})"),
        End::Probes if good.is_some() => "no more probes were allowed (--probes)".to_owned(),
        End::Probes => format!("no more probes were allowed (--probes), and none had passed ({why})"),
    }
}

fn tell(found: &Found, asked: &Capacity, directory: &Path) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(found).context("the capacity cannot be written as JSON")?;
    let path = directory.join("capacity.json");
    std::fs::write(&path, format!("{json}\n"))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    if asked.run.output.json {
        out::line(&json);
        return Ok(());
    }
    match found.capacity {
        Some(value) => {
            out::line(&format!("Capacity of {}: {value} {}", found.label, asked.by.unit()));
            if let Some(best) = found.probes.iter().rfind(|probe| probe.good && probe.value == value) {
                out::line(&format!("  {}", line(best, asked.by)));
            }
        }
        None => out::line("Capacity: none found"),
    }
    out::line(&format!("  {}", found.end));
    out::line(&format!("  {}", path.display()));
    match found.capacity {
        Some(_) => Ok(()),
        None => Err(Failure::Run(anyhow::anyhow!("no number passed; {}", found.end))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::measure::Summary;
    use crate::report::model::{CounterTotal, Second, TimingTotal};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        capacity: Capacity,
    }

    fn asked() -> Capacity {
        Line::parse_from(["x", "steady", "--delivery-ms", "100"]).capacity
    }

    fn run(delivery_ms: u64, login_ms: u64, counters: &[(Counter, u64)]) -> model::Run {
        let mut run = model::Run::default();
        run.about.end = "finished".to_owned();
        for (timing, ms) in [(Timing::Message, delivery_ms), (Timing::Login, login_ms)] {
            let summary = Summary { count: 1, p99: ms * 1_000, ..Summary::default() };
            run.totals
                .timings
                .insert(timing.name().to_owned(), TimingTotal { summary, ..TimingTotal::default() });
        }
        for (counter, total) in counters {
            let total = CounterTotal { total: *total, ..CounterTotal::default() };
            run.totals.counters.insert(counter.name().to_owned(), total);
        }
        run.seconds = vec![Second::default(); 10];
        run
    }

    #[test]
    fn a_probe_is_judged_by_each_limit() {
        let logins = (Counter::Logins, 1_000);
        let outcome = |run: &model::Run| {
            let (probe, outcome) = judge(run, 7, &asked());
            (outcome, probe.why.unwrap_or_default())
        };
        assert_eq!(outcome(&run(100, 1_000, &[logins])).0, Outcome::Good);
        assert_eq!(
            outcome(&run(101, 10, &[logins])),
            (Outcome::Bad, "delivery took 101 ms at p99".to_owned())
        );
        assert_eq!(outcome(&run(1, 1_001, &[logins])).1, "login took 1001 ms at p99");
        assert_eq!(outcome(&run(1, 1, &[logins, (Counter::MessagesLost, 1)])).1, "1 messages were lost");
        let failed = outcome(&run(1, 1, &[logins, (Counter::LoginErrors, 2)]));
        assert_eq!(failed, (Outcome::Bad, "2 connections, logins or answers failed".to_owned()));
        // Accounts that are not there are neither a time nor the server's limit.
        let mut missing = run(5_000, 1, &[logins, (Counter::LoginErrors, 480)]);
        let total = CounterTotal { total: 480, ..CounterTotal::default() };
        missing.totals.errors.insert("login:not-authorized".to_owned(), total);
        missing
            .totals
            .errors
            .insert("timeout".to_owned(), CounterTotal { total: 3, ..CounterTotal::default() });
        let (found, why) = outcome(&missing);
        assert_eq!(found, Outcome::Accounts);
        assert!(why.contains("480 of 1480 logins were refused as if there were no such account"), "{why}");
        let mut broken = run(1, 1, &[logins, (Counter::Timeouts, 480)]);
        broken.totals.errors.insert("timeout".to_owned(), total);
        let (found, why) = outcome(&broken);
        assert_eq!(found, Outcome::Bad);
        assert!(why.ends_with("failed; most frequent error: timeout, 480 times"), "{why}");
        let mut late = run(101, 10, &[logins]);
        for second in &mut late.seconds[..3] {
            second.busiest_cpu = 0.95;
        }
        assert_eq!(outcome(&late).0, Outcome::Unclear);
    }
}
