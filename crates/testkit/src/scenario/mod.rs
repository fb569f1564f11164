//! Scenarios: scripted conversations between clients and a server, similar to Prosody's scansion.
//!
//! A scenario is a text file in `e2e/scenarios`. It runs in memory with a manual clock, on one node
//! ([`ScenarioTarget::Memory`]) or spread over several ([`ScenarioTarget::Cluster`]), against any server on a port
//! ([`ScenarioTarget::Remote`], `cargo xtask scenarios --against`), or spread over real nodes
//! ([`ScenarioTarget::RemoteCluster`]).
//!
//! ```text
//! # A comment.
//! title: Messages reach every resource
//! features: roster presence
//! ignores: urn:xmpp:sid:0
//!
//! client romeo is romeo/orchard
//! client phone is romeo/phone with password secret
//! friends romeo juliet
//!
//! romeo connects
//! romeo sends:
//!     <message to='{juliet}' id='1'><body>Neither, fair saint</body></message>
//! romeo receives:
//!     <message from='{juliet}' id='{any}' type='{keep:kind}'/>
//! romeo receives nothing
//! ```
//!
//! The header: `title:`, `features:` (names of the registry that the scenario covers), `ignores:` (namespaces of
//! children that stanzas may have in addition), `administrators:` (users that must be administrators), then `client
//! NAME is USER/RESOURCE [on node N] [with password WORDS]` and `friends USER USER` (subscribed both ways before the
//! start).
//!
//! In a cluster the first client is on the first node, the second on the second, and so on, beginning again after the
//! last. `on node N` (from 1) places a client where the conversation depends on it; it wraps around in the same way, so
//! the scenario runs on any number of nodes.
//!
//! The steps, each a [`StepAction`]: `NAME connects` (up to a bound resource), `NAME opens a stream` (no login: the
//! scenario sends it, with `{NAME.plain}` for PLAIN), `NAME proves WORD` (computes `{NAME.proof}` of the token in
//! `{WORD}`), `NAME comes online` (connects, fetches the roster, sends presence, and discards what was received),
//! `NAME is offered:` (the last stream features received with a new stream), `NAME is refused CONDITION` (a login that
//! fails), `NAME authenticates` (up to the stream features, without a resource), `NAME sends:`, `NAME receives:`,
//! `NAME receives in any order:`, `NAME receives nothing`, `NAME forgets what came`, `NAME disconnects`,
//! `NAME loses the connection`, `NAME is disconnected [by CONDITION]`, `N seconds pass` (only in memory).
//! A colon is followed by XML on indented lines, one or several stanzas.
//!
//! In XML, `{USER}` is a bare address, `{NAME.full}` a full one, `{server}` the domain. In received XML `{any}` matches
//! any value or text; `{keep:WORD}` does too and stores it as `{WORD}`; `scenario:more='yes'` permits further
//! attributes and children of an element. Stanzas are compared by meaning: the order of attributes and children,
//! prefixes and blanks between elements do not count.
//!
//! Against a remote server, what RFC 6120 lets a server omit (`to` the client itself, `from` its own account, the
//! language) may be missing; in memory it is required.
//!
//! Not implemented: groups of concurrent steps, and checks of anything but XML.
//!
//! # Pitfalls
//!
//! `receives nothing` first waits until the server has answered every client, so it proves nothing about a server that
//! delivers later than it answers.

mod connection;
mod expected_element;
mod parse;
mod run;

use std::time::Duration;

use self::connection::RECEIVE_TIMEOUT;
use crate::server::{TestServer, TestServers, run_until_idle};

pub use parse::parse;
pub use run::run;

/// Pause between two questions to the nodes of a remote cluster.
const SETTLED_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Failure of a scenario, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{scenario}:{line}: {message}")]
pub struct ScenarioError {
    /// Name of the scenario.
    pub scenario: String,
    /// Line of its file, from 1.
    pub line: usize,
    /// Description in one sentence.
    pub message: String,
}

/// Parsed scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// File name without its extension.
    pub name: String,
    /// Behaviour that it demonstrates.
    pub title: String,
    /// Features of the registry that it covers.
    pub features: Vec<String>,
    /// Namespaces of children that are ignored unless the scenario lists them.
    pub ignores: Vec<String>,
    /// Users that must be administrators.
    pub administrators: Vec<String>,
    /// The clients.
    pub clients: Vec<ScenarioClient>,
    /// Pairs of users that are subscribed to each other.
    pub friends: Vec<(String, String)>,
    /// Steps in order.
    pub steps: Vec<ScenarioStep>,
}

/// Client of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioClient {
    /// Its name in the scenario.
    pub name: String,
    /// The user; the local part of the address.
    pub user: String,
    /// Resource that it requests.
    pub resource: String,
    /// Index of its node in a cluster; that of the client if absent. Both wrap around.
    pub node: Option<usize>,
    /// Its password; that of the target if absent.
    pub password: Option<String>,
}

impl ScenarioClient {
    fn password_or(&self, password: &str) -> String {
        self.password.clone().unwrap_or_else(|| password.to_owned())
    }
}

/// Step and its line.
#[derive(Clone, Debug)]
pub struct ScenarioStep {
    /// Line of the file, from 1.
    pub line: usize,
    /// Action of the step.
    pub action: StepAction,
}

/// Action of a step. Numbers are indices into [`Scenario::clients`].
#[derive(Clone, Debug)]
pub enum StepAction {
    /// Logs in and binds.
    Connects(usize),
    /// Logs in without binding.
    Authenticates(usize),
    /// Opens a stream, with TLS if offered, and does not log in.
    Opens(usize),
    /// Computes the proof of a token stored under this word.
    Proves(usize, String),
    /// Logs in, fetches the roster, sends presence, and discards what was received.
    GoesOnline(usize),
    /// The login fails with this condition.
    Refused(usize, String),
    /// These stream features were offered after the login, possibly among others.
    Offered(usize, String),
    /// Closes the stream and waits for the server to close it.
    Disconnects(usize),
    /// Drops the connection without closing the stream.
    Loses(usize),
    /// The server ends the stream, with this stream error or without one.
    Disconnected(usize, Option<String>),
    /// Sends XML.
    Sends(usize, String),
    /// Receives stanzas, in this order or in any.
    Receives(usize, String, ReceiveOrder),
    /// Has received nothing unexpected.
    ReceivesNothing(usize),
    /// Discards what was received.
    Forgets(usize),
    /// Advances the clock by seconds.
    Pass(u32),
}

/// Whether the order of received stanzas counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOrder {
    /// In the written order.
    Written,
    /// In any order.
    Any,
}

/// Server that scenarios run against.
pub enum ScenarioTarget {
    /// A node in memory. Accounts are created as needed.
    Memory(Box<TestServer>),
    /// Nodes in memory, over which the clients are spread. Accounts are created as needed.
    Cluster(TestServers),
    /// A server on a port. Accounts must exist: see [`Scenario::accounts`].
    Remote(RemoteServer),
    /// Nodes on ports, over which the clients are spread. Accounts must exist, and nodes are Throng's.
    RemoteCluster(RemoteCluster),
}

/// Nodes of a cluster on ports.
pub struct RemoteCluster {
    /// The nodes, which differ in their addresses only.
    pub nodes: Vec<RemoteServer>,
    /// Whether the nodes have handled everything that they had for one another, and know one another's sessions.
    pub is_settled: Box<dyn Fn() -> bool + Send>,
}

/// A server on a port.
#[derive(Clone, Debug)]
pub struct RemoteServer {
    /// `HOST:PORT` of a client listener, with STARTTLS or without TLS, or a WebSocket URL, `wss://HOST:PORT/PATH` or
    /// `ws://…`. The certificate is not verified.
    pub address: String,
    /// Domain of the accounts.
    pub domain: String,
    /// Password of accounts for which the scenario has none.
    pub password: String,
    /// Each scenario uses its own users, `SCENARIO-USER`, so that rosters are empty.
    pub own_users: bool,
}

impl ScenarioTarget {
    /// The nodes in memory.
    fn nodes(&self) -> Option<&[TestServer]> {
        match self {
            ScenarioTarget::Memory(server) => Some(std::slice::from_ref(server.as_ref())),
            ScenarioTarget::Cluster(servers) => Some(&servers.nodes),
            ScenarioTarget::Remote(_) | ScenarioTarget::RemoteCluster(_) => None,
        }
    }

    /// Lets the nodes complete everything that they have received. A single remote server cannot be asked for that.
    async fn settle(&self) -> Result<(), String> {
        match self {
            ScenarioTarget::Memory(_) => run_until_idle().await,
            ScenarioTarget::Cluster(servers) => servers.settle().await,
            ScenarioTarget::Remote(_) => {}
            ScenarioTarget::RemoteCluster(cluster) => cluster.settle().await?,
        }
        Ok(())
    }
}

impl RemoteCluster {
    async fn settle(&self) -> Result<(), String> {
        let settled = async {
            while !(self.is_settled)() {
                tokio::time::sleep(SETTLED_POLL_INTERVAL).await;
            }
        };
        let in_time = tokio::time::timeout(RECEIVE_TIMEOUT, settled).await;
        in_time.map_err(|_| "the nodes still have something for one another".to_owned())
    }
}

impl Scenario {
    /// Index of the node of a client in a cluster of `count` nodes.
    fn node_of(&self, who: usize, count: usize) -> usize {
        self.clients[who].node.unwrap_or(who) % count
    }

    /// User, local part on this target and password of every account that the scenario needs.
    pub fn accounts(&self, target: &ScenarioTarget) -> Vec<(String, String, String)> {
        let mut accounts: Vec<(String, String, String)> = Vec::new();
        for client in &self.clients {
            let (local, password) = match target {
                ScenarioTarget::Memory(_) | ScenarioTarget::Cluster(_) => {
                    (client.user.clone(), client.password_or(crate::server::PASSWORD))
                }
                ScenarioTarget::Remote(host) => self.remote_account(client, host),
                ScenarioTarget::RemoteCluster(cluster) => self.remote_account(client, &cluster.nodes[0]),
            };
            if !accounts.iter().any(|(user, ..)| *user == client.user) {
                accounts.push((client.user.clone(), local, password));
            }
        }
        accounts
    }

    fn remote_account(&self, client: &ScenarioClient, host: &RemoteServer) -> (String, String) {
        let local = match host.own_users {
            true => format!("{}-{}", self.name, client.user),
            false => client.user.clone(),
        };
        (local, client.password_or(&host.password))
    }

    /// Whether it needs a manual clock.
    pub fn needs_time(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, StepAction::Pass(_)))
    }
}
