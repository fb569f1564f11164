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
use throng_core::Node;

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
    // Checked first: deriving keys costs as much as a hundred look-ups.
    if node.stores.accounts.exists(jid.as_ref()).await? {
        return Err(AccountError::Exists);
    }
    let keys = node.passwords.derive(password).await.map_err(AccountError::InvalidPassword)?;
    let id = node.stores.accounts.create(jid, &keys).await?;
    node.account_created(&host, jid.as_ref());
    Ok(id)
}

/// Removes an account with all its data, ends its sessions with `not-authorized` and notifies its contacts.
///
/// # Errors
/// See [`AccountError`].
pub async fn remove_account(node: &Arc<Node>, jid: JidRef<'_>) -> Result<(), AccountError> {
    let jid = jid.bare().to_jid();
    let host = node.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
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
    node.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
    let keys = node.passwords.derive(password).await.map_err(AccountError::InvalidPassword)?;
    match node.stores.accounts.set_credentials(jid.as_ref(), &keys).await? {
        true => Ok(()),
        false => Err(AccountError::NotFound),
    }
}
