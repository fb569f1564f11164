//! What sessions had spent when they ended or lost their connection, for the other nodes of a cluster: RFC 6120, section 13.12.
//!
//! An account that reconnects on another node would otherwise get a new burst there. Spending is summed for each account until
//! the next report; a bucket that is full again is not reported, so ordinary sessions cost nothing.
//!
//! ```text
//! octets  field      all numbers big-endian; for each account
//! 8       hash       of its address, with the key of the deployment: finds its sessions
//! 4       account    number of its address, which is compared
//! 28      missing    tokens of the seven buckets of [`SpentRates`]
//! ```
//!
//! # Pitfalls
//!
//! Spending is added by every node, so a node must report only what its own sessions have spent.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use base::ReportSchedule;
use base::lock::LeafMutex;
use store::AddressId;

use crate::account_rates::{MISSING, SpentRates};

/// Accounts in a report, at most: 40 kB.
const MAX_ACCOUNTS: usize = 1_024;

/// Spending of one account on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentReport {
    /// Hash of its bare address.
    pub hash: u64,
    /// Number of its address.
    pub account: AddressId,
    /// Missing tokens; see [`SpentRates::with_missing`].
    pub missing: [u32; MISSING],
}

/// Spending that other nodes have not learnt of. In the extensions of a node that has others.
pub struct SpentReports {
    schedule: Arc<ReportSchedule>,
    pending: LeafMutex<PendingSpending>,
}

#[derive(Default)]
struct PendingSpending {
    /// With the hash of the address.
    accounts: HashMap<AddressId, (u64, SpentRates)>,
    dropped: u64,
}

impl SpentReports {
    /// Nothing to report. `schedule`: that of the node's reports.
    pub fn new(schedule: Arc<ReportSchedule>) -> SpentReports {
        SpentReports { schedule, pending: LeafMutex::default() }
    }

    /// A session has spent this. Without room it is not reported, and counted.
    pub fn note(&self, account: AddressId, hash: u64, spent: &SpentRates, now: u32) {
        if account == AddressId::UNASSIGNED || spent.full_at(now) <= now {
            return;
        }
        let mut pending = self.pending.lock();
        let has_room = pending.accounts.len() < MAX_ACCOUNTS;
        match pending.accounts.get_mut(&account) {
            Some((_, sum)) => {
                let mut spent = spent.clone();
                spent.add(sum, now);
                *sum = spent;
            }
            None if has_room => drop(pending.accounts.insert(account, (hash, spent.clone()))),
            None => pending.dropped = pending.dropped.saturating_add(1),
        }
        drop(pending);
        self.schedule.request();
    }

    /// Removes what was collected: the octets of a report, empty for nothing, and the number of sessions without room.
    pub fn take(&self, now: u32) -> (Vec<u8>, u64) {
        let PendingSpending { accounts, dropped } = std::mem::take(&mut *self.pending.lock());
        let mut octets = Vec::new();
        for (account, (hash, spent)) in accounts {
            octets.extend(hash.to_be_bytes());
            octets.extend(account.0.get().to_be_bytes());
            spent.missing(now).iter().for_each(|missing| octets.extend(missing.to_be_bytes()));
        }
        (octets, dropped)
    }
}

impl SpentReport {
    /// Reads the octets of [`SpentReports::take`]. `None` if they are no report.
    pub fn decode(mut octets: &[u8]) -> Option<Vec<SpentReport>> {
        let mut reports = Vec::new();
        while !octets.is_empty() {
            let (hash, rest) = octets.split_first_chunk()?;
            let (account, mut rest) = rest.split_first_chunk()?;
            let mut missing = [0; MISSING];
            for one in &mut missing {
                let (number, after) = rest.split_first_chunk()?;
                (*one, rest) = (u32::from_be_bytes(*number), after);
            }
            let account = AddressId(NonZeroU32::new(u32::from_be_bytes(*account))?);
            if account == AddressId::UNASSIGNED || reports.len() == MAX_ACCOUNTS {
                return None;
            }
            reports.push(SpentReport { hash: u64::from_be_bytes(*hash), account, missing });
            octets = rest;
        }
        Some(reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountRates, RateLimits, SessionRates};

    /// 100 bytes at once, ten a second; presence at 60 a minute.
    const LIMITS: RateLimits = [0, 0, 10, 100, 60, 60, 0, 0, 0, 0];

    fn spent(bytes: usize, now: u32) -> SpentRates {
        let mut rates = SessionRates::new(LIMITS);
        rates.charge_bytes(bytes, now);
        rates.take_spent(now)
    }

    fn account(number: u32) -> AddressId {
        AddressId(NonZeroU32::new(number + 1).unwrap())
    }

    fn available(rates: &SessionRates, now: u32) -> u32 {
        rates.bytes.available(crate::session_rates::to_millis(now))
    }

    #[test]
    fn spending_is_summed_for_each_account_and_arrives_as_it_was() {
        let reports = SpentReports::new(Arc::default());
        reports.note(account(0), 7, &spent(60, 1), 1);
        reports.note(account(0), 7, &spent(130, 1), 1);
        reports.note(account(1), 8, &spent(0, 1), 1);
        reports.note(AddressId::UNASSIGNED, 9, &spent(60, 1), 1);
        let (octets, dropped) = reports.take(3);
        let [read] = &SpentReport::decode(&octets).unwrap()[..] else { panic!("one account") };
        assert_eq!((read.hash, read.account, dropped), (7, account(0), 0));
        // 190 of both and 130 of one, less what two seconds have refilled.
        assert_eq!(read.missing, [0, 170, 0, 0, 0, 0, 110]);
        assert_eq!(reports.take(3), (Vec::new(), 0));
        let there = AccountRates::default();
        there.keep(account(0), SpentRates::with_missing(LIMITS, &read.missing, 50), 50);
        let rates = SessionRates::starting(LIMITS, there.find(account(0), 50), 50);
        assert_eq!((available(&rates, 50), rates.debt(50)), (0, Some(("bytes", 51))));
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let reports = SpentReports::new(Arc::default());
        reports.note(account(0), 7, &spent(60, 1), 1);
        let octets = reports.take(1).0;
        assert!((1..octets.len()).all(|length| SpentReport::decode(&octets[..length]).is_none()));
        assert_eq!(SpentReport::decode(&[]), Some(Vec::new()));
        let mut zero = octets.clone();
        zero[8..12].fill(0);
        assert_eq!(SpentReport::decode(&zero), None);
        assert!(SpentReport::decode(&octets.repeat(MAX_ACCOUNTS)).is_some());
        assert_eq!(SpentReport::decode(&octets.repeat(MAX_ACCOUNTS + 1)), None);
    }

    #[test]
    fn a_flood_of_accounts_is_bounded_and_counted() {
        let reports = SpentReports::new(Arc::default());
        for number in 0..3_000 {
            reports.note(account(number), 7, &spent(60, 1), 1);
        }
        let (octets, dropped) = reports.take(1);
        assert_eq!((octets.len(), dropped), (MAX_ACCOUNTS * 40, 3_000 - MAX_ACCOUNTS as u64));
    }

    #[test]
    fn a_session_that_has_just_started_is_charged_and_others_are_not() {
        let report = |bytes| spent(bytes, 1);
        let mut late = SessionRates::starting(LIMITS, None, 1);
        late.charge_bytes(10, 1);
        late.charge_late_report(&report(60), 2);
        assert_eq!((available(&late, 2), late.debt(2)), (50, None), "100, less 60, more 10");
        late.charge_late_report(&report(130), 2);
        assert_eq!((available(&late, 2), late.debt(2)), (0, Some(("bytes", 4))), "the debt of one");
        // What others had spent is not its own.
        let own = late.take_spent(2);
        assert_eq!(own.shared[1].missing(crate::session_rates::to_millis(2)), 0);
        let mut older = SessionRates::starting(LIMITS, None, 1);
        older.charge_late_report(&report(60), 4);
        let mut created_later = SessionRates::new(LIMITS);
        created_later.charge_late_report(&report(60), 4);
        assert_eq!((available(&older, 4), available(&created_later, 4)), (100, 100));
    }
}
