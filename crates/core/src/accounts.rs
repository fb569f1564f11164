//! What changes accounts: creating and removing them, shutting and opening them, changing passwords. Every door that does
//! one of these goes through here, so that what has to happen besides happens always: hooks run, sessions end.
//!
//! The trap: whoever wrote the store and forgets the rest leaves a user of a removed or shut account connected.

use std::sync::Arc;

use base::Secret;
use jid::{Jid, JidRef};
use stanza::{StreamCondition, StreamError};
use store::{AddressId, ErrorKind, StoreError};

use crate::command::{CommandError, Why};
use crate::hooks::{CreatedCtx, Probe, Ran};
use crate::host::Host;
use crate::node::Node;
use crate::router::Work;

/// Why an account could not be changed.
#[derive(Debug)]
pub enum AccountError {
    /// It is there already.
    Exists,
    /// It is not there.
    Missing,
    /// The domain is not served here.
    Domain,
    /// The password cannot be one; one sentence.
    Password(String),
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for AccountError {
    fn from(error: StoreError) -> AccountError {
        match error.kind {
            ErrorKind::AlreadyExists => AccountError::Exists,
            ErrorKind::NotFound => AccountError::Missing,
            _ => AccountError::Store(error),
        }
    }
}

impl AccountError {
    /// As the answer of a command about this account.
    pub fn about(self, jid: &Jid) -> CommandError {
        match self {
            AccountError::Exists => CommandError::new(Why::Conflict, format!("{jid} exists already")),
            AccountError::Missing => CommandError::no_account(jid),
            AccountError::Domain => {
                CommandError::new(Why::NotAcceptable, format!("{} is not served here", jid.domain()))
            }
            AccountError::Password(text) => CommandError::new(Why::NotAcceptable, text),
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
        let host = self.host(jid.domain()).ok_or(AccountError::Domain)?;
        // Asked first: deriving keys costs as much as a hundred look-ups.
        if self.stores.accounts.exists(jid.as_ref()).await? {
            return Err(AccountError::Exists);
        }
        let keys = self.passwords.derive(password).await.map_err(AccountError::Password)?;
        let id = self.stores.accounts.create(jid, &keys).await?;
        self.account_created(&host, jid.as_ref());
        Ok(id)
    }

    /// Removes an account with all its data, ends its sessions with `not-authorized` and tells its contacts.
    ///
    /// # Errors
    /// See [`AccountError`].
    pub async fn remove_account(self: &Arc<Self>, jid: JidRef<'_>) -> Result<(), AccountError> {
        let jid = jid.bare().to_jid();
        let host = self.host(jid.domain()).ok_or(AccountError::Domain)?;
        let removed = self.stores.accounts.remove(jid.as_ref()).await?.ok_or(AccountError::Missing)?;
        self.account_removed(&host, jid.as_ref(), &removed.contacts);
        Ok(())
    }

    /// Shuts or opens an account. Sessions of one that is shut end.
    ///
    /// # Errors
    /// See [`AccountError`].
    pub async fn disable_account(self: &Arc<Self>, jid: &Jid, disabled: bool) -> Result<(), AccountError> {
        self.host(jid.domain()).ok_or(AccountError::Domain)?;
        if !self.stores.accounts.set_disabled(jid.as_ref(), disabled).await? {
            return Err(AccountError::Missing);
        }
        if disabled {
            self.end_sessions(jid.as_ref(), &bye("the account was disabled"));
        }
        Ok(())
    }

    /// Changes a password. Sessions stay; tokens for quick logins go.
    ///
    /// # Errors
    /// See [`AccountError`].
    pub async fn change_password(
        self: &Arc<Self>,
        jid: JidRef<'_>,
        password: Secret,
    ) -> Result<(), AccountError> {
        let jid = jid.bare().to_jid();
        self.host(jid.domain()).ok_or(AccountError::Domain)?;
        let keys = self.passwords.derive(password).await.map_err(AccountError::Password)?;
        match self.stores.accounts.set_credentials(jid.as_ref(), &keys).await? {
            true => Ok(()),
            false => Err(AccountError::Missing),
        }
    }

    /// Ends the session with this address, or all of the account if it is bare; tells how many there were.
    pub fn end_sessions(self: &Arc<Self>, jid: JidRef<'_>, why: &StreamError) -> usize {
        let Some(account) = self.table.find(jid) else { return 0 };
        let mut ended = 0;
        for session in account.sessions() {
            if jid.resource().is_none_or(|r| r == session.resource()) {
                session.link.close(why.clone());
                self.end_session(&session);
                ended += 1;
            }
        }
        ended
    }

    /// Tells features of a new account.
    pub fn account_created(self: &Arc<Self>, host: &Arc<Host>, jid: JidRef<'_>) {
        let mut work = Work::default();
        let mut ctx = CreatedCtx { node: self, host, jid, effects: &mut work.effects };
        if let Ran::Wait { later, .. } = host.hooks.created.run(&mut ctx, &Probe::EVENT, 0) {
            let node = self.clone();
            self.spawner.spawn(
                "created",
                Box::pin(async move {
                    let outcome = later.await;
                    node.perform(outcome.effects);
                }),
            );
        }
        self.settle_detached(work);
    }
}

/// `not-authorized` with a sentence (RFC 6120 section 4.9.3.12).
fn bye(text: &'static str) -> StreamError {
    StreamError::new(StreamCondition::NotAuthorized).text(text)
}
