//! Messages that wait, and the narrow table that counts them.
//!
//! Appends of many callers are merged by the writer: one look at the counters, one insert of many rows, one update of the
//! counters. `inbox.waiting` is exact inside a transaction; it saves counting rows that carry whole stanzas.
use std::collections::{BTreeMap, HashMap};

use store::{AddressId, Appended, Fut, Offline, OfflineMessage, Page, Slice, StoreError, Waiting};

use super::id;
use crate::SqlStores;
use crate::dialect::{Arg, Conn, Dialect, Sizes, marks};

pub(crate) struct Texts {
    counters: Sizes,
    insert: Sizes,
    count_up: Sizes,
    expire_owner: String,
    fetch: String,
    remove_through: String,
    count_down: String,
    count: String,
    expired: String,
    remove: Sizes,
}

impl Texts {
    pub(crate) fn new(d: &dyn Dialect) -> Texts {
        let insert = |n| d.insert_new("offline", &["owner", "seq", "stored_at", "expires", "stanza"], n);
        Texts {
            counters: Sizes::new(|n| {
                d.sql(&format!(
                    "SELECT c.id, c.created_at, i.last_seq, i.waiting FROM account c \
                     LEFT JOIN inbox i ON i.owner = c.id WHERE c.id IN ({}){}",
                    marks(n),
                    d.lock_rows()
                ))
            }),
            insert: Sizes::new(insert),
            count_up: Sizes::new(|n| d.upsert("inbox", &["owner"], &["last_seq", "waiting"], n)),
            expire_owner: d.sql("DELETE FROM offline WHERE owner = ? AND expires <= ?"),
            fetch: d.sql(
                "SELECT seq, stored_at, expires, stanza FROM offline \
                 WHERE owner = ? AND seq > ? AND (expires IS NULL OR expires > ?) ORDER BY seq LIMIT ?",
            ),
            remove_through: d.sql("DELETE FROM offline WHERE owner = ? AND seq <= ?"),
            count_down: d.sql("UPDATE inbox SET waiting = waiting - ? WHERE owner = ?"),
            count: d.sql("SELECT waiting FROM inbox WHERE owner = ?"),
            expired: d.sql("SELECT owner, seq FROM offline WHERE expires <= ? ORDER BY expires LIMIT ?"),
            remove: Sizes::new(|n| {
                let one = "(owner = ? AND seq = ?)";
                d.sql(&format!("DELETE FROM offline WHERE {}", vec![one; n].join(" OR ")))
            }),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<&str> {
        vec![
            self.counters.holding(2).1,
            &self.expire_owner,
            &self.fetch,
            &self.remove_through,
            &self.count_down,
            &self.count,
            &self.expired,
            self.remove.holding(2).1,
        ]
    }
}

struct Counter {
    last_seq: u64,
    waiting: u64,
    touched: bool,
    swept: bool,
}

/// Appends for many callers; one answer list for each. Inside the writer's transaction.
pub(crate) async fn append(
    conn: &mut Conn,
    batches: Vec<(Vec<OfflineMessage>, u32)>,
) -> Result<Vec<Vec<Appended>>, StoreError> {
    let kit = conn.kit.clone();
    let mut counters = counters(conn, &batches).await?;
    let mut answers = Vec::with_capacity(batches.len());
    let mut rows: Vec<(u64, &OfflineMessage)> = Vec::new();
    for (messages, limit) in &batches {
        let mut done = Vec::with_capacity(messages.len());
        for message in messages {
            let Some(counter) = counters.get_mut(&message.owner) else {
                done.push(Appended::NoAccount);
                continue;
            };
            if counter.waiting >= u64::from(*limit) && !counter.swept {
                let args = [Arg::number(message.owner.get().into()), Arg::number(message.stored_at)];
                let gone = conn.run(&kit.offline.expire_owner, &args).await?;
                counter.waiting = counter.waiting.saturating_sub(gone);
                counter.touched |= gone > 0;
                counter.swept = true;
            }
            if counter.waiting >= u64::from(*limit) {
                done.push(Appended::Full);
                continue;
            }
            counter.last_seq += 1;
            counter.waiting += 1;
            counter.touched = true;
            rows.push((counter.last_seq, message));
            done.push(Appended::Stored { seq: counter.last_seq });
        }
        answers.push(done);
    }
    let mut values = Vec::with_capacity(rows.len() * 5);
    for (seq, message) in rows {
        values.extend([
            Arg::number(message.owner.get().into()),
            Arg::number(seq),
            Arg::number(message.stored_at),
            Arg::maybe_number(message.expires),
            Arg::Bytes(&message.stanza),
        ]);
    }
    conn.run_rows(&kit.offline.insert, 5, &values).await?;
    let touched = counters.iter().filter(|(_, counter)| counter.touched);
    let values: Vec<Arg<'_>> = touched
        .flat_map(|(owner, counter)| [owner.get().into(), counter.last_seq, counter.waiting].map(Arg::number))
        .collect();
    conn.run_rows(&kit.offline.count_up, 3, &values).await?;
    Ok(answers)
}

async fn counters(
    conn: &mut Conn,
    batches: &[(Vec<OfflineMessage>, u32)],
) -> Result<BTreeMap<AddressId, Counter>, StoreError> {
    let mut owners: Vec<AddressId> =
        batches.iter().flat_map(|(messages, _)| messages.iter().map(|message| message.owner)).collect();
    owners.sort_unstable();
    owners.dedup();
    let args: Vec<Arg<'_>> = owners.iter().map(|owner| Arg::number(owner.get().into())).collect();
    let kit = conn.kit.clone();
    let mut counters = BTreeMap::new();
    for row in conn.rows_in(&kit.offline.counters, &args).await? {
        let first = store::accounts::first_number(row.number(1)?);
        let counter = Counter {
            last_seq: row.maybe_number(2)?.unwrap_or(first),
            waiting: row.maybe_number(3)?.unwrap_or(0),
            touched: false,
            swept: false,
        };
        counters.insert(id(row.number(0)?)?, counter);
    }
    Ok(counters)
}

/// Lowers the counter after rows were removed.
async fn count_down(conn: &mut Conn, owner: u64, gone: u64) -> Result<(), StoreError> {
    if gone > 0 {
        let kit = conn.kit.clone();
        conn.run(&kit.offline.count_down, &[Arg::number(gone), Arg::number(owner)]).await?;
    }
    Ok(())
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Offline for SqlStores {
    fn append(&self, messages: Vec<OfflineMessage>, limit_per_account: u32) -> Fut<'_, Vec<Appended>> {
        if messages.is_empty() {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        self.writer.append(messages, limit_per_account)
    }

    fn fetch(&self, owner: AddressId, page: Page, now: u64) -> Fut<'_, Slice<Waiting>> {
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let kit = conn.kit.clone();
                let limit = u64::from(page.limit) + 1;
                let args = [u64::from(owner.get()), page.after, now, limit].map(Arg::number);
                let rows = conn.rows(&kit.offline.fetch, &args).await?;
                let items: Result<Vec<Waiting>, StoreError> = rows
                    .iter()
                    .map(|row| {
                        Ok(Waiting {
                            seq: row.number(0)?,
                            stored_at: row.number(1)?,
                            expires: row.maybe_number(2)?,
                            stanza: row.bytes(3)?.to_vec(),
                        })
                    })
                    .collect();
                Ok(Slice::cut(items?, page, |waiting| waiting.seq))
            })
        }))
    }

    fn remove_through(&self, owner: AddressId, seq: u64) -> Fut<'_, u32> {
        self.writer.call(
            64,
            Box::new(move |conn| {
                Box::pin(async move {
                    let kit = conn.kit.clone();
                    let args = [Arg::number(owner.get().into()), Arg::number(seq)];
                    let gone = conn.run(&kit.offline.remove_through, &args).await?;
                    count_down(conn, owner.get().into(), gone).await?;
                    Ok(small(gone))
                })
            }),
        )
    }

    fn count(&self, owner: AddressId) -> Fut<'_, u32> {
        self.read(Box::new(move |conn| {
            Box::pin(async move {
                let kit = conn.kit.clone();
                let row = conn.row(&kit.offline.count, &[Arg::number(owner.get().into())]).await?;
                Ok(small(row.map_or(Ok(0), |row| row.number(0))?))
            })
        }))
    }

    fn expire(&self, now: u64, limit: u32) -> Fut<'_, u32> {
        self.writer.call(
            64,
            Box::new(move |conn| {
                Box::pin(async move {
                    let kit = conn.kit.clone();
                    let args = [Arg::number(now), Arg::number(limit.into())];
                    let mut gone: HashMap<u64, u64> = HashMap::new();
                    let mut keys = Vec::new();
                    for row in conn.rows(&kit.offline.expired, &args).await? {
                        let (owner, seq) = (row.number(0)?, row.number(1)?);
                        *gone.entry(owner).or_default() += 1;
                        keys.extend([Arg::number(owner), Arg::number(seq)]);
                    }
                    conn.run_rows(&kit.offline.remove, 2, &keys).await?;
                    for (owner, gone) in &gone {
                        count_down(conn, *owner, *gone).await?;
                    }
                    Ok(small(gone.values().sum()))
                })
            }),
        )
    }
}
