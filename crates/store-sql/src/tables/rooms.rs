//! Persistent rooms, by the numbers of their addresses, their affiliations, and their discussion history.

use std::collections::BTreeMap;

use jid::{Jid, JidRef};
use store::rooms::{
    AffiliationPosition, AffiliationQuery, FormerAccount, KEEP_ALL, LOADED_AFFILIATIONS, ListedRoom,
    MAX_COUNT, NO_AFFILIATION, RoomAffiliation, RoomHistoryEntry, RoomRecord, RoomUpdate, StoredRoom,
    WriteFence,
};
use store::{Rooms, StoreError, StoreErrorKind, StoreFuture};

use super::{TableStatements, address, address_dictionary, bare};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, RowStatement, RowsStatement, SqlRow};
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
    remove: [String; 3],
    affiliations: [String; 2],
    affiliations_with: [String; 2],
    put_affiliations: RowsStatement,
    remove_affiliations: RowStatement,
    next_removal: String,
    removal: String,
    put_former: String,
    count_removal: String,
    put_removal: String,
    former: String,
    list: String,
    list_all: String,
    count: String,
    count_created: String,
}

/// Statements of the removal of an account, with its number: a ban stays.
pub(super) const REMOVED_USER: [&str; 2] = [
    "DELETE FROM room_affiliation WHERE entity = ? AND affiliation > 1",
    "UPDATE room SET creator = room WHERE creator = ?",
];

const AFFILIATION_COLUMNS: [&str; 5] = ["room", "entity", "affiliation", "nick", "reason"];

impl TableStatements for RoomStatements {
    fn new(d: &dyn Dialect) -> RoomStatements {
        let affiliations = |condition: &str| {
            let select = "SELECT a.jid, f.affiliation, f.nick, f.reason FROM room_affiliation f \
                          JOIN address a ON a.id = f.entity WHERE f.room = ?";
            [("> ?", "f.entity"), ("< ?", "f.entity DESC")].map(|(range, order)| {
                d.sql(&format!("{select} {condition} AND f.entity {range} ORDER BY {order} LIMIT ? OFFSET ?"))
            })
        };
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
                "SELECT r.room, c.jid, r.public, r.title, r.state, \
                 (SELECT n.number FROM removal_counter n WHERE n.id = 1) \
                 FROM address a JOIN room r ON r.room = a.id JOIN address c ON c.id = r.creator WHERE a.jid = ?",
            ),
            history: d.sql("SELECT id, message FROM room_message WHERE room = ? ORDER BY id DESC LIMIT ?"),
            put: d.upsert("room", &["room"], &["service", "creator", "public", "title", "state"], 1),
            append: RowsStatement::upsert(d, "room_message", &["room", "id"], &["message"]),
            newest_beyond: d.sql(
                "SELECT id FROM room_message WHERE room = ? ORDER BY id DESC LIMIT ? OFFSET ?",
            ),
            trim: d.sql("DELETE FROM room_message WHERE room = ? AND id <= ?"),
            remove: ["room_message", "room_affiliation", "room"]
                .map(|table| d.sql(&format!("DELETE FROM {table} WHERE room = ?"))),
            affiliations: affiliations(""),
            affiliations_with: affiliations("AND f.affiliation = ?"),
            put_affiliations: {
                let (key, others) = AFFILIATION_COLUMNS.split_at(2);
                RowsStatement::upsert(d, "room_affiliation", key, others)
            },
            remove_affiliations: RowStatement::new(
                d,
                "DELETE FROM room_affiliation WHERE room = ? AND entity = ?",
            ),
            // The row is locked until the transaction ends, so numbers are committed in their order.
            next_removal: d.sql("UPDATE removal_counter SET number = number + 1 WHERE id = 1"),
            removal: d.sql("SELECT number FROM removal_counter WHERE id = 1"),
            put_former: d.insert_new("former_account", &["entity", "times"], 1),
            count_removal: d.sql("UPDATE former_account SET times = times + 1 WHERE entity = ?"),
            put_removal: d.upsert("account_removal", &["entity"], &["number"], 1),
            former: d.sql(
                "SELECT a.jid, f.times, r.number FROM account_removal r JOIN former_account f ON f.entity = r.entity \
                 JOIN address a ON a.id = r.entity WHERE r.number > ? ORDER BY r.number LIMIT ?",
            ),
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
        let mut all: Vec<&str> = vec![
            &self.fence,
            &self.find,
            &self.load,
            &self.history,
            &self.newest_beyond,
            &self.trim,
            self.remove_affiliations.text(),
            &self.next_removal,
            &self.removal,
            &self.count_removal,
            &self.former,
            &self.list,
            &self.list_all,
            &self.count,
            &self.count_created,
        ];
        let several = self.remove.iter().chain(&self.affiliations).chain(&self.affiliations_with);
        all.extend(several.map(String::as_str));
        all
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
    let room = row.number(0)?;
    let first = AffiliationQuery {
        affiliation: None,
        position: AffiliationPosition::First,
        limit: LOADED_AFFILIATIONS,
    };
    let removals = row.number(5)?;
    let affiliations = affiliations(conn, room, &first).await?;
    let args = [Arg::number(room), Arg::number(messages.into())];
    let rows = conn.fetch_all(&context.sql.rooms.history, &args).await?;
    let entry = |row: &SqlRow| {
        let id = std::str::from_utf8(row.bytes(0)?)
            .map_err(|_| corrupt("the id of a room's message is not text"))?;
        Ok(RoomHistoryEntry { id: id.into(), message: row.bytes(1)?.to_vec() })
    };
    // The newest came first.
    let history = rows.iter().rev().map(entry).collect::<Result<_, StoreError>>()?;
    Ok(Some(StoredRoom { record, affiliations, history, removals }))
}

/// A page of affiliations of a stored room.
async fn affiliations(
    conn: &mut DbConnection,
    room: u64,
    page: &AffiliationQuery,
) -> Result<Vec<RoomAffiliation>, StoreError> {
    let context = conn.context.clone();
    let (is_reverse, user, offset) = match &page.position {
        AffiliationPosition::First => (false, None, 0),
        AffiliationPosition::After(user) => (false, Some(user), 0),
        AffiliationPosition::Before(user) => (true, Some(user), 0),
        AffiliationPosition::Last => (true, None, 0),
        AffiliationPosition::Index(index) => (false, None, *index),
    };
    let end = match user {
        None if is_reverse => i64::MAX.unsigned_abs(),
        None => 0,
        Some(user) => {
            let name = user.as_ref().bare();
            match address_dictionary::find(conn, &[name.as_str()]).await?.into_values().next() {
                Some(id) => id.get().into(),
                None => return Ok(Vec::new()),
            }
        }
    };
    let sql = &context.sql.rooms;
    let rest = [Arg::number(end), Arg::number(page.limit.into()), Arg::number(offset.into())];
    let at = usize::from(is_reverse);
    let rows = match page.affiliation {
        Some(kind) => {
            let args = [&[Arg::number(room), Arg::number(kind.into())], rest.as_slice()].concat();
            conn.fetch_all(&sql.affiliations_with[at], &args).await?
        }
        None => {
            let args = [&[Arg::number(room)], rest.as_slice()].concat();
            conn.fetch_all(&sql.affiliations[at], &args).await?
        }
    };
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes);
        text.map(Box::from).map_err(|_| corrupt("a nickname or reason of a room's affiliation is not text"))
    };
    let affiliation = |row: &SqlRow| {
        let number = u8::try_from(row.number(1)?);
        Ok(RoomAffiliation {
            user: address(row.text(0)?)?,
            affiliation: number.map_err(|_| corrupt("the affiliation of a user with a room is unknown"))?,
            nick: text(row.bytes(2)?)?,
            reason: text(row.bytes(3)?)?,
        })
    };
    let mut found = rows.iter().map(affiliation).collect::<Result<Vec<_>, StoreError>>()?;
    if is_reverse {
        found.reverse();
    }
    Ok(found)
}

/// A row of an affiliation: numbers of the room and the user, affiliation, nickname, reason.
pub(crate) struct AffiliationRow<'a> {
    pub(crate) room: u64,
    pub(crate) user: &'a str,
    pub(crate) affiliation: u8,
    pub(crate) nick: &'a [u8],
    pub(crate) reason: &'a [u8],
}

/// Puts affiliations.
pub(crate) async fn put_affiliations(
    conn: &mut DbConnection,
    all: &[AffiliationRow<'_>],
) -> Result<(), StoreError> {
    if all.is_empty() {
        return Ok(());
    }
    let context = conn.context.clone();
    let users: Vec<&str> = all.iter().map(|one| one.user).collect();
    let ids = address_dictionary::intern(conn, &users).await?;
    let mut args = Vec::with_capacity(all.len() * AFFILIATION_COLUMNS.len());
    for one in all {
        let id =
            ids.get(one.user).ok_or_else(|| corrupt("an inserted address is missing from the database"))?;
        args.extend([
            Arg::number(one.room),
            Arg::number(id.get().into()),
            Arg::number(one.affiliation.into()),
            Arg::Bytes(one.nick),
            Arg::Bytes(one.reason),
        ]);
    }
    conn.execute_rows(&context.sql.rooms.put_affiliations, AFFILIATION_COLUMNS.len(), &args).await.map(drop)
}

/// Puts and removes affiliations of a room.
async fn change_affiliations(
    conn: &mut DbConnection,
    name: &str,
    changes: &[RoomAffiliation],
) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let context = conn.context.clone();
    let Some(room) = find(conn, name).await? else { return Ok(()) };
    let (removed, put): (Vec<_>, Vec<_>) = changes.iter().partition(|one| one.affiliation == NO_AFFILIATION);
    let removed: Vec<&str> = removed.iter().map(|one| one.user.as_str()).collect();
    if !removed.is_empty() {
        let ids = address_dictionary::find(conn, &removed).await?;
        let args: Vec<Arg<'_>> =
            ids.values().flat_map(|id| [Arg::number(room), Arg::number(id.get().into())]).collect();
        conn.execute_each(&context.sql.rooms.remove_affiliations, &args).await?;
    }
    let rows: Vec<AffiliationRow<'_>> = put
        .into_iter()
        .map(|one| AffiliationRow {
            room,
            user: one.user.as_str(),
            affiliation: one.affiliation,
            nick: one.nick.as_bytes(),
            reason: one.reason.as_bytes(),
        })
        .collect();
    put_affiliations(conn, &rows).await
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
    for statement in &context.sql.rooms.remove {
        conn.execute(statement, &[Arg::number(room)]).await?;
    }
    Ok(true)
}

/// An account was removed, inside its transaction.
pub(super) async fn count_removal(conn: &mut DbConnection, account: u64) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let sql = &context.sql.rooms;
    let account = Arg::number(account);
    conn.execute(&sql.next_removal, &[]).await?;
    let row = conn.fetch_optional(&sql.removal, &[]).await?;
    let number = row.map(|row| row.number(0)).transpose()?;
    let number = number.ok_or_else(|| corrupt("the number of removals of accounts is missing"))?;
    conn.execute(&sql.put_former, &[account, Arg::number(0)]).await?;
    conn.execute(&sql.count_removal, &[account]).await?;
    conn.execute(&sql.put_removal, &[account, Arg::number(number)]).await.map(drop)
}

async fn former_accounts(
    conn: &mut DbConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<FormerAccount>, StoreError> {
    let context = conn.context.clone();
    let args = [Arg::number(after), Arg::number(limit.into())];
    let rows = conn.fetch_all(&context.sql.rooms.former, &args).await?;
    let former = |row: &SqlRow| {
        let times = u32::try_from(row.number(1)?);
        let times = times.map_err(|_| corrupt("an account was removed too many times"))?;
        Ok(FormerAccount { user: address(row.text(0)?)?, times, number: row.number(2)? })
    };
    rows.iter().map(former).collect()
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

    fn update(&self, room: JidRef<'_>, update: RoomUpdate, fence: Option<WriteFence>) -> StoreFuture<'_, ()> {
        let name = bare(room);
        let of_record = update.record.as_ref().map_or(0, |record| record.state.len() + record.title.len());
        let bytes = |one: &RoomAffiliation| one.user.as_str().len() + one.nick.len() + one.reason.len() + 64;
        let bytes = update.affiliations.iter().map(bytes).sum::<usize>() + of_record + 256;
        self.writer.call(
            Owner::Name(name.clone()),
            bytes,
            (name, update, fence),
            |conn, (name, update, fence)| {
                Box::pin(async move {
                    check_fence(conn, fence.as_ref()).await?;
                    if update.replaces {
                        remove(conn, name).await?;
                    }
                    if let Some(record) = &update.record {
                        put(conn, name, record).await?;
                    }
                    change_affiliations(conn, name, &update.affiliations).await
                })
            },
        )
    }

    fn affiliations(
        &self,
        room: JidRef<'_>,
        page: AffiliationQuery,
    ) -> StoreFuture<'_, Vec<RoomAffiliation>> {
        self.read((bare(room), page), |conn, (room, page)| {
            Box::pin(async move {
                match find(conn, room).await? {
                    Some(room) => affiliations(conn, room, page).await,
                    None => Ok(Vec::new()),
                }
            })
        })
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

    fn former_accounts(&self, after: u64, limit: u32) -> StoreFuture<'_, Vec<FormerAccount>> {
        self.read((after, limit), |conn, (after, limit)| {
            Box::pin(async move { former_accounts(conn, *after, *limit).await })
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
