//! The requests of a session that await a response: see [`outbox::PendingRequests`].

use jid::JidRef;
use outbox::PendingRequests;

use super::Session;

impl Session {
    /// Records a request of the client.
    pub(crate) fn record_request(&self, to: JidRef<'_>, id: &str) {
        self.with(|state| PendingRequests::record(&mut state.extensions, to.as_str(), id));
    }

    /// Whether the client awaits this response; removes the request.
    pub(crate) fn take_pending_request(&self, from: JidRef<'_>, id: &str) -> bool {
        self.with(|state| PendingRequests::take(&mut state.extensions, from.as_str(), id))
    }
}
