//! Login tokens, in memory.
use jid::JidRef;

use super::{MemoryStore, ready};
use crate::{LoginTokens, StoreFuture, TokensUpdateFn};

impl LoginTokens for MemoryStore {
    fn update_tokens(
        &self,
        owner: JidRef<'_>,
        revision: Option<u64>,
        change: TokensUpdateFn,
    ) -> StoreFuture<'_, bool> {
        let mut state = self.state.lock();
        let Some(entry) = state.account_mut(owner) else { return ready(Ok(false)) };
        if revision.is_some_and(|revision| entry.disabled || entry.revision != revision) {
            return ready(Ok(false));
        }
        ready(crate::tokens::run_update(change, &entry.tokens).map(|after| {
            if let Some(after) = after {
                entry.tokens = after;
            }
            true
        }))
    }
}
