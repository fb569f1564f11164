//! Ownership of the items of services, such as rooms, in slices of their addresses ([`cluster::slice_of`]): one node at a time
//! owns a slice.
//!
//! Every node computes the node that must own a slice from the members that it sees. Two nodes may see different members, so a node
//! acts as the owner only with two records in the store:
//!
//! ```text
//! item-owner NODE   lease of a node ([`store::lease`]), renewed every 3 seconds; its fencing number is the incarnation
//! item-slice NNN    8 fencing number, 8 incarnation of the node, its name; without a name the slice is free
//! ```
//!
//! A slice record counts while the lease of its node has the same incarnation. Another node that wants the slice of a node that is
//! gone takes that node's lease first, when it has not been renewed for 9 seconds. So ownership costs one write in three seconds for a
//! node, however many items there are, and slices are taken when they are used. Writes of items have the slice record as their condition
//! ([`WriteFence`]).
//!
//! * `table`: what this node owns, and who waits for it. `keeper`: the task that renews, takes and hands over.
//! * `records`: the records.
//!
//! When a member joins, slices are handed over: the service sends its items to the next owner ([`SliceService::hand_over`]), then the
//! record is freed. When a node is gone, the backup of its slices takes them; services keep a copy of what is not in the store there
//! ([`SliceService::set_backup`]). A node that is cut off from the larger part of the cluster gives its slices up. A node whose lease
//! could not be renewed in time suspends: what is for its items waits, and is refused after [`MAX_WAIT_SECONDS`].
//!
//! # Pitfalls
//!
//! While nodes are cut off from each other in part (two that both see a third), each keeps its slices, and the other one cannot reach
//! them.

mod keeper;
mod records;
mod table;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use base::BoxFuture;
use cluster::{NodeId, slice_of};
use jid::JidRef;
use store::WriteFence;
use store::lease::LeaseTerms;
use throng_core::Node;
use throng_core::SharedStanza;

use crate::ClusteredNode;

pub(crate) use self::table::SliceTable;

/// Times of the lease of a node: an owner that was killed is replaced within 15 seconds.
const TERMS: LeaseTerms = LeaseTerms { seconds: 9, renew_seconds: 3 };
/// Seconds for which an input of an item waits for its owner.
pub const MAX_WAIT_SECONDS: u32 = 20;

/// The right to act as the owner of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceLease {
    /// Rises each time that a node takes the slice.
    pub number: u64,
    /// Condition of all writes of items.
    pub fence: WriteFence,
}

/// Who acts as the owner of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceAccess {
    /// This node. Without a lease on a single node.
    Own(Option<SliceLease>),
    /// This node, which hands the items that it has over to another one. Items that are not in memory belong to that one.
    Moving(SliceLease, NodeId),
    /// Another node.
    Elsewhere(NodeId),
    /// This node will be; see [`wait_for_slice`].
    Pending,
    /// Nobody whom this node reaches: it is cut off from the cluster.
    CutOff,
}

/// A service with items that are owned in slices. Its methods must not block.
pub trait SliceService: Send + Sync {
    /// Sends the items of a slice to the next owner and forgets them. The slice is freed afterwards.
    fn hand_over(&self, node: &Arc<Node>, slice: u8, to: NodeId) -> BoxFuture<'static, ()>;

    /// This node owns a slice from now on. `previous` is the number of the former lease.
    fn taken(&self, node: &Arc<Node>, slice: u8, previous: u64);

    /// This node does not own a slice any more, and has not handed it over.
    fn lost(&self, node: &Arc<Node>, slice: u8);

    /// The node that must have a copy of what is not in the store has changed, or has lost what it had.
    fn set_backup(&self, node: &Arc<Node>, slice: u8, backup: Option<NodeId>);

    /// Slices of which this node has copies.
    fn copied_slices(&self) -> Vec<u8>;

    /// A member is gone, with its sessions.
    fn member_left(&self, node: &Arc<Node>);

    /// The node stops. Items that it has handed over are not here any more.
    fn shut_down(&self, node: &Arc<Node>) -> BoxFuture<'static, ()>;
}

/// From now on, a service takes part in the ownership of slices. On a single node it only learns when that stops.
pub fn add_slice_service(node: &Arc<Node>, service: Arc<dyn SliceService>) {
    if let Some(clustered) = ClusteredNode::of(node) {
        clustered.state.slices.add_service(service);
    }
}

fn clustered(node: &Arc<Node>) -> Option<ClusteredNode<'_>> {
    ClusteredNode::of(node).filter(|_| !node.is_single())
}

/// The slice of an item.
pub fn slice_of_item(node: &Node, item: JidRef<'_>) -> u8 {
    slice_of(node.routing_table.hash(item))
}

/// The other node that must own the item with this hash; `None`: this one. For services without a lease, whose items may have two
/// owners while nodes see different members.
pub fn other_owner(node: &Arc<Node>, item: u64) -> Option<NodeId> {
    clustered(node)?.slice_route(slice_of(item))
}

/// Who acts as the owner of a slice. One that must be owned here is taken from now on.
pub fn slice_access(node: &Arc<Node>, slice: u8) -> SliceAccess {
    let Some(this) = clustered(node) else { return SliceAccess::Own(None) };
    let access = this.slice_access(slice);
    if access == SliceAccess::Pending {
        this.want_slice(slice);
    }
    access
}

/// The backup of a slice has not received a change: it must forget all, and gets everything again.
pub fn backup_failed(node: &Arc<Node>, slice: u8) {
    if let Some(this) = clustered(node) {
        this.state.slices.forget_backup(slice);
    }
}

/// Waits until it is known who owns a slice, at most [`MAX_WAIT_SECONDS`].
pub async fn wait_for_slice(node: &Arc<Node>, slice: u8) -> SliceAccess {
    let deadline = node.clock.now_seconds().saturating_add(MAX_WAIT_SECONDS);
    poll_fn(|cx| {
        let Some(this) = clustered(node) else { return Poll::Ready(SliceAccess::Own(None)) };
        // First the waker: a change in between is not missed.
        this.state.slices.add_waiting(cx.waker());
        let access = slice_access(node, slice);
        match access {
            SliceAccess::Pending if node.clock.now_seconds() < deadline => Poll::Pending,
            access => Poll::Ready(access),
        }
    })
    .await
}

/// Waits for the next sweep.
pub async fn next_sweep(node: &Arc<Node>) {
    let begun_at = node.seconds();
    poll_fn(|cx| {
        let Some(this) = clustered(node) else { return Poll::Ready(()) };
        this.state.slices.add_waiting(cx.waker());
        if node.seconds() > begun_at { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Passes a stanza that had been accepted for an item here on to the node that owns it. False if that node is not reached.
pub fn forward_to_owner(node: &Arc<Node>, stanza: &SharedStanza, item: JidRef<'_>, owner: NodeId) -> bool {
    clustered(node).is_some_and(|this| this.send_service_stanza(stanza, item, owner, 1, false).is_some())
}

/// Hands all slices over to the other members, and shuts services down. For a node that is about to stop, before its sessions end.
pub async fn shut_down(node: &Arc<Node>) {
    let Some(this) = ClusteredNode::of(node) else { return };
    if !node.is_single() {
        this.hand_over_all_slices().await;
    }
    for service in this.state.slices.services() {
        service.shut_down(node).await;
    }
}
