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
}

type ClaimKey = (u64, Option<AddressNumber>);

/// A change of the claims of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimChange {
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
                let merged = Claim {
                    since: known.since.min(claim.since),
                    takes_messages: known.takes_messages || claim.takes_messages,
                    ..claim
                };
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

/// The claims of another node, as far as this one knows. Bounded, because another node fills them.
pub(crate) struct PeerClaims {
    claims: BTreeMap<ClaimKey, Claim>,
    max: usize,
}

impl PeerClaims {
    /// Maximum number of claims of one node: as many accounts as the largest machine has sessions.
    pub(crate) const MAX: usize = 1 << 24;

    pub(crate) fn new(max: usize) -> PeerClaims {
        PeerClaims { claims: BTreeMap::new(), max }
    }

    /// Replaces all claims.
    ///
    /// # Errors
    /// If there are more than the maximum; the rest is ignored then.
    pub(crate) fn replace(&mut self, claims: impl IntoIterator<Item = Claim>) -> Result<(), PeerViolation> {
        self.claims.clear();
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
                if self.claims.len() >= self.max && !self.claims.contains_key(&claim.key()) {
                    return Err(PeerViolation::Claim);
                }
                self.claims.insert(claim.key(), claim);
                Ok(())
            }
            ClaimChange::Released(address, number) => {
                self.claims.remove(&(address, number)).map(drop).ok_or(PeerViolation::Claim)
            }
        }
    }

    /// The claims on a hash; only those with this number if there is one.
    pub(crate) fn find(&self, address: u64, number: Option<AddressNumber>) -> impl Iterator<Item = Claim> {
        self.claims
            .range(of_hash(address))
            .map(|(_, claim)| *claim)
            .filter(move |claim| number.is_none() || claim.number == number)
    }

    /// The claims of a node that is gone.
    pub(crate) fn into_claims(self) -> Vec<Claim> {
        self.claims.into_values().collect()
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
        let mut peer = PeerClaims::new(9);
        let claims = [claim(7, 0, 3), claim(7, 1, 2), claim(7, u32::MAX, 1), claim(8, 1, 0), claim(6, 2, 0)];
        assert_eq!(peer.replace(claims), Ok(()));
        assert_eq!(peer.find(7, None).count(), 3);
        assert_eq!(peer.find(7, AddressNumber::new(1)).collect::<Vec<_>>(), [claims[1]]);
        assert_eq!(peer.find(7, AddressNumber::new(5)).count(), 0);
    }

    #[test]
    fn more_claims_than_the_maximum_are_refused() {
        let mut peer = PeerClaims::new(2);
        let many = || (0..100).map(|address| claim(address, 1, 0));
        assert_eq!(peer.replace(many()), Err(PeerViolation::Claim));
        assert_eq!(peer.apply(ClaimChange::Claimed(claim(50, 1, 0))), Err(PeerViolation::Claim));
        assert_eq!(peer.apply(ClaimChange::Claimed(claim(1, 1, 9))), Ok(()), "a known one may change");
        assert_eq!(peer.apply(ClaimChange::Released(50, AddressNumber::new(1))), Err(PeerViolation::Claim));
        assert_eq!(peer.into_claims(), [claim(0, 1, 0), claim(1, 1, 9)]);
    }
}
