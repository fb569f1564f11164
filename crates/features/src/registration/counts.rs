//! How often somebody has tried: accounts and attempts in an hour, for each address and for the domain.
//!
//! The table is bounded; when it is full of addresses of the last hour, strangers have to wait. The trap: a place is taken
//! before an account is made and given back if it was not, or many requests at once would pass together.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use stanza::{ErrorType, StanzaCondition, StanzaError};
use store::AddressId;

/// Seconds that are counted together.
const HOUR: u32 = 3_600;
/// Addresses and users that are remembered.
const MOST: usize = 10_000;
/// Attempts to register, of one address in an hour, for each account that it may have.
const TRIES: u32 = 6;
/// Passwords that a user may change, or have checked, in an hour.
const CHANGES: u32 = 20;

/// Whose attempts are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    /// Number of the network; see [`base::network`].
    Address(u64),
    /// An account.
    User(AddressId),
}

impl Whose {
    pub(super) fn address(address: IpAddr) -> Whose {
        Whose::Address(base::network_number(address))
    }
}

#[derive(Clone, Copy, Default)]
struct Count {
    since: u32,
    made: u32,
    tries: u32,
}

#[derive(Default)]
struct State {
    each: HashMap<Whose, Count>,
    all: Count,
}

/// All counts of a domain.
#[derive(Default)]
pub(super) struct Counts(Mutex<State>);

/// Section 3.1.1: too many attempts are not acceptable, for now.
fn later(text: &'static str) -> StanzaError {
    StanzaError::new(StanzaCondition::NotAcceptable).kind(ErrorType::Wait).text(text)
}

impl Count {
    fn at(&mut self, now: u32) -> &mut Count {
        if now.saturating_sub(self.since) >= HOUR {
            *self = Count { since: now, ..Count::default() };
        }
        self
    }
}

impl State {
    fn of(&mut self, whose: Whose, now: u32) -> Result<&mut Count, StanzaError> {
        if !self.each.contains_key(&whose) {
            if self.each.len() >= MOST {
                self.each.retain(|_, count| now.saturating_sub(count.since) < HOUR);
            }
            if self.each.len() >= MOST {
                return Err(later("too many are registering; try again later"));
            }
        }
        let count = self.each.entry(whose).or_insert(Count { since: now, ..Count::default() });
        Ok(count.at(now))
    }
}

impl Counts {
    /// Counts an attempt to register.
    pub(super) fn attempt(&self, whose: Whose, per_address: u32, now: u32) -> Result<(), StanzaError> {
        let mut state = self.0.lock();
        let count = state.of(whose, now)?;
        if count.tries >= per_address.saturating_mul(TRIES) {
            return Err(later("too many attempts to register; try again in an hour"));
        }
        count.tries += 1;
        Ok(())
    }

    /// Takes a place for an account.
    pub(super) fn take(
        &self,
        whose: Whose,
        per_address: u32,
        per_hour: u32,
        now: u32,
    ) -> Result<(), StanzaError> {
        let mut state = self.0.lock();
        if state.all.at(now).made >= per_hour {
            return Err(later("too many accounts were registered; try again in an hour"));
        }
        let count = state.of(whose, now)?;
        if count.made >= per_address {
            return Err(later("too many accounts were registered from your address; try again in an hour"));
        }
        count.made += 1;
        state.all.made += 1;
        Ok(())
    }

    /// Gives it back: there is no account.
    pub(super) fn give_back(&self, whose: Whose) {
        let mut state = self.0.lock();
        state.all.made = state.all.made.saturating_sub(1);
        if let Some(count) = state.each.get_mut(&whose) {
            count.made = count.made.saturating_sub(1);
        }
    }

    /// Counts a password that a user changes or has checked: keys cost milliseconds.
    pub(super) fn change(&self, user: AddressId, now: u32) -> Result<(), StanzaError> {
        let mut state = self.0.lock();
        let count = state.of(Whose::User(user), now)?;
        if count.tries >= CHANGES {
            return Err(StanzaError::new(StanzaCondition::ResourceConstraint)
                .text("the password was changed too often; try again in an hour"));
        }
        count.tries += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_the_domain_have_their_hour() {
        let counts = Counts::default();
        let (one, other) = (Whose::Address(1), Whose::Address(2));
        assert!(counts.take(one, 2, 3, 0).is_ok() && counts.take(one, 2, 3, 10).is_ok());
        assert!(counts.take(one, 2, 3, 20).is_err(), "the address has its two");
        assert!(counts.take(other, 2, 3, 20).is_ok());
        assert!(counts.take(other, 2, 3, 20).is_err(), "the domain has its three");
        counts.give_back(one);
        assert!(counts.take(one, 2, 3, 30).is_ok());
        assert!(counts.take(one, 2, 3, HOUR).is_ok(), "the next hour");
        for _ in 0..TRIES {
            assert!(counts.attempt(other, 1, 100).is_ok());
        }
        assert!(counts.attempt(other, 1, 100).is_err());
        assert!(counts.attempt(one, 1, 100).is_ok(), "others are not concerned");
    }

    #[test]
    fn the_table_is_bounded_and_empties_itself() {
        let counts = Counts::default();
        for n in 0..MOST as u64 {
            assert!(counts.attempt(Whose::Address(n), 1, 0).is_ok());
        }
        assert!(counts.attempt(Whose::Address(u64::MAX), 1, 1).is_err());
        assert!(counts.attempt(Whose::Address(u64::MAX), 1, HOUR).is_ok());
        assert_eq!(counts.0.lock().each.len(), 1);
    }

    #[test]
    fn of_ipv6_the_network_counts() {
        let of = |text: &str| Whose::address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
