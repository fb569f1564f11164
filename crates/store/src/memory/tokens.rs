//! Login tokens, in memory.

use jid::JidRef;

use super::{MemoryStore, ready};
use crate::{LoginTokens, StoreFuture, TokensUpdateFn, TokensUpdateOutcome};

impl LoginTokens for MemoryStore {
    fn update_tokens(
        &self,
        owner: JidRef<'_>,
        revision: Option<u64>,
        change: TokensUpdateFn,
    ) -> StoreFuture<'_, TokensUpdateOutcome> {
        let mut state = self.state.lock();
        let entry = state.account_mut(owner);
        let Some(entry) = entry.filter(|entry| revision.is_none_or(|revision| entry.revision == revision))
        else {
            return ready(Ok(TokensUpdateOutcome::Revoked));
        };
        if revision.is_some() && entry.disabled {
            return ready(Ok(TokensUpdateOutcome::Disabled));
        }
        ready(crate::tokens::run_update(change, &entry.tokens).map(|after| {
            if let Some(after) = after {
                entry.tokens = after;
            }
            TokensUpdateOutcome::Applied
        }))
    }
}
