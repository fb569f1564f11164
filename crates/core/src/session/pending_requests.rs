//! IQ requests of a session to others that await a response: RFC 6120, section 8.2.3.
//!
//! They distinguish requested from unsolicited responses when a queue has no room for both (`admission.rs`). A
//! session without pending requests stores nothing.
//!
//! A request is a 64-bit hash of recipient and id with a random key of this process. The text is not stored for
//! comparison: recipient and id may have 3 kB and 1 kB, which the client chooses, so that
//! [`MAX_PENDING_REQUESTS`] requests would take a megabyte for each session instead of 2 kB. A match only
//! decides the order in which responses leave a full queue and for whom they count there, never whether one is
//! delivered or who may send it. In the worst case, with a probability of 256 / 2^64, an unsolicited response
//! counts as requested: it still counts for its sender, within the sender's share.
//!
//! Not implemented: expiry by time. A request that is never answered is dropped after [`MAX_PENDING_REQUESTS`]
//! newer ones.
//!
//! # Pitfalls
//!
//! A response that is not found here is delivered like any other as long as there is room.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use jid::JidRef;

use super::{Extension, Session};

/// Pending requests stored for one session.
const MAX_PENDING_REQUESTS: usize = 256;

struct PendingRequests(Vec<u64>);

impl Extension for PendingRequests {}

fn request_key(peer: JidRef<'_>, id: &str) -> u64 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    KEY.get_or_init(RandomState::new).hash_one((peer.as_str(), id))
}

impl Session {
    /// Records a request of the client.
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

    /// Whether the client awaits this response; removes the request.
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
