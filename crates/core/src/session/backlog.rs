//! Backlog of clients that do not read: queued bytes by sender, by recipient account and for the whole node.
//!
//! The limits of a session's queue bound one session, but neither the total of an account with many sessions
//! nor what one sender causes in many queues. So the queue of a detached session (XEP-0198, section 5), and any
//! queue of more than [`UNCOUNTED_QUEUE_BYTES`], is counted in the node's [`Backlog`], together with the
//! unacknowledged stanzas of a detached session. A session whose client keeps up is never counted, at the cost
//! of one comparison.
//!
//! Others can fill the budgets of the node and of an account. So no budget ends a session with less than the
//! floor of [`UNCOUNTED_QUEUE_BYTES`]; the number of sessions bounds the total of these.
//!
//! Senders and accounts are numbers of 32 bits: a hash of the bare address with a random key of this process.
//! The address is not compared after a match: an entry sums up stanzas in the queues of many sessions, which
//! are not locked here, and an address of up to 2 kB in each entry would exceed most stanzas that it counts. A
//! number only decides whose bytes are summed up, never who may see or send a stanza. In the worst case two
//! senders (with a probability of 2^-32 for any two) share a budget and a share of a queue, and the excess is
//! stored or bounced, as with any full budget. Nobody can choose a collision, because the key cannot be
//! observed.
//!
//! Not implemented: unacknowledged stanzas of connected sessions, which
//! `modules.stream_management.unacked_bytes` bounds, and the buffers of connections.
//!
//! # Pitfalls
//!
//! Every removal from a queue with a [`BacklogEntry`] must release its bytes; only `Inner` removes items
//! (`admission.rs`, `outbox.rs`).

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

/// Bytes in the queue of a connected session that no budget counts. Also the floor below which a full budget
/// neither ends a session that loses its connection nor rejects presence and stanzas of the server.
pub const UNCOUNTED_QUEUE_BYTES: u32 = 64 * 1024;
/// Sender of a [`QueuedStanza`] that has not been resolved.
pub(super) const SENDER_UNKNOWN: u32 = 0;
/// Sender of stanzas that no sender budget counts: the server and the account itself. A requested response is
/// not exempt, because its sender chooses its size and time.
pub(super) const SENDER_EXEMPT: u32 = 1;
const SHARDS: usize = 16;

/// The limit that rejected a stanza.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceededLimit {
    /// Limit of the queue, by class.
    Queue,
    /// One sender's share of the queue.
    SenderShare,
    /// One sender's budget over all queues.
    SenderBudget,
    /// Budget of all sessions of an account.
    AccountBudget,
    /// Budget of all sessions of the node.
    NodeBudget,
}

impl ExceededLimit {
    /// Label value for metrics.
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

/// Recipient and limits of an admission check.
#[derive(Clone, Copy)]
pub struct AdmissionContext<'a> {
    /// The node's limits.
    pub limits: &'a NodeLimits,
    /// The backlog and the recipient's bare address; nothing is counted without it.
    pub backlog: Option<(&'a Arc<Backlog>, JidRef<'a>)>,
    /// Shares and budgets do not apply, because the stanza would cost as much elsewhere.
    pub bypass_budgets: bool,
}

#[derive(Default)]
struct Shard {
    accounts: HashMap<u32, u64>,
    senders: HashMap<u32, u64>,
}

/// Bytes that wait for the clients of a node.
#[derive(Default)]
pub struct Backlog {
    total: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
}

impl Backlog {
    /// Bytes that are counted.
    pub fn bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    fn shard(&self, key: u32) -> &Mutex<Shard> {
        &self.shards[key as usize % SHARDS]
    }

    /// The budget without room for this many more bytes. Two concurrent callers may both find room.
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

/// Bytes that one outbox has counted in the backlog: its queue, and the unacknowledged bytes of a detached
/// session.
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
    /// Adds an item whose sender is resolved.
    pub(super) fn add(&self, item: &QueuedStanza) {
        self.backlog.add(self.account, item.sender, item.size());
    }
    /// Subtracts an item that was added.
    pub(super) fn sub(&self, item: &QueuedStanza) {
        self.backlog.sub(self.account, item.sender, item.size());
    }
    /// Sets the unacknowledged bytes.
    pub(super) fn set_unacked(&mut self, bytes: u32) {
        self.backlog.sub(self.account, SENDER_EXEMPT, self.unacked);
        self.backlog.add(self.account, SENDER_EXEMPT, bytes);
        self.unacked = bytes;
    }
}

impl QueuedStanza {
    /// Resolves the sender as far as budgets need it.
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
    // Neither localpart nor domainpart contains characters that are escaped in an attribute.
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
