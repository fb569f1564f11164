//! The engine: sessions, the routing table, the router, hook points and the IQ table.
//!
//! RFC 6120, sections 7, 8 and 10; RFC 6121, section 8. It contains no sockets, no SQL and no NATS: connections
//! are [`session::Outbox`]es and storage is the traits of `store`. It knows no feature: features register
//! themselves through the crate `feature-api`. Of XEPs it contains the parts that sessions and routing need:
//! last activity (XEP-0012), blocklists (XEP-0191), acknowledgements (XEP-0198) and inactive clients (XEP-0352).
//!
//! The path of a stanza: [`Node::ingest`] (checks, addresses, `outgoing` chain) → `route` → `incoming` chain →
//! [`router::rules::decide`] → `deliver` chain → [`session::Outbox`], or the `undelivered` chain.
//!
//! # Pitfalls
//!
//! Everything on that path is synchronous. A handler that must read the store returns a future, and no later stanza of
//! the sender is handled until it completes, which preserves the order between two addresses. A handler that writes
//! attaches a [`Receipt`], and routing of the stanza continues.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod account;
mod account_lifecycle;
pub mod account_views;
pub mod blocklist;
pub mod domains;
pub mod effect;
pub mod feature_notice;
pub mod hooks;
pub mod host;
pub mod iq;
pub mod message_backup;
pub mod multicast;
pub mod node;
pub mod node_extensions;
pub mod principal;
pub mod provided;
pub mod router;
pub mod server_error;
pub mod service;
pub mod session;
mod session_lifecycle;
pub mod visibility;

pub use account::{Account, Contact};
pub use blocklist::Blocklist;
pub use declarations::{StreamFeature, StreamFeatureStage, StreamFeatures};
pub use effect::{Effect, Effects};
pub use engine_metrics::{self as metrics, StanzaSource, domain_counters};
pub use environment::{account_provider, file_storage, passwords, public_url, server_secret};
pub use host::{Host, Hosts};
pub use limits::{self, NodeLimits};
pub use multicast::{Multicast, RecipientList, UndeliveredRecipient};
pub use node::{Node, NodeComponents};
pub use outbox::{
    Outbox, QueueClass, Receipt, ReceiptIssuer, Receipts, SharedStanza, receipt, shared_stanza,
};
pub use passwords::Passwords;
pub use principal::Principal;
pub use queues::serial_task;
pub use router::IngestOutcome;
pub use session::Session;
