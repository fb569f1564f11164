//! Rate limits of registration: accounts and attempts per hour, for each address and for the domain.
//!
//! The table is bounded; when it is full of addresses of the last hour, further addresses are refused.
//!
//! # Pitfalls
//!
//! A slot is reserved before an account is created and released on failure, or concurrent requests would pass the
//! limit together.

use std::collections::HashMap;
use std::net::IpAddr;

use base::lock::LeafMutex;
use stanza::{ErrorType, StanzaCondition, StanzaError};
use store::AddressId;

/// Length of the counting window in seconds.
const HOUR: u32 = 3_600;
/// Limit of addresses and users in the table.
const MAX_ENTRIES: usize = 10_000;
/// Registration attempts of one address per hour, for each account that it may create.
const ATTEMPTS_PER_ACCOUNT: u32 = 6;
/// Passwords that a user may change, or have checked, in an hour.
const PASSWORD_CHECKS_PER_HOUR: u32 = 20;

/// Subject of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RateLimitKey {
    /// Number of the network; see [`base::network()`].
    Address(u64),
    /// An account.
    User(AddressId),
}

impl RateLimitKey {
    pub(super) fn address(address: IpAddr) -> RateLimitKey {
        RateLimitKey::Address(base::network_number(address))
    }
}

#[derive(Clone, Copy, Default)]
struct WindowCount {
    window_start: u32,
    accounts_created: u32,
    attempts: u32,
}

#[derive(Default)]
struct RateLimitState {
    by_key: HashMap<RateLimitKey, WindowCount>,
    domain: WindowCount,
}

/// Counts of a domain.
#[derive(Default)]
pub(super) struct RegistrationLimiter(LeafMutex<RateLimitState>);

/// Section 3.1.1: too many attempts are `not-acceptable`, temporarily.
fn too_many(text: &'static str) -> StanzaError {
    StanzaError::new(StanzaCondition::NotAcceptable).kind(ErrorType::Wait).text(text)
}

impl WindowCount {
    fn at_time(&mut self, now: u32) -> &mut WindowCount {
        if now.saturating_sub(self.window_start) >= HOUR {
            *self = WindowCount { window_start: now, ..WindowCount::default() };
        }
        self
    }
}

impl RateLimitState {
    fn entry(&mut self, whose: RateLimitKey, now: u32) -> Result<&mut WindowCount, StanzaError> {
        if !self.by_key.contains_key(&whose) {
            if self.by_key.len() >= MAX_ENTRIES {
                self.by_key.retain(|_, count| now.saturating_sub(count.window_start) < HOUR);
            }
            if self.by_key.len() >= MAX_ENTRIES {
                return Err(too_many("too many concurrent registrations; try again later"));
            }
        }
        let count =
            self.by_key.entry(whose).or_insert(WindowCount { window_start: now, ..WindowCount::default() });
        Ok(count.at_time(now))
    }
}

impl RegistrationLimiter {
    /// Counts an attempt to register.
    pub(super) fn count_attempt(
        &self,
        whose: RateLimitKey,
        per_address: u32,
        now: u32,
    ) -> Result<(), StanzaError> {
        let mut state = self.0.lock();
        let count = state.entry(whose, now)?;
        if count.attempts >= per_address.saturating_mul(ATTEMPTS_PER_ACCOUNT) {
            return Err(too_many("too many registration attempts; try again in an hour"));
        }
        count.attempts += 1;
        Ok(())
    }

    /// Reserves a slot for an account.
    pub(super) fn reserve_account(
        &self,
        whose: RateLimitKey,
        per_address: u32,
        per_hour: u32,
        now: u32,
    ) -> Result<(), StanzaError> {
        let mut state = self.0.lock();
        if state.domain.at_time(now).accounts_created >= per_hour {
            return Err(too_many("too many accounts were registered; try again in an hour"));
        }
        let count = state.entry(whose, now)?;
        if count.accounts_created >= per_address {
            return Err(too_many(
                "too many accounts were registered from your address; try again in an hour",
            ));
        }
        count.accounts_created += 1;
        state.domain.accounts_created += 1;
        Ok(())
    }

    /// Releases a slot whose account was not created.
    pub(super) fn release_account(&self, whose: RateLimitKey) {
        let mut state = self.0.lock();
        state.domain.accounts_created = state.domain.accounts_created.saturating_sub(1);
        if let Some(count) = state.by_key.get_mut(&whose) {
            count.accounts_created = count.accounts_created.saturating_sub(1);
        }
    }

    /// Counts a password change or check: deriving keys takes milliseconds.
    pub(super) fn count_password_check(&self, user: AddressId, now: u32) -> Result<(), StanzaError> {
        let mut state = self.0.lock();
        let count = state.entry(RateLimitKey::User(user), now)?;
        if count.attempts >= PASSWORD_CHECKS_PER_HOUR {
            return Err(StanzaError::new(StanzaCondition::ResourceConstraint)
                .text("the password was changed too often; try again in an hour"));
        }
        count.attempts += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_limited_per_address_and_domain_and_hour() {
        let counts = RegistrationLimiter::default();
        let (one, other) = (RateLimitKey::Address(1), RateLimitKey::Address(2));
        assert!(
            counts.reserve_account(one, 2, 3, 0).is_ok() && counts.reserve_account(one, 2, 3, 10).is_ok()
        );
        assert!(counts.reserve_account(one, 2, 3, 20).is_err(), "the address has its two");
        assert!(counts.reserve_account(other, 2, 3, 20).is_ok());
        assert!(counts.reserve_account(other, 2, 3, 20).is_err(), "the domain has its three");
        counts.release_account(one);
        assert!(counts.reserve_account(one, 2, 3, 30).is_ok());
        assert!(counts.reserve_account(one, 2, 3, HOUR).is_ok(), "the next hour");
        for _ in 0..ATTEMPTS_PER_ACCOUNT {
            assert!(counts.count_attempt(other, 1, 100).is_ok());
        }
        assert!(counts.count_attempt(other, 1, 100).is_err());
        assert!(counts.count_attempt(one, 1, 100).is_ok(), "others are not concerned");
    }

    #[test]
    fn the_table_is_bounded_and_expires() {
        let counts = RegistrationLimiter::default();
        for n in 0..MAX_ENTRIES as u64 {
            assert!(counts.count_attempt(RateLimitKey::Address(n), 1, 0).is_ok());
        }
        assert!(counts.count_attempt(RateLimitKey::Address(u64::MAX), 1, 1).is_err());
        assert!(counts.count_attempt(RateLimitKey::Address(u64::MAX), 1, HOUR).is_ok());
        assert_eq!(counts.0.lock().by_key.len(), 1);
    }

    #[test]
    fn ipv6_addresses_are_limited_by_their_64_bit_network() {
        let of = |text: &str| RateLimitKey::address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
