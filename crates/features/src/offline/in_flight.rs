//! Messages in flight from the store into one session's queue, and the choice of that session.
//!
//! # Pitfalls
//!
//! A queued message is not delivered yet. [`InFlightBatch`] tracks up to which message the store may be cleared.

use std::sync::Arc;
use std::task::{Context, Poll};

use store::{AddressId, StoredMessage};
use throng_core::session::ToRewrite;
use throng_core::{Node, Receipts, Session, SharedStanza};

/// Messages that were put into a session's queue and have not been removed from the store.
pub(super) struct InFlightBatch {
    pub(super) session: Arc<Session>,
    pub(super) owner: AddressId,
    /// Number of the last queued message.
    pub(super) enqueued_through: u64,
    /// Number of the last fetched message; after `enqueued_through` if it was unreadable.
    pub(super) fetched_through: u64,
    /// Number of the last message that was removed from the store.
    pub(super) removed_through: u64,
    /// Second of the node's clock before which they are not removed, because the store failed.
    pub(super) retry_at: u32,
    /// Numbers of backups among the fetched messages, in order: they were neither queued nor may they be removed.
    pub(super) skipped: Vec<u64>,
}

impl InFlightBatch {
    /// Number up to which the store may be cleared: delivered messages, and unreadable ones after them.
    pub(super) fn removable_through(&self, taken: u64) -> u64 {
        if taken >= self.enqueued_through { self.fetched_through } else { taken }
    }
}

/// Result of queueing a page.
pub(super) enum PageOutcome {
    /// All messages are in the queue.
    Enqueued,
    /// The session is detached and its queue has no room for the rest. They are fetched again when the session is
    /// resumed: no messages are held in memory until then.
    Blocked,
    /// The session does not accept messages any more.
    Ended,
}

/// Puts messages into a session's queue, as fast as its connection takes them; `on_full` is called before it waits.
pub(super) async fn enqueue_page(
    node: &Arc<Node>,
    session: &Arc<Session>,
    owner: AddressId,
    messages: Vec<StoredMessage>,
    in_flight: &mut Option<InFlightBatch>,
    on_full: impl Fn(),
) -> PageOutcome {
    let in_flight = in_flight.get_or_insert_with(|| {
        session.outbox.track_stored();
        InFlightBatch {
            session: session.clone(),
            owner,
            enqueued_through: 0,
            fetched_through: 0,
            removed_through: 0,
            retry_at: 0,
            skipped: Vec::new(),
        }
    });
    let mut copies = Receipts::default();
    let outcome = enqueue_messages(node, session, messages, in_flight, &mut copies, &on_full).await;
    if !copies.is_empty() {
        // The rows of these messages are about to be removed, and sessions may have them in memory only.
        on_full();
        for copy in &copies.0 {
            let _ = std::future::poll_fn(|cx| copy.receipt.poll_outcome(cx)).await;
        }
    }
    outcome
}

/// Puts messages into the queue, except copies that sessions have from another node, which are safe when `copies` are fulfilled.
async fn enqueue_messages(
    node: &Arc<Node>,
    session: &Arc<Session>,
    messages: Vec<StoredMessage>,
    in_flight: &mut InFlightBatch,
    copies: &mut Receipts,
    on_full: &impl Fn(),
) -> PageOutcome {
    for message in messages {
        // Unreadable messages are not delivered, but are removed with the others.
        if let Some(frame) = SharedStanza::from_store(&message.stanza, message.seq) {
            if !accepts_messages(session) {
                return PageOutcome::Ended;
            }
            if let Some(peers) = node.peers() {
                // Sessions here may have it from another source. This node answers for that copy then, and removes the stored message
                // when the receipts are fulfilled: until then the copy may be in memory only.
                let (recorded, receipt) = peers.take_over_copy(node, &session.account, &frame, message.seq);
                copies.0.extend(receipt);
                if recorded {
                    in_flight.fetched_through = message.seq;
                    continue;
                }
                // If it arrives by another way, too, it is not delivered twice.
                peers.record_read_from_store(&session.account, &frame, message.seq);
            }
            let mut queued = node.enqueue(session, frame.clone(), ToRewrite::None);
            while !queued {
                on_full();
                if session.outbox.is_detached() {
                    return PageOutcome::Blocked;
                }
                wait_for_queue_space(session).await;
                if !accepts_messages(session) || session.outbox.delivery_progress(None).closed {
                    return PageOutcome::Ended;
                }
                // The queue was empty: a message that arrived meanwhile, or a budget, must not block this one
                // permanently.
                queued = node.enqueue_forced(session, frame.clone(), ToRewrite::None);
            }
            in_flight.enqueued_through = message.seq;
        }
        in_flight.fetched_through = message.seq;
    }
    PageOutcome::Enqueued
}

/// Waits until a session's queue is empty, or the session ends. Yields at least once, so that a retry loop never
/// monopolises a worker.
async fn wait_for_queue_space(session: &Session) {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        let ready = has_queue_space(session, cx);
        if ready && waited {
            return Poll::Ready(());
        }
        if ready {
            cx.waker().wake_by_ref();
        }
        waited = true;
        Poll::Pending
    })
    .await;
}

/// Whether the queue of a connected session is empty, or the session has ended; otherwise the task is registered to
/// be woken.
pub(super) fn has_queue_space(session: &Session, cx: &mut Context<'_>) -> bool {
    let progress = session.outbox.delivery_progress(Some(cx));
    progress.queue_empty && !session.outbox.is_detached() || progress.closed || !accepts_delivery(session)
}

/// Whether a connection is attached.
fn accepts_delivery(session: &Session) -> bool {
    !session.is_ended() && session.outbox.close_reason().is_none()
}

/// Whether the resource accepts messages for the bare address (RFC 6121, section 8.5.2.1.1).
pub(super) fn accepts_messages(session: &Arc<Session>) -> bool {
    session.priority().is_some_and(|p| p >= 0) && accepts_delivery(session)
}

/// The connected resource with the highest priority, or the detached one if none is connected; among equals the
/// newest, which has just become available.
pub(super) fn preferred_resource(sessions: &[Arc<Session>]) -> Option<Arc<Session>> {
    sessions
        .iter()
        .filter(|s| accepts_messages(s))
        .max_by_key(|s| (!s.outbox.is_detached(), s.priority()))
        .cloned()
}
