//! Dictionary of bare addresses.
//!
//! Numbers come from the database's own counter. They are looked up first and inserted only if missing, because some
//! databases consume a number even when the row exists already.

use std::collections::HashMap;

use jid::Jid;
use store::{AddressDictionary, AddressId, StoreError, StoreFuture};

use super::{TableStatements, address, bare, id};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, RowsStatement, SizedStatement, placeholders};
use crate::error::corrupt;
use crate::writer::Owner;

pub(crate) struct AddressStatements {
    find: SizedStatement,
    insert: RowsStatement,
    resolve: SizedStatement,
}

impl TableStatements for AddressStatements {
    fn new(d: &dyn Dialect) -> AddressStatements {
        AddressStatements {
            find: SizedStatement::new(|n| {
                d.sql(&format!("SELECT id, jid FROM address WHERE jid IN ({})", placeholders(n)))
            }),
            insert: RowsStatement::insert_new(d, "address", &["jid"]),
            resolve: SizedStatement::new(|n| {
                d.sql(&format!("SELECT id, jid FROM address WHERE id IN ({})", placeholders(n)))
            }),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![self.find.at_least(2).1, self.resolve.at_least(2).1]
    }
}

/// Looks up the numbers of addresses that have one.
pub(super) async fn find(
    conn: &mut DbConnection,
    names: &[&str],
) -> Result<HashMap<Box<str>, AddressId>, StoreError> {
    let args: Vec<Arg<'_>> = names.iter().copied().map(Arg::Text).collect();
    let context = conn.context.clone();
    let rows = conn.fetch_in(&context.sql.address_dictionary.find, &args).await?;
    rows.iter().map(|row| Ok((row.text(1)?.into(), id(row.number(0)?)?))).collect()
}

/// Looks up the addresses of numbers that have one.
pub(super) async fn resolve(
    conn: &mut DbConnection,
    numbers: &[u32],
) -> Result<HashMap<u32, Jid>, StoreError> {
    let args: Vec<Arg<'_>> = numbers.iter().map(|number| Arg::number((*number).into())).collect();
    let context = conn.context.clone();
    let rows = conn.fetch_in(&context.sql.address_dictionary.resolve, &args).await?;
    rows.iter().map(|row| Ok((id(row.number(0)?)?.get(), address(row.text(1)?)?))).collect()
}

/// Looks up the numbers of all these addresses and assigns missing ones. Runs inside the writer's transaction.
pub(super) async fn intern(
    conn: &mut DbConnection,
    names: &[&str],
) -> Result<HashMap<Box<str>, AddressId>, StoreError> {
    let mut known = find(conn, names).await?;
    let mut missing: Vec<&str> = names.iter().copied().filter(|name| !known.contains_key(*name)).collect();
    if missing.is_empty() {
        return Ok(known);
    }
    // In the order of the input, so that the numbers of SQLite are, too; without duplicates.
    let mut seen = std::collections::HashSet::new();
    missing.retain(|name| seen.insert(*name));
    let context = conn.context.clone();
    if context.dialect.lock_rows().is_some() {
        // Transactions that insert the same addresses in different orders would deadlock.
        missing.sort_unstable();
    }
    let args: Vec<Arg<'_>> = missing.iter().copied().map(Arg::Text).collect();
    conn.execute_rows(&context.sql.address_dictionary.insert, 1, &args).await?;
    known.extend(find(conn, &missing).await?);
    Ok(known)
}

/// Looks up the number of one address and assigns it if missing.
pub(super) async fn intern_one(conn: &mut DbConnection, name: &str) -> Result<AddressId, StoreError> {
    let known = intern(conn, &[name]).await?;
    known.get(name).copied().ok_or_else(|| corrupt("an inserted address is missing from the database"))
}

impl AddressDictionary for SqlStores {
    fn resolve(&self, ids: &[AddressId]) -> StoreFuture<'_, Vec<(AddressId, Jid)>> {
        let ids = ids.to_vec();
        self.read(ids, |conn, ids| {
            Box::pin(async move {
                let args: Vec<Arg<'_>> = ids.iter().map(|id| Arg::number(id.get().into())).collect();
                let context = conn.context.clone();
                let rows = conn.fetch_in(&context.sql.address_dictionary.resolve, &args).await?;
                rows.iter().map(|row| Ok((id(row.number(0)?)?, address(row.text(1)?)?))).collect()
            })
        })
    }

    fn intern(&self, address: &Jid) -> StoreFuture<'_, AddressId> {
        let name = bare(address.as_ref());
        let found = self.find(address);
        Box::pin(async move {
            match found.await? {
                Some(id) => Ok(id),
                None => {
                    self.writer
                        .call(Owner::None, 64, name, |conn, name| Box::pin(intern_one(conn, name)))
                        .await
                }
            }
        })
    }

    fn intern_many(&self, addresses: &[Jid]) -> StoreFuture<'_, Vec<AddressId>> {
        let names: Vec<Box<str>> = addresses.iter().map(|address| bare(address.as_ref())).collect();
        let bytes = names.iter().map(|name| name.len() + 16).sum();
        self.writer.call(Owner::None, bytes, names, |conn, names| {
            Box::pin(async move {
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                let known = intern(conn, &names).await?;
                let lost = || corrupt("an inserted address is missing from the database");
                names.iter().map(|name| known.get(*name).copied().ok_or_else(lost)).collect()
            })
        })
    }

    fn find(&self, address: &Jid) -> StoreFuture<'_, Option<AddressId>> {
        let name = bare(address.as_ref());
        self.read(name, |conn, name| {
            Box::pin(async move { Ok(find(conn, &[&**name]).await?.into_values().next()) })
        })
    }
}
