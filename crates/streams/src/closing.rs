//! The end of a stream: RFC 6120 section 4.4.
//!
//! The last words are flushed, the outgoing direction is closed, and what still arrives is read and thrown away
//! for a moment: closing a socket with unread input makes the kernel reset the connection, and the peer may
//! lose the words. (Linux lets it read them all the same; other systems do not.)
//!
//! The trap: the session is over by now. Nothing here may ask the engine for anything.

use std::task::{Context, Poll};

use net::Scratch;
use throng_core::Outbox;

use crate::c2s::{C2sConnection, ConnectionPhase, PhaseOutcome};
use crate::context::C2sContext;

/// Seconds for flushing and for the peer's own end.
const CLOSE_TIMEOUT_SECONDS: u32 = 3;
/// Bytes that are thrown away before the connection is cut.
const MAX_DISCARDED_BYTES: usize = 1 << 20;

/// How far the end has come.
pub(crate) struct Closing {
    deadline: u32,
    write_closed: bool,
    discarded: usize,
}

impl Closing {
    pub(crate) fn new(service: &C2sContext, link: &std::sync::Arc<Outbox>) -> Closing {
        let deadline = service.node.seconds().saturating_add(CLOSE_TIMEOUT_SECONDS);
        link.set_deadline(deadline);
        // Back into the sweep, which `forget` took it out of: only the alarm is wanted.
        service.node.outboxes.add(link.clone());
        Closing { deadline, write_closed: false, discarded: 0 }
    }
}

impl C2sConnection {
    pub(crate) fn close(&mut self, cx: &mut Context<'_>, lent: &mut Scratch) -> PhaseOutcome {
        let ConnectionPhase::Closing(closing) = &mut self.phase else { return PhaseOutcome::Again };
        self.outbox.register_waker(cx);
        let late = self.outbox.deadline_elapsed() && self.context.node.seconds() >= closing.deadline;
        if !closing.write_closed {
            match self.stream.poll_shutdown(cx, lent) {
                Poll::Ready(Ok(())) => closing.write_closed = true,
                Poll::Ready(Err(_)) => return self.over(),
                Poll::Pending => {}
            }
        }
        if late {
            return self.over();
        }
        if closing.write_closed {
            loop {
                match self.stream.poll_discard(cx, lent) {
                    Poll::Ready(Ok(0) | Err(_)) => return self.over(),
                    Poll::Ready(Ok(count)) => closing.discarded += count,
                    Poll::Pending => break,
                }
                if closing.discarded > MAX_DISCARDED_BYTES {
                    return self.over();
                }
            }
        }
        PhaseOutcome::Sleep
    }

    fn over(&mut self) -> PhaseOutcome {
        self.context.node.outboxes.remove(&self.outbox);
        self.phase = ConnectionPhase::Over;
        PhaseOutcome::Again
    }
}
