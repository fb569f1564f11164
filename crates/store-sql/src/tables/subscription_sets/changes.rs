//! Subscriptions that several callers add and remove, changed together: one look-up, one read and one write for each side.

use std::collections::BTreeMap;

use base::BoxFuture;
use store::{StoreError, SubscriptionSide};

use super::chunk_table::{LoadedChunks, change, change_loaded};
use super::lock;
use crate::dialect::DbConnection;
use crate::writer::Owner;
use crate::writer::jobs::{MergeableRequest, PendingReply};

/// Subscriptions to add and to remove, in their order, for one caller.
pub(crate) struct SubscriptionRequest {
    /// Numbers of node and subscriber, and whether the subscription is added.
    changes: Vec<(u32, u32, bool)>,
    /// Count of the subscriptions that were changed.
    reply: PendingReply<u64>,
}

impl SubscriptionRequest {
    pub(crate) fn new(changes: Vec<(u32, u32, bool)>, reply: PendingReply<u64>) -> SubscriptionRequest {
        SubscriptionRequest { changes, reply }
    }
}

impl MergeableRequest for SubscriptionRequest {
    type Output = u64;

    fn owner(&self) -> Owner {
        Owner::None
    }

    fn reply(&self) -> &PendingReply<u64> {
        &self.reply
    }

    fn into_reply(self) -> PendingReply<u64> {
        self.reply
    }

    fn run_all<'a>(
        conn: &'a mut DbConnection,
        requests: &'a mut [SubscriptionRequest],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(change_many(conn, requests))
    }
}

/// Whether a subscription was there, and whether it is after the requests so far.
struct PairState {
    before: bool,
    after: bool,
}

/// Changes subscriptions for many callers, in their order: each sees the results of those before it.
async fn change_many(
    conn: &mut DbConnection,
    requests: &mut [SubscriptionRequest],
) -> Result<(), StoreError> {
    lock(conn).await?;
    let side = SubscriptionSide::Subscribers;
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    for request in requests.iter() {
        pairs.extend(request.changes.iter().map(|(node, subscriber, _)| (*node, *subscriber)));
    }
    let loaded = LoadedChunks::load(conn, side, pairs.into_iter()).await?;
    let mut states: BTreeMap<(u32, u32), PairState> = BTreeMap::new();
    for request in &mut *requests {
        let mut count = 0;
        for (node, subscriber, is_added) in &request.changes {
            let state = states.entry((*node, *subscriber)).or_insert_with(|| {
                let chunk = loaded.covering(*node, *subscriber);
                let before = chunk.is_some_and(|(_, chunk)| chunk.contains(*subscriber));
                PairState { before, after: before }
            });
            count += u64::from(state.after != *is_added);
            state.after = *is_added;
        }
        request.reply.set(Ok(count));
    }
    let changed = states.into_iter().filter(|(_, state)| state.before != state.after);
    let changes: Vec<(u32, u32, bool)> =
        changed.map(|((node, subscriber), state)| (node, subscriber, state.after)).collect();
    if changes.is_empty() {
        return Ok(());
    }
    change_loaded(conn, side, &loaded, &changes).await?;
    let mut opposite: Vec<(u32, u32, bool)> =
        changes.into_iter().map(|(node, subscriber, is_added)| (subscriber, node, is_added)).collect();
    opposite.sort_unstable();
    change(conn, side.opposite(), &opposite).await
}
