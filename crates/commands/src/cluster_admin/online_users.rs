//! Online users of all nodes: their number and pages of their addresses.
//!
//! # Pitfalls
//!
//! A number counts a user at its home only; if that node does not answer, the user is not counted. A page has the users of
//! each node that answers, also those whose home does not.

use std::sync::Arc;

use base::spawn::yield_now;
use jid::Jid;
use serde::{Deserialize, Serialize};
use throng_core::router::OnlineFilter;
use throng_core::router::peer_routing::address_number;
use throng_core::{Account, Node};

use super::account_paging::page_of_shard;
use super::pages::{PageOfNode, check_pages, merge_pages};
use super::{ClusterAnswers, MissingNode, NodeQuery, NodeSelection, PAGE_BYTES, collect_answers, sum};

/// Maximum number of users on a page.
pub const MAX_PAGE: u32 = 1_000;

/// Which online users a query concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserSelection {
    /// All.
    All,
    /// Those with an active client.
    Active,
    /// Those whose clients are all inactive.
    Idle,
}

impl UserSelection {
    pub(super) fn filter(self) -> OnlineFilter {
        match self {
            UserSelection::All => OnlineFilter::All,
            UserSelection::Active => OnlineFilter::Active,
            UserSelection::Idle => OnlineFilter::Idle,
        }
    }
}

impl From<OnlineFilter> for UserSelection {
    fn from(filter: OnlineFilter) -> UserSelection {
        match filter {
            OnlineFilter::All => UserSelection::All,
            OnlineFilter::Active => UserSelection::Active,
            OnlineFilter::Idle => UserSelection::Idle,
        }
    }
}

/// A query for a page of online users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnlineUsersQuery {
    /// Their domain.
    pub domain: String,
    /// Which users.
    pub users: UserSelection,
    /// Only users after this one.
    pub after: Option<String>,
    /// Maximum number of users.
    pub limit: u32,
}

/// The users of one node.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OnlineUsersAnswer {
    users: Vec<String>,
    next: Option<String>,
}

/// A page of the users of all nodes.
#[derive(Debug, PartialEq, Eq)]
pub struct OnlineUsersPage {
    /// Bare addresses.
    pub users: Vec<String>,
    /// The `after` of the next page; `None` on the last one.
    pub next: Option<String>,
    /// Nodes whose users are missing.
    pub missing: Vec<MissingNode>,
}

/// Counts the online users of a domain on all nodes. A user with sessions on several nodes counts once.
pub async fn count_online_users(
    node: &Arc<Node>,
    domain: &str,
    filter: OnlineFilter,
) -> (u64, Vec<MissingNode>) {
    let query = NodeQuery::CountOnline { domain: domain.to_owned(), users: filter.into() };
    sum(collect_answers(node, NodeSelection::All, &query).await)
}

/// One page of the online users of a domain. `after` is the address of an account.
pub async fn online_users(
    node: &Arc<Node>,
    domain: &str,
    filter: OnlineFilter,
    after: Option<&Jid>,
    limit: u32,
) -> OnlineUsersPage {
    let query = NodeQuery::OnlineUsers(OnlineUsersQuery {
        domain: domain.to_owned(),
        users: filter.into(),
        after: after.map(Jid::to_string),
        limit,
    });
    let ClusterAnswers { answers, mut missing } =
        collect_answers::<OnlineUsersAnswer>(node, NodeSelection::All, &query).await;
    let pages = answers.into_iter().map(|(name, answer)| (name, read_page(answer))).collect();
    let pages = check_pages(node, after, pages, &mut missing);
    let page = merge_pages(node, pages, after, limit as usize);
    let mut users: Vec<String> = page.items;
    // A user with sessions on two nodes is in both answers, one after the other.
    users.dedup();
    OnlineUsersPage { users, next: page.next, missing }
}

fn read_page(answer: OnlineUsersAnswer) -> Option<PageOfNode<String>> {
    let parse = |text: &str| Jid::parse(text).ok().filter(|jid| jid.local().is_some() && jid.is_bare());
    let items = answer.users.into_iter().map(|text| Some((parse(&text)?, text)));
    let next = match answer.next {
        Some(text) => Some(parse(&text)?),
        None => None,
    };
    Some(PageOfNode { items: items.collect::<Option<_>>()?, next })
}

/// Counts the users whose home this node is: of the nodes with sessions of a user, one counts.
pub(super) async fn count_here(node: &Arc<Node>, domain: &str, filter: OnlineFilter) -> u64 {
    let mut count = 0;
    for shard in 0..node.routing_table.shard_count() {
        let mut accounts = Vec::new();
        node.routing_table.for_each_in_shard(shard, |account| accounts.push(account.clone()));
        if accounts.is_empty() {
            continue;
        }
        let matching = accounts.iter().filter(|account| filter.matches(account, domain));
        let counted = matching.filter(|account| is_home_of(node, account));
        count += counted.count() as u64;
        yield_now().await;
    }
    count
}

/// Whether a node is the home of an account with a session there: of the nodes with sessions of a user, one counts.
fn is_home_of(node: &Node, account: &Account) -> bool {
    let own = node.cluster.node();
    let location = node.cluster.locate(account.hash, address_number(account));
    node.is_single() || location.home(own).is_none_or(|home| home == own)
}

/// The users of this node.
pub(super) async fn page_here(node: &Arc<Node>, query: &OnlineUsersQuery) -> OnlineUsersAnswer {
    let table = &node.routing_table;
    let after = query.after.as_deref().and_then(|text| Jid::parse(text).ok());
    let limit = query.limit.clamp(1, MAX_PAGE) as usize;
    let filter = query.users.filter();
    let mut users: Vec<String> = Vec::with_capacity(limit.min(256));
    let mut bytes = 0;
    for part in after.as_ref().map_or(0, |jid| table.shard_index(jid.as_ref()))..table.shard_count() {
        let keep = |account: &Account| filter.matches(account, &query.domain);
        for account in page_of_shard(table, part, after.as_ref().map(Jid::as_ref), keep) {
            if users.len() == limit || bytes > PAGE_BYTES {
                let next = users.last().cloned();
                return OnlineUsersAnswer { users, next };
            }
            bytes += account.jid.as_str().len() + 3;
            users.push(account.jid.to_string());
        }
        yield_now().await;
    }
    OnlineUsersAnswer { users, next: None }
}
