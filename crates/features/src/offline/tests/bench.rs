//! A node over the memory store whose offline store waits where a test tells it to.
use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::ManualClock;
use base::spawn::BoxFuture;
use cluster::{NodeId, SingleNode};
use jid::Jid;
use parking_lot::Mutex;
use stanza::Element;
use store::{AddressId, Appended, Fut, Offline, OfflineMessage, Page, Slice, Stores, Waiting};
use testkit::tasks::Tasks;
use throng_core::feature::{Options, Value};
use throng_core::metrics::Metrics;
use throng_core::session::{Batch, Terms};
use throng_core::{
    Effect, Effects, Enabled, Frame, Host, Ingest, Limits, Link, Node, Parts, Principal, Session,
};

use super::super::FEATURE;

/// The offline store behind gates, by the name of the call: `append` waits before the write, `appended` behind it.
pub(super) struct Gate {
    inner: Arc<dyn Offline>,
    shut: Mutex<HashSet<&'static str>>,
    calls: Mutex<Vec<&'static str>>,
}

impl Gate {
    pub(super) fn shut(&self, name: &'static str) {
        self.shut.lock().insert(name);
    }
    pub(super) fn open(&self, name: &'static str) {
        self.shut.lock().remove(name);
    }
    pub(super) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock())
    }
    async fn pass(&self, name: &'static str) {
        self.calls.lock().push(name);
        std::future::poll_fn(
            |_| if self.shut.lock().contains(name) { Poll::Pending } else { Poll::Ready(()) },
        )
        .await;
        assert!(!self.shut.lock().contains("panic"), "as the test wants it");
    }
}

impl Offline for Gate {
    fn append(&self, messages: Vec<OfflineMessage>, quota: store::Quota) -> Fut<'_, Vec<Appended>> {
        Box::pin(async move {
            self.pass("append").await;
            let answer = self.inner.append(messages, quota).await;
            self.pass("appended").await;
            answer
        })
    }
    fn fetch(&self, owner: AddressId, page: Page, now: u64) -> Fut<'_, Slice<Waiting>> {
        Box::pin(async move {
            self.pass("fetch").await;
            let answer = self.inner.fetch(owner, page, now).await;
            self.pass("fetched").await;
            answer
        })
    }
    fn remove_through(&self, owner: AddressId, seq: u64) -> Fut<'_, u32> {
        Box::pin(async move {
            self.pass("remove").await;
            self.inner.remove_through(owner, seq).await
        })
    }
    fn count(&self, owner: AddressId) -> Fut<'_, u32> {
        self.inner.count(owner)
    }
    fn expire(&self, now: u64, limit: u32) -> Fut<'_, u32> {
        self.inner.expire(now, limit)
    }
}

pub(super) struct Bench {
    pub(super) node: Arc<Node>,
    pub(super) gate: Arc<Gate>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) clock: Arc<ManualClock>,
    kept: throng_core::kept::Kept,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::with(&[], Limits::default())
    }

    pub(super) fn with(options: &[(&str, i64)], limits: Limits) -> Bench {
        let clock = Arc::new(ManualClock::new());
        let mut stores: Stores = store::memory::stores(clock.clone());
        let gate =
            Arc::new(Gate { inner: stores.offline.clone(), shut: Mutex::default(), calls: Mutex::default() });
        stores.offline = gate.clone();
        let tasks = Arc::new(Tasks::default());
        let mut set = Options::defaults(FEATURE.options);
        for (key, value) in options {
            set.set(FEATURE.options, key, Value::Int(*value)).unwrap();
        }
        let enabled = [Enabled { feature: &FEATURE, options: set }];
        let kept = throng_core::kept::Kept::default();
        let host = Host::build_with("capulet.com", &enabled, &limits, &kept).unwrap();
        let node = Node::new(Parts {
            hosts: [("capulet.com".to_owned(), Arc::new(host))].into(),
            stores,
            cluster: Arc::new(SingleNode::new(NodeId::new("test").unwrap())),
            clock: clock.clone(),
            spawner: tasks.clone(),
            metrics: Metrics::default(),
            limits,
            hasher: cluster::AddressHasher::new([1; 16]),
            admins: vec![],
            passwords: throng_core::passwords::PlainPasswords::shared(),
            version: "test",
        });
        let bench = Bench { node, gate, tasks, clock, kept };
        for name in ["romeo", "juliet", "nurse"] {
            let jid = Jid::parse(&format!("{name}@capulet.com")).unwrap();
            bench.tasks.wait(bench.node.stores.accounts.create(&jid, b"")).unwrap();
        }
        bench
    }

    /// What a reload does: the module with these options, or switched off.
    pub(super) fn reload(&self, options: Option<&[(&str, i64)]>) {
        let enabled = options.map(|options| {
            let mut set = Options::defaults(FEATURE.options);
            for (key, value) in options {
                set.set(FEATURE.options, key, Value::Int(*value)).unwrap();
            }
            Enabled { feature: &FEATURE, options: set }
        });
        let enabled: Vec<_> = enabled.into_iter().collect();
        let host = Host::build_with("capulet.com", &enabled, &self.node.limits(), &self.kept).unwrap();
        self.node.set_hosts([("capulet.com".to_owned(), Arc::new(host))].into());
    }

    /// What a login reads.
    pub(super) fn look_up(&self, name: &str) -> Principal {
        let jid = Jid::parse(&format!("{name}@capulet.com")).unwrap();
        let host = self.node.host("capulet.com").unwrap();
        let found = self.tasks.wait(self.node.look_up(host, jid)).unwrap().unwrap();
        self.tasks.wait(self.node.load(found.identity)).unwrap().granted().unwrap()
    }
    pub(super) fn bind(&self, principal: Principal, resource: &str) -> Arc<Session> {
        self.node.bind(principal, Some(resource), &Arc::new(Link::new())).unwrap()
    }
    pub(super) fn connect(&self, name: &str) -> Arc<Session> {
        self.bind(self.look_up(name), "balcony")
    }
    /// What the presence feature does when a resource sends presence.
    pub(super) fn available(&self, session: &Arc<Session>, priority: i8) {
        session.appear(Frame::read(b"<presence/>").unwrap(), priority);
        self.node.perform(Effects(vec![Effect::Available(session.clone())]));
    }
    /// Connects and becomes available.
    pub(super) fn online(&self, name: &str) -> Arc<Session> {
        let session = self.connect(name);
        self.available(&session, 0);
        self.steps();
        session
    }
    /// The connection is gone.
    pub(super) fn offline(&self, session: &Arc<Session>) {
        self.node.end_session(session);
    }

    /// Polls everything often enough that only what a gate holds is left.
    pub(super) fn steps(&self) {
        for _ in 0..20 {
            self.tasks.step();
        }
    }
    pub(super) fn begin(&self, from: &Arc<Session>, text: &str) -> Option<BoxFuture<'static, ()>> {
        let scope = xml::Scope::client();
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &self.node.limits().stanza())
        else {
            panic!("not a stanza: {text}");
        };
        match self.node.ingest(from, text.as_bytes(), &head) {
            Ingest::Done => None,
            Ingest::Wait(later) => Some(later),
            Ingest::Fatal(error) => panic!("{error:?}"),
        }
    }
    /// Sends a chat message; the future is what the sender's stream waits for.
    pub(super) fn say(&self, from: &Arc<Session>, to: &str, text: &str) -> Option<BoxFuture<'static, ()>> {
        self.begin(from, &format!("<message to='{to}' type='chat'><body>{text}</body></message>"))
    }
    /// A chat message arrives from elsewhere; nobody waits for what becomes of it.
    pub(super) fn arrive(&self, name: &str, to: &str, text: &str) {
        let from = Jid::parse(&format!("{name}@capulet.com/cell")).unwrap();
        let stanza = format!("<message from='{from}' to='{to}' type='chat'><body>{text}</body></message>");
        let (frame, to) = (Frame::read(stanza.as_bytes()).unwrap(), Jid::parse(to).unwrap());
        self.node.perform(Effects(vec![Effect::Route { frame, from, to }]));
    }
    pub(super) fn finish(&self, later: Option<BoxFuture<'static, ()>>) {
        if let Some(later) = later {
            self.tasks.wait(later);
        }
        self.steps();
    }

    /// The client acknowledges from now on (XEP-0198).
    pub(super) fn manage(&self, session: &Arc<Session>) {
        let terms = Terms { seconds: 60, bytes: 100_000, old: false };
        assert!(session.link.enable(terms, [0; 16]));
    }
    /// It has got so many stanzas.
    pub(super) fn acknowledge(&self, session: &Arc<Session>, count: usize) {
        session.link.acknowledge(count as u32).unwrap();
    }
    /// The bodies of what arrived, without letting anything else happen.
    pub(super) fn taken(&self, session: &Arc<Session>) -> Vec<String> {
        let mut batch = Batch::new();
        session.link.take(&mut Context::from_waker(Waker::noop()), &mut batch);
        batch.iter().map(|i| body(std::str::from_utf8(i.frame.bytes()).unwrap())).collect()
    }
    pub(super) fn recv(&self, session: &Arc<Session>) -> Vec<String> {
        let mut batch = Batch::new();
        session.link.take(&mut Context::from_waker(Waker::noop()), &mut batch);
        self.steps();
        batch.iter().map(|i| String::from_utf8(i.frame.bytes().to_vec()).unwrap()).collect()
    }
    /// The bodies of what arrived.
    pub(super) fn bodies(&self, session: &Arc<Session>) -> Vec<String> {
        self.recv(session).iter().map(|text| body(text)).collect()
    }
    /// How many messages are in the store.
    pub(super) fn stored(&self, name: &str) -> u32 {
        let jid = Jid::parse(&format!("{name}@capulet.com")).unwrap();
        let id = self.tasks.wait(self.node.stores.addresses.find(&jid)).unwrap().unwrap();
        self.tasks.wait(self.node.stores.offline.count(id)).unwrap()
    }
    /// Whether newer messages go behind those in the store.
    pub(super) fn flushing(&self, session: &Arc<Session>) -> bool {
        session.account.with(|state| state.flushing)
    }
}

fn body(text: &str) -> String {
    let (_, rest) = text.split_once("<body>").unwrap_or(("", text));
    rest.split_once("</body>").map_or(rest, |(body, _)| body).to_owned()
}

/// Whether a future is still waiting.
pub(super) fn waits(later: &mut Option<BoxFuture<'static, ()>>) -> bool {
    let Some(future) = later else { return false };
    let pending = future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    if !pending {
        *later = None;
    }
    pending
}
