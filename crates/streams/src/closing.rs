//! Closing of a stream: RFC 6120, section 4.4.
//!
//! Pending output is flushed and the outgoing direction closed. Input is then read and discarded for a moment: closing
//! a socket with unread input makes the kernel reset the connection, and the peer may lose the final output. (Linux
//! delivers it anyway; other systems do not.)
//!
//! # Pitfalls
//!
//! The session has ended by now. Nothing here may call the engine on its behalf.

use std::task::{Context, Poll};

use net::Scratch;
use throng_core::Outbox;

use crate::c2s::{C2sConnection, ConnectionPhase, PhaseOutcome};
use crate::context::C2sContext;

/// Seconds for the flush and for the peer to close its direction.
const CLOSE_TIMEOUT_SECONDS: u32 = 3;
/// Bytes of input to discard before the connection is closed.
const MAX_DISCARDED_BYTES: usize = 1 << 20;

/// Progress of closing.
pub(crate) struct Closing {
    deadline: u32,
    write_closed: bool,
    discarded: usize,
}

impl Closing {
    pub(crate) fn new(context: &C2sContext, outbox: &std::sync::Arc<Outbox>) -> Closing {
        let deadline = context.node.seconds().saturating_add(CLOSE_TIMEOUT_SECONDS);
        outbox.set_deadline(deadline);
        // Registered again after `drop_session` removed it: only the sweep's deadline is needed.
        context.node.outboxes.add(outbox.clone());
        Closing { deadline, write_closed: false, discarded: 0 }
    }
}

impl C2sConnection {
    pub(crate) fn close(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> PhaseOutcome {
        let ConnectionPhase::Closing(closing) = &mut self.phase else { return PhaseOutcome::Again };
        self.outbox.register_waker(cx);
        let late = self.outbox.deadline_elapsed() && self.context.node.seconds() >= closing.deadline;
        if !closing.write_closed {
            match self.stream.poll_shutdown(cx, scratch) {
                Poll::Ready(Ok(())) => closing.write_closed = true,
                Poll::Ready(Err(_)) => return self.finish(),
                Poll::Pending => {}
            }
        }
        if late {
            return self.finish();
        }
        if closing.write_closed {
            loop {
                match self.stream.poll_discard(cx, scratch) {
                    Poll::Ready(Ok(0) | Err(_)) => return self.finish(),
                    Poll::Ready(Ok(count)) => closing.discarded += count,
                    Poll::Pending => break,
                }
                if closing.discarded > MAX_DISCARDED_BYTES {
                    return self.finish();
                }
            }
        }
        PhaseOutcome::Sleep
    }

    fn finish(&mut self) -> PhaseOutcome {
        self.context.node.outboxes.remove(&self.outbox);
        self.phase = ConnectionPhase::Finished;
        PhaseOutcome::Again
    }
}
