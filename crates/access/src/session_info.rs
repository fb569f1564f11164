//! Requests to connection tasks for information that only they have: peer address, transport, idle time.
//!
//! A session does not store this information, because it is rarely requested. To show a page of sessions, their
//! outboxes are signalled ([`Outbox::request_info`]), and each task answers when it runs next.
//!
//! # Pitfalls
//!
//! A task may be ending and never answer. [`Node::sweep`] signals again after a second and gives up after
//! [`TIMEOUT_SECONDS`]; callers must accept missing answers.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::lock::{LeafMutex, RankedMutex, rank};
use throng_core::node_extensions::Swept;
use throng_core::{Node, Outbox, Session};

/// Seconds after which an answer counts as missing.
pub const TIMEOUT_SECONDS: u32 = 3;
/// Maximum number of pending requests of a node.
const MAX_PENDING: usize = 4_096;

/// Information about a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The client's address.
    pub peer: SocketAddr,
    /// The transport of the stream: `tcp`, `tls`, `websocket`, `bosh`.
    pub transport: &'static str,
    /// Whether the stream is confidential up to the client, as far as is known.
    pub secure: bool,
    /// Seconds since the last data from the client; none if not known at this moment.
    pub idle_seconds: Option<u32>,
}

/// Pending requests by the id of the outbox.
#[derive(Default)]
struct SessionInfoRequests(
    RankedMutex<HashMap<u64, Vec<PendingInfoRequest>>, { rank::SESSION_INFO_REQUESTS }>,
);

struct PendingInfoRequest {
    batch: Arc<InfoRequestBatch>,
    index: usize,
    since: u32,
    outbox: Arc<Outbox>,
}

#[derive(Default)]
struct InfoRequestBatch(LeafMutex<State>);

#[derive(Default)]
struct State {
    answers: Vec<Option<SessionInfo>>,
    missing: usize,
    waker: Option<Waker>,
}

impl InfoRequestBatch {
    fn answer(&self, index: usize, info: Option<SessionInfo>) {
        let mut state = self.0.lock();
        if let Some(answer) = state.answers.get_mut(index) {
            *answer = info;
        }
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0
            && let Some(waker) = state.waker.take()
        {
            waker.wake();
        }
    }
}

/// The answers in the order of the sessions, when all have arrived or timed out.
pub struct SessionInfoFuture(Arc<InfoRequestBatch>);

impl Future for SessionInfoFuture {
    type Output = Vec<Option<SessionInfo>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<Option<SessionInfo>>> {
        let mut state = self.0.0.lock();
        if state.missing == 0 {
            return Poll::Ready(std::mem::take(&mut state.answers));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Requests the information of these sessions. Detached sessions, and those beyond the limit of the node, receive no
/// request.
pub fn request_session_info(node: &Node, sessions: &[Arc<Session>]) -> SessionInfoFuture {
    let batch = Arc::new(InfoRequestBatch::default());
    batch.0.lock().answers = vec![None; sessions.len()];
    let now = node.seconds();
    let mut outboxes = Vec::with_capacity(sessions.len());
    {
        let requests = pending_requests(node);
        let mut all = requests.0.lock();
        for (index, session) in sessions.iter().enumerate() {
            let outbox = &session.outbox;
            if all.len() >= MAX_PENDING || session.is_ended() || outbox.is_detached() {
                continue;
            }
            batch.0.lock().missing += 1;
            let request =
                PendingInfoRequest { batch: batch.clone(), index, since: now, outbox: outbox.clone() };
            all.entry(outbox.id).or_default().push(request);
            outboxes.push(outbox.clone());
        }
    }
    outboxes.iter().for_each(|outbox| outbox.request_info());
    SessionInfoFuture(batch)
}

/// Records the answer of a connection's task; none if there is no connection.
pub fn answer_session_info(node: &Node, outbox: &Outbox, info: Option<SessionInfo>) {
    let requests = pending_requests(node).0.lock().remove(&outbox.id);
    for request in requests.into_iter().flatten() {
        request.batch.answer(request.index, info.clone());
    }
}

fn pending_requests(node: &Node) -> Arc<SessionInfoRequests> {
    node.extensions.get_or_default_swept()
}

impl Swept for SessionInfoRequests {
    /// Signals pending requests again, and expires old ones.
    fn sweep(&self, _node: &Arc<Node>, now: u32) {
        let mut all = self.0.lock();
        if all.is_empty() {
            return;
        }
        let (mut expired, mut to_signal) = (Vec::new(), Vec::new());
        all.retain(|_, list| {
            expired.extend(list.extract_if(.., |w| now.saturating_sub(w.since) >= TIMEOUT_SECONDS));
            to_signal.extend(list.first().map(|w| w.outbox.clone()));
            !list.is_empty()
        });
        drop(all);
        to_signal.iter().for_each(|outbox| outbox.request_info());
        expired.iter().for_each(|w| w.batch.answer(w.index, None));
    }
}
