//! A running node: the state that all sessions and features share.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use base::clock::Clock;
use base::lock::LeafRwLock;
use base::spawn::Spawner;
use base::{TimeOrderedId, TimeOrderedIdGenerator};
use cluster::{AddressHasher, Cluster, InvalidationSubject};
use jid::{Jid, JidRef};
use outbox::{DeliveryWatch, EndedStreams};
use queues::keyed_queues::{KeyedQueueLimits, KeyedQueues};
use store::{RosterUpdateOutcome, Stores, Subscription};

use crate::account::{Account, Contact};
use crate::account_views::AccountViews;
use crate::domain_counters::{DomainTotals, OTHER_DOMAINS};
use crate::domains::{ComponentError, DomainRoute, DomainTable, Domains};
use crate::effect::Effects;
use crate::host::{Host, Hosts};
use crate::limits::NodeLimits;
use crate::metrics::Metrics;
use crate::node_extensions::NodeExtensions;
use crate::passwords::Passwords;
use crate::router::lanes::RecipientLanes;
use crate::router::routing_table::RoutingTable;
use crate::router::{PeerRouting, RoutingWork};
use crate::session::{AccountRates, Backlog, OutboxRegistry, PresenceBatcher, Session};
use crate::session_lifecycle::close_for_removed_host;

/// Parts from which a node is built.
pub struct NodeComponents {
    /// Virtual hosts by domain.
    pub hosts: Hosts,
    /// Storage.
    pub stores: Stores,
    /// Connection to the other nodes.
    pub cluster: Arc<dyn Cluster>,
    /// Routing between this node and the others.
    pub peers: Box<dyn PeerRouting>,
    /// Keeps the views of accounts equal to the store.
    pub account_views: Box<dyn AccountViews>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Spawner of tasks.
    pub spawner: Arc<dyn Spawner>,
    /// Metrics.
    pub metrics: Metrics,
    /// Limits.
    pub limits: NodeLimits,
    /// Hashes addresses with a secret of the deployment that is the same on all nodes.
    pub hasher: AddressHasher,
    /// Bare addresses of the administrators.
    pub admins: Vec<Jid>,
    /// Derives and verifies stored keys.
    pub passwords: Arc<dyn Passwords>,
    /// Software version, for XEP-0092.
    pub version: &'static str,
}

/// Sends presence of an account; called until it breaks. See `router/presence_queue.rs`.
pub(crate) type PresenceJob = Box<dyn FnMut(&Arc<Node>) -> ControlFlow<()> + Send>;

/// A running node.
pub struct Node {
    pub(crate) domains: Domains,
    /// Accounts that have a resource connected to this node.
    pub routing_table: RoutingTable,
    /// All connections.
    pub outboxes: OutboxRegistry,
    /// Connections whose presence is delayed in order to batch it.
    pub presence_batcher: PresenceBatcher,
    /// Sessions with messages whose senders wait for their delivery.
    pub delivery_watch: DeliveryWatch<Arc<Session>>,
    /// Bytes that wait for clients that do not read them.
    pub backlog: Arc<Backlog>,
    /// Storage.
    pub stores: Stores,
    /// Connection to the other nodes.
    pub cluster: Arc<dyn Cluster>,
    single: bool,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Spawner of tasks.
    pub spawner: Arc<dyn Spawner>,
    stanza_ids: TimeOrderedIdGenerator,
    /// Metrics.
    pub metrics: Metrics,
    limits: ArcSwap<NodeLimits>,
    admins: LeafRwLock<BTreeSet<Jid>>,
    /// Administrators named in the configuration. A command may have removed one of them from `admins`; a
    /// change of the file restores it.
    configured_admins: LeafRwLock<BTreeSet<Jid>>,
    /// Derives and verifies stored keys.
    pub passwords: Arc<dyn Passwords>,
    /// Software version.
    pub version: &'static str,
    /// Values of the program, of features and of crates above the engine, by type.
    pub extensions: NodeExtensions,
    peers: Box<dyn PeerRouting>,
    account_views: Box<dyn AccountViews>,
    pub(crate) lanes: RecipientLanes,
    /// Presence broadcasts in progress and what must follow them, by the hash of the account.
    pub(crate) presence_jobs: KeyedQueues<u64, PresenceJob>,
    now: AtomicU32,
    /// Incremented by every roster write and every stored message of an account, in stripes: a login that read
    /// its data before such a write and binds after it reads again.
    epochs: Box<[AtomicU32; 256]>,
    /// Handled counts of streams that can no longer be resumed.
    pub ended_streams: EndedStreams,
    /// Rates used by accounts.
    pub account_rates: AccountRates,
}

/// Bits of an epoch that count roster writes; an overflow costs one query of the offline store.
pub(crate) const ROSTER_BITS: u32 = 0xFFFF;
const ROSTER_STEP: u32 = 1;
const MESSAGE_STEP: u32 = 1 << 16;

impl Node {
    /// Builds a node.
    pub fn new(parts: NodeComponents) -> Arc<Node> {
        let own = parts.cluster.node();
        let epoch = parts.cluster.members().iter().find(|member| member.node == own).map_or(0, |m| m.epoch);
        register_metrics(&parts.metrics, parts.hosts.values());
        Arc::new(Node {
            domains: Domains::new(parts.hosts),
            routing_table: RoutingTable::new(parts.hasher),
            outboxes: OutboxRegistry::default(),
            presence_batcher: PresenceBatcher::default(),
            delivery_watch: DeliveryWatch::default(),
            backlog: Arc::default(),
            stores: parts.stores,
            single: parts.cluster.is_single(),
            cluster: parts.cluster,
            now: AtomicU32::new(parts.clock.now_seconds()),
            clock: parts.clock,
            stanza_ids: TimeOrderedIdGenerator::new(own.as_str(), epoch),
            spawner: parts.spawner,
            metrics: parts.metrics,
            limits: ArcSwap::from_pointee(parts.limits),
            admins: LeafRwLock::new(parts.admins.into_iter().collect()),
            configured_admins: LeafRwLock::default(),
            passwords: parts.passwords,
            version: parts.version,
            extensions: NodeExtensions::default(),
            peers: parts.peers,
            account_views: parts.account_views,
            lanes: RecipientLanes::default(),
            // The streams of the senders bound the broadcasts, which are forced; one to 50 000 contacts takes about 1 MiB.
            presence_jobs: KeyedQueues::new(KeyedQueueLimits::without_forced_bound(4 << 20, 64 << 20)),
            epochs: Box::new([const { AtomicU32::new(0) }; 256]),
            ended_streams: EndedStreams::default(),
            account_rates: AccountRates::default(),
        })
    }

    /// Whether there are never other nodes; see [`Cluster::is_single`].
    pub fn is_single(&self) -> bool {
        self.single
    }

    /// Routing between this node and the others.
    pub fn peer_routing(&self) -> &dyn PeerRouting {
        &*self.peers
    }

    /// Keeps the views of this node's accounts equal to the store.
    pub fn account_views(&self) -> &dyn AccountViews {
        &*self.account_views
    }

    /// Host of a domain, if it is served here.
    pub fn host(&self, domain: &str) -> Option<Arc<Host>> {
        self.domains.load().host(domain).cloned()
    }

    /// The domains that routing knows, by kind. Do not store the result: a reload replaces it.
    pub fn domains(&self) -> arc_swap::Guard<Arc<DomainTable>> {
        self.domains.load()
    }

    /// All hosts.
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        self.domains.load().hosts()
    }

    /// Counters of the served domains, by name; at most [`crate::domain_counters::MAX_DOMAINS`], followed by
    /// [`OTHER_DOMAINS`] if there are more.
    pub fn domain_totals(&self) -> Vec<(String, DomainTotals)> {
        let mut list = Vec::new();
        let mut others = None;
        for host in self.hosts() {
            if host.domain_counters.is_shared() {
                others = Some(host.domain_counters.totals());
            } else {
                list.push((host.domain().to_owned(), host.domain_counters.totals()));
            }
        }
        list.extend(others.map(|totals| (OTHER_DOMAINS.to_owned(), totals)));
        list
    }

    /// Replaces all hosts. A connected account uses the new host of its domain from its next stanza; pending
    /// chains continue with the host they started with. Sessions of removed domains are closed with `host-gone`
    /// (RFC 6120, section 4.9.3.5). Returns the number of closed sessions.
    ///
    /// Addresses of services must be checked before, see `feature_api::service`.
    pub fn set_hosts(self: &Arc<Self>, hosts: Hosts) -> usize {
        register_metrics(&self.metrics, hosts.values());
        let gone = self.domains.set_hosts(hosts);
        if gone.is_empty() {
            return 0;
        }
        let mut ended = Vec::new();
        self.routing_table.for_each(|account| {
            if gone.iter().any(|domain| domain == account.jid.domain()) {
                ended.extend(account.sessions());
            }
        });
        for session in &ended {
            close_for_removed_host(session);
        }
        ended.len()
    }

    /// Connects a component's domain to its route, or disconnects it.
    ///
    /// # Errors
    /// See [`ComponentError`].
    pub fn set_component(
        &self,
        domain: &str,
        route: Option<Arc<dyn DomainRoute>>,
    ) -> Result<(), ComponentError> {
        self.domains.set_component(domain, route)
    }

    /// Sets the route to other servers; without one, stanzas to them are returned.
    pub fn set_remote_route(&self, route: Option<Arc<dyn DomainRoute>>) {
        self.domains.set_remote(route);
    }

    /// Current limits. Do not store the result: a reload replaces it.
    pub fn limits(&self) -> arc_swap::Guard<Arc<NodeLimits>> {
        self.limits.load()
    }

    /// Replaces all limits; operations in progress continue with those they started with.
    pub fn set_limits(&self, limits: NodeLimits) {
        self.limits.store(Arc::new(limits));
    }

    /// Whether this is the address of an administrator; the resource is ignored.
    pub fn is_admin(&self, jid: JidRef<'_>) -> bool {
        self.admins.read().iter().any(|admin| admin.as_str() == jid.bare().as_str())
    }

    /// Whether this is the address of an administrator, or is named as one in the configuration; the resource
    /// is ignored. In-band registration refuses such an address, and a token without the scope `admin` cannot
    /// change its account.
    pub fn is_protected(&self, jid: JidRef<'_>) -> bool {
        let named = |list: &BTreeSet<Jid>| list.iter().any(|admin| admin.as_str() == jid.bare().as_str());
        self.is_admin(jid) || named(&self.configured_admins.read())
    }

    /// The administrators named in the configuration.
    pub fn configured_admins(&self) -> BTreeSet<Jid> {
        self.configured_admins.read().clone()
    }

    /// Replaces the administrators named in the configuration. Addresses are bare.
    pub fn set_configured_admins(&self, admins: impl IntoIterator<Item = Jid>) {
        *self.configured_admins.write() = admins.into_iter().collect();
    }

    /// All administrators.
    pub fn admins(&self) -> Vec<Jid> {
        self.admins.read().iter().cloned().collect()
    }

    /// Replaces the administrators. Addresses are bare.
    pub fn set_admins(&self, admins: impl IntoIterator<Item = Jid>) {
        *self.admins.write() = admins.into_iter().collect();
    }

    /// Seconds of the node's clock at the last sweep: cheap enough for every stanza.
    pub fn seconds(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// Must be called once a second: signals elapsed deadlines, sweeps the hosts and the extensions.
    pub fn sweep(self: &Arc<Self>) {
        let now = self.clock.now_seconds();
        self.now.store(now, Ordering::Relaxed);
        self.outboxes.check_deadlines(now);
        for host in self.hosts() {
            if let Some(background) = &host.background {
                background.sweep(self, &host, now);
            }
        }
        self.extensions.sweep(self, now);
        self.peers.sweep(self, now);
        self.account_views.sweep(self, now);
    }

    /// A stanza id (XEP-0359). It is greater than all that this node has assigned since its start, and no other node
    /// assigns it.
    pub fn next_stanza_id(&self) -> TimeOrderedId {
        self.stanza_ids.next(self.clock.unix_millis())
    }

    /// Counts of roster writes and of stored messages in the stripe of this account, 16 bits each.
    pub fn epoch(&self, jid: JidRef<'_>) -> u32 {
        self.stripe(jid).load(Ordering::Acquire)
    }

    /// Count of roster writes in the stripe of this account, modulo 65 536.
    pub fn roster_epoch(&self, jid: JidRef<'_>) -> u32 {
        self.epoch(jid) & ROSTER_BITS
    }

    fn stripe(&self, jid: JidRef<'_>) -> &AtomicU32 {
        &self.epochs[(self.routing_table.hash(jid) >> 20) as usize % 256]
    }

    /// Records a change of data that a login reads: logins in progress read it again.
    pub fn advance_roster_epoch(&self, jid: JidRef<'_>) {
        self.stripe(jid).fetch_add(ROSTER_STEP, Ordering::AcqRel);
    }

    /// As [`Node::advance_roster_epoch`], for all accounts.
    pub fn advance_all_roster_epochs(&self) {
        for epoch in self.epochs.iter() {
            epoch.fetch_add(ROSTER_STEP, Ordering::AcqRel);
        }
    }

    /// Applies a change of one contact in the store to the view of a connected account.
    ///
    /// Two concurrent changes may be reported in the wrong order. The later caller then receives false: its
    /// data may be outdated, and the view is read again.
    pub fn roster_changed(
        self: &Arc<Self>,
        owner: JidRef<'_>,
        contact: JidRef<'_>,
        change: &RosterUpdateOutcome,
    ) -> bool {
        self.advance_roster_epoch(owner);
        let account = self.routing_table.find(owner);
        let subject = match account {
            None if change.is_new_request() => InvalidationSubject::SubscriptionRequest,
            _ => InvalidationSubject::Roster,
        };
        self.invalidate_elsewhere(owner, subject);
        let Some(account) = account else { return true };
        let hash = self.routing_table.hash(contact);
        if let Some(contact) = change.ended_subscription()
            && let Some(peers) = self.peers()
        {
            peers.subscription_ended(self, &account, (hash, contact));
        }
        let (missed, in_order) = account.with(|state| {
            let domains = self.domains();
            let missed =
                self.peers().and_then(|peers| Some((peers, state.missed_change(hash, &domains, change)?)));
            (missed, state.apply_change(hash, &domains, change))
        });
        if let Some((peers, [before, after])) = missed {
            let (before, after) = (std::slice::from_ref(&before), std::slice::from_ref(&after));
            for ended in Contact::gained(after, before, Subscription::TO) {
                peers.subscription_ended(self, &account, (ended.hash, ended.id));
            }
            peers.roster_replaced(self, &account, before, after);
        }
        if !in_order {
            self.account_views.reload_roster(self, account);
        }
        in_order
    }

    /// Subscription bits that `account` has for the account with this bare address. None unless that account is
    /// connected here, because the roster is searched by its id; the store has the full answer.
    pub fn subscription(&self, account: &Account, contact: JidRef<'_>) -> Subscription {
        self.routing_table.find(contact).map_or(Subscription::NONE, |contact| account.subscription(&contact))
    }

    /// Records that the store has a new message for an account; returns the account if it is connected here. A
    /// login that counted the messages earlier queries the store again when it becomes available.
    pub fn message_stored(self: &Arc<Self>, owner: JidRef<'_>) -> Option<Arc<Account>> {
        if let Some(peers) = self.peers() {
            peers.report_stored_message(self, owner);
        }
        self.note_stored_message(owner)
    }

    /// Like [`Node::message_stored`], for this node only.
    pub fn note_stored_message(&self, owner: JidRef<'_>) -> Option<Arc<Account>> {
        self.stripe(owner).fetch_add(MESSAGE_STEP, Ordering::AcqRel);
        let account = self.routing_table.find(owner);
        if let Some(account) = &account {
            account.with(|state| state.may_have_offline_messages = true);
        }
        account
    }

    /// Performs effects that do not belong to a stanza of a session.
    pub fn perform(self: &Arc<Self>, effects: Effects) {
        self.perform_effects_spawned(RoutingWork { effects, ..RoutingWork::default() });
    }

    /// Like [`Node::perform`], for a source whose effects have an order, such as a serial task: it must await the returned
    /// future before it performs its next effects.
    #[must_use = "the rest of the effects is performed by the future"]
    pub fn perform_in_order(
        self: &Arc<Self>,
        effects: Effects,
    ) -> Option<base::spawn::BoxFuture<'static, ()>> {
        self.perform_effects(RoutingWork { effects, ..RoutingWork::default() }).into_future(self)
    }
}

fn register_metrics<'a>(metrics: &Metrics, hosts: impl Iterator<Item = &'a Arc<Host>>) {
    for host in hosts {
        if let Some(background) = &host.background {
            background.register_metrics(host, metrics);
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Node")
    }
}
