//! What is on its way from the store into one session, and who can take it.
//!
//! The trap: a message in a queue is not delivered. [`Tray`] says up to where the store may forget.

use std::sync::Arc;
use std::task::{Context, Poll};

use store::{AddressId, Waiting};
use throng_core::session::Stamp;
use throng_core::{Frame, Node, Session};

/// What the deliverer put into the queue of a session and has not removed from the store.
pub(super) struct Tray {
    pub(super) session: Arc<Session>,
    pub(super) owner: AddressId,
    /// The number of the last message that went into the queue.
    pub(super) sent: u64,
    /// The number of the last message; behind `sent` if it could not be read.
    pub(super) through: u64,
    /// What was removed.
    pub(super) removed: u64,
}

impl Tray {
    /// Up to where the store may forget: what the connection took, and unreadable ones behind it.
    pub(super) fn safe(&self, taken: u64) -> u64 {
        if taken >= self.sent { self.through } else { taken }
    }
}

/// How handing over went.
pub(super) enum Handed {
    /// All are in the queue.
    All,
    /// The session has no connection, and there is no room for the rest. It comes out of the store again when the
    /// session was resumed: nothing is held in memory until then.
    Blocked,
    /// The session does not take messages any more.
    Ended,
}

/// Puts messages into the queue of a session, as fast as its connection takes them.
pub(super) async fn hand_over(
    node: &Arc<Node>,
    session: &Arc<Session>,
    owner: AddressId,
    messages: Vec<Waiting>,
    tray: &mut Option<Tray>,
) -> Handed {
    let tray = tray.get_or_insert_with(|| {
        session.link.watch();
        Tray { session: session.clone(), owner, sent: 0, through: 0, removed: 0 }
    });
    for message in messages {
        // Nothing to deliver if it cannot be read; it goes with the others.
        if let Some(frame) = Frame::from_store(&message.stanza, message.seq) {
            if !takes(session) {
                return Handed::Ended;
            }
            let mut queued = node.enqueue(session, frame.clone(), Stamp::None);
            while !queued {
                if session.link.is_dormant() {
                    return Handed::Blocked;
                }
                room(session).await;
                if !takes(session) || session.link.progress(None).gone {
                    return Handed::Ended;
                }
                // The queue was empty: a message that came meanwhile, or a budget, must not keep this one waiting for ever.
                queued = node.enqueue_forced(session, frame.clone(), Stamp::None);
            }
            tray.sent = message.seq;
        }
        tray.through = message.seq;
    }
    Handed::All
}

/// Waits until a session's queue was taken, or the session ends. Other tasks run at least once, so that whoever retries
/// after this never keeps a worker to itself.
async fn room(session: &Session) {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        let ready = has_room(session, cx);
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
pub(super) fn has_room(session: &Session, cx: &mut Context<'_>) -> bool {
    let progress = session.link.progress(Some(cx));
    progress.empty && !session.link.is_dormant() || progress.gone || !connected(session)
}

/// Whether the connection is there to take anything.
fn connected(session: &Session) -> bool {
    !session.is_ended() && session.link.wish().is_none()
}

/// Whether the resource takes messages for the bare address (RFC 6121 section 8.5.2.1.1).
pub(super) fn takes(session: &Arc<Session>) -> bool {
    session.priority().is_some_and(|p| p >= 0) && connected(session)
}

/// The resource with the highest priority among those with a connection, or else among the others; of equals the newest,
/// which is the one that came for its messages.
pub(super) fn best(sessions: &[Arc<Session>]) -> Option<Arc<Session>> {
    sessions.iter().filter(|s| takes(s)).max_by_key(|s| (!s.link.is_dormant(), s.priority())).cloned()
}
