//! Connection limits: total, per address, unauthenticated, and new connections per second from one address.
//!
//! A [`ConnectionLimiter`] is shared by all listeners with a common budget. Every accepted connection holds a
//! [`ConnectionPermit`], which counts until it is dropped. Refusals are counted by reason. Limiters of one node share an
//! [`AcceptRate`], above which nothing is refused and listeners accept later.
//!
//! Not implemented: limits on failed logins (the layer above has them) and lists of banned addresses.
//!
//! # Pitfalls
//!
//! An IPv6 client has 2^64 addresses, so IPv6 is counted by /64. All users of one NAT share one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use crate::accept_rate::{AcceptCharge, AcceptRate, AcceptTurn};
use crate::clock::{Clock, Millis, SystemClock};
use crate::lock::LeafMutex;
use crate::network_number;
use crate::token_bucket::TokenBucket;

/// Limits of a [`ConnectionLimiter`]; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Concurrent connections. Further ones are closed immediately.
    pub connections: u32,
    /// Concurrent unauthenticated connections. At the limit nothing is accepted; clients wait in the kernel's backlog,
    /// which paces a rush of logins instead of making it worse with reconnects.
    pub unauthenticated: u32,
    /// Concurrent connections from one IPv4 address or one IPv6 /64. Further ones are closed immediately.
    pub per_address: u32,
    /// New connections per second from one IPv4 address or one IPv6 /64. Further ones are closed immediately.
    pub new_per_second: u32,
    /// Burst size of that rate; raised to `new_per_second` if lower.
    pub new_burst: u32,
    /// Whether the rate limit applies to loopback addresses.
    pub new_on_loopback: bool,
    /// The [`AcceptRate`], in connections per second. A limiter without one ignores it.
    pub accepted_per_second: u32,
    /// Whether connections from loopback addresses are charged to the [`AcceptRate`].
    pub accept_rate_on_loopback: bool,
}

/// Reason for refusing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionRefusal {
    /// The total limit is reached.
    TotalLimit,
    /// The limit of this address is reached.
    AddressLimit,
    /// New connections from this address arrive too fast.
    AddressRate,
}

/// Metrics of a [`ConnectionLimiter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Current connections.
    pub connections: u32,
    /// Current connections that are not authenticated.
    pub unauthenticated: u32,
    /// Refused because of the total limit, since the start.
    pub refused_full: u64,
    /// Refused because of the limit per address, since the start.
    pub refused_address: u64,
    /// Refused because of the rate per address, since the start.
    pub refused_rate: u64,
    /// Times a listener paused accepting because of the unauthenticated limit, since the start.
    pub pauses: u64,
    /// Connections that waited in the kernel's backlog because of the [`AcceptRate`], since the start.
    pub delayed: u64,
}

/// Connection budget. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLimiter(Arc<LimiterState>);

#[derive(Debug, Default)]
struct LimiterState {
    max_connections: AtomicU32,
    max_unauthenticated: AtomicU32,
    max_per_address: AtomicU32,
    connections: AtomicU32,
    unauthenticated: AtomicU32,
    refused_full: AtomicU64,
    refused_address: AtomicU64,
    refused_rate: AtomicU64,
    pauses: AtomicU64,
    delayed: AtomicU64,
    /// `new_per_second` is set; readable without the lock.
    rate_limited: AtomicBool,
    rate_limited_on_loopback: AtomicBool,
    address_rates: LeafMutex<AddressRates>,
    accept_rate: Option<AcceptRate>,
    accept_rate_on_loopback: AtomicBool,
    clock: OnceLock<SystemClock>,
    addresses: LeafMutex<HashMap<u64, u32>>,
    /// Listeners that wait until an unauthenticated connection ends; one entry each.
    waiting: LeafMutex<Vec<Waker>>,
    is_waiting: AtomicBool,
}

impl ConnectionLimiter {
    /// A limiter with these limits.
    pub fn new(limits: ConnectionLimits) -> ConnectionLimiter {
        let limiter = ConnectionLimiter::default();
        limiter.set_limits(limits);
        limiter
    }

    /// A limiter with these limits, for listeners that accept at a rate. Limiters that share it set the same rate.
    pub fn with_accept_rate(limits: ConnectionLimits, accept_rate: AcceptRate) -> ConnectionLimiter {
        let state = LimiterState { accept_rate: Some(accept_rate), ..LimiterState::default() };
        let limiter = ConnectionLimiter(Arc::new(state));
        limiter.set_limits(limits);
        limiter
    }

    /// Changes the limits. Existing connections stay.
    pub fn set_limits(&self, limits: ConnectionLimits) {
        self.0.max_connections.store(limits.connections, SeqCst);
        self.0.max_unauthenticated.store(limits.unauthenticated, SeqCst);
        self.0.max_per_address.store(limits.per_address, SeqCst);
        self.0.rate_limited.store(limits.new_per_second != 0, SeqCst);
        self.0.rate_limited_on_loopback.store(limits.new_on_loopback, SeqCst);
        if let Some(accept_rate) = &self.0.accept_rate {
            accept_rate.set(limits.accepted_per_second);
        }
        self.0.accept_rate_on_loopback.store(limits.accept_rate_on_loopback, SeqCst);
        self.0.address_rates.lock().configure(limits.new_per_second, limits.new_burst);
        self.0.wake();
    }

    /// Admits a new connection as unauthenticated.
    ///
    /// # Errors
    /// The limit that is exceeded; the refusal is counted.
    pub fn try_acquire(&self, peer: IpAddr) -> Result<ConnectionPermit, ConnectionRefusal> {
        let inner = &self.0;
        if inner.is_rate_limited(peer) {
            let now = inner.clock.get_or_init(SystemClock::new).now();
            return self.try_acquire_at(peer, now);
        }
        self.acquire_for(peer)
    }

    /// Admits a connection from a proxy as unauthenticated. It is not counted for any address until
    /// [`ConnectionPermit::set_client_address`].
    ///
    /// # Errors
    /// [`ConnectionRefusal::TotalLimit`]; the refusal is counted.
    pub fn try_acquire_proxied(&self) -> Result<ConnectionPermit, ConnectionRefusal> {
        let inner = &self.0;
        let max = inner.max_connections.load(SeqCst);
        if inner.connections.fetch_add(1, SeqCst) >= max && max != 0 {
            inner.connections.fetch_sub(1, SeqCst);
            inner.refused_full.fetch_add(1, SeqCst);
            return Err(ConnectionRefusal::TotalLimit);
        }
        inner.unauthenticated.fetch_add(1, SeqCst);
        Ok(ConnectionPermit { inner: inner.clone(), key: 0, counted: false, unauthenticated: true })
    }

    fn try_acquire_at(&self, peer: IpAddr, now: Millis) -> Result<ConnectionPermit, ConnectionRefusal> {
        if self.0.address_rates.lock().try_take(network_number(peer), now) {
            return self.acquire_for(peer);
        }
        self.0.refused_rate.fetch_add(1, SeqCst);
        Err(ConnectionRefusal::AddressRate)
    }

    fn acquire_for(&self, peer: IpAddr) -> Result<ConnectionPermit, ConnectionRefusal> {
        let mut permit = self.try_acquire_proxied()?;
        permit.count_address(peer)?;
        Ok(permit)
    }

    /// True if another unauthenticated connection may be accepted.
    pub fn has_capacity(&self) -> bool {
        self.0.has_capacity()
    }

    /// Ready when another unauthenticated connection may be accepted.
    pub fn poll_capacity(&self, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &self.0;
        if inner.has_capacity() {
            return Poll::Ready(());
        }
        let mut waiting = inner.waiting.lock();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
            inner.pauses.fetch_add(1, SeqCst);
        }
        inner.is_waiting.store(true, SeqCst);
        drop(waiting);
        // A permit dropped before the waker was registered did not wake us.
        if inner.has_capacity() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Milliseconds until a listener with this turn may accept a connection; zero if it may. A turn is reserved if the
    /// listener has none.
    pub fn accept_delay(&self, turn: &mut Option<AcceptTurn>) -> u64 {
        self.0.accept_rate.as_ref().map_or(0, |accept_rate| accept_rate.delay(turn))
    }

    /// Whether a connection that a listener has accepted takes the listener's turn. `peer` is absent if it comes from a
    /// proxy.
    pub fn takes_turn(&self, peer: Option<IpAddr>) -> bool {
        let local = peer.is_some_and(|peer| peer.to_canonical().is_loopback());
        self.0.accept_rate.is_some() && (!local || self.0.accept_rate_on_loopback.load(SeqCst))
    }

    /// The charge for the turn of a connection that may still be refused.
    pub fn accept_charge(&self, turn: AcceptTurn) -> Option<AcceptCharge> {
        self.0.accept_rate.as_ref().map(|accept_rate| accept_rate.charge(turn))
    }

    /// Counts a connection that waited because of the accept rate.
    pub fn count_delayed(&self) {
        self.0.delayed.fetch_add(1, SeqCst);
    }

    /// Current metrics.
    pub fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            connections: self.0.connections.load(SeqCst),
            unauthenticated: self.0.unauthenticated.load(SeqCst),
            refused_full: self.0.refused_full.load(SeqCst),
            refused_address: self.0.refused_address.load(SeqCst),
            refused_rate: self.0.refused_rate.load(SeqCst),
            pauses: self.0.pauses.load(SeqCst),
            delayed: self.0.delayed.load(SeqCst),
        }
    }
}

impl LimiterState {
    fn has_capacity(&self) -> bool {
        let max = self.max_unauthenticated.load(SeqCst);
        max == 0 || self.unauthenticated.load(SeqCst) < max
    }

    fn wake(&self) {
        if self.is_waiting.swap(false, SeqCst) {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

impl LimiterState {
    /// Whether the rate limit applies to this address.
    fn is_rate_limited(&self, peer: IpAddr) -> bool {
        let local = peer.to_canonical().is_loopback();
        self.rate_limited.load(SeqCst) && (!local || self.rate_limited_on_loopback.load(SeqCst))
    }
}

/// Maximum number of addresses with a token bucket of their own.
const MAX_RATED_ADDRESSES: usize = 65_536;

/// Rate of new connections by address. A full bucket carries no information, so full buckets are removed when the table
/// is full. If that frees nothing, further addresses share one bucket.
#[derive(Debug)]
struct AddressRates {
    rate: u32,
    burst: u32,
    meters: HashMap<u64, TokenBucket>,
    overflow: TokenBucket,
    last_sweep: Millis,
}

impl Default for AddressRates {
    fn default() -> Self {
        let (meters, overflow) = (HashMap::new(), TokenBucket::unlimited());
        AddressRates { rate: 0, burst: 0, meters, overflow, last_sweep: Millis::ZERO }
    }
}

impl AddressRates {
    fn configure(&mut self, rate: u32, burst: u32) {
        let burst = burst.max(rate);
        if (self.rate, self.burst) != (rate, burst) {
            let overflow = if rate == 0 { TokenBucket::unlimited() } else { TokenBucket::new(rate, burst) };
            *self =
                AddressRates { rate, burst, meters: HashMap::new(), overflow, last_sweep: self.last_sweep };
        }
    }

    fn try_take(&mut self, key: u64, now: Millis) -> bool {
        if self.rate == 0 {
            return true;
        }
        if self.meters.len() >= MAX_RATED_ADDRESSES && !self.meters.contains_key(&key) {
            // At most once a second; otherwise a flood of addresses would cause a sweep for each of them.
            if now.since(self.last_sweep) >= 1000 {
                self.last_sweep = now;
                let burst = self.burst;
                self.meters.retain(|_, meter| meter.available(now) < burst);
                self.meters.shrink_to_fit();
            }
            if self.meters.len() >= MAX_RATED_ADDRESSES {
                return self.overflow.try_take(1, now);
            }
        }
        let fresh = TokenBucket::new(self.rate, self.burst);
        self.meters.entry(key).or_insert(fresh).try_take(1, now)
    }
}

/// Permit of one connection; dropping it frees the slot.
#[derive(Debug)]
pub struct ConnectionPermit {
    inner: Arc<LimiterState>,
    key: u64,
    /// The address is counted in the table; false if the limit per address was off on admission.
    counted: bool,
    unauthenticated: bool,
}

impl ConnectionPermit {
    /// Sets the client's address, once the proxy has sent it.
    ///
    /// # Errors
    /// The limit that is exceeded; the refusal is counted, and the permit must be dropped.
    pub fn set_client_address(&mut self, peer: IpAddr) -> Result<(), ConnectionRefusal> {
        if self.inner.is_rate_limited(peer) {
            let now = self.inner.clock.get_or_init(SystemClock::new).now();
            if !self.inner.address_rates.lock().try_take(network_number(peer), now) {
                self.inner.refused_rate.fetch_add(1, SeqCst);
                return Err(ConnectionRefusal::AddressRate);
            }
        }
        self.count_address(peer)
    }

    fn count_address(&mut self, peer: IpAddr) -> Result<(), ConnectionRefusal> {
        let max = self.inner.max_per_address.load(SeqCst);
        if max == 0 || self.counted {
            return Ok(());
        }
        let key = network_number(peer);
        let mut addresses = self.inner.addresses.lock();
        let count = addresses.entry(key).or_insert(0);
        if *count >= max {
            drop(addresses);
            self.inner.refused_address.fetch_add(1, SeqCst);
            return Err(ConnectionRefusal::AddressLimit);
        }
        *count += 1;
        (self.key, self.counted) = (key, true);
        Ok(())
    }

    /// Marks the connection as authenticated, so it no longer counts against that limit. Only the first call has an
    /// effect.
    pub fn mark_authenticated(&mut self) {
        if std::mem::take(&mut self.unauthenticated) {
            self.inner.unauthenticated.fetch_sub(1, SeqCst);
            self.inner.wake();
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.mark_authenticated();
        self.inner.connections.fetch_sub(1, SeqCst);
        if self.counted {
            let mut addresses = self.inner.addresses.lock();
            if let Some(count) = addresses.get_mut(&self.key) {
                *count -= 1;
                if *count == 0 {
                    addresses.remove(&self.key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
    //= type=test
    //# A server implementation SHOULD enable a server administrator to limit the number of TCP connection attempts
    //# that it will accept from a given IP address in a given time period.
    //= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
    //= type=test
    //# If an entity attempts to connect but the maximum number of connection attempts has been reached, the
    //# receiving server MUST NOT allow the new connection to proceed.
    #[test]
    fn an_address_above_its_rate_is_refused_and_others_are_not() {
        let limiter = ConnectionLimiter::new(ConnectionLimits {
            new_per_second: 2,
            new_burst: 3,
            ..ConnectionLimits::default()
        });
        let enter = |text: &str, ms: u64| limiter.try_acquire_at(address(text), Millis(ms)).is_ok();
        let all: Vec<bool> = (0..5).map(|_| enter("192.0.2.1", 1000)).collect();
        assert_eq!(all, [true, true, true, false, false]);
        assert!(enter("192.0.2.2", 1000));
        assert!(enter("192.0.2.1", 1500));
        assert!(!enter("192.0.2.1", 1500));
        assert_eq!((limiter.counts().refused_rate, limiter.counts().connections), (3, 0));
        limiter.set_limits(ConnectionLimits { new_per_second: 5, ..ConnectionLimits::default() });
        assert!(enter("192.0.2.1", 1500), "a changed rate begins anew");
        limiter.set_limits(ConnectionLimits::default());
        assert!((0..100).all(|_| limiter.try_acquire(address("192.0.2.1")).is_ok()));
    }

    #[test]
    fn a_rate_may_exempt_loopback() {
        let admitted = |limiter: &ConnectionLimiter, text: &str| {
            (0..9).filter(|_| limiter.try_acquire(address(text)).is_ok()).count()
        };
        for (new_on_loopback, passed) in [(false, 9), (true, 1)] {
            let limits = ConnectionLimits {
                new_per_second: 1,
                new_burst: 1,
                new_on_loopback,
                ..ConnectionLimits::default()
            };
            for local in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
                assert!(admitted(&ConnectionLimiter::new(limits), local) >= passed, "{local}");
                assert!(
                    new_on_loopback || admitted(&ConnectionLimiter::new(limits), "192.0.2.1") < 9,
                    "others are counted"
                );
            }
        }
    }

    #[test]
    fn the_table_of_addresses_is_bounded_and_further_addresses_share_a_bucket() {
        let mut arrivals = AddressRates::default();
        arrivals.configure(1, 2);
        for n in 0..MAX_RATED_ADDRESSES as u64 {
            assert!(arrivals.try_take(n, Millis(1000)));
        }
        assert!(arrivals.try_take(u64::MAX, Millis(1000)));
        assert!(arrivals.try_take(u64::MAX - 1, Millis(1000)));
        assert!(!arrivals.try_take(u64::MAX - 2, Millis(1000)), "the third unknown address");
        assert!(arrivals.try_take(0, Millis(1000)), "a known address has a bucket");
        assert_eq!(arrivals.meters.len(), MAX_RATED_ADDRESSES);
        // Full buckets are removed.
        assert!(arrivals.try_take(u64::MAX, Millis(9000)));
        assert_eq!(arrivals.meters.len(), 1);
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    //= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
    //= type=test
    //# A server implementation SHOULD enable a server administrator to limit the number of TCP connections that it
    //# will accept from a given IP address at any one time.
    //= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
    //= type=test
    //# If an entity attempts to connect but the maximum number of TCP connections has been reached, the receiving
    //# server MUST NOT allow the new connection to proceed.
    #[test]
    fn each_limit_refuses_and_frees() {
        let limiter = ConnectionLimiter::new(ConnectionLimits {
            connections: 3,
            per_address: 2,
            ..ConnectionLimits::default()
        });
        let first = limiter.try_acquire(address("192.0.2.1")).unwrap();
        let _second = limiter.try_acquire(address("::ffff:192.0.2.1")).unwrap();
        assert_eq!(limiter.try_acquire(address("192.0.2.1")).unwrap_err(), ConnectionRefusal::AddressLimit);
        let _third = limiter.try_acquire(address("192.0.2.2")).unwrap();
        assert_eq!(limiter.try_acquire(address("192.0.2.3")).unwrap_err(), ConnectionRefusal::TotalLimit);
        drop(first);
        let _again = limiter.try_acquire(address("192.0.2.1")).unwrap();
        let counts = limiter.counts();
        assert_eq!((counts.connections, counts.refused_full, counts.refused_address), (3, 1, 1));
    }

    #[test]
    fn a_proxied_connection_counts_for_its_client() {
        let limiter = ConnectionLimiter::new(ConnectionLimits {
            connections: 3,
            per_address: 1,
            ..ConnectionLimits::default()
        });
        let mut first = limiter.try_acquire_proxied().unwrap();
        let mut second = limiter.try_acquire_proxied().unwrap();
        first.set_client_address(address("192.0.2.1")).unwrap();
        assert_eq!(
            second.set_client_address(address("192.0.2.1")).unwrap_err(),
            ConnectionRefusal::AddressLimit
        );
        second.set_client_address(address("192.0.2.2")).unwrap();
        let _third = limiter.try_acquire_proxied().unwrap();
        assert_eq!(limiter.try_acquire_proxied().unwrap_err(), ConnectionRefusal::TotalLimit);
        drop((first, second));
        assert!(limiter.0.addresses.lock().is_empty());
        let limiter =
            ConnectionLimiter::new(ConnectionLimits { new_per_second: 1, ..ConnectionLimits::default() });
        let enter = || limiter.try_acquire_proxied().unwrap().set_client_address(address("192.0.2.1"));
        assert_eq!((enter(), enter()), (Ok(()), Err(ConnectionRefusal::AddressRate)));
    }

    #[test]
    fn ipv6_counts_by_network() {
        let limiter =
            ConnectionLimiter::new(ConnectionLimits { per_address: 1, ..ConnectionLimits::default() });
        let _first = limiter.try_acquire(address("2001:db8:1:2::1")).unwrap();
        assert!(limiter.try_acquire(address("2001:db8:1:2:ffff::2")).is_err());
        assert!(limiter.try_acquire(address("2001:db8:1:3::1")).is_ok());
    }

    #[test]
    fn dropped_permits_leave_no_entry() {
        let limiter =
            ConnectionLimiter::new(ConnectionLimits { per_address: 5, ..ConnectionLimits::default() });
        drop((0..100_u8).map(|n| limiter.try_acquire(IpAddr::from([192, 0, 2, n]))).collect::<Vec<_>>());
        assert!(limiter.0.addresses.lock().is_empty());
        assert_eq!(limiter.counts(), ConnectionCounts::default());
    }

    #[test]
    fn the_limit_per_address_may_change_while_connections_exist() {
        let limiter = ConnectionLimiter::new(ConnectionLimits::default());
        let before = limiter.try_acquire(address("192.0.2.1")).unwrap();
        limiter.set_limits(ConnectionLimits { per_address: 1, ..ConnectionLimits::default() });
        let after = limiter.try_acquire(address("192.0.2.1")).unwrap();
        drop(before);
        assert!(
            limiter.try_acquire(address("192.0.2.1")).is_err(),
            "the uncounted one took the counted one's place"
        );
        drop(after);
        assert!(limiter.try_acquire(address("192.0.2.1")).is_ok());
    }

    #[test]
    fn limiters_share_an_accept_rate_from_which_loopback_may_be_exempt() {
        use crate::clock::ManualClock;
        let clock = Arc::new(ManualClock::new());
        let rate = AcceptRate::new(clock.clone());
        let limits = |accept_rate_on_loopback| ConnectionLimits {
            accepted_per_second: 10,
            accept_rate_on_loopback,
            ..ConnectionLimits::default()
        };
        let xmpp = ConnectionLimiter::with_accept_rate(limits(false), rate.clone());
        let http = ConnectionLimiter::with_accept_rate(limits(true), rate);
        for local in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(!xmpp.takes_turn(Some(address(local))) && http.takes_turn(Some(address(local))));
        }
        assert!(xmpp.takes_turn(None), "a proxy on loopback connects for others");
        assert!(xmpp.takes_turn(Some(address("192.0.2.1"))));
        let (mut first, mut second) = (None, None);
        assert_eq!((xmpp.accept_delay(&mut first), http.accept_delay(&mut second)), (0, 100));
        clock.advance(100);
        assert_eq!((http.accept_delay(&mut second), http.accept_delay(&mut None)), (0, 100));
        xmpp.set_limits(ConnectionLimits::default());
        assert_eq!(http.accept_delay(&mut None), 0, "one sets the rate of both");
        let alone = ConnectionLimiter::new(limits(true));
        assert_eq!((alone.accept_delay(&mut None), alone.accept_delay(&mut None)), (0, 0), "no rate");
        assert!(!alone.takes_turn(None));
    }

    #[test]
    fn a_listener_at_the_unauthenticated_limit_waits_and_is_woken() {
        use std::sync::atomic::AtomicU32;
        struct Woken(AtomicU32);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let woken = Arc::new(Woken(AtomicU32::new(0)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let limiter =
            ConnectionLimiter::new(ConnectionLimits { unauthenticated: 1, ..ConnectionLimits::default() });
        assert!(limiter.poll_capacity(&mut cx).is_ready());
        let mut permit = limiter.try_acquire(address("192.0.2.1")).unwrap();
        assert!(limiter.poll_capacity(&mut cx).is_pending());
        assert!(limiter.poll_capacity(&mut cx).is_pending());
        permit.mark_authenticated();
        permit.mark_authenticated();
        assert_eq!(woken.0.load(SeqCst), 1);
        assert!(limiter.poll_capacity(&mut cx).is_ready());
        assert_eq!((limiter.counts().connections, limiter.counts().unauthenticated), (1, 0));
    }
}
