//! The dictionary of bare addresses.
//!
//! Numbers come from the database's own counter. They are looked up first and inserted only if missing, because some
//! databases use a number up even when the row is there already.
use std::collections::HashMap;

use jid::Jid;
use store::{AddressId, Addresses, Fut, StoreError};

use super::{address, bare, id};
use crate::SqlStores;
use crate::dialect::{Arg, Conn, Dialect, Sizes, marks};
use crate::fault::corrupt;
use crate::writer::Work;

pub(crate) struct Texts {
    find: Sizes,
    insert: Sizes,
    resolve: Sizes,
}

impl Texts {
    pub(crate) fn new(d: &dyn Dialect) -> Texts {
        Texts {
            find: Sizes::new(|n| d.sql(&format!("SELECT id, jid FROM address WHERE jid IN ({})", marks(n)))),
            insert: Sizes::new(|n| d.insert_new("address", &["jid"], n)),
            resolve: Sizes::new(|n| {
                d.sql(&format!("SELECT id, jid FROM address WHERE id IN ({})", marks(n)))
            }),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<&str> {
        vec![self.find.holding(2).1, self.resolve.holding(2).1]
    }
}

/// Numbers of addresses that have one.
pub(super) async fn find(
    conn: &mut Conn,
    names: &[&str],
) -> Result<HashMap<Box<str>, AddressId>, StoreError> {
    let args: Vec<Arg<'_>> = names.iter().copied().map(Arg::Text).collect();
    let kit = conn.kit.clone();
    let rows = conn.rows_in(&kit.addresses.find, &args).await?;
    rows.iter().map(|row| Ok((row.text(1)?.into(), id(row.number(0)?)?))).collect()
}

/// Numbers of all these addresses, given now where there are none. Inside the writer's transaction.
pub(super) async fn intern(
    conn: &mut Conn,
    names: &[&str],
) -> Result<HashMap<Box<str>, AddressId>, StoreError> {
    let mut known = find(conn, names).await?;
    let mut missing: Vec<&str> = names.iter().copied().filter(|name| !known.contains_key(*name)).collect();
    if missing.is_empty() {
        return Ok(known);
    }
    // In the order of the input, so that numbers are, too; without doubles.
    let mut seen = std::collections::HashSet::new();
    missing.retain(|name| seen.insert(*name));
    let args: Vec<Arg<'_>> = missing.iter().copied().map(Arg::Text).collect();
    let kit = conn.kit.clone();
    conn.run_rows(&kit.addresses.insert, 1, &args).await?;
    known.extend(find(conn, &missing).await?);
    Ok(known)
}

/// The number of one address, given now if there is none.
pub(super) async fn intern_one(conn: &mut Conn, name: &str) -> Result<AddressId, StoreError> {
    let known = intern(conn, &[name]).await?;
    known.get(name).copied().ok_or_else(|| corrupt("the database forgot an address"))
}

impl Addresses for SqlStores {
    fn resolve(&self, ids: &[AddressId]) -> Fut<'_, Vec<(AddressId, Jid)>> {
        let ids = ids.to_vec();
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let args: Vec<Arg<'_>> = ids.iter().map(|id| Arg::number(id.get().into())).collect();
                let kit = conn.kit.clone();
                let rows = conn.rows_in(&kit.addresses.resolve, &args).await?;
                rows.iter().map(|row| Ok((id(row.number(0)?)?, address(row.text(1)?)?))).collect()
            })
        }))
    }

    fn number(&self, address: &Jid) -> Fut<'_, AddressId> {
        let name = bare(address.as_ref());
        let found = self.find(address);
        Box::pin(async move {
            match found.await? {
                Some(id) => Ok(id),
                None => {
                    let write: Work<AddressId> =
                        Box::new(move |conn| Box::pin(async move { intern_one(conn, &name).await }));
                    self.writer.call(64, write).await
                }
            }
        })
    }

    fn numbers(&self, addresses: &[Jid]) -> Fut<'_, Vec<AddressId>> {
        let names: Vec<Box<str>> = addresses.iter().map(|address| bare(address.as_ref())).collect();
        let bytes = names.iter().map(|name| name.len() + 16).sum();
        let write: Work<Vec<AddressId>> = Box::new(move |conn| {
            Box::pin(async move {
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                let known = intern(conn, &names).await?;
                let lost = || corrupt("the database forgot an address");
                names.iter().map(|name| known.get(*name).copied().ok_or_else(lost)).collect()
            })
        });
        self.writer.call(bytes, write)
    }

    fn find(&self, address: &Jid) -> Fut<'_, Option<AddressId>> {
        let name = bare(address.as_ref());
        self.read(Box::new(move |conn| {
            Box::pin(async move { Ok(find(conn, &[&name]).await?.into_values().next()) })
        }))
    }
}
