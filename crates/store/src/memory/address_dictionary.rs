//! Address dictionary, in memory: a vector and its reverse map. Addresses are never removed.

use jid::Jid;

use super::{MemoryStore, ready};
use crate::{AddressDictionary, AddressId, StoreFuture};

impl AddressDictionary for MemoryStore {
    fn resolve(&self, ids: &[AddressId]) -> StoreFuture<'_, Vec<(AddressId, Jid)>> {
        let state = self.state.lock();
        ready(Ok(ids.iter().filter_map(|id| Some((*id, state.address(*id)?.clone()))).collect()))
    }

    fn intern(&self, address: &Jid) -> StoreFuture<'_, AddressId> {
        ready(self.state.lock().intern(address.as_ref()))
    }

    fn intern_many(&self, addresses: &[Jid]) -> StoreFuture<'_, Vec<AddressId>> {
        let mut state = self.state.lock();
        ready(addresses.iter().map(|address| state.intern(address.as_ref())).collect())
    }

    fn find(&self, address: &Jid) -> StoreFuture<'_, Option<AddressId>> {
        ready(Ok(self.state.lock().find_id(address.as_ref())))
    }
}
