//! A node that is killed under load (`kill -9`): every message that it acknowledged to its sender (XEP-0198, `<a/>`) is
//! delivered, before the kill or after a restart. To offline users, in order and once. To others, at least once: a message
//! that was delivered without an acknowledgement in time, or in the moment of the kill, is delivered again. No session
//! receives a message twice, and a message that is delivered again has the stanza-id (XEP-0359) that it had before.
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

#[path = "shared/bosh_client.rs"]
mod bosh_client;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bosh_client::BoshTestClient;
use throng_e2e::text_client::{DOMAIN, PASSWORD, TextClient};
use throng_e2e::{NodeProcess, ports, wait};

const OFFLINE: [&str; 2] = ["juliet", "nurse"];
const KILLS: u32 = 20;
/// Stored messages that a client reads and does not acknowledge.
const UNACKNOWLEDGED: usize = 50;
/// Messages between two requests for an acknowledgement.
const BURST: u32 = 16;

/// The number in the last complete `<a h='…'/>` of a text.
fn last_count(text: &str) -> Option<u32> {
    let (before, _) = text.rsplit_once("/>")?;
    let (_, after) = before.rsplit_once("h='").or_else(|| before.rsplit_once("h=\""))?;
    after.trim_end_matches(['\'', '"']).parse().ok()
}

/// Sends numbered messages to the recipients in turn until the connection breaks.
fn send_numbered(mut stream: TcpStream, round: u32, recipients: &[&str]) {
    let mut number = 0;
    loop {
        let mut text = String::new();
        for _ in 0..BURST {
            let to = recipients[number as usize % recipients.len()];
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
fn kill_under_load(
    node: &mut NodeProcess,
    port: u16,
    round: u32,
    recipients: &'static [&'static str],
    kill_at: u32,
) -> u32 {
    let mut romeo = TextClient::login(port, "romeo");
    romeo.send("<enable xmlns='urn:xmpp:sm:3'/>");
    romeo.read_to("<enabled");
    romeo.read_to("/>");
    let handled = Arc::new(AtomicU32::new(0));
    let (for_reader, for_writer) =
        (romeo.stream.try_clone().expect("a socket"), romeo.stream.try_clone().expect("a socket"));
    let counter = handled.clone();
    let reader = std::thread::spawn(move || read_counts(for_reader, &counter));
    let writer = std::thread::spawn(move || send_numbered(for_writer, round, recipients));
    wait("acknowledgements", || (handled.load(Ordering::Relaxed) >= kill_at).then_some(()));
    node.kill();
    reader.join().expect("the reader");
    writer.join().expect("the writer");
    handled.load(Ordering::Relaxed)
}

/// Round and number of a message.
type MessageNumber = (u32, u32);

/// A message that a client has received.
#[derive(Clone, Debug)]
struct ReceivedMessage {
    number: MessageNumber,
    stanza_id: String,
}

impl ReceivedMessage {
    /// Reads the text between `<message ` and `</message>`.
    fn parse(text: &str) -> ReceivedMessage {
        let between = |text: &str, before: &str, after: &str| {
            let (_, rest) = text.split_once(before)?;
            Some(rest.split_once(after)?.0.to_owned())
        };
        let body = between(text, "<body>", "</body>").expect("a body");
        let (round, number) = body.split_once(' ').expect("two numbers");
        let number = (round.parse().expect("a number"), number.parse().expect("a number"));
        assert_eq!(text.matches("<stanza-id ").count(), 1, "{text}");
        let tag = between(text, "<stanza-id ", "/>").expect("an element");
        let stanza_id = between(&tag, " id='", "'").expect("an id");
        ReceivedMessage { number, stanza_id }
    }
}

/// The complete messages in a text.
fn messages_in(text: &str) -> impl Iterator<Item = ReceivedMessage> {
    let messages = text.split("<message ").skip(1).filter_map(|rest| Some(rest.split_once("</message>")?.0));
    messages.map(ReceivedMessage::parse)
}

fn read_message(client: &mut TextClient) -> ReceivedMessage {
    client.read_to("<message ");
    ReceivedMessage::parse(&client.read_to("</message>"))
}

/// Reads the stored messages up to this one.
fn read_stored(port: u16, user: &str, last: MessageNumber) -> Vec<ReceivedMessage> {
    let mut client = TextClient::login(port, user);
    client.send("<presence/>");
    let mut messages: Vec<ReceivedMessage> = Vec::new();
    while messages.last().is_none_or(|message| message.number < last) {
        messages.push(read_message(&mut client));
    }
    messages
}

fn numbers(messages: &[ReceivedMessage]) -> Vec<MessageNumber> {
    messages.iter().map(|message| message.number).collect()
}

/// The messages that one user has received in all sessions.
#[derive(Default)]
struct ReceivedByUser {
    ids: BTreeMap<MessageNumber, String>,
    /// Deliveries of messages that an earlier session had received.
    repeats: usize,
}

impl ReceivedByUser {
    /// Checks and adds the messages of one session, in the order of their arrival.
    fn add_session(&mut self, user: &str, messages: &[ReceivedMessage]) {
        let mut in_session = BTreeSet::new();
        for ReceivedMessage { number, stanza_id } in messages {
            assert!(in_session.insert(*number), "{user}: one session has received {number:?} twice");
            match self.ids.get(number) {
                Some(before) => {
                    assert_eq!(before, stanza_id, "{user}: {number:?} has another id than before");
                    self.repeats += 1;
                }
                None => _ = self.ids.insert(*number, stanza_id.clone()),
            }
        }
    }

    /// Checks that each message has an id of its own.
    fn check_ids(&self, user: &str) {
        let different: BTreeSet<&String> = self.ids.values().collect();
        assert_eq!(different.len(), self.ids.len(), "{user}: messages share an id");
    }
}

/// For tests that leave everything in the offline store.
const NO_QUOTA: &str =
    "[modules.offline]\nmax_messages = 1_000_000\nmax_bytes = 1_000_000_000\nsender_percent = 100\n";

/// A node that is not started yet, and its port for clients.
fn node_with_accounts(name: &str, users: &[&str], modules: &str) -> (NodeProcess, u16) {
    let [port] = ports::free();
    let node = NodeProcess::new(name);
    node.configure(&format!(
        "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n[auth]\nscram_iterations = 4096\n\
         [limits]\nnew_connections_per_second = 0\nstanzas_per_second = 0\nbytes_per_second = 0\n\
         {modules}\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\ntls = 'off'\n"
    ));
    for user in users {
        node.add_account(&format!("{user}@{DOMAIN}"), PASSWORD);
    }
    (node, port)
}

/// Number of acknowledged messages after which the node is killed.
fn kill_at(round: u32) -> u32 {
    20 + 37 * round % 300
}

/// Sends numbered messages to a detached session of juliet until all are acknowledged.
fn send_to_detached(port: u16, messages: u32) {
    let mut juliet = TextClient::login(port, "juliet");
    juliet.send("<presence/><enable xmlns='urn:xmpp:sm:3' resume='true'/>");
    juliet.read_to("<enabled");
    drop(juliet);
    let mut romeo = TextClient::login(port, "romeo");
    romeo.send("<enable xmlns='urn:xmpp:sm:3'/>");
    romeo.read_to("<enabled");
    romeo.read_to("/>");
    let message = |n| format!("<message to='juliet@{DOMAIN}' type='chat'><body>0 {n}</body></message>");
    romeo.send(&(0..messages).map(message).collect::<String>());
    romeo.send("<r xmlns='urn:xmpp:sm:3'/>");
    while last_count(&(romeo.read_to("/>") + "/>")).is_none_or(|count| count < messages) {}
}

#[test]
fn messages_in_the_queue_of_a_detached_session_survive_a_stop() {
    const MESSAGES: u32 = 1_000;
    let (mut node, port) = node_with_accounts("stops", &["romeo", "juliet"], NO_QUOTA);
    node.start();
    // No connection is left whose end the node would wait for.
    send_to_detached(port, MESSAGES);
    node.stop_in_order();
    node.start();
    let received = read_stored(port, "juliet", (0, MESSAGES - 1));
    assert_eq!(numbers(&received), (0..MESSAGES).map(|n| (0, n)).collect::<Vec<_>>());
    node.stop();
}

#[test]
fn messages_beyond_the_offline_quota_in_the_queue_of_a_detached_session_survive_a_kill() {
    // By default, one sender may store 500 messages for an offline user.
    const MESSAGES: u32 = 1_200;
    let (mut node, port) = node_with_accounts("kill-beyond-quota", &["romeo", "juliet"], "");
    node.start();
    send_to_detached(port, MESSAGES);
    node.kill();
    node.start();
    let received = read_stored(port, "juliet", (0, MESSAGES - 1));
    assert_eq!(numbers(&received), (0..MESSAGES).map(|n| (0, n)).collect::<Vec<_>>());
    node.stop();
}

#[test]
fn messages_to_offline_users_that_were_acknowledged_survive_twenty_kills_in_order_and_once() {
    let (mut node, port) = node_with_accounts("crashes", &["romeo", "juliet", "nurse"], NO_QUOTA);
    let mut acknowledged = Vec::new();
    for round in 0..KILLS {
        node.start();
        acknowledged.push(kill_under_load(&mut node, port, round, &OFFLINE, kill_at(round)));
    }
    node.start();
    let mut received_by_users: [ReceivedByUser; OFFLINE.len()] = Default::default();
    for (user, received) in OFFLINE.iter().zip(&mut received_by_users) {
        // It does not acknowledge.
        let mut client = TextClient::login_managed(port, user, "");
        let messages: Vec<_> = (0..UNACKNOWLEDGED).map(|_| read_message(&mut client)).collect();
        received.add_session(user, &messages);
    }
    node.kill();
    node.start();
    for ((first, user), received_by_user) in (0_u32..).zip(OFFLINE).zip(&mut received_by_users) {
        let want: Vec<MessageNumber> = (0_u32..)
            .zip(&acknowledged)
            .flat_map(|(round, count)| (first..*count).step_by(OFFLINE.len()).map(move |n| (round, n)))
            .collect();
        let messages = read_stored(port, user, *want.last().expect("messages"));
        received_by_user.add_session(user, &messages);
        received_by_user.check_ids(user);
        assert_eq!(received_by_user.repeats, UNACKNOWLEDGED, "{user}");
        let received = numbers(&messages);
        assert!(received.is_sorted_by(|a, b| a < b), "{user}: not in order, or twice: {received:?}");
        let lost: Vec<_> = want.iter().filter(|number| received.binary_search(number).is_err()).collect();
        assert!(lost.is_empty(), "{user}: {} acknowledged messages are lost: {lost:?}", lost.len());
    }
    node.stop();
}

/// How a recipient's client treats its messages.
#[derive(Clone, Copy, Debug)]
enum ClientKind {
    /// It reads, and acknowledges on request.
    Acknowledging,
    /// Its connection is lost, and it does not come back.
    Detached,
    /// It has stream management, and does not read.
    Silent,
    /// It has no stream management, and does not read until the node is dead: the kernel has its messages.
    Unmanaged,
    /// It reads over BOSH: each response is followed by a request.
    BoshReading,
    /// It has sent a request over BOSH, and does not read the response until the node is dead.
    BoshSilent,
}

const CONNECTED: [&str; 6] = ["juliet", "nurse", "tybalt", "benvolio", "mercutio", "paris"];
const KINDS: [ClientKind; 6] = [
    ClientKind::Acknowledging,
    ClientKind::Detached,
    ClientKind::Silent,
    ClientKind::Unmanaged,
    ClientKind::BoshReading,
    ClientKind::BoshSilent,
];

/// Reads and acknowledges until the connection breaks. Returns the messages.
fn read_and_acknowledge(mut client: TextClient) -> Vec<ReceivedMessage> {
    const REQUEST: &str = "<r xmlns='urn:xmpp:sm:3'/>";
    let (mut messages, mut stanzas) = (Vec::new(), 0);
    loop {
        while let Some(at) = client.input.find(REQUEST) {
            let text: String = client.input.drain(..at + REQUEST.len()).collect();
            stanzas += ["<message ", "<presence ", "<iq "]
                .map(|tag| text.matches(tag).count())
                .iter()
                .sum::<usize>();
            messages.extend(messages_in(&text));
            // The node may be dead.
            let _ = client.stream.write_all(format!("<a xmlns='urn:xmpp:sm:3' h='{stanzas}'/>").as_bytes());
        }
        let mut buffer = [0; 16_384];
        match client.stream.read(&mut buffer) {
            Ok(count @ 1..) => client.input += std::str::from_utf8(&buffer[..count]).expect("ASCII"),
            _ => break,
        }
    }
    messages.extend(messages_in(&client.input));
    messages
}

/// Reads over BOSH until the connection breaks. Returns the messages.
fn read_over_bosh(mut client: BoshTestClient) -> Vec<ReceivedMessage> {
    let mut messages = Vec::new();
    while let Some(text) = client.one.try_text() {
        assert!(!text.contains("terminate"), "{text}");
        messages.extend(messages_in(&text));
        let body = client.next("", "");
        // The node may be dead.
        client.one.try_post(&body);
    }
    messages
}

/// A recipient's connection during one round.
enum ConnectedClient {
    Reader(std::thread::JoinHandle<Vec<ReceivedMessage>>),
    Idle(TextClient),
    BoshIdle(BoshTestClient),
    Gone,
}

impl ConnectedClient {
    fn connect([port, http]: [u16; 2], user: &str, kind: ClientKind) -> ConnectedClient {
        // A request that waits.
        let over_bosh = || {
            let mut client = BoshTestClient::login(http, DOMAIN, user, PASSWORD);
            let body = client.next("", "");
            client.one.post(&body);
            client
        };
        match kind {
            ClientKind::BoshReading => {
                let client = over_bosh();
                ConnectedClient::Reader(std::thread::spawn(move || read_over_bosh(client)))
            }
            ClientKind::BoshSilent => ConnectedClient::BoshIdle(over_bosh()),
            ClientKind::Acknowledging => {
                let client = TextClient::login_managed(port, user, "");
                ConnectedClient::Reader(std::thread::spawn(move || read_and_acknowledge(client)))
            }
            ClientKind::Detached => {
                let mut client = TextClient::login_managed(port, user, " resume='true'");
                // The presence was handled.
                client.read_to("h='1'");
                ConnectedClient::Gone
            }
            ClientKind::Silent => {
                let mut client = TextClient::login_managed(port, user, "");
                client.read_to("h='1'");
                ConnectedClient::Idle(client)
            }
            ClientKind::Unmanaged => {
                let mut client = TextClient::login(port, user);
                client.send("<presence/><iq type='get' id='ready'><ping xmlns='urn:xmpp:ping'/></iq>");
                client.read_to("id='ready'");
                ConnectedClient::Idle(client)
            }
        }
    }

    /// What the client has received when the node is dead.
    fn received(self) -> Vec<ReceivedMessage> {
        match self {
            ConnectedClient::Reader(reader) => reader.join().expect("the reader"),
            ConnectedClient::Idle(mut client) => {
                let mut rest = Vec::new();
                // An error ends the input as the end does.
                let _ = client.stream.read_to_end(&mut rest);
                client.input += std::str::from_utf8(&rest).expect("ASCII");
                messages_in(&client.input).collect()
            }
            ConnectedClient::BoshIdle(mut client) => {
                client.one.try_text().iter().flat_map(|text| messages_in(text)).collect()
            }
            ConnectedClient::Gone => Vec::new(),
        }
    }
}

/// What one user must still receive, and what it has received.
#[derive(Default)]
struct ConnectedRecipient {
    /// Acknowledged to the sender and not received.
    missing: BTreeSet<MessageNumber>,
    received: ReceivedByUser,
}

impl ConnectedRecipient {
    fn add_session(&mut self, user: &str, messages: &[ReceivedMessage]) {
        self.received.add_session(user, messages);
        for message in messages {
            self.missing.remove(&message.number);
        }
    }

    /// Reads all stored messages: the missing ones must be among them. They arrive in order, and each once.
    fn read_missing(&mut self, port: u16, user: &str) {
        // The round of a message that arrives after all that are stored. Its number is that of the session.
        const LAST: u32 = u32::MAX;
        let number = u32::try_from(self.received.ids.len()).expect("a small number");
        let mut client = TextClient::login(port, user);
        client.send(&format!(
            "<presence/><message to='{user}@{DOMAIN}' type='chat'><body>{LAST} {number}</body></message>"
        ));
        let mut messages = Vec::new();
        while messages.last().is_none_or(|last: &ReceivedMessage| last.number != (LAST, number)) {
            messages.push(read_message(&mut client));
        }
        let mut arrived = numbers(&messages);
        arrived.retain(|(round, _)| *round < LAST);
        assert!(arrived.is_sorted_by(|a, b| a < b), "{user}: not in order, or twice: {arrived:?}");
        self.add_session(user, &messages);
        let missing = &self.missing;
        assert!(missing.is_empty(), "{user}: acknowledged messages are lost: {missing:?}");
        client.send("</stream:stream>");
        client.read_to("</stream:stream>");
    }
}

#[test]
fn messages_to_online_detached_and_slow_users_that_were_acknowledged_survive_twenty_kills() {
    let users = ["romeo", "juliet", "nurse", "tybalt", "benvolio", "mercutio", "paris"];
    let [http] = ports::free();
    let listener =
        format!("[[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\nallow_plain_without_tls = true\n");
    let (mut node, port) = node_with_accounts("crashes-connected", &users, &listener);
    let mut recipients: [ConnectedRecipient; CONNECTED.len()] = Default::default();
    for round in 0..KILLS {
        node.start();
        for (user, recipient) in CONNECTED.iter().zip(&mut recipients) {
            recipient.read_missing(port, user);
        }
        let clients: Vec<ConnectedClient> = CONNECTED
            .iter()
            .zip(KINDS)
            .map(|(user, kind)| ConnectedClient::connect([port, http], user, kind))
            .collect();
        let acknowledged = kill_under_load(&mut node, port, round, &CONNECTED, kill_at(round));
        for ((first, client), recipient) in (0_u32..).zip(clients).zip(&mut recipients) {
            let user = CONNECTED[first as usize];
            let received = client.received();
            let of_round: Vec<_> =
                numbers(&received).into_iter().filter(|(of_round, _)| *of_round == round).collect();
            assert!(of_round.is_sorted(), "{user}: not in order: {of_round:?}");
            let sent = (first..acknowledged).step_by(CONNECTED.len()).map(|number| (round, number));
            recipient.missing.extend(sent);
            recipient.add_session(user, &received);
        }
    }
    node.start();
    for ((user, kind), recipient) in CONNECTED.iter().zip(KINDS).zip(&mut recipients) {
        recipient.read_missing(port, user);
        recipient.received.check_ids(user);
        // Without an acknowledgement they are delivered again.
        let repeats = recipient.received.repeats;
        assert!(repeats > 0 || !matches!(kind, ClientKind::Silent), "{user}: no message was repeated");
        println!("{user} ({kind:?}): {} messages, {repeats} of them repeated", recipient.received.ids.len());
    }
    node.stop();
}
