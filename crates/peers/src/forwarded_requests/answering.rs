//! Work for requests that other nodes have forwarded: what handles them, and the task of each request.
//!
//! # Pitfalls
//!
//! Envelopes of all nodes arrive one after the other in one task. What depends on the length of a request belongs into the
//! request's own task.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use cluster::NodeId;

use super::inbound::{HeldEntry, PartOutcome, RequestResult};
use super::{MAX_FORWARDED_OCTETS, MAX_RESPONSE_BYTES, PART_BYTES, ResponseStatus};
use crate::envelope_kinds::FORWARDED_RESPONSE;
use crate::{ClusteredNode, OwnedClusteredNode};

/// Seconds for which a request is held after its sender has ceased to wait.
const GRACE_SECONDS: u32 = 5;
/// Seconds in which a client must have read its response.
const END_SECONDS: u32 = 60;

/// Handles requests that other nodes forward.
pub trait HandleForwardedRequest: Send + Sync {
    /// Takes a request, and reads only what tells its group. `None` at a shutdown.
    fn take(&self, request: Vec<u8>) -> Option<Box<dyn AcceptedRequest>>;
}

/// The extension of a node that handles forwarded requests. Without it there is no response.
pub struct ForwardedRequestHandler(pub Arc<dyn HandleForwardedRequest>);

/// What a request has in common with others: they are handled in the order in which they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestGroup {
    /// The same for all of them.
    pub id: u128,
    /// Identifies the request among them: a second one replaces the first.
    pub position: u64,
    /// Maximum number of open ones. A further one replaces the oldest.
    pub most: usize,
}

/// A response. Its body may be shared by many.
pub struct HeldResponse {
    /// Octets before the body.
    pub head: Vec<u8>,
    /// The body.
    pub body: Box<dyn AsRef<[u8]> + Send + Sync>,
    /// It must be known that the client has it.
    pub awaits_end: bool,
}

impl HeldResponse {
    pub(super) fn len(&self) -> usize {
        self.head.len() + (*self.body).as_ref().len()
    }

    /// The part that begins here. An empty response has one empty part.
    pub(super) fn part(&self, at: usize) -> Option<[&[u8]; 2]> {
        let (head, body) = (&self.head[..], (*self.body).as_ref());
        if at > 0 && at >= self.len() {
            return None;
        }
        let cut = |octets: &[u8], begins: usize| {
            let within = |position: usize| position.saturating_sub(begins).min(octets.len());
            within(at)..within(at + PART_BYTES)
        };
        Some([&head[cut(head, 0)], &body[cut(body, head.len())]])
    }
}

/// A request of another node's client. Dropping it before [`AcceptedRequest::response_sent`] means that the connection broke.
pub trait AcceptedRequest: Send {
    /// The requests it belongs with.
    fn group(&self) -> Option<RequestGroup>;
    /// Handles the request. Called once, before [`AcceptedRequest::poll_response`].
    fn handle(&mut self);
    /// The response, once. Until then the task is woken when it is ready.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<HeldResponse>;
    /// The client has the response.
    fn response_sent(&mut self);
}

impl ClusteredNode<'_> {
    /// A part of a request of another node. False if the octets are none, or too many.
    pub(crate) fn on_forwarded_request(&self, from: NodeId, octets: &[u8]) -> bool {
        let Some((number, rest)) = octets.split_first_chunk() else { return false };
        let Some((seconds, rest)) = rest.split_first_chunk() else { return false };
        let Some((before, [has_more, part @ ..])) = rest.split_first_chunk() else { return false };
        let (number, seconds) = (u64::from_be_bytes(*number), u32::from_be_bytes(*seconds));
        let (before, now) = (u32::from_be_bytes(*before), self.seconds());
        match self.state.inbound_requests.add_part(from, number, (before, part), *has_more != 0, now) {
            PartOutcome::Complete(request) => {
                self.hold_request(from, number, request, now.saturating_add(seconds))
            }
            PartOutcome::Incomplete => {}
            PartOutcome::Busy => self.refuse_request(from, number, ResponseStatus::Busy),
            PartOutcome::Invalid => return false,
        }
        true
    }

    fn hold_request(&self, from: NodeId, number: u64, request: Vec<u8>, deadline: u32) {
        let handler = self.extensions.get::<ForwardedRequestHandler>();
        let Some(handler) = handler else {
            return self.refuse_request(from, number, ResponseStatus::NoHandler);
        };
        let deadline = deadline.saturating_add(GRACE_SECONDS);
        if !self.state.inbound_requests.hold(from, number, request.len(), deadline) {
            return self.refuse_request(from, number, ResponseStatus::Busy);
        }
        let mut entry = HeldEntry::new(self.state.clone(), from, number);
        let Some(held) = handler.0.take(request) else {
            return self.refuse_request(from, number, ResponseStatus::NoHandler);
        };
        // Here, not in the task: the order in which they arrive.
        if let Some(group) = held.group() {
            entry.join(&group);
        }
        self.spawner.spawn("request of another node", Box::pin(answer(self.owned(), entry, held)));
    }

    /// A sender without an answer waits until its deadline.
    fn refuse_request(&self, to: NodeId, number: u64, status: ResponseStatus) {
        let head = [&number.to_be_bytes()[..], &[status as u8]];
        if let Err(refused) = self.send_ending(to, FORWARDED_RESPONSE, &head) {
            // A client decides how many there are.
            tracing::debug!(%refused, "a request of another node was not answered");
            self.metrics.cluster_not_queued.inc([refused.as_str()]);
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
    fn send_response(&self, entry: &HeldEntry, response: &HeldResponse, at: &mut usize) -> bool {
        while let Some([head, body]) = response.part(*at) {
            let length = head.len() + body.len();
            let status = match *at + length < response.len() {
                true => ResponseStatus::Part,
                false if response.awaits_end => ResponseStatus::AwaitsEnd,
                false => ResponseStatus::Complete,
            };
            let content = [&entry.number.to_be_bytes()[..], &[status as u8], head, body];
            if self.send_forwarded(entry.from, FORWARDED_RESPONSE, &content, MAX_FORWARDED_OCTETS).is_err() {
                return false;
            }
            *at += length.max(1);
        }
        true
    }
}

/// Why a response was not sent.
enum NotSent {
    /// The request has ended before.
    Ended(RequestResult),
    Refused(ResponseStatus),
}

impl From<RequestResult> for NotSent {
    fn from(result: RequestResult) -> NotSent {
        NotSent::Ended(result)
    }
}

/// Handles a request, waits for its response, sends it, and waits until the client has it.
async fn answer(node: OwnedClusteredNode, entry: HeldEntry, mut held: Box<dyn AcceptedRequest>) {
    match respond(&node, &entry, &mut *held).await {
        Ok(false) | Err(NotSent::Ended(RequestResult::Broken | RequestResult::Sent)) => {}
        Ok(true) => {
            if poll_fn(|cx| entry.poll_result(cx)).await == RequestResult::Sent {
                held.response_sent();
            }
        }
        Err(NotSent::Ended(RequestResult::Replaced)) => {
            node.view().refuse_request(entry.from, entry.number, ResponseStatus::Busy);
        }
        Err(NotSent::Refused(status)) => node.view().refuse_request(entry.from, entry.number, status),
    }
}

/// Whether the response, which was sent, awaits its end.
async fn respond(
    node: &OwnedClusteredNode,
    entry: &HeldEntry,
    held: &mut dyn AcceptedRequest,
) -> Result<bool, NotSent> {
    entry.turn().await?;
    held.handle();
    entry.handled();
    let response = poll_fn(|cx| match entry.poll_result(cx) {
        Poll::Ready(result) => Poll::Ready(Err(result)),
        Poll::Pending => held.poll_response(cx).map(Ok),
    });
    let response = response.await?;
    if response.len() > MAX_RESPONSE_BYTES {
        return Err(NotSent::Refused(ResponseStatus::NoHandler));
    }
    if !entry.retain(response.len()) {
        return Err(NotSent::Refused(ResponseStatus::Busy));
    }
    let mut at = 0;
    loop {
        entry.turn_to_send().await?;
        if node.view().send_response(entry, &response, &mut at) {
            break;
        }
    }
    let awaits_end = response.awaits_end;
    let deadline = awaits_end.then(|| node.view().seconds().saturating_add(END_SECONDS));
    entry.sent(deadline);
    Ok(awaits_end)
}
