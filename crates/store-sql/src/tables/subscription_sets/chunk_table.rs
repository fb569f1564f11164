//! A table of chunks: look-ups, reads in order, and changes.

use std::collections::{BTreeMap, BTreeSet};

use store::number_chunk::{NumberChunk, changed, divide};
use store::{StoreError, SubscriptionSide};

use super::SetPosition;
use super::keys::{key, keys_of, set_of};
use crate::dialect::{Arg, DbConnection, Dialect, RowsStatement, SizedStatement, SqlRow, placeholders};
use crate::error::corrupt;

/// The statements of one of the two tables.
pub(super) struct ChunkStatements {
    /// The last chunk of a range.
    last: String,
    /// The first chunks of a range.
    first: String,
    /// Whether a range has chunks.
    any: String,
    /// Count of the members in a range.
    count: String,
    /// The keys of the last chunks of several ranges.
    covering: SizedStatement,
    /// Chunks by their keys.
    fetch: SizedStatement,
    put: RowsStatement,
    remove: SizedStatement,
}

impl ChunkStatements {
    pub(super) fn new(d: &dyn Dialect, table: &str) -> ChunkStatements {
        let columns = format!("SELECT id, numbers FROM {table} WHERE id");
        ChunkStatements {
            last: d.sql(&format!("{columns} BETWEEN ? AND ? ORDER BY id DESC LIMIT 1")),
            first: d.sql(&format!("{columns} BETWEEN ? AND ? ORDER BY id LIMIT ?")),
            any: d.sql(&format!("SELECT id FROM {table} WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1")),
            count: d.sql(&format!("SELECT {} FROM {table} WHERE id BETWEEN ? AND ?", d.sum("members"))),
            covering: SizedStatement::new(|n| {
                // With `max(id)` PostgreSQL would read the whole range while the table is small.
                let one = format!(
                    "SELECT id FROM (SELECT id FROM {table} WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1) AS found"
                );
                d.sql(&vec![one; n].join(" UNION ALL "))
            }),
            fetch: SizedStatement::new(|n| d.sql(&format!("{columns} IN ({})", placeholders(n)))),
            put: RowsStatement::upsert(d, table, &["id"], &["members", "numbers"]),
            remove: SizedStatement::new(|n| {
                d.sql(&format!("DELETE FROM {table} WHERE id IN ({})", placeholders(n)))
            }),
        }
    }

    /// Whether a range has chunks.
    pub(super) fn any(&self) -> &str {
        &self.any
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<&str> {
        vec![
            &self.last,
            &self.first,
            &self.any,
            &self.count,
            self.covering.at_least(1).1,
            self.covering.at_least(2).1,
            self.fetch.at_least(2).1,
            self.remove.at_least(2).1,
        ]
    }
}

/// Key and chunk of a row.
pub(super) fn chunk(row: &SqlRow) -> Result<(u64, NumberChunk), StoreError> {
    let id = row.number(0)?;
    let chunk = NumberChunk::parse(row.bytes(1)?)
        .map_err(|error| corrupt("a chunk of subscriptions in the database is damaged").with_source(error))?;
    Ok((id, chunk))
}

/// The chunk in whose range a member would be.
pub(super) async fn covering(
    conn: &mut DbConnection,
    side: SubscriptionSide,
    set: u32,
    member: u32,
) -> Result<Option<(u64, NumberChunk)>, StoreError> {
    let context = conn.context.clone();
    let args = [Arg::number(*keys_of(set).start()), Arg::number(key(set, member))];
    let row = conn.fetch_optional(&context.sql.subscription_sets.side(side).last, &args).await?;
    row.as_ref().map(chunk).transpose()
}

/// Chunks that were read.
pub(super) struct ChunkPage {
    pub(super) chunks: Vec<NumberChunk>,
    /// The set has no more.
    pub(super) is_last: bool,
}

/// Chunks of a set with the members above a number.
pub(super) async fn read(conn: &mut DbConnection, at: SetPosition) -> Result<ChunkPage, StoreError> {
    let SetPosition { side, number: set, after, limit } = at;
    let (mut chunks, mut begin) = (Vec::new(), *keys_of(set).start());
    if let Some(after) = after {
        let Some(next) = after.checked_add(1) else { return Ok(ChunkPage { chunks, is_last: true }) };
        match covering(conn, side, set, next).await? {
            None => begin = key(set, next),
            Some((id, chunk)) => {
                begin = id + 1;
                chunks.extend(above(chunk, after));
            }
        }
    }
    let context = conn.context.clone();
    let sql = &context.sql.subscription_sets.side(side).first;
    loop {
        let left = u64::from(limit).saturating_sub(chunks.len() as u64);
        if left == 0 || begin > *keys_of(set).end() {
            return Ok(ChunkPage { chunks, is_last: left > 0 });
        }
        let args = [Arg::number(begin), Arg::number(*keys_of(set).end()), Arg::number(left)];
        let rows = conn.fetch_all(sql, &args).await?;
        for row in &rows {
            let (id, chunk) = chunk(row)?;
            begin = id + 1;
            // Since the first statement the chunk before may have been divided.
            chunks.extend(match after {
                Some(after) => above(chunk, after),
                None => Some(chunk),
            });
        }
        if (rows.len() as u64) < left {
            return Ok(ChunkPage { chunks, is_last: true });
        }
    }
}

/// The members of a chunk above a number.
fn above(chunk: NumberChunk, after: u32) -> Option<NumberChunk> {
    if chunk.first() > after {
        return Some(chunk);
    }
    if chunk.last() <= after {
        return None;
    }
    let mut members = Vec::new();
    chunk.decode_after(Some(after), usize::MAX, &mut members);
    NumberChunk::encode(&members)
}

/// Count of the members of a set.
pub(super) async fn count(
    conn: &mut DbConnection,
    side: SubscriptionSide,
    set: u32,
) -> Result<u64, StoreError> {
    let context = conn.context.clone();
    let args = [Arg::number(*keys_of(set).start()), Arg::number(*keys_of(set).end())];
    let row = conn.fetch_optional(&context.sql.subscription_sets.side(side).count, &args).await?;
    row.map_or(Ok(0), |row| row.number(0))
}

/// Chunks by their keys.
pub(super) struct LoadedChunks(BTreeMap<u64, NumberChunk>);

impl LoadedChunks {
    /// Loads the chunks in whose ranges members of sets would be. The caller holds the lock.
    pub(super) async fn load(
        conn: &mut DbConnection,
        side: SubscriptionSide,
        members: impl Iterator<Item = (u32, u32)>,
    ) -> Result<LoadedChunks, StoreError> {
        let context = conn.context.clone();
        let sql = context.sql.subscription_sets.side(side);
        let wanted: BTreeSet<(u32, u64)> = members.map(|(set, member)| (set, key(set, member))).collect();
        let ranges: Vec<Arg<'_>> = wanted
            .iter()
            .flat_map(|(set, key)| [Arg::number(*keys_of(*set).start()), Arg::number(*key)])
            .collect();
        let mut keys = BTreeSet::new();
        for row in conn.fetch_pairs(&sql.covering, &ranges).await? {
            keys.insert(row.number(0)?);
        }
        let keys: Vec<Arg<'_>> = keys.into_iter().map(Arg::number).collect();
        let rows = conn.fetch_in(&sql.fetch, &keys).await?;
        Ok(LoadedChunks(rows.iter().map(chunk).collect::<Result<_, StoreError>>()?))
    }

    /// Key and chunk in whose range a member would be, if it was loaded: the last key at most the member's. All loaded ones are
    /// the last ones for a member.
    pub(super) fn covering(&self, set: u32, member: u32) -> Option<(u64, &NumberChunk)> {
        let (key, chunk) = self.0.range(*keys_of(set).start()..=key(set, member)).next_back()?;
        Some((*key, chunk))
    }
}

/// Changes of members of sets, in ascending order: set, member, and whether it is added. The caller holds the lock.
pub(super) async fn change(
    conn: &mut DbConnection,
    side: SubscriptionSide,
    changes: &[(u32, u32, bool)],
) -> Result<(), StoreError> {
    let members = changes.iter().map(|(set, member, _)| (*set, *member));
    let loaded = LoadedChunks::load(conn, side, members).await?;
    change_loaded(conn, side, &loaded, changes).await
}

/// The same with chunks that are loaded.
pub(super) async fn change_loaded(
    conn: &mut DbConnection,
    side: SubscriptionSide,
    loaded: &LoadedChunks,
    changes: &[(u32, u32, bool)],
) -> Result<(), StoreError> {
    let mut rows = ChunkRows::default();
    // A chunk that is not there begins with its set.
    let key_of = |(set, member, _): &(u32, u32, bool)| {
        loaded.covering(*set, *member).map_or(*keys_of(*set).start(), |(key, _)| key)
    };
    for of_chunk in changes.chunk_by(|one, next| one.0 == next.0 && key_of(one) == key_of(next)) {
        let Some((set, member, _)) = of_chunk.first() else { continue };
        let begin = key_of(&(*set, *member, true));
        let before = loaded.covering(*set, *member).map(|(_, chunk)| chunk);
        let of_members: Vec<(u32, bool)> = of_chunk.iter().map(|(_, member, add)| (*member, *add)).collect();
        let (members, growth) = changed(before, &of_members);
        if members.is_empty() && before.is_some() {
            rows.removed.push(begin);
        }
        rows.push(begin, divide(&members, growth));
    }
    rows.write(conn, side).await
}

/// Rows to write.
#[derive(Default)]
pub(super) struct ChunkRows {
    put: Vec<(u64, NumberChunk)>,
    removed: Vec<u64>,
}

impl ChunkRows {
    /// Adds the chunks of a range that begins with a key.
    pub(super) fn push(&mut self, begin: u64, chunks: Vec<NumberChunk>) {
        let set = set_of(begin).unwrap_or(u32::MAX);
        for (number, chunk) in chunks.into_iter().enumerate() {
            let id = if number == 0 { begin } else { key(set, chunk.first()) };
            self.put.push((id, chunk));
        }
    }

    pub(super) async fn write(
        &self,
        conn: &mut DbConnection,
        side: SubscriptionSide,
    ) -> Result<(), StoreError> {
        let context = conn.context.clone();
        let sql = context.sql.subscription_sets.side(side);
        if !self.put.is_empty() {
            let mut values = Vec::with_capacity(self.put.len() * 3);
            for (id, chunk) in &self.put {
                let count = Arg::number(chunk.count().into());
                values.extend([Arg::number(*id), count, Arg::Bytes(chunk.as_bytes())]);
            }
            conn.execute_rows(&sql.put, 3, &values).await?;
        }
        let removed: Vec<Arg<'_>> = self.removed.iter().copied().map(Arg::number).collect();
        conn.execute_in(&sql.remove, &removed).await.map(drop)
    }
}
