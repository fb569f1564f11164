//! Measurements of each node: version, load, memory, queues.
//!
//! What only the process knows comes from [`NodeProcess`], which the program provides.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use throng_core::Node;

use super::{ClusterAnswers, NodeQuery, NodeSelection, collect_answers};
use crate::log_buffer::LogBuffer;

/// The process around a node.
pub trait NodeProcess: Send + Sync {
    /// Its measurements.
    fn summary(&self) -> ProcessSummary;
    /// The last lines of its log.
    fn log(&self) -> Arc<LogBuffer>;
    /// The overview of its API after this second, compressed; `None` if it cannot be written.
    fn overview(&self, since: Option<u64>) -> Option<Vec<u8>>;
}

/// The extension of a node that provides its process.
struct ProcessOfNode(Arc<dyn NodeProcess>);

/// Provides the process of a node.
pub fn provide_process(node: &Node, process: Arc<dyn NodeProcess>) {
    node.extensions.insert(ProcessOfNode(process));
}

pub(super) fn process_of(node: &Node) -> Option<Arc<dyn NodeProcess>> {
    node.extensions.get::<ProcessOfNode>().map(|provided| provided.0.clone())
}

/// Measurements of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessSummary {
    /// Whether it accepts clients.
    pub ready: bool,
    /// Start time in seconds since 1970.
    pub started: u64,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// CPU load in the last seconds, of one processor.
    pub cpu_percent: Option<f64>,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// Connections without a session.
    pub unauthenticated_connections: u64,
    /// Storage operations that run or wait.
    pub store_in_flight: u64,
}

/// Measurements of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSummary {
    /// Version of its program.
    pub version: String,
    /// Seconds since its start.
    pub up_seconds: u64,
    /// Users with a session on it.
    pub accounts_online: u64,
    /// Its sessions.
    pub sessions: u64,
    /// Its streams, with and without a session.
    pub connections: u64,
    /// Bytes queued for its clients: control, messages, presence.
    pub queued_bytes: [u64; 3],
    /// Times that the queue of a session was full, since the start.
    pub queue_full: u64,
    /// Stanzas dropped since the start.
    pub stanzas_dropped: u64,
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessSummary,
}

/// The measurements of nodes.
pub async fn summaries(node: &Arc<Node>, nodes: NodeSelection) -> ClusterAnswers<NodeSummary> {
    collect_answers(node, nodes, &NodeQuery::Summary).await
}

pub(super) fn summary_here(node: &Node) -> NodeSummary {
    NodeSummary {
        version: node.version.to_owned(),
        up_seconds: node.seconds().into(),
        accounts_online: node.routing_table.accounts() as u64,
        sessions: node.routing_table.sessions() as u64,
        connections: node.outboxes.len() as u64,
        queued_bytes: node.outboxes.measured_bytes(),
        queue_full: node.metrics.session_queue_full.sum(),
        stanzas_dropped: node.metrics.stanzas_dropped.sum(),
        process: process_of(node).map(|process| process.summary()).unwrap_or_default(),
    }
}
