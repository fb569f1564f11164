//! Claims: announcements that a bare address has sessions on a node. Of one node, as it made them or as another node
//! knows them.
//!
//! # Pitfalls
//!
//! Two addresses can share a hash, also on one node. The number of the address distinguishes them. An address without a
//! number (a user without an account) can only be compared by its text.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::PeerViolation;

/// Number of a bare address in the deployment's address dictionary: the same on all nodes, and never used again for
/// another address.
pub type AddressNumber = NonZeroU32;

/// A bare address whose text the reader has: 12 octets in an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressReference {
    /// Keyed hash, which finds candidates ([`crate::AddressHasher`]).
    pub hash: u64,
    /// The number, which decides.
    pub number: AddressNumber,
}

/// An address with sessions on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Keyed hash of the bare address.
    pub address: u64,
    /// Its number, if it has one.
    pub number: Option<AddressNumber>,
    /// When the first of these sessions was bound, in milliseconds since 1970 by the clock of their node. The node with
    /// the oldest claim is the home of the address.
    pub since: u64,
    /// Whether one of these sessions takes messages to the bare address: it is available, with a priority of zero or
    /// more.
    pub takes_messages: bool,
}

impl Claim {
    fn key(&self) -> ClaimKey {
        (self.address, self.number)
    }

    /// This claim after another one on the same address and node: the oldest time counts, and one session that takes messages
    /// is enough.
    #[must_use]
    pub fn merge(self, other: &Claim) -> Claim {
        Claim {
            since: self.since.min(other.since),
            takes_messages: self.takes_messages || other.takes_messages,
            ..self
        }
    }
}

type ClaimKey = (u64, Option<AddressNumber>);

/// A change of the claims of a node. Applying it twice has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimChange {
    /// The address has sessions there, or they now take messages or no longer do.
    Claimed(Claim),
    /// The address has no sessions there.
    Released(u64, Option<AddressNumber>),
}

/// The claims that a node made itself. They are counted.
#[derive(Default)]
pub(crate) struct OwnClaims(BTreeMap<ClaimKey, (Claim, u32)>);

impl OwnClaims {
    /// Returns what the other nodes must receive.
    pub(crate) fn claim(&mut self, claim: Claim) -> Option<ClaimChange> {
        match self.0.entry(claim.key()) {
            Entry::Vacant(free) => {
                free.insert((claim, 1));
            }
            Entry::Occupied(mut known) => {
                let (known, count) = known.get_mut();
                *count = count.saturating_add(1);
                let merged = claim.merge(known);
                if merged == *known {
                    return None;
                }
                *known = merged;
                return Some(ClaimChange::Claimed(merged));
            }
        }
        Some(ClaimChange::Claimed(claim))
    }

    /// Returns what the other nodes must receive.
    pub(crate) fn set_takes_messages(
        &mut self,
        address: u64,
        number: Option<AddressNumber>,
        takes_messages: bool,
    ) -> Option<ClaimChange> {
        let (claim, _) = self.0.get_mut(&(address, number))?;
        if claim.takes_messages == takes_messages {
            return None;
        }
        claim.takes_messages = takes_messages;
        Some(ClaimChange::Claimed(*claim))
    }

    /// Returns what the other nodes must receive.
    pub(crate) fn release(&mut self, address: u64, number: Option<AddressNumber>) -> Option<ClaimChange> {
        let (_, count) = self.0.get_mut(&(address, number))?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.0.remove(&(address, number));
        Some(ClaimChange::Released(address, number))
    }

    /// The claims on a hash; only those with this number if there is one.
    pub(crate) fn find(&self, address: u64, number: Option<AddressNumber>) -> impl Iterator<Item = Claim> {
        self.0
            .range(of_hash(address))
            .map(|(_, (claim, _))| *claim)
            .filter(move |claim| number.is_none() || claim.number == number)
    }

    /// All claims, for a snapshot.
    pub(crate) fn all(&self) -> impl Iterator<Item = Claim> {
        self.0.values().map(|(claim, _)| *claim)
    }
}

/// Claims of all other nodes together that one node keeps: accounts with sessions in the whole deployment.
pub const MAX_PEER_CLAIMS: usize = 1 << 24;
/// Claims of one other node that a node keeps: more than the largest machine has sessions.
pub const MAX_CLAIMS_PER_NODE: usize = 1 << 22;

/// Number of claims of all other nodes together that one node keeps, because other nodes fill them.
pub(crate) struct ClaimBudget {
    left: AtomicUsize,
    per_node: usize,
}

impl ClaimBudget {
    pub(crate) fn new(max: usize, per_node: usize) -> Arc<ClaimBudget> {
        Arc::new(ClaimBudget { left: AtomicUsize::new(max), per_node })
    }

    fn take_one(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn give_back(&self, count: usize) {
        self.left.fetch_add(count, Ordering::Relaxed);
    }
}

/// The claims of another node, as far as this one knows.
pub(crate) struct PeerClaims {
    claims: BTreeMap<ClaimKey, Claim>,
    budget: Arc<ClaimBudget>,
}

impl Drop for PeerClaims {
    fn drop(&mut self) {
        self.budget.give_back(self.claims.len());
    }
}

impl PeerClaims {
    pub(crate) fn new(budget: Arc<ClaimBudget>) -> PeerClaims {
        PeerClaims { claims: BTreeMap::new(), budget }
    }

    /// Replaces all claims.
    ///
    /// # Errors
    /// If there are more than the maximum; the rest is ignored then.
    pub(crate) fn replace(&mut self, claims: impl IntoIterator<Item = Claim>) -> Result<(), PeerViolation> {
        self.take();
        claims.into_iter().try_for_each(|claim| self.apply(ClaimChange::Claimed(claim)))
    }

    /// Whether there is a claim on the same address.
    pub(crate) fn contains(&self, claim: &Claim) -> bool {
        self.claims.contains_key(&claim.key())
    }

    /// Applies a change.
    ///
    /// # Errors
    /// If it is beyond the maximum, or releases what was never claimed; it has no effect then.
    pub(crate) fn apply(&mut self, change: ClaimChange) -> Result<(), PeerViolation> {
        match change {
            ClaimChange::Claimed(claim) => {
                let known = self.claims.contains_key(&claim.key());
                let room = known || self.claims.len() < self.budget.per_node && self.budget.take_one();
                if !room {
                    return Err(PeerViolation::Claim);
                }
                self.claims.insert(claim.key(), claim);
                Ok(())
            }
            ClaimChange::Released(address, number) => {
                self.claims.remove(&(address, number)).ok_or(PeerViolation::Claim)?;
                self.budget.give_back(1);
                Ok(())
            }
        }
    }

    fn take(&mut self) -> BTreeMap<ClaimKey, Claim> {
        self.budget.give_back(self.claims.len());
        std::mem::take(&mut self.claims)
    }

    /// The claims on a hash; only those with this number if there is one.
    pub(crate) fn find(&self, address: u64, number: Option<AddressNumber>) -> impl Iterator<Item = Claim> {
        self.claims
            .range(of_hash(address))
            .map(|(_, claim)| *claim)
            .filter(move |claim| number.is_none() || claim.number == number)
    }

    /// The claims of a node that is gone.
    pub(crate) fn into_claims(mut self) -> Vec<Claim> {
        self.take().into_values().collect()
    }
}

/// All claims on a hash.
fn of_hash(address: u64) -> RangeInclusive<ClaimKey> {
    (address, None)..=(address, Some(AddressNumber::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(address: u64, number: u32, since: u64) -> Claim {
        Claim { address, number: AddressNumber::new(number), since, takes_messages: false }
    }

    #[test]
    fn counted_claims_keep_the_oldest_time() {
        let mut own = OwnClaims::default();
        let first = claim(7, 1, 20);
        assert_eq!(own.claim(first), Some(ClaimChange::Claimed(first)));
        assert_eq!(own.claim(claim(7, 1, 30)), None, "nothing changed for the others");
        assert_eq!(own.claim(claim(7, 1, 10)), Some(ClaimChange::Claimed(claim(7, 1, 10))));
        assert_eq!((own.release(7, first.number), own.release(7, first.number)), (None, None));
        assert_eq!(own.release(7, None), None, "another address");
        assert_eq!(own.release(7, first.number), Some(ClaimChange::Released(7, first.number)));
        assert_eq!((own.release(7, first.number), own.all().count()), (None, 0));
    }

    #[test]
    fn a_change_of_the_readiness_for_messages_is_announced_once() {
        let mut own = OwnClaims::default();
        own.claim(claim(7, 1, 20));
        let number = AddressNumber::new(1);
        let ready = Claim { takes_messages: true, ..claim(7, 1, 20) };
        assert_eq!(own.set_takes_messages(7, number, true), Some(ClaimChange::Claimed(ready)));
        assert_eq!(own.set_takes_messages(7, number, true), None);
        assert_eq!(own.set_takes_messages(7, None, true), None, "never claimed");
    }

    #[test]
    fn addresses_with_one_hash_are_found_apart_by_their_numbers() {
        let mut peer = PeerClaims::new(ClaimBudget::new(9, 9));
        let claims = [claim(7, 0, 3), claim(7, 1, 2), claim(7, u32::MAX, 1), claim(8, 1, 0), claim(6, 2, 0)];
        assert_eq!(peer.replace(claims), Ok(()));
        assert_eq!(peer.find(7, None).count(), 3);
        assert_eq!(peer.find(7, AddressNumber::new(1)).collect::<Vec<_>>(), [claims[1]]);
        assert_eq!(peer.find(7, AddressNumber::new(5)).count(), 0);
    }

    #[test]
    fn more_claims_than_the_maximum_are_refused() {
        let mut peer = PeerClaims::new(ClaimBudget::new(9, 2));
        let many = || (0..100).map(|address| claim(address, 1, 0));
        assert_eq!(peer.replace(many()), Err(PeerViolation::Claim));
        assert_eq!(peer.apply(ClaimChange::Claimed(claim(50, 1, 0))), Err(PeerViolation::Claim));
        assert_eq!(peer.apply(ClaimChange::Claimed(claim(1, 1, 9))), Ok(()), "a known one may change");
        assert_eq!(peer.apply(ClaimChange::Released(50, AddressNumber::new(1))), Err(PeerViolation::Claim));
        assert_eq!(peer.into_claims(), [claim(0, 1, 0), claim(1, 1, 9)]);
    }

    #[test]
    fn all_nodes_together_have_a_maximum_and_give_back_what_they_no_longer_use() {
        let budget = ClaimBudget::new(3, 2);
        let mut nodes = [0, 1].map(|_| PeerClaims::new(budget.clone()));
        let claimed = |node: &mut PeerClaims, address| node.apply(ClaimChange::Claimed(claim(address, 1, 0)));
        assert!(claimed(&mut nodes[0], 1).is_ok() && claimed(&mut nodes[0], 2).is_ok());
        assert!(claimed(&mut nodes[0], 3).is_err(), "one node");
        assert!(claimed(&mut nodes[1], 1).is_ok() && claimed(&mut nodes[1], 2).is_err(), "all nodes");
        assert_eq!(nodes[0].apply(ClaimChange::Released(1, AddressNumber::new(1))), Ok(()));
        assert!(claimed(&mut nodes[1], 2).is_ok());
        assert_eq!(
            nodes[1].replace([claim(5, 1, 0), claim(6, 1, 0), claim(7, 1, 0)]),
            Err(PeerViolation::Claim)
        );
        drop(nodes);
        assert_eq!(budget.left.load(Ordering::Relaxed), 3);
    }
}
