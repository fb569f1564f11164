//! Messages of one recipient that must be stored.
//!
//! Messages of one sender keep their order. A batch takes messages of all senders in turn, so that a sender of thousands
//! delays those of others by one batch at most. If all messages fit into one batch, they are in the order of arrival.
//!
//! Senders do not wait for the store, so what is pending is bounded: by sender, by recipient, and for the node
//! ([`PendingBytes`]). Backups are bounded by the queues of the sessions that hold their messages, and so are messages of a
//! session that has ended.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use base::clock::Millis;
use stanza::{StanzaCondition, StanzaError};
use throng_core::receipt::FailedReceipt;
use throng_core::session::queued_size;
use throng_core::{Node, ReceiptIssuer, SharedStanza};

use super::delivery::OfflineRules;

/// Limit of messages written in one transaction.
pub(super) const STORE_BATCH: usize = 64;
/// Messages of one recipient, and their bytes.
const MAX_MESSAGES: usize = 4096;
const MAX_BYTES: usize = 4 << 20;
/// Part of them that one sender may use.
const SENDER_SHARE: usize = 4;
/// Bytes for all recipients of the node.
const MAX_NODE_BYTES: usize = 64 << 20;

/// Bytes of all messages of the node that must be stored, including those that are being written.
#[derive(Default)]
pub(super) struct PendingBytes(AtomicUsize);

/// Bytes of one message; released when it is dropped.
struct ReservedBytes {
    total: Arc<PendingBytes>,
    bytes: usize,
}

impl ReservedBytes {
    fn new(total: &Arc<PendingBytes>, bytes: usize) -> ReservedBytes {
        total.0.fetch_add(bytes, Ordering::Relaxed);
        ReservedBytes { total: total.clone(), bytes }
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.total.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A message that must be stored.
pub(super) struct PendingMessage {
    pub(super) frame: SharedStanza,
    /// Time of arrival, in milliseconds since 1970.
    pub(super) received_at: u64,
    /// The same by the clock that never jumps.
    pub(super) pending_since: Millis,
    /// `None` if it is a backup.
    pub(super) issuer: Option<ReceiptIssuer>,
    /// It is a backup of a message that a session holds, and is not finished.
    pub(super) is_backup: bool,
    /// The sender waits until it is delivered or stored.
    pub(super) tracks_delivery: bool,
    /// It was in the queue of a session that has ended.
    pub(super) is_redelivery: bool,
    pub(super) rules: OfflineRules,
    /// Hash of the sender's bare address.
    pub(super) sender: u64,
    /// Reports the failure of a backup.
    pub(super) node: Weak<Node>,
}

impl Drop for PendingMessage {
    /// A backup that was lost must not stop its sender permanently. If no session holds the message, the sender gets an error.
    fn drop(&mut self) {
        if !self.is_backup {
            return;
        }
        if self.frame.cancel_backup()
            && let Some(node) = self.node.upgrade()
        {
            let error = StanzaError::from(StanzaCondition::InternalServerError);
            let (failed, of_task) = (FailedReceipt { stanza: self.frame.clone(), error }, node.clone());
            // A task: a panic may be unwinding, and this one routes a stanza.
            node.spawner.spawn("offline errors", Box::pin(async move { of_task.return_failed(failed) }));
        }
        self.frame.settle_delivery();
    }
}

/// A message with its place in the order of arrival. Its bytes count until it is dropped.
pub(super) struct QueuedMessage {
    pub(super) message: PendingMessage,
    arrival: u64,
    reserved: ReservedBytes,
}

/// Messages of one sender. Senders with the same hash share them.
#[derive(Default)]
struct SenderMessages {
    messages: VecDeque<QueuedMessage>,
    /// Messages other than backups, and their bytes.
    count: usize,
    bytes: usize,
}

/// Messages of one recipient that must be stored.
pub(super) struct PendingMessages {
    total: Arc<PendingBytes>,
    senders: HashMap<u64, SenderMessages>,
    /// The senders, in the order of their turns.
    turns: VecDeque<u64>,
    next_arrival: u64,
    /// Messages other than backups, and their bytes.
    count: usize,
    bytes: usize,
}

impl PendingMessages {
    pub(super) fn new(total: Arc<PendingBytes>) -> PendingMessages {
        let (senders, turns) = (HashMap::new(), VecDeque::new());
        PendingMessages { total, senders, turns, next_arrival: 0, count: 0, bytes: 0 }
    }

    /// Adds a message after those of its sender.
    ///
    /// # Errors
    ///
    /// The message, if a bound is reached. Never for one that a queue has bounded.
    pub(super) fn push(&mut self, message: PendingMessage) -> Result<(), PendingMessage> {
        let bytes = queued_bytes(&message);
        let is_bounded = message.is_backup || message.is_redelivery;
        if !is_bounded && !self.has_room(message.sender, bytes) {
            return Err(message);
        }
        let (arrival, reserved) = (self.next_arrival, ReservedBytes::new(&self.total, bytes));
        self.next_arrival += 1;
        self.insert(QueuedMessage { message, arrival, reserved });
        Ok(())
    }

    fn has_room(&self, sender: u64, bytes: usize) -> bool {
        // One message fits always: the limit of a stanza may be above these bounds.
        let fits = |count: usize, held: usize, part: usize| {
            count == 0 || count < MAX_MESSAGES / part && held.saturating_add(bytes) <= MAX_BYTES / part
        };
        let of_sender = self.senders.get(&sender).map_or((0, 0), |queue| (queue.count, queue.bytes));
        let held_by_node = self.total.0.load(Ordering::Relaxed);
        fits(self.count, self.bytes, 1)
            && fits(of_sender.0, of_sender.1, SENDER_SHARE)
            && held_by_node.saturating_add(bytes) <= MAX_NODE_BYTES
    }

    /// Returns messages that were taken; they keep their place.
    pub(super) fn put_back(&mut self, messages: impl IntoIterator<Item = QueuedMessage>) {
        messages.into_iter().for_each(|queued| self.insert(queued));
    }

    fn insert(&mut self, queued: QueuedMessage) {
        let queue = self.senders.entry(queued.message.sender).or_default();
        if queue.messages.is_empty() {
            self.turns.push_back(queued.message.sender);
        }
        if !queued.message.is_backup {
            let bytes = queued.reserved.bytes;
            (queue.count, queue.bytes) = (queue.count + 1, queue.bytes + bytes);
            (self.count, self.bytes) = (self.count + 1, self.bytes + bytes);
        }
        match queue.messages.back() {
            Some(last) if last.arrival > queued.arrival => {
                let at = queue.messages.partition_point(|other| other.arrival < queued.arrival);
                queue.messages.insert(at, queued);
            }
            _ => queue.messages.push_back(queued),
        }
    }

    /// Takes the next batch to write: only backups, or only others.
    pub(super) fn take_batch(&mut self) -> Vec<QueuedMessage> {
        let mut batch = Vec::new();
        let first = self.turns.front().and_then(|sender| self.senders.get(sender)?.messages.front());
        let Some(backups) = first.map(|first| first.message.is_backup) else { return batch };
        let share = (STORE_BATCH / self.turns.len()).max(1);
        let mut without = 0;
        while batch.len() < STORE_BATCH
            && without < self.turns.len()
            && let Some(sender) = self.turns.pop_front()
        {
            let Some(queue) = self.senders.get_mut(&sender) else { continue };
            let end = STORE_BATCH.min(batch.len() + share);
            let before = batch.len();
            while batch.len() < end
                && let Some(queued) = queue.messages.pop_front_if(|next| next.message.is_backup == backups)
            {
                if !backups {
                    let bytes = queued.reserved.bytes;
                    (queue.count, queue.bytes) = (queue.count - 1, queue.bytes - bytes);
                    (self.count, self.bytes) = (self.count - 1, self.bytes - bytes);
                }
                batch.push(queued);
            }
            without = if batch.len() == before { without + 1 } else { 0 };
            if queue.messages.is_empty() {
                self.senders.remove(&sender);
            } else {
                self.turns.push_back(sender);
            }
        }
        batch.sort_unstable_by_key(|taken| taken.arrival);
        batch
    }

    /// Takes all messages except backups, in the order of arrival.
    pub(super) fn take_messages(&mut self) -> VecDeque<QueuedMessage> {
        let mut taken = Vec::with_capacity(self.count);
        self.senders.retain(|_, queue| {
            let (backups, messages): (VecDeque<_>, VecDeque<_>) =
                queue.messages.drain(..).partition(|queued| queued.message.is_backup);
            taken.extend(messages);
            *queue = SenderMessages { messages: backups, count: 0, bytes: 0 };
            !queue.messages.is_empty()
        });
        let senders = &self.senders;
        self.turns.retain(|sender| senders.contains_key(sender));
        (self.count, self.bytes) = (0, 0);
        taken.sort_unstable_by_key(|taken| taken.arrival);
        taken.into()
    }

    /// Takes everything.
    pub(super) fn take_all(&mut self) -> PendingMessages {
        let empty = PendingMessages::new(self.total.clone());
        std::mem::replace(self, empty)
    }

    /// Whether there are messages other than backups.
    pub(super) fn has_messages(&self) -> bool {
        self.count > 0
    }

    /// Bytes of the messages other than backups in the queue of a session.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }
}

fn queued_bytes(message: &PendingMessage) -> usize {
    queued_size(&message.frame) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Quota;

    const RULES: OfflineRules =
        OfflineRules { quota: Quota { messages: 0, bytes: 0, sender_percent: 100 }, expiry_days: 0 };

    fn pending() -> PendingMessages {
        PendingMessages::new(Arc::default())
    }

    fn message(sender: u64, id: u64, size: usize, is_backup: bool) -> PendingMessage {
        let text = format!("<message id='{id}'>{}</message>", " ".repeat(size));
        PendingMessage {
            frame: SharedStanza::parse(text.as_bytes()).unwrap(),
            received_at: id,
            pending_since: Millis(0),
            issuer: None,
            is_backup,
            tracks_delivery: false,
            is_redelivery: false,
            rules: RULES,
            sender,
            node: Weak::new(),
        }
    }

    fn push(pending: &mut PendingMessages, sender: u64, id: u64) -> bool {
        pending.push(message(sender, id, 0, false)).is_ok()
    }

    /// Senders and ids.
    fn ids(taken: impl IntoIterator<Item = QueuedMessage>) -> Vec<(u64, u64)> {
        taken.into_iter().map(|taken| (taken.message.sender, taken.message.received_at)).collect()
    }

    #[test]
    fn messages_that_fit_into_a_batch_are_in_the_order_of_arrival() {
        let mut pending = pending();
        let order: Vec<_> = (0..STORE_BATCH as u64).map(|id| (id * id % 7, id)).collect();
        assert!(order.iter().all(|&(sender, id)| push(&mut pending, sender, id)));
        assert_eq!(ids(pending.take_batch()), order);
        assert!(pending.is_empty() && pending.bytes() == 0 && pending.take_batch().is_empty());
    }

    #[test]
    fn a_sender_of_many_messages_delays_others_by_one_batch() {
        let mut pending = pending();
        for id in 0..1_000 {
            assert!(push(&mut pending, id % 2, id));
        }
        assert_eq!(pending.take_batch().len(), STORE_BATCH);
        for id in 1_000..1_010 {
            assert!(push(&mut pending, 9, id));
        }
        let batch = ids(pending.take_batch());
        let own =
            |sender| batch.iter().filter(|(from, _)| *from == sender).map(|(_, id)| *id).collect::<Vec<_>>();
        assert_eq!(own(9), (1_000..1_010).collect::<Vec<_>>());
        assert_eq!((batch.len(), own(0)[0], own(1)[0]), (STORE_BATCH, 64, 65));
        let mut last = [0; 2];
        while !pending.is_empty() {
            for (sender, id) in ids(pending.take_batch()) {
                assert!(id > std::mem::replace(&mut last[sender as usize], id), "in order");
            }
        }
        assert_eq!(last, [998, 999]);
    }

    #[test]
    fn messages_are_bounded_by_sender_by_recipient_and_for_the_node() {
        let mut first = pending();
        let accepted = |pending: &mut PendingMessages, sender| {
            (0..2 * MAX_MESSAGES as u64).filter(|id| push(pending, sender, *id)).count()
        };
        assert_eq!(accepted(&mut first, 1), MAX_MESSAGES / SENDER_SHARE);
        let others: usize = (2..9).map(|sender| accepted(&mut first, sender)).sum();
        assert_eq!(others, MAX_MESSAGES - MAX_MESSAGES / SENDER_SHARE);
        assert!(first.push(message(1, 0, 0, true)).is_ok(), "sessions bound their backups");
        first.take_batch();
        assert!(push(&mut first, 9, 1));
        // In bytes, and many recipients.
        let total = Arc::<PendingBytes>::default();
        let large = |sender| message(sender, 0, 100_000, false);
        let recipients: Vec<_> = (0..20)
            .map(|_| {
                let mut pending = PendingMessages::new(total.clone());
                let accepted = (0..100).filter(|id| pending.push(large(id % 10)).is_ok()).count();
                (pending, accepted)
            })
            .collect();
        assert_eq!(recipients[0].1, MAX_BYTES / 100_000);
        assert_eq!(recipients[19].1, 0, "the bound of the node");
        assert!((MAX_NODE_BYTES - 200_000..=MAX_NODE_BYTES).contains(&total.0.load(Ordering::Relaxed)));
        let batches: Vec<_> = recipients.into_iter().map(|(mut pending, _)| pending.take_batch()).collect();
        assert!(total.0.load(Ordering::Relaxed) > MAX_NODE_BYTES / 2, "what is being written counts");
        drop(batches);
        assert_eq!(total.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_message_above_the_bounds_is_accepted_if_no_other_is_pending() {
        let mut pending = pending();
        let large = || message(1, 0, MAX_BYTES + 1, false);
        assert!(pending.push(large()).is_ok());
        assert!(pending.push(large()).is_err());
        pending.take_batch();
        assert!(pending.push(large()).is_ok());
    }

    #[test]
    fn a_batch_has_backups_or_others_and_each_sender_keeps_its_order() {
        let mut pending = pending();
        let kinds = [(1, true), (2, false), (1, false), (2, true), (3, true), (1, true), (2, false)];
        for (id, (sender, backup)) in kinds.into_iter().enumerate() {
            assert!(pending.push(message(sender, id as u64, 0, backup)).is_ok());
        }
        let mut batches = Vec::new();
        while !pending.is_empty() {
            batches.push(ids(pending.take_batch()));
        }
        let all: Vec<_> = batches.concat();
        for sender in 1..4 {
            assert!(
                all.iter().filter(|(from, _)| *from == sender).is_sorted_by_key(|(_, id)| id),
                "{batches:?}"
            );
        }
        for batch in &batches {
            let backups = |id: u64| kinds[usize::try_from(id).unwrap()].1;
            assert!(batch.iter().all(|(_, id)| backups(*id) == backups(batch[0].1)), "{batches:?}");
        }
        assert_eq!(all.len(), kinds.len());
    }

    #[test]
    fn messages_that_are_put_back_keep_their_place() {
        let mut pending = pending();
        for (id, backup) in [(0, false), (1, true), (2, false)] {
            assert!(pending.push(message(7, id, 0, backup)).is_ok());
        }
        let mut taken = pending.take_messages();
        assert!(!pending.has_messages() && !pending.is_empty() && pending.bytes() == 0);
        assert!(push(&mut pending, 7, 3));
        taken.pop_front();
        pending.put_back(taken);
        let mut order = Vec::new();
        while !pending.is_empty() {
            order.extend(ids(pending.take_batch()));
        }
        assert_eq!(order, [(7, 1), (7, 2), (7, 3)]);
    }
}
