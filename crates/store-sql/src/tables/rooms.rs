//! Persistent rooms, by the numbers of their addresses, and their discussion history.

use std::collections::BTreeMap;

use jid::{Jid, JidRef};
use store::rooms::{KEEP_ALL, ListedRoom, MAX_COUNT, RoomHistoryEntry, RoomRecord, StoredRoom, WriteFence};
use store::{Rooms, StoreError, StoreErrorKind, StoreFuture};

use super::{TableStatements, address, address_dictionary, bare};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, RowsStatement, SqlRow};
use crate::error::corrupt;
use crate::writer::Owner;

pub(crate) struct RoomStatements {
    fence: String,
    find: String,
    load: String,
    history: String,
    put: String,
    append: RowsStatement,
    newest_beyond: String,
    trim: String,
    remove: String,
    remove_history: String,
    list: String,
    list_all: String,
    count: String,
    count_created: String,
}

impl TableStatements for RoomStatements {
    fn new(d: &dyn Dialect) -> RoomStatements {
        RoomStatements {
            // The lock delays the next owner until this transaction has ended.
            fence: {
                let select = "SELECT 1 FROM setting WHERE name = ? AND value = ?";
                match d.lock_rows_shared() {
                    Some(lock) => d.sql(&format!("{select} {lock}")),
                    None => d.sql(select),
                }
            },
            find: d.sql("SELECT r.room FROM address a JOIN room r ON r.room = a.id WHERE a.jid = ?"),
            load: d.sql(
                "SELECT r.room, c.jid, r.public, r.title, r.state FROM address a JOIN room r ON r.room = a.id \
                 JOIN address c ON c.id = r.creator WHERE a.jid = ?",
            ),
            history: d.sql("SELECT id, message FROM room_message WHERE room = ? ORDER BY id DESC LIMIT ?"),
            put: d.upsert("room", &["room"], &["service", "creator", "public", "title", "state"], 1),
            append: RowsStatement::upsert(d, "room_message", &["room", "id"], &["message"]),
            newest_beyond: d.sql(
                "SELECT id FROM room_message WHERE room = ? ORDER BY id DESC LIMIT ? OFFSET ?",
            ),
            trim: d.sql("DELETE FROM room_message WHERE room = ? AND id <= ?"),
            remove: d.sql("DELETE FROM room WHERE room = ?"),
            remove_history: d.sql("DELETE FROM room_message WHERE room = ?"),
            list: d.sql(
                "SELECT r.room, a.jid, r.title FROM address s JOIN room r ON r.service = s.id \
                 JOIN address a ON a.id = r.room WHERE s.jid = ? AND r.public = 1 AND r.room > ? \
                 ORDER BY r.room LIMIT ?",
            ),
            list_all: d.sql(
                "SELECT r.room, a.jid, r.title FROM address s JOIN room r ON r.service = s.id \
                 JOIN address a ON a.id = r.room WHERE s.jid = ? AND r.room > ? ORDER BY r.room LIMIT ?",
            ),
            count: d.sql(
                "SELECT count(*) FROM (SELECT 1 FROM address s JOIN room r ON r.service = s.id \
                 WHERE s.jid = ? AND r.public = 1 LIMIT ?) AS found",
            ),
            count_created: d.sql(
                "SELECT count(*) FROM (SELECT 1 FROM address c JOIN room r ON r.creator = c.id \
                 WHERE c.jid = ? LIMIT ?) AS found",
            ),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![
            &self.fence,
            &self.find,
            &self.load,
            &self.history,
            &self.newest_beyond,
            &self.trim,
            &self.remove,
            &self.remove_history,
            &self.list,
            &self.list_all,
            &self.count,
            &self.count_created,
        ]
    }
}

/// The number of a stored room.
async fn find(conn: &mut DbConnection, name: &str) -> Result<Option<u64>, StoreError> {
    let context = conn.context.clone();
    let row = conn.fetch_optional(&context.sql.rooms.find, &[Arg::Text(name)]).await?;
    row.map(|row| row.number(0)).transpose()
}

async fn load(conn: &mut DbConnection, name: &str, messages: u32) -> Result<Option<StoredRoom>, StoreError> {
    let context = conn.context.clone();
    let Some(row) = conn.fetch_optional(&context.sql.rooms.load, &[Arg::Text(name)]).await? else {
        return Ok(None);
    };
    let record = RoomRecord {
        creator: address(row.text(1)?)?,
        is_public: row.number(2)? != 0,
        title: row.text(3)?.to_owned(),
        state: row.bytes(4)?.to_vec(),
    };
    let args = [Arg::number(row.number(0)?), Arg::number(messages.into())];
    let rows = conn.fetch_all(&context.sql.rooms.history, &args).await?;
    let entry = |row: &SqlRow| {
        let id = std::str::from_utf8(row.bytes(0)?)
            .map_err(|_| corrupt("the id of a room's message is not text"))?;
        Ok(RoomHistoryEntry { id: id.into(), message: row.bytes(1)?.to_vec() })
    };
    // The newest came first.
    let history = rows.iter().rev().map(entry).collect::<Result<_, StoreError>>()?;
    Ok(Some(StoredRoom { record, history }))
}

/// Fails if the condition of a write is not true.
async fn check_fence(conn: &mut DbConnection, fence: Option<&WriteFence>) -> Result<(), StoreError> {
    let Some(fence) = fence else { return Ok(()) };
    let context = conn.context.clone();
    let args = [Arg::AnyText(&fence.key), Arg::Bytes(&fence.value)];
    match conn.fetch_optional(&context.sql.rooms.fence, &args).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::new(StoreErrorKind::Fenced, "another node owns the room")),
    }
}

async fn put(conn: &mut DbConnection, name: &str, record: &RoomRecord) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let service = name.split_once('@').map_or(name, |(_, service)| service);
    let creator = record.creator.as_str();
    let ids = address_dictionary::intern(conn, &[name, service, creator]).await?;
    let id = |name: &str| {
        let id = ids.get(name).ok_or_else(|| corrupt("an inserted address is missing from the database"));
        id.map(|id| Arg::number(id.get().into()))
    };
    let args = [
        id(name)?,
        id(service)?,
        id(creator)?,
        Arg::number(record.is_public.into()),
        Arg::AnyText(&record.title),
        Arg::Bytes(&record.state),
    ];
    conn.execute(&context.sql.rooms.put, &args).await.map(drop)
}

async fn append(
    conn: &mut DbConnection,
    name: &str,
    messages: &BTreeMap<Box<str>, Vec<u8>>,
    keep: u32,
) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let Some(room) = find(conn, name).await? else { return Ok(()) };
    let args: Vec<Arg<'_>> = messages
        .iter()
        .flat_map(|(id, message)| [Arg::number(room), Arg::Bytes(id.as_bytes()), Arg::Bytes(message)])
        .collect();
    if !args.is_empty() {
        conn.execute_rows(&context.sql.rooms.append, 3, &args).await?;
    }
    if keep == KEEP_ALL {
        return Ok(());
    }
    let args = [Arg::number(room), Arg::number(1), Arg::number(keep.into())];
    let Some(row) = conn.fetch_optional(&context.sql.rooms.newest_beyond, &args).await? else {
        return Ok(());
    };
    let args = [Arg::number(room), Arg::Bytes(row.bytes(0)?)];
    conn.execute(&context.sql.rooms.trim, &args).await.map(drop)
}

async fn remove(conn: &mut DbConnection, name: &str) -> Result<bool, StoreError> {
    let context = conn.context.clone();
    let Some(room) = find(conn, name).await? else { return Ok(false) };
    conn.execute(&context.sql.rooms.remove_history, &[Arg::number(room)]).await?;
    Ok(conn.execute(&context.sql.rooms.remove, &[Arg::number(room)]).await? > 0)
}

async fn list(
    conn: &mut DbConnection,
    service: &str,
    after: Option<&Jid>,
    (limit, hidden): (u32, bool),
) -> Result<Vec<ListedRoom>, StoreError> {
    let context = conn.context.clone();
    let after = match after {
        None => 0,
        Some(room) => match find(conn, room.as_str()).await? {
            Some(id) => id,
            None => return Ok(Vec::new()),
        },
    };
    let args = [Arg::Text(service), Arg::number(after), Arg::number(limit.into())];
    let sql = &context.sql.rooms;
    let rows = conn.fetch_all(if hidden { &sql.list_all } else { &sql.list }, &args).await?;
    let room = |row: &SqlRow| Ok(ListedRoom { jid: address(row.text(1)?)?, title: row.text(2)?.to_owned() });
    rows.iter().map(room).collect()
}

impl Rooms for SqlStores {
    fn load(&self, room: JidRef<'_>, messages: u32) -> StoreFuture<'_, Option<StoredRoom>> {
        self.read((bare(room), messages), |conn, (name, messages)| {
            Box::pin(async move { load(conn, name, *messages).await })
        })
    }

    fn put(&self, room: JidRef<'_>, record: RoomRecord, fence: Option<WriteFence>) -> StoreFuture<'_, ()> {
        let name = bare(room);
        let bytes = record.state.len() + record.title.len() + 256;
        self.writer.call(
            Owner::Name(name.clone()),
            bytes,
            (name, record, fence),
            |conn, (name, record, fence)| {
                Box::pin(async move {
                    check_fence(conn, fence.as_ref()).await?;
                    put(conn, name, record).await
                })
            },
        )
    }

    fn append(
        &self,
        room: JidRef<'_>,
        messages: Vec<RoomHistoryEntry>,
        keep: u32,
        fence: Option<WriteFence>,
    ) -> StoreFuture<'_, ()> {
        let name = bare(room);
        let bytes = messages.iter().map(|one| one.message.len() + 128).sum();
        // The later of two messages with the same id is kept.
        let messages: BTreeMap<Box<str>, Vec<u8>> =
            messages.into_iter().map(|one| (one.id, one.message)).collect();
        self.writer.call(
            Owner::Name(name.clone()),
            bytes,
            (name, messages, keep, fence),
            |conn, (name, messages, keep, fence)| {
                Box::pin(async move {
                    check_fence(conn, fence.as_ref()).await?;
                    append(conn, name, messages, *keep).await
                })
            },
        )
    }

    fn remove(&self, room: JidRef<'_>, fence: Option<WriteFence>) -> StoreFuture<'_, bool> {
        let name = bare(room);
        self.writer.call(Owner::Name(name.clone()), 64, (name, fence), |conn, (name, fence)| {
            Box::pin(async move {
                check_fence(conn, fence.as_ref()).await?;
                remove(conn, name).await
            })
        })
    }

    fn list(&self, service: &str, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedRoom>> {
        let after = after.map(|room| room.bare().to_jid());
        self.read((Box::<str>::from(service), after, limit), |conn, (service, after, limit)| {
            Box::pin(async move { list(conn, service, after.as_ref(), (*limit, false)).await })
        })
    }

    fn list_all(&self, service: &str, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedRoom>> {
        let after = after.map(|room| room.bare().to_jid());
        self.read((Box::<str>::from(service), after, limit), |conn, (service, after, limit)| {
            Box::pin(async move { list(conn, service, after.as_ref(), (*limit, true)).await })
        })
    }

    fn count(&self, service: &str) -> StoreFuture<'_, u64> {
        self.read(Box::<str>::from(service), |conn, service| {
            Box::pin(async move {
                let context = conn.context.clone();
                let args = [Arg::Text(service), Arg::number(MAX_COUNT)];
                let row = conn.fetch_optional(&context.sql.rooms.count, &args).await?;
                row.map_or(Ok(0), |row| row.number(0))
            })
        })
    }

    fn count_created(&self, creator: JidRef<'_>, most: u32) -> StoreFuture<'_, u64> {
        self.read((bare(creator), most), |conn, (creator, most)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let args = [Arg::Text(creator), Arg::number((*most).into())];
                let row = conn.fetch_optional(&context.sql.rooms.count_created, &args).await?;
                row.map_or(Ok(0), |row| row.number(0))
            })
        })
    }
}
