//! A node that is killed under load (`kill -9`) or stopped: every message that it acknowledged to its sender (XEP-0198,
//! `<a/>`) is delivered after a restart, in order and once.
//!
//! Not implemented: kills with recipients that are online, detached or slow; what is handed to their sessions is lost with the node.
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sasl::Mechanism;
use sasl::client::{Gs2, ScramClient};
use throng_e2e::{NodeProcess, ports, wait};

const DOMAIN: &str = "chat.test";
const PASSWORD: &str = "correct horse";
const RECIPIENTS: [&str; 2] = ["juliet", "nurse"];
const KILLS: u32 = 20;
/// Messages between two requests for an acknowledgement.
const BURST: u32 = 16;

/// A client that reads the server's text up to a pattern.
struct TextClient {
    stream: TcpStream,
    input: String,
}

impl TextClient {
    fn login(port: u16, user: &str) -> TextClient {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let mut client = TextClient { stream, input: String::new() };
        client.open();
        let hash = Mechanism::ScramSha256.hash().expect("a hash");
        let mut scram = ScramClient::new(hash, Gs2::None, user, PASSWORD);
        let first = sasl::encoding::encode_additional_data(Some(&scram.client_first()));
        client.send(&format!(
            "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='SCRAM-SHA-256'>{first}</auth>"
        ));
        let challenge = client.read_to("</challenge>");
        let challenge = challenge.rsplit_once('>').map_or("", |(_, text)| text);
        let challenge = sasl::encoding::decode_response(challenge).expect("base 64");
        let last = scram.client_final(&challenge, None).expect("a challenge");
        let last = sasl::encoding::encode_additional_data(Some(&last));
        client.send(&format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{last}</response>"));
        client.read_to("<success");
        client.read_to(">");
        client.open();
        client.send("<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
        client.read_to("</iq>");
        client
    }

    fn open(&mut self) {
        self.send(&format!(
            "<stream:stream to='{DOMAIN}' version='1.0' xmlns='jabber:client' \
             xmlns:stream='http://etherx.jabber.org/streams'>"
        ));
        self.read_to("</stream:features>");
    }

    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("a working connection");
    }

    /// What comes before the pattern.
    fn read_to(&mut self, pattern: &str) -> String {
        loop {
            if let Some(at) = self.input.find(pattern) {
                let before = self.input[..at].to_owned();
                self.input.drain(..at + pattern.len());
                return before;
            }
            let mut buffer = [0; 16_384];
            let count = self.stream.read(&mut buffer).expect("more text");
            assert!(count > 0, "the stream ended before {pattern}: {}", self.input);
            self.input.push_str(std::str::from_utf8(&buffer[..count]).expect("ASCII"));
        }
    }
}

/// The number in the last complete `<a h='…'/>` of a text.
fn last_count(text: &str) -> Option<u32> {
    let (before, _) = text.rsplit_once("/>")?;
    let (_, after) = before.rsplit_once("h='").or_else(|| before.rsplit_once("h=\""))?;
    after.trim_end_matches(['\'', '"']).parse().ok()
}

/// Sends numbered messages to the recipients in turn until the connection breaks.
fn send_numbered(mut stream: TcpStream, round: u32) {
    let mut number = 0;
    loop {
        let mut text = String::new();
        for _ in 0..BURST {
            let to = RECIPIENTS[number as usize % RECIPIENTS.len()];
            text +=
                &format!("<message to='{to}@{DOMAIN}' type='chat'><body>{round} {number}</body></message>");
            number += 1;
        }
        text += "<r xmlns='urn:xmpp:sm:3'/>";
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads counts until the connection breaks.
fn read_counts(mut stream: TcpStream, handled: &AtomicU32) {
    let mut text = String::new();
    let mut buffer = [0; 16_384];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        text += std::str::from_utf8(&buffer[..count]).expect("ASCII");
        if let Some(count) = last_count(&text) {
            handled.store(count, Ordering::Relaxed);
        }
        text.drain(..text.rfind('<').unwrap_or_default());
    }
}

/// Sends under load until `kill_at` messages were acknowledged, and kills the node. Returns the number acknowledged.
fn kill_under_load(node: &mut NodeProcess, port: u16, round: u32, kill_at: u32) -> u32 {
    let mut romeo = TextClient::login(port, "romeo");
    romeo.send("<enable xmlns='urn:xmpp:sm:3'/>");
    romeo.read_to("<enabled");
    romeo.read_to("/>");
    let handled = Arc::new(AtomicU32::new(0));
    let (for_reader, for_writer) =
        (romeo.stream.try_clone().expect("a socket"), romeo.stream.try_clone().expect("a socket"));
    let counter = handled.clone();
    let reader = std::thread::spawn(move || read_counts(for_reader, &counter));
    let writer = std::thread::spawn(move || send_numbered(for_writer, round));
    wait("acknowledgements", || (handled.load(Ordering::Relaxed) >= kill_at).then_some(()));
    node.kill();
    reader.join().expect("the reader");
    writer.join().expect("the writer");
    handled.load(Ordering::Relaxed)
}

/// Reads the stored messages up to this one, as pairs of round and number.
fn read_stored(port: u16, user: &str, last: (u32, u32)) -> Vec<(u32, u32)> {
    let mut client = TextClient::login(port, user);
    client.send("<presence/>");
    let mut numbers = Vec::new();
    while numbers.last().is_none_or(|number| *number < last) {
        client.read_to("<body>");
        let body = client.read_to("</body>");
        let (round, number) = body.split_once(' ').expect("two numbers");
        numbers.push((round.parse().expect("a number"), number.parse().expect("a number")));
    }
    numbers
}

fn configured_node(name: &str, port: u16) -> NodeProcess {
    let node = NodeProcess::new(name);
    node.configure(&format!(
        "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\n\
         [limits]\nnew_connections_per_second = 0\nstanzas_per_second = 0\nbytes_per_second = 0\n\
         [modules.offline]\nmax_messages = 1_000_000\nmax_bytes = 1_000_000_000\nsender_percent = 100\n\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\ntls = 'off'\n"
    ));
    for user in ["romeo", "juliet", "nurse"] {
        node.add_account(&format!("{user}@{DOMAIN}"), PASSWORD);
    }
    node
}

#[test]
fn messages_in_the_queue_of_a_detached_session_survive_a_stop() {
    const MESSAGES: u32 = 1_000;
    let [port] = ports::free();
    let mut node = configured_node("stops", port);
    node.start();
    let mut juliet = TextClient::login(port, "juliet");
    juliet.send("<presence/><enable xmlns='urn:xmpp:sm:3' resume='true'/>");
    juliet.read_to("<enabled");
    drop(juliet);
    let mut romeo = TextClient::login(port, "romeo");
    romeo.send("<enable xmlns='urn:xmpp:sm:3'/>");
    romeo.read_to("<enabled");
    romeo.read_to("/>");
    let message = |n| format!("<message to='juliet@{DOMAIN}' type='chat'><body>0 {n}</body></message>");
    romeo.send(&(0..MESSAGES).map(message).collect::<String>());
    romeo.send("<r xmlns='urn:xmpp:sm:3'/>");
    while last_count(&(romeo.read_to("/>") + "/>")).is_none_or(|count| count < MESSAGES) {}
    // No connection is left whose end the node would wait for.
    drop(romeo);
    node.stop_in_order();
    node.start();
    let received = read_stored(port, "juliet", (0, MESSAGES - 1));
    assert_eq!(received, (0..MESSAGES).map(|n| (0, n)).collect::<Vec<_>>());
    node.stop();
}

#[test]
fn messages_to_offline_users_that_were_acknowledged_survive_twenty_kills_in_order_and_once() {
    let [port] = ports::free();
    let mut node = configured_node("crashes", port);
    let mut acknowledged = Vec::new();
    for round in 0..KILLS {
        node.start();
        acknowledged.push(kill_under_load(&mut node, port, round, 20 + 37 * round % 300));
    }
    node.start();
    for (first, user) in (0_u32..).zip(RECIPIENTS) {
        let want: Vec<(u32, u32)> = (0_u32..)
            .zip(&acknowledged)
            .flat_map(|(round, count)| (first..*count).step_by(RECIPIENTS.len()).map(move |n| (round, n)))
            .collect();
        let received = read_stored(port, user, *want.last().expect("messages"));
        assert!(received.is_sorted_by(|a, b| a < b), "{user}: not in order, or twice: {received:?}");
        let lost: Vec<_> = want.iter().filter(|number| received.binary_search(number).is_err()).collect();
        assert!(lost.is_empty(), "{user}: {} acknowledged messages are lost: {lost:?}", lost.len());
    }
    node.stop();
}
