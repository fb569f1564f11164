//! Plays: scripted conversations between clients and a server, as Prosody's scansion has them.
//!
//! A play is a text file; `e2e/plays` holds them. It runs over memory with time standing still ([`ScenarioTarget::Memory`]) and
//! against any server on a port ([`ScenarioTarget::Remote`], `cargo xtask plays --against`).
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
//! The head: `title:`, `features:` (names of the registry that the play shows), `ignores:` (namespaces of children that
//! stanzas may have besides what is written), `administrators:` (users who are to be administrators), then `client NAME is USER/RESOURCE [with password WORDS]` and
//! `friends USER USER` (subscribed both ways before the play begins).
//!
//! The steps, in the words of [`StepAction`]: `NAME connects` (to a bound resource), `NAME opens a stream` (no login: the play
//! sends it, with `{NAME.plain}` for PLAIN), `NAME proves WORD` (makes `{NAME.proof}` of the token in `{WORD}`), `NAME
//! comes online` (connects, fetches the roster, sends presence, and forgets what came), `NAME is offered:` (the last
//! stream features that came with a new stream), `NAME is refused CONDITION` (a login that fails), `NAME authenticates`
//! (up to the stream features, without a resource), `NAME sends:`, `NAME receives:`, `NAME receives in any order:`,
//! `NAME receives nothing`, `NAME forgets what came`, `NAME disconnects`, `NAME loses the connection`,
//! `NAME is disconnected [by CONDITION]`, `N seconds pass` (only over memory).
//! What follows a colon is XML on indented lines, one or several stanzas.
//!
//! In XML, `{USER}` is a bare address, `{NAME.full}` a full one, `{server}` the domain. In what is received `{any}`
//! stands for any value or text, `{keep:WORD}` as well and keeps it as `{WORD}`; `play:more='yes'` lets an element
//! have more attributes and children than are written. Stanzas are compared by meaning: the order of attributes and
//! children, prefixes and blanks between elements do not count.
//!
//! Against a host, what RFC 6120 lets a server leave unsaid (`to` the client itself, `from` its own account, the
//! language) is not missed; over memory it is.
//!
//! Left out: groups of steps at the same time, and checks of what is not XML.
//!
//! The trap: `receives nothing` first waits until the server has answered every client, so it proves nothing about a
//! server that delivers later than it answers.

mod connection;
mod expected_element;
mod parse;
mod run;

use crate::server::TestServer;

pub use parse::parse;
pub use run::run;

/// What went wrong, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{play}:{line}: {message}")]
pub struct ScenarioError {
    /// The name of the play.
    pub play: String,
    /// The line of its file, from 1.
    pub line: usize,
    /// One sentence.
    pub message: String,
}

/// A play, ready to run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name without its ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The features of the registry that it is about.
    pub features: Vec<String>,
    /// Namespaces of children that are overlooked unless they are written.
    pub ignores: Vec<String>,
    /// Users who must be administrators.
    pub administrators: Vec<String>,
    /// The clients.
    pub clients: Vec<ScenarioClient>,
    /// Pairs of users who are subscribed to each other.
    pub friends: Vec<(String, String)>,
    /// What happens.
    pub steps: Vec<ScenarioStep>,
}

/// A client of a play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioClient {
    /// Its name in the play.
    pub name: String,
    /// The user; the local part of the address.
    pub user: String,
    /// The resource that it asks for.
    pub resource: String,
    /// Its password; the stage's if absent.
    pub password: Option<String>,
}

/// A step and its line.
#[derive(Clone, Debug)]
pub struct ScenarioStep {
    /// The line of the file, from 1.
    pub line: usize,
    /// What happens.
    pub action: StepAction,
}

/// What happens in a step. Numbers are places in [`Scenario::clients`].
#[derive(Clone, Debug)]
pub enum StepAction {
    /// Logs in and binds.
    Connects(usize),
    /// Logs in without binding.
    Authenticates(usize),
    /// Opens a stream, with TLS if there is, and does not log in.
    Opens(usize),
    /// Makes the proof of a token out of the word that holds it.
    Proves(usize, String),
    /// Logs in, fetches the roster, sends presence, and forgets what came.
    GoesOnline(usize),
    /// The login fails with this condition.
    Refused(usize, String),
    /// These stream features were offered after the login, among others.
    Offered(usize, String),
    /// Closes the stream and waits for its end.
    Disconnects(usize),
    /// The connection is gone without a word.
    Loses(usize),
    /// The server ends the stream, with this stream error or without one.
    Disconnected(usize, Option<String>),
    /// Sends XML.
    Sends(usize, String),
    /// Receives stanzas, in this order or in any.
    Receives(usize, String, ReceiveOrder),
    /// Has received nothing that was not asked for.
    ReceivesNothing(usize),
    /// What came is of no interest.
    Forgets(usize),
    /// Time passes.
    Pass(u32),
}

/// Whether the order of what is received counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOrder {
    /// As written.
    Written,
    /// Any.
    Any,
}

/// Where plays run.
pub enum ScenarioTarget {
    /// A node of the test's own, over memory. Accounts are made as needed.
    Memory(Box<TestServer>),
    /// A server on a port. Accounts must exist: see [`Scenario::accounts`].
    Remote(RemoteServer),
}

/// A server on a port.
#[derive(Clone, Debug)]
pub struct RemoteServer {
    /// `HOST:PORT` of a client listener, with STARTTLS or without TLS, or the URL of a WebSocket, `wss://HOST:PORT/PATH` or
    /// `ws://…`. The certificate is not checked.
    pub address: String,
    /// The domain of the accounts.
    pub domain: String,
    /// The password of the accounts that the play gives none.
    pub password: String,
    /// Each play has users of its own, `PLAY-USER`, so that it finds empty rosters.
    pub own_users: bool,
}

impl Scenario {
    /// User, local part on this stage and password of every account that the play needs.
    pub fn accounts(&self, stage: &ScenarioTarget) -> Vec<(String, String, String)> {
        let mut accounts: Vec<(String, String, String)> = Vec::new();
        for client in &self.clients {
            let own = |password: &str| client.password.clone().unwrap_or_else(|| password.to_owned());
            let (local, password) = match stage {
                ScenarioTarget::Memory(_) => (client.user.clone(), own(crate::server::PASSWORD)),
                ScenarioTarget::Remote(host) if host.own_users => {
                    (format!("{}-{}", self.name, client.user), own(&host.password))
                }
                ScenarioTarget::Remote(host) => (client.user.clone(), own(&host.password)),
            };
            if !accounts.iter().any(|(user, ..)| *user == client.user) {
                accounts.push((client.user.clone(), local, password));
            }
        }
        accounts
    }

    /// Whether it needs a clock that obeys.
    pub fn needs_time(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, StepAction::Pass(_)))
    }
}
