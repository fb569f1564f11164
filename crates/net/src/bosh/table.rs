//! All sessions: how they come to be, how many there may be, and what time does to them. XEP-0124 section 6.
//!
//! The table is cut into shards by the random session identifier. Left out: which connections are let in; the gate of the
//! listener and the [`Start`] say. Trap: a session removes itself when it is gone, so nothing here may hold a shard's lock
//! while a session works.

use super::answer::Condition;
use super::keys::{self, Keys};
use super::parts::Agreed;
use super::request::{self, Bad, Item, Request};
use super::session::{Common, Session, refusal};
use super::state::{State, may_begin};
use super::stream::Bosh;
use super::{Counts, End, Exchange, Origin, Settings, Start};
use crate::stream::Stream;
use base::clock::Clock;
use base::id::random_bytes;
use base::limit::Meter;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// The version of BOSH that is spoken here.
const VERSION: (u32, u32) = (1, 11);
/// Shards of the table.
const SHARDS: usize = 64;
/// How many requests may come at once, in seconds of the permitted rate.
const BURST: u32 = 5;
/// Set in the identifiers of sessions whose client wants HTTP errors; so it gets one when its session is long forgotten.
const LEGACY: u128 = 1;

/// Identifiers are random, so a part of one is as good as a hash.
#[derive(Default)]
struct Random(u64);

impl Hasher for Random {
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

type Shard = HashMap<u128, Arc<Session>, BuildHasherDefault<Random>>;

/// The sessions of a node.
pub struct Sessions {
    settings: RwLock<Settings>,
    common: Arc<Common>,
    start: Start,
    closed: AtomicBool,
    count: AtomicU32,
    addresses: Mutex<HashMap<u64, u32>>,
    shards: [Mutex<Shard>; SHARDS],
}

/// Bytes of payloads that a session holds unread, where a body has so many.
const fn unread(body_bytes: usize) -> usize {
    body_bytes.saturating_mul(2)
}

impl Sessions {
    /// An empty table. `start` is called for the stream of each new session.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>, start: Start) -> Arc<Sessions> {
        Arc::new(Sessions {
            settings: RwLock::new(settings),
            common: Arc::new(Common::new(clock)),
            start,
            closed: AtomicBool::new(false),
            count: AtomicU32::new(0),
            addresses: Mutex::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
        })
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// Takes other settings. Sessions keep what was agreed on with them; limits apply at once.
    pub fn change(&self, settings: Settings) {
        *self.settings.write() = settings;
    }

    /// Takes one request. `body` is the whole content of a POST, at most [`Settings::body_bytes`] long.
    pub fn exchange(self: &Arc<Self>, origin: Origin, body: &[u8]) -> Exchange {
        self.common.requests.fetch_add(1, Relaxed);
        let most = self.settings.read().body_bytes;
        if body.len() > most {
            return refusal(Condition::PolicyViolation, false);
        }
        // Whether a client that sends no body is an old one cannot be known.
        let request = match Request::read(body, &origin.port.limits, unread(most)) {
            Ok(request) => request,
            Err(Bad::Form) => return refusal(Condition::BadRequest, false),
            Err(Bad::Limit) => return refusal(Condition::PolicyViolation, false),
        };
        let Some(sid) = request.sid else { return self.create(origin, request) };
        let found = sid.and_then(|sid| self.shard(sid).lock().get(&sid).cloned());
        match found {
            Some(session) => session.exchange(&origin, request),
            None => {
                self.common.unknown.fetch_add(1, Relaxed);
                refusal(Condition::ItemNotFound, sid.is_some_and(|sid| sid & LEGACY != 0))
            }
        }
    }

    fn shard(&self, sid: u128) -> &Mutex<Shard> {
        // Not the bits that the hash of the shard's own table begins with.
        &self.shards[(sid >> 96) as usize % SHARDS]
    }

    fn create(self: &Arc<Self>, origin: Origin, request: Request<'_>) -> Exchange {
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
        let session = match self.agree(&settings, &origin, request, version) {
            Ok(session) => Arc::new(session),
            Err(Bad::Form) => return refuse(Condition::BadRequest),
            Err(Bad::Limit) => return refuse(Condition::PolicyViolation),
        };
        if !self.insert(&settings, &session) {
            return refuse(Condition::PolicyViolation);
        }
        self.common.created.fetch_add(1, Relaxed);
        let stream = Bosh::new(session.clone(), origin);
        let exchange = Exchange::wait(session.clone(), 0);
        if !(self.start)(Stream::Bosh(Box::new(stream))) {
            session.end(End::Policy);
            return refuse(Condition::PolicyViolation);
        }
        exchange
    }

    /// What a session request asks for, within what is allowed.
    fn agree(
        self: &Arc<Self>,
        settings: &Settings,
        origin: &Origin,
        request: Request<'_>,
        version: Option<(u32, u32)>,
    ) -> Result<Session, Bad> {
        let rid = request.rid.filter(|rid| may_begin(*rid)).ok_or(Bad::Form)?;
        let within = |name, most: u32| {
            let at_most = |asked| u32::try_from(asked).map_or(most, |asked| asked.min(most));
            request.count(name).map(|asked| asked.map_or(most, at_most))
        };
        let wait = within("wait", settings.max_wait_seconds)?;
        let hold = match request.count("hold")? {
            Some(asked) => {
                u8::try_from(asked).map_or(settings.max_hold, |asked| asked.min(settings.max_hold))
            }
            None => settings.max_hold.min(1),
        };
        let newkey = request.newkey.map(|text| keys::read(text).ok_or(Bad::Form)).transpose()?;
        let polls = wait == 0 || hold == 0;
        let idle = settings.max_inactivity_seconds;
        let mut sid = u128::from_le_bytes(random_bytes::<16>()) & !LEGACY;
        if version.is_none() {
            sid |= LEGACY;
        }
        let agreed = Agreed {
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
            version: version.map(|asked| asked.min(VERSION)),
            acks: request.ack == Some(1),
            secure: origin.secure,
            unread: unread(settings.body_bytes),
            content: request.content()?,
            to: request.to().map(Into::into),
        };
        let mut items = Vec::new();
        request::push(&mut items, Item::Open, &request.header(None));
        // Whatever came with it belongs to the stream that it opens.
        items.extend_from_slice(&request.items?);
        let meter = match settings.requests_per_second {
            0 => Meter::unlimited(),
            rate => Meter::new(rate, rate.saturating_mul(BURST)),
        };
        let now = self.common.clock.now();
        let state = State::new(rid, items, newkey.map(Keys::new), meter, now);
        let address = base::network_number(origin.peer.ip());
        Ok(Session::new(agreed, address, self.common.clone(), Arc::downgrade(self), state))
    }

    /// Adds a session, unless there are too many.
    fn insert(&self, settings: &Settings, session: &Arc<Session>) -> bool {
        let limit = settings.sessions;
        if self.count.fetch_add(1, Relaxed) >= limit && limit != 0 {
            self.count.fetch_sub(1, Relaxed);
            return false;
        }
        let limit = settings.sessions_per_address;
        let mut addresses = self.addresses.lock();
        let count = addresses.entry(session.address).or_insert(0);
        if *count >= limit && limit != 0 {
            drop(addresses);
            self.count.fetch_sub(1, Relaxed);
            return false;
        }
        *count += 1;
        drop(addresses);
        self.shard(session.agreed.sid).lock().insert(session.agreed.sid, session.clone());
        true
    }

    /// Forgets a session that is gone.
    pub(super) fn remove(&self, session: &Session) {
        if self.shard(session.agreed.sid).lock().remove(&session.agreed.sid).is_none() {
            return;
        }
        self.count.fetch_sub(1, Relaxed);
        let mut addresses = self.addresses.lock();
        if let Some(count) = addresses.get_mut(&session.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&session.address);
            }
        }
    }

    fn all(&self, wanted: impl Fn(&Session) -> bool) -> impl Iterator<Item = Arc<Session>> {
        self.shards.iter().flat_map(move |shard| {
            let shard = shard.lock();
            shard.values().filter(|session| wanted(session)).cloned().collect::<Vec<_>>()
        })
    }

    /// To be called once a second: answers what has waited long enough, ends what was silent too long.
    pub fn sweep(&self) {
        let now = self.common.clock.now();
        for session in self.all(|session| session.due() <= now) {
            session.sweep();
        }
    }

    /// The figures now. Walks through all sessions.
    pub fn counts(&self) -> Counts {
        let common = &self.common;
        let mut counts = Counts {
            sessions: u64::from(self.count.load(Relaxed)),
            held: self.all(|_| true).map(|session| session.waiting() as u64).sum(),
            created: common.created.load(Relaxed),
            refused: common.refused.load(Relaxed),
            requests: common.requests.load(Relaxed),
            replays: common.replays.load(Relaxed),
            reordered: common.reordered.load(Relaxed),
            unknown: common.unknown.load(Relaxed),
            ended: Default::default(),
        };
        for (to, from) in counts.ended.iter_mut().zip(&common.ended) {
            *to = from.load(Relaxed);
        }
        counts
    }

    /// The node stops: every request is answered, every stream ends, nothing new is let in.
    pub fn end_all(&self) {
        self.closed.store(true, Relaxed);
        for session in self.all(|_| true) {
            session.end(End::Shutdown);
        }
    }
}
