//! Locks with a rank: debug builds panic when a thread acquires them in another order than `docs/locks.md` says.
//!
//! A thread may acquire a lock while it holds only locks of lower ranks. The rank is a parameter of the type, and each
//! thread of a debug build knows the locks that it holds. In a release build the types are `parking_lot`'s, with the same
//! size and without further instructions.
//!
//! Not implemented: condition variables, upgradable reads, and locks that may be held over an await.
//!
//! # Pitfalls
//!
//! Two locks of one rank are never held together, not even two shards of a table or two reads of one lock. That includes
//! [`rank::LEAF`].
#![allow(clippy::disallowed_types, reason = "the only place where the locks without a rank are used")]

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Ranks, from the lock that is acquired first to the one that is acquired last.
pub mod rank {
    /// The active configuration.
    pub const CONFIGURATION: u8 = 0;
    /// The registry of metrics.
    pub const METRICS_REGISTRY: u8 = 1;
    /// The recipient queues of offline delivery.
    pub const RECIPIENT_QUEUES: u8 = 2;
    /// A shard of the routing table.
    pub const ROUTING_TABLE: u8 = 3;
    /// The state of an account.
    pub const ACCOUNT: u8 = 4;
    /// The state of a session.
    pub const SESSION: u8 = 5;
    /// A shard of the outbox registry.
    pub const OUTBOX_REGISTRY: u8 = 6;
    /// The requests for session information.
    pub const SESSION_INFO_REQUESTS: u8 = 7;
    /// An outbox.
    pub const OUTBOX: u8 = 8;
    /// A shard of the backlog.
    pub const BACKLOG: u8 = 9;
    /// A shard of the deadlines of connections.
    pub const CONNECTION_DEADLINES: u8 = 10;
    /// The state of certificate files.
    pub const CERTIFICATE_FILES: u8 = 11;
    /// The loaded certificates.
    pub const CERTIFICATES: u8 = 12;
    /// A table of a feature. No feature uses another, so tables of two features are never locked at the same time.
    pub const FEATURE_TABLE: u8 = 13;
    /// An entry of a feature's table.
    pub const FEATURE_ENTRY: u8 = 14;
    /// The links of a node to the others of its cluster.
    pub const CLUSTER_LINKS: u8 = 15;
    /// A lock under which nothing but metrics and the log is locked.
    pub const LEAF: u8 = 16;
    /// The counters of a label.
    pub const METRIC_LABELS: u8 = 17;
    /// The last lines of the log.
    pub const LOG: u8 = 18;

    /// Names by rank, as in `docs/locks.md`.
    pub const NAMES: [&str; 19] = [
        "active configuration",
        "registry of metrics",
        "recipient queues of offline delivery",
        "shard of the routing table",
        "state of an account",
        "state of a session",
        "shard of the outbox registry",
        "requests for session information",
        "outbox",
        "shard of the backlog",
        "shard of the deadlines of connections",
        "state of certificate files",
        "loaded certificates",
        "table of a feature",
        "entry of a feature's table",
        "links to other nodes",
        "leaf lock",
        "counters of a label",
        "last lines of the log",
    ];
}

/// A lock of [`rank::LEAF`].
pub type LeafMutex<T> = RankedMutex<T, { rank::LEAF }>;
/// A lock for readers and writers of [`rank::LEAF`].
pub type LeafRwLock<T> = RankedRwLock<T, { rank::LEAF }>;

/// A `parking_lot::Mutex` with a rank.
#[derive(Default)]
pub struct RankedMutex<T, const RANK: u8>(parking_lot::Mutex<T>);

/// A `parking_lot::RwLock` with a rank.
#[derive(Default)]
pub struct RankedRwLock<T, const RANK: u8>(parking_lot::RwLock<T>);

/// Access to the value of a [`RankedMutex`].
#[must_use = "the lock is released when this is dropped"]
pub struct RankedMutexGuard<'a, T, const RANK: u8> {
    // Released before the rank.
    guard: parking_lot::MutexGuard<'a, T>,
    _held: HeldRank<RANK>,
}

/// Shared access to the value of a [`RankedRwLock`].
#[must_use = "the lock is released when this is dropped"]
pub struct RankedReadGuard<'a, T, const RANK: u8> {
    guard: parking_lot::RwLockReadGuard<'a, T>,
    _held: HeldRank<RANK>,
}

/// Exclusive access to the value of a [`RankedRwLock`].
#[must_use = "the lock is released when this is dropped"]
pub struct RankedWriteGuard<'a, T, const RANK: u8> {
    guard: parking_lot::RwLockWriteGuard<'a, T>,
    _held: HeldRank<RANK>,
}

// Compiled in every profile: a rank costs no byte where there are millions of locks.
const _: () = {
    assert!(size_of::<RankedMutex<u8, 0>>() == size_of::<parking_lot::Mutex<u8>>());
    assert!(size_of::<RankedRwLock<u8, 0>>() == size_of::<parking_lot::RwLock<u8>>());
    assert!(size_of::<RankedMutexGuard<'_, u8, 0>>() == size_of::<parking_lot::MutexGuard<'_, u8>>());
    assert!(size_of::<RankedReadGuard<'_, u8, 0>>() == size_of::<parking_lot::RwLockReadGuard<'_, u8>>());
    assert!(size_of::<RankedWriteGuard<'_, u8, 0>>() == size_of::<parking_lot::RwLockWriteGuard<'_, u8>>());
};

impl<T, const RANK: u8> RankedMutex<T, RANK> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        RankedMutex(parking_lot::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// In a debug build if this thread holds a lock of the same or a higher rank.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> RankedMutexGuard<'_, T, RANK> {
        // Before waiting, so that the order is reported and not the deadlock.
        let held = HeldRank::acquire();
        RankedMutexGuard { guard: self.0.lock(), _held: held }
    }

    /// Takes the lock unless it is held. Allowed at any rank, because it does not wait.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<RankedMutexGuard<'_, T, RANK>> {
        let guard = self.0.try_lock()?;
        Some(RankedMutexGuard { guard, _held: HeldRank::acquire_unordered() })
    }
}

impl<T, const RANK: u8> RankedRwLock<T, RANK> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        RankedRwLock(parking_lot::RwLock::new(value))
    }

    /// Waits for shared access.
    ///
    /// # Panics
    /// As [`RankedMutex::lock`].
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RankedReadGuard<'_, T, RANK> {
        let held = HeldRank::acquire();
        RankedReadGuard { guard: self.0.read(), _held: held }
    }

    /// Waits for exclusive access.
    ///
    /// # Panics
    /// As [`RankedMutex::lock`].
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RankedWriteGuard<'_, T, RANK> {
        let held = HeldRank::acquire();
        RankedWriteGuard { guard: self.0.write(), _held: held }
    }
}

impl<T, const RANK: u8> Deref for RankedMutexGuard<'_, T, RANK> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for RankedMutexGuard<'_, T, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T, const RANK: u8> Deref for RankedReadGuard<'_, T, RANK> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> Deref for RankedWriteGuard<'_, T, RANK> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for RankedWriteGuard<'_, T, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: fmt::Debug, const RANK: u8> fmt::Debug for RankedMutex<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: fmt::Debug, const RANK: u8> fmt::Debug for RankedRwLock<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The rank of a lock that this thread holds.
struct HeldRank<const RANK: u8>(());

impl<const RANK: u8> HeldRank<RANK> {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn acquire() -> Self {
        #[cfg(debug_assertions)]
        order::acquire(RANK);
        HeldRank(())
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn acquire_unordered() -> Self {
        #[cfg(debug_assertions)]
        order::hold(RANK);
        HeldRank(())
    }
}

#[cfg(debug_assertions)]
impl<const RANK: u8> Drop for HeldRank<RANK> {
    fn drop(&mut self) {
        order::release(RANK);
    }
}

#[cfg(debug_assertions)]
mod order {
    use std::cell::Cell;
    use std::panic::Location;

    use super::rank::NAMES;

    /// Locks of one rank that this thread holds. More than one only after `try_lock`, or while the thread panics.
    #[derive(Clone, Copy)]
    struct HeldLocks {
        count: u32,
        /// Where the last of them was acquired.
        place: Option<&'static Location<'static>>,
    }

    thread_local! {
        /// By rank.
        static HELD: [Cell<HeldLocks>; NAMES.len()] =
            const { [const { Cell::new(HeldLocks { count: 0, place: None }) }; NAMES.len()] };
    }

    fn name(rank: usize) -> &'static str {
        NAMES.get(rank).copied().unwrap_or("a lock without a name in `base::lock::rank`")
    }

    /// The held lock of the highest rank.
    fn highest_held() -> Option<(usize, &'static Location<'static>)> {
        HELD.with(|held| {
            let mut held = held.iter().map(Cell::get).enumerate().rev().filter(|(_, locks)| locks.count > 0);
            held.find_map(|(rank, locks)| Some((rank, locks.place?)))
        })
    }

    #[track_caller]
    pub(super) fn acquire(rank: u8) {
        let own = usize::from(rank);
        // A lock that is acquired while a panic unwinds must not abort the program.
        let conflict = highest_held().filter(|(other, _)| *other >= own && !std::thread::panicking());
        if let Some((other, place)) = conflict {
            #[allow(clippy::panic, reason = "an order that could deadlock must be noticed in tests")]
            {
                panic!(
                    "lock order: `{}` (rank {own}) is acquired while `{}` (rank {other}) is held since {place}; \
                     release that one first, or change the ranks in base::lock and docs/locks.md",
                    name(own),
                    name(other),
                );
            }
        }
        hold(rank);
    }

    #[track_caller]
    pub(super) fn hold(rank: u8) {
        let place = Some(Location::caller());
        change(rank, |locks| HeldLocks { count: locks.count + 1, place });
    }

    pub(super) fn release(rank: u8) {
        change(rank, |locks| HeldLocks { count: locks.count.saturating_sub(1), ..locks });
    }

    fn change(rank: u8, change: impl FnOnce(HeldLocks) -> HeldLocks) {
        HELD.with(|held| {
            if let Some(locks) = held.get(usize::from(rank)) {
                locks.set(change(locks.get()));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Account = RankedMutex<u8, { rank::ACCOUNT }>;
    type Outbox = RankedRwLock<u8, { rank::OUTBOX }>;

    /// The message with which `f` panics.
    #[cfg(debug_assertions)]
    fn panic_text(f: impl FnOnce()) -> String {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    }

    #[test]
    fn locks_are_acquired_in_ascending_order_and_released_in_any() {
        let (account, outbox, leaf) = (Account::new(1), Outbox::new(2), LeafMutex::new(3));
        for _ in 0..2 {
            let one = account.lock();
            let two = outbox.write();
            drop(one);
            let three = leaf.lock();
            assert_eq!(*two + *three, 5);
            drop(two);
            drop(three);
            *account.lock() += 1;
            assert_eq!(*outbox.read(), 2);
        }
        assert_eq!(*account.lock(), 3);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn another_order_panics_with_both_names_and_the_fix() {
        let (account, outbox) = (Account::default(), Outbox::default());
        let line = line!() + 2;
        let text = panic_text(|| {
            let _outbox = outbox.read();
            let _account = account.lock();
        });
        let expected = format!(
            "lock order: `state of an account` (rank 4) is acquired while `outbox` (rank 8) is held since {}:{line}:",
            file!()
        );
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.ends_with("change the ranks in base::lock and docs/locks.md"), "{text}");
        // Nothing is held after the panic, and other threads have their own order.
        let _outbox = outbox.write();
        std::thread::scope(|scope| scope.spawn(|| drop(account.lock())).join()).unwrap();
    }

    #[cfg(debug_assertions)]
    #[test]
    fn two_locks_of_one_rank_are_never_held_together() {
        let (one, two) = (Outbox::default(), Outbox::default());
        for (first, second) in [(&one, &two), (&one, &one)] {
            let text = panic_text(|| {
                let _first = first.read();
                let _second = second.read();
            });
            assert!(text.contains("`outbox` (rank 8) is acquired while `outbox` (rank 8) is held"), "{text}");
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_lock_that_is_tried_may_be_out_of_order_and_counts_as_held() {
        let (account, other, outbox) = (Account::default(), Account::default(), Outbox::default());
        let held = outbox.read();
        let first = account.try_lock().unwrap();
        assert!(account.try_lock().is_none());
        let second = other.try_lock().unwrap();
        drop(held);
        drop(second);
        // The first is still held.
        let text = panic_text(|| drop(other.lock()));
        assert!(text.contains("while `state of an account` (rank 4) is held"), "{text}");
        drop(first);
        drop(other.lock());
    }

    #[cfg(not(debug_assertions))]
    #[test]
    fn a_release_build_has_no_check_and_no_field_for_it() {
        assert_eq!(size_of::<Account>(), size_of::<parking_lot::Mutex<u8>>());
        assert_eq!(size_of::<Outbox>(), size_of::<parking_lot::RwLock<u8>>());
        assert_eq!(size_of::<HeldRank<0>>(), 0);
        assert!(!std::mem::needs_drop::<HeldRank<0>>());
        let (account, outbox) = (Account::default(), Outbox::default());
        let _outbox = outbox.read();
        let _account = account.lock();
    }

    #[test]
    fn every_rank_has_a_name() {
        assert_eq!(rank::NAMES.len(), usize::from(rank::LOG) + 1);
    }
}
