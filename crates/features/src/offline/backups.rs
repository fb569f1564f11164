//! Backups of messages that are in the queues of sessions (`throng_core::message_backup`).
//!
//! A backup is an ordinary row of the offline store, so that the message is delivered at the next login if the process ends.
//! While a session holds the message, the row is not delivered to another one. It is removed when the message is delivered,
//! and becomes an ordinary stored message when the session is gone.
//!
//! [`MessageBackups`] knows the number of each row. The store task writes backups in the recipient's order, with all other
//! messages; a message that is about to be stored follows those that its recipient's sessions hold.
//!
//! # Pitfalls
//!
//! A message may be delivered, or its session end, while the store writes its backup. Both mark the message first and then
//! look for its row here; [`MessageBackups::add`] looks at the marks with the lock held. So one of the two sees the other.

use std::collections::HashMap;
use std::sync::Arc;

use base::lock::LeafMutex;
use jid::Jid;
use throng_core::message_backup::MessageBackup;
use throng_core::{Account, Node, SharedStanza};

use super::delivery::{OfflineDelivery, OfflineRules};

/// Capacity that is retained while there are no backups.
const RETAINED_CAPACITY: usize = 1024;

struct Backup {
    message: SharedStanza,
    number: u64,
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

/// Backups of a host, by the owner of the session that holds the message. In the order of their numbers.
#[derive(Default)]
pub(super) struct MessageBackups(LeafMutex<HashMap<Jid, Vec<Backup>>>);

impl MessageBackups {
    /// The backup of a message was written.
    pub(super) fn add(&self, owner: &Jid, message: SharedStanza, number: u64) -> BackupUse {
        let mut backups = self.0.lock();
        if message.is_abandoned_to_backup() {
            return BackupUse::Abandoned;
        }
        let is_delivered = message.is_delivery_confirmed();
        backups.entry(owner.clone()).or_default().push(Backup { message, number });
        if is_delivered { BackupUse::Delivered } else { BackupUse::Held }
    }

    /// Numbers of the backups of these messages that were written, in order. They stay here until the rows are removed, so
    /// that those are not delivered.
    fn numbers_of(&self, owner: &Jid, messages: &[SharedStanza]) -> Vec<u64> {
        let backups = self.0.lock();
        let held = backups.get(owner).into_iter().flatten();
        let of_messages =
            held.filter(|backup| messages.iter().any(|message| message.is_same(&backup.message)));
        of_messages.map(|backup| backup.number).collect()
    }

    /// These rows were removed, or are ordinary stored messages.
    pub(super) fn remove(&self, owner: &Jid, numbers: &[u64]) {
        let mut backups = self.0.lock();
        let Some(held) = backups.get_mut(owner) else { return };
        held.retain(|backup| numbers.binary_search(&backup.number).is_err());
        if held.is_empty() {
            backups.remove(owner);
        }
        if backups.is_empty() {
            backups.shrink_to(RETAINED_CAPACITY);
        }
    }

    /// Numbers of the rows whose messages are held by sessions of this owner, in order.
    pub(super) fn numbers(&self, owner: &Jid) -> Vec<u64> {
        let backups = self.0.lock();
        backups.get(owner).map_or_else(Vec::new, |held| held.iter().map(|backup| backup.number).collect())
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
    fn back_up(&self, node: &Arc<Node>, account: &Arc<Account>, messages: Vec<SharedStanza>) {
        self.delivery.store_backups(node, account, messages, self.rules);
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
        let numbers = self.delivery.backups.numbers_of(&account.jid, std::slice::from_ref(message));
        if !numbers.is_empty() {
            self.delivery.backups.remove(&account.jid, &numbers);
            self.delivery.backup_abandoned(node, &account.jid);
        }
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
        assert_eq!(backups.add(&owner, delivered.clone(), 1), BackupUse::Delivered);
        assert_eq!(backups.add(&owner, abandoned, 2), BackupUse::Abandoned);
        assert_eq!(backups.add(&owner, held.clone(), 3), BackupUse::Held);
        assert_eq!(backups.numbers(&owner), [1, 3], "neither may be delivered from the store");
        assert_eq!(backups.numbers_of(&owner, &[held, message()]), [3]);
        backups.remove(&owner, &[1]);
        assert_eq!(backups.numbers_of(&owner, &[delivered]), [0; 0]);
        backups.remove(&owner, &[3]);
        assert!(backups.0.lock().is_empty(), "no memory is left");
    }
}
