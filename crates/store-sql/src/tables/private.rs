//! Small values of accounts, clustered by owner.
use std::collections::BTreeMap;

use jid::JidRef;
use store::private::{check, fits};
use store::{Fut, Private, PrivateLimits, PutOutcome, StoreError};

use super::{accounts, bare};
use crate::SqlStores;
use crate::dialect::{Arg, Conn, Dialect, Sizes};

pub(crate) struct Texts {
    get: String,
    sizes: String,
    put: Sizes,
    remove: String,
}

impl Texts {
    pub(crate) fn new(d: &dyn Dialect) -> Texts {
        Texts {
            get: d.sql(
                "SELECT p.value FROM address a JOIN private p ON p.owner = a.id WHERE a.jid = ? AND p.name = ?",
            ),
            sizes: d.sql("SELECT name, octet_length(value) FROM private WHERE owner = ?"),
            put: Sizes::new(|n| d.upsert("private", &["owner", "name"], &["value"], n)),
            remove: d.sql(
                "DELETE FROM private WHERE owner = (SELECT id FROM address WHERE jid = ?) AND name = ?",
            ),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<&str> {
        vec![&self.get, &self.sizes, &self.remove]
    }
}

fn size(values: &BTreeMap<&str, usize>) -> (usize, usize) {
    (values.len(), values.iter().map(|(key, bytes)| key.len() + bytes).sum())
}

async fn put(
    conn: &mut Conn,
    name: &str,
    values: &BTreeMap<String, Vec<u8>>,
    limits: PrivateLimits,
) -> Result<PutOutcome, StoreError> {
    let kit = conn.kit.clone();
    let Some((owner, _)) = accounts::owner(conn, name).await? else { return Ok(PutOutcome::NoAccount) };
    let rows = conn.rows(&kit.private.sizes, &[Arg::number(owner)]).await?;
    let mut kept = BTreeMap::new();
    for row in &rows {
        kept.insert(row.text(0)?, usize::try_from(row.number(1)?).unwrap_or(usize::MAX));
    }
    let before = size(&kept);
    kept.extend(values.iter().map(|(key, value)| (key.as_str(), value.len())));
    if !fits(before, size(&kept), limits) {
        return Ok(PutOutcome::Full);
    }
    let args: Vec<Arg<'_>> = values
        .iter()
        .flat_map(|(key, value)| [Arg::number(owner), Arg::Text(key), Arg::Bytes(value)])
        .collect();
    conn.run_rows(&kit.private.put, 3, &args).await?;
    Ok(PutOutcome::Done)
}

impl Private for SqlStores {
    fn get(&self, owner: JidRef<'_>, key: &str) -> Fut<'_, Option<Vec<u8>>> {
        let (name, key) = (bare(owner), key.to_owned());
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let kit = conn.kit.clone();
                let row = conn.row(&kit.private.get, &[Arg::Text(&name), Arg::Text(&key)]).await?;
                row.map(|row| row.bytes(0).map(<[u8]>::to_vec)).transpose()
            })
        }))
    }

    fn put(
        &self,
        owner: JidRef<'_>,
        values: Vec<(String, Vec<u8>)>,
        limits: PrivateLimits,
    ) -> Fut<'_, PutOutcome> {
        if let Err(error) = check(&values) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let name = bare(owner);
        let bytes = 64 + values.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        // Of two with the same key the later one stays.
        let values: BTreeMap<String, Vec<u8>> = values.into_iter().collect();
        self.writer.call(
            bytes,
            Box::new(move |conn| Box::pin(async move { put(conn, &name, &values, limits).await })),
        )
    }

    fn remove(&self, owner: JidRef<'_>, key: &str) -> Fut<'_, bool> {
        let (name, key) = (bare(owner), key.to_owned());
        self.writer.call(
            64,
            Box::new(move |conn| {
                Box::pin(async move {
                    let kit = conn.kit.clone();
                    Ok(conn.run(&kit.private.remove, &[Arg::Text(&name), Arg::Text(&key)]).await? > 0)
                })
            }),
        )
    }
}
