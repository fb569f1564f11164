//! The account providers of a node, made from its configuration. A reload keeps those whose configuration and files are
//! unchanged, with their connections and caches.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use account_providers::http_service::{HttpAccounts, HttpServiceSettings};
use account_providers::jwt::{JwtAccounts, KeySource, KeySourceSettings};
use account_providers::ldap::{LdapAccounts, LdapEncryption, LdapServer, LdapSettings};
use account_providers::metrics::{MeasuredProvider, ProviderMetrics};
use account_providers::sql::{SqlAccounts, SqlSettings};
use anyhow::{Context, Result, anyhow};
use base::clock::{Clock, SystemClock};
use base::lock::LeafMutex;
use store_sql::{ForeignDatabase, ForeignDatabaseOptions};
use throng_core::Host;
use throng_core::account_provider::{AccountProvider, SharedAccountProvider};
use tokio::runtime::Handle;

use crate::config::{NodeConfig, ProviderConfig, read_secret, source_tls};
use crate::foreign_table::SqlForeignTable;
use crate::runtime::{self, TokioSpawner};

/// Providers by configuration.
#[derive(Default)]
pub(crate) struct AccountProviders {
    open: LeafMutex<Vec<OpenProvider>>,
    /// Key of [`OpenProvider::files`].
    file_hash: RandomState,
    /// Metrics of all of them.
    pub(crate) metrics: Arc<ProviderMetrics>,
}

struct OpenProvider {
    config: ProviderConfig,
    /// Hash of the content of its files, so that a reload finds a new key or password.
    files: u64,
    provider: Arc<dyn AccountProvider>,
}

impl AccountProviders {
    /// The provider of a domain; `None` if its accounts are in the store.
    pub(crate) fn of(&self, config: &NodeConfig, domain: &str) -> Result<Option<SharedAccountProvider>> {
        let wanted = config.provider_of(domain);
        if *wanted == ProviderConfig::Store {
            return Ok(None);
        }
        let contents: Vec<_> = wanted.files().into_iter().map(|path| std::fs::read(path).ok()).collect();
        let files = self.file_hash.hash_one(contents);
        let is_same = |known: &&OpenProvider| known.config == *wanted && known.files == files;
        let known = self.open.lock().iter().find(is_same).map(|known| known.provider.clone());
        if let Some(known) = known {
            return Ok(Some(SharedAccountProvider(known)));
        }
        let opened = open(wanted).with_context(|| format!("the account provider of {domain}"))?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let opened: Arc<dyn AccountProvider> =
            Arc::new(MeasuredProvider::new(opened, self.metrics.clone(), clock));
        let config = wanted.clone();
        self.open.lock().push(OpenProvider { config, files, provider: opened.clone() });
        Ok(Some(SharedAccountProvider(opened)))
    }

    /// Closes those that no host uses.
    pub(crate) fn retain(&self, hosts: &[Arc<Host>]) {
        let used: Vec<_> = hosts.iter().filter_map(|host| host.account_provider()).collect();
        self.open.lock().retain(|known| used.iter().any(|used| Arc::ptr_eq(used, &known.provider)));
    }
}

/// Makes a provider. Nothing is connected yet, but files are read.
fn open(config: &ProviderConfig) -> Result<Arc<dyn AccountProvider>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    Ok(match config {
        ProviderConfig::Store => return Err(anyhow!("the store is no account provider")),
        ProviderConfig::Http(http) => {
            let token = http.token_file.as_deref().map(read_secret).transpose()?;
            let tls = source_tls(&http.source, http.url.is_encrypted())?;
            let settings = HttpServiceSettings {
                url: http.url.clone(),
                token,
                operations: http.operations,
                cache: http.source.cache,
                limits: http.source.limits,
            };
            Arc::new(HttpAccounts::new(&settings, tls, clock).map_err(|error| anyhow!("{error}"))?)
        }
        ProviderConfig::Jwt(jwt) => {
            let encrypted = matches!(&jwt.keys, KeySourceSettings::Url(url) if url.is_encrypted());
            let tls = source_tls(&jwt.source, encrypted)?;
            let keys = KeySource::open(&jwt.keys, tls, jwt.source.limits, clock.clone());
            Arc::new(JwtAccounts::new(jwt.settings.clone(), keys.map_err(|error| anyhow!("{error}"))?, clock))
        }
        ProviderConfig::Ldap(ldap) => {
            let server = LdapServer::parse(&ldap.url, ldap.start_tls).map_err(|error| anyhow!("{error}"))?;
            let tls = source_tls(&ldap.source, server.encryption != LdapEncryption::None)?;
            let bind = match &ldap.bind {
                Some((name, file)) => Some((name.clone(), read_secret(file)?)),
                None => None,
            };
            let settings = LdapSettings {
                server: LdapServer { tls, ..server },
                bind,
                base_dn: ldap.base_dn.clone(),
                filter: ldap.filter.clone(),
                disabled_attribute: ldap.disabled_attribute.clone(),
                version_attribute: ldap.version_attribute.clone(),
                set_password: ldap.set_password,
                cache: ldap.source.cache,
                limits: ldap.source.limits,
            };
            Arc::new(LdapAccounts::new(settings, clock))
        }
        ProviderConfig::Sql(sql) => {
            let limits = sql.source.limits;
            let options = ForeignDatabaseOptions {
                password_file: sql.password_file.clone(),
                connections: u32::try_from(limits.in_progress).unwrap_or(u32::MAX),
                deadline: limits.deadline,
                writes: sql.create.is_some() || sql.set_password.is_some() || sql.remove.is_some(),
            };
            let database = ForeignDatabase::open(&sql.url, &options, clock.clone());
            let table = SqlForeignTable(database.map_err(|error| anyhow!("{error}"))?);
            let settings = SqlSettings {
                find: sql.find.clone(),
                create: sql.create.clone(),
                set_password: sql.set_password.clone(),
                remove: sql.remove.clone(),
                new_passwords: sql.new_passwords,
                scram: sql.scram,
                hashes_in_progress: runtime::cores(),
                cache: sql.source.cache,
                limits,
            };
            let tasks = TokioSpawner::new(Handle::try_current().context("hashes need the runtime")?);
            Arc::new(SqlAccounts::new(settings, Arc::new(table), Arc::new(tasks), clock))
        }
    })
}
