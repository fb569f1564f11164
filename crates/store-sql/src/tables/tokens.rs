//! Tokens, stored in a column of the account. `accounts` clears it when the password changes.

use std::collections::{BTreeSet, HashMap};

use base::BoxFuture;
use jid::JidRef;
use store::{LoginTokens, StoreError, StoreErrorKind, StoreFuture, TokensUpdateFn, TokensUpdateOutcome};

use super::{TableStatements, bare};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, RowStatement, SizedStatement, placeholders};
use crate::writer::Owner;
use crate::writer::jobs::{MergeableRequest, PendingReply};

pub(crate) struct TokenStatements {
    get: SizedStatement,
    put: RowStatement,
}

impl TableStatements for TokenStatements {
    fn new(d: &dyn Dialect) -> TokenStatements {
        TokenStatements {
            get: SizedStatement::new(|n| {
                d.sql(&format!(
                    "SELECT a.jid, c.id, c.tokens, c.revision, c.disabled FROM address a \
                     JOIN account c ON c.id = a.id WHERE a.jid IN ({})",
                    placeholders(n)
                ))
            }),
            put: RowStatement::new(d, "UPDATE account SET tokens = ? WHERE id = ?"),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![self.get.at_least(1).1, self.get.at_least(64).1, self.put.text()]
    }
}

/// A decision of a caller, made once: it may report to its caller while it decides. When its transaction is lost, the
/// decision stands if the tokens are the same.
enum TokensDecision {
    Open(TokensUpdateFn),
    Made { before: Vec<u8>, after: Option<Vec<u8>> },
    Failed,
}

impl TokensDecision {
    fn decide(&mut self, before: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match std::mem::replace(self, TokensDecision::Failed) {
            TokensDecision::Open(decision) => {
                let after = store::tokens::run_update(decision, before)?;
                *self = TokensDecision::Made { before: before.to_vec(), after: after.clone() };
                Ok(after)
            }
            TokensDecision::Made { before: same, after } if same == before => {
                *self = TokensDecision::Made { before: same, after: after.clone() };
                Ok(after)
            }
            TokensDecision::Made { .. } => {
                let message = "another node changed the tokens; nothing was stored";
                Err(StoreError::new(StoreErrorKind::Conflict, message))
            }
            TokensDecision::Failed => {
                let message = "a change of tokens failed; nothing was stored";
                Err(StoreError::new(StoreErrorKind::Internal, message))
            }
        }
    }
}

/// A change of an account's tokens.
pub(crate) struct TokensRequest {
    name: Box<str>,
    /// The change is only for the account whose credentials have this revision.
    revision: Option<u64>,
    decision: TokensDecision,
    reply: PendingReply<TokensUpdateOutcome>,
}

impl TokensRequest {
    pub(crate) fn new(
        name: Box<str>,
        revision: Option<u64>,
        decision: TokensUpdateFn,
        reply: PendingReply<TokensUpdateOutcome>,
    ) -> TokensRequest {
        TokensRequest { name, revision, decision: TokensDecision::Open(decision), reply }
    }

    /// Changes the tokens in memory; the outcome, and whether they are others.
    fn apply(
        &mut self,
        account: Option<&mut AccountTokens>,
    ) -> Result<(TokensUpdateOutcome, bool), StoreError> {
        let Some(account) = account else { return Ok((TokensUpdateOutcome::Revoked, false)) };
        if let Some(revision) = self.revision {
            if account.revision != revision {
                return Ok((TokensUpdateOutcome::Revoked, false));
            }
            if account.disabled {
                return Ok((TokensUpdateOutcome::Disabled, false));
            }
        }
        let after = self.decision.decide(&account.tokens)?.filter(|after| *after != account.tokens);
        let changed = after.is_some();
        account.tokens = after.unwrap_or_else(|| std::mem::take(&mut account.tokens));
        Ok((TokensUpdateOutcome::Applied, changed))
    }
}

/// Tokens of an account, as they are after the requests so far.
struct AccountTokens {
    id: u64,
    revision: u64,
    disabled: bool,
    tokens: Vec<u8>,
}

impl MergeableRequest for TokensRequest {
    type Output = TokensUpdateOutcome;

    fn owner(&self) -> Owner {
        Owner::Name(self.name.clone())
    }

    fn reply(&self) -> &PendingReply<TokensUpdateOutcome> {
        &self.reply
    }

    fn into_reply(self) -> PendingReply<TokensUpdateOutcome> {
        self.reply
    }

    fn run_all<'a>(
        conn: &'a mut DbConnection,
        requests: &'a mut [TokensRequest],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(update_many(conn, requests))
    }
}

/// Changes tokens for many callers, in their order: each sees the results of those before it.
async fn update_many(conn: &mut DbConnection, requests: &mut [TokensRequest]) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let names: BTreeSet<&str> = requests.iter().map(|request| &*request.name).collect();
    let names: Vec<Arg<'_>> = names.into_iter().map(Arg::Text).collect();
    let mut accounts: HashMap<Box<str>, AccountTokens> = HashMap::new();
    for row in conn.fetch_in(&context.sql.tokens.get, &names).await? {
        let (id, revision, disabled) = (row.number(1)?, row.number(3)?, row.number(4)? != 0);
        let tokens = row.optional_bytes(2)?.unwrap_or_default().to_vec();
        accounts.insert(row.text(0)?.into(), AccountTokens { id, revision, disabled, tokens });
    }
    let mut changed = BTreeSet::new();
    for request in &mut *requests {
        let result = request.apply(accounts.get_mut(&request.name));
        if let Ok((_, true)) = result {
            changed.insert(request.name.clone());
        }
        request.reply.set(result.map(|(outcome, _)| outcome));
    }
    let mut rows = Vec::new();
    for account in changed.iter().filter_map(|name| accounts.get(name)) {
        let tokens = (!account.tokens.is_empty()).then_some(&*account.tokens);
        rows.extend([Arg::optional_bytes(tokens), Arg::number(account.id)]);
    }
    conn.execute_each(&context.sql.tokens.put, &rows).await
}

impl LoginTokens for SqlStores {
    fn update_tokens(
        &self,
        owner: JidRef<'_>,
        revision: Option<u64>,
        decision: TokensUpdateFn,
    ) -> StoreFuture<'_, TokensUpdateOutcome> {
        self.writer.update_tokens(bare(owner), revision, decision)
    }
}
