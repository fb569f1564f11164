//! Counts connections and says no: in total, per address, how many may be unauthenticated (not yet authenticated), and how many
//! may come from one address in a second.
//!
//! A [`Gate`] is shared by the listeners that share a budget. Every accepted connection holds a [`Pass`], which counts
//! until it is dropped. Refusals are counted by reason.
//! Left out: failed logins (the layer above meters them) and lists of banned addresses.
//! Trap: an IPv6 client has 2^64 addresses, so IPv6 is counted by /64; and all users behind one NAT are one address.

use base::clock::{Clock, Millis, SystemClock};
use base::limit::Meter;
use base::network_number;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

/// Limits of a [`Gate`]; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateLimits {
    /// Connections at a time. A connection beyond it is closed at once.
    pub connections: u32,
    /// Connections at a time that have not authenticated. Beyond it nothing is accepted; clients wait in the kernel's
    /// backlog, which paces a rush of logins instead of making it worse with reconnects.
    pub unauthenticated: u32,
    /// Connections at a time from one IPv4 address or one IPv6 /64. A connection beyond it is closed at once.
    pub per_address: u32,
    /// New connections in a second from one IPv4 address or one IPv6 /64. A connection beyond it is closed at once.
    pub new_per_second: u32,
    /// Of these, how many may come at once; at least those of a second.
    pub new_burst: u32,
    /// Whether the rate holds for loopback.
    pub new_on_loopback: bool,
}

/// Why a connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// All connections are taken.
    Full,
    /// This address has its share.
    Address,
    /// From this address they come too fast.
    Rate,
}

/// Figures of a [`Gate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Connections now.
    pub connections: u32,
    /// Of these, not authenticated.
    pub unauthenticated: u32,
    /// Refused because all connections were taken, since the start.
    pub refused_full: u64,
    /// Refused because the address had its share, since the start.
    pub refused_address: u64,
    /// Refused because they came too fast from one address, since the start.
    pub refused_rate: u64,
    /// Times a listener paused accepting because of `unauthenticated`, since the start.
    pub pauses: u64,
}

/// A budget of connections. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    max_connections: AtomicU32,
    max_unauthenticated: AtomicU32,
    max_per_address: AtomicU32,
    connections: AtomicU32,
    unauthenticated: AtomicU32,
    refused_full: AtomicU64,
    refused_address: AtomicU64,
    refused_rate: AtomicU64,
    pauses: AtomicU64,
    /// `new_per_second` is on: asked without the lock.
    rated: AtomicBool,
    rated_on_loopback: AtomicBool,
    arrivals: Mutex<Arrivals>,
    clock: OnceLock<SystemClock>,
    addresses: Mutex<HashMap<u64, u32>>,
    /// Listeners that wait for a unauthenticated connection to end; one entry each.
    waiting: Mutex<Vec<Waker>>,
    is_waiting: AtomicBool,
}

impl Gate {
    /// A gate with these limits.
    pub fn new(limits: GateLimits) -> Gate {
        let gate = Gate::default();
        gate.set_limits(limits);
        gate
    }

    /// Changes the limits. Who is in stays in.
    pub fn set_limits(&self, limits: GateLimits) {
        self.0.max_connections.store(limits.connections, SeqCst);
        self.0.max_unauthenticated.store(limits.unauthenticated, SeqCst);
        self.0.max_per_address.store(limits.per_address, SeqCst);
        self.0.rated.store(limits.new_per_second != 0, SeqCst);
        self.0.rated_on_loopback.store(limits.new_on_loopback, SeqCst);
        self.0.arrivals.lock().set(limits.new_per_second, limits.new_burst);
        self.0.wake();
    }

    /// Lets a new connection in, unauthenticated.
    ///
    /// # Errors
    /// The limit that stands against it; the refusal is counted.
    pub fn enter(&self, peer: IpAddr) -> Result<Pass, Refused> {
        let inner = &self.0;
        if inner.is_rated(peer) {
            let now = inner.clock.get_or_init(SystemClock::new).now();
            return self.enter_at(peer, now);
        }
        self.admit(peer)
    }

    /// Lets a proxy's connection in, unauthenticated. It counts for nobody until [`Pass::identify`] says whose it is.
    ///
    /// # Errors
    /// [`Refused::Full`]; the refusal is counted.
    pub fn enter_proxied(&self) -> Result<Pass, Refused> {
        let inner = &self.0;
        let max = inner.max_connections.load(SeqCst);
        if inner.connections.fetch_add(1, SeqCst) >= max && max != 0 {
            inner.connections.fetch_sub(1, SeqCst);
            inner.refused_full.fetch_add(1, SeqCst);
            return Err(Refused::Full);
        }
        inner.unauthenticated.fetch_add(1, SeqCst);
        Ok(Pass { inner: inner.clone(), key: 0, counted: false, unauthenticated: true })
    }

    fn enter_at(&self, peer: IpAddr, now: Millis) -> Result<Pass, Refused> {
        if self.0.arrivals.lock().take(network_number(peer), now) {
            return self.admit(peer);
        }
        self.0.refused_rate.fetch_add(1, SeqCst);
        Err(Refused::Rate)
    }

    fn admit(&self, peer: IpAddr) -> Result<Pass, Refused> {
        let mut pass = self.enter_proxied()?;
        pass.count(peer)?;
        Ok(pass)
    }

    /// True when another unauthenticated connection may be accepted.
    pub fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// Ready when another unauthenticated connection may be accepted.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &self.0;
        if inner.has_room() {
            return Poll::Ready(());
        }
        let mut waiting = inner.waiting.lock();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
            inner.pauses.fetch_add(1, SeqCst);
        }
        inner.is_waiting.store(true, SeqCst);
        drop(waiting);
        // Whoever made room before the flag was up has not seen it.
        if inner.has_room() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The figures now.
    pub fn counts(&self) -> GateCounts {
        GateCounts {
            connections: self.0.connections.load(SeqCst),
            unauthenticated: self.0.unauthenticated.load(SeqCst),
            refused_full: self.0.refused_full.load(SeqCst),
            refused_address: self.0.refused_address.load(SeqCst),
            refused_rate: self.0.refused_rate.load(SeqCst),
            pauses: self.0.pauses.load(SeqCst),
        }
    }
}

impl Inner {
    fn has_room(&self) -> bool {
        let max = self.max_unauthenticated.load(SeqCst);
        max == 0 || self.unauthenticated.load(SeqCst) < max
    }

    fn wake(&self) {
        if self.is_waiting.swap(false, SeqCst) {
            std::mem::take(&mut *self.waiting.lock()).into_iter().for_each(Waker::wake);
        }
    }
}

impl Inner {
    /// Whether connections from there are counted by the second.
    fn is_rated(&self, peer: IpAddr) -> bool {
        let local = peer.to_canonical().is_loopback();
        self.rated.load(SeqCst) && (!local || self.rated_on_loopback.load(SeqCst))
    }
}

/// Addresses with a bucket of their own at a time.
const ADDRESSES: usize = 65_536;

/// How fast connections come, by address. A bucket that is full again is as good as none, so it goes when the table is
/// full; if that frees nothing, further addresses share one bucket.
#[derive(Debug)]
struct Arrivals {
    rate: u32,
    burst: u32,
    meters: HashMap<u64, Meter>,
    strangers: Meter,
    swept: Millis,
}

impl Default for Arrivals {
    fn default() -> Self {
        let (meters, strangers) = (HashMap::new(), Meter::unlimited());
        Arrivals { rate: 0, burst: 0, meters, strangers, swept: Millis::ZERO }
    }
}

impl Arrivals {
    fn set(&mut self, rate: u32, burst: u32) {
        let burst = burst.max(rate);
        if (self.rate, self.burst) != (rate, burst) {
            let strangers = if rate == 0 { Meter::unlimited() } else { Meter::new(rate, burst) };
            *self = Arrivals { rate, burst, meters: HashMap::new(), strangers, swept: self.swept };
        }
    }

    fn take(&mut self, key: u64, now: Millis) -> bool {
        if self.rate == 0 {
            return true;
        }
        if self.meters.len() >= ADDRESSES && !self.meters.contains_key(&key) {
            // Not more often than once a second, or a flood of addresses would make each of them cost a sweep.
            if now.since(self.swept) >= 1000 {
                self.swept = now;
                let burst = self.burst;
                self.meters.retain(|_, meter| meter.available(now) < burst);
                self.meters.shrink_to_fit();
            }
            if self.meters.len() >= ADDRESSES {
                return self.strangers.take(1, now);
            }
        }
        let fresh = Meter::new(self.rate, self.burst);
        self.meters.entry(key).or_insert(fresh).take(1, now)
    }
}

/// One connection's place; it is free again when this is dropped.
#[derive(Debug)]
pub struct Pass {
    inner: Arc<Inner>,
    key: u64,
    /// The address is in the table. The limit may have been off when it came in.
    counted: bool,
    unauthenticated: bool,
}

impl Pass {
    /// Says whose connection this is, once its proxy has told.
    ///
    /// # Errors
    /// The limit that stands against it; the refusal is counted, and the pass is to be dropped.
    pub fn identify(&mut self, peer: IpAddr) -> Result<(), Refused> {
        if self.inner.is_rated(peer) {
            let now = self.inner.clock.get_or_init(SystemClock::new).now();
            if !self.inner.arrivals.lock().take(network_number(peer), now) {
                self.inner.refused_rate.fetch_add(1, SeqCst);
                return Err(Refused::Rate);
            }
        }
        self.count(peer)
    }

    fn count(&mut self, peer: IpAddr) -> Result<(), Refused> {
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
            return Err(Refused::Address);
        }
        *count += 1;
        (self.key, self.counted) = (key, true);
        Ok(())
    }

    /// The peer has authenticated: it no longer counts as unauthenticated. Only the first call matters.
    pub fn authenticated(&mut self) {
        if std::mem::take(&mut self.unauthenticated) {
            self.inner.unauthenticated.fetch_sub(1, SeqCst);
            self.inner.wake();
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.authenticated();
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

    #[test]
    fn an_address_that_comes_too_fast_is_refused_and_others_are_not() {
        let gate = Gate::new(GateLimits { new_per_second: 2, new_burst: 3, ..GateLimits::default() });
        let enter = |text: &str, ms: u64| gate.enter_at(address(text), Millis(ms)).is_ok();
        let all: Vec<bool> = (0..5).map(|_| enter("192.0.2.1", 1000)).collect();
        assert_eq!(all, [true, true, true, false, false]);
        assert!(enter("192.0.2.2", 1000));
        assert!(enter("192.0.2.1", 1500));
        assert!(!enter("192.0.2.1", 1500));
        assert_eq!((gate.counts().refused_rate, gate.counts().connections), (3, 0));
        gate.set_limits(GateLimits { new_per_second: 5, ..GateLimits::default() });
        assert!(enter("192.0.2.1", 1500), "a changed rate begins anew");
        gate.set_limits(GateLimits::default());
        assert!((0..100).all(|_| gate.enter(address("192.0.2.1")).is_ok()));
    }

    #[test]
    fn a_rate_may_leave_loopback_alone() {
        let comes = |gate: &Gate, text: &str| (0..9).filter(|_| gate.enter(address(text)).is_ok()).count();
        for (new_on_loopback, passed) in [(false, 9), (true, 1)] {
            let limits =
                GateLimits { new_per_second: 1, new_burst: 1, new_on_loopback, ..GateLimits::default() };
            for local in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
                assert!(comes(&Gate::new(limits), local) >= passed, "{local}");
                assert!(new_on_loopback || comes(&Gate::new(limits), "192.0.2.1") < 9, "others are counted");
            }
        }
    }

    #[test]
    fn the_table_of_addresses_is_bounded_and_strangers_beyond_it_share_a_bucket() {
        let mut arrivals = Arrivals::default();
        arrivals.set(1, 2);
        for n in 0..ADDRESSES as u64 {
            assert!(arrivals.take(n, Millis(1000)));
        }
        assert!(arrivals.take(u64::MAX, Millis(1000)));
        assert!(arrivals.take(u64::MAX - 1, Millis(1000)));
        assert!(!arrivals.take(u64::MAX - 2, Millis(1000)), "the third stranger");
        assert!(arrivals.take(0, Millis(1000)), "who is known has a bucket");
        assert_eq!(arrivals.meters.len(), ADDRESSES);
        // Buckets that are full again are forgotten.
        assert!(arrivals.take(u64::MAX, Millis(9000)));
        assert_eq!(arrivals.meters.len(), 1);
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_limit_refuses_and_frees() {
        let gate = Gate::new(GateLimits { connections: 3, per_address: 2, ..GateLimits::default() });
        let first = gate.enter(address("192.0.2.1")).unwrap();
        let _second = gate.enter(address("::ffff:192.0.2.1")).unwrap();
        assert_eq!(gate.enter(address("192.0.2.1")).unwrap_err(), Refused::Address);
        let _third = gate.enter(address("192.0.2.2")).unwrap();
        assert_eq!(gate.enter(address("192.0.2.3")).unwrap_err(), Refused::Full);
        drop(first);
        let _again = gate.enter(address("192.0.2.1")).unwrap();
        let counts = gate.counts();
        assert_eq!((counts.connections, counts.refused_full, counts.refused_address), (3, 1, 1));
    }

    #[test]
    fn a_proxied_connection_counts_for_its_client() {
        let gate = Gate::new(GateLimits { connections: 3, per_address: 1, ..GateLimits::default() });
        let mut first = gate.enter_proxied().unwrap();
        let mut second = gate.enter_proxied().unwrap();
        first.identify(address("192.0.2.1")).unwrap();
        assert_eq!(second.identify(address("192.0.2.1")).unwrap_err(), Refused::Address);
        second.identify(address("192.0.2.2")).unwrap();
        let _third = gate.enter_proxied().unwrap();
        assert_eq!(gate.enter_proxied().unwrap_err(), Refused::Full);
        drop((first, second));
        assert!(gate.0.addresses.lock().is_empty());
        let gate = Gate::new(GateLimits { new_per_second: 1, ..GateLimits::default() });
        let enter = || gate.enter_proxied().unwrap().identify(address("192.0.2.1"));
        assert_eq!((enter(), enter()), (Ok(()), Err(Refused::Rate)));
    }

    #[test]
    fn ipv6_counts_by_network() {
        let gate = Gate::new(GateLimits { per_address: 1, ..GateLimits::default() });
        let _first = gate.enter(address("2001:db8:1:2::1")).unwrap();
        assert!(gate.enter(address("2001:db8:1:2:ffff::2")).is_err());
        assert!(gate.enter(address("2001:db8:1:3::1")).is_ok());
    }

    #[test]
    fn nothing_is_left_of_those_who_went() {
        let gate = Gate::new(GateLimits { per_address: 5, ..GateLimits::default() });
        drop((0..100_u8).map(|n| gate.enter(IpAddr::from([192, 0, 2, n]))).collect::<Vec<_>>());
        assert!(gate.0.addresses.lock().is_empty());
        assert_eq!(gate.counts(), GateCounts::default());
    }

    #[test]
    fn the_limit_per_address_may_change_in_between() {
        let gate = Gate::new(GateLimits::default());
        let before = gate.enter(address("192.0.2.1")).unwrap();
        gate.set_limits(GateLimits { per_address: 1, ..GateLimits::default() });
        let after = gate.enter(address("192.0.2.1")).unwrap();
        drop(before);
        assert!(gate.enter(address("192.0.2.1")).is_err(), "the uncounted one took the counted one's place");
        drop(after);
        assert!(gate.enter(address("192.0.2.1")).is_ok());
    }

    #[test]
    fn a_full_antechamber_waits_and_is_woken() {
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
        let gate = Gate::new(GateLimits { unauthenticated: 1, ..GateLimits::default() });
        assert!(gate.poll_room(&mut cx).is_ready());
        let mut pass = gate.enter(address("192.0.2.1")).unwrap();
        assert!(gate.poll_room(&mut cx).is_pending());
        assert!(gate.poll_room(&mut cx).is_pending());
        pass.authenticated();
        pass.authenticated();
        assert_eq!(woken.0.load(SeqCst), 1);
        assert!(gate.poll_room(&mut cx).is_ready());
        assert_eq!((gate.counts().connections, gate.counts().unauthenticated), (1, 0));
    }
}
