//! A user's connection: connect, read, split into elements, write, close. [`super::bosh`] and [`super::websocket`] hold
//! what differs for these transports.
//!
//! Long because a connection, its stream and the user's slot end together, in whichever of them the end begins.
//!
//! # Pitfalls
//!
//! A user can end in the middle of its own input (an error in an element ends it), so the slot is looked up again after
//! every element.

use std::io;
use std::net::SocketAddr;

use rustix::event::epoll::{self, EventFlags};
use xml::{Limits, ScanOutcome};

use super::bytecode::Instruction;
use super::event_loop::{WorkerEngine, WorkerStage};
use super::slot::{SocketTag, UserSlot};
use super::virtual_user::{
    ARRIVING, AVAILABLE, BLOCKED, CLOSED, CONNECTED, DIRTY, LOGGED_IN, MANAGEABLE, NOBODY, SLOW, UPGRADED,
    VirtualUser, WaitState,
};
use crate::clock::now_us;
use crate::measure::{Counter, Gauge, Timing};
use crate::plan::{PlanStep, StreamTransport, TransportSecurity};
use crate::socket::{ReadEnd, Socket, SocketOptions};

/// Limits of one element: a roster of thousands of contacts is a single one.
pub(super) const LIMITS: Limits = Limits { element_bytes: 17 << 20, ..Limits::CEILING };
/// Unsent bytes of a socket above which further due sends are skipped.
pub(super) const FULL: usize = 64 << 10;
/// Time that a peer has to end its stream after ours, in seconds.
const CLOSE_TIMEOUT_SECONDS: u32 = 10;

impl WorkerEngine<'_> {
    /// Starts a user that was due to arrive at `due`.
    pub(super) fn start_user(&mut self, due: u64, session: u16, now: u64) {
        self.record.time(Timing::Lateness, now.saturating_sub(due));
        self.record.add(Counter::UsersStarted, 1);
        let Some(account) = self.unused.pop_front() else {
            self.record.error("no-free-user");
            return;
        };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.users.push(VirtualUser::new()),
        };
        self.slots[account as usize] = Some(slot);
        self.record.adjust_gauge(Gauge::Users, 1);
        let user = &mut self.users[slot];
        user.account = account;
        user.target = self.spread.of(account);
        user.session = session;
        user.arrived = due;
        user.due = due;
        user.pc = 0;
        if self.arrivals.concurrency().is_some() {
            user.set(ARRIVING, true);
            self.arriving += 1;
        }
        self.advance(slot);
        self.flush();
    }

    /// Starts to connect. Measurements count from the user's `due`.
    pub(super) fn connect(&mut self, slot: UserSlot) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        if self.plan.target.web.transport == StreamTransport::Bosh {
            return self.connect_bosh(slot, sequence);
        }
        match self.open_socket(sequence, SocketTag::of(slot)) {
            Ok(socket) => {
                let user = &mut self.users[slot];
                user.socket = Some(socket);
                user.wait = WaitState::Connected;
                user.flags &= !(CONNECTED | BLOCKED | CLOSED | UPGRADED);
                user.framed = 0;
                user.scanner = xml::Scanner::new();
                user.set(BLOCKED, true);
                self.set_response_timeout(slot, self.plan.options.connect_timeout_ms);
            }
            Err(error) => self.connect_failed(slot, &error),
        }
    }

    /// Starts to connect a socket. Its events carry `tag`.
    pub(super) fn open_socket(&mut self, sequence: usize, tag: SocketTag) -> io::Result<Socket> {
        let user = &self.users[tag.slot];
        let to = match user.extra.as_ref().and_then(|extra| extra.target.as_deref()) {
            Some((addresses, _)) => addresses[sequence % addresses.len()],
            None => self.plan.target.addresses[usize::from(user.target)],
        };
        let sources = if self.assignment.sources.is_empty() {
            &self.plan.target.sources
        } else {
            &self.assignment.sources
        };
        // Consecutive users get different sources.
        let source = (!sources.is_empty()).then(|| SocketAddr::new(sources[sequence % sources.len()], 0));
        let options = SocketOptions {
            receive_buffer: self.plan.options.receive_buffer.map(|bytes| bytes as usize),
            send_buffer: self.plan.options.send_buffer.map(|bytes| bytes as usize),
        };
        let socket = Socket::connect(to, source, &options)?;
        let data = epoll::EventData::new_u64(tag.pack());
        epoll::add(&self.epoll, &socket, data, EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP)?;
        self.open += 1;
        Ok(socket)
    }

    pub(super) fn connect_failed(&mut self, slot: UserSlot, error: &io::Error) {
        self.drop_socket(slot);
        self.record.add(Counter::ConnectErrors, 1);
        let kind = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => "connect:no-files-left",
            Some(rustix::io::Errno::ADDRNOTAVAIL | rustix::io::Errno::ADDRINUSE) => "connect:no-ports-left",
            Some(rustix::io::Errno::CONNREFUSED) => "connect:refused",
            Some(rustix::io::Errno::TIMEDOUT) => "connect:timeout",
            Some(rustix::io::Errno::CONNRESET) => "connect:reset",
            _ => "connect:other",
        };
        self.record.error(kind);
        let retries = self.plan.options.retries;
        let login = self.users[slot].login();
        login.attempts += 1;
        if login.attempts <= retries {
            self.sleep_from(slot, now_us(), self.plan.options.retry_ms * 1_000, WaitState::Retry);
            return;
        }
        self.login_failed(slot, "login:connect", &format!("cannot connect: {error}"));
    }

    /// Handles a socket event.
    pub(super) fn event(&mut self, tag: SocketTag, flags: EventFlags) {
        let slot = tag.slot;
        let Some(user) = self.users.get(slot) else { return };
        if user.bosh.is_some() {
            self.line_event(tag, flags);
            return self.flush();
        }
        let Some(socket) = &user.socket else { return };
        if !user.is(CONNECTED) {
            if let Err(error) = socket.connect_result() {
                self.connect_failed(slot, &error);
                return;
            }
            if !flags.contains(EventFlags::OUT) {
                return;
            }
            self.connected(slot);
        } else if flags.contains(EventFlags::OUT) {
            self.write(slot);
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            self.read(slot);
        }
        self.flush();
    }

    fn connected(&mut self, slot: UserSlot) {
        let now = now_us();
        self.record.add(Counter::Connections, 1);
        self.record.adjust_gauge(Gauge::Connected, 1);
        let user = &mut self.users[slot];
        user.set(CONNECTED, true);
        let took = now - user.due;
        self.record.time(Timing::Connect, took);
        self.unblock(slot);
        if self.security(slot) == TransportSecurity::Direct {
            self.start_tls(slot, true);
        } else {
            self.begin_stream(slot);
        }
    }

    /// Starts the stream on an established connection, after the upgrade on WebSocket.
    fn begin_stream(&mut self, slot: UserSlot) {
        if self.plan.target.web.transport == StreamTransport::WebSocket {
            self.upgrade(slot);
        } else {
            self.open_stream(slot);
        }
    }

    /// ALPN protocols for direct TLS.
    pub(super) fn alpn(&self) -> &'static [u8] {
        if self.plan.target.web.transport.is_web() { b"http/1.1" } else { b"xmpp-client" }
    }

    /// Stops requesting EPOLLOUT.
    fn unblock(&mut self, slot: UserSlot) {
        self.watch(slot, false);
    }

    /// Requests EPOLLOUT or stops requesting it.
    fn watch(&mut self, slot: UserSlot, blocked: bool) {
        let user = &mut self.users[slot];
        if user.is(BLOCKED) == blocked {
            return;
        }
        user.set(BLOCKED, blocked);
        let out = if blocked { EventFlags::OUT } else { EventFlags::empty() };
        if let Some(socket) = &user.socket {
            let data = epoll::EventData::new_u64(SocketTag::of(slot).pack());
            // It fails only for a descriptor that is not in the set, and this one is.
            let _ = epoll::modify(&self.epoll, socket, data, EventFlags::IN | EventFlags::RDHUP | out);
        }
    }

    /// Starts TLS; reads drive the handshake from here.
    pub(super) fn start_tls(&mut self, slot: UserSlot, direct: bool) {
        let alpn = direct.then(|| self.alpn());
        let user = &mut self.users[slot];
        user.wait = WaitState::Handshake;
        let (Some(client), Some(socket)) = (&self.tls, &mut user.socket) else {
            self.login_failed(slot, "login:tls", "TLS is not set up");
            return;
        };
        let begun = socket.start_tls(client, &self.plan.target.domain, alpn, &mut self.scratch);
        user.login().since = now_us();
        match begun {
            Ok(written) => self.watch(slot, written.blocked),
            Err(error) => self.login_failed(slot, "login:tls", &format!("cannot start TLS: {error}")),
        }
    }

    fn read(&mut self, slot: UserSlot) {
        loop {
            let user = &mut self.users[slot];
            let Some(socket) = &mut user.socket else { return };
            let epoch = user.epoch;
            // An incomplete element grows in place: copying it for each read would take quadratic time.
            let grows = !user.partial.is_empty();
            let mut input = std::mem::take(if grows { &mut user.partial } else { &mut self.input });
            let result = socket.read(&mut self.scratch, |data| input.extend_from_slice(data));
            let established = result.as_ref().is_ok_and(|read| read.established);
            if let Ok(read) = &result
                && (read.blocked || established)
            {
                self.watch(slot, read.blocked);
            }
            if established {
                self.handshake_done(slot);
            }
            let web = self.plan.target.web.transport == StreamTransport::WebSocket;
            let left = if web { self.frames(slot, &mut input) } else { self.elements(slot, &input) };
            let user = &mut self.users[slot];
            let same = user.socket.is_some() && user.epoch == epoch;
            if same && left < input.len() {
                if grows && left == 0 {
                    user.partial = std::mem::take(&mut input);
                } else {
                    user.partial = input[left..].to_vec();
                }
            }
            // The large buffer of a roster of thousands must not stay allocated.
            if !grows && input.capacity() <= 1 << 20 {
                input.clear();
                self.input = input;
            }
            // The user may be gone or have another connection.
            if !same {
                return;
            }
            match result.map(|read| read.end) {
                Ok(ReadEnd::Blocked) => return,
                Ok(ReadEnd::More) => {}
                Ok(ReadEnd::Closed | ReadEnd::Cut) => return self.connection_closed(slot, None),
                Err(error) => return self.connection_closed(slot, Some(&error)),
            }
        }
    }

    fn handshake_done(&mut self, slot: UserSlot) {
        let now = now_us();
        let user = &mut self.users[slot];
        if user.wait != WaitState::Handshake {
            return;
        }
        let took = now - user.login().since;
        self.record.time(Timing::Tls, took);
        self.begin_stream(slot);
    }

    /// Handles the complete elements of `input`; returns where the rest begins.
    fn elements(&mut self, slot: UserSlot, input: &[u8]) -> usize {
        let mut at = 0;
        let epoch = self.users[slot].epoch;
        while at < input.len() {
            let user = &mut self.users[slot];
            if user.socket.is_none() || user.epoch != epoch {
                return input.len();
            }
            match user.scanner.scan(&input[at..], &LIMITS) {
                Ok(ScanOutcome::More { skip }) => return at + skip,
                Ok(ScanOutcome::Open { start, end }) => {
                    let tag = &input[at + start..at + end];
                    at += end;
                    self.opened(slot, tag);
                }
                Ok(ScanOutcome::Element { start, end }) => {
                    let element = &input[at + start..at + end];
                    at += end;
                    self.answer_bytes = element.len();
                    self.element(slot, element);
                    // RFC 6120, section 5.4.3.3: bytes after <proceed/> were not protected.
                    if self.users[slot].wait == WaitState::Handshake && at < input.len() {
                        self.login_failed(
                            slot,
                            "login:tls",
                            "the server sent unencrypted data after <proceed/>",
                        );
                        return input.len();
                    }
                }
                Ok(ScanOutcome::Close { .. }) => {
                    self.connection_closed(slot, None);
                    return input.len();
                }
                Err(error) => {
                    self.invalid_xml(slot, &error);
                    return input.len();
                }
            }
        }
        at
    }

    /// Handles input that is not a valid XML stream.
    pub(super) fn invalid_xml(&mut self, slot: UserSlot, error: &xml::Error) {
        self.record.error("garbled");
        self.record.log(|| format!("the server sent invalid XMPP: {error}"));
        self.connection_closed(slot, None);
    }

    /// Marks `slot` for flushing because its `out` is not empty.
    pub(super) fn mark_dirty(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        if !user.is(DIRTY) {
            user.set(DIRTY, true);
            self.dirty.push(slot);
        }
    }

    /// Writes the pending output of all users.
    pub(super) fn flush(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            let user = &mut self.users[slot];
            user.set(DIRTY, false);
            if user.bosh.is_some() {
                self.flush_bosh(slot);
            } else if !user.is(BLOCKED) {
                self.write(slot);
            }
        }
    }

    fn write(&mut self, slot: UserSlot) {
        if self.users[slot].is(UPGRADED) {
            self.frame(slot);
        }
        let user = &mut self.users[slot];
        let whole = if user.is(UPGRADED) { user.framed as usize } else { user.out.len() };
        let Some(socket) = &mut user.socket else { return };
        match socket.write(&user.out[..whole], &mut self.scratch) {
            Ok(written) => {
                user.framed = user.framed.saturating_sub(written.taken as u32);
                let blocked = written.blocked || written.taken < whole;
                if written.taken >= user.out.len() {
                    // The buffer goes back to the allocator: an idle user has none.
                    user.out = Vec::new();
                } else {
                    user.out.drain(..written.taken);
                }
                self.watch(slot, blocked);
            }
            Err(error) => self.connection_closed(slot, Some(&error)),
        }
    }

    /// Handles a lost or closed connection.
    pub(super) fn connection_closed(&mut self, slot: UserSlot, error: Option<&io::Error>) {
        let user = &mut self.users[slot];
        if !user.is_open() {
            return;
        }
        if user.is(CLOSED) {
            let wait = user.wait;
            self.drop_socket(slot);
            // Either the session is over, or it continues with another connection.
            match wait {
                WaitState::Closing => self.release_slot(slot),
                WaitState::Parting => self.stream_closed(slot),
                _ => {}
            }
            return;
        }
        let reason = error.map_or_else(|| "the server closed the connection".to_owned(), ToString::to_string);
        if !user.is(LOGGED_IN) {
            let doing = match user.wait {
                WaitState::Handshake => "login:tls",
                WaitState::Sasl => "login:authentication",
                _ => "login:closed",
            };
            self.login_failed(slot, doing, &reason);
            return;
        }
        if self.resumable(slot) {
            self.start_resumption(slot);
            return;
        }
        self.record.add(Counter::SessionsLost, 1);
        let kind = if error.is_some() { "lost:reset" } else { "lost:closed" };
        self.record.error(kind);
        if !self.start_over(slot, kind) {
            self.end_session(slot);
        }
    }

    /// Closes the socket without ending the stream.
    pub(super) fn drop_socket(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        if !user.is_open() {
            return;
        }
        if let Some(socket) = user.socket.take() {
            self.open -= 1;
            drop(socket);
            if user.is(CONNECTED) {
                self.record.adjust_gauge(Gauge::Connected, -1);
            }
        }
        self.drop_bosh(slot);
        self.offline(slot);
        let user = &mut self.users[slot];
        user.epoch = user.epoch.wrapping_add(1);
        user.out = Vec::new();
        user.partial = Vec::new();
        user.framed = 0;
        user.flags &= !(BLOCKED | CONNECTED | MANAGEABLE | UPGRADED);
        self.timers.limit(slot, 0);
    }

    /// Records the end of the stream of `slot`.
    pub(super) fn offline(&mut self, slot: UserSlot) {
        // A stream that can be resumed leaves no room. At the end of the run, copies may still arrive.
        if !matches!(self.stage, WorkerStage::Closing(_)) && !self.resumable(slot) {
            self.end_stays(slot);
        }
        let user = &mut self.users[slot];
        if user.is(LOGGED_IN) {
            user.set(LOGGED_IN, false);
            let acceptable = !user.is(SLOW);
            self.record.adjust_gauge(Gauge::Online, -1);
            self.record.adjust_gauge(Gauge::Acceptable, -i64::from(acceptable));
        }
        if user.is(AVAILABLE) || user.is(super::virtual_user::APPEARING) {
            self.mark_unavailable(slot);
        }
    }

    /// Closes the stream gracefully. The session ends when the peer has closed it too.
    pub(super) fn close_stream(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        // A BOSH session that is not created yet cannot be terminated.
        let unborn = user.bosh.as_ref().is_some_and(|bosh| !bosh.is_created());
        if !user.is_open() || !user.is(CONNECTED) || unborn {
            // The plan closed the stream before.
            user.set(CLOSED, true);
            self.release_slot(slot);
            return;
        }
        user.wait = WaitState::Closing;
        user.generation = user.generation.wrapping_add(1);
        self.write_stream_end(slot);
        self.set_response_timeout(slot, u64::from(CLOSE_TIMEOUT_SECONDS) * 1_000);
    }

    /// Writes the end of the stream.
    pub(super) fn write_stream_end(&mut self, slot: UserSlot) {
        if !matches!(self.stage, WorkerStage::Closing(_)) {
            self.end_stays(slot);
        }
        self.offline(slot);
        let user = &mut self.users[slot];
        user.set(CLOSED, true);
        match (&mut user.bosh, self.plan.target.web.transport) {
            (Some(bosh), _) => bosh.wants_end(),
            (None, StreamTransport::WebSocket) => user.out.extend_from_slice(super::websocket::CLOSE),
            (None, _) => user.out.extend_from_slice(b"</stream:stream>"),
        }
        self.mark_dirty(slot);
    }

    /// Handles a stream that both sides have closed while the session continues.
    fn stream_closed(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        user.set(CLOSED, false);
        user.login = None;
        self.resume_program(slot, now_us());
    }

    /// Ends the session immediately, whatever state its connection is in.
    pub(super) fn end_session(&mut self, slot: UserSlot) {
        self.drop_socket(slot);
        self.release_slot(slot);
    }

    /// Frees the slot.
    pub(super) fn release_slot(&mut self, slot: UserSlot) {
        if self.users[slot].wait == WaitState::Free {
            return;
        }
        self.drop_socket(slot);
        self.record_not_resent(slot);
        self.end_stays(slot);
        let user = &mut self.users[slot];
        if user.wait == WaitState::Barrier {
            self.waiting -= 1;
        }
        let (account, arrived, generation, epoch) = (user.account, user.arrived, user.generation, user.epoch);
        let finished = user.is(CLOSED);
        self.arriving -= u32::from(user.is(ARRIVING));
        *user = VirtualUser::new();
        user.generation = generation.wrapping_add(1);
        user.epoch = epoch.wrapping_add(1);
        if account != NOBODY {
            self.slots[account as usize] = None;
            self.unused.push_back(account);
        }
        self.timers.limit(slot, 0);
        self.free.push(slot);
        self.record.adjust_gauge(Gauge::Users, -1);
        if finished {
            self.record.add(Counter::UsersFinished, 1);
            self.record.time(Timing::Session, now_us().saturating_sub(arrived));
        }
        self.pass_barrier();
    }

    /// Records that a user of a phase with a concurrency limit has reached its first pause.
    pub(super) fn settled(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        if user.is(ARRIVING) {
            user.set(ARRIVING, false);
            self.arriving -= 1;
        }
    }

    /// Requires a response within `ms`.
    pub(super) fn set_response_timeout(&mut self, slot: UserSlot, ms: u64) {
        let elapsed = now_us().saturating_sub(self.start) / 1_000;
        // Rounded up, and never 0, which means none.
        self.timers.limit(slot, ((elapsed + ms) / 1_000 + 1) as u32);
    }

    /// Handles a response timeout.
    pub(super) fn response_timed_out(&mut self, slot: UserSlot, now: u64) {
        let user = &self.users[slot];
        match user.wait {
            WaitState::Free
            | WaitState::Pause
            | WaitState::Retry
            | WaitState::Meanwhile
            | WaitState::Bounce
            | WaitState::End => {}
            WaitState::Closing => self.release_slot(slot),
            WaitState::Parting => {
                self.drop_socket(slot);
                self.stream_closed(slot);
            }
            WaitState::Connected => {
                self.connect_failed(
                    slot,
                    &io::Error::from_raw_os_error(rustix::io::Errno::TIMEDOUT.raw_os_error()),
                );
            }
            _ if !user.is(LOGGED_IN) => {
                self.record.add(Counter::Timeouts, 1);
                self.login_failed(slot, "login:timeout", "the server did not respond in time");
            }
            _ => {
                self.record.add(Counter::Timeouts, 1);
                self.record.error("timeout");
                match self.awaited_instruction(slot) {
                    Some(Instruction::Step(PlanStep::Roster)) => self.record.add(Counter::RosterErrors, 1),
                    Some(Instruction::Step(PlanStep::OpenSession)) => {
                        self.record.add(Counter::SessionErrors, 1)
                    }
                    _ => {}
                }
                if self.users[slot].wait == WaitState::Rooms {
                    self.rooms_timed_out(slot);
                }
                if self.users[slot].wait == WaitState::Nodes {
                    self.nodes_timed_out(slot);
                }
                let limit = self.plan.options.answer_timeout_ms * 1_000;
                self.record_acceptable(slot, limit.max(self.plan.options.acceptable_ms * 1_000 + 1));
                if self.users[slot].wait == WaitState::Barrier {
                    // Missing users will not come: release all at once, not each at its own limit.
                    self.wanted = Some(0);
                    return self.pass_barrier();
                }
                self.resume_program(slot, now);
            }
        }
    }

    /// Whether users may act: the run is neither draining nor closing.
    pub(super) fn may_act(&self) -> bool {
        self.stage == WorkerStage::Running
    }
}
