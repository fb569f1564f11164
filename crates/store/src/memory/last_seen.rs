//! When accounts were last there, in memory.
use jid::JidRef;

use super::{Memory, ready};
use crate::{AddressId, Fut, LastSeen, Seen};

impl LastSeen for Memory {
    fn set(&self, owner: AddressId, seen: Seen) {
        if let Some(entry) = self.state.lock().accounts.get_mut(&owner) {
            entry.seen = Some(seen.settled());
        }
    }

    fn get(&self, owner: JidRef<'_>) -> Fut<'_, Option<Seen>> {
        let state = self.state.lock();
        ready(Ok(state.account(owner).and_then(|(_, entry)| entry.seen.clone())))
    }
}
