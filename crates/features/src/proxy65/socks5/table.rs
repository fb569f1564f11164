//! Bytestreams that wait for activation, active ones, and the limits of connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Waker;

use base::clock::{Clock, Millis};
use base::connection_limits::{ConnectionLimiter, ConnectionLimits};
use base::lock::{RankedMutex, rank};

use super::handshake::BytestreamDestination;
use super::limits::{ActivationRefusal, BytestreamLimits};
use super::metrics::{Socks5Counts, Socks5Outcome};
use super::party::Party;
use super::permit::{BytestreamPermit, BytestreamUsage};

/// Milliseconds between two removals of unused rates.
const USAGE_SWEEP_MILLIS: u64 = 1000;

/// A proxy of bytestreams. Clones share the same state.
#[derive(Clone)]
pub(crate) struct Socks5Proxy(pub(super) Arc<ProxyState>);

pub(super) struct ProxyState {
    pub(super) clock: Arc<dyn Clock>,
    /// Counts connections without an active bytestream.
    pub(super) unactivated: ConnectionLimiter,
    table: RankedMutex<BytestreamTable, { rank::FEATURE_TABLE }>,
    activation_timeout_seconds: AtomicU32,
    usage_swept_at: AtomicU64,
    activated: AtomicU64,
    pub(super) bytes: AtomicU64,
    ended: [AtomicU64; Socks5Outcome::ALL.len()],
}

#[derive(Default)]
struct BytestreamTable {
    addresses: Vec<SocketAddr>,
    waiting: HashMap<BytestreamDestination, Arc<PendingBytestream>>,
    active: usize,
    users: HashMap<Box<str>, Arc<BytestreamUsage>>,
    services: HashMap<Box<str>, Arc<BytestreamUsage>>,
}

/// A bytestream that is not active yet. The task of the first party owns both sockets.
#[derive(Default)]
pub(super) struct PendingBytestream {
    pub(super) state: RankedMutex<PendingState, { rank::FEATURE_ENTRY }>,
}

#[derive(Default)]
pub(super) struct PendingState {
    /// Parties that are connected.
    pub(super) parties: usize,
    /// A further party and the time at which it expires, for the task.
    pub(super) arrived: Option<(Party, Millis)>,
    pub(super) activated: Option<BytestreamPermit>,
    /// The task of the first party.
    pub(super) waker: Option<Waker>,
}

impl ProxyState {
    /// Records the end of an active bytestream.
    pub(super) fn count_inactive(&self) {
        self.table.lock().active -= 1;
    }
}

impl Socks5Proxy {
    /// A proxy without listeners.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Socks5Proxy {
        Socks5Proxy(Arc::new(ProxyState {
            clock,
            unactivated: ConnectionLimiter::default(),
            table: RankedMutex::default(),
            activation_timeout_seconds: AtomicU32::new(60),
            usage_swept_at: AtomicU64::new(0),
            activated: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            ended: [const { AtomicU64::new(0) }; Socks5Outcome::ALL.len()],
        }))
    }

    /// Adds the address of a listener.
    pub(crate) fn add_listener(&self, address: SocketAddr) {
        self.0.table.lock().addresses.push(address);
    }

    /// Addresses of the listeners.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.table.lock().addresses.clone()
    }

    /// Sets the time from an accepted connection to the activation, in seconds; for new connections.
    pub(crate) fn set_activation_timeout(&self, seconds: u32) {
        self.0.activation_timeout_seconds.store(seconds, Relaxed);
    }

    pub(super) fn activation_timeout_millis(&self) -> u64 {
        u64::from(self.0.activation_timeout_seconds.load(Relaxed)) * 1000
    }

    /// Sets the maximum number of connections without an active bytestream, in total and from one IPv4 address or one
    /// IPv6 /64; 0 means no limit. Further ones are closed immediately.
    pub(crate) fn set_unactivated_limits(&self, connections: u32, per_address: u32) {
        let limits = ConnectionLimits { connections, per_address, ..ConnectionLimits::default() };
        self.0.unactivated.set_limits(limits);
    }

    /// Activates the bytestream of a destination for a user of a service.
    ///
    /// # Errors
    /// The reason; a bytestream that waits then continues to wait.
    pub(crate) fn activate(
        &self,
        destination: BytestreamDestination,
        names: (&str, &str),
        limits: &BytestreamLimits,
    ) -> Result<(), ActivationRefusal> {
        let waker = self.activate_in_table(destination, names, limits)?;
        // After the locks: a task that runs at once takes them.
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Returns the task to wake.
    fn activate_in_table(
        &self,
        destination: BytestreamDestination,
        (service, user): (&str, &str),
        limits: &BytestreamLimits,
    ) -> Result<Option<Waker>, ActivationRefusal> {
        let mut table = self.0.table.lock();
        let pending = table.waiting.get(&destination).ok_or(ActivationRefusal::NotConnected)?.clone();
        let mut state = pending.state.lock();
        if state.parties < 2 {
            return Err(ActivationRefusal::OneParty);
        }
        let user = BytestreamTable::usage(&mut table.users, user, limits.bytes_per_second_per_user);
        if !user.is_below(limits.bytestreams_per_user) {
            return Err(ActivationRefusal::UserLimit);
        }
        let service = BytestreamTable::usage(&mut table.services, service, limits.bytes_per_second);
        if !service.is_below(limits.bytestreams) {
            return Err(ActivationRefusal::ServiceLimit);
        }
        table.active += 1;
        table.waiting.remove(&destination);
        self.0.activated.fetch_add(1, Relaxed);
        let idle_millis =
            if limits.idle_seconds == 0 { u64::MAX } else { u64::from(limits.idle_seconds) * 1000 };
        state.activated = Some(BytestreamPermit::new([user, service], idle_millis, self.0.clone()));
        Ok(state.waker.take())
    }

    /// Removes rates that are not needed any more, once a second.
    pub(crate) fn remove_unused_rates(&self) {
        let now = self.0.clock.now();
        if now.0.saturating_sub(self.0.usage_swept_at.load(Relaxed)) >= USAGE_SWEEP_MILLIS {
            self.0.usage_swept_at.store(now.0, Relaxed);
            let mut table = self.0.table.lock();
            table.users.retain(|_, usage| usage.is_needed(now));
            table.services.retain(|_, usage| usage.is_needed(now));
        }
    }

    /// Present values.
    pub(crate) fn counts(&self) -> Socks5Counts {
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

    /// Adds a party: the first one gets the pending bytestream and waits for both; the second one is handed over to it.
    /// A third is returned.
    pub(super) fn join(
        &self,
        destination: BytestreamDestination,
        party: Party,
        expires: Millis,
    ) -> Result<Option<(Arc<PendingBytestream>, Party)>, Party> {
        let mut table = self.0.table.lock();
        if let Some(pending) = table.waiting.get(&destination) {
            let mut state = pending.state.lock();
            if state.parties >= 2 {
                return Err(party);
            }
            state.parties += 1;
            state.arrived = Some((party, expires));
            let waker = state.waker.take();
            drop(state);
            drop(table);
            waker.into_iter().for_each(Waker::wake);
            return Ok(None);
        }
        let pending = Arc::<PendingBytestream>::default();
        pending.state.lock().parties = 1;
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
        map: &mut HashMap<Box<str>, Arc<BytestreamUsage>>,
        name: &str,
        rate: u32,
    ) -> Arc<BytestreamUsage> {
        let usage = map.entry(name.into()).or_insert_with(|| Arc::new(BytestreamUsage::new())).clone();
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
