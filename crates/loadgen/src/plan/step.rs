//! Steps: actions of users, their destinations, and the events that they wait for.
//!
//! Steps are nested here; the engine compiles them.
//!
//! # Pitfalls
//!
//! Every reader of plans ([`super::scale`], [`super::check()`], the overrides) must know a new step; some silently skip
//! unknown ones.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{
    PubSubStep, ResponseChecks, RoomStep, StanzaPattern, TextTemplate, TimeSpan, TransportSecurity,
    VariableCondition, VariableValue,
};

/// One action of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PlanStep {
    /// Connects (with direct TLS if the plan requires it), opens the stream and waits for features. Does nothing if the
    /// stream is open: TLS and SASL steps serve scenarios that open it again explicitly after them.
    Connect,
    /// Negotiates STARTTLS and reopens the stream.
    StartTls,
    /// XEP-0077: creates the account; a conflict counts as success.
    Register,
    /// XEP-0077: removes the account.
    Unregister,
    /// SASL, then reopens the stream. An empty list selects the strongest common mechanism, a -PLUS one if TLS has a
    /// binding.
    Authenticate {
        /// Allowed mechanisms by their registered names.
        mechanisms: Vec<String>,
        /// Name and password to use instead of the account's (Tsung's `xmpp_authenticate`).
        credentials: Option<(TextTemplate, TextTemplate)>,
    },
    /// Binds a resource, and opens a session (RFC 3921) if the server still requires it.
    Bind {
        /// Resource to request; `None`: the server's choice.
        resource: Option<TextTemplate>,
    },
    /// RFC 3921 session for scenarios that request it explicitly. Skipped if `Bind` did it.
    OpenSession,
    /// XEP-0078 with the plaintext password: only the set request. It binds the resource; no `Bind` follows.
    LegacyAuthenticate {
        /// Resource, which this protocol requires.
        resource: TextTemplate,
        /// As in `Authenticate`.
        credentials: Option<(TextTemplate, TextTemplate)>,
    },
    /// Everything from `Connect` to `Bind`, also measured as a whole login.
    Login {
        /// As in `Authenticate`.
        mechanisms: Vec<String>,
        /// As in `Bind`.
        resource: Option<TextTemplate>,
    },
    /// SASL2 login (XEP-0388) with inline resource binding (XEP-0386) and a token (XEP-0484): the first login of an
    /// account requests a token, later ones prove it in the same flight as the stream header.
    FastLogin {
        /// As in `Authenticate`, for the login without a token.
        mechanisms: Vec<String>,
        /// Enable stream management inline, with resumption.
        manage: bool,
    },
    /// Replaces a connection that was cut and resumes its stream (XEP-0198, section 5).
    Resume,
    /// XEP-0198: enables stream management; from then on acknowledges and requests acknowledgements.
    StreamManagement {
        /// Request resumption, and resume when the connection is lost.
        resume: bool,
    },
    /// Fetches the roster. [`Destination::Contact`] chooses from its contacts.
    Roster,
    /// Changes the roster.
    RosterSet {
        /// Change to make.
        change: RosterChange,
        /// Contact.
        to: Destination,
        /// Name of the contact.
        name: Option<TextTemplate>,
        /// Group of the contact.
        group: Option<TextTemplate>,
    },
    /// Sends presence.
    Presence {
        /// Kind of presence.
        kind: PresenceKind,
        /// Recipient; `None`: all subscribers.
        to: Option<Destination>,
        /// `away`, `dnd` …
        show: Option<TextTemplate>,
        /// Status text.
        status: Option<TextTemplate>,
    },
    /// Sends a numbered message, measured until its arrival.
    Message {
        /// Recipient.
        to: Destination,
        /// Body.
        body: MessageBody,
        /// `type`: `chat`, `normal`, `headline`.
        kind: MessageKind,
        /// Event to wait for.
        ack: AckMode,
    },
    /// XEP-0199 ping to the server or to a user.
    Ping {
        /// Recipient; `None`: the server.
        to: Option<Destination>,
    },
    /// Acts in rooms (XEP-0045).
    Room(RoomStep),
    /// Acts at PubSub nodes (XEP-0060).
    PubSub(PubSubStep),
    /// Sends raw text after variables are substituted.
    Raw {
        /// XML, not checked.
        xml: TextTemplate,
        /// Event to wait for.
        ack: AckMode,
        /// Conditions on the response, and values captured from it.
        checks: ResponseChecks,
    },
    /// Runs a step without waiting for its response, which is measured when it arrives. One of: `Roster`, `RosterSet`,
    /// `Ping`.
    NoWait(Box<PlanStep>),
    /// Sends a `Presence` and waits until it has been delivered to other users of the worker.
    Delivered {
        /// Presence to send.
        presence: Box<PlanStep>,
        /// Number of deliveries.
        users: u32,
    },
    /// Waits for a stanza.
    WaitFor {
        /// Pattern of the stanza.
        what: StanzaPattern,
        /// Longest wait; afterwards it counts as an error and the session continues.
        timeout_ms: u64,
    },
    /// Pauses.
    Think(TimeSpan),
    /// Repeats steps.
    Repeat {
        /// Number of times; `None`: until the run ends.
        times: Option<u32>,
        /// Counter variable, starting at `first`.
        counter: Option<String>,
        /// First value of the counter.
        first: i64,
        /// Increment of the counter.
        increment: i64,
        /// Steps to repeat.
        steps: Vec<PlanStep>,
    },
    /// Repeats steps while a condition holds (Tsung's `repeat` with `while` or `until`).
    While {
        /// Checked after each iteration if `after`, before it otherwise.
        condition: VariableCondition,
        /// See `condition`.
        after: bool,
        /// Maximum number of iterations.
        max: u32,
        /// Steps to repeat.
        steps: Vec<PlanStep>,
    },
    /// Runs steps if a condition holds.
    If {
        /// The condition.
        condition: VariableCondition,
        /// Steps to run.
        steps: Vec<PlanStep>,
    },
    /// Runs steps for each value of a list variable.
    ForEach {
        /// Variable that receives the value.
        variable: String,
        /// Variable with the list.
        list: String,
        /// Steps to run.
        steps: Vec<PlanStep>,
    },
    /// Concurrent activities with independent intervals, each due by the clock: the steady state of a client.
    Meanwhile {
        /// Duration; `None`: until the run ends.
        duration: Option<TimeSpan>,
        /// Activities. At most 8.
        activities: Vec<Activity>,
    },
    /// Ping-pong between two users (number xor 1): a message that arrives is answered at once. A closed loop.
    Bounce {
        /// Messages in flight in each direction.
        in_flight: u32,
        /// Duration; `None`: until the run ends.
        duration_ms: Option<u64>,
        /// Size of the body in bytes.
        size: u32,
        /// Only the user with the even number starts: `in_flight` counts both directions together.
        one_sided: bool,
        /// `Partner`, or the same with a resource.
        to: Destination,
    },
    /// Measures the steps together under one name.
    Transaction {
        /// Index into [`LoadPlan::transactions`](super::LoadPlan::transactions).
        index: u16,
        /// Steps to measure.
        steps: Vec<PlanStep>,
    },
    /// Sets variables.
    Set(Vec<(String, VariableValue)>),
    /// Waits until all users of the worker are here (Tsung's `ack="global"` and `wait`), or the timeout expires.
    Barrier {
        /// Longest wait.
        timeout_ms: u64,
        /// Continue as soon as this many are here, in the whole run; each worker waits for its share of them. `None`:
        /// all.
        #[serde(default)]
        users: Option<u32>,
    },
    /// Changes the target of this user's later connections (Tsung's `change_type`).
    ChangeTarget {
        /// The new addresses.
        addresses: Vec<SocketAddr>,
        /// New transport security.
        security: TransportSecurity,
    },
    /// Closes the stream; later steps may connect again.
    Disconnect,
    /// Drops the connection without ending the stream, as a lost network does. Counted as intended, not as a lost
    /// session.
    Cut,
    /// Ends the session, or the whole run.
    Abort {
        /// End the run, too.
        run: bool,
    },
}

/// A repeated action of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Interval. The first occurrence comes after a random part of it, so that users are out of step.
    pub every: TimeSpan,
    /// Number sent at each occurrence.
    #[serde(default = "once")]
    pub batch: u32,
    /// One of: `Message`, `Presence`, `Ping`, `Raw` (sent without waiting for its response), `Roster`, `Room` (except
    /// joining and leaving), `PubSub` (except creating and deleting).
    pub step: PlanStep,
}

/// Default batch of an activity.
fn once() -> u32 {
    1
}

/// A roster change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RosterChange {
    /// Adds or renames the contact.
    Set,
    /// Removes the contact.
    Remove,
}

/// Kind of presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PresenceKind {
    /// Available; carries an id, so that its arrival at others is measured.
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

/// Destination of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Destination {
    /// A random user of this run who is online; not the sender.
    Online,
    /// A random user who is not online.
    Offline,
    /// A random account.
    Random,
    /// The next account in order, each once, then from the first again.
    Unique,
    /// Recipient of this user's last message.
    Previous,
    /// Contact of this user's last `RosterSet`; scenarios keep it apart from `Previous`.
    LastContact,
    /// The user with number 0, for all users (Tsung's `unique`: the first user that connected).
    First,
    /// A random contact of the fetched roster that is one of the accounts, online or not.
    Contact,
    /// Like `Contact`, but online; if there is none, nothing is sent and `no-online-contact` is counted.
    OnlineContact,
    /// The user whose number is this far from the sender's, in a ring.
    Ring(i32),
    /// The user whose number differs in the lowest bit: 0 and 1, 2 and 3 …
    Partner,
    /// The sender's own bare JID.
    Myself,
    /// The domain.
    Server,
    /// A destination with a resource (a template): a full JID.
    Full(Box<Destination>, TextTemplate),
    /// A JID (a template).
    Jid(TextTemplate),
}

/// Body of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MessageBody {
    /// Filler text of this many bytes.
    Size(u32),
    /// A template. Escaped when it is sent.
    Text(TextTemplate),
}

/// Event that a step waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum AckMode {
    /// None: the next step follows at once.
    #[default]
    None,
    /// The next stanza, whatever it is (Tsung's `local`).
    Any,
    /// The response with the id of the request.
    Answer,
    /// The arrival of the message at its destination (same worker) or its echo.
    Delivery,
    /// A stanza that matches.
    Match(StanzaPattern),
    /// The server's acknowledgement (XEP-0198) of this stanza and all before it.
    Acknowledged,
    /// All users of the worker (Tsung's `global`).
    All,
}
