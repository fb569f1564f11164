//! Throttle of failed logins against password guessing, by address, by account and by both together (RFC 6120,
//! section 13.12: such limits are left to the implementation).
//!
//! Four limits, all within `login_window_seconds` from the first failure:
//!
//! * one address, one account: [`NodeLimits::login_failures_per_address_and_account`], counted separately for
//!   passwords and tokens;
//! * one address, all accounts: [`NodeLimits::login_failures_per_address`];
//! * one address, *number of* accounts: [`NodeLimits::login_accounts_per_address`], against one guess for each
//!   account;
//! * one account, all addresses: [`NodeLimits::login_failures_per_account`], against many addresses.
//!
//! Above one of the last three, right and wrong secrets are refused alike, because a right guess must look like
//! a wrong one. That would exclude neighbours with the same address, and the owner of an attacked account. So
//! after a successful login to an account from an address, only the first limit applies to this pair. Tokens
//! (XEP-0484) cannot be guessed: only the first limit applies to them, with a separate count. So wrong
//! passwords from a shared address do not exclude a client with a token. They do exclude the password of that
//! account, from that address, until the window ends. Loopback does not count as an address, because a proxy
//! there may hide all clients.
//!
//! The limits apply to what a client learns. So every answer about a secret, right or wrong, must first pass
//! [`LoginThrottle::check_and_record`], which compares and counts in one step: of any number of parallel
//! attempts, at most the limit are answered, and the others learn nothing, not even the one with the right
//! password. [`LoginThrottle::check`] at the start of an attempt only saves work.
//!
//! A password or a bearer token that takes time to be checked, by a provider or by a hash, is counted from its
//! begin ([`Attempt`]): however many guesses are sent at once, at most the limit are passed on. A proof of SCRAM or
//! of a login token is checked at once and is not counted before it arrives: an aborted exchange has learnt nothing
//! and costs nothing.
//!
//! An account that does not exist is counted like one that does.
//!
//! Memory is fixed: 1.6 MB for failures (none before the first), 2 MB for successful logins, and 0.2 MB for what other nodes
//! will learn, besides up to three entries for each attempt in progress. In a full
//! set the entry with the fewest failures is replaced, so that many users with typing errors do not evict an
//! attacker. A hash with a secret key selects the set; address and name decide.
//!
//! **Other nodes of a cluster** learn of failures and successes in reports (`shared_attempts.rs`), and count them as their own.
//! A report arrives after the next attempts may have been answered, so parallel attempts on several nodes may exceed a limit,
//! at most by its value for each further node. What exceeds it extends the window: at its end the limit is subtracted, and
//! only the rest is counted on. So in a long time no more attempts are answered on many nodes than on one. Successes are
//! shared because failures are: an attacked owner would otherwise be refused on nodes that have not seen the owner's address.
//!
//! Not implemented: a node that joins or restarts learns nothing of what was counted before.
//!
//! # Pitfalls
//!
//! All counts are reset at the end of a window, so twice the limit may pass within the length of one window.

mod attempt;
mod fixed_name;
mod shared_attempts;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use base::ReportSchedule;
use base::lock::LeafMutex;
use throng_core::{Node, NodeLimits};

use self::attempt::{PendingAttempts, WaitingAttempts};
use self::fixed_name::FixedName;
use self::shared_attempts::{AttemptCounts, AttemptIdentity, UnreportedAttempts};

pub use shared_attempts::share_login_attempts;

pub use self::attempt::{Attempt, AttemptOutcome, BeginAttempt, begin};

/// Number of entries in a set.
const ASSOCIATIVITY: usize = 4;
/// Sets of the table of failures.
const FAILURE_SETS: usize = 4_096;
/// Sets of the table of successful logins.
const KNOWN_SETS: usize = 8_192;

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginLimit {
    /// This account from this address.
    Pair,
    /// This address.
    Address,
    /// Too many accounts from this address.
    Accounts,
    /// This account from everywhere.
    Account,
}

impl LoginLimit {
    /// Label value for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            LoginLimit::Pair => "address-and-account",
            LoginLimit::Address => "address",
            LoginLimit::Accounts => "accounts-of-address",
            LoginLimit::Account => "account",
        }
    }
}

/// What the failures of an entry have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Scope {
    /// The entry is free.
    #[default]
    Unused,
    /// One address, all accounts.
    Address,
    /// One account, all addresses.
    Account,
    /// Passwords for one account from one address.
    Password,
    /// Tokens for one account from one address.
    Token,
}

/// Key of an entry of failures. The hash selects the set, and comes first because it nearly always decides a
/// comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FailureKey {
    hash: u64,
    scope: Scope,
    /// 0 for all addresses.
    network: u64,
    /// Empty for all accounts.
    account: FixedName,
}

impl FailureKey {
    const UNUSED: FailureKey =
        FailureKey { hash: 0, scope: Scope::Unused, network: 0, account: FixedName::EMPTY };

    /// The limit of its count, at least 1.
    fn limit(&self, limits: &NodeLimits) -> u32 {
        let limit = match self.scope {
            Scope::Address => limits.login_failures_per_address,
            Scope::Account => limits.login_failures_per_account,
            _ => limits.login_failures_per_address_and_account,
        };
        limit.max(1)
    }
}

#[derive(Clone, Copy)]
struct FailureEntry {
    key: FailureKey,
    /// Second of the first failure, or at which the limit was last subtracted.
    since: u32,
    /// Above the limit only by failures on other nodes.
    count: u32,
    /// Bit for each of 128 groups of accounts that were tried; for addresses.
    accounts: u128,
}

/// An account and an address from which a login succeeded.
#[derive(Clone, Copy)]
struct KnownEntry {
    network: u64,
    /// Second of the login.
    at: u32,
    /// Second at which other nodes last learnt of one.
    shared_at: u32,
    /// Empty: the entry is free.
    account: FixedName,
}

#[derive(Default)]
struct Tables {
    failures: Vec<FailureEntry>,
    known: Vec<KnownEntry>,
    /// Attempts that have begun and are not decided.
    pending: HashMap<FailureKey, PendingAttempts>,
    /// Attempts that wait for these.
    waiting: WaitingAttempts,
    /// What other nodes will learn; `None`: there are none.
    unreported: Option<UnreportedAttempts>,
}

/// Throttle of failed logins.
pub struct LoginThrottle {
    /// Secret key, so that nobody can target a slot of the tables.
    hasher: RandomState,
    tables: LeafMutex<Tables>,
    /// When other nodes learn of attempts; see [`share_login_attempts`].
    reports: OnceLock<Arc<ReportSchedule>>,
}

/// Keys under which the failures of one attempt are counted. Hashed once, for [`LoginThrottle::check`] at its
/// start and [`LoginThrottle::check_and_record`] at its end.
#[derive(Clone, Copy, Debug)]
pub struct AttemptKeys {
    network: u64,
    account: FixedName,
    loopback: bool,
    token: bool,
    address_hash: u64,
    account_hash: u64,
    /// Hash of address and account.
    pair_hash: u64,
    /// Hash of the failures of the pair; a separate one for tokens.
    failures_hash: u64,
}

impl AttemptKeys {
    const fn name(&self) -> AttemptIdentity {
        let AttemptKeys { network, account, loopback, token, .. } = *self;
        AttemptIdentity { network, account, loopback, token }
    }

    /// Failures of this account from this address.
    const fn pair_failures(&self) -> FailureKey {
        let scope = if self.token { Scope::Token } else { Scope::Password };
        FailureKey { hash: self.failures_hash, scope, network: self.network, account: self.account }
    }

    /// Failures of this account from all addresses.
    const fn account_failures(&self) -> FailureKey {
        FailureKey { hash: self.account_hash, scope: Scope::Account, network: 0, account: self.account }
    }

    /// Failures from this address. `None` for loopback.
    fn address_failures(&self) -> Option<FailureKey> {
        let key = FailureKey {
            hash: self.address_hash,
            scope: Scope::Address,
            network: self.network,
            account: FixedName::EMPTY,
        };
        (!self.loopback).then_some(key)
    }

    /// Group of the account among those that were tried from the address.
    const fn account_group(&self) -> u32 {
        (self.account_hash >> 57) as u32
    }
}

/// The throttle of a node.
pub fn login_throttle(node: &Node) -> Arc<LoginThrottle> {
    node.extensions.get_or_default()
}

impl LoginThrottle {
    /// An empty throttle.
    pub fn new() -> LoginThrottle {
        LoginThrottle {
            hasher: RandomState::new(),
            tables: LeafMutex::new(Tables::default()),
            reports: OnceLock::new(),
        }
    }

    /// The keys of a login attempt from `peer` to `account` (a normalised address). `token`: with a secret that
    /// cannot be guessed.
    pub fn keys(&self, peer: IpAddr, account: &str, token: bool) -> AttemptKeys {
        self.keys_of(AttemptIdentity {
            network: base::network_number(peer),
            account: FixedName::new(account),
            loopback: peer.is_loopback(),
            token,
        })
    }

    fn keys_of(&self, name: AttemptIdentity) -> AttemptKeys {
        let AttemptIdentity { network, account, loopback, token } = name;
        let hash = |scope: Scope| match scope {
            Scope::Address => self.hasher.hash_one((scope, network)),
            Scope::Account => self.hasher.hash_one((scope, account)),
            _ => self.hasher.hash_one((scope, network, account)),
        };
        let pair_hash = hash(Scope::Password);
        AttemptKeys {
            network,
            account,
            loopback,
            token,
            address_hash: hash(Scope::Address),
            account_hash: hash(Scope::Account),
            pair_hash,
            failures_hash: if token { hash(Scope::Token) } else { pair_hash },
        }
    }

    /// Whether an attempt may start at second `now`.
    ///
    /// # Errors
    /// The limit that was reached.
    pub fn check(&self, limits: &NodeLimits, now: u32, keys: &AttemptKeys) -> Result<(), LoginLimit> {
        self.tables.lock().check(limits, now, keys)
    }

    /// Whether the client may be answered if its secret was `valid`; counts the answer in the same step.
    ///
    /// A wrong password, and an account that does not exist, count as a failure. A wrong token counts neither
    /// against the account nor against its password from this address, because it is not a guess of that
    /// password. After a right secret, this account is judged separately from other accounts at this address.
    ///
    /// # Errors
    /// The limit that was reached. Nothing is counted then, and the answer must be the same for a right and a
    /// wrong secret.
    pub fn check_and_record(
        &self,
        limits: &NodeLimits,
        now: u32,
        keys: &AttemptKeys,
        valid: bool,
    ) -> Result<(), LoginLimit> {
        let result = self.tables.lock().check_and_record(limits, now, keys, valid);
        if result.is_ok() {
            self.request_report();
        }
        result
    }

    /// Lets other nodes learn of what was recorded. Must be called after it was, without the lock.
    fn request_report(&self) {
        if let Some(schedule) = self.reports.get() {
            schedule.request();
        }
    }

    /// Counts attempts that another node has answered, as if this one had.
    fn record_remote(&self, limits: &NodeLimits, now: u32, name: AttemptIdentity, counts: AttemptCounts) {
        let keys = self.keys_of(name);
        let mut tables = self.tables.lock();
        if counts.succeeded {
            tables.add_success(limits, now, &keys);
        }
        tables.add_failures(limits, now, &keys, counts);
    }
}

impl Default for LoginThrottle {
    fn default() -> LoginThrottle {
        LoginThrottle::new()
    }
}

impl Tables {
    fn check(&self, limits: &NodeLimits, now: u32, keys: &AttemptKeys) -> Result<(), LoginLimit> {
        self.reached(limits, now, keys, false).map_or(Ok(()), |(limit, _)| Err(limit))
    }

    fn check_and_record(
        &mut self,
        limits: &NodeLimits,
        now: u32,
        keys: &AttemptKeys,
        valid: bool,
    ) -> Result<(), LoginLimit> {
        self.check(limits, now, keys)?;
        if valid {
            self.record_success(limits, now, keys);
        } else {
            self.record_failure(limits, now, keys);
        }
        Ok(())
    }

    /// The limit that was reached and the key of its count. `pending`: if all attempts in progress fail.
    fn reached(
        &self,
        limits: &NodeLimits,
        now: u32,
        keys: &AttemptKeys,
        pending: bool,
    ) -> Option<(LoginLimit, FailureKey)> {
        let failed = |key: &FailureKey| self.failures(key, now, limits);
        let begun = |key: &FailureKey| self.pending.get(key).filter(|_| pending);
        let count = |key: &FailureKey| {
            let begun = begun(key).map_or(0, PendingAttempts::count);
            failed(key).map_or(0, |entry| entry.count).saturating_add(begun)
        };
        let pair = keys.pair_failures();
        if count(&pair) >= limits.login_failures_per_address_and_account {
            return Some((LoginLimit::Pair, pair));
        }
        if self.only_pair_limit_applies(keys) {
            return None;
        }
        if let Some(address) = keys.address_failures() {
            if count(&address) >= limits.login_failures_per_address {
                return Some((LoginLimit::Address, address));
            }
            let groups = begun(&address).map_or(0, PendingAttempts::accounts);
            let groups = groups | failed(&address).map_or(0, |entry| entry.accounts);
            if estimate_distinct(groups) >= limits.login_accounts_per_address {
                return Some((LoginLimit::Accounts, address));
            }
        }
        let account = keys.account_failures();
        (count(&account) >= limits.login_failures_per_account).then_some((LoginLimit::Account, account))
    }

    /// Whether only the failures of this account from this address matter.
    fn only_pair_limit_applies(&self, keys: &AttemptKeys) -> bool {
        keys.token || self.is_known(keys)
    }

    /// Counts a failure on this node.
    fn record_failure(&mut self, limits: &NodeLimits, now: u32, keys: &AttemptKeys) {
        self.add_failures(limits, now, keys, AttemptCounts::FAILURE);
        if let Some(unreported) = &mut self.unreported {
            unreported.note(keys.name(), false);
        }
    }

    /// Counts a success on this node.
    fn record_success(&mut self, limits: &NodeLimits, now: u32, keys: &AttemptKeys) {
        let is_news = self.add_success(limits, now, keys);
        if let Some(unreported) = self.unreported.as_mut().filter(|_| is_news) {
            unreported.note(keys.name(), true);
        }
    }

    /// Counts failures on this node or another one.
    fn add_failures(&mut self, limits: &NodeLimits, now: u32, keys: &AttemptKeys, counts: AttemptCounts) {
        if counts.failures == 0 {
            return;
        }
        if self.failures.is_empty() {
            self.failures = vec![FailureEntry::UNUSED; FAILURE_SETS * ASSOCIATIVITY];
        }
        // No limit but the first applies to these, so they must not extend the windows of the others.
        let is_exempt = self.only_pair_limit_applies(keys);
        if counts.since_success != 0 {
            let entry = self.entry(&keys.pair_failures(), now, limits);
            entry.count = entry.count.saturating_add(counts.since_success.into());
        }
        let account = (!keys.token).then(|| keys.account_failures());
        for key in [account, keys.address_failures()].into_iter().flatten() {
            let entry = self.entry(&key, now, limits);
            let room = key.limit(limits).saturating_sub(entry.count);
            let count = u32::from(counts.failures);
            entry.count = entry.count.saturating_add(if is_exempt { count.min(room) } else { count });
            let has_room = estimate_distinct(entry.accounts) < limits.login_accounts_per_address;
            if key.scope == Scope::Address && (has_room || !is_exempt) {
                entry.accounts |= 1 << keys.account_group();
            }
        }
    }

    /// Counts a success on this node or another one. Whether other nodes should learn of it.
    fn add_success(&mut self, limits: &NodeLimits, now: u32, keys: &AttemptKeys) -> bool {
        if self.known.is_empty() {
            self.known = vec![KnownEntry::UNUSED; KNOWN_SETS * ASSOCIATIVITY];
        }
        let is_news = self.record_known(keys, now, limits.login_window_seconds);
        if let Some(entry) = self.find(&keys.pair_failures()) {
            *entry = FailureEntry::UNUSED;
            return true;
        }
        is_news
    }

    fn failures(&self, key: &FailureKey, now: u32, limits: &NodeLimits) -> Option<FailureEntry> {
        let set = self.failures.get(set_of(key.hash, FAILURE_SETS))?;
        set.iter().find(|f| f.key == *key).map(|found| found.at(now, limits))
    }

    fn find(&mut self, key: &FailureKey) -> Option<&mut FailureEntry> {
        self.failures.get_mut(set_of(key.hash, FAILURE_SETS))?.iter_mut().find(|f| f.key == *key)
    }

    /// The entry of a key, reset if it is absent or its window has ended. The table must not be empty.
    fn entry(&mut self, key: &FailureKey, now: u32, limits: &NodeLimits) -> &mut FailureEntry {
        let set = set_of(key.hash, FAILURE_SETS);
        let slots = &self.failures[set.clone()];
        let at = slots.iter().position(|f| f.key == *key).unwrap_or_else(|| {
            let cost = |f: &FailureEntry| {
                let present = f.at(now, limits);
                if present.is_free() { (0, 0) } else { (present.count, present.since) }
            };
            (0..ASSOCIATIVITY).min_by_key(|at| cost(&slots[*at])).unwrap_or_default()
        });
        let entry = &mut self.failures[set.start + at];
        *entry = entry.at(now, limits);
        if entry.key != *key || entry.is_free() {
            *entry = FailureEntry { key: *key, since: now, count: 0, accounts: 0 };
        }
        entry
    }

    fn is_known(&self, keys: &AttemptKeys) -> bool {
        self.known
            .get(set_of(keys.pair_hash, KNOWN_SETS))
            .is_some_and(|set| set.iter().any(|known| known.is_of(keys)))
    }

    /// Whether other nodes have not learnt of it for the length of a window.
    fn record_known(&mut self, keys: &AttemptKeys, now: u32, window: u32) -> bool {
        let Some(set) = self.known.get_mut(set_of(keys.pair_hash, KNOWN_SETS)) else { return false };
        // The same entry, or else a free one, or else the oldest one.
        let entry = set.iter_mut().min_by_key(|known| (!known.is_of(keys), known.is_used(), known.at));
        let Some(entry) = entry else { return false };
        let is_news = !entry.is_of(keys) || now.saturating_sub(entry.shared_at) >= window;
        let shared_at = if is_news { now } else { entry.shared_at };
        *entry = KnownEntry { network: keys.network, at: now, shared_at, account: keys.account };
        is_news
    }
}

/// Entries of the set that a hash selects in a table of this many sets.
fn set_of(hash: u64, sets: usize) -> std::ops::Range<usize> {
    let start = (hash >> 32) as usize % sets * ASSOCIATIVITY;
    start..start + ASSOCIATIVITY
}

impl KnownEntry {
    const UNUSED: KnownEntry = KnownEntry { network: 0, at: 0, shared_at: 0, account: FixedName::EMPTY };

    fn is_used(&self) -> bool {
        self.account != FixedName::EMPTY
    }

    fn is_of(&self, keys: &AttemptKeys) -> bool {
        self.is_used() && self.network == keys.network && self.account == keys.account
    }
}

const _: () = assert!(size_of::<KnownEntry>() == 64 && size_of::<FailureEntry>() <= 112);

impl FailureEntry {
    const UNUSED: FailureEntry = FailureEntry { key: FailureKey::UNUSED, since: 0, count: 0, accounts: 0 };

    const fn is_free(&self) -> bool {
        matches!(self.key.scope, Scope::Unused) || self.count == 0 && self.accounts == 0
    }

    /// The entry at second `now`: for each window that has ended, less by the limits.
    fn at(&self, now: u32, limits: &NodeLimits) -> FailureEntry {
        let window = limits.login_window_seconds;
        let Some(ended) = now.saturating_sub(self.since).checked_div(window) else {
            return FailureEntry::UNUSED;
        };
        let mut present = *self;
        if ended == 0 {
            return present;
        }
        present.since = self.since.saturating_add(ended.saturating_mul(window));
        present.count = self.count.saturating_sub(ended.saturating_mul(self.key.limit(limits)));
        // Each account has at least one failure.
        let accounts = estimate_distinct(self.accounts).min(self.count);
        let rest = accounts.saturating_sub(ended.saturating_mul(limits.login_accounts_per_address.max(1)));
        while estimate_distinct(present.accounts) > rest {
            // Any group: which accounts were tried decides nothing.
            present.accounts &= present.accounts - 1;
        }
        present
    }
}

/// Estimated number of different accounts in these 128 groups (linear counting).
#[allow(clippy::cast_possible_truncation, reason = "at most 128 times the logarithm of 128")]
fn estimate_distinct(groups: u128) -> u32 {
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

    /// Limits that a few attempts reach.
    pub(super) fn low_limits() -> NodeLimits {
        NodeLimits {
            login_window_seconds: 600,
            login_failures_per_address_and_account: 3,
            login_failures_per_address: 10,
            login_accounts_per_address: 5,
            login_failures_per_account: 8,
            ..NodeLimits::default()
        }
    }

    struct ThrottleFixture {
        guard: LoginThrottle,
        limits: NodeLimits,
        now: u32,
    }

    impl ThrottleFixture {
        fn new() -> ThrottleFixture {
            ThrottleFixture { guard: LoginThrottle::new(), limits: low_limits(), now: 100 }
        }
        fn keys(&self, peer: &str, account: &str, token: bool) -> AttemptKeys {
            self.guard.keys(peer.parse().unwrap(), account, token)
        }
        fn check(&self, peer: &str, account: &str) -> Result<(), LoginLimit> {
            self.guard.check(&self.limits, self.now, &self.keys(peer, account, false))
        }
        fn fail(&self, peer: &str, account: &str) -> Result<(), LoginLimit> {
            self.admit(peer, account, false)
        }
        fn admit(&self, peer: &str, account: &str, valid: bool) -> Result<(), LoginLimit> {
            self.guard.check_and_record(&self.limits, self.now, &self.keys(peer, account, false), valid)
        }
        fn succeed(&self, peer: &str, account: &str) {
            self.admit(peer, account, true).unwrap();
        }
    }

    #[test]
    fn a_pair_is_limited_until_the_window_ends() {
        let mut w = ThrottleFixture::new();
        for _ in 0..3 {
            w.fail(HERE, "juliet@x").unwrap();
        }
        assert_eq!(w.check(HERE, "juliet@x"), Err(LoginLimit::Pair));
        assert_eq!(w.check("192.0.2.2", "juliet@x"), Ok(()), "elsewhere it goes on");
        assert_eq!(w.check(HERE, "romeo@x"), Ok(()));
        w.now += 599;
        assert_eq!(w.check(HERE, "juliet@x"), Err(LoginLimit::Pair));
        w.now += 1;
        assert_eq!(w.check(HERE, "juliet@x"), Ok(()));
    }

    #[test]
    fn accounts_with_the_same_hash_are_counted_separately() {
        let w = ThrottleFixture::new();
        let victim = w.keys(HERE, "juliet@x", false);
        let colliding = |peer: &str, account: &str| {
            let AttemptKeys { address_hash, account_hash, pair_hash, failures_hash, .. } = victim;
            AttemptKeys {
                address_hash,
                account_hash,
                pair_hash,
                failures_hash,
                ..w.keys(peer, account, false)
            }
        };
        let record = |keys: &AttemptKeys, valid| w.guard.check_and_record(&w.limits, w.now, keys, valid);
        // Neither failures nor a success of the one apply to the other, also with a name that is too long for its text.
        let long = format!("{}@x", "m".repeat(200));
        for other in [colliding("192.0.2.9", "mallory@x"), colliding("192.0.2.10", &long)] {
            for _ in 0..3 {
                record(&other, false).unwrap();
            }
            assert_eq!(w.guard.check(&w.limits, w.now, &other), Err(LoginLimit::Pair));
            assert_eq!(w.guard.check(&w.limits, w.now, &victim), Ok(()));
        }
        let own = colliding(HERE, "mallory@x");
        record(&own, true).unwrap();
        for n in 0..8 {
            w.fail(&format!("198.51.100.{n}"), "juliet@x").unwrap();
        }
        assert_eq!(w.guard.check(&w.limits, w.now, &victim), Err(LoginLimit::Account));
        assert_eq!(w.guard.check(&w.limits, w.now, &own), Ok(()));
    }

    #[test]
    fn parallel_attempts_beyond_the_limit_are_refused() {
        // RFC 6120, section 13.12. All attempts passed the first check before any was answered.
        for correct_index in [0, 2, 3, 299] {
            let w = ThrottleFixture::new();
            for _ in 0..300 {
                w.check(HERE, "juliet@x").unwrap();
            }
            let answers: Vec<_> = (0..300).map(|n| w.admit(HERE, "juliet@x", n == correct_index)).collect();
            let wrong = answers
                .iter()
                .enumerate()
                .filter(|(n, answer)| *n != correct_index && answer.is_ok())
                .count();
            assert_eq!(
                answers[correct_index].is_ok(),
                correct_index < 3,
                "the right password is no way around the limit"
            );
            // After a success, the count restarts for that account and from that address only.
            assert_eq!(wrong, if correct_index < 3 { correct_index + 3 } else { 3 });
        }
    }

    #[test]
    fn users_behind_one_address_log_in_at_the_same_time() {
        let w = ThrottleFixture::new();
        for n in 0..15_000 {
            w.check(HERE, &format!("user{n}@x")).unwrap();
        }
        for n in 0..15_000 {
            w.admit(HERE, &format!("user{n}@x"), true).unwrap();
        }
    }

    #[test]
    fn success_clears_the_pair_but_not_the_address() {
        let w = ThrottleFixture::new();
        w.fail(HERE, "mallory@x").unwrap();
        w.fail(HERE, "mallory@x").unwrap();
        w.succeed(HERE, "mallory@x");
        w.fail(HERE, "mallory@x").unwrap();
        w.fail(HERE, "mallory@x").unwrap();
        assert_eq!(w.check(HERE, "mallory@x"), Ok(()));
        // Mallory's own logins do not allow more guesses at other accounts.
        for account in ["a@x", "b@x"] {
            for _ in 0..3 {
                w.fail(HERE, account).unwrap();
            }
            w.succeed(HERE, "mallory@x");
        }
        assert_eq!(w.check(HERE, "c@x"), Err(LoginLimit::Address));
    }

    #[test]
    fn guessing_across_accounts_is_limited_and_known_neighbours_still_log_in() {
        let w = ThrottleFixture::new();
        w.succeed(HERE, "neighbour@x");
        let tried = (0..100).take_while(|n| w.fail(HERE, &format!("user{n}@x")).is_ok()).count();
        assert!((4..=8).contains(&tried), "{tried} accounts where 5 are allowed");
        assert_eq!(w.check(HERE, "another@x"), Err(LoginLimit::Accounts));
        assert_eq!(w.check(HERE, "neighbour@x"), Ok(()));
        assert_eq!(w.check("192.0.2.2", "another@x"), Ok(()));
        let token = w.guard.check(&w.limits, w.now, &w.keys(HERE, "another@x", true));
        assert_eq!(token, Ok(()));
    }

    #[test]
    fn password_and_token_failures_are_counted_separately() {
        let admit = |w: &ThrottleFixture, token, valid| {
            w.guard.check_and_record(&w.limits, w.now, &w.keys(HERE, "juliet@x", token), valid)
        };
        for guessed in [false, true] {
            let w = ThrottleFixture::new();
            for _ in 0..3 {
                admit(&w, guessed, false).unwrap();
            }
            assert_eq!(admit(&w, guessed, true), Err(LoginLimit::Pair));
            assert_eq!(admit(&w, !guessed, true), Ok(()));
            // A right secret of the other kind does not bypass the limit.
            assert_eq!(admit(&w, guessed, true), Err(LoginLimit::Pair));
        }
    }

    #[test]
    fn a_distributed_attack_does_not_lock_the_owner_out() {
        let w = ThrottleFixture::new();
        w.succeed("198.51.100.7", "juliet@x");
        let tried = (0..100).take_while(|n| w.fail(&format!("192.0.2.{n}"), "juliet@x").is_ok()).count();
        assert_eq!(tried, 8);
        assert_eq!(w.check("203.0.113.9", "juliet@x"), Err(LoginLimit::Account));
        assert_eq!(w.check("198.51.100.7", "juliet@x"), Ok(()));
    }

    #[test]
    fn one_ipv6_prefix_counts_as_one_address_and_loopback_is_exempt() {
        let mut w = ThrottleFixture::new();
        w.limits.login_accounts_per_address = 100;
        for n in 0..10 {
            w.fail(&format!("2001:db8:1:2::{n:x}"), &format!("user{n}@x")).unwrap();
        }
        assert_eq!(w.check("2001:db8:1:2:ffff::1", "juliet@x"), Err(LoginLimit::Address));
        assert_eq!(w.check("2001:db8:1:3::1", "juliet@x"), Ok(()));
        for n in 0..50 {
            w.fail("127.0.0.1", &format!("user{n}@y")).unwrap();
        }
        assert_eq!(w.check("127.0.0.1", "juliet@x"), Ok(()));
    }

    #[test]
    fn a_flood_of_addresses_uses_no_more_memory_and_does_not_evict_the_worst_offender() {
        let w = ThrottleFixture::new();
        for _ in 0..3 {
            w.fail(HERE, "juliet@x").unwrap();
        }
        for n in 0..200_000u32 {
            let peer = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
            let keys = w.guard.keys(peer, &format!("user{n}@x"), false);
            let _ = w.guard.check_and_record(&w.limits, w.now, &keys, false);
            let _ = w.guard.check_and_record(&w.limits, w.now, &keys, true);
        }
        let tables = w.guard.tables.lock();
        assert_eq!(
            (tables.failures.len(), tables.known.len()),
            (FAILURE_SETS * ASSOCIATIVITY, KNOWN_SETS * ASSOCIATIVITY)
        );
        drop(tables);
        assert_eq!(w.check(HERE, "juliet@x"), Err(LoginLimit::Pair));
    }

    #[test]
    fn the_estimate_of_distinct_accounts_is_accurate_enough() {
        let guard = LoginThrottle::new();
        for many in [1u32, 5, 20, 60, 100] {
            let groups = (0..many).fold(0u128, |g, n| {
                g | 1 << guard.keys(HERE.parse().unwrap(), &n.to_string(), false).account_group()
            });
            let counted = estimate_distinct(groups);
            assert!(counted * 10 >= many * 5 && counted <= many * 2 + 2, "{counted} for {many}");
        }
        assert_eq!((estimate_distinct(0), estimate_distinct(u128::MAX)), (0, u32::MAX));
    }
}
