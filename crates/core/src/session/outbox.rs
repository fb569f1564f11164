//! The line to one connection: its bounded queue, its alarm, and the wish to end it.
//!
//! A link exists from accept to close, with or without an account behind it. Everything that other tasks may
//! do to a connection goes through here: put a stanza in the queue, ring the alarm, close.
//!
//! The queue is bounded in bytes, by class. When presence is full the oldest presence goes; when messages are
//! full the sender is told so and stores the message; when control is full answers that nobody asked for go, and then the
//! stream is closed, because a client that does not read its answers is beyond help. What others may fill of it, and what
//! all queues together may hold, is decided in `shed.rs`.
//!
//! A line dies in two steps. While it *fades* nothing leaves it to the peer, but frames still come in and are taken out
//! by whoever buries it ([`Outbox::drain_for_close`]); only when that finds nothing the line is gone. So what was in the queue and
//! what comes at the same moment go on in one order.
//!
//! Long because the queue, its deadline and the takeover of a resumption change together under one lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;
use smallvec::SmallVec;
use stanza::{MessageTraits, PresenceType, StanzaCondition, StanzaKind, StreamCondition, StreamError};
use xml::Ns;

use super::admission::{Admission, Rank, lost_presence};
use super::backlog::{AdmissionContext, BacklogEntry, ExceededLimit};
use super::stream_management::{StreamManagement, UndeliveredStanza};
use crate::limits::NodeLimits;
use crate::shared_stanza::{QueueClass, SharedStanza};

/// A frame in a queue.
#[derive(Clone, Debug)]
pub struct QueuedStanza {
    /// The stanza.
    pub frame: SharedStanza,
    /// Who sent it, for budgets; found out when it matters.
    pub(super) sender: u32,
    /// Its size in units of 16 bytes, as far as these go.
    weight: u16,
    /// What to put in while writing.
    pub to_rewrite: ToRewrite,
    pub(super) rank: Rank,
}

/// The `to` that is put in while writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToRewrite {
    /// The frame is written as it is.
    None,
    /// The receiver's bare address.
    Bare,
    /// The receiver's full address.
    Full,
}

/// Whether a frame may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The connection's task is woken.
    Now,
    /// Like [`Urgency::DeferredOutcome`], but not for long: whoever pushes sees to it that [`Outbox::flush_delayed`] is called.
    Soon,
    /// It leaves with the next frame that is urgent, or when [`MAX_DELAYED_BYTES`] bytes have come together. A presence takes the
    /// place of the older one from the same sender, and so does a message that says no more than how its sender is doing.
    Later,
}

/// Bytes that wait for something urgent at most.
pub const MAX_DELAYED_BYTES: u32 = 64 * 1024;

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// It is in the queue.
    Queued,
    /// It is in the queue, and the first there that is to leave soon: this turn is for [`Outbox::flush_delayed`].
    StartedDelay(u8),
    /// It is in the queue, and so many older ones of its class went for it: presence, or answers that nobody asked for.
    DroppedOlder(u32),
    /// There is no room: a message belongs into the store.
    LimitReached(ExceededLimit),
    /// The stream is gone or going.
    Closed,
}

/// What [`Outbox::dequeue`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DequeueOutcome {
    /// The stream is to be ended: see [`Outbox::close_reason`].
    pub closing: bool,
    /// There is more in the queue that may be taken.
    pub more: bool,
    /// The peer is to be asked for an acknowledgement.
    pub request_ack: bool,
}

/// How far messages out of the store came; see [`Outbox::track_stored`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryProgress {
    /// All up to this number of the store were taken, and acknowledged if the peer acknowledges; 0 before the first.
    pub delivered_through: u64,
    /// The queue is empty.
    pub queue_empty: bool,
    /// The line is dead: nothing more will be taken.
    pub closed: bool,
}

impl QueuedStanza {
    /// A stanza for a queue.
    pub fn new(frame: SharedStanza, stamp: ToRewrite) -> QueuedStanza {
        let weight = u16::try_from(queued_size(&frame).div_ceil(WEIGHT_UNIT)).unwrap_or(u16::MAX);
        let rank = Rank::of(&frame);
        QueuedStanza { frame, sender: super::backlog::SENDER_UNKNOWN, weight, to_rewrite: stamp, rank }
    }
    /// What the frame counts in its queue, rounded up, without a look at the frame.
    pub(super) fn weight(&self) -> u32 {
        u32::from(self.weight) * WEIGHT_UNIT
    }
    /// What the frame counts in its queue.
    pub(super) fn size(&self) -> u32 {
        queued_size(&self.frame)
    }
}

/// What a frame counts in a queue.
pub(super) fn queued_size(frame: &SharedStanza) -> u32 {
    u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX).saturating_add(ITEM_OVERHEAD)
}

/// Items leave the queue in this form; two fit without an allocation.
pub type QueuedBatch = SmallVec<[QueuedStanza; 2]>;

pub(super) struct Inner {
    pub(super) queue: QueuedBatch,
    pub(super) bytes: [u32; 3],
    pub(super) waker: Option<Waker>,
    /// Why the stream is to be closed; boxed, since nearly every stream ends by itself.
    pub(super) close_reason: Option<Box<StreamError>>,
    pub(super) closed: bool,
    /// Nothing leaves any more but through [`Outbox::drain_for_close`].
    pub(super) draining: bool,
    /// Odd while something in the queue is to leave soon; another number each time. One byte, which is what was free.
    delay_generation: u8,
    /// Something in the queue went to other sessions, too.
    has_shared: bool,
    /// What hardly any link has; boxed for that.
    pub(super) rare: Option<Box<Rare>>,
    /// Absent until enabled.
    pub(super) management: Option<Box<StreamManagement>>,
}

#[derive(Default)]
pub(super) struct Rare {
    /// Who watches stored messages.
    tracker: Option<StoredMessageTracker>,
    /// What is in the node's ledger.
    pub(super) backlog_entry: Option<BacklogEntry>,
}

#[derive(Default)]
struct StoredMessageTracker {
    delivered_through: u64,
    waker: Option<Waker>,
}

/// The line to one connection.
pub struct Outbox {
    /// Number of the connection on this node, never used again.
    pub id: u64,
    /// Second (of the node's clock) at which the alarm rings.
    deadline: AtomicU32,
    /// Three signals, and behind them the one stanza in the queue whose delivery is timed (`timing.rs`).
    pub(super) signals: AtomicU32,
    pub(super) inner: Mutex<Inner>,
}

/// A signal: the alarm rang.
const DEADLINE_ELAPSED: u32 = 1;
/// A signal: another connection wants the line.
pub(super) const TAKEOVER_REQUESTED: u32 = 2;
/// A signal: the connection is to say what it knows of itself.
const INFO_REQUESTED: u32 = 4;

/// A batch above this size hands the buffer on, so that dense traffic does not allocate.
const SMALL_BATCH: usize = 8;
/// See [`Item::weight`].
const WEIGHT_UNIT: u32 = 16;
/// Written behind each stanza's own bytes in the queue: pointer, head, allocation.
const ITEM_OVERHEAD: u32 = 128;
const NO_DEADLINE: u32 = u32::MAX;
pub(super) static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Outbox {
    /// A line with an empty queue and no alarm.
    pub fn new() -> Outbox {
        Outbox {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            deadline: AtomicU32::new(NO_DEADLINE),
            signals: AtomicU32::new(0),
            inner: Mutex::new(Inner {
                queue: SmallVec::new(),
                bytes: [0; 3],
                waker: None,
                close_reason: None,
                closed: false,
                draining: false,
                delay_generation: 0,
                has_shared: false,
                rare: None,
                management: None,
            }),
        }
    }

    /// Puts a frame into the queue and wakes the connection's task. No ledger counts it.
    pub fn push(&self, item: QueuedStanza, urgency: Urgency, limits: &NodeLimits) -> PushOutcome {
        self.push_accounted(item, urgency, &AdmissionContext { limits, backlog: None, bypass_budgets: false })
    }

    /// The same for a queue of this account.
    pub fn push_accounted(
        &self,
        mut item: QueuedStanza,
        urgency: Urgency,
        room: &AdmissionContext<'_>,
    ) -> PushOutcome {
        let size = item.size();
        let class = item.frame.class();
        let slot = class_index(class);
        let mut inner = self.inner.lock();
        if inner.closed {
            return PushOutcome::Closed;
        }
        inner.has_shared |= item.frame.is_shared();
        if inner.draining {
            inner.queue.push(item);
            return PushOutcome::Queued;
        }
        if urgency != Urgency::Now {
            inner.drop_superseded(&item.frame);
        }
        let (mut shed, mut lost) = (0, false);
        if inner.needs_admission_check(class, size, room.limits) {
            match inner.admit(&mut item, room) {
                Admission::Admitted(count) => shed = count,
                Admission::Lossy(count) => {
                    shed = count;
                    lost = inner.management.as_deref_mut().is_some_and(StreamManagement::set_lossy);
                }
                Admission::Rejected(full) => return PushOutcome::LimitReached(full),
                Admission::CloseStream => {
                    inner.close_reason.get_or_insert_with(|| {
                        Box::new(
                            StreamError::new(StreamCondition::ResourceConstraint)
                                .text("the client does not read what it asked for"),
                        )
                    });
                    wake_task(inner);
                    return PushOutcome::Closed;
                }
            }
        }
        inner.bytes[slot] += size;
        inner.queue.push(item);
        if urgency == Urgency::Now {
            // Before the lock is free: whoever takes the frame must find its time.
            self.start_sample(
                class,
                inner.management.as_deref().is_none_or(StreamManagement::has_connection),
            );
        }
        let mut begun = None;
        if urgency == Urgency::Soon && inner.delay_generation & 1 == 0 {
            inner.delay_generation = inner.delay_generation.wrapping_add(3);
            begun = Some(inner.delay_generation);
        }
        // Who is told what was shed is not told the turn.
        let untold = begun.is_some() && shed > 0;
        if urgency == Urgency::Now || untold || inner.bytes.iter().sum::<u32>() > MAX_DELAYED_BYTES {
            wake_task(inner);
        } else {
            drop(inner);
        }
        if lost {
            self.close(lost_presence());
        }
        match begun {
            _ if shed > 0 => PushOutcome::DroppedOlder(shed),
            Some(turn) => PushOutcome::StartedDelay(turn),
            None => PushOutcome::Queued,
        }
    }

    /// Takes everything out of the queue (`into` must be empty) and registers the task for what comes next.
    /// True if the stream is to be ended: see [`Outbox::close_reason`].
    pub fn dequeue_all(&self, cx: &mut Context<'_>, into: &mut QueuedBatch) -> bool {
        self.dequeue(cx, into, u32::MAX, 0).closing
    }

    /// The same, but stops before more than `bytes` are taken; one frame is always taken. What stays is within the
    /// limits of the queue, which a connection's own buffers need not be. `now` is the node's second.
    pub fn dequeue(
        &self,
        cx: &mut Context<'_>,
        into: &mut QueuedBatch,
        bytes: u32,
        now: u32,
    ) -> DequeueOutcome {
        // What is timed by now is in the queue by now.
        let timed = self.has_sample();
        let taken = self.dequeue_locked(cx, into, bytes, now);
        if timed && !taken.more {
            self.mark_sample_dequeued();
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
        let ending = inner.close_reason.is_some();
        if inner.draining {
            return DequeueOutcome { closing: ending, more: false, request_ack: false };
        }
        inner.delay_generation &= !1;
        if let Inner { queue, bytes: counts, management: Some(ack), .. } = &mut *inner {
            let more = ack.take_sendable(queue, counts, into, bytes, now);
            let ask = !more && ack.start_ack_request(now);
            inner.count_removed(into);
            inner.stop_counting();
            if !into.is_empty() {
                notify_tracker(inner, None);
            }
            return DequeueOutcome { closing: ending, more, request_ack: ask };
        }
        if inner.queue.is_empty() {
            return DequeueOutcome { closing: ending, more: false, request_ack: false };
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
                counts[class_index(item.frame.class())] -= size;
                sum += size;
                count += 1;
            }
            into.extend(queue.drain(..count));
        } else if inner.queue.len() > SMALL_BATCH {
            std::mem::swap(&mut inner.queue, into);
            inner.bytes = [0; 3];
        } else {
            // The last batch before a session falls quiet is a small one: it leaves no buffer behind.
            into.extend(inner.queue.drain(..));
            inner.queue.shrink_to_fit();
            inner.bytes = [0; 3];
        }
        inner.count_removed(into);
        inner.stop_counting();
        let more = !inner.queue.is_empty();
        if inner.has_shared {
            into.iter().for_each(|item| item.frame.mark_delivered());
            inner.has_shared = more;
        }
        if inner.rare.is_some() {
            let stored = into.iter().rev().find_map(|item| item.frame.stored());
            notify_tracker(inner, stored);
        }
        DequeueOutcome { closing: ending, more, request_ack: false }
    }

    /// Begins to watch messages out of the store; what was watched before is forgotten. One watcher at a time.
    pub fn track_stored(&self) {
        self.inner.lock().rare().tracker = Some(StoredMessageTracker::default());
    }
    /// Nobody watches any more.
    pub fn stop_tracking_stored(&self) {
        let mut inner = self.inner.lock();
        inner.rare().tracker = None;
        inner.drop_empty_rare();
    }
    /// How far the stored messages came, and the task to wake when that changes.
    pub fn delivery_progress(&self, cx: Option<&mut Context<'_>>) -> DeliveryProgress {
        let mut inner = self.inner.lock();
        let mut progress = DeliveryProgress {
            delivered_through: 0,
            queue_empty: inner.queue.is_empty(),
            closed: inner.closed,
        };
        if let Some(watch) = inner.tracker() {
            progress.delivered_through = watch.delivered_through;
            watch.waker = cx.map(|cx| cx.waker().clone());
        }
        progress
    }

    /// Registers the task without taking anything. True if the stream is to be ended.
    pub fn register_waker(&self, cx: &mut Context<'_>) -> bool {
        let mut inner = self.inner.lock();
        if !inner.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        inner.close_reason.is_some()
    }

    /// Asks the connection's task to end the stream with this error. The first wish counts.
    pub fn close(&self, why: StreamError) {
        let mut inner = self.inner.lock();
        if inner.close_reason.is_some() || inner.closed {
            return;
        }
        inner.close_reason = Some(Box::new(why));
        // Nobody holds the line: who is about to take it has to see to it.
        let heir = inner
            .management
            .as_deref_mut()
            .filter(|ack| ack.is_unowned())
            .and_then(StreamManagement::take_claimant_waker);
        let watcher = inner.tracker().and_then(|watch| watch.waker.take());
        wake_task(inner);
        for waker in [heir, watcher].into_iter().flatten() {
            waker.wake();
        }
    }

    /// The wish to end the stream, for the connection's task.
    pub fn close_reason(&self) -> Option<StreamError> {
        self.inner.lock().close_reason.as_deref().cloned()
    }

    /// Wakes the connection's task for what waits; see [`Urgency::DeferredOutcome`].
    pub fn flush(&self) {
        let inner = self.inner.lock();
        if !inner.queue.is_empty() {
            wake_task(inner);
        }
    }

    /// What was to leave soon is to leave now, unless it did; see [`PushOutcome::StartedDelay`].
    pub fn flush_delayed(&self, turn: u8) {
        let mut inner = self.inner.lock();
        if inner.delay_generation == turn {
            inner.delay_generation &= !1;
            wake_task(inner);
        }
    }

    /// Marks the line as dead and returns what it still held: what was not acknowledged, then the queue.
    pub fn close_and_drain(&self) -> Vec<UndeliveredStanza> {
        let mut inner = self.inner.lock();
        let left = inner.drain_undelivered();
        inner.mark_closed();
        left
    }

    /// The same in steps: while this returns something the line takes more in, which comes out the next time. Nothing
    /// means that the line is dead.
    pub fn drain_for_close(&self) -> Vec<UndeliveredStanza> {
        let mut inner = self.inner.lock();
        inner.draining = true;
        let left = inner.drain_undelivered();
        if left.is_empty() {
            inner.mark_closed();
        }
        left
    }

    /// Sets the alarm to a second of the node's clock.
    pub fn set_deadline(&self, second: u32) {
        self.deadline.store(second, Ordering::Relaxed);
    }
    /// Second of the alarm.
    pub fn deadline(&self) -> u32 {
        self.deadline.load(Ordering::Relaxed)
    }
    /// Rings the alarm if it is due: called by the sweep.
    pub fn check_deadline(&self, now: u32) {
        if self.deadline() <= now {
            self.signals.fetch_or(DEADLINE_ELAPSED, Ordering::Relaxed);
            wake_task(self.inner.lock());
        }
    }
    /// Whether the alarm rang since the last call.
    pub fn deadline_elapsed(&self) -> bool {
        self.signals.load(Ordering::Relaxed) & DEADLINE_ELAPSED != 0
            && self.signals.fetch_and(!DEADLINE_ELAPSED, Ordering::AcqRel) & DEADLINE_ELAPSED != 0
    }
    /// Asks the connection's task for [`crate::inquiry::Facts`].
    pub(crate) fn request_info(&self) {
        self.signals.fetch_or(INFO_REQUESTED, Ordering::Release);
        wake_task(self.inner.lock());
    }
    /// Whether that was asked since the last call.
    pub fn info_requested(&self) -> bool {
        self.signals.load(Ordering::Acquire) & INFO_REQUESTED != 0
            && self.signals.fetch_and(!INFO_REQUESTED, Ordering::AcqRel) & INFO_REQUESTED != 0
    }
    /// Whether all of these messages fit into the queue as it is now.
    pub fn has_room_for<'a>(
        &self,
        messages: impl Iterator<Item = &'a SharedStanza>,
        limits: &NodeLimits,
    ) -> bool {
        let more: u64 = messages.map(|frame| u64::from(queued_size(frame))).sum();
        let queued = u64::from(self.inner.lock().bytes[class_index(QueueClass::Message)]);
        queued + more <= u64::from(limits.queue_message_bytes)
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
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
    fn tracker(&mut self) -> Option<&mut StoredMessageTracker> {
        self.rare.as_deref_mut()?.tracker.as_mut()
    }
    /// Keeps no box for nothing.
    pub(super) fn drop_empty_rare(&mut self) {
        self.rare = self.rare.take().filter(|rare| rare.tracker.is_some() || rare.backlog_entry.is_some());
    }
    fn drain_undelivered(&mut self) -> Vec<UndeliveredStanza> {
        self.release_backlog_entry();
        self.bytes = [0; 3];
        let Inner { queue, management: ack, .. } = self;
        let unacked = ack.as_deref_mut().map(|ack| ack.drain().collect::<Vec<_>>());
        let mut left = unacked.unwrap_or_default();
        left.extend(std::mem::take(queue).into_iter().map(|item| UndeliveredStanza { item, sent_at: None }));
        left
    }
    fn mark_closed(&mut self) {
        self.closed = true;
        self.waker = None;
        let heir = self.management.as_deref_mut().and_then(StreamManagement::take_claimant_waker);
        self.management = None;
        let watcher = self.tracker().and_then(|watch| watch.waker.take());
        for waker in [heir, watcher].into_iter().flatten() {
            waker.wake();
        }
    }
    /// Removes waiting presence of the sender of this one, or its waiting chat state: only the newest counts. Everything
    /// else keeps its place.
    fn drop_superseded(&mut self, newer: &SharedStanza) {
        let class = newer.class();
        let counts = |frame: &SharedStanza| match frame.kind() {
            StanzaKind::Message(_) => is_chat_state_only(frame),
            kind => kind != StanzaKind::Presence(PresenceType::Error),
        };
        let from = newer.head().raw_from(newer.bytes());
        if class == QueueClass::Control || from.is_none() || !counts(newer) {
            return;
        }
        let mut freed = 0;
        let Inner { queue, rare, .. } = self;
        let charge = rare.as_deref().and_then(|rare| rare.backlog_entry.as_ref());
        queue.retain(|item| {
            let frame = &item.frame;
            let older =
                frame.class() == class && frame.head().raw_from(frame.bytes()) == from && counts(frame);
            if older {
                freed += item.size();
                if let Some(charge) = charge {
                    charge.sub(item);
                }
            }
            !older
        });
        self.bytes[class_index(class)] -= freed;
    }
}

/// A message that is a chat state and nothing else.
fn is_chat_state_only(frame: &SharedStanza) -> bool {
    let head = frame.head();
    !head.has_body
        && head.payloads().contains(Ns::Chatstates)
        && MessageTraits::of(head, frame.bytes()).is_standalone_chat_state()
}

/// Tells the watcher of stored messages how far they came.
pub(super) fn notify_tracker(mut inner: parking_lot::MutexGuard<'_, Inner>, stored: Option<u64>) {
    let Some(watch) = inner.tracker() else { return };
    watch.delivered_through = stored.unwrap_or(watch.delivered_through);
    let waker = watch.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub(super) fn wake_task(mut inner: parking_lot::MutexGuard<'_, Inner>) {
    let waker = inner.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub(super) const fn class_index(class: QueueClass) -> usize {
    match class {
        QueueClass::Control => 0,
        QueueClass::Message => 1,
        QueueClass::Presence => 2,
    }
}

/// The condition for a sender whose message found a full queue and no store.
pub const QUEUE_FULL_CONDITION: StanzaCondition = StanzaCondition::ResourceConstraint;

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> QueuedStanza {
        QueuedStanza::new(SharedStanza::parse(text.as_bytes()).unwrap(), ToRewrite::None)
    }
    fn limits() -> NodeLimits {
        NodeLimits {
            queue_message_bytes: 400,
            queue_presence_bytes: 400,
            queue_control_bytes: 400,
            ..NodeLimits::default()
        }
    }
    fn drain(link: &Outbox) -> QueuedBatch {
        let mut out = QueuedBatch::new();
        link.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut out);
        out
    }

    #[test]
    fn a_message_that_finds_the_queue_full_is_returned() {
        let link = Outbox::new();
        assert_eq!(link.push(item("<message/>"), Urgency::Now, &limits()), PushOutcome::Queued);
        assert_eq!(link.push(item("<message/>"), Urgency::Now, &limits()), PushOutcome::Queued);
        assert_eq!(
            link.push(item("<message/>"), Urgency::Now, &limits()),
            PushOutcome::LimitReached(ExceededLimit::Queue)
        );
        assert_eq!(drain(&link).len(), 2);
        assert_eq!(link.push(item("<message/>"), Urgency::Now, &limits()), PushOutcome::Queued);
    }

    #[test]
    fn a_part_is_taken_in_order_and_the_rest_is_counted() {
        let link = Outbox::new();
        for n in 0..3 {
            link.push(item(&format!("<message id='{n}'/>")), Urgency::Now, &NodeLimits::default());
        }
        let all = link.queued_bytes();
        let mut cx = Context::from_waker(Waker::noop());
        let mut ids = Vec::new();
        for (budget, more) in [(1, true), (all / 3, true), (all, false), (all, false)] {
            let mut batch = QueuedBatch::new();
            let taken = link.dequeue(&mut cx, &mut batch, budget, 0);
            assert_eq!(taken, DequeueOutcome { closing: false, more, request_ack: false });
            ids.extend(batch.iter().map(|i| i.frame.head().id(i.frame.bytes()).unwrap().into_owned()));
        }
        assert_eq!((ids, link.queued_bytes()), (vec!["0".into(), "1".into(), "2".into()], 0));
    }

    #[test]
    fn delayed_stanzas_wake_nobody_and_only_the_newest_presence_of_a_sender_stays() {
        struct Count(AtomicU32);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let woken = std::sync::Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(woken.clone());
        let link = Outbox::new();
        link.dequeue_all(&mut Context::from_waker(&waker), &mut QueuedBatch::new());
        for text in [
            "<presence from='a@x/1' id='1'/>",
            "<presence from='b@x/1' id='2'/>",
            "<message id='3'/>",
            "<presence from='a@x/1' type='unavailable' id='4'/>",
        ] {
            link.push(item(text), Urgency::Later, &NodeLimits::default());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        link.push(item("<message id='5'/>"), Urgency::Now, &NodeLimits::default());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let ids: Vec<String> =
            drain(&link).iter().map(|i| i.frame.head().id(i.frame.bytes()).unwrap().into_owned()).collect();
        assert_eq!((ids.join(" "), link.queued_bytes()), ("2 3 4 5".into(), 0));
    }

    #[test]
    fn the_oldest_presence_goes_and_order_stays() {
        let link = Outbox::new();
        for n in 0..5 {
            let pushed = link.push(item(&format!("<presence id='{n}'/>")), Urgency::Now, &limits());
            assert_eq!(pushed, if n < 2 { PushOutcome::Queued } else { PushOutcome::DroppedOlder(1) });
        }
        let ids: Vec<String> =
            drain(&link).iter().map(|i| i.frame.head().id(i.frame.bytes()).unwrap().into_owned()).collect();
        assert_eq!(ids, ["3", "4"]);
    }

    #[test]
    fn unread_answers_close_the_stream() {
        let link = Outbox::new();
        for _ in 0..2 {
            assert_eq!(
                link.push(item("<iq type='result' id='1'/>"), Urgency::Now, &limits()),
                PushOutcome::Queued
            );
        }
        assert_eq!(
            link.push(item("<iq type='result' id='1'/>"), Urgency::Now, &limits()),
            PushOutcome::Closed
        );
        assert_eq!(link.close_reason().unwrap().condition, StreamCondition::ResourceConstraint);
    }

    #[test]
    fn a_closed_outbox_accepts_nothing_and_returns_its_queue() {
        let link = Outbox::new();
        link.push(item("<message/>"), Urgency::Now, &limits());
        assert_eq!(link.close_and_drain().len(), 1);
        assert_eq!(link.push(item("<message/>"), Urgency::Now, &limits()), PushOutcome::Closed);
    }

    #[test]
    fn a_small_batch_leaves_no_buffer_behind() {
        let link = Outbox::new();
        let mut batch = QueuedBatch::new();
        let fill = |n: usize| {
            for _ in 0..n {
                link.push(item("<presence/>"), Urgency::Now, &NodeLimits::default());
            }
        };
        for n in [20, 20, 5, 1] {
            fill(n);
            link.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut batch);
            assert_eq!(batch.len(), n);
            batch.clear();
        }
        assert!(!link.inner.lock().queue.spilled());
    }

    #[test]
    fn the_deadline_elapses_once_when_due() {
        let link = Outbox::new();
        link.set_deadline(5);
        link.check_deadline(4);
        assert!(!link.deadline_elapsed());
        link.check_deadline(5);
        assert!(link.deadline_elapsed() && !link.deadline_elapsed());
    }
}
