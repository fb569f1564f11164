//! BOSH session, shared by its requests and its stream: the rules behind one lock (XEP-0124).
//!
//! Not implemented: the rules themselves, which are in `state`.
//!
//! # Pitfalls
//!
//! While the lock is held, no task is woken and the table is not touched.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::Waker;

use base::clock::{Clock, Millis};
use base::lock::LeafMutex;

use super::request::BoshRequest;
use super::response::{self, Condition, ExtractedElements};
use super::session_types::{BoshRequestOutcome, PayloadRead, SessionParams, SweepOutcome, WakeList};
use super::state::BoshState;
use super::{BoshBody, BoshResponse, BoshSessionTable, PendingResponse, TerminationReason};
use crate::connection_info::SharedListenerConfig;

/// State shared by all sessions of a table.
pub(super) struct TableShared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) created: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) retransmits: AtomicU64,
    pub(super) reordered: AtomicU64,
    pub(super) unknown_session: AtomicU64,
    pub(super) forwarded: AtomicU64,
    pub(super) ended: [AtomicU64; TerminationReason::NAMES.len()],
}

impl TableShared {
    pub(super) fn new(clock: Arc<dyn Clock>) -> TableShared {
        let zero = AtomicU64::default;
        TableShared {
            clock,
            created: zero(),
            refused: zero(),
            requests: zero(),
            retransmits: zero(),
            reordered: zero(),
            unknown_session: zero(),
            forwarded: zero(),
            ended: Default::default(),
        }
    }

    fn count_end(&self, end: TerminationReason) {
        self.ended[end as usize].fetch_add(1, Relaxed);
    }
}

/// A session.
pub(crate) struct BoshSession {
    pub(super) params: SessionParams,
    /// Key of the address that the session is counted for.
    pub(super) address_key: u64,
    /// Listener that received the session request: its limits apply to requests that other nodes receive.
    pub(super) listener: SharedListenerConfig,
    common: Arc<TableShared>,
    table: Weak<BoshSessionTable>,
    /// Next deadline for the sweep, in milliseconds.
    due: AtomicU64,
    state: LeafMutex<BoshState>,
}

impl BoshSession {
    pub(super) fn new(
        agreed: SessionParams,
        (address, listener): (u64, SharedListenerConfig),
        common: Arc<TableShared>,
        home: Weak<BoshSessionTable>,
        state: BoshState,
    ) -> BoshSession {
        let due = AtomicU64::new(state.next_deadline(&agreed).0);
        BoshSession {
            params: agreed,
            address_key: address,
            listener,
            common,
            table: home,
            due,
            state: LeafMutex::new(state),
        }
    }

    /// Runs `work` on the state, then wakes the affected tasks.
    fn with_state<R>(
        &self,
        work: impl FnOnce(&mut BoshState, &SessionParams, Millis, &mut WakeList) -> R,
    ) -> R {
        let now = self.common.clock.now();
        let mut wakes = WakeList::default();
        let mut state = self.state.lock();
        let before = state.is_finished();
        let result = work(&mut state, &self.params, now, &mut wakes);
        let gone = !before && state.is_finished();
        self.due.store(state.next_deadline(&self.params).0, Relaxed);
        drop(state);
        wakes.wake();
        if gone && let Some(home) = self.table.upgrade() {
            home.remove(self);
        }
        result
    }

    fn legacy(&self) -> bool {
        self.params.version.is_none()
    }

    fn answer(&self, status: u16, body: BoshBody) -> BoshResponse {
        BoshResponse { status, body, content_type: self.params.content_type.clone(), close: false }
    }

    /// Handles a request with the identifier of this session. `secure`: its connection is encrypted. Payloads may take `most`
    /// bytes.
    pub(super) fn handle_request(
        self: &Arc<Self>,
        secure: bool,
        mut request: BoshRequest<'_>,
        (limits, most): (&xml::Limits, usize),
    ) -> PendingResponse {
        self.begin_request(secure, &request).unwrap_or_else(|| {
            request.read_payloads(limits, most);
            self.handle_payloads(request)
        })
    }

    /// The response to a request over an unencrypted connection, if the session needs an encrypted one.
    pub(super) fn refuse_insecure(&self, secure: bool) -> Option<PendingResponse> {
        if !self.params.secure || secure {
            return None;
        }
        // Section 19.1: the session goes on, and its rate is not used; otherwise anyone could end it.
        let body = Condition::PolicyViolation.body();
        Some(PendingResponse::ready(BoshResponse { close: true, ..self.answer(403, body) }))
    }

    /// Handles a request as far as its payloads do not matter. `None`: they must be read.
    pub(super) fn begin_request(
        self: &Arc<Self>,
        secure: bool,
        request: &BoshRequest<'_>,
    ) -> Option<PendingResponse> {
        if let Some(refused) = self.refuse_insecure(secure) {
            return Some(refused);
        }
        let (was_open, outcome) = self.with_state(|state, agreed, now, wakes| {
            (state.is_open(), state.begin_request(agreed, request, now, wakes))
        });
        outcome.map(|outcome| self.response(was_open, outcome))
    }

    /// Handles a request whose payloads have been read.
    pub(super) fn handle_payloads(self: &Arc<Self>, request: BoshRequest<'_>) -> PendingResponse {
        let (was_open, outcome) = self.with_state(|state, agreed, now, wakes| {
            (state.is_open(), state.request(agreed, request, now, wakes))
        });
        self.response(was_open, outcome)
    }

    /// Counts a request that is refused without a look at it.
    pub(super) fn count_refused(&self) {
        self.with_state(|state, _, now, _| state.count_refused(now));
    }

    fn response(self: &Arc<Self>, was_open: bool, outcome: BoshRequestOutcome) -> PendingResponse {
        match outcome {
            BoshRequestOutcome::Held(ticket) => PendingResponse::wait(self.clone(), ticket),
            BoshRequestOutcome::OutOfOrder(ticket) => {
                self.common.reordered.fetch_add(1, Relaxed);
                PendingResponse::wait(self.clone(), ticket)
            }
            BoshRequestOutcome::Retransmitted(ticket) => {
                self.common.retransmits.fetch_add(1, Relaxed);
                PendingResponse::wait(self.clone(), ticket)
            }
            BoshRequestOutcome::AlreadyAnswered(body, unsent) => {
                self.common.retransmits.fetch_add(1, Relaxed);
                let answer = self.answer(200, body);
                match unsent {
                    Some(ticket) => PendingResponse::repeated(self.clone(), ticket, answer),
                    None => PendingResponse::ready(answer),
                }
            }
            BoshRequestOutcome::FinalBody(body) => PendingResponse::ready(self.answer(200, body)),
            BoshRequestOutcome::SessionGone => {
                self.common.unknown_session.fetch_add(1, Relaxed);
                self.refusal(Condition::ItemNotFound)
            }
            BoshRequestOutcome::Failed(end) => {
                if was_open {
                    self.common.count_end(end);
                }
                self.refusal(match end {
                    TerminationReason::Policy => Condition::PolicyViolation,
                    TerminationReason::BadRequest => Condition::BadRequest,
                    TerminationReason::Shutdown => Condition::SystemShutdown,
                    _ => Condition::ItemNotFound,
                })
            }
        }
    }

    pub(super) fn refusal(&self, condition: Condition) -> PendingResponse {
        PendingResponse::ready(self.answer(condition.status(self.legacy()), condition.body()))
    }

    /// The response to a request, if it is ready, and whether it must be reported when the response was sent.
    pub(super) fn poll(&self, ticket: u32, waker: &Waker) -> Option<(BoshResponse, bool)> {
        let (body, has_payload) = self.state.lock().poll(ticket, waker)?;
        Some((self.answer(200, body), has_payload))
    }

    /// The kernel has taken a response.
    pub(super) fn response_sent(&self, ticket: u32) {
        let waker = self.state.lock().response_sent(ticket);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Bytes of payloads in responses that the kernel has not taken. If there are any, the stream is woken when they become
    /// fewer.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.state.lock().unsent_bytes()
    }

    /// The connection of a request broke before its response was sent.
    pub(super) fn request_dropped(&self, ticket: u32) {
        self.with_state(|state, _, now, wakes| state.request_dropped(ticket, now, wakes));
    }

    /// Time of the next deadline.
    pub(super) fn next_deadline(&self) -> Millis {
        Millis(self.due.load(Relaxed))
    }

    pub(super) fn sweep(&self) {
        let ended = self.with_state(|state, agreed, now, wakes| {
            let was_open = state.is_open();
            state.sweep(agreed, now, wakes) == SweepOutcome::TimedOut && was_open
        });
        if ended {
            self.common.count_end(TerminationReason::Inactivity);
        }
    }

    /// Ends the session from outside; its stream reads the end of input.
    pub(super) fn end(&self, end: TerminationReason) {
        let ended = self.with_state(|state, _, _, wakes| {
            let was_open = state.is_open();
            if !state.is_finished() {
                state.fail(end, wakes);
            }
            was_open
        });
        if ended {
            self.common.count_end(end);
        }
    }

    /// Number of requests without a response.
    pub(super) fn waiting_requests(&self) -> usize {
        self.state.lock().waiting_requests()
    }

    /// Next items for the stream.
    pub(super) fn read(&self, waker: &Waker) -> PayloadRead {
        self.state.lock().read(waker)
    }

    /// Whether a response can be made and would not follow too many unsent bytes. If not, the stream is woken.
    pub(super) fn accepts_output(&self, waker: Option<&Waker>) -> bool {
        self.state.lock().accepts_output(waker)
    }

    /// The stream has no more output for now.
    pub(super) fn answer_excess_requests(&self) {
        self.with_state(|state, agreed, now, wakes| state.answer_excess_requests(agreed, now, wakes));
    }

    /// Sends output to the client, if a request waits. The stream has no more output then.
    pub(super) fn deliver(&self, cut: &ExtractedElements, payload: &[u8]) -> bool {
        self.with_state(|state, agreed, now, wakes| {
            let done = state.deliver(agreed, cut, payload, now, wakes);
            state.answer_excess_requests(agreed, now, wakes);
            done
        })
    }

    /// Ends the stream with its final output.
    pub(super) fn finish(&self, cut: &ExtractedElements, payload: &[u8], by_client: bool) {
        let ended = self.with_state(|state, agreed, now, wakes| {
            let was_open = state.is_open();
            state.finish(agreed, cut, payload, now, wakes);
            was_open
        });
        if ended {
            self.common.count_end(if by_client {
                TerminationReason::Client
            } else {
                TerminationReason::Server
            });
        }
    }
}

/// Refusal of a request without a session.
pub(super) fn refusal(condition: Condition, legacy: bool) -> PendingResponse {
    PendingResponse::ready(BoshResponse {
        status: condition.status(legacy),
        body: response::Condition::body(condition),
        content_type: None,
        close: false,
    })
}
