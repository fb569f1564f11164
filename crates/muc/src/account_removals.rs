//! Removed accounts, whose affiliations end in all rooms: the store removes those of its rooms, and rooms in memory, temporary ones
//! among them, are notified here, on all nodes.
//!
//! ```text
//! notice between nodes: the bare address
//! ```
//!
//! # Pitfalls
//!
//! A room that is being loaded may have read the rows before they were removed: the loader compares [`AccountRemovals::number`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Provided;
use base::lock::LeafMutex;
use jid::{Jid, JidRef};
use throng_core::Node;
use throng_core::feature_notice::NoticeCtx;
use throng_core::hooks::{Flow, RemovedCtx};

use crate::FEATURE;
use crate::room_input::{RoomInput, RoomMessage};
use crate::room_shared::RoomShared;

/// Name of the notices.
pub(crate) const NOTICE: &str = "room user removed";
/// Bytes that an input counts in a mailbox.
const INPUT_BYTES: usize = 64;

#[derive(Default)]
struct WaitingRemovals {
    users: BTreeSet<Jid>,
    /// Affiliations of all rooms must be read again.
    everything: bool,
    is_running: bool,
}

/// What rooms are notified of.
#[derive(Clone)]
pub(crate) enum AccountsRemoved {
    /// These accounts were removed.
    Users(Arc<[Jid]>),
    /// Some were; the store has the affiliations that are left.
    Unknown,
}

/// Removed accounts of which rooms in memory were not notified.
#[derive(Default)]
pub(crate) struct AccountRemovals {
    number: AtomicU64,
    waiting: LeafMutex<WaitingRemovals>,
}

impl AccountRemovals {
    /// Rises with each removal.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// Adds an account, or all; true if the caller must notify the rooms.
    fn add(&self, user: Option<Jid>) -> bool {
        self.number.fetch_add(1, Ordering::SeqCst);
        let mut waiting = self.waiting.lock();
        match user {
            Some(user) => {
                waiting.users.insert(user);
            }
            None => waiting.everything = true,
        }
        !std::mem::replace(&mut waiting.is_running, true)
    }

    fn next(&self) -> Option<AccountsRemoved> {
        let mut waiting = self.waiting.lock();
        if std::mem::take(&mut waiting.everything) {
            return Some(AccountsRemoved::Unknown);
        }
        if waiting.users.is_empty() {
            waiting.is_running = false;
            return None;
        }
        Some(AccountsRemoved::Users(std::mem::take(&mut waiting.users).into_iter().collect()))
    }
}

/// The rooms of a domain: an account of any domain may be in their lists.
pub(crate) struct RoomsOfHost(pub(crate) Arc<RoomShared>);

impl Provided for RoomsOfHost {
    const NAME: &'static str = "the rooms of a host";
}

/// An account was removed on this node.
pub(crate) fn account_removed(ctx: &mut RemovedCtx<'_>) -> Flow {
    let user = ctx.jid.bare().to_jid();
    for host in ctx.node.hosts() {
        let has_rooms = host.services.iter().any(|service| service.feature == FEATURE.name);
        let Some(RoomsOfHost(rooms)) = host.extensions.get().filter(|_| has_rooms) else { continue };
        if let Some(peers) = ctx.node.peers() {
            peers.send_notice(ctx.node, &host, NOTICE, user.as_str().as_bytes());
        }
        rooms.accounts_removed(ctx.node, Some(user.clone()));
    }
    Flow::Next
}

impl RoomShared {
    /// Another node has removed an account.
    pub(crate) fn handle_removal_notice(self: &Arc<Self>, ctx: &NoticeCtx<'_>) {
        let user = match ctx.content {
            None => None,
            Some(content) => {
                let user = std::str::from_utf8(content).ok().and_then(JidRef::from_normalised);
                let Some(user) = user else { return };
                Some(user.bare().to_jid())
            }
        };
        self.accounts_removed(ctx.node, user);
    }

    /// Accounts that get these addresses are other users.
    async fn count_removals(&self, node: &Node, removed: &AccountsRemoved) {
        let AccountsRemoved::Users(users) = removed else { return self.former_accounts.expire() };
        for user in users.iter() {
            if let Err(error) = self.former_accounts.read_one(node, user).await {
                tracing::error!(%user, %error, "the removals of an account were not read");
                self.former_accounts.expire();
            }
        }
    }

    /// Notifies all rooms in memory.
    fn accounts_removed(self: &Arc<Self>, node: &Arc<Node>, user: Option<Jid>) {
        if !self.removals.add(user) {
            return;
        }
        let (rooms, sender) = (self.clone(), node.clone());
        let spread = async move {
            while let Some(removed) = rooms.removals.next() {
                rooms.count_removals(&sender, &removed).await;
                let Some(tasks) = rooms.tasks() else { continue };
                for room in rooms.directory.rooms() {
                    let input = RoomInput::AccountsRemoved(removed.clone());
                    let message = RoomMessage { node: sender.clone(), input };
                    tasks.clone().send(sender.spawner.clone(), room, message, INPUT_BYTES).await;
                }
            }
        };
        node.spawner.spawn("rooms of removed accounts", Box::pin(spread));
    }
}
