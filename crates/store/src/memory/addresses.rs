//! The dictionary in memory: a vector and its reverse map. Nothing is ever taken out.
use jid::Jid;

use super::{Memory, ready};
use crate::{AddressId, Addresses, Fut};

impl Addresses for Memory {
    fn resolve(&self, ids: &[AddressId]) -> Fut<'_, Vec<(AddressId, Jid)>> {
        let state = self.state.lock();
        ready(Ok(ids.iter().filter_map(|id| Some((*id, state.address(*id)?.clone()))).collect()))
    }

    fn number(&self, address: &Jid) -> Fut<'_, AddressId> {
        ready(self.state.lock().number(address.as_ref()))
    }

    fn numbers(&self, addresses: &[Jid]) -> Fut<'_, Vec<AddressId>> {
        let mut state = self.state.lock();
        ready(addresses.iter().map(|address| state.number(address.as_ref())).collect())
    }

    fn find(&self, address: &Jid) -> Fut<'_, Option<AddressId>> {
        ready(Ok(self.state.lock().find(address.as_ref())))
    }
}
