//! Assignment of users to the plan's target addresses: even, random and the same in every run with the same seed.
//!
//! Users are dealt out in blocks: in each, every target has the same number of users, in random order. So two contacts in
//! a ring have the same one of K targets with probability 1/K, which taking turns would not give: there the distance of two
//! users decides.
//!
//! # Pitfalls
//!
//! Every worker computes the whole table, because it must know the targets of users of others.

use std::net::SocketAddr;

use super::rng::Rng;

/// Users of each target in a block. Within a block, two users have the same target slightly less often than 1/K.
const PER_TARGET: usize = 64;

/// Table of targets by account.
pub(crate) struct TargetSpread {
    /// Position of each distinct address. One that is listed several times, as a weight, has its first position.
    distinct: Vec<u16>,
    /// Empty with a single target.
    by_account: Vec<u16>,
}

impl TargetSpread {
    /// Deals out this number of accounts to these targets.
    pub(crate) fn new(accounts: u32, targets: &[SocketAddr], seed: u64) -> Self {
        let first = |address: &SocketAddr| targets.iter().zip(0..).find(|(other, _)| *other == address);
        let positions: Vec<u16> = targets.iter().filter_map(|address| Some(first(address)?.1)).collect();
        let mut distinct = positions.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut by_account = Vec::new();
        if distinct.len() > 1 {
            by_account = positions.iter().copied().cycle().take(accounts as usize).collect::<Vec<_>>();
            let mut rng = Rng::new(seed ^ 0x07A4_6E75);
            for block in by_account.chunks_mut(positions.len() * PER_TARGET) {
                for last in (1..block.len()).rev() {
                    let end = u32::try_from(last + 1).unwrap_or(u32::MAX);
                    block.swap(last, rng.below(end) as usize);
                }
            }
        }
        Self { distinct, by_account }
    }

    /// Whether there is more than one target.
    pub(crate) fn is_several(&self) -> bool {
        self.distinct.len() > 1
    }

    /// First target of an account.
    pub(crate) fn of(&self, account: u32) -> u16 {
        self.by_account.get(account as usize).copied().unwrap_or(0)
    }

    /// Another target, if there is one: each of the others for as many random numbers.
    pub(crate) fn other(&self, target: u16, random: u32) -> u16 {
        let mut others = self.distinct.iter().filter(|other| **other != target);
        let count = u32::try_from(others.clone().count()).unwrap_or(u32::MAX);
        let chosen = others.nth(random.checked_rem(count).unwrap_or(0) as usize);
        chosen.copied().unwrap_or(target)
    }
}

#[cfg(test)]
mod tests {
    use super::TargetSpread;
    use std::net::{Ipv4Addr, SocketAddr};

    fn spread(accounts: u32, targets: u16, seed: u64) -> TargetSpread {
        let addresses = (0..targets).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        TargetSpread::new(accounts, &addresses.collect::<Vec<_>>(), seed)
    }

    #[test]
    fn every_target_gets_the_same_number_of_users() {
        for (accounts, targets) in [(3_000, 5), (3_001, 2), (10, 3), (7, 7), (100_000, 4)] {
            let spread = spread(accounts, targets, 1);
            let mut users = vec![0_u32; usize::from(targets)];
            (0..accounts).for_each(|account| users[usize::from(spread.of(account))] += 1);
            let (least, most) = (users.iter().min().unwrap(), users.iter().max().unwrap());
            assert!(most - least <= 1, "{accounts} on {targets}: {users:?}");
        }
    }

    #[test]
    fn the_first_users_are_spread_evenly_too() {
        let spread = spread(1_000_000, 5, 1);
        let mut users = [0_u32; 5];
        (0..3_000).for_each(|account| users[usize::from(spread.of(account))] += 1);
        assert!(users.iter().all(|count| count.abs_diff(600) < 20), "{users:?}");
    }

    /// Of the ring of `atom-cluster-K`, the 15 nearest users on both sides are online contacts.
    #[test]
    fn two_contacts_have_the_same_of_k_targets_with_probability_one_in_k() {
        let users = 10_000_u32;
        for targets in 2..=5_u16 {
            let spread = spread(users, targets, 1);
            let same = (0..users)
                .flat_map(|user| (1..=15).map(move |distance| (user, (user + distance) % users)))
                .filter(|(user, contact)| spread.of(*user) == spread.of(*contact))
                .count();
            let share = same as f64 / f64::from(users * 15);
            assert!((share * f64::from(targets) - 1.0).abs() < 0.03, "{targets}: {share}");
        }
    }

    #[test]
    fn the_spread_depends_on_the_seed_only() {
        let table = |seed| {
            let spread = spread(1_000, 3, seed);
            (0..1_000).map(|account| spread.of(account)).collect::<Vec<_>>()
        };
        assert_eq!(table(1), table(1));
        assert_ne!(table(1), table(2));
    }

    #[test]
    fn an_address_that_is_listed_twice_gets_twice_the_users() {
        let [a, b] = [1, 2].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let spread = TargetSpread::new(3_000, &[a, b, a], 1);
        assert_eq!((0..3_000).filter(|account| spread.of(*account) == 1).count(), 1_000);
        assert!((0..3_000).all(|account| spread.of(account) < 2));
        assert_eq!((spread.other(0, 7), spread.other(1, 7)), (1, 0));
        assert!(!TargetSpread::new(10, &[a, a], 1).is_several());
    }

    #[test]
    fn users_of_a_failed_target_go_to_all_others() {
        let spread = spread(10, 4, 1);
        for failed in 0..4 {
            let mut others: Vec<u16> = (0..3).map(|random| spread.other(failed, random)).collect();
            others.sort_unstable();
            assert_eq!(others, (0..4).filter(|target| *target != failed).collect::<Vec<_>>());
        }
        let single = super::TargetSpread::new(10, &[SocketAddr::from((Ipv4Addr::LOCALHOST, 1))], 1);
        assert_eq!((single.is_several(), single.of(7), single.other(0, 5)), (false, 0, 0));
    }
}
