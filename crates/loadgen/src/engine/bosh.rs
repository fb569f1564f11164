//! A user's stream over BOSH (XEP-0124, version 1.11; XEP-0206, version 1.4): at most two sockets, one request held by
//! the server.
//!
//! Output waits in the user's `out` as XML and goes with the next request. A request is made when there is output, or
//! when the server holds none; an idle user thus has one request pending at the server and no buffer. Two simultaneous
//! requests are needed only to send while one is held; the server then answers the older one, and its socket is idle
//! until the next time.
//!
//! A request whose connection breaks is sent again on a new one with the same number (XEP-0124, section 14.3), and
//! answers are handled in the order of their numbers, whichever socket is read first.
//!
//! Not implemented: polling sessions (`hold` 0), `pause`, keys, acknowledgements.
//!
//! Long because requests, answers and the two sockets are one state.
//!
//! # Pitfalls
//!
//! A user can end while its answer is handled, so it is looked up again after every element.

use std::io;

use rustix::event::epoll::{self, EventFlags};

use super::event_loop::WorkerEngine;
use super::slot::{SocketTag, UserSlot};
use super::virtual_user::{BLOCKED, CLOSED, CONNECTED, LOGGED_IN, WaitState};
use crate::clock::now_us;
use crate::measure::{Counter, Gauge, Timing};
use crate::plan::TransportSecurity;
use crate::socket::{ReadEnd, Socket};
use crate::web::bosh::{self, BodyKind, BodySession, SessionEnd};
use crate::web::{http, qualify};

/// Consecutive broken connections after which the session counts as lost.
const MAX_CONSECUTIVE_FAILURES: u8 = 3;

/// A BOSH session.
#[derive(Default)]
pub(crate) struct BoshConnection {
    /// Session id; empty until the server has assigned one.
    sid: Box<str>,
    /// Request id (`rid`) of the next request.
    next: u64,
    sockets: [BoshSocket; 2],
    /// Number of the connection, which selects its target and source addresses.
    sequence: usize,
    /// Maximum number of simultaneous requests.
    requests: u8,
    /// Consecutive broken connections.
    failures: u8,
    /// Purpose of the next request.
    wanted: BodyKind,
    /// Termination has been requested: nothing more is sent.
    terminated: bool,
}

/// One of the two sockets and its request.
#[derive(Default)]
struct BoshSocket {
    socket: Option<Socket>,
    /// Request bytes that the kernel did not accept.
    out: Vec<u8>,
    /// An answer that is incomplete, or waits for an older one.
    input: Vec<u8>,
    /// Stanzas of the request, kept until it is answered.
    stanzas: Box<[u8]>,
    /// Request id (`rid`); 0 if there is no request.
    rid: u64,
    /// Second of the run since which the socket has had, or not had, a request.
    since: u32,
    /// Socket counter: prevents an event of an earlier socket from being taken for this one's.
    generation: u16,
    kind: BodyKind,
    connected: bool,
    /// The socket can carry requests: connected, and secured if required.
    ready: bool,
    blocked: bool,
    /// `input` holds the complete answer.
    answered: bool,
}

const _: () = assert!(size_of::<BoshConnection>() <= 272);

impl BoshConnection {
    /// Whether the server has created the session.
    pub(crate) fn is_created(&self) -> bool {
        !self.sid.is_empty()
    }

    /// TLS parameters of one of the connections.
    pub(super) fn negotiated_tls(&self) -> Option<crate::socket::NegotiatedTls> {
        self.sockets.iter().find_map(|bosh_socket| bosh_socket.socket.as_ref()?.negotiated_tls())
    }

    /// Requests a stream start or restart.
    pub(super) fn wants_stream(&mut self) {
        self.wanted = if self.is_created() { BodyKind::Restart } else { BodyKind::Create };
    }

    /// Requests the end of the session.
    pub(super) fn wants_end(&mut self) {
        self.wanted = BodyKind::Terminate;
    }

    fn pending_requests(&self) -> usize {
        self.sockets.iter().filter(|bosh_socket| bosh_socket.rid != 0).count()
    }

    /// Whether a request should be made now; `empty` means that there are no stanzas.
    fn sends(&self, empty: bool) -> bool {
        let under_way = self.pending_requests();
        if self.terminated || under_way >= usize::from(self.requests).min(self.sockets.len()) {
            return false;
        }
        match self.wanted {
            BodyKind::Create => under_way == 0,
            BodyKind::Restart | BodyKind::Terminate => self.is_created(),
            BodyKind::Plain => self.is_created() && (!empty || under_way == 0),
        }
    }

    /// Socket for the next request: a ready one, else one that is connecting, else an unused slot.
    fn free_socket(&self) -> Option<usize> {
        let rank = |bosh_socket: &BoshSocket| match (&bosh_socket.socket, bosh_socket.ready) {
            (Some(_), true) => 0,
            (Some(_), false) => 1,
            (None, _) => 2,
        };
        (0..self.sockets.len())
            .filter(|at| self.sockets[*at].rid == 0)
            .min_by_key(|at| rank(&self.sockets[*at]))
    }
}

impl WorkerEngine<'_> {
    fn bosh(&mut self, slot: UserSlot) -> Option<&mut BoshConnection> {
        self.users[slot].bosh.as_deref_mut()
    }

    fn bosh_socket(&mut self, slot: UserSlot, index: usize) -> Option<&mut BoshSocket> {
        self.bosh(slot)?.sockets.get_mut(index)
    }

    fn second(&self) -> u32 {
        (now_us().saturating_sub(self.start) / 1_000_000) as u32
    }

    /// Starts a session with its first connection.
    pub(super) fn connect_bosh(&mut self, slot: UserSlot, sequence: usize) {
        // The initial `rid` is random and stays far below 2^53 (XEP-0124, section 7).
        let next = 1 + (u64::from(self.rng.below(u32::MAX)) << 8);
        let user = &mut self.users[slot];
        user.bosh =
            Some(Box::new(BoshConnection { next, sequence, requests: 1, ..BoshConnection::default() }));
        user.wait = WaitState::Connected;
        user.flags &= !(CONNECTED | BLOCKED | CLOSED);
        user.scope = xml::NamespaceContext::client();
        match self.open_line(slot, 0) {
            Ok(()) => self.set_response_timeout(slot, self.plan.options.connect_timeout_ms),
            Err(error) => self.connect_failed(slot, &error),
        }
    }

    fn open_line(&mut self, slot: UserSlot, index: usize) -> io::Result<()> {
        let Some(bosh) = self.bosh(slot) else { return Ok(()) };
        let sequence = bosh.sequence;
        let Some(bosh_socket) = bosh.sockets.get_mut(index) else { return Ok(()) };
        bosh_socket.generation = bosh_socket.generation.wrapping_add(1);
        let tag = SocketTag { slot, index, generation: bosh_socket.generation };
        let socket = self.open_socket(sequence, tag)?;
        if let Some(bosh_socket) = self.bosh_socket(slot, index) {
            bosh_socket.socket = Some(socket);
            (bosh_socket.connected, bosh_socket.ready, bosh_socket.blocked) = (false, false, true);
        }
        Ok(())
    }

    /// Closes a socket; its request, if any, is kept.
    fn close_line(&mut self, slot: UserSlot, index: usize) {
        let Some(bosh_socket) = self.bosh_socket(slot, index) else { return };
        if !bosh_socket.answered {
            bosh_socket.input = Vec::new();
        }
        bosh_socket.out = Vec::new();
        bosh_socket.ready = false;
        let connected = std::mem::take(&mut bosh_socket.connected);
        if bosh_socket.socket.take().is_some() {
            self.open -= 1;
            self.record.adjust_gauge(Gauge::Connected, -i64::from(connected));
        }
    }

    /// Drops the session and its sockets.
    pub(super) fn drop_bosh(&mut self, slot: UserSlot) {
        if self.users[slot].bosh.is_some() {
            self.close_line(slot, 0);
            self.close_line(slot, 1);
            self.users[slot].bosh = None;
        }
    }

    /// Handles an event on a socket.
    pub(super) fn line_event(&mut self, tag: SocketTag, flags: EventFlags) {
        let (slot, index) = (tag.slot, tag.index);
        let Some(bosh_socket) = self.bosh_socket(slot, index) else { return };
        if bosh_socket.generation != tag.generation {
            return;
        }
        let Some(socket) = &bosh_socket.socket else { return };
        if !bosh_socket.connected {
            if let Err(error) = socket.connect_result() {
                return self.socket_broken(slot, index, Some(&error));
            }
            if !flags.contains(EventFlags::OUT) {
                return;
            }
            self.line_connected(slot, index);
        } else if flags.contains(EventFlags::OUT) {
            self.write_line(slot, index);
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            self.read_line(slot, index);
        }
    }

    fn line_connected(&mut self, slot: UserSlot, index: usize) {
        let now = now_us();
        self.record.add(Counter::Connections, 1);
        self.record.adjust_gauge(Gauge::Connected, 1);
        let secure = self.security(slot) == TransportSecurity::Direct;
        let alpn = self.alpn();
        let Some(bosh_socket) = self.bosh_socket(slot, index) else { return };
        bosh_socket.connected = true;
        self.watch_socket(slot, index, false);
        let user = &mut self.users[slot];
        if !user.is(CONNECTED) {
            user.set(CONNECTED, true);
            let took = now.saturating_sub(user.due);
            self.record.time(Timing::Connect, took);
        }
        if !secure {
            return self.socket_ready(slot, index);
        }
        let user = &mut self.users[slot];
        if user.wait == WaitState::Connected {
            user.wait = WaitState::Handshake;
            user.login().since = now;
        }
        let Some(bosh_socket) = user.bosh.as_mut().and_then(|bosh| bosh.sockets.get_mut(index)) else {
            return;
        };
        let (Some(client), Some(socket)) = (&self.tls, &mut bosh_socket.socket) else { return };
        match socket.start_tls(client, &self.plan.target.domain, Some(alpn), &mut self.scratch) {
            Ok(written) => self.watch_socket(slot, index, written.blocked),
            Err(error) => self.socket_broken(slot, index, Some(&error)),
        }
    }

    /// Marks a socket as ready for requests.
    fn socket_ready(&mut self, slot: UserSlot, index: usize) {
        let Some(bosh_socket) = self.bosh_socket(slot, index) else { return };
        bosh_socket.ready = true;
        if bosh_socket.rid != 0 {
            return self.send_on_socket(slot, index);
        }
        let user = &mut self.users[slot];
        match user.wait {
            WaitState::Handshake => {
                let took = now_us() - user.login().since;
                self.record.time(Timing::Tls, took);
                self.open_stream(slot);
            }
            WaitState::Connected => self.open_stream(slot),
            _ => {}
        }
    }

    /// Requests EPOLLOUT or stops requesting it.
    fn watch_socket(&mut self, slot: UserSlot, index: usize, blocked: bool) {
        let Some(bosh_socket) = self.users[slot].bosh.as_mut().and_then(|bosh| bosh.sockets.get_mut(index))
        else {
            return;
        };
        if bosh_socket.blocked == blocked {
            return;
        }
        bosh_socket.blocked = blocked;
        let out = if blocked { EventFlags::OUT } else { EventFlags::empty() };
        if let Some(socket) = &bosh_socket.socket {
            let tag = SocketTag { slot, index, generation: bosh_socket.generation };
            let data = epoll::EventData::new_u64(tag.pack());
            // It fails only for a descriptor that is not in the set, and this one is.
            let _ = epoll::modify(&self.epoll, socket, data, EventFlags::IN | EventFlags::RDHUP | out);
        }
    }

    /// Makes a request if one is due.
    pub(super) fn flush_bosh(&mut self, slot: UserSlot) {
        let second = self.second();
        let user = &mut self.users[slot];
        let Some(bosh) = user.bosh.as_deref_mut() else { return };
        if !bosh.sends(user.out.is_empty()) {
            return;
        }
        let Some(index) = bosh.free_socket() else { return };
        let mut stanzas = std::mem::take(&mut self.request);
        stanzas.clear();
        if matches!(bosh.wanted, BodyKind::Plain | BodyKind::Terminate) && !user.out.is_empty() {
            let taken = qualify::append(&user.out, &mut stanzas);
            user.out = user.out.get(taken..).unwrap_or_default().to_vec();
        }
        let bosh_socket = &mut bosh.sockets[index];
        bosh_socket.stanzas = stanzas.as_slice().into();
        self.request = stanzas;
        bosh_socket.rid = bosh.next;
        bosh_socket.since = second;
        bosh_socket.kind = std::mem::take(&mut bosh.wanted);
        bosh.next += 1;
        bosh.terminated = bosh_socket.kind == BodyKind::Terminate;
        let polls = bosh_socket.kind == BodyKind::Plain && bosh_socket.stanzas.is_empty();
        let (ready, connecting) = (bosh_socket.ready, bosh_socket.socket.is_some());
        self.record.add(Counter::HttpRequests, 1);
        self.record.add(Counter::HttpPolls, u64::from(polls));
        if ready {
            self.send_on_socket(slot, index);
        } else if !connecting && let Err(error) = self.open_line(slot, index) {
            self.socket_broken(slot, index, Some(&error));
        }
    }

    /// Writes the request of a ready socket.
    fn send_on_socket(&mut self, slot: UserSlot, index: usize) {
        let web = &self.plan.target.web;
        let Some(bosh) = self.users[slot].bosh.as_deref_mut() else { return };
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        let bosh_socket = &mut bosh.sockets[index];
        let session = BodySession { sid: &bosh.sid, domain: &self.plan.target.domain, wait: web.wait_s };
        // The body is written first, since the head contains its length.
        bosh::write(bosh_socket.kind, session, bosh_socket.rid, &bosh_socket.stanzas, &mut request);
        let body = request.len();
        http::post(web.path(), &web.host, body, &mut request);
        request.rotate_left(body);
        let Some(socket) = &mut bosh_socket.socket else {
            self.request = request;
            return;
        };
        let result = socket.write(&request, &mut self.scratch);
        if let Ok(written) = &result {
            bosh_socket.out = request.get(written.taken..).unwrap_or_default().to_vec();
        }
        self.request = request;
        self.wrote(slot, index, result);
    }

    /// Writes bytes that the kernel did not accept before.
    fn write_line(&mut self, slot: UserSlot, index: usize) {
        let Some(bosh_socket) = self.users[slot].bosh.as_mut().and_then(|bosh| bosh.sockets.get_mut(index))
        else {
            return;
        };
        let Some(socket) = &mut bosh_socket.socket else { return };
        let result = socket.write(&bosh_socket.out, &mut self.scratch);
        if let Ok(written) = &result {
            bosh_socket.out = bosh_socket.out.get(written.taken..).unwrap_or_default().to_vec();
        }
        self.wrote(slot, index, result);
    }

    fn wrote(&mut self, slot: UserSlot, index: usize, result: io::Result<crate::socket::WriteOutcome>) {
        match result {
            Ok(written) => {
                let has_output =
                    self.bosh_socket(slot, index).is_some_and(|bosh_socket| !bosh_socket.out.is_empty());
                self.watch_socket(slot, index, written.blocked || has_output);
            }
            Err(error) => self.socket_broken(slot, index, Some(&error)),
        }
    }

    fn read_line(&mut self, slot: UserSlot, index: usize) {
        loop {
            let epoch = self.users[slot].epoch;
            let Some(bosh_socket) =
                self.users[slot].bosh.as_mut().and_then(|bosh| bosh.sockets.get_mut(index))
            else {
                return;
            };
            let generation = bosh_socket.generation;
            let Some(socket) = &mut bosh_socket.socket else { return };
            // An incomplete answer grows in place: copying it for each read would take quadratic time.
            let grows = !bosh_socket.input.is_empty();
            let mut input = std::mem::take(if grows { &mut bosh_socket.input } else { &mut self.input });
            let result = socket.read(&mut self.scratch, |data| input.extend_from_slice(data));
            if let Ok(read) = &result {
                let has_output = !bosh_socket.out.is_empty();
                if read.blocked || read.established {
                    self.watch_socket(slot, index, read.blocked || has_output);
                }
                if read.established {
                    self.socket_ready(slot, index);
                }
            }
            let end = result.map(|read| read.end);
            let ended = matches!(end, Ok(ReadEnd::Closed | ReadEnd::Cut));
            let taken = if input.is_empty() { 0 } else { self.arrived(slot, index, &input, ended) };
            let same = self.users[slot].epoch == epoch;
            let keeps = |bosh_socket: &&mut BoshSocket| {
                bosh_socket.answered || (bosh_socket.generation == generation && bosh_socket.socket.is_some())
            };
            if same
                && taken < input.len()
                && let Some(bosh_socket) = self.bosh_socket(slot, index).filter(keeps)
            {
                if grows && taken == 0 {
                    bosh_socket.input = std::mem::take(&mut input);
                } else {
                    bosh_socket.input = input[taken..].to_vec();
                }
            }
            // The large buffer of a roster of thousands must not stay allocated.
            if !grows && input.capacity() <= 1 << 20 {
                input.clear();
                self.input = input;
            }
            self.process_deferred_responses(slot);
            if !same
                || self
                    .bosh_socket(slot, index)
                    .is_none_or(|bosh_socket| bosh_socket.generation != generation)
            {
                return;
            }
            match end {
                Ok(ReadEnd::Blocked) => return,
                Ok(ReadEnd::More) => {}
                Ok(ReadEnd::Closed | ReadEnd::Cut) => return self.socket_broken(slot, index, None),
                Err(error) => return self.socket_broken(slot, index, Some(&error)),
            }
        }
    }

    /// Handles answers that had to wait for an older one.
    fn process_deferred_responses(&mut self, slot: UserSlot) {
        let Some(bosh) = self.bosh(slot) else { return };
        let Some(index) = bosh.sockets.iter().position(|bosh_socket| bosh_socket.answered) else { return };
        let rid = bosh.sockets[index].rid;
        if bosh.sockets.iter().any(|bosh_socket| bosh_socket.rid != 0 && bosh_socket.rid < rid) {
            return;
        }
        let input = std::mem::take(&mut bosh.sockets[index].input);
        bosh.sockets[index].answered = false;
        let epoch = self.users[slot].epoch;
        let taken = self.arrived(slot, index, &input, true);
        if self.users[slot].epoch == epoch
            && taken < input.len()
            && let Some(bosh_socket) = self.bosh_socket(slot, index)
        {
            bosh_socket.input = input[taken..].to_vec();
        }
    }

    /// Handles the answer at the start of `input`, if it is complete and next in order; returns the number of bytes
    /// consumed.
    fn arrived(&mut self, slot: UserSlot, index: usize, input: &[u8], ended: bool) -> usize {
        let Some(bosh) = self.bosh(slot) else { return input.len() };
        let (rid, kind) = (bosh.sockets[index].rid, bosh.sockets[index].kind);
        if rid == 0 {
            // An unsolicited answer: some servers explain why they close an idle connection.
            self.close_line(slot, index);
            return input.len();
        }
        let answer = match http::answer(input, ended) {
            Ok(Some(answer)) => answer,
            Ok(None) => return 0,
            Err(reason) => {
                self.broken_protocol(slot, reason);
                return input.len();
            }
        };
        if bosh.sockets.iter().any(|bosh_socket| bosh_socket.rid != 0 && bosh_socket.rid < rid) {
            bosh.sockets[index].answered = true;
            return 0;
        }
        if let Some(condition) = bosh::condition(answer.status) {
            self.session_ended(slot, condition);
            return input.len();
        }
        let body = match bosh::read(&answer.content) {
            Ok(body) => body,
            Err(reason) => {
                self.broken_protocol(slot, reason);
                return input.len();
            }
        };
        let end = bosh::session_end(&body);
        if end == SessionEnd::Again {
            self.record.error("bosh:again");
            if answer.close || ended {
                self.close_line(slot, index);
            }
            self.resend_request(slot, index, None);
            return answer.length;
        }
        let second = self.second();
        if let Some(bosh) = self.bosh(slot) {
            bosh.failures = 0;
            let bosh_socket = &mut bosh.sockets[index];
            (bosh_socket.rid, bosh_socket.since, bosh_socket.stanzas) = (0, second, Box::default());
            if kind == BodyKind::Create
                && let Some(created) = bosh::created(&body)
            {
                (bosh.sid, bosh.requests) = (created.sid, created.requests);
            }
        }
        if answer.close || self.open > self.most_sockets {
            self.close_line(slot, index);
        }
        let length = answer.length;
        self.answer_bytes = answer.content.len();
        let epoch = self.users[slot].epoch;
        let result = bosh::stanzas(&body, |stanza| {
            self.element(slot, stanza);
            self.users[slot].epoch == epoch
        });
        if self.users[slot].epoch != epoch {
            return length;
        }
        if let Err(error) = result {
            self.invalid_xml(slot, &error);
        } else if let SessionEnd::Over(condition) = end {
            self.session_ended(slot, &condition);
        } else if self.bosh(slot).is_some_and(|bosh| !bosh.is_created()) {
            self.session_ended(slot, "no-session");
        } else {
            self.mark_dirty(slot);
        }
        length
    }

    /// Handles the end of the session by the server.
    fn session_ended(&mut self, slot: UserSlot, condition: &str) {
        let user = &self.users[slot];
        if user.is(CLOSED) {
            return self.connection_closed(slot, None);
        }
        let condition = if condition.is_empty() { "terminated" } else { condition };
        self.record.error(&format!("bosh:{condition}"));
        if user.is(LOGGED_IN) {
            self.connection_closed(slot, None);
        } else {
            self.login_failed(slot, "login:closed", &format!("the server ends the session: {condition}"));
        }
    }

    /// Handles a lost connection. Its request is made again on another one.
    fn socket_broken(&mut self, slot: UserSlot, index: usize, error: Option<&io::Error>) {
        let Some(bosh_socket) = self.bosh_socket(slot, index) else { return };
        let awaits_response = bosh_socket.rid != 0 && !bosh_socket.answered;
        self.close_line(slot, index);
        let user = &self.users[slot];
        if !user.is(CONNECTED) {
            let gone = io::Error::from(io::ErrorKind::UnexpectedEof);
            return self.connect_failed(slot, error.unwrap_or(&gone));
        }
        let negotiates = matches!(user.wait, WaitState::Handshake)
            || user.bosh.as_ref().is_some_and(|bosh| !bosh.is_created());
        if negotiates || (awaits_response && user.is(CLOSED)) {
            self.connection_closed(slot, error);
        } else if awaits_response {
            self.record.error("bosh:broken-connection");
            self.resend_request(slot, index, error);
        }
    }

    /// Repeats the request of a socket (XEP-0124, section 14.3).
    fn resend_request(&mut self, slot: UserSlot, index: usize, error: Option<&io::Error>) {
        let Some(bosh) = self.bosh(slot) else { return };
        bosh.failures += 1;
        if bosh.failures > MAX_CONSECUTIVE_FAILURES {
            return self.connection_closed(slot, error);
        }
        let bosh_socket = &bosh.sockets[index];
        let (ready, connecting) = (bosh_socket.ready, bosh_socket.socket.is_some());
        self.record.add(Counter::HttpAgain, 1);
        if ready {
            self.send_on_socket(slot, index);
        } else if !connecting && let Err(error) = self.open_line(slot, index) {
            self.socket_broken(slot, index, Some(&error));
        }
    }

    /// Once a second: closes sockets that have long been idle, and gives up unanswered requests.
    pub(super) fn sweep_sockets(&mut self, now: u64) {
        let web = &self.plan.target.web;
        let second = (now.saturating_sub(self.start) / 1_000_000) as u32;
        let idle = u32::try_from(web.keep_alive_ms.div_ceil(1_000)).unwrap_or(u32::MAX);
        let response_timeout_s =
            u32::try_from(self.plan.options.answer_timeout_ms / 1_000).unwrap_or(u32::MAX);
        let held = web.wait_s.saturating_add(response_timeout_s);
        for slot in self.users.indices() {
            for index in 0..2 {
                let Some(bosh_socket) = self.bosh_socket(slot, index) else { break };
                let age = second.saturating_sub(bosh_socket.since);
                if bosh_socket.rid == 0 && bosh_socket.ready && age >= idle {
                    self.close_line(slot, index);
                } else if bosh_socket.rid != 0 && bosh_socket.connected && age > held {
                    bosh_socket.since = second;
                    self.socket_broken(slot, index, None);
                }
            }
        }
    }
}
