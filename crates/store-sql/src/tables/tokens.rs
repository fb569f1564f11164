//! Tokens, a column of the account. What empties it with the password is in `accounts`.
use jid::JidRef;
use store::{Fut, StoreError, Tokens, TokensFn};

use super::bare;
use crate::SqlStores;
use crate::dialect::{Arg, Conn, Dialect};

pub(crate) struct Texts {
    get: String,
    put: String,
}

impl Texts {
    pub(crate) fn new(d: &dyn Dialect) -> Texts {
        Texts {
            get: d.sql(&format!(
                "SELECT c.id, c.tokens FROM address a JOIN account c ON c.id = a.id WHERE a.jid = ?{}",
                d.lock_rows()
            )),
            put: d.sql("UPDATE account SET tokens = ? WHERE id = ?"),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<&str> {
        vec![&self.get, &self.put]
    }
}

async fn change(conn: &mut Conn, name: &str, change: TokensFn) -> Result<bool, StoreError> {
    let kit = conn.kit.clone();
    let row = conn.row(&kit.tokens.get, &[Arg::Text(name)]).await?;
    let Some(row) = row else { return Ok(false) };
    let before = row.maybe_bytes(1)?.unwrap_or_default();
    if let Some(after) = store::tokens::decide(change, before)?
        && after != before
    {
        let args = [Arg::maybe_bytes((!after.is_empty()).then_some(&after)), Arg::number(row.number(0)?)];
        conn.run(&kit.tokens.put, &args).await?;
    }
    Ok(true)
}

impl Tokens for SqlStores {
    fn change_tokens(&self, owner: JidRef<'_>, decision: TokensFn) -> Fut<'_, bool> {
        let name = bare(owner);
        self.writer
            .call(512, Box::new(move |conn| Box::pin(async move { change(conn, &name, decision).await })))
    }
}
