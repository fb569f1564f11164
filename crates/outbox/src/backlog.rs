//! Backlog of clients that do not read: queued bytes by sender, by recipient account and for the whole node.
//!
//! The limits of a session's queue bound one session, but neither the total of an account with many sessions
//! nor what one sender causes in many queues. So the queue of a detached session (XEP-0198, section 5), and any
//! queue of more than [`UNCOUNTED_QUEUE_BYTES`], is counted in the node's [`Backlog`], together with the
//! unacknowledged stanzas of a detached session, and with the buffer of a connection whose client does not read what
//! left the queue, such as a large roster. A session whose client keeps up is never counted, at the cost of one
//! comparison.
//!
//! Others can fill the budgets of the node and of an account. So no budget ends a session with less than the
//! guaranteed [`UNCOUNTED_QUEUE_BYTES`]; the number of sessions bounds the total of these.
//!
//! Senders and accounts are bare addresses. A queued stanza holds the number of its sender, which the backlog
//! gives to an address with counted bytes and takes back with the last of them; so two senders never share one.
//! The text is held once for each such address. It is never longer than the stanzas that it counts, because each
//! of them contains it.
//!
//! Not implemented: unacknowledged stanzas of connected sessions, which
//! `modules.stream_management.unacked_bytes` bounds.
//!
//! # Pitfalls
//!
//! Every removal from a queue with a [`BacklogEntry`] must release its bytes; only `Inner` removes items
//! (`admission.rs`, `outbox.rs`). The number of a stanza that is not counted has no meaning.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::lock::{RankedMutex, rank};
use hashbrown::HashTable;
use jid::JidRef;

use super::outbox::QueuedStanza;
use crate::limits::OutboxLimits;
use crate::shared_stanza::SharedStanza;

/// Bytes in the queue of a connected session that no budget counts. Also the guaranteed amount: below it a full budget
/// neither ends a session that loses its connection nor rejects presence and stanzas of the server.
pub const UNCOUNTED_QUEUE_BYTES: u32 = 64 * 1024;
/// Sender of a [`QueuedStanza`] that is not counted, or of one whose sender has no counted bytes.
pub(super) const SENDER_UNCOUNTED: u32 = 0;
/// Sender of stanzas that no sender budget counts: the server and the account itself. A requested response is
/// not exempt, because its sender chooses its size and time.
pub(super) const SENDER_EXEMPT: u32 = 1;
/// Number of the address with the first index.
const FIRST_NUMBER: u32 = 2;
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
    pub limits: &'a OutboxLimits,
    /// The backlog and the recipient's bare address; nothing is counted without it.
    pub backlog: Option<(&'a Arc<Backlog>, JidRef<'a>)>,
    /// Shares and budgets do not apply, because the stanza would cost as much elsewhere.
    pub bypass_budgets: bool,
}

/// An address with counted bytes.
struct CountedAddress {
    address: Box<str>,
    /// Bytes that it sent.
    sent: u64,
    /// Bytes that wait for its sessions.
    received: u64,
    /// Entries of its sessions.
    outboxes: u32,
}

impl CountedAddress {
    fn is_unused(&self) -> bool {
        self.sent == 0 && self.received == 0 && self.outboxes == 0
    }
}

/// Addresses with counted bytes by index, and their indices by address.
#[derive(Default)]
struct Shard {
    addresses: Vec<Option<CountedAddress>>,
    free: Vec<usize>,
    by_address: HashTable<usize>,
}

impl Shard {
    fn index_of(&self, hash: u64, address: &str) -> Option<usize> {
        let is = |index: &usize| self.get(*index).is_some_and(|counted| *counted.address == *address);
        self.by_address.find(hash, is).copied()
    }

    fn get(&self, index: usize) -> Option<&CountedAddress> {
        self.addresses.get(index)?.as_ref()
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut CountedAddress> {
        self.addresses.get_mut(index)?.as_mut()
    }

    fn insert(&mut self, hasher: &RandomState, hash: u64, address: &str) -> usize {
        let counted = Some(CountedAddress { address: address.into(), sent: 0, received: 0, outboxes: 0 });
        let index = self.free.pop().unwrap_or(self.addresses.len());
        match self.addresses.get_mut(index) {
            Some(vacant) => *vacant = counted,
            None => self.addresses.push(counted),
        }
        let Shard { addresses, by_address, .. } = self;
        by_address.insert_unique(hash, index, |index| {
            addresses
                .get(*index)
                .and_then(Option::as_ref)
                .map_or(0, |counted| hasher.hash_one(&*counted.address))
        });
        index
    }

    fn remove_unused(&mut self, hasher: &RandomState, index: usize) {
        let Some(counted) = self.get(index).filter(|counted| counted.is_unused()) else { return };
        let hash = hasher.hash_one(&*counted.address);
        if let Ok(found) = self.by_address.find_entry(hash, |other| *other == index) {
            found.remove();
        }
        self.addresses[index] = None;
        self.free.push(index);
        if self.by_address.is_empty() {
            *self = Shard::default();
        }
    }
}

/// Bytes that wait for the clients of a node.
#[derive(Default)]
pub struct Backlog {
    total: AtomicU64,
    /// Keyed, so that nobody can choose addresses of one shard.
    hasher: RandomState,
    shards: [RankedMutex<Shard, { rank::BACKLOG }>; SHARDS],
}

impl Backlog {
    /// Bytes that are counted.
    pub fn bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Number of a bare address that has counted bytes.
    fn number_of(&self, address: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(address);
        let shard = shard_of(hash);
        let index = self.shards[shard].lock().index_of(hash, address)?;
        number_at(shard, index)
    }

    /// Changes the counts of a bare address, which gets a number if it has none.
    fn count_address(&self, address: &str, change: impl FnOnce(&mut CountedAddress)) -> u32 {
        let hash = self.hasher.hash_one(address);
        let shard = shard_of(hash);
        let mut addresses = self.shards[shard].lock();
        let index = addresses
            .index_of(hash, address)
            .unwrap_or_else(|| addresses.insert(&self.hasher, hash, address));
        match (number_at(shard, index), addresses.get_mut(index)) {
            (Some(number), Some(counted)) => {
                change(counted);
                number
            }
            _ => SENDER_EXEMPT,
        }
    }

    fn with_number<T: Default>(&self, number: u32, f: impl FnOnce(&mut CountedAddress) -> T) -> T {
        let Some(index) = number.checked_sub(FIRST_NUMBER) else { return T::default() };
        let index = index as usize;
        let mut shard = self.shards[index % SHARDS].lock();
        let Some(counted) = shard.get_mut(index / SHARDS) else { return T::default() };
        let result = f(counted);
        shard.remove_unused(&self.hasher, index / SHARDS);
        result
    }

    /// The budget without room for this many more bytes. Two concurrent callers may both find room.
    fn exceeded_budget(
        &self,
        account: u32,
        sender: u32,
        bytes: u32,
        limits: &OutboxLimits,
    ) -> Option<ExceededLimit> {
        let bytes = u64::from(bytes);
        if sender != SENDER_EXEMPT
            && self.with_number(sender, |counted| counted.sent) + bytes
                > u64::from(limits.backlog_bytes_per_sender)
        {
            return Some(ExceededLimit::SenderBudget);
        }
        if self.with_number(account, |counted| counted.received) + bytes
            > u64::from(limits.backlog_bytes_per_account)
        {
            return Some(ExceededLimit::AccountBudget);
        }
        (self.bytes() + bytes > u64::from(limits.backlog_bytes)).then_some(ExceededLimit::NodeBudget)
    }

    /// Counts bytes for an account. Returns the number of the sender.
    fn add(&self, account: u32, sender: Option<&str>, bytes: u32) -> u32 {
        let bytes = u64::from(bytes);
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.with_number(account, |counted| counted.received += bytes);
        sender.map_or(SENDER_EXEMPT, |sender| self.count_address(sender, |counted| counted.sent += bytes))
    }

    fn sub(&self, account: u32, sender: u32, bytes: u32) {
        let bytes = u64::from(bytes);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        self.with_number(account, |counted| counted.received = counted.received.saturating_sub(bytes));
        self.with_number(sender, |counted| counted.sent = counted.sent.saturating_sub(bytes));
    }
}

fn shard_of(hash: u64) -> usize {
    usize::try_from(hash % SHARDS as u64).unwrap_or_default()
}

/// Number of the address at an index; `None` beyond 2^32, which [`OutboxLimits::backlog_bytes`] does not permit.
fn number_at(shard: usize, index: usize) -> Option<u32> {
    u32::try_from(index.checked_mul(SHARDS)? + shard).ok()?.checked_add(FIRST_NUMBER)
}

/// Bytes that one outbox has counted in the backlog: its queue, and the unacknowledged bytes of a detached
/// session.
pub(super) struct BacklogEntry {
    backlog: Arc<Backlog>,
    account: u32,
    unacked: u32,
}

impl BacklogEntry {
    pub(super) fn new(backlog: &Arc<Backlog>, owner: JidRef<'_>) -> BacklogEntry {
        let account = backlog.count_address(owner.bare().as_str(), |counted| counted.outboxes += 1);
        BacklogEntry { backlog: backlog.clone(), account, unacked: 0 }
    }

    /// Number of an item's sender.
    pub(super) fn sender_of(&self, item: &QueuedStanza, owner: JidRef<'_>) -> u32 {
        match sender_address(&item.stanza, owner) {
            None => SENDER_EXEMPT,
            Some(address) => self.backlog.number_of(address).unwrap_or(SENDER_UNCOUNTED),
        }
    }

    pub(super) fn exceeded_budget(
        &self,
        sender: u32,
        bytes: u32,
        limits: &OutboxLimits,
    ) -> Option<ExceededLimit> {
        self.backlog.exceeded_budget(self.account, sender, bytes, limits)
    }

    /// Adds an item and numbers its sender.
    pub(super) fn add(&self, item: &mut QueuedStanza, owner: JidRef<'_>) {
        item.sender = self.backlog.add(self.account, sender_address(&item.stanza, owner), item.size());
    }

    /// Subtracts an item that was added.
    pub(super) fn sub(&self, item: &QueuedStanza) {
        self.backlog.sub(self.account, item.sender, item.size());
    }

    /// Sets the unacknowledged bytes.
    pub(super) fn set_unacked(&mut self, bytes: u32) {
        self.backlog.sub(self.account, SENDER_EXEMPT, self.unacked);
        self.backlog.add(self.account, None, bytes);
        self.unacked = bytes;
    }
}

impl Drop for BacklogEntry {
    fn drop(&mut self) {
        self.set_unacked(0);
        self.backlog
            .with_number(self.account, |counted| counted.outboxes = counted.outboxes.saturating_sub(1));
    }
}

/// Bytes in the buffer of a connection, counted for its account and for the node. They have no sender any more.
pub(super) struct UnsentEntry(BacklogEntry);

impl UnsentEntry {
    pub(super) fn new(backlog: &Arc<Backlog>, owner: JidRef<'_>) -> UnsentEntry {
        UnsentEntry(BacklogEntry::new(backlog, owner))
    }

    pub(super) fn set(&mut self, bytes: u32) {
        if bytes != self.0.unacked {
            self.0.set_unacked(bytes);
        }
    }
}

/// The bare address of the sender; `None` for one that no sender budget counts.
pub fn sender_address<'a>(stanza: &'a SharedStanza, owner: JidRef<'_>) -> Option<&'a str> {
    let from = stanza.head().raw_from(stanza.bytes()).filter(|_| !stanza.is_server_answer())?;
    // Neither localpart nor domainpart contains characters that are escaped in an attribute.
    let bare = from.split_once('/').map_or(from, |(bare, _)| bare);
    (bare != owner.bare().as_str() && bare != owner.domain()).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_entries_leave_no_counters() {
        let backlog = Arc::new(Backlog::default());
        let limits = OutboxLimits {
            backlog_bytes: 100,
            backlog_bytes_per_account: 60,
            backlog_bytes_per_sender: 40,
            ..OutboxLimits::default()
        };
        let [a, b, c] = ["a@x", "b@x", "c@x"].map(|owner| {
            let owner = jid::Jid::parse(owner).unwrap();
            BacklogEntry::new(&backlog, owner.as_ref())
        });
        let exceeded = |entry: &BacklogEntry, sender, bytes| entry.exceeded_budget(sender, bytes, &limits);
        let sender = backlog.add(a.account, Some("s@x"), 30);
        assert_eq!(backlog.number_of("s@x"), Some(sender));
        let other = SENDER_UNCOUNTED;
        assert_eq!(exceeded(&a, sender, 11), Some(ExceededLimit::SenderBudget));
        assert_eq!(exceeded(&b, sender, 11), Some(ExceededLimit::SenderBudget), "for every recipient");
        assert_eq!(exceeded(&a, other, 31), Some(ExceededLimit::AccountBudget));
        assert_eq!(exceeded(&a, other, 41), Some(ExceededLimit::SenderBudget), "larger than a budget");
        assert_eq!(exceeded(&a, SENDER_EXEMPT, 31), Some(ExceededLimit::AccountBudget));
        assert_eq!(exceeded(&b, SENDER_EXEMPT, 71), Some(ExceededLimit::AccountBudget));
        backlog.add(b.account, None, 60);
        assert_eq!(exceeded(&c, other, 11), Some(ExceededLimit::NodeBudget));
        assert_eq!(exceeded(&c, other, 10), None);
        backlog.sub(b.account, SENDER_EXEMPT, 60);
        backlog.sub(a.account, sender, 30);
        assert_eq!((backlog.bytes(), backlog.number_of("s@x")), (0, None));
        drop((a, b, c));
        assert!(backlog.shards.iter().all(|shard| {
            let shard = shard.lock();
            shard.addresses.capacity() == 0 && shard.by_address.is_empty()
        }));
    }

    #[test]
    fn the_buffer_of_a_connection_is_counted_until_it_is_read_or_the_connection_ends() {
        let backlog = Arc::new(Backlog::default());
        let owner = jid::Jid::parse("a@x/b").unwrap();
        let outbox = crate::Outbox::new();
        let set = |bytes| outbox.set_unsent(bytes, &backlog, owner.as_ref());
        set(100);
        set(40);
        let account = backlog.number_of("a@x").unwrap();
        let received = || backlog.with_number(account, |counted| counted.received);
        assert_eq!((backlog.bytes(), received()), (40, 40));
        set(0);
        assert_eq!((backlog.bytes(), backlog.number_of("a@x")), (0, None));
        set(40);
        drop(outbox.close_and_drain());
        assert_eq!((backlog.bytes(), backlog.number_of("a@x")), (0, None));
        set(40);
        assert_eq!(backlog.bytes(), 0, "a closed outbox has no connection");
    }

    #[test]
    fn addresses_with_the_same_hash_have_two_indices() {
        let hasher = RandomState::new();
        let mut shard = Shard::default();
        let (a, b) = (shard.insert(&hasher, 7, "a@x"), shard.insert(&hasher, 7, "b@x"));
        assert_eq!((shard.index_of(7, "a@x"), shard.index_of(7, "b@x")), (Some(a), Some(b)));
        assert_eq!((shard.index_of(7, "c@x"), a == b), (None, false));
    }

    #[test]
    fn numbers_of_many_addresses_differ_and_are_used_again() {
        let backlog = Arc::new(Backlog::default());
        let names: Vec<String> = (0..1000).map(|n| format!("s{n}@x")).collect();
        for _ in 0..2 {
            let numbers: Vec<u32> = names.iter().map(|name| backlog.add(0, Some(name), 1)).collect();
            let mut unique = numbers.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!((unique.len(), unique[0] >= FIRST_NUMBER), (1000, true));
            assert!(unique[999] < 16_000, "{}", unique[999]);
            for (name, number) in names.iter().zip(numbers) {
                assert_eq!(backlog.number_of(name), Some(number));
                backlog.sub(0, number, 1);
            }
            assert_eq!(backlog.bytes(), 0);
        }
    }
}
