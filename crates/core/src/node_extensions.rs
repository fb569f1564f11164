//! What programs provide to features through the node, and what crates above the engine keep in it: one value of each
//! type, found by its type.
//!
//! A storage of files that only the program can open, for example, is provided as a trait object of the crate `environment`,
//! and the feature that needs it looks for that type.
//!
//! # Pitfalls
//!
//! Look-ups are without a lock but not free; they are not for the path of every stanza.

use std::any::{Any, TypeId};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::node::Node;

/// State in a node that has deadlines.
pub trait Swept: Send + Sync {
    /// Called once a second, with the second of the node's clock.
    fn sweep(&self, node: &Arc<Node>, now: u32);
}

/// Values by type.
#[derive(Default)]
pub struct NodeExtensions(ArcSwap<Vec<NodeExtension>>);

#[derive(Clone)]
struct NodeExtension {
    id: TypeId,
    value: Arc<dyn Any + Send + Sync>,
    /// The same value, if it has deadlines.
    swept: Option<Arc<dyn Swept>>,
}

impl NodeExtensions {
    /// Provides a value and replaces an earlier one of this type.
    pub fn insert<T: Any + Send + Sync>(&self, value: T) {
        let added = NodeExtension { id: TypeId::of::<T>(), value: Arc::new(value), swept: None };
        self.0.rcu(|list| {
            let others = list.iter().filter(|one| one.id != added.id);
            others.chain([&added]).cloned().collect::<Vec<_>>()
        });
    }

    /// The value of this type; its default, provided by this call, if there is none yet.
    pub fn get_or_default<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.get_or_add(|_| None)
    }

    /// Like [`NodeExtensions::get_or_default`], for state with deadlines: [`Node::sweep`] calls it from then on.
    pub fn get_or_default_swept<T: Any + Swept + Default>(&self) -> Arc<T> {
        self.get_or_add(|value: &Arc<T>| Some(value.clone() as Arc<dyn Swept>))
    }

    fn get_or_add<T: Any + Send + Sync + Default>(
        &self,
        swept: impl FnOnce(&Arc<T>) -> Option<Arc<dyn Swept>>,
    ) -> Arc<T> {
        if let Some(found) = self.get() {
            return found;
        }
        let made = Arc::<T>::default();
        let added = NodeExtension { id: TypeId::of::<T>(), value: made.clone(), swept: swept(&made) };
        let before = self.0.rcu(|list| match list.iter().any(|one| one.id == added.id) {
            true => list.clone(),
            false => Arc::new(list.iter().chain([&added]).cloned().collect()),
        });
        let first = before.iter().find(|one| one.id == added.id).map(|one| one.value.clone());
        first.and_then(|value| value.downcast().ok()).unwrap_or(made)
    }

    /// The value of this type, if one is provided.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let list = self.0.load();
        list.iter().find(|one| one.id == TypeId::of::<T>())?.value.clone().downcast().ok()
    }

    /// Sweeps the state with deadlines.
    pub(crate) fn sweep(&self, node: &Arc<Node>, now: u32) {
        for swept in self.0.load_full().iter().filter_map(|one| one.swept.as_ref()) {
            swept.sweep(node, now);
        }
    }
}

impl std::fmt::Debug for NodeExtensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeExtensions({})", self.0.load().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_of_each_type() {
        let all = NodeExtensions::default();
        assert_eq!(all.get::<u8>(), None);
        all.insert(1_u8);
        all.insert("text");
        all.insert(2_u8);
        assert_eq!((all.get::<u8>().as_deref(), all.get::<&str>().as_deref()), (Some(&2), Some(&"text")));
        assert_eq!(format!("{all:?}"), "NodeExtensions(2)");
    }

    #[test]
    fn a_default_is_provided_once() {
        let all = NodeExtensions::default();
        let first: Arc<Box<u8>> = all.get_or_default();
        assert!(Arc::ptr_eq(&first, &all.get_or_default()) && Arc::ptr_eq(&first, &all.get().unwrap()));
        all.insert(7_u8);
        assert_eq!(*all.get_or_default::<u8>(), 7);
    }
}
