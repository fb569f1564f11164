//! Key-value pairs of the server.

use store::{ServerKv, StoreError, StoreFuture};

use super::TableStatements;
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect};
use crate::error::corrupt;

pub(crate) struct ServerKvStatements {
    get: String,
    put: String,
    put_new: String,
    replace: String,
}

impl TableStatements for ServerKvStatements {
    fn new(d: &dyn Dialect) -> ServerKvStatements {
        ServerKvStatements {
            get: d.sql("SELECT value FROM setting WHERE name = ?"),
            put: d.upsert("setting", &["name"], &["value"], 1),
            put_new: d.insert_new("setting", &["name", "value"], 1),
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
    let row = conn.fetch_optional(&context.sql.server_kv.get, &[Arg::Text(key)]).await?;
    row.map(|row| row.bytes(0).map(<[u8]>::to_vec)).transpose()
}

impl ServerKv for SqlStores {
    fn get(&self, key: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        let key = key.to_owned();
        self.read(Box::new(move |conn| Box::pin(async move { get(conn, &key).await })))
    }

    fn put(&self, key: &str, value: &[u8]) -> StoreFuture<'_, ()> {
        if let Err(error) = store::server_kv::check_sizes(key, value) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (key, value) = (key.to_owned(), value.to_vec());
        self.writer.call(
            value.len(),
            Box::new(move |conn| {
                Box::pin(async move {
                    let context = conn.context.clone();
                    conn.execute(&context.sql.server_kv.put, &[Arg::Text(&key), Arg::Bytes(&value)])
                        .await
                        .map(drop)
                })
            }),
        )
    }

    fn put_if_absent(&self, key: &str, value: &[u8]) -> StoreFuture<'_, Vec<u8>> {
        if let Err(error) = store::server_kv::check_sizes(key, value) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (key, value) = (key.to_owned(), value.to_vec());
        self.writer.call(
            value.len(),
            Box::new(move |conn| {
                Box::pin(async move {
                    let context = conn.context.clone();
                    conn.execute(&context.sql.server_kv.put_new, &[Arg::Text(&key), Arg::Bytes(&value)])
                        .await?;
                    get(conn, &key)
                        .await?
                        .ok_or_else(|| corrupt("an inserted setting is missing from the database"))
                })
            }),
        )
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> StoreFuture<'_, bool> {
        if let Err(error) = store::server_kv::check_sizes(key, value) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (key, value, expected) = (key.to_owned(), value.to_vec(), expected.map(<[u8]>::to_vec));
        self.writer.call(
            value.len() + expected.as_ref().map_or(0, Vec::len),
            Box::new(move |conn| {
                Box::pin(async move {
                    let context = conn.context.clone();
                    let ServerKvStatements { put_new, replace, .. } = &context.sql.server_kv;
                    let rows = match &expected {
                        None => conn.execute(put_new, &[Arg::Text(&key), Arg::Bytes(&value)]).await?,
                        Some(expected) => {
                            let args = [Arg::Bytes(&value), Arg::Text(&key), Arg::Bytes(expected)];
                            conn.execute(replace, &args).await?
                        }
                    };
                    Ok(rows > 0)
                })
            }),
        )
    }
}
