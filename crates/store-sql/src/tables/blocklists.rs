//! Blocklists, stored in a column of the account.

use jid::{Jid, JidRef};
use store::blocklists::{apply_update, decode, encode};
use store::{BlocklistOutcome, Blocklists, StoreError, StoreFuture, Unblock};

use super::{TableStatements, bare};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect};
use crate::writer::Owner;

pub(crate) struct BlocklistStatements {
    get: String,
    put: String,
}

impl TableStatements for BlocklistStatements {
    fn new(d: &dyn Dialect) -> BlocklistStatements {
        let get = "SELECT c.id, c.blocklist FROM address a JOIN account c ON c.id = a.id WHERE a.jid = ?";
        BlocklistStatements { get: d.sql(get), put: d.sql("UPDATE account SET blocklist = ? WHERE id = ?") }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![&self.get, &self.put]
    }
}

async fn update(
    conn: &mut DbConnection,
    name: &str,
    add: &[Jid],
    remove: &Unblock,
    limit: u32,
) -> Result<BlocklistOutcome, StoreError> {
    let context = conn.context.clone();
    let row = conn.fetch_optional(&context.sql.blocklists.get, &[Arg::Text(name)]).await?;
    let Some(row) = row else { return Ok(BlocklistOutcome::NoAccount) };
    let list = decode(row.optional_bytes(1)?.unwrap_or_default())?;
    let Some(change) = apply_update(list, add.to_vec(), remove, limit) else {
        return Ok(BlocklistOutcome::Full);
    };
    if !change.added.is_empty() || !change.removed.is_empty() {
        let bytes = encode(&change.list);
        let args = [Arg::optional_bytes((!bytes.is_empty()).then_some(&bytes)), Arg::number(row.number(0)?)];
        conn.execute(&context.sql.blocklists.put, &args).await?;
    }
    Ok(BlocklistOutcome::Changed(change))
}

impl Blocklists for SqlStores {
    fn blocklist(&self, owner: JidRef<'_>) -> StoreFuture<'_, Vec<Jid>> {
        let name = bare(owner);
        self.read(name, |conn, name| {
            Box::pin(async move {
                let context = conn.context.clone();
                let row = conn.fetch_optional(&context.sql.blocklists.get, &[Arg::Text(name)]).await?;
                let Some(row) = row else { return Ok(Vec::new()) };
                decode(row.optional_bytes(1)?.unwrap_or_default())
            })
        })
    }

    fn update_blocklist(
        &self,
        owner: JidRef<'_>,
        add: Vec<Jid>,
        remove: Unblock,
        limit: u32,
    ) -> StoreFuture<'_, BlocklistOutcome> {
        let name = bare(owner);
        let bytes = 512 + add.iter().map(|jid| jid.as_str().len()).sum::<usize>();
        let owner = Owner::Name(name.clone());
        self.writer.call(owner, bytes, (name, add, remove, limit), |conn, (name, add, remove, limit)| {
            Box::pin(update(conn, name, add, remove, *limit))
        })
    }
}
