//! Writes PubSub nodes: those of services that the server has, and those of accounts that this import has created.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::take;

use jid::Jid;
use store::{PubSubChange, PubSubItem, PubSubItemHead};

use super::data::DataOwner;
use super::{ImportError, ImportRun, LocatedPubSubState, count_domain};
use crate::{PubSubNodeAddress, PubSubRecord, SourcePubSubItem, SourcePubSubNode, SourcePubSubState};

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
        let PubSubNodeAddress { service, name } = record.node().clone();
        let Ok(key) = service.with_resource(&name) else {
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
            PubSubRecord::Node(node) => self.write_node(key, node).await,
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

    /// Whether an address is of this server and has no account: a user who registers it later would have what it had. An account
    /// provider decides for itself which accounts there are.
    async fn lacks_account(&mut self, jid: &Jid) -> Result<bool, ImportError> {
        let domain = self.domain(jid).filter(|domain| domain.external_credentials.is_none());
        if jid.local().is_none() || domain.is_none() {
            return Ok(false);
        }
        let user = jid.bare().to_jid();
        if !self.owners.contains_key(&user) {
            self.find_owners(vec![&user]).await?;
        }
        Ok(matches!(self.owners.get(&user), Some(DataOwner::Missing)))
    }

    async fn write_node(&mut self, key: Jid, mut node: SourcePubSubNode) -> Result<(), ImportError> {
        self.flush_pubsub().await?;
        let place = format!("the PubSub node {key}");
        for owner in take(&mut node.owners) {
            match self.lacks_account(&owner).await? {
                true => self.skip(place.clone(), format!("its owner {owner}: there is no such account")),
                false => node.owners.push(owner),
            }
        }
        if node.owners.is_empty() && key.local().is_none() {
            // Administrators own it then.
            node.owners.push(key.bare().to_jid());
        }
        let node = &node;
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
        let place = format!("the PubSub node {key}");
        if self.lacks_account(&state.jid).await? {
            self.skip(place, format!("{}: there is no such account", state.jid));
            return Ok(());
        }
        let is_account = state.jid.local().is_some() && self.domain(&state.jid).is_some();
        match (self.options.formats.pubsub_state)(LocatedPubSubState { state, is_account }) {
            Ok(found) => {
                let omitted = state.subscriptions.len().saturating_sub(found.subscriptions);
                if omitted > 0 {
                    let reason = format!("{}: {omitted} subscriptions above the limit", state.jid);
                    self.skip(place.clone(), reason);
                }
                if !found.dropped.is_empty() {
                    let options = found.dropped.join(", ");
                    self.skip(place, format!("{}: options without a place here: {options}", state.jid));
                }
                self.counts.pubsub_subscriptions += found.subscriptions as u64;
                for change in found.changes {
                    self.push_pubsub(&key, change, 0).await?;
                }
            }
            Err(reason) => self.skip(place, format!("{}: {reason}", state.jid)),
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
        let (node, mut changes) = (self.pubsub.node.take(), take(&mut self.pubsub.changes));
        self.pubsub.bytes = 0;
        if let Some(node) = node.filter(|_| !changes.is_empty() && !self.options.dry_run) {
            self.number_items(&node, &mut changes).await?;
            self.stores.pubsub.apply(node.as_ref(), changes).await?;
        }
        Ok(())
    }

    /// Gives items a free number if another item of the node has theirs.
    async fn number_items(&self, node: &Jid, changes: &mut [PubSubChange]) -> Result<(), ImportError> {
        let heads = changes.iter_mut().filter_map(|change| match change {
            PubSubChange::PutItem(item) => Some(&mut item.head),
            _ => None,
        });
        let mut heads: Vec<&mut PubSubItemHead> = heads.collect();
        let mut stored: BTreeMap<u64, Box<str>> = BTreeMap::new();
        let mut asked: BTreeSet<u64> = BTreeSet::new();
        loop {
            let mut used: BTreeMap<u64, Box<str>> = stored.clone();
            for head in &mut heads {
                while used.get(&head.seq).is_some_and(|id| *id != head.id) {
                    head.seq += 1;
                }
                head.first_seq = head.seq;
                used.insert(head.seq, head.id.clone());
            }
            let unknown: Vec<u64> =
                heads.iter().map(|head| head.seq).filter(|seq| asked.insert(*seq)).collect();
            if unknown.is_empty() {
                return Ok(());
            }
            let found = self.stores.pubsub.items(node.as_ref(), unknown).await?;
            stored.extend(found.into_iter().map(|item| (item.head.seq, item.head.id)));
        }
    }
}
