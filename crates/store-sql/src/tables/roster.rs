//! Rosters, clustered by owner.
//!
//! An entry is read and decided on in the writer's transaction, and there is one writer, so no entry changes between
//! the two. Databases with several writers lock the account's row first ([`Dialect::for_update`]).

use std::collections::{BTreeMap, HashSet};

use jid::{Jid, JidRef};
use store::roster::{MAX_ROSTER_BYTES, is_visible_change, roster_too_large, run_update};
use store::{
    AddressId, BulkItem, BulkRoster, Roster, RosterEntry, RosterItem, RosterSize, RosterSnapshot,
    RosterUpdate, RosterUpdateFn, RosterUpdateOutcome, StoreError, StoreErrorKind, StoreFuture, Subscription,
};

use super::{TableStatements, address_dictionary, id, logins};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, SizedStatement, SqlRow, placeholders};
use crate::error::corrupt;
use crate::roster_label;
use crate::writer::DbTask;

/// Entries per transaction of a bulk load; about 30 ms.
const ROWS_PER_TRANSACTION: usize = 8192;

pub(crate) struct RosterStatements {
    get: String,
    /// One statement for reading, one for a read that precedes an update.
    entry: [String; 2],
    subscription: String,
    size: String,
    put: SizedStatement,
    delete: String,
    version: String,
    accounts: SizedStatement,
    contacts: SizedStatement,
    versions: SizedStatement,
}

impl TableStatements for RosterStatements {
    const OWNED_TABLES: &'static [&'static str] = &["roster"];

    fn new(d: &dyn Dialect) -> RosterStatements {
        RosterStatements {
            get: d.sql(&format!(
                "SELECT c.roster_version, {weight}, CASE WHEN {weight} <= {MAX_ROSTER_BYTES} THEN {} END \
                 FROM account c WHERE c.id = ?",
                logins::roster_lines(d, "c.id"),
                weight = logins::roster_weight("c.id")
            )),
            entry: ["", d.for_update()].map(|lock| {
                d.sql(&format!(
                    "SELECT c.roster_version, j.id, r.subscription, r.label, r.request FROM account c \
                     LEFT JOIN address j ON j.jid = ? LEFT JOIN roster r ON r.owner = c.id AND r.contact = j.id \
                     WHERE c.id = ?{lock}"
                ))
            }),
            subscription: d.sql(
                "SELECT r.subscription FROM address o JOIN address j ON j.jid = ? \
                 JOIN roster r ON r.owner = o.id AND r.contact = j.id WHERE o.jid = ?",
            ),
            size: d.sql(&format!(
                "SELECT count(r.contact), coalesce(sum((r.subscription & {}) <> 0), 0), \
                 coalesce(sum(octet_length(j.jid) + coalesce(octet_length(r.label), 0)), 0) FROM account c \
                 LEFT JOIN roster r ON r.owner = c.id LEFT JOIN address j ON j.id = r.contact \
                 WHERE c.id = ? GROUP BY c.id",
                Subscription::PENDING_IN.0
            )),
            put: SizedStatement::new(|n| {
                d.upsert("roster", &["owner", "contact"], &["subscription", "label", "request"], n)
            }),
            delete: d.sql("DELETE FROM roster WHERE owner = ? AND contact = ?"),
            version: d.sql("UPDATE account SET roster_version = ? WHERE id = ?"),
            accounts: SizedStatement::new(|n| d.sql(&format!("SELECT id FROM account WHERE id IN ({})", placeholders(n)))),
            contacts: SizedStatement::new(|n| d.sql(&format!("SELECT id FROM address WHERE id IN ({})", placeholders(n)))),
            versions: SizedStatement::new(|n| {
                d.sql(&format!(
                    "UPDATE account SET roster_version = roster_version + 1 WHERE id IN ({})",
                    placeholders(n)
                ))
            }),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![
            &self.get,
            &self.entry[0],
            &self.entry[1],
            &self.subscription,
            &self.size,
            &self.delete,
            &self.version,
            self.accounts.at_least(2).1,
            self.contacts.at_least(2).1,
            self.versions.at_least(2).1,
        ]
    }
}

fn no_account() -> StoreError {
    StoreError::new(StoreErrorKind::NotFound, "the account does not exist")
}

fn corrupt_entry() -> StoreError {
    corrupt("the database contains an invalid roster entry")
}

/// The number of the contact's address, and the entry.
fn entry(row: Option<SqlRow>, contact: &Jid) -> Result<(Option<AddressId>, RosterEntry), StoreError> {
    let row = row.ok_or_else(no_account)?;
    let known = row.optional_number(1)?.map(id).transpose()?;
    let item = match (known, row.optional_number(2)?) {
        (Some(number), Some(bits)) => {
            let (name, groups) =
                roster_label::decode(row.optional_bytes(3)?.unwrap_or_default()).ok_or_else(corrupt_entry)?;
            Some(RosterItem {
                contact: number,
                jid: contact.clone(),
                name,
                groups,
                subscription: subscription(bits)?,
                request: row.optional_bytes(4)?.map(<[u8]>::to_vec),
            })
        }
        _ => None,
    };
    Ok((known, RosterEntry { version: row.number(0)?, item }))
}

fn subscription(bits: u64) -> Result<Subscription, StoreError> {
    u8::try_from(bits).ok().and_then(Subscription::from_bits).ok_or_else(corrupt_entry)
}

async fn change(
    conn: &mut DbConnection,
    owner: AddressId,
    contact: &Jid,
    change: RosterUpdateFn,
) -> Result<RosterUpdateOutcome, StoreError> {
    let context = conn.context.clone();
    let owner = Arg::number(owner.get().into());
    let row =
        conn.fetch_optional(&context.sql.roster.entry[1], &[Arg::Text(contact.as_str()), owner]).await?;
    let (known, RosterEntry { mut version, item: before }) = entry(row, contact)?;
    let wanted = match run_update(change, before.clone())? {
        RosterUpdate::Keep => before.clone(),
        RosterUpdate::Delete => None,
        RosterUpdate::Put(item) => item.normalised(),
    };
    let after = match wanted {
        Some(item) => {
            // An address without references is not assigned a number.
            let contact_id = match known {
                Some(id) => id,
                None => address_dictionary::intern_one(conn, contact.as_str()).await?,
            };
            Some(RosterItem { contact: contact_id, jid: contact.clone(), ..item })
        }
        None => None,
    };
    if before == after {
        return Ok(RosterUpdateOutcome { before, after, version });
    }
    match (&after, known) {
        (Some(item), _) => {
            let label = roster_label::encode(item.name.as_deref(), &item.groups);
            let values = [
                owner,
                Arg::number(item.contact.get().into()),
                Arg::number(item.subscription.0.into()),
                Arg::optional_bytes(label.as_deref()),
                Arg::optional_bytes(item.request.as_deref()),
            ];
            conn.execute_rows(&context.sql.roster.put, 5, &values).await?;
        }
        (None, Some(contact)) => {
            conn.execute(&context.sql.roster.delete, &[owner, Arg::number(contact.get().into())]).await?;
        }
        (None, None) => {}
    }
    if is_visible_change(before.as_ref(), after.as_ref()) {
        version += 1;
        conn.execute(&context.sql.roster.version, &[Arg::number(version), owner]).await?;
    }
    Ok(RosterUpdateOutcome { before, after, version })
}

type EntryMap = BTreeMap<(AddressId, AddressId), BulkItem>;

/// Returns those of the numbers that are in the table that the statement queries.
async fn existing_entries(
    conn: &mut DbConnection,
    sql: &SizedStatement,
    ids: &HashSet<AddressId>,
) -> Result<HashSet<AddressId>, StoreError> {
    let mut ids: Vec<AddressId> = ids.iter().copied().collect();
    ids.sort_unstable();
    let args: Vec<Arg<'_>> = ids.iter().map(|id| Arg::number(id.get().into())).collect();
    let rows = conn.fetch_in(sql, &args).await?;
    rows.iter().map(|row| id(row.number(0)?)).collect()
}

async fn put_chunk(conn: &mut DbConnection, mut entries: EntryMap) -> Result<u64, StoreError> {
    let context = conn.context.clone();
    let owners = entries.keys().map(|(owner, _)| *owner).collect();
    let contacts = entries.keys().map(|(_, contact)| *contact).collect();
    let owners = existing_entries(conn, &context.sql.roster.accounts, &owners).await?;
    let contacts = existing_entries(conn, &context.sql.roster.contacts, &contacts).await?;
    entries.retain(|(owner, contact), _| owners.contains(owner) && contacts.contains(contact));

    let labels: Vec<Option<Vec<u8>>> =
        entries.values().map(|item| roster_label::encode(item.name.as_deref(), &item.groups)).collect();
    let mut values = Vec::with_capacity(entries.len() * 5);
    let mut touched: Vec<Arg<'_>> = Vec::new();
    let mut last = None;
    for (((owner, contact), item), label) in entries.iter().zip(&labels) {
        let number = Arg::number(owner.get().into());
        values.extend([
            number,
            Arg::number(contact.get().into()),
            Arg::number(item.subscription.0.into()),
            Arg::optional_bytes(label.as_deref()),
            Arg::Null,
        ]);
        if last.replace(*owner) != Some(*owner) {
            touched.push(number);
        }
    }
    conn.execute_rows(&context.sql.roster.put, 5, &values).await?;
    conn.execute_in(&context.sql.roster.versions, &touched).await?;
    Ok(entries.len() as u64)
}

/// The next chunk of whole rosters, later entries replacing earlier ones of the same contact.
fn next_chunk(rosters: &mut impl Iterator<Item = BulkRoster>) -> Option<EntryMap> {
    let mut entries = EntryMap::new();
    let mut any = false;
    while entries.len() < ROWS_PER_TRANSACTION {
        let Some(BulkRoster { owner, items }) = rosters.next() else { break };
        any = true;
        for mut item in items {
            if !item.subscription.contains(Subscription::IN_ROSTER) {
                (item.name, item.groups) = (None, Vec::new());
            }
            if item.subscription != Subscription::NONE {
                entries.insert((owner, item.contact), item);
            }
        }
    }
    any.then_some(entries)
}

impl Roster for SqlStores {
    fn get(&self, owner: AddressId) -> StoreFuture<'_, RosterSnapshot> {
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let context = conn.context.clone();
                let row =
                    conn.fetch_optional(&context.sql.roster.get, &[Arg::number(owner.get().into())]).await?;
                let row = row.ok_or_else(no_account)?;
                if row.number(1)? > MAX_ROSTER_BYTES {
                    return Err(roster_too_large());
                }
                Ok(RosterSnapshot { version: row.number(0)?, items: logins::roster(row.optional_text(2)?)? })
            })
        }))
    }

    fn entry(&self, owner: AddressId, contact: &Jid) -> StoreFuture<'_, RosterEntry> {
        let contact = contact.as_ref().bare().to_jid();
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let context = conn.context.clone();
                let args = [Arg::Text(contact.as_str()), Arg::number(owner.get().into())];
                let row = conn.fetch_optional(&context.sql.roster.entry[0], &args).await?;
                Ok(entry(row, &contact)?.1)
            })
        }))
    }

    fn subscription(&self, owner: JidRef<'_>, contact: JidRef<'_>) -> StoreFuture<'_, Subscription> {
        let (owner, contact) = (owner.bare().to_jid(), contact.bare().to_jid());
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let context = conn.context.clone();
                let args = [Arg::Text(contact.as_str()), Arg::Text(owner.as_str())];
                let row = conn.fetch_optional(&context.sql.roster.subscription, &args).await?;
                row.map_or(Ok(Subscription::NONE), |row| subscription(row.number(0)?))
            })
        }))
    }

    fn size(&self, owner: AddressId) -> StoreFuture<'_, RosterSize> {
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let context = conn.context.clone();
                let row =
                    conn.fetch_optional(&context.sql.roster.size, &[Arg::number(owner.get().into())]).await?;
                let row = row.ok_or_else(no_account)?;
                let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
                Ok(RosterSize {
                    contacts: count(row.number(0)?),
                    requests: count(row.number(1)?),
                    bytes: row.number(2)?,
                })
            })
        }))
    }

    fn update(
        &self,
        owner: AddressId,
        contact: &Jid,
        decision: RosterUpdateFn,
    ) -> StoreFuture<'_, RosterUpdateOutcome> {
        let contact = contact.as_ref().bare().to_jid();
        self.writer.call(
            512,
            Box::new(move |conn| Box::pin(async move { change(conn, owner, &contact, decision).await })),
        )
    }

    fn put_bulk(&self, rosters: Vec<BulkRoster>) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let mut rosters = rosters.into_iter();
            let mut stored = 0;
            while let Some(entries) = next_chunk(&mut rosters) {
                let bytes = entries.len() * 64;
                let work: DbTask<u64> =
                    Box::new(move |conn| Box::pin(async move { put_chunk(conn, entries).await }));
                stored += self.writer.call(bytes, work).await?;
            }
            Ok(stored)
        })
    }
}
