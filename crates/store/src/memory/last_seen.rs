//! Last activity, in memory.

use jid::JidRef;

use super::{MemoryStore, ready};
use crate::{AddressId, LastActivity, LastSeen, StoreFuture};

impl LastSeen for MemoryStore {
    fn set(&self, owner: AddressId, seen: LastActivity) {
        if let Some(entry) = self.state.lock().accounts.get_mut(&owner) {
            *entry.values.get_or_default() = Some(seen.with_truncated_status());
        }
    }

    fn get(&self, owner: JidRef<'_>) -> StoreFuture<'_, Option<LastActivity>> {
        let state = self.state.lock();
        ready(Ok(state
            .account(owner)
            .and_then(|(_, entry)| entry.values.get::<Option<LastActivity>>()?.clone())))
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        ready(Ok(()))
    }
}
