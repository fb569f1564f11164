//! A virtual host: its domain, frozen hook chains and IQ table. The crate `feature-api` builds it from the
//! enabled features.
//!
//! A reload builds a new host and replaces the old one in the [`crate::domains`]; accounts with connected resources
//! find the newest with one load.
//!
//! # Pitfalls
//!
//! A deferred chain continues at an index, so it must continue with the host it started with.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::HostExtensions;
use declarations::{FeatureOptions, StreamFeatures};
use environment::account_provider::{AccountProvider, SharedAccountProvider};
use jid::Jid;

use crate::domain_counters::DomainCounters;
use crate::hooks::Hooks;
use crate::iq::IqTable;
use crate::message_backup::MessageBackup;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::service::Service;

/// What a host does besides handling stanzas; the crate that builds hosts provides it.
pub trait HostBackground: Send + Sync {
    /// A node will serve the host: adds its counters to the metrics.
    fn register_metrics(&self, host: &Host, metrics: &Metrics);

    /// Called once a second, with the second of the node's clock.
    fn sweep(&self, node: &Arc<Node>, host: &Arc<Host>, now: u32);
}

/// A virtual host.
pub struct Host {
    /// Its domain as an address.
    pub jid: Jid,
    /// Its hook chains.
    pub hooks: Hooks,
    /// Its request handlers.
    pub iq: IqTable,
    /// What features provide ([`crate::provided`]), and what crates above the engine keep in it, such as commands.
    pub extensions: HostExtensions,
    /// Its stream features, besides those of the negotiation.
    pub stream_features: StreamFeatures,
    /// A feature stores undelivered messages.
    pub stores_offline_messages: bool,
    /// Stores backups of messages that clients take slowly.
    pub message_backup: Option<Arc<dyn MessageBackup>>,
    /// Requests to a full address are delivered whether or not their sender may see its presence.
    pub iq_without_subscription: bool,
    /// Stanzas from and to its clients, and the number of clients.
    pub domain_counters: Arc<DomainCounters>,
    /// Its services, in registry order.
    pub services: Vec<Arc<Service>>,
    /// What it does besides handling stanzas.
    pub background: Option<Box<dyn HostBackground>>,
    /// Names of the enabled features, in registry order.
    pub features: Vec<&'static str>,
    /// Their options.
    pub options: BTreeMap<&'static str, FeatureOptions>,
}

impl Host {
    /// A host without features. `jid` is a domain.
    pub fn new(jid: Jid, domain_counters: Arc<DomainCounters>) -> Host {
        Host {
            jid,
            domain_counters,
            hooks: Hooks::default(),
            iq: IqTable::default(),
            extensions: HostExtensions::default(),
            stream_features: StreamFeatures::default(),
            stores_offline_messages: false,
            message_backup: None,
            iq_without_subscription: false,
            services: Vec::new(),
            background: None,
            features: Vec::new(),
            options: BTreeMap::new(),
        }
    }

    /// The options of an enabled feature, for the stream's own use.
    pub fn options(&self, feature: &str) -> Option<&FeatureOptions> {
        self.options.get(feature)
    }

    /// The provider of its accounts; `None` if their passwords are in the store.
    pub fn account_provider(&self) -> Option<&Arc<dyn AccountProvider>> {
        self.extensions.get::<SharedAccountProvider>().map(|provider| &provider.0)
    }

    /// The domain.
    pub fn domain(&self) -> &str {
        self.jid.as_ref().as_str()
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({})", self.jid)
    }
}

/// Hosts by domain.
pub type Hosts = BTreeMap<String, Arc<Host>>;
