//! Key-value pairs of the server.

use store::{ServerKv, StoreError, StoreFuture};

use super::TableStatements;
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect};
use crate::error::corrupt;
use crate::writer::Owner;

pub(crate) struct ServerKvStatements {
    get: String,
    put: String,
    put_new: String,
    insert: String,
    replace: String,
}

impl TableStatements for ServerKvStatements {
    fn new(d: &dyn Dialect) -> ServerKvStatements {
        ServerKvStatements {
            get: d.sql("SELECT value FROM setting WHERE name = ?"),
            put: d.upsert("setting", &["name"], &["value"], 1),
            put_new: d.insert_new("setting", &["name", "value"], 1),
            insert: d.insert("setting", &["name", "value"], 1),
            replace: d.sql("UPDATE setting SET value = ? WHERE name = ? AND value = ?"),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![&self.get, &self.replace]
    }
}

async fn get(conn: &mut DbConnection, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let context = conn.context.clone();
    let row = conn.fetch_optional(&context.sql.server_kv.get, &[Arg::AnyText(key)]).await?;
    row.map(|row| row.bytes(0).map(<[u8]>::to_vec)).transpose()
}

impl ServerKv for SqlStores {
    fn get(&self, key: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        let key = key.to_owned();
        self.read(key, |conn, key| Box::pin(async move { get(conn, key).await }))
    }

    fn put(&self, key: &str, value: &[u8]) -> StoreFuture<'_, ()> {
        if let Err(error) = store::server_kv::check_sizes(key, value) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (key, value) = (key.to_owned(), value.to_vec());
        self.writer.call(Owner::None, value.len(), (key, value), |conn, (key, value)| {
            Box::pin(async move {
                let context = conn.context.clone();
                conn.execute(&context.sql.server_kv.put, &[Arg::AnyText(key), Arg::Bytes(value)])
                    .await
                    .map(drop)
            })
        })
    }

    fn put_if_absent(&self, key: &str, value: &[u8]) -> StoreFuture<'_, Vec<u8>> {
        if let Err(error) = store::server_kv::check_sizes(key, value) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (key, value) = (key.to_owned(), value.to_vec());
        self.writer.call(Owner::None, value.len(), (key, value), |conn, (key, value)| {
            Box::pin(async move {
                let context = conn.context.clone();
                conn.execute(&context.sql.server_kv.put_new, &[Arg::AnyText(key), Arg::Bytes(value)]).await?;
                let missing = || corrupt("an inserted setting is missing from the database");
                get(conn, key).await?.ok_or_else(missing)
            })
        })
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> StoreFuture<'_, bool> {
        if let Err(error) = store::server_kv::check_sizes(key, value) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (key, value, expected) = (key.to_owned(), value.to_vec(), expected.map(<[u8]>::to_vec));
        let bytes = value.len() + expected.as_ref().map_or(0, Vec::len);
        self.writer.call(Owner::None, bytes, (key, expected, value), |conn, (key, expected, value)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let ServerKvStatements { insert, replace, .. } = &context.sql.server_kv;
                let (name, value) = (Arg::AnyText(key), Arg::Bytes(value));
                if let Some(expected) = expected {
                    return Ok(conn.execute(replace, &[value, name, Arg::Bytes(expected)]).await? > 0);
                }
                if get(conn, key).await?.is_some() {
                    return Ok(false);
                }
                // Another node may insert one in the meantime. Then this fails, runs again, and finds it.
                conn.execute(insert, &[name, value]).await?;
                Ok(true)
            })
        })
    }
}
