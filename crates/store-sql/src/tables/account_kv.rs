//! Key-value pairs of accounts, clustered by owner.

use std::collections::BTreeMap;

use jid::JidRef;
use store::account_kv::{check_key_lengths, is_within_limits};
use store::{AccountKv, AccountKvLimits, PutOutcome, StoreError, StoreFuture};

use super::{TableStatements, accounts, bare};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, RowsStatement, SqlRow};
use crate::writer::Owner;

pub(crate) struct AccountKvStatements {
    get: String,
    entries: String,
    sizes: String,
    put: RowsStatement,
    remove: String,
}

impl TableStatements for AccountKvStatements {
    const OWNED_TABLES: &'static [&'static str] = &["private"];

    fn new(d: &dyn Dialect) -> AccountKvStatements {
        AccountKvStatements {
            get: d.sql(
                "SELECT p.value FROM address a JOIN private p ON p.owner = a.id WHERE a.jid = ? AND p.name = ?",
            ),
            entries: d.sql(
                "SELECT p.name, p.value FROM address a JOIN private p ON p.owner = a.id WHERE a.jid = ?",
            ),
            sizes: d.sql("SELECT name, octet_length(value) FROM private WHERE owner = ?"),
            put: RowsStatement::upsert(d, "private", &["owner", "name"], &["value"]),
            remove: d.sql(
                "DELETE FROM private WHERE owner = (SELECT id FROM address WHERE jid = ?) AND name = ?",
            ),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![&self.get, &self.entries, &self.sizes, &self.remove]
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
        .flat_map(|(key, value)| [Arg::number(owner), Arg::AnyText(key), Arg::Bytes(value)])
        .collect();
    conn.execute_rows(&context.sql.account_kv.put, 3, &args).await?;
    Ok(PutOutcome::Done)
}

impl AccountKv for SqlStores {
    fn get(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        let (name, key) = (bare(owner), key.to_owned());
        self.read((name, key), |conn, (name, key)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let row = conn
                    .fetch_optional(&context.sql.account_kv.get, &[Arg::Text(name), Arg::AnyText(key)])
                    .await?;
                row.map(|row| row.bytes(0).map(<[u8]>::to_vec)).transpose()
            })
        })
    }

    fn entries(&self, owner: JidRef<'_>) -> StoreFuture<'_, Vec<(String, Vec<u8>)>> {
        let name = bare(owner);
        self.read((name,), |conn, (name,)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let rows = conn.fetch_all(&context.sql.account_kv.entries, &[Arg::Text(name)]).await?;
                let entry = |row: &SqlRow| Ok((row.text(0)?.to_owned(), row.bytes(1)?.to_vec()));
                let mut entries = rows.iter().map(entry).collect::<Result<Vec<_>, StoreError>>()?;
                // Here and not in the statement: databases differ in the order of texts.
                entries.sort_unstable();
                Ok(entries)
            })
        })
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
            Owner::Name(name.clone()),
            bytes,
            (name, values, limits),
            |conn, (name, values, limits)| Box::pin(put(conn, name, values, *limits)),
        )
    }

    fn replace(
        &self,
        owner: JidRef<'_>,
        key: &str,
        before: Option<Vec<u8>>,
        value: Vec<u8>,
        limits: AccountKvLimits,
    ) -> StoreFuture<'_, Option<PutOutcome>> {
        let values = vec![(key.to_owned(), value)];
        if let Err(error) = check_key_lengths(&values) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let name = bare(owner);
        let bytes = 64 + before.as_ref().map_or(0, Vec::len);
        let bytes = bytes + values.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let values: BTreeMap<String, Vec<u8>> = values.into_iter().collect();
        self.writer.call(
            Owner::Name(name.clone()),
            bytes,
            (name, before, values, limits),
            |conn, (name, before, values, limits)| {
                Box::pin(async move {
                    let context = conn.context.clone();
                    for key in values.keys() {
                        let args = [Arg::Text(name), Arg::AnyText(key)];
                        // The transaction has locked the owner.
                        let row = conn.fetch_optional(&context.sql.account_kv.get, &args).await?;
                        if row.as_ref().map(|row| row.bytes(0)).transpose()? != before.as_deref() {
                            return Ok(None);
                        }
                    }
                    put(conn, name, values, *limits).await.map(Some)
                })
            },
        )
    }

    fn remove(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, bool> {
        let (name, key) = (bare(owner), key.to_owned());
        self.writer.call(Owner::Name(name.clone()), 64, (name, key), |conn, (name, key)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let args = [Arg::Text(name), Arg::AnyText(key)];
                Ok(conn.execute(&context.sql.account_kv.remove, &args).await? > 0)
            })
        })
    }
}
