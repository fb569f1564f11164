//! Receipts that failed: their errors go to the senders of the stanzas.

use std::sync::Arc;
use std::task::Poll;

use base::spawn::BoxFuture;

use super::RoutingWork;
use crate::hooks::StopReason;
use crate::node::Node;
use crate::receipt::{FailedReceipt, Receipts};

impl Node {
    /// Sends the error of a failed receipt to the sender of the stanza.
    pub fn return_failed(self: &Arc<Self>, failed: FailedReceipt) {
        let FailedReceipt { stanza, error } = failed;
        let Some(from) = stanza.sender() else { return };
        // Without `to`, the recipient is the sender's own account (RFC 6120, section 10.3.1).
        let to = stanza.recipient().unwrap_or_else(|| from.as_ref().bare().to_jid());
        let mut work = RoutingWork::default();
        self.apply_stop(&stanza, from.as_ref(), to.as_ref(), StopReason::Refused(error), &mut work);
        self.perform_effects_spawned(work);
    }

    /// Waits until all receipts have an outcome, and sends the errors of those that failed: for stanzas that do not come
    /// from a client's stream.
    pub fn settle_receipts(self: &Arc<Self>, mut receipts: Receipts) -> BoxFuture<'static, ()> {
        let node = self.clone();
        Box::pin(std::future::poll_fn(move |cx| {
            if receipts.poll(cx, &mut |failed| node.return_failed(failed)) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }))
    }
}
