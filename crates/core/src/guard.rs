//! Guessing of passwords: failed logins are counted by address, by account and by both together (RFC 6120 section 13.12:
//! limits against password guessing are the implementation's).
//!
//! Four limits, all within `login_window_seconds` from the first failure on:
//!
//! * one address, one account: [`Limits::login_failures_per_address_and_account`], for passwords and for tokens apart;
//! * one address, all accounts: [`Limits::login_failures_per_address`];
//! * one address, *how many* accounts: [`Limits::login_accounts_per_address`], against one guess for each account;
//! * one account, all addresses: [`Limits::login_failures_per_account`], against many addresses.
//!
//! Who is over one of the last three gets the same refusal whether the secret was right or wrong, or the limit would be
//! none: the right guess must look like a wrong one. That would shut out neighbours behind the same address, and the owner of the account
//! that is attacked. So whoever has logged in to an account from an address before is only subject
//! to the first limit. Tokens (XEP-0484) cannot be guessed: for them, too, only the first limit holds, and it counts tokens
//! alone. So wrong passwords from behind the same address do not shut out a client with a token. They do shut out the
//! password of that account, from that address, until the window is over. Loopback counts as no address: there may be a
//! proxy that hides everybody.
//!
//! What is limited is what a client learns. So every answer about a secret, right or wrong, is first asked for with
//! [`Guard::admit`], which compares and counts in one step: of any number of attempts in parallel, at most the limit are
//! answered, and the rest learn nothing, not even the one with the right password. [`Guard::check`] at the beginning of an
//! attempt only saves the work. Nothing is reserved in between. So nothing can leak, an exchange that is broken off has
//! learnt nothing and costs nothing, and any number of users may log in through one address at the same time.
//!
//! An account that does not exist is counted like one that does.
//!
//! Memory is fixed: 0.5 MB for failures (none before the first) and 0.25 MB for who has logged in. In a full set the
//! place of the fewest failures is taken, so that one who guesses a lot is not forgotten over many who mistyped.
//!
//! Left out: other nodes of a cluster; each counts for itself. The trap: counters forget everything at once when the
//! window is over, so twice the limit may pass in the two halves of a window.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use parking_lot::Mutex;

use crate::limits::Limits;

/// Places that a key may be in.
const WAYS: usize = 4;
/// Sets of the table of failures.
const FAILURES: usize = 4_096;
/// Sets of the table of who has logged in.
const KNOWN: usize = 8_192;

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// This account from this address.
    Pair,
    /// This address.
    Address,
    /// Too many accounts from this address.
    Accounts,
    /// This account from everywhere.
    Account,
}

impl Limited {
    /// For logs and counters.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Limited::Pair => "address-and-account",
            Limited::Address => "address",
            Limited::Accounts => "accounts-of-address",
            Limited::Account => "account",
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Failures {
    /// 0: free.
    key: u64,
    /// Second of the first failure.
    since: u32,
    count: u32,
    /// Which of 128 groups of accounts were tried; for addresses.
    accounts: u128,
}

#[derive(Default)]
struct Tables {
    failures: Vec<Failures>,
    /// Half a hash and the second of the login.
    known: Vec<(u32, u32)>,
}

/// Counts failed logins.
pub struct Guard {
    /// Secret, so that nobody can aim at a place of the tables.
    hasher: RandomState,
    tables: Mutex<Tables>,
}

/// Where the failures of one attempt are counted. Hashed once, for [`Guard::check`] at its beginning and [`Guard::admit`] at
/// its end.
#[derive(Clone, Copy, Debug)]
pub struct AttemptKeys {
    /// None for loopback.
    address: Option<u64>,
    account: u64,
    pair: u64,
    /// Where failures of the pair are counted: apart for tokens.
    failures: u64,
    token: bool,
}

impl Guard {
    /// An empty one.
    #[must_use]
    pub fn new() -> Guard {
        Guard { hasher: RandomState::new(), tables: Mutex::new(Tables::default()) }
    }

    /// The keys of an attempt to log in from `peer` to `account` (a normalised address). `token`: with something that cannot
    /// be guessed.
    #[must_use]
    pub fn keys(&self, peer: IpAddr, account: &str, token: bool) -> AttemptKeys {
        let origin = base::network_number(peer);
        let pair = self.hasher.hash_one((3u8, origin, account)) | 1;
        AttemptKeys {
            address: (!peer.is_loopback()).then(|| self.hasher.hash_one((1u8, origin)) | 1),
            account: self.hasher.hash_one((2u8, account)) | 1,
            pair,
            failures: if token { self.hasher.hash_one((4u8, origin, account)) | 1 } else { pair },
            token,
        }
    }

    /// Whether an attempt may begin at second `now`.
    ///
    /// # Errors
    /// The limit that was reached.
    pub fn check(&self, limits: &Limits, now: u32, keys: &AttemptKeys) -> Result<(), Limited> {
        self.tables.lock().check(limits, now, keys)
    }

    /// Asks whether the client may be answered if its secret was `right`; counts the answer in the same step.
    ///
    /// A wrong password, and an account that does not exist, count as a failure. A wrong token does not count against
    /// the account, nor against its password from this address: it is no guess at that. After a right secret, this account is judged apart from others at this
    /// address.
    ///
    /// # Errors
    /// The limit that was reached. Nothing is counted then, and the answer must be the same for a right and a wrong secret.
    pub fn admit(&self, limits: &Limits, now: u32, keys: &AttemptKeys, right: bool) -> Result<(), Limited> {
        let mut tables = self.tables.lock();
        tables.check(limits, now, keys)?;
        if right {
            tables.succeeded(now, keys);
        } else {
            tables.failed(limits.login_window_seconds, now, keys);
        }
        Ok(())
    }
}

impl Default for Guard {
    fn default() -> Guard {
        Guard::new()
    }
}

impl Tables {
    fn check(&self, limits: &Limits, now: u32, keys: &AttemptKeys) -> Result<(), Limited> {
        let window = limits.login_window_seconds;
        let of = |key: u64| self.failures(key, now, window).unwrap_or_default();
        if of(keys.failures).count >= limits.login_failures_per_address_and_account {
            return Err(Limited::Pair);
        }
        if keys.token || self.is_known(keys.pair) {
            return Ok(());
        }
        if let Some(key) = keys.address {
            let address = of(key);
            if address.count >= limits.login_failures_per_address {
                return Err(Limited::Address);
            }
            if distinct(address.accounts) >= limits.login_accounts_per_address {
                return Err(Limited::Accounts);
            }
        }
        if of(keys.account).count >= limits.login_failures_per_account {
            return Err(Limited::Account);
        }
        Ok(())
    }
    fn failed(&mut self, window: u32, now: u32, keys: &AttemptKeys) {
        if self.failures.is_empty() {
            self.failures = vec![Failures::default(); FAILURES * WAYS];
        }
        let account = (!keys.token).then_some(keys.account);
        for key in [Some(keys.failures), account, keys.address].into_iter().flatten() {
            let entry = self.place(key, now, window);
            entry.count = entry.count.saturating_add(1);
            if Some(key) == keys.address {
                entry.accounts |= 1 << (keys.account >> 57);
            }
        }
    }
    fn succeeded(&mut self, now: u32, keys: &AttemptKeys) {
        if self.known.is_empty() {
            self.known = vec![(0, 0); KNOWN * WAYS];
        }
        self.learn(keys.pair, now);
        if let Some(entry) = self.find(keys.failures) {
            *entry = Failures::default();
        }
    }
    fn set(&self, key: u64) -> std::ops::Range<usize> {
        let start = (key >> 32) as usize % FAILURES * WAYS;
        start..start + WAYS
    }
    fn failures(&self, key: u64, now: u32, window: u32) -> Option<Failures> {
        let set = self.failures.get(self.set(key))?;
        set.iter().find(|f| f.key == key && !f.is_over(now, window)).copied()
    }
    fn find(&mut self, key: u64) -> Option<&mut Failures> {
        let set = self.set(key);
        self.failures.get_mut(set)?.iter_mut().find(|f| f.key == key)
    }
    /// The entry of a key, begun anew if it is not there or its window is over. The table must not be empty.
    fn place(&mut self, key: u64, now: u32, window: u32) -> &mut Failures {
        let set = self.set(key);
        let slots = &self.failures[set.clone()];
        let at = slots.iter().position(|f| f.key == key).unwrap_or_else(|| {
            let cost = |f: &Failures| if f.is_over(now, window) { (0, 0) } else { (f.count, f.since) };
            (0..WAYS).min_by_key(|at| cost(&slots[*at])).unwrap_or_default()
        });
        let entry = &mut self.failures[set.start + at];
        if entry.key != key || entry.is_over(now, window) {
            *entry = Failures { key, since: now, count: 0, accounts: 0 };
        }
        entry
    }
    #[allow(clippy::cast_possible_truncation, reason = "the low half of a hash")]
    fn known_set(key: u64) -> (std::ops::Range<usize>, u32) {
        let start = (key >> 32) as usize % KNOWN * WAYS;
        // The low half has its last bit set, so it is never 0.
        (start..start + WAYS, key as u32)
    }
    fn is_known(&self, key: u64) -> bool {
        let (set, tag) = Tables::known_set(key);
        self.known.get(set).is_some_and(|set| set.iter().any(|k| k.0 == tag))
    }
    fn learn(&mut self, key: u64, now: u32) {
        let (set, tag) = Tables::known_set(key);
        let Some(set) = self.known.get_mut(set) else { return };
        // The same again, else the one that was there longest ago.
        let place = set.iter_mut().min_by_key(|k| (k.0 != tag, k.1));
        if let Some(place) = place {
            *place = (tag, now);
        }
    }
}

impl Failures {
    const fn is_over(&self, now: u32, window: u32) -> bool {
        self.key == 0 || now.saturating_sub(self.since) >= window
    }
}

/// About how many different accounts fell into these 128 groups (linear counting).
#[allow(clippy::cast_possible_truncation, reason = "at most 128 times the logarithm of 128")]
fn distinct(groups: u128) -> u32 {
    let free = 128 - groups.count_ones();
    if free == 0 {
        return u32::MAX;
    }
    (128.0 * (128.0 / f64::from(free)).ln()).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "192.0.2.1";

    struct World {
        guard: Guard,
        limits: Limits,
        now: u32,
    }

    impl World {
        fn new() -> World {
            let limits = Limits {
                login_window_seconds: 600,
                login_failures_per_address_and_account: 3,
                login_failures_per_address: 10,
                login_accounts_per_address: 5,
                login_failures_per_account: 8,
                ..Limits::default()
            };
            World { guard: Guard::new(), limits, now: 100 }
        }
        fn keys(&self, peer: &str, account: &str, token: bool) -> AttemptKeys {
            self.guard.keys(peer.parse().unwrap(), account, token)
        }
        fn check(&self, peer: &str, account: &str) -> Result<(), Limited> {
            self.guard.check(&self.limits, self.now, &self.keys(peer, account, false))
        }
        fn fail(&self, peer: &str, account: &str) -> Result<(), Limited> {
            self.admit(peer, account, false)
        }
        fn admit(&self, peer: &str, account: &str, right: bool) -> Result<(), Limited> {
            self.guard.admit(&self.limits, self.now, &self.keys(peer, account, false), right)
        }
        fn succeed(&self, peer: &str, account: &str) {
            self.admit(peer, account, true).unwrap();
        }
    }

    #[test]
    fn a_pair_is_limited_until_the_window_is_over() {
        let mut w = World::new();
        for _ in 0..3 {
            w.fail(HERE, "juliet@x").unwrap();
        }
        assert_eq!(w.check(HERE, "juliet@x"), Err(Limited::Pair));
        assert_eq!(w.check("192.0.2.2", "juliet@x"), Ok(()), "elsewhere it goes on");
        assert_eq!(w.check(HERE, "romeo@x"), Ok(()));
        w.now += 599;
        assert_eq!(w.check(HERE, "juliet@x"), Err(Limited::Pair));
        w.now += 1;
        assert_eq!(w.check(HERE, "juliet@x"), Ok(()));
    }

    #[test]
    fn of_attempts_in_parallel_only_as_many_as_the_limit_are_answered() {
        // RFC 6120 section 13.12. All were let in before any of them was answered.
        for right in [0, 2, 3, 299] {
            let w = World::new();
            for _ in 0..300 {
                w.check(HERE, "juliet@x").unwrap();
            }
            let answers: Vec<_> = (0..300).map(|n| w.admit(HERE, "juliet@x", n == right)).collect();
            let wrong =
                answers.iter().enumerate().filter(|(n, answer)| *n != right && answer.is_ok()).count();
            assert_eq!(answers[right].is_ok(), right < 3, "the right password is no way around the limit");
            // Whoever has logged in begins anew, for that account and from there only.
            assert_eq!(wrong, if right < 3 { right + 3 } else { 3 });
        }
    }

    #[test]
    fn users_behind_one_address_log_in_at_the_same_time() {
        let w = World::new();
        for n in 0..15_000 {
            w.check(HERE, &format!("user{n}@x")).unwrap();
        }
        for n in 0..15_000 {
            w.admit(HERE, &format!("user{n}@x"), true).unwrap();
        }
    }

    #[test]
    fn success_forgives_the_pair_but_not_the_address() {
        let w = World::new();
        w.fail(HERE, "mallory@x").unwrap();
        w.fail(HERE, "mallory@x").unwrap();
        w.succeed(HERE, "mallory@x");
        w.fail(HERE, "mallory@x").unwrap();
        w.fail(HERE, "mallory@x").unwrap();
        assert_eq!(w.check(HERE, "mallory@x"), Ok(()));
        // Mallory's own logins do not make room for more guesses at others.
        for account in ["a@x", "b@x"] {
            for _ in 0..3 {
                w.fail(HERE, account).unwrap();
            }
            w.succeed(HERE, "mallory@x");
        }
        assert_eq!(w.check(HERE, "c@x"), Err(Limited::Address));
    }

    #[test]
    fn guessing_across_accounts_ends_and_known_neighbours_get_in() {
        let w = World::new();
        w.succeed(HERE, "neighbour@x");
        let tried = (0..100).take_while(|n| w.fail(HERE, &format!("user{n}@x")).is_ok()).count();
        assert!((4..=8).contains(&tried), "{tried} accounts where 5 are allowed");
        assert_eq!(w.check(HERE, "another@x"), Err(Limited::Accounts));
        assert_eq!(w.check(HERE, "neighbour@x"), Ok(()));
        assert_eq!(w.check("192.0.2.2", "another@x"), Ok(()));
        let token = w.guard.check(&w.limits, w.now, &w.keys(HERE, "another@x", true));
        assert_eq!(token, Ok(()));
    }

    #[test]
    fn guesses_at_the_password_and_at_tokens_do_not_limit_each_other() {
        let admit = |w: &World, token, right| {
            w.guard.admit(&w.limits, w.now, &w.keys(HERE, "juliet@x", token), right)
        };
        for guessed in [false, true] {
            let w = World::new();
            for _ in 0..3 {
                admit(&w, guessed, false).unwrap();
            }
            assert_eq!(admit(&w, guessed, true), Err(Limited::Pair));
            assert_eq!(admit(&w, !guessed, true), Ok(()));
            // The right one of the other kind is no way around the limit.
            assert_eq!(admit(&w, guessed, true), Err(Limited::Pair));
        }
    }

    #[test]
    fn an_attack_from_everywhere_does_not_lock_the_owner_out() {
        let w = World::new();
        w.succeed("198.51.100.7", "juliet@x");
        let tried = (0..100).take_while(|n| w.fail(&format!("192.0.2.{n}"), "juliet@x").is_ok()).count();
        assert_eq!(tried, 8);
        assert_eq!(w.check("203.0.113.9", "juliet@x"), Err(Limited::Account));
        assert_eq!(w.check("198.51.100.7", "juliet@x"), Ok(()));
    }

    #[test]
    fn addresses_of_one_customer_are_one_and_loopback_is_none() {
        let mut w = World::new();
        w.limits.login_accounts_per_address = 100;
        for n in 0..10 {
            w.fail(&format!("2001:db8:1:2::{n:x}"), &format!("user{n}@x")).unwrap();
        }
        assert_eq!(w.check("2001:db8:1:2:ffff::1", "juliet@x"), Err(Limited::Address));
        assert_eq!(w.check("2001:db8:1:3::1", "juliet@x"), Ok(()));
        for n in 0..50 {
            w.fail("127.0.0.1", &format!("user{n}@y")).unwrap();
        }
        assert_eq!(w.check("127.0.0.1", "juliet@x"), Ok(()));
    }

    #[test]
    fn a_flood_of_addresses_takes_no_more_memory_and_does_not_wash_the_worst_out() {
        let w = World::new();
        for _ in 0..3 {
            w.fail(HERE, "juliet@x").unwrap();
        }
        for n in 0..200_000u32 {
            let peer = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
            let keys = w.guard.keys(peer, &format!("user{n}@x"), false);
            let _ = w.guard.admit(&w.limits, w.now, &keys, false);
            let _ = w.guard.admit(&w.limits, w.now, &keys, true);
        }
        let tables = w.guard.tables.lock();
        assert_eq!((tables.failures.len(), tables.known.len()), (FAILURES * WAYS, KNOWN * WAYS));
        drop(tables);
        assert_eq!(w.check(HERE, "juliet@x"), Err(Limited::Pair));
    }

    #[test]
    fn counting_by_groups_is_near_enough() {
        let guard = Guard::new();
        for many in [1u32, 5, 20, 60, 100] {
            let groups = (0..many).fold(0u128, |g, n| {
                g | 1 << (guard.keys(HERE.parse().unwrap(), &n.to_string(), false).account >> 57)
            });
            let counted = distinct(groups);
            assert!(counted * 10 >= many * 5 && counted <= many * 2 + 2, "{counted} for {many}");
        }
        assert_eq!((distinct(0), distinct(u128::MAX)), (0, u32::MAX));
    }
}
