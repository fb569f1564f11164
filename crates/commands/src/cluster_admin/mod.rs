//! Administration of all nodes of a cluster: typed queries to nodes, and their answers.
//!
//! A [`NodeQuery`] is answered by each node with what it has: sessions ([`sessions`]), online users ([`online_users`]),
//! measurements ([`summary`]), lines of the log and of the audit log ([`records`]). [`collect_answers`] collects the answers, those of
//! this node included, and names the nodes that did not answer: no list and no number is partial without saying so.
//!
//! On the wire a query is one octet, [`VERSION`], and JSON; an answer is JSON, except for [`NodeQuery::Overview`]. A
//! node answers a query that it cannot read with *not supported* (`peers::node_queries`). Members of answers have
//! defaults, and unknown ones are ignored, so answers may get further members; a query with a further member is another
//! query for a node that does not know it, and not supported.
//!
//! # Pitfalls
//!
//! An answer comes from another node: its size is bounded, but its content is not checked before [`collect_answers`] has parsed it.

mod account_paging;
pub mod online_users;
mod pages;
pub mod records;
pub mod sessions;
pub mod summary;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use base::spawn::BoxFuture;
use cluster::NodeId;
use jid::Jid;
use peers::node_queries::{
    AnswerNodeQuery, MAX_ANSWER_BYTES, NodeAnswer, NodeQueryHandler, other_nodes, query_nodes,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stanza::{StreamCondition, StreamError};
use throng_core::Node;

use self::online_users::{OnlineUsersQuery, UserSelection};
use self::sessions::SessionQuery;
use crate::log_buffer::LogLevel;
use crate::{CommandError, CommandErrorKind};

/// First octet of a query.
const VERSION: u8 = 1;
/// Octets of the items of one answer, as JSON. What does not fit is on the next page.
const PAGE_BYTES: usize = MAX_ANSWER_BYTES / 4 * 3;

/// A query to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum NodeQuery {
    /// How many online users of a domain have this node as their home.
    CountOnline {
        /// The domain.
        domain: String,
        /// Which users.
        users: UserSelection,
    },
    /// A page of the online users of a domain.
    OnlineUsers(OnlineUsersQuery),
    /// A page of sessions.
    Sessions(SessionQuery),
    /// Ends the session with this address, or all sessions of a bare address, with `policy-violation`; answered with their
    /// number.
    EndSessions {
        /// The address.
        jid: String,
        /// Text of the stream error.
        text: String,
    },
    /// The measurements of a node.
    Summary,
    /// The overview of the API: gzip of JSON.
    Overview {
        /// Only samples after this time, in seconds since 1970.
        since: Option<u64>,
    },
    /// Lines of the log.
    Log {
        /// Number of the last known line of each node, by its name.
        after: BTreeMap<String, u64>,
        /// Minimum severity.
        level: LogLevel,
        /// Maximum number of lines.
        limit: usize,
    },
    /// Entries of the audit log.
    Audit {
        /// Number of the last known entry of each node, by its name.
        after: BTreeMap<String, u64>,
        /// Maximum number of entries.
        limit: usize,
    },
}

impl NodeQuery {
    fn encode(&self) -> Vec<u8> {
        let mut octets = vec![VERSION];
        // Writing a plain value into memory does not fail; a query without content is not supported anywhere.
        if serde_json::to_writer(&mut octets, self).is_err() {
            octets.truncate(1);
        }
        octets
    }

    fn decode(octets: &[u8]) -> Option<NodeQuery> {
        let (version, json) = octets.split_first()?;
        serde_json::from_slice(json).ok().filter(|_| *version == VERSION)
    }
}

/// Which nodes are queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeSelection {
    /// All nodes.
    All,
    /// One node.
    One(NodeId),
}

impl NodeSelection {
    /// The node with this name, or all.
    ///
    /// # Errors
    /// `item-not-found` if no member of the cluster has this name.
    pub fn of(node: &Node, name: Option<&str>) -> Result<NodeSelection, CommandError> {
        let Some(name) = name.map(str::trim).filter(|name| !name.is_empty()) else {
            return Ok(NodeSelection::All);
        };
        let member =
            NodeId::new(name).filter(|id| *id == node.cluster.node() || other_nodes(node).contains(id));
        let shown: String = name.chars().filter(|c| !c.is_control()).take(NodeId::MAX).collect();
        member.map(NodeSelection::One).ok_or_else(|| {
            CommandError::new(CommandErrorKind::NotFound, format!("there is no node {shown} in the cluster"))
        })
    }

    fn nodes(self, node: &Node) -> (bool, Vec<NodeId>) {
        let own = node.cluster.node();
        match self {
            NodeSelection::All => (true, other_nodes(node)),
            NodeSelection::One(one) if one == own => (true, Vec::new()),
            NodeSelection::One(one) => (false, vec![one]),
        }
    }
}

/// Why a node is not part of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingReason {
    /// It did not answer in time, or is gone.
    NoAnswer,
    /// It has a version that does not know the query.
    NotSupported,
    /// Its answer is larger than permitted.
    TooLarge,
    /// Too many queries are open.
    Busy,
    /// Its answer cannot be read.
    Unreadable,
}

impl MissingReason {
    const fn as_str(self) -> &'static str {
        match self {
            MissingReason::NoAnswer => "did not answer",
            MissingReason::NotSupported => "has a version that does not support this",
            MissingReason::TooLarge => "sent too large an answer",
            MissingReason::Busy => "is busy",
            MissingReason::Unreadable => "sent an answer that cannot be read",
        }
    }
}

/// A node that is not part of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingNode {
    /// Its name.
    pub node: String,
    /// The reason.
    pub reason: MissingReason,
}

/// The answers of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterAnswers<T> {
    /// Answers with the names of their nodes: this node first, then by name.
    pub answers: Vec<(String, T)>,
    /// Nodes without an answer, by name.
    pub missing: Vec<MissingNode>,
}

/// Nodes that are missing, as a sentence for people; `None` if there are none.
pub fn describe_missing(missing: &[MissingNode]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let each = missing.iter().map(|one| format!("{}, which {}", one.node, one.reason.as_str()));
    Some(format!("without {}", each.collect::<Vec<_>>().join("; ")))
}

/// Queries nodes and waits for their answers, or until the time for them is over.
pub async fn collect_answers<T: DeserializeOwned>(
    node: &Arc<Node>,
    nodes: NodeSelection,
    query: &NodeQuery,
) -> ClusterAnswers<T> {
    let ClusterAnswers { answers, mut missing } = collect_answer_octets(node, nodes, query).await;
    let mut read = Vec::with_capacity(answers.len());
    for (name, octets) in answers {
        match serde_json::from_slice(&octets) {
            Ok(answer) => read.push((name, answer)),
            Err(_) => missing.push(MissingNode { node: name, reason: MissingReason::Unreadable }),
        }
    }
    missing.sort_by(|a, b| a.node.cmp(&b.node));
    ClusterAnswers { answers: read, missing }
}

/// As [`collect_answers`], with the octets of the answers.
pub async fn collect_answer_octets(
    node: &Arc<Node>,
    nodes: NodeSelection,
    query: &NodeQuery,
) -> ClusterAnswers<Vec<u8>> {
    let (with_own, others) = nodes.nodes(node);
    let octets = query.encode();
    let own = async {
        match with_own {
            true => Some(answer_query(node, query.clone()).await),
            false => None,
        }
    };
    let (own, received) = join(own, query_nodes(node, &others, &octets)).await;
    let mut all = ClusterAnswers { answers: Vec::new(), missing: Vec::new() };
    all.answers.extend(own.map(|octets| (node.cluster.node().to_string(), octets)));
    for (other, answer) in received {
        let reason = match answer {
            NodeAnswer::Content(octets) => {
                all.answers.push((other.to_string(), octets));
                continue;
            }
            NodeAnswer::NotSupported => MissingReason::NotSupported,
            NodeAnswer::TooLarge => MissingReason::TooLarge,
            NodeAnswer::Busy => MissingReason::Busy,
            NodeAnswer::Missing => MissingReason::NoAnswer,
        };
        all.missing.push(MissingNode { node: other.to_string(), reason });
    }
    all
}

/// Drives two futures until both are ready.
async fn join<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(cx)
        {
            second = Some(value);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// Ends the session with this address, or all sessions of a bare address, on all nodes; returns their number.
pub async fn end_sessions(node: &Arc<Node>, jid: &Jid, text: &str) -> (u64, Vec<MissingNode>) {
    let query = NodeQuery::EndSessions { jid: jid.to_string(), text: text.to_owned() };
    sum(collect_answers(node, NodeSelection::All, &query).await)
}

fn sum(numbers: ClusterAnswers<u64>) -> (u64, Vec<MissingNode>) {
    let sum = numbers.answers.iter().fold(0_u64, |sum, (_, number)| sum.saturating_add(*number));
    (sum, numbers.missing)
}

/// Lets the other nodes of the cluster query this one.
pub fn answer_other_nodes(node: &Node) {
    node.extensions.insert(NodeQueryHandler(Arc::new(AdministrationAnswers)));
}

struct AdministrationAnswers;

impl AnswerNodeQuery for AdministrationAnswers {
    fn answer(&self, node: &Arc<Node>, query: &[u8]) -> Option<BoxFuture<'static, Vec<u8>>> {
        let query = NodeQuery::decode(query)?;
        let node = node.clone();
        Some(Box::pin(async move { answer_query(&node, query).await }))
    }
}

/// What this node knows. An empty answer cannot be read: the node lacks what would answer it.
async fn answer_query(node: &Arc<Node>, query: NodeQuery) -> Vec<u8> {
    fn json<T: Serialize>(value: &T) -> Vec<u8> {
        serde_json::to_vec(value).unwrap_or_default()
    }
    match query {
        NodeQuery::CountOnline { domain, users } => {
            json(&online_users::count_here(node, &domain, users.filter()).await)
        }
        NodeQuery::OnlineUsers(query) => json(&online_users::page_here(node, &query).await),
        NodeQuery::Sessions(query) => json(&sessions::page_here(node, &query).await),
        NodeQuery::EndSessions { jid, text } => {
            let Ok(jid) = Jid::parse(&jid) else { return Vec::new() };
            let reason = StreamError::new(StreamCondition::PolicyViolation).text(text);
            json(&node.end_sessions(jid.as_ref(), &reason))
        }
        NodeQuery::Summary => json(&summary::summary_here(node)),
        NodeQuery::Overview { since } => {
            summary::process_of(node).and_then(|process| process.overview(since)).unwrap_or_default()
        }
        NodeQuery::Log { after, level, limit } => json(&records::log_here(node, &after, level, limit)),
        NodeQuery::Audit { after, limit } => json(&records::audit_here(node, &after, limit)),
    }
}
