//! Logins to accounts that a provider keeps ([`throng_core::account_provider`]), and their records in the store.
//!
//! The provider checks the password or the token. The store has a record of the account, created by the first login, which owns
//! the roster, the offline messages and the login tokens (XEP-0484); instead of SCRAM keys it has the version of the password.
//! A login costs one request to the provider and two round trips to the store, or three if the account or its password is
//! new.
//!
//! Keys that an account had before its domain got a provider stay in the store, unused, so that the operator can go back.
//!
//! Not implemented: an end of sessions whose account its owner disables or removes at the provider. Their next login is
//! refused.
//!
//! # Pitfalls
//!
//! Nothing may be created before the proof: otherwise unauthenticated clients could fill the store.

use std::sync::Arc;

use base::Secret;
use jid::{Jid, JidRef};
use store::{AccountSecrets, AddressId, StoreErrorKind};
use throng_core::account_provider::{
    AccountProvider, PasswordCheck, ProvidedAccount, TokenCheck, external_credentials, external_version,
    is_external,
};
use throng_core::server_error::ServerError;
use throng_core::{Host, Node};

use crate::login::{LoginIdentity, LoginRecord};

/// How often a record is read again that another login changes at the same time.
const ATTEMPTS: usize = 4;

/// The account as its provider reports it; nothing is read from the store.
pub(crate) async fn find(
    provider: &dyn AccountProvider,
    host: Arc<Host>,
    jid: Jid,
) -> Result<Option<LoginRecord>, ServerError> {
    let found = provider.find(jid.as_ref()).await?;
    Ok(found.map(|found| unregistered(host, jid, found)))
}

/// Checks a password with the provider of the host. `None`: it is wrong, there is no such account, or the host has no
/// provider.
///
/// # Errors
/// If the provider does not answer.
pub async fn check_password(
    host: Arc<Host>,
    jid: Jid,
    password: Secret,
) -> Result<Option<LoginRecord>, ServerError> {
    let Some(provider) = host.account_provider().cloned() else { return Ok(None) };
    // RFC 4513, section 5.1.2: a directory may take an empty password for an anonymous login, which succeeds.
    if password.is_empty() || password.expose().contains(&0) {
        return Ok(None);
    }
    Ok(match provider.check_password(jid.as_ref(), password).await? {
        PasswordCheck::Valid(account) => Some(unregistered(host, jid, account)),
        PasswordCheck::Invalid => None,
    })
}

/// Checks a bearer token with the provider of the host. `None`: it is invalid, or the host has no provider.
///
/// # Errors
/// If the provider does not answer.
pub async fn check_token(host: Arc<Host>, token: Secret) -> Result<Option<LoginRecord>, ServerError> {
    let Some(provider) = host.account_provider().cloned() else { return Ok(None) };
    Ok(match provider.check_token(host.domain(), token).await? {
        // A provider with an error must not log in users of other domains.
        TokenCheck::Valid(jid, account) if is_account_of(&host, &jid) => {
            Some(unregistered(host, jid, account))
        }
        TokenCheck::Valid(..) | TokenCheck::Invalid => None,
    })
}

/// Whether the host may issue login tokens (XEP-0484): always, unless the provider cannot tell when a password has changed.
pub fn permits_login_tokens(host: &Host) -> bool {
    host.account_provider().is_none_or(|provider| provider.capabilities().versions)
}

/// The account of a proved login, with its record in the store, which is created if there is none. A record that did not come
/// from a provider is returned as it is. `None` if the account was removed in the meantime.
///
/// # Errors
/// If the store does not answer.
pub async fn register(node: &Arc<Node>, record: LoginRecord) -> Result<Option<LoginRecord>, ServerError> {
    let (identity, provided) = match record {
        LoginRecord { identity, provided: Some(provided), .. } => (identity, provided),
        record => return Ok(Some(record)),
    };
    let LoginIdentity { host, jid, .. } = identity;
    for _ in 0..ATTEMPTS {
        match node.stores.logins.secrets(jid.as_ref()).await? {
            Some(secrets) if is_outdated(&secrets, &provided) => {
                // Clears the login tokens, which must not outlive the password.
                let credentials = external_credentials(provided.version.as_deref());
                node.stores.accounts.set_credentials(jid.as_ref(), &credentials).await?;
            }
            Some(secrets) => {
                let disabled = secrets.disabled || provided.disabled;
                let found = LoginRecord { disabled, ..LoginRecord::new(host, jid, secrets) };
                // The keys of a time before the provider must neither be used nor upgraded.
                return Ok(Some(LoginRecord { credentials: Vec::new(), ..found }));
            }
            // Only its owner has learnt that the account exists.
            None if provided.disabled => {
                let record = unregistered(host, jid, provided);
                return Ok(Some(LoginRecord { provided: None, ..record }));
            }
            None => {
                let credentials = external_credentials(provided.version.as_deref());
                match node.stores.accounts.create(&jid, &credentials).await {
                    Ok(_) => node.account_created(&host, jid.as_ref()),
                    // Another login of the account was faster.
                    Err(error) if error.kind == StoreErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Err(ServerError {
        retryable: true,
        public_text: "the account is being changed; try again later".into(),
        cause: format!("the record of {jid} changed {ATTEMPTS} times during a login"),
    })
}

/// The account of a login with a token of this server (XEP-0484), after it was proved: the provider may have removed or
/// disabled the account, or its password may have changed. `None`: the token is no longer trusted.
///
/// # Errors
/// If the provider does not answer.
pub async fn confirm(record: LoginRecord) -> Result<Option<LoginRecord>, ServerError> {
    let Some(provider) = record.identity.host.account_provider().cloned() else {
        // The domain had a provider, which nobody can ask any more.
        return Ok(Some(record).filter(|record| !is_external(&record.credentials)));
    };
    let Some(found) = provider.find(record.identity.jid.as_ref()).await? else { return Ok(None) };
    let version = external_version(&record.credentials);
    if version.is_none() || version != stored_version(&found) {
        return Ok(None);
    }
    Ok(Some(LoginRecord { disabled: record.disabled || found.disabled, credentials: Vec::new(), ..record }))
}

/// Whether the provider of an account, if there is one, has not removed or disabled it, or changed its password since these
/// `credentials` were stored, as far as it can tell: whether a session that exists may go on.
///
/// # Errors
/// If the provider does not answer.
pub async fn is_unchanged(host: &Host, jid: JidRef<'_>, credentials: &[u8]) -> Result<bool, ServerError> {
    let Some(provider) = host.account_provider().filter(|provider| provider.capabilities().lookup) else {
        return Ok(true);
    };
    let Some(found) = provider.find(jid).await? else { return Ok(false) };
    let has_version = provider.capabilities().versions && is_external(credentials);
    let same = !has_version || stored_version(&found) == external_version(credentials);
    Ok(same && !found.disabled)
}

fn is_account_of(host: &Host, jid: &Jid) -> bool {
    jid.as_ref().is_bare() && jid.local().is_some() && jid.domain() == host.domain()
}

/// Whether the record has another version of the password. Keys of a time before the provider stay.
fn is_outdated(secrets: &AccountSecrets, provided: &ProvidedAccount) -> bool {
    let stored = external_version(&secrets.credentials);
    match stored_version(provided) {
        None => false,
        version if stored == version => false,
        _ => secrets.credentials.is_empty() || is_external(&secrets.credentials),
    }
}

/// The version as it is stored.
fn stored_version(account: &ProvidedAccount) -> Option<&[u8]> {
    let version = account.version.as_deref().filter(|version| !version.is_empty())?;
    Some(&version[..version.len().min(throng_core::account_provider::MAX_VERSION_BYTES)])
}

/// The record of an account whose row in the store is not known.
fn unregistered(host: Arc<Host>, jid: Jid, account: ProvidedAccount) -> LoginRecord {
    let jid = jid.bare().to_jid();
    let identity = LoginIdentity { host, jid, id: AddressId::UNASSIGNED, revision: 0, ephemeral: false };
    LoginRecord {
        identity,
        credentials: account.credentials.clone().map(|credentials| credentials.0).unwrap_or_default(),
        tokens: Vec::new(),
        disabled: account.disabled,
        provided: Some(account),
    }
}
