//! Recipients whose delivery of stored messages must be retried because the store failed; without this their messages would wait
//! for their next presence.
//!
//! A sweep retries a bounded number of recipients, because a database that does not keep up must not get the requests of all at once. All
//! recipients of a round are tried before one is tried again.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use jid::Jid;
use throng_core::Node;
use throng_core::node_extensions::Swept;

use super::OfflineDelivery;

/// Seconds between two sweeps that retry.
const INTERVAL_SECONDS: u32 = 5;
/// Maximum number of recipients in one sweep.
const RECIPIENTS_PER_SWEEP: usize = 256;

/// The recipients of a node. One that goes offline stays until the next attempt, which finds nothing to do.
#[derive(Default)]
pub(super) struct FailedDeliveries(LeafMutex<FailedRecipients>);

#[derive(Default)]
struct FailedRecipients {
    /// Those of the present round that have not been tried.
    due: Vec<(Jid, Weak<OfflineDelivery>)>,
    /// Those that failed since that round began.
    next: Vec<(Jid, Weak<OfflineDelivery>)>,
    /// The addresses in `next`.
    addresses: HashSet<Jid>,
}

impl FailedRecipients {
    fn take(&mut self) -> Vec<(Jid, Weak<OfflineDelivery>)> {
        if self.due.is_empty() {
            self.due = std::mem::take(&mut self.next);
            self.addresses = HashSet::new();
        }
        self.due.split_off(self.due.len().saturating_sub(RECIPIENTS_PER_SWEEP))
    }
}

impl FailedDeliveries {
    pub(super) fn add(&self, delivery: &Arc<OfflineDelivery>, owner: Jid) {
        let mut failed = self.0.lock();
        if failed.addresses.insert(owner.clone()) {
            failed.next.push((owner, Arc::downgrade(delivery)));
        }
    }
}

impl Swept for FailedDeliveries {
    fn sweep(&self, node: &Arc<Node>, now: u32) {
        if !now.is_multiple_of(INTERVAL_SECONDS) {
            return;
        }
        let recipients = self.0.lock().take();
        for (owner, delivery) in recipients {
            if let (Some(delivery), Some(account)) =
                (delivery.upgrade(), node.routing_table.find(owner.as_ref()))
            {
                delivery.available(node, &account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_takes_a_part_and_no_recipient_is_skipped() {
        let failed = FailedDeliveries::default();
        let delivery = Arc::new(OfflineDelivery::new());
        let jid = |n: usize| Jid::parse(&format!("u{n}@localhost")).unwrap();
        (0..600).for_each(|n| failed.add(&delivery, jid(n)));
        let mut seen = HashSet::new();
        for expected in [256, 256, 88] {
            let taken = failed.0.lock().take();
            assert_eq!(taken.len(), expected);
            // All fail again, and are in the next round, once.
            for (owner, _) in &taken {
                failed.add(&delivery, owner.clone());
                failed.add(&delivery, owner.clone());
            }
            seen.extend(taken.into_iter().map(|(owner, _)| owner));
        }
        assert_eq!(seen.len(), 600);
        let sizes: Vec<usize> = (0..4).map(|_| failed.0.lock().take().len()).collect();
        assert_eq!(sizes, [256, 256, 88, 0]);
    }
}
