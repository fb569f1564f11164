//! The plan of a run, as data: what a TOML file, a named workload or a Tsung scenario becomes, and what workers are sent.
//!
//! Times are milliseconds, rates are per second, sizes are bytes, unless a name says otherwise. Steps nest here; the
//! engine flattens them ([`crate::engine`]). Left out: everything that only one of the three sources has and no worker
//! needs, such as the scenario's wishes for other machines.
//!
//! Trap: a plan is read by every worker and must say the same to each; what differs between workers (which users are
//! theirs) is in the assignment, not here.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

mod accounts;
mod arguments;
mod check;
pub(crate) mod csv;
mod mistake;
pub(crate) mod overrides;
pub(crate) mod scale;
mod toml;
mod workloads;

pub use accounts::{AccountSource, Accounts};
pub use arguments::{AccountArguments, Arguments};
pub use check::{Facts, MECHANISMS, Workers, check, workers_needed};
pub use mistake::Mistake;
pub(crate) use mistake::nearest;
pub use toml::{Preparation, addresses, read_toml, read_toml_with_preparation, sources};
pub use workloads::{Workload, named, workload_text, workloads};

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the workload or of the file, for the report.
    pub name: String,
    /// One line for the reader of the report.
    pub title: String,
    /// Where the server is and how to speak to it.
    pub target: Target,
    /// Who logs in.
    pub accounts: Accounts,
    /// When users arrive, one phase after the other.
    pub phases: Vec<Phase>,
    /// Single users that start at a given time (Tsung's `<user>`).
    pub starts: Vec<Start>,
    /// What users do.
    pub sessions: Vec<Session>,
    /// Names of transactions, in the order of their numbers.
    pub transactions: Vec<String>,
    /// Limits and habits.
    pub options: Options,
}

/// The server under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Addresses, used in turn by arriving users.
    pub addresses: Vec<SocketAddr>,
    /// The XMPP domain: `to` of the stream, and of every account without its own.
    pub domain: String,
    /// How connections are protected.
    pub security: Security,
    /// What TLS needs to know.
    pub tls: Tls,
    /// Local addresses to connect from, used in turn; empty: the system's choice.
    pub sources: Vec<std::net::IpAddr>,
}

/// How connections are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    /// No TLS.
    #[default]
    None,
    /// STARTTLS (RFC 6120 section 5).
    Starttls,
    /// TLS from the first byte (XEP-0368).
    Direct,
}

/// What TLS needs to know. File contents, not paths: workers on other machines have no such files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tls {
    /// PEM of the authorities that must have signed the server's certificate; `None`: any certificate is taken.
    pub ca_pem: Option<String>,
    /// PEM of the client's certificate chain, for EXTERNAL.
    pub certificate_pem: Option<String>,
    /// PEM of the client's key.
    pub key_pem: Option<String>,
    /// Resume TLS sessions with tickets.
    pub resume: bool,
    /// Refuse TLS 1.3, to measure 1.2.
    pub only_tls12: bool,
}

/// A stretch of time in which users arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// For the reader.
    pub name: String,
    /// How long arrivals go on; `None`: until `max_users` arrived.
    pub duration_ms: Option<u64>,
    /// Users a second; 0 is a phase of waiting.
    pub rate: f64,
    /// Users in several at the same moment, as `openfire-bosh` has it (10 every 2 s is rate 5, batch 10).
    pub batch: u32,
    /// Arrivals at even or at exponentially distributed distances.
    pub poisson: bool,
    /// Arrivals of this phase at most.
    pub max_users: Option<u32>,
    /// Weights of the sessions in this phase, if they differ; same order as [`Plan::sessions`].
    pub weights: Option<Vec<f64>>,
    /// The next phase begins when all users of this one have ended.
    pub wait_all_end: bool,
}

/// One user that starts at a given time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// After the beginning of the run.
    pub at_ms: u64,
    /// Index of the session.
    pub session: u16,
}

/// What a user does from arrival to departure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// For the report.
    pub name: String,
    /// Share of the arrivals, relative to the other sessions.
    pub weight: f64,
    /// Accept subscription requests by themselves (Tsung's `bidi`).
    pub accept_subscriptions: bool,
    /// In order. At the end the stream is closed.
    pub steps: Vec<Step>,
}

/// One thing that a user does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Connects (with direct TLS if the plan says so), opens the stream and waits for features. Nothing if the stream is
    /// open already: a scenario that opens it again by itself after TLS or SASL is served by those steps.
    Connect,
    /// Negotiates STARTTLS and opens the stream again.
    StartTls,
    /// XEP-0077: creates the account; a conflict counts as done.
    Register,
    /// XEP-0077: removes the account.
    Unregister,
    /// SASL, then the stream again. Empty: the strongest that both know, a -PLUS where TLS has a binding.
    Authenticate {
        /// Allowed mechanisms by their registered names.
        mechanisms: Vec<String>,
        /// Give this name and password instead of the account's (Tsung's `xmpp_authenticate`); text with variables.
        credentials: Option<(Text, Text)>,
    },
    /// Binds a resource; and opens a session (RFC 3921) where the server still asks for it.
    Bind {
        /// The resource to ask for; `None`: the server's choice.
        resource: Option<Text>,
    },
    /// RFC 3921 session for scenarios that ask for it by themselves. Skipped if `Bind` did it.
    OpenSession,
    /// XEP-0078 with the password in the clear: the set request alone. The resource is bound by it; no `Bind` follows.
    LegacyAuthenticate {
        /// The resource, which this protocol insists on.
        resource: Text,
        /// As in `Authenticate`.
        credentials: Option<(Text, Text)>,
    },
    /// Everything from `Connect` to `Bind` in one, measured as a whole login too.
    Login {
        /// As in `Authenticate`.
        mechanisms: Vec<String>,
        /// As in `Bind`.
        resource: Option<Text>,
    },
    /// XEP-0198: enables stream management; acknowledges and asks for acknowledgements from then on.
    StreamManagement {
        /// Ask for resumption, and resume when the connection is lost.
        resume: bool,
    },
    /// Fetches the roster. Its contacts are what [`Destination::Contact`] chooses from.
    Roster,
    /// Changes the roster.
    RosterSet {
        /// What to do.
        change: RosterChange,
        /// With whom.
        to: Destination,
        /// Name to give it.
        name: Option<Text>,
        /// Group to put it in.
        group: Option<Text>,
    },
    /// Sends presence.
    Presence {
        /// Which.
        kind: PresenceKind,
        /// To whom; `None`: everybody who is subscribed.
        to: Option<Destination>,
        /// `away`, `dnd` …
        show: Option<Text>,
        /// Free text.
        status: Option<Text>,
    },
    /// Sends a numbered message, measured to its arrival.
    Message {
        /// To whom.
        to: Destination,
        /// What it says.
        body: Body,
        /// `type`: `chat`, `normal`, `headline`.
        kind: MessageKind,
        /// What to wait for.
        ack: Ack,
    },
    /// XEP-0199, to the server or to somebody.
    Ping {
        /// To whom; `None`: the server.
        to: Option<Destination>,
    },
    /// Sends text as it is, after variables are put in.
    Raw {
        /// XML, not checked.
        xml: Text,
        /// What to wait for.
        ack: Ack,
        /// Conditions on the answer, and what is kept of it.
        checks: Checks,
    },
    /// Does a step without waiting for its answer, which is measured when it comes. One of: `Roster`, `RosterSet`, `Ping`.
    NoWait(Box<Step>),
    /// Waits until something arrives.
    WaitFor {
        /// What.
        what: Pattern,
        /// Longest wait; it counts as an error after that and the session goes on.
        timeout_ms: u64,
    },
    /// Pauses.
    Think(Time),
    /// Does steps several times.
    Repeat {
        /// How often; `None`: until the run ends.
        times: Option<u32>,
        /// Variable that counts, from `first` up.
        counter: Option<String>,
        /// First value of the counter.
        first: i64,
        /// What the counter grows by.
        increment: i64,
        /// The steps.
        steps: Vec<Step>,
    },
    /// Does steps again and again while a condition holds (Tsung's `repeat` with `while` or `until`).
    While {
        /// Checked after each turn if `after`, before otherwise.
        condition: Condition,
        /// See `condition`.
        after: bool,
        /// Turns at most.
        max: u32,
        /// The steps.
        steps: Vec<Step>,
    },
    /// Does steps if a condition holds.
    If {
        /// The condition.
        condition: Condition,
        /// The steps.
        steps: Vec<Step>,
    },
    /// Does steps for each value of a list variable.
    ForEach {
        /// Gets the value.
        variable: String,
        /// List of values.
        list: String,
        /// The steps.
        steps: Vec<Step>,
    },
    /// Several things at their own rhythm, due by the clock, whatever the others do: the steady state of a client.
    Meanwhile {
        /// How long; `None`: until the run ends.
        duration: Option<Time>,
        /// What is done. At most 8.
        activities: Vec<Activity>,
    },
    /// Two users (number xor 1) send messages to and fro: a message that arrives is answered at once. A closed loop.
    Bounce {
        /// Messages under way in each direction.
        in_flight: u32,
        /// How long; `None`: until the run ends.
        duration_ms: Option<u64>,
        /// Bytes of the body.
        size: u32,
    },
    /// Measures the steps together under a name.
    Transaction {
        /// Index into [`Plan::transactions`].
        index: u16,
        /// The steps.
        steps: Vec<Step>,
    },
    /// Sets variables.
    Set(Vec<(String, Value)>),
    /// Waits until all users of the worker stand here (Tsung's `ack="global"` and `wait`), at most so long.
    Barrier {
        /// Longest wait.
        timeout_ms: u64,
        /// Go on as soon as so many stand here, in the whole run; each worker waits for its share of them. `None`: all.
        #[serde(default)]
        users: Option<u32>,
    },
    /// Changes what later connections of this user go to (Tsung's `change_type`).
    ChangeTarget {
        /// The new addresses.
        addresses: Vec<SocketAddr>,
        /// The new protection.
        security: Security,
    },
    /// Closes the stream; later steps may connect again.
    Disconnect,
    /// Drops the connection without a word, as a lost network does. Counted as intended, not as a lost session.
    Cut,
    /// Ends the session, or the whole run.
    Abort {
        /// The run, too.
        run: bool,
    },
}

/// Something done again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Distance from one to the next. The first comes after a random part of it, so that users are out of step.
    pub every: Time,
    /// One of: `Message`, `Presence`, `Ping`, `Raw` (sent without waiting for its answer), `Roster`.
    pub step: Step,
}

/// A change of a roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RosterChange {
    /// Adds (or renames) the contact.
    Set,
    /// Removes the contact.
    Remove,
}

/// Which presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PresenceKind {
    /// Available; stamped, so that its arrival at others is measured.
    Available,
    /// `unavailable`.
    Unavailable,
    /// `subscribe`.
    Subscribe,
    /// `subscribed`.
    Subscribed,
    /// `unsubscribe`.
    Unsubscribe,
    /// `probe`.
    Probe,
}

/// `type` of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageKind {
    /// `chat`.
    #[default]
    Chat,
    /// `normal`.
    Normal,
    /// `headline`.
    Headline,
}

/// Who is meant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Destination {
    /// A user of this run who is online, at random; not oneself.
    Online,
    /// A user who is not online, at random.
    Offline,
    /// Any account, at random.
    Random,
    /// The next account in order, each once, then again from the first.
    Unique,
    /// Whom the last message of this user was for.
    Previous,
    /// Whom the last `RosterSet` of this user was for; scenarios keep it apart from `Previous`.
    LastContact,
    /// The user with number 0, for everybody (Tsung's `unique`: the first user that connected).
    First,
    /// A contact of the fetched roster that belongs to the accounts, at random; online or not.
    Contact,
    /// As `Contact`, but one who is online; if nobody is, nothing is sent and `no-online-contact` is counted.
    OnlineContact,
    /// The user with the number that is this far from the own one, in a ring.
    Ring(i32),
    /// The user with the own number with its lowest bit turned: 0 and 1, 2 and 3 …
    Partner,
    /// The own bare address.
    Myself,
    /// The domain.
    Server,
    /// An address, with variables.
    Jid(Text),
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// So many bytes of filling.
    Size(u32),
    /// This, with variables. Escaped when it is sent.
    Text(Text),
}

/// What a step waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Ack {
    /// Nothing: the next step comes at once.
    #[default]
    None,
    /// The next stanza that arrives, whatever it is (Tsung's `local`).
    Any,
    /// The answer with the id of the request.
    Answer,
    /// The arrival of the message at its destination (same worker) or its echo.
    Delivery,
    /// Bytes that match.
    Match(Pattern),
    /// All users of the worker (Tsung's `global`).
    All,
}

/// What to look for in a stanza that arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pattern {
    /// Name, `type` and namespace of a child; `None`: any.
    Stanza {
        /// `message`, `presence`, `iq` or another element's name.
        name: Option<String>,
        /// Value of `type`.
        kind: Option<String>,
        /// Namespace of a child.
        namespace: Option<String>,
    },
    /// A piece of text.
    Contains(Text),
    /// A regular expression.
    Regex(String),
}

/// Conditions on an answer, and what is kept of it (Tsung's `match` and `dyn_variable`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checks {
    /// In order. `Continue` and `Log` count and go on to the next; of the others, the first that applies decides.
    pub matches: Vec<Match>,
    /// Variable and the regular expression whose first group it gets.
    pub captures: Vec<(String, String)>,
}

/// One condition on an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Match {
    /// What to look for.
    pub regex: String,
    /// Applies when it is found (`true`) or when it is not.
    pub when: bool,
    /// What then happens.
    pub action: MatchAction,
    /// For `Loop` and `Restart`: how often at most.
    pub max: u32,
    /// For `Loop`: pause before sending again.
    pub pause_ms: u64,
    /// Counted under this name.
    pub name: Option<String>,
}

/// What a match does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchAction {
    /// Only counts.
    Continue,
    /// Counts and writes the answer to the log of the run.
    Log,
    /// Sends the request again after the pause.
    Loop,
    /// Ends the session.
    Abort,
    /// Ends the run.
    AbortRun,
    /// Begins the session again.
    Restart,
}

/// A condition on a variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// The variable.
    pub variable: String,
    /// How it is compared; numbers as numbers where both are.
    pub compare: Compare,
    /// With what.
    pub value: Text,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What a variable gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// Text with variables.
    Text(Text),
    /// So many random letters.
    RandomString(u32),
    /// A random number between these, both included.
    RandomNumber(i64, i64),
    /// A column of a line of a list, in order or at random. Lines are split when the plan is read.
    Row {
        /// Index into [`Options::tables`].
        table: u16,
        /// Column.
        column: u16,
        /// A random line instead of the next one. Columns of one `Set` come from the same line.
        random: bool,
    },
    /// A column of the line with the own number, for files that hold the accounts.
    OwnRow {
        /// Index into [`Options::tables`].
        table: u16,
        /// Column.
        column: u16,
    },
}

/// Text with variables: pieces of it in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Text(pub Vec<Piece>);

/// A piece of text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Piece {
    /// As it is.
    Literal(String),
    /// The value of a variable (a missing one is empty and counted as error `unknown-variable`).
    Variable(String),
    /// The own user name.
    User,
    /// The own number.
    Number,
    /// The own password.
    Password,
    /// The domain.
    Domain,
    /// The own full address.
    Jid,
    /// A number that nobody else in the run has.
    Unique,
    /// The destination of this step, or of the last that had one (bare).
    Destination,
}

impl Text {
    /// Text without variables.
    pub fn literal(text: impl Into<String>) -> Self {
        Self(vec![Piece::Literal(text.into())])
    }
}

/// A span of time, perhaps random.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Time {
    /// Always this, in milliseconds.
    Fixed(f64),
    /// Exponentially distributed with this mean.
    Exponential(f64),
    /// Evenly distributed between these.
    Uniform(f64, f64),
}

impl Time {
    /// The same span on a clock that runs `scale` times faster.
    pub fn scaled(self, scale: f64) -> Self {
        match self {
            Self::Fixed(ms) => Self::Fixed(ms / scale),
            Self::Exponential(ms) => Self::Exponential(ms / scale),
            Self::Uniform(from, to) => Self::Uniform(from / scale, to / scale),
        }
    }
}

/// Limits and habits of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Connections that may be open at one time in all; arrivals beyond it are counted as `no-free-user`.
    pub connections: u32,
    /// The run ends after this, if its phases have not ended it before.
    pub duration_ms: Option<u64>,
    /// What happens when all phases have passed: stay so long, then close everything. `None`: until sessions end.
    pub hold_ms: Option<u64>,
    /// When the run ends, nothing new is sent, and so long messages under way may still arrive.
    pub drain_ms: u64,
    /// Longest wait for a connection.
    pub connect_timeout_ms: u64,
    /// Longest wait for an answer; then it is an error and the session ends (login) or goes on (later).
    pub answer_timeout_ms: u64,
    /// An answer within this is acceptable.
    pub acceptable_ms: u64,
    /// Go on when the first login fails.
    pub keep_going: bool,
    /// Attempts to connect again after a failed connection, and the pause between them.
    pub retries: u32,
    /// See `retries`.
    pub retry_ms: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Kernel buffers of each socket in bytes; `None`: the system's.
    pub receive_buffer: Option<u32>,
    /// See `receive_buffer`.
    pub send_buffer: Option<u32>,
    /// Write presence and message stamps; off when the server must see nothing of ours in `id`.
    pub stamps: bool,
    /// Lines of files that variables read from.
    pub tables: Vec<Table>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 1_000,
            duration_ms: None,
            hold_ms: None,
            drain_ms: 5_000,
            connect_timeout_ms: 30_000,
            answer_timeout_ms: 60_000,
            acceptable_ms: 1_000,
            keep_going: false,
            retries: 0,
            retry_ms: 1_000,
            seed: 1,
            receive_buffer: None,
            send_buffer: None,
            stamps: true,
            tables: Vec::new(),
        }
    }
}

/// The lines of a file, split into columns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// For messages.
    pub name: String,
    /// Lines of columns.
    pub rows: Vec<Vec<String>>,
}
