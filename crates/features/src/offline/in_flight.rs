//! What is on its way from the store into one session, and who can take it.
//!
//! The trap: a message in a queue is not delivered. [`InFlightBatch`] says up to where the store may forget.

use std::sync::Arc;
use std::task::{Context, Poll};

use store::{AddressId, StoredMessage};
use throng_core::session::ToRewrite;
use throng_core::{Node, Session, SharedStanza};

/// What the deliverer put into the queue of a session and has not removed from the store.
pub(super) struct InFlightBatch {
    pub(super) session: Arc<Session>,
    pub(super) owner: AddressId,
    /// The number of the last message that went into the queue.
    pub(super) enqueued_through: u64,
    /// The number of the last message; behind `sent` if it could not be read.
    pub(super) fetched_through: u64,
    /// What was removed.
    pub(super) removed_through: u64,
}

impl InFlightBatch {
    /// Up to where the store may forget: what the connection took, and unreadable ones behind it.
    pub(super) fn removable_through(&self, taken: u64) -> u64 {
        if taken >= self.enqueued_through { self.fetched_through } else { taken }
    }
}

/// How handing over went.
pub(super) enum PageOutcome {
    /// All are in the queue.
    Enqueued,
    /// The session has no connection, and there is no room for the rest. It comes out of the store again when the
    /// session was resumed: nothing is held in memory until then.
    Blocked,
    /// The session does not take messages any more.
    Ended,
}

/// Puts messages into the queue of a session, as fast as its connection takes them.
pub(super) async fn enqueue_page(
    node: &Arc<Node>,
    session: &Arc<Session>,
    owner: AddressId,
    messages: Vec<StoredMessage>,
    tray: &mut Option<InFlightBatch>,
) -> PageOutcome {
    let tray = tray.get_or_insert_with(|| {
        session.outbox.track_stored();
        InFlightBatch {
            session: session.clone(),
            owner,
            enqueued_through: 0,
            fetched_through: 0,
            removed_through: 0,
        }
    });
    for message in messages {
        // Nothing to deliver if it cannot be read; it goes with the others.
        if let Some(frame) = SharedStanza::from_store(&message.stanza, message.seq) {
            if !accepts_messages(session) {
                return PageOutcome::Ended;
            }
            let mut queued = node.enqueue(session, frame.clone(), ToRewrite::None);
            while !queued {
                if session.outbox.is_detached() {
                    return PageOutcome::Blocked;
                }
                wait_for_queue_space(session).await;
                if !accepts_messages(session) || session.outbox.delivery_progress(None).closed {
                    return PageOutcome::Ended;
                }
                // The queue was empty: a message that came meanwhile, or a budget, must not keep this one waiting for ever.
                queued = node.enqueue_forced(session, frame.clone(), ToRewrite::None);
            }
            tray.enqueued_through = message.seq;
        }
        tray.fetched_through = message.seq;
    }
    PageOutcome::Enqueued
}

/// Waits until a session's queue was taken, or the session ends. Other tasks run at least once, so that whoever retries
/// after this never keeps a worker to itself.
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

/// Whether a session with a connection has its queue empty, or is over; otherwise the task is woken for it.
pub(super) fn has_queue_space(session: &Session, cx: &mut Context<'_>) -> bool {
    let progress = session.outbox.delivery_progress(Some(cx));
    progress.queue_empty && !session.outbox.is_detached() || progress.closed || !accepts_delivery(session)
}

/// Whether the connection is there to take anything.
fn accepts_delivery(session: &Session) -> bool {
    !session.is_ended() && session.outbox.close_reason().is_none()
}

/// Whether the resource takes messages for the bare address (RFC 6121 section 8.5.2.1.1).
pub(super) fn accepts_messages(session: &Arc<Session>) -> bool {
    session.priority().is_some_and(|p| p >= 0) && accepts_delivery(session)
}

/// The resource with the highest priority among those with a connection, or else among the others; of equals the newest,
/// which is the one that came for its messages.
pub(super) fn preferred_resource(sessions: &[Arc<Session>]) -> Option<Arc<Session>> {
    sessions
        .iter()
        .filter(|s| accepts_messages(s))
        .max_by_key(|s| (!s.outbox.is_detached(), s.priority()))
        .cloned()
}
