//! [`SingleNode`]: a cluster of one node, which sends nothing.
//!
//! # Pitfalls
//!
//! `locate` returns *here* for every address, claimed or not, because the routing table has the exact answer.
//! Callers that want to skip even this check [`Cluster::is_single`] once.

use std::sync::{Arc, OnceLock};

use base::spawn::BoxFuture;

use crate::{
    AddressLocation, AddressNumber, BroadcastResult, Claim, Cluster, Envelope, HandoverResult, Inbox, Member,
    NodeId, RefusalReason, RefusedEnvelope, Ticket,
};

/// The cluster of a server without other nodes.
pub struct SingleNode {
    member: Member,
    inbox: OnceLock<Arc<dyn Inbox>>,
}

impl SingleNode {
    /// A cluster of this node only.
    pub fn new(node: NodeId) -> SingleNode {
        SingleNode {
            member: Member { node, epoch: 0, version: Envelope::VERSION, drains: false },
            inbox: OnceLock::new(),
        }
    }
}

impl Cluster for SingleNode {
    fn node(&self) -> NodeId {
        self.member.node
    }

    #[inline]
    fn is_single(&self) -> bool {
        true
    }

    fn attach(&self, inbox: Arc<dyn Inbox>) {
        // A second inbox is a bug of the caller; the first one stays.
        let _ = self.inbox.set(inbox);
    }

    fn members(&self) -> Vec<Member> {
        vec![self.member]
    }

    #[inline]
    fn locate(&self, _address: u64, _number: Option<AddressNumber>) -> AddressLocation {
        AddressLocation::Here
    }

    fn claim(&self, _claim: Claim) {}

    fn set_takes_messages(&self, _address: u64, _number: Option<AddressNumber>, _takes_messages: bool) {}

    fn release(&self, _address: u64, _number: Option<AddressNumber>) {}

    fn deliver(&self, node: NodeId, envelope: Envelope) -> Result<Ticket, Box<RefusedEnvelope>> {
        let why = if node == self.member.node { RefusalReason::OwnNode } else { RefusalReason::UnknownNode };
        Err(Box::new(RefusedEnvelope { node, reason: why, envelope }))
    }

    fn broadcast(&self, envelope: Envelope) -> BroadcastResult {
        drop(envelope);
        BroadcastResult::default()
    }

    fn settle(&self, _from: NodeId, _ticket: Ticket, _result: HandoverResult) -> bool {
        false
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
