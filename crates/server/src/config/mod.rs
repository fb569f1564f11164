//! Configuration file: TOML, with embedded defaults and overrides from the environment.
//!
//! Unknown keys are errors that suggest the nearest known one; all errors of a file are reported at once.
//! `THRONG__SECTION__KEY=value` overrides a key; the value is parsed as TOML, or used as text if it is not TOML.
//! Relative paths start at the working directory.
//!
//! # Pitfalls
//!
//! A reload (`reload.rs`) compares the values read here. A new key must be added there, with whether it needs a
//! restart.

mod account_provider;
pub(crate) mod cluster;
mod http;
mod limits;
mod listen;
mod modules;
pub(crate) mod reader;
mod renamed;
mod source;
pub(crate) mod storage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use reader::{ConfigErrors, ConfigSection};
use source::ConfigSource;
use streams::{AuthPolicy, NegotiationPolicy};
use throng_core::NodeLimits;

pub(crate) use self::cluster::ClusterConfig;
pub(crate) use account_provider::{ProviderConfig, read_secret, source_tls};
pub(crate) use http::HttpConfig;
pub(crate) use limits::changed_limits;
pub(crate) use listen::{ListenConfig, TlsFiles};
pub(crate) use modules::{HostConfig, Modules};

/// Format and level of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogConfig {
    pub(crate) level: String,
    pub(crate) json: bool,
}

/// URL of the database. It may contain a password, so it is not part of debug output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StorageUrl(pub(crate) String);

impl fmt::Debug for StorageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StorageUrl(…)")
    }
}

impl Deref for StorageUrl {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A database for accounts and their credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthDatabaseConfig {
    pub(crate) url: StorageUrl,
    pub(crate) password_file: Option<PathBuf>,
}

/// The complete configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeConfig {
    /// Domains of the virtual hosts; the first is the default.
    pub(crate) hosts: Vec<String>,
    /// Settings per host; all of them are in `hosts`.
    pub(crate) host: BTreeMap<String, HostConfig>,
    pub(crate) admins: Vec<String>,
    pub(crate) data_dir: PathBuf,
    pub(crate) storage_url: StorageUrl,
    /// File with the password of the database.
    pub(crate) storage_password_file: Option<PathBuf>,
    /// The database of `[auth]`, if accounts are not in that of `[storage]`.
    pub(crate) auth_database: Option<AuthDatabaseConfig>,
    /// The other nodes; none for a single node.
    pub(crate) cluster: Option<ClusterConfig>,
    /// Transactions that write at the same time, on a server.
    pub(crate) storage_writers: u32,
    /// Read connections that stay open while they are idle, on a server.
    pub(crate) storage_min_connections: u32,
    /// Seconds without use after which others are closed.
    pub(crate) storage_idle_seconds: u32,
    pub(crate) pool_size: u32,
    pub(crate) listen: Vec<ListenConfig>,
    pub(crate) http: HttpConfig,
    pub(crate) auth: AuthPolicy,
    /// Where accounts are kept; see [`NodeConfig::provider_of`].
    pub(crate) provider: ProviderConfig,
    pub(crate) tls: TlsFiles,
    pub(crate) scram_iterations: u32,
    pub(crate) limits: NodeLimits,
    /// Modules of all domains; see [`NodeConfig::modules_of`].
    pub(crate) modules: Modules,
    pub(crate) log: LogConfig,
    /// The file; without one the first start creates an administrator.
    pub(crate) path: Option<PathBuf>,
}

impl NodeConfig {
    /// Reads the file, or the embedded defaults, and the environment.
    pub(crate) fn load(path: Option<&Path>) -> Result<NodeConfig> {
        let text = read(path)?;
        let (mut table, mut source) = ConfigSource::read(&text, path.map(|path| path.display().to_string()));
        reader::overlay(&mut table, &mut source, std::env::vars())?;
        let mut config = NodeConfig::from_table(table, source)?;
        config.path = path.map(Path::to_path_buf);
        Ok(config)
    }

    #[cfg(test)]
    pub(crate) fn from_text(text: &str) -> Result<NodeConfig> {
        let (table, source) = ConfigSource::read(text, None);
        NodeConfig::from_table(table, source)
    }

    /// The admin socket of a node whose file may be invalid.
    pub(crate) fn socket_of(path: Option<&Path>) -> Result<PathBuf> {
        let (mut table, mut source) = ConfigSource::read(&read(path)?, None);
        reader::overlay(&mut table, &mut source, std::env::vars())?;
        let data_dir = table.get("data_dir").and_then(toml::Value::as_str).unwrap_or("data");
        Ok(Path::new(data_dir).join("throng.sock"))
    }

    fn from_table(mut table: toml::Table, mut source: ConfigSource) -> Result<NodeConfig> {
        renamed::refuse(&mut table, &mut source);
        let faults = ConfigErrors::new(source);
        let mut root = ConfigSection::root(table, &faults);
        let hosts = virtual_hosts(&mut root);
        let first = hosts.first().cloned().unwrap_or_default();
        let admins = root.texts("admins").unwrap_or_else(|| vec![format!("admin@{first}")]);
        for (number, admin) in admins.iter().enumerate() {
            let jid = jid::Jid::parse(admin).ok();
            if jid.is_none_or(|jid| !jid.as_ref().is_bare() || jid.local().is_none()) {
                let fault =
                    format!("\"{admin}\" in admins is not a valid address; write one such as admin@{first}");
                root.fault_at("admins", number, fault);
            }
        }
        let data_dir = PathBuf::from(root.text("data_dir").unwrap_or_else(|| "data".to_owned()));

        let mut storage = root.section("storage");
        let storage_url =
            storage.text("url").unwrap_or_else(|| format!("sqlite:{}", data_dir.join("throng.db").display()));
        let storage_password_file = storage.text("password_file").map(PathBuf::from);
        let pool_size = storage.int("pool_size", 1, 1000).unwrap_or(12) as u32;
        let storage_min_connections = storage::min_connections(&mut storage, pool_size);
        let storage_idle_seconds = storage.int("idle_timeout_seconds", 1, 86_400).unwrap_or(600) as u32;
        let storage_writers = storage.int("writers", 1, 64).unwrap_or(4) as u32;
        storage::check_password(&storage, &storage_url, storage_password_file.as_deref());
        storage.finish();

        let mut section = root.section("auth");
        let auth_database = storage::auth_database(&mut section, &storage_url);
        let scram_iterations = section.int("scram_iterations", 4096, 1_000_000);
        let scram_iterations = scram_iterations.unwrap_or(i64::from(sasl::DEFAULT_ITERATIONS)) as u32;
        let auth = listen::auth(&mut section, listen::default_auth());
        let provider = account_provider::provider(&mut section, &ProviderConfig::Store);
        section.finish();

        let cluster = cluster::cluster(&mut root, &storage_url);
        let limits = limits::limits(root.section("limits"));
        let tls = listen::tls(root.section("tls"));
        let listen = listen::listeners(&mut root);
        let http = http::http(root.section("http"), &limits);
        http::check_consistency(&http, &listen, cluster.is_some(), &faults);
        let modules = modules::modules(&mut root);
        let host = modules::hosts(&mut root, &hosts, auth, &provider);
        let mut log = root.section("log");
        let level = log.text("level").unwrap_or_else(|| "info".to_owned());
        faults.record_error(&log.path("level"), crate::logs::filter(&level));
        let json = log.choice("format", &["text", "json"]) == Some(1);
        log.finish();
        root.finish();
        faults.check()?;
        Ok(NodeConfig {
            hosts,
            host,
            admins,
            data_dir,
            storage_url: StorageUrl(storage_url),
            storage_password_file,
            auth_database,
            cluster,
            storage_writers,
            storage_min_connections,
            storage_idle_seconds,
            pool_size,
            listen,
            http,
            auth,
            provider,
            tls,
            scram_iterations,
            limits,
            modules,
            log: LogConfig { level, json },
            path: None,
        })
    }

    /// The default domain.
    pub(crate) fn domain(&self) -> &str {
        self.hosts.first().map_or("localhost", String::as_str)
    }

    /// The admin socket of a node with this configuration.
    pub(crate) fn socket(&self) -> PathBuf {
        self.data_dir.join("throng.sock")
    }

    /// The modules of one domain.
    pub(crate) fn modules_of(&self, domain: &str) -> Modules {
        match self.host.get(domain) {
            Some(own) => modules::merge(&self.modules, &own.modules),
            None => self.modules.clone(),
        }
    }

    /// Where the accounts of one domain are kept.
    pub(crate) fn provider_of(&self, domain: &str) -> &ProviderConfig {
        self.host.get(domain).map_or(&self.provider, |own| &own.provider)
    }

    /// Domains whose accounts a provider keeps.
    pub(crate) fn provided_domains(&self) -> Vec<String> {
        let provided = |domain: &&String| *self.provider_of(domain) != ProviderConfig::Store;
        self.hosts.iter().filter(provided).cloned().collect()
    }

    /// The login policy for clients of a listener.
    pub(crate) fn policy(&self, listen: &ListenConfig) -> NegotiationPolicy {
        NegotiationPolicy {
            tls: listen.tls,
            allow_plain_without_tls: listen.allow_plain_without_tls,
            allow_anonymous: self.auth.allow_anonymous,
            mechanisms: self.auth.mechanisms,
            scram_iterations: self.scram_iterations,
            domains: self.host.iter().map(|(name, own)| (name.clone(), own.auth)).collect(),
        }
    }
}

/// The text of the file; empty without one.
fn read(path: Option<&Path>) -> Result<String> {
    let Some(path) = path else { return Ok(String::new()) };
    std::fs::read_to_string(path).with_context(|| format!("cannot read the configuration {}", path.display()))
}

/// The virtual hosts, normalised.
fn virtual_hosts(root: &mut ConfigSection) -> Vec<String> {
    let mut domains = Vec::new();
    let all = root.texts("hosts").unwrap_or_else(|| vec!["localhost".to_owned()]);
    if all.is_empty() {
        root.fault("hosts", "hosts is empty; add at least one domain");
    }
    for (number, written) in all.into_iter().enumerate() {
        match jid::Jid::parse(&written).ok().filter(|j| j.as_ref().is_domain()) {
            Some(parsed) => domains.push(parsed.to_string()),
            None => {
                root.fault_at("hosts", number, format!("\"{written}\" in hosts is not a valid domain"));
            }
        }
    }
    domains
}
