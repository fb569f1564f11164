//! Helpers of the attacks: nodes in this process, logged-in users, the program in its own process, and an independent
//! XML reader.
//!
//! Most cases use [`ClientTransport::start`]: a node in memory with all features and a clock that only the case
//! advances. What only a process has (resident memory, log, ports, HTTP and its API) is tested with
//! [`ProgramUnderAttack`].
//!
//! # Pitfalls
//!
//! `Client` of the testkit reads with the server's own parser. XML that other clients must accept is also passed to
//! [`assert_well_formed`].

mod program;
mod reader;
mod xml_names;

use features::registry::ALL;
use sasl::Mechanism;
use store::{BulkItem, BulkRoster, Subscription};
use testkit::server::{PASSWORD, ReceivedElement, ReceivedEvent, StreamClient, TestServer, TestServerConfig};

pub(crate) use program::{PASSWORD as PROGRAM_PASSWORD, ProgramUnderAttack, RawSocket, frame};
pub(crate) use reader::assert_well_formed;
pub(crate) use xml_names::is_name;

/// Transport of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTransport {
    Tcp,
    WebSocket,
    Bosh,
}

impl ClientTransport {
    /// All transports.
    pub(crate) const ALL: [ClientTransport; 3] =
        [ClientTransport::Tcp, ClientTransport::WebSocket, ClientTransport::Bosh];

    /// Configuration of a node for this transport, with all features and default limits.
    pub(crate) fn setup(self) -> TestServerConfig {
        let (websocket, bosh) = (self == ClientTransport::WebSocket, self == ClientTransport::Bosh);
        TestServerConfig { features: ALL.to_vec(), websocket, bosh, ..TestServerConfig::default() }
    }

    /// Starts a node with this configuration.
    pub(crate) fn start(self) -> TestServer {
        self.setup().start()
    }
}

/// A node with all features and default limits, clients over TCP.
pub(crate) fn start_server() -> TestServer {
    ClientTransport::Tcp.start()
}

/// Logs in romeo and juliet with one resource each, unavailable and without subscriptions.
pub(crate) async fn pair(server: &TestServer) -> (StreamClient, StreamClient) {
    for user in ["romeo", "juliet"] {
        server.create_user(user).await;
    }
    (server.login("romeo", "orchard").await, server.login("juliet", "balcony").await)
}

/// Like [`pair`], but available and subscribed to each other; all resulting stanzas have been read.
pub(crate) async fn friends(server: &TestServer) -> (StreamClient, StreamClient) {
    let (mut romeo, mut juliet) = pair(server).await;
    for client in [&mut romeo, &mut juliet] {
        client.send("<presence/>").await;
        client.sync().await;
    }
    befriend(&mut romeo, &mut juliet).await;
    (romeo, juliet)
}

/// Makes two users available contacts of each other (RFC 6121 section 3.1) and reads all resulting stanzas.
pub(crate) async fn befriend(one: &mut StreamClient, other: &mut StreamClient) {
    let (of_one, of_other) = (bare(one), bare(other));
    one.send(format!("<presence type='subscribe' to='{of_other}'/>")).await;
    one.sync().await;
    other.send(format!("<presence type='subscribed' to='{of_one}'/>")).await;
    other.send(format!("<presence type='subscribe' to='{of_one}'/>")).await;
    other.sync().await;
    one.send(format!("<presence type='subscribed' to='{of_other}'/>")).await;
    one.sync().await;
    other.sync().await;
    one.sync().await;
}

/// Creates a user with 5 000 contacts and 2 MB of names and groups.
pub(crate) async fn user_with_large_roster(server: &TestServer, name: &str) {
    let owner = server.create_user(name).await;
    let mut items = Vec::new();
    for n in 0..5_000 {
        let contact = server.stores.addresses.intern(&server.address(&format!("contact{n}"))).await.unwrap();
        let (name, groups) = (Some("x".repeat(200)), vec!["y".repeat(200)]);
        items.push(BulkItem {
            contact,
            name,
            groups,
            subscription: Subscription::BOTH | Subscription::IN_ROSTER,
        });
    }
    server.stores.roster.put_bulk(vec![BulkRoster { owner, items }]).await.unwrap();
}

/// Enables stream management with resumption (XEP-0198); returns the identifier.
pub(crate) async fn enable_resumption(client: &mut StreamClient) -> String {
    client.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
    client.element().await.attr("id").expect("an identifier")
}

/// Resumes a stream of this user over a new connection with nothing acknowledged; returns the response.
pub(crate) async fn resume(server: &TestServer, user: &str, previd: &str) -> (StreamClient, ReceivedElement) {
    let mut client = server.connect();
    client.open().await;
    client.authenticate(Mechanism::ScramSha1, user, PASSWORD).await.expect("the password is right");
    client.open().await;
    client.send(format!("<resume xmlns='urn:xmpp:sm:3' previd='{previd}' h='0'/>")).await;
    let answer = client.element().await;
    (client, answer)
}

/// Bare address of a client.
pub(crate) fn bare(client: &StreamClient) -> String {
    client.jid.split('/').next().unwrap_or_default().to_owned()
}

/// Sends a request and returns its response; other elements before it are dropped.
pub(crate) async fn ask(client: &mut StreamClient, id: &str, request: &str) -> ReceivedElement {
    client.send(request).await;
    loop {
        let seen = client.element().await;
        if seen.name() == "iq" && seen.attr("id").as_deref() == Some(id) {
            return seen;
        }
    }
}

/// All elements that are received until the stream ends.
pub(crate) async fn read_until_end(client: &mut StreamClient) -> Vec<ReceivedElement> {
    let mut all = Vec::new();
    loop {
        match client.receive().await {
            ReceivedEvent::Element(seen) => all.push(seen),
            ReceivedEvent::Header(_) | ReceivedEvent::Close => {}
            ReceivedEvent::Eof => return all,
        }
    }
}

/// Condition of the stream error among these elements, if any.
pub(crate) fn stream_error(seen: &[ReceivedElement]) -> Option<String> {
    seen.iter().find(|one| one.0.starts_with("<stream:error")).and_then(ReceivedElement::condition)
}

/// Checks that this client and others are still served; returns the elements received before the response.
///
/// Every element is read by the independent reader as well.
pub(crate) async fn assert_alive(client: &mut StreamClient) -> Vec<ReceivedElement> {
    let before = client.sync().await;
    for seen in &before {
        assert_well_formed(&seen.0);
    }
    before
}
