//! Conversions that run or wait: those of an account one after the other, and those of all accounts a bounded number at the same time.
//!
//! Of several changes that wait, the most recent one decides: it is the source of the conversion, and all other places follow it.
//! First conversions have places and permits of their own, because each login can ask for one.

use std::collections::VecDeque;

use base::lock::LeafMutex;
use hashbrown::{HashMap, HashSet};
use jid::Jid;
use queues::semaphore::{Semaphore, SemaphorePermit};

use super::ConversionKind;

/// Accounts with conversions that run or wait.
const MAX_ACCOUNTS: usize = 16_384;
/// First conversions that run or wait; further ones are omitted until the next login.
const MAX_FIRST: usize = 1_024;
/// Conversions at the same time, and first conversions: each reads up to a MiB of items, and has requests with as much.
const MAX_ACTIVE: usize = 32;
const MAX_ACTIVE_FIRST: usize = 16;
/// Accounts of which it is remembered that a first conversion has nothing to do.
const MAX_CONVERTED: usize = 16_384;

#[derive(Default)]
struct QueueState {
    /// What waits, by account.
    accounts: HashMap<Jid, VecDeque<ConversionKind>>,
    /// First conversions that run or wait.
    first: usize,
    /// Accounts whose places are known to agree.
    converted: HashSet<Jid>,
    /// It was logged that there are too many.
    is_full: bool,
}

/// What follows from a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConversionRequest {
    /// The caller must start the conversions of the account.
    Start,
    /// The conversions that run continue with it.
    Queued,
    /// The places agree, or a first conversion waits that does the same.
    NotNeeded,
    /// There are too many; it is omitted.
    Dropped,
}

/// The conversions of a domain.
pub(super) struct ConversionQueue {
    state: LeafMutex<QueueState>,
    permits: Semaphore,
    first_permits: Semaphore,
}

impl Default for ConversionQueue {
    fn default() -> ConversionQueue {
        ConversionQueue {
            state: LeafMutex::default(),
            // Accounts that wait have a bound.
            permits: Semaphore::new(MAX_ACTIVE, MAX_ACCOUNTS),
            first_permits: Semaphore::new(MAX_ACTIVE_FIRST, MAX_ACCOUNTS),
        }
    }
}

impl ConversionQueue {
    /// Data of an account have changed.
    pub(super) fn add(&self, account: &Jid, kind: ConversionKind) -> ConversionRequest {
        let state = &mut *self.state.lock();
        let is_first = kind == ConversionKind::First;
        if is_first && state.converted.contains(account) {
            return ConversionRequest::NotNeeded;
        }
        if let Some(waiting) = state.accounts.get_mut(account) {
            if is_first && waiting.iter().any(|one| one.is_of_bookmarks()) {
                return ConversionRequest::NotNeeded;
            }
            if is_first && state.first >= MAX_FIRST {
                return ConversionRequest::Dropped;
            }
            if kind.is_of_bookmarks() && waiting.contains(&ConversionKind::First) {
                state.first -= 1;
            }
            state.first += usize::from(is_first);
            waiting.retain(|one| one.is_of_bookmarks() != kind.is_of_bookmarks());
            waiting.push_back(kind);
            return ConversionRequest::Queued;
        }
        if is_first && state.first >= MAX_FIRST {
            return ConversionRequest::Dropped;
        }
        if state.accounts.len() >= MAX_ACCOUNTS {
            if !std::mem::replace(&mut state.is_full, true) {
                tracing::warn!(%account, "there are too many conversions of avatars and bookmarks; some are omitted");
            }
            return ConversionRequest::Dropped;
        }
        state.first += usize::from(is_first);
        state.accounts.insert(account.clone(), VecDeque::from([kind]));
        ConversionRequest::Start
    }

    /// The next conversion of an account; `None`: all are done.
    pub(super) fn next(&self, account: &Jid) -> Option<ConversionKind> {
        let state = &mut *self.state.lock();
        let next = state.accounts.get_mut(account)?.pop_front();
        if next.is_none() {
            state.accounts.remove(account);
            state.is_full &= state.accounts.len() > MAX_ACCOUNTS / 2;
        }
        next
    }

    /// Whether a change of the same data waits, which is more recent than the one that is converted.
    pub(super) fn has_newer(&self, account: &Jid, kind: ConversionKind) -> bool {
        let state = self.state.lock();
        let is_same = |one: &ConversionKind| {
            *one != ConversionKind::First && one.is_of_bookmarks() == kind.is_of_bookmarks()
        };
        state.accounts.get(account).is_some_and(|waiting| waiting.iter().any(is_same))
    }

    /// Waits until a conversion may run; `None`: more wait than there can be.
    pub(super) async fn permit(&self, kind: ConversionKind) -> Option<SemaphorePermit> {
        match kind {
            ConversionKind::First => self.first_permits.acquire().await,
            _ => self.permits.acquire().await,
        }
    }

    /// A conversion has ended.
    pub(super) fn ended(&self, kind: ConversionKind) {
        if kind == ConversionKind::First {
            self.state.lock().first -= 1;
        }
    }

    /// Remembers whether the places of an account agree.
    pub(super) fn set_converted(&self, account: &Jid, is_converted: bool) {
        let mut state = self.state.lock();
        if !is_converted {
            state.converted.remove(account);
            return;
        }
        if state.converted.len() >= MAX_CONVERTED {
            state.converted.clear();
        }
        state.converted.insert(account.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(number: usize) -> Jid {
        Jid::parse(&format!("u{number}@capulet.lit")).unwrap()
    }

    #[test]
    fn the_most_recent_change_decides() {
        use ConversionKind::{Avatar, Bookmarks, First, Photo, PrivateXml, Storage};
        let (queue, juliet) = (ConversionQueue::default(), account(0));
        assert_eq!(queue.add(&juliet, Bookmarks), ConversionRequest::Start);
        assert_eq!(queue.next(&juliet), Some(Bookmarks));
        for kind in [First, Bookmarks, Avatar, Storage, PrivateXml, Photo, First] {
            assert_ne!(queue.add(&juliet, kind), ConversionRequest::Start);
        }
        assert!(queue.has_newer(&juliet, Bookmarks) && queue.has_newer(&juliet, Avatar));
        let rest: Vec<ConversionKind> = std::iter::from_fn(|| queue.next(&juliet)).collect();
        assert_eq!(rest, [PrivateXml, Photo]);
        assert_eq!(queue.state.lock().first, 0);
        assert_eq!(queue.add(&juliet, Photo), ConversionRequest::Start, "again");
    }

    #[test]
    fn logins_take_no_place_of_changes() {
        let queue = ConversionQueue::default();
        let first = |number| queue.add(&account(number), ConversionKind::First);
        assert_eq!((0..5_000).filter(|number| first(*number) == ConversionRequest::Start).count(), MAX_FIRST);
        let change = |number| queue.add(&account(number), ConversionKind::Bookmarks);
        let changes = (5_000..50_000).filter(|number| change(*number) == ConversionRequest::Start);
        assert_eq!(changes.count(), MAX_ACCOUNTS - MAX_FIRST);
        for number in 0..MAX_FIRST {
            assert_eq!(queue.next(&account(number)), Some(ConversionKind::First));
            queue.ended(ConversionKind::First);
            assert_eq!(queue.next(&account(number)), None);
        }
        queue.set_converted(&account(0), true);
        assert_eq!(first(0), ConversionRequest::NotNeeded, "nothing to do");
        assert_eq!(first(1), ConversionRequest::Start);
        queue.set_converted(&account(0), false);
        assert_eq!(first(0), ConversionRequest::Start);
    }
}
