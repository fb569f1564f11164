//! Presence that is gathered: what wakes a connection later, with others of its kind, for connections to which every
//! answer is dear.
//!
//! Over BOSH (XEP-0124) each answer costs the client a request, some seven hundred bytes of HTTP and, on a phone, a radio
//! that wakes up (XEP-0286 section 4). Most answers to a client with a roster are presence of one contact. So presence of
//! contacts waits for the node's delay at most, and leaves before that, in order, with whatever is urgent or with the
//! answer to what the client sends. Only the newest presence of a sender stays meanwhile.
//!
//! Never delayed are subscriptions and errors, presence of the user's own resources (it is the answer to the client's own),
//! and that of rooms, on which clients wait while they join.
//!
//! All delays are alike, so the line of those that wait is in order by itself: no timer and no allocation for a session.
//!
//! The trap: a line that was taken meanwhile, and waits again, is in here twice; the turn says which entry counts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use base::clock::Millis;
use parking_lot::Mutex;
use stanza::{PresenceType, StanzaKind};
use xml::Ns;

use super::{Outbox, Session, flags};
use crate::shared_stanza::SharedStanza;

/// The lines of a node that wait for their time.
#[derive(Default)]
pub struct PresenceBatcher {
    delay: AtomicU32,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<(Millis, Arc<Outbox>, u8)>,
    /// Who lets them go.
    waker: Option<Waker>,
}

impl PresenceBatcher {
    /// Milliseconds that presence waits at most; 0, as at first: it does not wait.
    pub fn set_delay(&self, millis: u32) {
        self.delay.store(millis, Ordering::Relaxed);
    }

    /// Whether this may wait in this session's queue.
    pub(crate) fn should_delay(&self, session: &Session, frame: &SharedStanza) -> bool {
        session.flags.has(flags::BATCHES_PRESENCE)
            && self.delay.load(Ordering::Relaxed) > 0
            && matches!(
                frame.kind(),
                StanzaKind::Presence(PresenceType::Available | PresenceType::Unavailable)
            )
            && !frame.head().payloads().contains(Ns::MucUser)
            && !frame
                .head()
                .raw_from(frame.bytes())
                .is_some_and(|from| is_own_resource(from, session.bare().as_str()))
    }

    /// This line waits from now on.
    pub(crate) fn schedule(&self, link: &Arc<Outbox>, turn: u8, now: Millis) {
        let due = now.plus(u64::from(self.delay.load(Ordering::Relaxed)));
        let mut waiting = self.waiting.lock();
        waiting.queue.push_back((due, link.clone(), turn));
        let waker = waiting.waker.take();
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
    }

    /// When the next one is due, as soon as one waits. One task may ask.
    pub fn poll_due(&self, cx: &Context<'_>) -> Poll<Millis> {
        let mut waiting = self.waiting.lock();
        match waiting.queue.front() {
            Some((due, ..)) => Poll::Ready(*due),
            None => {
                waiting.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Lets those go whose time has come.
    pub fn flush_due(&self, now: Millis) {
        loop {
            let mut waiting = self.waiting.lock();
            if waiting.queue.front().is_none_or(|(due, ..)| *due > now) {
                if waiting.queue.is_empty() {
                    waiting.queue.shrink_to(1024);
                }
                return;
            }
            let first = waiting.queue.pop_front();
            drop(waiting);
            if let Some((_, link, turn)) = first {
                link.flush_delayed(turn);
            }
        }
    }
}

/// Whether `from`, as it stands in a stanza, is a resource of this account, or may be.
fn is_own_resource(from: &str, bare: &str) -> bool {
    match from.strip_prefix(bare) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        // Written with references: nobody's presence is worth a second look.
        None => from.contains('&'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::NodeLimits;
    use crate::session::{PushOutcome, QueuedBatch, QueuedStanza, ToRewrite, Urgency};
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn push(gather: &PresenceBatcher, link: &Arc<Outbox>, text: &str, urgency: Urgency, now: u64) {
        let item = QueuedStanza::new(SharedStanza::parse(text.as_bytes()).unwrap(), ToRewrite::None);
        if let PushOutcome::StartedDelay(turn) = link.push(item, urgency, &NodeLimits::default()) {
            gather.schedule(link, turn, Millis(now));
        }
    }
    fn take(link: &Outbox, waker: &Waker) -> usize {
        let mut out = QueuedBatch::new();
        link.dequeue_all(&mut Context::from_waker(waker), &mut out);
        out.len()
    }

    #[test]
    fn presence_leaves_after_the_delay_or_with_an_urgent_stanza() {
        let (gather, link, count) =
            (PresenceBatcher::default(), Arc::new(Outbox::new()), Arc::new(Count::default()));
        gather.set_delay(500);
        let waker = Waker::from(count.clone());
        let woken = || count.0.load(Ordering::Relaxed);
        let cx = Context::from_waker(Waker::noop());
        assert_eq!((take(&link, &waker), gather.poll_due(&cx)), (0, Poll::Pending));
        // Two of one sender and one of another: three came, two stay, one wake-up.
        push(&gather, &link, "<presence from='a@b/c'/>", Urgency::Soon, 1_000);
        push(&gather, &link, "<presence from='a@b/c' type='unavailable'/>", Urgency::Soon, 1_100);
        push(&gather, &link, "<presence from='d@b/c'/>", Urgency::Soon, 1_200);
        assert_eq!((woken(), gather.poll_due(&cx)), (0, Poll::Ready(Millis(1_500))));
        gather.flush_due(Millis(1_499));
        assert_eq!(woken(), 0);
        gather.flush_due(Millis(1_500));
        assert_eq!((woken(), take(&link, &waker)), (1, 2));
        assert_eq!(gather.poll_due(&cx), Poll::Pending);
        // A message takes along what waits; what comes after it has its own time.
        push(&gather, &link, "<presence from='a@b/c'/>", Urgency::Soon, 2_000);
        push(&gather, &link, "<message from='a@b/c'/>", Urgency::Now, 2_100);
        assert_eq!((woken(), take(&link, &waker)), (2, 2));
        push(&gather, &link, "<presence from='a@b/c'/>", Urgency::Soon, 2_400);
        gather.flush_due(Millis(2_500));
        assert_eq!(woken(), 2);
        gather.flush_due(Millis(2_900));
        assert_eq!((woken(), take(&link, &waker)), (3, 1));
    }

    #[test]
    fn addresses_that_may_be_own_resources_are_recognised() {
        for (from, own) in
            [("a@b", true), ("a@b/c", true), ("a@b.c/d", false), ("x@b/c", false), ("a&apos;@b/c", true)]
        {
            assert_eq!(is_own_resource(from, "a@b"), own, "{from}");
        }
    }
}
