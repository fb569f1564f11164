//! Damage to what a property test has put together: some bytes are others than they were.
//!
//! The trap: it stands alone, for a property test includes this file without its neighbours.

use proptest::prelude::*;
use proptest::sample::Index;

/// Where there is damage, and what stands there then.
pub(crate) type Damage = Vec<(Index, u8)>;

/// Up to two damaged bytes.
pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    prop::collection::vec((any::<Index>(), any::<u8>()), 0..3)
}

/// Damages these bytes. The first `head` stay, for they choose the form of the test.
pub(crate) fn apply(damage: Damage, bytes: &mut [u8], head: usize) {
    for (at, byte) in damage {
        let at = at.index(bytes.len());
        if at >= head {
            bytes[at] = byte;
        }
    }
}
