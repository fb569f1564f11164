//! Interpreter of a user's session program.
//!
//! `due` of a user is the time at which its current step was due: a pause adds to it, a response sets it. A step after
//! a pause is therefore due by the clock even when the generator or the server is late.
//!
//! # Pitfalls
//!
//! A step that waits must set `wait` before anything that can trigger its response.

use super::bytecode::{Instruction, Pc, RawOp, RawWait, SessionProgram};
use super::event_loop::WorkerEngine;
use super::slot::UserSlot;
use super::virtual_user::{CLOSED, ControlFrame, LOGGED_IN, MANAGEABLE, PAUSED, SESSION_OPEN, WaitState};
use crate::clock::now_us;
use crate::measure::{Counter, TimingId};
use crate::plan::{AckMode, PlanStep, TimeSpan};

/// Steps that a user may run without waiting before it yields to others.
const TURN: usize = 256;

/// Time that a server has to confirm the end of a BOSH session, in milliseconds.
const PARTING_MS: u64 = 10_000;

/// Result of a step.
pub(super) enum StepOutcome {
    /// Continue with the next step.
    Go,
    /// Wait for the event in `wait`.
    Block,
}

impl<'p> WorkerEngine<'p> {
    /// Resumes with the next step when the awaited event has happened.
    pub(super) fn resume_program(&mut self, slot: UserSlot, now: u64) {
        self.timers.limit(slot, 0);
        self.users[slot].due = now;
        self.advance(slot);
    }

    /// Runs steps until one must wait.
    pub(super) fn advance(&mut self, slot: UserSlot) {
        // Moved out, so that instructions can be borrowed while users change.
        let programs = std::mem::take(&mut self.programs);
        self.run_program(slot, &programs);
        self.programs = programs;
    }

    fn run_program(&mut self, slot: UserSlot, programs: &[SessionProgram<'p>]) {
        for _ in 0..TURN {
            if !self.may_act() {
                self.users[slot].wait = WaitState::End;
                return;
            }
            let user = &mut self.users[slot];
            let Some(op) = user.program(programs).ops.get(usize::from(user.pc)) else {
                self.close_stream(slot);
                return;
            };
            user.pc += 1;
            if let StepOutcome::Block = self.perform(slot, op) {
                return;
            }
        }
        // A loop without a pause must not starve the other users.
        self.sleep_from(slot, now_us(), 1_000, WaitState::Pause);
    }

    fn perform(&mut self, slot: UserSlot, op: &Instruction<'p>) -> StepOutcome {
        let user = &mut self.users[slot];
        match op {
            Instruction::Step(step) => return self.step(slot, step),
            Instruction::LoginBegin => user.login().due = user.due,
            Instruction::Connect => {
                if user.is_open() {
                    return StepOutcome::Go;
                }
                user.set(SESSION_OPEN, false);
                let due = user.due;
                let login = user.login();
                if login.due == 0 {
                    login.due = due;
                }
                user.set(PAUSED, false);
                self.connect(slot);
                return StepOutcome::Block;
            }
            Instruction::StartTls => {
                self.ask_starttls(slot);
                return StepOutcome::Block;
            }
            Instruction::Authenticate { mechanisms, credentials } => {
                self.authenticate(slot, mechanisms, *credentials);
                return StepOutcome::Block;
            }
            Instruction::Bind { unless_bound: true, .. } if user.is(LOGGED_IN) => {}
            Instruction::Bind { resource, .. } => {
                self.bind(slot, *resource);
                return StepOutcome::Block;
            }
            Instruction::FastLogin { .. } if user.is(LOGGED_IN) => {}
            Instruction::FastLogin { mechanisms, manage } => {
                self.fast_login(slot, mechanisms, *manage);
                return StepOutcome::Block;
            }
            Instruction::Resume => return self.resume(slot),
            Instruction::Raw(raw) => return self.raw(slot, raw),
            Instruction::WaitFor { timeout_ms, .. } => {
                user.wait = WaitState::Match;
                self.set_response_timeout(slot, *timeout_ms);
                return StepOutcome::Block;
            }
            Instruction::LoopBegin { times, first, counter, end } => {
                let left = times.unwrap_or(u32::MAX);
                if left == 0 {
                    user.pc = *end;
                } else {
                    user.extra().frames.push(ControlFrame { left, value: *first, since: 0 });
                    if let Some(counter) = counter {
                        self.set_variable(slot, counter, first.to_string());
                    }
                }
            }
            Instruction::LoopEnd { begin, increment, counter } => {
                self.loop_end(slot, *begin, *increment, *counter)
            }
            Instruction::Unless { condition, exit } => {
                if !self.holds(slot, condition) {
                    self.users[slot].pc = *exit;
                }
            }
            Instruction::EachBegin { variable, list, end } => {
                let first =
                    self.variable(slot, list).and_then(|list| list.split(super::text::BETWEEN).next());
                match first.map(str::to_owned) {
                    Some(first) if !first.is_empty() => {
                        self.set_variable(slot, variable, first);
                        self.users[slot].extra().frames.push(ControlFrame { left: 0, value: 0, since: 0 });
                    }
                    _ => self.users[slot].pc = *end,
                }
            }
            Instruction::EachEnd { variable, list, begin } => self.each_end(slot, variable, list, *begin),
            Instruction::Jump(pc) => user.pc = *pc,
            Instruction::TransactionBegin => {
                let since = user.due;
                user.extra().frames.push(ControlFrame { left: 0, value: 0, since });
            }
            Instruction::TransactionEnd(index) => {
                let due = user.due;
                if let Some(frame) = user.extra().frames.pop() {
                    self.record.time(TimingId::transaction(*index), due.saturating_sub(frame.since));
                }
            }
            Instruction::Meanwhile { duration, activities, .. } => {
                let due = user.due;
                let until = duration.map_or(u64::MAX, |time| due + self.sample(time));
                // Each activity starts after a random part of its interval, so that users are out of step.
                let next = activities
                    .iter()
                    .map(|activity| due + (self.sample(activity.every) as f64 * self.rng.unit()) as u64)
                    .collect();
                let extra = self.users[slot].extra();
                extra.activities = next;
                extra.until = until;
                self.users[slot].wait = WaitState::Meanwhile;
                self.settled(slot);
                self.rearm(slot, due);
                return StepOutcome::Block;
            }
        }
        StepOutcome::Go
    }

    fn loop_end(&mut self, slot: UserSlot, begin: Pc, increment: i64, counter: Option<&str>) {
        let extra = self.users[slot].extra();
        let Some(frame) = extra.frames.last_mut() else { return };
        if begin == Pc::MAX || frame.left == 1 {
            extra.frames.pop();
            return;
        }
        if frame.left != u32::MAX {
            frame.left -= 1;
        }
        frame.value += increment;
        let value = frame.value;
        self.users[slot].pc = begin;
        if let Some(counter) = counter {
            self.set_variable(slot, counter, value.to_string());
        }
    }

    fn each_end(&mut self, slot: UserSlot, variable: &str, list: &str, begin: Pc) {
        let Some(frame) = self.users[slot].extra().frames.last_mut() else { return };
        frame.value += 1;
        let index = frame.value as usize;
        let next = self
            .variable(slot, list)
            .and_then(|list| list.split(super::text::BETWEEN).nth(index))
            .map(str::to_owned);
        match next {
            Some(next) => {
                self.set_variable(slot, variable, next);
                self.users[slot].pc = begin;
            }
            None => {
                self.users[slot].extra().frames.pop();
            }
        }
    }

    fn step(&mut self, slot: UserSlot, step: &'p PlanStep) -> StepOutcome {
        let due = self.users[slot].due;
        let request = match step {
            PlanStep::Think(time) => {
                let pause = self.sample(*time);
                self.users[slot].set(PAUSED, true);
                self.settled(slot);
                self.sleep_from(slot, due, pause, WaitState::Pause);
                return StepOutcome::Block;
            }
            PlanStep::Message { to, body, kind, ack } => {
                let number = self.send_message(slot, to, body, *kind, ack, due);
                return self.await_message(slot, ack, number);
            }
            PlanStep::Presence { kind, to, show, status } => {
                self.send_presence(slot, *kind, to.as_ref(), show.as_ref(), status.as_ref(), due);
                return StepOutcome::Go;
            }
            PlanStep::Room(step) => return self.room_step(slot, step, due),
            PlanStep::PubSub(step) => return self.pubsub_step(slot, step, due),
            PlanStep::Delivered { presence, users } => {
                if let PlanStep::Presence { kind, to, show, status } = &**presence {
                    self.send_presence(slot, *kind, to.as_ref(), show.as_ref(), status.as_ref(), due);
                }
                self.users[slot].wait = WaitState::Deliveries(*users);
                self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
                return StepOutcome::Block;
            }
            PlanStep::Roster => Some(self.send_roster(slot, due)),
            PlanStep::Ping { to } => self.send_ping(slot, to.as_ref(), due),
            PlanStep::RosterSet { change, to, name, group } => {
                self.send_roster_set(slot, *change, to, name.as_ref(), group.as_ref(), due)
            }
            PlanStep::Register | PlanStep::Unregister => {
                self.register(slot, matches!(step, PlanStep::Unregister));
                return StepOutcome::Block;
            }
            PlanStep::OpenSession if self.users[slot].is(SESSION_OPEN) => return StepOutcome::Go,
            PlanStep::OpenSession => {
                self.open_session(slot);
                return StepOutcome::Block;
            }
            PlanStep::StreamManagement { .. } if !self.users[slot].is(MANAGEABLE) => {
                self.record.error("sm:not-offered");
                return StepOutcome::Go;
            }
            PlanStep::StreamManagement { resume } => {
                self.enable_management(slot, *resume);
                return StepOutcome::Block;
            }
            PlanStep::Set(values) => {
                self.set_variables(slot, values);
                return StepOutcome::Go;
            }
            PlanStep::Barrier { timeout_ms, users } => return self.barrier(slot, *timeout_ms, *users),
            PlanStep::NoWait(inner) => {
                self.send_without_waiting(slot, inner, due);
                return StepOutcome::Go;
            }
            PlanStep::LegacyAuthenticate { resource, credentials } => {
                if self.wants_sasl(slot) {
                    // The plaintext password is the closest equivalent of this step.
                    let features = self.users[slot].login.as_ref().map(|login| &login.features);
                    let plain = features.is_some_and(|f| f.mechanisms.iter().any(|name| name == "PLAIN"));
                    let wanted = if plain { vec!["PLAIN".to_owned()] } else { Vec::new() };
                    self.authenticate(slot, &wanted, credentials.as_ref());
                } else {
                    self.authenticate_legacy(slot, resource, credentials.as_ref());
                }
                return StepOutcome::Block;
            }
            PlanStep::Bounce { in_flight, duration_ms, size, one_sided, to } => {
                self.users[slot].extra().until = duration_ms.map_or(u64::MAX, |ms| due + ms * 1_000);
                self.settled(slot);
                let begins = !one_sided || self.users[slot].account.is_multiple_of(2);
                self.start_bounce(slot, if begins { *in_flight } else { 0 }, to, *size, due);
                self.rearm(slot, due);
                return StepOutcome::Block;
            }
            PlanStep::ChangeTarget { addresses, security } => {
                self.users[slot].extra().target = Some(Box::new((addresses.clone(), *security)));
                return StepOutcome::Go;
            }
            PlanStep::Disconnect => return self.disconnect(slot),
            PlanStep::Cut => {
                self.record.error("cut-by-plan");
                self.cut(slot);
                return StepOutcome::Go;
            }
            PlanStep::Abort { run } => {
                if *run {
                    self.refusal = Some("the plan aborted the run".to_owned());
                    self.stage = super::event_loop::WorkerStage::Draining(now_us());
                }
                self.close_stream(slot);
                return StepOutcome::Block;
            }
            // The compiler has flattened these.
            PlanStep::Connect
            | PlanStep::StartTls
            | PlanStep::Authenticate { .. }
            | PlanStep::Bind { .. }
            | PlanStep::Login { .. }
            | PlanStep::FastLogin { .. }
            | PlanStep::Resume
            | PlanStep::Raw { .. }
            | PlanStep::WaitFor { .. }
            | PlanStep::Repeat { .. }
            | PlanStep::While { .. }
            | PlanStep::If { .. }
            | PlanStep::ForEach { .. }
            | PlanStep::Meanwhile { .. }
            | PlanStep::Transaction { .. } => return StepOutcome::Go,
        };
        match request {
            Some(number) => {
                self.users[slot].wait = WaitState::Answer(number);
                self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
                StepOutcome::Block
            }
            None => StepOutcome::Go,
        }
    }

    pub(super) fn await_message(
        &mut self,
        slot: UserSlot,
        ack: &AckMode,
        number: Option<(u16, u32)>,
    ) -> StepOutcome {
        let wait = match (ack, number) {
            (AckMode::None, _) | (AckMode::Delivery, None) => return StepOutcome::Go,
            (AckMode::Delivery, Some((worker, number))) => WaitState::Delivery(worker, number),
            (AckMode::All, _) => return self.barrier(slot, self.plan.options.answer_timeout_ms, None),
            (AckMode::Acknowledged, _) => return self.await_acknowledgement(slot),
            _ => WaitState::Any,
        };
        self.users[slot].wait = wait;
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        StepOutcome::Block
    }

    fn raw(&mut self, slot: UserSlot, raw: &RawOp<'_>) -> StepOutcome {
        if raw.legacy && self.wants_sasl(slot) {
            return StepOutcome::Go;
        }
        self.send_raw(slot, raw);
        match &raw.wait {
            RawWait::None => return StepOutcome::Go,
            RawWait::All => return self.barrier(slot, self.plan.options.answer_timeout_ms, None),
            RawWait::Acknowledged => return self.await_acknowledgement(slot),
            RawWait::Any => self.users[slot].wait = WaitState::Any,
            RawWait::Answer | RawWait::Match(_) => self.users[slot].wait = WaitState::Match,
        }
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        StepOutcome::Block
    }

    fn send_raw(&mut self, slot: UserSlot, raw: &RawOp<'_>) {
        if self.skip_if_blocked(slot) {
            return;
        }
        let text = self.text(slot, raw.xml);
        let user = &mut self.users[slot];
        if matches!(raw.wait, RawWait::Answer) {
            user.extra().awaited_id = id_of(&text).map(Into::into);
        }
        let begin = user.out.len();
        user.out.extend_from_slice(text.as_bytes());
        let start = text.trim_start();
        let counter = if raw.request || start.starts_with("<iq") {
            Counter::IqSent
        } else if start.starts_with("<presence") {
            Counter::PresenceSent
        } else {
            Counter::MessagesElsewhere
        };
        self.sent_stanza(slot, begin, counter);
    }

    /// Closes the stream; the session continues when the peer has closed it too.
    fn disconnect(&mut self, slot: UserSlot) -> StepOutcome {
        let user = &mut self.users[slot];
        if !user.is_open() {
            return StepOutcome::Go;
        }
        if user.bosh.as_ref().is_some_and(|bosh| bosh.is_created()) {
            // This takes a request, and perhaps another socket first.
            user.wait = WaitState::Parting;
            self.write_stream_end(slot);
            self.set_response_timeout(slot, PARTING_MS);
            return StepOutcome::Block;
        }
        self.write_stream_end(slot);
        self.flush();
        // The peer's stream end is not awaited: the next step is due now.
        self.drop_socket(slot);
        self.users[slot].set(CLOSED, false);
        self.users[slot].login = None;
        StepOutcome::Go
    }

    /// Sends a request whose response is only measured.
    fn send_without_waiting(&mut self, slot: UserSlot, step: &PlanStep, due: u64) {
        match step {
            PlanStep::Roster => {
                self.send_roster(slot, due);
            }
            PlanStep::Ping { to } => {
                self.send_ping(slot, to.as_ref(), due);
            }
            PlanStep::RosterSet { change, to, name, group } => {
                self.send_roster_set(slot, *change, to, name.as_ref(), group.as_ref(), due);
            }
            _ => {}
        }
    }

    /// Waits at the barrier for all users of this worker, or for its share of `users`.
    fn barrier(&mut self, slot: UserSlot, timeout_ms: u64, users: Option<u32>) -> StepOutcome {
        self.settled(slot);
        self.users[slot].wait = WaitState::Barrier;
        self.waiting += 1;
        self.wanted = users.map(|users| (0..users).filter(|user| self.owns(u64::from(*user))).count());
        self.set_response_timeout(slot, timeout_ms);
        self.pass_barrier();
        StepOutcome::Block
    }

    /// Opens the barrier if all users are there.
    pub(super) fn pass_barrier(&mut self) {
        let users = self.record.gauge(crate::measure::Gauge::Users).max(0) as usize;
        if self.waiting == 0 || self.waiting < self.wanted.unwrap_or(users) {
            return;
        }
        self.waiting = 0;
        let now = now_us();
        for slot in self.users.indices() {
            let user = &mut self.users[slot];
            if user.wait == WaitState::Barrier {
                // Through a timer: the caller may be in the middle of a program.
                self.timers.limit(slot, 0);
                self.sleep_from(slot, now, 0, WaitState::Pause);
            }
        }
    }

    /// Draws a time span, in microseconds.
    pub(super) fn sample(&mut self, time: TimeSpan) -> u64 {
        let ms = match time {
            TimeSpan::Fixed(ms) => ms,
            TimeSpan::Exponential(mean) => self.rng.exponential(mean),
            TimeSpan::Uniform(from, to) => from + (to - from) * self.rng.unit(),
        };
        (ms.max(0.0) * 1_000.0) as u64
    }

    /// Sets the timer of `slot` to `us` microseconds after `from`.
    pub(super) fn sleep_from(&mut self, slot: UserSlot, from: u64, us: u64, wait: WaitState) {
        let user = &mut self.users[slot];
        user.wait = wait;
        user.generation = user.generation.wrapping_add(1);
        self.timers.wake(from.saturating_add(us), slot, user.generation);
    }

    /// Sets the timer of a user with activities to the earliest due one.
    pub(super) fn rearm(&mut self, slot: UserSlot, now: u64) {
        let user = &mut self.users[slot];
        match user.wait {
            WaitState::Meanwhile | WaitState::Bounce => {
                let Some(extra) = &user.extra else { return };
                let bounce = user.wait == WaitState::Bounce;
                let activities = if bounce { &[][..] } else { &extra.activities[..] };
                let next = activities.iter().copied().min().unwrap_or(u64::MAX).min(extra.until);
                if next < u64::MAX {
                    user.generation = user.generation.wrapping_add(1);
                    self.timers.wake(next, slot, user.generation);
                }
            }
            // The event awaited when the connection was lost may never come.
            WaitState::Pause => self.sleep_from(slot, now, 0, WaitState::Pause),
            WaitState::End | WaitState::Free => {}
            _ => self.resume_program(slot, now),
        }
    }

    /// Handles the timer of `slot`, which was due at `due`.
    pub(super) fn timer_fired(&mut self, slot: UserSlot, due: u64) {
        let user = &mut self.users[slot];
        user.due = due;
        match user.wait {
            WaitState::Pause => self.advance(slot),
            WaitState::Retry => {
                user.due = due;
                self.connect(slot);
            }
            WaitState::Meanwhile => self.run_due_activities(slot, due),
            WaitState::Bounce => self.advance(slot),
            _ => {}
        }
    }

    /// Runs the due activities.
    fn run_due_activities(&mut self, slot: UserSlot, now: u64) {
        let programs = std::mem::take(&mut self.programs);
        let user = &self.users[slot];
        let op = user.program(&programs).ops.get(usize::from(user.pc).wrapping_sub(1));
        let over = user.extra.as_ref().is_none_or(|extra| extra.until <= now);
        if let (Some(Instruction::Meanwhile { activities, raws, .. }), false) = (op, over) {
            for (index, activity) in activities.iter().enumerate() {
                let due = self.users[slot].extra().activities[index];
                if due > now || !self.users[slot].is(LOGGED_IN) {
                    continue;
                }
                for _ in 0..activity.batch {
                    match (&activity.step, raws.get(index)) {
                        (_, Some(Some(raw))) => self.send_raw(slot, raw),
                        (PlanStep::Message { to, body, kind, ack }, _) => {
                            self.send_message(slot, to, body, *kind, ack, due);
                        }
                        (PlanStep::Presence { kind, to, show, status }, _) => {
                            self.send_presence(slot, *kind, to.as_ref(), show.as_ref(), status.as_ref(), due);
                        }
                        (PlanStep::Room(step), _) => {
                            self.room_step(slot, step, due);
                        }
                        (PlanStep::PubSub(step), _) => {
                            self.pubsub_step(slot, step, due);
                        }
                        (PlanStep::NoWait(inner), _) => self.send_without_waiting(slot, inner, due),
                        (other, _) => self.send_without_waiting(slot, other, due),
                    }
                }
                let next = due + self.sample(activity.every).max(1);
                self.users[slot].extra().activities[index] = next;
            }
        }
        self.programs = programs;
        if over {
            self.users[slot].due = now;
            self.advance(slot);
        } else {
            self.rearm(slot, now);
        }
    }

    /// Instruction that this user waits at; programs are immutable.
    pub(super) fn awaited_instruction(&self, slot: UserSlot) -> Option<&Instruction<'p>> {
        let user = &self.users[slot];
        user.program(&self.programs).ops.get(usize::from(user.pc).wrapping_sub(1))
    }
}

/// The `id` of the first tag of hand-written XML.
fn id_of(text: &str) -> Option<&str> {
    let tag = text.split('>').next()?;
    let mut at = 0;
    while let Some(found) = tag[at..].find("id=") {
        let value = &tag[at + found + 3..];
        let quote = value.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        // `stanza-id=` and `myid=` are other attributes.
        let own = tag[..at + found].ends_with(char::is_whitespace);
        if let (Some(quote), true) = (quote, own) {
            return value[1..].split(quote).next();
        }
        at += found + 3;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::id_of;

    #[test]
    fn the_id_of_a_raw_stanza() {
        assert_eq!(id_of("<iq type='get' id='a1'><query id='no'/></iq>"), Some("a1"));
        assert_eq!(id_of("<iq id=\"b\" type='get'/>"), Some("b"));
        assert_eq!(id_of("<iq myid='x' to='id=1'\n id='c'/>"), Some("c"));
        assert_eq!(id_of("<iq><query id='no'/></iq>"), None);
        assert_eq!(id_of(""), None);
    }
}
