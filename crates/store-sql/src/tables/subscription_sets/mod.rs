//! Plain subscriptions of PubSub nodes: two tables of chunks of numbers, `subscriber_chunk` with the sets of the nodes and
//! `node_chunk` with those of the subscribers.
//!
//! The key of a chunk is the number of its set and the first block of its range ([`keys`]); the range ends where the next
//! chunk of the set begins. There is no log: the changes of a transaction of the writer, of up to 256 callers, are applied to
//! the chunks together ([`changes`]). A log would have to be read at each look-up, and its entries, which look-ups need
//! in both orders, are as scattered as the chunks.
//!
//! Any node of a cluster may change any chunk: the sets of a subscriber are changed by the owners of all his nodes. What is read
//! before it is changed must not change in the meantime, nor a chunk be divided. On a server all transactions that change
//! chunks therefore lock the only row of `subscription_lock` first; SQLite has one writing transaction at a time. A
//! transaction changes many sets, so that finer locks would collide as well.
//!
//! # Pitfalls
//!
//! A transaction holds the lock until it is committed, so what changes many subscriptions does it in steps.

mod bulk;
mod changes;
mod chunk_table;
mod keys;

use std::collections::BTreeMap;

use store::number_chunk::NumberChunk;
use store::subscription_sets::{SidedSet, check_pairs, check_sets};
use store::{
    AddressId, NodeNumber, StoreError, StoreErrorKind, StoreFuture, SubscriptionSetChange, SubscriptionSets,
    SubscriptionSide,
};

use self::chunk_table::ChunkStatements;
use super::TableStatements;
use crate::SqlStores;
use crate::dialect::{DbConnection, Dialect};
use crate::writer::Owner;

pub(crate) use self::changes::SubscriptionRequest;

/// Subscriptions that are removed by one transaction.
const REMOVED_AT_ONCE: usize = 1024;

pub(crate) struct SubscriptionStatements {
    subscribers: ChunkStatements,
    nodes: ChunkStatements,
    lock: Option<String>,
}

impl SubscriptionStatements {
    fn side(&self, side: SubscriptionSide) -> &ChunkStatements {
        match side {
            SubscriptionSide::Subscribers => &self.subscribers,
            SubscriptionSide::Nodes => &self.nodes,
        }
    }
}

impl TableStatements for SubscriptionStatements {
    fn new(d: &dyn Dialect) -> SubscriptionStatements {
        SubscriptionStatements {
            subscribers: ChunkStatements::new(d, "subscriber_chunk"),
            nodes: ChunkStatements::new(d, "node_chunk"),
            lock: d
                .lock_rows()
                .map(|lock| d.sql(&format!("SELECT id FROM subscription_lock WHERE id = 1 {lock}"))),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        [self.subscribers.all(), self.nodes.all()].concat()
    }
}

/// Keeps all other transactions from changing chunks.
pub(super) async fn lock(conn: &mut DbConnection) -> Result<(), StoreError> {
    let context = conn.context.clone();
    if let Some(lock) = &context.sql.subscription_sets.lock {
        conn.fetch_optional(lock, &[]).await?;
    }
    Ok(())
}

/// A set, and where to read it.
#[derive(Clone, Copy)]
struct SetPosition {
    side: SubscriptionSide,
    number: u32,
    after: Option<u32>,
    limit: u32,
}

/// Members of a set.
async fn members(conn: &mut DbConnection, at: SetPosition) -> Result<Vec<u32>, StoreError> {
    let (mut members, limit) = (Vec::new(), at.limit as usize);
    let mut after = at.after;
    while members.len() < limit {
        // A chunk has seldom fewer members.
        let chunks = u32::try_from((limit - members.len()) / 256).unwrap_or(u32::MAX).min(31) + 1;
        let page = chunk_table::read(conn, SetPosition { after, limit: chunks, ..at }).await?;
        for chunk in &page.chunks {
            chunk.decode_after(after, limit - members.len(), &mut members);
        }
        match page.chunks.last() {
            Some(last) if !page.is_last => after = Some(last.last()),
            _ => break,
        }
    }
    Ok(members)
}

/// Removes some subscriptions of a set; returns how many. None: the set is empty.
pub(super) async fn remove_some(
    conn: &mut DbConnection,
    side: SubscriptionSide,
    number: u32,
) -> Result<u64, StoreError> {
    lock(conn).await?;
    let position = SetPosition { side, number, after: None, limit: 1 };
    let mut members = Vec::new();
    for chunk in chunk_table::read(conn, position).await?.chunks {
        chunk.decode_after(None, REMOVED_AT_ONCE, &mut members);
    }
    let of_set: Vec<(u32, u32, bool)> = members.iter().map(|member| (number, *member, false)).collect();
    let mut of_members: Vec<(u32, u32, bool)> =
        members.iter().map(|member| (*member, number, false)).collect();
    of_members.sort_unstable();
    chunk_table::change(conn, side, &of_set).await?;
    chunk_table::change(conn, side.opposite(), &of_members).await?;
    Ok(members.len() as u64)
}

/// Adds and removes subscriptions of a node, inside a transaction that changes the node, too: whether each subscriber is added.
pub(super) async fn change_subscribers(
    conn: &mut DbConnection,
    node: u32,
    subscribers: &BTreeMap<u32, bool>,
) -> Result<(), StoreError> {
    if subscribers.is_empty() {
        return Ok(());
    }
    lock(conn).await?;
    let of_node: Vec<(u32, u32, bool)> =
        subscribers.iter().map(|(subscriber, is_added)| (node, *subscriber, *is_added)).collect();
    let of_subscribers: Vec<(u32, u32, bool)> =
        subscribers.iter().map(|(subscriber, is_added)| (*subscriber, node, *is_added)).collect();
    chunk_table::change(conn, SubscriptionSide::Subscribers, &of_node).await?;
    chunk_table::change(conn, SubscriptionSide::Nodes, &of_subscribers).await
}

/// Whether there is a subscription.
pub(super) async fn contains(
    conn: &mut DbConnection,
    node: u32,
    subscriber: u32,
) -> Result<bool, StoreError> {
    let chunk = chunk_table::covering(conn, SubscriptionSide::Subscribers, node, subscriber).await?;
    Ok(chunk.is_some_and(|(_, chunk)| chunk.contains(subscriber)))
}

/// Subscribers of a node above a number.
pub(super) async fn subscribers(
    conn: &mut DbConnection,
    node: u32,
    after: Option<u32>,
    limit: u32,
) -> Result<Vec<u32>, StoreError> {
    members(conn, SetPosition { side: SubscriptionSide::Subscribers, number: node, after, limit }).await
}

/// Nodes of a subscriber above a number.
pub(super) async fn nodes(
    conn: &mut DbConnection,
    subscriber: u32,
    after: u32,
    limit: u32,
) -> Result<Vec<u32>, StoreError> {
    let after = Some(after);
    members(conn, SetPosition { side: SubscriptionSide::Nodes, number: subscriber, after, limit }).await
}

/// Count of the members of a set.
pub(super) async fn count(
    conn: &mut DbConnection,
    side: SubscriptionSide,
    number: u32,
) -> Result<u64, StoreError> {
    chunk_table::count(conn, side, number).await
}

impl SqlStores {
    fn read_members(&self, at: SetPosition) -> StoreFuture<'_, Vec<u32>> {
        self.read(at, |conn, at| Box::pin(members(conn, *at)))
    }

    /// Removes a set in steps.
    fn remove_set(&self, side: SubscriptionSide, number: u32) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let mut removed = 0;
            loop {
                let some = self
                    .writer
                    .call(Owner::None, 64, (side, number), |conn, (side, number)| {
                        Box::pin(remove_some(conn, *side, *number))
                    })
                    .await?;
                removed += some;
                if some == 0 {
                    return Ok(removed);
                }
            }
        })
    }

    fn count_set(&self, side: SubscriptionSide, number: u32) -> StoreFuture<'_, u64> {
        self.read((side, number), |conn, (side, number)| Box::pin(chunk_table::count(conn, *side, *number)))
    }
}

impl SubscriptionSets for SqlStores {
    fn subscribe(&self, node: NodeNumber, subscriber: AddressId) -> StoreFuture<'_, bool> {
        let changed = self.writer.change_subscriptions(vec![(node.0, subscriber.get(), true)]);
        Box::pin(async move { Ok(changed.await? > 0) })
    }

    fn unsubscribe(&self, node: NodeNumber, subscriber: AddressId) -> StoreFuture<'_, bool> {
        let changed = self.writer.change_subscriptions(vec![(node.0, subscriber.get(), false)]);
        Box::pin(async move { Ok(changed.await? > 0) })
    }

    fn add_many(&self, pairs: Vec<(NodeNumber, AddressId)>) -> StoreFuture<'_, u64> {
        if let Err(error) = check_pairs(pairs.len()) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let changes = pairs.into_iter().map(|(node, subscriber)| (node.0, subscriber.get(), true)).collect();
        self.writer.change_subscriptions(changes)
    }

    fn change_many(&self, changes: Vec<SubscriptionSetChange>) -> StoreFuture<'_, u64> {
        if let Err(error) = check_pairs(changes.len()) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let changes =
            changes.into_iter().map(|one| (one.node.0, one.subscriber.get(), one.is_added)).collect();
        self.writer.change_subscriptions(changes)
    }

    fn contains(&self, node: NodeNumber, subscriber: AddressId) -> StoreFuture<'_, bool> {
        self.read((node.0, subscriber.get()), |conn, (node, subscriber)| {
            Box::pin(contains(conn, *node, *subscriber))
        })
    }

    fn count_subscribers(&self, node: NodeNumber) -> StoreFuture<'_, u64> {
        self.count_set(SubscriptionSide::Subscribers, node.0)
    }

    fn count_nodes(&self, subscriber: AddressId) -> StoreFuture<'_, u64> {
        self.count_set(SubscriptionSide::Nodes, subscriber.get())
    }

    fn subscribers(
        &self,
        node: NodeNumber,
        after: Option<AddressId>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<AddressId>> {
        let (side, after) = (SubscriptionSide::Subscribers, after.map(AddressId::get));
        let page = self.read_members(SetPosition { side, number: node.0, after, limit });
        Box::pin(async move {
            let zero = || StoreError::new(StoreErrorKind::Corrupt, "a subscriber of a node has the number 0");
            page.await?.into_iter().map(|number| AddressId::new(number).ok_or_else(zero)).collect()
        })
    }

    fn nodes(
        &self,
        subscriber: AddressId,
        after: Option<NodeNumber>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<NodeNumber>> {
        let (side, after) = (SubscriptionSide::Nodes, after.map(|after| after.0));
        let page = self.read_members(SetPosition { side, number: subscriber.get(), after, limit });
        Box::pin(async move { Ok(page.await?.into_iter().map(NodeNumber).collect()) })
    }

    fn chunks(
        &self,
        node: NodeNumber,
        after: Option<AddressId>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<NumberChunk>> {
        let (side, after) = (SubscriptionSide::Subscribers, after.map(AddressId::get));
        self.read(SetPosition { side, number: node.0, after, limit }, |conn, at| {
            Box::pin(async move { Ok(chunk_table::read(conn, *at).await?.chunks) })
        })
    }

    fn remove_node(&self, node: NodeNumber) -> StoreFuture<'_, u64> {
        self.remove_set(SubscriptionSide::Subscribers, node.0)
    }

    fn remove_subscriber(&self, subscriber: AddressId) -> StoreFuture<'_, u64> {
        self.remove_set(SubscriptionSide::Nodes, subscriber.get())
    }

    fn add_sided(&self, side: SubscriptionSide, sets: Vec<SidedSet>) -> StoreFuture<'_, ()> {
        if let Err(error) = check_sets(side, &sets) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let bytes = sets.iter().map(|set| set.members.len() * 4 + 64).sum();
        self.writer.call(Owner::None, bytes, (side, sets), |conn, (side, sets)| {
            Box::pin(bulk::add(conn, *side, sets))
        })
    }
}
