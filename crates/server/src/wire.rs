//! Puts a node together from its configuration.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use base::Secret;
use base::clock::{Clock, SystemClock};
use cluster::SingleNode;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use store::observed::Operations;
use store_sql::SqlStores;
use streams::Service;
use throng_core::kept::Kept;
use throng_core::metrics::Metrics;
use throng_core::{Host, Hosts, Node};

use crate::config::{Config, Listen};
use crate::passwords::Keys;
use crate::runtime::Tasks;

/// A node and what belongs to it.
pub(crate) struct Wired {
    pub(crate) node: Arc<Node>,
    pub(crate) database: Arc<SqlStores>,
    /// What its operations cost.
    pub(crate) operations: Arc<Operations>,
    pub(crate) keys: Arc<Keys>,
    /// What features keep over reloads.
    pub(crate) kept: Kept,
    pub(crate) registry: Arc<Mutex<Registry>>,
    secret: Secret,
}

/// Opens the database of a configuration; `create` makes one where there is none.
pub(crate) async fn open_database(config: &Config, tasks: &Tasks, create: bool) -> Result<Arc<SqlStores>> {
    let options = store_sql::Options { create, pool_size: config.pool_size, ..store_sql::Options::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    SqlStores::open(&config.storage_url, &options, clock, tasks).await.map_err(|e| anyhow!("{e}"))
}

/// Builds all hosts.
pub(crate) fn hosts(config: &Config, kept: &Kept) -> Result<Hosts> {
    let mut hosts = Hosts::new();
    for domain in &config.hosts {
        let enabled = features::registry::enable(&config.modules_of(domain)).map_err(|e| anyhow!("{e}"))?;
        let host = Host::build_with(domain, &enabled, &config.limits, kept)?;
        hosts.insert(host.domain().to_owned(), Arc::new(host));
    }
    Ok(hosts)
}

/// What the gate of the clients' listeners lets in.
pub(crate) fn gate_limits(limits: &throng_core::Limits) -> net::GateLimits {
    let rate = limits.new_connections_per_second;
    let burst = limits.new_connections_burst;
    net::GateLimits {
        connections: limits.connections,
        unauthenticated: limits.unauthenticated_connections,
        per_address: limits.connections_per_address,
        new_per_second: rate,
        new_on_loopback: limits.rates_on_loopback[5],
        new_burst: if burst == 0 { rate.saturating_mul(10) } else { burst },
    }
}

/// What a port lets its connections send.
pub(crate) fn port_limits(port: &mut net::Port, limits: &throng_core::Limits) {
    port.limits = limits.stanza();
    port.early_limits = limits.negotiation();
}

/// Loads certificates, or makes them.
pub(crate) fn tls(config: &Config) -> Result<Option<Arc<net::tls::Config>>> {
    let Some(settings) = tls_settings(config) else { return Ok(None) };
    let tls = net::tls::Config::load(settings).context("[tls]")?;
    for domain in tls.uncovered() {
        tracing::warn!(domain, "no certificate is good for this domain; clients will refuse to connect");
    }
    Ok(Some(Arc::new(tls)))
}

/// Where certificates are; nothing if no listener needs one.
pub(crate) fn tls_settings(config: &Config) -> Option<net::tls::Settings> {
    let wanted = config.listen.iter().any(|l| l.kind != net::Kind::Http && l.tls != streams::TlsPolicy::Off);
    wanted.then(|| net::tls::Settings {
        domains: config.hosts.clone(),
        certificates: config.tls.certificates.clone(),
        self_signed: config.data_dir.join("tls"),
        client_authorities: config.tls.client_authorities.clone(),
        server_authorities: None,
    })
}

/// Name of the setting with the key of login tokens and of the salts of unknown accounts.
const SERVER_SECRET: &str = "server-secret";
/// Name of the setting with the key of address hashes.
const ADDRESS_KEY: &str = "address-hash-key";

/// Puts the node together.
pub(crate) async fn wire(config: &Config, tasks: &Tasks) -> Result<Wired> {
    std::fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("the directory {} cannot be made", config.data_dir.display()))?;
    let kept = Kept::default();
    let hosts = hosts(config, &kept)?;
    let keys = Keys::new(config.scram_iterations);
    let database = open_database(config, tasks, true).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (stores, operations) = store::observed::observe(database.stores(), clock.clone());
    let fresh = base::id::random_bytes::<32>();
    let secret = stores.settings.put_if_absent(SERVER_SECRET, &fresh).await.map_err(|e| anyhow!("{e}"))?;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let configured: Vec<jid::Jid> = config.admins.iter().filter_map(|a| jid::Jid::parse(a).ok()).collect();
    let admins = features::administration::admins::settle(&*stores.settings, &configured).await;
    let admins = admins.map_err(|e| anyhow!("{e}"))?;
    if admins != configured {
        let list = admins.iter().map(jid::Jid::as_str).collect::<Vec<_>>().join(", ");
        tracing::info!(admins = list, "the administrators are those of the command edit-admin");
    }
    let hasher = address_hasher(&stores).await?;
    let node = Node::new(throng_core::Parts {
        hosts,
        stores,
        cluster: Arc::new(SingleNode::new(cluster::NodeId::new("node-1").context("a node name")?)),
        clock,
        spawner: Arc::new(tasks.clone()),
        metrics,
        limits: config.limits.clone(),
        hasher,
        admins,
        passwords: keys.clone(),
        version: env!("CARGO_PKG_VERSION"),
    });
    node.set_configured_admins(configured);
    let (registry, secret) = (Arc::new(Mutex::new(registry)), Secret::new(secret));
    Ok(Wired { node, database, operations, keys, kept, registry, secret })
}

/// Reads the key of address hashes, and makes it at the first start. All nodes of one database share it.
async fn address_hasher(stores: &store::Stores) -> Result<cluster::AddressHasher> {
    let fresh = base::id::random_bytes::<16>();
    let key = stores.settings.put_if_absent(ADDRESS_KEY, &fresh).await.map_err(|e| anyhow!("{e}"))?;
    let Ok(key) = key.try_into() else {
        bail!(
            "the setting {ADDRESS_KEY} in the database does not have 16 bytes; delete it, then the node makes another"
        );
    };
    Ok(cluster::AddressHasher::new(key))
}

impl Wired {
    /// What the connections of one listener share.
    pub(crate) fn service(
        &self,
        config: &Config,
        listen: &Listen,
        tls: Option<Arc<net::tls::Config>>,
    ) -> Arc<Service> {
        Service::new(self.node.clone(), tls, config.policy(listen), &self.secret, config.domain().to_owned())
    }
}
