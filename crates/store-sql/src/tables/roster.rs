//! Rosters, clustered by owner.
//!
//! Reading and deciding on an entry happen in the writer's transaction, and there is one writer, so no entry changes
//! between the two. Databases with several writers lock the account's row first ([`Dialect::lock_rows`]).
use std::collections::{BTreeMap, HashSet};

use jid::{Jid, JidRef};
use store::roster::{ROSTER_BYTES, decide, shown_differs, too_large};
use store::{
    AddressId, BulkItem, BulkRoster, Change, ChangeFn, Changed, ErrorKind, Fut, Roster, RosterEntry,
    RosterItem, RosterSize, RosterSnapshot, StoreError, Subscription,
};

use super::{addresses, id, logins};
use crate::SqlStores;
use crate::dialect::{Arg, Conn, Dialect, Row, Sizes, marks};
use crate::fault::corrupt;
use crate::label;
use crate::writer::Work;

/// Entries in one transaction of a bulk load; about 30 ms.
const CHUNK: usize = 8192;

pub(crate) struct Texts {
    get: String,
    /// For reading, and for changing what was read.
    entry: [String; 2],
    subscription: String,
    size: String,
    put: Sizes,
    delete: String,
    version: String,
    accounts: Sizes,
    contacts: Sizes,
    versions: Sizes,
}

impl Texts {
    pub(crate) fn new(d: &dyn Dialect) -> Texts {
        Texts {
            get: d.sql(&format!(
                "SELECT c.roster_version, {weight}, CASE WHEN {weight} <= {ROSTER_BYTES} THEN {} END \
                 FROM account c WHERE c.id = ?",
                logins::roster_lines(d, "c.id"),
                weight = logins::roster_weight("c.id")
            )),
            entry: ["", d.lock_rows()].map(|lock| {
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
            put: Sizes::new(|n| {
                d.upsert("roster", &["owner", "contact"], &["subscription", "label", "request"], n)
            }),
            delete: d.sql("DELETE FROM roster WHERE owner = ? AND contact = ?"),
            version: d.sql("UPDATE account SET roster_version = ? WHERE id = ?"),
            accounts: Sizes::new(|n| d.sql(&format!("SELECT id FROM account WHERE id IN ({})", marks(n)))),
            contacts: Sizes::new(|n| d.sql(&format!("SELECT id FROM address WHERE id IN ({})", marks(n)))),
            versions: Sizes::new(|n| {
                d.sql(&format!(
                    "UPDATE account SET roster_version = roster_version + 1 WHERE id IN ({})",
                    marks(n)
                ))
            }),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<&str> {
        vec![
            &self.get,
            &self.entry[0],
            &self.entry[1],
            &self.subscription,
            &self.size,
            &self.delete,
            &self.version,
            self.accounts.holding(2).1,
            self.contacts.holding(2).1,
            self.versions.holding(2).1,
        ]
    }
}

fn no_account() -> StoreError {
    StoreError::new(ErrorKind::NotFound, "there is no such account")
}

fn wrong() -> StoreError {
    corrupt("the database holds a wrong roster entry")
}

/// The number of the contact's address, and the entry.
fn entry(row: Option<Row>, contact: &Jid) -> Result<(Option<AddressId>, RosterEntry), StoreError> {
    let row = row.ok_or_else(no_account)?;
    let known = row.maybe_number(1)?.map(id).transpose()?;
    let item = match (known, row.maybe_number(2)?) {
        (Some(number), Some(bits)) => {
            let (name, groups) = label::decode(row.maybe_bytes(3)?.unwrap_or_default()).ok_or_else(wrong)?;
            Some(RosterItem {
                contact: number,
                jid: contact.clone(),
                name,
                groups,
                subscription: subscription(bits)?,
                request: row.maybe_bytes(4)?.map(<[u8]>::to_vec),
            })
        }
        _ => None,
    };
    Ok((known, RosterEntry { version: row.number(0)?, item }))
}

fn subscription(bits: u64) -> Result<Subscription, StoreError> {
    u8::try_from(bits).ok().and_then(Subscription::from_bits).ok_or_else(wrong)
}

async fn change(
    conn: &mut Conn,
    owner: AddressId,
    contact: &Jid,
    change: ChangeFn,
) -> Result<Changed, StoreError> {
    let kit = conn.kit.clone();
    let owner = Arg::number(owner.get().into());
    let row = conn.row(&kit.roster.entry[1], &[Arg::Text(contact.as_str()), owner]).await?;
    let (known, RosterEntry { mut version, item: before }) = entry(row, contact)?;
    let wanted = match decide(change, before.clone())? {
        Change::Keep => before.clone(),
        Change::Delete => None,
        Change::Put(item) => item.settled(),
    };
    let after = match wanted {
        Some(item) => {
            // An address that nothing refers to gets no number.
            let contact_id = match known {
                Some(id) => id,
                None => addresses::intern_one(conn, contact.as_str()).await?,
            };
            Some(RosterItem { contact: contact_id, jid: contact.clone(), ..item })
        }
        None => None,
    };
    if before == after {
        return Ok(Changed { before, after, version });
    }
    match (&after, known) {
        (Some(item), _) => {
            let label = label::encode(item.name.as_deref(), &item.groups);
            let values = [
                owner,
                Arg::number(item.contact.get().into()),
                Arg::number(item.subscription.0.into()),
                Arg::maybe_bytes(label.as_deref()),
                Arg::maybe_bytes(item.request.as_deref()),
            ];
            conn.run_rows(&kit.roster.put, 5, &values).await?;
        }
        (None, Some(contact)) => {
            conn.run(&kit.roster.delete, &[owner, Arg::number(contact.get().into())]).await?;
        }
        (None, None) => {}
    }
    if shown_differs(before.as_ref(), after.as_ref()) {
        version += 1;
        conn.run(&kit.roster.version, &[Arg::number(version), owner]).await?;
    }
    Ok(Changed { before, after, version })
}

type Entries = BTreeMap<(AddressId, AddressId), BulkItem>;

/// Which of these numbers are in the table that the statement asks.
async fn present(
    conn: &mut Conn,
    sql: &Sizes,
    ids: &HashSet<AddressId>,
) -> Result<HashSet<AddressId>, StoreError> {
    let mut ids: Vec<AddressId> = ids.iter().copied().collect();
    ids.sort_unstable();
    let args: Vec<Arg<'_>> = ids.iter().map(|id| Arg::number(id.get().into())).collect();
    let rows = conn.rows_in(sql, &args).await?;
    rows.iter().map(|row| id(row.number(0)?)).collect()
}

async fn put_chunk(conn: &mut Conn, mut entries: Entries) -> Result<u64, StoreError> {
    let kit = conn.kit.clone();
    let owners = entries.keys().map(|(owner, _)| *owner).collect();
    let contacts = entries.keys().map(|(_, contact)| *contact).collect();
    let owners = present(conn, &kit.roster.accounts, &owners).await?;
    let contacts = present(conn, &kit.roster.contacts, &contacts).await?;
    entries.retain(|(owner, contact), _| owners.contains(owner) && contacts.contains(contact));

    let labels: Vec<Option<Vec<u8>>> =
        entries.values().map(|item| label::encode(item.name.as_deref(), &item.groups)).collect();
    let mut values = Vec::with_capacity(entries.len() * 5);
    let mut touched: Vec<Arg<'_>> = Vec::new();
    let mut last = None;
    for (((owner, contact), item), label) in entries.iter().zip(&labels) {
        let number = Arg::number(owner.get().into());
        values.extend([
            number,
            Arg::number(contact.get().into()),
            Arg::number(item.subscription.0.into()),
            Arg::maybe_bytes(label.as_deref()),
            Arg::Null,
        ]);
        if last.replace(*owner) != Some(*owner) {
            touched.push(number);
        }
    }
    conn.run_rows(&kit.roster.put, 5, &values).await?;
    conn.run_in(&kit.roster.versions, &touched).await?;
    Ok(entries.len() as u64)
}

/// The next chunk of whole rosters, later entries replacing earlier ones of the same contact.
fn next_chunk(rosters: &mut impl Iterator<Item = BulkRoster>) -> Option<Entries> {
    let mut entries = Entries::new();
    let mut any = false;
    while entries.len() < CHUNK {
        let Some(BulkRoster { owner, items }) = rosters.next() else { break };
        any = true;
        for mut item in items {
            if !item.subscription.has(Subscription::IN_ROSTER) {
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
    fn get(&self, owner: AddressId) -> Fut<'_, RosterSnapshot> {
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let kit = conn.kit.clone();
                let row = conn.row(&kit.roster.get, &[Arg::number(owner.get().into())]).await?;
                let row = row.ok_or_else(no_account)?;
                if row.number(1)? > ROSTER_BYTES {
                    return Err(too_large());
                }
                Ok(RosterSnapshot { version: row.number(0)?, items: logins::roster(row.maybe_text(2)?)? })
            })
        }))
    }

    fn entry(&self, owner: AddressId, contact: &Jid) -> Fut<'_, RosterEntry> {
        let contact = contact.as_ref().bare().to_jid();
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let kit = conn.kit.clone();
                let args = [Arg::Text(contact.as_str()), Arg::number(owner.get().into())];
                let row = conn.row(&kit.roster.entry[0], &args).await?;
                Ok(entry(row, &contact)?.1)
            })
        }))
    }

    fn subscription(&self, owner: JidRef<'_>, contact: JidRef<'_>) -> Fut<'_, Subscription> {
        let (owner, contact) = (owner.bare().to_jid(), contact.bare().to_jid());
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let kit = conn.kit.clone();
                let args = [Arg::Text(contact.as_str()), Arg::Text(owner.as_str())];
                let row = conn.row(&kit.roster.subscription, &args).await?;
                row.map_or(Ok(Subscription::NONE), |row| subscription(row.number(0)?))
            })
        }))
    }

    fn size(&self, owner: AddressId) -> Fut<'_, RosterSize> {
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let kit = conn.kit.clone();
                let row = conn.row(&kit.roster.size, &[Arg::number(owner.get().into())]).await?;
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

    fn change(&self, owner: AddressId, contact: &Jid, decision: ChangeFn) -> Fut<'_, Changed> {
        let contact = contact.as_ref().bare().to_jid();
        self.writer.call(
            512,
            Box::new(move |conn| Box::pin(async move { change(conn, owner, &contact, decision).await })),
        )
    }

    fn put_bulk(&self, rosters: Vec<BulkRoster>) -> Fut<'_, u64> {
        Box::pin(async move {
            let mut rosters = rosters.into_iter();
            let mut stored = 0;
            while let Some(entries) = next_chunk(&mut rosters) {
                let bytes = entries.len() * 64;
                let work: Work<u64> =
                    Box::new(move |conn| Box::pin(async move { put_chunk(conn, entries).await }));
                stored += self.writer.call(bytes, work).await?;
            }
            Ok(stored)
        })
    }
}
