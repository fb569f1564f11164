//! Foundations of every other crate: time, tasks, random and time-ordered ids, secrets, token buckets, limits, rates and
//! deadlines of connections, counters and values found by their type.
//!
//! Nothing here depends on XMPP or on a runtime: time and tasks are traits ([`clock::Clock`], [`spawn::Spawner`]) that
//! programs implement and tests replace.
//!
//! Not implemented: anything used by only one crate. A file belongs here only while two crates use it.

pub mod accept_rate;
pub mod clock;
pub mod connection_limits;
pub mod count;
pub mod deadlines;
pub mod extensions;
pub mod host_extension;
pub mod id;
pub mod lock;
pub mod network;
pub mod percent_encoding;
pub mod printable;
pub mod report_schedule;
pub mod secret;
pub mod spawn;
pub mod time_ordered_id;
pub mod token_bucket;

pub use clock::{Clock, ManualClock, Millis, SystemClock};
pub use extensions::{Extension, Extensions};
pub use host_extension::{HostExtensions, Provided};
pub use network::{network, network_number};
pub use report_schedule::ReportSchedule;
pub use secret::Secret;
pub use spawn::{BoxFuture, Spawner};
pub use time_ordered_id::{TimeOrderedId, TimeOrderedIdGenerator};
pub use token_bucket::TokenBucket;
