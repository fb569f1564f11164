//! Metrics of the engine: counters and histograms, in the registry that `/metrics` prints.
//!
//! Names follow Prometheus's conventions: base units as suffix, `_total` for counters (added by the encoder).
//! Counters of the stanza path are handles that are resolved once and striped by thread, so that counting is
//! one addition to a cache line that no other core writes. All names are in `docs/metrics.md`, which a test
//! compares with the registry.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod domain_counters;
mod families;
mod stanza_source;

use std::sync::Arc;

use base::count::{Histogram, HistogramSnapshot, LATENCY_BUCKETS_MICROS, SIZE_BUCKETS};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use stanza::StanzaKind;

pub use families::{CountFamily, HistogramFamily, MICROSECOND, StripedAtomic, StripedCounter};
pub use stanza_source::StanzaSource;

/// Kind and direction of a stanza.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
    direction: &'static str,
}

/// Kind of a stanza and where it was routed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    kind: &'static str,
    outcome: &'static str,
}

/// Names of the kinds of stanzas in labels, each at its [`kind_index`].
pub const KINDS: [&str; 3] = ["message", "presence", "iq"];
/// Names of the queue classes, in the order of `Metrics::delivery`.
const CLASSES: [&str; 3] = ["control", "message", "presence"];

/// Where a stanza is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteOutcome {
    /// To an account of a domain that is served here.
    Local,
    /// To a domain that is served here, or handled here for the sender's own account.
    Server,
    /// To a session on another node.
    Node,
    /// To a domain that is not served here.
    Remote,
    /// Not accepted by any session: stored or bounced.
    Undelivered,
    /// To a service of a domain that is served here.
    Service,
    /// To a component.
    Component,
}

const ROUTE_OUTCOMES: [&str; 7] =
    ["local", "server", "node", "remote", "undelivered", "service", "component"];

/// Metrics of the engine.
pub struct Metrics {
    stanzas: [[StripedCounter; 3]; 2],
    routed: [[StripedCounter; 3]; 7],
    /// Connected sessions, by transport.
    pub sessions: CountFamily<1>,
    /// Sessions opened.
    pub sessions_opened: Counter,
    /// Sessions that ended.
    pub sessions_closed: Counter,
    /// Sessions that were detached and may be resumed.
    pub sessions_detached: Counter,
    /// Sessions that were resumed with another connection.
    pub sessions_resumed: Counter,
    /// Messages stored offline.
    pub offline_stored: Counter,
    /// Messages in the queue of a client that took them slowly, of which a backup was stored.
    pub offline_backups: Counter,
    /// Messages that were not stored, by limit: the recipient's, one sender's share, or that of messages which wait for the
    /// store.
    pub offline_refused: CountFamily<1>,
    /// Messages delivered from the offline store.
    pub offline_delivered: Counter,
    /// Messages that expired in the offline store.
    pub offline_expired: Counter,
    /// Stanzas dropped, by class and reason.
    pub stanzas_dropped: CountFamily<2>,
    /// Times a session's queue was full, by class.
    pub session_queue_full: CountFamily<1>,
    /// Stanzas rejected by a queue, by class and the limit that was reached.
    pub stanzas_refused: CountFamily<2>,
    /// Stanzas to services, by service and kind.
    pub service_stanzas: CountFamily<2>,
    /// Stanzas to services above the rate of their sender, by service and kind.
    pub service_stanzas_limited: CountFamily<2>,
    /// Runs of periodic jobs, by job and outcome.
    pub periodic_job_runs: CountFamily<2>,
    /// Requests to HTTP routes of features, by route, method and class of the status.
    pub http_route_requests: CountFamily<3>,
    /// Bytes of bodies of these requests and responses, by route and direction.
    pub http_route_bytes: CountFamily<2>,
    /// Stanzas bounced, by error condition.
    pub stanzas_bounced: CountFamily<1>,
    /// Stanzas whose handler waited for the store.
    pub stanzas_blocked_on_store: Counter,
    /// Events of sessions and accounts whose handler waited for the store.
    pub events_blocked_on_store: Counter,
    /// Recipients that this node refused to another one, because it does not have them.
    pub cluster_refused: Counter,
    /// Times that what was due for another node was discarded, so that all presence is exchanged with it again.
    pub cluster_resyncs: Counter,
    /// Envelopes with stanzas that could not be queued for another node, by reason.
    pub cluster_not_queued: CountFamily<1>,
    /// Stanzas that found a full lane, by source.
    pub lanes_full: CountFamily<1>,
    /// Input of other nodes that no correct node sends, by violation.
    pub cluster_violations: CountFamily<1>,
    /// Logins by mechanism.
    pub logins: CountFamily<1>,
    /// Failed logins by mechanism and condition.
    pub login_failures: CountFamily<2>,
    /// Logins refused by the login throttle, by the limit that was reached.
    pub logins_throttled: CountFamily<1>,
    /// Audited commands, by interface and outcome.
    pub commands: CountFamily<2>,
    /// Usage reports sent to all other nodes, by kind.
    pub cluster_usage_reports: CountFamily<1>,
    /// Events that no usage report contains because too many were collected, by kind.
    pub cluster_usage_dropped: CountFamily<1>,
    /// Refused requests for `/metrics`.
    pub scrapes_refused: Counter,
    /// Stream errors sent, by condition.
    pub stream_errors: CountFamily<1>,
    /// Times a session exceeded a rate limit, by the limit.
    pub rate_limited: CountFamily<1>,
    /// Sampled microseconds from reading a stanza to having written it to the recipient: IQs and the rest, messages, presence.
    pub delivery: [Arc<Histogram>; 3],
    /// Sessions that received one presence broadcast.
    pub fanout: Arc<Histogram>,
    /// Contacts of users that log in.
    pub roster_sizes: Arc<Histogram>,
    /// Microseconds from accepting a connection to its session.
    pub negotiation: Arc<Histogram>,
}

impl Metrics {
    /// Creates the metrics and registers them.
    pub fn new(registry: &mut Registry) -> Metrics {
        let stanzas = Family::<ByKind, StripedCounter>::default();
        let handle = |direction| KINDS.map(|kind| stanzas.get_or_create_owned(&ByKind { kind, direction }));
        let routed = Family::<ByOutcome, StripedCounter>::default();
        let by_kind = |outcome| KINDS.map(|kind| routed.get_or_create_owned(&ByOutcome { kind, outcome }));
        let micros = || Arc::new(Histogram::new(LATENCY_BUCKETS_MICROS));
        let sizes = || Arc::new(Histogram::new(SIZE_BUCKETS));
        let metrics = Metrics {
            stanzas: [handle("in"), handle("out")],
            routed: ROUTE_OUTCOMES.map(by_kind),
            sessions: CountFamily::gauge(["transport"], &[["tcp"], ["tls"], ["websocket"], ["bosh"]]),
            sessions_opened: Counter::default(),
            sessions_closed: Counter::default(),
            sessions_detached: Counter::default(),
            sessions_resumed: Counter::default(),
            offline_stored: Counter::default(),
            offline_backups: Counter::default(),
            offline_refused: CountFamily::counter(["limit"], &[["full"], ["sender"], ["pending"]]),
            offline_delivered: Counter::default(),
            offline_expired: Counter::default(),
            stanzas_dropped: CountFamily::counter(["class", "reason"], &[["presence", "queue-full"]]),
            session_queue_full: CountFamily::counter(["class"], &[["message"], ["presence"]]),
            stanzas_refused: CountFamily::counter(
                ["class", "limit"],
                &[["control", "share"], ["message", "queue"], ["message", "share"]],
            ),
            service_stanzas: CountFamily::counter(["service", "kind"], &[]),
            service_stanzas_limited: CountFamily::counter(["service", "kind"], &[]),
            periodic_job_runs: CountFamily::counter(["job", "outcome"], &[]),
            http_route_requests: CountFamily::counter(["route", "method", "status"], &[]),
            http_route_bytes: CountFamily::counter(["route", "direction"], &[]),
            stanzas_bounced: CountFamily::counter(["condition"], &[["service-unavailable"]]),
            stanzas_blocked_on_store: Counter::default(),
            events_blocked_on_store: Counter::default(),
            cluster_refused: Counter::default(),
            cluster_resyncs: Counter::default(),
            lanes_full: CountFamily::counter(["source"], &StanzaSource::ALL.map(|source| [source.as_str()])),
            cluster_not_queued: CountFamily::counter(
                ["reason"],
                &cluster::RefusalReason::ALL.map(|reason| [reason.as_str()]),
            ),
            cluster_violations: CountFamily::counter(
                ["violation"],
                &cluster::PeerViolation::ALL.map(|violation| [violation.as_str()]),
            ),
            logins: CountFamily::counter(["mechanism"], &[["SCRAM-SHA-1"], ["SCRAM-SHA-256"], ["PLAIN"]]),
            login_failures: CountFamily::counter(["mechanism", "reason"], &[["none", "not-authorized"]]),
            logins_throttled: CountFamily::counter(
                ["limit"],
                &[["address-and-account"], ["address"], ["accounts-of-address"], ["account"]],
            ),
            commands: CountFamily::counter(
                ["interface", "outcome"],
                &[["http", "done"], ["xmpp", "done"], ["socket", "done"]],
            ),
            cluster_usage_reports: CountFamily::counter(["kind"], &[["login-attempts"], ["spent-rates"]]),
            cluster_usage_dropped: CountFamily::counter(["kind"], &[["login-attempts"], ["spent-rates"]]),
            scrapes_refused: Counter::default(),
            stream_errors: CountFamily::counter(["condition"], &[["connection-timeout"]]),
            rate_limited: CountFamily::counter(["limit"], &[["stanzas"], ["bytes"]]),
            delivery: [micros(), micros(), micros()],
            fanout: sizes(),
            roster_sizes: sizes(),
            negotiation: micros(),
        };
        registry.register("throng_stanzas", "Stanzas from and to clients", stanzas);
        registry.register(
            "throng_stanzas_routed",
            "Stanzas routed, by outcome; undelivered: no session accepted it, so it is stored offline or \
             returned to its sender",
            routed,
        );
        metrics.register_counters(registry);
        metrics.register_families(registry);
        metrics.register_histograms(registry);
        metrics
    }

    fn register_counters(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("throng_sessions_opened", "Sessions opened", &self.sessions_opened),
            ("throng_sessions_closed", "Sessions closed", &self.sessions_closed),
            (
                "throng_sessions_detached",
                "Sessions that lost their connection and were kept for resumption",
                &self.sessions_detached,
            ),
            ("throng_sessions_resumed", "Sessions resumed on another connection", &self.sessions_resumed),
            ("throng_offline_messages_stored", "Messages stored for offline users", &self.offline_stored),
            (
                "throng_offline_message_backups",
                "Messages backed up in offline storage because their recipient's client took them slowly",
                &self.offline_backups,
            ),
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
                &self.stanzas_blocked_on_store,
            ),
            (
                "throng_events_blocked_on_store",
                "Events of sessions and accounts, such as the end of a session, whose handler waited for the store",
                &self.events_blocked_on_store,
            ),
            (
                "throng_cluster_recipients_refused",
                "Recipients of stanzas from other nodes that have no session here; their stanzas return to the other node",
                &self.cluster_refused,
            ),
            (
                "throng_cluster_resyncs",
                "Times that too much presence was due for another node, which did not handle it, so that all presence is exchanged with it again",
                &self.cluster_resyncs,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }

    fn register_families(&self, registry: &mut Registry) {
        registry.register(
            "throng_sessions_connected",
            "Connected sessions by transport; the other sessions are detached and can be resumed",
            self.sessions.clone(),
        );
        registry.register(
            "throng_stanzas_dropped",
            "Stanzas discarded without delivery and without an error to the sender",
            self.stanzas_dropped.clone(),
        );
        registry.register(
            "throng_service_stanzas",
            "Stanzas to services, by the module that provides the service",
            self.service_stanzas.clone(),
        );
        registry.register(
            "throng_service_stanzas_limited",
            "Stanzas to services that were refused or dropped above the rate of their sender",
            self.service_stanzas_limited.clone(),
        );
        registry.register(
            "throng_periodic_job_runs",
            "Runs of periodic jobs that ended, by outcome",
            self.periodic_job_runs.clone(),
        );
        registry.register(
            "throng_http_route_requests",
            "Requests to HTTP routes of modules, by method and class of the status",
            self.http_route_requests.clone(),
        );
        registry.register_with_unit(
            "throng_http_route",
            "Bytes of the bodies of requests to HTTP routes of modules and of their responses",
            Unit::Bytes,
            self.http_route_bytes.clone(),
        );
        registry.register(
            "throng_session_queue_full",
            "Times a session queue was full: the oldest presence is dropped, messages are stored offline or \
             returned to their sender",
            self.session_queue_full.clone(),
        );
        registry.register(
            "throng_session_queue_refused",
            "Stanzas that a session queue did not accept, by the limit that was reached",
            self.stanzas_refused.clone(),
        );
        for (name, help, family) in [
            ("throng_stanzas_bounced", "Stanzas returned to the sender with an error", &self.stanzas_bounced),
            ("throng_logins", "Successful logins", &self.logins),
            (
                "throng_offline_messages_refused",
                "Messages refused because offline storage of the recipient was full, the sender's share of it, or the queue of messages that must be stored",
                &self.offline_refused,
            ),
            (
                "throng_logins_throttled",
                "Login attempts refused by a limit on failed logins, by the limit that was reached",
                &self.logins_throttled,
            ),
            ("throng_stream_errors", "Stream errors sent", &self.stream_errors),
            (
                "throng_lanes_full",
                "Stanzas that had to wait, or were refused, because too many bytes were being handled, by source",
                &self.lanes_full,
            ),
            (
                "throng_cluster_envelopes_not_queued",
                "Envelopes with stanzas that could not be queued for another node, by reason",
                &self.cluster_not_queued,
            ),
            (
                "throng_cluster_violations",
                "Input of other nodes that no correct node sends, which was refused or ignored, and envelopes that they did not settle in time (unsettled)",
                &self.cluster_violations,
            ),
            (
                "throng_cluster_usage_reports",
                "Reports to all other nodes of what clients have used up of limits here, by kind",
                &self.cluster_usage_reports,
            ),
            (
                "throng_cluster_usage_dropped",
                "Logins and ended sessions that no usage report contained, because the report was full",
                &self.cluster_usage_dropped,
            ),
            (
                "throng_session_rate_limited",
                "Times a session exceeded a rate limit; the limits of stanzas and bytes slow down reading, \
                 the others refuse requests",
                &self.rate_limited,
            ),
        ] {
            registry.register(name, help, family.clone());
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
            HistogramFamily::by("class", by_class, MICROSECOND),
        );
        registry.register_with_unit(
            "throng_stream_negotiation",
            "Time from accepting a connection to an established session, including the time the client takes",
            Unit::Seconds,
            HistogramFamily::one(&self.negotiation, MICROSECOND),
        );
        registry.register(
            "throng_presence_fanout_sessions",
            "Sessions that received one presence broadcast",
            HistogramFamily::one(&self.fanout, 1.0),
        );
        registry.register(
            "throng_roster_contacts",
            "Roster size at login",
            HistogramFamily::one(&self.roster_sizes, 1.0),
        );
    }

    /// Counts that a session exceeded a rate limit.
    pub fn count_rate_limited(&self, limit: &'static str) {
        self.rate_limited.inc([limit]);
    }

    /// Counts a stanza from a client.
    pub fn stanza_in(&self, kind: StanzaKind) {
        self.stanzas[0][kind_index(kind)].inc();
    }

    /// Counts stanzas to clients.
    pub fn stanza_out(&self, kind: StanzaKind) {
        self.stanzas[1][kind_index(kind)].inc();
    }

    /// Counts a routed stanza.
    pub fn routed(&self, kind: StanzaKind, outcome: RouteOutcome) {
        self.routed[outcome as usize][kind_index(kind)].inc();
    }

    /// Stanzas since the start: messages, presence, IQs; from clients, then to clients.
    pub fn stanzas(&self) -> [[u64; 3]; 2] {
        [0, 1].map(|d| [0, 1, 2].map(|k| self.stanzas[d][k].get()))
    }

    /// Delivery latency of all classes together.
    pub fn deliveries(&self) -> HistogramSnapshot {
        let mut all = HistogramSnapshot::default();
        self.delivery.iter().for_each(|one| all.merge(&one.snapshot()));
        all
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(&mut Registry::default())
    }
}

/// Name of the kind in labels.
pub const fn kind_name(kind: StanzaKind) -> &'static str {
    KINDS[kind_index(kind)]
}

/// Position of the kind in tables: messages, presence, IQs.
pub const fn kind_index(kind: StanzaKind) -> usize {
    match kind {
        StanzaKind::Message(_) => 0,
        StanzaKind::Presence(_) => 1,
        StanzaKind::Iq(_) => 2,
    }
}
