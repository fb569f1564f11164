//! The account of messages at the end: what was lost, exactly.
//!
//! For each recipient the messages sent to it, less those that arrived and those that were refused, are missing. Missing
//! messages to users who came online once and stayed are lost, but for those that were sent before they came and never
//! arrived with a delay; all others wait in the server (or were dropped there by right, as without offline storage).
//!
//! Trap: a worker that died takes its part of the account with it. Messages for its users are left out, and messages
//! from its users are known only where a survivor has counted them apart.

use std::collections::BTreeMap;

use super::message::Final;

/// What is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// To users who stayed online.
    pub(crate) lost: u64,
    /// To users who were offline, left or were cut off.
    pub(crate) waiting: u64,
    /// To users of workers that died: not known.
    pub(crate) unknown: u64,
    /// Arrived without having been sent, by the books; comes from users of workers that died.
    pub(crate) surplus: u64,
}

/// Computes it from the last reports. `owner` says which worker has a user, `dead` whether that one died.
pub(crate) fn missing(finals: &[Final], owner: impl Fn(u32) -> u16, dead: impl Fn(u16) -> bool) -> Missing {
    #[derive(Default)]
    struct Account {
        sent: u64,
        done: u64,
        /// Sent before the user was there, less what then arrived with a delay.
        before: i64,
        steady: bool,
    }
    let mut accounts: BTreeMap<u32, Account> = BTreeMap::new();
    for report in finals {
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
    let mut missing = Missing::default();
    for (user, account) in accounts {
        missing.surplus += account.done.saturating_sub(account.sent);
        let count = account.sent.saturating_sub(account.done);
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
    fn lost_is_what_stayed_online_and_never_got_it() {
        let first = Final {
            sent: vec![(0, 5), (1, 7), (2, 3)],
            arrived: vec![(0, 6), (2, 2)],
            refused: vec![(1, 1)],
            steady: vec![0, 2],
            ..Final::default()
        };
        let second = Final {
            sent: vec![(0, 2), (3, 4)],
            arrived: vec![(1, 4)],
            refused: vec![],
            steady: vec![3],
            ..Final::default()
        };
        let owner = |user| u16::from(user % 2 == 1);
        // 0: 7 - 6 lost; 1: 7 - 5 waiting; 2: 3 - 2 lost; 3: 4 lost.
        let found = missing(&[first.clone(), second.clone()], owner, |_| false);
        assert_eq!(found, Missing { lost: 6, waiting: 2, unknown: 0, surplus: 0 });
        // Two of user 2's three were sent before it came, and one of them arrived late: the missing one waits.
        let early = Final { sent_offline: vec![(2, 2)], delayed: vec![(2, 1)], ..first.clone() };
        let found = missing(&[early, second], owner, |_| false);
        assert_eq!(found, Missing { lost: 5, waiting: 3, unknown: 0, surplus: 0 });
        // Without the second worker its users' messages are unknown, and its messages to user 0 are a surplus.
        let found = missing(&[first], owner, |worker| worker == 1);
        assert_eq!(found, Missing { lost: 1, waiting: 0, unknown: 6, surplus: 1 });
    }
}
