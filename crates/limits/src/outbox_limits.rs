//! Limits of queues, and of stanzas that were already accepted.

/// Limits for stanzas that were already accepted. They were checked on arrival against the narrower limits of their stream,
/// and the server has added to them since: addresses, an id, a time, a copy around them. So these limits are
/// wider by more than all of these additions together.
pub const STANZA_LIMITS: xml::Limits = xml::Limits {
    element_bytes: MAX_STANZA_BYTES + ADDED_BYTES,
    name_bytes: NAME_BYTES,
    ..xml::Limits::CEILING
};

/// Limits for an element that is extracted from a stanza, stored, and later sent inside other stanzas.
pub const FRAGMENT_LIMITS: xml::Limits =
    xml::Limits { depth: STANZA_LIMITS.depth - 4, prefixes: STANZA_LIMITS.prefixes - 4, ..STANZA_LIMITS };

/// Largest stanza that the configuration may admit.
pub const MAX_STANZA_BYTES: u32 = 16 * 1024 * 1024;
/// Allowance for additions of the server: about 30 kB where every address has its greatest length and is
/// escaped.
pub const ADDED_BYTES: u32 = 64 * 1024;
/// Maximum length of a qualified name in a stanza.
pub const NAME_BYTES: u16 = 1024;

const _: () = {
    let (entry, stanza) = (xml::Limits::DEFAULT, STANZA_LIMITS);
    // `from`, `to` and `xmlns` on the stanza; a copy adds three elements around it, each with a declaration,
    // besides a further `<stanza-id/>` or `<delay/>`; BOSH adds one around that.
    assert!(stanza.attributes >= entry.attributes + 3);
    assert!(stanza.depth >= entry.depth + 4);
    assert!(stanza.prefixes >= entry.prefixes + 5);
    // Two addresses of 3071 bytes, whose resource may be escaped to six times its length.
    assert!(stanza.start_tag_bytes as u32 >= entry.start_tag_bytes as u32 + 2 * 8_300 + 64);
};

/// Limits of the queues of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxLimits {
    /// Queue of one session: messages.
    pub queue_message_bytes: u32,
    /// Queue of one session: presence; the oldest is dropped beyond it, that of unsubscribed senders first.
    pub queue_presence_bytes: u32,
    /// Queue of one session: IQ and the rest; beyond it the stream is closed, if the client requested the
    /// stanza.
    pub queue_control_bytes: u32,
    /// Percent of each of these queues that one sender may fill.
    pub queue_sender_percent: u32,
    /// Backlog of clients that do not read: queues and unacknowledged stanzas of detached sessions, and queues
    /// of more than 64 KiB.
    pub backlog_bytes: u32,
    /// Backlog of all sessions of one account.
    pub backlog_bytes_per_account: u32,
    /// Backlog of one sender, in all queues.
    pub backlog_bytes_per_sender: u32,
}

impl OutboxLimits {
    /// The defaults.
    pub const DEFAULT: OutboxLimits = OutboxLimits {
        queue_message_bytes: 1_048_576,
        queue_presence_bytes: 262_144,
        queue_control_bytes: 2_097_152,
        queue_sender_percent: 50,
        backlog_bytes: 268_435_456,
        backlog_bytes_per_account: 4_194_304,
        backlog_bytes_per_sender: 16_777_216,
    };
}

impl Default for OutboxLimits {
    fn default() -> OutboxLimits {
        OutboxLimits::DEFAULT
    }
}
