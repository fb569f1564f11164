//! State machine of a run, without sockets: reports go in, commands come out.
//!
//! ```text
//! joined ── all Ready ──► Start ── all Draining ──► nothing under way, or nothing arrives ──► Close ── all Final ──► done
//! ```
//!
//! When a worker dies during the run, the others are notified, its users are counted, and the run continues without it.
//!
//! # Pitfalls
//!
//! A worker may drain long before the others; messages to its users still arrive, so it stays until `Close`.

#[cfg(test)]
mod tests;

use super::merge::SnapshotMerger;
use super::message::{AccountSalt, FinalReport, WorkerCommand, WorkerReport};
use super::message_accounting;
use super::room_accounting;
use super::room_report::RoomReport;
use super::warnings;
use crate::measure::{Counter, Gauge, WorkerSnapshot};
use crate::report::model::RunRecord;

/// Silence after which a worker counts as dead, in microseconds.
const SILENCE_US: u64 = 30_000_000;
/// Time that a worker may take after `Stop` or `Close` beyond the plan's own drain, in microseconds.
const TIMEOUT_US: u64 = 30_000_000;
/// A drain lasts this many times its configured time at most, if messages keep arriving.
const MAX_DRAINS: u64 = 24;
/// In a run with failures nothing may arrive for this many times the configured time until it ends: a server whose database did not
/// respond tries again after some seconds.
const FAILOVER_DRAINS: u64 = 4;
/// Seconds that a worker's count may be ahead of the controller's.
const AHEAD: u64 = 5;

/// Part of the plan that the state machine needs.
#[derive(Clone, Debug)]
pub(crate) struct RunSchedule {
    /// Time for in-flight messages at the end.
    pub(crate) drain_us: u64,
    /// Time from the last `Ready` to the first arrival.
    pub(crate) start_in_us: u64,
    /// Table of owners, as sent to the workers.
    pub(crate) owners: Vec<u16>,
    /// Clock domain of each worker.
    pub(crate) clocks: Vec<u16>,
    /// The run accounts for acknowledgements.
    pub(crate) failover: bool,
}

impl RunSchedule {
    /// Time without an arrival after which a drain ends.
    fn quiet_us(&self) -> u64 {
        if self.failover { FAILOVER_DRAINS * self.drain_us } else { self.drain_us }
    }
}

/// Phase of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerPhase {
    Joined,
    Ready,
    Running,
    /// Holds the second of its start.
    Draining(u32),
    Finished,
    Dead,
}

/// Phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPhase {
    Gathering,
    Running,
    /// `Stop` was sent; deadline for workers to drain.
    Stopping(u64),
    /// All workers drain until nothing arrives for the drain's time.
    Draining {
        /// Deadline for `Close`; later as long as messages arrive.
        until: u64,
        /// The latest deadline.
        latest: u64,
    },
    /// Deadline for the last reports.
    Closing(u64),
    Done,
}

struct WorkerState {
    at: WorkerPhase,
    last_message_us: u64,
    last: Option<FinalReport>,
    /// Rooms of the last report.
    rooms: Vec<RoomReport>,
    /// Copies of room messages in the newest snapshot.
    room_copies: u64,
}

/// State of a run.
pub(crate) struct RunState {
    /// Merged data of the run.
    pub(crate) merger: SnapshotMerger,
    schedule: RunSchedule,
    stage: RunPhase,
    workers: Vec<WorkerState>,
    start_us: u64,
    end_us: Option<u64>,
    commands: Vec<(u16, WorkerCommand)>,
    /// Warnings from the run itself, before those derived from the metrics.
    warnings: Vec<String>,
    salts: Vec<AccountSalt>,
    failed: Option<String>,
    interrupted: bool,
}

impl RunState {
    /// Starts with all workers joined, in order of their numbers.
    pub(crate) fn new(merger: SnapshotMerger, schedule: RunSchedule, now: u64) -> Self {
        let workers = merger
            .run
            .workers
            .iter()
            .map(|_| WorkerState {
                at: WorkerPhase::Joined,
                last_message_us: now,
                last: None,
                rooms: Vec::new(),
                room_copies: 0,
            })
            .collect();
        Self {
            merger,
            schedule,
            stage: RunPhase::Gathering,
            workers,
            start_us: 0,
            end_us: None,
            commands: Vec::new(),
            warnings: Vec::new(),
            salts: Vec::new(),
            failed: None,
            interrupted: false,
        }
    }

    /// Takes the pending commands, by worker.
    pub(crate) fn take_commands(&mut self) -> Vec<(u16, WorkerCommand)> {
        std::mem::take(&mut self.commands)
    }

    /// Takes the server's salts that the workers learned.
    pub(crate) fn take_salts(&mut self) -> Vec<AccountSalt> {
        std::mem::take(&mut self.salts)
    }

    /// Whether the run has ended.
    pub(crate) fn done(&self) -> bool {
        self.stage == RunPhase::Done
    }

    /// Whether the run has begun.
    pub(crate) fn started(&self) -> bool {
        self.start_us > 0
    }

    /// Time of the start, once it is known.
    pub(crate) fn start_us(&self) -> Option<u64> {
        self.started().then_some(self.start_us)
    }

    /// Whether the run is ending.
    pub(crate) fn is_stopping(&self) -> bool {
        !matches!(self.stage, RunPhase::Gathering | RunPhase::Running)
    }

    /// Sentence for which the run failed, if it did.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Second of the run.
    pub(crate) fn second(&self, now: u64) -> u32 {
        if !self.started() {
            return 0;
        }
        u32::try_from(now.saturating_sub(self.start_us) / 1_000_000).unwrap_or(u32::MAX)
    }

    /// Length of the run so far, in seconds.
    pub(crate) fn elapsed_seconds(&self, now: u64) -> f64 {
        if !self.started() {
            return 0.0;
        }
        self.end_us.unwrap_or(now).saturating_sub(self.start_us) as f64 / 1e6
    }

    fn live_workers(&self) -> impl Iterator<Item = u16> {
        (0..self.workers.len()).filter(|w| self.workers[*w].at != WorkerPhase::Dead).map(|w| w as u16)
    }

    fn broadcast(&mut self, command: &WorkerCommand) {
        let living: Vec<u16> = self.live_workers().collect();
        let gone = |w: &u16| self.workers[usize::from(*w)].at != WorkerPhase::Finished;
        self.commands.extend(living.into_iter().filter(gone).map(|w| (w, command.clone())));
    }

    fn name(&self, worker: u16) -> String {
        let run = &self.merger.run.workers[usize::from(worker)];
        format!("worker {worker} ({}, process {})", run.name, run.pid)
    }

    /// Handles a worker's report.
    pub(crate) fn report(&mut self, worker: u16, report: WorkerReport, now: u64) {
        let index = usize::from(worker);
        match self.workers.get_mut(index) {
            Some(state) if state.at != WorkerPhase::Dead => state.last_message_us = now,
            _ => return,
        }
        match report {
            WorkerReport::Ready { rss } => {
                self.merger.run.workers[index].rss_empty = rss;
                if self.workers[index].at == WorkerPhase::Joined {
                    self.workers[index].at = WorkerPhase::Ready;
                }
                self.start_run(now);
            }
            WorkerReport::Refused(sentence) => self.refuse(worker, sentence, now),
            WorkerReport::Snapshot(snapshot) => self.snapshot(worker, *snapshot, now),
            WorkerReport::Draining => {
                if self.workers[index].at == WorkerPhase::Running {
                    self.workers[index].at = WorkerPhase::Draining(self.second(now));
                }
            }
            WorkerReport::Rooms(rooms) => self.workers[index].rooms.extend(rooms),
            WorkerReport::Final(last) => self.final_report(worker, *last, now),
        }
        self.advance(now);
    }

    fn start_run(&mut self, now: u64) {
        if self.stage != RunPhase::Gathering || self.workers.iter().any(|w| w.at != WorkerPhase::Ready) {
            return;
        }
        self.stage = RunPhase::Running;
        self.start_us = now + self.schedule.start_in_us;
        for worker in &mut self.workers {
            worker.at = WorkerPhase::Running;
            worker.last_message_us = self.start_us;
        }
        self.broadcast(&WorkerCommand::Start { in_us: self.schedule.start_in_us, at_us: self.start_us });
    }

    fn refuse(&mut self, worker: u16, sentence: String, now: u64) {
        if self.stage == RunPhase::Gathering {
            self.fail(sentence);
            self.stage = RunPhase::Done;
            return;
        }
        if self.workers[usize::from(worker)].at == WorkerPhase::Finished {
            return;
        }
        // During the run: the first login failed, or the plan demands it. All workers end gracefully.
        let second = self.second(now);
        self.workers[usize::from(worker)].at = WorkerPhase::Finished;
        self.merger.worker_left(worker, second.saturating_add(1));
        self.fail(sentence);
        self.broadcast(&WorkerCommand::Gone(worker));
        self.stop_all(now);
    }

    fn fail(&mut self, sentence: String) {
        self.merger.log(format!("The run ends: {sentence}"));
        self.failed.get_or_insert(sentence);
    }

    fn snapshot(&mut self, worker: u16, mut snapshot: WorkerSnapshot, now: u64) {
        if !self.started() || u64::from(snapshot.second) > u64::from(self.second(now)) + AHEAD {
            let reason = format!("it reported second {}, which is in the future", snapshot.second);
            self.worker_lost(worker, &reason, now);
            return;
        }
        let changes = std::mem::take(&mut snapshot.online);
        let of = |counter: Counter| snapshot.counters.get(counter as usize).copied().unwrap_or(0);
        self.workers[usize::from(worker)].room_copies = of(Counter::RoomCopies) + of(Counter::NodeEvents);
        if let RunPhase::Draining { until, latest } = &mut self.stage
            && of(Counter::MessagesDelivered) + of(Counter::MessagesDuplicate) > 0
        {
            *until = (now + self.schedule.quiet_us()).min(*latest);
        }
        self.merger.add(worker, snapshot);
        if !changes.is_empty() && !matches!(self.stage, RunPhase::Closing(_)) {
            let others: Vec<u16> = self.live_workers().filter(|w| *w != worker).collect();
            self.commands.extend(others.into_iter().map(|w| (w, WorkerCommand::Online(changes.clone()))));
        }
    }

    fn final_report(&mut self, worker: u16, mut last: FinalReport, now: u64) {
        let snapshot = std::mem::take(&mut last.snapshot);
        self.salts.append(&mut last.salts);
        self.snapshot(worker, snapshot, now);
        let after = self.merger.newest(worker).unwrap_or(0).saturating_add(1);
        let state = &mut self.workers[usize::from(worker)];
        if state.at != WorkerPhase::Dead {
            state.at = WorkerPhase::Finished;
            last.rooms.append(&mut state.rooms);
            state.last = Some(last);
            self.merger.worker_left(worker, after);
        }
    }

    /// Handles the loss of a worker's connection.
    pub(crate) fn worker_lost(&mut self, worker: u16, reason: &str, now: u64) {
        let index = usize::from(worker);
        match self.workers.get(index).map(|w| w.at) {
            None | Some(WorkerPhase::Finished | WorkerPhase::Dead) => return,
            Some(_) => {}
        }
        if self.stage == RunPhase::Gathering {
            self.fail(format!("{} ended before the run began: {reason}", self.name(worker)));
            self.stage = RunPhase::Done;
            return;
        }
        let users = u32::try_from(self.merger.gauge_of(index, Gauge::Users)).unwrap_or(0);
        let online = u64::try_from(self.merger.gauge_of(index, Gauge::Online)).unwrap_or(0);
        let second = self.second(now);
        self.workers[index].at = WorkerPhase::Dead;
        self.merger.run.workers[index].died = Some((second, users));
        self.merger.worker_left(worker, second);
        self.merger.count(Counter::SessionsLost, online, second);
        let sentence = format!(
            "{} died in second {second} ({reason}); its {users} users are lost, {online} of them were online \
             and count as lost sessions; messages from and to its users are excluded from the count of lost messages",
            self.name(worker)
        );
        self.merger.log(sentence.clone());
        self.warnings.push(sentence);
        self.broadcast(&WorkerCommand::Gone(worker));
        self.advance(now);
    }

    /// Ends the run gracefully.
    pub(crate) fn interrupt(&mut self, now: u64) {
        self.interrupted = true;
        match self.stage {
            RunPhase::Gathering => self.stage = RunPhase::Done,
            _ => self.stop_all(now),
        }
        self.advance(now);
    }

    /// Ends the run at once, with the data at hand.
    pub(crate) fn abort(&mut self, now: u64) {
        self.interrupted = true;
        let unheard = self.workers.iter().filter(|w| w.last.is_none()).count();
        if unheard > 0 && self.started() {
            self.warnings.push(format!(
                "The run was aborted before {unheard} workers had sent their final report; the number of \
                 lost messages is unknown"
            ));
        }
        self.end(now);
    }

    fn stop_all(&mut self, now: u64) {
        if self.stage == RunPhase::Running {
            self.stage = RunPhase::Stopping(now + self.schedule.drain_us + TIMEOUT_US);
            self.broadcast(&WorkerCommand::Stop);
        }
    }

    fn end(&mut self, now: u64) {
        self.end_us.get_or_insert(now);
        self.stage = RunPhase::Done;
    }

    /// Handles the passing of time.
    pub(crate) fn tick(&mut self, now: u64) {
        if self.started() && self.stage != RunPhase::Done {
            let silent = |w: &WorkerState| {
                matches!(w.at, WorkerPhase::Running | WorkerPhase::Draining(_))
                    && now.saturating_sub(w.last_message_us) > SILENCE_US
            };
            let silent: Vec<u16> =
                (0..self.workers.len()).filter(|i| silent(&self.workers[*i])).map(|i| i as u16).collect();
            for worker in silent {
                self.worker_lost(worker, "it sent nothing for 30 s", now);
            }
        }
        self.advance(now);
    }

    fn all(&self, is: impl Fn(&WorkerState) -> bool) -> bool {
        self.workers.iter().filter(|w| w.at != WorkerPhase::Dead).all(is)
    }

    fn advance(&mut self, now: u64) {
        if self.started() && self.workers.iter().all(|w| w.at == WorkerPhase::Dead) {
            if self.stage != RunPhase::Done {
                self.fail("all workers have ended".to_owned());
                self.end(now);
            }
            return;
        }
        if matches!(self.stage, RunPhase::Running | RunPhase::Stopping(_))
            && self.all(|w| matches!(w.at, WorkerPhase::Draining(_) | WorkerPhase::Finished))
        {
            let until = now + self.schedule.quiet_us();
            self.stage = RunPhase::Draining { until, latest: now + MAX_DRAINS * self.schedule.drain_us };
        }
        if let RunPhase::Stopping(until) = self.stage
            && now >= until
        {
            self.drop_where(|at| at == WorkerPhase::Running, "it did not stop", now);
        }
        if let RunPhase::Draining { until, .. } = self.stage
            && (now >= until || self.no_messages_in_flight())
        {
            self.stage = RunPhase::Closing(now + TIMEOUT_US);
            self.merger.run.about.closing = Some(self.second(now));
            self.broadcast(&WorkerCommand::Close);
        }
        if let RunPhase::Closing(until) = self.stage {
            if self.all(|w| w.at == WorkerPhase::Finished) {
                self.end(now);
            } else if now >= until {
                self.drop_where(|at| at != WorkerPhase::Finished, "it did not send its final report", now);
            }
        }
    }

    fn drop_where(&mut self, is: impl Fn(WorkerPhase) -> bool, reason: &str, now: u64) {
        let late: Vec<u16> =
            (0..self.workers.len()).filter(|i| is(self.workers[*i].at)).map(|i| i as u16).collect();
        for worker in late {
            self.worker_lost(worker, reason, now);
        }
    }

    /// Whether every worker has reported a whole second of draining, by which time all messages had arrived. How many
    /// occupants a room message will reach is unknown, so none may have reached any in that second. In a run with failures messages
    /// arrive twice, which hides as many that have not arrived: it ends when nothing arrives for [`FAILOVER_DRAINS`] times the drain's time.
    fn no_messages_in_flight(&self) -> bool {
        if self.schedule.failover {
            return false;
        }
        let seen = self.workers.iter().enumerate().all(|(index, worker)| match worker.at {
            WorkerPhase::Draining(since) => {
                worker.room_copies == 0
                    && self.merger.newest(index as u16).is_some_and(|newest| newest > since)
            }
            _ => true,
        });
        seen && self.merger.gauge(Gauge::UnderWay) <= 0
    }

    /// Updates the metrics for the view.
    pub(crate) fn refresh(&mut self, now: u64) -> &RunRecord {
        let length = self.elapsed_seconds(now);
        self.merger.refresh(length);
        let run = &mut self.merger.run;
        run.about.length = length;
        run.warnings = self.warnings.clone();
        let more = warnings::run_warnings(run);
        run.warnings.extend(more);
        run
    }

    /// The complete run.
    pub(crate) fn finish(mut self, now: u64) -> RunRecord {
        if self.started() {
            self.finish_accounting(now);
        }
        self.refresh(now);
        let length = self.elapsed_seconds(now);
        self.merger.run.about.end = match (self.failed, self.interrupted) {
            (Some(sentence), _) => sentence,
            (None, true) => "interrupted".to_owned(),
            (None, false) => "finished".to_owned(),
        };
        self.merger.finish(length)
    }

    /// Completes the account of a run with failures.
    fn count_lost(&mut self, by_worker: &[Option<FinalReport>], second: u32) {
        let lost = message_accounting::lost(by_worker);
        let away = by_worker.iter().flatten().map(|report| u64::from(report.away)).sum();
        self.merger.count(Counter::AcknowledgedLost, lost.acknowledged, second);
        self.merger.count(Counter::UnacknowledgedLost, lost.unacknowledged, second);
        self.merger.count(Counter::UsersAway, away, second);
        if !lost.examples.is_empty() {
            let ids: Vec<String> = lost
                .examples
                .iter()
                .map(|lost| format!("*-{:x}-{:x}-* to {}", lost.sender, lost.number, lost.recipient))
                .collect();
            self.warnings.push(format!(
                "Ids of acknowledged messages that were lost, with the worker of the recipient: {}",
                ids.join(", ")
            ));
        }
        if by_worker.iter().any(|report| report.as_ref().is_none_or(|report| report.incomplete)) {
            self.warnings.push(
                "The account of acknowledged messages is incomplete, since a worker ended early or more messages \
                 were missing than it can list"
                    .to_owned(),
            );
        }
    }

    /// Completes the account of room messages.
    fn count_rooms(&mut self, by_worker: &[Option<FinalReport>], second: u32) {
        let account = room_accounting::account(by_worker, &self.schedule.clocks);
        self.merger.count(Counter::RoomCopiesLost, account.lost, second);
        self.merger.count(Counter::RoomCopiesReordered, account.reordered, second);
        self.merger.count(Counter::RoomSenderReordered, account.sender_reordered, second);
        self.merger.count(Counter::RoomMessagesUnreceived, account.unreceived, second);
        if account.incomplete {
            self.warnings.push(
                "The account of room messages is incomplete, since more copies were missing or out of order than it \
                 can list"
                    .to_owned(),
            );
        }
    }

    /// Completes the account of items of PubSub nodes.
    fn count_nodes(&mut self, by_worker: &[Option<FinalReport>], second: u32) {
        let account = room_accounting::account_of_nodes(by_worker, &self.schedule.clocks);
        self.merger.count(Counter::NodeEventsLost, account.lost, second);
        self.merger.count(Counter::NodeEventsReordered, account.reordered, second);
        self.merger.count(Counter::NodePublisherReordered, account.sender_reordered, second);
        self.merger.count(Counter::NodePublicationsUnreceived, account.unreceived, second);
    }

    fn finish_accounting(&mut self, now: u64) {
        let second = self.second(self.end_us.unwrap_or(now));
        // Workers that died, and those that ended the run with a reason, have sent no accounting.
        let absent: Vec<bool> = self.workers.iter().map(|w| w.last.is_none()).collect();
        let by_worker: Vec<_> = self.workers.iter_mut().map(|w| w.last.take()).collect();
        if self.schedule.failover {
            self.count_lost(&by_worker, second);
        }
        self.count_rooms(&by_worker, second);
        self.count_nodes(&by_worker, second);
        let finals: Vec<FinalReport> = by_worker.into_iter().flatten().collect();
        let owners = &self.schedule.owners;
        let owner = |user: u32| owners[user as usize % owners.len()];
        let missing = message_accounting::missing(&finals, owner, |w| absent[usize::from(w)]);
        if finals.is_empty() {
            return;
        }
        self.merger.count(Counter::MessagesLost, missing.lost, second);
        self.merger.count(Counter::MessagesWaiting, missing.waiting, second);
        if missing.unknown + missing.gone > 0 {
            self.warnings.push(format!(
                "{} messages to users of workers that ended early are excluded from the accounting, and so \
                 are {} from them",
                missing.unknown, missing.gone
            ));
        }
        if missing.unexpected > 0 {
            self.warnings.push(format!(
                "{} messages arrived that were not counted as sent; the number of lost messages may be too \
                 low by that amount",
                missing.unexpected
            ));
        }
        let unchecked: u64 = finals.iter().map(|f| f.unchecked_order).sum();
        if unchecked > 0 {
            self.warnings.push(format!(
                "The order of messages was not checked for {unchecked} pairs of users, since too many \
                 messages were in flight"
            ));
        }
    }
}
