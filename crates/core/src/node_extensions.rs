//! What programs provide to features through the node: one value of each type, found by its type.
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
}
