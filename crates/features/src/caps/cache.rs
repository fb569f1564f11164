//! Cache of client capabilities: features by fingerprint, queried once and shared by all sessions with the same
//! client.
//!
//! A fingerprint is a text that belongs to exactly one set of features. It is derived from a client's announcement, and a
//! set must be verified against it before [`CapsCache::insert_verified`], because the set then applies to every
//! session with that fingerprint. A session holds a number of four bytes ([`Session::caps_id`]), which fits into
//! existing padding; sessions that announce nothing cost nothing.
//!
//! For each unknown fingerprint one client is queried at a time. If it fails or does not respond, the next
//! client that announced the same is queried, and the failed one is not queried for it again for
//! [`RETRY_AFTER_SECONDS`] seconds.
//!
//! Not implemented: storing the cache on disk.
//!
//! # Pitfalls
//!
//! The cache is bounded ([`MAX_ENTRIES`], [`MAX_BYTES`]). When it is full, unverified fingerprints are evicted
//! first, then those with the fewest sessions, the oldest of them first. The features of a session whose
//! fingerprint was evicted are unknown until it announces them again. So *unknown* is a normal result at any
//! time and means *assume nothing*.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use hashbrown::HashMap;
use smallvec::SmallVec;
use throng_core::{Node, Session};

/// Maximum number of fingerprints.
pub const MAX_ENTRIES: usize = 1 << INDEX_BITS;
/// Maximum bytes of all sets together.
pub const MAX_BYTES: usize = 8 << 20;
/// Maximum length of a fingerprint, in bytes.
pub const MAX_KEY_BYTES: usize = 160;
/// Maximum size of a set, in bytes.
pub const MAX_SET_BYTES: usize = 32 << 10;
/// Seconds for which a client that failed a query is not queried for the same fingerprint again.
pub const RETRY_AFTER_SECONDS: u32 = 600;
/// For each fingerprint, the maximum number of clients that wait to be queried, and of clients that failed.
const MAX_WAITING: usize = 8;
const INDEX_BITS: u32 = 12;
/// Mask of the slot index in a number.
const INDEX: u32 = (1 << INDEX_BITS) - 1;

/// Capabilities of a client.
#[derive(Debug, PartialEq, Eq)]
pub struct FeatureSet {
    /// Sorted.
    features: Box<[Box<str>]>,
    /// Category and type.
    identities: Box<[(Box<str>, Box<str>)]>,
}

impl FeatureSet {
    /// Builds a set of feature variables, and of identities as category and type.
    pub fn new<'a>(
        features: impl IntoIterator<Item = &'a str>,
        identities: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> FeatureSet {
        let mut features: Vec<Box<str>> = features.into_iter().map(Into::into).collect();
        features.sort_unstable();
        features.dedup();
        let identities = identities.into_iter().map(|(category, kind)| (category.into(), kind.into()));
        FeatureSet { features: features.into(), identities: identities.collect() }
    }

    /// Whether the client has this feature.
    pub fn has(&self, var: &str) -> bool {
        self.features.binary_search_by(|f| (**f).cmp(var)).is_ok()
    }

    /// All features, sorted.
    pub fn features(&self) -> impl Iterator<Item = &str> {
        self.features.iter().map(|f| &**f)
    }

    /// Category and type of each identity.
    pub fn identities(&self) -> impl Iterator<Item = (&str, &str)> {
        self.identities.iter().map(|(category, kind)| (&**category, &**kind))
    }

    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let features: usize = self.features.iter().map(|f| f.len() + 32).sum();
        let identities: usize = self.identities.iter().map(|(c, k)| c.len() + k.len() + 64).sum();
        features + identities + 64
    }
}

/// Action required of the caller after an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapsLookup {
    /// The features are known.
    Known(Arc<FeatureSet>),
    /// Another client is being queried, or none can be.
    Wait,
    /// This client must be queried now; [`CapsCache::insert_verified`] or [`CapsCache::query_failed`] must
    /// follow.
    Query,
}

/// Sessions whose features have become known.
#[derive(Debug)]
pub struct VerifiedSessions {
    /// Their [`Session::caps_id`].
    pub number: u32,
    /// Those that waited for the query.
    pub sessions: Vec<Arc<Session>>,
    /// Further sessions have the number.
    pub has_more: bool,
}

enum CapsState {
    Unknown,
    /// The client of this outbox is being queried.
    Querying(u64),
    Known(Arc<FeatureSet>),
}

struct Entry {
    key: Arc<str>,
    /// Generation of the slot: numbers of its earlier entries are invalid.
    generation: u32,
    /// Number of sessions with this fingerprint.
    sessions: u32,
    /// Second of the last announcement.
    last_announced: u32,
    state: CapsState,
    /// Sessions that announced it while another was queried.
    waiting: SmallVec<[Weak<Session>; 1]>,
    /// Outboxes of the clients that failed a query, and until when they are excluded.
    failed: SmallVec<[(u64, u32); 1]>,
}

#[derive(Default)]
struct State {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_key: HashMap<Arc<str>, u32>,
    bytes: usize,
    generation: u32,
}

/// The cache of a node.
pub fn caps_cache(node: &Node) -> Arc<CapsCache> {
    node.extensions.get_or_default()
}

/// Removes the announcement of a session that ends or announces nothing any more.
pub fn withdraw(node: &Node, session: &Session) {
    if session.caps_id.load(Ordering::Relaxed) != 0 {
        caps_cache(node).withdraw(session);
    }
}

/// The features of all clients of a node.
#[derive(Default)]
pub struct CapsCache(LeafMutex<State>);

impl CapsCache {
    /// Records the announcement of a session. `now` is in seconds of the node's clock.
    pub fn announce(&self, session: &Arc<Session>, key: &str, now: u32) -> CapsLookup {
        if key.len() > MAX_KEY_BYTES {
            return CapsLookup::Wait;
        }
        let mut state = self.0.lock();
        // The task that ends the session marks it first, then withdraws it under this lock.
        if session.is_ended() {
            return CapsLookup::Wait;
        }
        let number = session.caps_id.load(Ordering::Relaxed);
        if state.get(number).is_none_or(|entry| &*entry.key != key) {
            state.release(number);
            let number = state.acquire(key, now);
            session.caps_id.store(number, Ordering::Relaxed);
        }
        let number = session.caps_id.load(Ordering::Relaxed);
        let Some(entry) = state.get(number) else { return CapsLookup::Wait };
        entry.last_announced = now;
        match &entry.state {
            CapsState::Known(set) => CapsLookup::Known(set.clone()),
            CapsState::Querying(_) => {
                let known =
                    entry.waiting.iter().any(|waiting| std::ptr::eq(waiting.as_ptr(), Arc::as_ptr(session)));
                if !known && entry.waiting.len() < MAX_WAITING && !entry.is_backing_off(session, now) {
                    entry.waiting.push(Arc::downgrade(session));
                }
                CapsLookup::Wait
            }
            CapsState::Unknown if entry.is_backing_off(session, now) => CapsLookup::Wait,
            CapsState::Unknown => {
                entry.state = CapsState::Querying(session.outbox.id);
                CapsLookup::Query
            }
        }
    }

    fn withdraw(&self, session: &Session) {
        let mut state = self.0.lock();
        state.release(session.caps_id.swap(0, Ordering::Relaxed));
    }

    /// Features of the session's client; `None` if it announced nothing, or nothing that is verified.
    pub fn features(&self, session: &Session) -> Option<Arc<FeatureSet>> {
        let number = session.caps_id.load(Ordering::Relaxed);
        if number == 0 {
            return None;
        }
        match &self.0.lock().get(number)?.state {
            CapsState::Known(set) => Some(set.clone()),
            _ => None,
        }
    }

    /// Inserts a set that was verified against its fingerprint. A set that is too large is not stored. Returns the sessions whose
    /// features are known by this, besides the one that was queried; `None` if nothing was stored.
    pub fn insert_verified(&self, key: &str, set: FeatureSet) -> Option<VerifiedSessions> {
        let mut state = self.0.lock();
        let bytes = set.bytes();
        let index = state.by_key.get(key).copied()?;
        let fits = bytes <= MAX_SET_BYTES;
        let entry = state.slots.get_mut(index as usize).and_then(Option::as_mut)?;
        if matches!(entry.state, CapsState::Known(_)) {
            return None;
        }
        let waiting = std::mem::take(&mut entry.waiting);
        entry.failed = SmallVec::new();
        entry.state = if fits { CapsState::Known(Arc::new(set)) } else { CapsState::Unknown };
        if !fits {
            return None;
        }
        let number = entry.generation << INDEX_BITS | index;
        let sessions: Vec<Arc<Session>> = waiting
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|session| session.caps_id.load(Ordering::Relaxed) == number)
            .collect();
        let others = usize::try_from(entry.sessions).unwrap_or(usize::MAX).saturating_sub(1);
        let verified = VerifiedSessions { number, has_more: others > sessions.len(), sessions };
        state.bytes += bytes;
        while state.bytes > MAX_BYTES && state.evict(Some(index)) {}
        Some(verified)
    }

    /// Records a failed query. Returns the next session to query, if there is any.
    pub fn query_failed(&self, key: &str, session: &Session, now: u32) -> Option<Arc<Session>> {
        let mut state = self.0.lock();
        let index = state.by_key.get(key).copied()?;
        let entry = state.slots.get_mut(index as usize)?.as_mut()?;
        if !matches!(entry.state, CapsState::Querying(outbox) if outbox == session.outbox.id) {
            return None;
        }
        if entry.failed.len() >= MAX_WAITING {
            entry.failed.remove(0);
        }
        entry.failed.push((session.outbox.id, now.saturating_add(RETRY_AFTER_SECONDS)));
        while !entry.waiting.is_empty() {
            let next = entry.waiting.remove(0).upgrade();
            // It may have announced another fingerprint since.
            if let Some(next) = next.filter(|next| !next.is_ended() && !entry.is_backing_off(next, now)) {
                entry.state = CapsState::Querying(next.outbox.id);
                return Some(next);
            }
        }
        entry.state = CapsState::Unknown;
        None
    }

    /// Ends a query without a client; the next session that announces the fingerprint is queried.
    pub fn abandon_query(&self, key: &str) {
        let mut state = self.0.lock();
        if let Some(&index) = state.by_key.get(key)
            && let Some(Some(entry)) = state.slots.get_mut(index as usize)
            && matches!(entry.state, CapsState::Querying(_))
        {
            entry.state = CapsState::Unknown;
        }
    }

    /// Number of fingerprints, and bytes of their sets.
    pub fn usage(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.by_key.len(), state.bytes)
    }
}

impl Entry {
    fn is_backing_off(&self, session: &Session, now: u32) -> bool {
        self.failed.iter().any(|(outbox, until)| *outbox == session.outbox.id && now < *until)
    }

    fn bytes(&self) -> usize {
        match &self.state {
            CapsState::Known(set) => set.bytes(),
            _ => 0,
        }
    }
}

impl State {
    /// The entry of a number; none if it was evicted.
    fn get(&mut self, number: u32) -> Option<&mut Entry> {
        let entry = self.slots.get_mut((number & INDEX) as usize)?.as_mut()?;
        (number >> INDEX_BITS == entry.generation).then_some(entry)
    }

    /// Removes one session from an entry. An entry without sessions remains only if its features are known.
    fn release(&mut self, number: u32) {
        let Some(entry) = self.get(number) else { return };
        entry.sessions = entry.sessions.saturating_sub(1);
        if entry.sessions == 0 && !matches!(entry.state, CapsState::Known(_)) {
            self.remove(number & INDEX);
        }
    }

    fn remove(&mut self, index: u32) -> bool {
        let Some(entry) = self.slots.get_mut(index as usize).and_then(Option::take) else { return false };
        self.bytes = self.bytes.saturating_sub(entry.bytes());
        self.by_key.remove(&entry.key);
        self.free.push(index);
        true
    }

    /// Adds one session to the entry of this fingerprint; returns its number.
    fn acquire(&mut self, key: &str, now: u32) -> u32 {
        if let Some(&index) = self.by_key.get(key)
            && let Some(Some(entry)) = self.slots.get_mut(index as usize)
        {
            entry.sessions += 1;
            return entry.generation << INDEX_BITS | index;
        }
        if self.by_key.len() >= MAX_ENTRIES {
            self.evict(None);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                // Never more slots than `MAX_ENTRIES`, so the number fits.
                let index = u32::try_from(self.slots.len()).unwrap_or(INDEX);
                self.slots.push(None);
                index
            }
        };
        // Never zero, so that no number is zero.
        self.generation = self.generation % (u32::MAX >> INDEX_BITS) + 1;
        let key: Arc<str> = key.into();
        let entry = Entry {
            key: key.clone(),
            generation: self.generation,
            sessions: 1,
            last_announced: now,
            state: CapsState::Unknown,
            waiting: SmallVec::new(),
            failed: SmallVec::new(),
        };
        let number = entry.generation << INDEX_BITS | index;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            *slot = Some(entry);
        }
        self.by_key.insert(key, index);
        number
    }

    /// Evicts an entry; false if there is none to evict.
    fn evict(&mut self, keep: Option<u32>) -> bool {
        let entries = (0..=INDEX).zip(&self.slots).filter_map(|(i, e)| Some((i, e.as_ref()?)));
        // Unverified entries first, so that many unverified announcements evict nothing that is verified.
        let rank = |e: &Entry| {
            (matches!(e.state, CapsState::Known(_)) && e.sessions > 0, e.sessions, e.last_announced)
        };
        let worst = entries.filter(|(i, _)| Some(*i) != keep).min_by_key(|(_, e)| rank(e));
        let Some(index) = worst.map(|(index, _)| index) else { return false };
        self.remove(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(clients: &CapsCache, key: &str, bytes: usize, now: u32) -> u32 {
        let number = clients.0.lock().acquire(key, now);
        let long = "x".repeat(bytes);
        clients.insert_verified(key, FeatureSet::new([long.as_str()], []));
        number
    }

    fn is_there(clients: &CapsCache, number: u32) -> bool {
        clients.0.lock().get(number).is_some()
    }

    #[test]
    fn the_id_of_an_evicted_entry_is_invalid() {
        let mut state = State::default();
        let first = state.acquire("a", 1);
        assert_eq!(state.acquire("a", 2), first);
        state.release(first);
        assert!(state.get(first).is_some());
        state.release(first);
        assert!(state.get(first).is_none(), "nobody has it and nobody knows it");
        let second = state.acquire("b", 3);
        assert_eq!(first % MAX_ENTRIES as u32, second % MAX_ENTRIES as u32, "the slot is reused");
        assert!(state.get(first).is_none() && state.get(second).is_some() && state.get(0).is_none());
        state.release(first);
        assert!(state.get(second).is_some(), "an old number takes nothing from a new one");
    }

    #[test]
    fn a_full_cache_evicts_unverified_then_unused_then_rare_entries() {
        let clients = CapsCache::default();
        let unused = known(&clients, "unused", 10, 1);
        clients.0.lock().release(unused);
        let old = known(&clients, "old", 10, 1);
        let new = known(&clients, "new", 10, 5);
        let many = known(&clients, "many", 10, 1);
        clients.0.lock().acquire("many", 1);
        let fill = |from: usize| {
            for i in from..MAX_ENTRIES {
                clients.0.lock().acquire(&format!("unknown {i}"), 9);
            }
        };
        fill(4);
        assert_eq!(clients.usage().0, MAX_ENTRIES);
        clients.0.lock().acquire("one more", 10);
        assert_eq!(clients.usage().0, MAX_ENTRIES);
        assert!(is_there(&clients, old) && is_there(&clients, new) && is_there(&clients, many));
        assert!(!is_there(&clients, unused), "nobody has it");
        let mut state = clients.0.lock();
        // The remaining entries are evicted in this order.
        let unknown = MAX_ENTRIES - 3;
        for _ in 0..unknown {
            assert!(state.evict(None));
        }
        assert!(state.get(old).is_some() && state.by_key.len() == 3);
        state.evict(None);
        assert!(state.get(old).is_none() && state.get(new).is_some());
        state.evict(None);
        assert!(state.get(new).is_none() && state.get(many).is_some());
        state.evict(None);
        assert!(!state.evict(None) && state.bytes == 0 && state.by_key.is_empty());
    }

    #[test]
    fn bytes_are_bounded_and_an_oversized_set_is_not_cached() {
        let clients = CapsCache::default();
        known(&clients, "large", MAX_SET_BYTES + 1, 1);
        assert_eq!(clients.usage(), (1, 0));
        for i in 0..2 * MAX_BYTES / (MAX_SET_BYTES / 2) {
            known(&clients, &format!("k{i}"), MAX_SET_BYTES / 2, 2);
            assert!(clients.usage().1 <= MAX_BYTES);
        }
        assert!(clients.usage().1 > MAX_BYTES - MAX_SET_BYTES);
    }

    #[test]
    fn a_feature_set_is_queried_by_name() {
        let set = FeatureSet::new(["b", "a", "b"], [("client", "pc")]);
        assert!(set.has("a") && set.has("b") && !set.has("c") && !set.has(""));
        assert_eq!(set.features().collect::<Vec<_>>(), ["a", "b"]);
    }
}
