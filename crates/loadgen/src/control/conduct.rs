//! The course of a run as a state machine without sockets: reports go in, commands come out.
//!
//! ```text
//! joined ── all Ready ──► Start ── all Draining ──► nothing under way, or the drain's time is up ──► Close ── all Final ──► done
//! ```
//!
//! A worker that dies in the run is told to the others, its users are counted, and the run goes on without it.
//! Trap: a worker may drain long before the others; messages to its users still arrive, so it stays until `Close`.

use super::ledger;
use super::merge::Merger;
use super::message::{Command, Final, Report, Salt};
use super::warn;
use crate::measure::{Counter, Gauge, Snapshot};
use crate::report::model::Run;

/// A worker that says nothing for so long counts as dead.
const SILENCE_US: u64 = 30_000_000;
/// So long after `Stop` or `Close` a worker may take beyond the plan's own drain.
const PATIENCE_US: u64 = 30_000_000;
/// Seconds that a worker's count may be ahead of the controller's.
const AHEAD: u64 = 5;

/// What of the plan matters to the course.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Time for messages under way at the end.
    pub(crate) drain_us: u64,
    /// From the last `Ready` to the first arrival.
    pub(crate) start_in_us: u64,
    /// Table of owners, as the workers have it.
    pub(crate) owners: Vec<u16>,
}

/// Where a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Joined,
    Ready,
    Running,
    /// Since this second.
    Draining(u32),
    Finished,
    Dead,
}

/// Where the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Gathering,
    Running,
    /// `Stop` was sent; workers must drain by then.
    Stopping(u64),
    /// All drain; `Close` comes at the latest then.
    Draining(u64),
    /// Workers must have sent their last report by then.
    Closing(u64),
    Done,
}

struct Worker {
    at: At,
    heard_us: u64,
    last: Option<Final>,
}

/// See the module.
pub(crate) struct Conductor {
    /// What is known of the run.
    pub(crate) merger: Merger,
    course: Course,
    stage: Stage,
    workers: Vec<Worker>,
    start_us: u64,
    end_us: Option<u64>,
    commands: Vec<(u16, Command)>,
    /// Sentences of the course itself, before those that follow from the figures.
    warnings: Vec<String>,
    salts: Vec<Salt>,
    failed: Option<String>,
    interrupted: bool,
}

impl Conductor {
    /// With all workers joined, in the order of their numbers.
    pub(crate) fn new(merger: Merger, course: Course, now: u64) -> Self {
        let workers =
            merger.run.workers.iter().map(|_| Worker { at: At::Joined, heard_us: now, last: None }).collect();
        Self {
            merger,
            course,
            stage: Stage::Gathering,
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

    /// Commands that have come up, by worker.
    pub(crate) fn take_commands(&mut self) -> Vec<(u16, Command)> {
        std::mem::take(&mut self.commands)
    }

    /// What the workers have learned of the server's salts.
    pub(crate) fn take_salts(&mut self) -> Vec<Salt> {
        std::mem::take(&mut self.salts)
    }

    /// Nothing more comes.
    pub(crate) fn done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The run has begun.
    pub(crate) fn started(&self) -> bool {
        self.start_us > 0
    }

    /// The moment of the start, once it is known.
    pub(crate) fn start_us(&self) -> Option<u64> {
        self.started().then_some(self.start_us)
    }

    /// The run is on its way out.
    pub(crate) fn ending(&self) -> bool {
        !matches!(self.stage, Stage::Gathering | Stage::Running)
    }

    /// The sentence that ended the run, if it failed.
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
    pub(crate) fn length(&self, now: u64) -> f64 {
        if !self.started() {
            return 0.0;
        }
        self.end_us.unwrap_or(now).saturating_sub(self.start_us) as f64 / 1e6
    }

    fn living(&self) -> impl Iterator<Item = u16> {
        (0..self.workers.len()).filter(|w| self.workers[*w].at != At::Dead).map(|w| w as u16)
    }

    fn tell(&mut self, command: &Command) {
        let living: Vec<u16> = self.living().collect();
        let gone = |w: &u16| self.workers[usize::from(*w)].at != At::Finished;
        self.commands.extend(living.into_iter().filter(gone).map(|w| (w, command.clone())));
    }

    fn name(&self, worker: u16) -> String {
        let run = &self.merger.run.workers[usize::from(worker)];
        format!("worker {worker} ({}, process {})", run.name, run.pid)
    }

    /// What a worker reports.
    pub(crate) fn report(&mut self, worker: u16, report: Report, now: u64) {
        let index = usize::from(worker);
        match self.workers.get_mut(index) {
            Some(state) if state.at != At::Dead => state.heard_us = now,
            _ => return,
        }
        match report {
            Report::Ready { rss } => {
                self.merger.run.workers[index].rss_empty = rss;
                if self.workers[index].at == At::Joined {
                    self.workers[index].at = At::Ready;
                }
                self.begin(now);
            }
            Report::Refused(sentence) => self.refuse(worker, sentence, now),
            Report::Snapshot(snapshot) => self.snapshot(worker, *snapshot, now),
            Report::Draining => {
                if self.workers[index].at == At::Running {
                    self.workers[index].at = At::Draining(self.second(now));
                }
            }
            Report::Final(last) => self.last(worker, *last, now),
        }
        self.advance(now);
    }

    fn begin(&mut self, now: u64) {
        if self.stage != Stage::Gathering || self.workers.iter().any(|w| w.at != At::Ready) {
            return;
        }
        self.stage = Stage::Running;
        self.start_us = now + self.course.start_in_us;
        for worker in &mut self.workers {
            worker.at = At::Running;
            worker.heard_us = self.start_us;
        }
        self.tell(&Command::Start { in_us: self.course.start_in_us, at_us: self.start_us });
    }

    fn refuse(&mut self, worker: u16, sentence: String, now: u64) {
        if self.stage == Stage::Gathering {
            self.fail(sentence);
            self.stage = Stage::Done;
            return;
        }
        if self.workers[usize::from(worker)].at == At::Finished {
            return;
        }
        // In the run: the first login failed, or the plan says so. Everybody ends in order.
        let second = self.second(now);
        self.workers[usize::from(worker)].at = At::Finished;
        self.merger.leave(worker, second.saturating_add(1));
        self.fail(sentence);
        self.tell(&Command::Gone(worker));
        self.stop_all(now);
    }

    fn fail(&mut self, sentence: String) {
        self.merger.log(format!("The run ends: {sentence}"));
        self.failed.get_or_insert(sentence);
    }

    fn snapshot(&mut self, worker: u16, mut snapshot: Snapshot, now: u64) {
        if !self.started() || u64::from(snapshot.second) > u64::from(self.second(now)) + AHEAD {
            let why = format!("it reports second {}, which is not there yet", snapshot.second);
            self.lost(worker, &why, now);
            return;
        }
        let changes = std::mem::take(&mut snapshot.online);
        self.merger.add(worker, snapshot);
        if !changes.is_empty() && !matches!(self.stage, Stage::Closing(_)) {
            let others: Vec<u16> = self.living().filter(|w| *w != worker).collect();
            self.commands.extend(others.into_iter().map(|w| (w, Command::Online(changes.clone()))));
        }
    }

    fn last(&mut self, worker: u16, mut last: Final, now: u64) {
        let snapshot = std::mem::take(&mut last.snapshot);
        self.salts.append(&mut last.salts);
        self.snapshot(worker, snapshot, now);
        let after = self.merger.newest(worker).unwrap_or(0).saturating_add(1);
        let state = &mut self.workers[usize::from(worker)];
        if state.at != At::Dead {
            state.at = At::Finished;
            state.last = Some(last);
            self.merger.leave(worker, after);
        }
    }

    /// The connection of a worker ended.
    pub(crate) fn lost(&mut self, worker: u16, why: &str, now: u64) {
        let index = usize::from(worker);
        match self.workers.get(index).map(|w| w.at) {
            None | Some(At::Finished | At::Dead) => return,
            Some(_) => {}
        }
        if self.stage == Stage::Gathering {
            self.fail(format!("{} ended before the run began: {why}", self.name(worker)));
            self.stage = Stage::Done;
            return;
        }
        let users = u32::try_from(self.merger.gauge_of(index, Gauge::Users)).unwrap_or(0);
        let online = u64::try_from(self.merger.gauge_of(index, Gauge::Online)).unwrap_or(0);
        let second = self.second(now);
        self.workers[index].at = At::Dead;
        self.merger.run.workers[index].died = Some((second, users));
        self.merger.leave(worker, second);
        self.merger.count(Counter::SessionsLost, online, second);
        let sentence = format!(
            "{} died in second {second} ({why}); its {users} users are gone, {online} of them were online and count as lost sessions, and messages from and to its users are left out of the count of lost ones",
            self.name(worker)
        );
        self.merger.log(sentence.clone());
        self.warnings.push(sentence);
        self.tell(&Command::Gone(worker));
        self.advance(now);
    }

    /// Ends the run in order.
    pub(crate) fn interrupt(&mut self, now: u64) {
        self.interrupted = true;
        match self.stage {
            Stage::Gathering => self.stage = Stage::Done,
            _ => self.stop_all(now),
        }
        self.advance(now);
    }

    /// Ends the run at once, with what is known.
    pub(crate) fn give_up(&mut self, now: u64) {
        self.interrupted = true;
        let unheard = self.workers.iter().filter(|w| w.last.is_none()).count();
        if unheard > 0 && self.started() {
            self.warnings.push(format!(
                "The run was cut short before {unheard} workers had sent their last report; lost messages are not known"
            ));
        }
        self.end(now);
    }

    fn stop_all(&mut self, now: u64) {
        if self.stage == Stage::Running {
            self.stage = Stage::Stopping(now + self.course.drain_us + PATIENCE_US);
            self.tell(&Command::Stop);
        }
    }

    fn end(&mut self, now: u64) {
        self.end_us.get_or_insert(now);
        self.stage = Stage::Done;
    }

    /// Time passes.
    pub(crate) fn tick(&mut self, now: u64) {
        if self.started() && self.stage != Stage::Done {
            let silent = |w: &Worker| {
                matches!(w.at, At::Running | At::Draining(_)) && now.saturating_sub(w.heard_us) > SILENCE_US
            };
            let silent: Vec<u16> =
                (0..self.workers.len()).filter(|i| silent(&self.workers[*i])).map(|i| i as u16).collect();
            for worker in silent {
                self.lost(worker, "it said nothing for 30 s", now);
            }
        }
        self.advance(now);
    }

    fn all(&self, is: impl Fn(&Worker) -> bool) -> bool {
        self.workers.iter().filter(|w| w.at != At::Dead).all(is)
    }

    fn advance(&mut self, now: u64) {
        if self.started() && self.workers.iter().all(|w| w.at == At::Dead) {
            if self.stage != Stage::Done {
                self.fail("no worker is left".to_owned());
                self.end(now);
            }
            return;
        }
        if matches!(self.stage, Stage::Running | Stage::Stopping(_))
            && self.all(|w| matches!(w.at, At::Draining(_) | At::Finished))
        {
            self.stage = Stage::Draining(now + self.course.drain_us);
        }
        if let Stage::Stopping(until) = self.stage
            && now >= until
        {
            self.drop_where(|at| at == At::Running, "it did not stop", now);
        }
        if let Stage::Draining(until) = self.stage
            && (now >= until || self.nothing_under_way())
        {
            self.stage = Stage::Closing(now + PATIENCE_US);
            self.merger.run.about.closing = Some(self.second(now));
            self.tell(&Command::Close);
        }
        if let Stage::Closing(until) = self.stage {
            if self.all(|w| w.at == At::Finished) {
                self.end(now);
            } else if now >= until {
                self.drop_where(|at| at != At::Finished, "it did not send its last report", now);
            }
        }
    }

    fn drop_where(&mut self, is: impl Fn(At) -> bool, why: &str, now: u64) {
        let late: Vec<u16> =
            (0..self.workers.len()).filter(|i| is(self.workers[*i].at)).map(|i| i as u16).collect();
        for worker in late {
            self.lost(worker, why, now);
        }
    }

    /// Every worker has reported a whole second of draining, and by then all messages had arrived.
    fn nothing_under_way(&self) -> bool {
        let seen = self.workers.iter().enumerate().all(|(index, worker)| match worker.at {
            At::Draining(since) => self.merger.newest(index as u16).is_some_and(|newest| newest > since),
            _ => true,
        });
        seen && self.merger.gauge(Gauge::UnderWay) <= 0
    }

    /// Brings the figures up to date for the view.
    pub(crate) fn refresh(&mut self, now: u64) -> &Run {
        let length = self.length(now);
        self.merger.refresh(length);
        let run = &mut self.merger.run;
        run.about.length = length;
        run.warnings = self.warnings.clone();
        let more = warn::of(run);
        run.warnings.extend(more);
        run
    }

    /// The run, whole.
    pub(crate) fn finish(mut self, now: u64) -> Run {
        if self.started() {
            self.settle(now);
        }
        self.refresh(now);
        let length = self.length(now);
        self.merger.run.about.end = match (self.failed, self.interrupted) {
            (Some(sentence), _) => sentence,
            (None, true) => "interrupted".to_owned(),
            (None, false) => "finished".to_owned(),
        };
        self.merger.finish(length)
    }

    fn settle(&mut self, now: u64) {
        let second = self.second(self.end_us.unwrap_or(now));
        // Those that died, and those that ended the run with a reason, have given no account.
        let absent: Vec<bool> = self.workers.iter().map(|w| w.last.is_none()).collect();
        let finals: Vec<Final> = self.workers.iter_mut().filter_map(|w| w.last.take()).collect();
        let owners = &self.course.owners;
        let owner = |user: u32| owners[user as usize % owners.len()];
        let missing = ledger::missing(&finals, owner, |w| absent[usize::from(w)]);
        if finals.is_empty() {
            return;
        }
        self.merger.count(Counter::MessagesLost, missing.lost, second);
        self.merger.count(Counter::MessagesWaiting, missing.waiting, second);
        if missing.unknown + missing.gone > 0 {
            self.warnings.push(format!(
                "{} messages to users of workers that ended early are left out of the account, and so are {} that came from them",
                missing.unknown, missing.gone
            ));
        }
        if missing.surplus > 0 {
            self.warnings.push(format!(
                "{} messages arrived that nobody has sent, by the books; the count of lost messages may be too low by as many",
                missing.surplus
            ));
        }
        let unchecked: u64 = finals.iter().map(|f| f.unchecked_order).sum();
        if unchecked > 0 {
            self.warnings.push(format!(
                "The order of messages was not watched for {unchecked} pairs of users, since too many were under way"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
