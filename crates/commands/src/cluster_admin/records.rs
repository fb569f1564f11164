//! Lines of the log and of the audit log of all nodes, merged by time.
//!
//! Each node numbers its own records. A [`NodeCursor`] has the number of the last known record of each node, so a reader
//! goes on where it stopped on every one of them; records of a node that did not answer follow when it does.
//!
//! # Pitfalls
//!
//! Times are those of the nodes' clocks. Records that arrive later may be older than those that were read before.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use cluster::NodeId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use throng_core::Node;

use super::summary::process_of;
use super::{ClusterAnswers, MissingNode, NodeQuery, NodeSelection, PAGE_BYTES, collect_answers};
use crate::audit::{AuditEntry, audit_log};
use crate::log_buffer::{LogLevel, LogLine, MAX_LINES};

/// Maximum number of nodes in a cursor, beyond which it is none.
const MAX_CURSOR_NODES: usize = 256;

/// Number of the last known record of each node, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCursor(pub BTreeMap<String, u64>);

impl fmt::Display for NodeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (node, number)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{node}:{number}")?;
        }
        Ok(())
    }
}

impl FromStr for NodeCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<NodeCursor, ()> {
        let mut numbers = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (node, number) = part.split_once(':').ok_or(())?;
            NodeId::new(node).ok_or(())?;
            numbers.insert(node.to_owned(), number.parse().map_err(|_| ())?);
            if numbers.len() > MAX_CURSOR_NODES {
                return Err(());
            }
        }
        Ok(NodeCursor(numbers))
    }
}

/// A record with a number of its node.
pub trait NodeRecord: DeserializeOwned {
    /// Its number on its node.
    fn number(&self) -> u64;
    /// Its time in milliseconds since 1970.
    fn time(&self) -> u64;
}

impl NodeRecord for LogLine {
    fn number(&self) -> u64 {
        self.number
    }

    fn time(&self) -> u64 {
        self.time
    }
}

impl NodeRecord for AuditEntry {
    fn number(&self) -> u64 {
        self.number
    }

    fn time(&self) -> u64 {
        self.at
    }
}

/// The records of one node, oldest first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordsAnswer<T> {
    items: Vec<T>,
    /// Number after which the node goes on.
    next: u64,
}

/// Records of several nodes.
#[derive(Debug)]
pub struct MergedRecords<T> {
    /// Records with the names of their nodes, oldest first.
    pub items: Vec<(String, T)>,
    /// Cursor of the next request.
    pub next: NodeCursor,
    /// Nodes whose records are missing.
    pub missing: Vec<MissingNode>,
}

/// Lines of the logs of nodes: those after a cursor, oldest first, or the newest ones.
pub async fn log_lines(
    node: &Arc<Node>,
    nodes: NodeSelection,
    after: Option<NodeCursor>,
    level: LogLevel,
    limit: usize,
) -> MergedRecords<LogLine> {
    let known = after.clone().unwrap_or_default().0;
    let answers = collect_answers(node, nodes, &NodeQuery::Log { after: known, level, limit }).await;
    merge(answers, after, limit)
}

/// Entries of the audit logs of nodes: those after a cursor, oldest first, or the newest ones.
pub async fn audit_entries(
    node: &Arc<Node>,
    nodes: NodeSelection,
    after: Option<NodeCursor>,
    limit: usize,
) -> MergedRecords<AuditEntry> {
    let known = after.clone().unwrap_or_default().0;
    let answers = collect_answers(node, nodes, &NodeQuery::Audit { after: known, limit }).await;
    merge(answers, after, limit)
}

fn merge<T: NodeRecord>(
    answers: ClusterAnswers<RecordsAnswer<T>>,
    after: Option<NodeCursor>,
    limit: usize,
) -> MergedRecords<T> {
    let goes_on = after.is_some();
    // Nodes that did not answer, and those that were not queried, keep their position.
    let mut next = after.unwrap_or_default();
    let mut items: Vec<(String, T)> = Vec::new();
    for (name, answer) in answers.answers {
        next.0.insert(name.clone(), answer.next);
        items.extend(answer.items.into_iter().map(|record| (name.clone(), record)));
    }
    items.sort_by(|(a, one), (b, other)| {
        (one.time(), a, one.number()).cmp(&(other.time(), b, other.number()))
    });
    if items.len() > limit && goes_on {
        // What is left out follows: each node goes on before its first record of those.
        for (name, record) in items.split_off(limit) {
            if let Some(number) = next.0.get_mut(&name) {
                *number = (*number).min(record.number().saturating_sub(1));
            }
        }
    } else if items.len() > limit {
        items.drain(..items.len() - limit);
    }
    MergedRecords { items, next, missing: answers.missing }
}

/// The position of this node in a cursor.
fn own_position(node: &Node, after: &BTreeMap<String, u64>) -> Option<u64> {
    after.get(node.cluster.node().as_str()).copied()
}

pub(super) fn log_here(
    node: &Node,
    after: &BTreeMap<String, u64>,
    level: LogLevel,
    limit: usize,
) -> RecordsAnswer<LogLine> {
    let Some(process) = process_of(node) else { return RecordsAnswer { items: Vec::new(), next: 0 } };
    let after = own_position(node, after);
    let (items, next) = process.log().read(after, level, limit.clamp(1, MAX_LINES));
    fit(items, next, after.is_some_and(|after| after <= next), LogLine::number)
}

pub(super) fn audit_here(
    node: &Node,
    after: &BTreeMap<String, u64>,
    limit: usize,
) -> RecordsAnswer<AuditEntry> {
    let limit = limit.clamp(1, crate::audit::MAX_ENTRIES);
    let log = audit_log(node);
    // A number from an earlier life of the process starts over.
    let after = own_position(node, after).filter(|after| *after <= log.last());
    let (items, last) = match after {
        Some(after) => log.after(after, limit),
        None => log.newest(limit),
    };
    let next = match items.last().filter(|_| after.is_some() && items.len() == limit) {
        Some(entry) => entry.number,
        None => last,
    };
    fit(items, next, after.is_some(), AuditEntry::number)
}

/// Keeps what fits into an answer: the oldest records for a reader that goes on, the newest ones otherwise.
fn fit<T: Serialize>(
    mut items: Vec<T>,
    mut next: u64,
    goes_on: bool,
    number: impl Fn(&T) -> u64,
) -> RecordsAnswer<T> {
    let size = |item: &T| serde_json::to_vec(item).map_or(0, |json| json.len() + 1);
    let mut room = PAGE_BYTES;
    let mut fits = |item: &T| {
        let left = room.checked_sub(size(item));
        room = left.unwrap_or(0);
        left.is_some()
    };
    if goes_on {
        let count = items.iter().take_while(|item| fits(item)).count();
        if count < items.len() {
            items.truncate(count);
            next = items.last().map_or(next, number);
        }
    } else {
        let count = items.iter().rev().take_while(|item| fits(item)).count();
        items.drain(..items.len() - count);
    }
    RecordsAnswer { items, next }
}
