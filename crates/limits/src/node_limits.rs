//! All limits of a running node.

use crate::outbox_limits::{ADDED_BYTES, NAME_BYTES, OutboxLimits};

/// Default rate of accepting. A login costs 0.15 to 0.2 ms of CPU (`docs/performance.md`); with a TLS handshake and what follows a
/// login, such as presence and stored messages, less than 1 ms is usual. So two cores have half of their time left for connected
/// clients. A full backlog of the kernel, 4 096 connections, is accepted in four seconds if one listener has one, and in 16 seconds if four
/// have: they share the rate. Clients that give up before cost no turn (`net::listener`).
const ACCEPTED_CONNECTIONS_PER_SECOND: u32 = 1_000;

/// Limits of a running node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Largest stanza of an authenticated client.
    pub stanza_bytes: u32,
    /// Largest element before authentication.
    pub negotiation_bytes: u32,
    /// Time from connect to a bound resource.
    pub negotiation_timeout_seconds: u32,
    /// Failed authentications on one stream before it is closed (RFC 6120, section 6.4.5, recommends 2 to 5).
    pub auth_attempts: u8,
    /// Refused requests to bind or resume that a client may repeat on one stream; the next one closes it (RFC 6120,
    /// section 7.7.3, recommends 5 to 10).
    pub bind_attempts: u8,
    /// Time over which failed logins are counted.
    pub login_window_seconds: u32,
    /// Failed logins to one account from one address.
    pub login_failures_per_address_and_account: u32,
    /// Failed logins from one address (for IPv6, one /64).
    pub login_failures_per_address: u32,
    /// Accounts with failed logins from one address; an estimate, accurate to about a third.
    pub login_accounts_per_address: u32,
    /// Failed logins to one account from addresses without an earlier login to it.
    pub login_failures_per_account: u32,
    /// Time without traffic after which a client is pinged.
    pub idle_ping_seconds: u32,
    /// Time within which the ping must be answered.
    pub ping_timeout_seconds: u32,
    /// Time without progress after which the connection of a client that does not read is closed.
    pub write_stall_timeout_seconds: u32,
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
    /// Concurrent resources of one account.
    pub sessions_per_account: u16,
    /// Contacts of one account.
    pub roster_items: u32,
    /// Addresses, names and groups of all contacts of one account; also addresses of its blocklist.
    pub roster_bytes: u32,
    /// Entities to which one session may have sent directed presence.
    pub directed_presence_entities: u16,
    /// Longest resourcepart that a client may request.
    pub resourcepart_bytes: u16,
    /// Concurrent connections.
    pub connections: u32,
    /// Concurrent connections from one address.
    pub connections_per_address: u32,
    /// Connections without a session.
    pub unauthenticated_connections: u32,
    /// Stanzas of one session; above this rate the stream is read more slowly. 0: unlimited.
    pub stanzas_per_second: u32,
    /// Burst of this rate; 0: the stanzas of ten seconds.
    pub stanzas_burst: u32,
    /// Bytes of one session; above this rate the stream is read more slowly. 0: unlimited.
    pub bytes_per_second: u32,
    /// Burst of this rate; 0: the bytes of ten seconds.
    pub bytes_burst: u32,
    /// Presence broadcasts of one session; more are refused. 0: unlimited.
    pub presence_broadcasts_per_minute: u32,
    /// Burst of this rate; 0: the broadcasts of a minute.
    pub presence_broadcasts_burst: u32,
    /// Directed presence of one session; more is refused. 0: unlimited.
    pub directed_presence_per_minute: u32,
    /// Burst of this rate; 0: the presence of a minute.
    pub directed_presence_burst: u32,
    /// Changes of the roster and of subscriptions by one session; more are refused. 0: unlimited.
    pub roster_changes_per_minute: u32,
    /// Burst of this rate; 0: the changes of a minute.
    pub roster_changes_burst: u32,
    /// New connections from one address; more are closed immediately. 0: unlimited.
    pub new_connections_per_second: u32,
    /// Burst of this rate; 0: the connections of ten seconds.
    pub new_connections_burst: u32,
    /// Connections that all listeners for clients accept; further ones wait in the kernel's backlog. 0: unlimited.
    pub accepted_connections_per_second: u32,
    /// Which of the seven rates above, in their order, also apply to clients on loopback: those that the operator
    /// configured. Default rates do not, so that a load test on one machine measures the server.
    pub rates_on_loopback: [bool; 7],
}

impl Default for NodeLimits {
    fn default() -> Self {
        NodeLimits {
            stanza_bytes: 262_144,
            negotiation_bytes: 16_384,
            negotiation_timeout_seconds: 30,
            auth_attempts: 5,
            bind_attempts: 10,
            login_window_seconds: 600,
            login_failures_per_address_and_account: 20,
            login_failures_per_address: 100,
            login_accounts_per_address: 30,
            login_failures_per_account: 100,
            idle_ping_seconds: 600,
            ping_timeout_seconds: 60,
            write_stall_timeout_seconds: 60,
            queue_message_bytes: OutboxLimits::DEFAULT.queue_message_bytes,
            queue_presence_bytes: OutboxLimits::DEFAULT.queue_presence_bytes,
            queue_control_bytes: OutboxLimits::DEFAULT.queue_control_bytes,
            queue_sender_percent: OutboxLimits::DEFAULT.queue_sender_percent,
            backlog_bytes: OutboxLimits::DEFAULT.backlog_bytes,
            backlog_bytes_per_account: OutboxLimits::DEFAULT.backlog_bytes_per_account,
            backlog_bytes_per_sender: OutboxLimits::DEFAULT.backlog_bytes_per_sender,
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
            accepted_connections_per_second: 0,
            rates_on_loopback: [true; 7],
        }
    }
}

impl NodeLimits {
    /// Limits of a node without configured limits: the defaults, with rates that no client of a person reaches.
    /// Bursts permit a client that joins hundreds of rooms at login, imports a roster, or reconnects with an
    /// office behind one address.
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
            accepted_connections_per_second: ACCEPTED_CONNECTIONS_PER_SECOND,
            rates_on_loopback: [false; 7],
            ..NodeLimits::default()
        }
    }

    /// The rates and bursts of a session, in their order. `local`: it connects from loopback.
    pub fn session_rates(&self, local: bool) -> [u32; 10] {
        let mut numbers = [
            self.stanzas_per_second,
            self.stanzas_burst,
            self.bytes_per_second,
            self.bytes_burst,
            self.presence_broadcasts_per_minute,
            self.presence_broadcasts_burst,
            self.directed_presence_per_minute,
            self.directed_presence_burst,
            self.roster_changes_per_minute,
            self.roster_changes_burst,
        ];
        for (pair, applies) in numbers.chunks_exact_mut(2).zip(self.rates_on_loopback) {
            if local && !applies {
                pair.fill(0);
            }
        }
        numbers
    }

    /// The limits of queues.
    #[inline]
    pub const fn outbox(&self) -> OutboxLimits {
        OutboxLimits {
            queue_message_bytes: self.queue_message_bytes,
            queue_presence_bytes: self.queue_presence_bytes,
            queue_control_bytes: self.queue_control_bytes,
            queue_sender_percent: self.queue_sender_percent,
            backlog_bytes: self.backlog_bytes,
            backlog_bytes_per_account: self.backlog_bytes_per_account,
            backlog_bytes_per_sender: self.backlog_bytes_per_sender,
        }
    }

    /// The parser's limits after authentication.
    pub const fn stanza(&self) -> xml::Limits {
        xml::Limits { element_bytes: self.stanza_bytes, name_bytes: NAME_BYTES, ..xml::Limits::DEFAULT }
    }

    /// Most bytes of a stanza that the server sends: one that a client sent, with all additions, a roster, or a blocklist. A
    /// roster has 21 times the bytes of its texts if every group is one character that is escaped, and a blocklist, which has no
    /// more text than a roster, 21 times those if every address is.
    pub const fn outgoing_stanza_bytes(&self) -> u32 {
        /// Length of `<item jid='' name='' subscription='both' ask='subscribe' approved='true'></item>`, rounded up.
        const ITEM_MARKUP: u32 = 96;
        /// Length of `<group>&apos;</group>`, which has one byte of text.
        const GROUP_FACTOR: u32 = 21;
        let roster = self.roster_bytes.saturating_mul(GROUP_FACTOR);
        let roster = roster.saturating_add(self.roster_items.saturating_mul(ITEM_MARKUP));
        let stanza = self.stanza_bytes.saturating_add(ADDED_BYTES);
        if roster > stanza { roster } else { stanza }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_do_not_apply_on_loopback_unless_they_are_set() {
        let mut limits = NodeLimits { stanzas_per_second: 5, bytes_per_second: 7, ..NodeLimits::default() };
        (limits.stanzas_burst, limits.bytes_burst) = (50, 70);
        limits.rates_on_loopback = [false; 7];
        limits.rates_on_loopback[1] = true;
        assert_eq!(limits.session_rates(false)[..4], [5, 50, 7, 70]);
        assert_eq!(limits.session_rates(true)[..4], [0, 0, 7, 70]);
    }
}
