//! The plain subscribers of a node that is in use: their addresses up to a limit, of more only their numbers
//! ([`NodeSubscribers`]) with the changes since these were read. What is not in memory and may not be in the store yet is
//! remembered until it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use jid::{Jid, JidRef};
use store::{AddressId, NodeSubscribers, PubSubChange};

/// Changes that the store may not have, and changes since the numbers were read.
const MAX_RECENT: usize = 4_096;

/// Octets of numbers that weigh as much as the address of one subscriber.
const OCTETS_OF_ADDRESS: usize = 64;

#[derive(Debug, Default)]
enum CacheState {
    /// They were not read.
    #[default]
    Unknown,
    Addresses {
        all: BTreeSet<Jid>,
        /// The same as a list, until the next change.
        list: Option<Arc<[Jid]>>,
    },
    Numbers(NumberedSubscribers),
}

/// Subscribers by number. Cloning copies two reference counts.
#[derive(Clone, Debug)]
pub(crate) struct NumberedSubscribers {
    /// Those at one time.
    pub(crate) numbers: Arc<NodeSubscribers>,
    /// Users that were added or removed since then.
    pub(crate) changed: Arc<HashMap<Jid, bool>>,
}

/// Whom an event goes to.
#[derive(Clone, Debug)]
pub(crate) enum PlainAudience {
    /// Only the store knows.
    Unknown,
    Addresses(Arc<[Jid]>),
    Numbers(NumberedSubscribers),
}

/// The subscribers.
#[derive(Debug)]
pub(crate) struct SubscriberCache {
    state: CacheState,
    /// Addresses in memory.
    most: usize,
    /// Changes that the store may not have.
    recent: HashMap<Jid, bool>,
}

impl SubscriberCache {
    /// None is known.
    pub(crate) fn new(most: usize) -> SubscriberCache {
        SubscriberCache { state: CacheState::Unknown, most, recent: HashMap::new() }
    }

    /// How many addresses would take as much memory.
    pub(crate) fn weight(&self) -> usize {
        match &self.state {
            CacheState::Unknown => 0,
            CacheState::Addresses { all, .. } => all.len(),
            CacheState::Numbers(one) => one.numbers.octets() / OCTETS_OF_ADDRESS + one.changed.len(),
        }
    }

    /// Whether the addresses of this number of subscribers fit.
    pub(crate) fn has_room(&self, count: u64) -> bool {
        count <= self.most as u64
    }

    /// All subscribers.
    pub(crate) fn set_addresses(&mut self, all: Vec<Jid>) {
        self.state = CacheState::Addresses { all: all.into_iter().collect(), list: None };
    }

    /// All subscribers, as the store has them.
    pub(crate) fn set_numbers(&mut self, numbers: NodeSubscribers) {
        let numbers = Arc::new(numbers);
        self.state = CacheState::Numbers(NumberedSubscribers { numbers, changed: Arc::default() });
    }

    /// A node that is created has none.
    pub(crate) fn set_empty(&mut self) {
        self.state = CacheState::Addresses { all: BTreeSet::new(), list: None };
        self.recent = HashMap::new();
    }

    /// Whether it is known that there are none.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.state {
            CacheState::Unknown => false,
            CacheState::Addresses { all, .. } => all.is_empty(),
            CacheState::Numbers(one) => {
                one.numbers.count() == 0 && !one.changed.values().any(|is_added| *is_added)
            }
        }
    }

    /// Whether a user is subscribed; `None` if only the store knows. `number` finds the number of the user's address.
    pub(crate) fn contains(
        &self,
        user: JidRef<'_>,
        number: impl FnOnce() -> Option<AddressId>,
    ) -> Option<bool> {
        let user = user.bare();
        match &self.state {
            CacheState::Addresses { all, .. } => Some(all.contains(user.as_str())),
            CacheState::Numbers(NumberedSubscribers { numbers, changed }) => {
                let changed = changed.get(user.as_str()).copied();
                changed.or_else(|| number().map(|number| numbers.contains(number)))
            }
            CacheState::Unknown => self.recent.get(user.as_str()).copied(),
        }
    }

    /// All subscribers, as far as they are known.
    pub(crate) fn audience(&mut self) -> PlainAudience {
        match &mut self.state {
            CacheState::Unknown => PlainAudience::Unknown,
            CacheState::Addresses { all, list } => {
                PlainAudience::Addresses(list.get_or_insert_with(|| all.iter().cloned().collect()).clone())
            }
            CacheState::Numbers(one) => PlainAudience::Numbers(one.clone()),
        }
    }

    /// Whether the task must wait until the store has the changes that may not be in it.
    pub(crate) fn is_full(&self) -> bool {
        self.recent.len() >= MAX_RECENT
    }

    /// Everything is in the store.
    pub(crate) fn forget_recent(&mut self) {
        if !self.recent.is_empty() {
            self.recent = HashMap::new();
        }
    }

    /// Follows changes of the node.
    pub(crate) fn apply(&mut self, changes: &[PubSubChange]) {
        for change in changes {
            let (user, is_added) = match change {
                PubSubChange::Subscribe(user) => (user.bare().to_jid(), true),
                PubSubChange::Unsubscribe(user) => (user.bare().to_jid(), false),
                PubSubChange::Remove => {
                    self.set_empty();
                    continue;
                }
                _ => continue,
            };
            self.change(user, is_added);
        }
    }

    fn change(&mut self, user: Jid, is_added: bool) {
        let fits = match &mut self.state {
            CacheState::Unknown => true,
            CacheState::Addresses { all, list } => {
                let has_changed = if is_added { all.insert(user.clone()) } else { all.remove(&user) };
                if has_changed {
                    *list = None;
                }
                all.len() <= self.most
            }
            CacheState::Numbers(one) => {
                Arc::make_mut(&mut one.changed).insert(user.clone(), is_added);
                // They are read again.
                one.changed.len() <= MAX_RECENT
            }
        };
        if !fits {
            self.state = CacheState::Unknown;
        }
        self.recent.insert(user, is_added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::number_chunk::{Growth, divide};

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    fn numbers(all: &[u32]) -> NodeSubscribers {
        NodeSubscribers::new(divide(all, Growth::Anywhere))
    }

    #[test]
    fn changes_since_the_numbers_were_read_count() {
        let mut cache = SubscriberCache::new(1);
        cache.set_numbers(numbers(&[1, 2, 3]));
        let contains = |cache: &SubscriberCache, user: &str, number| {
            cache.contains(jid(user).as_ref(), || AddressId::new(number))
        };
        assert_eq!(contains(&cache, "ann@example.org/x", 2), Some(true));
        assert_eq!(contains(&cache, "bob@example.org", 4), Some(false));
        assert_eq!(contains(&cache, "eve@example.org", 0), None, "only the store has the number");
        cache.apply(&[PubSubChange::Unsubscribe(jid("ann@example.org"))]);
        cache.apply(&[PubSubChange::Subscribe(jid("eve@example.org"))]);
        assert_eq!(contains(&cache, "ann@example.org/x", 2), Some(false));
        assert_eq!(contains(&cache, "eve@example.org", 0), Some(true));
        for number in 0..=MAX_RECENT {
            cache.apply(&[PubSubChange::Subscribe(jid(&format!("u{number}@example.org")))]);
        }
        assert!(matches!(cache.audience(), PlainAudience::Unknown), "bounded");
        cache.apply(&[PubSubChange::Remove]);
        assert!(matches!(cache.audience(), PlainAudience::Addresses(all) if all.is_empty()));
    }

    #[test]
    fn addresses_above_the_limit_are_read_again() {
        let mut cache = SubscriberCache::new(2);
        cache.set_empty();
        for user in ["a@example.org", "b@example.org"] {
            cache.apply(&[PubSubChange::Subscribe(jid(user))]);
        }
        assert!(matches!(cache.audience(), PlainAudience::Addresses(all) if all.len() == 2));
        cache.apply(&[PubSubChange::Subscribe(jid("c@example.org"))]);
        assert!(matches!(cache.audience(), PlainAudience::Unknown));
        assert_eq!(
            cache.contains(jid("a@example.org").as_ref(), || None),
            Some(true),
            "not yet in the store"
        );
        cache.forget_recent();
        assert_eq!(cache.contains(jid("a@example.org").as_ref(), || None), None);
        cache.set_numbers(numbers(&(1..100_000).collect::<Vec<_>>()));
        assert!(cache.weight() < 1_000, "{}", cache.weight());
    }
}
