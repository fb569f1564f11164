//! Test node with streams: real connections in memory, over loopback TCP and TLS, with clients that send bytes.
//!
//! RFC 6120 from the first byte. The clock stands still until [`TestServer::advance`]; the store is the memory store.
//! Every connection is a task on the test's own runtime, which must be tokio's `current_thread`: nothing then happens
//! between two awaits of the test.
//!
//! Not implemented: server-to-server streams.
//!
//! # Pitfalls
//!
//! After [`TestServer::advance`] or a call on the node, connections run only when the test awaits; [`run_until_idle`]
//! lets them.

mod bosh;
mod client;
mod test_servers;
mod tls;
mod websocket;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::spawn::{BoxFuture, Spawner};
use base::{ManualClock, Secret};
use cluster::{Cluster, NodeId, SingleNode};
use feature_api::EnabledFeature;
use feature_api::feature::{Feature, FeatureOptions, OptionValue};
use feature_api::feature_state::FeatureState;
use jid::Jid;
use net::{
    ConnectionLimiter, ConnectionLimits, ListenerConfig, ListenerKind, Pipe, SharedListenerConfig, Stream,
};
use sasl::{Credentials, Mechanism, MechanismSet};
use store::{AddressId, Stores};
use streams::{C2sConnection, C2sContext, NegotiationPolicy, TlsPolicy};
use throng_core::account_provider::{AccountProvider, SharedAccountProvider};
use throng_core::metrics::Metrics;
use throng_core::{Node, NodeComponents, NodeLimits};

use crate::counting_store::CountingStore;
use crate::node_inbox::NodeInbox;

pub use client::{ReceivedElement, ReceivedEvent, STREAM_HEADER, StreamClient};
pub use test_servers::TestServers;
pub use tls::{ClientAuthority, TlsClientIdentity, TlsClientSettings};
pub(crate) use websocket::Framed;

/// Capacity of a pipe in each direction.
pub const PIPE_BYTES: usize = 65_536;
/// Password of every account.
pub const PASSWORD: &str = "r0m30myr0m30";
/// SCRAM iterations; few, so that tests are fast.
const ITERATIONS: u32 = 64;

/// Configuration of a test node.
pub struct TestServerConfig {
    /// Domains; the first is the default.
    pub domains: Vec<&'static str>,
    /// The node's limits.
    pub limits: NodeLimits,
    /// Negotiation policy.
    pub policy: NegotiationPolicy,
    /// Features, with default options.
    pub features: Vec<&'static Feature>,
    /// Non-default options: feature, option, value.
    pub options: Vec<(&'static str, &'static str, OptionValue)>,
    /// Whether the node has certificates; the policy decides whether they are used.
    pub certificates: bool,
    /// PEM of the authority of client certificates, which are then requested.
    pub client_authority: Option<String>,
    /// Clients over pipes use WebSocket, through a trusted proxy that terminates their TLS. They still send the text of
    /// a stream document; it is framed on the way.
    pub websocket: bool,
    /// Provider of the accounts of all domains; their passwords are in the store without one.
    pub account_provider: Option<Arc<dyn AccountProvider>>,
    /// Backend of the accounts, if it is not that of the data.
    pub auth: Option<Stores>,
    /// Clients over pipes use BOSH instead, without HTTP and over encrypted connections. They send the text of a stream
    /// document, too.
    pub bosh: bool,
}

impl Default for TestServerConfig {
    /// One domain, TLS optional, every mechanism except ANONYMOUS, PLAIN only with TLS.
    fn default() -> TestServerConfig {
        TestServerConfig {
            domains: vec!["example.com"],
            limits: NodeLimits::default(),
            policy: NegotiationPolicy {
                tls: TlsPolicy::Optional,
                allow_plain_without_tls: false,
                allow_anonymous: false,
                mechanisms: Mechanism::ALL.into_iter().collect::<MechanismSet>(),
                scram_iterations: ITERATIONS,
                domains: std::collections::BTreeMap::new(),
            },
            features: Vec::new(),
            options: Vec::new(),
            certificates: true,
            client_authority: None,
            websocket: false,
            account_provider: None,
            auth: None,
            bosh: false,
        }
    }
}

impl TestServerConfig {
    /// Starts a node with this configuration.
    ///
    /// # Panics
    /// If it cannot be built.
    pub fn start(self) -> TestServer {
        TestServer::start(self)
    }

    /// Starts this number of nodes with this configuration as one cluster, with a network without faults.
    ///
    /// # Panics
    /// If they cannot be built.
    pub fn start_cluster(self, count: usize) -> TestServers {
        TestServers::start(&self, count)
    }
}

/// Node that serves streams.
pub struct TestServer {
    /// The node.
    pub node: Arc<Node>,
    /// Its clock.
    pub clock: Arc<ManualClock>,
    /// The store without the counter.
    pub stores: Stores,
    /// Context shared by its connections.
    pub context: Arc<C2sContext>,
    /// Limiter of its connections.
    pub connection_limiter: ConnectionLimiter,
    /// Configuration and limits of its listener.
    pub port: SharedListenerConfig,
    counted: Arc<CountingStore>,
    websocket: bool,
    bosh: bool,
    domain: &'static str,
    certificate: Option<Vec<u8>>,
}

/// Spawns tasks on the runtime of the test.
struct CurrentRuntimeSpawner(tokio::runtime::Handle);

impl Spawner for CurrentRuntimeSpawner {
    fn spawn(&self, _what: &'static str, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        // On the same thread, so that nothing runs concurrently with the test.
        self.0.spawn(async move { job() });
    }
}

impl TestServer {
    /// Starts a node with [`TestServerConfig::default`].
    pub fn new() -> TestServer {
        TestServer::start(TestServerConfig::default())
    }

    fn start(setup: TestServerConfig) -> TestServer {
        let clock = Arc::new(ManualClock::new());
        let data = store::memory::stores(clock.clone());
        let stores = match setup.auth.clone() {
            Some(auth) => store::separate_auth::separate_auth(auth, data),
            None => data,
        };
        let single = Arc::new(SingleNode::new(NodeId::new("test").expect("a name")));
        TestServer::start_in(&setup, clock, stores, single)
    }

    /// Starts a node as a member of a cluster, whose clock and store it shares.
    fn start_in(
        setup: &TestServerConfig,
        clock: Arc<ManualClock>,
        stores: Stores,
        cluster: Arc<dyn Cluster>,
    ) -> TestServer {
        let counted = CountingStore::new(stores.clone());
        let enabled: Vec<EnabledFeature> = setup
            .features
            .iter()
            .map(|feature| {
                let mut options = FeatureOptions::defaults(feature.options);
                for (_, key, value) in setup.options.iter().filter(|(name, ..)| *name == feature.name) {
                    options.set(feature.options, key, value.clone()).expect("an option of the feature");
                }
                EnabledFeature { feature, options }
            })
            .collect();
        let host = |d: &&str| {
            let provider = setup.account_provider.clone().map(SharedAccountProvider);
            let state = FeatureState::default();
            let host = feature_api::build_host_with(d, &enabled, &setup.limits, &state, provider);
            ((*d).to_owned(), Arc::new(host.expect("a host")))
        };
        let hasher = cluster::AddressHasher::new([1; 16]);
        let node = Node::new(NodeComponents {
            hosts: setup.domains.iter().map(host).collect(),
            stores: counted.stores(),
            cluster,
            peers: Box::new(peers::PeerRouter::default()),
            account_views: Box::new(access::StoreBackedViews::new(hasher)),
            clock: clock.clone(),
            spawner: Arc::new(CurrentRuntimeSpawner(tokio::runtime::Handle::current())),
            metrics: Metrics::new(&mut prometheus_client::registry::Registry::default()),
            limits: setup.limits.clone(),
            hasher,
            admins: vec![],
            passwords: throng_core::passwords::PlainPasswords::shared(),
            version: "test",
        });
        access::login_throttle::share_login_attempts(&node);
        peers::share_spent_rates(&node);
        NodeInbox::attach(&node, Arc::default());
        crate::environment::provide(&node);
        let mut port = ListenerConfig::new(ListenerKind::C2s, "127.0.0.1:0".parse().expect("an address"));
        streams::set_stanza_limits(&mut port, &node.limits());
        let (tls, certificate) = if setup.certificates {
            let (config, certificate) = tls::server(setup);
            (Some(config), Some(certificate))
        } else {
            (None, None)
        };
        let domain = *setup.domains.first().expect("a domain");
        let secret = Secret::new(*b"the same over restarts");
        let service = C2sContext::new(node.clone(), tls, setup.policy.clone(), &secret, domain.to_owned());
        let gate = ConnectionLimiter::new(ConnectionLimits::default());
        let (websocket, bosh) = (setup.websocket, setup.bosh);
        TestServer {
            node,
            clock,
            stores,
            context: service,
            connection_limiter: gate,
            port: Arc::new(port),
            counted,
            websocket,
            bosh,
            domain,
            certificate,
        }
    }

    /// Creates an account in the first domain, or in that of the name.
    ///
    /// # Panics
    /// If it exists.
    pub async fn create_user(&self, name: &str) -> AddressId {
        self.create_user_with_password(name, PASSWORD).await
    }

    /// As [`TestServer::create_user`], with another password.
    ///
    /// # Panics
    /// If it exists.
    pub async fn create_user_with_password(&self, name: &str, password: &str) -> AddressId {
        let stored = Credentials::derive(password, ITERATIONS, b"salt of the tests").expect("credentials");
        self.stores.accounts.create(&self.address(name), &stored.encode()).await.expect("a new account")
    }

    /// Bare address of a user.
    ///
    /// # Panics
    /// If the name is invalid.
    pub fn address(&self, name: &str) -> Jid {
        let text = if name.contains('@') { name.to_owned() } else { format!("{name}@{}", self.domain) };
        Jid::parse(&text).expect("an address")
    }

    /// A connection that is not polled yet, and the other end of its pipe.
    ///
    /// # Panics
    /// If the connection limit is reached.
    pub fn connection(&self, capacity: usize) -> (C2sConnection, Pipe) {
        let (stream, there) = Stream::memory(self.port.clone(), capacity);
        let pass =
            self.connection_limiter.try_acquire("127.0.0.1".parse().expect("an address")).expect("room");
        (C2sConnection::new(stream, pass, self.context.clone()), there)
    }

    /// A client at the other end of a pipe from [`TestServer::connection`].
    pub fn client_over(&self, there: Pipe) -> StreamClient {
        self.client(Box::new(there))
    }

    fn serve(&self, stream: Stream) {
        let pass =
            self.connection_limiter.try_acquire("127.0.0.1".parse().expect("an address")).expect("room");
        tokio::runtime::Handle::current().spawn(C2sConnection::new(stream, pass, self.context.clone()));
    }

    /// A client over a pipe in memory.
    pub fn connect(&self) -> StreamClient {
        self.connect_with(PIPE_BYTES)
    }

    /// As [`TestServer::connect`], from another address.
    pub fn connect_from(&self, peer: &str) -> StreamClient {
        let peer = std::net::SocketAddr::new(peer.parse().expect("an address"), 5);
        let (stream, there) = Stream::memory_with_peer(self.port.clone(), PIPE_BYTES, peer);
        self.over(stream, there)
    }

    /// As [`TestServer::connect`], with another capacity in each direction.
    pub fn connect_with(&self, capacity: usize) -> StreamClient {
        let (stream, there) = Stream::memory(self.port.clone(), capacity);
        self.over(stream, there)
    }

    fn over(&self, stream: Stream, there: Pipe) -> StreamClient {
        self.client(Box::new(self.served(stream, there)))
    }

    fn served(&self, stream: Stream, there: Pipe) -> Box<dyn net::Duplex> {
        if self.bosh {
            return self.bosh_stream(stream.info().peer);
        }
        let (stream, io) = self.framed(stream, there);
        self.serve(stream);
        io
    }

    /// A BOSH client, and a session table for its session.
    fn bosh_stream(&self, peer: std::net::SocketAddr) -> Box<dyn net::Duplex> {
        let (service, gate) = (self.context.clone(), self.connection_limiter.clone());
        let start = Box::new(move |stream: Stream| {
            let Ok(pass) = gate.try_acquire(stream.info().peer.ip()) else { return false };
            tokio::runtime::Handle::current().spawn(C2sConnection::new(stream, pass, service.clone()));
            true
        });
        // No rate limit, since the clock stands still.
        let settings = net::bosh::BoshSettings {
            requests_per_second: 0,
            polling_seconds: 0,
            ..net::bosh::BoshSettings::default()
        };
        let sessions = net::bosh::BoshSessionTable::new(settings, self.clock.clone(), start);
        let origin = net::bosh::RequestSource { peer, listener: self.port.clone(), secure: true };
        Box::new(bosh::BoshClientIo::new(sessions, origin))
    }

    /// Spawns a configured stream in memory; returns the client's end, which carries the text of a stream document.
    pub fn dial(&self) -> Box<dyn net::Duplex> {
        let (stream, there) = Stream::memory(self.port.clone(), PIPE_BYTES);
        self.served(stream, there)
    }

    fn framed(&self, mut stream: Stream, there: Pipe) -> (Stream, Box<dyn net::Duplex>) {
        if !self.websocket {
            return (stream, Box::new(there));
        }
        let peer = stream.info().peer;
        stream.set_proxied_client(peer, true);
        stream.set_websocket(websocket::accepted(&net::websocket::WebSocketSettings::default()));
        (stream, Box::new(websocket::Framed::new(there, false)))
    }

    /// A WebSocket client without encryption.
    pub fn connect_websocket(&self) -> StreamClient {
        let (mut stream, there) = Stream::memory(self.port.clone(), PIPE_BYTES);
        stream.set_websocket(websocket::accepted(&net::websocket::WebSocketSettings::default()));
        self.serve(stream);
        self.client(Box::new(websocket::Framed::new(there, false)))
    }

    /// A stream in memory upgraded to WebSocket; returns the client's end for raw frames.
    pub fn connect_frames(&self) -> Pipe {
        let (mut stream, there) = Stream::memory(self.port.clone(), PIPE_BYTES);
        stream.set_websocket(websocket::accepted(&net::websocket::WebSocketSettings::default()));
        self.serve(stream);
        there
    }

    fn client(&self, io: Box<dyn client::ClientIo>) -> StreamClient {
        StreamClient::new(io, self.domain, self.certificate.clone())
    }

    /// A client over loopback TCP.
    ///
    /// # Panics
    /// If the system has no socket left.
    pub async fn connect_tcp(&self) -> StreamClient {
        let (server, client) = tcp_pair().await;
        let peer = server.peer_addr().expect("a connected socket");
        self.serve(Stream::tcp(server, peer, self.port.clone()));
        self.client(Box::new(client))
    }

    /// A client over loopback TCP to a listener with direct TLS (XEP-0368); nothing was sent yet.
    ///
    /// # Panics
    /// If the system has no socket left or the test has no certificates.
    pub async fn connect_direct(&self) -> StreamClient {
        let (server, client) = tcp_pair().await;
        let peer = server.peer_addr().expect("a connected socket");
        let mut port = (*self.port).clone();
        port.kind = ListenerKind::C2sTls;
        let tls = self.context.tls.as_ref().expect("certificates");
        self.serve(Stream::tls(server, peer, Arc::new(port), tls).expect("a TLS stream"));
        self.client(Box::new(client))
    }

    /// A client with a bound resource over a pipe, logged in with SCRAM-SHA-1.
    ///
    /// # Panics
    /// If the login fails. The account must exist.
    pub async fn login(&self, user: &str, resource: &str) -> StreamClient {
        let mut client = self.connect();
        client.login(user, resource).await;
        client
    }

    /// Returns and clears the names of the store calls, such as `logins.login`.
    pub fn store_calls(&self) -> Vec<&'static str> {
        self.counted.take_calls()
    }

    /// Changes the store once, between the proof of the next login and the reads after it.
    pub fn after_proof(&self, act: impl FnOnce(&Stores) + Send + 'static) {
        self.counted.after_proof(act);
    }

    /// Changes the store once, before the next update of tokens.
    pub fn before_tokens(&self, act: impl FnOnce(&Stores) + Send + 'static) {
        self.counted.before_tokens(act);
    }

    /// Makes the store miss its deadline for every proof, and keep the proof: a statement of the batch is still
    /// running.
    pub fn set_proofs_late(&self, late: bool) {
        self.counted.set_proofs_late(late);
    }

    /// Makes the node's store fail, or work again; the test's own calls always work.
    pub fn set_store_failing(&self, failing: bool) {
        self.counted.set_failing(failing);
    }

    /// Advances the clock second by second, runs the sweep and lets all tasks run in between.
    pub async fn advance(&self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.advance(1000);
            self.node.sweep();
            tokio::task::yield_now().await;
        }
        run_until_idle().await;
    }
}

impl Default for TestServer {
    fn default() -> TestServer {
        TestServer::new()
    }
}

/// Raw documents received by WebSocket or BOSH clients of this thread since the last call. The first call starts the
/// recording.
pub fn take_documents() -> Vec<String> {
    websocket::DOCUMENTS.with_borrow_mut(|all| all.replace(Vec::new())).unwrap_or_default()
}

/// Lets every task of the runtime run until all are waiting (over pipes; sockets may take longer).
pub async fn run_until_idle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Lets every task run until a condition holds.
///
/// # Panics
/// If it never holds.
pub async fn run_until(mut so: impl FnMut() -> bool) {
    for _ in 0..1_000_000 {
        if so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("what was waited for never happened");
}

async fn tcp_pair() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("a bound socket");
    let client = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let (server, _) = listener.accept().await.expect("a connection");
    server.set_nodelay(true).expect("a connected socket");
    client.set_nodelay(true).expect("a connected socket");
    (server, client)
}

/// Directory that is removed on drop.
pub(crate) struct ScratchDir(pub(crate) PathBuf);

impl ScratchDir {
    pub(crate) fn new() -> ScratchDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("throng-testkit-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a writable temporary directory");
        ScratchDir(path)
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
