//! Shared test support: nodes without sockets, nodes with streams, alone and in clusters, scenarios, and comparison of
//! stanzas.
//!
//! No production crate may depend on this one; features and streams use it as a dev-dependency.
//!
//! # Pitfalls
//!
//! It must not depend on any feature, or the tests of a feature would link two copies of it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the whole crate is tests")]

mod client_stream;
pub mod compare;
pub mod counting_store;
pub mod engine;
mod environment;
pub mod expat;
pub mod files;
pub mod listener;
pub mod manual_spawner;
mod node_inbox;
pub mod scenario;
pub mod server;
pub mod test_nodes;
pub mod tls;

pub use access::{StoreBackedViews, login};
pub use compare::{assert_same, canonical};
pub use engine::{NodeClient, PendingResumption, TestNode};
pub use listener::{ListenerClient, TestListener};
pub use test_nodes::TestNodes;
