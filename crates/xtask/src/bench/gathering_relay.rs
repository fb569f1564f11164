//! Relay that gathers its writes: the lower bound for dense traffic. One thread around epoll that parses nothing.
//!
//! It answers as the naive relay does (`relay.rs`): fixed bytes for a login, each `…</message>` to the connection whose
//! full address is its `to='…'`. For every wake-up it reads what is there from all readable connections, appends each
//! message to the buffer of its recipient, and writes every buffer once. There is no lock, no task, no allocation
//! for a message and no fairness beyond the order of events. A presence with content is written to all other connections
//! at once, one after the other; any other is dropped. Bytes that a socket does not take
//! are kept without a bound. Rooms are those of `relay_rooms.rs`, PubSub nodes those of `relay_nodes.rs`: the messages of a room or
//! node that were read in a wake-up are written to each occupant or subscriber with one write.
//!
//! # Pitfalls
//!
//! A single thread: with more than two cores, compare CPU time and not rates.
#![allow(clippy::disallowed_types, reason = "the relay shares no code with the server")]

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};

use memchr::memmem;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use super::relay::{MAX_MESSAGE_BYTES, RelayLogin, attribute};
use super::relay_nodes::RelayNodes;
use super::relay_rooms::{ROOM_MESSAGE, ROOM_PRESENCE, RelayRooms};

const LISTENER: Token = Token(usize::MAX);
const EVENTS: usize = 1_024;

/// A connection: what was read and is not complete, and what was not written.
struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether it is in the list of connections to write to.
    is_dirty: bool,
    login: RelayLogin,
}

/// What an element does.
#[derive(Debug, PartialEq, Eq)]
enum Element<'a> {
    /// A message and the connection that it goes to.
    Message(&'a [u8], Option<usize>),
    /// A message to all occupants of a room.
    RoomMessage(&'a [u8]),
    /// A presence that goes to all other connections.
    Presence(&'a [u8]),
    /// A presence that joins a room.
    Join(&'a [u8]),
    Dropped(usize),
    /// A login or another request.
    Other,
    /// The end of the stream.
    End,
    Incomplete,
}

/// State of the relay.
pub(super) struct GatheringRelay {
    poll: Poll,
    listener: TcpListener,
    /// By token. A closed connection leaves its place empty; places are not used again.
    connections: Vec<Option<Connection>>,
    /// Full address to token.
    addresses: HashMap<Vec<u8>, usize>,
    dirty: Vec<usize>,
    rooms: RelayRooms,
    nodes: RelayNodes,
    scratch: Vec<u8>,
}

impl GatheringRelay {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The address is wrong or taken, or epoll is not available.
    pub(super) fn bind(address: &str) -> std::io::Result<Self> {
        let address =
            address.parse().map_err(|_| std::io::Error::new(ErrorKind::InvalidInput, "not IP:PORT"))?;
        let mut listener = TcpListener::bind(address)?;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            listener,
            connections: Vec::new(),
            addresses: HashMap::new(),
            dirty: Vec::new(),
            rooms: RelayRooms::default(),
            nodes: RelayNodes::default(),
            scratch: vec![0; MAX_MESSAGE_BYTES],
        })
    }

    /// Relays until epoll fails.
    ///
    /// # Errors
    /// That of epoll. A connection that fails or misbehaves is closed without a report.
    pub(super) fn run(mut self) -> std::io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    Token(token) => {
                        if event.is_writable() {
                            self.mark_dirty(token);
                        }
                        if event.is_readable() {
                            self.read(token);
                        }
                    }
                }
            }
            let mut rooms = std::mem::take(&mut self.rooms);
            rooms.flush(|token, bytes| self.write_now(token, bytes));
            self.rooms = rooms;
            let mut nodes = std::mem::take(&mut self.nodes);
            nodes.flush(|token, bytes| self.write_now(token, bytes));
            self.nodes = nodes;
            let mut dirty = std::mem::take(&mut self.dirty);
            for token in dirty.drain(..) {
                self.write(token);
            }
            self.dirty = dirty;
        }
    }

    fn accept(&mut self) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            let token = Token(self.connections.len());
            let interest = Interest::READABLE | Interest::WRITABLE;
            let usable = stream
                .set_nodelay(true)
                .and_then(|()| self.poll.registry().register(&mut stream, token, interest));
            if usable.is_ok() {
                let (input, output) = (Vec::new(), Vec::new());
                let login = RelayLogin::default();
                self.connections.push(Some(Connection { stream, input, output, is_dirty: false, login }));
            }
        }
    }

    fn mark_dirty(&mut self, token: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(token)
            && !connection.is_dirty
            && !connection.output.is_empty()
        {
            connection.is_dirty = true;
            self.dirty.push(token);
        }
    }

    fn close(&mut self, token: usize) {
        if let Some(connection) = self.connections.get_mut(token).and_then(Option::take)
            && self.addresses.get(connection.login.address()) == Some(&token)
        {
            self.addresses.remove(connection.login.address());
        }
    }

    fn read(&mut self, token: usize) {
        loop {
            let Some(Some(connection)) = self.connections.get_mut(token) else { return };
            let mut scratch = std::mem::take(&mut self.scratch);
            let kept = std::mem::take(&mut connection.input);
            scratch[..kept.len()].copy_from_slice(&kept);
            let result = connection.stream.read(&mut scratch[kept.len()..]);
            let space = scratch.len() - kept.len();
            let open = match &result {
                Ok(0) => false,
                Ok(read) => self.relay(token, &scratch[..kept.len() + read]),
                Err(error) => {
                    connection.input = kept;
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
                }
            };
            self.scratch = scratch;
            match result {
                _ if !open => return self.close(token),
                // Less than there was space for: the next event reports more.
                Ok(read) if read < space => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }

    /// Handles all complete elements; `false` closes the connection.
    fn relay(&mut self, token: usize, bytes: &[u8]) -> bool {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match first_element(rest, &self.addresses) {
                Element::Message(message, recipient) => {
                    if let Some(recipient) = recipient {
                        self.append(recipient, message);
                    }
                    at += message.len();
                }
                Element::RoomMessage(message) => {
                    if let Some(Some(connection)) = self.connections.get(token) {
                        self.rooms.message(message, connection.login.user());
                    }
                    at += message.len();
                }
                Element::Presence(presence) => {
                    self.broadcast(token, presence);
                    at += presence.len();
                }
                Element::Join(presence) => {
                    if let Some(answer) = self.rooms.join(token, presence) {
                        self.append(token, &answer);
                    }
                    at += presence.len();
                }
                Element::Dropped(length) => at += length,
                Element::End => return false,
                Element::Incomplete => break,
                Element::Other => {
                    let Some(Some(connection)) = self.connections.get_mut(token) else { return false };
                    let Some((length, answer)) = connection.login.answer(rest) else { break };
                    if connection.login.is_bound() {
                        self.addresses.entry(connection.login.address().to_vec()).or_insert(token);
                    }
                    if rest.starts_with(b"<iq type='set' to='") {
                        self.nodes.request(token, &rest[..length]);
                    }
                    self.append(token, &answer);
                    at += length;
                }
            }
        }
        let Some(Some(connection)) = self.connections.get_mut(token) else { return false };
        connection.input.extend_from_slice(&bytes[at..]);
        connection.input.len() < MAX_MESSAGE_BYTES
    }

    fn broadcast(&mut self, sender: usize, bytes: &[u8]) {
        for token in 0..self.connections.len() {
            let Some(Some(connection)) = self.connections.get(token) else { continue };
            if token != sender && connection.login.is_bound() {
                self.write_now(token, bytes);
            }
        }
    }

    /// Writes immediately what the socket takes. `false` for a connection that is closed.
    fn write_now(&mut self, token: usize, bytes: &[u8]) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(token) else { return false };
        let written =
            if connection.output.is_empty() { connection.stream.write(bytes).unwrap_or(0) } else { 0 };
        if written < bytes.len() {
            self.append(token, &bytes[written..]);
        }
        true
    }

    fn append(&mut self, token: usize, bytes: &[u8]) {
        if let Some(Some(connection)) = self.connections.get_mut(token) {
            connection.output.extend_from_slice(bytes);
        }
        self.mark_dirty(token);
    }

    fn write(&mut self, token: usize) {
        let Some(Some(connection)) = self.connections.get_mut(token) else { return };
        connection.is_dirty = false;
        let mut written = 0;
        while written < connection.output.len() {
            match connection.stream.write(&connection.output[written..]) {
                Ok(count) if count > 0 => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                _ => return self.close(token),
            }
        }
        connection.output.drain(..written);
    }
}

/// The element at the beginning of `bytes`.
fn first_element<'a>(bytes: &'a [u8], addresses: &HashMap<Vec<u8>, usize>) -> Element<'a> {
    if bytes.starts_with(b"<message") {
        let end = b"</message>";
        let Some(length) = memmem::find(bytes, end).map(|at| at + end.len()) else {
            return Element::Incomplete;
        };
        let message = &bytes[..length];
        if message.starts_with(ROOM_MESSAGE) {
            return Element::RoomMessage(message);
        }
        let to = attribute(message, &memmem::Finder::new(b"to='"));
        Element::Message(message, to.and_then(|to| addresses.get(to).copied()))
    } else if bytes.starts_with(b"<presence") {
        let Some(tag) = memchr::memchr(b'>', bytes) else { return Element::Incomplete };
        if bytes[tag - 1] == b'/' {
            return Element::Dropped(tag + 1);
        }
        let end = b"</presence>";
        let Some(length) = memmem::find(bytes, end).map(|at| at + end.len()) else {
            return Element::Incomplete;
        };
        let presence = &bytes[..length];
        if presence.starts_with(ROOM_PRESENCE) {
            Element::Join(presence)
        } else {
            Element::Presence(presence)
        }
    } else if bytes.starts_with(b"</") {
        Element::End
    } else {
        Element::Other
    }
}

#[cfg(test)]
mod tests {
    use super::{Element, first_element};
    use std::collections::HashMap;

    #[test]
    fn a_message_goes_to_the_connection_of_its_full_address() {
        let addresses = HashMap::from([(b"b@c/d".to_vec(), 7)]);
        let element = |text: &'static str| first_element(text.as_bytes(), &addresses);
        let (known, unknown) = ("<message to='b@c/d'><body/></message>", "<message to='b@c/x'></message>");
        assert_eq!(element(known), Element::Message(known.as_bytes(), Some(7)));
        assert_eq!(element(unknown), Element::Message(unknown.as_bytes(), None));
        assert_eq!(element("<message to='b@c/d'><body/>"), Element::Incomplete);
        assert_eq!(element("<presence/><message>"), Element::Dropped("<presence/>".len()));
        let presence = "<presence><show/></presence>";
        assert_eq!(element(presence), Element::Presence(presence.as_bytes()));
        assert_eq!(element("<presence><show/>"), Element::Incomplete);
        let join = "<presence to='r@c/n'><x xmlns='muc'/></presence>";
        assert_eq!(element(join), Element::Join(join.as_bytes()));
        let message = "<message type='groupchat' to='r@c' id='1'><body/></message>";
        assert_eq!(element(message), Element::RoomMessage(message.as_bytes()));
        assert_eq!(element("</stream:stream>"), Element::End);
        assert_eq!(element("<iq>"), Element::Other);
    }
}
