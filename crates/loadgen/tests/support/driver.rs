//! Test driver: runs workers in threads, as a controller does, and adds up their reports.
//!
//! The run is closed when nothing is in flight at the server and both sides have counted the same stanzas, or after
//! `drain_ms` of the plan.
//!
//! Not implemented: frames and sockets between controller and worker.
//!
//! # Pitfalls
//!
//! The lists of losses are computed here a second time, deliberately without the controller's code.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use loadgen::clock::now_us;
use loadgen::control::message::{AccountSalt, Assignment, FinalReport, WorkerCommand, WorkerReport};
use loadgen::control::room_accounting::{self, RoomAccount};
use loadgen::engine::{self, ControllerPort};
use loadgen::measure::{Counter, Gauge, Timing, TimingHistogram, TimingId, TimingSummary, WorkerSnapshot};
use loadgen::plan::LoadPlan;

use super::script::ServerCounts;
use super::server::ScriptedServer;

/// Run id of all runs.
pub(crate) const RUN: u32 = 0xBEEF;
/// Longer than any run of a test, in microseconds.
const ENDLESS: u64 = 60_000_000;

struct TestControllerPort {
    worker: u16,
    commands: Receiver<WorkerCommand>,
    wake: UnixStream,
    reports: SyncSender<(u16, WorkerReport)>,
}

impl ControllerPort for TestControllerPort {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.as_fd())
    }

    fn receive(&mut self) -> anyhow::Result<Vec<WorkerCommand>> {
        let mut bytes = [0; 64];
        while self.wake.read(&mut bytes).is_ok_and(|count| count > 0) {}
        let mut all = Vec::new();
        loop {
            match self.commands.try_recv() {
                Ok(command) => all.push(command),
                Err(TryRecvError::Empty) => return Ok(all),
                Err(TryRecvError::Disconnected) => anyhow::bail!("the connection to the controller was lost"),
            }
        }
    }

    fn send(&mut self, report: WorkerReport) -> anyhow::Result<()> {
        Ok(self.reports.send((self.worker, report))?)
    }
}

/// Command channel of a worker.
struct WorkerChannel {
    commands: SyncSender<WorkerCommand>,
    wake: UnixStream,
}

impl WorkerChannel {
    fn tell(&mut self, command: WorkerCommand) {
        // A worker that has ended no longer receives commands.
        let _ = self.commands.send(command);
        let _ = self.wake.write(&[0]);
    }
}

/// Configuration of a run: its workers and its end.
#[derive(Clone)]
pub(crate) struct TestRunConfig {
    /// Worker of each user, as in the assignment.
    pub(crate) owners: Vec<u16>,
    /// Clock domain of each worker.
    pub(crate) clocks: Vec<u16>,
    /// Salts known before the run.
    pub(crate) salts: Vec<AccountSalt>,
    /// Whether salts are requested at the end.
    pub(crate) learn: bool,
    /// Stops the run when this holds for the server's counts; `None`: never.
    pub(crate) stop_when: Option<fn(&ServerCounts) -> bool>,
    /// Whether the plan ends without a duration, with nothing in flight.
    pub(crate) ends: bool,
}

impl TestRunConfig {
    /// A single worker.
    pub(crate) fn alone() -> Self {
        Self {
            owners: vec![0],
            clocks: vec![0],
            salts: Vec::new(),
            learn: false,
            stop_when: None,
            ends: false,
        }
    }

    /// Stops the run when the condition holds.
    pub(crate) fn until(mut self, when: fn(&ServerCounts) -> bool) -> Self {
        self.stop_when = Some(when);
        self
    }

    /// Two workers with alternating users and these clock domains.
    pub(crate) fn two(clocks: [u16; 2]) -> Self {
        Self {
            owners: vec![0, 1],
            clocks: clocks.to_vec(),
            salts: Vec::new(),
            learn: false,
            stop_when: None,
            ends: false,
        }
    }
}

/// Measurements of a run, over all workers.
#[derive(Default)]
pub(crate) struct RunOutcome {
    counters: Vec<u64>,
    timings: BTreeMap<TimingId, TimingHistogram>,
    /// Gauges at the end of each second, summed over the workers that reported.
    gauges: BTreeMap<u16, Vec<i64>>,
    pub(crate) highest: Vec<i64>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) used: BTreeMap<String, u64>,
    pub(crate) log: Vec<String>,
    pub(crate) refused: Option<String>,
    pub(crate) finals: Vec<FinalReport>,
    pub(crate) snapshots: Vec<(u16, WorkerSnapshot)>,
    /// From the start to the last report, in microseconds.
    pub(crate) took: u64,
    /// Messages that did not reach users who stayed to the end.
    pub(crate) lost: u64,
    /// Messages that did not reach other users.
    pub(crate) waiting: u64,
    /// Account of room messages.
    pub(crate) rooms: RoomAccount,
    /// Account of items of PubSub nodes.
    pub(crate) nodes: RoomAccount,
}

impl RunOutcome {
    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }

    pub(crate) fn timing(&self, timing: Timing) -> TimingSummary {
        self.timings.get(&timing.into()).map(TimingHistogram::summary).unwrap_or_default()
    }

    /// Number of values of a timing that are at least `ms`, with a tolerance of a thousandth below.
    pub(crate) fn at_least(&self, timing: Timing, ms: u64) -> u64 {
        let Some(histogram) = self.timings.get(&timing.into()) else { return 0 };
        let buckets = histogram.to_sparse().buckets;
        buckets.iter().filter(|(us, _)| *us >= ms * 1_000).map(|(_, count)| u64::from(*count)).sum()
    }

    pub(crate) fn transaction(&self, index: u16) -> TimingSummary {
        self.timings.get(&TimingId::transaction(index)).map(TimingHistogram::summary).unwrap_or_default()
    }

    pub(crate) fn error(&self, kind: &str) -> u64 {
        self.errors.get(kind).copied().unwrap_or(0)
    }

    /// Last reported value of a gauge, over all workers.
    pub(crate) fn gauge(&self, gauge: Gauge) -> i64 {
        self.gauges.values().map(|gauges| gauges[gauge as usize]).sum()
    }

    fn add(&mut self, worker: u16, snapshot: &WorkerSnapshot) {
        self.counters.resize(Counter::ALL.len(), 0);
        self.highest.resize(Gauge::ALL.len(), 0);
        for (sum, count) in self.counters.iter_mut().zip(&snapshot.counters) {
            *sum += count;
        }
        for (id, sparse) in &snapshot.timings {
            self.timings.entry(*id).or_default().add(sparse);
        }
        for (kind, count) in &snapshot.used {
            *self.used.entry(kind.clone()).or_default() += count;
        }
        for (kind, count) in &snapshot.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        self.gauges.insert(worker, snapshot.gauges.clone());
        for gauge in Gauge::ALL {
            let sum = self.gauge(*gauge);
            let highest = &mut self.highest[*gauge as usize];
            *highest = (*highest).max(sum);
        }
        self.log.extend(snapshot.log.iter().cloned());
        self.snapshots.push((worker, snapshot.clone()));
    }

    /// Missing messages by recipient: sent, minus arrived, minus refused.
    fn settle(&mut self) {
        let mut missing: BTreeMap<u32, i64> = BTreeMap::new();
        let mut steady = BTreeSet::new();
        for last in &self.finals {
            last.sent
                .iter()
                .for_each(|(user, count)| *missing.entry(*user).or_default() += i64::from(*count));
            for (user, count) in last.arrived.iter().chain(&last.refused) {
                *missing.entry(*user).or_default() -= i64::from(*count);
            }
            steady.extend(last.steady.iter().copied());
        }
        for (user, count) in missing {
            let count = u64::try_from(count).unwrap_or_else(|_| panic!("user {user} has more than was sent"));
            *(if steady.contains(&user) { &mut self.lost } else { &mut self.waiting }) += count;
        }
    }
}

/// Runs a plan with one worker.
pub(crate) fn run(plan: LoadPlan, server: &ScriptedServer) -> RunOutcome {
    run_with(plan, server, TestRunConfig::alone())
}

/// Runs a plan with one worker until the condition holds for the server's counts.
pub(crate) fn until(plan: LoadPlan, server: &ScriptedServer, when: fn(&ServerCounts) -> bool) -> RunOutcome {
    run_with(plan, server, TestRunConfig::alone().until(when))
}

/// Runs a plan with this configuration.
pub(crate) fn run_with(plan: LoadPlan, server: &ScriptedServer, config: TestRunConfig) -> RunOutcome {
    let config = TestRunConfig { ends: config.stop_when.is_none(), ..config };
    let drain_us = plan.options.drain_ms * 1_000;
    let (reports, inbox) = sync_channel(10_000);
    let (mut lines, mut threads) = (Vec::new(), Vec::new());
    for worker in 0..config.clocks.len() as u16 {
        let (commands, receiver) = sync_channel(10_000);
        let (wake, woken) = UnixStream::pair().expect("a pair of sockets can be made");
        woken.set_nonblocking(true).expect("a socket can be made non-blocking");
        let assignment = Assignment {
            plan: plan.clone(),
            worker,
            owners: config.owners.clone(),
            clocks: config.clocks.clone(),
            run: RUN,
            sources: Vec::new(),
            salts: config.salts.clone(),
            learn: config.learn,
        };
        let mut port =
            TestControllerPort { worker, commands: receiver, wake: woken, reports: reports.clone() };
        threads.push(std::thread::spawn(move || engine::run(assignment, &mut port)));
        lines.push(WorkerChannel { commands, wake });
    }
    drop(reports);
    let outcome = conduct(&inbox, &mut lines, server, &config, drain_us);
    drop(lines);
    for thread in threads {
        let ended = thread.join().expect("the engine does not panic");
        assert!(ended.is_ok() || outcome.refused.is_some(), "{ended:?}");
    }
    outcome
}

fn conduct(
    inbox: &Receiver<(u16, WorkerReport)>,
    lines: &mut [WorkerChannel],
    server: &ScriptedServer,
    config: &TestRunConfig,
    drain_us: u64,
) -> RunOutcome {
    let mut outcome = RunOutcome::default();
    let mut by_worker = vec![None; lines.len()];
    let mut rooms = BTreeMap::new();
    let (mut ready, mut draining, mut started) = (0, BTreeSet::new(), 0);
    let mut fresh: BTreeSet<u16> = BTreeSet::new();
    let (mut close_by, mut closing, mut stopped) = (u64::MAX, false, false);
    let begun = now_us();
    while outcome.finals.len() < lines.len() {
        assert!(
            now_us() - begun < ENDLESS,
            "the run does not end: {:?} {:?}",
            outcome.errors,
            Counter::ALL
                .iter()
                .map(|counter| (counter.name(), outcome.count(*counter)))
                .filter(|it| it.1 > 0)
                .collect::<Vec<_>>()
        );
        match inbox.recv_timeout(Duration::from_millis(20)) {
            Ok((_, WorkerReport::Ready { .. })) => {
                ready += 1;
                if ready == lines.len() {
                    started = now_us();
                    lines
                        .iter_mut()
                        .for_each(|line| line.tell(WorkerCommand::Start { in_us: 0, at_us: started }));
                }
            }
            Ok((_, WorkerReport::Refused(reason))) => {
                outcome.refused.get_or_insert(reason);
                if started == 0 {
                    return outcome;
                }
                lines.iter_mut().for_each(|line| line.tell(WorkerCommand::Stop));
            }
            Ok((worker, WorkerReport::Snapshot(snapshot))) => {
                outcome.add(worker, &snapshot);
                if draining.contains(&worker) {
                    fresh.insert(worker);
                }
                for (other, line) in
                    lines.iter_mut().enumerate().filter(|(other, _)| *other != usize::from(worker))
                {
                    if !snapshot.online.is_empty() {
                        let _ = other;
                        line.tell(WorkerCommand::Online(snapshot.online.clone()));
                    }
                }
            }
            Ok((worker, WorkerReport::Draining)) => {
                draining.insert(worker);
                if draining.len() == lines.len() {
                    close_by = now_us() + drain_us;
                }
            }
            Ok((worker, WorkerReport::Rooms(part))) => {
                rooms.entry(worker).or_insert_with(Vec::new).extend(part);
            }
            Ok((worker, WorkerReport::Final(mut last))) => {
                last.rooms = rooms.remove(&worker).unwrap_or_default();
                outcome.add(worker, &last.snapshot);
                by_worker[usize::from(worker)] = Some((*last).clone());
                outcome.finals.push(*last);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if !stopped && config.stop_when.is_some_and(|when| when(&server.snapshot())) {
            stopped = true;
            lines.iter_mut().for_each(|line| line.tell(WorkerCommand::Stop));
        }
        // A plan that ended on its own has no users left.
        let alone = config.ends && draining.len() == lines.len();
        let quiet = alone
            || fresh.len() == lines.len() && {
                let truth = server.snapshot();
                !truth.busy
                    && truth.stanzas_in + truth.discarded == outcome.count(Counter::StanzasOut)
                    && truth.stanzas_out == outcome.count(Counter::StanzasIn)
            };
        if !closing && (quiet || now_us() >= close_by) {
            closing = true;
            lines.iter_mut().for_each(|line| line.tell(WorkerCommand::Close));
        }
    }
    outcome.took = now_us() - started;
    outcome.settle();
    outcome.rooms = room_accounting::account(&by_worker, &config.clocks);
    outcome.nodes = room_accounting::account_of_nodes(&by_worker, &config.clocks);
    outcome
}
