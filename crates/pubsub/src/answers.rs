//! Answers of a node that need what only the store has: payloads of items, and plain subscribers.

use std::sync::Arc;

use stanza::StanzaError;
use store::{PubSubItem, StoreError, StoreErrorKind};
use throng_core::Node;
use xml::{Ns, Writer};

use crate::node::{PubSubAnswer, PubSubNode};
use crate::node_task::NodeTask;
use crate::plain_subscriptions::PlainSubscriptions;
use crate::service::node_address;

/// Items of one leaf in the answer of its collection.
const ITEMS_OF_CHILD: usize = 50;
/// Items in an order of their own that are read at once.
const ORDERED_ITEMS: usize = 10;

/// Whether an answer needs what only the store has.
pub(crate) fn needs_store(result: &Result<PubSubAnswer, StanzaError>) -> bool {
    matches!(
        result,
        Ok(PubSubAnswer::Items(_)
            | PubSubAnswer::ItemsOfChildren(_)
            | PubSubAnswer::Subscribers(_)
            | PubSubAnswer::Info(_))
    )
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
                    false if items.is_ordered => self.read_ordered(node, seqs, bytes).await?,
                    false => node.stores.pubsub.items_within(key, seqs, bytes, items.is_from_end).await?,
                };
                Ok(one.write_items(&items, &found))
            }
            PubSubAnswer::ItemsOfChildren(children) => self.read_items_of(node, children).await,
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

    /// Items in the order of their numbers here, as many as have at most this number of bytes, and at least one.
    async fn read_ordered(
        &self,
        node: &Arc<Node>,
        seqs: Vec<u64>,
        bytes: u64,
    ) -> Result<Vec<PubSubItem>, StoreError> {
        let (mut found, mut total) = (Vec::with_capacity(seqs.len()), 0_u64);
        for part in seqs.chunks(ORDERED_ITEMS) {
            let mut items = node.stores.pubsub.items(self.key.as_ref(), part.to_vec()).await?;
            items.sort_by_key(|item| part.iter().position(|seq| *seq == item.head.seq));
            for item in items {
                total = total.saturating_add(item.payload.len() as u64);
                if total > bytes && !found.is_empty() {
                    return Ok(found);
                }
                found.push(item);
            }
        }
        Ok(found)
    }

    /// The newest items of leaves in a collection (XEP-0248, section 6.2), as many as fit into an answer.
    async fn read_items_of(&self, node: &Arc<Node>, children: Vec<String>) -> Result<Vec<u8>, StoreError> {
        let mut out = Vec::with_capacity(1024);
        let mut w = Writer::new(&mut out);
        w.start_ns("pubsub", Ns::Pubsub);
        let (limits, mut bytes) = (self.shared.options().limits, PubSubNode::ITEMS_BYTES);
        for name in children {
            let Ok(key) = node_address(self.key.as_ref(), &name) else { continue };
            let Some(stored) = node.stores.pubsub.load(key.as_ref()).await? else { continue };
            let newest = stored.items.iter().rev().take(ITEMS_OF_CHILD).map(|head| head.seq);
            let mut seqs: Vec<u64> = newest.collect();
            seqs.reverse();
            let leaf = PubSubNode::restore(self.key.bare().to_jid(), name.clone(), stored, &limits);
            let Some(leaf) = leaf.filter(|leaf| leaf.shows_items() && !seqs.is_empty() && bytes > 0) else {
                continue;
            };
            let items = node.stores.pubsub.items_within(key.as_ref(), seqs, bytes, true).await?;
            let size: usize = items.iter().map(|item| item.payload.len()).sum();
            bytes = bytes.saturating_sub(size as u64);
            w.start("items").attr("node", &name);
            items.iter().for_each(|item| leaf.write_item(&mut w, &item.head, &item.payload));
            w.end();
        }
        w.end();
        Ok(out)
    }
}
