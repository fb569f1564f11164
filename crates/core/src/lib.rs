//! The engine: sessions, the routing table, hook points, the IQ table and the declaration types of features.
//!
//! RFC 6120 sections 7, 8 and 10, RFC 6121 section 8. It knows no sockets, no SQL, no NATS and no named XEP:
//! connections are [`session::Link`]s, storage is the traits of `store`, features register themselves through
//! [`feature::Feature`].
//!
//! The way of a stanza: [`Node::ingest`] (checks, stamps, `outgoing` chain) → `route` → `incoming` chain →
//! [`router::rules::decide`] → `deliver` chain → [`session::Link`], or the `undelivered` chain.
//!
//! The trap: everything on that way is synchronous. What needs the store returns a future, and the sender's
//! stream reads no further until it is done; that is what keeps the order between two addresses.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod account;
pub mod accounts;
pub mod audit;
pub mod blocked;
pub mod blocklists;
pub mod clients;
pub mod command;
pub mod disco;
pub mod effect;
pub mod ending;
pub mod fault;
pub mod feature;
pub mod frame;
pub mod guard;
pub mod hooks;
pub mod host;
pub mod inquiry;
pub mod iq;
pub mod kept;
pub mod limits;
pub mod login;
pub mod login_log;
pub mod metrics;
pub mod node;
pub mod nonza;
pub mod passwords;
pub mod questions;
pub mod router;
pub mod session;
pub mod traffic;
pub mod visibility;

pub use account::{Account, Contact};
pub use blocked::Blocked;
pub use effect::{Effect, Effects};
pub use frame::{Class, Frame};
pub use guard::{Guard, Limited};
pub use host::{Enabled, Host, HostError, Hosts};
pub use limits::Limits;
pub use login::{Admission, Found, Identity};
pub use node::{Node, Parts, Principal};
pub use passwords::Passwords;
pub use router::Ingest;
pub use session::{Link, Session};
