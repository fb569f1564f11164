//! Batching of presence for connections on which each answer is expensive.
//!
//! Over BOSH (XEP-0124) each answer costs the client a request, about seven hundred bytes of HTTP and, on a
//! phone, a radio wake-up (XEP-0286, section 4). Most answers to a client with a roster carry presence of one
//! contact. So presence of contacts is delayed by at most the node's delay, and leaves earlier, in order, with
//! any urgent stanza or with the answer to a stanza of the client. Only the newest presence of a sender is
//! retained meanwhile.
//!
//! Never delayed: subscriptions and errors, presence of the user's own resources (the response to the client's
//! own presence), and presence of rooms, for which clients wait while they join.
//!
//! All delays have the same length, so the queue of waiting outboxes is always sorted: no timer and no
//! allocation for each session.
//!
//! # Pitfalls
//!
//! An outbox that was dequeued meanwhile and waits again is queued here twice; the token tells which entry is
//! valid.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use base::clock::Millis;
use base::lock::LeafMutex;
use stanza::{PayloadNs, PresenceType, StanzaKind};

use super::{DelayToken, Outbox};
use crate::shared_stanza::SharedStanza;

/// Outboxes of a node whose delayed presence waits to be sent.
#[derive(Default)]
pub struct PresenceBatcher {
    delay: AtomicU32,
    waiting: LeafMutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<(Millis, Arc<Outbox>, DelayToken)>,
    /// The task that flushes them.
    waker: Option<Waker>,
}

impl PresenceBatcher {
    /// Sets the delay in milliseconds; 0, the initial value, disables batching.
    pub fn set_delay(&self, millis: u32) {
        self.delay.store(millis, Ordering::Relaxed);
    }

    /// Whether this stanza may be delayed in the queue of a session of the account `owner`, a bare address.
    pub fn should_delay(&self, owner: &str, stanza: &SharedStanza) -> bool {
        self.delay.load(Ordering::Relaxed) > 0
            && matches!(
                stanza.kind(),
                StanzaKind::Presence(PresenceType::Available | PresenceType::Unavailable)
            )
            && !stanza.head().payloads().contains(PayloadNs::MucUser)
            && !stanza.head().raw_from(stanza.bytes()).is_some_and(|from| is_own_resource(from, owner))
    }

    /// Schedules the flush of this outbox.
    pub fn schedule(&self, outbox: &Arc<Outbox>, token: DelayToken, now: Millis) {
        let due = now.plus(u64::from(self.delay.load(Ordering::Relaxed)));
        let mut pending = self.waiting.lock();
        pending.queue.push_back((due, outbox.clone(), token));
        let waker = pending.waker.take();
        drop(pending);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Time at which the next outbox is due; pending while none waits. For one task.
    pub fn poll_due(&self, cx: &Context<'_>) -> Poll<Millis> {
        let mut pending = self.waiting.lock();
        match pending.queue.front() {
            Some((due, ..)) => Poll::Ready(*due),
            None => {
                pending.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Flushes the outboxes that are due.
    pub fn flush_due(&self, now: Millis) {
        loop {
            let mut pending = self.waiting.lock();
            if pending.queue.front().is_none_or(|(due, ..)| *due > now) {
                if pending.queue.is_empty() {
                    pending.queue.shrink_to(1024);
                }
                return;
            }
            let first = pending.queue.pop_front();
            drop(pending);
            if let Some((_, outbox, token)) = first {
                outbox.flush_delayed(token);
            }
        }
    }
}

/// Whether `from`, as written in a stanza, is or may be a resource of this account.
fn is_own_resource(from: &str, bare: &str) -> bool {
    match from.strip_prefix(bare) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        // Contains character references: not decoded, so it may be.
        None => from.contains('&'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::OutboxLimits;
    use crate::{PushOutcome, QueuedBatch, QueuedStanza, ToRewrite, Urgency};
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn push(batcher: &PresenceBatcher, outbox: &Arc<Outbox>, text: &str, urgency: Urgency, now: u64) {
        let item = QueuedStanza::new(SharedStanza::parse(text.as_bytes()).unwrap(), ToRewrite::None);
        if let PushOutcome::StartedDelay(token) = outbox.push(item, urgency, &OutboxLimits::default()) {
            batcher.schedule(outbox, token, Millis(now));
        }
    }

    fn take(outbox: &Outbox, waker: &Waker) -> usize {
        let mut out = QueuedBatch::new();
        outbox.dequeue_all(&mut Context::from_waker(waker), &mut out);
        out.len()
    }

    #[test]
    fn presence_is_sent_after_the_delay_or_with_an_urgent_stanza() {
        let (batcher, outbox, count) =
            (PresenceBatcher::default(), Arc::new(Outbox::new()), Arc::new(Count::default()));
        batcher.set_delay(500);
        let waker = Waker::from(count.clone());
        let woken = || count.0.load(Ordering::Relaxed);
        let cx = Context::from_waker(Waker::noop());
        assert_eq!((take(&outbox, &waker), batcher.poll_due(&cx)), (0, Poll::Pending));
        // Two presences of one sender and one of another: two remain, with one wake-up.
        push(&batcher, &outbox, "<presence from='a@b/c'/>", Urgency::Soon, 1_000);
        push(&batcher, &outbox, "<presence from='a@b/c' type='unavailable'/>", Urgency::Soon, 1_100);
        push(&batcher, &outbox, "<presence from='d@b/c'/>", Urgency::Soon, 1_200);
        assert_eq!((woken(), batcher.poll_due(&cx)), (0, Poll::Ready(Millis(1_500))));
        batcher.flush_due(Millis(1_499));
        assert_eq!(woken(), 0);
        batcher.flush_due(Millis(1_500));
        assert_eq!((woken(), take(&outbox, &waker)), (1, 2));
        assert_eq!(batcher.poll_due(&cx), Poll::Pending);
        // A message sends the waiting presence with it; a later presence has its own delay.
        push(&batcher, &outbox, "<presence from='a@b/c'/>", Urgency::Soon, 2_000);
        push(&batcher, &outbox, "<message from='a@b/c'/>", Urgency::Now, 2_100);
        assert_eq!((woken(), take(&outbox, &waker)), (2, 2));
        push(&batcher, &outbox, "<presence from='a@b/c'/>", Urgency::Soon, 2_400);
        batcher.flush_due(Millis(2_500));
        assert_eq!(woken(), 2);
        batcher.flush_due(Millis(2_900));
        assert_eq!((woken(), take(&outbox, &waker)), (3, 1));
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
