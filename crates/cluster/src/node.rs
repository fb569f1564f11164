//! Names of nodes, and members. The invariants are in the documentation of the crate.
//!
//! # Pitfalls
//!
//! [`NodeId`] is the configured name and means the same on every node; it is not an index. Its order decides
//! which of two equal claims wins (the same full address bound on two nodes in the same millisecond).

use std::fmt;

/// The name of a node, as configured (`[cluster] node`): 1 to 24 characters of `a-z`, `0-9`, `-` and `_`, so
/// that it can be a NATS subject token. Plain data, compared and ordered by its text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId([u8; NodeId::MAX]);

impl NodeId {
    /// Maximum length of a name in characters.
    pub const MAX: usize = 24;

    /// `None` if the text is not a valid name.
    pub fn new(name: &str) -> Option<NodeId> {
        let good = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        if name.is_empty() || name.len() > Self::MAX || !name.bytes().all(good) {
            return None;
        }
        let mut padded = [0; Self::MAX];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        Some(NodeId(padded))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(Self::MAX);
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A node that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub node: NodeId,
    /// Epoch of the node: greater after every start, so that sequence numbers can restart.
    pub epoch: u64,
    /// The highest envelope version that it reads; others never send it a higher one (rolling upgrades).
    pub version: u8,
    /// It is about to leave ([`crate::Cluster::begin_drain`]): it owns nothing while another member can.
    pub drains: bool,
}
