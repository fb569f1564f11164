//! Nodes over a real NATS server: each cluster has a deployment of its own on one server.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests wait for real processes, which no clock of ours moves; the lints exempt functions marked as tests, not what those call"
)]
#![allow(dead_code, reason = "not every test program uses everything")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base::clock::SystemClock;
use base::spawn::{BoxFuture, Spawner};
use cluster::conformance::{InboxEvent, InboxRecorder, TestCluster};
use cluster::{Claim, Cluster, MembershipChange, NodeId};
use test_databases::NatsServer;
use throng_cluster_nats::{ClusterKey, NatsCluster, NatsCredentials, NatsSettings, NatsTls};
use tokio::runtime::{Builder, Handle, Runtime};

/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct TokioSpawner(pub(crate) Handle);

impl Spawner for TokioSpawner {
    fn spawn(&self, _what: &'static str, task: BoxFuture<'static, ()>) {
        drop(self.0.spawn(task));
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        drop(self.0.spawn_blocking(job));
    }
}

pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(new_runtime)
}

pub(crate) fn new_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The server that tests without faults share.
pub(crate) fn shared_server() -> &'static NatsServer {
    static SERVER: OnceLock<NatsServer> = OnceLock::new();
    SERVER.get_or_init(NatsServer::start)
}

pub(crate) fn deployment() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    u64::from(std::process::id()) << 32 | NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn name(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

pub(crate) fn settings(url: &str, node: &str, deployment: u64) -> NatsSettings {
    NatsSettings {
        servers: vec![url.to_owned()],
        node: name(node),
        deployment,
        key: ClusterKey::new(&[1; 32]),
        credentials: NatsCredentials::None,
        tls: NatsTls::default(),
    }
}

pub(crate) fn start(settings: NatsSettings) -> Arc<NatsCluster> {
    start_on(settings, runtime().handle())
}

pub(crate) fn start_on(settings: NatsSettings, handle: &Handle) -> Arc<NatsCluster> {
    let spawner = Arc::new(TokioSpawner(handle.clone()));
    NatsCluster::start(settings, Arc::new(SystemClock::new()), spawner).unwrap()
}

/// Waits until `done`; false if that takes too long.
pub(crate) fn wait_until(done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Nodes that know one another.
pub(crate) struct Nodes(pub(crate) Vec<Arc<NatsCluster>>);

impl Drop for Nodes {
    fn drop(&mut self) {
        // They leave in the background.
        self.0.iter().for_each(|node| drop(node.leave()));
    }
}

impl Nodes {
    pub(crate) fn start(url: &str, names: &[&str]) -> Nodes {
        let deployment = deployment();
        let nodes = Nodes(names.iter().map(|node| start(settings(url, node, deployment))).collect());
        nodes.wait_until_connected();
        nodes
    }

    pub(crate) fn wait_until_connected(&self) {
        let all = self.0.len();
        let connected = wait_until(|| self.0.iter().all(|node| node.members().len() == all));
        let seen: Vec<_> = self.0.iter().map(|node| node.status()).collect();
        assert!(connected, "{seen:?}");
    }

    pub(crate) fn is_quiet(&self) -> bool {
        // Twice: a node that was quiet may have received something from one that is quiet now.
        (0..2).all(|_| self.0.iter().all(|node| node.is_quiet()))
    }

    pub(crate) fn wait_until_quiet(&self) {
        assert!(wait_until(|| self.is_quiet()), "it is never idle");
    }
}

impl TestCluster for Nodes {
    fn nodes(&self) -> Vec<Arc<dyn Cluster>> {
        self.0.iter().map(|node| node.clone() as Arc<dyn Cluster>).collect()
    }

    fn run_until(&self, done: &dyn Fn() -> bool) -> bool {
        wait_until(done)
    }

    fn run_until_idle(&self) {
        self.wait_until_quiet();
    }
}

/// The reported departures: node, its claims, whether it was orderly.
pub(crate) fn left(inbox: &InboxRecorder) -> Vec<(NodeId, Vec<Claim>, bool)> {
    let left = |event| match event {
        InboxEvent::Changed(MembershipChange::Left { node, claims, orderly }) => {
            Some((node, claims, orderly))
        }
        _ => None,
    };
    inbox.events().into_iter().filter_map(left).collect()
}

/// The texts of envelopes that returned.
pub(crate) fn undelivered(inbox: &InboxRecorder) -> Vec<String> {
    let text = |event| match event {
        InboxEvent::Undelivered(_, envelope) => Some(String::from_utf8_lossy(&envelope.bytes).into_owned()),
        _ => None,
    };
    inbox.events().into_iter().filter_map(text).collect()
}

pub(crate) fn attach(node: &Arc<NatsCluster>) -> Arc<InboxRecorder> {
    InboxRecorder::attach(&(node.clone() as Arc<dyn Cluster>))
}
