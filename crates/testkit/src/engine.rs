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
use store::{AddressId, Change, RosterItem, Stores, Subscription};
use throng_core::feature::{Feature, Options};
use throng_core::kept::Kept;
use throng_core::metrics::Metrics;
use throng_core::session::{Batch, Item, Stamp};
use throng_core::{Enabled, Host, Hosts, Ingest, Limits, Link, Node, Parts, Principal, Session};

use crate::counted::Counted;
use crate::tasks::Tasks;

/// The domains that every engine serves.
pub const DOMAINS: [&str; 3] = ["example.com", "example.net", "example.org"];

fn hosts(domains: &[&str], enabled: &[Enabled], limits: &Limits, kept: &Kept) -> Hosts {
    let build = |d: &&str| Arc::new(Host::build_with(d, enabled, limits, kept).expect("a host"));
    domains.iter().map(|d| ((*d).to_owned(), build(d))).collect()
}

/// A node over the memory store.
pub struct Engine {
    /// The node.
    pub node: Arc<Node>,
    /// Its clock; [`Engine::advance`] moves it.
    pub clock: Arc<ManualClock>,
    /// The store without the counter.
    pub stores: Stores,
    counted: Arc<Counted>,
    tasks: Arc<Tasks>,
    kept: Kept,
}

impl Engine {
    /// A node with these features, all options at their defaults.
    pub fn new(features: &[&'static Feature]) -> Engine {
        Engine::with_limits(features, Limits::default())
    }

    /// The same with other limits.
    pub fn with_limits(features: &[&'static Feature], limits: Limits) -> Engine {
        let enabled: Vec<Enabled> = features
            .iter()
            .map(|feature| Enabled { feature, options: Options::defaults(feature.options) })
            .collect();
        Engine::start(&enabled, limits)
    }

    /// The same with options.
    ///
    /// # Panics
    /// If the features make no host.
    pub fn start(enabled: &[Enabled], limits: Limits) -> Engine {
        let clock = Arc::new(ManualClock::new());
        let stores = store::memory::stores(clock.clone());
        let counted = Counted::new(stores.clone());
        let tasks = Arc::new(Tasks::default());
        let kept = Kept::default();
        let hosts = hosts(&DOMAINS, enabled, &limits, &kept);
        let node = Node::new(Parts {
            hosts,
            stores: Stores::of(counted.clone()),
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
        Engine { node, clock, stores, counted, tasks, kept }
    }

    /// What a reload does: these domains with these features, and sessions stay. How many sessions ended.
    ///
    /// # Panics
    /// If the features make no host.
    pub fn reload(&self, domains: &[&str], enabled: &[Enabled]) -> usize {
        let hosts = hosts(domains, enabled, &self.node.limits(), &self.kept);
        let ended = self.node.set_hosts(hosts);
        self.tasks.run();
        ended
    }

    /// Creates an account: `juliet` or `romeo@example.net`.
    pub fn user(&self, name: &str) -> AddressId {
        self.wait(self.stores.accounts.create(&address(name), b"")).expect("a new account")
    }

    /// Binds a resource with what one login brings. The account must exist.
    pub fn connect(&self, name: &str, resource: &str) -> Client {
        self.try_connect(name, resource).expect("a session")
    }

    /// The same, for logins that may be refused.
    ///
    /// # Errors
    /// The condition that binding answers with.
    pub fn try_connect(&self, name: &str, resource: &str) -> Result<Client, StanzaCondition> {
        let principal = self.principal(name);
        self.bind(principal, resource)
    }

    /// What authentication knows, for tests that bind later.
    pub fn principal(&self, name: &str) -> Principal {
        let jid = address(name);
        let found = self.wait(self.node.look_up(self.host(&jid), jid.clone())).expect("the store answers");
        let identity = found.unwrap_or_else(|| panic!("{jid} has no account")).identity;
        self.wait(self.node.load(identity))
            .expect("the store answers")
            .granted()
            .expect("an account that is not disabled")
    }

    /// Binds a resource.
    ///
    /// # Errors
    /// The condition that binding answers with.
    pub fn bind(&self, principal: Principal, resource: &str) -> Result<Client, StanzaCondition> {
        let link = Arc::new(Link::new());
        self.node.links.add(link.clone());
        let session = self.node.bind(principal, Some(resource), &link).map_err(|e| e.condition)?;
        self.tasks.run();
        Ok(Client { node: self.node.clone(), session, tasks: self.tasks.clone() })
    }

    /// Binds an anonymous user, who has no account in the store.
    pub fn connect_anonymous(&self, name: &str, resource: &str) -> Client {
        let jid = address(name);
        let principal = Principal {
            host: self.host(&jid),
            id: AddressId::UNASSIGNED,
            roster: Vec::new(),
            roster_version: 0,
            offline: 0,
            photo: None,
            blocked: Vec::new(),
            epoch: self.node.epoch(jid.as_ref()),
            ephemeral: true,
            jid,
        };
        self.bind(principal, resource).expect("a session")
    }

    /// Puts a contact into a roster, seen by connected sessions at once. `IN_ROSTER` is not implied.
    pub fn contact(&self, owner: &str, contact: &str, subscription: Subscription) {
        self.entry(owner, contact, move |item| item.subscription = subscription);
    }

    /// Changes one roster entry behind the features' backs.
    ///
    /// # Panics
    /// If the owner has no account.
    pub fn entry(&self, owner: &str, contact: &str, edit: impl FnOnce(&mut RosterItem) + Send + 'static) {
        let (owner, contact) = (address(owner), address(contact));
        let id =
            self.wait(self.stores.addresses.find(&owner)).expect("the store answers").expect("an account");
        let jid = contact.clone();
        let change = self.stores.roster.change(
            id,
            &contact,
            Box::new(move |before| {
                let mut item = before.unwrap_or_else(|| RosterItem::new(jid));
                edit(&mut item);
                Change::Put(item)
            }),
        );
        let done = self.wait(change).expect("the store answers");
        self.node.roster_changed(owner.as_ref(), contact.as_ref(), &done);
    }

    /// Makes two users see one another's presence.
    pub fn befriend(&self, one: &str, other: &str) {
        self.contact(one, other, Subscription::BOTH | Subscription::IN_ROSTER);
        self.contact(other, one, Subscription::BOTH | Subscription::IN_ROSTER);
    }

    /// One roster entry as it is stored.
    ///
    /// # Panics
    /// If the owner has no account.
    pub fn stored(&self, owner: &str, contact: &str) -> Option<RosterItem> {
        let owner = address(owner);
        let contact = address(contact);
        let id =
            self.wait(self.stores.addresses.find(&owner)).expect("the store answers").expect("an account");
        let roster = self.wait(self.stores.roster.get(id)).expect("an account");
        roster.items.into_iter().find(|item| item.jid == contact)
    }

    /// Names of the engine's calls to the store since the last time, such as `roster.change`.
    pub fn store_calls(&self) -> Vec<&'static str> {
        self.counted.take_calls()
    }

    /// Switches the engine's store off or on; the test's own calls go on.
    pub fn fail_store(&self, failing: bool) {
        self.counted.fail(failing);
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
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.tasks.wait(future)
    }

    /// Runs what was spawned.
    pub fn run(&self) {
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
pub struct Client {
    /// The session.
    pub session: Arc<Session>,
    node: Arc<Node>,
    tasks: Arc<Tasks>,
}

impl Client {
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
        let scope = xml::Scope::client();
        match Element::read(bytes, &scope, &self.node.limits().stanza()) {
            Ok(Element::Stanza(head)) => match self.node.ingest(&self.session, bytes, &head) {
                Ingest::Done => {}
                Ingest::Wait(rest) => self.tasks.wait(rest),
                Ingest::Fatal(error) => return Err(error),
            },
            Ok(Element::BadType(head)) => {
                let error = StanzaCondition::BadRequest.into();
                self.node.refuse(&self.session, bytes, &head, &error);
            }
            other => panic!("not a stanza ({other:?}): {text}"),
        }
        self.tasks.run();
        Ok(())
    }

    /// What arrived since the last time, as it would be written.
    pub fn recv(&self) -> Vec<String> {
        let mut batch = Batch::new();
        self.session.link.take(&mut Context::from_waker(Waker::noop()), &mut batch);
        batch.iter().map(|item| self.written(item)).collect()
    }

    /// Sends and returns what came back.
    #[track_caller]
    pub fn ask(&self, text: &str) -> Vec<String> {
        self.send(text);
        self.recv()
    }

    /// The stream error that the connection was asked to end with.
    pub fn closed_with(&self) -> Option<StreamError> {
        self.session.link.wish()
    }

    /// Ends the stream: the session, then what was left in its queue.
    pub fn close(&self) {
        self.node.end_session(&self.session);
        self.node.links.remove(&self.session.link);
        self.tasks.run();
    }

    fn written(&self, item: &Item) -> String {
        let (frame, bytes) = (&item.frame, item.frame.bytes());
        let mut out = bytes.to_vec();
        let to = match item.stamp {
            Stamp::None => None,
            Stamp::Bare => Some(self.session.bare()),
            Stamp::Full => Some(self.session.full()),
        };
        if let Some(to) = to {
            let mut attr = b" to='".to_vec();
            xml::escape::attr(to.as_str(), &mut attr);
            attr.push(b'\'');
            let at = frame.head().insert_at();
            out.splice(at..at, attr);
        }
        String::from_utf8(out).expect("stanzas are text")
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use stanza::KindSet;
    use throng_core::feature::Builder;
    use throng_core::hooks::{Flow, IncomingCtx, Interest, Outcome, OutgoingCtx, Phase, Verdict};
    use throng_core::{Effect, Frame};

    static FEATURE: Feature = Feature { name: "order", build, ..Feature::EMPTY };

    /// Instead of `go` two messages are routed; the first of them has to wait at its recipient.
    fn build(b: &mut Builder<'_>) {
        b.outgoing(Phase::Rewrite, Interest::kinds(KindSet::MESSAGES), |ctx: &mut OutgoingCtx<'_>| {
            let to = ctx.to.expect("a recipient").to_jid();
            for id in ["slow", "quick"] {
                let text = format!("<message type='headline' id='{id}'/>");
                let frame = Frame::read(text.as_bytes()).expect("a message");
                ctx.effects.add(Effect::Route { frame, from: ctx.session.jid.clone(), to: to.clone() });
            }
            Flow::Stop(Verdict::Consumed)
        });
        b.incoming(Phase::Rewrite, Interest::kinds(KindSet::MESSAGES), |ctx: &mut IncomingCtx<'_>| {
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
                Outcome::next()
            }))
        });
    }

    #[test]
    fn what_one_handler_routes_arrives_in_order_even_if_the_first_waits() {
        let engine = Engine::new(&[&FEATURE]);
        engine.user("juliet");
        engine.user("romeo");
        let (juliet, romeo) = (engine.connect("juliet", "a"), engine.connect("romeo", "b"));
        romeo.send("<message to='juliet@example.com/a'/>");
        let ids: Vec<bool> = juliet.recv().iter().map(|s| s.contains("slow")).collect();
        assert_eq!(ids, [true, false]);
    }
}
