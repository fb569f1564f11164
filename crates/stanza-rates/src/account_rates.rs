//! Rates that the sessions of each account had spent when they ended or lost their connection: RFC 6120, section 13.12.
//!
//! The reason is in `session_rates.rs`: a reconnect must not refill a bucket.

use std::hash::{BuildHasher, RandomState};

use base::lock::LeafMutex;
use base::token_bucket::TokenBucket;
use hashbrown::HashMap;
use store::AddressId;

use crate::SessionRates;
use crate::session_rates::{Levels, RateLimits, full_at, to_millis};

/// Buckets of [`SpentRates`].
pub(crate) const MISSING: usize = 7;
const SHARDS: usize = 16;
/// Accounts stored in a shard. With [`MAX_ENTRY_BYTES`] 4.3 MB in total, whatever the accounts are called.
const ACCOUNTS: usize = 1_024;
/// Bytes of a stored account: the boxed buckets, and two slots of the map, which is at least half full.
const MAX_ENTRY_BYTES: usize =
    size_of::<AccountSpending>() + 2 * (size_of::<(AddressId, Box<AccountSpending>)>() + 1);

const _: () = assert!(SHARDS * ACCOUNTS * MAX_ENTRY_BYTES <= 4_300_000);

/// What the sessions of an account have spent.
#[derive(Clone, Debug)]
pub struct SpentRates {
    /// The sum.
    pub(crate) shared: Levels,
    /// The lowest level of a single session: stanzas and bytes.
    pub(crate) lowest: [TokenBucket; 2],
}

impl SpentRates {
    /// Tokens that are missing at second `now`: in the buckets of the sum, and in those of the single session.
    pub(crate) fn missing(&self, now: u32) -> [u32; MISSING] {
        let all: Vec<u32> =
            self.shared.iter().chain(&self.lowest).map(|bucket| bucket.missing(to_millis(now))).collect();
        std::array::from_fn(|at| all.get(at).copied().unwrap_or_default())
    }

    /// What lacks these tokens at second `now` where these limits apply.
    pub fn with_missing(configured_limits: RateLimits, missing: &[u32; MISSING], now: u32) -> SpentRates {
        let full = SessionRates::new(configured_limits).buckets().map(|bucket| *bucket);
        let [a, b, c, d, e, single @ ..] = *missing;
        let charge = |mut bucket: TokenBucket, missing: u32| {
            bucket.charge(missing, to_millis(now));
            bucket
        };
        let mut shared = full;
        for (bucket, missing) in shared.iter_mut().zip([a, b, c, d, e]) {
            *bucket = charge(*bucket, missing);
        }
        let [stanzas, bytes, ..] = full;
        SpentRates { shared, lowest: [charge(stanzas, single[0]), charge(bytes, single[1])] }
    }

    /// The lowest level of a single session in the bucket of this number. Only stanzas and bytes are charged after the fact,
    /// so only these can be in debt.
    pub(crate) fn single(&self, at: usize) -> TokenBucket {
        self.lowest.get(at).or(self.shared.get(at)).map_or(TokenBucket::unlimited(), |bucket| {
            if at < self.lowest.len() { *bucket } else { bucket.filled() }
        })
    }

    /// Adds what was spent earlier. The limits are those of `self`, which are the present ones.
    pub(crate) fn add(&mut self, earlier: &SpentRates, now: u32) {
        for (sum, earlier) in self.shared.iter_mut().zip(&earlier.shared) {
            sum.charge_difference(&earlier.filled(), earlier, to_millis(now));
        }
        for (lowest, earlier) in self.lowest.iter_mut().zip(&earlier.lowest) {
            lowest.carry(earlier, to_millis(now));
        }
    }

    pub(crate) fn full_at(&self, now: u32) -> u32 {
        full_at(self.shared.each_ref(), now)
    }
}

/// What sessions had spent when they ended or lost their connection, summed for their account until it is refilled.
///
/// An account is known by its number, which takes no more room for a long name. Without room, the account that would be
/// refilled first is removed.
#[derive(Default)]
pub struct AccountRates {
    hasher: RandomState,
    shards: [LeafMutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    accounts: HashMap<AddressId, Box<AccountSpending>>,
    /// Second at which refilled accounts were last removed.
    swept: u32,
}

struct AccountSpending {
    spent: SpentRates,
    full_at: u32,
}

impl Shard {
    fn sweep(&mut self, now: u32) {
        if self.swept != now {
            self.swept = now;
            self.accounts.retain(|_, stored| stored.full_at > now);
            if self.accounts.is_empty() {
                self.accounts = HashMap::new();
            }
        }
    }
}

impl AccountRates {
    fn shard(&self, account: AddressId) -> &LeafMutex<Shard> {
        #[allow(clippy::cast_possible_truncation, reason = "any bits of a hash do")]
        let at = self.hasher.hash_one(account) as usize % SHARDS;
        &self.shards[at]
    }

    /// Adds what a session has spent to the sum of its account.
    pub fn keep(&self, account: AddressId, mut spent: SpentRates, now: u32) {
        let full_at = spent.full_at(now);
        if full_at <= now {
            return;
        }
        let mut shard = self.shard(account).lock();
        shard.sweep(now);
        if let Some(stored) = shard.accounts.get_mut(&account) {
            spent.add(&stored.spent, now);
            **stored = AccountSpending { full_at: spent.full_at(now), spent };
            return;
        }
        if shard.accounts.len() >= ACCOUNTS {
            let first = shard.accounts.iter().min_by_key(|(_, stored)| stored.full_at);
            let Some((first, _)) = first.filter(|(_, stored)| stored.full_at < full_at) else { return };
            let first = *first;
            shard.accounts.remove(&first);
        }
        shard.accounts.insert(account, Box::new(AccountSpending { spent, full_at }));
    }

    /// What the sessions of an account have spent, until it is refilled.
    pub fn find(&self, account: AddressId, now: u32) -> Option<SpentRates> {
        let shard = self.shard(account).lock();
        let stored = shard.accounts.get(&account).filter(|stored| stored.full_at > now)?;
        Some(stored.spent.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionRates {
        SessionRates::new([0, 0, 10, 100, 0, 0, 0, 0, 0, 0])
    }

    fn spent(bytes: usize, now: u32) -> SpentRates {
        let mut rates = session();
        rates.charge_bytes(bytes, now);
        rates.take_spent(now)
    }

    fn account(number: usize) -> AddressId {
        AddressId(std::num::NonZeroU32::new(u32::try_from(number).unwrap() + 1).unwrap())
    }

    /// The buckets of a session that starts.
    fn start(account_rates: &AccountRates, account: AddressId, now: u32) -> SessionRates {
        SessionRates::starting(*session().limits(), account_rates.find(account, now), now)
    }

    fn left(rates: &SessionRates, now: u32) -> u32 {
        rates.bytes.available(to_millis(now))
    }

    #[test]
    fn spending_of_the_sessions_of_an_account_is_summed_until_it_is_refilled() {
        let account_rates = AccountRates::default();
        let (a, b) = (account(0), account(1));
        let left = |now| account_rates.find(a, now).map(|spent| spent.shared[1].available(to_millis(now)));
        account_rates.keep(a, spent(0, 1), 1);
        assert_eq!(left(1), None, "full buckets need no memory");
        account_rates.keep(a, spent(60, 1), 1);
        account_rates.keep(a, spent(20, 1), 1);
        assert_eq!(
            (left(1), account_rates.find(b, 1).is_none()),
            (Some(20), true),
            "the sum, and nobody else's"
        );
        assert_eq!((left(2), left(8), left(9)), (Some(30), Some(90), None));
        account_rates.keep(b, spent(1, 7), 7);
        account_rates.keep(a, spent(150, 9), 9);
        assert_eq!(start(&account_rates, a, 9).debt(9), Some(("bytes", 14)), "a debt is kept, too");
    }

    #[test]
    fn reconnecting_sessions_have_no_burst_until_the_debt_of_all_is_repaid() {
        let account_rates = AccountRates::default();
        let a = account(0);
        for _ in 0..10 {
            account_rates.keep(a, spent(100, 1), 1);
        }
        // Ten seconds refill one burst of the ten.
        for now in [1, 11, 91] {
            let rates = start(&account_rates, a, now);
            assert_eq!(
                (left(&rates, now), rates.debt(now)),
                (0, None),
                "no burst, but no debt of others either"
            );
        }
        assert_eq!(left(&start(&account_rates, a, 96), 96), 50);
        assert!(account_rates.find(a, 101).is_none());
    }

    #[test]
    fn each_byte_is_charged_to_the_account_once() {
        let account_rates = AccountRates::default();
        let a = account(0);
        account_rates.keep(a, spent(60, 1), 1);
        for _ in 0..5 {
            // What it began with was spent by another session.
            let mut rates = start(&account_rates, a, 1);
            assert_eq!(left(&rates, 1), 40);
            account_rates.keep(a, rates.take_spent(1), 1);
        }
        let mut rates = start(&account_rates, a, 2);
        rates.charge_bytes(30, 2);
        for _ in 0..5 {
            account_rates.keep(a, rates.take_spent(2), 2);
        }
        assert_eq!(left(&start(&account_rates, a, 2), 2), 20);
        // Changed limits charge nothing either.
        let mut wider = SessionRates::new((*session().limits()).map(|limit| limit * 2));
        wider.carry(&rates, 2);
        account_rates.keep(a, wider.take_spent(2), 2);
        assert_eq!(left(&start(&account_rates, a, 2), 2), 20);
    }

    #[test]
    fn a_flood_of_accounts_uses_no_more_memory_and_does_not_evict_the_largest_debt() {
        let account_rates = AccountRates::default();
        let a = account(0);
        account_rates.keep(a, spent(5_000, 1), 1);
        for n in 0..SHARDS * ACCOUNTS * 2 {
            account_rates.keep(account(n + 1), spent(50, 1), 1);
        }
        assert!(account_rates.find(a, 1).is_some());
        let accounts = || account_rates.shards.iter().map(|shard| shard.lock().accounts.len());
        assert!(accounts().all(|count| count == ACCOUNTS));
        let capacity: usize = account_rates.shards.iter().map(|shard| shard.lock().accounts.capacity()).sum();
        assert!(capacity <= 2 * SHARDS * ACCOUNTS, "{capacity}: see MAX_ENTRY_BYTES");
        for n in 0..SHARDS * 100 {
            account_rates.keep(account(n + 1), spent(1, 60), 60);
        }
        assert!(accounts().sum::<usize>() <= SHARDS * 100 + 1, "and the memory is released");
    }
}
