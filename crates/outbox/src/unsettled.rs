//! Messages of an outbox whose delivery is tracked: which of them their senders still wait for, and which were delivered.
//!
//! A message is delivered when its client has acknowledged it (XEP-0198) or, without stream management, when the kernel has
//! taken it. A tracked message that is not delivered in time is *overdue*: the node stores a backup of it, so that its
//! sender need not wait. The outbox holds the message all the same, and reports the delivery for the removal of the backup.
//!
//! # Pitfalls
//!
//! [`Outbox::take_confirmed_backups`] must be called after each acknowledgement and each flush that followed a stall:
//! nothing else removes the backups of messages that were delivered late.

use base::clock::Millis;
use smallvec::SmallVec;

use super::outbox::{Inner, Outbox, QueuedStanza, ToRewrite, notify_tracker};
use super::stream_management::UndeliveredStanza;
use crate::shared_stanza::SharedStanza;

/// Tracked and stored messages that were dequeued without stream management and written to the output; a few need no
/// allocation.
#[derive(Debug, Default)]
pub struct WrittenMessages(SmallVec<[SharedStanza; 8]>);

impl WrittenMessages {
    /// The stanza was written to the output.
    #[inline]
    pub fn add(&mut self, stanza: &SharedStanza) {
        if stanza.is_stored() || stanza.is_delivery_tracked() && !stanza.is_delivery_confirmed() {
            self.0.push(stanza.clone());
        }
    }

    /// Whether no tracked or stored message was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Outbox {
    /// A tracked message was queued. True if the outbox was not watched: the caller must call [`Outbox::take_overdue`] later.
    pub fn start_watch(&self) -> bool {
        !std::mem::replace(&mut self.inner.lock().is_watched, true)
    }

    /// Tracked messages, in order, that have not been settled for `age` milliseconds; a backup of them must be stored. True
    /// if later ones are unsettled, so that the caller must check again.
    pub fn take_overdue(&self, now: Millis, age: u64) -> (Vec<SharedStanza>, bool) {
        let mut inner = self.inner.lock();
        let mut overdue = Vec::new();
        if !inner.is_watched {
            return (overdue, false);
        }
        let mut watches_on = false;
        for stanza in inner.held_stanzas() {
            match stanza.unsettled_millis(now) {
                None => {}
                Some(millis) if millis < age => watches_on = true,
                Some(_) if stanza.begin_backup() => overdue.push(stanza.clone()),
                Some(_) => {}
            }
        }
        inner.is_watched = watches_on;
        (overdue, watches_on)
    }

    /// The first stanza that the outbox holds and `matches` accepts.
    pub fn find_held(&self, matches: impl Fn(&SharedStanza) -> bool) -> Option<SharedStanza> {
        self.inner.lock().held_stanzas().find(|stanza| matches(stanza)).cloned()
    }

    /// The kernel has taken these messages. True if some of them may have backups.
    pub fn confirm_flushed(&self, written: &mut WrittenMessages) -> bool {
        if written.is_empty() {
            return false;
        }
        let has_backups = self.confirm_written(written.0.iter());
        written.0.clear();
        has_backups
    }

    /// The kernel has taken all messages that were written.
    pub fn confirm_unflushed(&self) {
        let mut inner = self.inner.lock();
        let unflushed = inner.rare.as_deref_mut().map(|rare| std::mem::take(&mut rare.unflushed));
        inner.drop_empty_rare();
        drop(inner);
        self.confirm_written(unflushed.iter().flatten());
    }

    /// The kernel has not taken these messages; they are kept until [`Outbox::confirm_unflushed`].
    pub fn retain_unflushed(&self, written: &mut WrittenMessages) {
        if !written.is_empty() {
            self.inner.lock().rare().unflushed.extend(written.0.drain(..));
        }
    }

    pub(super) fn confirm_written<'a>(&self, messages: impl Iterator<Item = &'a SharedStanza>) -> bool {
        let (mut backups, mut stored) = (Vec::new(), None);
        for message in messages {
            if let Some(number) = message.stored() {
                stored = Some(number);
                continue;
            }
            message.mark_delivered();
            if message.confirm_delivery() {
                backups.push(message.clone());
            }
        }
        if stored.is_some() {
            notify_tracker(self.inner.lock(), stored);
        }
        let has_backups = !backups.is_empty();
        if has_backups {
            self.inner.lock().keep_confirmed_backups(backups);
        }
        has_backups
    }

    /// Messages that were delivered and may have a backup.
    pub fn take_confirmed_backups(&self) -> Vec<SharedStanza> {
        let mut inner = self.inner.lock();
        let Some(rare) = inner.rare.as_deref_mut() else { return Vec::new() };
        let backups = std::mem::take(&mut rare.confirmed_backups);
        inner.drop_empty_rare();
        backups
    }
}

impl Inner {
    /// All stanzas that the outbox holds, in order.
    fn held_stanzas(&self) -> impl Iterator<Item = &SharedStanza> {
        let unacked = self.management.as_deref().into_iter().flat_map(|ack| ack.unacked());
        let unflushed = self.rare.as_deref().into_iter().flat_map(|rare| &rare.unflushed);
        unacked.chain(unflushed).chain(self.queue.iter().map(|item| &item.stanza))
    }

    pub(super) fn keep_confirmed_backups(&mut self, mut backups: Vec<SharedStanza>) {
        if !backups.is_empty() {
            self.rare().confirmed_backups.append(&mut backups);
        }
    }

    /// Messages that were written and that the kernel may not have taken.
    pub(super) fn take_unflushed_undelivered(&mut self) -> Vec<UndeliveredStanza> {
        let unflushed = self.rare.as_deref_mut().map(|rare| std::mem::take(&mut rare.unflushed));
        self.drop_empty_rare();
        let undelivered =
            |stanza| UndeliveredStanza { item: QueuedStanza::new(stanza, ToRewrite::None), sent_at: None };
        unflushed.into_iter().flatten().map(undelivered).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream_management::{StreamManagementTerms, TOKEN_BYTES};
    use crate::{OutboxLimits, QueuedBatch, Urgency};
    use std::task::{Context, Waker};

    const LIMIT: u64 = 100;

    fn push(outbox: &Outbox, now: u64) -> SharedStanza {
        let stanza = SharedStanza::parse(b"<message><body>x</body></message>").unwrap();
        assert!(stanza.track_delivery(Millis(now)));
        let item = QueuedStanza::new(stanza.clone(), ToRewrite::None);
        outbox.push(item, Urgency::Now, &OutboxLimits::default());
        outbox.start_watch();
        stanza
    }

    /// Writes everything, without a flush.
    fn write(outbox: &Outbox) -> WrittenMessages {
        let (mut batch, mut written) = (QueuedBatch::new(), WrittenMessages::default());
        outbox.dequeue(&mut Context::from_waker(Waker::noop()), &mut batch, u32::MAX, 0);
        batch.iter().for_each(|item| written.add(&item.stanza));
        written
    }

    fn managed() -> Outbox {
        let outbox = Outbox::new();
        let terms = StreamManagementTerms { resume_seconds: 60, unacked_bytes: 100_000, sm2: false };
        assert!(outbox.enable_management(terms, [0; TOKEN_BYTES]));
        outbox
    }

    fn settled(messages: &[SharedStanza]) -> Vec<bool> {
        messages.iter().map(|message| !message.is_delivery_unsettled()).collect()
    }

    #[test]
    fn with_stream_management_a_message_is_settled_when_it_is_acknowledged() {
        let outbox = managed();
        let messages = [push(&outbox, 0), push(&outbox, 0)];
        write(&outbox);
        assert_eq!(settled(&messages), [false, false]);
        outbox.acknowledge(1).unwrap();
        assert_eq!(settled(&messages), [true, false]);
        assert_eq!(outbox.take_confirmed_backups().len(), 0, "no backup was stored");
    }

    #[test]
    fn without_stream_management_a_message_is_settled_when_the_kernel_has_taken_it() {
        let outbox = Outbox::new();
        let messages = [push(&outbox, 0), push(&outbox, 0)];
        let mut written = write(&outbox);
        assert_eq!(settled(&messages), [false, false]);
        outbox.retain_unflushed(&mut written);
        assert!(written.is_empty());
        let later = push(&outbox, 0);
        let mut written = write(&outbox);
        outbox.confirm_flushed(&mut written);
        assert_eq!((settled(&messages), settled(&[later])), (vec![false, false], vec![true]));
        outbox.confirm_unflushed();
        assert_eq!(settled(&messages), [true, true]);
        assert!(outbox.inner.lock().rare.is_none(), "no memory is left");
    }

    #[test]
    fn a_stored_message_is_delivered_when_the_kernel_has_taken_it() {
        let outbox = Outbox::new();
        outbox.track_stored();
        let push = |number| {
            let stanza = SharedStanza::from_store(b"<message><body>x</body></message>", number).unwrap();
            let item = QueuedStanza::new(stanza, ToRewrite::None);
            outbox.push(item, Urgency::Now, &OutboxLimits::default());
        };
        let delivered_through = || outbox.delivery_progress(None).delivered_through;
        push(7);
        let mut written = write(&outbox);
        assert_eq!(delivered_through(), 0, "it is in the buffer of the connection");
        outbox.confirm_flushed(&mut written);
        assert_eq!(delivered_through(), 7);
        push(8);
        let mut written = write(&outbox);
        outbox.retain_unflushed(&mut written);
        push(9);
        assert_eq!(delivered_through(), 7);
        outbox.confirm_unflushed();
        assert_eq!(delivered_through(), 8);
        let mut written = write(&outbox);
        outbox.retain_unflushed(&mut written);
        let left = outbox.close_and_drain();
        assert_eq!((left.len(), left[0].item.stanza.stored(), delivered_through()), (1, Some(9), 8));
    }

    #[test]
    fn messages_are_overdue_after_the_limit_in_order_wherever_they_are_and_once() {
        for outbox in [Outbox::new(), managed()] {
            let mut messages = vec![push(&outbox, 0)];
            let mut written = write(&outbox);
            outbox.retain_unflushed(&mut written);
            messages.push(push(&outbox, 0));
            let young = push(&outbox, 50);
            assert!(matches!(outbox.take_overdue(Millis(99), LIMIT), (overdue, true) if overdue.is_empty()));
            let (overdue, watches_on) = outbox.take_overdue(Millis(100), LIMIT);
            assert!(watches_on && overdue.len() == 2);
            assert!(overdue.iter().zip(&messages).all(|(one, other)| one.is_same(other)));
            let (overdue, watches_on) = outbox.take_overdue(Millis(150), LIMIT);
            assert!(!watches_on && overdue.len() == 1 && overdue[0].is_same(&young));
            assert!(outbox.start_watch() && !outbox.start_watch());
            assert_eq!(outbox.take_overdue(Millis(900), LIMIT).0.len(), 0, "each has its backup");
        }
    }

    #[test]
    fn a_message_that_is_delivered_after_its_backup_reports_the_backup() {
        for managed in [Some(managed()), None] {
            let outbox = managed.unwrap_or_default();
            let messages = [push(&outbox, 0), push(&outbox, 80)];
            assert_eq!(outbox.take_overdue(Millis(100), LIMIT).0.len(), 1);
            let mut written = write(&outbox);
            if outbox.management_terms().is_some() {
                outbox.acknowledge(2).unwrap();
            } else {
                outbox.confirm_flushed(&mut written);
            }
            let backups = outbox.take_confirmed_backups();
            assert!(backups.len() == 1 && backups[0].is_same(&messages[0]));
            assert_eq!(settled(&messages), [true, true]);
            assert!(outbox.inner.lock().rare.is_none(), "no memory is left");
        }
    }

    /// Queues a tracked message for several sessions.
    fn push_shared(outboxes: &[&Outbox]) -> SharedStanza {
        let stanza = SharedStanza::parse(b"<message><body>x</body></message>").unwrap();
        assert!(stanza.track_delivery(Millis(0)));
        stanza.add_recipients(outboxes.len());
        for outbox in outboxes {
            let item = QueuedStanza::new(stanza.clone(), ToRewrite::None);
            outbox.push(item, Urgency::Now, &OutboxLimits::default());
        }
        stanza
    }

    #[test]
    fn a_closed_outbox_returns_what_the_kernel_did_not_take_before_its_queue() {
        let (outbox, other) = (Outbox::new(), Outbox::new());
        let first = push(&outbox, 0);
        let shared = push_shared(&[&outbox, &other]);
        let mut written = write(&outbox);
        outbox.retain_unflushed(&mut written);
        let second = push(&outbox, 0);
        let left = outbox.close_and_drain();
        assert_eq!(left.len(), 3);
        assert!(left.iter().zip([&first, &shared, &second]).all(|(left, one)| left.item.stanza.is_same(one)));
    }

    #[test]
    fn a_shared_message_that_the_kernel_did_not_take_for_any_session_is_left_to_its_backup_once() {
        let outboxes = [Outbox::new(), Outbox::new()];
        let message = push_shared(&[&outboxes[0], &outboxes[1]]);
        for outbox in &outboxes {
            let mut written = write(outbox);
            outbox.retain_unflushed(&mut written);
        }
        assert!(message.begin_backup());
        message.settle_delivery();
        let left = outboxes.iter().flat_map(Outbox::close_and_drain);
        let lost: Vec<bool> = left.map(|left| left.item.stanza.release_copy()).collect();
        assert_eq!(lost, [false, true], "the last session");
        assert!(message.abandon_to_backup());
    }

    #[test]
    fn a_shared_message_that_the_kernel_took_for_one_session_is_not_lost_with_another() {
        let [slow, fast] = [Outbox::new(), Outbox::new()];
        let message = push_shared(&[&slow, &fast]);
        let mut written = write(&slow);
        slow.retain_unflushed(&mut written);
        let mut written = write(&fast);
        fast.confirm_flushed(&mut written);
        assert_eq!(settled(std::slice::from_ref(&message)), [true]);
        let left = slow.close_and_drain();
        assert!(left.len() == 1 && !left[0].item.stanza.release_copy());
    }

    #[test]
    fn a_message_whose_backup_was_refused_is_returned_if_the_kernel_did_not_take_it() {
        let outbox = Outbox::new();
        let message = push(&outbox, 0);
        assert!(message.begin_backup() && !message.cancel_backup());
        message.settle_delivery();
        let mut written = write(&outbox);
        outbox.retain_unflushed(&mut written);
        assert!(outbox.close_and_drain().iter().any(|left| left.item.stanza.is_same(&message)));
    }
}
