//! Event loop of a worker: arrivals, timers, sockets, the controller's commands, and a snapshot each second.
//!
//! # Pitfalls
//!
//! Nothing in an iteration may block. The timers handled per iteration are bounded, so that thousands that are due at
//! once do not starve the sockets.

use std::collections::VecDeque;

use anyhow::{Context as _, Result, bail};
use rustix::event::{Timespec, epoll};
use sasl::client::ScramKeyCache;

use super::ControllerPort;
use super::account_names::AccountNames;
use super::acknowledgement_accounting::AcknowledgementAccounting;
use super::arrivals::ArrivalSchedule;
use super::bytecode::SessionProgram;
use super::delivery_accounting::DeliveryAccounting;
use super::key_derivation::{DerivationPool, threads};
use super::online_users::OnlineUsers;
use super::rng::Rng;
use super::room_accounting::{RoomIndex, RoomTable};
use super::slot::{SlotVec, SocketTag, UserSlot};
use super::target_spread::TargetSpread;
use super::timers::UserTimers;
use super::virtual_user::{
    APPEARING, AVAILABLE, CLOSED, LOGGED_IN, NOBODY, PAUSED, SLOW, VirtualUser, WaitState,
};
use crate::clock::{cpu_us, now_us};
use crate::control::message::{AccountSalt, Assignment, WorkerCommand, WorkerReport};
use crate::measure::{Counter, Gauge, Timing, WorkerRecorder};
use crate::plan::{LoadPlan, StreamTransport, TransportSecurity};
use crate::socket::{ClientCertificatePem, ServerTrust, SharedTlsClient, TlsOptions, WorkerBuffers};

/// Timers and arrivals handled before sockets are polled again.
const BURST: usize = 256;
/// Epoll data of the controller's connection.
const PORT: u64 = u64::MAX;
/// Epoll data of the key derivation threads.
const DERIVED: u64 = u64::MAX - 1;
/// Time that peers have to end their streams after ours, in microseconds.
const CLOSING: u64 = 10_000_000;

/// Phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerStage {
    /// Waiting for the start.
    Ready,
    /// Users arrive and act.
    Running,
    /// Nothing is sent; messages may still arrive. Holds the start of the phase.
    Draining(u64),
    /// Streams are being closed. Holds the start of the phase.
    Closing(u64),
}

/// State of a worker.
pub(super) struct WorkerEngine<'p> {
    pub(super) plan: &'p LoadPlan,
    pub(super) assignment: &'p Assignment,
    pub(super) programs: Vec<SessionProgram<'p>>,
    pub(super) names: AccountNames<'p>,
    pub(super) spread: TargetSpread,
    pub(super) users: SlotVec<UserSlot, VirtualUser>,
    /// Free slots.
    pub(super) free: Vec<UserSlot>,
    /// Own accounts without a session, least recently used first.
    pub(super) unused: VecDeque<u32>,
    /// Slot of each account that has a session.
    pub(super) slots: Vec<Option<UserSlot>>,
    pub(super) epoll: rustix::fd::OwnedFd,
    pub(super) scratch: WorkerBuffers,
    /// Bytes read but not yet split into elements.
    pub(super) input: Vec<u8>,
    pub(super) tls: Option<SharedTlsClient>,
    pub(super) keys: ScramKeyCache,
    pub(super) pool: DerivationPool,
    /// Salts that the server used, if the controller wants them.
    pub(super) salts: hashbrown::HashMap<u32, AccountSalt>,
    /// By session: the engine negotiates STARTTLS where it is offered.
    pub(super) negotiating: Vec<bool>,
    pub(super) timers: UserTimers,
    pub(super) arrivals: ArrivalSchedule<'p>,
    pub(super) record: WorkerRecorder,
    pub(super) accounting: DeliveryAccounting,
    /// Only in a run with failures.
    pub(super) acknowledgements: Option<AcknowledgementAccounting>,
    /// Rooms, and the account of their messages.
    pub(super) rooms: RoomTable,
    /// Joins of locked rooms to be sent again: time, slot, start of the session, room.
    pub(super) locked_rooms: VecDeque<(u64, UserSlot, u64, RoomIndex)>,
    pub(super) online: OnlineUsers,
    /// Own accounts that have been available (`seen`), and those that have left since.
    pub(super) seen: Vec<bool>,
    pub(super) left: Vec<bool>,
    /// Availability changes of this second, for the other workers.
    pub(super) changes: Vec<(u32, bool)>,
    /// Workers that died.
    pub(super) gone: Vec<u16>,
    /// Users whose initial presence is not yet reflected: slot, start of the session, time of sending.
    pub(super) appearing: VecDeque<(UserSlot, u64, u64)>,
    pub(super) rng: Rng,
    /// Start of the run on the clock.
    pub(super) start: u64,
    pub(super) stage: WorkerStage,
    /// Slots with unwritten output.
    pub(super) dirty: Vec<UserSlot>,
    /// Number of users at a barrier.
    pub(super) waiting: usize,
    /// Number of users that opens the barrier, if not all.
    pub(super) wanted: Option<usize>,
    pub(super) next_unique: u64,
    pub(super) next_sequence: usize,
    /// Next row of each table.
    pub(super) lines: Vec<usize>,
    /// Next account of `Destination::Unique`.
    pub(super) next_account: u32,
    /// Users between their arrival and their first pause, in a phase with a concurrency limit.
    pub(super) arriving: u32,
    /// FAST tokens (XEP-0484) by account, from logins that requested one.
    pub(super) tokens: hashbrown::HashMap<u32, super::fast::Token>,
    /// Reason for which the run must end.
    pub(super) refusal: Option<String>,
    pub(super) ever_logged_in: bool,
    second: u32,
    cpu: u64,
    wire: (u64, u64),
    /// Number of open sockets.
    pub(super) open: usize,
    /// Socket count above which a BOSH socket is closed as soon as it has no request.
    pub(super) most_sockets: usize,
    /// Buffer for the request that is being written.
    pub(super) request: Vec<u8>,
    /// Size of the element or HTTP response content that is being handled, in bytes.
    pub(super) answer_bytes: usize,
}

impl<'p> WorkerEngine<'p> {
    pub(super) fn new(assignment: &'p Assignment) -> Result<Self> {
        let plan = &assignment.plan;
        if assignment.owners.is_empty() || plan.target.addresses.is_empty() {
            bail!("the assignment lacks workers or a target");
        }
        let accounts = plan.accounts.count();
        let me = assignment.worker;
        let own = |index: u32| assignment.owners[index as usize % assignment.owners.len()] == me;
        let workers = assignment.owners.iter().copied().max().unwrap_or(0) as usize + 1;
        let capacity = (0..plan.options.connections).filter(|index| own(*index)).count();
        let share = |all: u32| {
            (u64::from(all) * capacity as u64).div_ceil(u64::from(plan.options.connections.max(1)))
        };
        let most_sockets = plan.target.web.sockets.map_or(usize::MAX, |all| share(all) as usize);
        let secure = plan.target.security != TransportSecurity::None
            || plan.sessions.iter().any(|session| super::security::uses_tls(&session.steps));
        let programs = plan
            .sessions
            .iter()
            .map(|session| SessionProgram::new(session, plan.target.security))
            .collect::<Result<_>>()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot create an epoll instance")?;
        Ok(Self {
            names: AccountNames::new(&plan.accounts),
            spread: TargetSpread::new(accounts, &plan.target.addresses, plan.options.seed),
            users: SlotVec::with_capacity(capacity),
            free: Vec::new(),
            unused: (0..accounts).filter(|index| own(*index)).collect(),
            slots: vec![None; accounts as usize],
            epoll,
            scratch: WorkerBuffers::new(),
            input: Vec::new(),
            tls: if secure { Some(tls_client(plan)?) } else { None },
            keys: ScramKeyCache::new(),
            pool: DerivationPool::new(threads(assignment))?,
            salts: hashbrown::HashMap::new(),
            negotiating: super::security::negotiating(&plan.sessions),
            timers: UserTimers::default(),
            arrivals: ArrivalSchedule::new(plan),
            record: WorkerRecorder::new(plan.transactions.len()),
            accounting: DeliveryAccounting::new(workers, accounts),
            acknowledgements: plan.options.failover.then(AcknowledgementAccounting::default),
            rooms: RoomTable::new(),
            locked_rooms: VecDeque::new(),
            online: OnlineUsers::new(accounts),
            seen: vec![false; accounts as usize],
            left: vec![false; accounts as usize],
            changes: Vec::new(),
            gone: Vec::new(),
            appearing: VecDeque::new(),
            rng: Rng::new(plan.options.seed.wrapping_mul(0x1_0001).wrapping_add(u64::from(me))),
            start: 0,
            stage: WorkerStage::Ready,
            dirty: Vec::new(),
            waiting: 0,
            wanted: None,
            next_unique: 0,
            next_sequence: usize::from(me),
            lines: vec![0; plan.options.tables.len()],
            next_account: 0,
            arriving: 0,
            tokens: hashbrown::HashMap::new(),
            refusal: None,
            ever_logged_in: false,
            second: 0,
            cpu: cpu_us(),
            wire: (0, 0),
            open: 0,
            most_sockets,
            request: Vec::new(),
            answer_bytes: 0,
            programs,
            plan,
            assignment,
        })
    }

    pub(super) fn owns(&self, index: u64) -> bool {
        self.owner(index) == self.assignment.worker
    }

    pub(super) fn owner(&self, index: u64) -> u16 {
        let owners = &self.assignment.owners;
        owners[(index % owners.len() as u64) as usize]
    }

    /// Runs the event loop until the end of the run.
    pub(super) fn run(&mut self, port: &mut dyn ControllerPort) -> Result<()> {
        if let Some(fd) = port.fd() {
            epoll::add(&self.epoll, fd, epoll::EventData::new_u64(PORT), epoll::EventFlags::IN)?;
        }
        epoll::add(&self.epoll, self.pool.fd(), epoll::EventData::new_u64(DERIVED), epoll::EventFlags::IN)?;
        let mut events = Vec::with_capacity(256);
        let mut global = 0_u64;
        loop {
            let now = now_us();
            self.run_due_events(now, &mut global);
            if self.on_second(now, port)? {
                return Ok(());
            }
            let until = self.next_at(now);
            // `wait` writes into the spare capacity.
            events.clear();
            let timeout = timespec(until.saturating_sub(now_us()));
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for sockets"),
            }
            let turn_start = now_us();
            let mut commands = false;
            for event in &events {
                match event.data.u64() {
                    PORT => commands = true,
                    DERIVED => self.derived(),
                    data => {
                        if let Some(tag) = SocketTag::unpack(data) {
                            self.event(tag, event.flags);
                        }
                    }
                }
            }
            if commands || port.fd().is_none() {
                for command in port.receive()? {
                    self.command(command);
                }
            }
            if !events.is_empty() {
                self.record.time(Timing::Turn, now_us() - turn_start);
            }
            if let Some(reason) = self.refusal.take() {
                port.send(WorkerReport::Refused(reason))?;
            }
        }
    }

    /// Starts users that are due to arrive and fires due timers.
    fn run_due_events(&mut self, now: u64, global: &mut u64) {
        if self.stage != WorkerStage::Running {
            return;
        }
        let elapsed = now - self.start;
        for _ in 0..BURST {
            self.make_room(*global);
            let Some(arrival) = self.arrivals.pop(elapsed) else { break };
            let mine = self.owns(*global);
            *global += 1;
            if mine {
                self.start_user(self.start + arrival.at, arrival.session, now);
            }
        }
        self.make_room(*global);
        for _ in 0..BURST {
            let Some((due, slot, generation)) = self.timers.pop(now) else { break };
            let user = &self.users[slot];
            if user.generation == generation && user.wait != WaitState::Free {
                self.record.time(Timing::Lateness, now_us().saturating_sub(due));
                self.timer_fired(slot, due);
                self.flush();
            }
        }
        if self.arrivals.awaits_users() && self.record.gauge(Gauge::Users) == 0 {
            self.arrivals.resume(elapsed);
        }
        self.end_of_run(elapsed);
    }

    /// Admits the next user if the phase's concurrency limit leaves room for it.
    fn make_room(&mut self, global: u64) {
        let Some(concurrency) = self.arrivals.concurrency() else { return };
        let workers = u32::try_from(self.assignment.clocks.len()).unwrap_or(u32::MAX).max(1);
        // Arrivals of other workers are skipped; each worker admits its share, and at least one.
        let share = concurrency.div_ceil(workers).max(1);
        self.arrivals.set_room(!self.owns(global) || self.arriving < share);
    }

    /// Starts draining when the plan is over.
    fn end_of_run(&mut self, elapsed: u64) {
        let options = &self.plan.options;
        let over = options.duration_ms.is_some_and(|ms| elapsed >= ms * 1_000)
            || self.arrivals.end().is_some_and(|end| match options.hold_ms {
                Some(hold) => elapsed >= end + hold * 1_000,
                None => elapsed >= end && self.record.gauge(Gauge::Users) == 0,
            });
        if over {
            self.stage = WorkerStage::Draining(now_us());
        }
    }

    fn next_at(&self, now: u64) -> u64 {
        let mut next = self.start + (u64::from(self.second) + 1) * 1_000_000;
        match self.stage {
            WorkerStage::Ready if self.start == 0 => next = now + 1_000_000,
            WorkerStage::Ready => next = self.start,
            WorkerStage::Running => {
                let arrival = self.arrivals.next_at().map(|at| self.start.saturating_add(at));
                next = next.min(arrival.unwrap_or(u64::MAX)).min(self.timers.next().unwrap_or(u64::MAX));
            }
            WorkerStage::Draining(_) => {}
            WorkerStage::Closing(since) => next = next.min(since + CLOSING).min(now + 50_000),
        }
        next
    }

    /// Does the work of each second and the phase transitions. Returns true when the run has ended.
    fn on_second(&mut self, now: u64, port: &mut dyn ControllerPort) -> Result<bool> {
        match self.stage {
            WorkerStage::Ready => {
                if self.start != 0 && now >= self.start {
                    self.stage = WorkerStage::Running;
                    self.cpu = cpu_us();
                }
                return Ok(false);
            }
            WorkerStage::Draining(since) if since != 0 => {
                port.send(WorkerReport::Draining)?;
                self.request_last_acknowledgements();
                self.stage = WorkerStage::Draining(0);
            }
            WorkerStage::Closing(since) if self.open == 0 || now >= since + CLOSING => {
                let mut report = self.last_report();
                for rooms in super::final_report::split_rooms(&mut report) {
                    port.send(WorkerReport::Rooms(rooms))?;
                }
                port.send(WorkerReport::Final(Box::new(report)))?;
                return Ok(true);
            }
            _ => {}
        }
        if now >= self.start + (u64::from(self.second) + 1) * 1_000_000 {
            for slot in self.timers.expired(self.second + 1) {
                self.response_timed_out(slot, now);
                self.flush();
            }
            while let Some(&(slot, arrived, since)) = self.appearing.front() {
                if now < since + 1_000_000 {
                    break;
                }
                self.appearing.pop_front();
                let user = &self.users[slot];
                // Not every server reflects the initial presence.
                if user.arrived == arrived && user.is(APPEARING) {
                    self.mark_available(slot);
                }
            }
            self.retry_joins(now);
            if self.plan.target.web.transport == StreamTransport::Bosh {
                self.sweep_sockets(now);
                self.flush();
            }
            let snapshot = self.snapshot();
            self.second = ((now - self.start) / 1_000_000) as u32;
            port.send(WorkerReport::Snapshot(Box::new(snapshot)))?;
        }
        Ok(false)
    }

    pub(super) fn snapshot(&mut self) -> crate::measure::WorkerSnapshot {
        let wire = self.scratch.wire();
        self.record.add(Counter::BytesOut, wire.sent - self.wire.0);
        self.record.add(Counter::BytesIn, wire.received - self.wire.1);
        self.wire = (wire.sent, wire.received);
        let mut snapshot = self.record.take(self.second);
        let cpu = cpu_us();
        snapshot.cpu_us = cpu - self.cpu;
        snapshot.keys_us = std::mem::take(&mut self.pool.cpu_us);
        self.cpu = cpu;
        snapshot.rss = crate::server_monitor::own_rss();
        snapshot.phase = self.arrivals.phase() as u16;
        snapshot.online = std::mem::take(&mut self.changes);
        snapshot
    }

    fn command(&mut self, command: WorkerCommand) {
        match command {
            WorkerCommand::Start { in_us, at_us } => {
                let mine = self.assignment.clocks.get(usize::from(self.assignment.worker));
                self.start = if mine == Some(&0) { at_us } else { now_us() + in_us };
            }
            WorkerCommand::Online(changes) => {
                for (user, online) in changes {
                    if !self.owns(u64::from(user)) {
                        self.online.set(user, online);
                    }
                }
            }
            WorkerCommand::Stop => match self.stage {
                // A run that has not begun has nothing to drain.
                WorkerStage::Ready => {
                    self.start = now_us();
                    self.stage = WorkerStage::Draining(now_us());
                }
                WorkerStage::Running => self.stage = WorkerStage::Draining(now_us()),
                _ => {}
            },
            WorkerCommand::Gone(worker) => {
                self.gone.push(worker);
                let owners = &self.assignment.owners;
                self.online.remove_if(|user| owners[user as usize % owners.len()] == worker);
            }
            WorkerCommand::Close => {
                if !matches!(self.stage, WorkerStage::Closing(_)) {
                    self.record_away();
                    self.stage = WorkerStage::Closing(now_us());
                    self.close_all();
                    // Closing thousands of streams takes a while; the peers' time begins afterwards.
                    self.stage = WorkerStage::Closing(now_us());
                }
            }
        }
    }

    /// Closes the stream of every user.
    fn close_all(&mut self) {
        for slot in self.users.indices() {
            let user = &self.users[slot];
            if user.wait == WaitState::Free || user.is(CLOSED) {
                continue;
            }
            if user.is(LOGGED_IN) {
                self.close_stream(slot);
                self.flush();
            } else {
                self.release_slot(slot);
            }
        }
    }

    /// Handles a completed login.
    pub(super) fn logged_in(&mut self, slot: UserSlot, now: u64) {
        // A new session is in no room.
        self.end_stays(slot);
        let used = self.protection(slot);
        if !std::mem::replace(&mut self.ever_logged_in, true) {
            let configured = self.security(slot).name();
            self.record.log(|| format!("first login: {used} (security {configured})"));
        }
        self.record.used(&used);
        let user = &mut self.users[slot];
        user.set(LOGGED_IN, true);
        if let Some(extra) = &mut user.extra
            && std::mem::take(&mut extra.failovers) > 0
        {
            extra.returned_at = now;
            self.record.add(Counter::SessionsReplaced, 1);
        }
        self.record.add(Counter::Logins, 1);
        self.record.adjust_gauge(Gauge::Online, 1);
        self.record.adjust_gauge(Gauge::Acceptable, i64::from(!user.is(SLOW)));
        if let Some(login) = &user.login
            && login.due != 0
            && !user.is(PAUSED)
        {
            let took = now - login.due;
            self.record.time(Timing::Login, took);
            self.record_acceptable(slot, took);
        }
    }

    /// Handles a failed login. The first one of a run ends the run, since the others would fail too.
    pub(super) fn login_failed(&mut self, slot: UserSlot, kind: &str, detail: &str) {
        let mut address = String::new();
        self.names.bare(self.users[slot].account, &mut address);
        let detail = &format!("{detail}{}", self.describe_attempt(slot, kind));
        self.record.error(kind);
        if self.users[slot].login.as_ref().is_some_and(|login| login.resuming) {
            // The user had logged in before, so a session is lost.
            self.record.add(Counter::SessionsLost, 1);
            self.record.error("sm:not-resumed");
            self.record.log(|| format!("the session of {address} was not resumed: {detail}"));
            if !self.start_over(slot, kind) {
                self.end_session(slot);
            }
            return;
        }
        if self.start_over(slot, kind) {
            return;
        }
        self.record.add(Counter::LoginErrors, 1);
        let step = match self.users[slot].wait {
            WaitState::Sasl => Counter::AuthenticateErrors,
            WaitState::Answer(_) => Counter::BindErrors,
            _ => Counter::InitiateErrors,
        };
        self.record.add(step, 1);
        // A slow server may report this only when the time of the run is up.
        let open = matches!(self.stage, WorkerStage::Running | WorkerStage::Draining(_));
        if !self.ever_logged_in && !self.plan.options.keep_going && open {
            self.refusal = Some(format!("the first login, of {address}, failed: {detail}"));
            if self.stage == WorkerStage::Running {
                self.stage = WorkerStage::Draining(now_us());
            }
        }
        self.record.log(|| format!("login of {address} failed: {detail}"));
        self.end_session(slot);
    }

    /// Records whether a response was acceptable.
    pub(super) fn record_acceptable(&mut self, slot: UserSlot, took_us: u64) {
        let good = took_us <= self.plan.options.acceptable_ms * 1_000;
        self.record.add(if good { Counter::Acceptable } else { Counter::Unacceptable }, 1);
        let user = &mut self.users[slot];
        if user.is(SLOW) == good {
            user.set(SLOW, !good);
            if user.is(LOGGED_IN) {
                self.record.adjust_gauge(Gauge::Acceptable, if good { 1 } else { -1 });
            }
        }
    }

    /// Marks `slot` as available: destinations may choose it.
    pub(super) fn mark_available(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        user.set(APPEARING, false);
        if user.account == NOBODY || user.is(AVAILABLE) {
            return;
        }
        user.set(AVAILABLE, true);
        user.available_at = now_us();
        let account = user.account;
        self.seen[account as usize] = true;
        if self.online.set(account, true) {
            self.changes.push((account, true));
        }
    }

    /// Marks `slot` as no longer available.
    pub(super) fn mark_unavailable(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        user.set(APPEARING, false);
        if !user.is(AVAILABLE) {
            return;
        }
        user.set(AVAILABLE, false);
        let account = user.account;
        if !matches!(self.stage, WorkerStage::Closing(_)) {
            self.left[account as usize] = true;
        }
        if self.online.set(account, false) {
            self.changes.push((account, false));
        }
    }
}

fn timespec(us: u64) -> Timespec {
    Timespec { tv_sec: (us / 1_000_000) as i64, tv_nsec: (us % 1_000_000 * 1_000) as i64 }
}

fn tls_client(plan: &LoadPlan) -> Result<SharedTlsClient> {
    let tls = &plan.target.tls;
    let identity = tls.certificate_pem.as_ref().map(|certificates| ClientCertificatePem {
        certificates: certificates.clone().into_bytes(),
        key: tls.key_pem.clone().unwrap_or_default().into_bytes(),
    });
    let trust = match &tls.ca_pem {
        Some(pem) => ServerTrust::Pem(pem.clone().into_bytes()),
        None => ServerTrust::Any,
    };
    let options = TlsOptions { trust, identity, resumption: tls.resume, tls12: true, tls13: !tls.only_tls12 };
    SharedTlsClient::new(&options).context("cannot set up TLS")
}
