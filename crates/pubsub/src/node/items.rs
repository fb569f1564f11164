//! The items of a node without their payloads, in the order of their publication: XEP-0060 1.30.0, section 12.1.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use store::PubSubItemHead;

/// The items by number and by id.
#[derive(Debug, Default)]
pub(super) struct ItemIndex {
    by_seq: BTreeMap<u64, PubSubItemHead>,
    by_id: HashMap<Box<str>, u64>,
}

impl ItemIndex {
    pub(super) fn new(heads: Vec<PubSubItemHead>) -> ItemIndex {
        let mut index = ItemIndex::default();
        heads.into_iter().for_each(|head| index.insert(head));
        index
    }

    pub(super) fn len(&self) -> usize {
        self.by_seq.len()
    }

    /// The item with this id.
    pub(super) fn get(&self, id: &str) -> Option<&PubSubItemHead> {
        self.by_seq.get(self.by_id.get(id)?)
    }

    /// Adds an item; one with the same id is removed.
    pub(super) fn insert(&mut self, head: PubSubItemHead) {
        if let Some(before) = self.by_id.insert(head.id.clone(), head.seq) {
            self.by_seq.remove(&before);
        }
        self.by_seq.insert(head.seq, head);
    }

    pub(super) fn remove(&mut self, id: &str) -> bool {
        let seq = self.by_id.remove(id);
        seq.is_some_and(|seq| self.by_seq.remove(&seq).is_some())
    }

    pub(super) fn clear(&mut self) {
        *self = ItemIndex::default();
    }

    pub(super) fn last(&self) -> Option<&PubSubItemHead> {
        self.by_seq.last_key_value().map(|(_, head)| head)
    }

    /// The oldest items.
    pub(super) fn oldest(&self, count: usize) -> Vec<Box<str>> {
        self.by_seq.values().take(count).map(|head| head.id.clone()).collect()
    }

    /// Ids of items that are older than a time. Times rise with the numbers, unless the clock was set back.
    pub(super) fn published_before(&self, until: u64) -> Vec<Box<str>> {
        self.by_seq.values().take_while(|head| head.published < until).map(|head| head.id.clone()).collect()
    }

    /// The items, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &PubSubItemHead> {
        self.by_seq.values()
    }

    /// Position of an item, from 0.
    pub(super) fn position(&self, id: &str) -> Option<usize> {
        Some(self.by_seq.range(..self.by_id.get(id)?).count())
    }
}
