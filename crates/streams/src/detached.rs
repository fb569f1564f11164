//! A session whose connection is lost and that may be resumed: XEP-0198 1.6.3 sections 5 and 7.
//!
//! A small future in place of a connection. It waits for another connection that wants the session, for its time to be
//! up, or for a wish to end it. The session stays bound and available meanwhile, and its queue goes on within its limits.
//!
//! Left out: everything about elements, which is in `sm`. The trap: a stanza that was under way when the connection went
//! was accepted; it is finished and counted before the session changes hands.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::spawn::BoxFuture;
use throng_core::{Node, Session};

/// A session without a connection.
pub(crate) struct DetachedSession {
    node: Arc<Node>,
    session: Arc<Session>,
    /// What the last stanza waits for.
    pending_stanza: Option<BoxFuture<'static, ()>>,
    over: bool,
}

impl DetachedSession {
    /// Takes a session over from a connection that is lost. If it cannot be resumed it ends here and now.
    pub(crate) fn start(
        node: &Arc<Node>,
        session: &Arc<Session>,
        waiting: Option<BoxFuture<'static, ()>>,
    ) -> bool {
        let dormant = DetachedSession {
            node: node.clone(),
            session: session.clone(),
            pending_stanza: waiting,
            over: false,
        };
        let kept = node.detach_session(session);
        if kept {
            node.metrics.sessions_detached.inc();
            tracing::debug!(jid = %session.jid, "the connection is lost, the session waits");
            node.spawner.spawn("dormant session", Box::pin(dormant));
        }
        kept
    }

    fn end(&mut self, reason: &str) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        if let Some(waiting) = self.pending_stanza.take() {
            // The stanza was accepted while the stream was whole, so it gets where it belongs.
            self.node.spawner.spawn("last stanza", waiting);
        }
        crate::c2s::log_session_end(&self.node, &self.session, reason);
        self.node.end_session(&self.session);
        self.node.outboxes.remove(&self.session.outbox);
    }
}

impl Future for DetachedSession {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let link = this.session.outbox.clone();
        // Registered first: what happens from here on wakes the task again.
        let closing = link.register_waker(cx);
        if let Some(waiting) = &mut this.pending_stanza {
            match std::panic::catch_unwind(AssertUnwindSafe(|| waiting.as_mut().poll(cx))) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(())) => {
                    this.pending_stanza = None;
                    link.count_handled();
                }
                Err(_) => {
                    tracing::error!(jid = %this.session.jid, "a stanza's handling panicked; the session ends");
                    this.pending_stanza = None;
                    this.end("internal-server-error");
                }
            }
        }
        if !this.over
            && !closing
            && link.takeover_requested()
            && this.pending_stanza.is_none()
            && link.hand_over()
        {
            this.over = true;
        }
        if link.info_requested() {
            this.node.answer_session_info(&link, None);
        }
        let late = link.deadline_elapsed() && this.node.seconds() >= link.deadline();
        if !this.over && (closing || late) {
            let wish = link.close_reason();
            this.end(wish.as_ref().map_or("not resumed in time", |error| error.condition.as_str()));
        }
        if this.over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for DetachedSession {
    /// A task that is dropped (the runtime ends) leaves the engine in order all the same.
    fn drop(&mut self) {
        self.end("stopped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_session_fits_its_byte_budget() {
        assert!(size_of::<DetachedSession>() <= 40, "{}", size_of::<DetachedSession>());
    }
}
