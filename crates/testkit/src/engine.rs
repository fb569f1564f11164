//! A complete node without sockets: the engine over the memory store, with clients that exchange stanza text.
//!
//! `send` returns when all effects of the stanza are complete, so tests never wait. Virtual hosts are `example.com`,
//! `example.net` and `example.org`, as in the examples of RFC 6121; a name without a domain belongs to `example.com`.
//!
//! A client has stream management (XEP-0198) without its elements: [`NodeClient::handled`] is the `h` that the server would
//! send. `send` also waits until the stanza counts, unless handlers of the node may wait for the test.
//!
//! Not implemented: negotiation, stream errors on the wire, resumption on the node that holds the session.
//!
//! Long because the client has a method for each thing that tests make it do.
//!
//! # Pitfalls
//!
//! The queue of a client fills until [`NodeClient::recv`] is called; nothing else reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use base::ManualClock;
use base::lock::LeafMutex;
use cluster::{Cluster, NodeId, SingleNode};
use feature_api::EnabledFeature;
use feature_api::feature::{Feature, FeatureOptions, OptionValue};
use feature_api::feature_state::FeatureState;
use feature_api::http_route::{HttpRouteBody, HttpRouteRequest, MatchedHttpRoute, match_http_route};
use jid::{Jid, JidRef};
use stanza::{StanzaCondition, StreamError};
use store::{AddressId, RosterItem, RosterUpdate, Stores, Subscription};
use throng_core::metrics::Metrics;
use throng_core::session::stream_management::{TOKEN_BYTES, TransferRefusal, WantedStream};
use throng_core::session::{QueuedBatch, QueuedStanza, StreamManagementTerms, ToRewrite, flags};
use throng_core::{Host, Hosts, Node, NodeComponents, NodeLimits, Outbox, Principal, Session};

use crate::client_stream::ClientStream;
use crate::counting_store::CountingStore;
use crate::environment;
use crate::manual_spawner::ManualSpawner;
use crate::node_inbox::NodeInbox;

/// Domains of every test node.
pub const DOMAINS: [&str; 3] = ["example.com", "example.net", "example.org"];

/// Token of the streams that clients may resume; the account and the resource distinguish them.
const TOKEN: [u8; TOKEN_BYTES] = [7; TOKEN_BYTES];
/// Rounds of a node's tasks that a sent stanza may need before it counts as waiting for another node.
const ROUNDS: usize = 16;

fn hosts(domains: &[&str], enabled: &[EnabledFeature], limits: &NodeLimits, kept: &FeatureState) -> Hosts {
    let build =
        |d: &&str| Arc::new(feature_api::build_host_with(d, enabled, limits, kept, None).expect("a host"));
    domains.iter().map(|d| ((*d).to_owned(), build(d))).collect()
}

/// The parts of a node that nodes of one cluster share, and its connection to the others.
pub(crate) struct NodeSurroundings<'a> {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) stores: Stores,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) domains: &'a [&'a str],
    pub(crate) tasks: ManualSpawner,
    pub(crate) envelopes: Arc<AtomicU64>,
}

/// These features with the defaults of their options.
pub(crate) fn with_defaults(features: &[&'static Feature]) -> Vec<EnabledFeature> {
    let enabled = |feature: &&'static Feature| EnabledFeature {
        feature,
        options: FeatureOptions::defaults(feature.options),
    };
    features.iter().map(enabled).collect()
}

/// Node over the memory store.
pub struct TestNode {
    /// The node.
    pub node: Arc<Node>,
    /// The node's clock; [`TestNode::advance`] moves it.
    pub clock: Arc<ManualClock>,
    /// The store without the counter.
    pub stores: Stores,
    counted: Arc<CountingStore>,
    tasks: Arc<ManualSpawner>,
    kept: FeatureState,
}

impl TestNode {
    /// Starts a node with these features, all options at their defaults.
    pub fn new(features: &[&'static Feature]) -> TestNode {
        TestNode::with_limits(features, NodeLimits::default())
    }

    /// As [`TestNode::new`], with other limits.
    pub fn with_limits(features: &[&'static Feature], limits: NodeLimits) -> TestNode {
        TestNode::start(&with_defaults(features), limits)
    }

    /// Starts a node with one feature and values of its options; the others have their defaults.
    ///
    /// # Panics
    /// If an option does not exist or refuses its value.
    pub fn with_options(feature: &'static Feature, values: &[(&str, OptionValue)]) -> TestNode {
        let mut options = FeatureOptions::defaults(feature.options);
        for (key, value) in values {
            let set = options.set(feature.options, key, value.clone());
            set.unwrap_or_else(|error| panic!("{}: {error}", feature.name));
        }
        TestNode::start(&[EnabledFeature { feature, options }], NodeLimits::default())
    }

    /// As [`TestNode::with_limits`], with options.
    ///
    /// # Panics
    /// If no host can be built from the features.
    pub fn start(enabled: &[EnabledFeature], limits: NodeLimits) -> TestNode {
        TestNode::start_with_tasks(enabled, limits, ManualSpawner::default())
    }

    /// As [`TestNode::new`], for features with handlers that wait until the test lets them continue.
    pub fn with_waiting_handlers(features: &[&'static Feature]) -> TestNode {
        let tasks = ManualSpawner::for_waiting_tasks();
        TestNode::start_with_tasks(&with_defaults(features), NodeLimits::default(), tasks)
    }

    fn start_with_tasks(enabled: &[EnabledFeature], limits: NodeLimits, tasks: ManualSpawner) -> TestNode {
        let clock = Arc::new(ManualClock::new());
        let surroundings = NodeSurroundings {
            stores: store::memory::stores(clock.clone()),
            clock,
            cluster: Arc::new(SingleNode::new(NodeId::new("test").expect("a name"))),
            domains: &DOMAINS,
            tasks,
            envelopes: Arc::default(),
        };
        TestNode::start_in(surroundings, enabled, limits)
    }

    /// As [`TestNode::start`], as a member of a cluster.
    pub(crate) fn start_in(
        surroundings: NodeSurroundings<'_>,
        enabled: &[EnabledFeature],
        limits: NodeLimits,
    ) -> TestNode {
        let NodeSurroundings { clock, stores, cluster, domains, tasks, envelopes } = surroundings;
        let counted = CountingStore::new(stores.clone());
        let tasks = Arc::new(tasks);
        let kept = FeatureState::default();
        let hosts = hosts(domains, enabled, &limits, &kept);
        let hasher = cluster::AddressHasher::new([1; 16]);
        let node = Node::new(NodeComponents {
            hosts,
            stores: counted.stores(),
            cluster,
            peers: Box::new(peers::PeerRouter::default()),
            account_views: Box::new(access::StoreBackedViews::new(hasher)),
            clock: clock.clone(),
            spawner: tasks.clone(),
            metrics: Metrics::new(&mut prometheus_client::registry::Registry::default()),
            limits,
            hasher,
            admins: vec![],
            passwords: throng_core::passwords::PlainPasswords::shared(),
            version: "test",
        });
        peers::share_spent_rates(&node);
        NodeInbox::attach(&node, envelopes);
        environment::provide(&node);
        TestNode { node, clock, stores, counted, tasks, kept }
    }

    /// Reloads the configuration: these domains with these features; sessions stay. Returns how many sessions ended.
    ///
    /// # Panics
    /// If no host can be built from the features.
    pub fn reload(&self, domains: &[&str], enabled: &[EnabledFeature]) -> usize {
        let hosts = hosts(domains, enabled, &self.node.limits(), &self.kept);
        let ended = self.node.set_hosts(hosts);
        self.tasks.run();
        ended
    }

    /// Creates an account: `juliet` or `romeo@example.net`.
    pub fn create_user(&self, name: &str) -> AddressId {
        self.block_on(self.stores.accounts.create(&address(name), b"")).expect("a new account")
    }

    /// Logs in and binds a resource. The account must exist.
    pub fn connect(&self, name: &str, resource: &str) -> NodeClient {
        self.try_connect(name, resource).expect("a session")
    }

    /// As [`TestNode::connect`], for logins that may be refused.
    ///
    /// # Errors
    /// The condition of the bind error.
    pub fn try_connect(&self, name: &str, resource: &str) -> Result<NodeClient, StanzaCondition> {
        let principal = self.principal(name);
        self.bind(principal, resource)
    }

    /// The principal of a login, for tests that bind later.
    pub fn principal(&self, name: &str) -> Principal {
        let jid = address(name);
        let found = self
            .block_on(access::login::load_credentials(&self.node, self.host(&jid), jid.clone()))
            .expect("the store answers");
        let identity = found.unwrap_or_else(|| panic!("{jid} has no account")).identity;
        self.block_on(access::login::load_principal(&self.node, identity))
            .expect("the store answers")
            .granted()
            .expect("an account that is not disabled")
    }

    /// Binds a resource.
    ///
    /// # Errors
    /// The condition of the bind error.
    pub fn bind(&self, principal: Principal, resource: &str) -> Result<NodeClient, StanzaCondition> {
        let outbox = Arc::new(Outbox::new());
        self.node.outboxes.add(outbox.clone());
        let session = self.node.bind(principal, Some(resource), &outbox).map_err(|e| e.condition)?;
        self.tasks.run();
        let node = self.node.clone();
        let stream = ClientStream::new(node.clone(), session.clone());
        Ok(NodeClient::new(self, session, stream, 0))
    }

    /// A client reconnects to this node and resumes the stream that it had on another one. What it sends and receives meanwhile
    /// passes through [`NodeClient`]s of others only.
    pub fn resume(&self, client: &NodeClient) -> PendingResumption {
        let resource = client.session.resource().to_owned();
        self.resume_as(client.bare().as_str(), &resource, client)
    }

    /// As [`TestNode::resume`], as a user and with a resource that may be others than those of the stream.
    pub fn resume_as(&self, name: &str, resource: &str, client: &NodeClient) -> PendingResumption {
        let principal = self.principal(name);
        let h = client.received.load(Ordering::Relaxed);
        let stream = WantedStream { resource: resource.into(), token: TOKEN, h };
        let outcome = Arc::<LeafMutex<Option<ResumptionOutcome>>>::default();
        let (node, of_task) = (self.node.clone(), outcome.clone());
        let task = async move {
            let outcome = node.peer_routing().take_session(&node, principal, stream).await;
            *of_task.lock() = Some(outcome);
        };
        self.node.spawner.spawn("resumption", Box::pin(task));
        PendingResumption { outcome, received: h }
    }

    /// The client of a stream that was resumed here, or the number of handled stanzas if that failed and it is known. `None`
    /// while it is unknown.
    pub fn resumed(&self, pending: &PendingResumption) -> Option<Result<NodeClient, Option<u32>>> {
        let outcome = pending.outcome.lock().take()?;
        Some(match outcome {
            Ok((session, handled)) => {
                self.node.session_resumed(&session);
                let stream = ClientStream::continued(self.node.clone(), session.clone(), handled);
                let client = NodeClient::new(self, session, stream, pending.received);
                client.acknowledges.store(true, Ordering::Relaxed);
                Ok(client)
            }
            Err(TransferRefusal::Unknown(handled)) => Err(handled),
            Err(TransferRefusal::TooHigh(error)) => panic!("{error:?}"),
        })
    }

    /// The client resumes its stream on this node, after [`NodeClient::leave`] with a lost connection.
    pub fn resume_here(&self, client: &NodeClient) -> NodeClient {
        let (session, received) = (client.session.clone(), client.received.load(Ordering::Relaxed));
        let who = Outbox::next_claimant();
        session.outbox.request_takeover(&TOKEN, received, who).expect("the stream is known");
        for _ in 0..ROUNDS {
            self.tasks.step();
        }
        let handled = session.outbox.resume(received).expect("the client has not received more");
        self.node.session_resumed(&session);
        let stream = ClientStream::continued(self.node.clone(), session.clone(), handled);
        let again = NodeClient::new(self, session, stream, received);
        again.acknowledges.store(true, Ordering::Relaxed);
        again
    }

    /// Binds an anonymous user, which has no account in the store.
    pub fn connect_anonymous(&self, name: &str, resource: &str) -> NodeClient {
        let jid = address(name);
        let principal = Principal {
            host: self.host(&jid),
            id: AddressId::UNASSIGNED,
            roster: Vec::new(),
            roster_version: 0,
            offline_messages: 0,
            photo: None,
            blocked: Vec::new(),
            epoch: self.node.epoch(jid.as_ref()),
            revision: 0,
            ephemeral: true,
            jid,
        };
        self.bind(principal, resource).expect("a session")
    }

    /// Adds a contact to a roster; connected sessions see it immediately. `IN_ROSTER` is not implied.
    pub fn add_contact(&self, owner: &str, contact: &str, subscription: Subscription) {
        self.edit_roster_item(owner, contact, move |item| item.subscription = subscription);
    }

    /// Changes one roster item without notifying the features.
    ///
    /// # Panics
    /// If the owner has no account.
    pub fn edit_roster_item(
        &self,
        owner: &str,
        contact: &str,
        edit: impl FnOnce(&mut RosterItem) + Send + 'static,
    ) {
        let (owner, contact) = (address(owner), address(contact));
        let id = self
            .block_on(self.stores.addresses.find(&owner))
            .expect("the store answers")
            .expect("an account");
        let jid = contact.clone();
        let change = self.stores.roster.update(
            id,
            &contact,
            Box::new(move |before| {
                let mut item = before.unwrap_or_else(|| RosterItem::new(jid));
                edit(&mut item);
                RosterUpdate::Put(item)
            }),
        );
        let done = self.block_on(change).expect("the store answers");
        self.node.roster_changed(owner.as_ref(), contact.as_ref(), &done);
    }

    /// Subscribes two users to each other's presence.
    pub fn befriend(&self, one: &str, other: &str) {
        self.add_contact(one, other, Subscription::BOTH | Subscription::IN_ROSTER);
        self.add_contact(other, one, Subscription::BOTH | Subscription::IN_ROSTER);
    }

    /// One roster item as stored.
    ///
    /// # Panics
    /// If the owner has no account.
    pub fn stored_roster_item(&self, owner: &str, contact: &str) -> Option<RosterItem> {
        let owner = address(owner);
        let contact = address(contact);
        let id = self
            .block_on(self.stores.addresses.find(&owner))
            .expect("the store answers")
            .expect("an account");
        let roster = self.block_on(self.stores.roster.get(id)).expect("an account");
        roster.items.into_iter().find(|item| item.jid == contact)
    }

    /// Returns and clears the names of the engine's store calls, such as `roster.change`.
    pub fn store_calls(&self) -> Vec<&'static str> {
        self.counted.take_calls()
    }

    /// Makes the engine's store fail, or work again; the test's own calls always work.
    pub fn set_store_failing(&self, failing: bool) {
        self.counted.set_failing(failing);
    }

    /// Keeps the results of the engine's store calls of this name, such as `rooms.append`, until the next call of this function.
    /// Only for a node whose tasks may wait.
    pub fn hold_store_call(&self, name: Option<&'static str>) {
        self.counted.hold(name);
    }

    /// Advances the clock second by second and runs the sweep each time.
    pub fn advance(&self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.advance(1000);
            self.node.sweep();
        }
        self.tasks.run();
    }

    /// Drives a future of the engine to completion.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.tasks.block_on(future)
    }

    /// Sends a request to an HTTP route of a feature, as a listener does; the path must be that of a route.
    ///
    /// # Panics
    /// If no feature has the route.
    pub fn http_request(&self, request: http::Request<HttpRouteBody>) -> http::Response<Vec<u8>> {
        let path = request.uri().path();
        let matched = match_http_route(&self.node, path).unwrap_or_else(|| panic!("{path} is not a route"));
        let MatchedHttpRoute { host, route, path } = matched;
        let (node, peer) = (self.node.clone(), std::net::Ipv4Addr::LOCALHOST.into());
        let request = HttpRouteRequest { node, host, request, path, peer, secure: true };
        self.block_on(async {
            let (head, mut body) = route.handler.answer(request).await.into_parts();
            let mut content = Vec::new();
            while let Some(chunk) = body.chunk().await {
                content.extend_from_slice(&chunk.expect("a chunk"));
            }
            http::Response::from_parts(head, content)
        })
    }

    /// Runs the spawned tasks.
    pub fn run_tasks(&self) {
        self.tasks.run();
    }

    /// Polls each spawned task once.
    pub(crate) fn step_tasks(&self) {
        self.tasks.step();
    }

    fn host(&self, jid: &Jid) -> Arc<Host> {
        self.node.host(jid.domain()).expect("a domain of this engine")
    }
}

fn address(name: &str) -> Jid {
    let parsed =
        if name.contains('@') { Jid::parse(name) } else { Jid::parse(&format!("{name}@example.com")) };
    parsed.expect("an address")
}

type ResumptionOutcome = Result<(Arc<Session>, u32), TransferRefusal>;

/// Resumption of a stream on another node that is in progress.
pub struct PendingResumption {
    outcome: Arc<LeafMutex<Option<ResumptionOutcome>>>,
    received: u32,
}

/// Bound session and the stanzas that it received.
pub struct NodeClient {
    /// The session.
    pub session: Arc<Session>,
    node: Arc<Node>,
    tasks: Arc<ManualSpawner>,
    stream: Arc<ClientStream>,
    /// It acknowledges what it receives.
    acknowledges: AtomicBool,
    /// Number of stanzas that it has received and acknowledged, since it has stream management.
    received: AtomicU32,
}

impl NodeClient {
    fn new(at: &TestNode, session: Arc<Session>, stream: Arc<ClientStream>, received: u32) -> NodeClient {
        let (node, tasks) = (at.node.clone(), at.tasks.clone());
        let acknowledges = AtomicBool::new(false);
        NodeClient { session, node, tasks, stream, acknowledges, received: AtomicU32::new(received) }
    }

    /// The full address.
    pub fn full(&self) -> &str {
        self.session.jid.as_str()
    }

    /// The bare address.
    pub fn bare(&self) -> JidRef<'_> {
        self.session.bare()
    }

    /// Sends one stanza and waits until all its effects on its own node are complete.
    ///
    /// # Panics
    /// If the text is not a stanza, or the stream would be closed.
    #[track_caller]
    pub fn send(&self, text: &str) {
        if let Err(error) = self.try_send(text) {
            panic!("the stream would be closed with {error:?}");
        }
    }

    /// As [`NodeClient::send`], for stanzas that may end the stream.
    ///
    /// # Errors
    /// The stream error.
    ///
    /// # Panics
    /// If the text is not a stanza.
    #[track_caller]
    pub fn try_send(&self, text: &str) -> Result<(), StreamError> {
        self.stream.read(text.trim().as_bytes())?;
        if !self.tasks.may_wait() {
            self.tasks.block_on(std::future::poll_fn(|_| self.stream.poll_handled()));
        } else {
            for _ in 0..ROUNDS {
                if self.stream.poll_handled().is_ready() {
                    break;
                }
                self.tasks.step();
            }
            self.stream.continue_in_task();
        }
        self.tasks.run();
        Ok(())
    }

    /// Number of stanzas sent.
    pub fn sent(&self) -> u32 {
        self.stream.count()
    }

    /// Number of stanzas that the server has handled (XEP-0198, section 4): the first ones that were sent.
    pub fn handled(&self) -> u32 {
        self.stream.handled()
    }

    /// From now on, messages of this client count as handled when their recipients have received them or they are stored.
    pub fn enable_stream_management(&self) {
        self.session.flags.set(flags::STREAM_MANAGEMENT);
    }

    /// As [`NodeClient::enable_stream_management`]; the client also acknowledges what it receives, and may resume its stream.
    pub fn enable_resumption(&self) {
        self.enable_stream_management();
        let terms = StreamManagementTerms { resume_seconds: 300, unacked_bytes: 262_144, sm2: false };
        assert!(self.session.outbox.enable_management(terms, TOKEN), "it is enabled once");
        self.acknowledges.store(true, Ordering::Relaxed);
    }

    /// The connection is lost, or does nothing until another one takes the session over. Only for a client with
    /// [`NodeClient::enable_resumption`].
    pub fn leave(&self, loses_connection: bool) {
        if loses_connection {
            assert!(self.node.detach_session(&self.session), "it may be resumed");
        }
        let (node, session, stream) = (self.node.clone(), self.session.clone(), self.stream.clone());
        let task = std::future::poll_fn(move |cx| {
            let closing = session.outbox.register_waker(cx);
            let handled = stream.poll_handled();
            if session.is_ended() {
                return Poll::Ready(());
            }
            let hands_over = session.outbox.takeover_requested() && handled.is_ready();
            if !closing && hands_over && session.outbox.hand_over() {
                return Poll::Ready(());
            }
            let late = session.outbox.deadline_elapsed() && node.seconds() >= session.outbox.deadline();
            if closing || late {
                node.end_session(&session);
                node.outboxes.remove(&session.outbox);
                return Poll::Ready(());
            }
            Poll::Pending
        });
        self.node.spawner.spawn("client that left", Box::pin(task));
    }

    /// Stanzas received since the last call, as they would be written. The kernel takes them.
    pub fn recv(&self) -> Vec<String> {
        // Failed receipts become errors.
        self.stream.progress();
        let mut batch = QueuedBatch::new();
        self.session.outbox.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut batch);
        if self.acknowledges.load(Ordering::Relaxed) {
            let count = u32::try_from(batch.len()).expect("a few stanzas");
            let received = self.received.fetch_add(count, Ordering::Relaxed).wrapping_add(count);
            self.session.outbox.acknowledge(received).expect("stanzas that were sent");
        }
        self.node.remove_delivered_backups(&self.session);
        batch.iter().map(|item| self.written(item)).collect()
    }

    /// Sends a stanza and returns the stanzas received.
    #[track_caller]
    pub fn request(&self, text: &str) -> Vec<String> {
        self.send(text);
        self.recv()
    }

    /// Stream error with which the connection was asked to close.
    pub fn closed_with(&self) -> Option<StreamError> {
        self.session.outbox.close_reason()
    }

    /// Ends the session, then reroutes what is left in its outbox.
    pub fn close(&self) {
        self.node.end_session(&self.session);
        self.node.outboxes.remove(&self.session.outbox);
        self.tasks.run();
    }

    fn written(&self, item: &QueuedStanza) -> String {
        let (frame, bytes) = (&item.stanza, item.stanza.bytes());
        let mut out = bytes.to_vec();
        let to = match item.to_rewrite {
            ToRewrite::None => None,
            ToRewrite::Bare => Some(self.session.bare()),
            ToRewrite::Full => Some(self.session.full()),
        };
        if let Some(to) = to {
            let mut attr = b" to='".to_vec();
            xml::escape::attr(to.as_str(), &mut attr);
            attr.push(b'\'');
            let at = frame.head().attr_insert_offset();
            out.splice(at..at, attr);
        }
        String::from_utf8(out).expect("stanzas are text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feature_api::feature::FeatureBuilder;
    use stanza::StanzaKindSet;
    use throng_core::hooks::{Flow, HandlerOutcome, IncomingCtx, Interest, OutgoingCtx, Phase, StopReason};
    use throng_core::{Effect, SharedStanza};

    static FEATURE: Feature = Feature { name: "order", build, ..Feature::EMPTY };

    /// In place of `go` two messages are routed; the first has to wait at its recipient.
    fn build(b: &mut FeatureBuilder<'_>) {
        b.outgoing(Phase::Rewrite, Interest::kinds(StanzaKindSet::MESSAGES), |ctx: &mut OutgoingCtx<'_>| {
            let to = ctx.to.expect("a recipient").to_jid();
            for id in ["slow", "quick"] {
                let text = format!("<message type='headline' id='{id}'/>");
                let frame = SharedStanza::parse(text.as_bytes()).expect("a message");
                ctx.effects.add(Effect::Route {
                    stanza: frame,
                    from: ctx.session.jid.clone(),
                    to: to.clone(),
                });
            }
            Flow::Stop(StopReason::Consumed)
        });
        b.incoming(Phase::Rewrite, Interest::kinds(StanzaKindSet::MESSAGES), |ctx: &mut IncomingCtx<'_>| {
            if ctx.stanza.head().id(ctx.stanza.bytes()).as_deref() != Some("slow") {
                return Flow::Next;
            }
            let mut polls = 3;
            Flow::Wait(Box::pin(async move {
                std::future::poll_fn(|_| {
                    polls -= 1;
                    if polls == 0 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                HandlerOutcome::next()
            }))
        });
    }

    #[test]
    fn messages_routed_by_one_handler_arrive_in_order_even_if_the_first_waits() {
        let engine = TestNode::new(&[&FEATURE]);
        engine.create_user("juliet");
        engine.create_user("romeo");
        let (juliet, romeo) = (engine.connect("juliet", "a"), engine.connect("romeo", "b"));
        romeo.send("<message to='juliet@example.com/a'/>");
        let ids: Vec<bool> = juliet.recv().iter().map(|s| s.contains("slow")).collect();
        assert_eq!(ids, [true, false]);
    }
}
