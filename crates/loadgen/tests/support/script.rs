//! Script of the test server: its faults, their timing, and its counts.
//!
//! # Pitfalls
//!
//! `ServerCounts` counts everything written to the wire, also to a peer that will never read it.

use std::collections::BTreeMap;
use std::ops::Range;

/// Output of the server: a response or a forwarded stanza.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerStep {
    /// Accepting a connection, before anything is read.
    Accept,
    /// Stream header and features.
    Features,
    /// `<proceed/>`.
    Starttls,
    /// SASL challenge.
    Challenge,
    /// SASL success or failure.
    Success,
    /// Answer to a bind request.
    Bind,
    /// Answer to a session request.
    Session,
    /// Answer to XEP-0077.
    Register,
    /// Roster.
    Roster,
    /// Answer to a roster change.
    RosterSet,
    /// Presence reflected to its sender.
    Reflection,
    /// Presence sent to others.
    Presence,
    /// Message delivered to its recipient.
    Message,
    /// Answer to a ping of the server.
    Ping,
    /// Answer to any other request.
    Request,
    /// `<enabled/>`.
    Enabled,
    /// `<resumed/>`.
    Resumed,
    /// End of the stream.
    End,
}

/// Action of the server at a step.
#[derive(Clone, Debug, Default)]
pub(crate) enum ServerAction {
    /// Correct behaviour.
    #[default]
    Well,
    /// Correct, with a delay in milliseconds.
    Late(u64),
    /// Sends nothing.
    Nothing,
    /// Sends this instead.
    Instead(String),
    /// Sends these bytes instead, possibly not UTF-8.
    Bytes(Vec<u8>),
    /// Correct, preceded by this in the same packet.
    After(String),
    /// Correct, followed by this in the same packet.
    Then(String),
    /// Correct, in pieces of this number of bytes.
    Pieces(usize),
    /// Correct, but twice.
    Twice,
    /// Messages: held until after the next one between the same two users.
    Hold,
    /// Messages: bounced to the sender as an error.
    Refuse,
    /// Stanzas: with another `id`.
    Renamed,
    /// Stanzas: with the prefix `x`, which the stream header declares for the content namespace.
    Prefixed,
    /// Closes the connection.
    Close(CloseMode),
}

/// Way in which a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// FIN without an end of the stream.
    Fin,
    /// RST.
    Reset,
    /// Stream error, end of the stream, FIN.
    Error(&'static str),
}

/// Spontaneous action of the server.
#[derive(Clone, Debug)]
pub(crate) enum ServerEvent {
    /// Closes the connections of these users.
    Close(Range<u32>, CloseMode),
    /// Sends this to these users.
    Send(Range<u32>, String),
    /// Sends these bytes to these users, not counted as stanzas.
    SendBytes(Range<u32>, Vec<u8>),
    /// Stops reading from these users.
    StopReading(Range<u32>),
    /// Resumes reading.
    ReadOn(Range<u32>),
    /// Stalls for this number of milliseconds.
    Stall(u64),
}

/// Condition on the counts and the time.
pub(crate) type TriggerCondition = Box<dyn FnMut(&ServerCounts, u64) -> bool + Send>;

/// Action that is performed once, when a condition on the counts holds.
pub(crate) struct ScriptedEvent {
    /// Condition; its number is microseconds since the first login.
    pub(crate) when: TriggerCondition,
    /// Action to perform.
    pub(crate) event: ServerEvent,
}

/// Transport protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScriptTls {
    #[default]
    None,
    Starttls,
    Direct,
}

/// Offer of RFC 3921 sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LegacySessionOffer {
    #[default]
    Absent,
    Optional,
    Required,
}

/// Recipients of presence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PresenceVisibility {
    /// The sender only.
    #[default]
    BySelf,
    /// All available users.
    ByAll,
}

/// Handling of messages to users who are not online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OfflinePolicy {
    /// Stored.
    #[default]
    Store,
    /// Bounced.
    Refuse,
    /// Discarded.
    Drop,
}

/// Returns the action for the n-th (from 0) occurrence of a step.
pub(crate) type ActionScript = Box<dyn FnMut(ServerStep, u64) -> ServerAction + Send>;

/// Returns the action for the copy of the n-th (from 0) message of all rooms to a user; `Refuse` for the user "" refuses
/// the message.
pub(crate) type CopyScript = Box<dyn FnMut(u64, &str) -> ServerAction + Send>;

/// Configuration and faults of the server.
pub(crate) struct ServerScript {
    pub(crate) tls: ScriptTls,
    pub(crate) mechanisms: Vec<&'static str>,
    pub(crate) old_session: LegacySessionOffer,
    /// Contacts in the roster of user i: i + 1, i + 2 … and one of another domain.
    pub(crate) contacts: u32,
    pub(crate) seen: PresenceVisibility,
    pub(crate) absent: OfflinePolicy,
    /// Existing accounts: `u0` … with passwords `p0` …
    pub(crate) accounts: u32,
    /// Whether the SCRAM server signature is wrong.
    pub(crate) wrong_signature: bool,
    pub(crate) act: ActionScript,
    /// Copies of room messages, and events of nodes: sent, dropped, sent twice, held until after the next one, or refused.
    pub(crate) copy: CopyScript,
    /// Whether rooms are locked until their creators have configured them.
    pub(crate) lock_rooms: bool,
    pub(crate) moments: Vec<ScriptedEvent>,
    /// SO_RCVBUF of connections.
    pub(crate) receive_buffer: Option<usize>,
}

impl Default for ServerScript {
    fn default() -> Self {
        Self {
            tls: ScriptTls::None,
            mechanisms: vec!["PLAIN"],
            old_session: LegacySessionOffer::Absent,
            contacts: 0,
            seen: PresenceVisibility::BySelf,
            absent: OfflinePolicy::Store,
            accounts: 1_000,
            wrong_signature: false,
            act: Box::new(|_, _| ServerAction::Well),
            copy: Box::new(|_, _| ServerAction::Well),
            lock_rooms: false,
            moments: Vec::new(),
            receive_buffer: None,
        }
    }
}

impl ServerScript {
    /// A server that deviates only by these actions.
    pub(crate) fn acting(act: impl FnMut(ServerStep, u64) -> ServerAction + Send + 'static) -> Self {
        Self { act: Box::new(act), ..Self::default() }
    }

    /// Adds an action that is performed when the condition holds.
    pub(crate) fn once(
        mut self,
        when: impl FnMut(&ServerCounts, u64) -> bool + Send + 'static,
        event: ServerEvent,
    ) -> Self {
        self.moments.push(ScriptedEvent { when: Box::new(when), event });
        self
    }
}

/// Counts of what the server received and did.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerCounts {
    pub(crate) connections: u64,
    /// Connections currently open.
    pub(crate) open: u64,
    /// Scripted events that have occurred.
    pub(crate) events_performed: u64,
    pub(crate) logins: u64,
    pub(crate) failed_logins: u64,
    pub(crate) plain: u64,
    pub(crate) scram: u64,
    pub(crate) sessions_opened: u64,
    pub(crate) registered: u64,
    pub(crate) removed: u64,
    /// Users currently available.
    pub(crate) available: u64,
    /// Streams closed cleanly by the clients.
    pub(crate) ended: u64,
    /// Connections of users with a session that this side closed.
    pub(crate) closed: u64,
    /// Messages between users, without echoes.
    pub(crate) messages: u64,
    pub(crate) echoes: u64,
    /// Messages to other addresses.
    pub(crate) elsewhere: u64,
    /// Distinct messages to users that were written to their connections.
    pub(crate) forwarded: u64,
    pub(crate) dropped: u64,
    pub(crate) duplicated: u64,
    pub(crate) swapped: u64,
    /// Messages currently held until a later one of the same two users.
    pub(crate) held: u64,
    pub(crate) refused: u64,
    pub(crate) stored: u64,
    /// The part of `forwarded` that had been stored.
    pub(crate) fetched: u64,
    pub(crate) presences_in: u64,
    /// Presence stanzas to others and to the sender.
    pub(crate) presences_out: u64,
    /// Available presence forwarded to users who were available when it was sent, without the sender.
    pub(crate) broadcasts: u64,
    pub(crate) reflections: u64,
    pub(crate) iqs_in: u64,
    pub(crate) iq_answers: u64,
    pub(crate) iq_errors: u64,
    /// Answers to requests of the server.
    pub(crate) iqs_answered: u64,
    pub(crate) iqs_refused: u64,
    pub(crate) rosters: u64,
    pub(crate) roster_sets: u64,
    pub(crate) pings: u64,
    pub(crate) stanzas_in: u64,
    /// Stanzas (in no other count) received after this side closed their connection, and the messages among them.
    pub(crate) discarded: u64,
    pub(crate) discarded_messages: u64,
    pub(crate) stanzas_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) acks_asked: u64,
    pub(crate) resumed: u64,
    pub(crate) room_joins: u64,
    pub(crate) room_joins_refused: u64,
    pub(crate) room_leaves: u64,
    pub(crate) room_nicks: u64,
    pub(crate) room_presence_changes: u64,
    /// Messages to rooms, refused ones included.
    pub(crate) room_messages: u64,
    pub(crate) room_refused: u64,
    /// Distinct copies sent to occupants.
    pub(crate) room_copies: u64,
    pub(crate) room_dropped: u64,
    pub(crate) room_duplicated: u64,
    pub(crate) room_swapped: u64,
    /// The part of `room_swapped` in which both messages had the same sender.
    pub(crate) room_sender_swapped: u64,
    pub(crate) room_history: u64,
    pub(crate) node_subscriptions: u64,
    pub(crate) node_unsubscriptions: u64,
    /// Items published, refused ones included.
    pub(crate) node_items: u64,
    pub(crate) node_refused: u64,
    /// Distinct events sent to subscribers.
    pub(crate) node_events: u64,
    pub(crate) node_dropped: u64,
    pub(crate) node_duplicated: u64,
    pub(crate) node_swapped: u64,
    pub(crate) node_publisher_swapped: u64,
    /// Messages by sender and recipient (account numbers).
    pub(crate) pairs: BTreeMap<(u32, u32), u64>,
    /// Bodies of messages to other addresses, in order.
    pub(crate) bodies: Vec<String>,
    /// Violations by the client.
    pub(crate) wrong: Vec<String>,
    /// Whether anything is in progress: unwritten bytes, answers not yet due.
    pub(crate) busy: bool,
}

impl ServerCounts {
    /// Users that have reported that they are done.
    pub(crate) fn done(&self) -> usize {
        self.bodies.iter().filter(|word| *word == "done").count()
    }
}
