//! Cache of passwords that were right: for a short time, a client that logs in again causes no request.
//!
//! An entry is a keyed hash of address and password, never the password. The key is random and lives as long as the process,
//! so a copy of the memory allows guesses, but a copy of the disk does not. A hash that is cheap to compute is enough for
//! that, and a costly one would make the cache pointless.
//!
//! Wrong passwords are not cached: an account that was just created, or whose password was just changed, must work at once.
//!
//! # Pitfalls
//!
//! For [`PasswordCache::new`]'s `lifetime`, an account that was removed at the provider may log in.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::lock::LeafMutex;
use base::{Millis, Secret};
use environment::account_provider::{PasswordCheck, ProvidedAccount, ProviderError};
use jid::{Jid, JidRef};
use ring::hmac;

/// Most accounts in a cache; then the oldest entry is dropped.
pub const MAX_ENTRIES: usize = 10_000;

/// Cache of right passwords, one per account.
pub struct PasswordCache {
    key: hmac::Key,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    entries: LeafMutex<CacheEntries>,
}

/// A time before a password was checked. A result is not remembered if this server has changed a password since then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheEpoch(u64);

/// A change in progress; see [`PasswordCache::begin_change`].
#[must_use = "the account is forgotten when it is dropped"]
pub struct ChangeGuard<'a> {
    cache: &'a PasswordCache,
    account: Jid,
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        let mut entries = self.cache.entries.lock();
        entries.changes += 1;
        entries.by_account.remove(&self.account);
    }
}

#[derive(Default)]
struct CacheEntries {
    by_account: HashMap<Jid, CacheEntry>,
    /// Changes of passwords by this server.
    changes: u64,
    /// In the order of expiry. An entry that was replaced or removed is skipped.
    order: VecDeque<(Millis, Jid)>,
}

struct CacheEntry {
    tag: [u8; 32],
    expires: Millis,
    account: ProvidedAccount,
}

impl PasswordCache {
    /// An empty cache. Entries expire after `lifetime`; with zero, nothing is cached.
    pub fn new(lifetime: Duration, clock: Arc<dyn Clock>) -> PasswordCache {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &base::id::random_bytes::<32>());
        PasswordCache { key, lifetime, clock, entries: LeafMutex::default() }
    }

    /// The account, if this password was right a short time ago. `None` says nothing about the password.
    pub fn get(&self, account: JidRef<'_>, password: &Secret) -> Option<ProvidedAccount> {
        if self.lifetime.is_zero() {
            return None;
        }
        let (jid, now) = (account.bare().to_jid(), self.clock.now());
        let tag = self.tag(&jid, password);
        let entries = self.entries.lock();
        let entry = entries.by_account.get(&jid).filter(|entry| entry.expires > now)?;
        base::secret::constant_time_eq(&entry.tag, &tag).then(|| entry.account.clone())
    }

    /// The cached result, or that of `check`, which is remembered if the password is right.
    ///
    /// # Errors
    /// Those of `check`.
    pub async fn get_or_check(
        &self,
        account: JidRef<'_>,
        password: &Secret,
        check: impl Future<Output = Result<PasswordCheck, ProviderError>>,
    ) -> Result<PasswordCheck, ProviderError> {
        if let Some(found) = self.get(account, password) {
            return Ok(PasswordCheck::Valid(found));
        }
        let epoch = self.epoch();
        let checked = check.await?;
        if let PasswordCheck::Valid(found) = &checked {
            self.put(account, password, found, epoch);
        }
        Ok(checked)
    }

    /// The time before a check; see [`PasswordCache::put`].
    pub fn epoch(&self) -> CacheEpoch {
        CacheEpoch(self.entries.lock().changes)
    }

    /// Remembers a password that was right in a check that began at `epoch`.
    pub fn put(&self, account: JidRef<'_>, password: &Secret, provided: &ProvidedAccount, epoch: CacheEpoch) {
        if self.lifetime.is_zero() {
            return;
        }
        let (jid, now) = (account.bare().to_jid(), self.clock.now());
        let (tag, expires) = (self.tag(&jid, password), now + self.lifetime);
        let mut entries = self.entries.lock();
        let entries = &mut *entries;
        // The check may have read the password before the change. Changes are rare, so those of all accounts count.
        if entries.changes != epoch.0 {
            return;
        }
        while let Some((oldest, _)) = entries.order.front()
            && (*oldest <= now || entries.order.len() >= MAX_ENTRIES)
        {
            let Some((oldest, name)) = entries.order.pop_front() else { break };
            if entries.by_account.get(&name).is_some_and(|entry| entry.expires == oldest) {
                entries.by_account.remove(&name);
            }
        }
        entries.order.push_back((expires, jid.clone()));
        entries.by_account.insert(jid, CacheEntry { tag, expires, account: provided.clone() });
    }

    /// A change of the account by this server. The account is forgotten when the guard is dropped, so also if the change has
    /// failed or its caller is gone: the provider may have made it all the same.
    pub fn begin_change(&self, account: JidRef<'_>) -> ChangeGuard<'_> {
        ChangeGuard { cache: self, account: account.bare().to_jid() }
    }

    fn tag(&self, account: &Jid, password: &Secret) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(account.as_str().as_bytes());
        // No address has it.
        context.update(&[0]);
        context.update(password.expose());
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ManualClock;

    fn jid(name: &str) -> Jid {
        Jid::parse(&format!("{name}@example.net")).unwrap()
    }

    fn cache(seconds: u64) -> (PasswordCache, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new());
        (PasswordCache::new(Duration::from_secs(seconds), clock.clone()), clock)
    }

    #[test]
    fn only_the_same_password_of_the_same_account_is_found_until_it_expires() {
        let (cache, clock) = cache(60);
        let (romeo, juliet, right) = (jid("romeo"), jid("juliet"), Secret::from("0rchard"));
        let found = ProvidedAccount { version: Some(vec![1]), ..ProvidedAccount::default() };
        cache.put(romeo.as_ref(), &right, &found, cache.epoch());
        assert_eq!(cache.get(romeo.as_ref(), &right), Some(found.clone()));
        assert_eq!(cache.get(juliet.as_ref(), &right), None);
        assert_eq!(cache.get(romeo.as_ref(), &Secret::from("0rchar")), None);
        clock.advance(59_999);
        assert!(cache.get(romeo.as_ref(), &right).is_some());
        clock.advance(1);
        assert_eq!(cache.get(romeo.as_ref(), &right), None);
        cache.put(romeo.as_ref(), &right, &found, cache.epoch());
        drop(cache.begin_change(romeo.as_ref()));
        assert_eq!(cache.get(romeo.as_ref(), &right), None);
    }

    #[test]
    fn a_check_that_began_before_a_change_is_not_remembered() {
        let (cache, _) = cache(60);
        let (romeo, earlier) = (jid("romeo"), Secret::from("0rchard"));
        let epoch = cache.epoch();
        drop(cache.begin_change(romeo.as_ref()));
        cache.put(romeo.as_ref(), &earlier, &ProvidedAccount::default(), epoch);
        assert_eq!(cache.get(romeo.as_ref(), &earlier), None);
    }

    #[test]
    fn the_number_of_entries_is_bounded_and_old_ones_are_released() {
        let (cache, clock) = cache(60);
        let password = Secret::from("x");
        for n in 0..MAX_ENTRIES + 10 {
            cache.put(jid(&format!("u{n}")).as_ref(), &password, &ProvidedAccount::default(), cache.epoch());
        }
        assert!(cache.entries.lock().order.len() <= MAX_ENTRIES);
        assert!(cache.entries.lock().by_account.len() <= MAX_ENTRIES);
        assert!(cache.get(jid("u0").as_ref(), &password).is_none());
        assert!(cache.get(jid(&format!("u{}", MAX_ENTRIES + 9)).as_ref(), &password).is_some());
        clock.advance(60_000);
        cache.put(jid("last").as_ref(), &password, &ProvidedAccount::default(), cache.epoch());
        assert_eq!(cache.entries.lock().by_account.len(), 1);
        // An account that logs in all the time has many places in the order, but no more than the others together.
        for _ in 0..2 * MAX_ENTRIES {
            cache.put(jid("last").as_ref(), &password, &ProvidedAccount::default(), cache.epoch());
        }
        assert!(cache.entries.lock().order.len() <= MAX_ENTRIES);
        assert!(cache.get(jid("last").as_ref(), &password).is_some());
    }

    #[test]
    fn a_lifetime_of_zero_caches_nothing() {
        let (cache, _) = cache(0);
        cache.put(jid("romeo").as_ref(), &Secret::from("x"), &ProvidedAccount::default(), cache.epoch());
        assert_eq!(cache.get(jid("romeo").as_ref(), &Secret::from("x")), None);
        assert!(cache.entries.lock().by_account.is_empty());
    }
}
