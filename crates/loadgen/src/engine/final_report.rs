//! Last report of a worker: the accounting of all its messages.

use super::event_loop::WorkerEngine;
use crate::control::message::FinalReport;

impl WorkerEngine<'_> {
    /// Takes the accounting. No user acts afterwards.
    pub(super) fn last_report(&mut self) -> FinalReport {
        for slot in self.users.indices() {
            self.record_not_resent(slot);
        }
        let acknowledgements = self.acknowledgements.take().unwrap_or_default();
        let (missing, complete) = self.accounting.missing();
        let snapshot = self.snapshot();
        let steady = (0_u32..)
            .zip(self.seen.iter().zip(&self.left))
            .filter(|(_, (seen, left))| **seen && !**left)
            .map(|(user, _)| user)
            .collect();
        FinalReport {
            snapshot,
            sent: self.accounting.sent.iter().collect(),
            sent_offline: self.accounting.sent_offline.iter().collect(),
            arrived: self.accounting.arrived.iter().collect(),
            delayed: self.accounting.delayed.iter().collect(),
            refused: self.accounting.refused.iter().collect(),
            steady,
            arrived_gone: self
                .gone
                .iter()
                .filter_map(|worker| self.accounting.arrived_from.get(usize::from(*worker)))
                .flat_map(|counts| counts.iter())
                .collect(),
            unchecked_order: self.accounting.unchecked,
            numbered: self.accounting.numbered().to_vec(),
            missing: if self.plan.options.failover { missing } else { Vec::new() },
            unacknowledged: acknowledgements.unacknowledged,
            refused_numbers: acknowledgements.refused,
            away: acknowledgements.away,
            incomplete: acknowledgements.incomplete || !complete,
            salts: std::mem::take(&mut self.salts).into_values().collect(),
        }
    }
}
