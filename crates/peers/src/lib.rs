//! Routing between the nodes of a cluster: homes of accounts, stanzas and presence for other nodes, reports of sessions and of
//! changed accounts.
//!
//! The engine calls it through [`throng_core::router::PeerRouting`], and the cluster through [`ClusterInbox`]. It decides
//! where a stanza for an account is handled, and sends what other nodes need; chains and delivery on this node are the
//! engine's.
//!
//! * `inbox`: envelopes from other nodes.
//! * `home`: stanzas to the home of an account, to further nodes, and back; `handovers`: their receipts and their order.
//! * `peer_sessions`: reports of the sessions of an account that is connected to several nodes.
//! * `peer_presence`, `presence_of_account`, `peer_push`, `peer_multicast`: what goes to several sessions.
//! * `message_copies`: messages that sessions on several nodes have; `delivered_messages`: those that clients have taken.
//! * `directed_presence`, `noted_presence`: directed presence of sessions on other nodes: probes from its recipients, and its end with a lost
//!   node.
//! * `presence_change`: the format of presence for contacts on other nodes.
//! * `due_presence`, `due_pushes`, `due_errors`, `presence_resync`: what did not fit into the queue of a node, and nodes that were cut off; `lost_peers`: nodes
//!   that are gone; `departure`: what this node sends before it leaves.
//! * `session_transfer`: sessions that move to the node where their client resumes the stream.
//! * `service_stanzas`: stanzas for an item of a service, such as a room, to the node that owns it; `slices`: which node that is.
//! * `forwarded_requests`: requests of clients (BOSH) that the node of their session answers.
//! * `stored_messages`: which node delivers stored messages.
//! * `invalidation`, `blocklist_changes`: changes of accounts; `node_queries`: questions of administration to other nodes; `notices`: messages of features;
//!   `usage_reports`: what clients have used up of limits.
//!
//! RFC 6121, sections 4 and 8, for accounts with sessions on several nodes. Tests build nodes over the memory bus (`testkit`).

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod blocklist_changes;
mod delivered_messages;
mod departure;
mod directed_presence;
mod due_errors;
mod due_presence;
mod due_pushes;
mod envelope_kinds;
pub mod forwarded_requests;
mod handovers;
mod home;
mod inbox;
mod invalidation;
mod lost_peers;
mod message_copies;
pub mod node_queries;
mod noted_presence;
pub mod notices;
mod peer_multicast;
mod peer_presence;
mod peer_push;
mod peer_sessions;
mod presence_change;
mod presence_of_account;
mod presence_resync;
mod routing;
mod service_stanzas;
pub mod session_transfer;
pub mod slices;
mod stored_messages;
mod usage_reports;

use routing::{ClusteredNode, OwnedClusteredNode};

pub use departure::{DiscardedItems, discard_due_items, send_due_items};
pub use inbox::ClusterInbox;
pub use routing::PeerRouter;
pub use usage_reports::{send_last_usage_reports, send_usage_reports, share_spent_rates};
