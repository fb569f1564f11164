//! Steps: what users do, to whom, and what they wait for.
//!
//! Steps nest here; the engine flattens them. Trap: a new step is known to every reader of plans ([`super::scale`],
//! [`super::check`], the overrides), of which some pass over what they do not know.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{
    ResponseChecks, StanzaPattern, TextTemplate, TimeSpan, TransportSecurity, VariableCondition,
    VariableValue,
};

/// One thing that a user does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PlanStep {
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
        credentials: Option<(TextTemplate, TextTemplate)>,
    },
    /// Binds a resource; and opens a session (RFC 3921) where the server still asks for it.
    Bind {
        /// The resource to ask for; `None`: the server's choice.
        resource: Option<TextTemplate>,
    },
    /// RFC 3921 session for scenarios that ask for it by themselves. Skipped if `Bind` did it.
    OpenSession,
    /// XEP-0078 with the password in the clear: the set request alone. The resource is bound by it; no `Bind` follows.
    LegacyAuthenticate {
        /// The resource, which this protocol insists on.
        resource: TextTemplate,
        /// As in `Authenticate`.
        credentials: Option<(TextTemplate, TextTemplate)>,
    },
    /// Everything from `Connect` to `Bind` in one, measured as a whole login too.
    Login {
        /// As in `Authenticate`.
        mechanisms: Vec<String>,
        /// As in `Bind`.
        resource: Option<TextTemplate>,
    },
    /// A login with SASL2 (XEP-0388), resource binding inline (XEP-0386) and a token (XEP-0484): the first login of an
    /// account requests a token, later ones prove it in the same flight as the stream header.
    FastLogin {
        /// As in `Authenticate`, for the login that has no token yet.
        mechanisms: Vec<String>,
        /// Enable stream management inline, with resumption.
        manage: bool,
    },
    /// Replaces a connection that was cut and resumes its stream (XEP-0198 section 5).
    Resume,
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
        name: Option<TextTemplate>,
        /// Group to put it in.
        group: Option<TextTemplate>,
    },
    /// Sends presence.
    Presence {
        /// Which.
        kind: PresenceKind,
        /// To whom; `None`: everybody who is subscribed.
        to: Option<Destination>,
        /// `away`, `dnd` …
        show: Option<TextTemplate>,
        /// Free text.
        status: Option<TextTemplate>,
    },
    /// Sends a numbered message, measured to its arrival.
    Message {
        /// To whom.
        to: Destination,
        /// What it says.
        body: MessageBody,
        /// `type`: `chat`, `normal`, `headline`.
        kind: MessageKind,
        /// What to wait for.
        ack: AckMode,
    },
    /// XEP-0199, to the server or to somebody.
    Ping {
        /// To whom; `None`: the server.
        to: Option<Destination>,
    },
    /// Sends text as it is, after variables are put in.
    Raw {
        /// XML, not checked.
        xml: TextTemplate,
        /// What to wait for.
        ack: AckMode,
        /// Conditions on the answer, and what is kept of it.
        checks: ResponseChecks,
    },
    /// Does a step without waiting for its answer, which is measured when it comes. One of: `Roster`, `RosterSet`, `Ping`.
    NoWait(Box<PlanStep>),
    /// Sends a `Presence` and waits until it has been delivered to other users of the worker.
    Delivered {
        /// The presence.
        presence: Box<PlanStep>,
        /// How many deliveries.
        users: u32,
    },
    /// Waits until something arrives.
    WaitFor {
        /// What.
        what: StanzaPattern,
        /// Longest wait; it counts as an error after that and the session goes on.
        timeout_ms: u64,
    },
    /// Pauses.
    Think(TimeSpan),
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
        steps: Vec<PlanStep>,
    },
    /// Does steps again and again while a condition holds (Tsung's `repeat` with `while` or `until`).
    While {
        /// Checked after each turn if `after`, before otherwise.
        condition: VariableCondition,
        /// See `condition`.
        after: bool,
        /// Turns at most.
        max: u32,
        /// The steps.
        steps: Vec<PlanStep>,
    },
    /// Does steps if a condition holds.
    If {
        /// The condition.
        condition: VariableCondition,
        /// The steps.
        steps: Vec<PlanStep>,
    },
    /// Does steps for each value of a list variable.
    ForEach {
        /// Gets the value.
        variable: String,
        /// List of values.
        list: String,
        /// The steps.
        steps: Vec<PlanStep>,
    },
    /// Several things at their own rhythm, due by the clock, whatever the others do: the steady state of a client.
    Meanwhile {
        /// How long; `None`: until the run ends.
        duration: Option<TimeSpan>,
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
        /// Only the user with the even number begins: `in_flight` counts both directions together.
        one_sided: bool,
        /// `Partner`, or the same with a resource.
        to: Destination,
    },
    /// Measures the steps together under a name.
    Transaction {
        /// Index into [`LoadPlan::transactions`].
        index: u16,
        /// The steps.
        steps: Vec<PlanStep>,
    },
    /// Sets variables.
    Set(Vec<(String, VariableValue)>),
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
        security: TransportSecurity,
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
    pub every: TimeSpan,
    /// How many are sent at each occurrence.
    #[serde(default = "once")]
    pub batch: u32,
    /// One of: `Message`, `Presence`, `Ping`, `Raw` (sent without waiting for its answer), `Roster`.
    pub step: PlanStep,
}

/// A batch of an activity that does not name one.
fn once() -> u32 {
    1
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
    /// The same with a resource, with variables: a full address.
    Full(Box<Destination>, TextTemplate),
    /// An address, with variables.
    Jid(TextTemplate),
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MessageBody {
    /// So many bytes of filling.
    Size(u32),
    /// This, with variables. Escaped when it is sent.
    Text(TextTemplate),
}

/// What a step waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum AckMode {
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
    Match(StanzaPattern),
    /// All users of the worker (Tsung's `global`).
    All,
}
