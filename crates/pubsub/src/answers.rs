//! Answers of a node that need what only the store has: payloads of items, and plain subscribers.

use std::sync::Arc;

use jid::Jid;
use queues::answer_channel::AnswerSender;
use stanza::{StanzaCondition, StanzaError};
use store::{PubSubItem, StoreError, StoreErrorKind, StoredPubSubNode};
use throng_core::Node;
use throng_core::iq::IqAnswer;
use throng_core::server_error::store_error;
use xml::{Ns, Writer};

use crate::node::{ItemsOfChildren, PubSubAnswer, PubSubNode};
use crate::node_config::ItemReply;
use crate::node_task::NodeTask;
use crate::plain_subscriptions::PlainSubscriptions;
use crate::pubsub_shared::PubSubShared;
use crate::service::node_address;

/// Items of one leaf in the answer of its collection.
const ITEMS_OF_CHILD: u32 = 50;
/// Items in an order of their own that are read at once.
const ORDERED_ITEMS: usize = 10;

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
                    false if items.is_ordered => self.read_ordered(node, seqs, bytes).await?,
                    false => node.stores.pubsub.items_within(key, seqs, bytes, items.is_from_end).await?,
                };
                Ok(one.write_items(&items, &found))
            }
            // It is retrieved outside of the task.
            PubSubAnswer::ItemsOfChildren(_) => Ok(Vec::new()),
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

    /// Answers with the items of leaves in this collection, when few other retrievals run: the task goes on meanwhile.
    pub(crate) fn retrieve_of_children(
        &self,
        node: &Arc<Node>,
        request: ItemsOfChildren,
        reply: AnswerSender<IqAnswer>,
    ) {
        let (node, shared, key) = (node.clone(), self.shared.clone(), self.key.clone());
        let spawner = node.spawner.clone();
        let retrieve = async move {
            let Some(_permit) = shared.retrievals.acquire().await else {
                return reply.send(Err(StanzaCondition::ResourceConstraint.into()));
            };
            let answer = read_items_of_children(&node, &shared, &key, request).await;
            reply.send(answer.unwrap_or_else(|error| Err(store_error(error))));
        };
        spawner.spawn("pubsub-collection-items", Box::pin(retrieve));
    }
}

/// The newest items of leaves in a collection (XEP-0248, section 6.2). A leaf that does not name the collection is in none: half an
/// edge gives no right to read it.
async fn read_items_of_children(
    node: &Arc<Node>,
    shared: &PubSubShared,
    collection: &Jid,
    request: ItemsOfChildren,
) -> Result<IqAnswer, StoreError> {
    let mut out = Vec::with_capacity(1024);
    let mut w = Writer::new(&mut out);
    w.start_ns("pubsub", Ns::Pubsub);
    let (store, limits) = (&node.stores.pubsub, shared.options().limits);
    let most = request.max_items.map_or(ITEMS_OF_CHILD, |most| most.min(ITEMS_OF_CHILD));
    let mut bytes = PubSubNode::ITEMS_BYTES;
    for name in request.children {
        let Ok(key) = node_address(collection.as_ref(), &name) else { continue };
        let Some((record, _)) = store.record(key.as_ref(), key.bare()).await? else { continue };
        let Some(config) = PubSubNode::restored_config(&record.config, &limits) else { continue };
        let is_child = config.graph.parents.contains(collection.resource().unwrap_or_default());
        if config.graph.is_collection() || !config.persist_items || !is_child {
            continue;
        }
        // Items that have expired are removed with the next request to the leaf.
        let expired_before =
            config.expiry_millis().map_or(0, |age| node.clock.unix_millis().saturating_sub(age));
        let newest = store.newest_items(key.as_ref(), most).await?;
        let unexpired = newest.iter().filter(|head| head.published >= expired_before);
        let seqs: Vec<u64> = unexpired.map(|head| head.seq).collect();
        if seqs.is_empty() {
            continue;
        }
        let affiliations = match config.item_reply {
            ItemReply::Owner => store.load(key.as_ref()).await?.map(|stored| stored.affiliations),
            _ => None,
        };
        let affiliations = affiliations.unwrap_or_default();
        let (special, items) = (Vec::new(), Vec::new());
        let stored = StoredPubSubNode { number: 0, record, affiliations, special, items };
        let Some(leaf) = PubSubNode::restore(collection.bare().to_jid(), name.clone(), stored, &limits)
        else {
            continue;
        };
        let count = seqs.len();
        let items = store.items_within(key.as_ref(), seqs, bytes, true).await?;
        let size: usize = items.iter().map(|item| item.payload.len()).sum();
        if items.len() < count && size > 0 || size as u64 > bytes {
            // Without pages, a part of the items would look like all.
            let error = StanzaError::new(StanzaCondition::FeatureNotImplemented);
            return Ok(Err(error.text("the items do not fit into one answer; request those of each node")));
        }
        bytes = bytes.saturating_sub(size as u64);
        w.start("items").attr("node", &name);
        items.iter().for_each(|item| leaf.write_item(&mut w, &item.head, &item.payload));
        w.end();
    }
    w.end();
    Ok(Ok(out))
}
