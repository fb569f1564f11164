//! Typed positions: the slot of a user, tables that only their own position indexes, and the epoll data of sockets.
//!
//! # Pitfalls
//!
//! A slot is reused by later users. What is kept across events holds the user's generation or epoch as well.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// A type that numbers the entries of a [`SlotVec`].
pub(crate) trait SlotIndex: Copy {
    /// The entry at this position.
    fn at(position: usize) -> Self;
    /// Position of the entry.
    fn position(self) -> usize;
}

/// Place of a user in the worker's table of users. An optional slot is as small as a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UserSlot(NonZeroU32);

const _: () = assert!(size_of::<Option<UserSlot>>() == 4);

impl SlotIndex for UserSlot {
    fn at(position: usize) -> UserSlot {
        UserSlot(NonZeroU32::MIN.saturating_add(u32::try_from(position).unwrap_or(u32::MAX)))
    }

    fn position(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A table whose entries are indexed by `I` and by nothing else.
#[derive(Clone, Debug)]
pub(crate) struct SlotVec<I, T> {
    entries: Vec<T>,
    index: PhantomData<fn(I)>,
}

impl<I: SlotIndex, T> SlotVec<I, T> {
    /// An empty table with room for this many entries.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity), index: PhantomData }
    }

    /// Adds an entry at the end and returns its index.
    pub(crate) fn push(&mut self, entry: T) -> I {
        self.entries.push(entry);
        I::at(self.entries.len() - 1)
    }

    /// Appends copies of `entry` until the table contains `index`.
    pub(crate) fn grow_to(&mut self, index: I, entry: T)
    where
        T: Clone,
    {
        if self.entries.len() <= index.position() {
            self.entries.resize(index.position() + 1, entry);
        }
    }

    pub(crate) fn get(&self, index: I) -> Option<&T> {
        self.entries.get(index.position())
    }

    pub(crate) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.entries.get_mut(index.position())
    }

    /// The indices of all present entries. They do not borrow the table.
    pub(crate) fn indices(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.entries.len()).map(I::at)
    }

    /// All entries with their indices.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.entries.iter_mut().enumerate().map(|(position, entry)| (I::at(position), entry))
    }
}

impl<I: SlotIndex, T> Default for SlotVec<I, T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<I: SlotIndex, T> Index<I> for SlotVec<I, T> {
    type Output = T;
    fn index(&self, index: I) -> &T {
        &self.entries[index.position()]
    }
}

impl<I: SlotIndex, T> IndexMut<I> for SlotVec<I, T> {
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.entries[index.position()]
    }
}

/// Epoll data of a user's socket, packed into 64 bits: slot, which of the two sockets of BOSH, and the generation of
/// that socket. The upper bits are free, so no socket has the data of the worker's own descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketTag {
    pub(crate) slot: UserSlot,
    /// 0 for the only socket of a stream.
    pub(crate) index: usize,
    pub(crate) generation: u16,
}

const INDEX_SHIFT: u32 = 32;
const GENERATION_SHIFT: u32 = INDEX_SHIFT + 1;
const END: u32 = GENERATION_SHIFT + u16::BITS;
const _: () = assert!(END < u64::BITS, "the highest bit tells sockets from the worker's own descriptors");

impl SocketTag {
    /// The only socket of a stream.
    pub(crate) const fn of(slot: UserSlot) -> SocketTag {
        SocketTag { slot, index: 0, generation: 0 }
    }

    pub(crate) fn pack(self) -> u64 {
        self.slot.position() as u64
            | ((self.index & 1) as u64) << INDEX_SHIFT
            | u64::from(self.generation) << GENERATION_SHIFT
    }

    /// `None` for the data of the worker's own descriptors.
    pub(crate) fn unpack(data: u64) -> Option<SocketTag> {
        (data >> END == 0).then(|| SocketTag {
            slot: UserSlot::at(data as u32 as usize),
            index: (data >> INDEX_SHIFT & 1) as usize,
            generation: (data >> GENERATION_SHIFT) as u16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{SlotIndex, SlotVec, SocketTag, UserSlot};

    #[test]
    fn socket_tags_are_read_back() {
        for position in [0, 1, 65_536, u32::MAX as usize - 1] {
            for (index, generation) in [(0, 0), (1, 0), (0, u16::MAX), (1, 513)] {
                let tag = SocketTag { slot: UserSlot::at(position), index, generation };
                assert_eq!(SocketTag::unpack(tag.pack()), Some(tag), "{tag:?}");
            }
        }
        assert_eq!(SocketTag::of(UserSlot::at(7)).pack(), 7);
        assert_eq!([u64::MAX, u64::MAX - 1].map(SocketTag::unpack), [None, None]);
    }

    #[test]
    fn entries_are_found_by_their_index() {
        let mut table: SlotVec<UserSlot, u32> = SlotVec::default();
        let (first, second) = (table.push(10), table.push(20));
        table[first] += 1;
        assert_eq!((table[first], table[second], table.get(UserSlot::at(2))), (11, 20, None));
        table.grow_to(UserSlot::at(3), 5);
        table.grow_to(first, 6);
        assert_eq!(
            table.iter_mut().map(|(slot, entry)| (slot.position(), *entry)).collect::<Vec<_>>(),
            [(0, 11), (1, 20), (2, 5), (3, 5)]
        );
        assert_eq!(table.indices().count(), 4);
    }
}
