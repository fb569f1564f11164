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
//! by whoever buries it ([`Link::fade`]); only when that finds nothing the line is gone. So what was in the queue and
//! what comes at the same moment go on in one order.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;
use smallvec::SmallVec;
use stanza::{Content, Kind, PresenceType, StanzaCondition, StreamCondition, StreamError};
use xml::Ns;

use super::ack::{Ack, Left};
use super::budget::{Charge, Full, Room};
use super::shed::{Entry, Rank, lost_presence};
use crate::frame::{Class, Frame};
use crate::limits::Limits;

/// A frame in a queue.
#[derive(Clone, Debug)]
pub struct Item {
    /// The stanza.
    pub frame: Frame,
    /// Who sent it, for budgets; found out when it matters.
    pub(super) sender: u32,
    /// Its size in units of 16 bytes, as far as these go.
    weight: u16,
    /// What to put in while writing.
    pub stamp: Stamp,
    pub(super) rank: Rank,
}

/// The `to` that is put in while writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
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
    /// Like [`Urgency::Later`], but not for long: whoever pushes sees to it that [`Link::gathered`] is called.
    Soon,
    /// It leaves with the next frame that is urgent, or when [`HELD`] bytes have come together. A presence takes the
    /// place of the older one from the same sender, and so does a message that says no more than how its sender is doing.
    Later,
}

/// Bytes that wait for something urgent at most.
pub const HELD: u32 = 64 * 1024;

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the queue.
    Queued,
    /// It is in the queue, and the first there that is to leave soon: this turn is for [`Link::gathered`].
    Begun(u8),
    /// It is in the queue, and so many older ones of its class went for it: presence, or answers that nobody asked for.
    Shed(u32),
    /// There is no room: a message belongs into the store.
    Full(Full),
    /// The stream is gone or going.
    Closed,
}

/// What [`Link::take_some`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The stream is to be ended: see [`Link::wish`].
    pub ending: bool,
    /// There is more in the queue that may be taken.
    pub more: bool,
    /// The peer is to be asked for an acknowledgement.
    pub ask: bool,
}

/// How far messages out of the store came; see [`Link::watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// All up to this number of the store were taken, and acknowledged if the peer acknowledges; 0 before the first.
    pub through: u64,
    /// The queue is empty.
    pub empty: bool,
    /// The line is dead: nothing more will be taken.
    pub gone: bool,
}

impl Item {
    /// A stanza for a queue.
    pub fn new(frame: Frame, stamp: Stamp) -> Item {
        let weight = u16::try_from(size(&frame).div_ceil(WEIGHT)).unwrap_or(u16::MAX);
        let rank = Rank::of(&frame);
        Item { frame, sender: super::budget::UNKNOWN, weight, stamp, rank }
    }
    /// What the frame counts in its queue, rounded up, without a look at the frame.
    pub(super) fn weight(&self) -> u32 {
        u32::from(self.weight) * WEIGHT
    }
    /// What the frame counts in its queue.
    pub(super) fn size(&self) -> u32 {
        size(&self.frame)
    }
}

/// What a frame counts in a queue.
pub(super) fn size(frame: &Frame) -> u32 {
    u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX).saturating_add(ITEM_OVERHEAD)
}

/// Items leave the queue in this form; two fit without an allocation.
pub type Batch = SmallVec<[Item; 2]>;

pub(super) struct Inner {
    pub(super) queue: Batch,
    pub(super) bytes: [u32; 3],
    pub(super) waker: Option<Waker>,
    /// Why the stream is to be closed; boxed, since nearly every stream ends by itself.
    pub(super) close: Option<Box<StreamError>>,
    pub(super) gone: bool,
    /// Nothing leaves any more but through [`Link::fade`].
    pub(super) fading: bool,
    /// Odd while something in the queue is to leave soon; another number each time. One byte, which is what was free.
    soon: u8,
    /// Something in the queue went to other sessions, too.
    shared: bool,
    /// What hardly any link has; boxed for that.
    pub(super) rare: Option<Box<Rare>>,
    /// Absent until enabled.
    pub(super) ack: Option<Box<Ack>>,
}

#[derive(Default)]
pub(super) struct Rare {
    /// Who watches stored messages.
    watch: Option<Watch>,
    /// What is in the node's ledger.
    pub(super) charge: Option<Charge>,
}

#[derive(Default)]
struct Watch {
    through: u64,
    waker: Option<Waker>,
}

/// The line to one connection.
pub struct Link {
    /// Number of the connection on this node, never used again.
    pub id: u64,
    /// Second (of the node's clock) at which the alarm rings.
    deadline: AtomicU32,
    /// Three signals, and behind them the one stanza in the queue whose delivery is timed (`timing.rs`).
    pub(super) signals: AtomicU32,
    pub(super) inner: Mutex<Inner>,
}

/// A signal: the alarm rang.
const RANG: u32 = 1;
/// A signal: another connection wants the line.
pub(super) const WANTED: u32 = 2;
/// A signal: the connection is to say what it knows of itself.
const INQUIRED: u32 = 4;

/// A batch above this size hands the buffer on, so that dense traffic does not allocate.
const FEW: usize = 8;
/// See [`Item::weight`].
const WEIGHT: u32 = 16;
/// Written behind each stanza's own bytes in the queue: pointer, head, allocation.
const ITEM_OVERHEAD: u32 = 128;
const NEVER: u32 = u32::MAX;
pub(super) static NEXT: AtomicU64 = AtomicU64::new(1);

impl Link {
    /// A line with an empty queue and no alarm.
    pub fn new() -> Link {
        Link {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            deadline: AtomicU32::new(NEVER),
            signals: AtomicU32::new(0),
            inner: Mutex::new(Inner {
                queue: SmallVec::new(),
                bytes: [0; 3],
                waker: None,
                close: None,
                gone: false,
                fading: false,
                soon: 0,
                shared: false,
                rare: None,
                ack: None,
            }),
        }
    }

    /// Puts a frame into the queue and wakes the connection's task. No ledger counts it.
    pub fn push(&self, item: Item, urgency: Urgency, limits: &Limits) -> Pushed {
        self.push_within(item, urgency, &Room { limits, account: None, forced: false })
    }

    /// The same for a queue of this account.
    pub fn push_within(&self, mut item: Item, urgency: Urgency, room: &Room<'_>) -> Pushed {
        let size = item.size();
        let class = item.frame.class();
        let slot = slot(class);
        let mut inner = self.inner.lock();
        if inner.gone {
            return Pushed::Closed;
        }
        inner.shared |= item.frame.is_shared();
        if inner.fading {
            inner.queue.push(item);
            return Pushed::Queued;
        }
        if urgency != Urgency::Now {
            inner.forget_older(&item.frame);
        }
        let (mut shed, mut lost) = (0, false);
        if inner.is_tight(class, size, room.limits) {
            match inner.enter(&mut item, room) {
                Entry::Open(count) => shed = count,
                Entry::Lossy(count) => {
                    shed = count;
                    lost = inner.ack.as_deref_mut().is_some_and(Ack::set_lossy);
                }
                Entry::Full(full) => return Pushed::Full(full),
                Entry::Overrun => {
                    inner.close.get_or_insert_with(|| {
                        Box::new(
                            StreamError::new(StreamCondition::ResourceConstraint)
                                .text("the client does not read what it asked for"),
                        )
                    });
                    wake(inner);
                    return Pushed::Closed;
                }
            }
        }
        inner.bytes[slot] += size;
        inner.queue.push(item);
        if urgency == Urgency::Now {
            // Before the lock is free: whoever takes the frame must find its time.
            self.time(class, inner.ack.as_deref().is_none_or(Ack::has_connection));
        }
        let mut begun = None;
        if urgency == Urgency::Soon && inner.soon & 1 == 0 {
            inner.soon = inner.soon.wrapping_add(3);
            begun = Some(inner.soon);
        }
        // Who is told what was shed is not told the turn.
        let untold = begun.is_some() && shed > 0;
        if urgency == Urgency::Now || untold || inner.bytes.iter().sum::<u32>() > HELD {
            wake(inner);
        } else {
            drop(inner);
        }
        if lost {
            self.close(lost_presence());
        }
        match begun {
            _ if shed > 0 => Pushed::Shed(shed),
            Some(turn) => Pushed::Begun(turn),
            None => Pushed::Queued,
        }
    }

    /// Takes everything out of the queue (`into` must be empty) and registers the task for what comes next.
    /// True if the stream is to be ended: see [`Link::wish`].
    pub fn take(&self, cx: &mut Context<'_>, into: &mut Batch) -> bool {
        self.take_some(cx, into, u32::MAX, 0).ending
    }

    /// The same, but stops before more than `bytes` are taken; one frame is always taken. What stays is within the
    /// limits of the queue, which a connection's own buffers need not be. `now` is the node's second.
    pub fn take_some(&self, cx: &mut Context<'_>, into: &mut Batch, bytes: u32, now: u32) -> Taken {
        // What is timed by now is in the queue by now.
        let timed = self.is_timed();
        let taken = self.take_part(cx, into, bytes, now);
        if timed && !taken.more {
            self.timed_is_taken();
        }
        taken
    }

    fn take_part(&self, cx: &mut Context<'_>, into: &mut Batch, bytes: u32, now: u32) -> Taken {
        let mut inner = self.inner.lock();
        if !inner.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        let ending = inner.close.is_some();
        if inner.fading {
            return Taken { ending, more: false, ask: false };
        }
        inner.soon &= !1;
        if let Inner { queue, bytes: counts, ack: Some(ack), .. } = &mut *inner {
            let more = ack.take(queue, counts, into, bytes, now);
            let ask = !more && ack.ask(now);
            inner.gone(into);
            inner.uncharge();
            if !into.is_empty() {
                notify(inner, None);
            }
            return Taken { ending, more, ask };
        }
        if inner.queue.is_empty() {
            return Taken { ending, more: false, ask: false };
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
                counts[slot(item.frame.class())] -= size;
                sum += size;
                count += 1;
            }
            into.extend(queue.drain(..count));
        } else if inner.queue.len() > FEW {
            std::mem::swap(&mut inner.queue, into);
            inner.bytes = [0; 3];
        } else {
            // The last batch before a session falls quiet is a small one: it leaves no buffer behind.
            into.extend(inner.queue.drain(..));
            inner.queue.shrink_to_fit();
            inner.bytes = [0; 3];
        }
        inner.gone(into);
        inner.uncharge();
        let more = !inner.queue.is_empty();
        if inner.shared {
            into.iter().for_each(|item| item.frame.arrived());
            inner.shared = more;
        }
        if inner.rare.is_some() {
            let stored = into.iter().rev().find_map(|item| item.frame.stored());
            notify(inner, stored);
        }
        Taken { ending, more, ask: false }
    }

    /// Begins to watch messages out of the store; what was watched before is forgotten. One watcher at a time.
    pub fn watch(&self) {
        self.inner.lock().rare().watch = Some(Watch::default());
    }
    /// Nobody watches any more.
    pub fn unwatch(&self) {
        let mut inner = self.inner.lock();
        inner.rare().watch = None;
        inner.tidy();
    }
    /// How far the stored messages came, and the task to wake when that changes.
    pub fn progress(&self, cx: Option<&mut Context<'_>>) -> Progress {
        let mut inner = self.inner.lock();
        let mut progress = Progress { through: 0, empty: inner.queue.is_empty(), gone: inner.gone };
        if let Some(watch) = inner.watch() {
            progress.through = watch.through;
            watch.waker = cx.map(|cx| cx.waker().clone());
        }
        progress
    }

    /// Registers the task without taking anything. True if the stream is to be ended.
    pub fn register(&self, cx: &mut Context<'_>) -> bool {
        let mut inner = self.inner.lock();
        if !inner.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        inner.close.is_some()
    }

    /// Asks the connection's task to end the stream with this error. The first wish counts.
    pub fn close(&self, why: StreamError) {
        let mut inner = self.inner.lock();
        if inner.close.is_some() || inner.gone {
            return;
        }
        inner.close = Some(Box::new(why));
        // Nobody holds the line: who is about to take it has to see to it.
        let heir = inner.ack.as_deref_mut().filter(|ack| ack.is_free()).and_then(Ack::give_up);
        let watcher = inner.watch().and_then(|watch| watch.waker.take());
        wake(inner);
        for waker in [heir, watcher].into_iter().flatten() {
            waker.wake();
        }
    }

    /// The wish to end the stream, for the connection's task.
    pub fn wish(&self) -> Option<StreamError> {
        self.inner.lock().close.as_deref().cloned()
    }

    /// Wakes the connection's task for what waits; see [`Urgency::Later`].
    pub fn flush(&self) {
        let inner = self.inner.lock();
        if !inner.queue.is_empty() {
            wake(inner);
        }
    }

    /// What was to leave soon is to leave now, unless it did; see [`Pushed::Begun`].
    pub fn gathered(&self, turn: u8) {
        let mut inner = self.inner.lock();
        if inner.soon == turn {
            inner.soon &= !1;
            wake(inner);
        }
    }

    /// Marks the line as dead and returns what it still held: what was not acknowledged, then the queue.
    pub fn end(&self) -> Vec<Left> {
        let mut inner = self.inner.lock();
        let left = inner.left();
        inner.die();
        left
    }

    /// The same in steps: while this returns something the line takes more in, which comes out the next time. Nothing
    /// means that the line is dead.
    pub fn fade(&self) -> Vec<Left> {
        let mut inner = self.inner.lock();
        inner.fading = true;
        let left = inner.left();
        if left.is_empty() {
            inner.die();
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
    pub fn sweep(&self, now: u32) {
        if self.deadline() <= now {
            self.signals.fetch_or(RANG, Ordering::Relaxed);
            wake(self.inner.lock());
        }
    }
    /// Whether the alarm rang since the last call.
    pub fn rang(&self) -> bool {
        self.signals.load(Ordering::Relaxed) & RANG != 0
            && self.signals.fetch_and(!RANG, Ordering::AcqRel) & RANG != 0
    }
    /// Asks the connection's task for [`crate::inquiry::Facts`].
    pub(crate) fn inquire(&self) {
        self.signals.fetch_or(INQUIRED, Ordering::Release);
        wake(self.inner.lock());
    }
    /// Whether that was asked since the last call.
    pub fn inquired(&self) -> bool {
        self.signals.load(Ordering::Acquire) & INQUIRED != 0
            && self.signals.fetch_and(!INQUIRED, Ordering::AcqRel) & INQUIRED != 0
    }
    /// Whether all of these messages fit into the queue as it is now.
    pub fn fits<'a>(&self, messages: impl Iterator<Item = &'a Frame>, limits: &Limits) -> bool {
        let more: u64 = messages.map(|frame| u64::from(size(frame))).sum();
        let queued = u64::from(self.inner.lock().bytes[slot(Class::Message)]);
        queued + more <= u64::from(limits.queue_message_bytes)
    }
    /// Bytes in the queue.
    pub fn queued_bytes(&self) -> u32 {
        self.inner.lock().bytes.iter().sum()
    }
    /// Bytes in the queue by class: control, messages, presence.
    pub fn queued(&self) -> [u32; 3] {
        self.inner.lock().bytes
    }
}

impl Default for Link {
    fn default() -> Self {
        Link::new()
    }
}

impl Inner {
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
    fn watch(&mut self) -> Option<&mut Watch> {
        self.rare.as_deref_mut()?.watch.as_mut()
    }
    /// Keeps no box for nothing.
    pub(super) fn tidy(&mut self) {
        self.rare = self.rare.take().filter(|rare| rare.watch.is_some() || rare.charge.is_some());
    }
    fn left(&mut self) -> Vec<Left> {
        self.discharge();
        self.bytes = [0; 3];
        let Inner { queue, ack, .. } = self;
        let unacked = ack.as_deref_mut().map(|ack| ack.drain().collect::<Vec<_>>());
        let mut left = unacked.unwrap_or_default();
        left.extend(std::mem::take(queue).into_iter().map(|item| Left { item, sent: None }));
        left
    }
    fn die(&mut self) {
        self.gone = true;
        self.waker = None;
        let heir = self.ack.as_deref_mut().and_then(Ack::give_up);
        self.ack = None;
        let watcher = self.watch().and_then(|watch| watch.waker.take());
        for waker in [heir, watcher].into_iter().flatten() {
            waker.wake();
        }
    }
    /// Removes waiting presence of the sender of this one, or its waiting chat state: only the newest counts. Everything
    /// else keeps its place.
    fn forget_older(&mut self, newer: &Frame) {
        let class = newer.class();
        let counts = |frame: &Frame| match frame.kind() {
            Kind::Message(_) => is_state(frame),
            kind => kind != Kind::Presence(PresenceType::Error),
        };
        let from = newer.head().raw_from(newer.bytes());
        if class == Class::Control || from.is_none() || !counts(newer) {
            return;
        }
        let mut freed = 0;
        let Inner { queue, rare, .. } = self;
        let charge = rare.as_deref().and_then(|rare| rare.charge.as_ref());
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
        self.bytes[slot(class)] -= freed;
    }
}

/// A message that is a chat state and nothing else.
fn is_state(frame: &Frame) -> bool {
    let head = frame.head();
    !head.has_body
        && head.payloads().contains(Ns::Chatstates)
        && Content::of(head, frame.bytes()).is_lone_state()
}

/// Tells the watcher of stored messages how far they came.
pub(super) fn notify(mut inner: parking_lot::MutexGuard<'_, Inner>, stored: Option<u64>) {
    let Some(watch) = inner.watch() else { return };
    watch.through = stored.unwrap_or(watch.through);
    let waker = watch.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub(super) fn wake(mut inner: parking_lot::MutexGuard<'_, Inner>) {
    let waker = inner.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub(super) const fn slot(class: Class) -> usize {
    match class {
        Class::Control => 0,
        Class::Message => 1,
        Class::Presence => 2,
    }
}

/// The condition for a sender whose message found a full queue and no store.
pub const FULL: StanzaCondition = StanzaCondition::ResourceConstraint;

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Item {
        Item::new(Frame::read(text.as_bytes()).unwrap(), Stamp::None)
    }
    fn limits() -> Limits {
        Limits {
            queue_message_bytes: 400,
            queue_presence_bytes: 400,
            queue_control_bytes: 400,
            ..Limits::default()
        }
    }
    fn drain(link: &Link) -> Batch {
        let mut out = Batch::new();
        link.take(&mut Context::from_waker(Waker::noop()), &mut out);
        out
    }

    #[test]
    fn full_messages_are_given_back() {
        let link = Link::new();
        assert_eq!(link.push(item("<message/>"), Urgency::Now, &limits()), Pushed::Queued);
        assert_eq!(link.push(item("<message/>"), Urgency::Now, &limits()), Pushed::Queued);
        assert_eq!(link.push(item("<message/>"), Urgency::Now, &limits()), Pushed::Full(Full::Queue));
        assert_eq!(drain(&link).len(), 2);
        assert_eq!(link.push(item("<message/>"), Urgency::Now, &limits()), Pushed::Queued);
    }

    #[test]
    fn a_part_is_taken_in_order_and_the_rest_is_counted() {
        let link = Link::new();
        for n in 0..3 {
            link.push(item(&format!("<message id='{n}'/>")), Urgency::Now, &Limits::default());
        }
        let all = link.queued_bytes();
        let mut cx = Context::from_waker(Waker::noop());
        let mut ids = Vec::new();
        for (budget, more) in [(1, true), (all / 3, true), (all, false), (all, false)] {
            let mut batch = Batch::new();
            let taken = link.take_some(&mut cx, &mut batch, budget, 0);
            assert_eq!(taken, Taken { ending: false, more, ask: false });
            ids.extend(batch.iter().map(|i| i.frame.head().id(i.frame.bytes()).unwrap().into_owned()));
        }
        assert_eq!((ids, link.queued_bytes()), (vec!["0".into(), "1".into(), "2".into()], 0));
    }

    #[test]
    fn what_can_wait_wakes_nobody_and_only_the_newest_presence_of_a_sender_stays() {
        struct Count(AtomicU32);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let woken = std::sync::Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(woken.clone());
        let link = Link::new();
        link.take(&mut Context::from_waker(&waker), &mut Batch::new());
        for text in [
            "<presence from='a@x/1' id='1'/>",
            "<presence from='b@x/1' id='2'/>",
            "<message id='3'/>",
            "<presence from='a@x/1' type='unavailable' id='4'/>",
        ] {
            link.push(item(text), Urgency::Later, &Limits::default());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        link.push(item("<message id='5'/>"), Urgency::Now, &Limits::default());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let ids: Vec<String> =
            drain(&link).iter().map(|i| i.frame.head().id(i.frame.bytes()).unwrap().into_owned()).collect();
        assert_eq!((ids.join(" "), link.queued_bytes()), ("2 3 4 5".into(), 0));
    }

    #[test]
    fn the_oldest_presence_goes_and_order_stays() {
        let link = Link::new();
        for n in 0..5 {
            let pushed = link.push(item(&format!("<presence id='{n}'/>")), Urgency::Now, &limits());
            assert_eq!(pushed, if n < 2 { Pushed::Queued } else { Pushed::Shed(1) });
        }
        let ids: Vec<String> =
            drain(&link).iter().map(|i| i.frame.head().id(i.frame.bytes()).unwrap().into_owned()).collect();
        assert_eq!(ids, ["3", "4"]);
    }

    #[test]
    fn unread_answers_close_the_stream() {
        let link = Link::new();
        for _ in 0..2 {
            assert_eq!(
                link.push(item("<iq type='result' id='1'/>"), Urgency::Now, &limits()),
                Pushed::Queued
            );
        }
        assert_eq!(link.push(item("<iq type='result' id='1'/>"), Urgency::Now, &limits()), Pushed::Closed);
        assert_eq!(link.wish().unwrap().condition, StreamCondition::ResourceConstraint);
    }

    #[test]
    fn a_dead_line_takes_nothing_and_gives_back_its_queue() {
        let link = Link::new();
        link.push(item("<message/>"), Urgency::Now, &limits());
        assert_eq!(link.end().len(), 1);
        assert_eq!(link.push(item("<message/>"), Urgency::Now, &limits()), Pushed::Closed);
    }

    #[test]
    fn a_small_batch_leaves_no_buffer_behind() {
        let link = Link::new();
        let mut batch = Batch::new();
        let fill = |n: usize| {
            for _ in 0..n {
                link.push(item("<presence/>"), Urgency::Now, &Limits::default());
            }
        };
        for n in [20, 20, 5, 1] {
            fill(n);
            link.take(&mut Context::from_waker(Waker::noop()), &mut batch);
            assert_eq!(batch.len(), n);
            batch.clear();
        }
        assert!(!link.inner.lock().queue.spilled());
    }

    #[test]
    fn the_alarm_rings_once_when_due() {
        let link = Link::new();
        link.set_deadline(5);
        link.sweep(4);
        assert!(!link.rang());
        link.sweep(5);
        assert!(link.rang() && !link.rang());
    }
}
