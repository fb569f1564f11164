//! Damage for property tests: changes some bytes of generated input.
//!
//! # Pitfalls
//!
//! This file must not depend on its neighbours, because property tests include it alone.

use proptest::prelude::*;
use proptest::sample::Index;

/// Positions of damaged bytes, and their new values.
pub(crate) type Damage = Vec<(Index, u8)>;

/// Up to two damaged bytes.
pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    prop::collection::vec((any::<Index>(), any::<u8>()), 0..3)
}

/// Damages these bytes, except the first `head`, which choose the form of the test.
pub(crate) fn apply(damage: Damage, bytes: &mut [u8], head: usize) {
    for (at, byte) in damage {
        let at = at.index(bytes.len());
        if at >= head {
            bytes[at] = byte;
        }
    }
}
