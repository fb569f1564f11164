//! Requests of this node's clients that wait for other nodes.
//!
//! # Pitfalls
//!
//! Numbers begin at a random one, so that a node that restarts does not use those that another node may still remember.
//!
//! A node that is lost may only have been cut off, with its sessions. So requests for it wait a moment before they fail, and
//! clients may repeat them, until it has been absent for [`LOST_SECONDS`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::id::random_bytes;
use base::lock::LeafMutex;
use cluster::{Envelope, NodeId, RefusalReason};
use hashbrown::HashMap;
use throng_core::Node;

use super::{
    ForwardingFailure, MAX_OPEN, MAX_OPEN_PER_CLIENT, MAX_OPEN_PER_NODE, MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES, MAX_RETAINED_BYTES, MAX_RETAINED_PER_CLIENT, PART_BYTES, ResponseStatus,
};
use crate::ClusteredNode;
use crate::envelope_kinds::{FORWARDED_REQUEST, FORWARDED_REQUEST_END};
use crate::handovers::{BoundedEnvelopes, MAX_FORWARDED_OCTETS};
use crate::home::PeerState;

/// Seconds in which a node that was lost may return.
const LOST_SECONDS: u32 = 10;
/// Seconds that a request for it waits: its client repeats it immediately.
const LOST_WAIT_SECONDS: u32 = 2;

/// Tag of a node, the same on all nodes of the deployment.
fn tag_of(node: &Node, id: NodeId) -> u32 {
    let [a, b, c, d, ..] = node.routing_table.hash_name(&format!("node {id}")).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Tag of this node.
pub fn own_tag(node: &Node) -> u32 {
    tag_of(node, node.cluster.node())
}

/// Sends a request to the node with this tag, and waits that many seconds for its response. `client`: a number by which clients
/// are distinguished, of which one must not use everything.
///
/// # Errors
/// If nothing is sent.
pub fn forward(
    node: &Arc<Node>,
    tag: u32,
    client: u64,
    request: &[u8],
    seconds: u32,
) -> Result<OutboundRequest, ForwardingFailure> {
    let clustered = ClusteredNode::of(node).ok_or(ForwardingFailure::NoNode)?;
    let own = node.cluster.node();
    let requests = &clustered.state.forwarded;
    let is_wanted = |id: &NodeId| *id != own && tag_of(node, *id) == tag;
    let members = node.cluster.members().into_iter().map(|member| member.node);
    let (member, now) = (members.into_iter().find(is_wanted), node.seconds());
    if request.len() > MAX_REQUEST_BYTES {
        return Err(ForwardingFailure::Retry);
    }
    let (to, deadline) = match member {
        Some(to) => (to, now.saturating_add(seconds)),
        None => {
            let to = requests.lost_node(is_wanted, now).ok_or(ForwardingFailure::NoNode)?;
            (to, now.saturating_add(LOST_WAIT_SECONDS))
        }
    };
    let number = requests.begin(to, client, deadline).ok_or(ForwardingFailure::Retry)?;
    let state = clustered.state.clone();
    let mut forwarded = OutboundRequest { node: node.clone(), state, to, number, client, is_open: false };
    if member.is_some() {
        clustered.send_request(&mut forwarded, request, seconds)?;
    }
    Ok(forwarded)
}

/// Ends all waiting requests of this node, and the waiting of other nodes' requests for their clients: it shuts down, and has
/// responses to all of them.
pub fn end_all(node: &Arc<Node>) {
    if let Some(clustered) = ClusteredNode::of(node) {
        clustered.state.forwarded.fail(|_| true, ForwardingFailure::Retry);
        clustered.state.inbound_requests.close(node.seconds());
    }
}

/// A request that waits for another node. Dropping it tells that node that the connection of the client broke, unless the
/// client has the response.
pub struct OutboundRequest {
    node: Arc<Node>,
    state: Arc<PeerState>,
    to: NodeId,
    number: u64,
    client: u64,
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
        self.state.forwarded.remove_for_client(self.number, self.client);
        self.end(false);
    }
}

/// What a request has resulted in.
struct RequestOutcome {
    failure: Option<ForwardingFailure>,
    /// The other node waits for the end.
    awaits_end: bool,
}

pub(super) struct OpenRequest {
    to: NodeId,
    client: u64,
    /// Second of the node's clock.
    pub(super) deadline: u32,
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

/// What one client uses.
#[derive(Default)]
struct ClientUse {
    /// Requests that are open or whose response it has not taken.
    requests: usize,
    /// Octets of the responses among those in `open`.
    octets: usize,
}

struct OpenRequests {
    next: u64,
    open: HashMap<u64, OpenRequest>,
    /// Number of open requests of each node.
    counts: BTreeMap<NodeId, usize>,
    clients: HashMap<u64, ClientUse>,
    /// Octets of all responses.
    bytes: usize,
    /// Ends that did not fit into the queue. At most [`MAX_OPEN`].
    due_ends: Vec<RequestEnd>,
    /// Nodes that were lost, and the second until which they may return.
    lost: BTreeMap<NodeId, u32>,
}

impl Default for OpenRequests {
    fn default() -> OpenRequests {
        OpenRequests {
            next: u64::from(u32::from_be_bytes(random_bytes())) << 32,
            open: HashMap::new(),
            counts: BTreeMap::new(),
            clients: HashMap::new(),
            bytes: 0,
            due_ends: Vec::new(),
            lost: BTreeMap::new(),
        }
    }
}

impl OpenRequests {
    /// Octets of the response to a request, and its client's, have become more or fewer.
    fn count_octets(&mut self, client: u64, added: usize, removed: usize) {
        self.bytes = self.bytes + added - removed;
        if let Some(client) = self.clients.get_mut(&client) {
            client.octets = client.octets + added - removed;
        }
    }

    fn remove(&mut self, number: u64) -> Option<OpenRequest> {
        let removed = self.open.remove(&number)?;
        self.count_octets(removed.client, 0, removed.octets.len());
        if let Some(count) = self.counts.get_mut(&removed.to) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&removed.to);
            }
        }
        Some(removed)
    }

    /// A request has its outcome. Without a response, its octets are freed. Returns the task to wake.
    fn finish(&mut self, number: u64, outcome: RequestOutcome) -> Option<Waker> {
        let open = self.open.get_mut(&number)?;
        let freed = outcome.failure.map(|_| std::mem::take(&mut open.octets)).unwrap_or_default();
        open.outcome = Some(outcome);
        let (client, waker) = (open.client, open.waker.take());
        self.count_octets(client, 0, freed.len());
        waker
    }
}

/// Requests of this node that wait for other nodes.
#[derive(Default)]
pub(crate) struct ForwardedRequests(LeafMutex<OpenRequests>);

impl ForwardedRequests {
    /// The number of a new request. `None` if too many are open.
    pub(super) fn begin(&self, to: NodeId, client: u64, deadline: u32) -> Option<u64> {
        let mut requests = self.0.lock();
        let count = requests.counts.get(&to).copied().unwrap_or_default();
        if requests.open.len() >= MAX_OPEN || count >= MAX_OPEN_PER_NODE {
            return None;
        }
        let of_client = requests.clients.entry(client).or_default();
        if of_client.requests >= MAX_OPEN_PER_CLIENT {
            return None;
        }
        of_client.requests += 1;
        requests.next += 1;
        let number = requests.next;
        requests.counts.insert(to, count + 1);
        let open = OpenRequest { to, client, deadline, octets: Vec::new(), outcome: None, waker: None };
        requests.open.insert(number, open);
        Some(number)
    }

    /// The client has its response, or does not wait for one.
    pub(super) fn remove_for_client(&self, number: u64, client: u64) {
        let mut requests = self.0.lock();
        let removed = requests.remove(number);
        if let Some(of_client) = requests.clients.get_mut(&client) {
            of_client.requests -= 1;
            if of_client.requests == 0 {
                requests.clients.remove(&client);
            }
        }
        drop(requests);
        drop(removed);
    }

    /// A node that may return.
    pub(super) fn lost_node(&self, is_wanted: impl Fn(&NodeId) -> bool, now: u32) -> Option<NodeId> {
        let requests = self.0.lock();
        requests.lost.iter().find(|(node, until)| now < **until && is_wanted(node)).map(|(node, _)| *node)
    }

    /// A node has sent a part of a response, or none. False if it is not one that a correct node sends.
    pub(super) fn answered(&self, number: u64, by: NodeId, status: ResponseStatus, part: &[u8]) -> bool {
        let mut guard = self.0.lock();
        let requests = &mut *guard;
        let Some(open) = requests.open.get_mut(&number).filter(|open| open.to == by) else { return true };
        if open.outcome.is_some() {
            return true;
        }
        let (client, before) = (open.client, open.octets.len());
        let is_valid = before + part.len() <= MAX_RESPONSE_BYTES;
        let of_client = requests.clients.get(&client).map_or(0, |of_client| of_client.octets);
        // A single response may be above the share of its client.
        let has_share = of_client == before || of_client + part.len() <= MAX_RETAINED_PER_CLIENT;
        let fits = is_valid && has_share && requests.bytes + part.len() <= MAX_RETAINED_BYTES;
        let (failure, awaits_end) = match status {
            _ if !fits => (Some(ForwardingFailure::Retry), true),
            ResponseStatus::Part | ResponseStatus::Complete => (None, false),
            ResponseStatus::AwaitsEnd => (None, true),
            ResponseStatus::Busy => (Some(ForwardingFailure::Retry), false),
            ResponseStatus::NoHandler => (Some(ForwardingFailure::NoNode), false),
        };
        if failure.is_none() {
            open.octets.extend_from_slice(part);
            requests.count_octets(client, part.len(), 0);
        }
        let is_finished = failure.is_some() || status != ResponseStatus::Part;
        let waker =
            is_finished.then(|| requests.finish(number, RequestOutcome { failure, awaits_end })).flatten();
        drop(guard);
        waker.into_iter().for_each(Waker::wake);
        is_valid
    }

    #[cfg(test)]
    pub(super) fn retained_bytes(&self) -> usize {
        self.0.lock().bytes
    }

    #[cfg(test)]
    pub(super) fn failure_of(&self, number: u64) -> Option<ForwardingFailure> {
        self.0.lock().open.get(&number)?.outcome.as_ref()?.failure
    }

    /// Ends requests without a response.
    pub(super) fn fail(&self, is_concerned: impl Fn(&OpenRequest) -> bool, failure: ForwardingFailure) {
        let mut wakers = Vec::new();
        let mut guard = self.0.lock();
        let requests = &mut *guard;
        let concerned = |(_, open): &(&u64, &OpenRequest)| open.outcome.is_none() && is_concerned(open);
        let numbers: Vec<u64> = requests.open.iter().filter(concerned).map(|(number, _)| *number).collect();
        let awaits_end = failure != ForwardingFailure::NoNode;
        for number in numbers {
            wakers.extend(requests.finish(number, RequestOutcome { failure: Some(failure), awaits_end }));
        }
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn fail_one(&self, number: u64, failure: ForwardingFailure) {
        let outcome = RequestOutcome { failure: Some(failure), awaits_end: true };
        let waker = self.0.lock().finish(number, outcome);
        waker.into_iter().for_each(Waker::wake);
    }

    /// A node is no member any more. If it did not leave, it may return with its sessions.
    pub(crate) fn forget_node(&self, node: NodeId, is_orderly: bool, now: u32) {
        let failure = if is_orderly { ForwardingFailure::NoNode } else { ForwardingFailure::Retry };
        self.fail(|open| open.to == node, failure);
        let mut requests = self.0.lock();
        requests.due_ends.retain(|end| end.to != node);
        if !is_orderly {
            requests.lost.insert(node, now.saturating_add(LOST_SECONDS));
        }
    }
}

impl ClusteredNode<'_> {
    /// Sends the parts of a request, all or none.
    ///
    /// # Errors
    /// If nothing is sent.
    fn send_request(
        &self,
        forwarded: &mut OutboundRequest,
        request: &[u8],
        seconds: u32,
    ) -> Result<(), ForwardingFailure> {
        let (to, number) = (forwarded.to, forwarded.number);
        let mut envelopes = Vec::with_capacity(request.len() / PART_BYTES + 1);
        let mut before: u32 = 0;
        loop {
            let rest = request.get(before as usize..).unwrap_or_default();
            let part = &rest[..rest.len().min(PART_BYTES)];
            let has_more = [u8::from(part.len() < rest.len())];
            let (number, seconds) = (number.to_be_bytes(), seconds.to_be_bytes());
            let content = [&number[..], &seconds, &before.to_be_bytes(), &has_more, part];
            envelopes.push(self.forwarded_envelope(FORWARDED_REQUEST, &content));
            if part.len() == rest.len() {
                break;
            }
            before = before.saturating_add(u32::try_from(part.len()).unwrap_or(u32::MAX));
        }
        let kind = BoundedEnvelopes::Forwarded;
        let octets = envelopes.iter().map(|(_, octets)| octets).sum();
        let handovers = &self.state.handovers;
        if !handovers.begin_bounded(to, kind, envelopes.len(), octets, MAX_FORWARDED_OCTETS) {
            return Err(ForwardingFailure::Retry);
        }
        let mut refused = None;
        for (envelope, octets) in envelopes {
            match refused {
                None => refused = self.hand_over_begun(to, kind, envelope, octets).err(),
                Some(_) => handovers.bounded_sent(to, kind, octets, None, self.seconds()),
            }
            forwarded.is_open |= refused.is_none();
        }
        match refused {
            None => Ok(()),
            // The other node has parts, which it forgets with the end.
            Some(_) if forwarded.is_open => {
                self.state.forwarded.fail_one(number, ForwardingFailure::Retry);
                Ok(())
            }
            Some(RefusalReason::UnknownNode | RefusalReason::OwnNode) => Err(ForwardingFailure::NoNode),
            Some(_) => Err(ForwardingFailure::Retry),
        }
    }

    fn send_end(&self, end: RequestEnd) {
        let head = [&end.number.to_be_bytes()[..], &[u8::from(end.is_sent)]];
        if self.send_ending(end.to, FORWARDED_REQUEST_END, &head) == Err(RefusalReason::QueueFull) {
            let mut requests = self.state.forwarded.0.lock();
            if requests.due_ends.len() < MAX_OPEN {
                requests.due_ends.push(end);
            }
        }
    }

    /// Ends requests that were not answered in time, and sends what did not fit into a queue. Called by the sweep.
    pub(crate) fn sweep_forwarded_requests(&self, now: u32) {
        self.state.forwarded.fail(|open| open.deadline <= now, ForwardingFailure::Retry);
        let mut requests = self.state.forwarded.0.lock();
        requests.lost.retain(|_, until| now < *until);
        let due = std::mem::take(&mut requests.due_ends);
        drop(requests);
        due.into_iter().for_each(|end| self.send_end(end));
        self.state.inbound_requests.sweep(now);
    }

    /// A node refused an envelope because it does not know the kind, or the connection with it broke before it had it.
    pub(crate) fn on_request_returned(&self, by: NodeId, envelope: &Envelope, is_refused: bool) {
        if envelope.header.kind == FORWARDED_REQUEST
            && let Some((number, _)) = envelope.bytes.split_first_chunk()
        {
            let status = if is_refused { ResponseStatus::NoHandler } else { ResponseStatus::Busy };
            self.state.forwarded.answered(u64::from_be_bytes(*number), by, status, &[]);
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
