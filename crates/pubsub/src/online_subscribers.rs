//! The subscribers of a node who are online, for a node with only their numbers in memory: the cost is that
//! of the accounts online and of the intersection, not that of the subscribers.
//!
//! # Pitfalls
//!
//! Only for events that nobody receives later, and on a single node: what is online on other nodes of a cluster is not known by
//! number.

use std::sync::Arc;

use base::spawn::yield_now;
use jid::Jid;
use store::AddressId;
use throng_core::Node;
use throng_core::account::Account;

use crate::subscriber_cache::NumberedSubscribers;

/// Shards of the routing table that are read before the task yields.
const SHARDS_AT_ONCE: usize = 8;

/// The subscribers that have a session on this node.
pub(crate) async fn online_subscribers(node: &Arc<Node>, subscribers: &NumberedSubscribers) -> Arc<[Jid]> {
    let mut online: Vec<(u32, Arc<Account>)> = Vec::with_capacity(node.routing_table.sessions());
    for shard in 0..node.routing_table.shard_count() {
        node.routing_table.for_each_in_shard(shard, |account| {
            if account.id != AddressId::UNASSIGNED {
                online.push((account.id.get(), account.clone()));
            }
        });
        if shard % SHARDS_AT_ONCE == SHARDS_AT_ONCE - 1 {
            yield_now().await;
        }
    }
    choose(online, subscribers)
}

/// Those accounts that are subscribed, and users who have subscribed since the numbers were read: those without a session cost
/// little when the stanza is delivered.
fn choose(mut online: Vec<(u32, Arc<Account>)>, subscribers: &NumberedSubscribers) -> Arc<[Jid]> {
    let NumberedSubscribers { numbers, changed } = subscribers;
    online.sort_unstable_by_key(|(number, _)| *number);
    let wanted: Vec<u32> = online.iter().map(|(number, _)| *number).collect();
    let mut found = Vec::new();
    numbers.intersect(&wanted, &mut found);
    let mut found = found.into_iter().peekable();
    let is_found = |(number, account): &(u32, Arc<Account>)| {
        found.next_if_eq(number).is_some() && (changed.is_empty() || !changed.contains_key(&account.jid))
    };
    let added = changed.iter().filter(|(_, is_added)| **is_added).map(|(jid, _)| jid.clone());
    let unchanged: Vec<Jid> =
        online.into_iter().filter(is_found).map(|(_, account)| account.jid.clone()).collect();
    unchanged.into_iter().chain(added).collect()
}
