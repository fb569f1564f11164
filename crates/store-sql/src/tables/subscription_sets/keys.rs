//! Keys of chunks: 32 bits for the number of the set, and 24 for the first block of the chunk's range.

use std::ops::RangeInclusive;

use store::number_chunk::BLOCK;

const BLOCK_BITS: u32 = 24;

/// The key of a chunk that begins with the block of a member.
pub(super) fn key(set: u32, member: u32) -> u64 {
    u64::from(set) << BLOCK_BITS | u64::from(member / BLOCK)
}

/// The keys of all chunks of a set.
pub(super) fn keys_of(set: u32) -> RangeInclusive<u64> {
    key(set, 0)..=key(set, u32::MAX)
}

/// The keys of all chunks of a range of sets.
pub(super) fn keys_between(first: u32, last: u32) -> RangeInclusive<u64> {
    key(first, 0)..=key(last, u32::MAX)
}

/// The set of a key.
pub(super) fn set_of(key: u64) -> Option<u32> {
    u32::try_from(key >> BLOCK_BITS).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_set_and_member_and_are_positive() {
        let keys = [key(0, 0), key(0, u32::MAX), key(1, 0), key(1, 256), key(u32::MAX, u32::MAX)];
        assert!(keys.is_sorted_by(|one, next| one < next));
        assert_eq!(key(1, 256), key(1, 511));
        assert!(i64::try_from(keys[4]).is_ok());
        assert_eq!(set_of(key(u32::MAX, 7)), Some(u32::MAX));
        assert!(!keys_of(1).contains(&key(2, 0)) && keys_between(1, 2).contains(&key(2, u32::MAX)));
    }
}
