//! SCRAM key derivation (RFC 5802, section 3, `Hi`) on separate threads, so that no user waits for another one's key.
//!
//! Each account of a real server has its own salt, and deriving its key costs a millisecond of CPU or more. The engine
//! hands the derivation over, and the login continues when the key is available. The wait is recorded separately and is
//! not part of the server's response times. Salts learned by an earlier run are derived before the start.
//!
//! Not implemented: prediction of salts that no run has seen.
//!
//! # Pitfalls
//!
//! A user may be gone, or have another connection, when its key arrives; the key is kept, since the next login needs
//! it.
#![allow(
    clippy::disallowed_types,
    reason = "the generator does not use `base`; no two of these locks are held together"
)]

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use sasl::client::{DerivedKey, KeyDerivation, ScramKeyCache};

use super::event_loop::WorkerEngine;
use super::slot::UserSlot;
use super::virtual_user::WaitState;
use crate::clock::{now_us, thread_cpu_us};
use crate::control::message::{AccountSalt, Assignment};
use crate::measure::{Counter, Timing};

/// Niceness of the threads relative to the engine.
const NICE: i32 = 2;

/// Maximum number of threads of this worker: its share of the machine's cores, of which a local server gets half.
pub(super) fn threads(assignment: &Assignment) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let here = assignment.plan.target.addresses.iter().any(|address| address.ip().is_loopback());
    let cores = if here { cores.div_ceil(2) } else { cores };
    let clock = assignment.clocks.get(usize::from(assignment.worker));
    let workers = assignment.clocks.iter().filter(|other| Some(*other) == clock).count();
    (cores / workers.max(1)).max(1)
}

/// User that waits for a key: slot and epoch.
type WaitingUser = (UserSlot, u32);

struct CompletedDerivation {
    derived: DerivedKey,
    cpu_us: u64,
}

/// State shared by engine and threads. Each user waits for at most one key, so all queues are bounded by the users.
struct PoolState {
    jobs: Mutex<DerivationQueue>,
    more: Condvar,
    done: Mutex<Vec<CompletedDerivation>>,
    wake: OwnedFd,
}

#[derive(Default)]
struct DerivationQueue {
    queue: VecDeque<KeyDerivation>,
    closed: bool,
}

/// Pool of key derivation threads.
pub(super) struct DerivationPool {
    shared: Arc<PoolState>,
    most: usize,
    started: usize,
    /// Users that wait for each key; an import may have given all accounts the same salt.
    waiting: HashMap<[u8; 16], Vec<WaitingUser>>,
    /// CPU time of the derivations taken since the last snapshot, in microseconds.
    pub(super) cpu_us: u64,
}

impl DerivationPool {
    /// Creates a pool of up to `most` threads; none is started before the first derivation.
    pub(super) fn new(most: usize) -> Result<Self> {
        let wake =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("cannot create an eventfd")?;
        let shared = PoolState { jobs: Mutex::default(), more: Condvar::new(), done: Mutex::default(), wake };
        Ok(Self { shared: Arc::new(shared), most, started: 0, waiting: HashMap::new(), cpu_us: 0 })
    }

    /// Descriptor that is readable when keys are available.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Makes `user` wait for a key, which is derived once for all its waiters.
    fn wait_for(&mut self, user: WaitingUser, derivation: KeyDerivation) {
        match self.waiting.entry(derivation.cache_key()) {
            Entry::Occupied(mut others) => others.get_mut().push(user),
            Entry::Vacant(first) => {
                first.insert(vec![user]);
                self.submit(derivation);
            }
        }
    }

    fn submit(&mut self, derivation: KeyDerivation) {
        self.shared.jobs.lock().queue.push_back(derivation);
        self.shared.more.notify_one();
        if self.started < self.most {
            self.started += 1;
            let shared = self.shared.clone();
            let begun = std::thread::Builder::new().name("keys".to_owned()).spawn(move || shared.work());
            if begun.is_err() {
                // The system has no more threads; the existing ones continue.
                self.started -= 1;
                self.most = self.started;
                if self.started == 0 {
                    self.shared.work_once();
                }
            }
        }
    }

    /// Takes the completed derivations.
    fn take(&self) -> Vec<CompletedDerivation> {
        let mut count = [0; 8];
        // An empty counter means that another call has taken everything.
        let _ = rustix::io::read(&self.shared.wake, &mut count);
        std::mem::take(&mut *self.shared.done.lock())
    }
}

impl Drop for DerivationPool {
    fn drop(&mut self) {
        let mut jobs = self.shared.jobs.lock();
        jobs.queue.clear();
        jobs.closed = true;
        drop(jobs);
        self.shared.more.notify_all();
    }
}

impl PoolState {
    fn work(&self) {
        // On Linux this affects the calling thread only. The engine must be on time even when derivations use all
        // cores.
        let _ = rustix::process::nice(NICE);
        loop {
            let mut jobs = self.jobs.lock();
            let derivation = loop {
                if jobs.closed {
                    return;
                }
                match jobs.queue.pop_front() {
                    Some(job) => break job,
                    None => self.more.wait(&mut jobs),
                }
            };
            drop(jobs);
            self.derive(&derivation);
        }
    }

    fn work_once(&self) {
        let job = self.jobs.lock().queue.pop_front();
        if let Some(derivation) = job {
            self.derive(&derivation);
        }
    }

    fn derive(&self, derivation: &KeyDerivation) {
        let before = thread_cpu_us();
        let derived = derivation.derive();
        let cpu_us = thread_cpu_us().saturating_sub(before);
        self.done.lock().push(CompletedDerivation { derived, cpu_us });
        // It fails only when the counter is full, and then the engine is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl WorkerEngine<'_> {
    /// Derives the keys of salts learned by an earlier run. Blocks, since the run has not begun.
    pub(super) fn derive_ahead(&mut self) {
        let began = now_us();
        let salts = &self.assignment.salts;
        let mut wanted = 0_u64;
        // Half of the cache: keys derived during the run must not evict them.
        for salt in salts.iter().take(ScramKeyCache::ENTRIES / 2) {
            if salt.user >= self.plan.accounts.count() {
                continue;
            }
            let password = self.names.password(salt.user);
            let derivation = KeyDerivation::new(salt.hash, &password, &salt.salt, salt.iterations);
            if let Ok(derivation) = derivation {
                self.pool.submit(derivation);
                wanted += 1;
            }
        }
        if self.assignment.learn {
            self.salts = salts.iter().map(|salt| (salt.user, salt.clone())).collect();
        }
        let mut there = 0;
        while there < wanted {
            let done = self.pool.take();
            if done.is_empty() {
                let mut fds = [rustix::event::PollFd::new(&self.pool, rustix::event::PollFlags::IN)];
                // An interrupted poll is retried.
                let _ = rustix::event::poll(&mut fds, None);
            }
            for CompletedDerivation { derived, .. } in done {
                self.keys.put(derived);
                there += 1;
            }
        }
        if wanted > 0 {
            self.record.add(Counter::KeysDerived, wanted);
            self.record.add(Counter::KeysAhead, wanted);
            let took = (now_us() - began) as f64 / 1e6;
            self.record.log(|| format!("{wanted} keys were derived before the start, in {took:.1} s"));
        }
    }

    /// Hands a derivation over. The user waits, and no response timeout of the server runs meanwhile.
    pub(super) fn derive(&mut self, slot: UserSlot, challenge: Vec<u8>, derivation: KeyDerivation) {
        let now = now_us();
        let user = &mut self.users[slot];
        let (account, epoch) = (user.account, user.epoch);
        user.login().challenge = Some((challenge.into(), now));
        self.timers.limit(slot, 0);
        if self.assignment.learn {
            let (hash, salt, iterations) = derivation.parameters();
            let salt = AccountSalt { user: account, hash, salt: salt.to_vec(), iterations };
            self.salts.insert(account, salt);
        }
        self.pool.wait_for((slot, epoch), derivation);
    }

    /// Continues the logins whose keys are available.
    pub(super) fn derived(&mut self) {
        for CompletedDerivation { derived, cpu_us } in self.pool.take() {
            let users = self.pool.waiting.remove(&derived.cache_key()).unwrap_or_default();
            self.keys.put(derived);
            self.pool.cpu_us += cpu_us;
            self.record.add(Counter::KeysDerived, 1);
            self.record.add(Counter::KeysCpu, cpu_us);
            for user in users {
                self.key_is_there(user);
            }
        }
    }

    fn key_is_there(&mut self, (slot, epoch): WaitingUser) {
        let now = now_us();
        let Some(user) = self.users.get_mut(slot) else { return };
        if user.epoch != epoch || user.wait != WaitState::Sasl {
            return;
        }
        let Some(login) = user.login.as_mut() else { return };
        let Some((challenge, since)) = login.challenge.take() else { return };
        // This delay is not the server's: its times start later by the same amount.
        let waited = now.saturating_sub(since);
        login.since += waited;
        if login.due != 0 {
            login.due += waited;
        }
        self.record.time(Timing::Derive, waited);
        self.answer_challenge(slot, &challenge);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        self.flush();
    }
}

impl AsFd for DerivationPool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::SlotIndex as _;
    use super::*;
    use sasl::ScramHash;

    /// Waits for completed derivations.
    fn next(pool: &DerivationPool) -> Vec<CompletedDerivation> {
        loop {
            let done = pool.take();
            if !done.is_empty() {
                return done;
            }
            let mut fds = [rustix::event::PollFd::new(pool, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).unwrap();
        }
    }

    #[test]
    fn a_key_derivation_does_not_block_the_requesting_thread() {
        let mut pool = DerivationPool::new(1).unwrap();
        let before = thread_cpu_us();
        pool.submit(KeyDerivation::new(ScramHash::Sha256, "secret", b"salt", 200_000).unwrap());
        let done = next(&pool);
        let own = thread_cpu_us() - before;
        assert_eq!(done.len(), 1);
        assert!(done[0].cpu_us > own, "{} us elsewhere and {own} us here", done[0].cpu_us);
    }

    #[test]
    fn a_few_threads_derive_many_keys() {
        let mut pool = DerivationPool::new(2).unwrap();
        for user in 0..100_u32 {
            let salt = user.to_be_bytes();
            pool.submit(KeyDerivation::new(ScramHash::Sha1, "secret", &salt, 1).unwrap());
        }
        assert_eq!(pool.started, 2);
        let mut cache_keys = Vec::new();
        while cache_keys.len() < 100 {
            cache_keys.extend(next(&pool).into_iter().map(|done| done.derived.cache_key()));
        }
        cache_keys.sort_unstable();
        cache_keys.dedup();
        assert_eq!(cache_keys.len(), 100);
    }

    #[test]
    fn users_with_one_salt_and_password_wait_for_one_derivation() {
        let mut pool = DerivationPool::new(1).unwrap();
        for user in 0..10 {
            pool.wait_for(
                (UserSlot::at(user), 0),
                KeyDerivation::new(ScramHash::Sha1, "secret", b"salt", 1_000).unwrap(),
            );
        }
        pool.wait_for(
            (UserSlot::at(10), 0),
            KeyDerivation::new(ScramHash::Sha1, "secret", b"another", 1).unwrap(),
        );
        let mut done = Vec::new();
        while done.len() < 2 {
            done.extend(next(&pool));
        }
        let mut waited: Vec<usize> = done
            .iter()
            .filter_map(|done| Some(pool.waiting.remove(&done.derived.cache_key())?.len()))
            .collect();
        waited.sort_unstable();
        assert_eq!((waited, pool.take().len()), (vec![1, 10], 0));
    }
}
