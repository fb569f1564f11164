//! Removed accounts: their affiliations end in all rooms, and another account with the same address is another user, with another
//! occupant id (XEP-0421 1.0.1, section 4.1).
//!
//! The store removes the affiliations of its rooms, and gives each removal a number. A node reads the removals above the last number that
//! it knows: when it removes an account or is notified by another node that does, when a node leaves, and every few seconds, because
//! programs without a node remove accounts, too. Rooms in memory, temporary ones among them, are notified then.
//!
//! ```text
//! notice between nodes: none
//! ```
//!
//! # Pitfalls
//!
//! A room that is being loaded may have read its rows before they were removed, and one that comes from another node may be older still.
//! So each room has the number of the last removal that it contains, and its loader compares it with [`RemovedAccounts::number`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::lock::{LeafMutex, LeafRwLock};
use jid::JidRef;
use queues::answer_channel::{AnswerSender, answer_channel};
use store::{FormerAccount, StoreError, StoreErrorKind};
use throng_core::Node;
use throng_core::feature_notice::NoticeCtx;
use throng_core::hooks::{Flow, RemovedCtx};

use crate::FEATURE;
use crate::room_input::{RoomInput, RoomMessage};
use crate::room_sweep::shared_rooms;

/// Name of the notices.
pub(crate) const NOTICE: &str = "room user removed";
/// Bytes that an input counts in a mailbox.
const INPUT_BYTES: usize = 64;
/// Removals that are read at a time.
pub(crate) const PAGE: u32 = 10_000;

#[derive(Default)]
struct UpdateState {
    /// All removals were read once.
    is_complete: bool,
    is_running: bool,
    /// They must be read after the current update.
    is_due: bool,
    /// Loaders of rooms that wait for the first update.
    waiting: Vec<AnswerSender<Result<(), StoreError>>>,
}

/// The removed accounts of a node, one of its extensions. In memory: about 70 bytes and the address of each.
#[derive(Default)]
pub(crate) struct RemovedAccounts {
    /// How many accounts were removed, by address.
    counts: LeafRwLock<BTreeMap<Box<str>, u32>>,
    number: AtomicU64,
    state: LeafMutex<UpdateState>,
}

impl RemovedAccounts {
    /// How many accounts with this address were removed.
    pub(crate) fn removal_count(&self, user: JidRef<'_>) -> u32 {
        self.counts.read().get(user.bare().as_str()).copied().unwrap_or_default()
    }

    /// Number of the last removal that is known here.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    fn add(&self, page: &[FormerAccount]) {
        let mut counts = self.counts.write();
        for one in page {
            counts.insert(one.user.as_str().into(), one.times);
        }
        if let Some(last) = page.last() {
            self.number.store(last.number, Ordering::SeqCst);
        }
    }

    /// Waits until all earlier removals are known.
    pub(crate) async fn read(self: &Arc<Self>, node: &Arc<Node>) -> Result<(), StoreError> {
        let answer = {
            let mut state = self.state.lock();
            if state.is_complete {
                return Ok(());
            }
            let (sender, answer) = answer_channel();
            state.waiting.push(sender);
            answer
        };
        self.update(node);
        let ended = || StoreError::new(StoreErrorKind::Unavailable, "the removed accounts were not read");
        answer.receive().await.unwrap_or_else(|| Err(ended()))
    }

    /// Whether they are read again from time to time: rooms were used.
    pub(crate) fn is_complete(&self) -> bool {
        self.state.lock().is_complete
    }

    /// Reads new removals in the background, one update at a time, and notifies the rooms in memory.
    pub(crate) fn update(self: &Arc<Self>, node: &Arc<Node>) {
        {
            let mut state = self.state.lock();
            state.is_due = true;
            if std::mem::replace(&mut state.is_running, true) {
                return;
            }
        }
        let (removed, node) = (self.clone(), node.clone());
        let spawner = node.spawner.clone();
        let update = async move {
            while removed.starts_update() {
                let result = removed.read_new(&node).await;
                if let Err(error) = &result {
                    tracing::error!(%error, "the removed accounts were not read; it is tried again");
                }
                let waiting = removed.end_update(result.is_ok());
                for one in waiting {
                    one.send(match &result {
                        Ok(()) => Ok(()),
                        Err(error) => Err(StoreError::new(error.kind, error.message())),
                    });
                }
            }
        };
        spawner.spawn("removed accounts", Box::pin(update));
    }

    fn starts_update(&self) -> bool {
        let mut state = self.state.lock();
        state.is_running = std::mem::take(&mut state.is_due);
        state.is_running
    }

    fn end_update(&self, is_complete: bool) -> Vec<AnswerSender<Result<(), StoreError>>> {
        let mut state = self.state.lock();
        state.is_complete |= is_complete;
        std::mem::take(&mut state.waiting)
    }

    async fn read_new(&self, node: &Arc<Node>) -> Result<(), StoreError> {
        // No room is loaded before.
        let has_rooms = self.is_complete();
        loop {
            let page = node.stores.rooms.former_accounts(self.number(), PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            self.add(&page);
            if has_rooms && !page.is_empty() {
                notify_rooms(node, page.into()).await;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

/// Notifies all rooms in memory.
async fn notify_rooms(node: &Arc<Node>, removed: Arc<[FormerAccount]>) {
    for rooms in shared_rooms(node) {
        let Some(tasks) = rooms.tasks() else { continue };
        for room in rooms.directory.rooms() {
            let message =
                RoomMessage { node: node.clone(), input: RoomInput::AccountsRemoved(removed.clone()) };
            tasks.clone().send(node.spawner.clone(), room, message, INPUT_BYTES).await;
        }
    }
}

/// The removed accounts of this node.
pub(crate) fn removed_accounts(node: &Node) -> Arc<RemovedAccounts> {
    node.extensions.get_or_default()
}

/// An account was removed on this node.
pub(crate) fn account_removed(ctx: &mut RemovedCtx<'_>) -> Flow {
    let has_rooms = |host: &throng_core::Host| host.services.iter().any(|one| one.feature == FEATURE.name);
    if let Some(peers) = ctx.node.peers()
        && let Some(host) = ctx.node.hosts().iter().find(|host| has_rooms(host))
    {
        peers.send_notice(ctx.node, host, NOTICE, &[]);
    }
    update_if_used(ctx.node);
    Flow::Next
}

/// Another node has removed an account, or may have.
pub(crate) fn handle_notice(ctx: &NoticeCtx<'_>) {
    update_if_used(ctx.node);
}

/// Reads new removals, unless no room was used yet.
pub(crate) fn update_if_used(node: &Arc<Node>) {
    let removed = removed_accounts(node);
    if removed.is_complete() {
        removed.update(node);
    }
}
