//! What programs provide to features through the node, and what crates above the engine keep in it: one value of each
//! type, found by its type.
//!
//! A listener that only the program can open, for example, is provided as a trait object of this crate, and the feature
//! that needs it looks for that type.
//!
//! # Pitfalls
//!
//! Look-ups are without a lock but not free; they are not for the path of every stanza.

use std::any::{Any, TypeId};
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Values by type.
#[derive(Default)]
pub struct NodeExtensions(ArcSwap<Vec<(TypeId, Arc<dyn Any + Send + Sync>)>>);

impl NodeExtensions {
    /// Provides a value and replaces an earlier one of this type.
    pub fn insert<T: Any + Send + Sync>(&self, value: T) {
        let value: Arc<dyn Any + Send + Sync> = Arc::new(value);
        self.0.rcu(|list| {
            let others = list.iter().filter(|(id, _)| *id != TypeId::of::<T>()).cloned();
            others.chain([(TypeId::of::<T>(), value.clone())]).collect::<Vec<_>>()
        });
    }

    /// The value of this type; its default, provided by this call, if there is none yet.
    pub fn get_or_default<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        if let Some(found) = self.get() {
            return found;
        }
        let made = Arc::<T>::default();
        let id = TypeId::of::<T>();
        let before = self.0.rcu(|list| match list.iter().any(|(other, _)| *other == id) {
            true => list.clone(),
            false => Arc::new(list.iter().cloned().chain([(id, made.clone() as Arc<_>)]).collect()),
        });
        let first = before.iter().find(|(other, _)| *other == id).map(|(_, value)| value.clone());
        first.and_then(|value| value.downcast().ok()).unwrap_or(made)
    }

    /// The value of this type, if one is provided.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let list = self.0.load();
        list.iter().find(|(id, _)| *id == TypeId::of::<T>())?.1.clone().downcast().ok()
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
