//! Requests of other nodes' clients that are answered here: parts that arrive, requests whose turn has not come, those that
//! wait for their responses, and responses that wait for room in the queue or until the client has them.
//!
//! Requests of one group (of one session) are handled in the order in which they arrive. Responses of all requests of a node
//! are sent in the order in which they are ready.
//!
//! # Pitfalls
//!
//! A request that is dropped without an end counts as a broken connection. So does one whose end does not arrive in time, and
//! those of a node that is gone.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use cluster::NodeId;
use hashbrown::HashMap;

use super::answering::RequestGroup;
use super::{MAX_OPEN_PER_NODE, MAX_REQUEST_BYTES, MAX_RETAINED_BYTES, MAX_RETAINED_PER_CLIENT};
use crate::home::PeerState;

/// Seconds after which the parts of a request are forgotten if the last one has not arrived.
const PARTS_SECONDS: u32 = 10;
/// Seconds that are left to responses when the node shuts down.
const CLOSING_SECONDS: u32 = 5;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestResult {
    /// The client has the response.
    Sent,
    /// The client's connection broke.
    Broken,
    /// The client has sent the request again, or too many others.
    Replaced,
}

struct InboundRequest {
    result: Option<RequestResult>,
    /// Second of the node's clock.
    deadline: u32,
    /// Octets of the request until it is handled, then of its response until that is sent.
    octets: usize,
    /// Its response waits for the queue.
    is_in_line: bool,
    /// It is the first in line, and there may be room for its response.
    may_send: bool,
    /// Its response is sent.
    awaits_end: bool,
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
    /// Octets of the parts and of those that are held.
    octets: usize,
    /// Requests whose responses wait for the queue.
    line: VecDeque<u64>,
}

impl RequestsOfNode {
    fn remove_partial(&mut self, number: u64) -> Option<Vec<u8>> {
        let octets = self.partial.remove(&number)?.octets;
        self.octets -= octets.len();
        Some(octets)
    }

    /// There may be room in the queue. Returns the task to wake.
    fn wake_line(&mut self) -> Option<Waker> {
        let first = self.held.get_mut(self.line.front()?)?;
        first.may_send = true;
        first.waker.take()
    }

    fn leave_line(&mut self, number: u64) -> Option<Waker> {
        if self.line.front() != Some(&number) {
            self.line.retain(|waiting| *waiting != number);
            return None;
        }
        self.line.pop_front();
        self.wake_line()
    }
}

struct GroupMember {
    from: NodeId,
    number: u64,
    position: u64,
    is_handled: bool,
}

#[derive(Default)]
struct InboundState {
    nodes: BTreeMap<NodeId, RequestsOfNode>,
    /// In the order in which they arrived.
    groups: HashMap<u128, Vec<GroupMember>>,
    is_closing: bool,
}

impl InboundState {
    fn held(&mut self, from: NodeId, number: u64) -> Option<&mut InboundRequest> {
        self.nodes.get_mut(&from)?.held.get_mut(&number)
    }

    /// The task whose turn it is in a group.
    fn next_of_group(&mut self, group: u128) -> Option<Waker> {
        let next = self.groups.get(&group)?.iter().find(|member| !member.is_handled)?;
        let (from, number) = (next.from, next.number);
        self.held(from, number)?.waker.take()
    }

    fn octets_of_group(&self, group: u128) -> usize {
        let members = self.groups.get(&group).into_iter().flatten();
        let held = |member: &GroupMember| self.nodes.get(&member.from)?.held.get(&member.number);
        members.filter_map(held).map(|request| request.octets).sum()
    }
}

/// Requests that other nodes have forwarded to this one.
#[derive(Default)]
pub(crate) struct InboundRequests(LeafMutex<InboundState>);

/// Result of a part of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PartOutcome {
    /// The whole request.
    Complete(Vec<u8>),
    /// Further parts follow.
    Incomplete,
    /// Too much is retained, or the parts before this one are not.
    Busy,
    /// No correct node sends so much.
    Invalid,
}

impl InboundRequests {
    /// A part of a request that follows this many octets of it.
    pub(super) fn add_part(
        &self,
        from: NodeId,
        number: u64,
        (before, part): (u32, &[u8]),
        has_more: bool,
        now: u32,
    ) -> PartOutcome {
        let mut state = self.0.lock();
        let node = state.nodes.entry(from).or_default();
        let mut octets = node.remove_partial(number).unwrap_or_default();
        if u32::try_from(octets.len()) != Ok(before) {
            return PartOutcome::Busy;
        }
        octets.extend_from_slice(part);
        if octets.len() > MAX_REQUEST_BYTES {
            return PartOutcome::Invalid;
        }
        if !has_more {
            return PartOutcome::Complete(octets);
        }
        if node.octets + octets.len() > MAX_RETAINED_BYTES || node.partial.len() >= MAX_OPEN_PER_NODE {
            return PartOutcome::Busy;
        }
        node.octets += octets.len();
        let deadline = now.saturating_add(PARTS_SECONDS);
        node.partial.insert(number, PartialRequest { octets, deadline });
        PartOutcome::Incomplete
    }

    /// False if too many of that node are held, or too many octets, or one with this number is.
    pub(super) fn hold(&self, from: NodeId, number: u64, octets: usize, deadline: u32) -> bool {
        let mut state = self.0.lock();
        let node = state.nodes.entry(from).or_default();
        let has_room = node.held.len() < MAX_OPEN_PER_NODE && node.octets + octets <= MAX_RETAINED_BYTES;
        if !has_room || node.held.contains_key(&number) {
            return false;
        }
        node.octets += octets;
        let request = InboundRequest {
            result: None,
            deadline,
            octets,
            is_in_line: false,
            may_send: false,
            awaits_end: false,
            waker: None,
        };
        node.held.insert(number, request);
        true
    }

    pub(super) fn end(&self, from: NodeId, number: u64, result: RequestResult) {
        let mut state = self.0.lock();
        if let Some(node) = state.nodes.get_mut(&from) {
            drop(node.remove_partial(number));
        }
        let Some(request) = state.held(from, number) else { return };
        request.result.get_or_insert(result);
        let waker = request.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn forget_node(&self, node: NodeId) {
        let Some(removed) = self.0.lock().nodes.remove(&node) else { return };
        removed.held.into_values().filter_map(|request| request.waker).for_each(Waker::wake);
    }

    /// A node has settled something: the queue may have room.
    pub(crate) fn send_waiting(&self, to: NodeId) {
        let waker = self.0.lock().nodes.get_mut(&to).and_then(RequestsOfNode::wake_line);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The node shuts down, and all sessions have ended: nothing waits for what clients have received.
    pub(crate) fn close(&self, now: u32) {
        let mut wakers = Vec::new();
        let mut state = self.0.lock();
        state.is_closing = true;
        for request in state.nodes.values_mut().flat_map(|node| node.held.values_mut()) {
            request.deadline = request.deadline.min(now.saturating_add(CLOSING_SECONDS));
            if request.awaits_end {
                request.result.get_or_insert(RequestResult::Broken);
                wakers.extend(request.waker.take());
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn sweep(&self, now: u32) {
        let mut wakers = Vec::new();
        let mut state = self.0.lock();
        state.nodes.retain(|_, node| {
            for request in node.held.values_mut().filter(|request| request.deadline <= now) {
                request.result.get_or_insert(RequestResult::Broken);
                wakers.extend(request.waker.take());
            }
            wakers.extend(node.wake_line());
            let expired: Vec<u64> = node
                .partial
                .iter()
                .filter(|(_, part)| part.deadline <= now)
                .map(|(number, _)| *number)
                .collect();
            expired.into_iter().for_each(|number| drop(node.remove_partial(number)));
            !node.held.is_empty() || !node.partial.is_empty()
        });
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The entry of a held request, until its task ends.
pub(super) struct HeldEntry {
    state: Arc<PeerState>,
    pub(super) from: NodeId,
    pub(super) number: u64,
    group: Option<u128>,
}

impl HeldEntry {
    pub(super) const fn new(state: Arc<PeerState>, from: NodeId, number: u64) -> HeldEntry {
        HeldEntry { state, from, number, group: None }
    }

    /// Adds the request to its group, in which it replaces an earlier one at its position, and the oldest one if there are too
    /// many.
    pub(super) fn join(&mut self, group: &RequestGroup) {
        let mut wakers = Vec::new();
        let mut guard = self.state.inbound_requests.0.lock();
        let state = &mut *guard;
        let members = state.groups.entry(group.id).or_default();
        let mut replaced: Vec<GroupMember> =
            members.extract_if(.., |member| member.position == group.position).collect();
        let excess = (members.len() + 1).saturating_sub(group.most.max(1));
        replaced.extend(members.drain(..excess));
        let (from, number, position) = (self.from, self.number, group.position);
        members.push(GroupMember { from, number, position, is_handled: false });
        self.group = Some(group.id);
        for member in replaced {
            if let Some(request) = state.held(member.from, member.number) {
                request.result.get_or_insert(RequestResult::Replaced);
                wakers.extend(request.waker.take());
            }
        }
        wakers.extend(state.next_of_group(group.id));
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn poll_result(&self, cx: &mut Context<'_>) -> Poll<RequestResult> {
        let mut state = self.state.inbound_requests.0.lock();
        let Some(request) = state.held(self.from, self.number) else {
            return Poll::Ready(RequestResult::Broken);
        };
        request.waker = Some(cx.waker().clone());
        request.result.map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits until the requests of its group that arrived before have been handled.
    pub(super) async fn turn(&self) -> Result<(), RequestResult> {
        poll_fn(|cx| {
            if let Poll::Ready(result) = self.poll_result(cx) {
                return Poll::Ready(Err(result));
            }
            let Some(group) = self.group else { return Poll::Ready(Ok(())) };
            let state = self.state.inbound_requests.0.lock();
            let next = state.groups.get(&group).into_iter().flatten().find(|member| !member.is_handled);
            match next.is_some_and(|next| (next.from, next.number) != (self.from, self.number)) {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// The request was handled: its octets are gone.
    pub(super) fn handled(&self) {
        let mut state = self.state.inbound_requests.0.lock();
        set_octets(&mut state, self, 0);
        let group = self.group.and_then(|group| state.groups.get_mut(&group)).into_iter().flatten();
        group
            .filter(|member| (member.from, member.number) == (self.from, self.number))
            .for_each(|member| member.is_handled = true);
        let waker = self.group.and_then(|group| state.next_of_group(group));
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Counts the octets of a response that waits for the queue. False if there are too many already.
    pub(super) fn retain(&self, octets: usize) -> bool {
        let mut state = self.state.inbound_requests.0.lock();
        let of_node = state.nodes.get(&self.from).map_or(0, |node| node.octets);
        let of_group = self.group.map_or(0, |group| state.octets_of_group(group));
        let exceeds = |retained: usize, most: usize| retained > 0 && retained + octets > most;
        if exceeds(of_node, MAX_RETAINED_BYTES) || exceeds(of_group, MAX_RETAINED_PER_CLIENT) {
            return false;
        }
        set_octets(&mut state, self, octets);
        true
    }

    /// Waits in line until the response may be sent, from its beginning or from where the queue was full.
    pub(super) async fn turn_to_send(&self) -> Result<(), RequestResult> {
        {
            let mut state = self.state.inbound_requests.0.lock();
            if let Some(node) = state.nodes.get_mut(&self.from)
                && let Some(request) = node.held.get_mut(&self.number)
                && !std::mem::replace(&mut request.is_in_line, true)
            {
                let is_first = node.line.is_empty();
                node.line.push_back(self.number);
                if is_first {
                    drop(node.wake_line());
                }
            }
        }
        poll_fn(|cx| match self.poll_result(cx) {
            Poll::Ready(result) => Poll::Ready(Err(result)),
            Poll::Pending => {
                let mut state = self.state.inbound_requests.0.lock();
                let request = state.held(self.from, self.number);
                match request.is_some_and(|request| std::mem::take(&mut request.may_send)) {
                    true => Poll::Ready(Ok(())),
                    false => Poll::Pending,
                }
            }
        })
        .await
    }

    /// The whole response was sent. With a deadline, the client's connection must take it until then.
    pub(super) fn sent(&self, end_deadline: Option<u32>) {
        let mut state = self.state.inbound_requests.0.lock();
        set_octets(&mut state, self, 0);
        let is_closing = state.is_closing;
        if let (Some(deadline), Some(request)) = (end_deadline, state.held(self.from, self.number)) {
            (request.deadline, request.awaits_end) = (deadline, true);
            if is_closing {
                request.result.get_or_insert(RequestResult::Broken);
            }
        }
        let node = state.nodes.get_mut(&self.from);
        let waker = node.and_then(|node| {
            node.held.get_mut(&self.number)?.is_in_line = false;
            node.leave_line(self.number)
        });
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

fn set_octets(state: &mut InboundState, entry: &HeldEntry, octets: usize) {
    let Some(node) = state.nodes.get_mut(&entry.from) else { return };
    let Some(request) = node.held.get_mut(&entry.number) else { return };
    node.octets = node.octets - request.octets + octets;
    request.octets = octets;
}

impl Drop for HeldEntry {
    fn drop(&mut self) {
        let mut wakers = Vec::new();
        let mut state = self.state.inbound_requests.0.lock();
        set_octets(&mut state, self, 0);
        if let Some(node) = state.nodes.get_mut(&self.from)
            && node.held.remove(&self.number).is_some_and(|request| request.is_in_line)
        {
            wakers.extend(node.leave_line(self.number));
        }
        if let Some(group) = self.group
            && let Some(members) = state.groups.get_mut(&group)
        {
            members.retain(|member| (member.from, member.number) != (self.from, self.number));
            if members.is_empty() {
                state.groups.remove(&group);
            } else {
                wakers.extend(state.next_of_group(group));
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}
