//! The requests of a session that await a response: see [`outbox::PendingRequests`].

use jid::JidRef;
use outbox::PendingRequests;

use super::Session;

impl Session {
    /// Records a request of the client.
    pub(crate) fn record_request(&self, to: JidRef<'_>, id: &str) {
        self.with(|state| match state.extensions.get::<PendingRequests>() {
            Some(pending) => pending.insert(to.as_str(), id),
            None => {
                let mut pending = PendingRequests::default();
                pending.insert(to.as_str(), id);
                if !pending.is_empty() {
                    state.extensions.insert(pending);
                }
            }
        });
    }

    /// Whether the client awaits this response; removes the request.
    pub(crate) fn take_pending_request(&self, from: JidRef<'_>, id: &str) -> bool {
        self.with(|state| {
            let Some(pending) = state.extensions.get::<PendingRequests>() else { return false };
            let found = pending.remove(from.as_str(), id);
            if pending.is_empty() {
                state.extensions.remove::<PendingRequests>();
            }
            found
        })
    }
}
