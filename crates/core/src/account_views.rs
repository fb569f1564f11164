//! Interface to what keeps the views of accounts in memory equal to the store (crate `throng-access`): rosters and blocklists
//! of connected accounts, and the blocklists of other accounts that a message has reached.
//!
//! # Pitfalls
//!
//! A blocklist must only be changed by [`AccountViews::update_blocklist`]. A direct write to the store leaves sessions and
//! cached lists with the old one.

use std::sync::Arc;

use base::spawn::BoxFuture;
use jid::{Jid, JidRef};
use store::{BlocklistOutcome, StoreError, Unblock};

use crate::account::Account;
use crate::node::Node;
use crate::session::Session;

/// Keeps the views of accounts equal to the store.
pub trait AccountViews: Send + Sync {
    /// Reads the account of a session again, and ends the session if the account was removed or disabled after
    /// its login had read it and before the session was in the routing table, or if that cannot be verified.
    /// `revision` is that of the proved credentials.
    fn recheck_login(&self, node: &Arc<Node>, session: Arc<Session>, revision: u64);

    /// Reads the roster view of a connected account again. If it cannot be read, the account's sessions end.
    fn reload_roster(&self, node: &Arc<Node>, account: Arc<Account>);

    /// Reads a connected account again, after changes may have been missed: ends its sessions if it was removed or
    /// disabled. Fails with the errors of the store.
    fn refresh_account<'a>(
        &'a self,
        node: &'a Arc<Node>,
        account: &'a Arc<Account>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Another node has changed the list of a connected account. If it cannot be read, the sessions of the account end: they
    /// must not receive what the user has blocked.
    fn reload_blocklist<'a>(&'a self, node: &'a Arc<Node>, account: &'a Arc<Account>) -> BoxFuture<'a, ()>;

    /// Forgets the list of an account that was removed, or whose list another node has changed.
    fn forget_blocklist(&self, owner: JidRef<'_>);

    /// Whether the account `owner` has blocked this address; `None` if the store must be queried.
    fn has_blocked(&self, owner: JidRef<'_>, other: JidRef<'_>) -> Option<bool>;

    /// Like [`AccountViews::has_blocked`], but queries the store if necessary. Fails if the store does not answer.
    fn load_has_blocked<'a>(
        &'a self,
        node: &'a Arc<Node>,
        owner: JidRef<'a>,
        other: JidRef<'a>,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Changes the list of an account in the store and in every view, as [`store::Blocklists::update_blocklist`]. Fails if
    /// the store does not answer; nothing was changed then. The future is ready when the other nodes of the cluster with sessions of
    /// the account have read the list: perform what follows from the change first, and answer the user after it.
    fn update_blocklist<'a>(
        &'a self,
        node: &'a Arc<Node>,
        owner: &'a Jid,
        add: Vec<Jid>,
        remove: Unblock,
        limit: u32,
    ) -> BoxFuture<'a, Result<(BlocklistOutcome, BoxFuture<'static, ()>), StoreError>>;

    /// Called once a second, with the second of the node's clock: repeats reads that have failed.
    fn sweep(&self, node: &Arc<Node>, now: u32);
}
