//! What every other crate may lean on: time, tasks, random ids, secrets, meters and counters.
//!
//! Nothing here knows XMPP. There is no runtime either: time and tasks are traits ([`clock::Clock`],
//! [`spawn::Spawner`]) that programs implement and tests replace.
//!
//! Left out on purpose: everything that only one crate uses. A file stays only while two crates use it.

pub mod clock;
pub mod count;
pub mod id;
pub mod network;
pub mod printable;
pub mod secret;
pub mod spawn;
pub mod token_bucket;

pub use clock::{Clock, ManualClock, Millis, SystemClock};
pub use network::{network, network_number};
pub use secret::Secret;
pub use spawn::{BoxFuture, Spawner};
pub use token_bucket::TokenBucket;
