//! Table of this node's requests that wait for other nodes, with the responses that their clients have not taken.
//!
//! # Pitfalls
//!
//! Numbers begin at a random one, so that a node that restarts does not use those that another node may still remember.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use base::id::random_bytes;
use base::lock::LeafMutex;
use cluster::NodeId;
use hashbrown::HashMap;

use super::{
    ForwardingFailure, MAX_OPEN, MAX_OPEN_PER_CLIENT, MAX_OPEN_PER_NODE, MAX_RESPONSE_BYTES,
    MAX_RETAINED_BYTES, MAX_RETAINED_PER_CLIENT, ResponseStatus,
};

/// Seconds in which a node that was lost may return.
const LOST_SECONDS: u32 = 10;

/// What a request has resulted in.
pub(super) struct RequestOutcome {
    pub(super) failure: Option<ForwardingFailure>,
    /// The other node waits for the end.
    pub(super) awaits_end: bool,
}

pub(super) struct OpenRequest {
    to: NodeId,
    client: u64,
    /// Second of the node's clock.
    deadline: u32,
    /// Parts of the response.
    octets: Vec<u8>,
    outcome: Option<RequestOutcome>,
    waker: Option<Waker>,
}

/// The end of a request, for the node that holds it.
pub(super) struct RequestEnd {
    pub(super) to: NodeId,
    pub(super) number: u64,
    pub(super) is_sent: bool,
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

    /// What a request has resulted in, and its octets, once.
    pub(super) fn poll(&self, number: u64, cx: &mut Context<'_>) -> Poll<(RequestOutcome, Vec<u8>)> {
        let mut requests = self.0.lock();
        let Some(open) = requests.open.get_mut(&number) else { return Poll::Pending };
        let Some(outcome) = open.outcome.take() else {
            open.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let octets = requests.remove(number).map(|open| open.octets).unwrap_or_default();
        Poll::Ready((outcome, octets))
    }

    /// Keeps an end that does not fit into the queue.
    pub(super) fn add_due_end(&self, end: RequestEnd) {
        let mut requests = self.0.lock();
        if requests.due_ends.len() < MAX_OPEN {
            requests.due_ends.push(end);
        }
    }

    /// The ends to send again. Forgets lost nodes that have not returned.
    pub(super) fn take_due(&self, now: u32) -> Vec<RequestEnd> {
        let mut requests = self.0.lock();
        requests.lost.retain(|_, until| now < *until);
        std::mem::take(&mut requests.due_ends)
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

    fn finish_all(&self, is_concerned: impl Fn(&OpenRequest) -> bool, failure: ForwardingFailure) {
        let mut wakers = Vec::new();
        let mut guard = self.0.lock();
        let requests = &mut *guard;
        let concerned = requests.open.iter().filter(|(_, open)| is_concerned(open));
        let numbers: Vec<u64> = concerned.map(|(number, _)| *number).collect();
        let awaits_end = failure != ForwardingFailure::NoNode;
        for number in numbers {
            wakers.extend(requests.finish(number, RequestOutcome { failure: Some(failure), awaits_end }));
        }
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends requests without a response.
    pub(super) fn fail(&self, is_concerned: impl Fn(&OpenRequest) -> bool, failure: ForwardingFailure) {
        self.finish_all(|open| open.outcome.is_none() && is_concerned(open), failure);
    }

    /// Ends requests that have no response in time, and those whose client has not taken it: a pipelined one may wait for
    /// others.
    pub(super) fn expire(&self, now: u32) {
        let has_failed = |open: &OpenRequest| open.outcome.as_ref().is_some_and(|it| it.failure.is_some());
        self.finish_all(|open| open.deadline <= now && !has_failed(open), ForwardingFailure::Retry);
    }

    pub(super) fn fail_one(&self, number: u64, failure: ForwardingFailure) {
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
