//! A client with stream management that remembers what it has sent and received. A thread reads, acknowledges what it is asked to,
//! and accepts subscription requests.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use roxmltree::{Document, Node};
use throng_e2e::text_client::{DOMAIN, TextClient};
use throng_e2e::wait;
use xml::{Limits, ScanOutcome, Scanner};

use crate::received::{PresenceEvent, ReceivedMessage, Seen};

/// Brings a scanner into the stream that [`TextClient`] has opened.
const HEADER: &str = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";

/// A message that was sent.
#[derive(Clone, Debug)]
pub(crate) struct SentMessage {
    pub(crate) id: String,
    /// Number of the sender's stanzas up to this one.
    position: u32,
}

struct Outgoing {
    stream: TcpStream,
    /// Stanzas sent.
    count: u32,
    messages: Vec<SentMessage>,
    syncs: u32,
}

struct Shared {
    outgoing: Mutex<Outgoing>,
    seen: Mutex<Seen>,
}

/// A session, also after its end.
pub(crate) struct ManagedClient {
    pub(crate) user: &'static str,
    /// Its node.
    pub(crate) node: usize,
    shared: Arc<Shared>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl ManagedClient {
    /// Logs in at a port of this namespace.
    pub(crate) fn login(port: u16, user: &'static str, node: usize) -> ManagedClient {
        let client = TextClient::login_managed(port, user, "");
        // No limit: a stream may be silent for as long as a fault lasts.
        client.stream.set_read_timeout(None).expect("a stream");
        let stream = client.stream.try_clone().expect("a stream");
        // The presence of the login is the first stanza.
        let outgoing = Outgoing { stream, count: 1, messages: Vec::new(), syncs: 0 };
        let shared = Arc::new(Shared { outgoing: Mutex::new(outgoing), seen: Mutex::default() });
        let reading = shared.clone();
        let reader = std::thread::spawn(move || {
            read(client, &reading);
            reading.seen.lock().ended = true;
        });
        ManagedClient { user, node, shared, reader: Mutex::new(Some(reader)) }
    }

    /// Sends a stanza; if the connection is gone, nothing happens.
    pub(crate) fn send(&self, stanza: &str) {
        self.shared.send(stanza);
    }

    /// Sends a message, and asks for an acknowledgement.
    pub(crate) fn send_message(&self, to: &str, id: &str) {
        let text = format!(
            "<message to='{to}@{DOMAIN}' type='chat' id='{id}'><body>{id}</body></message>\
             <r xmlns='urn:xmpp:sm:3'/>"
        );
        let mut outgoing = self.shared.outgoing.lock();
        if outgoing.write(&text) {
            outgoing.count += 1;
            let position = outgoing.count;
            outgoing.messages.push(SentMessage { id: id.to_owned(), position });
        }
    }

    /// Asks the server how many stanzas it has handled.
    pub(crate) fn request_acknowledgement(&self) {
        self.shared.outgoing.lock().write("<r xmlns='urn:xmpp:sm:3'/>");
    }

    /// Messages sent, each with when it was acknowledged.
    pub(crate) fn sent(&self) -> Vec<(SentMessage, Option<Instant>)> {
        let acknowledged = self.shared.seen.lock().acknowledged.clone();
        let outgoing = self.shared.outgoing.lock();
        let when = |message: &SentMessage| {
            acknowledged.iter().find_map(|(at, count)| (*count >= message.position).then_some(*at))
        };
        outgoing.messages.iter().map(|message| (message.clone(), when(message))).collect()
    }

    /// Messages received, each with whether the client has acknowledged it.
    pub(crate) fn received(&self) -> Vec<(ReceivedMessage, bool)> {
        let seen = self.shared.seen.lock();
        seen.messages.iter().map(|message| (message.clone(), message.position <= seen.answered)).collect()
    }

    /// Ids of the messages that came back.
    pub(crate) fn returned(&self) -> Vec<String> {
        self.shared.seen.lock().returned.clone()
    }

    /// Whether a session of the user is shown as available.
    pub(crate) fn sees(&self, user: &str) -> bool {
        let prefix = format!("{user}@{DOMAIN}/");
        self.shared.seen.lock().present.iter().any(|address| address.starts_with(&prefix))
    }

    /// Number of sessions that are shown as available.
    pub(crate) fn seen_sessions(&self) -> usize {
        self.shared.seen.lock().present.len()
    }

    /// Changes of presence so far.
    pub(crate) fn presence(&self) -> Vec<PresenceEvent> {
        self.shared.seen.lock().presence.clone()
    }

    /// Whether the stream has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.seen.lock().ended
    }

    /// Waits until the server has answered a request, and so has sent what it had before.
    pub(crate) fn sync(&self) {
        let number = {
            let mut outgoing = self.shared.outgoing.lock();
            outgoing.syncs += 1;
            outgoing.syncs
        };
        self.send(&format!("<iq type='get' id='sync-{number}'><ping xmlns='urn:xmpp:ping'/></iq>"));
        wait("an answer to a ping", || (self.shared.seen.lock().synced >= number).then_some(()));
    }

    /// Acknowledges what has arrived and ends the stream.
    pub(crate) fn close(&self) {
        {
            // In this order everywhere.
            let mut seen = self.shared.seen.lock();
            let mut outgoing = self.shared.outgoing.lock();
            if outgoing.write(&format!("<a xmlns='urn:xmpp:sm:3' h='{}'/></stream:stream>", seen.received)) {
                seen.answered = seen.received;
            }
        }
        self.wait_for_end();
    }

    /// Waits until the stream has ended and everything that had arrived is read.
    pub(crate) fn wait_for_end(&self) {
        wait("the end of the stream", || self.has_ended().then_some(()));
        if let Some(reader) = self.reader.lock().take() {
            reader.join().expect("the reader");
        }
    }
}

impl Drop for ManagedClient {
    fn drop(&mut self) {
        let _ = self.shared.outgoing.lock().stream.shutdown(Shutdown::Both);
    }
}

impl Outgoing {
    /// Whether the connection has taken the text.
    fn write(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).is_ok()
    }
}

impl Shared {
    fn send(&self, stanza: &str) {
        let mut outgoing = self.outgoing.lock();
        if outgoing.write(stanza) {
            outgoing.count += 1;
        }
    }

    fn handle(&self, text: &str) {
        let document = Document::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let root = document.root_element();
        let attribute = |name: &str| root.attribute(name).unwrap_or_default();
        let mut seen = self.seen.lock();
        match root.tag_name().name() {
            "a" => {
                let count = attribute("h").parse().expect("a number");
                return seen.acknowledged.push((Instant::now(), count));
            }
            "r" => {
                let mut outgoing = self.outgoing.lock();
                if outgoing.write(&format!("<a xmlns='urn:xmpp:sm:3' h='{}'/>", seen.received)) {
                    seen.answered = seen.received;
                }
                return;
            }
            "message" | "presence" | "iq" => seen.received += 1,
            _ => return,
        }
        let id = attribute("id").to_owned();
        match (root.tag_name().name(), attribute("type")) {
            ("message", "error") => seen.returned.push(id),
            ("message", _) => {
                let child = |node: &Node<'_, '_>| node.tag_name().name() == "stanza-id";
                let stanza_id = root.children().find(child).and_then(|node| node.attribute("id"));
                let (stanza_id, position) = (stanza_id.map(str::to_owned), seen.received);
                seen.messages.push(ReceivedMessage { id, stanza_id, at: Instant::now(), position });
            }
            ("presence", "subscribe") => {
                drop(seen);
                self.send(&format!("<presence type='subscribed' to='{}'/>", attribute("from")));
            }
            ("presence", "" | "unavailable") => {
                seen.change_presence(attribute("from"), attribute("type").is_empty())
            }
            ("iq", _) => {
                if let Some(number) = id.strip_prefix("sync-") {
                    seen.synced = number.parse().expect("a number");
                }
            }
            _ => {}
        }
    }
}

/// Reads to the end of the stream.
fn read(mut client: TextClient, shared: &Shared) {
    let limits = Limits::CEILING;
    let mut scanner = Scanner::new();
    let mut input = format!("{HEADER}{}", client.input).into_bytes();
    let mut buffer = [0; 16_384];
    loop {
        match scanner.scan(&input, &limits).expect("XML") {
            ScanOutcome::More { skip } => {
                input.drain(..skip);
                match client.stream.read(&mut buffer) {
                    Ok(count @ 1..) => input.extend_from_slice(&buffer[..count]),
                    _ => return,
                }
            }
            ScanOutcome::Open { end, .. } => drop(input.drain(..end)),
            ScanOutcome::Element { start, end } => {
                let text = String::from_utf8_lossy(&input[start..end]).into_owned();
                input.drain(..end);
                // An error of the stream has a prefix whose declaration is in the header.
                if !text.starts_with("<stream:") {
                    shared.handle(&text);
                }
            }
            ScanOutcome::Close { .. } => return,
        }
    }
}
