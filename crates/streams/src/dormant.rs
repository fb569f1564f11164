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
pub(crate) struct Dormant {
    node: Arc<Node>,
    session: Arc<Session>,
    /// What the last stanza waits for.
    waiting: Option<BoxFuture<'static, ()>>,
    over: bool,
}

impl Dormant {
    /// Takes a session over from a connection that is lost. If it cannot be resumed it ends here and now.
    pub(crate) fn start(
        node: &Arc<Node>,
        session: &Arc<Session>,
        waiting: Option<BoxFuture<'static, ()>>,
    ) -> bool {
        let dormant = Dormant { node: node.clone(), session: session.clone(), waiting, over: false };
        let kept = node.lose(session);
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
        if let Some(waiting) = self.waiting.take() {
            // The stanza was accepted while the stream was whole, so it gets where it belongs.
            self.node.spawner.spawn("last stanza", waiting);
        }
        crate::c2s::note_ended(&self.node, &self.session, reason);
        self.node.end_session(&self.session);
        self.node.links.remove(&self.session.link);
    }
}

impl Future for Dormant {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let link = this.session.link.clone();
        // Registered first: what happens from here on wakes the task again.
        let closing = link.register(cx);
        if let Some(waiting) = &mut this.waiting {
            match std::panic::catch_unwind(AssertUnwindSafe(|| waiting.as_mut().poll(cx))) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(())) => {
                    this.waiting = None;
                    link.count_handled();
                }
                Err(_) => {
                    tracing::error!(jid = %this.session.jid, "a stanza's handling panicked; the session ends");
                    this.waiting = None;
                    this.end("internal-server-error");
                }
            }
        }
        if !this.over && !closing && link.wanted() && this.waiting.is_none() && link.release() {
            this.over = true;
        }
        if link.inquired() {
            this.node.inquired(&link, None);
        }
        let late = link.rang() && this.node.seconds() >= link.deadline();
        if !this.over && (closing || late) {
            let wish = link.wish();
            this.end(wish.as_ref().map_or("not resumed in time", |error| error.condition.as_str()));
        }
        if this.over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Dormant {
    /// A task that is dropped (the runtime ends) leaves the engine in order all the same.
    fn drop(&mut self) {
        self.end("stopped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_without_a_connection_costs_little() {
        assert!(size_of::<Dormant>() <= 40, "{}", size_of::<Dormant>());
    }
}
