//! Pages over the accounts of all nodes: each node's page in one order, merged.
//!
//! The order is that of the routing tables, the same on all nodes: shard, then address. So a page needs no state of the
//! previous one, an account with sessions on several nodes appears once, and nodes may join and leave in between.

use std::collections::BTreeMap;

use jid::Jid;
use throng_core::Node;

use super::{MissingNode, MissingReason};

/// Position of an account in the order of pages.
type PageKey = (usize, String);

/// The part of a page that one node has.
pub(super) struct PageOfNode<T> {
    /// Items with the bare address of their account.
    pub(super) items: Vec<(Jid, T)>,
    /// The last account that the node has looked at, if it has more.
    pub(super) next: Option<Jid>,
}

/// A page of all nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MergedPage<T> {
    /// Items of whole accounts, in the order of pages.
    pub(super) items: Vec<T>,
    /// Start of the next page; `None` if this is the last one.
    pub(super) next: Option<String>,
}

pub(super) fn page_key(node: &Node, jid: &Jid) -> PageKey {
    let bare = jid.as_ref().bare();
    (node.routing_table.shard_index(bare), bare.as_str().to_owned())
}

/// Merges pages that all begin after `after`. The page ends with the account that reaches the limit, and where the first
/// node that has more ends.
pub(super) fn merge_pages<T>(
    node: &Node,
    pages: Vec<PageOfNode<T>>,
    after: Option<&Jid>,
    limit: usize,
) -> MergedPage<T> {
    let after = after.map(|jid| page_key(node, jid));
    let end = pages.iter().filter_map(|page| page.next.as_ref()).map(|next| page_key(node, next)).min();
    let mut accounts: BTreeMap<PageKey, Vec<T>> = BTreeMap::new();
    for (jid, item) in pages.into_iter().flat_map(|page| page.items) {
        let key = page_key(node, &jid);
        let is_before = after.as_ref().is_some_and(|after| key <= *after);
        if is_before || end.as_ref().is_some_and(|end| key > *end) {
            continue;
        }
        accounts.entry(key).or_default().push(item);
    }
    let (mut items, mut last) = (Vec::new(), None);
    for (key, of_account) in accounts {
        if items.len() >= limit {
            return MergedPage { items, next: last };
        }
        items.extend(of_account);
        last = Some(key.1);
    }
    // Everything up to the end is on this page.
    MergedPage { items, next: end.map(|(_, address)| address) }
}

/// Separates pages that no correct node sends: those that do not go on would be requested forever.
pub(super) fn check_pages<T>(
    node: &Node,
    after: Option<&Jid>,
    pages: Vec<(String, Option<PageOfNode<T>>)>,
    missing: &mut Vec<MissingNode>,
) -> Vec<PageOfNode<T>> {
    let after = after.map(|jid| page_key(node, jid));
    let mut good = Vec::with_capacity(pages.len());
    for (name, page) in pages {
        let page = page.filter(|page| {
            page.next
                .as_ref()
                .is_none_or(|next| after.as_ref().is_none_or(|after| page_key(node, next) > *after))
        });
        match page {
            Some(page) => good.push(page),
            None => missing.push(MissingNode { node: name, reason: MissingReason::Unreadable }),
        }
    }
    good
}
