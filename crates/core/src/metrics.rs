//! Counters and histograms of the engine, in the registry that `/metrics` prints.
//!
//! Names follow Prometheus's conventions: a unit as suffix, `_total` for counters (added by the encoder).
//! Handles are resolved once, so that counting a stanza is one atomic addition.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use stanza::Kind;

/// One label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByReason {
    /// Why.
    pub reason: &'static str,
}

/// One label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByClass {
    /// Of what.
    pub class: &'static str,
}

/// Kind of a stanza and its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByKind {
    /// `message`, `presence` or `iq`.
    pub kind: &'static str,
    /// `in` from clients, `out` to clients.
    pub direction: &'static str,
}

/// Counters of the engine.
pub struct Metrics {
    stanzas: [[Counter; 3]; 2],
    /// Streams that became a session.
    pub sessions_opened: Counter,
    /// Sessions that ended.
    pub sessions_closed: Counter,
    /// Sessions that lost their connection and wait for another one.
    pub sessions_dormant: Counter,
    /// Sessions that went on with another connection.
    pub sessions_resumed: Counter,
    /// Messages put into the offline store.
    pub offline_stored: Counter,
    /// Messages delivered from the offline store.
    pub offline_delivered: Counter,
    /// Presence dropped because the receiver did not read.
    pub shed_presence: Counter,
    /// Messages that found the receiver's queue full.
    pub queue_full: Counter,
    /// Stanzas sent back with an error.
    pub bounced: Counter,
    /// Stanzas for which a handler had to wait.
    pub waited: Counter,
    /// Logins by mechanism or failure.
    pub logins: Family<ByReason, Counter>,
    /// Logins refused unseen, by the limit that was reached.
    pub logins_limited: Family<ByReason, Counter>,
    /// Stream errors sent, by condition.
    pub stream_errors: Family<ByReason, Counter>,
    limited: Family<ByClass, Counter>,
}

impl Metrics {
    /// Creates the counters and registers them.
    pub fn new(registry: &mut Registry) -> Metrics {
        let family = Family::<ByKind, Counter>::default();
        let handle = |direction: &'static str| {
            ["message", "presence", "iq"].map(|kind| family.get_or_create_owned(&ByKind { kind, direction }))
        };
        let metrics = Metrics {
            stanzas: [handle("in"), handle("out")],
            sessions_opened: Counter::default(),
            sessions_closed: Counter::default(),
            sessions_dormant: Counter::default(),
            sessions_resumed: Counter::default(),
            offline_stored: Counter::default(),
            offline_delivered: Counter::default(),
            shed_presence: Counter::default(),
            queue_full: Counter::default(),
            bounced: Counter::default(),
            waited: Counter::default(),
            logins: Family::default(),
            logins_limited: Family::default(),
            stream_errors: Family::default(),
            limited: Family::default(),
        };
        registry.register("throng_stanzas", "Stanzas from and to clients", family);
        let mut add =
            |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        add("throng_sessions_opened", "Sessions opened", &metrics.sessions_opened);
        add("throng_sessions_closed", "Sessions ended", &metrics.sessions_closed);
        add("throng_sessions_dormant", "Sessions that lost a resumable stream", &metrics.sessions_dormant);
        add("throng_sessions_resumed", "Sessions that went on on another stream", &metrics.sessions_resumed);
        add("throng_offline_stored", "Messages stored for offline users", &metrics.offline_stored);
        add("throng_offline_delivered", "Stored messages delivered", &metrics.offline_delivered);
        add(
            "throng_shed_presence",
            "Presence dropped because the receiver did not read",
            &metrics.shed_presence,
        );
        add("throng_queue_full", "Messages that found the receiver's queue full", &metrics.queue_full);
        add("throng_bounced", "Stanzas sent back with an error", &metrics.bounced);
        add("throng_waited", "Stanzas that waited for the store", &metrics.waited);
        registry.register("throng_logins", "Logins by mechanism or failure", metrics.logins.clone());
        registry.register(
            "throng_logins_limited",
            "Logins refused because too many failed before",
            metrics.logins_limited.clone(),
        );
        registry.register("throng_stream_errors", "Stream errors sent", metrics.stream_errors.clone());
        registry.register(
            "throng_limited",
            "Times that a session was over its rate, by class: stanzas and bytes are then read more slowly, the rest is refused",
            metrics.limited.clone(),
        );
        metrics
    }
    /// Counts that a session was over its rate.
    pub fn limited(&self, class: &'static str) {
        self.limited.get_or_create(&ByClass { class }).inc();
    }
    /// Counts a stanza from a client.
    pub fn stanza_in(&self, kind: Kind) {
        self.stanzas[0][index(kind)].inc();
    }
    /// Counts stanzas to clients.
    pub fn stanza_out(&self, kind: Kind) {
        self.stanzas[1][index(kind)].inc();
    }
    /// Stanzas so far: messages, presence, IQs; from clients, then to clients.
    pub fn stanzas(&self) -> [[u64; 3]; 2] {
        [0, 1].map(|d| [0, 1, 2].map(|k| self.stanzas[d][k].get()))
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(&mut Registry::default())
    }
}

const fn index(kind: Kind) -> usize {
    match kind {
        Kind::Message(_) => 0,
        Kind::Presence(_) => 1,
        Kind::Iq(_) => 2,
    }
}
