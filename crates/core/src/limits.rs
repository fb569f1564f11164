//! Every limit of the engine with its default, in one place.
//!
//! Limits before authentication are tighter than those after it. Sizes are bytes, times are seconds.

/// Limits for stanzas that are already inside. They were checked when they came, against [`NodeLimits::stanza`], and the server has
/// added to them since: addresses, an id, a time, a copy around it. So these are wider by more than all of that together.
pub const FRAME_LIMITS: xml::Limits = xml::Limits {
    element_bytes: MAX_STANZA_BYTES + ADDED_BYTES,
    name_bytes: NAME_BYTES,
    ..xml::Limits::CEILING
};

/// Limits for an element that is taken out of a stanza, stored, and sent inside of other stanzas later.
pub const FRAGMENT_LIMITS: xml::Limits =
    xml::Limits { depth: FRAME_LIMITS.depth - 4, prefixes: FRAME_LIMITS.prefixes - 4, ..FRAME_LIMITS };

/// The highest [`NodeLimits::stanza_bytes`] that can be configured.
pub const MAX_STANZA_BYTES: u32 = 16 * 1024 * 1024;
/// Room for what the server adds to a stanza: about 30 kB where every address has its greatest length and is escaped.
const ADDED_BYTES: u32 = 64 * 1024;
/// Longest qualified name in a stanza.
const NAME_BYTES: u16 = 1024;

const _: () = {
    let (entry, frame) = (xml::Limits::DEFAULT, FRAME_LIMITS);
    // `from`, `to` and `xmlns` on the stanza; a copy puts three elements around it, each with a declaration, beside a
    // `<stanza-id/>` or `<delay/>` that is one more; BOSH puts one around that.
    assert!(frame.attributes >= entry.attributes + 3);
    assert!(frame.depth >= entry.depth + 4);
    assert!(frame.prefixes >= entry.prefixes + 5);
    // Two addresses of 3071 bytes, of which the resource may be escaped to six times its length.
    assert!(frame.start_tag_bytes as u32 >= entry.start_tag_bytes as u32 + 2 * 8_300 + 64);
};

/// Limits of a running node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Largest stanza of an authenticated client.
    pub stanza_bytes: u32,
    /// Largest element before authentication.
    pub negotiation_bytes: u32,
    /// Time from connect to a bound resource.
    pub negotiation_timeout_seconds: u32,
    /// Failed authentications on one stream before it is closed (RFC 6120 section 6.4.5 names 2 to 5).
    pub auth_attempts: u8,
    /// Time over which failed logins are counted; see [`crate::guard`].
    pub login_window_seconds: u32,
    /// Failed logins to one account from one address.
    pub login_failures_per_address_and_account: u32,
    /// Failed logins from one address (IPv6: one /64).
    pub login_failures_per_address: u32,
    /// Accounts that may be failed at from one address; counted within a third or so.
    pub login_accounts_per_address: u32,
    /// Failed logins to one account from addresses that it has not been used from.
    pub login_failures_per_account: u32,
    /// Time without traffic after which a client is pinged.
    pub idle_ping_seconds: u32,
    /// Time to answer the ping.
    pub ping_timeout_seconds: u32,
    /// Time without progress after which the connection of a client that does not read is closed.
    pub write_stall_timeout_seconds: u32,
    /// Queue of one session: messages.
    pub queue_message_bytes: u32,
    /// Queue of one session: presence; the oldest is dropped beyond it.
    pub queue_presence_bytes: u32,
    /// Queue of one session: IQ and the rest; beyond it the stream is closed, if that is what the client asked for.
    pub queue_control_bytes: u32,
    /// Percent of each of these that one sender may fill.
    pub queue_sender_percent: u32,
    /// What waits for clients that do not take it: in queues of sessions without a connection, along with what these have
    /// not acknowledged, and in queues of more than [`crate::session::budget::FREE_BYTES`].
    pub backlog_bytes: u32,
    /// The same for all sessions of one account.
    pub backlog_bytes_per_account: u32,
    /// The same from one sender, in all queues.
    pub backlog_bytes_per_sender: u32,
    /// Resources of one account at a time.
    pub sessions_per_account: u16,
    /// Contacts of one account.
    pub roster_items: u32,
    /// Addresses, names and groups of all contacts of one account.
    pub roster_bytes: u32,
    /// Entities that one session may have sent directed presence to.
    pub directed_presence_entities: u16,
    /// Longest resourcepart that a client may request.
    pub resourcepart_bytes: u16,
    /// Connections at a time.
    pub connections: u32,
    /// Connections at a time from one address.
    pub connections_per_address: u32,
    /// Connections that have no session yet.
    pub unauthenticated_connections: u32,
    /// Stanzas of one session; beyond it the stream is read more slowly. 0: as many as come.
    pub stanzas_per_second: u32,
    /// Of these, how many may come at once; 0: those of ten seconds.
    pub stanzas_burst: u32,
    /// Bytes of one session, likewise.
    pub bytes_per_second: u32,
    /// Of these, how many may come at once; 0: those of ten seconds.
    pub bytes_burst: u32,
    /// Presence of one session to all who may see it; more is refused. 0: as much as comes.
    pub presence_broadcasts_per_minute: u32,
    /// Of these, how many may come at once; 0: those of a minute.
    pub presence_broadcasts_burst: u32,
    /// Presence of one session to single entities, likewise.
    pub directed_presence_per_minute: u32,
    /// Of these, how many may come at once; 0: those of a minute.
    pub directed_presence_burst: u32,
    /// Changes of the roster and of subscriptions by one session, likewise.
    pub roster_changes_per_minute: u32,
    /// Of these, how many may come at once; 0: those of a minute.
    pub roster_changes_burst: u32,
    /// New connections from one address; more are closed at once. 0: as many as come.
    pub new_connections_per_second: u32,
    /// Of these, how many may come at once; 0: those of ten seconds.
    pub new_connections_burst: u32,
    /// Which of the six rates above, in their order, hold for clients on loopback as well: those that the operator wrote.
    /// Default rates do not, so that a load test on one machine measures the server.
    pub rates_on_loopback: [bool; 6],
}

impl Default for NodeLimits {
    fn default() -> Self {
        NodeLimits {
            stanza_bytes: 262_144,
            negotiation_bytes: 16_384,
            negotiation_timeout_seconds: 30,
            auth_attempts: 5,
            login_window_seconds: 600,
            login_failures_per_address_and_account: 20,
            login_failures_per_address: 100,
            login_accounts_per_address: 30,
            login_failures_per_account: 100,
            idle_ping_seconds: 600,
            ping_timeout_seconds: 60,
            write_stall_timeout_seconds: 60,
            queue_message_bytes: 1_048_576,
            queue_presence_bytes: 262_144,
            queue_control_bytes: 2_097_152,
            queue_sender_percent: 50,
            backlog_bytes: 268_435_456,
            backlog_bytes_per_account: 4_194_304,
            backlog_bytes_per_sender: 16_777_216,
            sessions_per_account: 32,
            roster_items: 5_000,
            roster_bytes: 1_048_576,
            directed_presence_entities: 256,
            resourcepart_bytes: 512,
            connections: 1_000_000,
            connections_per_address: 100_000,
            unauthenticated_connections: 100_000,
            stanzas_per_second: 0,
            stanzas_burst: 0,
            bytes_per_second: 0,
            bytes_burst: 0,
            presence_broadcasts_per_minute: 0,
            presence_broadcasts_burst: 0,
            directed_presence_per_minute: 0,
            directed_presence_burst: 0,
            roster_changes_per_minute: 0,
            roster_changes_burst: 0,
            new_connections_per_second: 0,
            new_connections_burst: 0,
            rates_on_loopback: [true; 6],
        }
    }
}

impl NodeLimits {
    /// The limits of a node whose operator wrote none: the defaults, with rates that no person's client meets. Bursts leave room
    /// for a client that joins hundreds of rooms when it comes, imports a roster, or comes back with an office behind one address.
    pub fn with_rates() -> NodeLimits {
        NodeLimits {
            stanzas_per_second: 50,
            stanzas_burst: 1_000,
            bytes_per_second: 250_000,
            bytes_burst: 4_000_000,
            presence_broadcasts_per_minute: 60,
            presence_broadcasts_burst: 120,
            directed_presence_per_minute: 240,
            directed_presence_burst: 1_000,
            roster_changes_per_minute: 240,
            roster_changes_burst: 2_000,
            new_connections_per_second: 50,
            new_connections_burst: 1_000,
            rates_on_loopback: [false; 6],
            ..NodeLimits::default()
        }
    }

    /// The parser's limits for an authenticated client.
    pub const fn stanza(&self) -> xml::Limits {
        xml::Limits { element_bytes: self.stanza_bytes, name_bytes: NAME_BYTES, ..xml::Limits::DEFAULT }
    }
    /// The parser's limits before authentication.
    pub const fn negotiation(&self) -> xml::Limits {
        xml::Limits {
            element_bytes: self.negotiation_bytes,
            depth: 8,
            attributes: 32,
            prefixes: 16,
            ..xml::Limits::DEFAULT
        }
    }
}
