//! All sessions.

use super::{Answer, Body, Bytes, Counts, Exchange, Origin, Settings, Start};
use base::clock::Clock;
use parking_lot::RwLock;
use std::sync::Arc;

/// The sessions of a node.
pub struct Sessions {
    settings: RwLock<Settings>,
    clock: Arc<dyn Clock>,
    start: Start,
}

impl Sessions {
    /// An empty table. `start` is called for the stream of each new session.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>, start: Start) -> Arc<Sessions> {
        Arc::new(Sessions { settings: RwLock::new(settings), clock, start })
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// Takes other settings. Sessions keep what was agreed on with them; limits apply at once.
    pub fn change(&self, settings: Settings) {
        *self.settings.write() = settings;
    }

    /// Takes one request. `body` is the whole content of a POST, at most [`Settings::body_bytes`] long.
    pub fn exchange(self: &Arc<Self>, origin: Origin, body: &[u8]) -> Exchange {
        let _ = (origin, body, &self.start, &self.clock);
        let body = b"<body type='terminate' condition='system-shutdown' xmlns='http://jabber.org/protocol/httpbind'/>";
        Exchange::ready(Answer { status: 200, body: Body(Bytes::Fixed(body)), content: None, close: false })
    }

    /// To be called once a second: answers what has waited long enough, ends what was silent too long.
    pub fn sweep(&self) {}

    /// The figures now. Walks through all sessions.
    pub fn counts(&self) -> Counts {
        Counts::default()
    }

    /// The node stops: every request is answered, every stream ends, nothing new is let in.
    pub fn end_all(&self) {}
}
