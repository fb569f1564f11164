//! Requests of other nodes' clients that are answered here: parts that arrive, requests that wait for their responses, and
//! responses that wait until the client has them.
//!
//! # Pitfalls
//!
//! A request that is dropped without an end counts as a broken connection. So does one whose end does not arrive within
//! [`END_SECONDS`], and those of a node that is gone.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use cluster::NodeId;
use hashbrown::HashMap;

use super::{MAX_BYTES, MAX_OPEN_PER_NODE, MAX_RETAINED_BYTES, ResponseStatus, next_part};
use crate::envelope_kinds::FORWARDED_RESPONSE;
use crate::home::PeerState;
use crate::{ClusteredNode, OwnedClusteredNode};

/// Seconds after which the parts of a request are forgotten if the last one has not arrived.
const PARTS_SECONDS: u32 = 10;
/// Seconds for which a request is held after its sender has ceased to wait.
const GRACE_SECONDS: u32 = 5;
/// Seconds in which a client may read its response.
const END_SECONDS: u32 = 120;

/// Handles requests that other nodes forward.
pub trait HandleForwardedRequest: Send + Sync {
    /// Handles a request, and returns what waits for its response. `None` at a shutdown.
    fn handle(&self, request: &[u8]) -> Option<Box<dyn AcceptedRequest>>;
}

/// The extension of a node that handles forwarded requests. Without it there is no response.
pub struct ForwardedRequestHandler(pub Arc<dyn HandleForwardedRequest>);

/// A request of another node's client. Dropping it before [`AcceptedRequest::response_sent`] means that the connection broke.
pub trait AcceptedRequest: Send {
    /// The response, once, and whether it must be known that the client has it. Until then the task is woken when it is ready.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<(Vec<u8>, bool)>;
    /// The client has the response.
    fn response_sent(&mut self);
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestResult {
    /// The client has the response.
    Sent,
    /// The client's connection broke.
    Broken,
}

struct InboundRequest {
    result: Option<RequestResult>,
    /// Second of the node's clock.
    deadline: u32,
    /// It waits for the next sweep: its response does not fit into the queue.
    waits_for_sweep: bool,
    waker: Option<Waker>,
}

/// A request of which parts are missing.
struct PartialRequest {
    octets: Vec<u8>,
    deadline: u32,
}

/// Requests of one node.
#[derive(Default)]
struct RequestsOfNode {
    held: HashMap<u64, InboundRequest>,
    partial: HashMap<u64, PartialRequest>,
    /// Octets of the parts.
    bytes: usize,
}

impl RequestsOfNode {
    fn remove_partial(&mut self, number: u64) -> Vec<u8> {
        let octets = self.partial.remove(&number).map(|partial| partial.octets).unwrap_or_default();
        self.bytes -= octets.len();
        octets
    }
}

/// Requests that other nodes have forwarded to this one.
#[derive(Default)]
pub(crate) struct InboundRequests(LeafMutex<BTreeMap<NodeId, RequestsOfNode>>);

/// Result of a part of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PartOutcome {
    /// The whole request.
    Complete(Vec<u8>),
    /// Further parts follow.
    Incomplete,
    /// Too much is retained.
    Busy,
    /// No correct node sends so much.
    Invalid,
}

impl InboundRequests {
    pub(super) fn add_part(
        &self,
        from: NodeId,
        number: u64,
        part: &[u8],
        has_more: bool,
        now: u32,
    ) -> PartOutcome {
        let mut table = self.0.lock();
        let node = table.entry(from).or_default();
        let mut octets = node.remove_partial(number);
        octets.extend_from_slice(part);
        if octets.len() > MAX_BYTES {
            return PartOutcome::Invalid;
        }
        if !has_more {
            return PartOutcome::Complete(octets);
        }
        if node.bytes + octets.len() > MAX_RETAINED_BYTES || node.partial.len() >= MAX_OPEN_PER_NODE {
            return PartOutcome::Busy;
        }
        node.bytes += octets.len();
        let deadline = now.saturating_add(PARTS_SECONDS);
        node.partial.insert(number, PartialRequest { octets, deadline });
        PartOutcome::Incomplete
    }

    /// False if too many of that node are held, or one with this number is.
    pub(super) fn hold(&self, from: NodeId, number: u64, deadline: u32) -> bool {
        let mut table = self.0.lock();
        let node = table.entry(from).or_default();
        if node.held.len() >= MAX_OPEN_PER_NODE || node.held.contains_key(&number) {
            return false;
        }
        let request = InboundRequest { result: None, deadline, waits_for_sweep: false, waker: None };
        node.held.insert(number, request);
        true
    }

    pub(super) fn end(&self, from: NodeId, number: u64, result: RequestResult) {
        let mut table = self.0.lock();
        let Some(node) = table.get_mut(&from) else { return };
        node.remove_partial(number);
        let Some(request) = node.held.get_mut(&number) else { return };
        request.result = Some(result);
        let waker = request.waker.take();
        drop(table);
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn forget_node(&self, node: NodeId) {
        let Some(removed) = self.0.lock().remove(&node) else { return };
        removed.held.into_values().filter_map(|request| request.waker).for_each(Waker::wake);
    }

    pub(crate) fn sweep(&self, now: u32) {
        let mut wakers = Vec::new();
        let mut table = self.0.lock();
        table.retain(|_, node| {
            for request in node.held.values_mut() {
                if request.deadline <= now {
                    request.result.get_or_insert(RequestResult::Broken);
                }
                if request.deadline <= now || std::mem::take(&mut request.waits_for_sweep) {
                    wakers.extend(request.waker.take());
                }
            }
            let expired: Vec<u64> = node
                .partial
                .iter()
                .filter(|(_, part)| part.deadline <= now)
                .map(|(number, _)| *number)
                .collect();
            expired.into_iter().for_each(|number| drop(node.remove_partial(number)));
            !node.held.is_empty() || !node.partial.is_empty()
        });
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The entry of a held request, until its task ends.
pub(super) struct HeldEntry {
    state: Arc<PeerState>,
    from: NodeId,
    number: u64,
}

impl HeldEntry {
    pub(super) const fn new(state: Arc<PeerState>, from: NodeId, number: u64) -> HeldEntry {
        HeldEntry { state, from, number }
    }

    fn with<T>(&self, work: impl FnOnce(&mut InboundRequest) -> T) -> Option<T> {
        let mut table = self.state.inbound_requests.0.lock();
        table.get_mut(&self.from)?.held.get_mut(&self.number).map(work)
    }

    pub(super) fn poll_result(&self, cx: &mut Context<'_>) -> Poll<RequestResult> {
        let result = self.with(|request| {
            request.waker = Some(cx.waker().clone());
            request.result
        });
        result.unwrap_or(Some(RequestResult::Broken)).map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits for the next sweep. False if the request has ended.
    async fn next_sweep(&self) -> bool {
        self.with(|request| request.waits_for_sweep = true);
        poll_fn(|cx| match self.poll_result(cx) {
            Poll::Ready(_) => Poll::Ready(false),
            Poll::Pending if self.with(|request| request.waits_for_sweep) == Some(false) => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

impl Drop for HeldEntry {
    fn drop(&mut self) {
        if let Some(node) = self.state.inbound_requests.0.lock().get_mut(&self.from) {
            node.held.remove(&self.number);
        }
    }
}

impl ClusteredNode<'_> {
    /// A part of a request of another node. False if the octets are none, or too many.
    pub(crate) fn on_forwarded_request(&self, from: NodeId, octets: &[u8]) -> bool {
        let Some((number, rest)) = octets.split_first_chunk() else { return false };
        let Some((seconds, [has_more, part @ ..])) = rest.split_first_chunk() else { return false };
        let (number, seconds) = (u64::from_be_bytes(*number), u32::from_be_bytes(*seconds));
        let now = self.seconds();
        match self.state.inbound_requests.add_part(from, number, part, *has_more != 0, now) {
            PartOutcome::Complete(request) => {
                self.hold_request(from, number, &request, now.saturating_add(seconds))
            }
            PartOutcome::Incomplete => {}
            PartOutcome::Busy => self.refuse_request(from, number, ResponseStatus::Busy),
            PartOutcome::Invalid => return false,
        }
        true
    }

    fn hold_request(&self, from: NodeId, number: u64, request: &[u8], deadline: u32) {
        let handler = self.extensions.get::<ForwardedRequestHandler>();
        let Some(handler) = handler else {
            return self.refuse_request(from, number, ResponseStatus::NoHandler);
        };
        if !self.state.inbound_requests.hold(from, number, deadline.saturating_add(GRACE_SECONDS)) {
            return self.refuse_request(from, number, ResponseStatus::Busy);
        }
        let entry = HeldEntry::new(self.state.clone(), from, number);
        // Here, not in the task: requests of a client are handled in the order in which they arrive.
        let Some(held) = handler.0.handle(request) else {
            return self.refuse_request(from, number, ResponseStatus::NoHandler);
        };
        self.spawner.spawn("request of another node", Box::pin(answer(self.owned(), entry, held)));
    }

    /// A sender without an answer waits until its deadline.
    fn refuse_request(&self, to: NodeId, number: u64, status: ResponseStatus) {
        let head = [&number.to_be_bytes()[..], &[status as u8]].concat();
        if let Err(refused) = self.send_part(to, FORWARDED_RESPONSE, &head, &[]) {
            tracing::warn!(%refused, "a request of another node was not answered");
        }
    }

    /// Another node has ended a request. False if the octets do not say so.
    pub(crate) fn on_request_end(&self, from: NodeId, octets: &[u8]) -> bool {
        let Some((number, [is_sent])) = octets.split_first_chunk() else { return false };
        let result = if *is_sent == 0 { RequestResult::Broken } else { RequestResult::Sent };
        self.state.inbound_requests.end(from, u64::from_be_bytes(*number), result);
        true
    }

    /// Sends the parts of a response from this position. False if not all fit into the queue.
    fn send_response(&self, entry: &HeldEntry, response: &[u8], at: &mut usize, awaits_end: bool) -> bool {
        while let Some(part) = next_part(response, *at) {
            let status = match *at + part.len() < response.len() {
                true => ResponseStatus::Part,
                false if awaits_end => ResponseStatus::AwaitsEnd,
                false => ResponseStatus::Complete,
            };
            let head = [&entry.number.to_be_bytes()[..], &[status as u8]].concat();
            if self.send_part(entry.from, FORWARDED_RESPONSE, &head, part).is_err() {
                return false;
            }
            *at += part.len().max(1);
        }
        true
    }
}

/// Waits for the response, sends it, and waits until the client has it.
async fn answer(node: OwnedClusteredNode, entry: HeldEntry, mut held: Box<dyn AcceptedRequest>) {
    let response = poll_fn(|cx| match entry.poll_result(cx) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => held.poll_response(cx).map(Some),
    });
    let Some((response, awaits_end)) = response.await else { return };
    let mut at = 0;
    while !node.view().send_response(&entry, &response, &mut at, awaits_end) {
        if !entry.next_sweep().await {
            return;
        }
    }
    drop(response);
    if !awaits_end {
        return;
    }
    let deadline = node.view().seconds().saturating_add(END_SECONDS);
    entry.with(|request| request.deadline = deadline);
    if poll_fn(|cx| entry.poll_result(cx)).await == RequestResult::Sent {
        held.response_sent();
    }
}
