//! Locations of addresses: the nodes with sessions of an address, oldest claim first.

use crate::{Claim, NodeId};

/// A node with sessions of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeClaim {
    /// The node.
    pub node: NodeId,
    /// Its claim.
    pub claim: Claim,
}

/// Location of an address, as far as this node knows. A hint: it may be outdated or a hash collision, and costs
/// at most a hop (a node without the address refuses the stanza, which returns to its sender's node).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressLocation {
    /// On no node.
    Nowhere,
    /// On this node only.
    Here,
    /// On one other node only.
    Node(NodeClaim),
    /// On several nodes, the oldest claim first; this node may be one of them. Claims of the same millisecond are in
    /// the order of the names.
    Many(Box<[NodeClaim]>),
}

impl AddressLocation {
    /// The location with these claims, seen from the node `own`. A node with several claims counts once.
    pub fn of(own: NodeId, mut claims: Vec<NodeClaim>) -> AddressLocation {
        claims.sort_by_key(|at| at.node);
        claims.dedup_by(|next, first| {
            let same = next.node == first.node;
            if same {
                first.claim.since = first.claim.since.min(next.claim.since);
                first.claim.takes_messages |= next.claim.takes_messages;
                first.claim.number = first.claim.number.filter(|number| next.claim.number == Some(*number));
            }
            same
        });
        // Stable: nodes of the same time stay in the order of their names.
        claims.sort_by_key(|at| at.claim.since);
        match claims[..] {
            [] => AddressLocation::Nowhere,
            [one] if one.node == own => AddressLocation::Here,
            [one] => AddressLocation::Node(one),
            _ => AddressLocation::Many(claims.into()),
        }
    }

    /// The home of the address: the node with the oldest claim.
    pub fn home(&self, own: NodeId) -> Option<NodeId> {
        match self {
            AddressLocation::Nowhere => None,
            AddressLocation::Here => Some(own),
            AddressLocation::Node(one) => Some(one.node),
            AddressLocation::Many(nodes) => nodes.first().map(|at| at.node),
        }
    }

    /// Whether `node` is part of it, seen from `own`.
    pub fn contains(&self, own: NodeId, node: NodeId) -> bool {
        match self {
            AddressLocation::Here => node == own,
            _ => self.claims().iter().any(|at| at.node == node),
        }
    }

    /// The nodes of it except `own`, the oldest claim first.
    pub fn other_nodes(&self, own: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.claims().iter().map(|at| at.node).filter(move |node| *node != own)
    }

    /// The claims of it, the oldest first. Empty for [`AddressLocation::Here`]: this node knows its sessions.
    pub fn claims(&self) -> &[NodeClaim] {
        match self {
            AddressLocation::Nowhere | AddressLocation::Here => &[],
            AddressLocation::Node(one) => std::slice::from_ref(one),
            AddressLocation::Many(nodes) => nodes,
        }
    }
}
