//! Account administration: creating, removing, disabling and enabling accounts, and changing passwords. Every
//! interface uses these functions, so that the side effects always happen: hooks run, sessions end.
//!
//! # Pitfalls
//!
//! A direct write to the store leaves the user of a removed or disabled account connected.

use std::sync::Arc;

use base::Secret;
use jid::{Jid, JidRef};
use store::{AddressId, StoreError, StoreErrorKind};
use throng_core::account_provider::{ProviderError, ProviderErrorKind, external_credentials};
use throng_core::server_error::ServerError;
use throng_core::{Host, Node};

use crate::{CommandError, CommandErrorKind};

/// Why an account could not be changed.
#[derive(Debug)]
pub enum AccountError {
    /// The account exists already.
    Exists,
    /// The account does not exist.
    NotFound,
    /// The domain is not served here.
    UnknownDomain,
    /// The password is invalid; one sentence.
    InvalidPassword(String),
    /// The store failed.
    Store(StoreError),
    /// The provider of the domain cannot do this; one sentence that says where it can be done.
    NotSupported(String),
    /// The provider of the domain failed.
    Provider(ServerError),
}

impl From<ProviderError> for AccountError {
    fn from(error: ProviderError) -> AccountError {
        match error.kind {
            ProviderErrorKind::AlreadyExists => AccountError::Exists,
            ProviderErrorKind::NotFound => AccountError::NotFound,
            ProviderErrorKind::NotSupported => AccountError::NotSupported(error.text),
            ProviderErrorKind::PasswordRefused => AccountError::InvalidPassword(error.text),
            ProviderErrorKind::Unavailable
            | ProviderErrorKind::Timeout
            | ProviderErrorKind::Overloaded
            | ProviderErrorKind::InvalidResponse => AccountError::Provider(error.into()),
        }
    }
}

impl From<StoreError> for AccountError {
    fn from(error: StoreError) -> AccountError {
        match error.kind {
            StoreErrorKind::AlreadyExists => AccountError::Exists,
            StoreErrorKind::NotFound => AccountError::NotFound,
            _ => AccountError::Store(error),
        }
    }
}

impl AccountError {
    /// Converts the error into one for a command about this account.
    pub fn into_command_error(self, jid: &Jid) -> CommandError {
        match self {
            AccountError::Exists => {
                CommandError::new(CommandErrorKind::Conflict, format!("{jid} already exists"))
            }
            AccountError::NotFound => CommandError::no_account(jid),
            AccountError::UnknownDomain => CommandError::new(
                CommandErrorKind::NotAcceptable,
                format!("{} is not served here", jid.domain()),
            ),
            AccountError::InvalidPassword(text) => CommandError::new(CommandErrorKind::NotAcceptable, text),
            AccountError::Store(error) => error.into(),
            AccountError::NotSupported(text) => CommandError::new(CommandErrorKind::NotAllowed, text),
            AccountError::Provider(error) => {
                tracing::warn!(cause = %error.cause, "the provider of an account did not answer");
                CommandError::new(CommandErrorKind::Unavailable, error.public_text)
            }
        }
    }
}

/// Creates an account; the `created` chain runs.
///
/// # Errors
/// See [`AccountError`].
pub async fn create_account(
    node: &Arc<Node>,
    jid: &Jid,
    password: Secret,
) -> Result<AddressId, AccountError> {
    let host = node.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
    if host.account_provider().is_some() {
        return create_provided(node, &host, jid, password).await;
    }
    // Checked first: deriving keys costs as much as a hundred look-ups.
    if node.stores.accounts.exists(jid.as_ref()).await? {
        return Err(AccountError::Exists);
    }
    let keys = node.passwords.derive(password).await.map_err(AccountError::InvalidPassword)?;
    let id = node.stores.accounts.create(jid, &keys).await?;
    node.account_created(&host, jid.as_ref());
    Ok(id)
}

/// Creates an account at the provider, and its record in the store.
async fn create_provided(
    node: &Arc<Node>,
    host: &Arc<Host>,
    jid: &Jid,
    password: Secret,
) -> Result<AddressId, AccountError> {
    let Some(provider) = host.account_provider() else { return Err(AccountError::UnknownDomain) };
    provider.create(jid.as_ref(), password).await?;
    // The first login adds the version of the password.
    match node.stores.accounts.create(jid, &external_credentials(None)).await {
        Ok(id) => {
            node.account_created(host, jid.as_ref());
            Ok(id)
        }
        // Data of an account that its owner had removed at the provider only: it must not pass to another person.
        Err(error) if error.kind == StoreErrorKind::AlreadyExists => {
            if let Some(removed) = node.stores.accounts.remove(jid.as_ref()).await? {
                node.account_removed(host, jid.as_ref(), removed.contacts);
            }
            let id = node.stores.accounts.create(jid, &external_credentials(None)).await?;
            node.account_created(host, jid.as_ref());
            Ok(id)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes an account at the provider of its domain, if there is one and it still has the account. Must succeed before the
/// data in the store are removed.
///
/// # Errors
/// [`AccountError::NotSupported`] if only the owner of the accounts can remove it.
pub async fn remove_at_provider(host: &Host, jid: JidRef<'_>) -> Result<(), AccountError> {
    let Some(provider) = host.account_provider() else { return Ok(()) };
    let capabilities = provider.capabilities();
    if capabilities.remove {
        return match provider.remove(jid).await {
            Err(error) if error.kind == ProviderErrorKind::NotFound => Ok(()),
            result => Ok(result?),
        };
    }
    // The data of an account that is gone may be removed here; with those of others, the next login would create an empty record.
    match capabilities.lookup {
        true if provider.find(jid).await?.is_none() => Ok(()),
        _ => Err(ProviderError::not_supported(provider.name(), "remove accounts").into()),
    }
}

/// Removes an account with all its data, ends its sessions with `not-authorized` and notifies its contacts. If the provider of
/// the domain can neither remove nor look up accounts, only the data are removed: the owner of the account may log in again.
///
/// # Errors
/// See [`AccountError`].
pub async fn remove_account(node: &Arc<Node>, jid: JidRef<'_>) -> Result<(), AccountError> {
    let jid = jid.bare().to_jid();
    let host = node.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
    // What only its tokens name cannot be looked up. The next user of the name must not find the data of its former owner.
    let unknown = host.account_provider().is_some_and(|provider| {
        let capabilities = provider.capabilities();
        !capabilities.remove && !capabilities.lookup
    });
    if !unknown {
        remove_at_provider(&host, jid.as_ref()).await?;
    }
    let removed = node.stores.accounts.remove(jid.as_ref()).await?.ok_or(AccountError::NotFound)?;
    node.account_removed(&host, jid.as_ref(), removed.contacts);
    Ok(())
}

/// Disables or enables an account. Sessions of a disabled account end.
///
/// # Errors
/// See [`AccountError`].
pub async fn set_account_disabled(node: &Arc<Node>, jid: &Jid, disabled: bool) -> Result<(), AccountError> {
    node.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
    if !node.stores.accounts.set_disabled(jid.as_ref(), disabled).await? {
        return Err(AccountError::NotFound);
    }
    if disabled {
        node.account_disabled(jid.as_ref());
    }
    Ok(())
}

/// Changes a password. Sessions stay connected; tokens for quick logins are revoked.
///
/// # Errors
/// See [`AccountError`].
pub async fn change_password(
    node: &Arc<Node>,
    jid: JidRef<'_>,
    password: Secret,
) -> Result<(), AccountError> {
    let jid = jid.bare().to_jid();
    let host = node.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
    if let Some(provider) = host.account_provider() {
        provider.set_password(jid.as_ref(), password).await?;
        // Ends the login tokens, whether or not the provider reports versions. The account may never have logged in.
        node.stores.accounts.set_credentials(jid.as_ref(), &external_credentials(None)).await?;
        return Ok(());
    }
    let keys = node.passwords.derive(password).await.map_err(AccountError::InvalidPassword)?;
    match node.stores.accounts.set_credentials(jid.as_ref(), &keys).await? {
        true => Ok(()),
        false => Err(AccountError::NotFound),
    }
}
