//! What the rules of a session work with: what was agreed on, requests under way, answers, and what is found out about a
//! request. XEP-0124 sections 6, 8 and 14.
//!
//! Left out: the rules, which are in `state`. Trap: a session has several of these for its whole life; a field more is
//! a decision (`net/tests/bosh/memory.rs`).

use super::response::CreationAttributes;
use super::{BoshBody, TerminationReason};
use base::clock::Millis;
use std::sync::Arc;
use std::task::Waker;

/// The sweep comes once a second: what falls due before the next one is due now.
const SWEEP_LOOKAHEAD_MILLIS: u64 = 999;
/// A request that is one too many is answered by the stream when it has looked at what came with it; at the latest then.
pub(super) const EXCESS_REQUEST_MILLIS: u64 = 1000;

/// What both sides agreed on when the session was made.
pub(super) struct SessionParams {
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
    pub(super) max_unread_bytes: usize,
    pub(super) content_type: Option<Arc<str>>,
    /// The domain, for a restart that does not name it.
    pub(super) to: Option<Box<str>>,
}

impl SessionParams {
    /// Section 12: no request is held.
    pub(super) const fn is_polling(&self) -> bool {
        self.hold == 0 || self.wait == 0
    }

    /// Milliseconds after which a sweep answers a request.
    pub(super) const fn hold_millis(&self) -> u64 {
        // Where nothing is held, the stream answers as soon as it has looked.
        if self.is_polling() {
            EXCESS_REQUEST_MILLIS
        } else {
            (self.wait as u64 * 1000).saturating_sub(SWEEP_LOOKAHEAD_MILLIS)
        }
    }

    /// Requests that may stay without an answer.
    pub(super) const fn max_unanswered(&self) -> usize {
        if self.is_polling() { 0 } else { self.hold as usize }
    }

    pub(super) fn creation_attributes(&self, rid: u64) -> CreationAttributes<'static> {
        CreationAttributes {
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
pub(super) struct HeldRequest {
    pub(super) rid: u64,
    pub(super) ticket: u32,
    pub(super) since: Millis,
    pub(super) waker: Option<Waker>,
    /// Somebody waits for the answer.
    pub(super) connected: bool,
}

/// A request that came before one with a lower id.
pub(super) struct OutOfOrderRequest {
    pub(super) rid: u64,
    pub(super) ticket: u32,
    pub(super) since: Millis,
    pub(super) waker: Option<Waker>,
    pub(super) connected: bool,
    pub(super) items: Vec<u8>,
    /// What [`BoshState::accept`] needs.
    pub(super) control: RequestControl,
    pub(super) key: Option<Box<str>>,
    pub(super) newkey: Option<Box<str>>,
}

/// What a request says besides its payloads.
#[derive(Clone, Copy)]
pub(super) struct RequestControl {
    pub(super) ack: Option<u64>,
    pub(super) pause: Option<u32>,
    pub(super) empty: bool,
}

/// An answer that its request has not taken yet.
pub(super) struct ReadyResponse {
    pub(super) ticket: u32,
    pub(super) body: BoshBody,
}

/// An answer that was sent.
pub(super) struct CachedResponse {
    pub(super) rid: u64,
    pub(super) at: Millis,
    pub(super) body: BoshBody,
}

/// How far the end has come.
pub(super) enum Termination {
    Running,
    /// The session ended, and the stream with it.
    Failed,
    /// The stream ended. What it said last, if nobody has heard it yet.
    StreamEnded(Option<BoshBody>),
}

/// Tasks to wake when the lock is gone.
#[derive(Default)]
pub(super) struct WakeList {
    pub(super) inline: [Option<Waker>; 3],
    pub(super) overflow: Vec<Waker>,
}

impl WakeList {
    pub(super) fn add(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        match self.inline.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(waker),
            None => self.overflow.push(waker),
        }
    }

    pub(super) fn wake(self) {
        self.inline.into_iter().flatten().chain(self.overflow).for_each(Waker::wake);
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum BoshRequestOutcome {
    /// It waits under this number.
    Held(u32),
    /// The same, and one before it is missing.
    OutOfOrder(u32),
    /// The same, and it takes the place of one that was received before.
    Retransmitted(u32),
    /// It was answered before.
    AlreadyAnswered(BoshBody),
    /// The last words of a stream that has ended.
    FinalBody(BoshBody),
    /// The session is gone.
    SessionGone,
    /// The session ends because of it.
    Failed(TerminationReason),
}

/// What the stream may read.
pub(super) enum PayloadRead {
    /// Items (see [`request::push`]).
    Items(Vec<u8>),
    /// Nothing yet; it will be woken.
    Nothing,
    /// Nothing ever.
    End,
}

/// What a sweep found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SweepOutcome {
    Alive,
    /// It was silent for too long.
    TimedOut,
}
