//! Account administration: creating, removing, disabling and enabling accounts, and changing passwords. Every
//! interface uses these functions, so that the side effects always happen: hooks run, sessions end.
//!
//! # Pitfalls
//!
//! A direct write to the store leaves the user of a removed or disabled account connected.

use std::sync::Arc;

use base::Secret;
use cluster::InvalidationSubject;
use jid::{Jid, JidRef};
use stanza::{StreamCondition, StreamError};
use store::{AddressId, StoreError, StoreErrorKind};

use crate::command::{CommandError, CommandErrorKind};
use crate::host::Host;
use crate::node::Node;
use crate::router::LifecycleEvent;

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

impl Node {
    /// Creates an account; the `created` chain runs.
    ///
    /// # Errors
    /// See [`AccountError`].
    pub async fn create_account(
        self: &Arc<Self>,
        jid: &Jid,
        password: Secret,
    ) -> Result<AddressId, AccountError> {
        let host = self.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
        // Checked first: deriving keys costs as much as a hundred look-ups.
        if self.stores.accounts.exists(jid.as_ref()).await? {
            return Err(AccountError::Exists);
        }
        let keys = self.passwords.derive(password).await.map_err(AccountError::InvalidPassword)?;
        let id = self.stores.accounts.create(jid, &keys).await?;
        self.account_created(&host, jid.as_ref());
        Ok(id)
    }

    /// Removes an account with all its data, ends its sessions with `not-authorized` and notifies its contacts.
    ///
    /// # Errors
    /// See [`AccountError`].
    pub async fn remove_account(self: &Arc<Self>, jid: JidRef<'_>) -> Result<(), AccountError> {
        let jid = jid.bare().to_jid();
        let host = self.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
        let removed = self.stores.accounts.remove(jid.as_ref()).await?.ok_or(AccountError::NotFound)?;
        self.account_removed(&host, jid.as_ref(), &removed.contacts);
        Ok(())
    }

    /// Disables or enables an account. Sessions of a disabled account end.
    ///
    /// # Errors
    /// See [`AccountError`].
    pub async fn set_account_disabled(
        self: &Arc<Self>,
        jid: &Jid,
        disabled: bool,
    ) -> Result<(), AccountError> {
        self.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
        if !self.stores.accounts.set_disabled(jid.as_ref(), disabled).await? {
            return Err(AccountError::NotFound);
        }
        if disabled {
            // A login that has read the account is either found here or sees the changed epoch.
            self.advance_roster_epoch(jid.as_ref());
            self.end_sessions(jid.as_ref(), &not_authorized("the account was disabled"));
            self.invalidate_elsewhere(jid.as_ref(), InvalidationSubject::Disabled);
        }
        Ok(())
    }

    /// Changes a password. Sessions stay connected; tokens for quick logins are revoked.
    ///
    /// # Errors
    /// See [`AccountError`].
    pub async fn change_password(
        self: &Arc<Self>,
        jid: JidRef<'_>,
        password: Secret,
    ) -> Result<(), AccountError> {
        let jid = jid.bare().to_jid();
        self.host(jid.domain()).ok_or(AccountError::UnknownDomain)?;
        let keys = self.passwords.derive(password).await.map_err(AccountError::InvalidPassword)?;
        match self.stores.accounts.set_credentials(jid.as_ref(), &keys).await? {
            true => Ok(()),
            false => Err(AccountError::NotFound),
        }
    }

    /// Ends the session with this address, or all sessions of a bare address; returns their number.
    pub fn end_sessions(self: &Arc<Self>, jid: JidRef<'_>, reason: &StreamError) -> usize {
        let Some(account) = self.routing_table.find(jid) else { return 0 };
        let mut ended = 0;
        for session in account.sessions() {
            if jid.resource().is_none_or(|r| r == session.resource()) {
                session.outbox.close(reason.clone());
                self.end_session(&session);
                ended += 1;
            }
        }
        ended
    }

    /// Reports a created account to features.
    pub fn account_created(self: &Arc<Self>, host: &Arc<Host>, jid: JidRef<'_>) {
        self.run_event_spawned(LifecycleEvent::Created(jid.to_jid()), host.clone());
    }
}

/// `not-authorized` with a text (RFC 6120, section 4.9.3.12).
pub(crate) fn not_authorized(text: &'static str) -> StreamError {
    StreamError::new(StreamCondition::NotAuthorized).text(text)
}
