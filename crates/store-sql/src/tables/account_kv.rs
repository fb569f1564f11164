//! Key-value pairs of accounts, clustered by owner.

use std::collections::BTreeMap;

use jid::JidRef;
use store::account_kv::{check_key_lengths, is_within_limits};
use store::{AccountKv, AccountKvLimits, PutOutcome, StoreError, StoreFuture};

use super::{TableStatements, accounts, bare};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, SizedStatement};

pub(crate) struct AccountKvStatements {
    get: String,
    sizes: String,
    put: SizedStatement,
    remove: String,
}

impl TableStatements for AccountKvStatements {
    const OWNED_TABLES: &'static [&'static str] = &["private"];

    fn new(d: &dyn Dialect) -> AccountKvStatements {
        AccountKvStatements {
            get: d.sql(
                "SELECT p.value FROM address a JOIN private p ON p.owner = a.id WHERE a.jid = ? AND p.name = ?",
            ),
            sizes: d.sql("SELECT name, octet_length(value) FROM private WHERE owner = ?"),
            put: SizedStatement::new(|n| d.upsert("private", &["owner", "name"], &["value"], n)),
            remove: d.sql(
                "DELETE FROM private WHERE owner = (SELECT id FROM address WHERE jid = ?) AND name = ?",
            ),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![&self.get, &self.sizes, &self.remove]
    }
}

fn kv_size(values: &BTreeMap<&str, usize>) -> (usize, usize) {
    (values.len(), values.iter().map(|(key, bytes)| key.len() + bytes).sum())
}

async fn put(
    conn: &mut DbConnection,
    name: &str,
    values: &BTreeMap<String, Vec<u8>>,
    limits: AccountKvLimits,
) -> Result<PutOutcome, StoreError> {
    let context = conn.context.clone();
    let Some((owner, _)) = accounts::owner(conn, name).await? else { return Ok(PutOutcome::NoAccount) };
    let rows = conn.fetch_all(&context.sql.account_kv.sizes, &[Arg::number(owner)]).await?;
    let mut bytes_by_key = BTreeMap::new();
    for row in &rows {
        bytes_by_key.insert(row.text(0)?, usize::try_from(row.number(1)?).unwrap_or(usize::MAX));
    }
    let before = kv_size(&bytes_by_key);
    bytes_by_key.extend(values.iter().map(|(key, value)| (key.as_str(), value.len())));
    if !is_within_limits(before, kv_size(&bytes_by_key), limits) {
        return Ok(PutOutcome::Full);
    }
    let args: Vec<Arg<'_>> = values
        .iter()
        .flat_map(|(key, value)| [Arg::number(owner), Arg::Text(key), Arg::Bytes(value)])
        .collect();
    conn.execute_rows(&context.sql.account_kv.put, 3, &args).await?;
    Ok(PutOutcome::Done)
}

impl AccountKv for SqlStores {
    fn get(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        let (name, key) = (bare(owner), key.to_owned());
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let context = conn.context.clone();
                let row = conn
                    .fetch_optional(&context.sql.account_kv.get, &[Arg::Text(&name), Arg::Text(&key)])
                    .await?;
                row.map(|row| row.bytes(0).map(<[u8]>::to_vec)).transpose()
            })
        }))
    }

    fn put(
        &self,
        owner: JidRef<'_>,
        values: Vec<(String, Vec<u8>)>,
        limits: AccountKvLimits,
    ) -> StoreFuture<'_, PutOutcome> {
        if let Err(error) = check_key_lengths(&values) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let name = bare(owner);
        let bytes = 64 + values.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        // The later of two values with the same key is kept.
        let values: BTreeMap<String, Vec<u8>> = values.into_iter().collect();
        self.writer.call(
            bytes,
            Box::new(move |conn| Box::pin(async move { put(conn, &name, &values, limits).await })),
        )
    }

    fn remove(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, bool> {
        let (name, key) = (bare(owner), key.to_owned());
        self.writer.call(
            64,
            Box::new(move |conn| {
                Box::pin(async move {
                    let context = conn.context.clone();
                    Ok(conn
                        .execute(&context.sql.account_kv.remove, &[Arg::Text(&name), Arg::Text(&key)])
                        .await?
                        > 0)
                })
            }),
        )
    }
}
