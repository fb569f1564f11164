//! Asking connections for what only their tasks know: address, transport, silence.
//!
//! A session keeps none of this, since hardly anybody ever asks; the connection's task has it all. So whoever shows a page
//! of sessions rings their links ([`Link::inquire`]), and each task answers when it runs next.
//!
//! The trap: a task may be ending and never answer. [`Node::sweep`] rings once more after a second, and gives up after
//! [`PATIENCE`]; whoever waits must live with an answer that is missing.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::node::Node;
use crate::session::{Link, Session};

/// Seconds after which an answer counts as missing.
pub const PATIENCE: u32 = 3;
/// Connections that are being asked, of a node.
const MOST: usize = 4_096;

/// What a connection says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The client's address.
    pub peer: SocketAddr,
    /// How the bytes travel: `tcp`, `tls`, `websocket`, `bosh`.
    pub transport: String,
    /// Nobody on the way can read the stream, as far as is known.
    pub secure: bool,
    /// Seconds since something came from the client; nothing where that is not known at this moment.
    pub silent: Option<u32>,
}

/// Those who are asked, by the number of their link.
#[derive(Default)]
pub struct Inquiries(Mutex<HashMap<u64, Vec<Waiting>>>);

struct Waiting {
    round: Arc<Round>,
    place: usize,
    since: u32,
    link: Arc<Link>,
}

#[derive(Default)]
struct Round(Mutex<State>);

#[derive(Default)]
struct State {
    answers: Vec<Option<Facts>>,
    missing: usize,
    waker: Option<Waker>,
}

impl Round {
    fn answer(&self, place: usize, facts: Option<Facts>) {
        let mut state = self.0.lock();
        if let Some(answer) = state.answers.get_mut(place) {
            *answer = facts;
        }
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0
            && let Some(waker) = state.waker.take()
        {
            waker.wake();
        }
    }
}

/// The answers, when all are there or given up, in the order of the sessions.
pub struct Inquiry(Arc<Round>);

impl Future for Inquiry {
    type Output = Vec<Option<Facts>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<Option<Facts>>> {
        let mut state = self.0.0.lock();
        if state.missing == 0 {
            return Poll::Ready(std::mem::take(&mut state.answers));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Node {
    /// Asks the connections of these sessions. Those that have none, and those beyond the limit of the node, are not asked.
    pub fn inquire(&self, sessions: &[Arc<Session>]) -> Inquiry {
        let round = Arc::new(Round::default());
        round.0.lock().answers = vec![None; sessions.len()];
        let now = self.seconds();
        let mut links = Vec::with_capacity(sessions.len());
        {
            let mut all = self.inquiries.0.lock();
            for (place, session) in sessions.iter().enumerate() {
                let link = &session.link;
                if all.len() >= MOST || session.is_ended() || link.is_dormant() {
                    continue;
                }
                round.0.lock().missing += 1;
                let waiting = Waiting { round: round.clone(), place, since: now, link: link.clone() };
                all.entry(link.id).or_default().push(waiting);
                links.push(link.clone());
            }
        }
        links.iter().for_each(|link| link.inquire());
        Inquiry(round)
    }

    /// A connection's task answers; nothing if it has no connection.
    pub fn inquired(&self, link: &Link, facts: Option<Facts>) {
        let asked = self.inquiries.0.lock().remove(&link.id);
        for waiting in asked.into_iter().flatten() {
            waiting.round.answer(waiting.place, facts.clone());
        }
    }

    /// Rings again, and gives up.
    pub(crate) fn sweep_inquiries(&self, now: u32) {
        let mut all = self.inquiries.0.lock();
        if all.is_empty() {
            return;
        }
        let (mut late, mut ring) = (Vec::new(), Vec::new());
        all.retain(|_, list| {
            late.extend(list.extract_if(.., |w| now.saturating_sub(w.since) >= PATIENCE));
            ring.extend(list.first().map(|w| w.link.clone()));
            !list.is_empty()
        });
        drop(all);
        ring.iter().for_each(|link| link.inquire());
        late.iter().for_each(|w| w.round.answer(w.place, None));
    }
}
