//! Offline messages, and the narrow table that counts them.
//!
//! Appends of many callers are merged by the writer: one read of the counters, one insert of many rows, one update of
//! the counters. `inbox.waiting` and `inbox.bytes` are exact inside a transaction; they save counting rows that carry
//! whole stanzas. The usage of one sender is counted only for an account that holds more than one sender's share.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use base::BoxFuture;
use store::{
    AddressId, AppendOutcome, Offline, OfflineMessage, Page, Paged, Quota, QuotaUsage, StoreError,
    StoreFuture, StoredMessage,
};

use super::{TableStatements, accounts, id};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, RowStatement, RowsStatement, SizedStatement, placeholders};
use crate::writer::Owner;
use crate::writer::jobs::{MergeableRequest, PendingReply};

pub(crate) struct OfflineStatements {
    counters: SizedStatement,
    insert: RowsStatement,
    count_up: RowsStatement,
    expire_owner: String,
    expired_of_owner: String,
    of_sender: String,
    fetch: String,
    remove_range: RowStatement,
    count_range: RowStatement,
    count_down: RowStatement,
    count: String,
    expired: String,
    remove: SizedStatement,
}

impl TableStatements for OfflineStatements {
    const OWNED_TABLES: &'static [&'static str] = &["offline", "inbox"];

    fn new(d: &dyn Dialect) -> OfflineStatements {
        let bytes = d.sum("length(stanza)");
        let columns = ["owner", "seq", "stored_at", "expires", "sender", "stanza"];
        OfflineStatements {
            counters: SizedStatement::new(|n| {
                d.sql(&format!(
                    "SELECT c.id, c.created_at, i.last_seq, i.waiting, i.bytes FROM account c \
                     LEFT JOIN inbox i ON i.owner = c.id WHERE c.id IN ({})",
                    placeholders(n)
                ))
            }),
            insert: RowsStatement::insert(d, "offline", &columns),
            count_up: RowsStatement::upsert(d, "inbox", &["owner"], &["last_seq", "waiting", "bytes"]),
            expire_owner: d.sql("DELETE FROM offline WHERE owner = ? AND expires <= ?"),
            expired_of_owner: d.sql(&format!("SELECT {bytes} FROM offline WHERE owner = ? AND expires <= ?")),
            of_sender: d
                .sql(&format!("SELECT count(*), {bytes} FROM offline WHERE owner = ? AND sender = ?")),
            fetch: d.sql(
                "SELECT seq, stored_at, expires, stanza FROM offline \
                 WHERE owner = ? AND seq > ? AND (expires IS NULL OR expires > ?) ORDER BY seq LIMIT ?",
            ),
            remove_range: RowStatement::new(
                d,
                "DELETE FROM offline WHERE owner = ? AND seq >= ? AND seq <= ?",
            ),
            count_range: RowStatement::new(
                d,
                &format!(
                    "SELECT min(owner), count(*), {bytes} FROM offline WHERE owner = ? AND seq >= ? AND seq <= ?"
                ),
            ),
            count_down: RowStatement::new(
                d,
                "UPDATE inbox SET waiting = waiting - ?, bytes = bytes - ? WHERE owner = ?",
            ),
            count: d.sql("SELECT waiting FROM inbox WHERE owner = ?"),
            expired: d.sql(
                "SELECT owner, seq, length(stanza) FROM offline WHERE expires <= ? ORDER BY expires LIMIT ?",
            ),
            remove: SizedStatement::new(|n| {
                let one = "(owner = ? AND seq = ?)";
                d.sql(&format!("DELETE FROM offline WHERE {}", vec![one; n].join(" OR ")))
            }),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![
            self.counters.at_least(2).1,
            &self.expire_owner,
            &self.expired_of_owner,
            &self.of_sender,
            &self.fetch,
            self.remove_range.text(),
            self.count_range.text(),
            self.count_down.text(),
            &self.count,
            &self.expired,
            self.remove.at_least(2).1,
        ]
    }
}

struct InboxCounter {
    last_seq: u64,
    usage: QuotaUsage,
    touched: bool,
    swept: bool,
}

/// Appends for many callers; one list of results each. Runs inside the writer's transaction.
pub(crate) async fn append(
    conn: &mut DbConnection,
    batches: &[(Vec<OfflineMessage>, Quota)],
) -> Result<Vec<Vec<AppendOutcome>>, StoreError> {
    let context = conn.context.clone();
    let mut counters = counters(conn, batches).await?;
    let mut answers = Vec::with_capacity(batches.len());
    let mut rows: Vec<(u64, &OfflineMessage)> = Vec::new();
    // Usage of the senders that had to be counted, including what this transaction adds.
    let mut senders: HashMap<(AddressId, u64), QuotaUsage> = HashMap::new();
    for (messages, quota) in batches {
        let mut done = Vec::with_capacity(messages.len());
        for message in messages {
            let Some(counter) = counters.get_mut(&message.owner) else {
                done.push(AppendOutcome::NoAccount);
                continue;
            };
            let size = message.stanza.len() as u64;
            if !quota.has_room(counter.usage, size) && !counter.swept {
                let args = [Arg::number(message.owner.get().into()), Arg::number(message.stored_at)];
                let bytes = conn.fetch_optional(&context.sql.offline.expired_of_owner, &args).await?;
                let bytes = bytes.map_or(Ok(0), |row| row.number(0))?;
                let gone = conn.execute(&context.sql.offline.expire_owner, &args).await?;
                counter.usage.messages = counter.usage.messages.saturating_sub(gone);
                counter.usage.bytes = counter.usage.bytes.saturating_sub(bytes);
                counter.touched |= gone > 0;
                counter.swept = true;
            }
            if !quota.has_room(counter.usage, size) {
                done.push(AppendOutcome::Full);
                continue;
            }
            let sender = (message.owner, message.sender);
            if quota.needs_sender_usage(message.sender, counter.usage, size) {
                let held = match senders.get(&sender) {
                    Some(held) => *held,
                    None => {
                        let args = [message.owner.get().into(), message.sender].map(Arg::number);
                        let row = conn.fetch_optional(&context.sql.offline.of_sender, &args).await?;
                        let mut held = QuotaUsage::default();
                        if let Some(row) = row {
                            held = QuotaUsage { messages: row.number(0)?, bytes: row.number(1)? };
                        }
                        // Rows of this transaction are not written yet.
                        for (_, row) in rows.iter().filter(|(_, row)| (row.owner, row.sender) == sender) {
                            held.add(row.stanza.len() as u64);
                        }
                        senders.insert(sender, held);
                        held
                    }
                };
                if !quota.sender_has_room(held, size) {
                    done.push(AppendOutcome::SenderFull);
                    continue;
                }
            }
            if let Some(held) = senders.get_mut(&sender) {
                held.add(size);
            }
            counter.last_seq += 1;
            counter.usage.add(size);
            counter.touched = true;
            rows.push((counter.last_seq, message));
            done.push(AppendOutcome::Stored { seq: counter.last_seq });
        }
        answers.push(done);
    }
    let mut values = Vec::with_capacity(rows.len() * 6);
    for (seq, message) in rows {
        values.extend([
            Arg::number(message.owner.get().into()),
            Arg::number(seq),
            Arg::number(message.stored_at),
            Arg::optional_number(message.expires),
            Arg::number(message.sender),
            Arg::Bytes(&message.stanza),
        ]);
    }
    conn.execute_rows(&context.sql.offline.insert, 6, &values).await?;
    let touched = counters.iter().filter(|(_, counter)| counter.touched);
    let values: Vec<Arg<'_>> = touched
        .flat_map(|(owner, counter)| {
            [owner.get().into(), counter.last_seq, counter.usage.messages, counter.usage.bytes]
                .map(Arg::number)
        })
        .collect();
    conn.execute_rows(&context.sql.offline.count_up, 4, &values).await?;
    Ok(answers)
}

async fn counters(
    conn: &mut DbConnection,
    batches: &[(Vec<OfflineMessage>, Quota)],
) -> Result<BTreeMap<AddressId, InboxCounter>, StoreError> {
    let mut owners: Vec<AddressId> =
        batches.iter().flat_map(|(messages, _)| messages.iter().map(|message| message.owner)).collect();
    owners.sort_unstable();
    owners.dedup();
    let args: Vec<Arg<'_>> = owners.iter().map(|owner| Arg::number(owner.get().into())).collect();
    let context = conn.context.clone();
    let mut counters = BTreeMap::new();
    for row in conn.fetch_in(&context.sql.offline.counters, &args).await? {
        let first = store::accounts::first_sequence_number(row.number(1)?);
        let counter = InboxCounter {
            last_seq: row.optional_number(2)?.unwrap_or(first),
            usage: QuotaUsage {
                messages: row.optional_number(3)?.unwrap_or(0),
                bytes: row.optional_number(4)?.unwrap_or(0),
            },
            touched: false,
            swept: false,
        };
        counters.insert(id(row.number(0)?)?, counter);
    }
    Ok(counters)
}

/// A request to remove stored messages of an account.
pub(crate) struct RemovalRequest {
    pub(crate) owner: AddressId,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The number of removed messages.
    pub(crate) reply: PendingReply<u32>,
}

impl MergeableRequest for RemovalRequest {
    type Output = u32;

    fn owner(&self) -> Owner {
        Owner::Id(self.owner)
    }

    fn reply(&self) -> &PendingReply<u32> {
        &self.reply
    }

    fn into_reply(self) -> PendingReply<u32> {
        self.reply
    }

    fn run_all<'a>(
        conn: &'a mut DbConnection,
        requests: &'a mut [RemovalRequest],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(remove_many(conn, requests))
    }
}

/// Removes messages for many callers. Two ranges of one account may overlap, so the later one is counted after the
/// removal of the other.
async fn remove_many(conn: &mut DbConnection, requests: &mut [RemovalRequest]) -> Result<(), StoreError> {
    let mut rest = requests;
    while !rest.is_empty() {
        let mut owners = HashSet::new();
        let end = rest.iter().position(|request| !owners.insert(request.owner)).unwrap_or(rest.len());
        let (now, later) = std::mem::take(&mut rest).split_at_mut(end);
        remove_ranges(conn, now).await?;
        rest = later;
    }
    Ok(())
}

/// Removes messages of accounts of which each occurs once.
async fn remove_ranges(conn: &mut DbConnection, requests: &mut [RemovalRequest]) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let sql = &context.sql.offline;
    let range = |request: &RemovalRequest| {
        [u64::from(request.owner.get()), request.first, request.last].map(Arg::number)
    };
    let ranges: Vec<Arg<'_>> = requests.iter().flat_map(range).collect();
    // First, while the rows can be counted.
    let mut gone: HashMap<u64, QuotaUsage> = HashMap::new();
    for row in conn.fetch_each(&sql.count_range, &ranges).await? {
        if let Some(owner) = row.optional_number(0)? {
            gone.insert(owner, QuotaUsage { messages: row.number(1)?, bytes: row.number(2)? });
        }
    }
    let (mut removed, mut counted) = (Vec::new(), Vec::new());
    for request in requests {
        let owner = u64::from(request.owner.get());
        let gone = gone.get(&owner).copied().unwrap_or_default();
        if gone.messages > 0 {
            removed.extend(range(request));
            counted.extend([gone.messages, gone.bytes, owner].map(Arg::number));
        }
        request.reply.set(Ok(small(gone.messages)));
    }
    conn.execute_each(&sql.remove_range, &removed).await?;
    conn.execute_each(&sql.count_down, &counted).await
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Offline for SqlStores {
    fn append(&self, messages: Vec<OfflineMessage>, quota: Quota) -> StoreFuture<'_, Vec<AppendOutcome>> {
        if messages.is_empty() {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        self.writer.append(messages, quota)
    }

    fn fetch(&self, owner: AddressId, page: Page, now: u64) -> StoreFuture<'_, Paged<StoredMessage>> {
        self.read((owner, page, now), |conn, (owner, page, now)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let limit = u64::from(page.limit) + 1;
                let args = [u64::from(owner.get()), page.after, *now, limit].map(Arg::number);
                let rows = conn.fetch_all(&context.sql.offline.fetch, &args).await?;
                let items: Result<Vec<StoredMessage>, StoreError> = rows
                    .iter()
                    .map(|row| {
                        Ok(StoredMessage {
                            seq: row.number(0)?,
                            stored_at: row.number(1)?,
                            expires: row.optional_number(2)?,
                            stanza: row.bytes(3)?.to_vec(),
                        })
                    })
                    .collect();
                Ok(Paged::from_rows(items?, *page, |waiting| waiting.seq))
            })
        })
    }

    fn remove_range(&self, owner: AddressId, first: u64, last: u64) -> StoreFuture<'_, u32> {
        self.writer.remove_messages(owner, first, last)
    }

    fn count(&self, owner: AddressId) -> StoreFuture<'_, u32> {
        self.read(owner, |conn, owner| {
            Box::pin(async move {
                let context = conn.context.clone();
                let row = conn
                    .fetch_optional(&context.sql.offline.count, &[Arg::number(owner.get().into())])
                    .await?;
                Ok(small(row.map_or(Ok(0), |row| row.number(0))?))
            })
        })
    }

    fn expire(&self, now: u64, limit: u32) -> StoreFuture<'_, u32> {
        self.writer
            .call(Owner::None, 64, (now, limit), |conn, (now, limit)| Box::pin(expire(conn, *now, *limit)))
    }
}

async fn expire(conn: &mut DbConnection, now: u64, limit: u32) -> Result<u32, StoreError> {
    let context = conn.context.clone();
    let args = [Arg::number(now), Arg::number(limit.into())];
    let mut rows = conn.fetch_all(&context.sql.offline.expired, &args).await?;
    let owners: Result<BTreeSet<u64>, StoreError> = rows.iter().map(|row| row.number(0)).collect();
    let owners = owners?;
    if accounts::lock(conn, &owners).await? {
        // Another node may have removed some before the accounts were locked.
        rows = conn.fetch_all(&context.sql.offline.expired, &args).await?;
    }
    let mut gone: BTreeMap<u64, QuotaUsage> = BTreeMap::new();
    let mut keys = Vec::new();
    for row in &rows {
        let (owner, seq) = (row.number(0)?, row.number(1)?);
        if owners.contains(&owner) {
            gone.entry(owner).or_default().add(row.number(2)?);
            keys.extend([Arg::number(owner), Arg::number(seq)]);
        }
    }
    conn.execute_pairs(&context.sql.offline.remove, &keys).await?;
    let counted: Vec<Arg<'_>> =
        gone.iter().flat_map(|(owner, gone)| [gone.messages, gone.bytes, *owner].map(Arg::number)).collect();
    conn.execute_each(&context.sql.offline.count_down, &counted).await?;
    Ok(small(gone.values().map(|gone| gone.messages).sum()))
}
