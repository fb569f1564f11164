//! Requests of this node's clients that wait for other nodes.
//!
//! # Pitfalls
//!
//! A node that is lost may only have been cut off, with its sessions. So for some seconds, requests for it wait a moment before
//! they fail, and clients may repeat them.

use std::sync::Arc;
use std::task::{Context, Poll};

use cluster::{Envelope, NodeId, RefusalReason};
use throng_core::Node;

use super::open_requests::RequestEnd;
use super::{ForwardingFailure, MAX_REQUEST_BYTES, PART_BYTES, ResponseStatus, octets_of};
use crate::ClusteredNode;
use crate::envelope_kinds::{FORWARDED_REQUEST, FORWARDED_REQUEST_END};
use crate::handovers::{BoundedEnvelopes, MAX_FORWARDED_OCTETS};
use crate::home::PeerState;

/// Octets of forwarded requests and responses in the queue to a node above which requests must be repeated: the rest is left to
/// responses, which wait.
const MAX_OPEN_REQUEST_OCTETS: usize = MAX_FORWARDED_OCTETS / 2;
/// Octets before a part of a request.
const HEAD_BYTES: usize = 8 + 4 + 4 + 1;
/// Seconds that a request for a node that was lost waits: its client repeats it immediately.
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
        let Poll::Ready((outcome, octets)) = self.state.forwarded.poll(self.number, cx) else {
            return Poll::Pending;
        };
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
        let (id, seconds) = (number.to_be_bytes(), seconds.to_be_bytes());
        // An empty request has one part.
        let count = request.len().div_ceil(PART_BYTES).max(1);
        let parts = (0..count).map(|index| {
            let begins = index * PART_BYTES;
            (begins, &request[begins..request.len().min(begins + PART_BYTES)])
        });
        let octets = parts.clone().map(|(_, part)| octets_of(HEAD_BYTES + part.len())).sum();
        let (kind, handovers) = (BoundedEnvelopes::Forwarded, &self.state.handovers);
        if !handovers.begin_bounded(to, kind, count, octets, MAX_OPEN_REQUEST_OCTETS) {
            return Err(ForwardingFailure::Retry);
        }
        let mut refused = None;
        for (begins, part) in parts {
            if refused.is_some() {
                let octets = octets_of(HEAD_BYTES + part.len());
                handovers.bounded_sent(to, kind, octets, None, self.seconds());
                continue;
            }
            let before = u32::try_from(begins).unwrap_or(u32::MAX).to_be_bytes();
            let has_more = [u8::from(begins + part.len() < request.len())];
            let content = [&id[..], &seconds, &before, &has_more, part];
            refused = self.send_begun(to, FORWARDED_REQUEST, &content).err();
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
            self.state.forwarded.add_due_end(end);
        }
    }

    /// Ends requests that were not answered in time, and sends what did not fit into a queue. Called by the sweep.
    pub(crate) fn sweep_forwarded_requests(&self, now: u32) {
        self.state.forwarded.expire(now);
        let due = self.state.forwarded.take_due(now);
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
