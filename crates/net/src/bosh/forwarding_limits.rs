//! Limits of requests that are forwarded although nothing shows that their session exists: clients choose the identifier
//! before they are authenticated, and each such request is work for two nodes.
//!
//! Requests of sessions that have answered before are not counted here; the session limits them where it is.
//!
//! # Pitfalls
//!
//! A request above a limit must get a recoverable response: behind one address there may be clients with sessions.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use base::clock::Millis;
use base::token_bucket::TokenBucket;

use super::forwarding::ForwardedFor;
use super::session_table::RandomIdHasher;

/// Requests per second of one address whose sessions are not known, and how many at once: after a change of the load balancer,
/// all clients behind an address begin at the same time.
const PER_ADDRESS: (u32, u32) = (64, 1024);
/// The same for their octets, of all addresses.
const OCTETS: (u32, u32) = (4 << 20, 8 << 20);
/// Maximum number of addresses with requests in the last seconds.
const MAX_ADDRESSES: usize = 65_536;
/// Maximum number of sessions of other nodes that are known. Requests of further ones are counted.
const MAX_KNOWN: usize = 65_536;
/// Time for which a session is known, longer than a pause.
const KNOWN_MILLIS: u64 = 600_000;
/// Time between two removals of what is forgotten.
const SWEEP_MILLIS: u64 = 10_000;

/// Sessions of other nodes that have answered, and requests of addresses for others.
pub(super) struct ForwardingLimits {
    /// Time of the last response.
    known: HashMap<u128, Millis, BuildHasherDefault<RandomIdHasher>>,
    addresses: HashMap<u64, TokenBucket>,
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

impl ForwardingLimits {
    /// Counts a request. `None` if it must not be forwarded now.
    pub(super) fn begin(
        &mut self,
        sid: u128,
        address: u64,
        octets: usize,
        now: Millis,
    ) -> Option<ForwardedFor> {
        let octets = u32::try_from(octets).ok()?;
        let is_counted = !self.known.contains_key(&sid);
        if is_counted {
            let has_room = self.addresses.len() < MAX_ADDRESSES || self.addresses.contains_key(&address);
            let new = || TokenBucket::new(PER_ADDRESS.0, PER_ADDRESS.1);
            if !has_room || !self.addresses.entry(address).or_insert_with(new).try_take(1, now) {
                return None;
            }
            if !self.octets.try_take(octets, now) {
                self.refund_address(address, now);
                return None;
            }
        }
        Some(ForwardedFor { sid, address, octets, is_counted })
    }

    /// A request has its response. `found`: whether the session exists, if that is known.
    pub(super) fn end(&mut self, forwarded: &ForwardedFor, found: Option<bool>, now: Millis) {
        match found {
            Some(true) if self.known.len() < MAX_KNOWN || !forwarded.is_counted => {
                self.known.insert(forwarded.sid, now);
            }
            Some(false) => {
                self.known.remove(&forwarded.sid);
            }
            _ => {}
        }
        if forwarded.is_counted && found != Some(false) {
            self.refund_address(forwarded.address, now);
            self.octets.refund(forwarded.octets, now);
        }
    }

    fn refund_address(&mut self, address: u64, now: Millis) {
        if let Some(bucket) = self.addresses.get_mut(&address) {
            bucket.refund(1, now);
        }
    }

    /// Removes what has no effect any more.
    pub(super) fn sweep(&mut self, now: Millis) {
        if now.since(self.swept) < SWEEP_MILLIS {
            return;
        }
        self.swept = now;
        self.known.retain(|_, at| now.since(*at) < KNOWN_MILLIS);
        self.addresses.retain(|_, bucket| bucket.millis_until(PER_ADDRESS.1, now) > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_000_000);

    #[test]
    fn an_address_that_invents_identifiers_is_limited_and_others_are_not() {
        let mut limits = ForwardingLimits::default();
        for sid in 0..u128::from(PER_ADDRESS.1) {
            let forwarded = limits.begin(sid, 1, 100, NOW).expect("within the burst");
            limits.end(&forwarded, Some(false), NOW);
        }
        assert!(limits.begin(5000, 1, 100, NOW).is_none());
        assert!(limits.begin(5000, 2, 100, NOW).is_some());
        let later = Millis(NOW.0 + 1000);
        let admitted = (0..1000).filter(|sid| limits.begin(9000 + sid, 1, 100, later).is_some()).count();
        assert_eq!(admitted, PER_ADDRESS.0 as usize);
    }

    #[test]
    fn a_session_that_exists_uses_up_nothing() {
        let mut limits = ForwardingLimits::default();
        for sid in 0..10_000 {
            let forwarded = limits.begin(sid, 1, 200_000, NOW).expect("refunded each time");
            limits.end(&forwarded, Some(true), NOW);
        }
        let many: Vec<_> = (0..10_000).map(|sid| limits.begin(sid, 1, 200_000, NOW)).collect();
        assert!(
            many.iter().flatten().all(|forwarded| !forwarded.is_counted) && many.iter().all(Option::is_some)
        );
        limits.end(&many[0].unwrap(), Some(false), NOW);
        assert!(limits.begin(0, 1, 1, NOW).unwrap().is_counted, "it is gone");
        let before = limits.begin(20_000, 1, 1, NOW).unwrap();
        limits.end(&before, None, NOW);
        assert!(limits.begin(20_000, 1, 1, NOW).unwrap().is_counted, "nothing is known of it");
    }

    #[test]
    fn octets_are_limited_over_all_addresses() {
        let mut limits = ForwardingLimits::default();
        let admitted = (0..1000).filter(|n| limits.begin(*n, *n as u64, 1 << 20, NOW).is_some()).count();
        assert_eq!(admitted, (OCTETS.1 >> 20) as usize);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_ends() {
        let mut limits = ForwardingLimits::default();
        for number in 0..MAX_KNOWN as u64 + 10 {
            let forwarded = limits.begin(u128::from(number), number, 0, NOW);
            forwarded.iter().for_each(|forwarded| limits.end(forwarded, Some(true), NOW));
        }
        assert_eq!((limits.known.len(), limits.addresses.len()), (MAX_KNOWN, MAX_ADDRESSES));
        limits.sweep(NOW);
        assert_eq!((limits.known.len(), limits.addresses.len()), (MAX_KNOWN, 0));
        limits.sweep(Millis(NOW.0 + KNOWN_MILLIS));
        assert!(limits.known.is_empty());
    }
}
