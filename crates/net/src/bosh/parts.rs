//! What the rules of a session work with: what was agreed on, requests under way, answers, and what is found out about a
//! request. XEP-0124 sections 6, 8 and 14.
//!
//! Left out: the rules, which are in `state`. Trap: a session has several of these for its whole life; a field more is
//! a decision (`net/tests/bosh/memory.rs`).

use super::answer::Created;
use super::{Body, End};
use base::clock::Millis;
use std::sync::Arc;
use std::task::Waker;

/// The sweep comes once a second: what falls due before the next one is due now.
const SWEEP: u64 = 999;
/// A request that is one too many is answered by the stream when it has looked at what came with it; at the latest then.
pub(super) const CROWDED: u64 = 1000;

/// What both sides agreed on when the session was made.
pub(super) struct Agreed {
    pub(super) sid: u128,
    /// Seconds that a request is held.
    pub(super) wait: u32,
    /// Requests that are held.
    pub(super) hold: u8,
    /// Requests that may be under way.
    pub(super) requests: u8,
    /// Seconds without a request.
    pub(super) inactivity: u32,
    pub(super) polling: u32,
    pub(super) max_pause_seconds: u32,
    pub(super) version: Option<(u32, u32)>,
    /// The client acknowledges answers, and so do we requests.
    pub(super) acks: bool,
    /// Every request must come over an encrypted connection.
    pub(super) secure: bool,
    /// Payloads that may wait for the stream, in bytes.
    pub(super) unread: usize,
    pub(super) content: Option<Arc<str>>,
    /// The domain, for a restart that does not name it.
    pub(super) to: Option<Box<str>>,
}

impl Agreed {
    /// Section 12: no request is held.
    pub(super) const fn polls(&self) -> bool {
        self.hold == 0 || self.wait == 0
    }

    /// Milliseconds after which a sweep answers a request.
    pub(super) const fn patience(&self) -> u64 {
        // Where nothing is held, the stream answers as soon as it has looked.
        if self.polls() { CROWDED } else { (self.wait as u64 * 1000).saturating_sub(SWEEP) }
    }

    /// Requests that may stay without an answer.
    pub(super) const fn most(&self) -> usize {
        if self.polls() { 0 } else { self.hold as usize }
    }

    pub(super) fn created(&self, rid: u64) -> Created<'static> {
        Created {
            sid: self.sid,
            wait: self.wait,
            hold: self.hold,
            requests: self.requests,
            inactivity: self.inactivity,
            polling: self.polling,
            max_pause_seconds: self.max_pause_seconds,
            version: self.version,
            ack: self.acks.then_some(rid),
            opened: None,
        }
    }
}

/// A request that was accepted and has no answer.
pub(super) struct Held {
    pub(super) rid: u64,
    pub(super) ticket: u32,
    pub(super) since: Millis,
    pub(super) waker: Option<Waker>,
    /// Somebody waits for the answer.
    pub(super) live: bool,
}

/// A request that came before one with a lower id.
pub(super) struct Early {
    pub(super) rid: u64,
    pub(super) ticket: u32,
    pub(super) since: Millis,
    pub(super) waker: Option<Waker>,
    pub(super) live: bool,
    pub(super) items: Vec<u8>,
    /// What [`State::accept`] needs.
    pub(super) rest: Rest,
    pub(super) key: Option<Box<str>>,
    pub(super) newkey: Option<Box<str>>,
}

/// What a request says besides its payloads.
#[derive(Clone, Copy)]
pub(super) struct Rest {
    pub(super) ack: Option<u64>,
    pub(super) pause: Option<u32>,
    pub(super) empty: bool,
}

/// An answer that its request has not taken yet.
pub(super) struct Given {
    pub(super) ticket: u32,
    pub(super) body: Body,
}

/// An answer that was sent.
pub(super) struct Cached {
    pub(super) rid: u64,
    pub(super) at: Millis,
    pub(super) body: Body,
}

/// How far the end has come.
pub(super) enum Over {
    Open,
    /// The session ended, and the stream with it.
    Lost,
    /// The stream ended. What it said last, if nobody has heard it yet.
    Ended(Option<Body>),
}

/// Tasks to wake when the lock is gone.
#[derive(Default)]
pub(super) struct Wakes {
    pub(super) few: [Option<Waker>; 3],
    pub(super) more: Vec<Waker>,
}

impl Wakes {
    pub(super) fn add(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(waker),
            None => self.more.push(waker),
        }
    }

    pub(super) fn wake(self) {
        self.few.into_iter().flatten().chain(self.more).for_each(Waker::wake);
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Reply {
    /// It waits under this number.
    Wait(u32),
    /// The same, and one before it is missing.
    Early(u32),
    /// The same, and it takes the place of one that was received before.
    Repeat(u32),
    /// It was answered before.
    Again(Body),
    /// The last words of a stream that has ended.
    Last(Body),
    /// The session is gone.
    Gone,
    /// The session ends because of it.
    Failed(End),
}

/// What the stream may read.
pub(super) enum Read {
    /// Items (see [`request::push`]).
    Items(Vec<u8>),
    /// Nothing yet; it will be woken.
    Nothing,
    /// Nothing ever.
    End,
}

/// What a sweep found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Swept {
    Lives,
    /// It was silent for too long.
    Dead,
}
