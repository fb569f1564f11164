//! Bytestreams that wait for activation, active ones, and what each user and service has in use.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use base::clock::{Clock, Millis};
use base::lock::{LeafMutex, RankedMutex, rank};
use base::token_bucket::TokenBucket;

use super::handshake::BytestreamDestination;
use crate::connection_limits::ConnectionPermit;
use crate::stream::byte_stream::AnyByteStream;

/// Limits of one activation; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytestreamLimits {
    /// Active bytestreams of one user.
    pub sessions_per_user: u32,
    /// Active bytestreams of the service.
    pub sessions: u32,
    /// Bytes per second of one user, in both directions of all bytestreams.
    pub bytes_per_second_per_user: u32,
    /// Bytes per second of the service.
    pub bytes_per_second: u32,
    /// Seconds without a byte in either direction, after which the bytestream is closed.
    pub idle_seconds: u32,
}

/// Reason for refusing an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationRefusal {
    /// No connection has this destination.
    NotConnected,
    /// Only one party is connected.
    OneParty,
    /// The user has too many active bytestreams.
    UserLimit,
    /// The service has too many active bytestreams.
    ServiceLimit,
}

/// How a connection or bytestream ended, and what was refused: the label in the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socks5Outcome {
    /// Both parties closed their direction.
    Finished,
    /// A connection failed.
    Failed,
    /// No byte passed for too long.
    Idle,
    /// It was not activated in time, or the handshake took too long.
    Expired,
    /// All parties left before the activation.
    Abandoned,
    /// The handshake was invalid or refused.
    Rejected,
    /// Two parties are connected already.
    Occupied,
    /// Too many bytes were sent before the activation.
    Flooded,
}

impl Socks5Outcome {
    /// All outcomes, in the order of their discriminants.
    pub const ALL: [Socks5Outcome; 8] = [
        Socks5Outcome::Finished,
        Socks5Outcome::Failed,
        Socks5Outcome::Idle,
        Socks5Outcome::Expired,
        Socks5Outcome::Abandoned,
        Socks5Outcome::Rejected,
        Socks5Outcome::Occupied,
        Socks5Outcome::Flooded,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Socks5Outcome::Finished => "finished",
            Socks5Outcome::Failed => "failed",
            Socks5Outcome::Idle => "idle",
            Socks5Outcome::Expired => "expired",
            Socks5Outcome::Abandoned => "abandoned",
            Socks5Outcome::Rejected => "rejected",
            Socks5Outcome::Occupied => "occupied",
            Socks5Outcome::Flooded => "flooded",
        }
    }
}

/// Metrics of a [`Socks5Proxy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Socks5Counts {
    /// Active bytestreams.
    pub active: usize,
    /// Destinations that wait for activation.
    pub waiting: usize,
    /// Activated bytestreams, since the start.
    pub activated: u64,
    /// Relayed bytes, since the start.
    pub bytes: u64,
    /// Ended connections and bytestreams, in the order of [`Socks5Outcome::ALL`], since the start.
    pub ended: [u64; Socks5Outcome::ALL.len()],
}

/// A proxy of bytestreams. Clones share the same state.
#[derive(Clone)]
pub struct Socks5Proxy(pub(super) Arc<ProxyState>);

pub(super) struct ProxyState {
    pub(super) clock: Arc<dyn Clock>,
    table: RankedMutex<BytestreamTable, { rank::BYTESTREAM_TABLE }>,
    pairing_millis: AtomicU64,
    activated: AtomicU64,
    pub(super) bytes: AtomicU64,
    ended: [AtomicU64; Socks5Outcome::ALL.len()],
}

#[derive(Default)]
struct BytestreamTable {
    addresses: Vec<SocketAddr>,
    waiting: HashMap<BytestreamDestination, Arc<PendingBytestream>>,
    active: usize,
    users: HashMap<Box<str>, Arc<Usage>>,
    services: HashMap<Box<str>, Arc<Usage>>,
    /// Alarms of all tasks; those of ended tasks are removed by the sweep.
    alarms: Vec<Weak<Alarm>>,
}

/// Wakes a task at a time. The proxy has no timers: [`Socks5Proxy::sweep`] wakes tasks whose time has come.
#[derive(Default)]
pub(super) struct Alarm {
    at: AtomicU64,
    waker: LeafMutex<Option<Waker>>,
}

impl Alarm {
    /// Wakes the task of `cx` at the first sweep from `at` on.
    pub(super) fn set(&self, at: Millis, cx: &Context<'_>) {
        let mut waker = self.waker.lock();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.at.store(at.0, Relaxed);
    }

    /// Wakes the task now.
    fn ring(&self) {
        let waker = self.waker.lock().take();
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A connected party: its socket, and the permit that counts it.
pub(super) struct Party {
    pub(super) socket: AnyByteStream,
    pub(super) permit: Option<ConnectionPermit>,
}

/// A bytestream that is not active yet. The task of the first party owns both sockets.
pub(super) struct PendingBytestream {
    pub(super) alarm: Arc<Alarm>,
    pub(super) state: RankedMutex<PendingState, { rank::PENDING_BYTESTREAM }>,
}

#[derive(Default)]
pub(super) struct PendingState {
    /// Parties that are connected.
    pub(super) parties: usize,
    /// A further party, for the task.
    pub(super) arrived: Option<Party>,
    pub(super) activated: Option<Grant>,
}

/// What one user or one service has in use.
pub(super) struct Usage {
    sessions: AtomicU64,
    bucket: LeafMutex<(u32, TokenBucket)>,
}

impl Usage {
    fn new() -> Usage {
        Usage { sessions: AtomicU64::new(0), bucket: LeafMutex::new((0, TokenBucket::unlimited())) }
    }

    /// Sets the rate in bytes per second; the burst is one second. 0 is unlimited. An unchanged rate keeps its level.
    fn set_rate(&self, rate: u32) {
        let mut bucket = self.bucket.lock();
        if bucket.0 != rate {
            *bucket = (rate, if rate == 0 { TokenBucket::unlimited() } else { TokenBucket::new(rate, rate) });
        }
    }

    /// Whether it has a session, or its debt must be remembered for the next one.
    fn is_needed(&self, now: Millis) -> bool {
        self.sessions.load(Relaxed) > 0 || self.bucket.lock().1.full_ms(now) > 0
    }

    fn is_below(&self, limit: u32) -> bool {
        limit == 0 || self.sessions.load(Relaxed) < u64::from(limit)
    }
}

/// Permission of an active bytestream; dropping it frees its places.
pub(super) struct Grant {
    user: Arc<Usage>,
    service: Arc<Usage>,
    pub(super) idle_millis: u64,
    proxy: Arc<ProxyState>,
}

impl Grant {
    /// Milliseconds until more bytes may be read.
    pub(super) fn delay(&self, now: Millis) -> u64 {
        [&self.user, &self.service]
            .map(|usage| usage.bucket.lock().1.millis_until(0, now))
            .into_iter()
            .fold(0, u64::max)
    }

    /// Counts bytes that were read.
    pub(super) fn charge(&self, bytes: usize, now: Millis) {
        let charged = u32::try_from(bytes).unwrap_or(u32::MAX);
        for usage in [&self.user, &self.service] {
            usage.bucket.lock().1.charge(charged, now);
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut table = self.proxy.table.lock();
        table.active -= 1;
        for usage in [&self.user, &self.service] {
            usage.sessions.fetch_sub(1, Relaxed);
        }
    }
}

impl Socks5Proxy {
    /// A proxy without listeners.
    pub fn new(clock: Arc<dyn Clock>) -> Socks5Proxy {
        Socks5Proxy(Arc::new(ProxyState {
            clock,
            table: RankedMutex::default(),
            pairing_millis: AtomicU64::new(60_000),
            activated: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            ended: [const { AtomicU64::new(0) }; Socks5Outcome::ALL.len()],
        }))
    }

    /// Adds the address of a listener.
    pub fn add_address(&self, address: SocketAddr) {
        self.0.table.lock().addresses.push(address);
    }

    /// Addresses of the listeners.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.table.lock().addresses.clone()
    }

    /// Sets the time from the accepted connection to the activation, in seconds; for new connections.
    pub fn set_pairing_seconds(&self, seconds: u32) {
        self.0.pairing_millis.store(u64::from(seconds) * 1000, Relaxed);
    }

    pub(super) fn pairing_millis(&self) -> u64 {
        self.0.pairing_millis.load(Relaxed)
    }

    /// Activates the bytestream of a destination for a user of a service.
    ///
    /// # Errors
    /// The reason; a bytestream that waits then continues to wait.
    pub fn activate(
        &self,
        destination: BytestreamDestination,
        (service, user): (&str, &str),
        limits: &BytestreamLimits,
    ) -> Result<(), ActivationRefusal> {
        let mut table = self.0.table.lock();
        let pending = table.waiting.get(&destination).cloned().ok_or(ActivationRefusal::NotConnected)?;
        let mut state = pending.state.lock();
        if state.parties < 2 {
            return Err(ActivationRefusal::OneParty);
        }
        let user = table.usage(|table| &mut table.users, user, limits.bytes_per_second_per_user);
        if !user.is_below(limits.sessions_per_user) {
            return Err(ActivationRefusal::UserLimit);
        }
        let service = table.usage(|table| &mut table.services, service, limits.bytes_per_second);
        if !service.is_below(limits.sessions) {
            return Err(ActivationRefusal::ServiceLimit);
        }
        for usage in [&user, &service] {
            usage.sessions.fetch_add(1, Relaxed);
        }
        table.active += 1;
        table.waiting.remove(&destination);
        self.0.activated.fetch_add(1, Relaxed);
        let idle_millis =
            if limits.idle_seconds == 0 { u64::MAX } else { u64::from(limits.idle_seconds) * 1000 };
        state.activated = Some(Grant { user, service, idle_millis, proxy: self.0.clone() });
        pending.alarm.ring();
        Ok(())
    }

    /// Wakes tasks whose deadline has passed. Must be called several times a second: it paces limited bytestreams.
    pub fn sweep(&self) {
        let now = self.0.clock.now();
        let mut due = Vec::new();
        let mut table = self.0.table.lock();
        table.alarms.retain(|alarm| match alarm.upgrade() {
            None => false,
            Some(alarm) => {
                if alarm.at.load(Relaxed) <= now.0 {
                    due.push(alarm);
                }
                true
            }
        });
        table.users.retain(|_, usage| usage.is_needed(now));
        table.services.retain(|_, usage| usage.is_needed(now));
        drop(table);
        due.iter().for_each(|alarm| alarm.ring());
    }

    /// Present values.
    pub fn counts(&self) -> Socks5Counts {
        let table = self.0.table.lock();
        Socks5Counts {
            active: table.active,
            waiting: table.waiting.len(),
            activated: self.0.activated.load(Relaxed),
            bytes: self.0.bytes.load(Relaxed),
            ended: std::array::from_fn(|at| self.0.ended.get(at).map_or(0, |count| count.load(Relaxed))),
        }
    }

    pub(super) fn count_ended(&self, outcome: Socks5Outcome) {
        if let Some(count) = self.0.ended.get(outcome as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn alarm(&self) -> Arc<Alarm> {
        let alarm = Arc::new(Alarm::default());
        alarm.at.store(u64::MAX, Relaxed);
        self.0.table.lock().alarms.push(Arc::downgrade(&alarm));
        alarm
    }

    /// Adds a party: the first one gets the pending bytestream and waits for both; the second one is handed over to it.
    /// A third is returned.
    pub(super) fn join(
        &self,
        destination: BytestreamDestination,
        party: Party,
        alarm: &Arc<Alarm>,
    ) -> Result<Option<(Arc<PendingBytestream>, Party)>, Party> {
        let mut table = self.0.table.lock();
        if let Some(pending) = table.waiting.get(&destination) {
            let mut state = pending.state.lock();
            if state.parties >= 2 {
                return Err(party);
            }
            state.parties += 1;
            state.arrived = Some(party);
            pending.alarm.ring();
            return Ok(None);
        }
        let state = RankedMutex::new(PendingState { parties: 1, ..PendingState::default() });
        let pending = Arc::new(PendingBytestream { alarm: alarm.clone(), state });
        table.waiting.insert(destination, pending.clone());
        Ok(Some((pending, party)))
    }

    /// Whether a pending bytestream has both parties, so that a third one must be refused.
    pub(super) fn has_two_parties(&self, destination: BytestreamDestination) -> bool {
        let table = self.0.table.lock();
        table.waiting.get(&destination).is_some_and(|pending| pending.state.lock().parties >= 2)
    }

    /// Records that a party of a pending bytestream left. True if none is left, and the bytestream is removed; false
    /// also if it was activated meanwhile.
    pub(super) fn leave(&self, destination: BytestreamDestination, pending: &Arc<PendingBytestream>) -> bool {
        let mut table = self.0.table.lock();
        let mut state = pending.state.lock();
        if state.activated.is_some() {
            return false;
        }
        state.parties -= 1;
        if state.parties == 0 {
            table.remove(destination, pending);
        }
        state.parties == 0
    }

    /// Removes a bytestream that was not activated in time. False if it was activated meanwhile.
    pub(super) fn expire(
        &self,
        destination: BytestreamDestination,
        pending: &Arc<PendingBytestream>,
    ) -> bool {
        let mut table = self.0.table.lock();
        if pending.state.lock().activated.is_some() {
            return false;
        }
        table.remove(destination, pending);
        true
    }
}

impl BytestreamTable {
    fn usage(
        &mut self,
        map: fn(&mut BytestreamTable) -> &mut HashMap<Box<str>, Arc<Usage>>,
        name: &str,
        rate: u32,
    ) -> Arc<Usage> {
        let usage = map(self).entry(name.into()).or_insert_with(|| Arc::new(Usage::new())).clone();
        usage.set_rate(rate);
        usage
    }

    fn remove(&mut self, destination: BytestreamDestination, pending: &Arc<PendingBytestream>) {
        if self.waiting.get(&destination).is_some_and(|found| Arc::ptr_eq(found, pending)) {
            self.waiting.remove(&destination);
        }
    }
}

impl std::fmt::Debug for Socks5Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Socks5Proxy({:?})", self.counts())
    }
}
