//! BOSH and WebSocket gateway in front of the scripted server: one thread that maps requests and frames to TCP streams.
//!
//! It is strict: every violation by a client is listed in [`GatewayCounts::wrong`]. Its own faults are those of
//! [`GatewayFaults`]. It shares no code with the generator. Longer than most files, because both transports share
//! connections, sessions and the thread; split up they would need many traits.
//!
//! Not implemented: rules that a single well-behaved client cannot break.
#![allow(
    clippy::disallowed_types,
    reason = "the generator does not use `base`; no other lock is acquired while this one is held"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use parking_lot::Mutex;
use rustls::ServerConfig;

use super::server::{DOMAIN, server_config};
use super::text::{StreamPiece, attr, cut, elements, name};
use super::wire::CountedStream;

/// Deliberate faults of the gateway.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GatewayFaults {
    /// TLS from the first byte.
    pub(crate) tls: bool,
    /// Bodies are sent in chunks of three bytes.
    pub(crate) chunked: bool,
    /// Every n-th response closes its connection.
    pub(crate) close_every: Option<u64>,
    /// Every n-th request is processed, and its connection reset instead of a response.
    pub(crate) break_every: Option<u64>,
    /// The response to the older of two requests is delayed by this number of turns.
    pub(crate) swap: u32,
    /// Features are sent with the second response.
    pub(crate) features_later: bool,
    /// Every n-th request is answered as if its session had ended: by status, or by a body.
    pub(crate) forget_every: Option<(u64, bool)>,
    /// WebSocket messages are sent in fragments with pings in between.
    pub(crate) fragments: bool,
    /// The response to the upgrade is wrong.
    pub(crate) refuse_upgrade: bool,
}

/// Observations of the gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct GatewayCounts {
    pub(crate) wrong: Vec<String>,
    pub(crate) connections: u64,
    pub(crate) requests: u64,
    pub(crate) empty: u64,
    /// Requests repeated with the number of an answered one.
    pub(crate) repeated: u64,
    pub(crate) created: u64,
    pub(crate) terminated: u64,
    /// Maximum number of simultaneous sockets with requests of one session.
    pub(crate) most_sockets: usize,
    pub(crate) pongs: u64,
    pub(crate) closes: u64,
}

/// A running gateway; dropping it stops it.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<GatewayCounts>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Starts in front of a scripted server.
    pub(crate) fn start(behind: SocketAddr, faults: GatewayFaults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a socket can be made non-blocking");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (seen, stop) = (Arc::<Mutex<GatewayCounts>>::default(), Arc::<AtomicBool>::default());
        let mut host = GatewayState {
            behind,
            faults,
            listener,
            tls: faults.tls.then(server_config),
            conns: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next: 0,
            answers: 0,
            seen: GatewayCounts::default(),
        };
        let (shared, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                host.turn();
                shared.lock().clone_from(&host.seen);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        Self { address, seen, stop, thread: Some(thread) }
    }

    /// Observations so far; panics on a violation.
    pub(crate) fn seen(&self) -> GatewayCounts {
        let seen = self.seen.lock().clone();
        assert_eq!(seen.wrong, Vec::<String>::new());
        seen
    }

    /// Observations once this many sessions were terminated: a run ends when its requests are sent, which is before
    /// the gateway has read them. After a minute, whatever was observed.
    pub(crate) fn seen_after_terminated(&self, sessions: u64) -> GatewayCounts {
        for _ in 0..6_000 {
            if self.seen().terminated >= sessions {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.seen()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the gateway failed");
        }
    }
}

/// Connection of a client.
struct GatewayConnection {
    wire: CountedStream,
    input: Vec<u8>,
    /// Session and number of the request in progress.
    busy: Option<(String, u64)>,
    /// Session of a WebSocket.
    upgraded: Option<String>,
    ending: bool,
}

/// Stream to the scripted server.
struct GatewaySession {
    wire: CountedStream,
    input: Vec<u8>,
    open: bool,
    /// Elements for the client.
    out: Vec<String>,
    /// Next request number.
    rid: u64,
    /// Held requests: number, connection, turns until the response.
    held: BTreeMap<u64, (usize, u32)>,
    /// Requests that overtook their predecessor: number, connection, body, stanzas.
    early: BTreeMap<u64, (usize, String, String)>,
    /// Latest responses by number.
    answered: BTreeMap<u64, String>,
    over: bool,
    /// Connection of a WebSocket.
    socket: Option<usize>,
    hides_features: bool,
}

struct GatewayState {
    behind: SocketAddr,
    faults: GatewayFaults,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    conns: BTreeMap<usize, GatewayConnection>,
    sessions: BTreeMap<String, GatewaySession>,
    next: usize,
    answers: u64,
    seen: GatewayCounts,
}

fn nth(every: Option<u64>, count: u64) -> bool {
    every.is_some_and(|every| count.is_multiple_of(every))
}

impl GatewayState {
    fn wrong(&mut self, what: impl Into<String>) {
        self.seen.wrong.push(what.into());
    }

    fn turn(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let mut wire = CountedStream::new(stream);
            if let Some(config) = &self.tls {
                wire.start_tls(config);
            }
            self.seen.connections += 1;
            self.next += 1;
            let conn =
                GatewayConnection { wire, input: Vec::new(), busy: None, upgraded: None, ending: false };
            self.conns.insert(self.next, conn);
        }
        for id in self.conns.keys().copied().collect::<Vec<_>>() {
            self.read(id);
        }
        for sid in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.stream(&sid);
            self.deliver(&sid);
        }
        for conn in self.conns.values_mut() {
            conn.wire.flush();
            if conn.ending && !conn.wire.waits() {
                conn.wire.finish();
            }
        }
        for session in self.sessions.values_mut() {
            session.wire.flush();
        }
    }

    fn read(&mut self, id: usize) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let alive = conn.wire.read(&mut conn.input);
        loop {
            let Some(conn) = self.conns.get_mut(&id) else { return };
            if conn.upgraded.is_some() {
                if !self.frame(id) {
                    break;
                }
                continue;
            }
            let Some(head) = conn.input.windows(4).position(|four| four == b"\r\n\r\n") else { break };
            let text = String::from_utf8(conn.input[..head].to_vec()).expect("heads are ASCII");
            let length = header(&text, "content-length").map_or(0, |value| value.parse().expect("a number"));
            if conn.input.len() < head + 4 + length {
                break;
            }
            let content = conn.input[head + 4..head + 4 + length].to_vec();
            conn.input.drain(..head + 4 + length);
            if conn.busy.is_some() {
                self.wrong("a request before the answer to the one before");
            }
            if text.starts_with("GET ") {
                self.upgrade(id, &text);
            } else {
                if !text.starts_with("POST /http-bind HTTP/1.1\r\n") || header(&text, "host").is_none() {
                    self.wrong(format!("a bad request {text}"));
                }
                self.request(id, &String::from_utf8(content).expect("bodies are UTF-8"));
            }
        }
        if !alive
            && let Some(conn) = self.conns.remove(&id)
            && let Some(session) = conn.upgraded.and_then(|sid| self.sessions.get_mut(&sid))
        {
            session.over = true;
        }
    }

    fn session(&mut self, rid: u64) -> (String, GatewaySession) {
        self.next += 1;
        let stream = TcpStream::connect(self.behind).expect("the scripted server listens");
        let session = GatewaySession {
            wire: CountedStream::new(stream),
            input: Vec::new(),
            open: false,
            out: Vec::new(),
            rid,
            held: BTreeMap::new(),
            early: BTreeMap::new(),
            answered: BTreeMap::new(),
            over: false,
            socket: None,
            hides_features: self.faults.features_later,
        };
        (format!("s{}", self.next), session)
    }

    /// Handles a BOSH request.
    fn request(&mut self, id: usize, body: &str) {
        self.seen.requests += 1;
        if name(body) != "body"
            || attr(body, "xmlns").as_deref() != Some("http://jabber.org/protocol/httpbind")
        {
            return self.wrong(format!("no body: {body}"));
        }
        let Some(rid) = attr(body, "rid").and_then(|rid| rid.parse::<u64>().ok()) else {
            return self.wrong(format!("no rid: {body}"));
        };
        let (sid, stanzas) = match attr(body, "sid") {
            None => {
                for (name, value) in
                    [("to", DOMAIN), ("hold", "1"), ("ver", "1.11"), ("xmpp:version", "1.0"), ("wait", "60")]
                {
                    if attr(body, name).as_deref() != Some(value) {
                        self.wrong(format!("{name} is not {value}: {body}"));
                    }
                }
                let (sid, mut session) = self.session(rid + 1);
                header_to(&mut session.wire);
                session.held.insert(rid, (id, 0));
                self.seen.created += 1;
                self.sessions.insert(sid.clone(), session);
                (sid, String::new())
            }
            Some(sid) => {
                let empty = body.trim_end().ends_with("/>") && !body.contains("><");
                self.seen.empty += u64::from(empty && !body.contains("type=") && !body.contains("restart"));
                if nth(self.faults.forget_every.map(|(every, _)| every), self.seen.requests) {
                    self.sessions.entry(sid.clone()).and_modify(|session| session.over = true);
                    let by_status = self.faults.forget_every.is_some_and(|(_, status)| status);
                    let over = "<body type='terminate' condition='item-not-found' xmlns='http://jabber.org/protocol/httpbind'/>";
                    return if by_status { self.answer(id, 404, "") } else { self.answer(id, 200, over) };
                }
                (sid, inner(body).to_owned())
            }
        };
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.busy = Some((sid.clone(), rid));
        }
        let breaks = nth(self.faults.break_every, self.seen.requests);
        self.take(id, &sid, rid, body, &stanzas);
        if breaks && let Some(conn) = self.conns.remove(&id) {
            // The response is kept until the request is repeated.
            conn.wire.reset();
        }
    }

    /// Handles a request of an existing session.
    fn take(&mut self, id: usize, sid: &str, rid: u64, body: &str, stanzas: &str) {
        let sockets: BTreeSet<usize> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.busy.as_ref().is_some_and(|busy| busy.0 == sid))
            .map(|(id, _)| *id)
            .collect();
        self.seen.most_sockets = self.seen.most_sockets.max(sockets.len());
        let swap = self.faults.swap;
        let Some(session) = self.sessions.get_mut(sid) else {
            return self.wrong(format!("an unknown session: {body}"));
        };
        if attr(body, "sid").is_none() {
            return;
        }
        if rid < session.rid {
            self.seen.repeated += 1;
            match session.answered.get(&rid).cloned() {
                Some(again) => self.answer(id, 200, &again),
                None => {
                    session.held.insert(rid, (id, 0));
                }
            }
            return;
        }
        if rid == session.rid + 1 {
            session.early.insert(rid, (id, body.to_owned(), stanzas.to_owned()));
            return;
        }
        if rid != session.rid {
            let expected = session.rid;
            return self.wrong(format!("number {rid} in place of {expected}"));
        }
        session.rid += 1;
        for held in session.held.values_mut() {
            held.1 = swap;
        }
        session.held.insert(rid, (id, 0));
        if session.held.len() > 2 {
            self.seen.wrong.push("more than two requests".to_owned());
        }
        if attr(body, "xmpp:restart").as_deref() == Some("true") {
            session.open = false;
            header_to(&mut session.wire);
        }
        for stanza in elements(stanzas) {
            if attr(&stanza, "xmlns").is_none() {
                self.seen.wrong.push(format!("no namespace: {stanza}"));
            }
            session.wire.write(stanza.as_bytes());
        }
        if attr(body, "type").as_deref() == Some("terminate") {
            self.seen.terminated += 1;
            session.over = true;
            session.wire.write(b"</stream:stream>");
        }
        let next = session.rid;
        if let Some((id, body, stanzas)) = session.early.remove(&next) {
            self.take(id, sid, next, &body, &stanzas);
        }
    }

    /// Forwards data of the scripted server to a session.
    fn stream(&mut self, sid: &str) {
        let Some(session) = self.sessions.get_mut(sid) else { return };
        let alive = session.wire.read(&mut session.input);
        loop {
            match cut(&mut session.input, session.open) {
                Some(StreamPiece::Header(_)) => session.open = true,
                Some(StreamPiece::Element(element)) => session.out.push(element),
                Some(StreamPiece::End) => session.over = true,
                None => break,
            }
        }
        session.over |= !alive;
    }

    /// Sends the responses that are due.
    fn deliver(&mut self, sid: &str) {
        let Some(session) = self.sessions.get_mut(sid) else { return };
        if let Some(socket) = session.socket {
            let (out, over) = (std::mem::take(&mut session.out), session.over);
            for element in out {
                self.text(socket, &qualified(&element));
            }
            if over {
                self.text(socket, "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>");
                if let Some(conn) = self.conns.get_mut(&socket) {
                    conn.ending = true;
                }
                self.sessions.remove(sid);
            }
            return;
        }
        for held in session.held.values_mut() {
            held.1 = held.1.saturating_sub(1);
        }
        let replaced = session.held.len() > 1;
        // The newest may be answered before an older one that is delayed.
        let ready = session.held.iter().find(|(_, (_, wait))| *wait == 0).map(|(rid, held)| (*rid, held.0));
        let Some((rid, id)) = ready else { return };
        let oldest = session.held.keys().next() == Some(&rid);
        let hides = session.hides_features && session.out.iter().any(|out| out.contains("<mechanisms"));
        if session.out.is_empty() && !(replaced && oldest) && !session.over {
            return;
        }
        let mut stanzas = String::new();
        if hides {
            session.hides_features = false;
        } else if oldest || session.over {
            for element in std::mem::take(&mut session.out) {
                stanzas.push_str(&qualified(&element));
            }
        } else {
            // The older response must carry the older elements.
            return;
        }
        session.held.remove(&rid);
        let over = session.over;
        let body = format!(
            "<body xmlns='http://jabber.org/protocol/httpbind' xmlns:stream='http://etherx.jabber.org/streams' sid='{sid}' \
             requests='2' hold='1' wait='60'{}>{stanzas}</body>",
            if over { " type='terminate'" } else { "" }
        );
        session.answered.insert(rid, body.clone());
        if session.answered.len() > 3 {
            session.answered.pop_first();
        }
        let rest: Vec<usize> =
            if over { session.held.values().map(|held| held.0).collect() } else { Vec::new() };
        if over {
            session.wire.flush();
            self.sessions.remove(sid);
        }
        self.answer(id, 200, &body);
        for other in rest {
            self.answer(other, 200, &body);
        }
    }

    fn answer(&mut self, id: usize, status: u16, body: &str) {
        self.answers += 1;
        let closes = nth(self.faults.close_every, self.answers);
        let chunked = self.faults.chunked;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.busy = None;
        let mut head = format!("HTTP/1.1 {status} x\r\nContent-Type: text/xml; charset=utf-8\r\n");
        if closes {
            head.push_str("Connection: close\r\n");
            conn.ending = true;
        }
        if chunked {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
            conn.wire.write(head.as_bytes());
            for chunk in body.as_bytes().chunks(3) {
                conn.wire.write(format!("{:x}\r\n", chunk.len()).as_bytes());
                conn.wire.write(chunk);
                conn.wire.write(b"\r\n");
            }
            conn.wire.write(b"0\r\n\r\n");
        } else {
            head.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
            conn.wire.write(head.as_bytes());
        }
    }

    fn upgrade(&mut self, id: usize, head: &str) {
        let protocol = header(head, "sec-websocket-protocol");
        if !head.starts_with("GET /xmpp-websocket HTTP/1.1\r\n") || protocol.as_deref() != Some("xmpp") {
            self.wrong(format!("a bad upgrade {head}"));
        }
        let key = header(head, "sec-websocket-key").expect("a key");
        let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let mut accept = base64::engine::general_purpose::STANDARD.encode(digest);
        if self.faults.refuse_upgrade {
            accept = "AAAA".to_owned();
        }
        let (sid, mut session) = self.session(0);
        session.socket = Some(id);
        self.sessions.insert(sid.clone(), session);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.upgraded = Some(sid);
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: xmpp\r\n\r\n"
        );
        conn.wire.write(answer.as_bytes());
    }

    /// Takes one frame of a client; false if none is complete.
    fn frame(&mut self, id: usize) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let sid = conn.upgraded.clone().expect("it was upgraded");
        let input = &conn.input;
        let Some(&[first, second]) = input.first_chunk() else { return false };
        let (at, length) = match second & 0x7F {
            126 if input.len() >= 4 => (4, usize::from(u16::from_be_bytes([input[2], input[3]]))),
            126 => return false,
            127 => panic!("no test sends so much"),
            short => (2, usize::from(short)),
        };
        if input.len() < at + 4 + length {
            return false;
        }
        let mask = &input[at..at + 4];
        let content: Vec<u8> = input[at + 4..at + 4 + length]
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, key)| byte ^ key)
            .collect();
        conn.input.drain(..at + 4 + length);
        if second & 0x80 == 0 || first & 0xF0 != 0x80 {
            self.wrong("a frame that no client sends");
        }
        match first & 0x0F {
            1 => self.document(&sid, &String::from_utf8(content).expect("text is UTF-8")),
            8 => self.seen.closes += 1,
            10 => self.seen.pongs += 1,
            other => self.wrong(format!("opcode {other}")),
        }
        true
    }

    /// Handles one message of a client, which is one document.
    fn document(&mut self, sid: &str, text: &str) {
        if elements(text).len() != 1 || attr(text, "xmlns").is_none() {
            self.wrong(format!("no document of its own: {text}"));
        }
        let Some(session) = self.sessions.get_mut(sid) else { return };
        match name(text) {
            "open" => {
                session.open = false;
                header_to(&mut session.wire);
            }
            "close" => {
                self.seen.closes += 1;
                session.wire.write(b"</stream:stream>");
            }
            _ => session.wire.write(text.as_bytes()),
        }
    }

    /// Sends one WebSocket message.
    fn text(&mut self, id: usize, text: &str) {
        let fragments = self.faults.fragments;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut frame = |first: u8, content: &[u8]| {
            let mut bytes = vec![first];
            if content.len() < 126 {
                bytes.push(content.len() as u8);
            } else {
                bytes.push(126);
                bytes.extend_from_slice(&(content.len() as u16).to_be_bytes());
            }
            bytes.extend_from_slice(content);
            conn.wire.write(&bytes);
        };
        if fragments {
            let (one, two) = text.as_bytes().split_at(text.len() / 2);
            frame(0x01, one);
            frame(0x89, b"ping");
            frame(0x80, two);
        } else {
            frame(0x81, text.as_bytes());
        }
    }
}

fn header_to(wire: &mut CountedStream) {
    let header = format!(
        "<stream:stream to='{DOMAIN}' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
    );
    wire.write(header.as_bytes());
}

fn header(head: &str, wanted: &str) -> Option<String> {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
    lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.to_owned())
}

/// Content of a body.
fn inner(body: &str) -> &str {
    let begin = body.find('>').map_or(body.len(), |at| at + 1);
    body[begin..].strip_suffix("</body>").unwrap_or_default()
}

/// An element with the namespace declarations of its stream.
fn qualified(element: &str) -> String {
    let at = 1 + name(element).len();
    let declaration = if name(element).starts_with("stream:") {
        " xmlns:stream='http://etherx.jabber.org/streams'"
    } else if attr(element, "xmlns").is_none() {
        " xmlns='jabber:client'"
    } else {
        ""
    };
    format!("{}{declaration}{}", &element[..at], &element[at..])
}
