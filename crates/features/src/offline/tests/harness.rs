//! Test harness: a node over the memory store whose offline store blocks where a test requests it.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::ManualClock;
use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use cluster::{NodeId, SingleNode};
use feature_api::EnabledFeature;
use feature_api::feature::{FeatureOptions, OptionValue};
use jid::Jid;
use stanza::Element;
use store::{
    AddressId, AppendOutcome, Offline, OfflineMessage, Page, Paged, StoreError, StoreErrorKind, StoreFuture,
    StoredMessage, Stores,
};
use testkit::manual_spawner::ManualSpawner;
use throng_core::metrics::Metrics;
use throng_core::session::{QueuedBatch, StreamManagementTerms};
use throng_core::{
    Effect, Effects, IngestOutcome, Node, NodeComponents, NodeLimits, Outbox, Principal, Session,
    SharedStanza,
};

use super::super::FEATURE;

/// Offline store with gates, by the name of the call: `append` blocks before the write, `appended` after it.
pub(super) struct GatedStore {
    inner: Arc<dyn Offline>,
    closed: LeafMutex<HashSet<&'static str>>,
    failing: LeafMutex<HashSet<&'static str>>,
    calls: LeafMutex<Vec<&'static str>>,
}

impl GatedStore {
    pub(super) fn close(&self, name: &'static str) {
        self.closed.lock().insert(name);
    }

    pub(super) fn open(&self, name: &'static str) {
        self.closed.lock().remove(name);
    }

    /// Whether calls of this name fail.
    pub(super) fn fail(&self, name: &'static str, fails: bool) {
        match fails {
            true => self.failing.lock().insert(name),
            false => self.failing.lock().remove(name),
        };
    }

    fn check(&self, name: &'static str) -> Result<(), StoreError> {
        match self.failing.lock().contains(name) {
            true => Err(StoreError::new(StoreErrorKind::Timeout, "the database did not respond in time")),
            false => Ok(()),
        }
    }

    pub(super) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock())
    }

    async fn wait_open(&self, name: &'static str) {
        self.calls.lock().push(name);
        std::future::poll_fn(
            |_| if self.closed.lock().contains(name) { Poll::Pending } else { Poll::Ready(()) },
        )
        .await;
        assert!(!self.closed.lock().contains("panic"), "as the test wants it");
    }
}

impl Offline for GatedStore {
    fn append(
        &self,
        messages: Vec<OfflineMessage>,
        quota: store::Quota,
    ) -> StoreFuture<'_, Vec<AppendOutcome>> {
        Box::pin(async move {
            self.wait_open("append").await;
            let answer = self.inner.append(messages, quota).await;
            self.wait_open("appended").await;
            answer
        })
    }

    fn fetch(&self, owner: AddressId, page: Page, now: u64) -> StoreFuture<'_, Paged<StoredMessage>> {
        Box::pin(async move {
            self.wait_open("fetch").await;
            self.check("fetch")?;
            let answer = self.inner.fetch(owner, page, now).await;
            self.wait_open("fetched").await;
            answer
        })
    }

    fn remove_range(&self, owner: AddressId, first: u64, last: u64) -> StoreFuture<'_, u32> {
        Box::pin(async move {
            self.wait_open("remove").await;
            self.check("remove")?;
            self.inner.remove_range(owner, first, last).await
        })
    }

    fn count(&self, owner: AddressId) -> StoreFuture<'_, u32> {
        self.inner.count(owner)
    }

    fn expire(&self, now: u64, limit: u32) -> StoreFuture<'_, u32> {
        self.inner.expire(now, limit)
    }
}

pub(super) struct OfflineHarness {
    pub(super) node: Arc<Node>,
    pub(super) gate: Arc<GatedStore>,
    pub(super) tasks: Arc<ManualSpawner>,
    pub(super) clock: Arc<ManualClock>,
    feature_state: feature_api::feature_state::FeatureState,
}

impl OfflineHarness {
    pub(super) fn new() -> OfflineHarness {
        OfflineHarness::with(&[], NodeLimits::default())
    }

    pub(super) fn with(options: &[(&str, i64)], limits: NodeLimits) -> OfflineHarness {
        let clock = Arc::new(ManualClock::new());
        let mut stores: Stores = store::memory::stores(clock.clone());
        let gate = Arc::new(GatedStore {
            inner: stores.offline.clone(),
            closed: LeafMutex::default(),
            failing: LeafMutex::default(),
            calls: LeafMutex::default(),
        });
        stores.offline = gate.clone();
        let tasks = Arc::new(ManualSpawner::default());
        let mut set = FeatureOptions::defaults(FEATURE.options);
        for (key, value) in options {
            set.set(FEATURE.options, key, OptionValue::Int(*value)).unwrap();
        }
        let enabled = [EnabledFeature { feature: &FEATURE, options: set }];
        let feature_state = feature_api::feature_state::FeatureState::default();
        let host =
            feature_api::build_host_with("capulet.com", &enabled, &limits, &feature_state, None).unwrap();
        let hasher = cluster::AddressHasher::new([1; 16]);
        let node = Node::new(NodeComponents {
            hosts: [("capulet.com".to_owned(), Arc::new(host))].into(),
            stores,
            cluster: Arc::new(SingleNode::new(NodeId::new("test").unwrap())),
            peers: Box::new(peers::PeerRouter::default()),
            account_views: Box::new(testkit::StoreBackedViews::new(hasher)),
            clock: clock.clone(),
            spawner: tasks.clone(),
            metrics: Metrics::default(),
            limits,
            hasher,
            admins: vec![],
            passwords: throng_core::passwords::PlainPasswords::shared(),
            version: "test",
        });
        let bench = OfflineHarness { node, gate, tasks, clock, feature_state };
        for name in ["romeo", "juliet", "nurse"] {
            let jid = Jid::parse(&format!("{name}@capulet.com")).unwrap();
            bench.tasks.block_on(bench.node.stores.accounts.create(&jid, b"")).unwrap();
        }
        bench
    }

    /// Simulates a reload: the module with these options, or disabled.
    pub(super) fn reload(&self, options: Option<&[(&str, i64)]>) {
        let enabled = options.map(|options| {
            let mut set = FeatureOptions::defaults(FEATURE.options);
            for (key, value) in options {
                set.set(FEATURE.options, key, OptionValue::Int(*value)).unwrap();
            }
            EnabledFeature { feature: &FEATURE, options: set }
        });
        let enabled: Vec<_> = enabled.into_iter().collect();
        let host = feature_api::build_host_with(
            "capulet.com",
            &enabled,
            &self.node.limits(),
            &self.feature_state,
            None,
        )
        .unwrap();
        self.node.set_hosts([("capulet.com".to_owned(), Arc::new(host))].into());
    }

    /// Reads the account as a login does.
    pub(super) fn read_login(&self, name: &str) -> Principal {
        let jid = Jid::parse(&format!("{name}@capulet.com")).unwrap();
        let host = self.node.host("capulet.com").unwrap();
        let found =
            self.tasks.block_on(testkit::login::load_credentials(&self.node, host, jid)).unwrap().unwrap();
        let loaded = self.tasks.block_on(testkit::login::load_principal(&self.node, found.identity));
        loaded.unwrap().granted().unwrap()
    }

    pub(super) fn bind(&self, principal: Principal, resource: &str) -> Arc<Session> {
        self.node.bind(principal, Some(resource), &Arc::new(Outbox::new())).unwrap()
    }

    pub(super) fn connect(&self, name: &str) -> Arc<Session> {
        self.bind(self.read_login(name), "balcony")
    }

    /// Makes a resource available as the presence feature does.
    pub(super) fn available(&self, session: &Arc<Session>, priority: i8) {
        session.set_available(SharedStanza::parse(b"<presence/>").unwrap(), priority);
        self.node.perform(Effects(vec![Effect::Available(session.clone())]));
    }

    /// Connects and becomes available.
    pub(super) fn online(&self, name: &str) -> Arc<Session> {
        let session = self.connect(name);
        self.available(&session, 0);
        self.run_until_idle();
        session
    }

    /// Closes the connection.
    pub(super) fn offline(&self, session: &Arc<Session>) {
        self.node.end_session(session);
    }

    /// Polls all tasks until only those blocked by a gate are left.
    pub(super) fn run_until_idle(&self) {
        for _ in 0..20 {
            self.tasks.step();
        }
    }

    pub(super) fn ingest(&self, from: &Arc<Session>, text: &str) -> Option<BoxFuture<'static, ()>> {
        let scope = xml::NamespaceContext::client();
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &self.node.limits().stanza())
        else {
            panic!("not a stanza: {text}");
        };
        match self.node.ingest(from, text.as_bytes(), &head) {
            IngestOutcome::Done => None,
            IngestOutcome::AwaitsReceipts(receipts) => Some(self.node.settle_receipts(receipts)),
            IngestOutcome::Wait(later) => {
                let node = self.node.clone();
                Some(Box::pin(async move { node.settle_receipts(later.await).await }))
            }
            IngestOutcome::Fatal(error) => panic!("{error:?}"),
        }
    }

    /// Sends a chat message; the future completes when it is safe, or the sender has an error.
    pub(super) fn send_chat(
        &self,
        from: &Arc<Session>,
        to: &str,
        text: &str,
    ) -> Option<BoxFuture<'static, ()>> {
        self.ingest(from, &format!("<message to='{to}' type='chat'><body>{text}</body></message>"))
    }

    /// A chat message arrives from another node; nobody waits for its result.
    pub(super) fn deliver_from_remote(&self, name: &str, to: &str, text: &str) {
        let from = Jid::parse(&format!("{name}@capulet.com/cell")).unwrap();
        let stanza = format!("<message from='{from}' to='{to}' type='chat'><body>{text}</body></message>");
        let (frame, to) = (SharedStanza::parse(stanza.as_bytes()).unwrap(), Jid::parse(to).unwrap());
        self.node.perform(Effects(vec![Effect::Route { stanza: frame, from, to }]));
    }

    pub(super) fn complete(&self, later: Option<BoxFuture<'static, ()>>) {
        if let Some(later) = later {
            self.tasks.block_on(later);
        }
        self.run_until_idle();
    }

    /// The client acknowledges from here on (XEP-0198).
    pub(super) fn enable_stream_management(&self, session: &Arc<Session>) {
        let terms = StreamManagementTerms { resume_seconds: 60, unacked_bytes: 100_000, sm2: false };
        assert!(session.outbox.enable_management(terms, [0; 16]));
    }

    /// The client has acknowledged `count` stanzas.
    pub(super) fn acknowledge(&self, session: &Arc<Session>, count: usize) {
        session.outbox.acknowledge(count as u32).unwrap();
    }

    /// Bodies of the queued messages, without running any task.
    pub(super) fn take_queued_bodies(&self, session: &Arc<Session>) -> Vec<String> {
        let mut batch = QueuedBatch::new();
        session.outbox.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut batch);
        batch.iter().map(|i| body(std::str::from_utf8(i.stanza.bytes()).unwrap())).collect()
    }

    pub(super) fn receive(&self, session: &Arc<Session>) -> Vec<String> {
        let mut batch = QueuedBatch::new();
        session.outbox.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut batch);
        self.run_until_idle();
        batch.iter().map(|i| String::from_utf8(i.stanza.bytes().to_vec()).unwrap()).collect()
    }

    /// Bodies of the received messages.
    pub(super) fn receive_bodies(&self, session: &Arc<Session>) -> Vec<String> {
        self.receive(session).iter().map(|text| body(text)).collect()
    }

    /// Number of stored messages.
    pub(super) fn stored(&self, name: &str) -> u32 {
        let jid = Jid::parse(&format!("{name}@capulet.com")).unwrap();
        let id = self.tasks.block_on(self.node.stores.addresses.find(&jid)).unwrap().unwrap();
        self.tasks.block_on(self.node.stores.offline.count(id)).unwrap()
    }

    /// Whether newer messages are stored after older ones.
    pub(super) fn flushing(&self, session: &Arc<Session>) -> bool {
        session.account.with(|state| state.flushing)
    }
}

fn body(text: &str) -> String {
    let (_, rest) = text.split_once("<body>").unwrap_or(("", text));
    rest.split_once("</body>").map_or(rest, |(body, _)| body).to_owned()
}

/// Whether a future is still pending.
pub(super) fn is_pending(later: &mut Option<BoxFuture<'static, ()>>) -> bool {
    let Some(future) = later else { return false };
    let pending = future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    if !pending {
        *later = None;
    }
    pending
}
