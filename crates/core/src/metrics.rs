//! Counters and histograms of the engine, in the registry that `/metrics` prints.
//!
//! Names follow Prometheus's conventions: base units as suffix, `_total` for counters (added by the encoder). What is
//! counted with every stanza is a handle resolved once, in stripes by thread, so that counting is one addition to a cache
//! line that no other core writes. All names are in `docs/metrics.md`, which a test compares with the registry.

mod tally;

use std::sync::Arc;

use base::count::{Histogram, MICROS, SIZES, Snapshot};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use stanza::Kind;

use crate::frame::Class;

pub use tally::{Histograms, Hot, MICROSECOND, Striped, Tally};

/// Kind of a stanza and its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
    direction: &'static str,
}

/// Kind of a stanza and where it went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWay {
    kind: &'static str,
    outcome: &'static str,
}

const KINDS: [&str; 3] = ["message", "presence", "iq"];
const CLASSES: [&str; 3] = ["control", "message", "presence"];

/// Where a stanza goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To an account of a domain that is served here.
    Local,
    /// To a domain that is served here, or answered here for the sender's own account.
    Server,
    /// To a session on another node.
    Node,
    /// To a domain that is not served here.
    Remote,
    /// Nobody took it: on to the store, or back.
    Undelivered,
}

const WAYS: [&str; 5] = ["local", "server", "node", "remote", "undelivered"];

/// Counters of the engine.
pub struct Metrics {
    stanzas: [[Hot; 3]; 2],
    routed: [[Hot; 3]; 5],
    /// Sessions that have a connection now, by the transport's name.
    pub sessions: Tally<1>,
    /// Streams that became a session.
    pub sessions_opened: Counter,
    /// Sessions that ended.
    pub sessions_closed: Counter,
    /// Sessions that lost their connection and may be resumed.
    pub sessions_detached: Counter,
    /// Sessions that went on with another connection.
    pub sessions_resumed: Counter,
    /// Messages put into the offline store.
    pub offline_stored: Counter,
    /// Messages that the offline store had no room for, by whose: the recipient's or one sender's part of it.
    pub offline_refused: Tally<1>,
    /// Messages delivered from the offline store.
    pub offline_delivered: Counter,
    /// Messages in the offline store that got too old.
    pub offline_expired: Counter,
    /// Stanzas that nobody got, by class and reason.
    pub dropped: Tally<2>,
    /// Times that a receiver's queue was full, by class.
    pub queue_full: Tally<1>,
    /// Stanzas that found no room in a queue, by class and the limit that was reached.
    pub queue_refused: Tally<2>,
    /// Stanzas sent back with an error, by its condition.
    pub bounced: Tally<1>,
    /// Stanzas whose handler had to wait for the store.
    pub blocked_on_store: Counter,
    /// Logins by mechanism.
    pub logins: Tally<1>,
    /// Failed logins by mechanism and condition.
    pub login_failures: Tally<2>,
    /// Logins refused by a limit on failed logins, by the limit that was reached.
    pub logins_throttled: Tally<1>,
    /// Audited commands, by interface and outcome.
    pub commands: Tally<2>,
    /// Requests for `/metrics` that were refused.
    pub scrapes_refused: Counter,
    /// Stream errors sent, by condition.
    pub stream_errors: Tally<1>,
    /// Times a session exceeded a rate limit, by the limit.
    pub rate_limited: Tally<1>,
    /// Microseconds from reading a stanza to having written it to the recipient, by class; samples.
    pub delivery: [Arc<Histogram>; 3],
    /// Sessions that one presence went to.
    pub fanout: Arc<Histogram>,
    /// Contacts of those who log in.
    pub rosters: Arc<Histogram>,
    /// Microseconds from accepting a connection to the session on it.
    pub negotiation: Arc<Histogram>,
}

impl Metrics {
    /// Creates the counters and registers them.
    pub fn new(registry: &mut Registry) -> Metrics {
        let stanzas = Family::<ByKind, Hot>::default();
        let handle = |direction| KINDS.map(|kind| stanzas.get_or_create_owned(&ByKind { kind, direction }));
        let routed = Family::<ByWay, Hot>::default();
        let by_kind = |outcome| KINDS.map(|kind| routed.get_or_create_owned(&ByWay { kind, outcome }));
        let micros = || Arc::new(Histogram::new(MICROS));
        let sizes = || Arc::new(Histogram::new(SIZES));
        let metrics = Metrics {
            stanzas: [handle("in"), handle("out")],
            routed: WAYS.map(by_kind),
            sessions: Tally::gauge(["transport"], &[["tcp"], ["tls"], ["websocket"], ["bosh"]]),
            sessions_opened: Counter::default(),
            sessions_closed: Counter::default(),
            sessions_detached: Counter::default(),
            sessions_resumed: Counter::default(),
            offline_stored: Counter::default(),
            offline_refused: Tally::counter(["limit"], &[["full"], ["sender"]]),
            offline_delivered: Counter::default(),
            offline_expired: Counter::default(),
            dropped: Tally::counter(["class", "reason"], &[["presence", "queue-full"]]),
            queue_full: Tally::counter(["class"], &[["message"], ["presence"]]),
            queue_refused: Tally::counter(
                ["class", "limit"],
                &[["control", "share"], ["message", "queue"], ["message", "share"]],
            ),
            bounced: Tally::counter(["condition"], &[["service-unavailable"]]),
            blocked_on_store: Counter::default(),
            logins: Tally::counter(["mechanism"], &[["SCRAM-SHA-1"], ["SCRAM-SHA-256"], ["PLAIN"]]),
            login_failures: Tally::counter(["mechanism", "reason"], &[["none", "not-authorized"]]),
            logins_throttled: Tally::counter(
                ["limit"],
                &[["address-and-account"], ["address"], ["accounts-of-address"], ["account"]],
            ),
            commands: Tally::counter(
                ["interface", "outcome"],
                &[["http", "done"], ["xmpp", "done"], ["socket", "done"]],
            ),
            scrapes_refused: Counter::default(),
            stream_errors: Tally::counter(["condition"], &[["connection-timeout"]]),
            rate_limited: Tally::counter(["limit"], &[["stanzas"], ["bytes"]]),
            delivery: [micros(), micros(), micros()],
            fanout: sizes(),
            rosters: sizes(),
            negotiation: micros(),
        };
        registry.register("throng_stanzas", "Stanzas from and to clients", stanzas);
        registry.register(
            "throng_stanzas_routed",
            "Stanzas routed, by outcome; undelivered: no session accepted it, so it goes to offline storage or back to its sender",
            routed,
        );
        metrics.register_counters(registry);
        metrics.register_tallies(registry);
        metrics.register_histograms(registry);
        metrics
    }

    fn register_counters(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("throng_sessions_opened", "Sessions opened", &self.sessions_opened),
            ("throng_sessions_closed", "Sessions closed", &self.sessions_closed),
            (
                "throng_sessions_detached",
                "Times a session lost its connection and was kept for resumption",
                &self.sessions_detached,
            ),
            (
                "throng_sessions_resumed",
                "Times a session was resumed on another connection",
                &self.sessions_resumed,
            ),
            ("throng_offline_messages_stored", "Messages stored for offline users", &self.offline_stored),
            ("throng_offline_messages_delivered", "Offline messages delivered", &self.offline_delivered),
            (
                "throng_offline_messages_expired",
                "Offline messages removed because they expired",
                &self.offline_expired,
            ),
            (
                "throng_scrapes_refused",
                "Requests for /metrics refused with status 403",
                &self.scrapes_refused,
            ),
            (
                "throng_stanzas_blocked_on_store",
                "Stanzas whose handler waited for the store",
                &self.blocked_on_store,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }

    fn register_tallies(&self, registry: &mut Registry) {
        registry.register(
            "throng_sessions_connected",
            "Connected sessions by transport; the other sessions are detached and can be resumed",
            self.sessions.clone(),
        );
        registry.register(
            "throng_stanzas_dropped",
            "Stanzas discarded without delivery and without an error to the sender",
            self.dropped.clone(),
        );
        registry.register(
            "throng_session_queue_full",
            "Times a session queue was full: the oldest presence is dropped, messages go to offline storage or back to the sender",
            self.queue_full.clone(),
        );
        registry.register(
            "throng_session_queue_refused",
            "Stanzas that a session queue did not accept, by the limit that was reached",
            self.queue_refused.clone(),
        );
        for (name, help, tally) in [
            ("throng_stanzas_bounced", "Stanzas returned to the sender with an error", &self.bounced),
            ("throng_logins", "Successful logins", &self.logins),
            (
                "throng_offline_messages_refused",
                "Messages refused because offline storage of the recipient was full, or the sender's share of it",
                &self.offline_refused,
            ),
            (
                "throng_logins_throttled",
                "Login attempts refused by a limit on failed logins, by the limit that was reached",
                &self.logins_throttled,
            ),
            ("throng_stream_errors", "Stream errors sent", &self.stream_errors),
            (
                "throng_session_rate_limited",
                "Times a session exceeded a rate limit; above stanzas and bytes it is read more slowly, above the others requests are refused",
                &self.rate_limited,
            ),
        ] {
            registry.register(name, help, tally.clone());
        }
        registry.register(
            "throng_commands",
            "Commands and other audited actions, by interface",
            self.commands.clone(),
        );
        registry.register("throng_login_failures", "Failed logins", self.login_failures.clone());
    }

    fn register_histograms(&self, registry: &mut Registry) {
        let by_class = CLASSES.into_iter().zip(self.delivery.iter().cloned()).collect();
        registry.register_with_unit(
            "throng_stanza_delivery",
            "Time from reading a stanza to writing it to the recipient's connection, sampled; control: IQ responses",
            Unit::Seconds,
            Histograms::by("class", by_class, MICROSECOND),
        );
        registry.register_with_unit(
            "throng_stream_negotiation",
            "Time from accepting a connection to an established session, including the time the client takes",
            Unit::Seconds,
            Histograms::one(&self.negotiation, MICROSECOND),
        );
        registry.register(
            "throng_presence_fanout_sessions",
            "Sessions that received one presence broadcast",
            Histograms::one(&self.fanout, 1.0),
        );
        registry.register(
            "throng_roster_contacts",
            "Roster size at login",
            Histograms::one(&self.rosters, 1.0),
        );
    }

    /// Counts that a session exceeded a rate limit.
    pub fn limited(&self, limit: &'static str) {
        self.rate_limited.inc([limit]);
    }
    /// Counts a stanza from a client.
    pub fn stanza_in(&self, kind: Kind) {
        self.stanzas[0][index(kind)].inc();
    }
    /// Counts stanzas to clients.
    pub fn stanza_out(&self, kind: Kind) {
        self.stanzas[1][index(kind)].inc();
    }
    /// Counts a stanza on its way.
    pub(crate) fn routed(&self, kind: Kind, way: Way) {
        self.routed[way as usize][index(kind)].inc();
    }
    /// Stanzas so far: messages, presence, IQs; from clients, then to clients.
    pub fn stanzas(&self) -> [[u64; 3]; 2] {
        [0, 1].map(|d| [0, 1, 2].map(|k| self.stanzas[d][k].get()))
    }
    /// Delivery of all classes together.
    pub fn deliveries(&self) -> Snapshot {
        let mut all = Snapshot::default();
        self.delivery.iter().for_each(|one| all.merge(&one.snapshot()));
        all
    }
    /// The place of a class in [`Metrics::delivery`].
    pub(crate) const fn class(class: Class) -> usize {
        match class {
            Class::Control => 0,
            Class::Message => 1,
            Class::Presence => 2,
        }
    }
    /// The word for a class.
    pub fn class_name(class: Class) -> &'static str {
        CLASSES[Metrics::class(class)]
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(&mut Registry::default())
    }
}

pub(crate) const fn index(kind: Kind) -> usize {
    match kind {
        Kind::Message(_) => 0,
        Kind::Presence(_) => 1,
        Kind::Iq(_) => 2,
    }
}
