//! Blocklists, in memory.

use jid::{Jid, JidRef};

use super::{MemoryStore, ready};
use crate::blocklists::{apply_update, decode, encode};
use crate::{BlocklistOutcome, Blocklists, StoreFuture, Unblock};

impl Blocklists for MemoryStore {
    fn blocklist(&self, owner: JidRef<'_>) -> StoreFuture<'_, Vec<Jid>> {
        let state = self.state.lock();
        ready(state.account(owner).map_or_else(|| Ok(Vec::new()), |(_, entry)| decode(&entry.blocklist)))
    }

    fn update_blocklist(
        &self,
        owner: JidRef<'_>,
        add: Vec<Jid>,
        remove: Unblock,
        limit: u32,
    ) -> StoreFuture<'_, BlocklistOutcome> {
        let mut state = self.state.lock();
        let Some(entry) = state.account_mut(owner) else { return ready(Ok(BlocklistOutcome::NoAccount)) };
        ready(decode(&entry.blocklist).map(|list| match apply_update(list, add, &remove, limit) {
            None => BlocklistOutcome::Full,
            Some(change) => {
                entry.blocklist = encode(&change.list);
                BlocklistOutcome::Changed(change)
            }
        }))
    }
}
