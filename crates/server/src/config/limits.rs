//! `[limits]`: every limit of the engine, with its valid range.

use throng_core::NodeLimits;

use super::reader::ConfigSection;

/// Each limit with its range.
macro_rules! each {
    ($then:ident) => {
        $then! {
            // RFC 6120, section 13.12: no limit below 10 000 bytes.
            stanza_bytes: 10_000..=16_777_216,
            negotiation_bytes: 10_000..=1_048_576,
            negotiation_timeout_seconds: 1..=3_600,
            auth_attempts: 2..=10,
            bind_attempts: 1..=100,
            login_window_seconds: 10..=86_400,
            login_failures_per_address_and_account: 1..=1_000_000,
            login_failures_per_address: 1..=1_000_000,
            // Counted in 128 groups: larger numbers could not be distinguished.
            login_accounts_per_address: 1..=200,
            login_failures_per_account: 1..=1_000_000,
            idle_ping_seconds: 5..=86_400,
            ping_timeout_seconds: 1..=3_600,
            write_stall_timeout_seconds: 1..=3_600,
            queue_message_bytes: 16_384..=1_073_741_824,
            queue_presence_bytes: 16_384..=1_073_741_824,
            queue_control_bytes: 16_384..=1_073_741_824,
            queue_sender_percent: 1..=100,
            backlog_bytes: 1_048_576..=4_294_967_295,
            backlog_bytes_per_account: 65_536..=4_294_967_295,
            backlog_bytes_per_sender: 65_536..=4_294_967_295,
            sessions_per_account: 1..=1_000,
            roster_items: 10..=1_000_000,
            // Rosters beyond `store::roster::MAX_ROSTER_BYTES` are not read, and half of that leaves room for requests.
            roster_bytes: 65_536..=33_554_432,
            directed_presence_entities: 1..=10_000,
            resourcepart_bytes: 16..=1_023,
            connections: 1..=10_000_000,
            connections_per_address: 1..=10_000_000,
            unauthenticated_connections: 1..=10_000_000,
            stanzas_per_second: 0..=1_000_000,
            stanzas_burst: 0..=10_000_000,
            bytes_per_second: 0..=1_000_000_000,
            bytes_burst: 0..=1_000_000_000,
            presence_broadcasts_per_minute: 0..=1_000_000,
            presence_broadcasts_burst: 0..=1_000_000,
            directed_presence_per_minute: 0..=1_000_000,
            directed_presence_burst: 0..=1_000_000,
            roster_changes_per_minute: 0..=1_000_000,
            roster_changes_burst: 0..=1_000_000,
            new_connections_per_second: 0..=1_000_000,
            new_connections_burst: 0..=1_000_000,
            accepted_connections_per_second: 0..=1_000_000,
        }
    };
}

/// The rates that have bursts, with their places in [`NodeLimits::rates_on_loopback`].
macro_rules! each_rate {
    ($then:ident) => {
        $then! {
            0, stanzas_per_second: stanzas_burst,
            1, bytes_per_second: bytes_burst,
            2, presence_broadcasts_per_minute: presence_broadcasts_burst,
            3, directed_presence_per_minute: directed_presence_burst,
            4, roster_changes_per_minute: roster_changes_burst,
            5, new_connections_per_second: new_connections_burst,
        }
    };
}

pub(super) fn limits(mut section: ConfigSection) -> NodeLimits {
    let mut limits = NodeLimits::with_rates();
    macro_rules! written {
        ($($number:literal, $rate:ident: $burst:ident),* $(,)?) => {$(
            if section.is_written(stringify!($rate)) {
                // The default burst belongs to the default rate.
                limits.$burst = 0;
                limits.rates_on_loopback[$number] = true;
            }
        )*};
    }
    each_rate!(written);
    // Its burst is no setting.
    limits.rates_on_loopback[6] = section.is_written("accepted_connections_per_second");
    macro_rules! take {
        ($($name:ident: $low:literal ..= $high:literal),* $(,)?) => {$(
            if let Some(value) = section.int(stringify!($name), $low, $high) {
                limits.$name = value as _;
            }
        )*};
    }
    each!(take);
    section.finish();
    limits
}

/// The names of the limits that differ.
pub(crate) fn changed_limits(old: &NodeLimits, new: &NodeLimits) -> Vec<&'static str> {
    let mut names = Vec::new();
    macro_rules! compare {
        ($($name:ident: $low:literal ..= $high:literal),* $(,)?) => {$(
            if old.$name != new.$name {
                names.push(stringify!($name));
            }
        )*};
    }
    each!(compare);
    names
}
