//! Boxed state of features: absent until used, so that it costs one pointer in every session.

use std::any::{Any, TypeId};

/// State that a feature keeps in a session.
pub trait Slot: Any + Send {}

/// The slots of one session. Eight bytes while nothing is in it.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "8 bytes instead of 24 in every session")]
pub struct Slots(Option<Box<Vec<Entry>>>);

type Entry = (TypeId, Box<dyn Any + Send>);

impl Slots {
    /// The state of type `T`, if there is one.
    pub fn get<T: Slot>(&mut self) -> Option<&mut T> {
        let list = self.0.as_mut()?;
        list.iter_mut().find(|(id, _)| *id == TypeId::of::<T>())?.1.downcast_mut()
    }
    /// Puts state in, in place of what was there.
    pub fn put<T: Slot>(&mut self, value: T) {
        self.take::<T>();
        self.0.get_or_insert_default().push((TypeId::of::<T>(), Box::new(value)));
    }
    /// Takes state out.
    pub fn take<T: Slot>(&mut self) -> Option<Box<T>> {
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
    impl Slot for A {}
    struct B;
    impl Slot for B {}

    #[test]
    fn slots_are_typed_and_leave_nothing_behind() {
        let mut slots = Slots::default();
        assert_eq!(size_of::<Slots>(), 8);
        assert!(slots.get::<A>().is_none());
        slots.put(A(1));
        slots.put(B);
        slots.put(A(2));
        assert_eq!(slots.get::<A>().unwrap().0, 2);
        assert!(slots.take::<A>().is_some() && slots.take::<B>().is_some());
        assert!(slots.0.is_none());
    }
}
