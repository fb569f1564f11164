//! Changes of blocklists (XEP-0191, section 3.3): the request of a user is answered when the other nodes with sessions of the account
//! have read the list, so that they deliver nothing any more that is blocked.
//!
//! Such a node settles the report of the change after it has read the list (`invalidation.rs`). After [`MAX_WAIT_SECONDS`] the request
//! is answered although a node has not: it may be lost.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use cluster::{Envelope, EnvelopeClass, EnvelopeKind, InvalidationSubject, Recipient};
use jid::JidRef;
use throng_core::receipt::Receipt;

use crate::ClusteredNode;

/// Seconds after which a change is complete although a node has not read the list.
const MAX_WAIT_SECONDS: u32 = 3;

/// Changes that wait for other nodes: the second of the node's clock at which each stops waiting, and the waker of its task.
#[derive(Default)]
pub(super) struct PendingBlocklistChanges(LeafMutex<Vec<(u32, Waker)>>);

impl PendingBlocklistChanges {
    fn wake_at(&self, deadline: u32, waker: &Waker) {
        let mut waiting = self.0.lock();
        if !waiting.iter().any(|(at, known)| *at == deadline && known.will_wake(waker)) {
            waiting.push((deadline, waker.clone()));
        }
    }

    /// Called by the sweep.
    pub(super) fn wake_overdue(&self, now: u32) {
        let overdue: Vec<(u32, Waker)> = self.0.lock().extract_if(.., |(at, _)| *at <= now).collect();
        overdue.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl ClusteredNode<'_> {
    /// Reports a change of a blocklist in the store to all other nodes. The future is ready when those with sessions of the account
    /// have read the list, or after [`MAX_WAIT_SECONDS`].
    pub(super) fn announce_blocklist(&self, owner: JidRef<'_>) -> BoxFuture<'static, ()> {
        let own = self.cluster.node();
        let location = self.cluster.locate(self.routing_table.hash(owner), None);
        let kind = EnvelopeKind::Invalidation(InvalidationSubject::Blocklist);
        let mut receipts: Vec<Receipt> = Vec::new();
        for member in self.cluster.members().into_iter().filter(|member| member.node != own) {
            let recipients = vec![Recipient::Address(owner.bare().to_jid())];
            let envelope = Envelope::new(kind, EnvelopeClass::Control, own, recipients, Vec::new());
            let has_sessions = location.contains(own, member.node);
            match self.hand_over(member.node, envelope, None, has_sessions) {
                Ok(receipt) => receipts.extend(receipt),
                Err(refused) => self.change_was_refused(owner, kind, &refused),
            }
        }
        let (node, deadline) = (self.owned(), self.seconds().saturating_add(MAX_WAIT_SECONDS));
        Box::pin(poll_fn(move |cx| {
            receipts.retain(|receipt| receipt.poll_outcome(cx).is_pending());
            let node = node.view();
            if receipts.is_empty() || node.seconds() >= deadline {
                return Poll::Ready(());
            }
            node.state.pending_blocklist_changes.wake_at(deadline, cx.waker());
            Poll::Pending
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_change_that_waits_is_woken_at_its_deadline() {
        let (waiting, wakes) = (PendingBlocklistChanges::default(), Arc::new(Wakes(AtomicU32::new(0))));
        let waker = Waker::from(wakes.clone());
        [10, 12].iter().for_each(|deadline| waiting.wake_at(*deadline, &waker));
        for (now, expected) in [(9, 0), (10, 1), (11, 1), (12, 2), (13, 2)] {
            waiting.wake_overdue(now);
            assert_eq!(wakes.0.load(Ordering::Relaxed), expected, "{now}");
        }
        assert!(waiting.0.lock().is_empty());
    }
}
