//! The dictionary: a 32-bit number for every bare address that the service knows.
//!
//! Accounts, contacts and subscribers are referred to by number, on disk and in memory. Numbers are never used again, not
//! even after the address was forgotten, because other nodes and caches may still hold them.
//!
//! The trap for the next person: removing an account keeps its number; only the address text is left in the dictionary.
use std::fmt;
use std::num::NonZeroU32;

use jid::Jid;

use crate::StoreFuture;

/// The dictionary number of a bare address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressId(pub NonZeroU32);

impl AddressId {
    /// Stands in for a number that the store has yet to give; no address ever gets it.
    pub const UNASSIGNED: AddressId = AddressId(NonZeroU32::MAX);

    /// The number, unless it is zero.
    pub fn new(number: u32) -> Option<AddressId> {
        NonZeroU32::new(number).map(AddressId)
    }

    /// The plain number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Debug for AddressId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The dictionary of bare addresses. A full address is cut to its bare part before it is looked up or stored.
pub trait AddressDictionary: Send + Sync {
    /// The addresses of these numbers, in no particular order; unknown numbers are left out. At most 10 000 are asked for
    /// in one round trip, more take more.
    fn resolve(&self, ids: &[AddressId]) -> StoreFuture<'_, Vec<(AddressId, Jid)>>;

    /// The number of an address, given now if it had none. Asking twice gives the same number.
    fn intern(&self, address: &Jid) -> StoreFuture<'_, AddressId>;

    /// The numbers of many addresses, given now to those that had none, in the order of the input.
    fn intern_many(&self, addresses: &[Jid]) -> StoreFuture<'_, Vec<AddressId>>;

    /// The number of an address if it has one.
    fn find(&self, address: &Jid) -> StoreFuture<'_, Option<AddressId>>;
}
