//! Types of the session rules: negotiated parameters, requests under way, responses, and request outcomes (XEP-0124,
//! sections 6, 8 and 14).
//!
//! Not implemented: the rules, which are in `state`.
//!
//! # Pitfalls
//!
//! A session stores several of these for its whole life, so each added field costs memory (`net/tests/bosh/memory.rs`).

use std::sync::Arc;
use std::task::Waker;

use base::clock::Millis;

use super::response::CreationAttributes;
use super::{BoshBody, TerminationReason};

/// The sweep runs once a second, so deadlines before the next run count as due.
const SWEEP_LOOKAHEAD_MILLIS: u64 = 999;
/// Deadline for a request above the limit; the stream answers it earlier, once it has read its payloads.
pub(super) const EXCESS_REQUEST_MILLIS: u64 = 1000;

/// Parameters negotiated when the session was created.
pub(super) struct SessionParams {
    pub(super) sid: u128,
    /// Seconds that a request is held.
    pub(super) wait: u32,
    /// Maximum number of held requests.
    pub(super) hold: u8,
    /// Maximum number of requests under way.
    pub(super) requests: u8,
    /// Seconds without a request after which the session ends.
    pub(super) inactivity: u32,
    pub(super) polling: u32,
    pub(super) max_pause_seconds: u32,
    pub(super) version: Option<(u32, u32)>,
    /// Both sides acknowledge: the client responses, the server requests.
    pub(super) acks: bool,
    /// Every request must use an encrypted connection.
    pub(super) secure: bool,
    /// Maximum bytes of payloads that the stream has not read.
    pub(super) max_unread_bytes: usize,
    pub(super) content_type: Option<Arc<str>>,
    /// Domain, for a restart that has no `to`.
    pub(super) to: Option<Box<str>>,
}

impl SessionParams {
    /// Polling session, which holds no request (section 12).
    pub(super) const fn is_polling(&self) -> bool {
        self.hold == 0 || self.wait == 0
    }

    /// Milliseconds after which a sweep answers a request.
    pub(super) const fn hold_millis(&self) -> u64 {
        // If no request is held, the stream answers as soon as it has read the payloads.
        if self.is_polling() {
            EXCESS_REQUEST_MILLIS
        } else {
            (self.wait as u64 * 1000).saturating_sub(SWEEP_LOOKAHEAD_MILLIS)
        }
    }

    /// Maximum number of requests without a response.
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

/// An accepted request without a response.
pub(super) struct HeldRequest {
    pub(super) rid: u64,
    pub(super) ticket: u32,
    pub(super) since: Millis,
    pub(super) waker: Option<Waker>,
    /// A connection waits for the response.
    pub(super) connected: bool,
}

/// A request received before one with a lower id.
pub(super) struct OutOfOrderRequest {
    pub(super) rid: u64,
    pub(super) ticket: u32,
    pub(super) since: Millis,
    pub(super) waker: Option<Waker>,
    pub(super) connected: bool,
    pub(super) items: Vec<u8>,
    /// Input of [`BoshState::accept`](super::state::BoshState::accept).
    pub(super) control: RequestControl,
    pub(super) key: Option<Box<str>>,
    pub(super) newkey: Option<Box<str>>,
}

/// Attributes of a request besides its payloads.
#[derive(Clone, Copy)]
pub(super) struct RequestControl {
    pub(super) ack: Option<u64>,
    pub(super) pause: Option<u32>,
    pub(super) empty: bool,
}

/// A response that the kernel has not taken, or that follows one.
pub(super) struct UnsentResponse {
    /// Id of its request, if that was answered in order.
    pub(super) rid: u64,
    /// Ticket of the request that received it first.
    pub(super) ticket: u32,
    /// Bytes of its payload. Without one, it is forgotten when the request has fetched it.
    pub(super) payload_bytes: usize,
    /// Absent once the request has fetched it or no connection has it.
    pub(super) body: Option<BoshBody>,
    /// Connections that may send it.
    pub(super) connections: u8,
    /// The kernel has taken it, or the client has acknowledged it.
    pub(super) sent: bool,
    /// Highest accepted id when the last connection broke.
    pub(super) lost_after_rid: u64,
}

impl UnsentResponse {
    pub(super) const fn new(rid: u64, ticket: u32, payload_bytes: usize, body: BoshBody) -> UnsentResponse {
        let body = Some(body);
        UnsentResponse { rid, ticket, payload_bytes, body, connections: 1, sent: false, lost_after_rid: 0 }
    }

    /// Whether the output in it is not confirmed.
    pub(super) const fn is_awaited(&self) -> bool {
        self.payload_bytes > 0 && !self.sent
    }

    /// One of its connections has sent it, or broke. The request that has not fetched it may be on another one.
    pub(super) fn release_connection(&mut self, last_rid: u64) {
        self.connections = self.connections.saturating_sub(1);
        if self.connections == 0 {
            self.body = None;
            self.lost_after_rid = last_rid;
        }
    }
}

/// A response for a client whose connection broke.
pub(super) struct CachedResponse {
    pub(super) rid: u64,
    pub(super) at: Millis,
    pub(super) body: BoshBody,
}

/// Progress of the termination.
pub(super) enum Termination {
    Running,
    /// The session ended, and the stream with it.
    Failed,
    /// The stream ended, with its final body until that is delivered.
    StreamEnded(Option<BoshBody>),
}

/// Tasks to wake after the lock is released.
#[derive(Default)]
pub(super) struct WakeList {
    pub(super) inline: [Option<Waker>; 3],
    pub(super) overflow: Vec<Waker>,
}

impl WakeList {
    pub(super) fn add(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        match self.inline.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(waker),
            None => self.overflow.push(waker),
        }
    }

    pub(super) fn wake(self) {
        self.inline.into_iter().flatten().chain(self.overflow).for_each(Waker::wake);
    }
}

/// Outcome of a request.
#[derive(Debug)]
pub(super) enum BoshRequestOutcome {
    /// Held under this ticket.
    Held(u32),
    /// Held, while an earlier request is missing.
    OutOfOrder(u32),
    /// Held, in place of the same request received before.
    Retransmitted(u32),
    /// Already answered; the cached response, and its ticket if it was not sent.
    AlreadyAnswered(BoshBody, Option<u32>),
    /// Final body of a stream that has ended.
    FinalBody(BoshBody),
    /// The session no longer exists.
    SessionGone,
    /// The session ends because of the request.
    Failed(TerminationReason),
}

/// Result of a read by the stream.
pub(super) enum PayloadRead {
    /// Items (see [`super::request::push_item`]).
    Items(Vec<u8>),
    /// Nothing yet; the task will be woken.
    Nothing,
    /// End of input.
    End,
}

/// Result of a sweep.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SweepOutcome {
    Alive,
    /// The session was inactive for too long.
    TimedOut,
}
