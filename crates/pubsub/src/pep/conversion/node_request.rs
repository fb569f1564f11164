//! Requests of conversions at a node of the account.

use std::sync::Arc;

use jid::Jid;
use stanza::{StanzaCondition, StanzaError};
use throng_core::Node;

use crate::node::{NodeCtx, PubSubAnswer};
use crate::node_task::NodeTask;
use crate::request::NodeRequest;
use crate::requester_facts::RequesterFacts;

impl NodeTask {
    /// Answers a request of a conversion, unless a client has changed the node since the conversion has read it.
    pub(crate) fn answer_conversion(
        &mut self,
        node: &Arc<Node>,
        ctx: &mut NodeCtx<'_>,
        (account, facts): (&Jid, &RequesterFacts),
        (mut request, last_item): (NodeRequest, Option<u64>),
    ) -> Result<PubSubAnswer, StanzaError> {
        if let Some(one) = &self.node {
            let is_creation = matches!(request, NodeRequest::Create { .. });
            if !is_creation && one.last_seq() != last_item {
                return Err(StanzaCondition::Conflict.into());
            }
            if let NodeRequest::Retract { ids, .. } = &mut request {
                ids.retain(|id| one.has_item(id));
                if ids.is_empty() {
                    return Ok(PubSubAnswer::Payload(Vec::new()));
                }
            }
        }
        self.answer(node, ctx, (account, facts), request, false)
    }
}
