//! A session as the requests and the stream share it: the rules behind one lock. XEP-0124.
//!
//! Left out: the rules themselves, which are in `state`. Trap: nobody is woken, and the table is not touched, while the
//! lock is held.

use super::answer::{self, Condition, Cut};
use super::parts::{Agreed, Read, Reply, Swept, Wakes};
use super::request::Request;
use super::state::State;
use super::{Answer, Body, End, Exchange, Origin, Sessions};
use base::clock::{Clock, Millis};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::Waker;

/// What all sessions of a table share.
pub(super) struct Common {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) created: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) replays: AtomicU64,
    pub(super) reordered: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) ended: [AtomicU64; End::NAMES.len()],
}

impl Common {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Common {
        let zero = AtomicU64::default;
        Common {
            clock,
            created: zero(),
            refused: zero(),
            requests: zero(),
            replays: zero(),
            reordered: zero(),
            unknown: zero(),
            ended: Default::default(),
        }
    }

    fn end(&self, end: End) {
        self.ended[end as usize].fetch_add(1, Relaxed);
    }
}

/// A session.
pub(crate) struct Session {
    pub(super) agreed: Agreed,
    /// Whom it counts for.
    pub(super) address: u64,
    common: Arc<Common>,
    home: Weak<Sessions>,
    /// When the sweep has something to do, in milliseconds.
    due: AtomicU64,
    state: Mutex<State>,
}

impl Session {
    pub(super) fn new(
        agreed: Agreed,
        address: u64,
        common: Arc<Common>,
        home: Weak<Sessions>,
        state: State,
    ) -> Session {
        let due = AtomicU64::new(state.due(&agreed).0);
        Session { agreed, address, common, home, due, state: Mutex::new(state) }
    }

    /// Works on the state, then wakes whom it concerns.
    fn with<R>(&self, work: impl FnOnce(&mut State, &Agreed, Millis, &mut Wakes) -> R) -> R {
        let now = self.common.clock.now();
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let before = state.is_gone();
        let result = work(&mut state, &self.agreed, now, &mut wakes);
        let gone = !before && state.is_gone();
        self.due.store(state.due(&self.agreed).0, Relaxed);
        drop(state);
        wakes.wake();
        if gone && let Some(home) = self.home.upgrade() {
            home.remove(self);
        }
        result
    }

    fn legacy(&self) -> bool {
        self.agreed.version.is_none()
    }

    fn answer(&self, status: u16, body: Body) -> Answer {
        Answer { status, body, content: self.agreed.content.clone(), close: false }
    }

    /// Takes a request with the identifier of this session.
    pub(super) fn exchange(self: &Arc<Self>, origin: &Origin, request: Request<'_>) -> Exchange {
        if self.agreed.secure && !origin.secure {
            // Section 19.1: the session goes on, or anybody could end it.
            let body = Condition::PolicyViolation.body();
            return Exchange::ready(Answer { close: true, ..self.answer(403, body) });
        }
        let was_open;
        let reply;
        (was_open, reply) = self
            .with(|state, agreed, now, wakes| (state.is_open(), state.request(agreed, request, now, wakes)));
        match reply {
            Reply::Wait(ticket) => Exchange::wait(self.clone(), ticket),
            Reply::Early(ticket) => {
                self.common.reordered.fetch_add(1, Relaxed);
                Exchange::wait(self.clone(), ticket)
            }
            Reply::Repeat(ticket) => {
                self.common.replays.fetch_add(1, Relaxed);
                Exchange::wait(self.clone(), ticket)
            }
            Reply::Again(body) => {
                self.common.replays.fetch_add(1, Relaxed);
                Exchange::ready(self.answer(200, body))
            }
            Reply::Last(body) => Exchange::ready(self.answer(200, body)),
            Reply::Gone => {
                self.common.unknown.fetch_add(1, Relaxed);
                self.refusal(Condition::ItemNotFound)
            }
            Reply::Failed(end) => {
                if was_open {
                    self.common.end(end);
                }
                self.refusal(match end {
                    End::Policy => Condition::PolicyViolation,
                    End::BadRequest => Condition::BadRequest,
                    End::Shutdown => Condition::SystemShutdown,
                    _ => Condition::ItemNotFound,
                })
            }
        }
    }

    fn refusal(&self, condition: Condition) -> Exchange {
        Exchange::ready(self.answer(condition.status(self.legacy()), condition.body()))
    }

    /// The answer of a request, if there is one.
    pub(super) fn poll(&self, ticket: u32, waker: &Waker) -> Option<Answer> {
        let body = self.state.lock().poll(ticket, waker)?;
        Some(self.answer(200, body))
    }

    /// The connection of a request broke.
    pub(super) fn forget(&self, ticket: u32) {
        self.with(|state, _, now, _| state.forget(ticket, now));
    }

    /// The time of its next alarm.
    pub(super) fn due(&self) -> Millis {
        Millis(self.due.load(Relaxed))
    }

    pub(super) fn sweep(&self) {
        let ended = self.with(|state, agreed, now, wakes| {
            let was_open = state.is_open();
            state.sweep(agreed, now, wakes) == Swept::Dead && was_open
        });
        if ended {
            self.common.end(End::Inactivity);
        }
    }

    /// Ends the session from outside; its stream finds that its client is gone.
    pub(super) fn end(&self, end: End) {
        let ended = self.with(|state, _, _, wakes| {
            let was_open = state.is_open();
            if !state.is_gone() {
                state.fail(end, wakes);
            }
            was_open
        });
        if ended {
            self.common.end(end);
        }
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting()
    }

    /// What the stream may read next.
    pub(super) fn read(&self, waker: &Waker) -> Read {
        self.state.lock().read(waker)
    }

    /// Whether a request waits for what the stream has to say. If not, the next one wakes it.
    pub(super) fn ready(&self, waker: Option<&Waker>) -> bool {
        self.state.lock().ready(waker)
    }

    /// The stream has nothing to say for now.
    pub(super) fn settle(&self) {
        self.with(|state, agreed, now, wakes| state.settle(agreed, now, wakes));
    }

    /// Says this to the client, if a request waits. Then the stream has nothing more for now.
    pub(super) fn deliver(&self, cut: &Cut, payload: &[u8]) -> bool {
        self.with(|state, agreed, now, wakes| {
            let done = state.deliver(agreed, cut, payload, now, wakes);
            state.settle(agreed, now, wakes);
            done
        })
    }

    /// The stream is over; this is the last that it says.
    pub(super) fn finish(&self, cut: &Cut, payload: &[u8], asked: bool) {
        let ended = self.with(|state, agreed, now, wakes| {
            let was_open = state.is_open();
            state.finish(agreed, cut, payload, now, wakes);
            was_open
        });
        if ended {
            self.common.end(if asked { End::Client } else { End::Server });
        }
    }
}

/// A refusal of a request without a session.
pub(super) fn refusal(condition: Condition, legacy: bool) -> Exchange {
    Exchange::ready(Answer {
        status: condition.status(legacy),
        body: answer::Condition::body(condition),
        content: None,
        close: false,
    })
}
