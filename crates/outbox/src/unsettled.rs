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

use std::collections::VecDeque;

use base::clock::Millis;
use smallvec::SmallVec;

use super::outbox::{Inner, Outbox, QueuedStanza, ToRewrite, notify_tracker};
use super::stream_management::UndeliveredStanza;
use crate::shared_stanza::SharedStanza;

/// Stanzas that were dequeued without stream management and written to the output: the tracked and stored messages among
/// them, and copies for which another node answers; a few need no allocation.
#[derive(Debug, Default)]
pub struct WrittenMessages {
    messages: SmallVec<[WrittenMessage; 8]>,
    /// Bytes of all stanzas, without what was added while writing.
    bytes: u64,
}

#[derive(Debug)]
struct WrittenMessage {
    stanza: SharedStanza,
    to_rewrite: ToRewrite,
    /// Bytes that were written up to the end of the message.
    end: u64,
}

impl WrittenMessages {
    /// The stanza was written to the output.
    #[inline]
    pub fn add(&mut self, item: &QueuedStanza) {
        let stanza = &item.stanza;
        self.bytes += stanza.bytes().len() as u64;
        let is_tracked = stanza.is_delivery_tracked() && !stanza.is_delivery_confirmed();
        if is_tracked || stanza.is_stored() || stanza.is_node_copy() {
            let (stanza, to_rewrite) = (stanza.clone(), item.to_rewrite);
            self.messages.push(WrittenMessage { stanza, to_rewrite, end: self.bytes });
        }
    }

    /// Whether no tracked or stored message was written.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

/// Whether messages of an outbox need a backup, and whether the outbox must be checked again: the result of
/// [`Outbox::check_unsettled`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnsettledCheck {
    /// Some messages are overdue and have no backup: the caller must call [`Outbox::begin_overdue_backups`].
    pub has_overdue: bool,
    /// Some messages are unsettled and not overdue: the caller must check again, when they may be.
    pub must_check_again: bool,
}

/// Whether a task will call [`Outbox::check_unsettled`], and whether the last check found overdue messages whose backups have not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum OutboxWatch {
    #[default]
    None,
    Watched,
    Overdue,
    WatchedAndOverdue,
}

impl OutboxWatch {
    const fn after(check: UnsettledCheck) -> OutboxWatch {
        match (check.must_check_again, check.has_overdue) {
            (false, false) => OutboxWatch::None,
            (true, false) => OutboxWatch::Watched,
            (false, true) => OutboxWatch::Overdue,
            (true, true) => OutboxWatch::WatchedAndOverdue,
        }
    }

    /// True if it was not watched.
    fn start(&mut self) -> bool {
        let (next, starts) = match *self {
            OutboxWatch::None => (OutboxWatch::Watched, true),
            OutboxWatch::Overdue => (OutboxWatch::WatchedAndOverdue, true),
            watched => (watched, false),
        };
        *self = next;
        starts
    }

    /// The backups of what was overdue have begun.
    fn end_overdue(&mut self) {
        *self = match self {
            OutboxWatch::None | OutboxWatch::Overdue => OutboxWatch::None,
            OutboxWatch::Watched | OutboxWatch::WatchedAndOverdue => OutboxWatch::Watched,
        };
    }
}

/// Tracked and stored messages that were written and that the kernel has not taken, in order.
#[derive(Default)]
pub(super) struct UnflushedMessages {
    messages: VecDeque<WrittenMessage>,
    /// Bytes that were written since the first of them, at least.
    written_bytes: u64,
}

impl UnflushedMessages {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn stanzas(&self) -> impl Iterator<Item = &SharedStanza> {
        self.messages.iter().map(|message| &message.stanza)
    }

    fn append(&mut self, written: &mut WrittenMessages) {
        let before = self.written_bytes;
        self.written_bytes += std::mem::take(&mut written.bytes);
        self.messages.extend(written.messages.drain(..).map(|mut message| {
            message.end += before;
            message
        }));
    }

    /// Removes the messages before the last `unsent` bytes of the output. The output may be larger than what was written,
    /// by encryption and framing: a message is removed late then, never early.
    fn take_sent(&mut self, unsent: usize) -> Vec<SharedStanza> {
        let sent_bytes = self.written_bytes.saturating_sub(unsent as u64);
        let count = self.messages.partition_point(|message| message.end <= sent_bytes);
        self.messages.drain(..count).map(|message| message.stanza).collect()
    }
}

impl Outbox {
    /// A tracked message was queued. True if the outbox was not watched: the caller must call
    /// [`Outbox::check_unsettled`] later.
    pub fn start_watch(&self) -> bool {
        self.inner.lock().watch.start()
    }

    /// Looks for tracked messages that are not settled; they are overdue after `overdue_millis`. Only the caller that watches the outbox
    /// may call this: unless the result says to check again, it ends the watch, and the next tracked message needs another
    /// ([`Outbox::start_watch`]). If messages are overdue, the caller must then call [`Outbox::begin_overdue_backups`]. Until it does,
    /// [`Outbox::may_have_unsettled`] is true, so that other tasks do not store later messages first.
    pub fn check_unsettled(&self, now: Millis, overdue_millis: u64) -> UnsettledCheck {
        let mut inner = self.inner.lock();
        let mut check = UnsettledCheck::default();
        for stanza in inner.held_stanzas() {
            match stanza.unsettled_millis(now) {
                None => {}
                Some(millis) if millis < overdue_millis => check.must_check_again = true,
                Some(_) => check.has_overdue |= !stanza.is_backed_up(),
            }
        }
        inner.watch = OutboxWatch::after(check);
        check
    }

    /// Begins backups of the tracked messages that have not been settled for `overdue_millis`, and of the unsettled ones before
    /// them. Returns these messages in order: the caller must store their backups. The outbox still holds them.
    pub fn begin_overdue_backups(&self, now: Millis, overdue_millis: u64) -> Vec<SharedStanza> {
        let mut inner = self.inner.lock();
        inner.watch.end_overdue();
        let is_overdue = |stanza: &SharedStanza| {
            stanza.unsettled_millis(now).is_some_and(|millis| millis >= overdue_millis)
        };
        // A younger one before them, which another task began to track later, would be stored after them.
        let count = inner.held_stanzas().enumerate().filter(|(_, stanza)| is_overdue(stanza)).last();
        let count = count.map_or(0, |(last, _)| last + 1);
        inner.held_stanzas().take(count).filter(|stanza| stanza.begin_backup()).cloned().collect()
    }

    /// Whether the outbox may hold tracked messages that have not been settled.
    pub fn may_have_unsettled(&self) -> bool {
        self.inner.lock().watch != OutboxWatch::None
    }

    /// Begins backups of all tracked messages that have not been settled. Returns these messages in order: the caller must store
    /// their backups. The outbox still holds them, and is watched as before: otherwise each call could add another watch.
    pub fn begin_unsettled_backups(&self) -> Vec<SharedStanza> {
        let inner = self.inner.lock();
        if inner.watch == OutboxWatch::None {
            return Vec::new();
        }
        inner.held_stanzas().filter(|stanza| stanza.begin_backup()).cloned().collect()
    }

    /// The first stanza that the outbox holds and `matches` accepts.
    pub fn find_held(&self, matches: impl Fn(&SharedStanza) -> bool) -> Option<SharedStanza> {
        self.inner.lock().held_stanzas().find(|stanza| matches(stanza)).cloned()
    }

    /// The kernel has taken these messages. True if some of them may have backups.
    pub fn confirm_flushed(&self, written: &mut WrittenMessages) -> bool {
        written.bytes = 0;
        if written.is_empty() {
            return false;
        }
        let has_backups = self.confirm_written(written.messages.iter().map(|message| &message.stanza));
        written.messages.clear();
        has_backups
    }

    /// The kernel has taken all messages that were written, except for the last `unsent` bytes of the output. True if
    /// messages are left.
    pub fn confirm_sent(&self, unsent: usize) -> bool {
        let mut inner = self.inner.lock();
        let Some(rare) = inner.rare.as_deref_mut() else { return false };
        let sent = rare.unflushed.take_sent(unsent);
        let messages_are_left = !rare.unflushed.is_empty();
        inner.drop_empty_rare();
        drop(inner);
        self.confirm_written(sent.iter());
        messages_are_left
    }

    /// The kernel has not taken these messages; they are kept until [`Outbox::confirm_sent`]. True if one of them is
    /// unsettled: no list had it since it was dequeued, so the caller must make sure that the outbox is watched.
    pub fn retain_unflushed(&self, written: &mut WrittenMessages) -> bool {
        if written.bytes == 0 {
            return false;
        }
        let mut inner = self.inner.lock();
        if !written.is_empty() || inner.rare.as_deref().is_some_and(|rare| !rare.unflushed.is_empty()) {
            let is_unsettled = |message: &WrittenMessage| message.stanza.is_delivery_unsettled();
            let must_be_watched = written.messages.iter().any(is_unsettled);
            inner.rare().unflushed.append(written);
            return must_be_watched;
        }
        written.bytes = 0;
        false
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
        let unflushed = self.rare.as_deref().into_iter().flat_map(|rare| rare.unflushed.stanzas());
        unacked.chain(unflushed).chain(self.queue.iter().map(|item| &item.stanza))
    }

    pub(super) fn keep_confirmed_backups(&mut self, mut backups: Vec<SharedStanza>) {
        if !backups.is_empty() {
            self.rare().confirmed_backups.append(&mut backups);
        }
    }

    /// Messages that were written and that the kernel may not have taken.
    pub(super) fn take_unflushed_undelivered(&mut self) -> Vec<UndeliveredStanza> {
        let unflushed = self.rare.as_deref_mut().map(|rare| std::mem::take(&mut rare.unflushed.messages));
        self.drop_empty_rare();
        let undelivered = |message: WrittenMessage| UndeliveredStanza {
            item: QueuedStanza::new(message.stanza, message.to_rewrite),
            sent_at: None,
        };
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
        batch.iter().for_each(|item| written.add(item));
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
        outbox.confirm_sent(0);
        assert_eq!(settled(&messages), [true, true]);
        assert!(outbox.inner.lock().rare.is_none(), "no memory is left");
    }

    fn unflushed(outbox: &Outbox) -> usize {
        outbox.inner.lock().rare.as_deref().map_or(0, |rare| rare.unflushed.messages.len())
    }

    #[test]
    fn messages_are_confirmed_in_order_as_the_kernel_takes_them_although_the_output_is_never_empty() {
        let outbox = Outbox::new();
        let untracked = "<message><body>x</body></message>".len();
        let messages = [push(&outbox, 0), push(&outbox, 0)];
        outbox.retain_unflushed(&mut write(&outbox));
        for (unsent, expect) in [
            (3 * untracked, [false, false]),
            (2 * untracked, [false, false]),
            (untracked + 1, [false, false]),
            (untracked, [true, false]),
        ] {
            outbox.confirm_sent(unsent);
            assert_eq!(settled(&messages), expect, "{unsent}");
        }
        // Stanzas that nobody waits for follow.
        for expect in [false, true] {
            let stanza = SharedStanza::parse(b"<message><body>x</body></message>").unwrap();
            let item = QueuedStanza::new(stanza, ToRewrite::None);
            outbox.push(item, Urgency::Now, &OutboxLimits::default());
            outbox.retain_unflushed(&mut write(&outbox));
            outbox.confirm_sent(2 * untracked);
            assert_eq!(settled(&messages), [true, expect]);
        }
        assert!(outbox.inner.lock().rare.is_none(), "no memory is left");
    }

    #[test]
    fn what_is_kept_for_a_reader_that_is_always_slow_is_bounded_by_its_output() {
        const UNSENT: usize = 3000;
        let outbox = Outbox::new();
        for _ in 0..10_000 {
            let message = push(&outbox, 0);
            outbox.retain_unflushed(&mut write(&outbox));
            outbox.confirm_sent(UNSENT);
            assert!(unflushed(&outbox) * message.bytes().len() <= UNSENT + message.bytes().len());
        }
        assert!(outbox.close_and_drain().len() < 100, "the others are not rerouted");
    }

    #[test]
    fn an_outbox_is_watched_again_if_a_check_did_not_see_the_message_that_was_being_written() {
        let outbox = Outbox::new();
        push(&outbox, 0);
        let mut written = write(&outbox);
        assert_eq!(outbox.check_unsettled(Millis(100), LIMIT), UnsettledCheck::default());
        assert!(outbox.retain_unflushed(&mut written) && outbox.start_watch());
        assert_eq!(outbox.begin_overdue_backups(Millis(200), LIMIT).len(), 1);
        assert!(!outbox.retain_unflushed(&mut WrittenMessages::default()));
    }

    #[test]
    fn storing_messages_that_follow_adds_no_watch_of_the_same_outbox() {
        let outbox = Outbox::new();
        assert_eq!(outbox.begin_unsettled_backups().len(), 0);
        for _ in 0..3 {
            push(&outbox, 0);
            assert_eq!(outbox.begin_unsettled_backups().len(), 1);
            assert!(!outbox.start_watch(), "its check is still due");
        }
        assert_eq!(outbox.check_unsettled(Millis(100), LIMIT), UnsettledCheck::default());
        assert!(outbox.start_watch());
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
        outbox.confirm_sent(0);
        assert_eq!(delivered_through(), 8);
        let mut written = write(&outbox);
        outbox.retain_unflushed(&mut written);
        let left = outbox.close_and_drain();
        assert_eq!((left.len(), left[0].item.stanza.stored(), delivered_through()), (1, Some(9), 8));
    }

    #[test]
    fn the_progress_of_stored_messages_never_decreases_when_a_slow_client_reads_again() {
        let outbox = Outbox::new();
        outbox.track_stored();
        let write_stored = |number| {
            let stanza = SharedStanza::from_store(b"<message><body>x</body></message>", number).unwrap();
            let item = QueuedStanza::new(stanza, ToRewrite::None);
            outbox.push(item, Urgency::Now, &OutboxLimits::default());
            write(&outbox)
        };
        outbox.retain_unflushed(&mut write_stored(7));
        outbox.confirm_flushed(&mut write_stored(8));
        assert_eq!(outbox.delivery_progress(None).delivered_through, 8);
        outbox.confirm_sent(0);
        assert_eq!(outbox.delivery_progress(None).delivered_through, 8);
    }

    #[test]
    fn messages_are_overdue_after_the_limit_in_order_wherever_they_are_and_once() {
        for outbox in [Outbox::new(), managed()] {
            let mut messages = vec![push(&outbox, 0)];
            let mut written = write(&outbox);
            outbox.retain_unflushed(&mut written);
            messages.push(push(&outbox, 0));
            let young = push(&outbox, 50);
            let check = |now| {
                let UnsettledCheck { has_overdue, must_check_again } =
                    outbox.check_unsettled(Millis(now), LIMIT);
                (has_overdue, must_check_again)
            };
            assert_eq!(
                (check(99), outbox.begin_overdue_backups(Millis(99), LIMIT).len()),
                ((false, true), 0)
            );
            assert_eq!(check(100), (true, true));
            let overdue = outbox.begin_overdue_backups(Millis(100), LIMIT);
            assert_eq!((overdue.len(), check(100)), (2, (false, true)));
            assert!(overdue.iter().zip(&messages).all(|(one, other)| one.is_same(other)));
            assert_eq!(check(150), (true, false));
            let overdue = outbox.begin_overdue_backups(Millis(150), LIMIT);
            assert!(overdue.len() == 1 && overdue[0].is_same(&young));
            assert!(outbox.start_watch() && !outbox.start_watch());
            assert_eq!(outbox.begin_overdue_backups(Millis(900), LIMIT).len(), 0, "each has its backup");
            assert_eq!(check(900), (false, false));
        }
    }

    #[test]
    fn no_message_is_backed_up_before_an_older_one() {
        let outbox = Outbox::new();
        // The clock was read before the last message came.
        let messages = [push(&outbox, 1000), push(&outbox, 1005)];
        assert_eq!(
            outbox.check_unsettled(Millis(1002), LIMIT),
            UnsettledCheck { has_overdue: false, must_check_again: true }
        );
        assert_eq!(outbox.begin_overdue_backups(Millis(1002), LIMIT).len(), 0);
        // Routed at the same time, the younger one came first.
        let messages = [messages, [push(&outbox, 1020), push(&outbox, 1010)]].concat();
        let overdue = outbox.begin_overdue_backups(Millis(1112), LIMIT);
        assert_eq!(overdue.len(), messages.len());
        assert!(overdue.iter().zip(&messages).all(|(one, other)| one.is_same(other)));
    }

    #[test]
    fn each_state_of_the_watch_starts_and_ends_what_it_has() {
        use OutboxWatch::{None, Overdue, Watched, WatchedAndOverdue};
        for (state, starts, started, ended) in [
            (None, true, Watched, None),
            (Watched, false, Watched, Watched),
            (Overdue, true, WatchedAndOverdue, None),
            (WatchedAndOverdue, false, WatchedAndOverdue, Watched),
        ] {
            let (mut start, mut end) = (state, state);
            assert_eq!((start.start(), start), (starts, started), "{state:?}");
            end.end_overdue();
            assert_eq!(end, ended, "{state:?}");
        }
    }

    #[test]
    fn a_message_that_a_check_found_is_taken_when_the_next_one_is_stored() {
        let outbox = Outbox::new();
        let message = push(&outbox, 0);
        let check = outbox.check_unsettled(Millis(150), LIMIT);
        assert_eq!(check, UnsettledCheck { has_overdue: true, must_check_again: false });
        // Before the watching task takes it.
        assert!(outbox.may_have_unsettled());
        let taken = outbox.begin_unsettled_backups();
        assert!(taken.len() == 1 && taken[0].is_same(&message));
        assert_eq!(outbox.begin_overdue_backups(Millis(150), LIMIT).len(), 0);
        assert!(!outbox.may_have_unsettled() && outbox.start_watch());
    }

    #[test]
    fn a_message_that_is_delivered_after_its_backup_reports_the_backup() {
        for managed in [Some(managed()), None] {
            let outbox = managed.unwrap_or_default();
            let messages = [push(&outbox, 0), push(&outbox, 80)];
            assert_eq!(outbox.begin_overdue_backups(Millis(100), LIMIT).len(), 1);
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
    fn a_copy_for_which_another_node_answers_is_held_until_the_kernel_has_taken_it() {
        for is_flushed in [true, false] {
            let outbox = Outbox::new();
            let copy = SharedStanza::parse(b"<message><body>x</body></message>").unwrap();
            copy.mark_node_copy();
            let item = QueuedStanza::new(copy.clone(), ToRewrite::None);
            outbox.push(item, Urgency::Now, &OutboxLimits::default());
            assert!(!outbox.retain_unflushed(&mut write(&outbox)), "nobody waits for it");
            assert!(outbox.find_held(|held| held.is_same(&copy)).is_some());
            if is_flushed {
                outbox.confirm_sent(0);
            }
            assert_eq!(outbox.close_and_drain().len(), usize::from(!is_flushed));
        }
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
