//! Execution of `throng load <plan>` and `throng load worker`: checks, run, live view and report.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::plan::ResolvedPlan;
use super::{CommandFailure, OutputArgs, RunArgs, WorkerArgs, output, plan, reports};
use crate::clock;
use crate::control::controller::{self, LiveStatus, RunConfig, RunObserver, drive};
use crate::control::handshake;
use crate::control::interrupt::InterruptCounter;
use crate::control::salts::SaltCache;
use crate::control::worker;
use crate::measure::Counter;
use crate::plan::{ArrivalPhase, MachineCapacity, PlanError, Threshold, check, workers_needed};
use crate::report;
use crate::report::model::{self, RunInfo};
use crate::server_monitor::{self, ServerMonitorConfig};

/// Runs `throng load <plan>`.
pub(super) fn run(args: &RunArgs) -> Result<(), CommandFailure> {
    let resolved = plan::read(args)?;
    let setup = setup(args, resolved)?;
    let directory = directory(&args.output, &setup.about.plan, clock::unix_seconds());
    writable(&directory)?;
    let interrupts = InterruptCounter::listen()?;
    let salts = setup.salts.clone();
    let thresholds = setup.plan.options.fail_on.clone();
    let run = execute_run(setup, args, &interrupts)?;
    save_salts(args, salts.as_ref());
    let paths = report::write(&directory, &run)?;
    let nothing = !run.totals.counters.contains_key(Counter::Logins.name()) && run.about.end != "finished";
    if args.output.json {
        output::text(&report::json(&run)?);
    } else {
        // A table of zeros says less than the sentence that ends the run.
        if !nothing {
            output::text(&report::text(&run));
        }
        output::line(&format!("Report: {}", paths.html.display()));
    }
    failed(&thresholds, &run)
}

/// Returns an error for a failed run, whatever its report says.
pub(super) fn failed(thresholds: &[Threshold], run: &model::RunRecord) -> Result<(), CommandFailure> {
    match report::thresholds::failures(thresholds, run).as_slice() {
        [] => Ok(()),
        found => Err(CommandFailure::Run(anyhow::anyhow!(found.join("; ")))),
    }
}

/// Executes a run and shows its progress.
pub(super) fn execute_run(
    setup: RunConfig,
    args: &RunArgs,
    interrupts: &InterruptCounter,
) -> Result<model::RunRecord, CommandFailure> {
    let mut display = LiveDisplay::new(&args.output, &setup);
    let thresholds = setup.plan.options.fail_on.clone();
    let mut run = drive(setup, &mut display, interrupts)?;
    run.thresholds = report::thresholds::evaluate(&thresholds, &run);
    display.finish(&run);
    Ok(run)
}

/// Runs `throng load worker`.
pub(super) fn worker(args: &WorkerArgs) -> Result<(), CommandFailure> {
    let mut sources = Vec::new();
    for source in &args.source {
        sources.extend(
            crate::plan::sources(source).map_err(|s| CommandFailure::usage(format!("--source: {s}")))?,
        );
    }
    let retry_for = Duration::from_millis(args.retry_for);
    worker::run_worker(&args.join, &args.token, &args.name, sources.clone(), retry_for)?;
    while args.rejoin
        && worker::run_worker(&args.join, &args.token, &args.name, sources.clone(), retry_for).is_ok()
    {}
    Ok(())
}

/// Capacity of this machine.
fn machine_capacity(resolved: &ResolvedPlan, host: &ServerMonitorConfig) -> MachineCapacity {
    let loopback = resolved.plan.target.addresses.iter().any(|address| address.ip().is_loopback());
    MachineCapacity {
        files: handshake::raise_files(),
        cores: handshake::cores(),
        memory: server_monitor::memory_available(),
        ports: server_monitor::ports(),
        server_here: loopback || !host.pids.is_empty(),
    }
}

/// Workers that rejoin for several runs need the same token for all of them.
pub(super) fn ensure_token(args: &mut RunArgs) -> Result<(), CommandFailure> {
    if args.worker_pool.listen.is_some() && args.worker_pool.token.is_none() {
        let token = handshake::random_text()?;
        output::error(&format!(
            "Workers on other machines: throng load worker --rejoin --join … --token {token}"
        ));
        args.worker_pool.token = Some(token);
    }
    Ok(())
}

/// Everything that is known before the first connection.
pub(super) fn setup(args: &RunArgs, resolved: ResolvedPlan) -> Result<RunConfig, CommandFailure> {
    let host = ServerMonitorConfig {
        pids: args.monitor.pid.clone(),
        children: args.monitor.children,
        metrics: args.monitor.metrics.clone(),
    };
    let machine = machine_capacity(&resolved, &host);
    let errors = check_plan(args, &resolved);
    if !errors.is_empty() {
        let lines: Vec<String> = errors.iter().map(|error| format!("  {error}")).collect();
        return Err(CommandFailure::usage(format!("this plan cannot run here:\n{}", lines.join("\n"))));
    }
    host.check().map_err(CommandFailure::Usage)?;
    for action in &args.failures.chaos {
        action.check().map_err(CommandFailure::Usage)?;
    }
    if let Err(failure) = check_reachable(&resolved) {
        match failure {
            // Workers on other machines may reach a target that this machine cannot.
            CommandFailure::Usage(error)
                if args.worker_pool.listen.is_some() && !resolved.plan.target.addresses.is_empty() =>
            {
                output::error(&format!("throng load: warning: from this machine, {error}"));
            }
            failure => return Err(failure),
        }
    }
    let listen = args
        .worker_pool
        .listen
        .as_deref()
        .map(controller::resolve_listen)
        .transpose()
        .map_err(CommandFailure::Usage)?;
    let workers = match args.worker_pool.workers {
        Some(0) if listen.is_none() => {
            return Err(CommandFailure::usage(
                "--workers 0 requires workers on other machines; add --listen, or raise --workers",
            ));
        }
        Some(count) => count,
        None if listen.is_some() => 0,
        None => workers_needed(&resolved.plan, &machine).count,
    };
    let about = run_info(args, &resolved);
    let salts = salts(args, &resolved)?;
    Ok(RunConfig {
        plan: resolved.plan,
        about,
        workers,
        listen,
        expect: if listen.is_some() { args.worker_pool.expect } else { 0 },
        token: args.worker_pool.token.clone().unwrap_or_default(),
        host,
        salts,
        chaos: args.failures.chaos.clone(),
    })
}

/// Known salts of the plan's accounts; `None` unless requested.
fn salts(args: &RunArgs, resolved: &ResolvedPlan) -> Result<Option<SaltCache>, CommandFailure> {
    let Some(path) = &args.worker_pool.salts else { return Ok(None) };
    let salts = SaltCache::read(path).map_err(CommandFailure::Usage)?;
    salts.bind_to_domain(&resolved.plan.accounts.domain).map_err(CommandFailure::Usage)?;
    Ok(Some(salts))
}

/// Saves the salts that were learned. A failure to write them does not affect the run.
pub(super) fn save_salts(args: &RunArgs, salts: Option<&SaltCache>) {
    if let (Some(path), Some(salts)) = (&args.worker_pool.salts, salts)
        && let Err(error) = salts.write(path)
    {
        output::error(&format!("throng load: {error:#}"));
    }
}

/// Errors of the plan that are known in advance. With workers on other machines this one need not have all resources.
pub(super) fn check_plan(args: &RunArgs, resolved: &ResolvedPlan) -> Vec<PlanError> {
    if args.worker_pool.listen.is_some() {
        return Vec::new();
    }
    let host = ServerMonitorConfig { pids: args.monitor.pid.clone(), ..ServerMonitorConfig::default() };
    check(&resolved.plan, &machine_capacity(resolved, &host))
}

/// Finds an unreachable server before a worker is started, at the cost of one connection per address.
fn check_reachable(resolved: &ResolvedPlan) -> Result<(), CommandFailure> {
    for address in &resolved.plan.target.addresses {
        if let Err(error) = std::net::TcpStream::connect_timeout(address, Duration::from_secs(5)) {
            return Err(CommandFailure::Usage(anyhow::anyhow!(
                "cannot connect to {address} ({error}); start the server or fix --target"
            )));
        }
    }
    if resolved.plan.target.addresses.is_empty() {
        return Err(CommandFailure::usage("no server was given; add --target HOST:PORT"));
    }
    Ok(())
}

fn run_info(args: &RunArgs, resolved: &ResolvedPlan) -> RunInfo {
    let plan = &resolved.plan;
    RunInfo {
        plan: plan.name.clone(),
        title: plan.title.clone(),
        target: resolved.target.clone(),
        label: args.output.label.clone().unwrap_or_else(|| resolved.target.clone()),
        started: clock::unix_seconds(),
        connections: plan.options.connections,
        roster: resolved.preparation.as_ref().map(|wanted| wanted.roster),
        security: plan.target.security.name().to_owned(),
        failover: plan.options.failover,
        time_scale: args.shape.time_scale,
        acceptable_ms: plan.options.acceptable_ms,
        command: command_line(std::env::args()),
        version: handshake::VERSION.to_owned(),
        cores: handshake::cores(),
        memory: server_monitor::memory_total(),
        ..RunInfo::default()
    }
}

/// Command line without secrets, for the report.
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

/// Directory of the report.
pub(super) fn directory(output: &OutputArgs, plan: &str, now: i64) -> PathBuf {
    if let Some(out) = &output.out {
        return out.clone();
    }
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = plan.chars().map(safe).collect();
    Path::new("load-runs").join(format!("{name}-{}", reports::timestamp(now)))
}

/// Fails early, so that a run of an hour does not end at an unwritable directory.
pub(super) fn writable(directory: &Path) -> Result<(), CommandFailure> {
    std::fs::create_dir_all(directory).map_err(|error| {
        let shown = directory.display();
        CommandFailure::usage(format!(
            "cannot create the directory {shown} ({error}); choose another with --out"
        ))
    })
}

/// Live display of a run.
struct LiveDisplay {
    view: crate::view::LiveView,
    quiet: bool,
    /// The view redraws in place and would overwrite lines printed in between.
    in_place: bool,
    drawn: bool,
    json: bool,
    phases: Vec<(String, Option<f64>)>,
    live: crate::view::LiveContext,
}

/// Length of a phase in seconds, if known in advance.
fn length(phase: &ArrivalPhase) -> Option<f64> {
    let arriving = phase.max_users.filter(|_| phase.rate > 0.0).map(|users| f64::from(users) / phase.rate);
    phase.duration_ms.map(|ms| ms as f64 / 1e3).or(arriving)
}

impl LiveDisplay {
    fn new(output: &OutputArgs, setup: &RunConfig) -> Self {
        let phases: Vec<_> =
            setup.plan.phases.iter().map(|phase| (phase.name.clone(), length(phase))).collect();
        let workers = usize::from(setup.workers) + usize::from(setup.expect);
        let live = crate::view::LiveContext {
            phases: phases.len(),
            connections: setup.plan.options.connections,
            workers,
            workers_alive: workers,
            expected: setup.plan.options.duration_ms.map(|ms| ms as f64 / 1e3),
            ..crate::view::LiveContext::default()
        };
        Self {
            view: crate::view::LiveView::new(output.plain, output.quiet),
            quiet: output.quiet,
            in_place: !output.plain && std::io::stdout().is_terminal(),
            drawn: false,
            json: output.json,
            phases,
            live,
        }
    }

    fn finish(&mut self, run: &model::RunRecord) {
        self.live.elapsed = run.about.length;
        let _ = if self.json {
            self.view.finish(&mut std::io::stderr().lock(), run, &self.live)
        } else {
            self.view.finish(&mut std::io::stdout().lock(), run, &self.live)
        };
    }
}

impl RunObserver for LiveDisplay {
    fn line(&mut self, text: &str) {
        if !(self.quiet || self.in_place && self.drawn) {
            output::error(text);
        }
    }

    fn update(&mut self, run: &model::RunRecord, now: &LiveStatus) {
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
    fn each_run_has_its_own_directory() {
        let found = directory(&OutputArgs::default(), "a/b c", 1_700_000_000);
        assert_eq!(found, Path::new("load-runs/a-b-c-2023-11-14-221320"));
    }
}
