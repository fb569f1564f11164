//! A whole node without sockets: the engine over the memory store, with clients that speak in stanza text.
//!
//! `send` returns when everything that the stanza set off is done, so nothing in a test has to wait. Virtual
//! hosts are `example.com`, `example.net` and `example.org`, as in the examples of RFC 6121; a name without a
//! domain is one of `example.com`.
//!
//! Left out: negotiation, stream errors on the wire, acknowledgement. The trap: a client's queue is filled until
//! [`Client::recv`] is called; nobody else reads it.
use std::sync::Arc;
use std::task::{Context, Waker};

use base::ManualClock;
use cluster::{NodeId, SingleNode};
use jid::{Jid, JidRef};
use stanza::{Element, StanzaCondition, StreamError};
use store::{AddressId, RosterItem, RosterUpdate, Stores, Subscription};
use throng_core::feature::{Feature, FeatureOptions};
use throng_core::feature_state::FeatureState;
use throng_core::metrics::Metrics;
use throng_core::session::{QueuedBatch, QueuedStanza, ToRewrite};
use throng_core::{
    EnabledFeature, Host, Hosts, IngestOutcome, Node, NodeComponents, NodeLimits, Outbox, Principal, Session,
};

use crate::counting_store::CountingStore;
use crate::manual_spawner::ManualSpawner;

/// The domains that every engine serves.
pub const DOMAINS: [&str; 3] = ["example.com", "example.net", "example.org"];

fn hosts(domains: &[&str], enabled: &[EnabledFeature], limits: &NodeLimits, kept: &FeatureState) -> Hosts {
    let build = |d: &&str| Arc::new(Host::build_with(d, enabled, limits, kept).expect("a host"));
    domains.iter().map(|d| ((*d).to_owned(), build(d))).collect()
}

/// A node over the memory store.
pub struct TestNode {
    /// The node.
    pub node: Arc<Node>,
    /// Its clock; [`TestNode::advance`] moves it.
    pub clock: Arc<ManualClock>,
    /// The store without the counter.
    pub stores: Stores,
    counted: Arc<CountingStore>,
    tasks: Arc<ManualSpawner>,
    kept: FeatureState,
}

impl TestNode {
    /// A node with these features, all options at their defaults.
    pub fn new(features: &[&'static Feature]) -> TestNode {
        TestNode::with_limits(features, NodeLimits::default())
    }

    /// The same with other limits.
    pub fn with_limits(features: &[&'static Feature], limits: NodeLimits) -> TestNode {
        let enabled: Vec<EnabledFeature> = features
            .iter()
            .map(|feature| EnabledFeature { feature, options: FeatureOptions::defaults(feature.options) })
            .collect();
        TestNode::start(&enabled, limits)
    }

    /// The same with options.
    ///
    /// # Panics
    /// If the features make no host.
    pub fn start(enabled: &[EnabledFeature], limits: NodeLimits) -> TestNode {
        let clock = Arc::new(ManualClock::new());
        let stores = store::memory::stores(clock.clone());
        let counted = CountingStore::new(stores.clone());
        let tasks = Arc::new(ManualSpawner::default());
        let kept = FeatureState::default();
        let hosts = hosts(&DOMAINS, enabled, &limits, &kept);
        let node = Node::new(NodeComponents {
            hosts,
            stores: Stores::from_backend(counted.clone()),
            cluster: Arc::new(SingleNode::new(NodeId::new("test").expect("a name"))),
            clock: clock.clone(),
            spawner: tasks.clone(),
            metrics: Metrics::new(&mut prometheus_client::registry::Registry::default()),
            limits,
            hasher: cluster::AddressHasher::new([1; 16]),
            admins: vec![],
            passwords: throng_core::passwords::PlainPasswords::shared(),
            version: "test",
        });
        TestNode { node, clock, stores, counted, tasks, kept }
    }

    /// What a reload does: these domains with these features, and sessions stay. How many sessions ended.
    ///
    /// # Panics
    /// If the features make no host.
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

    /// Binds a resource with what one login brings. The account must exist.
    pub fn connect(&self, name: &str, resource: &str) -> NodeClient {
        self.try_connect(name, resource).expect("a session")
    }

    /// The same, for logins that may be refused.
    ///
    /// # Errors
    /// The condition that binding answers with.
    pub fn try_connect(&self, name: &str, resource: &str) -> Result<NodeClient, StanzaCondition> {
        let principal = self.principal(name);
        self.bind(principal, resource)
    }

    /// What authentication knows, for tests that bind later.
    pub fn principal(&self, name: &str) -> Principal {
        let jid = address(name);
        let found = self
            .block_on(self.node.load_credentials(self.host(&jid), jid.clone()))
            .expect("the store answers");
        let identity = found.unwrap_or_else(|| panic!("{jid} has no account")).identity;
        self.block_on(self.node.load_principal(identity))
            .expect("the store answers")
            .granted()
            .expect("an account that is not disabled")
    }

    /// Binds a resource.
    ///
    /// # Errors
    /// The condition that binding answers with.
    pub fn bind(&self, principal: Principal, resource: &str) -> Result<NodeClient, StanzaCondition> {
        let link = Arc::new(Outbox::new());
        self.node.outboxes.add(link.clone());
        let session = self.node.bind(principal, Some(resource), &link).map_err(|e| e.condition)?;
        self.tasks.run();
        Ok(NodeClient { node: self.node.clone(), session, tasks: self.tasks.clone() })
    }

    /// Binds an anonymous user, who has no account in the store.
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

    /// Puts a contact into a roster, seen by connected sessions at once. `IN_ROSTER` is not implied.
    pub fn add_contact(&self, owner: &str, contact: &str, subscription: Subscription) {
        self.edit_roster_item(owner, contact, move |item| item.subscription = subscription);
    }

    /// Changes one roster entry behind the features' backs.
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

    /// Makes two users see one another's presence.
    pub fn befriend(&self, one: &str, other: &str) {
        self.add_contact(one, other, Subscription::BOTH | Subscription::IN_ROSTER);
        self.add_contact(other, one, Subscription::BOTH | Subscription::IN_ROSTER);
    }

    /// One roster entry as it is stored.
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

    /// Names of the engine's calls to the store since the last time, such as `roster.change`.
    pub fn store_calls(&self) -> Vec<&'static str> {
        self.counted.take_calls()
    }

    /// Switches the engine's store off or on; the test's own calls go on.
    pub fn set_store_failing(&self, failing: bool) {
        self.counted.set_failing(failing);
    }

    /// Moves the clock and sweeps, second by second.
    pub fn advance(&self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.advance(1000);
            self.node.sweep();
        }
        self.tasks.run();
    }

    /// Drives a future of the engine to its end.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.tasks.block_on(future)
    }

    /// Runs what was spawned.
    pub fn run_tasks(&self) {
        self.tasks.run();
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

/// A bound session and what it received.
pub struct NodeClient {
    /// The session.
    pub session: Arc<Session>,
    node: Arc<Node>,
    tasks: Arc<ManualSpawner>,
}

impl NodeClient {
    /// The full address.
    pub fn full(&self) -> &str {
        self.session.jid.as_str()
    }
    /// The bare address.
    pub fn bare(&self) -> JidRef<'_> {
        self.session.bare()
    }

    /// Sends one stanza and waits until all that it set off is done.
    ///
    /// # Panics
    /// If the text is no stanza, or the stream would be closed.
    #[track_caller]
    pub fn send(&self, text: &str) {
        if let Err(error) = self.try_send(text) {
            panic!("the stream would be closed with {error:?}");
        }
    }

    /// The same, for stanzas that may end the stream.
    ///
    /// # Errors
    /// The stream error.
    ///
    /// # Panics
    /// If the text is no stanza.
    #[track_caller]
    pub fn try_send(&self, text: &str) -> Result<(), StreamError> {
        let bytes = text.trim().as_bytes();
        let scope = xml::NamespaceContext::client();
        match Element::read(bytes, &scope, &self.node.limits().stanza()) {
            Ok(Element::Stanza(head)) => match self.node.ingest(&self.session, bytes, &head) {
                IngestOutcome::Done => {}
                IngestOutcome::Wait(rest) => self.tasks.block_on(rest),
                IngestOutcome::Fatal(error) => return Err(error),
            },
            Ok(Element::UnknownType(head)) => {
                let error = StanzaCondition::BadRequest.into();
                self.node.reject_stanza(&self.session, bytes, &head, &error);
            }
            other => panic!("not a stanza ({other:?}): {text}"),
        }
        self.tasks.run();
        Ok(())
    }

    /// What arrived since the last time, as it would be written.
    pub fn recv(&self) -> Vec<String> {
        let mut batch = QueuedBatch::new();
        self.session.outbox.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut batch);
        batch.iter().map(|item| self.written(item)).collect()
    }

    /// Sends and returns what came back.
    #[track_caller]
    pub fn request(&self, text: &str) -> Vec<String> {
        self.send(text);
        self.recv()
    }

    /// The stream error that the connection was asked to end with.
    pub fn closed_with(&self) -> Option<StreamError> {
        self.session.outbox.close_reason()
    }

    /// Ends the stream: the session, then what was left in its queue.
    pub fn close(&self) {
        self.node.end_session(&self.session);
        self.node.outboxes.remove(&self.session.outbox);
        self.tasks.run();
    }

    fn written(&self, item: &QueuedStanza) -> String {
        let (frame, bytes) = (&item.frame, item.frame.bytes());
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
    use std::task::Poll;

    use super::*;
    use stanza::StanzaKindSet;
    use throng_core::feature::FeatureBuilder;
    use throng_core::hooks::{Flow, HandlerOutcome, IncomingCtx, Interest, OutgoingCtx, Phase, StopReason};
    use throng_core::{Effect, SharedStanza};

    static FEATURE: Feature = Feature { name: "order", build, ..Feature::EMPTY };

    /// Instead of `go` two messages are routed; the first of them has to wait at its recipient.
    fn build(b: &mut FeatureBuilder<'_>) {
        b.outgoing(Phase::Rewrite, Interest::kinds(StanzaKindSet::MESSAGES), |ctx: &mut OutgoingCtx<'_>| {
            let to = ctx.to.expect("a recipient").to_jid();
            for id in ["slow", "quick"] {
                let text = format!("<message type='headline' id='{id}'/>");
                let frame = SharedStanza::parse(text.as_bytes()).expect("a message");
                ctx.effects.add(Effect::Route { frame, from: ctx.session.jid.clone(), to: to.clone() });
            }
            Flow::Stop(StopReason::Consumed)
        });
        b.incoming(Phase::Rewrite, Interest::kinds(StanzaKindSet::MESSAGES), |ctx: &mut IncomingCtx<'_>| {
            if ctx.frame.head().id(ctx.frame.bytes()).as_deref() != Some("slow") {
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
