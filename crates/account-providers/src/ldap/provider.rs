//! Accounts of a directory: a search with the name of a service account finds the entry, and a bind with the entry's name checks
//! the password. Both kinds of connections are kept.
//!
//! Not implemented: a bind with a name that is built from the address, without a search. It could find an entry that the
//! filter excludes.
//!
//! # Pitfalls
//!
//! A filter that finds two entries is an error, not a choice: the password of either would log in to the same account.
//!
//! A directory compares names without case, and some without accents. What it finds must have the name of the account, as far
//! as the service account may read it, or `jose` could log in as `josé`, `jösé` and so on, each an account of its own.
//!
//! Without an entry there is no bind, whose time would tell a missing account from a wrong password. The answer waits as long
//! as one of the last binds took. A timer rounds up to a millisecond, which is longer than many binds take, so the answer to a
//! wrong password waits for a timer, too.

use std::sync::Arc;
use std::time::Duration;

use base::Secret;
use base::clock::Clock;
use base::lock::LeafMutex;
use environment::account_provider::{
    AccountProvider, MAX_VERSION_BYTES, PasswordCheck, ProvidedAccount, ProviderCapabilities, ProviderError,
    ProviderErrorKind, ProviderFuture, check_new_password,
};
use jid::{Jid, JidRef};
use ring::digest;

use super::connection::{LdapConnection, LdapFailure, LdapServer};
use super::filter::{FilterTemplate, FilterValues};
use super::message::{LdapEntry, LdapRequest, LdapResult};
use crate::account_name::named_account;
use crate::limiter::{RequestLimiter, RequestLimits};
use crate::password_cache::PasswordCache;

/// Kept connections of each kind.
const MAX_IDLE: usize = 16;

// RFC 4511, appendix A.1.
const SUCCESS: u32 = 0;
const CONSTRAINT_VIOLATION: u32 = 19;
const NO_SUCH_OBJECT: u32 = 32;
const INAPPROPRIATE_AUTHENTICATION: u32 = 48;
const INVALID_CREDENTIALS: u32 = 49;
const INSUFFICIENT_ACCESS_RIGHTS: u32 = 50;
const BUSY: u32 = 51;
const UNAVAILABLE: u32 = 52;
const UNWILLING_TO_PERFORM: u32 = 53;

/// Settings of a directory.
#[derive(Clone)]
pub struct LdapSettings {
    /// Where it is.
    pub server: LdapServer,
    /// Name and password of the service account that searches; anonymous if there is none.
    pub bind: Option<(String, Secret)>,
    /// Distinguished name of the subtree with the users.
    pub base_dn: String,
    /// Finds the entry of an account.
    pub filter: FilterTemplate,
    /// Attribute whose presence, with another value than `FALSE` or `0`, disables an account.
    pub disabled_attribute: Option<String>,
    /// Attribute that changes with the password, such as `pwdChangedTime` or `pwdLastSet`.
    pub version_attribute: Option<String>,
    /// Whether the service account may change passwords (RFC 3062).
    pub set_password: bool,
    /// Time for which a right password is remembered.
    pub cache: Duration,
    /// Limits of requests.
    pub limits: RequestLimits,
}

/// What a connection is bound as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LdapIdentity {
    /// The service account.
    Service,
    /// The user of the last bind.
    User,
}

/// Accounts of a directory.
pub struct LdapAccounts {
    settings: LdapSettings,
    /// Attributes that the filter compares with the name of the account.
    name_attributes: Vec<String>,
    source: String,
    cache: PasswordCache,
    limiter: RequestLimiter,
    /// Connections of the service account.
    searching: LeafMutex<Vec<LdapConnection>>,
    /// Connections on which passwords are checked, each with the name of its last bind.
    checking: LeafMutex<Vec<LdapConnection>>,
    clock: Arc<dyn Clock>,
    bind_times: LeafMutex<BindTimes>,
}

/// How long the last binds of users took, in microseconds.
#[derive(Default)]
struct BindTimes {
    micros: [u64; 16],
    count: usize,
}

impl BindTimes {
    fn record(&mut self, micros: u64) {
        let at = self.count % self.micros.len();
        self.micros[at] = micros;
        self.count = self.count.wrapping_add(1).max(1);
    }

    /// One of them; `None` before the first bind.
    fn sample(&self) -> Option<u64> {
        let known = self.count.min(self.micros.len());
        let [random] = base::id::random_bytes::<1>();
        self.micros.get(usize::from(random).checked_rem(known)?).copied()
    }
}

impl LdapAccounts {
    /// No connection is made yet.
    pub fn new(settings: LdapSettings, clock: Arc<dyn Clock>) -> LdapAccounts {
        LdapAccounts {
            name_attributes: settings.filter.name_attributes(),
            source: settings.server.to_string(),
            cache: PasswordCache::new(settings.cache, clock.clone()),
            limiter: RequestLimiter::new(settings.limits),
            clock,
            bind_times: LeafMutex::default(),
            searching: LeafMutex::default(),
            checking: LeafMutex::default(),
            settings,
        }
    }

    /// Runs a request on a kept connection, or on another one if that was closed.
    async fn request(
        &self,
        identity: LdapIdentity,
        request: &LdapRequest<'_>,
    ) -> Result<(Vec<LdapEntry>, LdapResult), ProviderError> {
        let server = &self.settings.server;
        let kept = match identity {
            LdapIdentity::Service => &self.searching,
            LdapIdentity::User => &self.checking,
        };
        let pop = || kept.lock().pop();
        while let Some(mut connection) = pop() {
            match connection.request(server, request).await {
                Ok(done) => {
                    self.keep(kept, connection);
                    return Ok(done);
                }
                Err(LdapFailure::Closed) => {}
                Err(LdapFailure::Failed(error)) => return Err(error),
            }
        }
        let closed =
            |_: LdapFailure| server.error(ProviderErrorKind::InvalidResponse, "the connection was closed");
        let failed = |failure| match failure {
            LdapFailure::Failed(error) => error,
            LdapFailure::Closed => closed(failure),
        };
        // Boxed: handshakes are large and rare.
        let mut connection = Box::pin(LdapConnection::connect(server)).await?;
        if identity == LdapIdentity::Service
            && let Some((name, password)) = &self.settings.bind
        {
            let (_, result) =
                connection.request(server, &LdapRequest::Bind { name, password }).await.map_err(failed)?;
            if result.code != SUCCESS {
                let text = format!(
                    "the service account {name} cannot log in: {} ({})",
                    result.diagnostic, result.code
                );
                return Err(server.error(ProviderErrorKind::Unavailable, text));
            }
        }
        let done = connection.request(server, request).await.map_err(failed)?;
        self.keep(kept, connection);
        Ok(done)
    }

    fn keep(&self, kept: &LeafMutex<Vec<LdapConnection>>, connection: LdapConnection) {
        let mut kept = kept.lock();
        if kept.len() < MAX_IDLE {
            kept.push(connection);
        }
    }

    /// The entry of an account.
    async fn entry(&self, account: &Jid) -> Result<Option<LdapEntry>, ProviderError> {
        let settings = &self.settings;
        let user = account.local().unwrap_or_default();
        let filter = settings.filter.fill(FilterValues { user, domain: account.domain() });
        // 1.1: no attributes (RFC 4511, section 4.5.1.8).
        let mut attributes: Vec<&str> = settings
            .disabled_attribute
            .iter()
            .chain(&settings.version_attribute)
            .chain(&self.name_attributes)
            .map(String::as_str)
            .collect();
        if attributes.is_empty() {
            attributes.push("1.1");
        }
        let seconds = settings.limits.deadline.as_secs().clamp(1, 60);
        let request = LdapRequest::Search {
            base: &settings.base_dn,
            filter: &filter,
            attributes: &attributes,
            size_limit: 2,
            time_limit: u32::try_from(seconds).unwrap_or(60),
        };
        let (mut entries, result) = self.request(LdapIdentity::Service, &request).await?;
        entries.retain(|entry| self.is_entry_of(entry, account));
        match (result.code, entries.len()) {
            (SUCCESS, 0) => Ok(None),
            (SUCCESS, 1) if !entries[0].name.is_empty() => Ok(entries.pop()),
            (NO_SUCH_OBJECT, _) => Err(settings
                .server
                .error(ProviderErrorKind::Unavailable, format!("{} does not exist", settings.base_dn))),
            // 4: sizeLimitExceeded.
            (SUCCESS | 4, _) => {
                let text = format!("the filter finds several entries for {account}");
                Err(settings.server.error(ProviderErrorKind::InvalidResponse, text))
            }
            _ => Err(self.refused("a search", &result)),
        }
    }

    /// Whether the entry has the name of the account, or none that could be an account's.
    fn is_entry_of(&self, entry: &LdapEntry, account: &Jid) -> bool {
        let values = self.name_attributes.iter().flat_map(|attribute| entry.values(attribute));
        let names =
            values.filter_map(|value| named_account(std::str::from_utf8(value).ok()?, account.domain()));
        let mut has_other = false;
        for name in names {
            if name == *account {
                return true;
            }
            has_other = true;
        }
        !has_other
    }

    fn refused(&self, what: &str, result: &LdapResult) -> ProviderError {
        let kind = match result.code {
            BUSY | UNAVAILABLE => ProviderErrorKind::Unavailable,
            _ => ProviderErrorKind::InvalidResponse,
        };
        self.settings.server.error(kind, format!("{what} failed with {}: {}", result.code, result.diagnostic))
    }

    fn account(&self, entry: &LdapEntry) -> ProvidedAccount {
        let values = |name: &Option<String>| name.as_deref().map_or(&[][..], |name| entry.values(name));
        let disabled = values(&self.settings.disabled_attribute)
            .iter()
            .any(|value| !value.eq_ignore_ascii_case(b"FALSE") && value != b"0");
        // An entry without the attribute has no version: it would be the same before and after a change of the password.
        let mut versions: Vec<&Vec<u8>> = values(&self.settings.version_attribute).iter().collect();
        versions.sort_unstable();
        let version = (!versions.is_empty()).then(|| {
            let mut context = digest::Context::new(&digest::SHA256);
            for value in versions {
                context.update(&(value.len() as u64).to_be_bytes());
                context.update(value);
            }
            let mut hash = context.finish().as_ref().to_vec();
            hash.truncate(MAX_VERSION_BYTES);
            hash
        });
        ProvidedAccount { disabled, credentials: None, version }
    }

    async fn check(&self, account: &Jid, password: &Secret) -> Result<PasswordCheck, ProviderError> {
        let started = self.clock.now_micros();
        let Some(entry) = self.entry(account).await? else {
            let search = self.clock.now_micros().saturating_sub(started);
            // Before the first bind: as long as the search, which is another request to the same directory.
            let pause = self.bind_times.lock().sample().unwrap_or(search);
            tokio::time::sleep(Duration::from_micros(pause)).await;
            return Ok(PasswordCheck::Invalid);
        };
        let request = LdapRequest::Bind { name: &entry.name, password };
        let started = self.clock.now_micros();
        let (_, result) = self.request(LdapIdentity::User, &request).await?;
        self.bind_times.lock().record(self.clock.now_micros().saturating_sub(started));
        match result.code {
            SUCCESS => Ok(PasswordCheck::Valid(self.account(&entry))),
            INVALID_CREDENTIALS
            | INAPPROPRIATE_AUTHENTICATION
            | NO_SUCH_OBJECT
            | INSUFFICIENT_ACCESS_RIGHTS
            | UNWILLING_TO_PERFORM => {
                tokio::time::sleep(Duration::ZERO).await;
                Ok(PasswordCheck::Invalid)
            }
            _ => Err(self.refused("a bind", &result)),
        }
    }
}

impl AccountProvider for LdapAccounts {
    fn name(&self) -> &'static str {
        "an LDAP directory"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities {
            passwords: true,
            lookup: true,
            versions: self.settings.version_attribute.is_some(),
            set_password: self.settings.set_password,
            ..ProviderCapabilities::default()
        }
    }

    fn find(&self, account: JidRef<'_>) -> ProviderFuture<'_, Option<ProvidedAccount>> {
        let account = account.bare().to_jid();
        Box::pin(async move {
            let found = self.limiter.run(&self.source, account.domain(), self.entry(&account)).await?;
            Ok(found.map(|entry| self.account(&entry)))
        })
    }

    fn check_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, PasswordCheck> {
        let account = account.bare().to_jid();
        Box::pin(async move {
            if password.is_empty() || password.expose().contains(&0) {
                return Ok(PasswordCheck::Invalid);
            }
            let check =
                Box::pin(self.limiter.run(&self.source, account.domain(), self.check(&account, &password)));
            self.cache.get_or_check(account.as_ref(), &password, check).await
        })
    }

    fn set_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        let account = account.bare().to_jid();
        Box::pin(async move {
            if !self.settings.set_password {
                return Err(ProviderError::not_supported(self.name(), "change passwords"));
            }
            check_new_password(&password)?;
            let change = async {
                let missing =
                    || ProviderError::new(ProviderErrorKind::NotFound, format!("{account} does not exist"));
                let entry = self.entry(&account).await?.ok_or_else(missing)?;
                let request = LdapRequest::SetPassword { name: &entry.name, password: &password };
                let (_, result) = self.request(LdapIdentity::Service, &request).await?;
                match result.code {
                    SUCCESS => Ok(()),
                    NO_SUCH_OBJECT => Err(missing()),
                    CONSTRAINT_VIOLATION => {
                        let text = "the password does not follow the rules of the directory";
                        Err(ProviderError::new(ProviderErrorKind::PasswordRefused, text))
                    }
                    _ => Err(self.refused("the change of a password", &result)),
                }
            };
            let _change = self.cache.begin_change(account.as_ref());
            self.limiter.run(&self.source, account.domain(), change).await
        })
    }
}
