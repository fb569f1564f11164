//! What a scripted server does wrong and when, and what it counted.
//!
//! Trap: `ServerCounts` counts what was put on the wire, also to a peer that will never read it.

use std::collections::BTreeMap;
use std::ops::Range;

/// What the server answers or passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerStep {
    /// A new connection, before anything is read.
    Accept,
    /// A stream header and features.
    Features,
    /// `<proceed/>`.
    Starttls,
    /// A SASL challenge.
    Challenge,
    /// SASL success or failure.
    Success,
    /// The answer to a bind request.
    Bind,
    /// The answer to a session request.
    Session,
    /// The answer to XEP-0077.
    Register,
    /// The roster.
    Roster,
    /// The answer to a roster change.
    RosterSet,
    /// A presence to its own sender.
    Reflection,
    /// A presence to others.
    Presence,
    /// A message to its recipient.
    Message,
    /// The answer to a ping of the server.
    Ping,
    /// The answer to any other request.
    Request,
    /// `<enabled/>`.
    Enabled,
    /// `<resumed/>`.
    Resumed,
    /// The end of the stream.
    End,
}

/// What the server does at a step.
#[derive(Clone, Debug, Default)]
pub(crate) enum ServerAction {
    /// What it should.
    #[default]
    Well,
    /// What it should, so many milliseconds later.
    Late(u64),
    /// Nothing.
    Nothing,
    /// This instead.
    Instead(String),
    /// These bytes instead, perhaps not UTF-8.
    Bytes(Vec<u8>),
    /// What it should, behind this in the same packet.
    After(String),
    /// What it should, and this behind it in the same packet.
    Then(String),
    /// What it should, in pieces of so many bytes.
    Pieces(usize),
    /// What it should, twice.
    Twice,
    /// Messages: after the next one of the same two users.
    Hold,
    /// Messages: back to the sender as an error.
    Refuse,
    /// Stanzas: with another `id`.
    Renamed,
    /// Stanzas: under the prefix `x` that the stream header declares for the content namespace.
    Prefixed,
    /// Ends the connection.
    Close(CloseMode),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// FIN without a word.
    Fin,
    /// RST.
    Reset,
    /// A stream error, the end of the stream, FIN.
    Error(&'static str),
}

/// What the server does by itself.
#[derive(Clone, Debug)]
pub(crate) enum ServerEvent {
    /// Ends the connections of these users.
    Close(Range<u32>, CloseMode),
    /// Sends this to these users.
    Send(Range<u32>, String),
    /// Sends these bytes to these users; they are in no count of stanzas.
    SendBytes(Range<u32>, Vec<u8>),
    /// Reads nothing more from these users.
    StopReading(Range<u32>),
    /// Reads again.
    ReadOn(Range<u32>),
    /// Stands still for so many milliseconds.
    Stall(u64),
}

/// A condition on the truth and the time.
pub(crate) type TriggerCondition = Box<dyn FnMut(&ServerCounts, u64) -> bool + Send>;

/// Something that happens once, when a condition on the truth holds.
pub(crate) struct ScriptedEvent {
    /// The condition; the number is microseconds since the first login.
    pub(crate) when: TriggerCondition,
    /// What happens.
    pub(crate) deed: ServerEvent,
}

/// Protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScriptTls {
    #[default]
    None,
    Starttls,
    Direct,
}

/// RFC 3921 sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LegacySessionOffer {
    #[default]
    Absent,
    Optional,
    Required,
}

/// Who sees presence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PresenceVisibility {
    /// Its sender only.
    #[default]
    BySelf,
    /// Everybody who is available.
    ByAll,
}

/// What becomes of messages to users who are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OfflinePolicy {
    /// They wait.
    #[default]
    Store,
    /// They come back.
    Refuse,
    /// They are thrown away.
    Drop,
}

/// Gives the act for the n-th (from 0) time that a step comes.
pub(crate) type ActionScript = Box<dyn FnMut(ServerStep, u64) -> ServerAction + Send>;

/// How the server is and what it does wrong.
pub(crate) struct ServerScript {
    pub(crate) tls: ScriptTls,
    pub(crate) mechanisms: Vec<&'static str>,
    pub(crate) old_session: LegacySessionOffer,
    /// Contacts in the roster of user i: i + 1, i + 2 … and one of another domain.
    pub(crate) contacts: u32,
    pub(crate) seen: PresenceVisibility,
    pub(crate) absent: OfflinePolicy,
    /// Accounts that exist: `u0` … with passwords `p0` …
    pub(crate) accounts: u32,
    /// Signs its part of SCRAM wrongly.
    pub(crate) wrong_signature: bool,
    pub(crate) act: ActionScript,
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
            moments: Vec::new(),
            receive_buffer: None,
        }
    }
}

impl ServerScript {
    /// A server that only does this wrong.
    pub(crate) fn acting(act: impl FnMut(ServerStep, u64) -> ServerAction + Send + 'static) -> Self {
        Self { act: Box::new(act), ..Self::default() }
    }

    /// As it is, and when the condition holds the deed is done.
    pub(crate) fn once(
        mut self,
        when: impl FnMut(&ServerCounts, u64) -> bool + Send + 'static,
        deed: ServerEvent,
    ) -> Self {
        self.moments.push(ScriptedEvent { when: Box::new(when), deed });
        self
    }
}

/// What the server saw and did.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerCounts {
    pub(crate) connections: u64,
    /// Connections that are open at the moment.
    pub(crate) open: u64,
    /// Moments that have come.
    pub(crate) deeds: u64,
    pub(crate) logins: u64,
    pub(crate) failed_logins: u64,
    pub(crate) plain: u64,
    pub(crate) scram: u64,
    pub(crate) sessions_opened: u64,
    pub(crate) registered: u64,
    pub(crate) removed: u64,
    /// Users with a session and available at the moment.
    pub(crate) available: u64,
    /// Streams ended by the clients in order.
    pub(crate) ended: u64,
    /// Connections that this side ended, of users with a session.
    pub(crate) closed: u64,
    /// Messages from users to users; echoes apart.
    pub(crate) messages: u64,
    pub(crate) echoes: u64,
    /// Messages to other addresses.
    pub(crate) elsewhere: u64,
    /// Messages to users that were written to their connections, each once.
    pub(crate) forwarded: u64,
    pub(crate) dropped: u64,
    pub(crate) duplicated: u64,
    pub(crate) swapped: u64,
    /// Held at the moment: no later one of the same two users has come yet.
    pub(crate) held: u64,
    pub(crate) refused: u64,
    pub(crate) stored: u64,
    /// The part of `forwarded` that had been stored.
    pub(crate) fetched: u64,
    pub(crate) presences_in: u64,
    /// To others and to the sender.
    pub(crate) presences_out: u64,
    /// Available presences given to users who were available when it was sent, not the sender.
    pub(crate) broadcasts: u64,
    pub(crate) reflections: u64,
    pub(crate) iqs_in: u64,
    pub(crate) iq_answers: u64,
    pub(crate) iq_errors: u64,
    /// Answers to what the server asked by itself.
    pub(crate) iqs_answered: u64,
    pub(crate) iqs_refused: u64,
    pub(crate) rosters: u64,
    pub(crate) roster_sets: u64,
    pub(crate) pings: u64,
    pub(crate) stanzas_in: u64,
    /// Stanzas (in no other count) that came after their connection was ended from this side, and messages among them.
    pub(crate) discarded: u64,
    pub(crate) discarded_messages: u64,
    pub(crate) stanzas_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) acks_asked: u64,
    pub(crate) resumed: u64,
    /// Messages by sender and recipient (numbers of the accounts).
    pub(crate) pairs: BTreeMap<(u32, u32), u64>,
    /// Bodies of messages to other addresses, in order.
    pub(crate) bodies: Vec<String>,
    /// Everything that cannot be there: the client has made a mistake.
    pub(crate) wrong: Vec<String>,
    /// Something is under way: bytes not written, answers not due yet.
    pub(crate) busy: bool,
}

impl ServerCounts {
    /// Users who have said that they are done.
    pub(crate) fn done(&self) -> usize {
        self.bodies.iter().filter(|word| *word == "done").count()
    }
}
