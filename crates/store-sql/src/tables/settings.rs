//! Small values of the server.
use store::{Fut, Settings, StoreError};

use crate::SqlStores;
use crate::dialect::{Arg, Conn, Dialect};
use crate::fault::corrupt;

pub(crate) struct Texts {
    get: String,
    put: String,
    put_new: String,
}

impl Texts {
    pub(crate) fn new(d: &dyn Dialect) -> Texts {
        Texts {
            get: d.sql("SELECT value FROM setting WHERE name = ?"),
            put: d.upsert("setting", &["name"], &["value"], 1),
            put_new: d.insert_new("setting", &["name", "value"], 1),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<&str> {
        vec![&self.get]
    }
}

async fn get(conn: &mut Conn, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let kit = conn.kit.clone();
    let row = conn.row(&kit.settings.get, &[Arg::Text(key)]).await?;
    row.map(|row| row.bytes(0).map(<[u8]>::to_vec)).transpose()
}

impl Settings for SqlStores {
    fn get(&self, key: &str) -> Fut<'_, Option<Vec<u8>>> {
        let key = key.to_owned();
        self.read(Box::new(move |conn| Box::pin(async move { get(conn, &key).await })))
    }

    fn put(&self, key: &str, value: &[u8]) -> Fut<'_, ()> {
        if let Err(error) = store::settings::check(key, value) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (key, value) = (key.to_owned(), value.to_vec());
        self.writer.call(
            value.len(),
            Box::new(move |conn| {
                Box::pin(async move {
                    let kit = conn.kit.clone();
                    conn.run(&kit.settings.put, &[Arg::Text(&key), Arg::Bytes(&value)]).await.map(drop)
                })
            }),
        )
    }

    fn put_if_absent(&self, key: &str, value: &[u8]) -> Fut<'_, Vec<u8>> {
        if let Err(error) = store::settings::check(key, value) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (key, value) = (key.to_owned(), value.to_vec());
        self.writer.call(
            value.len(),
            Box::new(move |conn| {
                Box::pin(async move {
                    let kit = conn.kit.clone();
                    conn.run(&kit.settings.put_new, &[Arg::Text(&key), Arg::Bytes(&value)]).await?;
                    get(conn, &key).await?.ok_or_else(|| corrupt("the database forgot a setting"))
                })
            }),
        )
    }
}
