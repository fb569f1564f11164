//! What the cases share: nodes in this process, users who are logged in, the program in a process of its own, and an
//! independent reader.
//!
//! Most cases use [`Way::wire`]: a node with all features over memory, with a clock that stands still until the case moves
//! it. What only a process shows (resident memory, log, ports, HTTP and its API) uses [`Program`].
//!
//! The trap: `Client` of the testkit reads with the server's own parser. What must be well-formed for others goes through
//! [`read`] as well.

mod names;
mod program;
mod reader;

use features::registry::ALL;
use testkit::wire::{Client, Heard, Seen, Setup, Wire};

pub(crate) use names::is_name;
pub(crate) use program::{Connection, PASSWORD as PROGRAM_PASSWORD, Program, frame};
pub(crate) use reader::read;

/// How clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Tcp,
    WebSocket,
    Bosh,
}

impl Way {
    /// All of them.
    pub(crate) const ALL: [Way; 3] = [Way::Tcp, Way::WebSocket, Way::Bosh];

    /// What a node needs for clients who connect like this, with all features and default limits.
    pub(crate) fn setup(self) -> Setup {
        let (websocket, bosh) = (self == Way::WebSocket, self == Way::Bosh);
        Setup { features: ALL.to_vec(), websocket, bosh, ..Setup::default() }
    }

    /// A node of that kind.
    pub(crate) fn wire(self) -> Wire {
        self.setup().start()
    }
}

/// A node with all features and default limits, clients over TCP.
pub(crate) fn wire() -> Wire {
    Way::Tcp.wire()
}

/// romeo and juliet with one resource each, logged in, not available and not in each other's rosters.
pub(crate) async fn pair(wire: &Wire) -> (Client, Client) {
    for user in ["romeo", "juliet"] {
        wire.user(user).await;
    }
    (wire.login("romeo", "orchard").await, wire.login("juliet", "balcony").await)
}

/// The same, available, each with a subscription to the other; everything that this brings was read.
pub(crate) async fn friends(wire: &Wire) -> (Client, Client) {
    let (mut romeo, mut juliet) = pair(wire).await;
    for client in [&mut romeo, &mut juliet] {
        client.send("<presence/>").await;
        client.sync().await;
    }
    befriend(&mut romeo, &mut juliet).await;
    (romeo, juliet)
}

/// Makes two users who are available contacts of one another (RFC 6121 section 3.1); everything that this brings was read.
pub(crate) async fn befriend(one: &mut Client, other: &mut Client) {
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

/// The bare address of a client.
pub(crate) fn bare(client: &Client) -> String {
    client.jid.split('/').next().unwrap_or_default().to_owned()
}

/// Sends a request and returns its answer; what else comes before it is dropped.
pub(crate) async fn ask(client: &mut Client, id: &str, request: &str) -> Seen {
    client.send(request).await;
    loop {
        let seen = client.element().await;
        if seen.name() == "iq" && seen.attr("id").as_deref() == Some(id) {
            return seen;
        }
    }
}

/// Everything that is heard until the stream is over: elements, then nothing more.
pub(crate) async fn until_the_end(client: &mut Client) -> Vec<Seen> {
    let mut all = Vec::new();
    loop {
        match client.hear().await {
            Heard::Element(seen) => all.push(seen),
            Heard::Header(_) | Heard::Close => {}
            Heard::Eof => return all,
        }
    }
}

/// The condition of the stream error among these, if there is one.
pub(crate) fn stream_error(seen: &[Seen]) -> Option<String> {
    seen.iter().find(|one| one.0.starts_with("<stream:error")).and_then(Seen::condition)
}

/// The client is still served and so is everybody else: a request of it is answered, and what came before is returned.
///
/// Everything passes through the independent reader.
pub(crate) async fn alive(client: &mut Client) -> Vec<Seen> {
    let before = client.sync().await;
    for seen in &before {
        read(&seen.0);
    }
    before
}
