//! Limits with their defaults, as plain values: those of a node, and those of queues and accepted stanzas, which it contains.
//!
//! Limits before authentication are tighter than those after it. Sizes are bytes, times are seconds.
//!
//! Not implemented: their keys in the configuration, which are the program's.

mod node_limits;
mod outbox_limits;

pub use node_limits::NodeLimits;
pub use outbox_limits::{
    ADDED_BYTES, FRAGMENT_LIMITS, MAX_STANZA_BYTES, NAME_BYTES, OutboxLimits, STANZA_LIMITS,
};
