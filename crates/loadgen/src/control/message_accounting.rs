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

use std::collections::{BTreeMap, BTreeSet};

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

/// Maximum number of lost messages that a report lists.
const MAX_EXAMPLES: usize = 20;

/// A lost message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LostMessage {
    /// Worker of the sender.
    pub(crate) sender: u16,
    /// Worker of the recipient.
    pub(crate) recipient: u16,
    /// Its number between the two.
    pub(crate) number: u32,
}

/// Messages that a run with failures has lost, by whether the server had acknowledged them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostMessages {
    /// Acknowledged, and neither delivered nor returned.
    pub(crate) acknowledged: u64,
    /// Never acknowledged, and neither delivered nor returned.
    pub(crate) unacknowledged: u64,
    /// The first [`MAX_EXAMPLES`] acknowledged ones.
    pub(crate) examples: Vec<LostMessage>,
}

/// Computes it from the last reports, by worker; a worker without one is excluded with its messages.
pub(crate) fn lost(finals: &[Option<FinalReport>]) -> LostMessages {
    let mut lost = LostMessages::default();
    for (recipient, receiving) in (0_u16..).zip(finals) {
        let Some(receiving) = receiving else { continue };
        for (sender, sending) in (0_u16..).zip(finals) {
            let Some(sending) = sending else { continue };
            let sent = sending.numbered.get(usize::from(recipient)).copied().unwrap_or(0);
            let ranges = receiving.missing.get(usize::from(sender)).map_or(&[][..], Vec::as_slice);
            let is_missing = |number: u32| {
                let after = ranges.partition_point(|(from, _)| *from <= number);
                number < sent && after.checked_sub(1).is_some_and(|at| number < ranges[at].1)
            };
            let of_pair = |numbers: &[(u16, u32)]| -> BTreeSet<u32> {
                let of_recipient = numbers.iter().filter(|(worker, _)| *worker == recipient);
                of_recipient.map(|(_, number)| *number).filter(|number| is_missing(*number)).collect()
            };
            let missing: u64 =
                ranges.iter().map(|(from, to)| u64::from(sent.min(*to).saturating_sub(*from))).sum();
            let refused = of_pair(&sending.refused_numbers);
            let unacknowledged: BTreeSet<u32> =
                of_pair(&sending.unacknowledged).difference(&refused).copied().collect();
            lost.unacknowledged += unacknowledged.len() as u64;
            lost.acknowledged += missing.saturating_sub((unacknowledged.len() + refused.len()) as u64);
            let acknowledged = ranges
                .iter()
                .flat_map(|(from, to)| *from..sent.min(*to))
                .filter(|number| !refused.contains(number) && !unacknowledged.contains(number))
                .map(|number| LostMessage { sender, recipient, number });
            let room = MAX_EXAMPLES - lost.examples.len();
            lost.examples.extend(acknowledged.take(room));
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_messages_are_distinguished_by_their_acknowledgements() {
        let open = u32::MAX;
        // The first worker numbered 10 messages for itself and 5 for the second.
        let first = FinalReport {
            numbered: vec![10, 5],
            // Missing of its own: 2, 3, 4 and 8, 9; of the second worker's: 0.
            missing: vec![vec![(2, 5), (8, open)], vec![(0, 1), (4, open)]],
            // Number 3 was never acknowledged; neither was 1, which arrived all the same. 9 returned, unacknowledged.
            unacknowledged: vec![(0, 3), (0, 1), (0, 9), (1, 4)],
            refused_numbers: vec![(0, 9), (0, 5)],
            ..FinalReport::default()
        };
        let second = FinalReport {
            numbered: vec![4, 0],
            missing: vec![vec![(3, open)], vec![(0, open)]],
            ..FinalReport::default()
        };
        // Of the first worker's to itself: 2, 4 and 8 acknowledged, 3 not. Of its to the second: 3 acknowledged, 4 not.
        // Of the second's to the first: 0.
        let reports = [Some(first.clone()), Some(second)];
        let message = |(sender, recipient, number)| LostMessage { sender, recipient, number };
        let own: Vec<_> = [(0, 0, 2), (0, 0, 4), (0, 0, 8)].map(message).into();
        let examples: Vec<_> = own.iter().copied().chain([(1, 0, 0), (0, 1, 3)].map(message)).collect();
        let found = lost(&reports);
        assert_eq!((found.acknowledged, found.unacknowledged), (5, 2));
        assert_eq!(BTreeSet::from_iter(found.examples), BTreeSet::from_iter(examples));
        assert_eq!(
            lost(&[Some(first), None]),
            LostMessages { acknowledged: 3, unacknowledged: 1, examples: own }
        );
        assert_eq!(lost(&[]), LostMessages::default());
    }

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
