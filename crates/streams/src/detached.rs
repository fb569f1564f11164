//! A detached session: its connection is lost and it may be resumed. XEP-0198 (1.6.3), sections 5 and 7.
//!
//! A small future takes the place of the connection. It waits for a connection that resumes the session, for the
//! resumption timeout, or for a request to close the session. The session stays bound and available, and its outbox
//! continues within its limits.
//!
//! Not implemented: the elements, which are in `stream_management`.
//!
//! # Pitfalls
//!
//! Stanzas that were being handled when the connection broke were accepted. They are completed and counted, and their
//! receipts awaited, before the session is handed over: otherwise the client would send them again.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use access::session_info::answer_session_info;
use throng_core::{Node, Session};

use crate::unfinished::UnfinishedStanzas;

/// A session without a connection.
pub(crate) struct DetachedSession {
    node: Arc<Node>,
    session: Arc<Session>,
    /// Stanzas that are not safe yet.
    unfinished: Option<Box<UnfinishedStanzas>>,
    ended: bool,
}

impl DetachedSession {
    /// Takes over the session of a lost connection. False if it cannot be resumed and ends immediately.
    pub(crate) fn start(
        node: &Arc<Node>,
        session: &Arc<Session>,
        mut unfinished: Option<Box<UnfinishedStanzas>>,
    ) -> bool {
        if let Some(unfinished) = &mut unfinished {
            unfinished.forget_held();
        }
        let detached =
            DetachedSession { node: node.clone(), session: session.clone(), unfinished, ended: false };
        let resumable = node.detach_session(session);
        if resumable {
            node.metrics.sessions_detached.inc();
            tracing::debug!(jid = %session.jid, "connection lost, session detached");
            node.spawner.spawn("detached session", Box::pin(detached));
        }
        resumable
    }

    fn end(&mut self, reason: &str) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if let Some(unfinished) = self.unfinished.take() {
            unfinished.complete_in_background(&self.node, &self.session);
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
        let outbox = this.session.outbox.clone();
        // Registered first, so that every later event wakes the task again.
        let closing = outbox.register_waker(cx);
        if let Some(unfinished) = &mut this.unfinished {
            let node = &this.node;
            match std::panic::catch_unwind(AssertUnwindSafe(|| unfinished.poll(cx, node))) {
                Ok(handled) => {
                    node.count_handled(&this.session, handled);
                    if unfinished.is_empty() {
                        this.unfinished = None;
                    }
                }
                Err(_) => {
                    tracing::error!(jid = %this.session.jid, "a stanza handler panicked; ending the session");
                    unfinished.forget_failed();
                    this.end("internal-server-error");
                }
            }
        }
        if !this.ended
            && !closing
            && outbox.takeover_requested()
            && this.unfinished.is_none()
            && outbox.hand_over()
        {
            this.ended = true;
        }
        if outbox.info_requested() {
            answer_session_info(&this.node, &outbox, None);
        }
        let timed_out = outbox.deadline_elapsed() && this.node.seconds() >= outbox.deadline();
        if !this.ended && (closing || timed_out) {
            let reason = outbox.close_reason();
            this.end(reason.as_ref().map_or("resumption timeout", |error| error.condition.as_str()));
        }
        if this.ended { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for DetachedSession {
    /// Ends the session also when the task is dropped at shutdown of the runtime.
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
