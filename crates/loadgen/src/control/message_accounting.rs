//! Final message accounting: the exact number of lost messages.
//!
//! For each recipient, missing messages are those sent to it minus those that arrived or bounced. Missing messages to
//! users that came online once and stayed are lost, except those that were sent before and never arrived with a delay;
//! all others are stored by the server (or were dropped legitimately, as without offline storage).
//!
//! # Pitfalls
//!
//! A worker that died takes its part of the accounting with it. Messages to its users are excluded, and so are messages
//! from its users, which survivors have counted separately; the rest is exact.

use std::collections::BTreeMap;

use super::message::FinalReport;

/// Missing messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingMessages {
    /// To users that stayed online.
    pub(crate) lost: u64,
    /// To users that were offline, left or lost their connection.
    pub(crate) waiting: u64,
    /// To users of dead workers: unknown.
    pub(crate) unknown: u64,
    /// Arrived from users of dead workers: excluded.
    pub(crate) gone: u64,
    /// Arrived without a record of being sent, which should not happen.
    pub(crate) unexpected: u64,
}

/// Computes it from the last reports. `owner` maps a user to its worker, `dead` tells whether that one died.
pub(crate) fn missing(
    finals: &[FinalReport],
    owner: impl Fn(u32) -> u16,
    dead: impl Fn(u16) -> bool,
) -> MissingMessages {
    #[derive(Default)]
    struct Account {
        sent: u64,
        done: u64,
        /// Sent before the user came online, minus arrivals with a delay.
        before: i64,
        steady: bool,
    }
    let mut accounts: BTreeMap<u32, Account> = BTreeMap::new();
    let mut missing = MissingMessages::default();
    let mut without: BTreeMap<u32, u64> = BTreeMap::new();
    for report in finals {
        for &(user, count) in &report.arrived_gone {
            *without.entry(user).or_default() += u64::from(count);
            missing.gone += u64::from(count);
        }
        for &(user, count) in &report.sent {
            accounts.entry(user).or_default().sent += u64::from(count);
        }
        for &(user, count) in report.arrived.iter().chain(&report.refused) {
            accounts.entry(user).or_default().done += u64::from(count);
        }
        for &(user, count) in &report.sent_offline {
            accounts.entry(user).or_default().before += i64::from(count);
        }
        for &(user, count) in &report.delayed {
            accounts.entry(user).or_default().before -= i64::from(count);
        }
        for &user in &report.steady {
            accounts.entry(user).or_default().steady = true;
        }
    }
    for (user, account) in accounts {
        let done = account.done.saturating_sub(without.get(&user).copied().unwrap_or(0));
        missing.unexpected += done.saturating_sub(account.sent);
        let count = account.sent.saturating_sub(done);
        if dead(owner(user)) {
            missing.unknown += count;
        } else if account.steady {
            let waiting = count.min(u64::try_from(account.before).unwrap_or(0));
            missing.lost += count - waiting;
            missing.waiting += waiting;
        } else {
            missing.waiting += count;
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lost_if_their_recipient_stayed_online() {
        let first = FinalReport {
            sent: vec![(0, 5), (1, 7), (2, 3)],
            arrived: vec![(0, 6), (2, 2)],
            refused: vec![(1, 1)],
            steady: vec![0, 2],
            ..FinalReport::default()
        };
        let second = FinalReport {
            sent: vec![(0, 2), (3, 4)],
            arrived: vec![(1, 4)],
            refused: vec![],
            steady: vec![3],
            ..FinalReport::default()
        };
        let owner = |user| u16::from(user % 2 == 1);
        // 0: 7 - 6 lost; 1: 7 - 5 waiting; 2: 3 - 2 lost; 3: 4 lost.
        let found = missing(&[first.clone(), second.clone()], owner, |_| false);
        assert_eq!(found, MissingMessages { lost: 6, waiting: 2, ..MissingMessages::default() });
        // Two of user 2's three were sent before it came online, and one of them arrived late: the missing one is
        // stored.
        let early = FinalReport { sent_offline: vec![(2, 2)], delayed: vec![(2, 1)], ..first.clone() };
        let found = missing(&[early, second], owner, |_| false);
        assert_eq!(found, MissingMessages { lost: 5, waiting: 3, ..MissingMessages::default() });
        // Without the second worker its users' messages are unknown, and those it sent to user 0 are excluded: of the
        // first worker's five, three arrived, and two are lost that four others would have hidden.
        let survivor = FinalReport { arrived: vec![(0, 7), (2, 2)], arrived_gone: vec![(0, 4)], ..first };
        let found = missing(&[survivor], owner, |worker| worker == 1);
        assert_eq!(found, MissingMessages { lost: 3, waiting: 0, unknown: 6, gone: 4, unexpected: 0 });
    }
}
