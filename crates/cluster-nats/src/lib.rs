//! The cluster over NATS: [`NatsCluster`] implements [`cluster::Cluster`] with NATS for messages between nodes and a key-value bucket
//! of JetStream for membership.
//!
//! * **Membership**: each node writes a record under its name every three seconds, which expires after ten, and watches the others'. A
//!   node from which no message was received for ten seconds is gone; an idle one sends a message every three.
//! * **Messages**: each node has a subject. What one node has for another within some milliseconds is one message: envelopes,
//!   changes of claims, receipts. They are numbered, acknowledged and sent again ([`protocol`]), so nothing is lost when NATS restarts or
//!   drops messages.
//! * **Directory**: claims travel in the same order as envelopes, because a node must know a claim before an envelope that follows
//!   it. A node that joins gets a snapshot; digests every three seconds find mistakes.
//! * **Cut off**: a node without NATS keeps bounded queues, and after ten seconds the others are gone for it. It is no member for them
//!   either. When the connection is back, new links begin with snapshots.
//! * **Authentication**: messages and records carry a code made with a key of the deployment, which is in its database. Other clients
//!   that may publish in NATS can disturb what NATS carries, but cannot speak for a node.
//! * **Versions**: the record of a node states which versions of frames and envelopes it reads. Two nodes use the highest that both read.
//!   What a version adds is written only to nodes that read it; a reader skips what it does not know ([`protocol`]).
//!
//! Not implemented: envelopes between servers of NATS in different regions (gateways work, with their
//! latency).
//!
//! # Pitfalls
//!
//! The names of subjects and of the bucket contain the number of the deployment, so that two deployments on the same NATS servers do not
//! see each other.

mod cluster_key;
mod node;
mod protocol;
mod settings;
mod transport;

pub use cluster_key::ClusterKey;
pub use node::{NatsCluster, NatsStatus};
#[doc(hidden)]
pub use protocol::property::check_frame;
pub use protocol::statistics::Statistics;
pub use settings::{NatsCredentials, NatsError, NatsSettings, NatsTls};
pub use transport::{LEAVE_MILLIS, check_connection};
