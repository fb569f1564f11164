//! What the engine keeps once per session, in bytes.
//!
//! The budget of an idle session (authenticated, bound, available, 3 contacts) on plain TCP is 2 500 bytes of resident
//! memory. What the types below weigh by themselves, one of each in a session, x86-64:
//!
//! | Part | Budget | Now | Held by |
//! | --- | --- | --- | --- |
//! | socket, its registration, header of the task | 420 | ~ 410 | tokio |
//! | the connection's future, with stream and scanner | 608 | 280 | `streams/src/c2s.rs`, `net/src/stream/mod.rs` |
//! | mailbox: `Outbox` with a ring of two | 96 + 32 | 112 | here |
//! | `Session` with its state, flags and slots | 256 | 96 | here |
//! | `Account` with its state | 120, as the routing entry | 120 | here |
//! | three `Contact`s | 72, 24 each | 48 | here |
//! | full and bare address | 80 | text and counters | not types |
//! | last presence: a shared frame | 300 | head, counter and the client's bytes | `streams`, `stanza::Head` ≤ 88 |
//!
//! The sum of what is held here is 96 + 112 + 120 + 48 = 376 bytes, with the future 656. What remains to 2 500 is the
//! socket, text, counters of shared values and what the allocator rounds up.
//!
//! Left out: resident memory, which `cargo xtask bench memory` measures.
//!
//! The trap: a bound here may be raised only with the table, and only while the measured slope stays in its budget. The
//! bounds are today's sizes, so that a new field is seen.

use store::{RosterItem, Subscription};
use throng_core::account::{self, Account, Contact};
use throng_core::session::{self, Extensions, Flags, Outbox, QueuedStanza, Session};
use throng_core::{QueueClass, SharedStanza};

/// Name, size now, most that it may be.
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
        Session => 104,
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
    let once = ["Session", "Link", "Account"];
    let sum: usize = rows.iter().filter(|(name, ..)| once.contains(name)).map(|(_, size, _)| size).sum();
    assert!(sum + 3 * size_of::<Contact>() <= 400, "{sum}{}", report(&rows));
}

/// 150 contacts may cost 3.6 kB a user, which is 24 bytes each; a contact's name, groups and address stay in the store.
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
