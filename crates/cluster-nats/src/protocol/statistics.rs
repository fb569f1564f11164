//! Counters of a node in the cluster, for metrics.

/// What happened since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Envelopes accepted for other nodes.
    pub envelopes_sent: u64,
    /// Envelopes handed to the inbox.
    pub envelopes_received: u64,
    /// Envelopes that returned because their node was gone.
    pub undelivered: u64,
    /// Messages given to NATS, each with many envelopes.
    pub frames_sent: u64,
    /// Messages of members.
    pub frames_received: u64,
    /// Messages that belong to no link: of earlier starts and partitions, or of nobody.
    pub ignored_frames: u64,
    /// Messages without the code of the deployment's key.
    pub forged_frames: u64,
    /// Items of kinds that this version does not know.
    pub skipped_items: u64,
    /// Own claims that were announced, changed or released.
    pub claim_changes: u64,
    /// Digests of another node's claims that differed from what was known of them.
    pub digest_mismatches: u64,
    /// Snapshots that another node asked for.
    pub snapshots_repeated: u64,
    /// Nodes from which nothing was received for ten seconds.
    pub lost_nodes: u64,
    /// Records of nodes that this one cannot talk to: another version, or one node too many.
    pub unreadable_nodes: u64,
}
