//! Assembly of a node from its configuration.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use base::Secret;
use base::clock::{Clock, SystemClock};
use base::lock::{RankedMutex, rank};
use cluster::{Cluster, SingleNode};
use cluster_nats::{ClusterKey, NatsCluster};
use feature_api::EnabledFeature;
use feature_api::feature_state::FeatureState;
use prometheus_client::registry::Registry;
use store::Stores;
use store::instrumented::StoreMetrics;
use store::separate_auth::separate_auth;
use store_sql::SqlStores;
use streams::C2sContext;
use throng_core::file_storage::SharedFileStorage;
use throng_core::metrics::Metrics;
use throng_core::server_secret::ServerSecret;
use throng_core::{Host, Hosts, Node};

use crate::account_providers::AccountProviders;
use crate::config::{ListenConfig, NodeConfig};
use crate::files::DiskStorage;
use crate::passwords::ScramKeyDeriver;
use crate::runtime::{BlockingThreads, TokioSpawner};

/// A node and its parts.
pub(crate) struct AssembledNode {
    pub(crate) node: Arc<Node>,
    /// The node's tasks. Each ends without a further cause once there are no sessions.
    pub(crate) tasks: TokioSpawner,
    pub(crate) databases: NodeDatabases,
    /// The connection to the other nodes; none on a single node.
    pub(crate) nats: Option<Arc<NatsCluster>>,
    /// Metrics of storage operations.
    pub(crate) store_metrics: Arc<StoreMetrics>,
    pub(crate) keys: Arc<ScramKeyDeriver>,
    /// Account providers, which survive reloads.
    pub(crate) providers: AccountProviders,
    /// Feature state that survives reloads.
    pub(crate) feature_state: FeatureState,
    pub(crate) registry: Arc<RankedMutex<Registry, { rank::METRICS_REGISTRY }>>,
    secret: Secret,
    /// For files and for passwords.
    _threads: [BlockingThreads; 2],
}

/// The databases of a node.
pub(crate) struct NodeDatabases {
    pub(crate) data: Arc<SqlStores>,
    /// Accounts and their credentials, if they are separate.
    pub(crate) auth: Option<Arc<SqlStores>>,
}

impl NodeDatabases {
    /// All storage of the node.
    pub(crate) fn stores(&self) -> Stores {
        match &self.auth {
            Some(auth) => separate_auth(auth.stores(), self.data.stores()),
            None => self.data.stores(),
        }
    }

    /// Finishes pending writes and closes all connections.
    pub(crate) async fn close(&self) {
        self.data.close().await;
        if let Some(auth) = &self.auth {
            auth.close().await;
        }
    }
}

/// Opens the databases of a configuration; `create` creates missing ones.
pub(crate) async fn open_databases(
    config: &NodeConfig,
    tasks: &TokioSpawner,
    create: bool,
) -> Result<NodeDatabases> {
    let options = store_sql::DatabaseOptions {
        create,
        password_file: config.storage_password_file.clone(),
        pool_size: config.pool_size,
        writers: config.storage_writers,
        min_connections: config.storage_min_connections,
        idle_timeout: std::time::Duration::from_secs(config.storage_idle_seconds.into()),
        ..store_sql::DatabaseOptions::default()
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let data = SqlStores::open(&config.storage_url, &options, clock.clone(), tasks).await;
    let data = data.map_err(|e| anyhow!("{e}"))?;
    let Some(auth) = &config.auth_database else { return Ok(NodeDatabases { data, auth: None }) };
    let options = store_sql::DatabaseOptions { password_file: auth.password_file.clone(), ..options };
    match SqlStores::open(&auth.url, &options, clock, tasks).await {
        Ok(auth) => Ok(NodeDatabases { data, auth: Some(auth) }),
        Err(error) => {
            data.close().await;
            Err(anyhow!("[auth] url: {error}"))
        }
    }
}

/// Builds all hosts.
pub(crate) fn build_hosts(
    config: &NodeConfig,
    feature_state: &FeatureState,
    providers: &AccountProviders,
) -> Result<Hosts> {
    let mut hosts = Hosts::new();
    for domain in &config.hosts {
        let enabled = features::registry::enable(&config.modules_of(domain)).map_err(|e| anyhow!("{e}"))?;
        let host = build_host(config, domain, &enabled, feature_state, providers)?;
        hosts.insert(host.domain().to_owned(), Arc::new(host));
    }
    feature_api::service::check_service_addresses(&hosts)?;
    Ok(hosts)
}

/// Builds one host, with the provider of its accounts if there is one.
pub(crate) fn build_host(
    config: &NodeConfig,
    domain: &str,
    enabled: &[EnabledFeature],
    feature_state: &FeatureState,
    providers: &AccountProviders,
) -> Result<Host> {
    let provider = providers.of(config, domain)?;
    Ok(feature_api::build_host_with(domain, enabled, &config.limits, feature_state, provider)?)
}

/// Connection limits of the XMPP listeners.
pub(crate) fn connection_limits(limits: &throng_core::NodeLimits) -> net::ConnectionLimits {
    let rate = limits.new_connections_per_second;
    let burst = limits.new_connections_burst;
    net::ConnectionLimits {
        connections: limits.connections,
        unauthenticated: limits.unauthenticated_connections,
        per_address: limits.connections_per_address,
        new_per_second: rate,
        new_on_loopback: limits.rates_on_loopback[5],
        accepted_per_second: limits.accepted_connections_per_second,
        accept_rate_on_loopback: limits.rates_on_loopback[6],
        new_burst: if burst == 0 { rate.saturating_mul(10) } else { burst },
    }
}

/// Loads certificates, or generates them.
pub(crate) fn load_tls(config: &NodeConfig) -> Result<Option<Arc<net::tls::TlsConfig>>> {
    let Some(settings) = tls_settings(config) else { return Ok(None) };
    let tls = net::tls::TlsConfig::load(settings).context("[tls]")?;
    for domain in tls.uncovered_domains() {
        tracing::warn!(domain, "no certificate is valid for this domain; clients will refuse to connect");
    }
    Ok(Some(Arc::new(tls)))
}

/// TLS settings; `None` if no listener needs certificates.
pub(crate) fn tls_settings(config: &NodeConfig) -> Option<net::tls::TlsSettings> {
    let wanted =
        config.listen.iter().any(|l| l.kind != net::ListenerKind::Http && l.tls != streams::TlsPolicy::Off);
    wanted.then(|| net::tls::TlsSettings {
        domains: config.hosts.clone(),
        certificates: config.tls.certificates.clone(),
        self_signed_directory: config.data_dir.join("tls"),
        client_authorities: config.tls.client_authorities.clone(),
        server_authorities: None,
    })
}

/// Name of the stored key of login tokens and of the salts of unknown accounts.
const SERVER_SECRET: &str = "server-secret";
/// Name of the stored key of address hashes.
const ADDRESS_HASH_KEY_SETTING: &str = "address-hash-key";

/// Assembles the node.
pub(crate) async fn assemble(config: &NodeConfig, tasks: &TokioSpawner) -> Result<AssembledNode> {
    std::fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("cannot create the directory {}", config.data_dir.display()))?;
    let feature_state = FeatureState::default();
    let providers = AccountProviders::default();
    let hosts = build_hosts(config, &feature_state, &providers)?;
    let password_threads = BlockingThreads::passwords()?;
    let keys = ScramKeyDeriver::new(config.scram_iterations, password_threads.handle());
    let databases = open_databases(config, tasks, true).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (stores, operations) = store::instrumented::instrument(databases.stores(), clock.clone());
    let fresh = base::id::random_bytes::<32>();
    let secret = stores.server_kv.put_if_absent(SERVER_SECRET, &fresh).await.map_err(|e| anyhow!("{e}"))?;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let configured: Vec<jid::Jid> = config.admins.iter().filter_map(|a| jid::Jid::parse(a).ok()).collect();
    let admins = features::administration::admins::effective_admins(&*stores.server_kv, &configured).await;
    let admins = admins.map_err(|e| anyhow!("{e}"))?;
    if admins != configured {
        let list = admins.iter().map(jid::Jid::as_str).collect::<Vec<_>>().join(", ");
        tracing::info!(
            admins = list,
            "the administrators set with the command edit-admin replace those of the configuration"
        );
    }
    let hasher = address_hasher(&stores).await?;
    let key_shapes = imported_key_shapes(config, &stores).await?;
    // Counted apart from those of the database, which run until it is closed.
    let node_tasks = TokioSpawner::new(tasks.handle.clone()).with_blocking_threads(&password_threads);
    let nats = join_cluster(config, &hasher, &clock, tasks)?;
    let cluster: Arc<dyn Cluster> = match &nats {
        Some(nats) => nats.clone(),
        None => Arc::new(SingleNode::new(cluster::NodeId::new("node-1").context("a node name")?)),
    };
    let node = Node::new(throng_core::NodeComponents {
        hosts,
        stores,
        cluster,
        peers: Box::new(peers::PeerRouter::default()),
        account_views: Box::new(access::StoreBackedViews::new(hasher)),
        clock,
        spawner: Arc::new(node_tasks.clone()),
        metrics,
        limits: config.limits.clone(),
        hasher,
        admins,
        passwords: keys.clone(),
        version: env!("CARGO_PKG_VERSION"),
    });
    access::login_throttle::share_login_attempts(&node);
    peers::share_spent_rates(&node);
    node.cluster.attach(Arc::new(peers::ClusterInbox(node.clone())));
    node.set_configured_admins(configured);
    node.extensions.insert(ServerSecret::new(&secret));
    node.extensions.insert(key_shapes);
    let disk_threads = BlockingThreads::disk()?;
    let files = DiskStorage::new(&config.data_dir, disk_threads.handle());
    node.extensions.insert::<SharedFileStorage>(Arc::new(files));
    let (registry, secret) = (Arc::new(RankedMutex::new(registry)), Secret::new(secret));
    Ok(AssembledNode {
        node,
        tasks: node_tasks,
        databases,
        nats,
        store_metrics: operations,
        keys,
        providers,
        feature_state,
        registry,
        secret,
        _threads: [disk_threads, password_threads],
    })
}

/// Name from which the number of the deployment is made: nodes of one database find each other.
const DEPLOYMENT: &str = "cluster";

/// Number of the deployment, under which its nodes meet in NATS.
pub(crate) fn deployment(hasher: &cluster::AddressHasher) -> u64 {
    hasher.hash_name(DEPLOYMENT)
}

/// Key of the deployment, with which its nodes authenticate what they send in NATS.
fn cluster_key(hasher: &cluster::AddressHasher) -> ClusterKey {
    let mut key = [0; 32];
    for (number, part) in key.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&hasher.hash_name(&format!("cluster key {number}")).to_be_bytes());
    }
    ClusterKey::new(&key)
}

/// Starts the connection to the other nodes, if there may be some.
fn join_cluster(
    config: &NodeConfig,
    hasher: &cluster::AddressHasher,
    clock: &Arc<dyn Clock>,
    tasks: &TokioSpawner,
) -> Result<Option<Arc<NatsCluster>>> {
    let Some(cluster) = &config.cluster else { return Ok(None) };
    let settings = cluster.settings(deployment(hasher), cluster_key(hasher))?;
    Ok(Some(NatsCluster::start(settings, clock.clone(), Arc::new(tasks.clone()))?))
}

/// Loads the shapes of imported keys. Domains that a reload adds have none until the next start.
async fn imported_key_shapes(
    config: &NodeConfig,
    stores: &store::Stores,
) -> Result<streams::ImportedKeyShapes> {
    let mut shapes = HashMap::new();
    for domain in &config.hosts {
        let found = transfer::key_shapes(stores, domain).await.map_err(|e| anyhow!("{e}"))?;
        if !found.is_empty() {
            shapes.insert(domain.clone(), found);
        }
    }
    Ok(streams::ImportedKeyShapes(Arc::new(shapes)))
}

/// Loads the key of address hashes, and generates it at the first start. All nodes of one database share it.
async fn address_hasher(stores: &store::Stores) -> Result<cluster::AddressHasher> {
    let fresh = base::id::random_bytes::<16>();
    let key =
        stores.server_kv.put_if_absent(ADDRESS_HASH_KEY_SETTING, &fresh).await.map_err(|e| anyhow!("{e}"))?;
    let Ok(key) = key.try_into() else {
        bail!(
            "the setting {ADDRESS_HASH_KEY_SETTING} in the database does not have 16 bytes; delete it and \
             the node will generate another"
        );
    };
    Ok(cluster::AddressHasher::new(key))
}

impl AssembledNode {
    /// Context shared by the connections of one listener.
    pub(crate) fn service(
        &self,
        config: &NodeConfig,
        listen: &ListenConfig,
        tls: Option<Arc<net::tls::TlsConfig>>,
    ) -> Arc<C2sContext> {
        C2sContext::new(
            self.node.clone(),
            tls,
            config.policy(listen),
            &self.secret,
            config.domain().to_owned(),
        )
    }
}
