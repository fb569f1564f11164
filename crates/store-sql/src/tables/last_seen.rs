//! When accounts were last there: one narrow row each, written in groups by [`crate::seen`].
use jid::JidRef;
use store::{AddressId, Fut, LastSeen, Seen, StoreError};

use super::{bare, id};
use crate::SqlStores;
use crate::dialect::{Arg, Conn, Dialect, Sizes};

pub(crate) struct Texts {
    get: String,
    put: Sizes,
}

impl Texts {
    pub(crate) fn new(d: &dyn Dialect) -> Texts {
        Texts {
            get: d.sql(
                "SELECT c.id, s.at, s.status FROM address a JOIN account c ON c.id = a.id \
                 LEFT JOIN last_seen s ON s.owner = c.id WHERE a.jid = ?",
            ),
            put: Sizes::new(|n| d.upsert("last_seen", &["owner"], &["at", "status"], n)),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<&str> {
        vec![&self.get]
    }
}

/// Writes many; those without an account are left out. Inside the writer's transaction.
pub(crate) async fn put(conn: &mut Conn, seen: &[(AddressId, Seen)]) -> Result<(), StoreError> {
    let kit = conn.kit.clone();
    let ids: Vec<Arg<'_>> = seen.iter().map(|(owner, _)| Arg::number(owner.get().into())).collect();
    let rows = conn.rows_in(&kit.accounts.present, &ids).await?;
    let present: Result<std::collections::HashSet<AddressId>, StoreError> =
        rows.iter().map(|row| id(row.number(0)?)).collect();
    let present = present?;
    let args: Vec<Arg<'_>> = seen
        .iter()
        .filter(|(owner, _)| present.contains(owner))
        .flat_map(|(owner, seen)| {
            let status = seen.status.as_deref().map_or(Arg::Null, Arg::Text);
            [Arg::number(owner.get().into()), Arg::number(seen.at), status]
        })
        .collect();
    conn.run_rows(&kit.last_seen.put, 3, &args).await.map(drop)
}

impl SqlStores {
    fn seen_on_disk(&self, name: Box<str>) -> Fut<'_, Option<(AddressId, Option<Seen>)>> {
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let kit = conn.kit.clone();
                let Some(row) = conn.row(&kit.last_seen.get, &[Arg::Text(&name)]).await? else {
                    return Ok(None);
                };
                let status = row.maybe_text(2)?.map(str::to_owned);
                let seen = row.maybe_number(1)?.map(|at| Seen { at, status });
                Ok(Some((id(row.number(0)?)?, seen)))
            })
        }))
    }
}

impl LastSeen for SqlStores {
    fn set(&self, owner: AddressId, seen: Seen) {
        self.seen.set(owner, seen.settled());
    }

    fn get(&self, owner: JidRef<'_>) -> Fut<'_, Option<Seen>> {
        let name = bare(owner);
        Box::pin(async move {
            loop {
                let round = self.seen.rounds();
                let Some((id, on_disk)) = self.seen_on_disk(name.clone()).await? else { return Ok(None) };
                if let Some(seen) = self.seen.get(id) {
                    return Ok(Some(seen));
                }
                // Otherwise it may have been written, and forgotten here, between the two looks.
                if self.seen.rounds() == round {
                    return Ok(on_disk);
                }
            }
        })
    }
}
