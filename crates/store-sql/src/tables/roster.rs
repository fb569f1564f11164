//! Rosters, clustered by owner.
//!
//! An entry is read and decided on in a transaction that holds the lock of the account, so no entry changes between the
//! two. Updates of many callers are merged by the writer ([`update_many`]).

use std::collections::{BTreeMap, HashMap, HashSet};

use jid::{Jid, JidRef};
use store::roster::{MAX_ROSTER_BYTES, is_visible_change, roster_too_large};
use store::{
    AddressId, BulkItem, BulkRoster, Roster, RosterEntry, RosterItem, RosterSize, RosterSnapshot,
    RosterUpdate, RosterUpdateFn, RosterUpdateOutcome, StoreError, StoreErrorKind, StoreFuture, Subscription,
};

use super::logins::CONTACT_JID;
use super::{TableStatements, address, address_dictionary, id, logins};
use crate::SqlStores;
use crate::dialect::{
    Arg, DbConnection, Dialect, RowStatement, RowsStatement, SizedStatement, SqlRow, placeholders,
};
use crate::error::corrupt;
use crate::roster_label;
use crate::writer::Owner;
use crate::writer::jobs::RosterRequest;

/// Entries per transaction of a bulk load; about 30 ms.
const ROWS_PER_TRANSACTION: usize = 8192;

pub(crate) struct RosterStatements {
    get: String,
    entry: String,
    subscription: String,
    size: String,
    put: RowsStatement,
    account_versions: SizedStatement,
    entries: SizedStatement,
    delete: SizedStatement,
    version: RowStatement,
    accounts: SizedStatement,
    contacts: SizedStatement,
    versions: SizedStatement,
}

impl TableStatements for RosterStatements {
    const OWNED_TABLES: &'static [&'static str] = &["roster"];

    fn new(d: &dyn Dialect) -> RosterStatements {
        RosterStatements {
            // Rows rather than one text: servers limit the length of a value, and only short texts are worth joining.
            get: d.sql(&format!(
                "SELECT c.roster_version, {weight}, r.contact, r.subscription, r.label, r.request, {CONTACT_JID} \
                 FROM account c LEFT JOIN roster r ON r.owner = c.id AND {weight} <= {MAX_ROSTER_BYTES} \
                 WHERE c.id = ?",
                weight = logins::roster_weight(d, "?")
            )),
            entry: d.sql(
                "SELECT c.roster_version, j.id, r.subscription, r.label, r.request FROM account c \
                 LEFT JOIN address j ON j.jid = ? LEFT JOIN roster r ON r.owner = c.id AND r.contact = j.id \
                 WHERE c.id = ?",
            ),
            // Not a join, for which small rosters would be read as a whole.
            subscription: d.sql(
                "SELECT subscription FROM roster WHERE contact = (SELECT id FROM address WHERE jid = ?) \
                 AND owner = (SELECT id FROM address WHERE jid = ?)",
            ),
            size: d.sql(&format!(
                "SELECT count(r.contact), {}, {} FROM account c \
                 LEFT JOIN roster r ON r.owner = c.id WHERE c.id = ? GROUP BY c.id",
                d.sum(&format!(
                    "CASE WHEN (r.subscription & {}) <> 0 THEN 1 ELSE 0 END",
                    Subscription::PENDING_IN.0
                )),
                d.sum(&format!("octet_length({CONTACT_JID}) + coalesce(octet_length(r.label), 0)"))
            )),
            put: RowsStatement::upsert(
                d,
                "roster",
                &["owner", "contact"],
                &["subscription", "label", "request"],
            ),
            account_versions: SizedStatement::new(|n| {
                d.sql(&format!("SELECT id, roster_version FROM account WHERE id IN ({})", placeholders(n)))
            }),
            entries: SizedStatement::new(|n| {
                d.sql(&format!(
                    "SELECT owner, contact, subscription, label, request FROM roster WHERE {}",
                    vec![KEY; n].join(" OR ")
                ))
            }),
            delete: SizedStatement::new(|n| {
                d.sql(&format!("DELETE FROM roster WHERE {}", vec![KEY; n].join(" OR ")))
            }),
            version: RowStatement::new(d, "UPDATE account SET roster_version = ? WHERE id = ?"),
            accounts: SizedStatement::new(|n| {
                d.sql(&format!("SELECT id FROM account WHERE id IN ({})", placeholders(n)))
            }),
            contacts: SizedStatement::new(|n| {
                d.sql(&format!("SELECT id FROM address WHERE id IN ({})", placeholders(n)))
            }),
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
            &self.entry,
            &self.subscription,
            &self.size,
            self.account_versions.at_least(2).1,
            self.entries.at_least(2).1,
            self.delete.at_least(2).1,
            self.version.text(),
            self.accounts.at_least(2).1,
            self.contacts.at_least(2).1,
            self.versions.at_least(2).1,
        ]
    }
}

const KEY: &str = "(owner = ? AND contact = ?)";

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

/// An entry of a whole roster; `None` for the row of an account without entries.
fn item(row: &SqlRow) -> Result<Option<RosterItem>, StoreError> {
    let Some(contact) = row.optional_number(2)? else { return Ok(None) };
    let (name, groups) =
        roster_label::decode(row.optional_bytes(4)?.unwrap_or_default()).ok_or_else(corrupt_entry)?;
    Ok(Some(RosterItem {
        contact: id(contact)?,
        jid: address(row.text(6)?)?,
        name,
        groups,
        subscription: subscription(row.number(3)?)?,
        request: row.optional_bytes(5)?.map(<[u8]>::to_vec),
    }))
}

fn subscription(bits: u64) -> Result<Subscription, StoreError> {
    u8::try_from(bits).ok().and_then(Subscription::from_bits).ok_or_else(corrupt_entry)
}

/// Updates entries for many callers, in their order: each sees the results of those before it. Runs inside the writer's
/// transaction.
pub(crate) async fn update_many(
    conn: &mut DbConnection,
    updates: &mut [RosterRequest],
) -> Result<(), StoreError> {
    let keys: Vec<(AddressId, Jid)> =
        updates.iter().map(|update| (update.owner, update.contact.clone())).collect();
    let mut rosters = read_entries(conn, &keys).await?;
    let mut changed: BTreeMap<(AddressId, Jid), Option<RosterItem>> = BTreeMap::new();
    let mut new: Vec<Jid> = Vec::new();
    for update in updates.iter_mut() {
        let result = update_one(&mut rosters, update);
        if let Ok((outcome, true)) = &result {
            let after = outcome.after.clone();
            if after.as_ref().is_some_and(|item| item.contact == AddressId::UNASSIGNED) {
                new.push(update.contact.clone());
            }
            changed.insert((update.owner, update.contact.clone()), after);
        }
        update.set_result(result.map(|(outcome, _)| outcome));
    }
    if changed.is_empty() {
        return Ok(());
    }
    // An address without references is not assigned a number.
    if !new.is_empty() {
        let names: Vec<&str> = new.iter().map(Jid::as_str).collect();
        let known = address_dictionary::intern(conn, &names).await?;
        rosters.numbers.extend(known);
        for update in updates.iter_mut() {
            update.assign_number(rosters.numbers.get(update.contact.as_str()).copied());
        }
    }
    write_entries(conn, &rosters, &changed).await?;
    let context = conn.context.clone();
    let (mut once, mut several) = (Vec::new(), Vec::new());
    for (owner, (before, after)) in &rosters.versions {
        let number = Arg::number(owner.get().into());
        match after - before {
            0 => {}
            1 => once.push(number),
            _ => several.extend([Arg::number(*after), number]),
        }
    }
    conn.execute_each(&context.sql.roster.version, &several).await?;
    conn.execute_in(&context.sql.roster.versions, &once).await.map(drop)
}

/// The entries that a group of updates concerns.
struct AffectedEntries {
    /// Versions of the rosters, as read and after the updates so far.
    versions: BTreeMap<AddressId, (u64, u64)>,
    numbers: HashMap<Box<str>, AddressId>,
    entries: HashMap<(AddressId, Jid), RosterItem>,
}

async fn read_entries(
    conn: &mut DbConnection,
    updates: &[(AddressId, Jid)],
) -> Result<AffectedEntries, StoreError> {
    let context = conn.context.clone();
    let mut names: Vec<&str> = updates.iter().map(|(_, contact)| contact.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let numbers = address_dictionary::find(conn, &names).await?;
    let mut owners: Vec<AddressId> = updates.iter().map(|(owner, _)| *owner).collect();
    owners.sort_unstable();
    owners.dedup();
    let owners: Vec<Arg<'_>> = owners.iter().map(|owner| Arg::number(owner.get().into())).collect();
    let mut versions = BTreeMap::new();
    for row in conn.fetch_in(&context.sql.roster.account_versions, &owners).await? {
        let version = row.number(1)?;
        versions.insert(id(row.number(0)?)?, (version, version));
    }
    let mut keys: BTreeMap<(AddressId, AddressId), &Jid> = BTreeMap::new();
    for (owner, contact) in updates {
        if let Some(number) = numbers.get(contact.as_str()) {
            keys.insert((*owner, *number), contact);
        }
    }
    let args: Vec<Arg<'_>> = keys
        .keys()
        .flat_map(|(owner, contact)| [owner, contact].map(|id| Arg::number(id.get().into())))
        .collect();
    let mut entries = HashMap::new();
    for row in conn.fetch_pairs(&context.sql.roster.entries, &args).await? {
        let (owner, contact) = (id(row.number(0)?)?, id(row.number(1)?)?);
        let Some(jid) = keys.get(&(owner, contact)) else { continue };
        let (name, groups) =
            roster_label::decode(row.optional_bytes(3)?.unwrap_or_default()).ok_or_else(corrupt_entry)?;
        let item = RosterItem {
            contact,
            jid: (*jid).clone(),
            name,
            groups,
            subscription: subscription(row.number(2)?)?,
            request: row.optional_bytes(4)?.map(<[u8]>::to_vec),
        };
        entries.insert((owner, (*jid).clone()), item);
    }
    Ok(AffectedEntries { versions, numbers, entries })
}

/// The outcome of one update, and whether it changes anything.
fn update_one(
    rosters: &mut AffectedEntries,
    update: &mut RosterRequest,
) -> Result<(RosterUpdateOutcome, bool), StoreError> {
    let version = &mut rosters.versions.get_mut(&update.owner).ok_or_else(no_account)?.1;
    let key = (update.owner, update.contact.clone());
    let before = rosters.entries.get(&key).cloned();
    let wanted = match update.decide(before.as_ref())? {
        RosterUpdate::Keep => before.clone(),
        RosterUpdate::Delete => None,
        RosterUpdate::Put(item) => item.normalised(),
    };
    let contact = rosters.numbers.get(update.contact.as_str()).copied().unwrap_or(AddressId::UNASSIGNED);
    let after = wanted.map(|item| RosterItem { contact, jid: update.contact.clone(), ..item });
    if before == after {
        return Ok((RosterUpdateOutcome { before, after, version: *version }, false));
    }
    match &after {
        Some(item) => drop(rosters.entries.insert(key, item.clone())),
        None => drop(rosters.entries.remove(&key)),
    }
    if is_visible_change(before.as_ref(), after.as_ref()) {
        *version += 1;
    }
    Ok((RosterUpdateOutcome { before, after, version: *version }, true))
}

async fn write_entries(
    conn: &mut DbConnection,
    rosters: &AffectedEntries,
    changed: &BTreeMap<(AddressId, Jid), Option<RosterItem>>,
) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let label = |item: &RosterItem| roster_label::encode(item.name.as_deref(), &item.groups);
    let labels: Vec<Option<Vec<u8>>> = changed.values().map(|item| item.as_ref().and_then(label)).collect();
    let (mut put, mut deleted) = (Vec::new(), Vec::new());
    for (((owner, contact), item), label) in changed.iter().zip(&labels) {
        // An entry without a number was added and deleted by the same group.
        let Some(number) = rosters.numbers.get(contact.as_str()) else { continue };
        let key = [*owner, *number].map(|id| Arg::number(id.get().into()));
        match item {
            None => deleted.extend(key),
            Some(item) => {
                put.extend(key);
                put.extend([
                    Arg::number(item.subscription.0.into()),
                    Arg::optional_bytes(label.as_deref()),
                    Arg::optional_bytes(item.request.as_deref()),
                ]);
            }
        }
    }
    conn.execute_rows(&context.sql.roster.put, 5, &put).await?;
    conn.execute_pairs(&context.sql.roster.delete, &deleted).await.map(drop)
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

async fn put_chunk(conn: &mut DbConnection, entries: &EntryMap) -> Result<u64, StoreError> {
    let context = conn.context.clone();
    let owners = entries.keys().map(|(owner, _)| *owner).collect();
    let contacts = entries.keys().map(|(_, contact)| *contact).collect();
    let owners = existing_entries(conn, &context.sql.roster.accounts, &owners).await?;
    let contacts = existing_entries(conn, &context.sql.roster.contacts, &contacts).await?;
    let entries: Vec<(AddressId, AddressId, &BulkItem)> = entries
        .iter()
        .filter(|((owner, contact), _)| owners.contains(owner) && contacts.contains(contact))
        .map(|((owner, contact), item)| (*owner, *contact, item))
        .collect();

    let labels: Vec<Option<Vec<u8>>> =
        entries.iter().map(|(_, _, item)| roster_label::encode(item.name.as_deref(), &item.groups)).collect();
    let mut values = Vec::with_capacity(entries.len() * 5);
    let mut touched: Vec<Arg<'_>> = Vec::new();
    let mut last = None;
    for ((owner, contact, item), label) in entries.iter().zip(&labels) {
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
        self.read(owner, |conn, owner| {
            Box::pin(async move {
                let context = conn.context.clone();
                let rows =
                    conn.fetch_all(&context.sql.roster.get, &[Arg::number(owner.get().into()); 3]).await?;
                let first = rows.first().ok_or_else(no_account)?;
                if first.number(1)? > MAX_ROSTER_BYTES {
                    return Err(roster_too_large());
                }
                let items: Result<Vec<RosterItem>, StoreError> =
                    rows.iter().filter_map(|row| item(row).transpose()).collect();
                let mut items = items?;
                items.sort_unstable_by_key(|item| item.contact);
                Ok(RosterSnapshot { version: first.number(0)?, items })
            })
        })
    }

    fn entry(&self, owner: AddressId, contact: &Jid) -> StoreFuture<'_, RosterEntry> {
        let contact = contact.as_ref().bare().to_jid();
        self.read((owner, contact), |conn, (owner, contact)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let args = [Arg::Text(contact.as_str()), Arg::number(owner.get().into())];
                let row = conn.fetch_optional(&context.sql.roster.entry, &args).await?;
                Ok(entry(row, contact)?.1)
            })
        })
    }

    fn subscription(&self, owner: JidRef<'_>, contact: JidRef<'_>) -> StoreFuture<'_, Subscription> {
        let (owner, contact) = (owner.bare().to_jid(), contact.bare().to_jid());
        self.read((owner, contact), |conn, (owner, contact)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let args = [Arg::Text(contact.as_str()), Arg::Text(owner.as_str())];
                let row = conn.fetch_optional(&context.sql.roster.subscription, &args).await?;
                row.map_or(Ok(Subscription::NONE), |row| subscription(row.number(0)?))
            })
        })
    }

    fn size(&self, owner: AddressId) -> StoreFuture<'_, RosterSize> {
        self.read(owner, |conn, owner| {
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
        })
    }

    fn update(
        &self,
        owner: AddressId,
        contact: &Jid,
        decision: RosterUpdateFn,
    ) -> StoreFuture<'_, RosterUpdateOutcome> {
        let contact = contact.as_ref().bare().to_jid();
        self.writer.update_roster(owner, contact, decision)
    }

    fn put_bulk(&self, rosters: Vec<BulkRoster>) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let mut rosters = rosters.into_iter();
            let mut next = next_chunk(&mut rosters);
            let mut stored = 0;
            // Some writers get two of them, and others none.
            let most = match self.writer.count() {
                1 => 1,
                writers => 2 * writers,
            };
            while next.is_some() {
                // Writers work at the same time. Two chunks of one owner would not keep their order.
                let (mut queued, mut queued_owners) = (Vec::new(), HashSet::new());
                while let Some(entries) = next.take_if(|entries| {
                    queued.len() < most && entries.keys().all(|(owner, _)| !queued_owners.contains(owner))
                }) {
                    queued_owners.extend(entries.keys().map(|(owner, _)| *owner));
                    queued.push(self.put_entries(entries));
                    next = next_chunk(&mut rosters);
                }
                for written in queued {
                    stored += written.await?;
                }
            }
            Ok(stored)
        })
    }
}

impl SqlStores {
    /// Queues a chunk; the result is awaited separately.
    fn put_entries(&self, entries: EntryMap) -> StoreFuture<'_, u64> {
        let bytes = entries.len() * 64;
        let mut owners: Vec<AddressId> = entries.keys().map(|(owner, _)| *owner).collect();
        owners.dedup();
        self.writer.call(Owner::Ids(owners.into()), bytes, entries, |conn, entries| {
            Box::pin(put_chunk(conn, entries))
        })
    }
}
