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
    way: &'static str,
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
    /// Sessions that lost their connection and wait for another one.
    pub sessions_dormant: Counter,
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
    /// Stanzas for which a handler had to wait.
    pub waited: Counter,
    /// Logins by mechanism.
    pub logins: Tally<1>,
    /// Failed logins by mechanism and condition.
    pub login_failures: Tally<2>,
    /// Logins refused by a limit on failed logins, by the limit that was reached.
    pub logins_limited: Tally<1>,
    /// What was asked of the node by commands and the like, by door and whether it was done.
    pub commands: Tally<2>,
    /// Requests for `/metrics` that were refused.
    pub scrapes_refused: Counter,
    /// Stream errors sent, by condition.
    pub stream_errors: Tally<1>,
    /// Times that a session was over its rate, by class.
    pub limited: Tally<1>,
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
        let way = |way| KINDS.map(|kind| routed.get_or_create_owned(&ByWay { kind, way }));
        let micros = || Arc::new(Histogram::new(MICROS));
        let sizes = || Arc::new(Histogram::new(SIZES));
        let metrics = Metrics {
            stanzas: [handle("in"), handle("out")],
            routed: WAYS.map(way),
            sessions: Tally::gauge(["transport"], &[["tcp"], ["tls"], ["websocket"], ["bosh"]]),
            sessions_opened: Counter::default(),
            sessions_closed: Counter::default(),
            sessions_dormant: Counter::default(),
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
            waited: Counter::default(),
            logins: Tally::counter(["mechanism"], &[["SCRAM-SHA-1"], ["SCRAM-SHA-256"], ["PLAIN"]]),
            login_failures: Tally::counter(["mechanism", "reason"], &[["none", "not-authorized"]]),
            logins_limited: Tally::counter(
                ["reason"],
                &[["address-and-account"], ["address"], ["accounts-of-address"], ["account"]],
            ),
            commands: Tally::counter(
                ["door", "outcome"],
                &[["http", "done"], ["xmpp", "done"], ["socket", "done"]],
            ),
            scrapes_refused: Counter::default(),
            stream_errors: Tally::counter(["condition"], &[["connection-timeout"]]),
            limited: Tally::counter(["class"], &[["stanzas"], ["bytes"]]),
            delivery: [micros(), micros(), micros()],
            fanout: sizes(),
            rosters: sizes(),
            negotiation: micros(),
        };
        registry.register("throng_stanzas", "Stanzas from and to clients", stanzas);
        registry.register(
            "throng_routed",
            "Stanzas by where they went; undelivered are those that no session took, on their way to the store or back",
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
            ("throng_sessions_closed", "Sessions ended", &self.sessions_closed),
            (
                "throng_sessions_dormant",
                "Times that a session lost its connection and waited for another",
                &self.sessions_dormant,
            ),
            (
                "throng_sessions_resumed",
                "Times that a session went on with another connection",
                &self.sessions_resumed,
            ),
            ("throng_offline_stored", "Messages stored for users who were away", &self.offline_stored),
            ("throng_offline_delivered", "Stored messages delivered", &self.offline_delivered),
            (
                "throng_offline_expired",
                "Stored messages that became too old and were removed",
                &self.offline_expired,
            ),
            ("throng_scrapes_refused", "Requests for /metrics answered with 403", &self.scrapes_refused),
            ("throng_stanzas_waited", "Stanzas whose sender waited for the store", &self.waited),
        ] {
            registry.register(name, help, counter.clone());
        }
    }

    fn register_tallies(&self, registry: &mut Registry) {
        registry.register(
            "throng_sessions_connected",
            "Sessions that have a connection, by transport; the others wait to be resumed",
            self.sessions.clone(),
        );
        registry.register(
            "throng_dropped",
            "Stanzas that were given up: nobody got them and nobody was told",
            self.dropped.clone(),
        );
        registry.register(
            "throng_queue_full",
            "Times that a session's queue was full: then the oldest presence goes, and messages go to the store or back",
            self.queue_full.clone(),
        );
        registry.register(
            "throng_queue_refused",
            "Stanzas that a session's queue did not take, by the limit that was reached",
            self.queue_refused.clone(),
        );
        for (name, help, tally) in [
            ("throng_bounced", "Stanzas sent back with an error", &self.bounced),
            ("throng_logins", "Logins", &self.logins),
            (
                "throng_offline_refused",
                "Messages refused because the recipient's offline storage, or the sender's share of it, was full",
                &self.offline_refused,
            ),
            ("throng_logins_limited", "Logins refused because too many failed before", &self.logins_limited),
            ("throng_stream_errors", "Stream errors sent", &self.stream_errors),
            (
                "throng_limited",
                "Times that a session was over its rate: stanzas and bytes are then read more slowly, the rest is refused",
                &self.limited,
            ),
        ] {
            registry.register(name, help, tally.clone());
        }
        registry.register(
            "throng_commands",
            "Commands and other acts that are in the audit log",
            self.commands.clone(),
        );
        registry.register("throng_login_failures", "Logins that failed", self.login_failures.clone());
    }

    fn register_histograms(&self, registry: &mut Registry) {
        let by_class = CLASSES.into_iter().zip(self.delivery.iter().cloned()).collect();
        registry.register_with_unit(
            "throng_delivery",
            "From reading a stanza to having written it to the recipient's connection, of samples; control is answers to requests",
            Unit::Seconds,
            Histograms::by("class", by_class, MICROSECOND),
        );
        registry.register_with_unit(
            "throng_negotiation",
            "From accepting a connection to the session on it, the client's share included",
            Unit::Seconds,
            Histograms::one(&self.negotiation, MICROSECOND),
        );
        registry.register(
            "throng_presence_fanout",
            "Sessions that one change of presence went to",
            Histograms::one(&self.fanout, 1.0),
        );
        registry.register(
            "throng_roster_contacts",
            "Contacts in the roster of who logs in",
            Histograms::one(&self.rosters, 1.0),
        );
    }

    /// Counts that a session was over its rate.
    pub fn limited(&self, class: &'static str) {
        self.limited.inc([class]);
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
