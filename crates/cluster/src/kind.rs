//! Kinds of envelopes: what the receiver must do with one.
//!
//! | Octet | Kind |
//! | --- | --- |
//! | 1 | run the chain |
//! | 2 | the chain has run |
//! | 3 | session report |
//! | 16, 17, 18, 20, 21 | invalidation, one for each subject |
//! | 128 to 255 | kinds of the engine |

/// What the receiver of an envelope must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EnvelopeKind {
    /// Run the incoming chain of each recipient (stanza-id, archive, blocking, carbons, RFC 6121, section 8.5): the
    /// sender considers the receiver its home. A receiver without the account refuses the recipient.
    RunChain,
    /// Deliver to the recipients' sessions: their home has run the chain. It must not run again.
    ChainHasRun,
    /// The sender's sessions of an account, for every other node with sessions of it: resource, priority, flags, time of the
    /// bind. The engine defines the octets.
    SessionReport,
    /// Data of the recipients changed in the store: forget or read again what is in memory.
    Invalidation(InvalidationSubject),
    /// A kind that the engine defines: 0 to [`EnvelopeKind::MAX_ENGINE`].
    Engine(u8),
}

/// What changed in the store. The recipients are accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum InvalidationSubject {
    /// Roster items.
    Roster = 16,
    /// Roster items, among them a subscription request: the sender has no session of the account, and sessions of it that the
    /// sender did not know of have not received the request.
    SubscriptionRequest = 17,
    /// The blocklist.
    Blocklist = 18,
    /// The account was disabled or enabled.
    Disabled = 20,
    /// The account was deleted: its sessions end.
    Deleted = 21,
}

impl InvalidationSubject {
    /// All subjects.
    pub const ALL: [InvalidationSubject; 5] = [
        InvalidationSubject::Roster,
        InvalidationSubject::SubscriptionRequest,
        InvalidationSubject::Blocklist,
        InvalidationSubject::Disabled,
        InvalidationSubject::Deleted,
    ];

    /// Its name in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            InvalidationSubject::Roster => "roster",
            InvalidationSubject::SubscriptionRequest => "subscription request",
            InvalidationSubject::Blocklist => "blocklist",
            InvalidationSubject::Disabled => "disabled",
            InvalidationSubject::Deleted => "deleted",
        }
    }
}

const ENGINE: u8 = 128;

impl EnvelopeKind {
    /// Its name in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            EnvelopeKind::RunChain => "run chain",
            EnvelopeKind::ChainHasRun => "chain has run",
            EnvelopeKind::SessionReport => "session report",
            EnvelopeKind::Invalidation(subject) => subject.as_str(),
            EnvelopeKind::Engine(_) => "engine",
        }
    }

    /// The highest number of a kind of the engine.
    pub const MAX_ENGINE: u8 = u8::MAX - ENGINE;

    /// The octet of the kind; `None` for a kind of the engine beyond the highest number.
    pub const fn to_byte(self) -> Option<u8> {
        match self {
            EnvelopeKind::RunChain => Some(1),
            EnvelopeKind::ChainHasRun => Some(2),
            EnvelopeKind::SessionReport => Some(3),
            EnvelopeKind::Invalidation(subject) => Some(subject as u8),
            EnvelopeKind::Engine(number) => ENGINE.checked_add(number),
        }
    }

    /// The kind of an octet, if it is defined.
    pub fn from_byte(byte: u8) -> Option<EnvelopeKind> {
        match byte {
            1 => Some(EnvelopeKind::RunChain),
            2 => Some(EnvelopeKind::ChainHasRun),
            3 => Some(EnvelopeKind::SessionReport),
            ENGINE..=u8::MAX => Some(EnvelopeKind::Engine(byte - ENGINE)),
            _ => InvalidationSubject::ALL
                .into_iter()
                .find(|subject| *subject as u8 == byte)
                .map(EnvelopeKind::Invalidation),
        }
    }
}
