//! Tokens, stored in a column of the account. `accounts` clears it when the password changes.

use jid::JidRef;
use store::{LoginTokens, StoreError, StoreFuture, TokensUpdateFn, TokensUpdateOutcome};

use super::{TableStatements, bare};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect};

pub(crate) struct TokenStatements {
    get: String,
    put: String,
}

impl TableStatements for TokenStatements {
    fn new(d: &dyn Dialect) -> TokenStatements {
        TokenStatements {
            get: d.sql(&format!(
                "SELECT c.id, c.tokens, c.revision, c.disabled FROM address a JOIN account c ON c.id = a.id WHERE a.jid = ?{}",
                d.for_update()
            )),
            put: d.sql("UPDATE account SET tokens = ? WHERE id = ?"),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![&self.get, &self.put]
    }
}

async fn update(
    conn: &mut DbConnection,
    name: &str,
    revision: Option<u64>,
    change: TokensUpdateFn,
) -> Result<TokensUpdateOutcome, StoreError> {
    let context = conn.context.clone();
    let row = conn.fetch_optional(&context.sql.tokens.get, &[Arg::Text(name)]).await?;
    let Some(row) = row else { return Ok(TokensUpdateOutcome::Revoked) };
    if let Some(revision) = revision {
        if row.number(2)? != revision {
            return Ok(TokensUpdateOutcome::Revoked);
        }
        if row.number(3)? != 0 {
            return Ok(TokensUpdateOutcome::Disabled);
        }
    }
    let before = row.optional_bytes(1)?.unwrap_or_default();
    if let Some(after) = store::tokens::run_update(change, before)?
        && after != before
    {
        let args = [Arg::optional_bytes((!after.is_empty()).then_some(&after)), Arg::number(row.number(0)?)];
        conn.execute(&context.sql.tokens.put, &args).await?;
    }
    Ok(TokensUpdateOutcome::Applied)
}

impl LoginTokens for SqlStores {
    fn update_tokens(
        &self,
        owner: JidRef<'_>,
        revision: Option<u64>,
        decision: TokensUpdateFn,
    ) -> StoreFuture<'_, TokensUpdateOutcome> {
        let name = bare(owner);
        self.writer.call(
            512,
            Box::new(move |conn| Box::pin(async move { update(conn, &name, revision, decision).await })),
        )
    }
}
