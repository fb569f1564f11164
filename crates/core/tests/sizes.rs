//! Size limits of the engine's types that exist once for each session, in bytes.
//!
//! The budget of an idle session (authenticated, bound, available, 3 contacts) on plain TCP is 2 500 bytes of
//! resident memory. Sizes of the types below, one of each in a session, on x86-64:
//!
//! | Part | Budget | Size | Limited by |
//! | --- | --- | --- | --- |
//! | socket, its registration, header of the task | 420 | ~ 410 | tokio |
//! | the connection's future, with stream and scanner | 608 | 280 | `streams/src/c2s.rs`, `net/src/stream/mod.rs` |
//! | outgoing queue: `Outbox` with room for two stanzas | 96 + 32 | 120 | here |
//! | `Session` with its state, flags and extensions | 256 | 112 | here |
//! | `Account` with its state | 128, as the routing entry | 128 | here |
//! | three `Contact`s | 72, 24 each | 48 | here |
//! | full and bare address | 80 | text and counters | not types |
//! | last presence: a shared stanza | 300 | head, counter and the client's bytes | `streams`, `stanza::Head` ≤ 80 |
//!
//! The types limited here take 112 + 120 + 128 + 48 = 408 bytes, with the future 688. The rest of the 2 500 is
//! the socket, text, counters of shared values and allocator overhead.
//!
//! Not implemented: resident memory, which `cargo xtask bench memory` measures.
//!
//! # Pitfalls
//!
//! A limit may only be raised together with the table, and only while the measured memory for each session
//! stays in its budget. The limits equal the present sizes, so that a new field is noticed.

use store::{RosterItem, Subscription};
use throng_core::account::{self, Account, Contact};
use throng_core::session::{self, Extensions, Flags, Outbox, QueuedStanza, Session};
use throng_core::{QueueClass, SharedStanza};

/// Name, present size, limit.
type Row = (&'static str, usize, usize);

macro_rules! rows {
    ($($type:ty => $most:expr),* $(,)?) => {
        [$((stringify!($type), size_of::<$type>(), $most)),*]
    };
}

fn report(rows: &[Row]) -> String {
    rows.iter().map(|(name, size, most)| format!("\n{size:>6} of {most:>4}  {name}")).collect()
}

#[test]
fn per_session_types_fit_their_byte_budget() {
    let rows = rows![
        Session => 112,
        session::SessionState => 32,
        Flags => 8,
        Extensions => 8,
        Outbox => 120,
        QueuedStanza => 16,
        SharedStanza => 8,
        Account => 128,
        account::AccountState => 72,
        Contact => 16,
        Subscription => 1,
        QueueClass => 1,
    ];
    assert!(rows.iter().all(|(_, size, most)| size <= most), "{}", report(&rows));
    let once = ["Session", "Outbox", "Account"];
    let sum: usize = rows.iter().filter(|(name, ..)| once.contains(name)).map(|(_, size, _)| size).sum();
    assert!(sum + 3 * size_of::<Contact>() <= 408, "{sum}{}", report(&rows));
}

/// 150 contacts may take 3.6 kB for each user, which is 24 bytes each; a contact's name, groups and address
/// stay in the store.
#[test]
fn a_contact_has_no_heap_allocation() {
    assert!(!std::mem::needs_drop::<Contact>(), "a contact of {} bytes owns memory", size_of::<Contact>());
    assert!(size_of::<Contact>() <= 24 && size_of::<Contact>() < size_of::<RosterItem>());
}

#[test]
fn an_optional_handle_is_as_small_as_the_handle() {
    assert_eq!(size_of::<Option<SharedStanza>>(), size_of::<SharedStanza>());
    assert_eq!(size_of::<Option<QueuedStanza>>(), size_of::<QueuedStanza>());
}
