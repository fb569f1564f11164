//! Pages of the accounts with sessions on this node, for lists.

use std::sync::Arc;

use jid::JidRef;
use throng_core::Account;
use throng_core::router::routing_table::RoutingTable;

/// Accounts of one shard that satisfy `keep`, sorted by address and starting after `after`.
pub(super) fn page_of_shard(
    table: &RoutingTable,
    part: usize,
    after: Option<JidRef<'_>>,
    keep: impl Fn(&Account) -> bool,
) -> Vec<Arc<Account>> {
    let after = after.map(|jid| jid.bare()).filter(|jid| table.shard_index(*jid) == part);
    let mut found: Vec<Arc<Account>> = Vec::new();
    table.for_each_in_shard(part, |account| {
        if after.is_none_or(|after| account.jid.as_str() > after.as_str()) && keep(account) {
            found.push(account.clone());
        }
    });
    found.sort_unstable_by(|a, b| a.jid.as_str().cmp(b.jid.as_str()));
    found
}
