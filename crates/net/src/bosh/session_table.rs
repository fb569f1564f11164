//! Table of all BOSH sessions: creation, limits and timeouts (XEP-0124, section 6).
//!
//! The table is sharded by the random session identifier.
//!
//! Not implemented: admission of connections; the listener's connection limiter and the [`StreamStarter`] decide.
//!
//! # Pitfalls
//!
//! A finished session removes itself, so no shard may be locked while a session does work.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use base::clock::Clock;
use base::id::random_bytes;
use base::lock::{LeafMutex, LeafRwLock};
use base::token_bucket::TokenBucket;

use super::forwarding::{BoshForwarder, with_node_tag};
use super::forwarding_limits::ForwardingLimits;
use super::key_sequence::{self, KeySequence};
use super::request::{self, BoshRequest, BoshRequestError, PayloadItem};
use super::response::Condition;
use super::session::{BoshSession, TableShared, refusal};
use super::session_types::SessionParams;
use super::state::{BoshState, is_valid_first_rid};
use super::stream::BoshStream;
use super::{BoshCounts, BoshSettings, PendingResponse, RequestSource, StreamStarter, TerminationReason};
use crate::stream::Stream;

/// BOSH version implemented here.
const VERSION: (u32, u32) = (1, 11);
/// Number of shards.
const SHARDS: usize = 64;
/// Request burst, in seconds of the permitted rate.
pub(super) const BURST_SECONDS: u32 = 5;
/// Set in the identifiers of sessions whose client expects HTTP errors, so that it gets one even after its session is
/// gone.
pub(super) const LEGACY_SID_BIT: u128 = 1;

/// Identity hasher: identifiers are random, so a part of one serves as its hash.
#[derive(Default)]
pub(super) struct RandomIdHasher(u64);

impl Hasher for RandomIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "the low half of a random number is one")]
    fn write_u128(&mut self, sid: u128) {
        self.0 = sid as u64;
    }
}

type Shard = HashMap<u128, Arc<BoshSession>, BuildHasherDefault<RandomIdHasher>>;

/// All sessions of a node.
pub struct BoshSessionTable {
    settings: LeafRwLock<BoshSettings>,
    pub(super) common: Arc<TableShared>,
    pub(super) forwarder: OnceLock<Arc<dyn BoshForwarder>>,
    pub(super) forwarding_limits: LeafMutex<ForwardingLimits>,
    start: StreamStarter,
    pub(super) closed: AtomicBool,
    count: AtomicU32,
    addresses: LeafMutex<HashMap<u64, u32>>,
    shards: [LeafMutex<Shard>; SHARDS],
}

/// Bytes of payloads that a session stores unread, given the maximum body size.
pub(super) const fn max_unread_bytes(body_bytes: usize) -> usize {
    body_bytes.saturating_mul(2)
}

impl BoshSessionTable {
    /// An empty table. `start` is called for the stream of each new session.
    pub fn new(settings: BoshSettings, clock: Arc<dyn Clock>, start: StreamStarter) -> Arc<BoshSessionTable> {
        Arc::new(BoshSessionTable {
            settings: LeafRwLock::new(settings),
            common: Arc::new(TableShared::new(clock)),
            forwarder: OnceLock::new(),
            forwarding_limits: LeafMutex::default(),
            start,
            closed: AtomicBool::new(false),
            count: AtomicU32::new(0),
            addresses: LeafMutex::default(),
            shards: std::array::from_fn(|_| LeafMutex::default()),
        })
    }

    /// Current settings.
    pub fn settings(&self) -> BoshSettings {
        *self.settings.read()
    }

    /// Replaces the settings. Sessions keep their negotiated parameters; limits apply immediately.
    pub fn set_settings(&self, settings: BoshSettings) {
        *self.settings.write() = settings;
    }

    /// Handles one request. `body` is the whole content of a POST, at most [`BoshSettings::body_bytes`] long.
    pub fn handle_request(self: &Arc<Self>, origin: RequestSource, body: &[u8]) -> PendingResponse {
        self.common.requests.fetch_add(1, Relaxed);
        let most = self.settings.read().body_bytes;
        if body.len() > most {
            return refusal(Condition::PolicyViolation, false);
        }
        // Without a body, a legacy client cannot be recognised.
        let mut request = match BoshRequest::read_head(body, &origin.listener.limits) {
            Ok(request) => request,
            Err(BoshRequestError::Malformed) => return refusal(Condition::BadRequest, false),
            Err(BoshRequestError::TooLarge) => return refusal(Condition::PolicyViolation, false),
        };
        let most = max_unread_bytes(most);
        let Some(sid) = request.sid else {
            request.read_payloads(&origin.listener.limits, most);
            return self.create_session(origin, request);
        };
        match sid.and_then(|sid| self.session(sid)) {
            Some(session) => session.handle_request(origin.secure, request, (&origin.listener.limits, most)),
            None => self.forward(sid, &origin, body),
        }
    }

    pub(super) fn session(&self, sid: u128) -> Option<Arc<BoshSession>> {
        self.shard(sid).lock().get(&sid).cloned()
    }

    fn shard(&self, sid: u128) -> &LeafMutex<Shard> {
        // Not the bits that the hash within the shard begins with.
        &self.shards[(sid >> 96) as usize % SHARDS]
    }

    fn create_session(self: &Arc<Self>, origin: RequestSource, request: BoshRequest<'_>) -> PendingResponse {
        let version = request.version();
        let legacy = version.is_none();
        let refuse = |condition| {
            self.common.refused.fetch_add(1, Relaxed);
            refusal(condition, legacy)
        };
        if self.closed.load(Relaxed) {
            return refuse(Condition::SystemShutdown);
        }
        let settings = self.settings();
        let session = match self.negotiate(&settings, &origin, request, version) {
            Ok(session) => Arc::new(session),
            Err(BoshRequestError::Malformed) => return refuse(Condition::BadRequest),
            Err(BoshRequestError::TooLarge) => return refuse(Condition::PolicyViolation),
        };
        if !self.insert(&settings, &session) {
            return refuse(Condition::PolicyViolation);
        }
        self.common.created.fetch_add(1, Relaxed);
        let stream = BoshStream::bosh(session.clone(), origin);
        let exchange = PendingResponse::wait(session.clone(), 0);
        if !(self.start)(Stream::Bosh(Box::new(stream))) {
            session.end(TerminationReason::Policy);
            return refuse(Condition::PolicyViolation);
        }
        exchange
    }

    /// Negotiates the parameters of a session request within the settings.
    fn negotiate(
        self: &Arc<Self>,
        settings: &BoshSettings,
        origin: &RequestSource,
        request: BoshRequest<'_>,
        version: Option<(u32, u32)>,
    ) -> Result<BoshSession, BoshRequestError> {
        let rid = request.rid.filter(|rid| is_valid_first_rid(*rid)).ok_or(BoshRequestError::Malformed)?;
        let within = |name, most: u32| {
            let at_most = |requested| u32::try_from(requested).map_or(most, |requested| requested.min(most));
            request.number_attr(name).map(|requested| requested.map_or(most, at_most))
        };
        let wait = within("wait", settings.max_wait_seconds)?;
        let hold = match request.number_attr("hold")? {
            Some(requested) => u8::try_from(requested)
                .map_or(settings.max_hold, |requested| requested.min(settings.max_hold)),
            None => settings.max_hold.min(1),
        };
        let newkey = request
            .newkey
            .map(|text| key_sequence::parse_key(text).ok_or(BoshRequestError::Malformed))
            .transpose()?;
        let polls = wait == 0 || hold == 0;
        let idle = settings.max_inactivity_seconds;
        let mut sid = u128::from_le_bytes(random_bytes::<16>()) & !LEGACY_SID_BIT;
        if let Some(forwarder) = self.forwarder.get() {
            sid = with_node_tag(sid, forwarder.own_tag());
        }
        if version.is_none() {
            sid |= LEGACY_SID_BIT;
        }
        let agreed = SessionParams {
            sid,
            wait,
            hold,
            requests: hold.saturating_add(1),
            inactivity: if polls {
                idle.saturating_mul(2).saturating_add(settings.polling_seconds)
            } else {
                idle
            },
            polling: settings.polling_seconds,
            max_pause_seconds: settings.max_pause_seconds,
            version: version.map(|requested| requested.min(VERSION)),
            acks: request.ack == Some(1),
            secure: origin.secure,
            max_unread_bytes: max_unread_bytes(settings.body_bytes),
            content_type: request.content_type()?,
            to: request.to().map(Into::into),
        };
        let mut items = Vec::new();
        request::push_item(&mut items, PayloadItem::Open, &request.stream_header(None));
        // Payloads of the session request belong to the stream that it opens.
        items.extend_from_slice(&request.items?);
        let meter = match settings.requests_per_second {
            0 => TokenBucket::unlimited(),
            rate => TokenBucket::new(rate, rate.saturating_mul(BURST_SECONDS)),
        };
        let now = self.common.clock.now();
        let state = BoshState::new(rid, items, newkey.map(KeySequence::new), meter, now);
        let counted_for = (base::network_number(origin.peer.ip()), origin.listener.clone());
        Ok(BoshSession::new(agreed, counted_for, self.common.clone(), Arc::downgrade(self), state))
    }

    /// Adds a session, unless a limit is reached.
    fn insert(&self, settings: &BoshSettings, session: &Arc<BoshSession>) -> bool {
        let limit = settings.sessions;
        if self.count.fetch_add(1, Relaxed) >= limit && limit != 0 {
            self.count.fetch_sub(1, Relaxed);
            return false;
        }
        let limit = settings.sessions_per_address;
        let mut addresses = self.addresses.lock();
        let count = addresses.entry(session.address_key).or_insert(0);
        if *count >= limit && limit != 0 {
            drop(addresses);
            self.count.fetch_sub(1, Relaxed);
            return false;
        }
        *count += 1;
        drop(addresses);
        self.shard(session.params.sid).lock().insert(session.params.sid, session.clone());
        true
    }

    /// Removes a finished session.
    pub(super) fn remove(&self, session: &BoshSession) {
        if self.shard(session.params.sid).lock().remove(&session.params.sid).is_none() {
            return;
        }
        self.count.fetch_sub(1, Relaxed);
        let mut addresses = self.addresses.lock();
        if let Some(count) = addresses.get_mut(&session.address_key) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&session.address_key);
            }
        }
    }

    fn sessions_where(
        &self,
        wanted: impl Fn(&BoshSession) -> bool,
    ) -> impl Iterator<Item = Arc<BoshSession>> {
        self.shards.iter().flat_map(move |shard| {
            let shard = shard.lock();
            shard.values().filter(|session| wanted(session)).cloned().collect::<Vec<_>>()
        })
    }

    /// Must be called once a second: answers requests held for their full time, and ends inactive sessions.
    pub fn sweep(&self) {
        let now = self.common.clock.now();
        for session in self.sessions_where(|session| session.next_deadline() <= now) {
            session.sweep();
        }
        self.forwarding_limits.lock().sweep(now);
    }

    /// Current metrics. Visits all sessions.
    pub fn counts(&self) -> BoshCounts {
        let common = &self.common;
        let mut counts = BoshCounts {
            sessions: u64::from(self.count.load(Relaxed)),
            held: self.sessions_where(|_| true).map(|session| session.waiting_requests() as u64).sum(),
            created: common.created.load(Relaxed),
            refused: common.refused.load(Relaxed),
            requests: common.requests.load(Relaxed),
            retransmits: common.retransmits.load(Relaxed),
            reordered: common.reordered.load(Relaxed),
            unknown_session: common.unknown_session.load(Relaxed),
            forwarded: common.forwarded.load(Relaxed),
            ended: Default::default(),
        };
        for (to, from) in counts.ended.iter_mut().zip(&common.ended) {
            *to = from.load(Relaxed);
        }
        counts
    }

    /// Shuts down: every request is answered, every stream ends, and no new session is admitted.
    pub fn close_all(&self) {
        self.closed.store(true, Relaxed);
        for session in self.sessions_where(|_| true) {
            session.end(TerminationReason::Shutdown);
        }
        if let Some(forwarder) = self.forwarder.get() {
            forwarder.close();
        }
    }
}
