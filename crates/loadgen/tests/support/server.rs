//! Scripted server: one thread that polls its connections, keeps their streams and follows the script.
//!
//! The protocol is in [`super::protocol`], sessions and routing in [`super::sessions`].
//!
//! Not implemented: everything that no test needs, namespaces above all: elements are recognized by the form in which
//! the generator writes them.
#![allow(
    clippy::disallowed_types,
    reason = "the generator does not use `base`; no other lock is acquired while this one is held"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use loadgen::clock::now_us;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use super::nodes::ScriptedNode;
use super::rooms::ScriptedRoom;
use super::sasl::ScramServer;
use super::script::{
    CloseMode, ScriptTls, ServerAction, ServerCounts, ServerEvent, ServerScript, ServerStep,
};
use super::sessions::ServerSession;
use super::text::{self, StreamPiece, attr, cut, elements, is_stanza};
use super::wire::CountedStream;

/// Domain of the server.
pub(crate) const DOMAIN: &str = "load.test";

/// A running server; dropping it stops it.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    truth: Arc<Mutex<ServerCounts>>,
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedServer {
    pub(crate) fn start(script: ServerScript) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a socket can be made non-blocking");
        if let Some(bytes) = script.receive_buffer {
            rustix::net::sockopt::set_socket_recv_buffer_size(&listener, bytes)
                .expect("SO_RCVBUF can be set");
        }
        let address = listener.local_addr().expect("a bound socket has an address");
        let (truth, stop) = (Arc::<Mutex<ServerCounts>>::default(), Arc::<AtomicBool>::default());
        let mut host = ScriptedServerState::new(script, listener);
        let turns = Arc::<AtomicU64>::default();
        let (shared, stopped, counted) = (Arc::clone(&truth), Arc::clone(&stop), Arc::clone(&turns));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                host.turn();
                *shared.lock() = host.truth.clone();
                counted.fetch_add(1, Ordering::Release);
            }
        });
        Self { address, truth, stop, turns, thread: Some(thread) }
    }

    /// Counts as of the last turn.
    pub(crate) fn snapshot(&self) -> ServerCounts {
        self.truth.lock().clone()
    }

    /// Counts that include all data received by now.
    pub(crate) fn truth(&self) -> ServerCounts {
        // The current turn may have read earlier; the next one reads everything.
        let next = self.turns.load(Ordering::Acquire) + 2;
        while self.turns.load(Ordering::Acquire) < next
            && self.thread.as_ref().is_some_and(|it| !it.is_finished())
        {
            std::thread::yield_now();
        }
        self.snapshot()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the scripted server failed");
        }
    }
}

/// A connection.
pub(crate) struct ScriptedConnection {
    pub(crate) wire: CountedStream,
    input: Vec<u8>,
    pub(crate) open: bool,
    pub(crate) secure: bool,
    pub(crate) scram: Option<ScramServer>,
    /// Local part, after authentication.
    pub(crate) user: Option<String>,
    /// Input is discarded.
    reading_paused: bool,
    /// Input is not even read.
    paused: bool,
    /// Closes when everything is written.
    pub(crate) ending: bool,
    finished: bool,
}

/// Output scheduled for later.
enum DelayedOutput {
    Answer(usize, String),
    Bytes(usize, Vec<u8>),
    Forward(String, String),
}

/// State of the server.
pub(crate) struct ScriptedServerState {
    pub(crate) script: ServerScript,
    listener: TcpListener,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) conns: BTreeMap<usize, ScriptedConnection>,
    next: usize,
    later: BTreeMap<(u64, u64), DelayedOutput>,
    order: u64,
    counts: BTreeMap<ServerStep, u64>,
    pub(crate) truth: ServerCounts,
    pub(crate) sessions: BTreeMap<String, ServerSession>,
    pub(crate) stored: BTreeMap<String, Vec<String>>,
    pub(crate) held: BTreeMap<(String, String), String>,
    pub(crate) created: BTreeSet<String>,
    pub(crate) removed: BTreeSet<String>,
    pub(crate) rooms: BTreeMap<String, ScriptedRoom>,
    pub(crate) nodes: BTreeMap<String, ScriptedNode>,
    first_login: u64,
}

impl ScriptedServerState {
    fn new(script: ServerScript, listener: TcpListener) -> Self {
        let tls = (script.tls != ScriptTls::None).then(server_config);
        Self {
            script,
            listener,
            tls,
            conns: BTreeMap::new(),
            next: 0,
            later: BTreeMap::new(),
            order: 0,
            counts: BTreeMap::new(),
            truth: ServerCounts::default(),
            sessions: BTreeMap::new(),
            stored: BTreeMap::new(),
            held: BTreeMap::new(),
            created: BTreeSet::new(),
            removed: BTreeSet::new(),
            rooms: BTreeMap::new(),
            nodes: BTreeMap::new(),
            first_login: 0,
        }
    }

    fn turn(&mut self) {
        let now = now_us();
        let next = self.later.keys().next().map_or(5_000, |(at, _)| at.saturating_sub(now).min(5_000));
        let timeout = Timespec { tv_sec: 0, tv_nsec: next as i64 * 1_000 };
        let (mut fds, mut ids) = (vec![PollFd::new(&self.listener, PollFlags::IN)], Vec::new());
        for (id, conn) in &self.conns {
            let mut flags = if conn.paused { PollFlags::empty() } else { PollFlags::IN };
            if conn.wire.waits() {
                flags |= PollFlags::OUT;
            }
            fds.push(PollFd::from_borrowed_fd(conn.wire.as_fd(), flags));
            ids.push(*id);
        }
        poll(&mut fds, Some(&timeout)).expect("poll works");
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            while let Ok((stream, _)) = self.listener.accept() {
                self.accept(CountedStream::new(stream));
            }
        }
        for (id, _) in ids.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            self.read(*id);
        }
        let now = now_us();
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            match entry.remove() {
                DelayedOutput::Answer(conn, xml) => self.put(conn, &xml),
                DelayedOutput::Bytes(conn, bytes) => self.bytes(conn, &bytes),
                DelayedOutput::Forward(to, xml) => self.forward(&to, &xml),
            }
        }
        self.moments();
        self.flush();
        let waits = self.conns.values().any(|conn| conn.wire.waits() && !conn.finished);
        self.truth.open = self.conns.len() as u64;
        self.truth.held = self.held.len() as u64;
        self.truth.busy = waits || !self.later.is_empty();
        self.truth.available = self.sessions.values().filter(|session| session.available).count() as u64;
    }

    fn accept(&mut self, mut wire: CountedStream) {
        if self.script.tls == ScriptTls::Direct
            && let Some(config) = &self.tls
        {
            wire.start_tls(config);
        }
        self.truth.connections += 1;
        let id = self.next;
        self.next += 1;
        let conn = ScriptedConnection {
            wire,
            input: Vec::new(),
            open: false,
            secure: self.script.tls == ScriptTls::Direct,
            scram: None,
            user: None,
            reading_paused: false,
            paused: false,
            ending: false,
            finished: false,
        };
        self.conns.insert(id, conn);
        match self.act(ServerStep::Accept) {
            ServerAction::Close(how) => self.close(id, how),
            ServerAction::Bytes(bytes) => self.bytes(id, &bytes),
            ServerAction::Nothing => {
                self.conns.entry(id).and_modify(|conn| conn.reading_paused = true);
            }
            _ => {}
        }
    }

    fn read(&mut self, id: usize) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.paused {
            return;
        }
        let before = conn.wire.received;
        let alive = conn.wire.read(&mut conn.input);
        self.truth.bytes_in += conn.wire.received - before;
        loop {
            let Some(conn) = self.conns.get_mut(&id) else { return };
            if conn.reading_paused {
                if let Some(StreamPiece::Element(element)) = cut(&mut conn.input, true) {
                    self.discard(&element);
                    continue;
                }
                break;
            }
            match cut(&mut conn.input, conn.open) {
                Some(StreamPiece::Header(_)) => self.header(id),
                Some(StreamPiece::Element(element)) => {
                    if is_stanza(&element) {
                        self.truth.stanzas_in += 1;
                    }
                    self.element(id, &element);
                }
                Some(StreamPiece::End) => self.end_of_stream(id),
                None => break,
            }
        }
        if !alive {
            self.gone(id);
        }
    }

    /// Counts an element received after this side closed the connection.
    fn discard(&mut self, element: &str) {
        self.truth.discarded += u64::from(is_stanza(element));
        if text::name(element) == "message" && attr(element, "id").is_some_and(|id| id.starts_with('T')) {
            self.truth.discarded_messages += 1;
        }
    }

    /// Restarts the stream: buffered input of the old one is discarded.
    pub(crate) fn restart(&mut self, id: usize) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.open = false;
        }
    }

    fn end_of_stream(&mut self, id: usize) {
        self.truth.ended += 1;
        self.leave(id);
        self.answer(id, ServerStep::End, "</stream:stream>");
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.reading_paused = true;
            conn.ending = true;
        }
    }

    /// The peer has closed its side.
    fn gone(&mut self, id: usize) {
        self.detach(id);
        if let Some(mut conn) = self.conns.remove(&id) {
            // Data that the peer would still read if it closed only its sending side.
            let before = conn.wire.sent;
            conn.wire.flush();
            self.truth.bytes_out += conn.wire.sent - before;
        }
    }

    fn flush(&mut self) {
        for conn in self.conns.values_mut().filter(|conn| !conn.finished) {
            let before = conn.wire.sent;
            let alive = conn.wire.flush();
            if !alive || (conn.ending && !conn.wire.waits()) {
                conn.wire.finish();
                conn.finished = true;
            }
            self.truth.bytes_out += conn.wire.sent - before;
        }
    }

    /// Action of the script at this step.
    pub(crate) fn act(&mut self, step: ServerStep) -> ServerAction {
        let count = self.counts.entry(step).or_default();
        *count += 1;
        (self.script.act)(step, *count - 1)
    }

    /// Answers on a connection as scripted. True if the correct answer is sent, now or later.
    pub(crate) fn answer(&mut self, id: usize, step: ServerStep, xml: &str) -> bool {
        match self.act(step) {
            ServerAction::Well | ServerAction::Hold | ServerAction::Refuse => self.put(id, xml),
            ServerAction::Late(ms) => self.later(ms, DelayedOutput::Answer(id, xml.to_owned())),
            ServerAction::Nothing => return false,
            ServerAction::Instead(other) => {
                self.put(id, &other);
                return false;
            }
            ServerAction::Bytes(bytes) => {
                self.bytes(id, &bytes);
                return false;
            }
            ServerAction::After(before) => self.put(id, &format!("{before}{xml}")),
            ServerAction::Then(more) => self.put(id, &format!("{xml}{more}")),
            ServerAction::Pieces(size) => {
                self.count(xml);
                for (at, piece) in xml.as_bytes().chunks(size).enumerate() {
                    self.later(at as u64 + 1, DelayedOutput::Bytes(id, piece.to_vec()));
                }
            }
            ServerAction::Twice => self.put(id, &format!("{xml}{xml}")),
            ServerAction::Renamed => self.put(id, &renamed(xml)),
            ServerAction::Prefixed => self.put(id, &prefixed(xml)),
            ServerAction::Close(how) => {
                self.close(id, how);
                return false;
            }
        }
        true
    }

    /// Forwards to a user after `ms` milliseconds.
    pub(crate) fn forward_later(&mut self, ms: u64, to: &str, stanza: String) {
        self.later(ms, DelayedOutput::Forward(to.to_owned(), stanza));
    }

    fn later(&mut self, ms: u64, what: DelayedOutput) {
        self.order += 1;
        self.later.insert((now_us() + ms * 1_000, self.order), what);
    }

    /// Writes elements to a connection, with counting and stream management.
    pub(crate) fn put(&mut self, id: usize, xml: &str) {
        if !self.conns.contains_key(&id) {
            return;
        }
        self.keep(id, xml);
        self.count(xml);
        self.bytes(id, xml.as_bytes());
    }

    fn count(&mut self, xml: &str) {
        for element in elements(xml).iter().filter(|element| is_stanza(element)) {
            self.truth.stanzas_out += 1;
            if text::name(element).ends_with("iq") {
                match attr(element, "type").as_deref() {
                    Some("result") => self.truth.iq_answers += 1,
                    Some("error") => self.truth.iq_errors += 1,
                    _ => {}
                }
            }
        }
    }

    pub(crate) fn bytes(&mut self, id: usize, bytes: &[u8]) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.wire.write(bytes);
        }
    }

    /// Closes a connection from this side.
    pub(crate) fn close(&mut self, id: usize, how: CloseMode) {
        if let CloseMode::Error(condition) = how {
            let error = format!(
                "<stream:error><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error></stream:stream>"
            );
            self.bytes(id, error.as_bytes());
        }
        if self.sessions.values().any(|session| session.conn == Some(id)) {
            self.truth.closed += 1;
        }
        self.detach(id);
        // Pending data goes out before the close.
        self.flush();
        if how == CloseMode::Reset {
            if let Some(conn) = self.conns.remove(&id) {
                conn.wire.reset();
            }
        } else if let Some(conn) = self.conns.get_mut(&id) {
            conn.reading_paused = true;
            conn.ending = true;
        }
    }

    fn moments(&mut self) {
        if self.first_login == 0 && self.truth.logins > 0 {
            self.first_login = now_us();
        }
        let since = if self.first_login == 0 { 0 } else { now_us() - self.first_login };
        self.truth.available = self.sessions.values().filter(|session| session.available).count() as u64;
        let mut due = Vec::new();
        let mut moments = std::mem::take(&mut self.script.moments);
        moments.retain_mut(|moment| {
            let now = (moment.when)(&self.truth, since);
            if now {
                due.push(moment.event.clone());
            }
            !now
        });
        self.script.moments = moments;
        self.truth.events_performed += due.len() as u64;
        for event in due {
            self.perform(event);
        }
    }

    fn perform(&mut self, event: ServerEvent) {
        let conns = |users: std::ops::Range<u32>| -> Vec<usize> {
            users.filter_map(|user| self.sessions.get(&format!("u{user}"))?.conn).collect()
        };
        match event {
            ServerEvent::Close(users, how) => conns(users).into_iter().for_each(|id| self.close(id, how)),
            ServerEvent::Send(users, xml) => conns(users).into_iter().for_each(|id| self.put(id, &xml)),
            ServerEvent::SendBytes(users, bytes) => {
                conns(users).into_iter().for_each(|id| self.bytes(id, &bytes))
            }
            ServerEvent::StopReading(users) => {
                for id in conns(users) {
                    self.conns.entry(id).and_modify(|conn| conn.paused = true);
                }
            }
            ServerEvent::ReadOn(users) => {
                for id in conns(users) {
                    self.conns.entry(id).and_modify(|conn| conn.paused = false);
                }
            }
            ServerEvent::Stall(ms) => {
                self.flush();
                std::thread::sleep(std::time::Duration::from_millis(ms));
            }
        }
    }
}

/// Changes the `id`.
pub(crate) fn renamed(stanza: &str) -> String {
    stanza.replacen(" id='", " id='other-", 1)
}

/// Adds the prefix `x`.
pub(crate) fn prefixed(stanza: &str) -> String {
    let name = text::name(stanza);
    let rest = &stanza[1 + name.len()..];
    let end = format!("</{name}>");
    match rest.strip_suffix(&end) {
        Some(rest) => format!(
            "<x:{name}{}</x:{name}>",
            rest.replace("<body>", "<x:body>").replace("</body>", "</x:body>")
        ),
        None => format!("<x:{name}{rest}"),
    }
}

pub(crate) fn server_config() -> Arc<ServerConfig> {
    let made =
        rcgen::generate_simple_self_signed(vec![DOMAIN.to_owned()]).expect("a certificate can be made");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("the key is one");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has both versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("key and certificate belong together");
    Arc::new(config)
}
