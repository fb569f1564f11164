//! Backups of messages that are in the queues of sessions (`throng_core::message_backup`).
//!
//! A backup is an ordinary row of the offline store, so that the message is delivered at the next login if the process ends.
//! While a session holds the message, the row is not delivered to another one of this node. It is removed when the message is
//! delivered, and becomes an ordinary stored message when the session is gone.
//!
//! A session that logs in on another node leaves the store to this one while sessions here take messages and have connections
//! (`PeerRouting::leave_stored`). If they have lost theirs, it receives the message from the store, with the same stanza-id: it must
//! not wait for clients that may never return. Whichever session delivers first removes the row; the other one has the message in
//! its queue.
//!
//! The queues of sessions bound what they hold, so those rows have no quota: a refused backup would be a message that its
//! sender believes to be safe. What sessions have left is an ordinary stored message and counts ([`MessageBackups::quota`]).
//!
//! [`MessageBackups`] knows the number of each row. The store task writes backups in the recipient's order, with all other
//! messages; a message that is about to be stored follows those that its recipient's sessions hold.
//!
//! # Pitfalls
//!
//! A message may be delivered, or its session end, while the store writes its backup. Both mark the message first and then
//! look for its row here; [`MessageBackups::add`] looks at the marks with the lock held. So one of the two sees the other.
//!
//! A page of the store is older than the state here. While one is read, removed rows are recorded ([`PageRead`]): it may have
//! a row whose message was delivered meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::lock::LeafMutex;
use jid::Jid;
use store::{Quota, QuotaUsage};
use throng_core::message_backup::{BeginBackups, MessageBackup};
use throng_core::{Account, Node, SharedStanza};

use super::delivery::{OfflineDelivery, OfflineRules};

/// Capacity that is retained while there are no backups.
const RETAINED_CAPACITY: usize = 1024;

/// A row of the offline store.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredRow {
    pub(super) number: u64,
    pub(super) bytes: u64,
}

struct Backup {
    message: SharedStanza,
    bytes: u64,
}

/// Backups of one owner.
#[derive(Default)]
struct OwnerBackups {
    by_number: BTreeMap<u64, Backup>,
    /// Numbers by the address of the message, which the backup keeps.
    numbers: HashMap<usize, u64>,
    bytes: u64,
    /// Numbers that were removed since a page is being read.
    removed: Option<Vec<u64>>,
}

impl OwnerBackups {
    fn remove(&mut self, number: u64) {
        if let Some(backup) = self.by_number.remove(&number) {
            self.numbers.remove(&address(&backup.message));
            self.bytes -= backup.bytes;
        }
    }
}

/// Unique as long as the message exists.
fn address(message: &SharedStanza) -> usize {
    message.bytes().as_ptr().addr()
}

/// What the row of a backup is for, once it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackupUse {
    /// A session holds the message.
    Held,
    /// The message was delivered meanwhile: the row must be removed.
    Delivered,
    /// The session has ended meanwhile: the row is an ordinary stored message.
    Abandoned,
}

/// Backups of a host, by the owner of the session that holds the message.
#[derive(Default)]
pub(super) struct MessageBackups(LeafMutex<HashMap<Jid, OwnerBackups>>);

impl MessageBackups {
    /// The backup of a message was written.
    pub(super) fn add(&self, owner: &Jid, message: SharedStanza, row: StoredRow) -> BackupUse {
        let StoredRow { number, bytes } = row;
        let mut backups = self.0.lock();
        if message.is_abandoned_to_backup() {
            return BackupUse::Abandoned;
        }
        let is_delivered = message.is_delivery_confirmed();
        let of_owner = backups.entry(owner.clone()).or_default();
        of_owner.numbers.insert(address(&message), number);
        of_owner.by_number.insert(number, Backup { message, bytes });
        of_owner.bytes += bytes;
        if is_delivered { BackupUse::Delivered } else { BackupUse::Held }
    }

    /// Numbers of the backups of these messages that were written, in order. They stay here until the rows are removed, so
    /// that those are not delivered.
    fn numbers_of(&self, owner: &Jid, messages: &[SharedStanza]) -> Vec<u64> {
        let backups = self.0.lock();
        let Some(of_owner) = backups.get(owner) else { return Vec::new() };
        let numbers = messages.iter().filter_map(|message| of_owner.numbers.get(&address(message)));
        let mut numbers: Vec<u64> = numbers.copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// These rows were removed.
    pub(super) fn remove(&self, owner: &Jid, numbers: &[u64]) {
        self.change(owner, |of_owner| {
            numbers.iter().for_each(|number| of_owner.remove(*number));
            if let Some(removed) = &mut of_owner.removed {
                removed.extend(numbers);
            }
        });
    }

    /// The row of this message is an ordinary stored message. True if there is one.
    fn abandon(&self, owner: &Jid, message: &SharedStanza) -> bool {
        let removed = self.change(owner, |of_owner| {
            let number = of_owner.numbers.get(&address(message)).copied();
            number.map(|number| of_owner.remove(number))
        });
        removed.flatten().is_some()
    }

    /// Changes what there is of an owner, and frees what is empty.
    fn change<T>(&self, owner: &Jid, change: impl FnOnce(&mut OwnerBackups) -> T) -> Option<T> {
        let mut backups = self.0.lock();
        let of_owner = backups.get_mut(owner)?;
        let changed = change(of_owner);
        if of_owner.by_number.is_empty() && of_owner.removed.is_none() {
            backups.remove(owner);
        }
        if backups.is_empty() {
            backups.shrink_to(RETAINED_CAPACITY);
        }
        Some(changed)
    }

    /// Numbers of the rows whose messages are held by sessions of this owner, in order.
    pub(super) fn numbers(&self, owner: &Jid) -> Vec<u64> {
        let backups = self.0.lock();
        backups.get(owner).map_or_else(Vec::new, |held| held.by_number.keys().copied().collect())
    }

    /// Must be called before a page of the owner's messages is read; there is one reader at a time.
    pub(super) fn begin_read<'a>(&'a self, owner: &'a Jid) -> PageRead<'a> {
        self.0.lock().entry(owner.clone()).or_default().removed = Some(Vec::new());
        PageRead { backups: self, owner }
    }

    /// Quota for a batch of backups: what sessions hold does not count. Ordinary messages may fill the quota of the account,
    /// and what sessions have left or hold on other nodes as much again; then backups are refused, too. An account that may
    /// store nothing has no backups.
    pub(super) fn quota(&self, owner: &Jid, of_account: Quota, batch: QuotaUsage) -> Quota {
        if of_account.messages == 0 {
            return of_account;
        }
        let backups = self.0.lock();
        let (held, held_bytes) = backups.get(owner).map_or((0, 0), |held| (held.by_number.len(), held.bytes));
        drop(backups);
        let held = u64::try_from(held).unwrap_or(u64::MAX);
        let messages =
            (u64::from(of_account.messages) * 2).saturating_add(held).saturating_add(batch.messages);
        let bytes = of_account.bytes.saturating_mul(2);
        Quota {
            messages: u32::try_from(messages).unwrap_or(u32::MAX),
            bytes: bytes.saturating_add(held_bytes).saturating_add(batch.bytes),
            sender_percent: 100,
        }
    }
}

/// A page of an owner's messages that is being read.
pub(super) struct PageRead<'a> {
    backups: &'a MessageBackups,
    owner: &'a Jid,
}

impl PageRead<'_> {
    /// Numbers of the rows that were removed meanwhile, in order.
    pub(super) fn removed(&self) -> Vec<u64> {
        let mut backups = self.backups.0.lock();
        let removed = backups.get_mut(self.owner).and_then(|of_owner| of_owner.removed.as_mut());
        let mut removed = removed.map(std::mem::take).unwrap_or_default();
        removed.sort_unstable();
        removed
    }
}

impl Drop for PageRead<'_> {
    fn drop(&mut self) {
        self.backups.change(self.owner, |of_owner| of_owner.removed = None);
    }
}

/// The ranges between `first` and `last` without these numbers, which are in order.
pub(super) fn ranges_without(first: u64, last: u64, numbers: &[u64]) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut start = first;
    for &number in numbers.iter().filter(|number| (first..=last).contains(number)) {
        if start < number {
            ranges.push((start, number - 1));
        }
        start = number + 1;
    }
    if start <= last {
        ranges.push((start, last));
    }
    ranges
}

/// Ranges of consecutive numbers.
pub(super) fn consecutive_ranges(numbers: &[u64]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

/// Registered with the host.
pub(super) struct OfflineBackup {
    pub(super) delivery: Arc<OfflineDelivery>,
    pub(super) rules: OfflineRules,
}

impl MessageBackup for OfflineBackup {
    fn back_up(&self, node: &Arc<Node>, account: &Arc<Account>, begin_backups: BeginBackups<'_>) {
        self.delivery.store_backups(node, account, begin_backups, self.rules);
    }

    fn remove_backups(&self, node: &Arc<Node>, account: &Arc<Account>, messages: Vec<SharedStanza>) {
        let numbers = self.delivery.backups.numbers_of(&account.jid, &messages);
        if numbers.is_empty() {
            return;
        }
        let (delivery, task_node, account) = (self.delivery.clone(), node.clone(), account.clone());
        let remove =
            async move { delivery.remove_rows(&task_node, &account.jid, account.id, &numbers).await };
        node.spawner.spawn("offline backups", Box::pin(remove));
    }

    fn abandon_backup(&self, node: &Arc<Node>, account: &Arc<Account>, message: &SharedStanza) {
        if self.delivery.backups.abandon(&account.jid, message) {
            self.delivery.backup_abandoned(node, &account.jid);
        }
    }

    fn row_of(&self, owner: &Jid, message: &SharedStanza) -> Option<u64> {
        self.delivery.backups.numbers_of(owner, std::slice::from_ref(message)).first().copied()
    }

    fn adopt_backup(&self, node: &Node, owner: &Jid, message: &SharedStanza, row: u64) {
        message.track_delivery(node.clock.now());
        if !message.begin_backup() {
            // Another session here holds it, and has a backup or needs none: the row is an ordinary stored message.
            return;
        }
        message.settle_delivery();
        let bytes = message.bytes().len() as u64;
        self.delivery.backups.add(owner, message.clone(), StoredRow { number: row, bytes });
    }

    fn release_backup(&self, owner: &Jid, message: &SharedStanza) {
        self.delivery.backups.abandon(owner, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::Millis;

    fn message() -> SharedStanza {
        let message = SharedStanza::parse(b"<message/>").unwrap();
        assert!(message.track_delivery(Millis(0)) && message.begin_backup());
        message
    }

    fn row(number: u64) -> StoredRow {
        StoredRow { number, bytes: 100 }
    }

    #[test]
    fn ranges_leave_out_the_rows_of_held_messages() {
        for (first, last, numbers, ranges) in [
            (1, 9, &[][..], &[(1, 9)][..]),
            (1, 9, &[1][..], &[(2, 9)][..]),
            (1, 9, &[9][..], &[(1, 8)][..]),
            (1, 9, &[3, 4, 7][..], &[(1, 2), (5, 6), (8, 9)][..]),
            (3, 5, &[1, 3, 4, 5, 8][..], &[][..]),
            (5, 4, &[][..], &[][..]),
        ] {
            assert_eq!(ranges_without(first, last, numbers), ranges, "{first} to {last} without {numbers:?}");
        }
        assert_eq!(consecutive_ranges(&[1, 2, 3, 7, 9, 10]), [(1, 3), (7, 7), (9, 10)]);
        assert!(consecutive_ranges(&[]).is_empty());
    }

    #[test]
    fn a_backup_is_held_unless_its_message_was_delivered_or_abandoned_meanwhile() {
        let (backups, owner) = (MessageBackups::default(), Jid::parse("juliet@capulet.com").unwrap());
        let [held, delivered, abandoned] = [message(), message(), message()];
        assert!(delivered.confirm_delivery() && abandoned.abandon_to_backup());
        assert_eq!(backups.add(&owner, delivered.clone(), row(1)), BackupUse::Delivered);
        assert_eq!(backups.add(&owner, abandoned, row(2)), BackupUse::Abandoned);
        assert_eq!(backups.add(&owner, held.clone(), row(3)), BackupUse::Held);
        assert_eq!(backups.numbers(&owner), [1, 3], "neither may be delivered from the store");
        assert_eq!(backups.numbers_of(&owner, &[held, message()]), [3]);
        backups.remove(&owner, &[1]);
        assert_eq!(backups.numbers_of(&owner, &[delivered]), [0; 0]);
        backups.remove(&owner, &[3]);
        assert!(backups.0.lock().is_empty(), "no memory is left");
    }

    #[test]
    fn a_page_read_knows_the_rows_that_were_removed_meanwhile_but_not_those_that_were_abandoned() {
        let (backups, owner) = (MessageBackups::default(), Jid::parse("juliet@capulet.com").unwrap());
        let [before, during, abandoned] = [message(), message(), message()];
        assert_eq!(backups.add(&owner, before, row(1)), BackupUse::Held);
        assert_eq!(backups.add(&owner, abandoned.clone(), row(2)), BackupUse::Held);
        let read = backups.begin_read(&owner);
        assert_eq!(backups.add(&owner, during, row(3)), BackupUse::Held);
        backups.remove(&owner, &[3]);
        backups.remove(&owner, &[1]);
        assert!(abandoned.abandon_to_backup() && backups.abandon(&owner, &abandoned));
        assert!(!backups.abandon(&owner, &abandoned));
        assert_eq!((backups.numbers(&owner), read.removed()), (vec![], vec![1, 3]));
        drop(read);
        assert!(backups.0.lock().is_empty(), "no memory is left");
    }

    #[test]
    fn what_sessions_hold_does_not_count_for_the_quota_of_backups() {
        let (backups, owner) = (MessageBackups::default(), Jid::parse("juliet@capulet.com").unwrap());
        let of_account = Quota { messages: 10, bytes: 1_000, sender_percent: 50 };
        let batch = QuotaUsage { messages: 3, bytes: 30 };
        let quota = || backups.quota(&owner, of_account, batch);
        assert_eq!(quota(), Quota { messages: 23, bytes: 2_030, sender_percent: 100 });
        let held = message();
        backups.add(&owner, held.clone(), row(1));
        assert_eq!(quota(), Quota { messages: 24, bytes: 2_130, sender_percent: 100 });
        assert!(held.abandon_to_backup() && backups.abandon(&owner, &held));
        assert_eq!(quota().messages, 23);
        let nothing = Quota { messages: 0, ..of_account };
        assert_eq!(backups.quota(&owner, nothing, batch), nothing);
    }
}
