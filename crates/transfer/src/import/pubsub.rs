//! Writes PubSub nodes: those of services that the server has, and those of accounts that this import has created.

use std::collections::HashSet;
use std::mem::take;

use jid::Jid;
use store::{PubSubChange, PubSubItem, PubSubItemHead};

use super::data::DataOwner;
use super::{ImportError, ImportRun, count_domain};
use crate::{PubSubNodeName, PubSubRecord, SourcePubSubItem, SourcePubSubNode, SourcePubSubState};

/// Changes of one node, and bytes of their payloads, that are written together.
const MAX_CHANGES: usize = 200;
const MAX_BYTES: usize = 1 << 20;

/// Changes of the last node that are not written.
#[derive(Default)]
pub(super) struct PendingPubSub {
    node: Option<Jid>,
    changes: Vec<PubSubChange>,
    bytes: usize,
    /// Nodes that are not imported, whose other parts follow.
    skipped: HashSet<Jid>,
}

impl ImportRun<'_> {
    pub(super) async fn write_pubsub(&mut self, record: PubSubRecord) -> Result<(), ImportError> {
        let PubSubNodeName { service, node } = record.name().clone();
        let Ok(key) = service.with_resource(&node) else {
            if matches!(record, PubSubRecord::Node(_)) {
                self.skip(service.as_str(), "a PubSub node: its name is not valid");
            }
            return Ok(());
        };
        if !self.takes_nodes_of(&service).await? {
            if matches!(record, PubSubRecord::Node(_)) && service.local().is_none() {
                count_domain(&mut self.foreign_services, service.domain());
            }
            return Ok(());
        }
        match record {
            PubSubRecord::Node(node) => self.write_node(key, &node).await,
            _ if self.pubsub.skipped.contains(&key) => Ok(()),
            PubSubRecord::State(state) => self.write_state(key, &state).await,
            PubSubRecord::Item(item) => self.write_item(key, item).await,
        }
    }

    /// Whether nodes at this address are imported.
    async fn takes_nodes_of(&mut self, service: &Jid) -> Result<bool, ImportError> {
        if service.local().is_none() {
            return Ok(self.options.pubsub_services.iter().any(|one| one == service.domain()));
        }
        if self.domain(service).is_none() {
            return Ok(false);
        }
        if !self.owners.contains_key(service) {
            self.find_owners(vec![service]).await?;
        }
        Ok(matches!(self.owners.get(service), Some(DataOwner::Imported(_))))
    }

    async fn write_node(&mut self, key: Jid, node: &SourcePubSubNode) -> Result<(), ImportError> {
        self.flush_pubsub().await?;
        let place = format!("the PubSub node {key}");
        let (changes, dropped) = match (self.options.formats.pubsub_node)(node, self.options.now) {
            Ok(found) => found,
            Err(reason) => {
                self.skip(place, reason);
                self.pubsub.skipped.insert(key);
                return Ok(());
            }
        };
        if !dropped.is_empty() {
            self.skip(place.clone(), format!("options without a place here: {}", dropped.join(", ")));
        }
        if self.stores.pubsub.number(key.as_ref()).await?.is_some() {
            let created_by_import = self.resumed && {
                let found = self.stores.pubsub.load(key.as_ref()).await?;
                let is_same = |change: &PubSubChange, config: &[u8]| match change {
                    PubSubChange::Put(record) => record.config == config,
                    _ => false,
                };
                found.is_some_and(|found| changes.iter().any(|one| is_same(one, &found.record.config)))
            };
            if !created_by_import {
                self.skip(place, "a node with this name exists");
                self.pubsub.skipped.insert(key);
                return Ok(());
            }
        } else if !self.options.dry_run {
            self.stores.pubsub.apply(key.as_ref(), changes).await?;
        }
        self.counts.pubsub_nodes += 1;
        Ok(())
    }

    async fn write_state(&mut self, key: Jid, state: &SourcePubSubState) -> Result<(), ImportError> {
        let is_local = state.jid.local().is_some() && self.domain(&state.jid).is_some();
        match (self.options.formats.pubsub_state)(state, is_local) {
            Ok(changes) => {
                self.counts.pubsub_subscriptions += state.subscriptions.len() as u64;
                for change in changes {
                    self.push_pubsub(&key, change, 0).await?;
                }
            }
            Err(reason) => self.skip(format!("the PubSub node {key}"), format!("{}: {reason}", state.jid)),
        }
        Ok(())
    }

    async fn write_item(&mut self, key: Jid, item: SourcePubSubItem) -> Result<(), ImportError> {
        const MAX_ID_BYTES: usize = 1023;
        if item.id.is_empty() || item.id.len() > MAX_ID_BYTES || !item.id.chars().all(xml::is_char) {
            self.skip(format!("the PubSub node {key}"), "an item: its id is not valid");
            return Ok(());
        }
        let head = PubSubItemHead {
            seq: item.seq,
            first_seq: item.seq,
            id: item.id.into(),
            publisher: item.publisher.unwrap_or_else(|| key.bare().to_jid()).bare().to_jid(),
            published: item.published.unwrap_or(self.options.now).min(self.options.now),
        };
        self.counts.pubsub_items += 1;
        let bytes = item.payload.len();
        let item = PubSubItem { head, payload: item.payload };
        self.push_pubsub(&key, PubSubChange::PutItem(item), bytes).await
    }

    async fn push_pubsub(
        &mut self,
        key: &Jid,
        change: PubSubChange,
        bytes: usize,
    ) -> Result<(), ImportError> {
        let pending = &self.pubsub;
        let is_full = pending.changes.len() >= MAX_CHANGES || pending.bytes >= MAX_BYTES;
        if is_full || pending.node.as_ref() != Some(key) {
            self.flush_pubsub().await?;
            self.pubsub.node = Some(key.clone());
        }
        self.pubsub.changes.push(change);
        self.pubsub.bytes += bytes;
        Ok(())
    }

    /// Writes what is not written. Done before each checkpoint.
    pub(super) async fn flush_pubsub(&mut self) -> Result<(), ImportError> {
        let (node, changes) = (self.pubsub.node.take(), take(&mut self.pubsub.changes));
        self.pubsub.bytes = 0;
        if let Some(node) = node.filter(|_| !changes.is_empty() && !self.options.dry_run) {
            self.stores.pubsub.apply(node.as_ref(), changes).await?;
        }
        Ok(())
    }
}
