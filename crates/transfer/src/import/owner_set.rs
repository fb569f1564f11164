//! The accounts of a source, as the first pass has found them: a hash of eight bytes for each address.
//!
//! # Pitfalls
//!
//! Nothing that is written may depend on a hash alone. A false match changes counts by one: those of accounts, and in a dry run
//! that of records without an account. What the first pass took for data of a known account, because a provider's accounts
//! have no record of their own, the second pass looks up in the store (`ImportRun::find_owners`).

use std::collections::HashSet;
use std::hash::BuildHasher as _;

use jid::Jid;

/// Addresses, with a random key, so that nobody can choose two with the same hash.
#[derive(Default)]
pub(super) struct OwnerSet(HashSet<u64>);

impl OwnerSet {
    /// Adds an address. False if it is there already.
    pub(super) fn insert(&mut self, owner: &Jid) -> bool {
        let hash = self.0.hasher().hash_one(owner);
        self.0.insert(hash)
    }

    pub(super) fn contains(&self, owner: &Jid) -> bool {
        self.0.contains(&self.0.hasher().hash_one(owner))
    }
}
