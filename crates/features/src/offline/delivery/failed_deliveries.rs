//! Recipients for whom the store failed while stored messages were delivered; without a retry their messages would wait for their next
//! presence.
//!
//! A sweep retries a bounded number of recipients, because a database that does not keep up must not get the requests of all at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use jid::Jid;
use throng_core::Node;
use throng_core::node_extensions::Swept;

use super::OfflineDelivery;

/// Seconds from a failure to the retry.
pub(super) const RETRY_SECONDS: u32 = 5;
/// Maximum number of recipients in one sweep, which is each second.
const RECIPIENTS_PER_SWEEP: usize = 256;

/// The recipients of a node, each once. One that goes offline stays until its retry, which finds nothing to do.
#[derive(Default)]
pub(super) struct FailedDeliveries(LeafMutex<FailedRecipients>);

#[derive(Default)]
struct FailedRecipients {
    /// In the order of their failures.
    queue: VecDeque<FailedRecipient>,
    /// When the last failure of each is due.
    addresses: HashMap<Jid, u32>,
}

struct FailedRecipient {
    /// Second of the node's clock at which it is due.
    due: u32,
    owner: Jid,
    delivery: Weak<OfflineDelivery>,
}

impl FailedRecipients {
    /// What failed later is retried later: a removal waits until its time has come, and nothing else would repeat it.
    fn add(&mut self, due: u32, delivery: &Arc<OfflineDelivery>, owner: &Jid) {
        if self.addresses.insert(owner.clone(), due).is_none() {
            self.queue.push_back(FailedRecipient {
                due,
                owner: owner.clone(),
                delivery: Arc::downgrade(delivery),
            });
        }
    }

    /// Removes and returns those that are due, at most [`RECIPIENTS_PER_SWEEP`].
    fn take(&mut self, now: u32) -> Vec<FailedRecipient> {
        let taken: Vec<FailedRecipient> =
            std::iter::from_fn(|| self.queue.pop_front_if(|first| first.due <= now))
                .take(RECIPIENTS_PER_SWEEP)
                .collect();
        for FailedRecipient { owner, delivery, .. } in &taken {
            match self.addresses.get(owner) {
                Some(&due) if due > now => {
                    let (owner, delivery) = (owner.clone(), delivery.clone());
                    self.queue.push_back(FailedRecipient { due, owner, delivery });
                }
                _ => drop(self.addresses.remove(owner)),
            }
        }
        if self.queue.is_empty() {
            *self = FailedRecipients::default();
        }
        taken
    }
}

impl FailedDeliveries {
    /// The store failed for this recipient.
    pub(super) fn add(node: &Arc<Node>, delivery: &Arc<OfflineDelivery>, owner: &Jid) {
        let failed = node.extensions.get_or_default_swept::<FailedDeliveries>();
        let due = node.seconds().saturating_add(RETRY_SECONDS);
        failed.0.lock().add(due, delivery, owner);
    }
}

impl Swept for FailedDeliveries {
    fn sweep(&self, node: &Arc<Node>, now: u32) {
        let recipients = self.0.lock().take(now);
        for FailedRecipient { owner, delivery, .. } in recipients {
            let account = node.routing_table.find(owner.as_ref());
            if let (Some(delivery), Some(account)) = (delivery.upgrade(), account) {
                delivery.retry(node, &account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_is_retried_again_for_what_failed_after_its_first_failure() {
        let mut failed = FailedRecipients::default();
        let (delivery, owner) = (Arc::new(OfflineDelivery::new()), Jid::parse("u@localhost").unwrap());
        failed.add(5, &delivery, &owner);
        failed.add(8, &delivery, &owner);
        let due: Vec<u32> = (0..20).filter(|now| !failed.take(*now).is_empty()).collect();
        assert_eq!(due, [5, 8]);
        assert!(failed.addresses.is_empty());
    }

    #[test]
    fn a_sweep_takes_a_part_in_the_order_of_failures_and_each_recipient_once() {
        let mut failed = FailedRecipients::default();
        let delivery = Arc::new(OfflineDelivery::new());
        let owner = |n: usize| Jid::parse(&format!("u{n}@localhost")).unwrap();
        for n in 0..600 {
            failed.add(5, &delivery, &owner(n));
            failed.add(6, &delivery, &owner(n));
        }
        assert!(failed.take(4).is_empty());
        let mut seen = Vec::new();
        for expected in [256, 256, 88] {
            let taken = failed.take(5);
            assert_eq!(taken.len(), expected);
            // All fail again, and come after the others.
            taken.iter().for_each(|failing| failed.add(10, &delivery, &failing.owner));
            seen.extend(taken.into_iter().map(|failing| failing.owner));
        }
        assert_eq!(seen, (0..600).map(owner).collect::<Vec<_>>());
        let sizes: Vec<usize> = (0..4).map(|_| failed.take(10).len()).collect();
        assert_eq!(sizes, [256, 256, 88, 0]);
    }
}
