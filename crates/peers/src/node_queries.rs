//! Queries to all nodes that are answered with a number: how many users are online, how many sessions were ended.
//!
//! ```text
//! query      8 its number, 1 kind, then
//!   0        1 filter; the rest: the domain
//!   1        2 + n the text of the stream error; the rest: the address
//! answer     8 the number of the query, 8 the result
//! ```
//!
//! A node that does not answer within [`TIMEOUT_SECONDS`], or is gone, counts as 0. The queries of one node are answered one
//! at a time, because each may be a pass over all accounts.
//!
//! Not implemented: lists, such as the online users page by page.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use base::spawn::yield_now;
use cluster::{Envelope, EnvelopeClass, NodeId, PeerViolation};
use hashbrown::HashMap;
use jid::{Jid, JidRef};
use stanza::{StreamCondition, StreamError};
use throng_core::account::Account;
use throng_core::router::OnlineFilter;
use throng_core::router::peer_routing::address_number;

use super::home::PeerState;
use crate::ClusteredNode;
use crate::envelope_kinds::{NODE_QUERY, NODE_QUERY_ANSWER};

const TIMEOUT_SECONDS: u32 = 5;
/// Maximum number of queries of one node that wait for an answer.
const MAX_WAITING: usize = 64;
const KIND_COUNT: u8 = 0;
const KIND_END: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
enum NodeQuery {
    /// The online users of a domain whose home the node is.
    CountOnline(OnlineFilter, Box<str>),
    /// Ends the sessions of an address with `policy-violation` and this text.
    EndSessions(Jid, Box<str>),
}

impl NodeQuery {
    fn encode(&self, id: u64) -> Vec<u8> {
        let mut out = id.to_be_bytes().to_vec();
        match self {
            NodeQuery::CountOnline(filter, domain) => {
                out.extend([KIND_COUNT, *filter as u8]);
                out.extend(domain.as_bytes());
            }
            NodeQuery::EndSessions(jid, text) => {
                out.push(KIND_END);
                let length = u16::try_from(text.len()).unwrap_or_default();
                out.extend(length.to_be_bytes());
                out.extend(&text.as_bytes()[..length.into()]);
                out.extend(jid.as_str().as_bytes());
            }
        }
        out
    }

    fn decode(octets: &[u8]) -> Option<(u64, NodeQuery)> {
        let (id, rest) = octets.split_first_chunk()?;
        let (kind, rest) = rest.split_first()?;
        let text = |octets: &[u8]| std::str::from_utf8(octets).ok().map(Box::<str>::from);
        let query = match *kind {
            KIND_COUNT => {
                let (filter, domain) = rest.split_first()?;
                NodeQuery::CountOnline(*OnlineFilter::ALL.get(usize::from(*filter))?, text(domain)?)
            }
            KIND_END => {
                let (length, rest) = rest.split_first_chunk()?;
                let (reason, jid) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
                let jid = std::str::from_utf8(jid).ok().and_then(JidRef::from_normalised)?;
                NodeQuery::EndSessions(jid.to_jid(), text(reason)?)
            }
            _ => return None,
        };
        Some((u64::from_be_bytes(*id), query))
    }
}

struct PendingNodeQuery {
    /// Nodes that have not answered.
    waiting: BTreeSet<NodeId>,
    sum: u64,
    /// Second of the node's clock.
    deadline: u32,
    waker: Option<Waker>,
}

#[derive(Default)]
struct PendingNodeQueries {
    next: u64,
    open: HashMap<u64, PendingNodeQuery>,
}

/// Queries of this node that are not answered yet. Few: each belongs to a command of an administrator.
#[derive(Default)]
pub(super) struct NodeQueries(LeafMutex<PendingNodeQueries>);

impl NodeQueries {
    fn begin(&self, nodes: BTreeSet<NodeId>, deadline: u32) -> u64 {
        let mut queries = self.0.lock();
        queries.next += 1;
        let id = queries.next;
        queries.open.insert(id, PendingNodeQuery { waiting: nodes, sum: 0, deadline, waker: None });
        id
    }

    /// A node has answered, or will not.
    fn answered(&self, id: u64, by: NodeId, result: u64) {
        let mut queries = self.0.lock();
        let Some(open) = queries.open.get_mut(&id) else { return };
        if open.waiting.remove(&by) {
            open.sum = open.sum.saturating_add(result);
        }
        let waker = open.waker.take_if(|_| open.waiting.is_empty());
        drop(queries);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn forget_node(&self, node: NodeId) {
        let ids: Vec<u64> = self.0.lock().open.keys().copied().collect();
        ids.into_iter().for_each(|id| self.answered(id, node, 0));
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

    async fn result(&self, id: u64) -> u64 {
        poll_fn(|cx| {
            let mut queries = self.0.lock();
            let Some(open) = queries.open.get_mut(&id) else { return Poll::Ready(0) };
            if open.waiting.is_empty() {
                let sum = open.sum;
                queries.open.remove(&id);
                return Poll::Ready(sum);
            }
            open.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// The answers of all nodes to a query. Dropping it ends the query: the command that asked may be aborted.
struct Answers {
    state: Arc<PeerState>,
    id: u64,
}

impl Answers {
    async fn sum(self) -> u64 {
        self.state.queries.result(self.id).await
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.state.queries.0.lock().open.remove(&self.id);
    }
}

/// Queries of other nodes that are not answered yet. A node has an entry while its queries are being answered.
#[derive(Default)]
pub(super) struct ReceivedNodeQueries(LeafMutex<BTreeMap<NodeId, VecDeque<(u64, NodeQuery)>>>);

/// Answers the queries of a node; dropping it permits another one to begin.
struct Answering {
    state: Arc<PeerState>,
    node: NodeId,
    ended: bool,
}

impl Answering {
    /// Adds a query. `None` if the others of its node are being answered. Fails if too many wait.
    fn begin(
        state: &Arc<PeerState>,
        node: NodeId,
        query: (u64, NodeQuery),
    ) -> Result<Option<Answering>, PeerViolation> {
        let mut nodes = state.received_queries.0.lock();
        let begins = !nodes.contains_key(&node);
        let waiting = nodes.entry(node).or_default();
        if waiting.len() >= MAX_WAITING {
            return Err(PeerViolation::Rate);
        }
        waiting.push_back(query);
        drop(nodes);
        Ok(begins.then(|| Answering { state: state.clone(), node, ended: false }))
    }

    fn next(&mut self) -> Option<(u64, NodeQuery)> {
        let mut nodes = self.state.received_queries.0.lock();
        let next = nodes.get_mut(&self.node).and_then(VecDeque::pop_front);
        if next.is_none() {
            nodes.remove(&self.node);
            self.ended = true;
        }
        next
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if !self.ended {
            self.state.received_queries.0.lock().remove(&self.node);
        }
    }
}

impl ClusteredNode<'_> {
    /// Counts the online users of a domain on all nodes.
    pub(super) async fn count_online_users(&self, domain: &str, filter: OnlineFilter) -> u64 {
        let elsewhere = self.query_all(&NodeQuery::CountOnline(filter, domain.into()));
        let here = self.count_online_users_here(domain, filter).await;
        here.saturating_add(Self::sum_of(elsewhere).await)
    }

    /// Ends the session with this address, or all sessions of a bare address, on all nodes with `policy-violation`; returns
    /// their number.
    pub(super) async fn end_sessions_everywhere(&self, jid: &Jid, text: &'static str) -> u64 {
        let elsewhere = self.query_all(&NodeQuery::EndSessions(jid.clone(), text.into()));
        let here = self.end_sessions_with_text(jid.as_ref(), text);
        here.saturating_add(Self::sum_of(elsewhere).await)
    }

    fn end_sessions_with_text(&self, jid: JidRef<'_>, text: &str) -> u64 {
        let reason = StreamError::new(StreamCondition::PolicyViolation).text(text.to_owned());
        self.end_sessions(jid, &reason) as u64
    }

    /// Counts the users whose home this node is: of the nodes with sessions of a user, one counts.
    async fn count_online_users_here(&self, domain: &str, filter: OnlineFilter) -> u64 {
        let mut count = 0;
        for shard in 0..self.routing_table.shard_count() {
            let mut accounts = Vec::new();
            self.routing_table.for_each_in_shard(shard, |account| accounts.push(account.clone()));
            if accounts.is_empty() {
                continue;
            }
            let matching = accounts.iter().filter(|account| filter.matches(account, domain));
            let counted = matching.filter(|account| self.is_home_of(account));
            count += counted.count() as u64;
            yield_now().await;
        }
        count
    }

    /// Whether this node is the home of an account with a session here: the only one to do what must be done once for all
    /// sessions of the account.
    fn is_home_of(&self, account: &Account) -> bool {
        let own = self.cluster.node();
        let location = self.cluster.locate(account.hash, address_number(account));
        self.is_single() || location.home(own).is_none_or(|home| home == own)
    }

    /// `None` if there are no other nodes.
    fn query_all(&self, query: &NodeQuery) -> Option<Answers> {
        let own = self.cluster.node();
        let others: BTreeSet<NodeId> = self
            .cluster
            .members()
            .into_iter()
            .map(|member| member.node)
            .filter(|node| *node != own)
            .collect();
        if others.is_empty() {
            return None;
        }
        let deadline = self.seconds().saturating_add(TIMEOUT_SECONDS);
        let id = self.state.queries.begin(others.clone(), deadline);
        let octets = query.encode(id);
        for node in others {
            let envelope = Envelope::new(NODE_QUERY, EnvelopeClass::Control, own, Vec::new(), octets.clone());
            if let Err(refused) = self.cluster.deliver(node, envelope) {
                tracing::warn!(%refused, "a node was not queried");
                self.state.queries.answered(id, node, 0);
            }
        }
        Some(Answers { state: self.state.clone(), id })
    }

    async fn sum_of(answers: Option<Answers>) -> u64 {
        match answers {
            Some(answers) => answers.sum().await,
            None => 0,
        }
    }

    /// Ends queries that were not answered in time. Called by the sweep.
    pub(super) fn expire_node_queries(&self, now: u32) {
        self.state.queries.expire(now);
    }

    /// Another node has a query. False if the octets are none.
    pub(super) fn on_node_query(&self, from: NodeId, octets: &[u8]) -> bool {
        let Some(query) = NodeQuery::decode(octets) else { return false };
        let mut answering = match Answering::begin(self.state, from, query) {
            Ok(Some(answering)) => answering,
            Ok(None) => return true,
            Err(violation) => {
                self.note_violation(from, violation);
                return true;
            }
        };
        let node = self.owned();
        let task = async move {
            let node = node.view();
            while let Some((id, query)) = answering.next() {
                let result = match query {
                    NodeQuery::CountOnline(filter, domain) => {
                        node.count_online_users_here(&domain, filter).await
                    }
                    NodeQuery::EndSessions(jid, text) => node.end_sessions_with_text(jid.as_ref(), &text),
                };
                let octets = [id.to_be_bytes(), result.to_be_bytes()].concat();
                let own = node.cluster.node();
                let answer =
                    Envelope::new(NODE_QUERY_ANSWER, EnvelopeClass::Control, own, Vec::new(), octets);
                if let Err(refused) = node.cluster.deliver(from, answer) {
                    tracing::warn!(%refused, "a query of another node was not answered");
                }
                yield_now().await;
            }
        };
        self.spawner.spawn("query of another node", Box::pin(task));
        true
    }

    /// The answer of another node. False if the octets are none.
    pub(super) fn on_node_query_answer(&self, from: NodeId, octets: &[u8]) -> bool {
        let Some((id, rest)) = octets.split_first_chunk() else { return false };
        let Ok(result) = <[u8; 8]>::try_from(rest) else { return false };
        self.state.queries.answered(u64::from_be_bytes(*id), from, u64::from_be_bytes(result));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Context;

    #[test]
    fn a_query_is_read_as_it_was_written_and_anything_else_is_refused() {
        let queries = [
            NodeQuery::CountOnline(OnlineFilter::Idle, "example.com".into()),
            NodeQuery::EndSessions(Jid::parse("juliet@example.com/balcony").unwrap(), "an end".into()),
        ];
        for query in queries {
            let octets = query.encode(u64::MAX);
            assert_eq!(NodeQuery::decode(&octets), Some((u64::MAX, query)));
            assert!((0..10).all(|length| NodeQuery::decode(&octets[..length]).is_none()));
            let mut undefined = octets;
            undefined[8] = 2;
            assert!(NodeQuery::decode(&undefined).is_none());
        }
        assert!(NodeQuery::decode(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 3]).is_none(), "no such filter");
    }

    #[test]
    fn queries_of_one_node_are_answered_in_order_and_bounded() {
        let state = Arc::<PeerState>::default();
        let [a, b] = ["a", "b"].map(|name| NodeId::new(name).unwrap());
        let add = |node, id| {
            let query = NodeQuery::CountOnline(OnlineFilter::All, "example.com".into());
            Answering::begin(&state, node, (id, query))
        };
        let mut first = add(a, 0).unwrap().expect("nothing is being answered");
        assert_eq!(first.next().map(|(id, _)| id), Some(0));
        assert!((1..=MAX_WAITING as u64).all(|id| add(a, id).unwrap().is_none()), "one task for each node");
        assert_eq!(add(a, 100).err(), Some(PeerViolation::Rate));
        assert!(add(b, 1).unwrap().is_some(), "another node");
        let ids: Vec<u64> = std::iter::from_fn(|| first.next()).map(|(id, _)| id).collect();
        assert_eq!(ids, Vec::from_iter(1..=MAX_WAITING as u64));
        drop(add(a, 1).unwrap().expect("the next"));
        assert!(state.received_queries.0.lock().is_empty(), "also if the task does not end");
    }

    #[test]
    fn a_query_whose_asker_is_gone_leaves_nothing() {
        let state = Arc::<PeerState>::default();
        let id = state.queries.begin([NodeId::new("a").unwrap()].into(), 10);
        drop(Answers { state: state.clone(), id }.sum());
        assert!(state.queries.0.lock().open.is_empty());
    }

    #[test]
    fn a_query_ends_when_each_node_has_answered_or_is_gone_or_its_time_is_over() {
        let queries = NodeQueries::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| NodeId::new(name).unwrap());
        let poll = |id| {
            let mut result = std::pin::pin!(queries.result(id));
            result.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        let id = queries.begin([a, b].into(), 10);
        queries.answered(id, a, 3);
        queries.answered(id, a, 3);
        queries.answered(id, c, 100);
        queries.answered(id + 1, b, 100);
        assert_eq!(poll(id), Poll::Pending);
        queries.forget_node(b);
        assert_eq!(poll(id), Poll::Ready(3));
        let id = queries.begin([a, b].into(), 10);
        queries.answered(id, b, 2);
        queries.expire(9);
        assert_eq!(poll(id), Poll::Pending);
        queries.expire(10);
        assert_eq!(poll(id), Poll::Ready(2));
        assert!(queries.0.lock().open.is_empty(), "bounded");
    }
}
