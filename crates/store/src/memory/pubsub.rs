//! PubSub nodes, in memory.

use std::collections::{BTreeMap, BTreeSet};

use jid::{Jid, JidRef};

use super::{MemoryStore, ready};
use crate::pubsub::{
    EntitySubscription, ListedPubSubNode, MAX_NODE_COUNT, PubSubChange, PubSubItem, PubSubItemHead,
    PubSubNodeOfService, PubSubNodeRecord, SpecialSubscription, StoredPubSubNode, items_that_fit,
};
use crate::{AddressId, PubSub, StoreFuture, SubscriptionSide};

/// A node with everything that it has.
pub(super) struct PubSubEntry {
    number: u32,
    record: PubSubNodeRecord,
    affiliations: BTreeMap<Jid, u8>,
    special: BTreeMap<(Jid, Box<str>), Vec<u8>>,
    items: BTreeMap<u64, PubSubItem>,
}

/// The nodes by address.
#[derive(Default)]
pub(super) struct PubSubEntries {
    nodes: BTreeMap<Jid, PubSubEntry>,
    last_number: u32,
}

impl PubSubEntries {
    fn number(&self, node: JidRef<'_>) -> Option<u32> {
        self.nodes.get(node.as_str()).map(|entry| entry.number)
    }
}

impl PubSubEntry {
    fn new(number: u32, record: PubSubNodeRecord) -> PubSubEntry {
        PubSubEntry {
            number,
            record,
            affiliations: BTreeMap::new(),
            special: BTreeMap::new(),
            items: BTreeMap::new(),
        }
    }

    fn apply(&mut self, change: PubSubChange) {
        match change {
            PubSubChange::Put(record) => self.record = record,
            PubSubChange::Remove | PubSubChange::Subscribe(_) | PubSubChange::Unsubscribe(_) => {}
            PubSubChange::Affiliate(jid, Some(affiliation)) => {
                self.affiliations.insert(jid.bare().to_jid(), affiliation);
            }
            PubSubChange::Affiliate(jid, None) => {
                self.affiliations.remove(&jid.bare().to_jid());
            }
            PubSubChange::PutSpecial(one) => {
                self.special.insert((one.jid, one.subid), one.state);
            }
            PubSubChange::RemoveSpecial(jid, subid) => {
                self.special.remove(&(jid, subid));
            }
            PubSubChange::PutItem(item) => {
                self.items.retain(|_, one| one.head.id != item.head.id);
                self.items.insert(item.head.seq, item);
            }
            PubSubChange::RemoveItem(id) => self.items.retain(|_, one| one.head.id != id),
            PubSubChange::RemoveItems => self.items.clear(),
        }
    }

    fn special_of(&self, entity: JidRef<'_>) -> impl Iterator<Item = SpecialSubscription> {
        let entity = entity.bare();
        let of_entity = self.special.iter().filter(move |((jid, _), _)| jid.bare() == entity);
        of_entity.map(|((jid, subid), state)| SpecialSubscription {
            jid: jid.clone(),
            subid: subid.clone(),
            state: state.clone(),
        })
    }
}

impl MemoryStore {
    /// What `choose` makes of the nodes of a service after one of them.
    fn pubsub_page<T>(
        &self,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
        choose: impl Fn(&Jid, &PubSubEntry) -> Option<T>,
    ) -> Vec<T> {
        let state = self.state.lock();
        if after.as_ref().is_some_and(|after| !state.pubsub.nodes.contains_key(after)) {
            return Vec::new();
        }
        let of_service = state.pubsub.nodes.iter().filter(|(jid, _)| {
            jid.bare() == service.bare() && after.as_ref().is_none_or(|after| *jid > after)
        });
        of_service.filter_map(|(jid, entry)| choose(jid, entry)).take(limit as usize).collect()
    }
}

fn listed(jid: &Jid, entry: &PubSubEntry) -> ListedPubSubNode {
    ListedPubSubNode { jid: jid.clone(), title: entry.record.title.clone() }
}

impl PubSub for MemoryStore {
    fn load(&self, node: JidRef<'_>) -> StoreFuture<'_, Option<StoredPubSubNode>> {
        let state = self.state.lock();
        let entry = state.pubsub.nodes.get(node.as_str());
        ready(Ok(entry.map(|entry| StoredPubSubNode {
            number: entry.number,
            record: entry.record.clone(),
            affiliations: entry.affiliations.iter().map(|(jid, number)| (jid.clone(), *number)).collect(),
            special: entry
                .special
                .iter()
                .map(|((jid, subid), state)| SpecialSubscription {
                    jid: jid.clone(),
                    subid: subid.clone(),
                    state: state.clone(),
                })
                .collect(),
            items: entry.items.values().map(|item| item.head.clone()).collect(),
        })))
    }

    fn record(
        &self,
        node: JidRef<'_>,
        entity: JidRef<'_>,
    ) -> StoreFuture<'_, Option<(PubSubNodeRecord, Option<u8>)>> {
        let state = self.state.lock();
        let entry = state.pubsub.nodes.get(node.as_str());
        let found = entry
            .map(|entry| (entry.record.clone(), entry.affiliations.get(entity.bare().as_str()).copied()));
        ready(Ok(found))
    }

    fn newest_items(&self, node: JidRef<'_>, limit: u32) -> StoreFuture<'_, Vec<PubSubItemHead>> {
        let state = self.state.lock();
        let items = state.pubsub.nodes.get(node.as_str()).map(|entry| &entry.items);
        let newest = items.into_iter().flat_map(|items| items.values().rev()).take(limit as usize);
        let mut newest: Vec<PubSubItemHead> = newest.map(|item| item.head.clone()).collect();
        newest.reverse();
        ready(Ok(newest))
    }

    fn apply(&self, node: JidRef<'_>, changes: Vec<PubSubChange>) -> StoreFuture<'_, ()> {
        let mut state = self.state.lock();
        for change in changes {
            match change {
                PubSubChange::Remove => {
                    if let Some(entry) = state.pubsub.nodes.remove(node.as_str()) {
                        state.subscriptions.remove_set(SubscriptionSide::Subscribers, entry.number);
                    }
                }
                PubSubChange::Subscribe(user) => {
                    let Some(number) = state.pubsub.number(node) else { continue };
                    match state.intern(user.as_ref()) {
                        Ok(id) => state.subscriptions.add(number, id.get()),
                        Err(error) => return ready(Err(error)),
                    };
                }
                PubSubChange::Unsubscribe(user) => {
                    let number = state.pubsub.number(node);
                    if let Some((number, id)) = number.zip(state.find_id(user.as_ref())) {
                        state.subscriptions.remove(number, id.get());
                    }
                }
                PubSubChange::Put(record) if !state.pubsub.nodes.contains_key(node.as_str()) => {
                    if let Err(error) = state.intern(node.bare()) {
                        return ready(Err(error));
                    }
                    state.pubsub.last_number += 1;
                    let entry = PubSubEntry::new(state.pubsub.last_number, record);
                    state.pubsub.nodes.insert(node.to_jid(), entry);
                }
                change => {
                    if let Some(entry) = state.pubsub.nodes.get_mut(node.as_str()) {
                        entry.apply(change);
                    }
                }
            }
        }
        ready(Ok(()))
    }

    fn items(&self, node: JidRef<'_>, seqs: Vec<u64>) -> StoreFuture<'_, Vec<PubSubItem>> {
        let state = self.state.lock();
        let mut items: Vec<PubSubItem> = state
            .pubsub
            .nodes
            .get(node.as_str())
            .map(|entry| seqs.iter().filter_map(|seq| entry.items.get(seq)).cloned().collect())
            .unwrap_or_default();
        items.sort_unstable_by_key(|item| item.head.seq);
        items.dedup();
        ready(Ok(items))
    }

    fn items_within(
        &self,
        node: JidRef<'_>,
        seqs: Vec<u64>,
        bytes: u64,
        from_end: bool,
    ) -> StoreFuture<'_, Vec<PubSubItem>> {
        let all = self.items(node, seqs);
        Box::pin(async move {
            let mut all = all.await?;
            let sizes: Vec<u64> = all.iter().map(|item| item.payload.len() as u64).collect();
            let range = items_that_fit(&sizes, bytes, from_end);
            Ok(all.drain(range).collect())
        })
    }

    fn of_services(&self, services: Vec<AddressId>) -> StoreFuture<'_, Vec<(AddressId, Jid)>> {
        let state = self.state.lock();
        let wanted: BTreeSet<AddressId> = services.into_iter().collect();
        let of_service = |node: &Jid| {
            let service = state.find_id(node.as_ref().bare()).filter(|id| wanted.contains(id))?;
            Some((service, node.clone()))
        };
        ready(Ok(state.pubsub.nodes.keys().filter_map(of_service).collect()))
    }

    fn number(&self, node: JidRef<'_>) -> StoreFuture<'_, Option<u32>> {
        ready(Ok(self.state.lock().pubsub.number(node)))
    }

    fn resolve(&self, numbers: Vec<u32>) -> StoreFuture<'_, Vec<(u32, Jid)>> {
        let state = self.state.lock();
        let wanted: BTreeSet<u32> = numbers.into_iter().collect();
        let found = state.pubsub.nodes.iter().filter(|(_, entry)| wanted.contains(&entry.number));
        ready(Ok(found.map(|(node, entry)| (entry.number, node.clone())).collect()))
    }

    fn list(
        &self,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ListedPubSubNode>> {
        ready(Ok(self.pubsub_page(service, after, limit, |jid, entry| {
            entry.record.is_listed.then(|| listed(jid, entry))
        })))
    }

    fn list_all(
        &self,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ListedPubSubNode>> {
        ready(Ok(self.pubsub_page(service, after, limit, |jid, entry| Some(listed(jid, entry)))))
    }

    fn records(
        &self,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<PubSubNodeOfService>> {
        ready(Ok(self.pubsub_page(service, after, limit, |jid, entry| {
            Some(PubSubNodeOfService { jid: jid.clone(), record: entry.record.clone() })
        })))
    }

    fn count(&self, service: JidRef<'_>) -> StoreFuture<'_, u64> {
        let state = self.state.lock();
        let is_listed =
            |(jid, entry): &(&Jid, &PubSubEntry)| entry.record.is_listed && jid.bare() == service.bare();
        ready(Ok((state.pubsub.nodes.iter().filter(is_listed).count() as u64).min(MAX_NODE_COUNT)))
    }

    fn count_created(&self, creator: JidRef<'_>, most: u32) -> StoreFuture<'_, u64> {
        let state = self.state.lock();
        let of_creator = |entry: &&PubSubEntry| entry.record.creator.as_ref() == creator.bare();
        ready(Ok((state.pubsub.nodes.values().filter(of_creator).count() as u64).min(most.into())))
    }

    fn affiliations_of(
        &self,
        entity: JidRef<'_>,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(Jid, u8)>> {
        let entity = entity.bare();
        ready(Ok(self.pubsub_page(service, after, limit, |jid, entry| {
            entry.affiliations.get(entity.as_str()).map(|affiliation| (jid.clone(), *affiliation))
        })))
    }

    fn nodes_of_entity(
        &self,
        entity: JidRef<'_>,
        after: u32,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(u32, Jid)>> {
        let state = self.state.lock();
        let entity = entity.bare();
        let id = state.find_id(entity).map_or(0, AddressId::get);
        let has = |entry: &PubSubEntry| {
            entry.affiliations.contains_key(entity.as_str())
                || entry.special_of(entity).next().is_some()
                || state.subscriptions.contains(entry.number, id)
        };
        let found = state.pubsub.nodes.iter().filter(|(_, entry)| entry.number > after && has(entry));
        let mut found: Vec<(u32, Jid)> = found.map(|(node, entry)| (entry.number, node.clone())).collect();
        found.sort_unstable();
        found.truncate(limit as usize);
        ready(Ok(found))
    }

    fn is_subscribed(&self, node: JidRef<'_>, subscriber: JidRef<'_>) -> StoreFuture<'_, bool> {
        let state = self.state.lock();
        let pair = state.pubsub.number(node).zip(state.find_id(subscriber));
        ready(Ok(pair.is_some_and(|(number, id)| state.subscriptions.contains(number, id.get()))))
    }

    fn subscribers(&self, node: JidRef<'_>, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<Jid>> {
        let state = self.state.lock();
        let Some(number) = state.pubsub.number(node) else { return ready(Ok(Vec::new())) };
        let mut last = None;
        if let Some(after) = after {
            last = state.find_id(after.as_ref()).map(AddressId::get);
            if !last.is_some_and(|last| state.subscriptions.contains(number, last)) {
                return ready(Ok(Vec::new()));
            }
        }
        let members = state.subscriptions.after(SubscriptionSide::Subscribers, number, last);
        let addresses = members.filter_map(AddressId::new).filter_map(|id| state.address(id).cloned());
        ready(Ok(addresses.take(limit as usize).collect()))
    }

    fn count_subscribers(&self, node: JidRef<'_>) -> StoreFuture<'_, u64> {
        let state = self.state.lock();
        let of_node = |number| state.subscriptions.count(SubscriptionSide::Subscribers, number);
        ready(Ok(state.pubsub.number(node).map_or(0, of_node)))
    }

    fn subscriptions_of(
        &self,
        entity: JidRef<'_>,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<EntitySubscription>> {
        let entity = entity.bare();
        let nodes: BTreeSet<u32> = {
            let state = self.state.lock();
            let id = state.find_id(entity).map_or(0, AddressId::get);
            state.subscriptions.after(SubscriptionSide::Nodes, id, None).collect()
        };
        let pages = self.pubsub_page(service, after, limit, |node, entry| {
            let plain = nodes.contains(&entry.number).then_some(None);
            let all: Vec<EntitySubscription> = plain
                .into_iter()
                .chain(entry.special_of(entity).map(Some))
                .map(|special| EntitySubscription { node: node.clone(), special })
                .collect();
            Some(all).filter(|all| !all.is_empty())
        });
        ready(Ok(pages.concat()))
    }

    fn count_subscriptions(&self, entity: JidRef<'_>, most: u32) -> StoreFuture<'_, u64> {
        let state = self.state.lock();
        let entity = entity.bare();
        let id = state.find_id(entity).map_or(0, AddressId::get);
        let plain = state.subscriptions.count(SubscriptionSide::Nodes, id);
        let special: usize = state.pubsub.nodes.values().map(|entry| entry.special_of(entity).count()).sum();
        let most = u64::from(most);
        ready(Ok(plain.min(most) + (special as u64).min(most)))
    }
}
