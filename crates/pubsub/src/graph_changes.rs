//! Requests that change edges of the collection graph: what is checked before they wait for the lock of the graph, and what is read
//! for them.

use std::sync::Arc;

use jid::Jid;
use stanza::{StanzaCondition, StanzaError};
use store::StoreError;
use throng_core::Node;

use crate::associated_nodes::{AssociatedNodeReader, AssociatedNodes, RequestedAssociations};
use crate::node::PubSubNode;
use crate::node_task::NodeTask;
use crate::pubsub_shared::{NodeInput, NodeMessage};
use crate::request::NodeRequest;
use crate::requester_facts::{RequesterFacts, requester};
use crate::user_buckets::bucket_of;

/// The requester has changed too many edges, or too many changes wait.
fn rate_limited() -> StanzaError {
    let error = StanzaError::new(StanzaCondition::ResourceConstraint);
    error.text("too many changes of collections; try again later")
}

/// What is known about the nodes that a request associates.
///
/// # Errors
/// `resource-constraint`: the requester has caused too many changes lately.
pub(crate) fn associated_nodes(found: Option<&AssociatedNodes>) -> Result<AssociatedNodes, StanzaError> {
    match found {
        Some(found) if found.is_rate_limited => Err(rate_limited()),
        found => Ok(found.cloned().unwrap_or_default()),
    }
}

impl NodeTask {
    /// Checks a request that changes edges, and lets it wait for the lock of the graph if it must: then it comes again with the
    /// lock. `None`: the request waits, or is answered.
    pub(crate) fn admit_graph_change(
        &mut self,
        node: &Arc<Node>,
        input: NodeInput,
        facts: &RequesterFacts,
    ) -> Option<NodeInput> {
        let (request, from, reply, bytes) = match input {
            NodeInput::Request { request, from, reply, bytes, guard: None } => (request, from, reply, bytes),
            other => return Some(other),
        };
        let requested = self.requested_associations(&request);
        let is_permitted = requested.is_some() && self.may_change_graph(node, (&from, facts), &request);
        let requested = match requested {
            Some(requested) if is_permitted => requested,
            // What is not permitted is refused as any other request, and reads nothing.
            _ => return Some(NodeInput::Request { request, from, reply, bytes, guard: None }),
        };
        let count = requested.count();
        let is_paid =
            node.is_admin(from.bare()) || self.shared.changes_of_others.try_take(node, from.as_ref(), count);
        if !is_paid {
            reply.send(Err(rate_limited()));
            return None;
        }
        if !requested.needs_lock() {
            return Some(NodeInput::Request { request, from, reply, bytes, guard: None });
        }
        let tasks = self.shared.tasks()?;
        let (lock, key) = (self.shared.graph_lock.clone(), self.key.clone());
        let (bucket, node) = (bucket_of(node, from.as_ref()).to_owned(), node.clone());
        let spawner = node.spawner.clone();
        // Not in this task, which must receive what the change before sends it.
        let waits = async move {
            let Some(guard) = lock.acquire(&bucket, bytes).await else {
                return reply.send(Err(rate_limited()));
            };
            let guard = Some(Arc::new(guard));
            let input = NodeInput::Request { request, from, reply, bytes, guard };
            let message = NodeMessage { node: node.clone(), input };
            // With a full mailbox the sender of the answer is dropped, which refuses the request.
            let _ = tasks.try_send(&node.spawner, &key, message, bytes);
        };
        spawner.spawn("pubsub-graph", Box::pin(waits));
        None
    }

    fn requested_associations(&self, request: &NodeRequest) -> Option<RequestedAssociations> {
        self.shared.host.domain_of_collections()?;
        RequestedAssociations::of(request, self.node.as_ref().map(PubSubNode::config))
    }

    /// Whether the requester may change the edges of this node, as far as it is known without other nodes.
    fn may_change_graph(
        &self,
        node: &Arc<Node>,
        (user, facts): (&Jid, &RequesterFacts),
        request: &NodeRequest,
    ) -> bool {
        match (&self.node, request) {
            (None, NodeRequest::Create { .. }) => self.check_creation(node, (user, facts), false).is_ok(),
            (None, _) => false,
            (Some(one), request) => {
                one.may_change_graph(&requester((node, &*self.shared.host), user, facts, false), request)
            }
        }
    }

    /// Reads the nodes that a request associates.
    pub(crate) async fn read_associated_nodes(
        &mut self,
        node: &Arc<Node>,
        input: &NodeInput,
    ) -> Result<(), StoreError> {
        let NodeInput::Request { request, from, guard, .. } = input else { return Ok(()) };
        // Others who dissociate a node must own it.
        let is_foreign = matches!((request, &self.node), (NodeRequest::Dissociate(child), Some(one))
            if one.config().graph.children.contains(child) && !self.is_owned_by(node, from));
        if guard.is_none() && !is_foreign {
            return Ok(());
        }
        let Some(requested) = self.requested_associations(request) else { return Ok(()) };
        let user = (from, node.is_admin(from.bare()));
        let reader = AssociatedNodeReader::new(node, &self.shared, &self.key, user);
        let found = reader.read(&requested).await?;
        self.graph = Some(found);
        Ok(())
    }
}
