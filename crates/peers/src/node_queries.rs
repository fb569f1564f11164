//! Queries of administration to other nodes, and their answers: octets whose meaning is that of the crate `commands`.
//!
//! ```text
//! query      8 its number; the rest: its content
//! answer     8 the number of the query, 1 result ([`AnswerStatus`]); the rest: the content, if it was answered
//! ```
//!
//! Every queried node has a [`NodeAnswer`]: one that does not answer within [`TIMEOUT_SECONDS`], or is gone, is named and not
//! left out. A node of another version answers a query that it does not know with [`AnswerStatus::NotSupported`]; one that
//! does not know queries at all refuses the envelope, which means the same.
//!
//! # Pitfalls
//!
//! An answer is what another node says: its size is bounded here, its content is checked where it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use cluster::{Envelope, EnvelopeClass, NodeId};
use hashbrown::HashMap;
use throng_core::Node;

use super::home::PeerState;
use crate::ClusteredNode;
use crate::envelope_kinds::{NODE_QUERY, NODE_QUERY_ANSWER};

/// Time for an answer, in seconds.
pub const TIMEOUT_SECONDS: u32 = 5;
/// Maximum octets of a query.
pub const MAX_QUERY_BYTES: usize = 16 << 10;
/// Maximum octets of an answer: half of what an envelope carries, so that stanzas behind it are not delayed for long.
pub const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Maximum number of queries of this node that wait for answers.
const MAX_OPEN: usize = 64;
/// Maximum number of queries of one other node that are being answered.
const MAX_ANSWERING: usize = 64;
/// Maximum octets of the answers of all queries that still wait for further ones.
const MAX_RETAINED_BYTES: usize = 32 << 20;

/// What one node has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// The content of the answer.
    Content(Vec<u8>),
    /// The node does not know the query: it has another version.
    NotSupported,
    /// The answer exceeds [`MAX_ANSWER_BYTES`], or the answers of all queries their bound.
    TooLarge,
    /// Too many queries are open, here or there.
    Busy,
    /// No answer in time; also of a node that is gone.
    Missing,
}

/// The result in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AnswerStatus {
    /// The content follows.
    Answered = 0,
    /// The query is unknown to the node.
    NotSupported = 1,
    /// The answer would be too large.
    TooLarge = 2,
    /// The node answers too many queries already.
    Busy = 3,
}

impl AnswerStatus {
    fn from_byte(byte: u8) -> Option<AnswerStatus> {
        [AnswerStatus::Answered, AnswerStatus::NotSupported, AnswerStatus::TooLarge, AnswerStatus::Busy]
            .into_iter()
            .find(|status| *status as u8 == byte)
    }
}

/// Answers the queries of other nodes.
pub trait AnswerNodeQuery: Send + Sync {
    /// Starts the answer. `None` if the query is unknown.
    fn answer(&self, node: &Arc<Node>, query: &[u8]) -> Option<BoxFuture<'static, Vec<u8>>>;
}

/// The extension of a node that answers queries; without it, no query is supported.
pub struct NodeQueryHandler(pub Arc<dyn AnswerNodeQuery>);

/// The other nodes of the cluster, in the order of their names.
pub fn other_nodes(node: &Node) -> Vec<NodeId> {
    if node.is_single() {
        return Vec::new();
    }
    let own = node.cluster.node();
    let others: BTreeSet<NodeId> =
        node.cluster.members().into_iter().map(|member| member.node).filter(|other| *other != own).collect();
    others.into_iter().collect()
}

/// Sends a query to these nodes and waits for all answers, which are in the order of `nodes`.
pub async fn query_nodes(node: &Arc<Node>, nodes: &[NodeId], query: &[u8]) -> Vec<(NodeId, NodeAnswer)> {
    let all = |answer: NodeAnswer| nodes.iter().map(|other| (*other, answer.clone())).collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let Some(clustered) = ClusteredNode::of(node) else { return all(NodeAnswer::Missing) };
    let waiting: BTreeSet<NodeId> = nodes.iter().copied().collect();
    if query.len() > MAX_QUERY_BYTES {
        return all(NodeAnswer::TooLarge);
    }
    let deadline = node.seconds().saturating_add(TIMEOUT_SECONDS);
    let Some(id) = clustered.state.queries.begin(waiting, deadline) else { return all(NodeAnswer::Busy) };
    let open = OpenQuery { state: clustered.state.clone(), id };
    let octets: Arc<[u8]> = [&id.to_be_bytes()[..], query].concat().into();
    for other in nodes {
        let own = node.cluster.node();
        let envelope = Envelope::new(NODE_QUERY, EnvelopeClass::Control, own, Vec::new(), octets.clone());
        if let Err(refused) = node.cluster.deliver(*other, envelope) {
            tracing::warn!(%refused, "a node was not queried");
            open.state.queries.answered(id, *other, NodeAnswer::Missing);
        }
    }
    let mut answers = open.state.queries.result(id).await;
    nodes.iter().map(|other| (*other, answers.remove(other).unwrap_or(NodeAnswer::Missing))).collect()
}

struct PendingNodeQuery {
    /// Nodes that have not answered.
    waiting: BTreeSet<NodeId>,
    answers: BTreeMap<NodeId, NodeAnswer>,
    /// Octets of the answers.
    bytes: usize,
    /// Second of the node's clock.
    deadline: u32,
    waker: Option<Waker>,
}

#[derive(Default)]
struct PendingNodeQueries {
    next: u64,
    open: HashMap<u64, PendingNodeQuery>,
    /// Octets of all answers.
    bytes: usize,
}

impl PendingNodeQueries {
    fn remove(&mut self, id: u64) -> Option<PendingNodeQuery> {
        let removed = self.open.remove(&id)?;
        self.bytes -= removed.bytes;
        Some(removed)
    }
}

/// Queries of this node that are not answered yet. Few: each belongs to an action of an administrator.
#[derive(Default)]
pub(super) struct NodeQueries(LeafMutex<PendingNodeQueries>);

impl NodeQueries {
    /// `None` if too many are open.
    fn begin(&self, nodes: BTreeSet<NodeId>, deadline: u32) -> Option<u64> {
        let mut queries = self.0.lock();
        if queries.open.len() >= MAX_OPEN {
            return None;
        }
        queries.next += 1;
        let id = queries.next;
        let query =
            PendingNodeQuery { waiting: nodes, answers: BTreeMap::new(), bytes: 0, deadline, waker: None };
        queries.open.insert(id, query);
        Some(id)
    }

    /// A node has answered, or will not.
    fn answered(&self, id: u64, by: NodeId, answer: NodeAnswer) {
        let mut queries = self.0.lock();
        let retained = queries.bytes;
        let Some(open) = queries.open.get_mut(&id) else { return };
        if !open.waiting.remove(&by) {
            return;
        }
        let (bytes, answer) = match answer {
            NodeAnswer::Content(octets) if retained + octets.len() > MAX_RETAINED_BYTES => {
                (0, NodeAnswer::TooLarge)
            }
            NodeAnswer::Content(octets) => (octets.len(), NodeAnswer::Content(octets)),
            other => (0, other),
        };
        open.bytes += bytes;
        open.answers.insert(by, answer);
        let waker = open.waker.take_if(|_| open.waiting.is_empty());
        queries.bytes += bytes;
        drop(queries);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn forget_node(&self, node: NodeId) {
        let ids: Vec<u64> = self.0.lock().open.keys().copied().collect();
        ids.into_iter().for_each(|id| self.answered(id, node, NodeAnswer::Missing));
    }

    /// Ends queries whose time is over.
    fn expire(&self, now: u32) {
        let mut wakers = Vec::new();
        for open in self.0.lock().open.values_mut().filter(|open| open.deadline <= now) {
            open.waiting.clear();
            wakers.extend(open.waker.take());
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The answers, when there are no further ones.
    async fn result(&self, id: u64) -> BTreeMap<NodeId, NodeAnswer> {
        poll_fn(|cx| {
            let mut queries = self.0.lock();
            let Some(open) = queries.open.get_mut(&id) else { return Poll::Ready(BTreeMap::new()) };
            if open.waiting.is_empty() {
                return Poll::Ready(queries.remove(id).map(|ended| ended.answers).unwrap_or_default());
            }
            open.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// A query that waits for answers. Dropping it ends the query: the command that sent it may be aborted.
struct OpenQuery {
    state: Arc<PeerState>,
    id: u64,
}

impl Drop for OpenQuery {
    fn drop(&mut self) {
        self.state.queries.0.lock().remove(self.id);
    }
}

/// Number of queries of each other node that are being answered.
#[derive(Default)]
pub(super) struct InboundQueries(LeafMutex<BTreeMap<NodeId, usize>>);

/// A query that is being answered.
struct Answering {
    state: Arc<PeerState>,
    node: NodeId,
}

impl Answering {
    /// `None` if too many of that node are being answered.
    fn begin(state: &Arc<PeerState>, node: NodeId) -> Option<Answering> {
        let mut nodes = state.inbound_queries.0.lock();
        let count = nodes.entry(node).or_default();
        if *count >= MAX_ANSWERING {
            return None;
        }
        *count += 1;
        drop(nodes);
        Some(Answering { state: state.clone(), node })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut nodes = self.state.inbound_queries.0.lock();
        if let Some(count) = nodes.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                nodes.remove(&self.node);
            }
        }
    }
}

/// Number of a query, and the rest of its octets or of those of its answer.
fn split_number(octets: &[u8]) -> Option<(u64, &[u8])> {
    let (id, rest) = octets.split_first_chunk()?;
    Some((u64::from_be_bytes(*id), rest))
}

impl ClusteredNode<'_> {
    /// Ends queries that were not answered in time. Called by the sweep.
    pub(super) fn expire_node_queries(&self, now: u32) {
        self.state.queries.expire(now);
    }

    /// A node refused an envelope, or is gone. `refused`: it does not know the kind.
    pub(super) fn on_query_returned(&self, by: NodeId, envelope: &Envelope, refused: bool) {
        if envelope.header.kind != NODE_QUERY {
            return;
        }
        if let Some((id, _)) = split_number(&envelope.bytes) {
            let answer = if refused { NodeAnswer::NotSupported } else { NodeAnswer::Missing };
            self.state.queries.answered(id, by, answer);
        }
    }

    /// Another node has a query. False if the octets are none.
    pub(super) fn on_node_query(&self, from: NodeId, octets: &[u8]) -> bool {
        let Some((id, query)) = split_number(octets) else { return false };
        if query.len() > MAX_QUERY_BYTES {
            return false;
        }
        let Some(answering) = Answering::begin(self.state, from) else {
            self.send_answer(from, id, AnswerStatus::Busy, &[]);
            return true;
        };
        let handler = self.extensions.get::<NodeQueryHandler>();
        let Some(answer) = handler.and_then(|handler| handler.0.answer(self, query)) else {
            self.send_answer(from, id, AnswerStatus::NotSupported, &[]);
            return true;
        };
        let node = self.owned();
        let task = async move {
            let content = answer.await;
            let node = node.view();
            match content.len() <= MAX_ANSWER_BYTES {
                true => node.send_answer(from, id, AnswerStatus::Answered, &content),
                false => node.send_answer(from, id, AnswerStatus::TooLarge, &[]),
            }
            drop(answering);
        };
        self.spawner.spawn("query of another node", Box::pin(task));
        true
    }

    fn send_answer(&self, to: NodeId, id: u64, status: AnswerStatus, content: &[u8]) {
        let octets = [&id.to_be_bytes()[..], &[status as u8], content].concat();
        let own = self.cluster.node();
        let answer = Envelope::new(NODE_QUERY_ANSWER, EnvelopeClass::Control, own, Vec::new(), octets);
        if let Err(refused) = self.cluster.deliver(to, answer) {
            tracing::warn!(%refused, "a query of another node was not answered");
        }
    }

    /// The answer of another node. False if the octets are none, or too many.
    pub(super) fn on_node_query_answer(&self, from: NodeId, octets: &[u8]) -> bool {
        let Some((id, rest)) = split_number(octets) else { return false };
        let Some((status, content)) = rest.split_first() else { return false };
        let fits = content.len() <= MAX_ANSWER_BYTES;
        let (valid, answer) = match AnswerStatus::from_byte(*status) {
            Some(AnswerStatus::Answered) if fits => (true, NodeAnswer::Content(content.to_vec())),
            Some(AnswerStatus::Answered) => (false, NodeAnswer::TooLarge),
            Some(AnswerStatus::TooLarge) => (true, NodeAnswer::TooLarge),
            Some(AnswerStatus::Busy) => (true, NodeAnswer::Busy),
            Some(AnswerStatus::NotSupported) => (true, NodeAnswer::NotSupported),
            // A later version may have further results.
            None => (true, NodeAnswer::NotSupported),
        };
        self.state.queries.answered(id, from, answer);
        valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Context;

    fn poll(queries: &NodeQueries, id: u64) -> Poll<BTreeMap<NodeId, NodeAnswer>> {
        let mut result = std::pin::pin!(queries.result(id));
        result.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn names() -> [NodeId; 3] {
        ["a", "b", "c"].map(|name| NodeId::new(name).unwrap())
    }

    fn content(text: &str) -> NodeAnswer {
        NodeAnswer::Content(text.as_bytes().to_vec())
    }

    #[test]
    fn each_result_has_a_byte_of_its_own() {
        for byte in 0..4 {
            assert_eq!(AnswerStatus::from_byte(byte).map(|status| status as u8), Some(byte));
        }
        assert_eq!(AnswerStatus::from_byte(4), None);
    }

    #[test]
    fn queries_of_one_node_are_answered_up_to_a_limit() {
        let state = Arc::<PeerState>::default();
        let [a, b, _] = names();
        let mut all: Vec<Answering> =
            (0..MAX_ANSWERING).map(|_| Answering::begin(&state, a).expect("below the limit")).collect();
        assert!(Answering::begin(&state, a).is_none());
        assert!(Answering::begin(&state, b).is_some(), "another node");
        all.pop();
        assert!(Answering::begin(&state, a).is_some());
        all.clear();
        assert!(state.inbound_queries.0.lock().is_empty());
    }

    #[test]
    fn a_query_whose_asker_is_gone_leaves_nothing() {
        let state = Arc::<PeerState>::default();
        let [a, b, _] = names();
        let id = state.queries.begin([a, b].into(), 10).unwrap();
        state.queries.answered(id, a, content("an answer"));
        drop(OpenQuery { state: state.clone(), id });
        let queries = state.queries.0.lock();
        assert_eq!((queries.open.len(), queries.bytes), (0, 0));
    }

    #[test]
    fn a_query_ends_when_each_node_has_answered_or_is_gone_or_its_time_is_over() {
        let queries = NodeQueries::default();
        let [a, b, c] = names();
        let id = queries.begin([a, b].into(), 10).unwrap();
        queries.answered(id, a, content("first"));
        queries.answered(id, a, content("second"));
        queries.answered(id, c, content("not asked"));
        queries.answered(id + 1, b, content("another query"));
        assert_eq!(poll(&queries, id), Poll::Pending);
        queries.forget_node(b);
        let expected = BTreeMap::from([(a, content("first")), (b, NodeAnswer::Missing)]);
        assert_eq!(poll(&queries, id), Poll::Ready(expected));
        let id = queries.begin([a, b].into(), 10).unwrap();
        queries.answered(id, b, NodeAnswer::NotSupported);
        queries.expire(9);
        assert_eq!(poll(&queries, id), Poll::Pending);
        queries.expire(10);
        assert_eq!(poll(&queries, id), Poll::Ready(BTreeMap::from([(b, NodeAnswer::NotSupported)])));
        assert!(queries.0.lock().open.is_empty());
    }

    #[test]
    fn open_queries_and_the_octets_of_their_answers_are_bounded() {
        let queries = NodeQueries::default();
        let [a, b, c] = names();
        let ids: Vec<u64> = (0..MAX_OPEN).map(|_| queries.begin([a, b, c].into(), 10).unwrap()).collect();
        assert_eq!(queries.begin([a].into(), 10), None);
        let large = || NodeAnswer::Content(vec![0; MAX_ANSWER_BYTES]);
        for id in &ids {
            queries.answered(*id, a, large());
            queries.answered(*id, b, large());
        }
        assert_eq!(queries.0.lock().bytes, MAX_RETAINED_BYTES);
        queries.answered(ids[0], c, large());
        let Poll::Ready(answers) = poll(&queries, ids[0]) else { panic!("all have answered") };
        assert_eq!(answers[&c], NodeAnswer::TooLarge);
        assert_eq!(queries.0.lock().bytes, MAX_RETAINED_BYTES - 2 * MAX_ANSWER_BYTES);
        assert!(queries.begin([a].into(), 10).is_some());
    }
}
