//! Requests of a session to others that wait for their answer: RFC 6120 section 8.2.3.
//!
//! So that an answer that nobody asked for can be told from one that the client waits for, when there is no room for both
//! (`shed.rs`). Nothing is kept for a session without open requests.
//!
//! A request is a hash of recipient and id, of 64 bits with a key that this process drew and nobody else has. The text is not
//! kept to compare: recipient and id may have 3 kB and 1 kB, which the client chooses, so [`MOST`] requests would be a megabyte a session
//! instead of 2 kB. A hit decides only the order in which answers leave a full queue and whose they are there, never whether
//! one is delivered or who may send it. The worst case, with a chance of 256 / 2^64 for an answer that nobody asked for, is that it counts as
//! one that was: it stays its sender's, within the sender's share.
//!
//! Left out: time. A request that is never answered is forgotten behind [`MOST`] newer ones.
//!
//! The trap: an answer that is not found here is delivered like any other as long as there is room.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use jid::JidRef;

use super::{Extension, Session};

/// Requests of one session that are remembered.
const MAX_PENDING_REQUESTS: usize = 256;

struct PendingRequests(Vec<u64>);

impl Extension for PendingRequests {}

fn request_key(peer: JidRef<'_>, id: &str) -> u64 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    KEY.get_or_init(RandomState::new).hash_one((peer.as_str(), id))
}

impl Session {
    /// The client has sent a request.
    pub(crate) fn record_request(&self, to: JidRef<'_>, id: &str) {
        let key = request_key(to, id);
        self.with(|state| match state.extensions.get::<PendingRequests>() {
            Some(PendingRequests(open)) => {
                if open.len() >= MAX_PENDING_REQUESTS {
                    open.remove(0);
                }
                open.push(key);
            }
            None => state.extensions.insert(PendingRequests(vec![key])),
        });
    }

    /// Whether the client waits for this answer; it does not any more.
    pub(crate) fn take_pending_request(&self, from: JidRef<'_>, id: &str) -> bool {
        self.with(|state| {
            let Some(PendingRequests(open)) = state.extensions.get::<PendingRequests>() else { return false };
            let key = request_key(from, id);
            let Some(at) = open.iter().position(|open| *open == key) else { return false };
            open.remove(at);
            if open.is_empty() {
                state.extensions.remove::<PendingRequests>();
            }
            true
        })
    }
}
