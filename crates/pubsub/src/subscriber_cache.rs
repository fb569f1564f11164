//! The plain subscribers of a node that is in use: in memory up to a limit, otherwise only those whose change may not be in the
//! store yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use jid::{Jid, JidRef};
use store::PubSubChange;

/// Subscribers of one node in memory.
pub(crate) const MAX_CACHED: usize = 100_000;

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
#[derive(Debug, Default)]
pub(crate) struct SubscriberCache {
    state: CacheState,
    /// Changes that the store may not have.
    recent: HashMap<Jid, bool>,
}

impl SubscriberCache {
    /// All subscribers.
    pub(crate) fn set(&mut self, all: Vec<Jid>) {
        self.state = match all.len() {
            0..=MAX_CACHED => CacheState::Known { all: all.into_iter().collect(), list: None },
            _ => CacheState::Unknown,
        };
    }

    /// A node that is created has none.
    pub(crate) fn set_empty(&mut self) {
        *self = SubscriberCache {
            state: CacheState::Known { all: BTreeSet::new(), list: None },
            ..Default::default()
        };
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
            match &mut self.state {
                CacheState::Unknown => {
                    self.recent.insert(user.bare().to_jid(), is_added);
                }
                CacheState::Known { all, list } => {
                    let has_changed = if is_added {
                        all.insert(user.bare().to_jid())
                    } else {
                        all.remove(user.bare().as_str())
                    };
                    if has_changed {
                        *list = None;
                    }
                    if all.len() > MAX_CACHED {
                        self.recent = all.iter().rev().take(1).map(|user| (user.clone(), true)).collect();
                        self.recent.insert(user.bare().to_jid(), is_added);
                        self.state = CacheState::Unknown;
                    }
                }
            }
        }
    }
}
