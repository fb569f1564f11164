//! The end of a stream: RFC 6120 section 4.4.
//!
//! The last words are flushed, the outgoing direction is closed, and what still arrives is read and thrown away
//! for a moment: closing a socket with unread input makes the kernel reset the connection, and the peer may
//! lose the words. (Linux lets it read them all the same; other systems do not.)
//!
//! The trap: the session is over by now. Nothing here may ask the engine for anything.

use std::task::{Context, Poll};

use net::Scratch;
use throng_core::Link;

use crate::c2s::{Connection, Next, Phase};
use crate::service::Service;

/// Seconds for flushing and for the peer's own end.
const PATIENCE: u32 = 3;
/// Bytes that are thrown away before the connection is cut.
const DISCARD: usize = 1 << 20;

/// How far the end has come.
pub(crate) struct Closing {
    deadline: u32,
    shut: bool,
    discarded: usize,
}

impl Closing {
    pub(crate) fn new(service: &Service, link: &std::sync::Arc<Link>) -> Closing {
        let deadline = service.node.seconds().saturating_add(PATIENCE);
        link.set_deadline(deadline);
        // Back into the sweep, which `forget` took it out of: only the alarm is wanted.
        service.node.links.add(link.clone());
        Closing { deadline, shut: false, discarded: 0 }
    }
}

impl Connection {
    pub(crate) fn close(&mut self, cx: &mut Context<'_>, lent: &mut Scratch) -> Next {
        let Phase::Closing(closing) = &mut self.phase else { return Next::Again };
        self.link.register(cx);
        let late = self.link.rang() && self.service.node.seconds() >= closing.deadline;
        if !closing.shut {
            match self.stream.poll_shutdown(cx, lent) {
                Poll::Ready(Ok(())) => closing.shut = true,
                Poll::Ready(Err(_)) => return self.over(),
                Poll::Pending => {}
            }
        }
        if late {
            return self.over();
        }
        if closing.shut {
            loop {
                match self.stream.poll_discard(cx, lent) {
                    Poll::Ready(Ok(0) | Err(_)) => return self.over(),
                    Poll::Ready(Ok(count)) => closing.discarded += count,
                    Poll::Pending => break,
                }
                if closing.discarded > DISCARD {
                    return self.over();
                }
            }
        }
        Next::Sleep
    }

    fn over(&mut self) -> Next {
        self.service.node.links.remove(&self.link);
        self.phase = Phase::Over;
        Next::Again
    }
}
