//! Last logout of each account: one narrow row per account, written in batches by [`crate::last_seen_writer`].

use jid::JidRef;
use store::{AddressId, LastActivity, LastSeen, StoreError, StoreFuture};

use super::{TableStatements, bare, id};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, RowsStatement};

pub(crate) struct LastSeenStatements {
    get: String,
    put: RowsStatement,
}

impl TableStatements for LastSeenStatements {
    const OWNED_TABLES: &'static [&'static str] = &["last_seen"];

    fn new(d: &dyn Dialect) -> LastSeenStatements {
        LastSeenStatements {
            get: d.sql(
                "SELECT c.id, s.at, s.status FROM address a JOIN account c ON c.id = a.id \
                 LEFT JOIN last_seen s ON s.owner = c.id WHERE a.jid = ?",
            ),
            put: RowsStatement::upsert(d, "last_seen", &["owner"], &["at", "status"]),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![&self.get]
    }
}

/// Writes many entries; those without an account are ignored. Runs inside the writer's transaction.
pub(crate) async fn put(
    conn: &mut DbConnection,
    seen: &[(AddressId, LastActivity)],
) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let ids: Vec<Arg<'_>> = seen.iter().map(|(owner, _)| Arg::number(owner.get().into())).collect();
    let rows = conn.fetch_in(&context.sql.accounts.present, &ids).await?;
    let present: Result<std::collections::HashSet<AddressId>, StoreError> =
        rows.iter().map(|row| id(row.number(0)?)).collect();
    let present = present?;
    let args: Vec<Arg<'_>> = seen
        .iter()
        .filter(|(owner, _)| present.contains(owner))
        .flat_map(|(owner, seen)| {
            let status = seen.status.as_deref().map_or(Arg::Null, Arg::AnyText);
            [Arg::number(owner.get().into()), Arg::number(seen.at), status]
        })
        .collect();
    conn.execute_rows(&context.sql.last_seen.put, 3, &args).await.map(drop)
}

impl SqlStores {
    fn seen_on_disk(&self, name: Box<str>) -> StoreFuture<'_, Option<(AddressId, Option<LastActivity>)>> {
        self.read(name, |conn, name| {
            Box::pin(async move {
                let context = conn.context.clone();
                let Some(row) = conn.fetch_optional(&context.sql.last_seen.get, &[Arg::Text(name)]).await?
                else {
                    return Ok(None);
                };
                let status = row.optional_text(2)?.map(str::to_owned);
                let seen = row.optional_number(1)?.map(|at| LastActivity { at, status });
                Ok(Some((id(row.number(0)?)?, seen)))
            })
        })
    }
}

impl LastSeen for SqlStores {
    fn set(&self, owner: AddressId, seen: LastActivity) {
        self.last_seen_writer.set(owner, seen.with_truncated_status());
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.last_seen_writer.flush())
    }

    fn get(&self, owner: JidRef<'_>) -> StoreFuture<'_, Option<LastActivity>> {
        let name = bare(owner);
        Box::pin(async move {
            loop {
                let round = self.last_seen_writer.flush_count();
                let Some((id, on_disk)) = self.seen_on_disk(name.clone()).await? else { return Ok(None) };
                if let Some(seen) = self.last_seen_writer.get(id) {
                    return Ok(Some(seen));
                }
                // Otherwise it may have been written, and dropped here, between the two reads.
                if self.last_seen_writer.flush_count() == round {
                    return Ok(on_disk);
                }
            }
        })
    }
}
