//! Boxed state of features in sessions and accounts: absent until used. It costs one pointer in every session, and
//! nothing in an account without state.

use std::any::{Any, TypeId};

/// State of a feature in a session or an account.
pub trait Extension: Any + Send {}

/// The extensions of one session or account. Eight bytes while empty.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "8 bytes instead of 24 in every session")]
pub struct Extensions(Option<Box<Vec<ExtensionEntry>>>);

type ExtensionEntry = (TypeId, Box<dyn Any + Send>);

impl Extensions {
    /// The state of type `T`, if present.
    pub fn get<T: Extension>(&mut self) -> Option<&mut T> {
        let list = self.0.as_mut()?;
        list.iter_mut().find(|(id, _)| *id == TypeId::of::<T>())?.1.downcast_mut()
    }

    /// Inserts state and replaces what was there.
    pub fn insert<T: Extension>(&mut self, value: T) {
        self.remove::<T>();
        // Most have one, and an empty vector grows to four.
        let list = self.0.get_or_insert_with(|| Box::new(Vec::with_capacity(1)));
        list.push((TypeId::of::<T>(), Box::new(value)));
    }

    /// Whether there is no state at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Removes state.
    pub fn remove<T: Extension>(&mut self) -> Option<Box<T>> {
        let list = self.0.as_mut()?;
        let at = list.iter().position(|(id, _)| *id == TypeId::of::<T>())?;
        let (_, value) = list.swap_remove(at);
        if list.is_empty() {
            self.0 = None;
        }
        value.downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    struct A(u8);
    impl Extension for A {}
    struct B;
    impl Extension for B {}

    #[test]
    fn extensions_are_typed_and_removal_frees_the_list() {
        let mut slots = Extensions::default();
        assert_eq!(size_of::<Extensions>(), 8);
        assert!(slots.get::<A>().is_none());
        slots.insert(A(1));
        assert_eq!(slots.0.as_ref().map(|list| list.capacity()), Some(1));
        slots.insert(B);
        slots.insert(A(2));
        assert_eq!(slots.get::<A>().unwrap().0, 2);
        assert!(slots.remove::<A>().is_some() && slots.remove::<B>().is_some());
        assert!(slots.is_empty());
    }
}
