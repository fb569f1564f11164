//! Answers of a node that need what only the store has: payloads of items, and plain subscribers.

use std::sync::Arc;

use stanza::StanzaError;
use store::{StoreError, StoreErrorKind};
use throng_core::Node;

use crate::node::{PubSubAnswer, PubSubNode};
use crate::node_task::NodeTask;
use crate::plain_subscriptions::PlainSubscriptions;

/// Whether an answer needs what only the store has.
pub(crate) fn needs_store(result: &Result<PubSubAnswer, StanzaError>) -> bool {
    matches!(result, Ok(PubSubAnswer::Items(_) | PubSubAnswer::Subscribers(_) | PubSubAnswer::Info(_)))
}

impl NodeTask {
    /// The payload of an answer.
    pub(crate) async fn read_answer(
        &self,
        node: &Arc<Node>,
        answer: PubSubAnswer,
    ) -> Result<Vec<u8>, StoreError> {
        let Some(one) = &self.node else { return Ok(Vec::new()) };
        let plain = PlainSubscriptions(&node.stores);
        let key = self.key.as_ref();
        match answer {
            PubSubAnswer::Payload(payload) => Ok(payload),
            PubSubAnswer::Items(items) => {
                let (seqs, bytes) = (items.seqs.clone(), PubSubNode::ITEMS_BYTES);
                let found = match seqs.is_empty() {
                    true => Vec::new(),
                    false => node.stores.pubsub.items_within(key, seqs, bytes, items.is_from_end).await?,
                };
                Ok(one.write_items(&items, &found))
            }
            PubSubAnswer::Subscribers(list) => {
                let found = match list.limit {
                    0 => Vec::new(),
                    limit => plain.subscribers(key, list.after.clone(), limit).await?,
                };
                // XEP-0059, section 2.2: the page after a subscriber that has gone would end the list early.
                if let Some(after) = list.after.as_ref().filter(|_| list.limit > 0 && found.is_empty())
                    && !plain.contains(key, after.as_ref()).await?
                {
                    return Err(StoreError::new(StoreErrorKind::NotFound, "the subscriber has gone"));
                }
                let count = plain.count(key).await?;
                Ok(one.write_subscribers(&list, &found, count))
            }
            PubSubAnswer::Info(info) => {
                let count = plain.count(key).await?;
                Ok(one.write_info(info, count))
            }
        }
    }
}
