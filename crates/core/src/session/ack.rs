//! Acknowledgement on a link: what was sent and not acknowledged, what was handled, and the hand-over of the line.
//!
//! XEP-0198 1.6.3 sections 4 and 5, without its syntax, which `streams` speaks. [`Ack`] is absent until it is enabled.
//! What leaves the queue is kept here until the peer has acknowledged it; when that is more than the limit, nothing more
//! leaves the queue, and the queue's own limits do the rest.
//!
//! A line that may be resumed has one holder at a time: a connection, or the task that waits for another one
//! (*dormant*). Who wants the line says so ([`Link::claim`]) and wakes the holder. The holder finishes the stanza that is
//! under way and lets go ([`Link::release`]), which wakes the claimant; it finds nobody in the way and is the holder
//! from then on ([`Link::poll_claim`]).
//!
//! The trap: between `release` and the successful `poll_claim` nobody holds the line. Whoever gives up its claim then
//! must see to the session: [`Link::unclaim`] says so.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::budget::{EXEMPT, FREE_BYTES, Room};
use super::link::{Batch, Inner, Item, Link, Stamp, WANTED, notify, slot, wake};
use crate::frame::{Class, Frame};

/// Stanzas without an acknowledgement after which one is asked for, also if none of them is worth it.
const ASK_STANZAS: usize = 20;
/// The same in bytes.
const ASK_BYTES: u32 = 16 * 1024;
/// Seconds until a peer is asked again whose answer acknowledged nothing new. Asking at once would ask as fast as the
/// connection carries question and answer.
pub const ASK_AGAIN_SECONDS: u32 = 10;
/// Room in the list of unacknowledged stanzas that is kept while it is empty.
const KEPT: usize = 16;
/// Bytes of a token.
pub const TOKEN: usize = 16;

/// What a host allows of acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Management {
    /// Seconds for which a lost stream may be resumed; 0 is never.
    pub resume_seconds: u32,
    /// Bytes of unacknowledged stanzas beyond which nothing more is sent.
    pub unacked_bytes: u32,
    /// Where clients should come back to: `host`, `host:port`; empty says nothing.
    pub location: String,
}

/// What one stream was allowed when it enabled acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Seconds for which the stream may be resumed; 0 is never.
    pub seconds: u32,
    /// Bytes of unacknowledged stanzas beyond which nothing more is sent.
    pub bytes: u32,
    /// The older of the two namespaces is spoken.
    pub old: bool,
}

/// An acknowledgement of more than was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooHigh {
    /// What the peer says it has handled.
    pub h: u32,
    /// What was sent.
    pub sent: u32,
}

/// Why a line cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The token is not that of this line, or it cannot be resumed.
    Unknown,
    /// The peer says it has handled more than was sent.
    TooHigh(TooHigh),
}

/// A stanza that a line still held when it died.
#[derive(Clone, Debug)]
pub struct Left {
    /// The stanza.
    pub item: Item,
    /// Second of the node's clock at which it was written to the peer, which did not acknowledge it.
    pub sent: Option<u32>,
}

struct Sent {
    frame: Frame,
    at: u32,
    stamp: Stamp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    Connection,
    Dormant,
    Nobody,
}

struct Claimant {
    who: u64,
    waker: Option<Waker>,
}

/// Counters and unacknowledged stanzas of one line.
pub(super) struct Ack {
    token: [u8; TOKEN],
    terms: Terms,
    /// Stanzas written, acknowledged by the peer, and handled for the peer; all wrap.
    sent: u32,
    acked: u32,
    handled: u32,
    /// Of `unacked`.
    bytes: u32,
    unacked: VecDeque<Sent>,
    /// So many from the end of `unacked` are to be written again.
    again: u32,
    /// Second at which an acknowledgement was asked for that has not come.
    asked: Option<u32>,
    /// Something that is worth asking for was sent since the last time.
    worth: bool,
    /// The last answer acknowledged nothing new: the peer is still busy with what it has. It is asked again for what is
    /// sent after that, or after [`ASK_AGAIN_SECONDS`].
    stalled: bool,
    holder: Holder,
    /// Something for the peer was dropped from the queue: it cannot get everything any more, so the line cannot be resumed
    /// (XEP-0198 section 5).
    lossy: bool,
    claimant: Option<Box<Claimant>>,
}

impl Ack {
    /// Moves what may be written now into `into`. The same rules as for [`Link::take_some`]; true if there is more.
    pub(super) fn take(
        &mut self,
        queue: &mut Batch,
        counts: &mut [u32; 3],
        into: &mut Batch,
        bytes: u32,
        now: u32,
    ) -> bool {
        let mut sum = 0_u32;
        while self.again > 0 {
            let sent = &self.unacked[self.unacked.len() - self.again as usize];
            let item = Item::new(sent.frame.clone(), sent.stamp);
            let size = item.size();
            if sum > 0 && sum + size > bytes {
                return true;
            }
            sum += size;
            into.push(item);
            self.again -= 1;
            self.worth = true;
        }
        let mut count = 0;
        for item in queue.iter() {
            let size = item.size();
            if self.bytes >= self.terms.bytes || sum > 0 && sum + size > bytes {
                break;
            }
            let class = item.frame.class();
            counts[slot(class)] -= size;
            sum += size;
            count += 1;
            self.bytes += size;
            self.sent = self.sent.wrapping_add(1);
            self.worth |= class != Class::Presence;
            self.unacked.push_back(Sent { frame: item.frame.clone(), at: now, stamp: item.stamp });
        }
        into.extend(queue.drain(..count));
        if queue.is_empty() {
            queue.shrink_to_fit();
        }
        !queue.is_empty() && self.bytes < self.terms.bytes
    }

    /// Whether an acknowledgement is to be asked for now; it counts as asked for then.
    pub(super) fn ask(&mut self, now: u32) -> bool {
        let ask = self.asked.is_none()
            && !self.unacked.is_empty()
            && (self.worth
                || !self.stalled && (self.unacked.len() >= ASK_STANZAS || self.bytes >= ASK_BYTES));
        if ask {
            self.asked = Some(now);
            self.worth = false;
            self.stalled = false;
        }
        ask
    }

    /// How many more than before the peer has handled. A count below the last one is no news, and no mistake that could
    /// lose anything.
    fn news(&self, h: u32) -> Result<u32, TooHigh> {
        let count = h.wrapping_sub(self.acked);
        match count {
            _ if count <= self.sent.wrapping_sub(self.acked) => Ok(count),
            _ if h < self.acked && self.acked - h < 1 << 31 => Ok(0),
            _ => Err(TooHigh { h, sent: self.sent }),
        }
    }

    /// What the peer has got is forgotten; returns the highest number of the store among it.
    fn acknowledge(&mut self, h: u32) -> Result<Option<u64>, TooHigh> {
        let count = self.news(h)?;
        let mut stored = None;
        for _ in 0..count {
            let Some(sent) = self.unacked.pop_front() else { break };
            self.bytes -= sent.size();
            sent.frame.arrived();
            stored = sent.frame.stored().or(stored);
        }
        self.acked = self.acked.wrapping_add(count);
        self.asked = None;
        self.stalled = count == 0 && !self.unacked.is_empty();
        self.again = self.again.min(u32::try_from(self.unacked.len()).unwrap_or(u32::MAX));
        if self.unacked.is_empty() {
            self.worth = false;
            if self.unacked.capacity() > KEPT {
                self.unacked = VecDeque::new();
            }
        }
        Ok(stored)
    }

    fn matches(&self, token: &[u8]) -> bool {
        self.terms.seconds > 0 && !self.lossy && base::secret::constant_time_eq(&self.token, token)
    }

    /// Everything that was not acknowledged, oldest first.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Left> + '_ {
        self.bytes = 0;
        self.again = 0;
        self.unacked
            .drain(..)
            .map(|sent| Left { item: Item::new(sent.frame, sent.stamp), sent: Some(sent.at) })
    }
    /// Who waits for a line that will not come any more.
    pub(super) fn give_up(&mut self) -> Option<Waker> {
        self.claimant.as_mut()?.waker.take()
    }
    /// Whether nobody would notice a wish to close.
    pub(super) fn has_connection(&self) -> bool {
        self.holder == Holder::Connection
    }
    /// What was dropped from the queue cannot be delivered. True if there is no connection, so that the session must end.
    pub(super) fn set_lossy(&mut self) -> bool {
        self.lossy = true;
        !self.has_connection()
    }
    pub(super) fn is_free(&self) -> bool {
        self.holder == Holder::Nobody
    }
}

impl Sent {
    fn size(&self) -> u32 {
        super::link::size(&self.frame)
    }
}

impl Link {
    /// Begins to count and to keep what is sent. The token by which the line can be claimed, made up by the caller, is
    /// of no use if [`Terms::seconds`] is 0. False if it was enabled before.
    pub fn enable(&self, terms: Terms, token: [u8; TOKEN]) -> bool {
        let mut inner = self.inner.lock();
        if inner.ack.is_some() || inner.gone {
            return false;
        }
        inner.ack = Some(Box::new(Ack {
            token,
            terms,
            sent: 0,
            acked: 0,
            handled: 0,
            bytes: 0,
            unacked: VecDeque::new(),
            again: 0,
            asked: None,
            worth: false,
            stalled: false,
            holder: Holder::Connection,
            lossy: false,
            claimant: None,
        }));
        true
    }

    fn ack<T>(&self, f: impl FnOnce(&mut Ack) -> T) -> Option<T> {
        self.inner.lock().ack.as_deref_mut().map(f)
    }

    /// The terms, if acknowledgement is enabled.
    pub fn terms(&self) -> Option<Terms> {
        self.ack(|ack| ack.terms)
    }
    /// Counts a stanza of the peer as handled: it is where it must survive.
    pub fn count_handled(&self) {
        self.ack(|ack| ack.handled = ack.handled.wrapping_add(1));
    }
    /// Stanzas of the peer that were handled, modulo 2^32.
    pub fn handled(&self) -> u32 {
        self.ack(|ack| ack.handled).unwrap_or_default()
    }
    /// Second at which the peer was asked for an acknowledgement that has not come.
    pub fn asked(&self) -> Option<u32> {
        self.ack(|ack| ack.asked).flatten()
    }
    /// Only now the peer can have got the request for an acknowledgement.
    pub fn put_off(&self, now: u32) {
        self.ack(|ack| ack.asked = ack.asked.map(|_| now));
    }
    /// Whether the last answer acknowledged nothing new of what is outstanding; see [`Link::ask_again`].
    pub fn is_stalled(&self) -> bool {
        self.ack(|ack| ack.stalled && ack.asked.is_none()).unwrap_or_default()
    }
    /// A peer whose last answer acknowledged nothing new may be asked again.
    pub fn ask_again(&self) {
        self.ack(|ack| ack.worth |= std::mem::take(&mut ack.stalled));
    }
    /// Bytes of what was sent and not acknowledged.
    pub fn unacked_bytes(&self) -> u32 {
        self.ack(|ack| ack.bytes).unwrap_or_default()
    }
    /// Whether the line waits for another connection.
    pub fn is_dormant(&self) -> bool {
        self.ack(|ack| ack.holder == Holder::Dormant).unwrap_or_default()
    }

    /// The peer has handled `h` stanzas.
    ///
    /// # Errors
    /// If these are more than were sent.
    pub fn acknowledge(&self, h: u32) -> Result<(), TooHigh> {
        let mut inner = self.inner.lock();
        let Some(ack) = &mut inner.ack else { return Ok(()) };
        let stored = ack.acknowledge(h)?;
        notify(inner, stored);
        Ok(())
    }

    /// The connection is gone without a farewell. True if the line may be resumed: it is dormant until the alarm rings. Not if
    /// presence was dropped from its queue, and not
    /// if what it holds is above the floor of [`FREE_BYTES`] and has no room in a budget.
    pub fn lose(&self, now: u32, room: Option<&Room<'_>>) -> bool {
        let mut inner = self.inner.lock();
        if inner.gone || inner.fading || inner.close.is_some() {
            return false;
        }
        let Some(ack) = inner.ack.as_deref_mut().filter(|ack| ack.terms.seconds > 0 && !ack.lossy) else {
            return false;
        };
        let unacked = ack.bytes;
        let held = unacked + inner.bytes.iter().sum::<u32>();
        if let Some(room) = room
            && held > 0
            && inner.set_charge(room)
        {
            inner.charge_unacked(0);
            let over = inner.charge().and_then(|charge| charge.over(EXEMPT, unacked, room.limits));
            if over.is_some() && held > FREE_BYTES {
                return false;
            }
            inner.charge_unacked(unacked);
        }
        let Some(ack) = inner.ack.as_deref_mut() else { return false };
        ack.holder = Holder::Dormant;
        ack.asked = None;
        self.untime();
        let deadline = now.saturating_add(ack.terms.seconds);
        inner.waker = None;
        self.set_deadline(deadline);
        true
    }

    /// Wants the line for the connection `who`, whose peer has handled `h` stanzas. A claim replaces an earlier one.
    ///
    /// # Errors
    /// If the token is wrong, or `h` cannot be right. Nothing has changed then.
    pub fn claim(&self, token: &[u8], h: u32, who: u64) -> Result<(), Refused> {
        let mut inner = self.inner.lock();
        if inner.gone || inner.fading || inner.close.is_some() {
            return Err(Refused::Unknown);
        }
        let ack = inner.ack.as_deref_mut().filter(|ack| ack.matches(token)).ok_or(Refused::Unknown)?;
        ack.news(h).map_err(Refused::TooHigh)?;
        let earlier = ack.claimant.replace(Box::new(Claimant { who, waker: None }));
        self.signals.fetch_or(WANTED, Ordering::Release);
        wake(inner);
        if let Some(waker) = earlier.and_then(|c| c.waker) {
            waker.wake();
        }
        Ok(())
    }

    /// True when the line is the caller's; false if it never will be.
    pub fn poll_claim(&self, cx: &mut Context<'_>, who: u64) -> Poll<bool> {
        let mut inner = self.inner.lock();
        let dead = inner.gone || inner.fading || inner.close.is_some();
        let Some(ack) = inner.ack.as_deref_mut() else { return Poll::Ready(false) };
        let Some(claimant) = ack.claimant.as_deref_mut().filter(|c| c.who == who) else {
            return Poll::Ready(false);
        };
        if dead {
            return Poll::Ready(false);
        }
        if ack.holder != Holder::Nobody {
            claimant.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        ack.holder = Holder::Connection;
        ack.claimant = None;
        inner.charge_unacked(0);
        inner.uncharge();
        Poll::Ready(true)
    }

    /// Takes a claim back. True if nobody holds the line any more: the caller must see to it.
    pub fn unclaim(&self, who: u64) -> bool {
        let free = self.ack(|ack| {
            if ack.claimant.as_ref().is_some_and(|c| c.who == who) {
                ack.claimant = None;
                return ack.holder == Holder::Nobody;
            }
            false
        });
        free.unwrap_or_default()
    }

    /// Whether another connection wants the line.
    pub fn wanted(&self) -> bool {
        self.signals.load(Ordering::Acquire) & WANTED != 0
    }

    /// Lets go of the line. False if nobody wants it any more: it stays the caller's.
    pub fn release(&self) -> bool {
        let mut inner = self.inner.lock();
        self.signals.fetch_and(!WANTED, Ordering::AcqRel);
        let Some(ack) = inner.ack.as_deref_mut() else { return false };
        let Some(claimant) = &mut ack.claimant else { return false };
        ack.holder = Holder::Nobody;
        let waker = claimant.waker.take();
        inner.waker = None;
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Goes on where another connection stopped: the peer has handled `h` stanzas, what is behind them is written again.
    /// Returns what was handled of the peer's.
    ///
    /// # Errors
    /// If the peer's count cannot be right.
    pub fn resume(&self, h: u32) -> Result<u32, TooHigh> {
        let mut inner = self.inner.lock();
        let Some(ack) = inner.ack.as_deref_mut() else { return Err(TooHigh { h, sent: 0 }) };
        let stored = ack.acknowledge(h)?;
        ack.again = u32::try_from(ack.unacked.len()).unwrap_or(u32::MAX);
        ack.stalled = false;
        let handled = ack.handled;
        notify(inner, stored);
        Ok(handled)
    }

    /// Token and count of a line that could be resumed until now, for [`Remembered`].
    pub fn epitaph(&self) -> Option<([u8; TOKEN], u32)> {
        self.ack(|ack| (ack.terms.seconds > 0).then_some((ack.token, ack.handled))).flatten()
    }

    /// Takes what the peer may still read before the end: all but messages, which go on elsewhere.
    pub fn take_answers(&self, into: &mut Batch) {
        let mut inner = self.inner.lock();
        let Inner { queue, bytes, rare, .. } = &mut *inner;
        let charge = rare.as_deref().and_then(|rare| rare.charge.as_ref());
        queue.retain(|item| {
            let class = item.frame.class();
            if class == Class::Message {
                return true;
            }
            bytes[slot(class)] -= item.size();
            if let Some(charge) = charge {
                charge.sub(item);
            }
            into.push(item.clone());
            false
        });
    }
}

/// What was handled on lines that are dead, for clients that come too late (section 5: `<failed h=''/>`).
///
/// A fixed number of places; a newer one takes the place of an older. Absent until the first line dies.
#[derive(Default)]
pub struct Remembered(Mutex<Vec<Option<Epitaph>>>);

struct Epitaph {
    account: u64,
    token: [u8; TOKEN],
    handled: u32,
}

/// Places, a power of two.
const REMEMBERED: usize = 4096;

impl Remembered {
    fn place(token: &[u8]) -> usize {
        token.iter().take(2).fold(0, |at, byte| at << 8 | usize::from(*byte)) % REMEMBERED
    }
    /// Keeps the count of a line of the account with this hash.
    pub fn keep(&self, account: u64, token: [u8; TOKEN], handled: u32) {
        let mut places = self.0.lock();
        if places.is_empty() {
            places.resize_with(REMEMBERED, || None);
        }
        places[Self::place(&token)] = Some(Epitaph { account, token, handled });
    }
    /// The count, if it is known and was the same account's.
    pub fn find(&self, account: u64, token: &[u8]) -> Option<u32> {
        let places = self.0.lock();
        let epitaph = places.get(Self::place(token))?.as_ref()?;
        let right = epitaph.account == account && base::secret::constant_time_eq(&epitaph.token, token);
        right.then_some(epitaph.handled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::session::{Taken, Urgency};

    const TERMS: Terms = Terms { seconds: 60, bytes: 400, old: false };

    fn link(terms: Terms) -> Link {
        let link = Link::new();
        assert!(link.enable(terms, [7; TOKEN]) && !link.enable(terms, [8; TOKEN]));
        link
    }
    fn push(link: &Link, text: &str) {
        link.push(
            Item::new(Frame::read(text.as_bytes()).unwrap(), Stamp::None),
            Urgency::Now,
            &Limits::default(),
        );
    }
    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }
    fn take(link: &Link, now: u32) -> (usize, Taken) {
        let mut batch = Batch::new();
        let taken = link.take_some(&mut cx(), &mut batch, u32::MAX, now);
        (batch.len(), taken)
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<Ack>() <= 128, "{}", size_of::<Ack>());
    }

    #[test]
    fn what_is_not_acknowledged_stops_the_queue_and_is_asked_for_once() {
        let link = link(TERMS);
        for id in 0..6 {
            push(&link, &format!("<message id='{id}'/>"));
        }
        let all = link.queued_bytes();
        let (count, taken) = take(&link, 5);
        assert!(count == 3 && !taken.more && taken.ask, "{count} {taken:?}");
        assert_eq!((link.unacked_bytes() + link.queued_bytes(), link.asked()), (all, Some(5)));
        assert_eq!(take(&link, 6), (0, Taken { ending: false, more: false, ask: false }));
        link.acknowledge(2).unwrap();
        let (count, taken) = take(&link, 7);
        assert!(count == 2 && taken.ask);
        link.acknowledge(5).unwrap();
        assert_eq!((link.unacked_bytes(), link.asked()), (0, None));
        assert_eq!(take(&link, 8).0, 1);
        assert_eq!(link.acknowledge(7), Err(TooHigh { h: 7, sent: 6 }));
        // The count has not changed; nothing can be taken back.
        link.acknowledge(6).unwrap();
        link.acknowledge(5).unwrap();
        assert_eq!(link.acknowledge(7), Err(TooHigh { h: 7, sent: 6 }));
    }

    #[test]
    fn a_peer_whose_answer_acknowledges_nothing_new_is_not_asked_at_once_again() {
        let link = link(Terms { bytes: 100_000, ..TERMS });
        push(&link, &format!("<message><body>{}</body></message>", "x".repeat(ASK_BYTES as usize)));
        let (count, taken) = take(&link, 1);
        assert!(count == 1 && taken.ask);
        for _ in 0..1000 {
            link.acknowledge(0).unwrap();
            assert!(!take(&link, 1).1.ask && link.is_stalled());
        }
        // What is sent after that is worth a question, but one only.
        push(&link, "<message/>");
        assert!(take(&link, 2).1.ask);
        link.acknowledge(0).unwrap();
        assert!(!take(&link, 2).1.ask);
        // The alarm lets it be asked once.
        link.ask_again();
        assert!(take(&link, 12).1.ask && !link.is_stalled() && !take(&link, 12).1.ask);
        // Progress asks for the rest.
        link.acknowledge(0).unwrap();
        link.acknowledge(1).unwrap();
        assert!(!link.is_stalled());
        link.acknowledge(2).unwrap();
        assert!(!take(&link, 13).1.ask && !link.is_stalled());
        link.ask_again();
        assert!(!take(&link, 13).1.ask);
    }

    #[test]
    fn presence_alone_is_asked_for_when_it_is_much() {
        let link = link(Terms { bytes: 100_000, ..TERMS });
        for n in 1..=ASK_STANZAS {
            push(&link, "<presence/>");
            assert_eq!(take(&link, 1).1.ask, n == ASK_STANZAS, "{n}");
        }
        link.acknowledge(ASK_STANZAS as u32).unwrap();
        push(&link, "<iq type='result' id='1'/>");
        assert!(take(&link, 1).1.ask);
    }

    #[test]
    fn section_4_counts_wrap() {
        let link = link(Terms { bytes: 100_000, ..TERMS });
        link.ack(|ack| (ack.sent, ack.acked, ack.handled) = (u32::MAX - 1, u32::MAX - 1, u32::MAX));
        for _ in 0..3 {
            push(&link, "<message/>");
        }
        assert_eq!(take(&link, 0).0, 3);
        assert_eq!(link.acknowledge(2), Err(TooHigh { h: 2, sent: 1 }));
        link.acknowledge(0).unwrap();
        assert!(link.unacked_bytes() > 0);
        link.acknowledge(1).unwrap();
        assert_eq!(link.unacked_bytes(), 0);
        link.count_handled();
        assert_eq!(link.handled(), 0);
    }

    #[test]
    fn a_line_changes_hands_once_and_sends_again_what_was_not_seen() {
        let link = link(Terms { bytes: 100_000, ..TERMS });
        for id in 0..3 {
            push(&link, &format!("<message id='{id}'/>"));
        }
        take(&link, 0);
        assert_eq!(link.claim(&[8; TOKEN], 1, 1), Err(Refused::Unknown));
        assert_eq!(link.claim(&[7; TOKEN], 4, 1), Err(Refused::TooHigh(TooHigh { h: 4, sent: 3 })));
        assert!(!link.wanted());
        link.claim(&[7; TOKEN], 1, 1).unwrap();
        link.claim(&[7; TOKEN], 1, 2).unwrap();
        assert!(link.wanted());
        assert_eq!(link.poll_claim(&mut cx(), 1), Poll::Ready(false), "replaced");
        assert_eq!(link.poll_claim(&mut cx(), 2), Poll::Pending);
        assert!(link.release() && !link.wanted());
        assert!(!link.unclaim(1), "it was not the last who wanted it");
        assert_eq!(link.poll_claim(&mut cx(), 2), Poll::Ready(true));
        push(&link, "<message id='3'/>");
        assert_eq!(link.resume(1), Ok(0));
        let mut batch = Batch::new();
        assert!(link.take_some(&mut cx(), &mut batch, u32::MAX, 0).ask);
        let ids: Vec<_> =
            batch.iter().map(|i| i.frame.head().id(i.frame.bytes()).unwrap().into_owned()).collect();
        assert_eq!(ids, ["1", "2", "3"]);
    }

    #[test]
    fn nobody_holds_a_line_that_was_let_go_for_one_who_left() {
        let link = link(TERMS);
        link.claim(&[7; TOKEN], 0, 1).unwrap();
        assert!(link.release());
        assert!(link.unclaim(1), "the caller must see to it");
        assert!(link.lose(5, None) && link.is_dormant());
        assert_eq!(link.deadline(), 65);
        // Whoever wants it while it is being closed is told so.
        link.claim(&[7; TOKEN], 0, 2).unwrap();
        link.close(stanza::StreamCondition::Conflict.into());
        assert_eq!(link.poll_claim(&mut cx(), 2), Poll::Ready(false));
        assert!(!link.lose(6, None));
        assert_eq!(link.claim(&[7; TOKEN], 0, 3), Err(Refused::Unknown));
    }

    #[test]
    fn a_dead_line_gives_back_all_in_order_and_is_remembered() {
        let link = link(TERMS);
        for id in 0..6 {
            push(&link, &format!("<message id='{id}'/>"));
        }
        take(&link, 9);
        link.count_handled();
        let (token, handled) = link.epitaph().unwrap();
        let left = link.fade();
        let sent: Vec<_> = left.iter().map(|l| l.sent).collect();
        assert_eq!(sent, [Some(9), Some(9), Some(9), None, None, None]);
        // What comes while it fades comes out the next time.
        push(&link, "<message id='6'/>");
        assert_eq!((link.fade().len(), link.fade().len()), (1, 0));
        assert_eq!(take(&link, 9).0, 0);
        let remembered = Remembered::default();
        assert_eq!(remembered.find(1, &token), None);
        remembered.keep(1, token, handled);
        assert_eq!((remembered.find(1, &token), remembered.find(2, &token)), (Some(1), None));
        for n in 0..10_000_u32 {
            let mut token = [0; TOKEN];
            token[..4].copy_from_slice(&n.to_be_bytes());
            remembered.keep(1, token, n);
        }
        assert_eq!(remembered.0.lock().len(), REMEMBERED);
    }
}
