//! Outgoing queue of one connection: bounded per class, with a deadline and a close request.
//!
//! An outbox exists from accept to close, with or without a bound session. Other tasks reach a connection only
//! through it: they queue a stanza, signal that the deadline elapsed, or close the stream.
//!
//! The queue is bounded in bytes, by class. When the presence share is full, the oldest presence is dropped.
//! When the message share is full, the push fails and the sender stores the message. When the control share is
//! full, unsolicited responses are dropped and then the stream is closed, because the client does not read its
//! responses. `admission.rs` limits what other senders may fill and what all queues may hold together.
//!
//! An outbox closes in two steps. While it *drains*, nothing is sent to the peer, but stanzas are still
//! accepted and are removed by the task that closes it ([`Outbox::drain_for_close`]). The outbox is closed when
//! that call finds nothing. Thus queued stanzas and those that arrive meanwhile are rerouted in one order.
//!
//! Long because the queue, its deadline and the takeover of a resumption change together under one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Waker};

use base::lock::{RankedMutex, RankedMutexGuard, rank};
use jid::JidRef;
use smallvec::SmallVec;
use stanza::{
    MessageTraits, PayloadNs, PresenceType, StanzaCondition, StanzaKind, StreamCondition, StreamError,
};

use super::admission::{QueueAdmission, Rank, lost_presence};
use super::backlog::{AdmissionContext, Backlog, BacklogEntry, ExceededLimit, UnsentEntry};
use super::closing::{CloseStep, OutboxPhase};
use super::delay_generation::{DelayGeneration, DelayToken};
use super::ended_streams::ResumptionRecord;
use super::signals::{OutboxSignals, Signal};
use super::stream_management::{StreamManagement, UndeliveredStanza};
use super::unsettled::{OutboxWatch, UnflushedMessages};
use crate::limits::OutboxLimits;
use crate::shared_stanza::{QueueClass, SharedStanza};

/// A stanza in a queue.
#[derive(Clone, Debug)]
pub struct QueuedStanza {
    /// The stanza.
    pub stanza: SharedStanza,
    /// Number of the sender while the stanza is counted in the backlog.
    pub(super) sender: u32,
    /// Size in units of 16 bytes, saturating.
    weight: u16,
    /// The `to` address to insert while writing.
    pub to_rewrite: ToRewrite,
    pub(super) rank: Rank,
}

/// The `to` address that is inserted while the stanza is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToRewrite {
    /// The stanza is written unchanged.
    None,
    /// The receiver's bare address.
    Bare,
    /// The receiver's full address.
    Full,
}

/// Whether a stanza may be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Send immediately: wakes the connection's task.
    Now,
    /// Like [`Urgency::Later`], but for a short time: the caller makes sure that [`Outbox::flush_delayed`] is
    /// called.
    Soon,
    /// Sent with the next urgent stanza, or when [`MAX_DELAYED_BYTES`] are queued. A presence replaces the
    /// queued one of the same sender; so does a message that contains only a chat state.
    Later,
}

/// Upper limit in bytes for stanzas that wait for an urgent one.
pub const MAX_DELAYED_BYTES: u32 = 64 * 1024;

/// Result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The stanza was queued.
    Queued,
    /// The stanza was queued and started a short delay, which [`Outbox::flush_delayed`] ends.
    StartedDelay(DelayToken),
    /// The stanza was queued, and this many older ones of its class were dropped: presence or unsolicited
    /// responses.
    DroppedOlder(u32),
    /// There is no room; a message should be stored.
    LimitReached(ExceededLimit),
    /// The stream is closed or closing.
    Closed,
}

/// A stanza that a queue did not take; see [`Outbox::push_or_return`].
#[derive(Debug)]
pub struct RefusedPush {
    /// The stanza.
    pub item: QueuedStanza,
    /// Why: [`PushOutcome::LimitReached`] or [`PushOutcome::Closed`].
    pub outcome: PushOutcome,
}

/// Result of [`Outbox::dequeue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DequeueOutcome {
    /// The stream must be closed: see [`Outbox::close_reason`].
    pub closing: bool,
    /// More stanzas can be dequeued.
    pub more: bool,
    /// An acknowledgement must be requested from the peer.
    pub request_ack: bool,
}

/// Delivery progress of stored messages; see [`Outbox::track_stored`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryProgress {
    /// Store number of the last message that the peer has acknowledged or, without stream management, that the kernel has
    /// taken; 0 before the first.
    pub delivered_through: u64,
    /// The queue is empty.
    pub queue_empty: bool,
    /// The outbox is closed: nothing more will be dequeued.
    pub closed: bool,
}

impl QueuedStanza {
    /// Wraps a stanza for a queue.
    #[inline]
    pub fn new(stanza: SharedStanza, to_rewrite: ToRewrite) -> QueuedStanza {
        let weight = u16::try_from(queued_size(&stanza).div_ceil(WEIGHT_UNIT)).unwrap_or(u16::MAX);
        let rank = Rank::of(&stanza);
        QueuedStanza { stanza, sender: super::backlog::SENDER_UNCOUNTED, weight, to_rewrite, rank }
    }

    /// Marks presence of a sender to which the recipient is not subscribed; it is dropped before other presence.
    #[must_use]
    #[inline]
    pub fn from_unsubscribed(mut self) -> QueuedStanza {
        if self.rank == Rank::Presence {
            self.rank = Rank::UnsubscribedPresence;
        }
        self
    }

    /// Size that the stanza counts in its queue, rounded up, without access to the stanza itself.
    pub(super) fn weight(&self) -> u32 {
        u32::from(self.weight) * WEIGHT_UNIT
    }

    /// Size in bytes that the stanza counts in its queue.
    pub(super) fn size(&self) -> u32 {
        queued_size(&self.stanza)
    }
}

/// Size in bytes that a stanza counts in a queue.
pub fn queued_size(stanza: &SharedStanza) -> u32 {
    u32::try_from(stanza.allocated_bytes()).unwrap_or(u32::MAX).saturating_add(ITEM_OVERHEAD)
}

/// Batch of dequeued stanzas; two fit without an allocation.
pub type QueuedBatch = SmallVec<[QueuedStanza; 2]>;

pub(super) struct Inner {
    pub(super) queue: QueuedBatch,
    pub(super) bytes: [u32; 3],
    pub(super) waker: Option<Waker>,
    /// Why the stream must be closed; boxed, because most streams are closed by the client.
    pub(super) close_reason: Option<Box<StreamError>>,
    phase: OutboxPhase,
    /// The short delay of queued stanzas; see [`Urgency::Soon`].
    delay: DelayGeneration,
    /// A queued stanza was also sent to other sessions.
    has_shared: bool,
    pub(super) watch: OutboxWatch,
    /// State that few outboxes have; boxed for that reason.
    pub(super) rare: Option<Box<Rare>>,
    /// Absent until enabled.
    pub(super) management: Option<Box<StreamManagement>>,
}

#[derive(Default)]
pub(super) struct Rare {
    /// Tracks the delivery of stored messages.
    tracker: Option<StoredMessageTracker>,
    /// This queue's entry in the node's backlog.
    pub(super) backlog_entry: Option<BacklogEntry>,
    /// The entry of the connection's buffer.
    unsent: Option<UnsentEntry>,
    /// Messages that were dequeued without stream management and that the kernel has not taken.
    pub(super) unflushed: UnflushedMessages,
    /// Messages that were delivered and may have a backup.
    pub(super) confirmed_backups: Vec<SharedStanza>,
    /// What is left of a stream that could be resumed, when the outbox is closed.
    pub(super) ended_stream: Option<ResumptionRecord>,
}

impl Rare {
    fn is_empty(&self) -> bool {
        self.tracker.is_none()
            && self.backlog_entry.is_none()
            && self.unflushed.is_empty()
            && self.unsent.is_none()
            && self.confirmed_backups.is_empty()
            && self.ended_stream.is_none()
    }
}

#[derive(Default)]
struct StoredMessageTracker {
    delivered_through: u64,
    waker: Option<Waker>,
}

/// Outgoing queue of one connection.
pub struct Outbox {
    /// Number of the connection on this node; never reused.
    pub id: u64,
    /// Second of the node's clock at which the deadline elapses.
    deadline: AtomicU32,
    /// Requests of other tasks, and the delivery sample of one queued stanza.
    pub(super) signals: OutboxSignals,
    pub(super) inner: RankedMutex<Inner, { rank::OUTBOX }>,
}

/// Batches above this size swap the buffer, so that dense traffic does not allocate.
const SMALL_BATCH: usize = 8;
/// See [`QueuedStanza::weight`].
const WEIGHT_UNIT: u32 = 16;
/// Added to the bytes of each queued stanza: pointer, head, allocation.
const ITEM_OVERHEAD: u32 = 128;
const NO_DEADLINE: u32 = u32::MAX;
pub(super) static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Outbox {
    /// An empty queue without a deadline.
    pub fn new() -> Outbox {
        Outbox {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            deadline: AtomicU32::new(NO_DEADLINE),
            signals: OutboxSignals::default(),
            inner: RankedMutex::new(Inner {
                queue: SmallVec::new(),
                bytes: [0; 3],
                waker: None,
                close_reason: None,
                phase: OutboxPhase::Open,
                delay: DelayGeneration::default(),
                has_shared: false,
                watch: OutboxWatch::default(),
                rare: None,
                management: None,
            }),
        }
    }

    /// Queues a stanza and wakes the connection's task. The stanza is not counted in a backlog.
    pub fn push(&self, item: QueuedStanza, urgency: Urgency, limits: &OutboxLimits) -> PushOutcome {
        self.push_accounted(item, urgency, &AdmissionContext { limits, backlog: None, bypass_budgets: false })
    }

    /// Like [`Outbox::push`], for a queue whose bytes are counted for its account.
    pub fn push_accounted(
        &self,
        item: QueuedStanza,
        urgency: Urgency,
        context: &AdmissionContext<'_>,
    ) -> PushOutcome {
        self.push_or_return(item, urgency, context).unwrap_or_else(|refused| refused.outcome)
    }

    /// Like [`Outbox::push_accounted`], for a caller that needs a stanza that is not queued: copies of one stanza share a counter, which
    /// all cores change.
    ///
    /// # Errors
    /// The stanza, if the outcome is that there is no room or the stream is closed.
    pub fn push_or_return(
        &self,
        mut item: QueuedStanza,
        urgency: Urgency,
        context: &AdmissionContext<'_>,
    ) -> Result<PushOutcome, RefusedPush> {
        let refused = |item, outcome| Err(RefusedPush { item, outcome });
        let size = item.size();
        let class = item.stanza.class();
        let slot = class.index();
        let mut inner = self.inner.lock();
        if inner.is_closed() {
            return refused(item, PushOutcome::Closed);
        }
        inner.has_shared |= item.stanza.is_shared();
        if inner.phase == OutboxPhase::Draining {
            inner.queue.push(item);
            return Ok(PushOutcome::Queued);
        }
        if urgency != Urgency::Now {
            inner.drop_superseded(&item.stanza);
        }
        let (mut dropped, mut ends_session) = (0, false);
        if inner.needs_admission_check(class, size, context.limits) {
            match inner.admit(&mut item, context) {
                QueueAdmission::Admitted(count) => dropped = count,
                QueueAdmission::Lossy(count) => {
                    dropped = count;
                    ends_session = inner.management.as_deref_mut().is_some_and(StreamManagement::set_lossy);
                }
                QueueAdmission::Rejected { limit, lossy } => {
                    ends_session =
                        lossy && inner.management.as_deref_mut().is_some_and(StreamManagement::set_lossy);
                    drop(inner);
                    if ends_session {
                        self.close(lost_presence());
                    }
                    return refused(item, PushOutcome::LimitReached(limit));
                }
                QueueAdmission::CloseStream => {
                    inner.close_reason.get_or_insert_with(|| {
                        Box::new(
                            StreamError::new(StreamCondition::ResourceConstraint)
                                .text("the client does not read the responses to its requests"),
                        )
                    });
                    wake_task(inner);
                    return refused(item, PushOutcome::Closed);
                }
            }
        }
        inner.bytes[slot] += size;
        inner.queue.push(item);
        if urgency == Urgency::Now {
            // Before the lock is released: the task that dequeues the stanza must find its sample.
            self.start_sample(
                class,
                inner.management.as_deref().is_none_or(StreamManagement::has_connection),
            );
        }
        let delay = if urgency == Urgency::Soon { inner.delay.start() } else { None };
        // A push that drops stanzas reports the drop instead of the delay token, so the task is woken now.
        let unreported = delay.is_some() && dropped > 0;
        if urgency == Urgency::Now || unreported || inner.bytes.iter().sum::<u32>() > MAX_DELAYED_BYTES {
            wake_task(inner);
        } else {
            drop(inner);
        }
        if ends_session {
            self.close(lost_presence());
        }
        Ok(match delay {
            _ if dropped > 0 => PushOutcome::DroppedOlder(dropped),
            Some(token) => PushOutcome::StartedDelay(token),
            None => PushOutcome::Queued,
        })
    }

    /// Dequeues everything (`into` must be empty) and registers the task for the next stanza. True if the
    /// stream must be closed: see [`Outbox::close_reason`]. Without stream management the messages count as delivered.
    pub fn dequeue_all(&self, cx: &mut Context<'_>, into: &mut QueuedBatch) -> bool {
        let closing = self.dequeue(cx, into, u32::MAX, 0).closing;
        if self.management_terms().is_none() {
            self.confirm_written(into.iter().map(|item| &item.stanza));
        }
        closing
    }

    /// Like [`Outbox::dequeue_all`], but stops before `bytes` are exceeded; at least one stanza is dequeued.
    /// The rest stays subject to the limits of the queue, which do not cover a connection's own buffers. `now`
    /// is the node's second. Without stream management, the caller must confirm the messages ([`crate::WrittenMessages`]).
    pub fn dequeue(
        &self,
        cx: &mut Context<'_>,
        into: &mut QueuedBatch,
        bytes: u32,
        now: u32,
    ) -> DequeueOutcome {
        // A stanza whose sample is visible here is already in the queue.
        let sampled = self.signals.has_sample();
        let taken = self.dequeue_locked(cx, into, bytes, now);
        if sampled && !taken.more {
            self.signals.mark_sample_dequeued();
        }
        taken
    }

    fn dequeue_locked(
        &self,
        cx: &mut Context<'_>,
        into: &mut QueuedBatch,
        bytes: u32,
        now: u32,
    ) -> DequeueOutcome {
        let mut inner = self.inner.lock();
        if !inner.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        let closing = inner.close_reason.is_some();
        if inner.phase != OutboxPhase::Open {
            return DequeueOutcome { closing, more: false, request_ack: false };
        }
        inner.delay.end();
        if let Inner { queue, bytes: counts, management: Some(ack), .. } = &mut *inner {
            let more = ack.take_sendable(queue, counts, into, bytes, now);
            let request_ack = !more && ack.start_ack_request(now);
            inner.count_removed(into);
            inner.stop_counting();
            if !into.is_empty() {
                notify_tracker(inner, None);
            }
            return DequeueOutcome { closing, more, request_ack };
        }
        if inner.queue.is_empty() {
            return DequeueOutcome { closing, more: false, request_ack: false };
        }
        let more = inner.bytes.iter().sum::<u32>() > bytes;
        if more {
            let Inner { queue, bytes: counts, .. } = &mut *inner;
            let (mut count, mut sum) = (0, 0_u32);
            for item in queue.iter() {
                let size = item.size();
                if count > 0 && sum + size > bytes {
                    break;
                }
                counts[item.stanza.class().index()] -= size;
                sum += size;
                count += 1;
            }
            into.extend(queue.drain(..count));
        } else if inner.queue.len() > SMALL_BATCH {
            std::mem::swap(&mut inner.queue, into);
            inner.bytes = [0; 3];
        } else {
            // The last batch before a session becomes idle is small and leaves no buffer allocated.
            into.extend(inner.queue.drain(..));
            inner.queue.shrink_to_fit();
            inner.bytes = [0; 3];
        }
        inner.count_removed(into);
        inner.stop_counting();
        let more = !inner.queue.is_empty();
        if inner.has_shared {
            // A tracked message is delivered when the kernel has taken it.
            let delivered = into.iter().filter(|item| !item.stanza.is_delivery_tracked());
            delivered.for_each(|item| item.stanza.mark_delivered());
            inner.has_shared = more;
        }
        if inner.rare.is_some() {
            notify_tracker(inner, None);
        }
        DequeueOutcome { closing, more, request_ack: false }
    }

    /// Starts to track stored messages and replaces an earlier tracker. There is one tracker at a time.
    pub fn track_stored(&self) {
        self.inner.lock().rare().tracker = Some(StoredMessageTracker::default());
    }

    /// Stops tracking stored messages.
    pub fn stop_tracking_stored(&self) {
        let mut inner = self.inner.lock();
        inner.rare().tracker = None;
        inner.drop_empty_rare();
    }

    /// Delivery progress of stored messages; registers the task to wake when it changes.
    pub fn delivery_progress(&self, cx: Option<&mut Context<'_>>) -> DeliveryProgress {
        let mut inner = self.inner.lock();
        let mut progress = DeliveryProgress {
            delivered_through: 0,
            queue_empty: inner.queue.is_empty(),
            closed: inner.is_closed(),
        };
        if let Some(tracker) = inner.tracker() {
            progress.delivered_through = tracker.delivered_through;
            tracker.waker = cx.map(|cx| cx.waker().clone());
        }
        progress
    }

    /// Registers the task without dequeuing. True if the stream must be closed.
    pub fn register_waker(&self, cx: &mut Context<'_>) -> bool {
        let mut inner = self.inner.lock();
        if !inner.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        inner.close_reason.is_some()
    }

    /// Counts bytes in the buffer of the connection, which left the queue and are not sent, for the account; 0 when its
    /// client reads again.
    pub fn set_unsent(&self, bytes: u32, backlog: &Arc<Backlog>, owner: JidRef<'_>) {
        let mut inner = self.inner.lock();
        if bytes == 0 {
            inner.release_unsent();
        } else if !inner.is_closed() {
            inner.rare().unsent.get_or_insert_with(|| UnsentEntry::new(backlog, owner)).set(bytes);
        }
    }

    /// Requests that the connection's task closes the stream with this error. The first request counts.
    pub fn close(&self, reason: StreamError) {
        self.close_first(reason);
    }

    /// The same. False if there was a request before, or the stream is closed.
    pub(crate) fn close_first(&self, reason: StreamError) -> bool {
        let mut inner = self.inner.lock();
        if inner.close_reason.is_some() || inner.is_closed() {
            return false;
        }
        inner.close_reason = Some(Box::new(reason));
        // No task owns the outbox, so a task that waits for the takeover must handle the close.
        let claimant = inner
            .management
            .as_deref_mut()
            .filter(|ack| ack.is_unowned())
            .and_then(StreamManagement::take_claimant_waker);
        let tracker = inner.tracker().and_then(|tracker| tracker.waker.take());
        wake_task(inner);
        for waker in [claimant, tracker].into_iter().flatten() {
            waker.wake();
        }
        true
    }

    /// The requested stream error, for the connection's task.
    pub fn close_reason(&self) -> Option<StreamError> {
        self.inner.lock().close_reason.as_deref().cloned()
    }

    /// Wakes the connection's task for delayed stanzas; see [`Urgency::Later`].
    pub fn flush(&self) {
        let inner = self.inner.lock();
        if !inner.queue.is_empty() {
            wake_task(inner);
        }
    }

    /// Ends the delay with this token, unless it has ended; see [`PushOutcome::StartedDelay`].
    pub fn flush_delayed(&self, token: DelayToken) {
        let mut inner = self.inner.lock();
        if inner.delay.end_if(token) {
            wake_task(inner);
        }
    }

    /// Closes the outbox and returns what it held: unacknowledged stanzas, then the queue.
    pub fn close_and_drain(&self) -> Vec<UndeliveredStanza> {
        let mut inner = self.inner.lock();
        let left = inner.drain_undelivered();
        inner.mark_closed();
        left
    }

    /// Like [`Outbox::close_and_drain`], but in steps. After a non-empty result the outbox still accepts
    /// stanzas, which the next call returns. An empty result means that the outbox is closed.
    pub fn drain_for_close(&self) -> Vec<UndeliveredStanza> {
        let mut inner = self.inner.lock();
        inner.phase = inner.phase.after(CloseStep::Drained);
        let left = inner.drain_undelivered();
        if left.is_empty() {
            inner.mark_closed();
        }
        left
    }

    /// Sets the deadline to a second of the node's clock.
    pub fn set_deadline(&self, second: u32) {
        self.deadline.store(second, Ordering::Relaxed);
    }

    /// Second of the deadline.
    pub fn deadline(&self) -> u32 {
        self.deadline.load(Ordering::Relaxed)
    }

    /// Signals the deadline if it is due. Called by the sweep.
    pub fn check_deadline(&self, now: u32) {
        if self.deadline() <= now {
            self.signals.raise(Signal::DeadlineElapsed);
            wake_task(self.inner.lock());
        }
    }

    /// Whether the deadline elapsed since the last call.
    pub fn deadline_elapsed(&self) -> bool {
        self.signals.take(Signal::DeadlineElapsed)
    }

    /// Requests the session info of the connection's task.
    pub fn request_info(&self) {
        self.signals.raise(Signal::InfoRequested);
        wake_task(self.inner.lock());
    }

    /// Whether session info was requested since the last call.
    pub fn info_requested(&self) -> bool {
        self.signals.take(Signal::InfoRequested)
    }

    /// Whether messages of this size ([`queued_size`]) fit into the queue in its present state.
    pub fn has_room_for(&self, bytes: usize, limits: &OutboxLimits) -> bool {
        let queued = self.inner.lock().bytes[QueueClass::Message.index()] as usize;
        queued.saturating_add(bytes) <= limits.queue_message_bytes as usize
    }

    /// Bytes in the queue.
    pub fn queued_bytes(&self) -> u32 {
        self.inner.lock().bytes.iter().sum()
    }

    /// Bytes in the queue by class: control, messages, presence.
    pub fn queued_bytes_by_class(&self) -> [u32; 3] {
        self.inner.lock().bytes
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Outbox::new()
    }
}

impl Inner {
    pub(super) fn is_closed(&self) -> bool {
        self.phase == OutboxPhase::Closed
    }

    /// Whether the outbox is open and must not be closed.
    pub(super) fn stays_open(&self) -> bool {
        self.phase == OutboxPhase::Open && self.close_reason.is_none()
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn tracker(&mut self) -> Option<&mut StoredMessageTracker> {
        self.rare.as_deref_mut()?.tracker.as_mut()
    }

    /// Frees the box when it is empty.
    pub(super) fn drop_empty_rare(&mut self) {
        self.rare = self.rare.take().filter(|rare| !rare.is_empty());
    }

    /// Stops counting the buffer of the connection.
    pub(super) fn release_unsent(&mut self) {
        let Some(rare) = self.rare.as_deref_mut() else { return };
        if rare.unsent.take().is_some() {
            self.drop_empty_rare();
        }
    }

    fn drain_undelivered(&mut self) -> Vec<UndeliveredStanza> {
        self.release_backlog_entry();
        self.bytes = [0; 3];
        let unflushed = self.take_unflushed_undelivered();
        let Inner { queue, management: ack, .. } = self;
        let unacked = ack.as_deref_mut().map(|ack| ack.drain().collect::<Vec<_>>());
        let mut left = unflushed;
        left.extend(unacked.into_iter().flatten());
        left.extend(std::mem::take(queue).into_iter().map(|item| UndeliveredStanza { item, sent_at: None }));
        left
    }

    fn mark_closed(&mut self) {
        self.release_unsent();
        self.phase = self.phase.after(CloseStep::Finished);
        self.waker = None;
        let claimant = self.management.as_deref_mut().and_then(StreamManagement::take_claimant_waker);
        if let Some(record) = self.management.take().and_then(|management| management.resumption_record()) {
            self.rare().ended_stream = Some(record);
        }
        let tracker = self.tracker().and_then(|tracker| tracker.waker.take());
        for waker in [claimant, tracker].into_iter().flatten() {
            waker.wake();
        }
    }

    /// Removes queued presence, or the queued chat state, of the same sender: only the newest counts. All other
    /// stanzas keep their order.
    fn drop_superseded(&mut self, newer: &SharedStanza) {
        let class = newer.class();
        let counts = |stanza: &SharedStanza| match stanza.kind() {
            StanzaKind::Message(_) => is_chat_state_only(stanza),
            kind => kind != StanzaKind::Presence(PresenceType::Error),
        };
        let from = newer.head().raw_from(newer.bytes());
        if class == QueueClass::Control || from.is_none() || !counts(newer) {
            return;
        }
        let mut freed = 0;
        let Inner { queue, rare, .. } = self;
        let entry = rare.as_deref().and_then(|rare| rare.backlog_entry.as_ref());
        queue.retain(|item| {
            let stanza = &item.stanza;
            let older =
                stanza.class() == class && stanza.head().raw_from(stanza.bytes()) == from && counts(stanza);
            if older {
                stanza.settle_delivery();
                freed += item.size();
                if let Some(entry) = entry {
                    entry.sub(item);
                }
            }
            !older
        });
        self.bytes[class.index()] -= freed;
    }
}

/// Whether a message contains a chat state and nothing else.
fn is_chat_state_only(stanza: &SharedStanza) -> bool {
    let head = stanza.head();
    !head.has_body
        && head.payloads().contains(PayloadNs::Chatstates)
        && MessageTraits::of(head, stanza.bytes()).is_standalone_chat_state()
}

/// Access to a locked outbox.
pub(super) type OutboxGuard<'a> = RankedMutexGuard<'a, Inner, { rank::OUTBOX }>;

/// Reports progress to the tracker of stored messages.
pub(super) fn notify_tracker(mut inner: OutboxGuard<'_>, stored: Option<u64>) {
    let Some(tracker) = inner.tracker() else { return };
    tracker.delivered_through = tracker.delivered_through.max(stored.unwrap_or_default());
    let waker = tracker.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub(super) fn wake_task(mut inner: OutboxGuard<'_>) {
    let waker = inner.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Error condition for a message that found a full queue and was not stored.
pub const QUEUE_FULL_CONDITION: StanzaCondition = StanzaCondition::ResourceConstraint;

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> QueuedStanza {
        QueuedStanza::new(SharedStanza::parse(text.as_bytes()).unwrap(), ToRewrite::None)
    }

    fn limits() -> OutboxLimits {
        OutboxLimits {
            queue_message_bytes: 400,
            queue_presence_bytes: 400,
            queue_control_bytes: 400,
            ..OutboxLimits::default()
        }
    }

    fn drain(outbox: &Outbox) -> QueuedBatch {
        let mut out = QueuedBatch::new();
        outbox.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut out);
        out
    }

    #[test]
    fn a_message_that_finds_the_queue_full_is_returned() {
        let outbox = Outbox::new();
        assert_eq!(outbox.push(item("<message/>"), Urgency::Now, &limits()), PushOutcome::Queued);
        assert_eq!(outbox.push(item("<message/>"), Urgency::Now, &limits()), PushOutcome::Queued);
        assert_eq!(
            outbox.push(item("<message/>"), Urgency::Now, &limits()),
            PushOutcome::LimitReached(ExceededLimit::Queue)
        );
        assert_eq!(drain(&outbox).len(), 2);
        assert_eq!(outbox.push(item("<message/>"), Urgency::Now, &limits()), PushOutcome::Queued);
    }

    #[test]
    fn a_partial_dequeue_preserves_order_and_counts_the_rest() {
        let outbox = Outbox::new();
        for n in 0..3 {
            outbox.push(item(&format!("<message id='{n}'/>")), Urgency::Now, &OutboxLimits::default());
        }
        let all = outbox.queued_bytes();
        let mut cx = Context::from_waker(Waker::noop());
        let mut ids = Vec::new();
        for (budget, more) in [(1, true), (all / 3, true), (all, false), (all, false)] {
            let mut batch = QueuedBatch::new();
            let taken = outbox.dequeue(&mut cx, &mut batch, budget, 0);
            assert_eq!(taken, DequeueOutcome { closing: false, more, request_ack: false });
            ids.extend(batch.iter().map(|i| i.stanza.head().id(i.stanza.bytes()).unwrap().into_owned()));
        }
        assert_eq!((ids, outbox.queued_bytes()), (vec!["0".into(), "1".into(), "2".into()], 0));
    }

    #[test]
    fn delayed_stanzas_wake_no_task_and_only_the_newest_presence_of_a_sender_remains() {
        struct Count(AtomicU32);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let woken = std::sync::Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(woken.clone());
        let outbox = Outbox::new();
        outbox.dequeue_all(&mut Context::from_waker(&waker), &mut QueuedBatch::new());
        for text in [
            "<presence from='a@x/1' id='1'/>",
            "<presence from='b@x/1' id='2'/>",
            "<message id='3'/>",
            "<presence from='a@x/1' type='unavailable' id='4'/>",
        ] {
            outbox.push(item(text), Urgency::Later, &OutboxLimits::default());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        outbox.push(item("<message id='5'/>"), Urgency::Now, &OutboxLimits::default());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let ids: Vec<String> = drain(&outbox)
            .iter()
            .map(|i| i.stanza.head().id(i.stanza.bytes()).unwrap().into_owned())
            .collect();
        assert_eq!((ids.join(" "), outbox.queued_bytes()), ("2 3 4 5".into(), 0));
    }

    #[test]
    fn the_oldest_presence_is_dropped_and_order_is_preserved() {
        let outbox = Outbox::new();
        for n in 0..5 {
            let pushed = outbox.push(item(&format!("<presence id='{n}'/>")), Urgency::Now, &limits());
            assert_eq!(pushed, if n < 2 { PushOutcome::Queued } else { PushOutcome::DroppedOlder(1) });
        }
        let ids: Vec<String> = drain(&outbox)
            .iter()
            .map(|i| i.stanza.head().id(i.stanza.bytes()).unwrap().into_owned())
            .collect();
        assert_eq!(ids, ["3", "4"]);
    }

    #[test]
    fn unread_answers_close_the_stream() {
        let outbox = Outbox::new();
        for _ in 0..2 {
            assert_eq!(
                outbox.push(item("<iq type='result' id='1'/>"), Urgency::Now, &limits()),
                PushOutcome::Queued
            );
        }
        assert_eq!(
            outbox.push(item("<iq type='result' id='1'/>"), Urgency::Now, &limits()),
            PushOutcome::Closed
        );
        assert_eq!(outbox.close_reason().unwrap().condition, StreamCondition::ResourceConstraint);
    }

    #[test]
    fn a_closed_outbox_accepts_nothing_and_returns_its_queue() {
        let outbox = Outbox::new();
        outbox.push(item("<message/>"), Urgency::Now, &limits());
        assert_eq!(outbox.close_and_drain().len(), 1);
        assert_eq!(outbox.push(item("<message/>"), Urgency::Now, &limits()), PushOutcome::Closed);
    }

    #[test]
    fn a_small_batch_releases_its_buffer() {
        let outbox = Outbox::new();
        let mut batch = QueuedBatch::new();
        let fill = |n: usize| {
            for _ in 0..n {
                outbox.push(item("<presence/>"), Urgency::Now, &OutboxLimits::default());
            }
        };
        for n in [20, 20, 5, 1] {
            fill(n);
            outbox.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut batch);
            assert_eq!(batch.len(), n);
            batch.clear();
        }
        assert!(!outbox.inner.lock().queue.spilled());
    }

    #[test]
    fn the_deadline_elapses_once_when_due() {
        let outbox = Outbox::new();
        outbox.set_deadline(5);
        outbox.check_deadline(4);
        assert!(!outbox.deadline_elapsed());
        outbox.check_deadline(5);
        assert!(outbox.deadline_elapsed() && !outbox.deadline_elapsed());
    }
}
