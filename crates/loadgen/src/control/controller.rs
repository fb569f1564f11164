//! Controller of a run, from the first worker to the last report: gathers workers, distributes the plan, drives
//! [`RunState`].
//!
//! One thread decides; the threads for sockets, signals and samples report to it through one bounded queue.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::accept::{HandshakeOutcome, WorkerAcceptor};
use super::chaos::{ChaosAction, ChaosSchedule};
use super::handshake::{self, JoinedWorker};
use super::interrupt::InterruptCounter;
use super::local_workers::LocalWorkers;
use super::merge::SnapshotMerger;
use super::message::Assignment;
use super::partition;
use super::run_state::{RunSchedule, RunState};
use super::salts::SaltCache;
use super::worker_connection::{ControllerEvent, WorkerConnection};
use crate::clock;
use crate::measure::TimingSummary;
use crate::plan::LoadPlan;
use crate::report;
use crate::report::model::{FORMAT, RunInfo, RunRecord, WorkerRun};
use crate::server_monitor::{ServerMonitor, ServerMonitorConfig};

/// Capacity of the event queue; when it is full, TCP makes workers wait.
const EVENTS: usize = 1_024;
/// Longest wait for workers of this machine, in microseconds.
const LOCAL_US: u64 = 30_000_000;
/// Time from the last ready worker to the first arrival, in microseconds.
const START_IN_US: u64 = 500_000;
/// Interval between updates of the metrics, in microseconds.
const TICK_US: u64 = 1_000_000;

/// Configuration of a run besides the plan.
pub(crate) struct RunConfig {
    /// The plan; its sources are divided among the workers.
    pub(crate) plan: LoadPlan,
    /// Description of the run for the report.
    pub(crate) about: RunInfo,
    /// Workers to start on this machine.
    pub(crate) workers: u16,
    /// Listening address for workers of other machines.
    pub(crate) listen: Option<SocketAddr>,
    /// Number of those workers to wait for.
    pub(crate) expect: u16,
    /// Token shared by all workers; a random one if empty.
    pub(crate) token: String,
    /// Monitoring of the server.
    pub(crate) host: ServerMonitorConfig,
    /// Salts learned by earlier runs, to which this one adds; `None` disables them.
    pub(crate) salts: Option<SaltCache>,
    /// Failures to cause.
    pub(crate) chaos: Vec<ChaosAction>,
}

/// Observer of a run in progress.
pub(crate) trait RunObserver {
    /// A line about the progress: what is awaited, which worker joined or died.
    fn line(&mut self, text: &str);
    /// Called once a second during the run.
    fn update(&mut self, run: &RunRecord, now: &LiveStatus);
}

/// Live state that is not part of the run's record.
#[derive(Default)]
pub(crate) struct LiveStatus {
    /// Nothing new is sent any more.
    pub(crate) ending: bool,
    /// The user has requested the end.
    pub(crate) interrupted: bool,
    /// Last ten seconds, by name of the timing.
    pub(crate) recent: BTreeMap<String, TimingSummary>,
}

/// Performs the run. An error means that it never began or that it failed without metrics.
pub(crate) fn drive(
    mut setup: RunConfig,
    observer: &mut dyn RunObserver,
    interrupts: &InterruptCounter,
) -> Result<RunRecord> {
    let (events, inbox) = sync_channel(EVENTS);
    let random = setup.token.is_empty();
    if random {
        setup.token = handshake::random_text()?;
    }
    let mut acceptor = WorkerAcceptor::open(setup.listen, setup.token.clone())?;
    if let Some(address) = acceptor.public() {
        // A configured token is not displayed: those who need it have it.
        let token = if random { setup.token.as_str() } else { "…" };
        observer.line(&format!(
            "Waiting for {} on other machines: throng load worker --join {} --token {token}",
            if setup.expect == 1 { "1 worker".to_owned() } else { format!("{} workers", setup.expect) },
            shown(address)
        ));
    }
    let mut local = LocalWorkers::start(setup.workers, acceptor.local()?, &setup.token, &events)?;
    let wanted = usize::from(setup.workers) + usize::from(setup.expect);
    let joined = gather(&mut acceptor, wanted, setup.expect == 0, &mut local, &inbox, observer, interrupts)?;
    drop(acceptor);
    let run = conduct(setup, joined, (events, inbox), observer, interrupts);
    // Connections are closed at this point, so workers exit on their own.
    drop(local);
    run
}

/// Address to display; a wildcard address is replaced by this machine's name.
fn shown(address: SocketAddr) -> String {
    if !address.ip().is_unspecified() {
        return address.to_string();
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", name.trim(), address.port())
}

fn gather(
    acceptor: &mut WorkerAcceptor,
    wanted: usize,
    only_local: bool,
    local: &mut LocalWorkers,
    inbox: &Receiver<ControllerEvent>,
    observer: &mut dyn RunObserver,
    interrupts: &InterruptCounter,
) -> Result<Vec<JoinedWorker>> {
    let mut joined: Vec<JoinedWorker> = Vec::new();
    let began = clock::now_us();
    let mut worker_output = Vec::new();
    loop {
        for outcome in acceptor.poll() {
            match outcome {
                HandshakeOutcome::Worker(worker) if joined.len() < wanted => {
                    if !only_local {
                        let (joined_count, name) = (joined.len() + 1, &worker.hello.name);
                        observer.line(&format!("Worker {name} joined ({joined_count} of {wanted})"));
                    }
                    joined.push(*worker);
                }
                // A surplus worker; its connection ends here.
                HandshakeOutcome::Worker(_) => {}
                HandshakeOutcome::Rejected(from, reason) => {
                    observer.line(&format!("A worker at {from} may not join: {reason}"))
                }
            }
        }
        if joined.len() == wanted {
            // Local ones first, then in order of joining.
            let own = handshake::machine();
            joined.sort_by_key(|worker| worker.hello.machine != own);
            return Ok(joined);
        }
        if interrupts.count() > 0 {
            bail!("interrupted before all workers had joined");
        }
        while let Ok(event) = inbox.try_recv() {
            if let ControllerEvent::WorkerOutput(line) = event {
                worker_output.push(line);
            }
        }
        if let Some((pid, status)) = local.try_wait() {
            bail!("the worker process {pid} exited immediately ({status}): {}", worker_output.join(" "));
        }
        if only_local && clock::now_us() - began > LOCAL_US {
            bail!("the local workers did not join within 30 s: {}", worker_output.join(" "));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn describe(mut about: RunInfo, joined: &[JoinedWorker]) -> RunRecord {
    about.started = clock::unix_seconds();
    let worker = |joined: &JoinedWorker| WorkerRun {
        name: joined.hello.name.clone(),
        pid: joined.hello.pid,
        ..WorkerRun::default()
    };
    RunRecord { format: FORMAT, about, workers: joined.iter().map(worker).collect(), ..RunRecord::default() }
}

/// Runs the plan on joined workers and returns the report.
pub(crate) fn conduct(
    setup: RunConfig,
    joined: Vec<JoinedWorker>,
    (events, inbox): (SyncSender<ControllerEvent>, Receiver<ControllerEvent>),
    observer: &mut dyn RunObserver,
    interrupts: &InterruptCounter,
) -> Result<RunRecord> {
    let RunConfig { mut plan, about, host, salts, chaos, .. } = setup;
    let own = handshake::machine();
    let hellos: Vec<_> = joined.iter().map(|worker| worker.hello.clone()).collect();
    let owners = partition::owners(&hellos, plan.options.connections)?;
    let clocks = partition::clocks(&own, &hellos);
    let sources = partition::sources(&plan.target.sources, &own, &hellos);
    // Sources left in the plan would be used by workers without their own.
    plan.target.sources.clear();
    let mut stamp = [0; 4];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut stamp)
        .map_err(|_| anyhow::anyhow!("cannot get random numbers from the system"))?;

    let phases = plan.phases.iter().map(|phase| phase.name.clone()).collect();
    let merger = SnapshotMerger::new(describe(about, &joined), plan.transactions.clone(), phases);
    let schedule = RunSchedule {
        drain_us: plan.options.drain_ms * 1_000,
        start_in_us: START_IN_US,
        owners: owners.clone(),
        clocks: clocks.clone(),
        failover: plan.options.failover,
    };
    let mut run_state = RunState::new(merger, schedule, clock::now_us());
    let known = salts.as_ref().map(|salt_cache| salt_cache.for_accounts(&plan.accounts)).unwrap_or_default();
    if !known.is_empty() {
        observer.line(&format!("{} keys are derived before the start", known.len()));
    }
    let accounts = salts.is_some().then(|| plan.accounts.clone());
    let mut connections = Vec::new();
    for ((number, worker), sources) in (0_u16..).zip(joined).zip(sources) {
        let assignment = Assignment {
            plan: plan.clone(),
            worker: number,
            owners: owners.clone(),
            clocks: clocks.clone(),
            run: u32::from_ne_bytes(stamp),
            sources,
            salts: known
                .iter()
                .filter(|salt| owners[salt.user as usize % owners.len()] == number)
                .cloned()
                .collect(),
            learn: salts.is_some(),
        };
        connections.push(WorkerConnection::new(number, worker, assignment, events.clone())?);
    }
    drop(plan);
    let chaos = ChaosSchedule::new(chaos);
    run_until_done(&mut run_state, &mut connections, &inbox, (host, chaos), observer, interrupts);
    for connection in &mut connections {
        connection.close();
    }
    if !run_state.started() {
        let reason = run_state.failed().unwrap_or("interrupted before the run began").to_owned();
        bail!(reason);
    }
    if let (Some(salt_cache), Some(accounts)) = (&salts, &accounts) {
        salt_cache.insert(accounts, run_state.take_salts());
    }
    Ok(run_state.finish(clock::now_us()))
}

fn run_until_done(
    run_state: &mut RunState,
    connections: &mut [WorkerConnection],
    inbox: &Receiver<ControllerEvent>,
    (host, mut chaos): (ServerMonitorConfig, ChaosSchedule),
    observer: &mut dyn RunObserver,
    interrupts: &InterruptCounter,
) {
    let mut host = Some(host);
    let mut sampler: Option<ServerMonitor> = None;
    let mut next_tick = clock::now_us() + TICK_US;
    let mut interrupts_seen = 0;
    let mut reported = BTreeSet::new();
    while !run_state.done() {
        let wait = next_tick.saturating_sub(clock::now_us()).min(100_000);
        match inbox.recv_timeout(Duration::from_micros(wait)) {
            Ok(ControllerEvent::Report(worker, report)) => run_state.report(worker, report, clock::now_us()),
            Ok(ControllerEvent::Lost(worker, reason)) => {
                run_state.worker_lost(worker, &reason, clock::now_us())
            }
            Ok(ControllerEvent::WorkerOutput(line)) => run_state.merger.log(line),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        let now = clock::now_us();
        match interrupts.count() {
            count if count == interrupts_seen => {}
            1 => {
                observer.line("Ending the run gracefully; press Ctrl-C again to stop it immediately");
                run_state.interrupt(now);
            }
            _ => run_state.abort(now),
        }
        interrupts_seen = interrupts.count();
        send(run_state, connections);
        if let Some(start) = run_state.start_us().filter(|start| *start <= now) {
            for event in chaos.run_due(now - start) {
                let line = format!("Chaos: {}: {}", event.action, event.result);
                observer.line(&line);
                run_state.merger.log(line);
                run_state.merger.run.chaos.push(event);
            }
        }
        if let Some(start) = run_state.start_us()
            && let Some(host) = host.take()
        {
            // The first tick falls in the middle of the second after the first, when its snapshots have arrived.
            next_tick = start + TICK_US + TICK_US / 2;
            run_state.merger.run.about.started_monotonic = start;
            sampler = ServerMonitor::start(host, start);
        }
        if now >= next_tick {
            next_tick += TICK_US * (1 + (now - next_tick) / TICK_US);
            run_state.tick(now);
            send(run_state, connections);
            if let Some(sampler) = &sampler {
                sampler.collect(&mut run_state.merger.run);
            }
            let live_status = LiveStatus {
                ending: run_state.is_stopping(),
                interrupted: interrupts_seen > 0,
                recent: run_state.merger.recent(),
            };
            let started = run_state.started();
            let run = run_state.refresh(now);
            for warning in &run.warnings {
                // Numbers in a warning change every second; its beginning does not.
                let beginning: String = warning.chars().take(24).collect();
                if reported.insert(beginning) {
                    observer.line(warning);
                }
            }
            // The negotiated security is displayed as soon as it is known, not only in the report.
            if let Some(used) = report::used(run)
                && reported.insert("Logins".to_owned())
            {
                observer.line(&format!("Logins: {used}"));
            }
            if started {
                observer.update(run, &live_status);
            }
        }
    }
    if let Some(sampler) = sampler {
        sampler.finish(&mut run_state.merger.run);
    }
}

/// Sends commands. A worker that does not accept them is lost, which produces further commands.
fn send(run_state: &mut RunState, connections: &mut [WorkerConnection]) {
    loop {
        let commands = run_state.take_commands();
        if commands.is_empty() {
            return;
        }
        for (worker, command) in commands {
            if let Some(connection) = connections.get_mut(usize::from(worker))
                && let Err(reason) = connection.send(command)
            {
                connection.close();
                run_state.worker_lost(worker, reason, clock::now_us());
            }
        }
    }
}

/// Parses the listening address for workers of other machines.
pub(crate) fn resolve_listen(listen: &str) -> Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    let mut addresses = listen.to_socket_addrs().with_context(|| {
        format!("--listen {listen} is not an address; write HOST:PORT, such as 0.0.0.0:7777")
    })?;
    addresses.next().with_context(|| format!("--listen {listen} does not resolve to an address"))
}
