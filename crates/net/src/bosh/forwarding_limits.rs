//! Limits of requests that are forwarded to other nodes: each is work for two nodes, and the other one may never learn whose
//! it is.
//!
//! * Nothing shows that a session exists until it has answered: clients choose the identifier before they are authenticated. Such
//!   requests are limited for each address.
//! * Requests of a session that has answered are limited at its node, too. Here they are limited because that node refuses some
//!   of them without counting them, and because the octets of one session must leave room between the nodes.
//!
//! # Pitfalls
//!
//! A request above a limit must get a recoverable response: behind one address there may be clients with sessions, and anyone
//! who has seen the identifier of a session can send requests for it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use base::clock::Millis;
use base::token_bucket::TokenBucket;

use super::forwarding::ForwardedFor;
use super::session_table::{BURST_SECONDS, RandomIdHasher};

/// Requests per second of one address whose sessions are not known, and how many at once: after a change of the load balancer,
/// all clients behind an address begin at the same time.
const PER_ADDRESS: (u32, u32) = (64, 1024);
/// The same for their octets.
const OCTETS_PER_ADDRESS: (u32, u32) = (1 << 20, 2 << 20);
/// The same for their octets, of all addresses.
const OCTETS: (u32, u32) = (4 << 20, 8 << 20);
/// The same for the octets of a session that is known.
const OCTETS_PER_SESSION: (u32, u32) = (1 << 20, 4 << 20);
/// Maximum number of addresses with requests in the last seconds.
const MAX_ADDRESSES: usize = 65_536;
/// Maximum number of sessions of other nodes that are known.
const MAX_KNOWN: usize = 65_536;
/// Number of known sessions among which the one is forgotten whose last response is the oldest.
const FORGOTTEN_AMONG: usize = 8;
/// Time for which a session is known, longer than a pause.
const KNOWN_MILLIS: u64 = 600_000;
/// Time between two removals of what is forgotten.
const SWEEP_MILLIS: u64 = 10_000;
/// The same if there is no room.
const SWEEP_FULL_MILLIS: u64 = 1000;

/// A request that may be forwarded.
pub(super) struct NewRequest {
    pub(super) sid: u128,
    pub(super) address: u64,
    pub(super) octets: usize,
    /// Requests per second of a session; 0: no limit.
    pub(super) rate: u32,
}

/// A session of another node that has answered.
struct KnownSession {
    /// Time of the last response.
    at: Millis,
    requests: TokenBucket,
    octets: TokenBucket,
}

/// Requests of an address for sessions that are not known.
struct AddressLimits {
    requests: TokenBucket,
    octets: TokenBucket,
}

impl AddressLimits {
    fn is_full(&self, now: Millis) -> bool {
        self.requests.full_ms(now) == 0 && self.octets.full_ms(now) == 0
    }
}

/// Sessions of other nodes that have answered, and requests of addresses for others.
pub(super) struct ForwardingLimits {
    known: HashMap<u128, KnownSession, BuildHasherDefault<RandomIdHasher>>,
    addresses: HashMap<u64, AddressLimits>,
    octets: TokenBucket,
    swept: Millis,
}

impl Default for ForwardingLimits {
    fn default() -> ForwardingLimits {
        ForwardingLimits {
            known: HashMap::default(),
            addresses: HashMap::new(),
            octets: TokenBucket::new(OCTETS.0, OCTETS.1),
            swept: Millis::ZERO,
        }
    }
}

const fn bucket((rate, burst): (u32, u32)) -> TokenBucket {
    TokenBucket::new(rate, burst)
}

/// Takes from both buckets or from none.
fn take_both(requests: &mut TokenBucket, octets: &mut TokenBucket, count: u32, now: Millis) -> bool {
    if !requests.try_take(1, now) {
        return false;
    }
    let has_octets = octets.try_take(count, now);
    if !has_octets {
        requests.refund(1, now);
    }
    has_octets
}

impl ForwardingLimits {
    /// Counts a request. `None` if it must not be forwarded now.
    pub(super) fn begin(&mut self, request: &NewRequest, now: Millis) -> Option<ForwardedFor> {
        let NewRequest { sid, address, octets, rate } = *request;
        let octets = u32::try_from(octets).ok()?;
        if let Some(known) = self.known.get_mut(&sid) {
            let is_allowed = take_both(&mut known.requests, &mut known.octets, octets, now);
            return is_allowed.then_some(ForwardedFor { sid, address, octets, rate, is_counted: false });
        }
        if self.addresses.len() >= MAX_ADDRESSES && !self.addresses.contains_key(&address) {
            self.sweep_after(SWEEP_FULL_MILLIS, now);
            if self.addresses.len() >= MAX_ADDRESSES {
                return None;
            }
        }
        let new = || AddressLimits { requests: bucket(PER_ADDRESS), octets: bucket(OCTETS_PER_ADDRESS) };
        let limits = self.addresses.entry(address).or_insert_with(new);
        if !take_both(&mut limits.requests, &mut limits.octets, octets, now) {
            return None;
        }
        let forwarded = ForwardedFor { sid, address, octets, rate, is_counted: true };
        if !self.octets.try_take(octets, now) {
            self.refund_address(&forwarded, now);
            return None;
        }
        Some(forwarded)
    }

    /// A request has its response. `found`: whether the session exists, if that is known.
    pub(super) fn end(&mut self, forwarded: &ForwardedFor, found: Option<bool>, now: Millis) {
        match found {
            Some(true) => {
                self.note_known(forwarded, now);
                if forwarded.is_counted {
                    self.refund(forwarded, now);
                }
            }
            Some(false) => {
                self.known.remove(&forwarded.sid);
            }
            // The other node may have had work.
            None => {}
        }
    }

    /// A request was not sent, or its session exists.
    pub(super) fn refund(&mut self, forwarded: &ForwardedFor, now: Millis) {
        if forwarded.is_counted {
            self.refund_address(forwarded, now);
            self.octets.refund(forwarded.octets, now);
        } else if let Some(known) = self.known.get_mut(&forwarded.sid) {
            known.requests.refund(1, now);
            known.octets.refund(forwarded.octets, now);
        }
    }

    fn note_known(&mut self, forwarded: &ForwardedFor, now: Millis) {
        if let Some(known) = self.known.get_mut(&forwarded.sid) {
            known.at = now;
            return;
        }
        if self.known.len() >= MAX_KNOWN {
            // Identifiers are random, so any of them are a sample.
            let among = self.known.iter().take(FORGOTTEN_AMONG);
            let oldest = among.min_by_key(|(_, known)| known.at).map(|(sid, _)| *sid);
            oldest.and_then(|sid| self.known.remove(&sid));
        }
        let requests = match forwarded.rate {
            0 => TokenBucket::unlimited(),
            rate => TokenBucket::new(rate, rate.saturating_mul(BURST_SECONDS)),
        };
        self.known
            .insert(forwarded.sid, KnownSession { at: now, requests, octets: bucket(OCTETS_PER_SESSION) });
    }

    fn refund_address(&mut self, forwarded: &ForwardedFor, now: Millis) {
        if let Some(limits) = self.addresses.get_mut(&forwarded.address) {
            limits.requests.refund(1, now);
            limits.octets.refund(forwarded.octets, now);
        }
    }

    /// Removes what has no effect any more.
    pub(super) fn sweep(&mut self, now: Millis) {
        self.sweep_after(SWEEP_MILLIS, now);
    }

    fn sweep_after(&mut self, millis: u64, now: Millis) {
        if now.since(self.swept) < millis {
            return;
        }
        self.swept = now;
        self.known.retain(|_, known| now.since(known.at) < KNOWN_MILLIS);
        self.addresses.retain(|_, limits| !limits.is_full(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_000_000);

    impl ForwardingLimits {
        fn ask(&mut self, sid: u128, address: u64, octets: usize, now: Millis) -> Option<ForwardedFor> {
            self.begin(&NewRequest { sid, address, octets, rate: 100 }, now)
        }
    }

    #[test]
    fn an_address_that_invents_identifiers_is_limited_and_others_are_not() {
        for found in [Some(false), None] {
            let mut limits = ForwardingLimits::default();
            for sid in 0..u128::from(PER_ADDRESS.1) {
                let forwarded = limits.ask(sid, 1, 100, NOW).expect("within the burst");
                limits.end(&forwarded, found, NOW);
            }
            assert!(limits.ask(5000, 1, 100, NOW).is_none(), "{found:?}");
            assert!(limits.ask(5000, 2, 100, NOW).is_some());
            let later = Millis(NOW.0 + 1000);
            let admitted = (0..1000).filter(|sid| limits.ask(9000 + sid, 1, 100, later).is_some()).count();
            assert_eq!(admitted, PER_ADDRESS.0 as usize);
        }
    }

    #[test]
    fn the_first_requests_of_sessions_that_exist_and_what_was_not_sent_use_up_nothing() {
        let mut limits = ForwardingLimits::default();
        for sid in 0..10_000 {
            let forwarded = limits.ask(sid, 1, 200_000, NOW).expect("refunded each time");
            limits.end(&forwarded, Some(true), NOW);
            let forwarded = limits.ask(20_000 + sid, 1, 200_000, NOW).expect("refunded each time");
            limits.refund(&forwarded, NOW);
        }
        let known = limits.ask(0, 1, 1, NOW).expect("room");
        assert!(!known.is_counted);
        limits.end(&known, Some(false), NOW);
        assert!(limits.ask(0, 1, 1, NOW).expect("room").is_counted, "it is gone");
    }

    #[test]
    fn requests_and_octets_of_a_session_that_exists_are_limited() {
        let mut limits = ForwardingLimits::default();
        for sid in [1, 2, 3] {
            let forwarded = limits.ask(sid, 1, 0, NOW).expect("room");
            limits.end(&forwarded, Some(true), NOW);
        }
        let count = |limits: &mut ForwardingLimits, sid, octets| {
            (0..1000).filter(|_| limits.ask(sid, 1, octets, NOW).is_some()).count()
        };
        assert_eq!(count(&mut limits, 1, 10), 100 * BURST_SECONDS as usize);
        assert_eq!(count(&mut limits, 2, 1 << 20), (OCTETS_PER_SESSION.1 >> 20) as usize);
        assert_eq!(count(&mut limits, 3, 10), 100 * BURST_SECONDS as usize, "another one");
    }

    #[test]
    fn octets_are_limited_for_each_address_and_over_all() {
        let mut limits = ForwardingLimits::default();
        let mut count = |address: fn(u64) -> u64| {
            (0..1000).filter(|n| limits.ask(u128::from(*n), address(*n), 1 << 20, NOW).is_some()).count()
        };
        assert_eq!(count(|_| 5000), (OCTETS_PER_ADDRESS.1 >> 20) as usize);
        assert_eq!(count(|number| number), ((OCTETS.1 - OCTETS_PER_ADDRESS.1) >> 20) as usize);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_ends() {
        let mut limits = ForwardingLimits::default();
        for number in 0..MAX_KNOWN as u64 {
            let forwarded = limits.ask(u128::from(number), number, 0, NOW).expect("room");
            limits.end(&forwarded, Some(true), NOW);
        }
        assert_eq!(limits.known.len(), MAX_KNOWN);
        let later = Millis(NOW.0 + 1);
        let next = limits.ask(1 << 100, 1 << 40, 0, later).expect("addresses without requests make room");
        limits.end(&next, Some(true), later);
        assert_eq!(limits.known.len(), MAX_KNOWN);
        assert!(limits.known.contains_key(&(1 << 100)), "an older one makes room");
        assert_eq!(limits.addresses.len(), 1);
        limits.sweep(Millis(NOW.0 + KNOWN_MILLIS));
        assert_eq!((limits.known.len(), limits.addresses.len()), (1, 0));
        for number in 0..MAX_ADDRESSES as u64 {
            assert!(limits.ask(u128::from(number), number, 0, Millis(NOW.0 + KNOWN_MILLIS)).is_some());
        }
        assert!(limits.ask(9, 1 << 40, 0, Millis(NOW.0 + KNOWN_MILLIS)).is_none(), "all have requests");
    }
}
