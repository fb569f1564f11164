//! Tokens in memory.
use jid::JidRef;

use super::{Memory, ready};
use crate::{Fut, Tokens, TokensFn};

impl Tokens for Memory {
    fn change_tokens(&self, owner: JidRef<'_>, change: TokensFn) -> Fut<'_, bool> {
        let mut state = self.state.lock();
        let Some(entry) = state.account_mut(owner) else { return ready(Ok(false)) };
        ready(crate::tokens::decide(change, &entry.tokens).map(|after| {
            if let Some(after) = after {
                entry.tokens = after;
            }
            true
        }))
    }
}
