//! What waits for clients that do not take it, counted by sender, by recipient's account and for the whole node.
//!
//! A session's own queue has limits by class. They bound one session, and not what one account holds with many sessions
//! or one sender causes in many. So whatever is in the queue of a session without a connection (XEP-0198 section 5),
//! and in a queue of more than [`UNCOUNTED_QUEUE_BYTES`], is entered in the node's [`Backlog`], along with what such a session has
//! not acknowledged. A session whose client keeps up is never entered, and pays for this with one comparison.
//!
//! Others can fill the budgets of the node and of an account. So no budget ends a session over what is below the floor of
//! [`UNCOUNTED_QUEUE_BYTES`]; the number of sessions bounds that.
//!
//! Senders and accounts are numbers of 32 bits: a hash of the bare address with a key that this process drew and nobody else
//! has. The address is not compared after a hit: an entry adds up stanzas in the queues of many sessions, which are not locked
//! here, and an address kept for each entry could be 2 kB, more than most stanzas that it would count. A number decides nothing but whose bytes are added up: never who may see or send what. The worst case is that two
//! senders (with a chance of one in 2^32 for any two) share a budget, and their part of a queue, and each gets less of it: what is beyond goes to the
//! store or back to its sender, as with any full budget. Nobody can choose with whom, as the key cannot be observed.
//!
//! Left out: unacknowledged stanzas of sessions with a connection, which `modules.stream_management.unacked_bytes` bounds,
//! and the buffers of connections. The trap: every removal from a queue with a [`BacklogEntry`] must give back what was
//! entered; only `Inner` removes anything (`shed.rs`, `link.rs`).

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use jid::JidRef;
use parking_lot::Mutex;

use super::outbox::QueuedStanza;
use crate::limits::NodeLimits;
use crate::shared_stanza::SharedStanza;

/// Bytes in the queue of a session with a connection that no budget counts, and the floor below which a full budget
/// neither ends a session that loses its connection nor keeps out presence and what the server says to it.
pub const UNCOUNTED_QUEUE_BYTES: u32 = 64 * 1024;
/// The sender of an [`Item`] that has not been looked at.
pub(super) const SENDER_UNKNOWN: u32 = 0;
/// The sender of what no budget of senders counts: the server and the account itself. An answer that the session asked
/// for is not exempt, because its sender chooses its size and its time.
pub(super) const SENDER_EXEMPT: u32 = 1;
const SHARDS: usize = 16;

/// Which limit keeps something out of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceededLimit {
    /// That of the queue, by class.
    Queue,
    /// One sender's share of it.
    SenderShare,
    /// What one sender may have waiting in all queues.
    SenderBudget,
    /// What may wait for all sessions of an account.
    AccountBudget,
    /// What may wait for all sessions of the node.
    NodeBudget,
}

impl ExceededLimit {
    /// For metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            ExceededLimit::Queue => "queue",
            ExceededLimit::SenderShare => "share",
            ExceededLimit::SenderBudget => "sender",
            ExceededLimit::AccountBudget => "account",
            ExceededLimit::NodeBudget => "node",
        }
    }
}

/// Whose queue is filled, and within which limits.
#[derive(Clone, Copy)]
pub struct AdmissionContext<'a> {
    /// The node's limits.
    pub limits: &'a NodeLimits,
    /// The ledger, and the bare address of the recipient; nothing is counted without.
    pub backlog: Option<(&'a Arc<Backlog>, JidRef<'a>)>,
    /// Shares and budgets keep nothing out: what waits elsewhere would cost as much.
    pub bypass_budgets: bool,
}

#[derive(Default)]
struct Shard {
    accounts: HashMap<u32, u64>,
    senders: HashMap<u32, u64>,
}

/// What waits for the clients of a node.
#[derive(Default)]
pub struct Backlog {
    total: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
}

impl Backlog {
    /// Bytes that are entered.
    pub fn bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    fn shard(&self, key: u32) -> &Mutex<Shard> {
        &self.shards[key as usize % SHARDS]
    }

    /// The budget that has no room for so many bytes more. Two that ask at once may both find room.
    pub(super) fn exceeded_budget(
        &self,
        account: u32,
        sender: u32,
        bytes: u32,
        limits: &NodeLimits,
    ) -> Option<ExceededLimit> {
        let bytes = u64::from(bytes);
        let held = |map: &HashMap<u32, u64>, key| map.get(&key).copied().unwrap_or_default();
        if sender > SENDER_EXEMPT
            && held(&self.shard(sender).lock().senders, sender) + bytes
                > u64::from(limits.backlog_bytes_per_sender)
        {
            return Some(ExceededLimit::SenderBudget);
        }
        if held(&self.shard(account).lock().accounts, account) + bytes
            > u64::from(limits.backlog_bytes_per_account)
        {
            return Some(ExceededLimit::AccountBudget);
        }
        (self.bytes() + bytes > u64::from(limits.backlog_bytes)).then_some(ExceededLimit::NodeBudget)
    }

    fn add(&self, account: u32, sender: u32, bytes: u32) {
        let bytes = u64::from(bytes);
        self.total.fetch_add(bytes, Ordering::Relaxed);
        *self.shard(account).lock().accounts.entry(account).or_default() += bytes;
        if sender > SENDER_EXEMPT {
            *self.shard(sender).lock().senders.entry(sender).or_default() += bytes;
        }
    }

    fn sub(&self, account: u32, sender: u32, bytes: u32) {
        let bytes = u64::from(bytes);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        let lower = |map: &mut HashMap<u32, u64>, key| {
            if let Entry::Occupied(mut held) = map.entry(key) {
                *held.get_mut() = held.get().saturating_sub(bytes);
                if *held.get() == 0 {
                    held.remove();
                }
            }
            if map.capacity() > 64 && map.len() * 8 < map.capacity() {
                map.shrink_to_fit();
            }
        };
        lower(&mut self.shard(account).lock().accounts, account);
        if sender > SENDER_EXEMPT {
            lower(&mut self.shard(sender).lock().senders, sender);
        }
    }
}

/// What one link has entered in the ledger: all of its queue, and what its peer has not acknowledged while it has no
/// connection.
pub(super) struct BacklogEntry {
    backlog: Arc<Backlog>,
    account: u32,
    unacked: u32,
}

impl BacklogEntry {
    pub(super) fn new(ledger: &Arc<Backlog>, owner: JidRef<'_>) -> BacklogEntry {
        BacklogEntry { backlog: ledger.clone(), account: hash_key(owner.bare().as_str()), unacked: 0 }
    }
    pub(super) fn exceeded_budget(
        &self,
        sender: u32,
        bytes: u32,
        limits: &NodeLimits,
    ) -> Option<ExceededLimit> {
        self.backlog.exceeded_budget(self.account, sender, bytes, limits)
    }
    /// Enters an item, whose sender is known.
    pub(super) fn add(&self, item: &QueuedStanza) {
        self.backlog.add(self.account, item.sender, item.size());
    }
    /// Gives back what an item that was entered counts.
    pub(super) fn sub(&self, item: &QueuedStanza) {
        self.backlog.sub(self.account, item.sender, item.size());
    }
    /// So much is not acknowledged and counts.
    pub(super) fn set_unacked(&mut self, bytes: u32) {
        self.backlog.sub(self.account, SENDER_EXEMPT, self.unacked);
        self.backlog.add(self.account, SENDER_EXEMPT, bytes);
        self.unacked = bytes;
    }
}

impl QueuedStanza {
    /// Finds out who sent it, as far as budgets care.
    pub(super) fn resolve_sender(&mut self, owner: Option<JidRef<'_>>) {
        if self.sender == SENDER_UNKNOWN {
            self.sender = sender_key(&self.frame, owner);
        }
    }
}

fn sender_key(frame: &SharedStanza, owner: Option<JidRef<'_>>) -> u32 {
    let Some(from) = frame.head().raw_from(frame.bytes()).filter(|_| !frame.is_server_error()) else {
        return SENDER_EXEMPT;
    };
    // Neither localpart nor domain has characters that are escaped in an attribute.
    let bare = from.split_once('/').map_or(from, |(bare, _)| bare);
    let own = owner.is_some_and(|owner| bare == owner.bare().as_str() || bare == owner.domain());
    if own { SENDER_EXEMPT } else { hash_key(bare) }
}

fn hash_key(text: &str) -> u32 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    let hash = KEY.get_or_init(RandomState::new).hash_one(text) >> 32;
    u32::try_from(hash).unwrap_or_default().max(SENDER_EXEMPT + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_entries_leave_no_counters() {
        let ledger = Backlog::default();
        let limits = NodeLimits {
            backlog_bytes: 100,
            backlog_bytes_per_account: 60,
            backlog_bytes_per_sender: 40,
            ..NodeLimits::default()
        };
        ledger.add(7, 9, 30);
        assert_eq!(ledger.exceeded_budget(7, 9, 11, &limits), Some(ExceededLimit::SenderBudget));
        assert_eq!(
            ledger.exceeded_budget(8, 9, 11, &limits),
            Some(ExceededLimit::SenderBudget),
            "whoever the recipient is"
        );
        assert_eq!(ledger.exceeded_budget(7, 10, 31, &limits), Some(ExceededLimit::AccountBudget));
        assert_eq!(ledger.exceeded_budget(7, SENDER_EXEMPT, 31, &limits), Some(ExceededLimit::AccountBudget));
        assert_eq!(ledger.exceeded_budget(8, SENDER_EXEMPT, 71, &limits), Some(ExceededLimit::AccountBudget));
        ledger.add(8, SENDER_EXEMPT, 60);
        assert_eq!(ledger.exceeded_budget(9, 11, 11, &limits), Some(ExceededLimit::NodeBudget));
        assert_eq!(ledger.exceeded_budget(9, 11, 10, &limits), None);
        ledger.sub(8, SENDER_EXEMPT, 60);
        ledger.sub(7, 9, 30);
        assert_eq!(ledger.bytes(), 0);
        assert!(ledger.shards.iter().all(|shard| {
            let shard = shard.lock();
            shard.accounts.is_empty() && shard.senders.is_empty()
        }));
    }
}
