//! One run, and one worker.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::plan::Given;
use super::{Failure, Output, Run, Worker, out, plan, show};
use crate::clock;
use crate::control::drive::{self, Moment, Setup, Watch, drive};
use crate::control::handshake;
use crate::control::interrupt::Interrupts;
use crate::control::salts::Book;
use crate::control::worker;
use crate::host::{self, Host};
use crate::measure::Counter;
use crate::plan::{Facts, Mistake, Phase, Threshold, check, workers_needed};
use crate::report;
use crate::report::model::{self, About};

/// `throng load <plan>`.
pub(super) fn run(asked: &Run) -> Result<(), Failure> {
    let given = plan::read(asked)?;
    let setup = setup(asked, given)?;
    let directory = directory(&asked.output, &setup.about.plan, clock::unix_seconds());
    writable(&directory)?;
    let interrupts = Interrupts::listen()?;
    let book = setup.salts.clone();
    let thresholds = setup.plan.options.fail_on.clone();
    let run = perform(setup, asked, &interrupts)?;
    keep(asked, book.as_ref());
    let paths = report::write(&directory, &run)?;
    let nothing = !run.totals.counters.contains_key(Counter::Logins.name()) && run.about.end != "finished";
    if asked.output.json {
        out::text(&report::json(&run)?);
    } else {
        // A table of zeros says less than the sentence that ends the run.
        if !nothing {
            out::text(&report::text(&run));
        }
        out::line(&format!("Report: {}", paths.html.display()));
    }
    failed(&thresholds, &run)
}

/// A run that failed is an error, whatever its report says.
pub(super) fn failed(thresholds: &[Threshold], run: &model::Run) -> Result<(), Failure> {
    match report::thresholds::failures(thresholds, run).as_slice() {
        [] => Ok(()),
        found => Err(Failure::Run(anyhow::anyhow!(found.join("; ")))),
    }
}

/// Does a run and shows it while it goes on.
pub(super) fn perform(setup: Setup, asked: &Run, interrupts: &Interrupts) -> Result<model::Run, Failure> {
    let mut watch = Live::new(&asked.output, &setup);
    let thresholds = setup.plan.options.fail_on.clone();
    let mut run = drive(setup, &mut watch, interrupts)?;
    run.thresholds = report::thresholds::evaluate(&thresholds, &run);
    watch.finish(&run);
    Ok(run)
}

/// `throng load worker`.
pub(super) fn worker(asked: &Worker) -> Result<(), Failure> {
    let mut sources = Vec::new();
    for source in &asked.source {
        sources.extend(crate::plan::sources(source).map_err(|s| Failure::usage(format!("--source: {s}")))?);
    }
    let patience = Duration::from_millis(asked.patience);
    worker::work(&asked.join, &asked.token, &asked.name, sources.clone(), patience)?;
    while asked.stay
        && worker::work(&asked.join, &asked.token, &asked.name, sources.clone(), patience).is_ok()
    {}
    Ok(())
}

/// What this machine has.
fn facts(given: &Given, host: &Host) -> Facts {
    let loopback = given.plan.target.addresses.iter().any(|address| address.ip().is_loopback());
    Facts {
        files: handshake::raise_files(),
        cores: handshake::cores(),
        memory: host::memory_available(),
        ports: host::ports(),
        server_here: loopback || !host.pids.is_empty(),
    }
}

/// Workers that stay for several runs need one token for all of them.
pub(super) fn one_token(asked: &mut Run) -> Result<(), Failure> {
    if asked.crew.listen.is_some() && asked.crew.token.is_none() {
        let token = handshake::random_text()?;
        out::error(&format!("Workers of other machines: throng load worker --stay --join … --token {token}"));
        asked.crew.token = Some(token);
    }
    Ok(())
}

/// Everything that is known before the first connection.
pub(super) fn setup(asked: &Run, given: Given) -> Result<Setup, Failure> {
    let host = Host {
        pids: asked.watch.pid.clone(),
        children: asked.watch.children,
        metrics: asked.watch.metrics.clone(),
    };
    let facts = facts(&given, &host);
    let mistakes = mistakes(asked, &given);
    if !mistakes.is_empty() {
        let lines: Vec<String> = mistakes.iter().map(|mistake| format!("  {mistake}")).collect();
        return Err(Failure::usage(format!("this cannot be run here:\n{}", lines.join("\n"))));
    }
    host.check().map_err(Failure::Usage)?;
    if let Err(failure) = reachable(&given) {
        match failure {
            // Workers elsewhere may well reach what this machine does not.
            Failure::Usage(error)
                if asked.crew.listen.is_some() && !given.plan.target.addresses.is_empty() =>
            {
                out::error(&format!("throng load: from here, {error}"));
            }
            failure => return Err(failure),
        }
    }
    let listen =
        asked.crew.listen.as_deref().map(drive::resolve_listen).transpose().map_err(Failure::Usage)?;
    let workers = match asked.crew.workers {
        Some(0) if listen.is_none() => {
            return Err(Failure::usage("--workers 0 leaves nobody to do the work; add --listen or a worker"));
        }
        Some(count) => count,
        None if listen.is_some() => 0,
        None => workers_needed(&given.plan, &facts).count,
    };
    let about = about(asked, &given);
    let salts = book(asked, &given)?;
    Ok(Setup {
        plan: given.plan,
        about,
        workers,
        listen,
        expect: if listen.is_some() { asked.crew.expect } else { 0 },
        token: asked.crew.token.clone().unwrap_or_default(),
        host,
        salts,
    })
}

/// The salts that are known of the plan's accounts; `None` where nobody asks for them.
fn book(asked: &Run, given: &Given) -> Result<Option<Book>, Failure> {
    let Some(path) = &asked.crew.salts else { return Ok(None) };
    let book = Book::read(path).map_err(Failure::Usage)?;
    book.for_domain(&given.plan.accounts.domain).map_err(Failure::Usage)?;
    Ok(Some(book))
}

/// Writes down what was learned. A file that cannot be written takes nothing from the run.
pub(super) fn keep(asked: &Run, book: Option<&Book>) {
    if let (Some(path), Some(book)) = (&asked.crew.salts, book)
        && let Err(error) = book.write(path)
    {
        out::error(&format!("throng load: {error:#}"));
    }
}

/// What is known to go wrong. With other machines in the run this one need not have it all.
pub(super) fn mistakes(asked: &Run, given: &Given) -> Vec<Mistake> {
    if asked.crew.listen.is_some() {
        return Vec::new();
    }
    let host = Host { pids: asked.watch.pid.clone(), ..Host::default() };
    check(&given.plan, &facts(given, &host))
}

/// A server that is not there is found before a worker is started. Costs the server one connection for each address.
fn reachable(given: &Given) -> Result<(), Failure> {
    for address in &given.plan.target.addresses {
        if let Err(error) = std::net::TcpStream::connect_timeout(address, Duration::from_secs(5)) {
            return Err(Failure::Usage(anyhow::anyhow!(
                "nobody answers at {address} ({error}); start the server or fix --target"
            )));
        }
    }
    if given.plan.target.addresses.is_empty() {
        return Err(Failure::usage("where is the server? Add --target HOST:PORT"));
    }
    Ok(())
}

fn about(asked: &Run, given: &Given) -> About {
    let plan = &given.plan;
    About {
        plan: plan.name.clone(),
        title: plan.title.clone(),
        target: given.target.clone(),
        label: asked.output.label.clone().unwrap_or_else(|| given.target.clone()),
        started: clock::unix_seconds(),
        connections: plan.options.connections,
        roster: given.preparation.as_ref().map(|wanted| wanted.roster),
        security: plan.target.security.name().to_owned(),
        time_scale: asked.shape.time_scale,
        acceptable_ms: plan.options.acceptable_ms,
        command: command_line(std::env::args()),
        version: handshake::VERSION.to_owned(),
        cores: handshake::cores(),
        memory: host::memory_total(),
        ..About::default()
    }
}

/// The command line without secrets, for the report.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let mut hidden = false;
    let mut words: Vec<String> = Vec::new();
    for (index, argument) in arguments.enumerate() {
        let argument = if index == 0 { "throng".to_owned() } else { argument };
        if std::mem::take(&mut hidden) {
            words.push("…".to_owned());
            continue;
        }
        hidden = matches!(argument.as_str(), "--password" | "--token");
        match argument.split_once('=') {
            Some((flag @ ("--password" | "--token"), _)) => words.push(format!("{flag}=…")),
            _ if argument.contains(' ') => words.push(format!("'{argument}'")),
            _ => words.push(argument),
        }
    }
    words.join(" ")
}

/// Where the report goes.
pub(super) fn directory(output: &Output, plan: &str, now: i64) -> PathBuf {
    if let Some(out) = &output.out {
        return out.clone();
    }
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = plan.chars().map(safe).collect();
    Path::new("load-runs").join(format!("{name}-{}", show::stamp(now)))
}

/// A run of an hour must not end at a directory that cannot be written.
pub(super) fn writable(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| {
        let shown = directory.display();
        Failure::usage(format!("the directory {shown} cannot be made ({error}); choose another with --out"))
    })
}

/// Shows the run while it goes on.
struct Live {
    view: crate::view::View,
    quiet: bool,
    /// The view redraws itself in place; a line in between would be drawn over.
    in_place: bool,
    drawn: bool,
    json: bool,
    phases: Vec<(String, Option<f64>)>,
    live: crate::view::Live,
}

/// Seconds that a phase takes, if that is known before.
fn length(phase: &Phase) -> Option<f64> {
    let arriving = phase.max_users.filter(|_| phase.rate > 0.0).map(|users| f64::from(users) / phase.rate);
    phase.duration_ms.map(|ms| ms as f64 / 1e3).or(arriving)
}

impl Live {
    fn new(output: &Output, setup: &Setup) -> Self {
        let phases: Vec<_> =
            setup.plan.phases.iter().map(|phase| (phase.name.clone(), length(phase))).collect();
        let workers = usize::from(setup.workers) + usize::from(setup.expect);
        let live = crate::view::Live {
            phases: phases.len(),
            connections: setup.plan.options.connections,
            workers,
            workers_alive: workers,
            expected: setup.plan.options.duration_ms.map(|ms| ms as f64 / 1e3),
            ..crate::view::Live::default()
        };
        Self {
            view: crate::view::View::new(output.plain, output.quiet),
            quiet: output.quiet,
            in_place: !output.plain && std::io::stdout().is_terminal(),
            drawn: false,
            json: output.json,
            phases,
            live,
        }
    }

    fn finish(&mut self, run: &model::Run) {
        self.live.elapsed = run.about.length;
        let _ = if self.json {
            self.view.finish(&mut std::io::stderr().lock(), run, &self.live)
        } else {
            self.view.finish(&mut std::io::stdout().lock(), run, &self.live)
        };
    }
}

impl Watch for Live {
    fn line(&mut self, text: &str) {
        if !(self.quiet || self.in_place && self.drawn) {
            out::error(text);
        }
    }

    fn update(&mut self, run: &model::Run, now: &Moment) {
        let live = &mut self.live;
        let phase = run.phases.len().saturating_sub(1);
        live.phase = phase;
        if let (Some((name, expected)), Some(began)) = (self.phases.get(phase), run.phases.last()) {
            live.phase_name.clone_from(name);
            live.phase_elapsed = (run.about.length - f64::from(began.from)).max(0.0);
            live.phase_expected = *expected;
        }
        let last = phase + 1 == self.phases.len();
        if last && live.phase_expected.is_some_and(|expected| live.phase_elapsed > expected + 1.0) {
            live.phase_name = "holding".to_owned();
            live.phase_expected = None;
        }
        if now.ending {
            live.phase_name = "draining".to_owned();
            live.phase_expected = None;
        }
        live.elapsed = run.about.length;
        live.workers_alive = run.workers.iter().filter(|worker| worker.died.is_none()).count();
        live.stopping = now.interrupted;
        live.recent.clone_from(&now.recent);
        self.drawn = true;
        let _ = if self.json {
            self.view.update(&mut std::io::stderr().lock(), run, live)
        } else {
            self.view.update(&mut std::io::stdout().lock(), run, live)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_of_the_report() {
        let words = ["/usr/bin/throng", "load", "x", "--password", "s3", "--token=t0", "--label", "a b"];
        let line = command_line(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(line, "throng load x --password … --token=… --label 'a b'");
    }

    #[test]
    fn a_directory_for_each_run() {
        let found = directory(&Output::default(), "a/b c", 1_700_000_000);
        assert_eq!(found, Path::new("load-runs/a-b-c-2023-11-14-221320"));
    }
}
