//! Requests of this node's clients that wait for other nodes.
//!
//! # Pitfalls
//!
//! Numbers begin at a random one, so that a node that restarts does not use those that another node may still remember.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::id::random_bytes;
use base::lock::LeafMutex;
use cluster::{Envelope, NodeId, RefusalReason};
use hashbrown::HashMap;
use throng_core::Node;

use super::{
    ForwardingFailure, MAX_BYTES, MAX_OPEN, MAX_OPEN_PER_NODE, MAX_RETAINED_BYTES, ResponseStatus, next_part,
};
use crate::ClusteredNode;
use crate::envelope_kinds::{FORWARDED_REQUEST, FORWARDED_REQUEST_END};
use crate::home::PeerState;

/// Tag of a node, the same on all nodes of the deployment.
fn tag_of(node: &Node, id: NodeId) -> u32 {
    let [a, b, c, d, ..] = node.routing_table.hash_name(&format!("node {id}")).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Tag of this node.
pub fn own_tag(node: &Node) -> u32 {
    tag_of(node, node.cluster.node())
}

/// Sends a request to the node with this tag, and waits that many seconds for its response.
///
/// # Errors
/// If it cannot be sent.
pub fn forward(
    node: &Arc<Node>,
    tag: u32,
    request: &[u8],
    seconds: u32,
) -> Result<OutboundRequest, ForwardingFailure> {
    let clustered = ClusteredNode::of(node).ok_or(ForwardingFailure::NoNode)?;
    let own = node.cluster.node();
    let is_wanted = |id: &NodeId| *id != own && tag_of(node, *id) == tag;
    let members = node.cluster.members().into_iter().map(|member| member.node);
    let to = members.into_iter().find(is_wanted).ok_or(ForwardingFailure::NoNode)?;
    if request.len() > MAX_BYTES {
        return Err(ForwardingFailure::Retry);
    }
    let deadline = node.seconds().saturating_add(seconds);
    let number = clustered.state.forwarded.begin(to, deadline).ok_or(ForwardingFailure::Retry)?;
    let state = clustered.state.clone();
    let mut forwarded = OutboundRequest { node: node.clone(), state, to, number, is_open: true };
    let mut sent = 0;
    while let Some(part) = next_part(request, sent) {
        let has_more = u8::from(sent + part.len() < request.len());
        let head = [&number.to_be_bytes()[..], &seconds.to_be_bytes(), &[has_more]].concat();
        if let Err(refused) = clustered.send_part(to, FORWARDED_REQUEST, &head, part) {
            // Nothing was sent, or the receiver forgets the first parts.
            forwarded.is_open = sent > 0;
            clustered.state.forwarded.remove(number);
            return Err(match refused {
                RefusalReason::UnknownNode | RefusalReason::OwnNode => ForwardingFailure::NoNode,
                _ => ForwardingFailure::Retry,
            });
        }
        sent += part.len().max(1);
    }
    Ok(forwarded)
}

/// Ends all waiting requests of this node: it shuts down.
pub fn end_all(node: &Arc<Node>) {
    if let Some(clustered) = ClusteredNode::of(node) {
        clustered.state.forwarded.fail(|_| true, ForwardingFailure::Retry);
    }
}

/// A request that waits for another node. Dropping it tells that node that the connection of the client broke, unless the
/// client has the response.
pub struct OutboundRequest {
    node: Arc<Node>,
    state: Arc<PeerState>,
    to: NodeId,
    number: u64,
    /// The other node waits for the end.
    is_open: bool,
}

impl OutboundRequest {
    /// The response, once. Until then the task is woken when there is one; only the last waker is stored.
    pub fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, ForwardingFailure>> {
        let mut requests = self.state.forwarded.0.lock();
        let Some(open) = requests.open.get_mut(&self.number) else { return Poll::Pending };
        let Some(outcome) = open.outcome.take() else {
            open.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let octets = requests.remove(self.number).map(|open| open.octets).unwrap_or_default();
        drop(requests);
        self.is_open = outcome.awaits_end;
        let Some(failure) = outcome.failure else { return Poll::Ready(Ok(octets)) };
        self.end(false);
        Poll::Ready(Err(failure))
    }

    /// The client has the response.
    pub fn response_sent(&mut self) {
        self.end(true);
    }

    fn end(&mut self, is_sent: bool) {
        if std::mem::take(&mut self.is_open)
            && let Some(clustered) = ClusteredNode::of(&self.node)
        {
            clustered.send_end(RequestEnd { to: self.to, number: self.number, is_sent });
        }
    }
}

impl Drop for OutboundRequest {
    fn drop(&mut self) {
        self.state.forwarded.remove(self.number);
        self.end(false);
    }
}

/// What a request has resulted in.
struct RequestOutcome {
    failure: Option<ForwardingFailure>,
    /// The other node waits for the end.
    awaits_end: bool,
}

struct OpenRequest {
    to: NodeId,
    /// Second of the node's clock.
    deadline: u32,
    /// Parts of the response.
    octets: Vec<u8>,
    outcome: Option<RequestOutcome>,
    waker: Option<Waker>,
}

/// The end of a request, for the node that holds it.
struct RequestEnd {
    to: NodeId,
    number: u64,
    is_sent: bool,
}

struct OpenRequests {
    next: u64,
    open: HashMap<u64, OpenRequest>,
    /// Number of open requests of each node.
    counts: BTreeMap<NodeId, usize>,
    /// Octets of all responses.
    bytes: usize,
    /// Ends that did not fit into the queue. At most [`MAX_OPEN`].
    due_ends: Vec<RequestEnd>,
}

impl Default for OpenRequests {
    fn default() -> OpenRequests {
        let next = u64::from(u32::from_be_bytes(random_bytes())) << 32;
        OpenRequests { next, open: HashMap::new(), counts: BTreeMap::new(), bytes: 0, due_ends: Vec::new() }
    }
}

impl OpenRequests {
    fn remove(&mut self, number: u64) -> Option<OpenRequest> {
        let removed = self.open.remove(&number)?;
        self.bytes -= removed.octets.len();
        if let Some(count) = self.counts.get_mut(&removed.to) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&removed.to);
            }
        }
        Some(removed)
    }
}

/// Requests of this node that wait for other nodes.
#[derive(Default)]
pub(crate) struct ForwardedRequests(LeafMutex<OpenRequests>);

impl ForwardedRequests {
    /// The number of a new request. `None` if too many are open.
    pub(super) fn begin(&self, to: NodeId, deadline: u32) -> Option<u64> {
        let mut requests = self.0.lock();
        let count = requests.counts.get(&to).copied().unwrap_or_default();
        if requests.open.len() >= MAX_OPEN || count >= MAX_OPEN_PER_NODE {
            return None;
        }
        requests.next += 1;
        let number = requests.next;
        requests.counts.insert(to, count + 1);
        let open = OpenRequest { to, deadline, octets: Vec::new(), outcome: None, waker: None };
        requests.open.insert(number, open);
        Some(number)
    }

    pub(super) fn remove(&self, number: u64) {
        self.0.lock().remove(number);
    }

    /// A node has sent a part of a response, or none. False if it is not one that a correct node sends.
    pub(super) fn answered(&self, number: u64, by: NodeId, status: ResponseStatus, part: &[u8]) -> bool {
        let mut requests = self.0.lock();
        let retained = requests.bytes;
        let Some(open) = requests.open.get_mut(&number).filter(|open| open.to == by) else { return true };
        if open.outcome.is_some() {
            return true;
        }
        let is_valid = open.octets.len() + part.len() <= MAX_BYTES;
        let fits = is_valid && retained + part.len() <= MAX_RETAINED_BYTES;
        let (failure, awaits_end) = match status {
            _ if !fits => (Some(ForwardingFailure::Retry), true),
            ResponseStatus::Part | ResponseStatus::Complete => (None, false),
            ResponseStatus::AwaitsEnd => (None, true),
            ResponseStatus::Busy => (Some(ForwardingFailure::Retry), false),
            ResponseStatus::NoHandler => (Some(ForwardingFailure::NoNode), false),
        };
        let mut waker = None;
        if failure.is_some() || status != ResponseStatus::Part {
            open.outcome = Some(RequestOutcome { failure, awaits_end });
            waker = open.waker.take();
        }
        if failure.is_none() {
            open.octets.extend_from_slice(part);
            requests.bytes += part.len();
        }
        drop(requests);
        waker.into_iter().for_each(Waker::wake);
        is_valid
    }

    #[cfg(test)]
    pub(super) fn retained_bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Ends requests without a response.
    fn fail(&self, is_concerned: impl Fn((&u64, &OpenRequest)) -> bool, failure: ForwardingFailure) {
        let mut wakers = Vec::new();
        for (number, open) in &mut self.0.lock().open {
            if open.outcome.is_none() && is_concerned((number, open)) {
                let awaits_end = failure != ForwardingFailure::NoNode;
                open.outcome = Some(RequestOutcome { failure: Some(failure), awaits_end });
                wakers.extend(open.waker.take());
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn forget_node(&self, node: NodeId) {
        self.fail(|(_, open)| open.to == node, ForwardingFailure::NoNode);
        self.0.lock().due_ends.retain(|end| end.to != node);
    }
}

impl ClusteredNode<'_> {
    fn send_end(&self, end: RequestEnd) {
        let head = [&end.number.to_be_bytes()[..], &[u8::from(end.is_sent)]].concat();
        if self.send_part(end.to, FORWARDED_REQUEST_END, &head, &[]) == Err(RefusalReason::QueueFull) {
            let mut requests = self.state.forwarded.0.lock();
            if requests.due_ends.len() < MAX_OPEN {
                requests.due_ends.push(end);
            }
        }
    }

    /// Ends requests that were not answered in time, and sends what did not fit into a queue. Called by the sweep.
    pub(crate) fn sweep_forwarded_requests(&self, now: u32) {
        self.state.forwarded.fail(|(_, open)| open.deadline <= now, ForwardingFailure::Retry);
        let due = std::mem::take(&mut self.state.forwarded.0.lock().due_ends);
        due.into_iter().for_each(|end| self.send_end(end));
        self.state.inbound_requests.sweep(now);
    }

    /// A node refused an envelope because it does not know the kind, or is gone.
    pub(crate) fn on_request_returned(&self, by: NodeId, envelope: &Envelope) {
        if envelope.header.kind == FORWARDED_REQUEST
            && let Some((number, _)) = envelope.bytes.split_first_chunk()
        {
            let number = u64::from_be_bytes(*number);
            self.state.forwarded.answered(number, by, ResponseStatus::NoHandler, &[]);
        }
    }

    /// A part of the response of another node. False if the octets are none, or too many.
    pub(crate) fn on_forwarded_response(&self, from: NodeId, octets: &[u8]) -> bool {
        let Some((number, [status, part @ ..])) = octets.split_first_chunk() else { return false };
        // A later version may have further statuses: there is no response.
        let status = ResponseStatus::from_byte(*status).unwrap_or(ResponseStatus::NoHandler);
        self.state.forwarded.answered(u64::from_be_bytes(*number), from, status, part)
    }
}
