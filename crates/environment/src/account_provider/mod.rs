//! Accounts of a domain that are kept elsewhere: in a foreign SQL table, in an LDAP directory, in an HTTP service, or
//! in the tokens of an identity provider (RFC 7519). One trait for all of them.
//!
//! A provider decides who may log in. Everything else of an account (roster, offline messages, login tokens) stays in
//! the store, where the first login creates a record without a password. A domain without a
//! provider has its passwords in the store, too.
//!
//! The implementations are in the crate `account-providers`, the suite that each of them passes in [`conformance`], and an
//! account provider in memory for other tests in [`memory`].
//!
//! # Pitfalls
//!
//! A provider that fails must never authenticate: every result other than [`PasswordCheck::Valid`] and
//! [`TokenCheck::Valid`] refuses the login, and an error is reported to the client as `temporary-auth-failure`, never as
//! `not-authorized`, because clients then forget a password that is right.

pub mod conformance;
pub mod memory;

use std::fmt;
use std::sync::Arc;

use base::Secret;
use base::host_extension::Provided;
use base::spawn::BoxFuture;
use jid::{Jid, JidRef};

/// Return type of every call: a boxed future that borrows only the provider. Arguments passed by reference are copied before
/// the method returns. It ends within the deadline of the provider.
pub type ProviderFuture<'a, T> = BoxFuture<'a, Result<T, ProviderError>>;

/// What a provider can do. A call of another operation fails with [`ProviderErrorKind::NotSupported`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ProviderCapabilities {
    /// [`AccountProvider::check_password`]: SASL PLAIN is offered.
    pub passwords: bool,
    /// [`AccountProvider::check_token`]: SASL OAUTHBEARER is offered.
    pub tokens: bool,
    /// [`AccountProvider::find`].
    pub lookup: bool,
    /// SCRAM mechanisms, such as `SCRAM-SHA-256`, for which [`ProvidedAccount::credentials`] has keys: these are offered. Not
    /// empty implies `lookup`.
    pub scram: &'static [&'static str],
    /// [`ProvidedAccount::version`] is present, so that login tokens (XEP-0484) end with the password for which they were
    /// issued; an account without one has no tokens. Implies `lookup`.
    pub versions: bool,
    /// [`AccountProvider::create`].
    pub create: bool,
    /// [`AccountProvider::set_password`].
    pub set_password: bool,
    /// [`AccountProvider::remove`].
    pub remove: bool,
}

/// What a client sees of SCRAM keys before its proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScramParameters {
    /// Length of a salt.
    pub salt_bytes: usize,
    /// Iterations of PBKDF2.
    pub iterations: u32,
}

/// An account as its provider reports it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ProvidedAccount {
    /// Login is refused, although the password may be right.
    pub disabled: bool,
    /// SCRAM keys, encoded by `sasl`; `None` if the account has none.
    pub credentials: Option<ProvidedKeys>,
    /// Changes with the password. At most [`MAX_VERSION_BYTES`]; nothing from which the password could be guessed.
    pub version: Option<Vec<u8>>,
}

/// Maximum length of [`ProvidedAccount::version`].
pub const MAX_VERSION_BYTES: usize = 32;

/// Encoded SCRAM keys; not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ProvidedKeys(pub Vec<u8>);

impl fmt::Debug for ProvidedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProvidedKeys(…)")
    }
}

/// Result of [`AccountProvider::check_password`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PasswordCheck {
    /// The password is that of the account.
    Valid(ProvidedAccount),
    /// It is not, or there is no such account.
    Invalid,
}

/// Result of [`AccountProvider::check_token`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenCheck {
    /// The token is valid and names this account, whose address is bare and of the requested domain.
    Valid(Jid, ProvidedAccount),
    /// It is invalid, has expired, or names no account of the domain.
    Invalid,
}

/// Kinds of errors that callers distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ProviderErrorKind {
    /// It cannot be reached, or refuses this server.
    Unavailable,
    /// The deadline has passed.
    Timeout,
    /// Too many requests are in progress; nothing was attempted.
    Overloaded,
    /// The response breaks the protocol or the agreement about its content.
    InvalidResponse,
    /// The provider cannot do this.
    NotSupported,
    /// The account to create exists already.
    AlreadyExists,
    /// The account does not exist.
    NotFound,
    /// The password is refused by a rule of the provider; the text of the error may be shown to the user.
    PasswordRefused,
}

impl ProviderErrorKind {
    /// Every kind, in order of declaration.
    pub const ALL: [ProviderErrorKind; 8] = [
        ProviderErrorKind::Unavailable,
        ProviderErrorKind::Timeout,
        ProviderErrorKind::Overloaded,
        ProviderErrorKind::InvalidResponse,
        ProviderErrorKind::NotSupported,
        ProviderErrorKind::AlreadyExists,
        ProviderErrorKind::NotFound,
        ProviderErrorKind::PasswordRefused,
    ];

    /// Name for metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            ProviderErrorKind::Unavailable => "unavailable",
            ProviderErrorKind::Timeout => "timeout",
            ProviderErrorKind::Overloaded => "overloaded",
            ProviderErrorKind::InvalidResponse => "invalid-response",
            ProviderErrorKind::NotSupported => "not-supported",
            ProviderErrorKind::AlreadyExists => "already-exists",
            ProviderErrorKind::NotFound => "not-found",
            ProviderErrorKind::PasswordRefused => "password-refused",
        }
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            ProviderErrorKind::Unavailable
                | ProviderErrorKind::Timeout
                | ProviderErrorKind::Overloaded
                | ProviderErrorKind::InvalidResponse
        )
    }
}

/// A failed call: its kind and one sentence for the log. The sentence contains no password and no token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct ProviderError {
    /// For decisions of callers.
    pub kind: ProviderErrorKind,
    /// One sentence for operators; users see it only with [`ProviderErrorKind::PasswordRefused`].
    pub text: String,
}

impl ProviderError {
    /// An error of this kind.
    pub fn new(kind: ProviderErrorKind, text: impl Into<String>) -> ProviderError {
        ProviderError { kind, text: text.into() }
    }

    /// The error of an operation that a provider does not have, such as `create accounts`.
    pub fn not_supported(provider: &str, operation: &str) -> ProviderError {
        let text = format!("accounts of this domain are kept by {provider}, which cannot {operation}");
        ProviderError::new(ProviderErrorKind::NotSupported, text)
    }
}

/// The accounts of one domain or several.
pub trait AccountProvider: Send + Sync {
    /// Its kind for logs and error texts, such as `LDAP`.
    fn name(&self) -> &'static str;

    /// What it can do. Constant for the lifetime of the provider.
    fn capabilities(&self) -> ProviderCapabilities;

    /// Parameters of the SCRAM keys of its accounts, which those of a missing account must have, too: otherwise everybody
    /// could tell which accounts exist. `None`: those of this server.
    fn scram_parameters(&self) -> Option<ScramParameters> {
        None
    }

    /// The account with this bare address, or `None`.
    fn find(&self, account: JidRef<'_>) -> ProviderFuture<'_, Option<ProvidedAccount>> {
        let _ = account;
        refuse(self.name(), "look up accounts")
    }

    /// Whether the password is that of the account. A disabled account is [`PasswordCheck::Valid`] with its right password
    /// where the provider distinguishes the two.
    fn check_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, PasswordCheck> {
        let _ = (account, password);
        refuse(self.name(), "check passwords")
    }

    /// The account that a bearer token (RFC 6750) authorises for this domain. A token for another domain is invalid.
    fn check_token(&self, domain: &str, token: Secret) -> ProviderFuture<'_, TokenCheck> {
        let _ = (domain, token);
        refuse(self.name(), "check tokens")
    }

    /// Creates an account. Fails with `AlreadyExists`.
    fn create(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        let _ = (account, password);
        refuse(self.name(), "create accounts")
    }

    /// Replaces the password. Fails with `NotFound`.
    fn set_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        let _ = (account, password);
        refuse(self.name(), "change passwords")
    }

    /// Removes an account. Fails with `NotFound`.
    fn remove(&self, account: JidRef<'_>) -> ProviderFuture<'_, ()> {
        let _ = account;
        refuse(self.name(), "remove accounts")
    }
}

/// Refuses a new password that no login could use: every provider calls it before anything else. With an empty one, a directory
/// would choose a password (RFC 3062, section 2) or have an account without one.
///
/// # Errors
/// `PasswordRefused`.
pub fn check_new_password(password: &Secret) -> Result<(), ProviderError> {
    match password.is_empty() || password.expose().contains(&0) {
        true => {
            let text = "the password is empty or contains U+0000";
            Err(ProviderError::new(ProviderErrorKind::PasswordRefused, text))
        }
        false => Ok(()),
    }
}

fn refuse<T: Send + 'static>(provider: &'static str, operation: &'static str) -> ProviderFuture<'static, T> {
    Box::pin(async move { Err(ProviderError::not_supported(provider, operation)) })
}

/// The provider of a host, among its extensions. A host without one has its passwords in the store.
#[derive(Clone)]
pub struct SharedAccountProvider(pub Arc<dyn AccountProvider>);

impl Provided for SharedAccountProvider {
    const NAME: &'static str = "an account provider";
}

impl fmt::Debug for SharedAccountProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedAccountProvider({})", self.0.name())
    }
}

/// Marker of the credentials of an account in the store whose password is kept by a provider. `sasl` reads no keys from it:
/// their first byte is the version of their encoding, which is never 0.
const EXTERNAL: u8 = 0;

/// Credentials to store for an account of a provider: no keys, only the version of its password.
pub fn external_credentials(version: Option<&[u8]>) -> Vec<u8> {
    let version = version.unwrap_or_default();
    let mut credentials = Vec::with_capacity(1 + version.len().min(MAX_VERSION_BYTES));
    credentials.push(EXTERNAL);
    credentials.extend(version.iter().take(MAX_VERSION_BYTES));
    credentials
}

/// Whether the credentials are those of an account whose password is kept by a provider.
pub fn is_external(credentials: &[u8]) -> bool {
    credentials.first() == Some(&EXTERNAL)
}

/// The version of the password in credentials written by [`external_credentials`]; `None` for SCRAM keys, and if no version
/// was reported.
pub fn external_version(credentials: &[u8]) -> Option<&[u8]> {
    credentials.get(1..).filter(|version| is_external(credentials) && !version.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl AccountProvider for Nothing {
        fn name(&self) -> &'static str {
            "nobody"
        }

        fn capabilities(&self) -> ProviderCapabilities {
            ProviderCapabilities::default()
        }
    }

    #[test]
    fn operations_that_a_provider_does_not_have_are_refused() {
        let romeo = Jid::parse("romeo@example.net").unwrap();
        let (jid, secret) = (romeo.as_ref(), || Secret::from("x"));
        let kind = |error: ProviderError| {
            assert!(error.text.contains("nobody"), "{error}");
            error.kind
        };
        let refused = [
            kind(conformance::ready(Nothing.find(jid)).unwrap_err()),
            kind(conformance::ready(Nothing.check_password(jid, secret())).unwrap_err()),
            kind(conformance::ready(Nothing.check_token("example.net", secret())).unwrap_err()),
            kind(conformance::ready(Nothing.create(jid, secret())).unwrap_err()),
            kind(conformance::ready(Nothing.set_password(jid, secret())).unwrap_err()),
            kind(conformance::ready(Nothing.remove(jid)).unwrap_err()),
        ];
        assert_eq!(refused, [ProviderErrorKind::NotSupported; 6]);
    }

    #[test]
    fn stored_versions_are_read_back_and_keys_are_not_taken_for_one() {
        for version in [&b"1"[..], &[7; MAX_VERSION_BYTES]] {
            assert_eq!(external_version(&external_credentials(Some(version))), Some(version));
        }
        assert_eq!(external_version(&external_credentials(None)), None);
        assert_eq!(external_credentials(Some(&[1; 100])).len(), 1 + MAX_VERSION_BYTES);
        for keys in [&b""[..], b"\x01\x03"] {
            assert_eq!(external_version(keys), None);
        }
    }
}
