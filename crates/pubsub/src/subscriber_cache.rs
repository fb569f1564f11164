//! The plain subscribers of a node that is in use: in memory up to a limit, otherwise only those whose change may not be in the
//! store yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use jid::{Jid, JidRef};
use store::PubSubChange;

/// Changes that the store may not have.
const MAX_RECENT: usize = 4_096;

#[derive(Debug, Default)]
enum CacheState {
    /// They were not read, or are too many.
    #[default]
    Unknown,
    Known {
        all: BTreeSet<Jid>,
        /// The same as a list, until the next change.
        list: Option<Arc<[Jid]>>,
    },
}

/// The subscribers.
#[derive(Debug)]
pub(crate) struct SubscriberCache {
    state: CacheState,
    /// Subscribers in memory.
    most: usize,
    /// Changes that the store may not have.
    recent: HashMap<Jid, bool>,
}

impl SubscriberCache {
    /// None is known.
    pub(crate) fn new(most: usize) -> SubscriberCache {
        SubscriberCache { state: CacheState::Unknown, most, recent: HashMap::new() }
    }

    /// Subscribers in memory.
    pub(crate) fn len(&self) -> usize {
        match &self.state {
            CacheState::Known { all, .. } => all.len(),
            CacheState::Unknown => 0,
        }
    }

    /// Whether this number of subscribers fits.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        count <= self.most
    }

    /// All subscribers.
    pub(crate) fn set(&mut self, all: Vec<Jid>) {
        self.state = match self.has_room(all.len()) {
            true => CacheState::Known { all: all.into_iter().collect(), list: None },
            false => CacheState::Unknown,
        };
    }

    /// A node that is created has none.
    pub(crate) fn set_empty(&mut self) {
        self.state = CacheState::Known { all: BTreeSet::new(), list: None };
        self.recent = HashMap::new();
    }

    /// Whether a user is subscribed; `None` if only the store knows.
    pub(crate) fn contains(&self, user: JidRef<'_>) -> Option<bool> {
        let user = user.bare();
        match &self.state {
            CacheState::Known { all, .. } => Some(all.contains(user.as_str())),
            CacheState::Unknown => self.recent.get(user.as_str()).copied(),
        }
    }

    /// All subscribers; `None` if only the store knows.
    pub(crate) fn list(&mut self) -> Option<Arc<[Jid]>> {
        let CacheState::Known { all, list } = &mut self.state else { return None };
        Some(list.get_or_insert_with(|| all.iter().cloned().collect()).clone())
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
                PubSubChange::Subscribe(user) => (user, true),
                PubSubChange::Unsubscribe(user) => (user, false),
                PubSubChange::Remove => {
                    self.set_empty();
                    continue;
                }
                _ => continue,
            };
            self.recent.insert(user.bare().to_jid(), is_added);
            let CacheState::Known { all, list } = &mut self.state else { continue };
            let has_changed =
                if is_added { all.insert(user.bare().to_jid()) } else { all.remove(user.bare().as_str()) };
            if has_changed {
                *list = None;
            }
            if all.len() > self.most {
                self.state = CacheState::Unknown;
            }
        }
    }
}
