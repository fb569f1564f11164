//! Feature flags: one bit for each feature in every session and in every account.
//!
//! Bits below 32 belong to sessions, those from 32 on to accounts; see [`crate::account::Account::flags`]. A
//! chain on the sender's side sees both of the sender, one on the recipient's side those of the recipient's
//! account.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of features. They are assigned here, so that no two features share one.
#[derive(Debug, Default)]
pub struct Flags(AtomicU64);

/// The client requested its roster and receives pushes (RFC 6121, section 2.1.6: *interested resource*).
pub const INTERESTED: u64 = 1 << 0;
/// The session belongs to an anonymous user without an account in the store.
pub const EPHEMERAL: u64 = 1 << 1;
/// The client advertised roster versioning (RFC 6121, section 2.6).
pub const ROSTER_VERSIONS: u64 = 1 << 2;
/// Offline messages were requested since the resource became available.
pub const OFFLINE_FETCHED: u64 = 1 << 3;
/// Pending subscription requests were sent since the resource became available.
pub const REQUESTS_SHOWN: u64 = 1 << 4;
/// The client is inactive: stanzas that are not urgent are delayed (XEP-0352).
pub const INACTIVE: u64 = 1 << 5;
/// The client receives copies of its account's messages (XEP-0280).
pub const CARBONS: u64 = 1 << 6;
/// Both sides of the stream count and acknowledge stanzas (XEP-0198).
pub const STREAM_MANAGEMENT: u64 = 1 << 7;
/// The client requested its blocklist and receives pushes (XEP-0191, section 3.2).
pub const BLOCKLIST: u64 = 1 << 8;
/// The stream is encrypted.
pub const SECURE: u64 = 1 << 9;
/// The server added the photo hash to the session's presence (XEP-0153).
pub const PHOTO_ADDED: u64 = 1 << 10;
/// Presence of contacts may be delayed to batch it (see [`outbox::presence_batching`]).
pub const BATCHES_PRESENCE: u64 = 1 << 11;
/// Handlers of an event of the session run or wait (see `router/events.rs`); changed under the lock of the session's state.
pub const EVENT_RUNNING: u64 = 1 << 12;
/// The last items of nodes in which the client is interested were sent since the resource became available (XEP-0163).
pub const LAST_ITEMS_SENT: u64 = 1 << 13;
/// The client may have missed a roster push of another node. Its next roster request here is answered in full, which clears the flag. Until
/// then pushes carry a version that matches no roster, so that other nodes answer in full, too (RFC 6121, section 2.6).
pub const MAY_LACK_ROSTER_PUSH: u64 = 1 << 14;
/// Of an account: one of its sessions has [`CARBONS`].
pub const ACCOUNT_CARBONS: u64 = 1 << 32;
/// Of an account: its blocklist is not empty.
pub const ACCOUNT_BLOCKS: u64 = 1 << 33;
/// Of an account: it has a photo.
pub const ACCOUNT_PHOTO: u64 = 1 << 34;
/// Bits that mean *since the resource became available*: cleared when it becomes unavailable.
pub const SINCE_AVAILABLE: u64 = OFFLINE_FETCHED | REQUESTS_SHOWN | LAST_ITEMS_SENT;

/// Bits of an account: the upper half of the same 64, in four bytes.
#[derive(Debug, Default)]
pub struct AccountFlags(AtomicU32);

impl AccountFlags {
    /// All bits.
    pub fn get(&self) -> u64 {
        u64::from(self.0.load(Ordering::Relaxed)) << 32
    }

    /// Whether all of `bits` are set.
    pub fn has(&self, bits: u64) -> bool {
        self.get() & bits == bits
    }

    /// Sets bits.
    pub fn set(&self, bits: u64) {
        self.0.fetch_or((bits >> 32) as u32, Ordering::Relaxed);
    }

    /// Clears bits.
    pub fn clear(&self, bits: u64) {
        self.0.fetch_and(!((bits >> 32) as u32), Ordering::Relaxed);
    }
}

impl Flags {
    /// All bits.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether all of `bits` are set.
    pub fn has(&self, bits: u64) -> bool {
        self.get() & bits == bits
    }

    /// Sets bits; true if any was not set before.
    pub fn set(&self, bits: u64) -> bool {
        self.0.fetch_or(bits, Ordering::Relaxed) & bits != bits
    }

    /// Clears bits; true if any was set before.
    pub fn clear(&self, bits: u64) -> bool {
        self.0.fetch_and(!bits, Ordering::Relaxed) & bits != 0
    }
}
