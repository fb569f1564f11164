//! What a client has received: messages, returned messages, presence and acknowledgements.

use std::collections::BTreeSet;
use std::time::Instant;

/// A message that was received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) id: String,
    pub(crate) stanza_id: Option<String>,
    pub(crate) at: Instant,
    /// Number of the recipient's stanzas up to this one.
    pub(crate) position: u32,
}

/// A change of what the client sees.
#[derive(Clone, Debug)]
pub(crate) struct PresenceEvent {
    pub(crate) at: Instant,
    pub(crate) user: String,
    pub(crate) available: bool,
}

/// What a client has received so far.
#[derive(Default)]
pub(crate) struct Seen {
    /// Numbers of own stanzas that the server has acknowledged, each with when.
    pub(crate) acknowledged: Vec<(Instant, u32)>,
    /// Stanzas received, and those that the client has acknowledged.
    pub(crate) received: u32,
    pub(crate) answered: u32,
    pub(crate) messages: Vec<ReceivedMessage>,
    /// Ids of messages that came back with an error.
    pub(crate) returned: Vec<String>,
    /// Full addresses that are available.
    pub(crate) present: BTreeSet<String>,
    pub(crate) presence: Vec<PresenceEvent>,
    /// Number of the last ping that was answered.
    pub(crate) synced: u32,
    pub(crate) ended: bool,
}

impl Seen {
    /// A presence stanza has arrived.
    pub(crate) fn change_presence(&mut self, from: &str, available: bool) {
        let user = from.split('@').next().unwrap_or_default().to_owned();
        if available {
            self.present.insert(from.to_owned());
        } else if from.contains('/') {
            self.present.remove(from);
        } else {
            // From a bare address it is that of all resources.
            self.present.retain(|address| address.split('/').next() != Some(from));
        }
        self.presence.push(PresenceEvent { at: Instant::now(), user, available });
    }
}
