//! Address dictionary: a 32-bit id for every bare address known to the service.
//!
//! Accounts, contacts and subscribers are referenced by id, on disk and in memory. Ids are never reused, not even after
//! their address was removed, because other nodes and caches may still hold them.
//!
//! # Pitfalls
//!
//! An account's id outlives the account; only the address text stays in the dictionary.

use std::fmt;
use std::num::NonZeroU32;

use jid::Jid;

use crate::StoreFuture;

/// Dictionary id of a bare address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressId(pub NonZeroU32);

impl AddressId {
    /// Placeholder for an id not yet assigned by the store; never assigned to an address.
    pub const UNASSIGNED: AddressId = AddressId(NonZeroU32::MAX);

    /// The id with this number; `None` for zero.
    pub fn new(number: u32) -> Option<AddressId> {
        NonZeroU32::new(number).map(AddressId)
    }

    /// The id as a number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Debug for AddressId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

storage_need! {
    /// The dictionary of bare addresses. A full address is reduced to its bare part before lookup or storage.
    pub trait AddressDictionary in addresses {
        /// The addresses with these ids, in no particular order; unknown ids are omitted. One round trip for every 10 000
        /// ids.
        fn resolve(&self, ids: &[AddressId]) -> StoreFuture<'_, Vec<(AddressId, Jid)>>;

        /// The id of an address, assigned if it had none. Repeated calls return the same id.
        fn intern(&self, address: &Jid) -> StoreFuture<'_, AddressId>;

        /// The ids of many addresses in the order of the input, assigned where missing.
        fn intern_many(&self, addresses: &[Jid]) -> StoreFuture<'_, Vec<AddressId>>;

        /// The id of an address, if it has one.
        fn find(&self, address: &Jid) -> StoreFuture<'_, Option<AddressId>>;
    }
}
