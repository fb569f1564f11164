//! Implementation of the engine's interface to the views of accounts, and the view of a node with which `account_recheck` and
//! `blocklist_cache` work.

use std::ops::Deref;
use std::sync::Arc;

use base::spawn::BoxFuture;
use cluster::AddressHasher;
use jid::{Jid, JidRef};
use store::{BlocklistOutcome, StoreError, Unblock};
use throng_core::account::Account;
use throng_core::account_views::AccountViews;
use throng_core::{Node, Session};

use crate::account_recheck::AccountRechecks;
use crate::blocklist_cache::BlocklistCache;

/// Keeps the views of a node's accounts equal to its store. Of no use to a second node.
pub struct StoreBackedViews(Arc<ViewState>);

/// What is remembered about the accounts of a node.
pub(crate) struct ViewState {
    pub(crate) blocklists: BlocklistCache,
    pub(crate) rechecks: AccountRechecks,
}

/// A node and the state of its views.
#[derive(Clone, Copy)]
pub(crate) struct Views<'a> {
    node: &'a Arc<Node>,
    pub(crate) state: &'a Arc<ViewState>,
}

/// As [`Views`], for tasks.
#[derive(Clone)]
pub(crate) struct OwnedViews {
    node: Arc<Node>,
    state: Arc<ViewState>,
}

impl StoreBackedViews {
    /// Empty views. Blocklists are found by this hash of their owner.
    pub fn new(hasher: AddressHasher) -> StoreBackedViews {
        let (blocklists, rechecks) = (BlocklistCache::new(hasher), AccountRechecks::default());
        StoreBackedViews(Arc::new(ViewState { blocklists, rechecks }))
    }

    fn on<'a>(&'a self, node: &'a Arc<Node>) -> Views<'a> {
        Views { node, state: &self.0 }
    }
}

impl Views<'_> {
    pub(crate) fn owned(&self) -> OwnedViews {
        OwnedViews { node: self.node.clone(), state: self.state.clone() }
    }
}

impl OwnedViews {
    pub(crate) fn view(&self) -> Views<'_> {
        Views { node: &self.node, state: &self.state }
    }
}

impl Deref for Views<'_> {
    type Target = Arc<Node>;

    fn deref(&self) -> &Arc<Node> {
        self.node
    }
}

impl AccountViews for StoreBackedViews {
    fn recheck_login(&self, node: &Arc<Node>, session: Arc<Session>, revision: u64) {
        self.on(node).recheck_login(session, revision);
    }

    fn reload_roster(&self, node: &Arc<Node>, account: Arc<Account>) {
        self.on(node).reload_roster(account);
    }

    fn refresh_account<'a>(
        &'a self,
        node: &'a Arc<Node>,
        account: &'a Arc<Account>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.on(node).refresh_account(account).await })
    }

    fn reload_blocklist<'a>(&'a self, node: &'a Arc<Node>, account: &'a Arc<Account>) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.on(node).reload_blocklist(account).await })
    }

    fn forget_blocklist(&self, owner: JidRef<'_>) {
        self.0.blocklists.record_change(owner);
    }

    fn has_blocked(&self, owner: JidRef<'_>, other: JidRef<'_>) -> Option<bool> {
        let list = self.0.blocklists.get(owner)?;
        Some(list.is_some_and(|list| list.matches(other)))
    }

    fn load_has_blocked<'a>(
        &'a self,
        node: &'a Arc<Node>,
        owner: JidRef<'a>,
        other: JidRef<'a>,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move { self.on(node).load_has_blocked(owner, other).await })
    }

    fn update_blocklist<'a>(
        &'a self,
        node: &'a Arc<Node>,
        owner: &'a Jid,
        add: Vec<Jid>,
        remove: Unblock,
        limit: u32,
    ) -> BoxFuture<'a, Result<(BlocklistOutcome, BoxFuture<'static, ()>), StoreError>> {
        Box::pin(async move { self.on(node).update_blocklist(owner, add, remove, limit).await })
    }

    fn sweep(&self, node: &Arc<Node>, now: u32) {
        self.on(node).repeat_rechecks(now);
    }
}
