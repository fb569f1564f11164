//! PubSub nodes by number, with their affiliations, subscriptions and items.
//!
//! Long because each change of a node has a statement, and the reads of one entity over all nodes have several.

mod node_reads;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jid::{Jid, JidRef};
use store::pubsub::{
    EntitySubscription, ListedPubSubNode, MAX_NODE_COUNT, PubSubChange, PubSubItem, PubSubItemHead,
    PubSubNodeOfService, PubSubNodeRecord, SpecialSubscription, StoredPubSubNode,
};
use store::{AddressId, PubSub, StoreError, StoreErrorKind, StoreFuture, SubscriptionSide};

use self::node_reads::{items, items_within, load, newest_items, record_of};
use super::{TableStatements, address, address_dictionary, bare, subscription_sets};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect, RowsStatement, SizedStatement, SqlRow, placeholders};
use crate::error::corrupt;
use crate::writer::Owner;

/// Steps in which the transaction that removes a node removes its plain subscriptions, of at most a chunk each.
const REMOVAL_STEPS: usize = 4;

pub(crate) struct PubSubStatements {
    find: String,
    resolve: SizedStatement,
    load: String,
    affiliation: String,
    affiliations: String,
    special: String,
    heads: String,
    newest_heads: String,
    items: SizedStatement,
    item_sizes: SizedStatement,
    insert: String,
    update: String,
    remove: [String; 4],
    put_removed: String,
    first_removed: String,
    forget_removed: String,
    affiliate: String,
    unaffiliate: String,
    put_special: String,
    remove_special: String,
    put_items: RowsStatement,
    remove_items: SizedStatement,
    list: String,
    list_all: String,
    records: String,
    of_services: SizedStatement,
    count: String,
    count_created: String,
    affiliations_of: String,
    affiliated_nodes: String,
    names: SizedStatement,
    special_nodes: String,
    all_special_nodes: String,
    special_of: String,
    count_special: String,
}

impl TableStatements for PubSubStatements {
    fn new(d: &dyn Dialect) -> PubSubStatements {
        let of_node = |table: &str| d.sql(&format!("DELETE FROM {table} WHERE node = ?"));
        PubSubStatements {
            find: d.sql("SELECT node FROM pubsub_node WHERE service = ? AND name = ?"),
            resolve: SizedStatement::new(|n| {
                d.sql(&format!(
                    "SELECT n.node, s.jid, n.name FROM pubsub_node n JOIN address s ON s.id = n.service \
                     WHERE n.node IN ({})",
                    placeholders(n)
                ))
            }),
            load: d.sql(
                "SELECT n.node, c.jid, n.created, n.listed, n.title, n.config FROM address s \
                 JOIN pubsub_node n ON n.service = s.id JOIN address c ON c.id = n.creator \
                 WHERE s.jid = ? AND n.name = ?",
            ),
            affiliation: d.sql(
                "SELECT f.affiliation FROM pubsub_affiliation f JOIN address a ON a.id = f.entity \
                 WHERE a.jid = ? AND f.node = ?",
            ),
            affiliations: d.sql(
                "SELECT a.jid, f.affiliation FROM pubsub_affiliation f JOIN address a ON a.id = f.entity \
                 WHERE f.node = ? ORDER BY f.entity",
            ),
            special: d.sql("SELECT jid, subid, state FROM pubsub_special WHERE node = ? ORDER BY subid"),
            heads: d.sql("SELECT seq, id, publisher, published FROM pubsub_item WHERE node = ? ORDER BY seq"),
            newest_heads: d.sql(
                "SELECT seq, id, publisher, published FROM pubsub_item WHERE node = ? ORDER BY seq DESC LIMIT ?",
            ),
            items: SizedStatement::new(|n| {
                d.sql(&format!(
                    "SELECT seq, id, publisher, published, payload FROM pubsub_item WHERE node = ? AND seq IN ({})",
                    placeholders(n)
                ))
            }),
            item_sizes: SizedStatement::new(|n| {
                d.sql(&format!(
                    "SELECT seq, octet_length(payload) FROM pubsub_item WHERE node = ? AND seq IN ({})",
                    placeholders(n)
                ))
            }),
            insert: d.insert_new(
                "pubsub_node",
                &["service", "name", "creator", "created", "listed", "title", "config"],
                1,
            ),
            update: d.sql(
                "UPDATE pubsub_node SET creator = ?, created = ?, listed = ?, title = ?, config = ? WHERE node = ?",
            ),
            remove: ["pubsub_item", "pubsub_special", "pubsub_affiliation", "pubsub_node"].map(of_node),
            put_removed: d.insert_new("pubsub_removed", &["node"], 1),
            first_removed: d.sql("SELECT node FROM pubsub_removed WHERE node > ? ORDER BY node LIMIT 1"),
            forget_removed: of_node("pubsub_removed"),
            affiliate: d.upsert("pubsub_affiliation", &["entity", "node"], &["affiliation"], 1),
            unaffiliate: d.sql("DELETE FROM pubsub_affiliation WHERE entity = ? AND node = ?"),
            put_special: d.upsert("pubsub_special", &["node", "subid"], &["jid", "entity", "state"], 1),
            remove_special: d.sql("DELETE FROM pubsub_special WHERE node = ? AND subid = ? AND jid = ?"),
            put_items: RowsStatement::insert(
                d,
                "pubsub_item",
                &["node", "seq", "id", "publisher", "published", "payload"],
            ),
            remove_items: SizedStatement::new(|n| {
                d.sql(&format!("DELETE FROM pubsub_item WHERE node = ? AND id IN ({})", placeholders(n)))
            }),
            list: d.sql(
                "SELECT name, title FROM pubsub_node WHERE service = ? AND listed = 1 AND node > ? \
                 ORDER BY node LIMIT ?",
            ),
            list_all: d
                .sql("SELECT name, title FROM pubsub_node WHERE service = ? AND node > ? ORDER BY node LIMIT ?"),
            records: d.sql(
                "SELECT n.name, c.jid, n.created, n.listed, n.title, n.config FROM pubsub_node n \
                 JOIN address c ON c.id = n.creator WHERE n.service = ? AND n.node > ? ORDER BY n.node LIMIT ?",
            ),
            of_services: SizedStatement::new(|n| {
                d.sql(&format!(
                    "SELECT n.service, s.jid, n.name FROM pubsub_node n JOIN address s ON s.id = n.service \
                     WHERE n.service IN ({})",
                    placeholders(n)
                ))
            }),
            count: d.sql(
                "SELECT count(*) FROM (SELECT 1 FROM pubsub_node WHERE service = ? AND listed = 1 LIMIT ?) AS found",
            ),
            count_created: d.sql(
                "SELECT count(*) FROM (SELECT 1 FROM pubsub_node WHERE creator = ? LIMIT ?) AS found",
            ),
            affiliations_of: d.sql(
                "SELECT n.name, f.affiliation FROM pubsub_affiliation f JOIN pubsub_node n ON n.node = f.node \
                 WHERE f.entity = ? AND f.node > ? AND n.service = ? ORDER BY f.node LIMIT ?",
            ),
            affiliated_nodes: d.sql(
                "SELECT node FROM pubsub_affiliation WHERE entity = ? AND node > ? ORDER BY node LIMIT ?",
            ),
            // With the service as a condition, SQLite would read all its nodes from an index that has both columns.
            names: SizedStatement::new(|n| {
                d.sql(&format!(
                    "SELECT node, name, service FROM pubsub_node WHERE node IN ({})",
                    placeholders(n)
                ))
            }),
            special_nodes: d.sql(
                "SELECT DISTINCT s.node, n.name FROM pubsub_special s JOIN pubsub_node n ON n.node = s.node \
                 WHERE s.entity = ? AND s.node > ? AND n.service = ? ORDER BY s.node LIMIT ?",
            ),
            all_special_nodes: d.sql(
                "SELECT DISTINCT node FROM pubsub_special WHERE entity = ? AND node > ? ORDER BY node LIMIT ?",
            ),
            special_of: d.sql(
                "SELECT node, jid, subid, state FROM pubsub_special \
                 WHERE entity = ? AND node > ? AND node <= ? ORDER BY node, subid",
            ),
            count_special: d.sql(
                "SELECT count(*) FROM (SELECT 1 FROM pubsub_special WHERE entity = ? LIMIT ?) AS found",
            ),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        let mut all: Vec<&str> = vec![
            &self.find,
            self.resolve.at_least(2).1,
            &self.load,
            &self.affiliation,
            &self.affiliations,
            &self.special,
            &self.heads,
            &self.newest_heads,
            self.items.at_least(2).1,
            self.item_sizes.at_least(2).1,
            &self.update,
            &self.unaffiliate,
            &self.remove_special,
            self.remove_items.at_least(2).1,
            &self.list,
            &self.list_all,
            &self.records,
            self.of_services.at_least(2).1,
            &self.count,
            &self.count_created,
            &self.affiliations_of,
            &self.affiliated_nodes,
            self.names.at_least(2).1,
            &self.first_removed,
            &self.forget_removed,
            &self.special_nodes,
            &self.all_special_nodes,
            &self.special_of,
            &self.count_special,
        ];
        all.extend(self.remove.iter().map(String::as_str));
        all
    }
}

/// A node's address as the database has it.
#[derive(Clone)]
struct NodeName {
    service: Box<str>,
    name: Box<str>,
}

impl NodeName {
    fn new(node: JidRef<'_>) -> NodeName {
        NodeName { service: bare(node), name: node.resource().unwrap_or_default().into() }
    }

    fn owner(&self) -> Owner {
        Owner::Name(format!("{}/{}", self.service, self.name).into())
    }
}

/// The numbers of addresses that have one.
async fn ids(conn: &mut DbConnection, names: &[&str]) -> Result<HashMap<Box<str>, u64>, StoreError> {
    let found = address_dictionary::find(conn, names).await?;
    Ok(found.into_iter().map(|(name, id)| (name, id.get().into())).collect())
}

/// The number of one address.
async fn id_of(conn: &mut DbConnection, name: &str) -> Result<Option<u64>, StoreError> {
    Ok(ids(conn, &[name]).await?.get(name).copied())
}

/// The number of a stored node.
async fn find(conn: &mut DbConnection, node: &NodeName) -> Result<Option<u64>, StoreError> {
    let Some(service) = id_of(conn, &node.service).await? else { return Ok(None) };
    find_of_service(conn, service, &node.name).await
}

async fn find_of_service(
    conn: &mut DbConnection,
    service: u64,
    name: &str,
) -> Result<Option<u64>, StoreError> {
    let context = conn.context.clone();
    let args = [Arg::number(service), Arg::Bytes(name.as_bytes())];
    let row = conn.fetch_optional(&context.sql.pubsub.find, &args).await?;
    row.map(|row| row.number(0)).transpose()
}

/// The number of the node after which a list continues: `None` if there is no such node.
async fn position(
    conn: &mut DbConnection,
    service: u64,
    after: Option<&Jid>,
) -> Result<Option<u64>, StoreError> {
    match after {
        None => Ok(Some(0)),
        Some(node) => find_of_service(conn, service, node.resource().unwrap_or_default()).await,
    }
}

fn text(bytes: &[u8]) -> Result<&str, StoreError> {
    std::str::from_utf8(bytes).map_err(|_| corrupt("a name of a PubSub node is not text"))
}

fn node_address(service: &str, name: &[u8]) -> Result<Jid, StoreError> {
    address(&format!("{service}/{}", text(name)?))
}

/// The column of an item's publisher: the address. That of an item that has replaced others has its first number after a zero.
fn publisher_column(head: &PubSubItemHead) -> Vec<u8> {
    match head.first_seq == head.seq {
        true => head.publisher.as_str().into(),
        false => format!("{}\0{}", head.publisher, head.first_seq).into(),
    }
}

fn head(row: &SqlRow) -> Result<PubSubItemHead, StoreError> {
    let (seq, column) = (row.number(0)?, text(row.bytes(2)?)?);
    let (publisher, first) = column.split_once('\0').unwrap_or((column, ""));
    let first = Some(first).filter(|first| !first.is_empty()).map(str::parse).transpose();
    Ok(PubSubItemHead {
        seq,
        first_seq: first.map_err(|_| corrupt("the number of a PubSub item is not a number"))?.unwrap_or(seq),
        id: text(row.bytes(1)?)?.into(),
        publisher: address(publisher)?,
        published: row.number(3)?,
    })
}

/// The record in the columns from the second on.
fn record(row: &SqlRow) -> Result<PubSubNodeRecord, StoreError> {
    Ok(PubSubNodeRecord {
        creator: address(row.text(1)?)?,
        created: row.number(2)?,
        is_listed: row.number(3)? != 0,
        title: row.text(4)?.to_owned(),
        config: row.bytes(5)?.to_vec(),
    })
}

fn node_number(number: u64) -> Result<u32, StoreError> {
    u32::try_from(number)
        .map_err(|_| StoreError::new(StoreErrorKind::TooLarge, "there are no more numbers of nodes"))
}

/// The number of an address as sets of subscriptions have it.
fn entity_number(number: u64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| corrupt("the number of an address is too large"))
}

fn small(number: u64) -> Result<u8, StoreError> {
    u8::try_from(number).map_err(|_| corrupt("the affiliation of a PubSub node is unknown"))
}

/// A special subscription from this column on.
fn special(row: &SqlRow, first: usize) -> Result<SpecialSubscription, StoreError> {
    Ok(SpecialSubscription {
        jid: address(text(row.bytes(first)?)?)?,
        subid: text(row.bytes(first + 1)?)?.into(),
        state: row.bytes(first + 2)?.to_vec(),
    })
}

/// Changes of one kind that are next to each other are one statement.
fn same_kind(one: &PubSubChange, other: &PubSubChange) -> bool {
    use PubSubChange::{PutItem, RemoveItem, Subscribe, Unsubscribe};
    matches!(
        (one, other),
        (Subscribe(_) | Unsubscribe(_), Subscribe(_) | Unsubscribe(_)) | (RemoveItem(_), RemoveItem(_))
    ) || matches!((one, other), (PutItem(a), PutItem(b)) if a.head.seq < b.head.seq)
}

async fn apply(conn: &mut DbConnection, node: &NodeName, changes: &[PubSubChange]) -> Result<(), StoreError> {
    let mut number = find(conn, node).await?;
    for group in changes.chunk_by(same_kind) {
        let Some(first) = group.first() else { continue };
        match (first, number) {
            (PubSubChange::Put(record), _) => number = Some(put(conn, node, number, record).await?),
            (_, None) => {}
            (PubSubChange::Remove, Some(of)) => {
                let context = conn.context.clone();
                for statement in &context.sql.pubsub.remove {
                    conn.execute(statement, &[Arg::number(of)]).await?;
                }
                remove_subscribers(conn, of).await?;
                number = None;
            }
            (_, Some(of)) => apply_group(conn, of, group).await?,
        }
    }
    Ok(())
}

async fn put(
    conn: &mut DbConnection,
    node: &NodeName,
    number: Option<u64>,
    record: &PubSubNodeRecord,
) -> Result<u64, StoreError> {
    let context = conn.context.clone();
    let creator = record.creator.as_ref().bare();
    let known = address_dictionary::intern(conn, &[&node.service, creator.as_str()]).await?;
    let id = |name: &str| {
        let id = known.get(name).ok_or_else(|| corrupt("an inserted address is missing from the database"));
        id.map(|id| Arg::number(id.get().into()))
    };
    let values = [
        id(creator.as_str())?,
        Arg::number(record.created),
        Arg::number(record.is_listed.into()),
        Arg::AnyText(&record.title),
        Arg::Bytes(&record.config),
    ];
    if let Some(number) = number {
        let args = [values.as_slice(), &[Arg::number(number)]].concat();
        conn.execute(&context.sql.pubsub.update, &args).await?;
        return Ok(number);
    }
    let args = [&[id(&node.service)?, Arg::Bytes(node.name.as_bytes())], values.as_slice()].concat();
    conn.execute(&context.sql.pubsub.insert, &args).await?;
    find(conn, node).await?.ok_or_else(|| corrupt("an inserted PubSub node is missing from the database"))
}

/// Applies changes of one kind to a node that exists.
async fn apply_group(conn: &mut DbConnection, number: u64, group: &[PubSubChange]) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let sql = &context.sql.pubsub;
    let node = Arg::number(number);
    match group.first() {
        None | Some(PubSubChange::Put(_) | PubSubChange::Remove) => {}
        Some(PubSubChange::Affiliate(user, affiliation)) => {
            let name = user.as_ref().bare();
            match affiliation {
                Some(affiliation) => {
                    let id = address_dictionary::intern_one(conn, name.as_str()).await?;
                    let args = [Arg::number(id.get().into()), node, Arg::number((*affiliation).into())];
                    conn.execute(&sql.affiliate, &args).await?;
                }
                None => {
                    if let Some(id) = id_of(conn, name.as_str()).await? {
                        conn.execute(&sql.unaffiliate, &[Arg::number(id), node]).await?;
                    }
                }
            }
        }
        Some(PubSubChange::Subscribe(_) | PubSubChange::Unsubscribe(_)) => {
            change_subscribers(conn, node_number(number)?, group).await?;
        }
        Some(PubSubChange::PutSpecial(one)) => {
            let entity = address_dictionary::intern_one(conn, one.jid.as_ref().bare().as_str()).await?;
            let args = [
                node,
                Arg::Bytes(one.subid.as_bytes()),
                Arg::Bytes(one.jid.as_str().as_bytes()),
                Arg::number(entity.get().into()),
                Arg::Bytes(&one.state),
            ];
            conn.execute(&sql.put_special, &args).await?;
        }
        Some(PubSubChange::RemoveSpecial(jid, subid)) => {
            let args = [node, Arg::Bytes(subid.as_bytes()), Arg::Bytes(jid.as_str().as_bytes())];
            conn.execute(&sql.remove_special, &args).await?;
        }
        Some(PubSubChange::PutItem(_)) => put_items(conn, node, group).await?,
        Some(PubSubChange::RemoveItem(_)) => {
            let ids = group.iter().filter_map(|change| match change {
                PubSubChange::RemoveItem(id) => Some(Arg::Bytes(id.as_bytes())),
                _ => None,
            });
            let args: Vec<Arg<'_>> = ids.collect();
            delete_in(conn, &sql.remove_items, node, &args).await?;
        }
        Some(PubSubChange::RemoveItems) => {
            conn.execute(&sql.remove[0], &[node]).await?;
        }
    }
    Ok(())
}

/// Adds and removes plain subscriptions, each as the last change of its user says.
async fn change_subscribers(
    conn: &mut DbConnection,
    node: u32,
    group: &[PubSubChange],
) -> Result<(), StoreError> {
    let mut users: BTreeMap<&str, bool> = BTreeMap::new();
    for change in group {
        match change {
            PubSubChange::Subscribe(user) => users.insert(user.as_ref().bare().as_str(), true),
            PubSubChange::Unsubscribe(user) => users.insert(user.as_ref().bare().as_str(), false),
            _ => None,
        };
    }
    let of = |wanted: bool| -> Vec<&str> {
        users.iter().filter(|(_, is_added)| **is_added == wanted).map(|(user, _)| *user).collect()
    };
    let (added, removed) = (of(true), of(false));
    // Before rows of addresses are locked, so that all transactions take these locks in one order.
    subscription_sets::lock(conn).await?;
    let mut members: BTreeMap<u32, bool> = BTreeMap::new();
    if !added.is_empty() {
        let known = address_dictionary::intern(conn, &added).await?;
        members.extend(known.values().map(|id| (id.get(), true)));
    }
    if !removed.is_empty() {
        let known = address_dictionary::find(conn, &removed).await?;
        members.extend(known.values().map(|id| (id.get(), false)));
    }
    subscription_sets::change_subscribers(conn, node, &members).await
}

/// Removes the plain subscriptions of a node that is removed: those of a large one later, in steps.
async fn remove_subscribers(conn: &mut DbConnection, number: u64) -> Result<(), StoreError> {
    let node = node_number(number)?;
    for _ in 0..REMOVAL_STEPS {
        if subscription_sets::remove_some(conn, SubscriptionSide::Subscribers, node).await? == 0 {
            return Ok(());
        }
    }
    let context = conn.context.clone();
    conn.execute(&context.sql.pubsub.put_removed, &[Arg::number(number)]).await.map(drop)
}

/// Whether subscriptions of removed nodes are left.
pub(crate) async fn has_removed(conn: &mut DbConnection) -> Result<bool, StoreError> {
    let context = conn.context.clone();
    Ok(conn.fetch_optional(&context.sql.pubsub.first_removed, &[Arg::number(0)]).await?.is_some())
}

/// Removes some subscriptions of a removed node; returns whether there may be more.
pub(crate) async fn clean_some(conn: &mut DbConnection) -> Result<bool, StoreError> {
    let context = conn.context.clone();
    let sql = &context.sql.pubsub;
    let Some(row) = conn.fetch_optional(&sql.first_removed, &[Arg::number(0)]).await? else {
        return Ok(false);
    };
    let number = row.number(0)?;
    if subscription_sets::remove_some(conn, SubscriptionSide::Subscribers, node_number(number)?).await? == 0 {
        conn.execute(&sql.forget_removed, &[Arg::number(number)]).await?;
    }
    Ok(true)
}

/// Adds items; those with the same ids, earlier ones of this group included, are removed.
async fn put_items(conn: &mut DbConnection, node: Arg<'_>, group: &[PubSubChange]) -> Result<(), StoreError> {
    let context = conn.context.clone();
    let sql = &context.sql.pubsub;
    let mut items: BTreeMap<&str, &PubSubItem> = BTreeMap::new();
    for change in group {
        if let PubSubChange::PutItem(item) = change {
            items.insert(&item.head.id, item);
        }
    }
    let ids: Vec<Arg<'_>> = items.keys().map(|id| Arg::Bytes(id.as_bytes())).collect();
    delete_in(conn, &sql.remove_items, node, &ids).await?;
    let publishers: Vec<Vec<u8>> = items.values().map(|item| publisher_column(&item.head)).collect();
    let values: Vec<Arg<'_>> = items
        .values()
        .zip(&publishers)
        .flat_map(|(item, publisher)| {
            [
                node,
                Arg::number(item.head.seq),
                Arg::Bytes(item.head.id.as_bytes()),
                Arg::Bytes(publisher),
                Arg::number(item.head.published),
                Arg::Bytes(&item.payload),
            ]
        })
        .collect();
    conn.execute_rows(&sql.put_items, 6, &values).await.map(drop)
}

/// Runs a statement with a node and a list of values.
async fn delete_in(
    conn: &mut DbConnection,
    sql: &SizedStatement,
    node: Arg<'_>,
    values: &[Arg<'_>],
) -> Result<(), StoreError> {
    for part in values.chunks(SizedStatement::MAX) {
        let (size, text) = sql.at_least(part.len());
        conn.execute(text, &with_node(node, part, size)).await?;
    }
    Ok(())
}

/// The node, and the values, of which the last is repeated.
fn with_node<'a>(node: Arg<'a>, values: &[Arg<'a>], size: usize) -> Vec<Arg<'a>> {
    let mut args = Vec::with_capacity(size + 1);
    args.push(node);
    args.extend_from_slice(values);
    args.resize(size + 1, values.last().copied().unwrap_or(Arg::Null));
    args
}

/// A page of a list of nodes: service, the node before it, and the size.
type ListArgs = (Box<str>, Option<Jid>, u32);

async fn list(
    conn: &mut DbConnection,
    (service, after, limit): &ListArgs,
    hidden: bool,
) -> Result<Vec<ListedPubSubNode>, StoreError> {
    let context = conn.context.clone();
    let Some(number) = id_of(conn, service).await? else { return Ok(Vec::new()) };
    let Some(after) = position(conn, number, after.as_ref()).await? else { return Ok(Vec::new()) };
    let args = [Arg::number(number), Arg::number(after), Arg::number((*limit).into())];
    let sql = &context.sql.pubsub;
    let rows = conn.fetch_all(if hidden { &sql.list_all } else { &sql.list }, &args).await?;
    let node = |row: &SqlRow| {
        let jid = node_address(service, row.bytes(0)?)?;
        Ok(ListedPubSubNode { jid, title: row.text(1)?.to_owned() })
    };
    rows.iter().map(node).collect()
}

async fn records(
    conn: &mut DbConnection,
    (service, after, limit): &ListArgs,
) -> Result<Vec<PubSubNodeOfService>, StoreError> {
    let context = conn.context.clone();
    let Some(number) = id_of(conn, service).await? else { return Ok(Vec::new()) };
    let Some(after) = position(conn, number, after.as_ref()).await? else { return Ok(Vec::new()) };
    let args = [Arg::number(number), Arg::number(after), Arg::number((*limit).into())];
    let rows = conn.fetch_all(&context.sql.pubsub.records, &args).await?;
    let node = |row: &SqlRow| {
        let jid = node_address(service, row.bytes(0)?)?;
        Ok(PubSubNodeOfService { jid, record: record(row)? })
    };
    rows.iter().map(node).collect()
}

async fn count(conn: &mut DbConnection, sql: &str, name: &str, most: u64) -> Result<u64, StoreError> {
    let Some(id) = id_of(conn, name).await? else { return Ok(0) };
    let row = conn.fetch_optional(sql, &[Arg::number(id), Arg::number(most)]).await?;
    row.map_or(Ok(0), |row| row.number(0))
}

/// A page of what an entity has: entity, service, the node before it, and the size.
type EntityArgs = (Box<str>, Box<str>, Option<Jid>, u32);

/// The numbers of entity, service and the node before the page.
async fn entity_position(
    conn: &mut DbConnection,
    (entity, service, after, _): &EntityArgs,
) -> Result<Option<[u64; 3]>, StoreError> {
    let known = ids(conn, &[entity, service]).await?;
    let (Some(entity), Some(service)) = (known.get(entity), known.get(service)) else { return Ok(None) };
    let after = position(conn, *service, after.as_ref()).await?;
    Ok(after.map(|after| [*entity, *service, after]))
}

async fn affiliations_of(conn: &mut DbConnection, page: &EntityArgs) -> Result<Vec<(Jid, u8)>, StoreError> {
    let context = conn.context.clone();
    let Some([entity, service, after]) = entity_position(conn, page).await? else { return Ok(Vec::new()) };
    let args = [Arg::number(entity), Arg::number(after), Arg::number(service), Arg::number(page.3.into())];
    let rows = conn.fetch_all(&context.sql.pubsub.affiliations_of, &args).await?;
    rows.iter().map(|row| Ok((node_address(&page.1, row.bytes(0)?)?, small(row.number(1)?)?))).collect()
}

async fn nodes_of_entity(
    conn: &mut DbConnection,
    entity: &str,
    mut after: u32,
    limit: u32,
) -> Result<Vec<(u32, Jid)>, StoreError> {
    let context = conn.context.clone();
    let sql = &context.sql.pubsub;
    let Some(entity) = id_of(conn, entity).await? else { return Ok(Vec::new()) };
    let subscriber = entity_number(entity)?;
    loop {
        let mut numbers: BTreeSet<u32> =
            subscription_sets::nodes(conn, subscriber, after, limit).await?.into_iter().collect();
        let args = [Arg::number(entity), Arg::number(after.into()), Arg::number(limit.into())];
        for statement in [&sql.affiliated_nodes, &sql.all_special_nodes] {
            for row in &conn.fetch_all(statement, &args).await? {
                numbers.insert(node_number(row.number(0)?)?);
            }
        }
        let numbers: Vec<u32> = numbers.into_iter().take(limit as usize).collect();
        let Some(last) = numbers.last() else { return Ok(Vec::new()) };
        after = *last;
        let mut found = resolve(conn, &numbers).await?;
        found.sort_unstable();
        // Removed nodes can be in the set, too.
        if !found.is_empty() {
            return Ok(found);
        }
    }
}

/// The addresses of nodes.
async fn resolve(conn: &mut DbConnection, numbers: &[u32]) -> Result<Vec<(u32, Jid)>, StoreError> {
    let context = conn.context.clone();
    let args: Vec<Arg<'_>> = numbers.iter().map(|number| Arg::number((*number).into())).collect();
    let rows = conn.fetch_in(&context.sql.pubsub.resolve, &args).await?;
    let node = |row: &SqlRow| Ok((node_number(row.number(0)?)?, node_address(row.text(1)?, row.bytes(2)?)?));
    rows.iter().map(node).collect()
}

async fn subscriptions_of(
    conn: &mut DbConnection,
    page: &EntityArgs,
) -> Result<Vec<EntitySubscription>, StoreError> {
    let context = conn.context.clone();
    let sql = &context.sql.pubsub;
    let Some([entity, service, after]) = entity_position(conn, page).await? else { return Ok(Vec::new()) };
    let args = [Arg::number(entity), Arg::number(after), Arg::number(service), Arg::number(page.3.into())];
    // By number of the node: its address, and whether there is a plain subscription.
    let mut nodes: BTreeMap<u64, (Jid, bool)> = BTreeMap::new();
    let (subscriber, mut last) = (entity_number(entity)?, node_number(after)?);
    // Nodes of other services, and removed ones, are in the set, too.
    while nodes.len() < page.3 as usize {
        let some = subscription_sets::nodes(conn, subscriber, last, page.3).await?;
        let Some(end) = some.last() else { break };
        last = *end;
        let numbers: Vec<Arg<'_>> = some.iter().map(|number| Arg::number((*number).into())).collect();
        for row in &conn.fetch_in(&sql.names, &numbers).await? {
            if row.number(2)? == service {
                nodes.insert(row.number(0)?, (node_address(&page.1, row.bytes(1)?)?, true));
            }
        }
        if some.len() < page.3 as usize {
            break;
        }
    }
    for row in &conn.fetch_all(&sql.special_nodes, &args).await? {
        let node = node_address(&page.1, row.bytes(1)?)?;
        nodes.entry(row.number(0)?).or_insert((node, false));
    }
    let nodes: BTreeMap<u64, (Jid, bool)> = nodes.into_iter().take(page.3 as usize).collect();
    let Some((last, _)) = nodes.last_key_value() else { return Ok(Vec::new()) };
    let args = [Arg::number(entity), Arg::number(after), Arg::number(*last)];
    let mut of_node: BTreeMap<u64, Vec<SpecialSubscription>> = BTreeMap::new();
    for row in &conn.fetch_all(&sql.special_of, &args).await? {
        of_node.entry(row.number(0)?).or_default().push(special(row, 1)?);
    }
    let mut all = Vec::new();
    for (number, (node, is_plain)) in nodes {
        let plain = is_plain.then_some(None);
        let special = of_node.remove(&number).unwrap_or_default().into_iter().map(Some);
        all.extend(
            plain
                .into_iter()
                .chain(special)
                .map(|special| EntitySubscription { node: node.clone(), special }),
        );
    }
    Ok(all)
}

async fn subscribers(
    conn: &mut DbConnection,
    node: &NodeName,
    after: Option<&Jid>,
    limit: u32,
) -> Result<Vec<Jid>, StoreError> {
    let Some(number) = find(conn, node).await? else { return Ok(Vec::new()) };
    let number = node_number(number)?;
    let mut last = None;
    if let Some(after) = after {
        let Some(after) = id_of(conn, after.as_ref().bare().as_str()).await? else { return Ok(Vec::new()) };
        let after = entity_number(after)?;
        if !subscription_sets::contains(conn, number, after).await? {
            return Ok(Vec::new());
        }
        last = Some(after);
    }
    let numbers = subscription_sets::subscribers(conn, number, last, limit).await?;
    let known = address_dictionary::resolve(conn, &numbers).await?;
    let missing = || corrupt("the address of a subscriber is missing from the database");
    numbers.iter().map(|number| known.get(number).cloned().ok_or_else(missing)).collect()
}

fn change_bytes(change: &PubSubChange) -> usize {
    128 + match change {
        PubSubChange::Put(record) => record.config.len() + record.title.len(),
        PubSubChange::PutItem(item) => item.payload.len() + item.head.id.len(),
        PubSubChange::PutSpecial(one) => one.state.len(),
        _ => 0,
    }
}

impl PubSub for SqlStores {
    fn load(&self, node: JidRef<'_>) -> StoreFuture<'_, Option<StoredPubSubNode>> {
        self.read(NodeName::new(node), |conn, node| Box::pin(load(conn, node)))
    }

    fn record(
        &self,
        node: JidRef<'_>,
        entity: JidRef<'_>,
    ) -> StoreFuture<'_, Option<(PubSubNodeRecord, Option<u8>)>> {
        self.read((NodeName::new(node), bare(entity)), |conn, args| Box::pin(record_of(conn, args)))
    }

    fn newest_items(&self, node: JidRef<'_>, limit: u32) -> StoreFuture<'_, Vec<PubSubItemHead>> {
        self.read((NodeName::new(node), limit), |conn, args| Box::pin(newest_items(conn, args)))
    }

    fn apply(&self, node: JidRef<'_>, changes: Vec<PubSubChange>) -> StoreFuture<'_, ()> {
        let node = NodeName::new(node);
        let bytes = changes.iter().map(change_bytes).sum();
        let is_removed = changes.contains(&PubSubChange::Remove);
        let written = self.writer.call(node.owner(), bytes, (node, changes), |conn, (node, changes)| {
            Box::pin(apply(conn, node, changes))
        });
        if !is_removed {
            return written;
        }
        Box::pin(async move {
            written.await?;
            self.subscription_cleaner.wake();
            Ok(())
        })
    }

    fn items(&self, node: JidRef<'_>, seqs: Vec<u64>) -> StoreFuture<'_, Vec<PubSubItem>> {
        self.read((NodeName::new(node), seqs), |conn, (node, seqs)| Box::pin(items(conn, node, seqs)))
    }

    fn items_within(
        &self,
        node: JidRef<'_>,
        seqs: Vec<u64>,
        bytes: u64,
        from_end: bool,
    ) -> StoreFuture<'_, Vec<PubSubItem>> {
        self.read((NodeName::new(node), seqs, bytes, from_end), |conn, (node, seqs, bytes, from_end)| {
            Box::pin(items_within(conn, node, seqs, *bytes, *from_end))
        })
    }

    fn number(&self, node: JidRef<'_>) -> StoreFuture<'_, Option<u32>> {
        self.read(NodeName::new(node), |conn, node| {
            Box::pin(async move { find(conn, node).await?.map(node_number).transpose() })
        })
    }

    fn resolve(&self, numbers: Vec<u32>) -> StoreFuture<'_, Vec<(u32, Jid)>> {
        self.read(numbers, |conn, numbers| Box::pin(resolve(conn, numbers)))
    }

    fn of_services(&self, services: Vec<AddressId>) -> StoreFuture<'_, Vec<(AddressId, Jid)>> {
        self.read(services, |conn, services| {
            Box::pin(async move {
                let context = conn.context.clone();
                let args: Vec<Arg<'_>> = services.iter().map(|id| Arg::number(id.get().into())).collect();
                let rows = conn.fetch_in(&context.sql.pubsub.of_services, &args).await?;
                let node = |row: &SqlRow| {
                    let service = u32::try_from(row.number(0)?).ok().and_then(AddressId::new);
                    let service =
                        service.ok_or_else(|| corrupt("the service of a PubSub node is no address"))?;
                    Ok((service, node_address(row.text(1)?, row.bytes(2)?)?))
                };
                rows.iter().map(node).collect()
            })
        })
    }

    fn list(
        &self,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ListedPubSubNode>> {
        self.read((bare(service), after, limit), |conn, page| Box::pin(list(conn, page, false)))
    }

    fn list_all(
        &self,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ListedPubSubNode>> {
        self.read((bare(service), after, limit), |conn, page| Box::pin(list(conn, page, true)))
    }

    fn records(
        &self,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<PubSubNodeOfService>> {
        self.read((bare(service), after, limit), |conn, page| Box::pin(records(conn, page)))
    }

    fn count(&self, service: JidRef<'_>) -> StoreFuture<'_, u64> {
        self.read(bare(service), |conn, service| {
            Box::pin(async move {
                let context = conn.context.clone();
                count(conn, &context.sql.pubsub.count, service, MAX_NODE_COUNT).await
            })
        })
    }

    fn count_created(&self, creator: JidRef<'_>, most: u32) -> StoreFuture<'_, u64> {
        self.read((bare(creator), most), |conn, (creator, most)| {
            Box::pin(async move {
                let context = conn.context.clone();
                count(conn, &context.sql.pubsub.count_created, creator, (*most).into()).await
            })
        })
    }

    fn affiliations_of(
        &self,
        entity: JidRef<'_>,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(Jid, u8)>> {
        self.read((bare(entity), bare(service), after, limit), |conn, page| {
            Box::pin(affiliations_of(conn, page))
        })
    }

    fn nodes_of_entity(
        &self,
        entity: JidRef<'_>,
        after: u32,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(u32, Jid)>> {
        self.read((bare(entity), after, limit), |conn, (entity, after, limit)| {
            Box::pin(nodes_of_entity(conn, entity, *after, *limit))
        })
    }

    fn is_subscribed(&self, node: JidRef<'_>, subscriber: JidRef<'_>) -> StoreFuture<'_, bool> {
        self.read((NodeName::new(node), bare(subscriber)), |conn, (node, subscriber)| {
            Box::pin(async move {
                let known = ids(conn, &[&node.service, subscriber]).await?;
                let (Some(service), Some(user)) = (known.get(&node.service), known.get(subscriber)) else {
                    return Ok(false);
                };
                let Some(number) = find_of_service(conn, *service, &node.name).await? else {
                    return Ok(false);
                };
                subscription_sets::contains(conn, node_number(number)?, entity_number(*user)?).await
            })
        })
    }

    fn subscribers(&self, node: JidRef<'_>, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<Jid>> {
        self.read((NodeName::new(node), after, limit), |conn, (node, after, limit)| {
            Box::pin(subscribers(conn, node, after.as_ref(), *limit))
        })
    }

    fn count_subscribers(&self, node: JidRef<'_>) -> StoreFuture<'_, u64> {
        self.read(NodeName::new(node), |conn, node| {
            Box::pin(async move {
                let Some(number) = find(conn, node).await? else { return Ok(0) };
                subscription_sets::count(conn, SubscriptionSide::Subscribers, node_number(number)?).await
            })
        })
    }

    fn subscriptions_of(
        &self,
        entity: JidRef<'_>,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<EntitySubscription>> {
        self.read((bare(entity), bare(service), after, limit), |conn, page| {
            Box::pin(subscriptions_of(conn, page))
        })
    }

    fn count_subscriptions(&self, entity: JidRef<'_>, most: u32) -> StoreFuture<'_, u64> {
        self.read((bare(entity), most), |conn, (entity, most)| {
            Box::pin(async move {
                let context = conn.context.clone();
                let sql = &context.sql.pubsub;
                let most = u64::from(*most);
                let Some(entity) = id_of(conn, entity).await? else { return Ok(0) };
                let side = SubscriptionSide::Nodes;
                let plain = subscription_sets::count(conn, side, entity_number(entity)?).await?;
                let args = [Arg::number(entity), Arg::number(most)];
                let row = conn.fetch_optional(&sql.count_special, &args).await?;
                Ok(plain.min(most) + row.map_or(Ok(0), |row| row.number(0))?)
            })
        })
    }
}
