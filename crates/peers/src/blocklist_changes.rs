//! Changes of blocklists (XEP-0191, section 3.3): the request of a user is answered when the other nodes with sessions of the account
//! have read the list, so that they deliver nothing any more that is blocked.
//!
//! Such a node settles the report of the change after it has read the list (`invalidation.rs`). After [`MAX_WAIT_SECONDS`] the request
//! is answered although a node has not: it may be lost.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use cluster::{Envelope, EnvelopeClass, EnvelopeKind, InvalidationSubject, Recipient};
use jid::JidRef;
use throng_core::receipt::Receipt;

use super::home::PeerState;
use crate::ClusteredNode;

/// Seconds after which a change is complete although a node has not read the list.
const MAX_WAIT_SECONDS: u32 = 3;

/// Changes that wait for other nodes: the second of the node's clock at which each stops waiting, a number that tells those of one
/// second apart, and the waker of its task.
#[derive(Default)]
pub(super) struct PendingBlocklistChanges(LeafMutex<BTreeMap<(u32, u64), Waker>>);

impl PendingBlocklistChanges {
    fn wake_at(&self, change: (u32, u64), waker: &Waker) {
        self.0.lock().insert(change, waker.clone());
    }

    /// Called by the sweep.
    pub(super) fn wake_overdue(&self, now: u32) {
        let mut waiting = self.0.lock();
        let later = waiting.split_off(&(now.saturating_add(1), 0));
        let overdue = std::mem::replace(&mut *waiting, later);
        drop(waiting);
        overdue.into_values().for_each(Waker::wake);
    }
}

/// A change that waits. Its waker goes with it.
struct PendingChange {
    state: Arc<PeerState>,
    key: (u32, u64),
}

impl Drop for PendingChange {
    fn drop(&mut self) {
        self.state.pending_blocklist_changes.0.lock().remove(&self.key);
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
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (node, deadline) = (self.owned(), self.seconds().saturating_add(MAX_WAIT_SECONDS));
        let key = (deadline, NUMBER.fetch_add(1, Ordering::Relaxed));
        let change = PendingChange { state: node.view().state.clone(), key };
        Box::pin(poll_fn(move |cx| {
            receipts.retain(|receipt| receipt.poll_outcome(cx).is_pending());
            if receipts.is_empty() || node.view().seconds() >= deadline {
                return Poll::Ready(());
            }
            change.state.pending_blocklist_changes.wake_at(change.key, cx.waker());
            Poll::Pending
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
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
        [(10, 1), (12, 0), (12, 0)].into_iter().for_each(|change| waiting.wake_at(change, &waker));
        for (now, expected) in [(9, 0), (10, 1), (11, 1), (12, 2), (13, 2)] {
            waiting.wake_overdue(now);
            assert_eq!(wakes.0.load(Ordering::Relaxed), expected, "{now}");
        }
        assert!(waiting.0.lock().is_empty());
    }
}
