//! Passes over the nodes of contacts, which send last items to clients that are interested: one of each session at a time, and of all
//! sessions a bounded number. A session that waits costs the names and the numbers of its contacts.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use hashbrown::{HashMap, HashSet};
use jid::Jid;

use super::account_nodes::AccountKey;

/// Passes at the same time.
const MAX_ACTIVE: usize = 256;
/// Names that wait for a session.
const MAX_NAMES: usize = 1_024;

/// What a client is interested in: nodes with these names, of these accounts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WaitingInterest {
    pub(super) names: HashSet<String>,
    pub(super) accounts: HashSet<AccountKey>,
}

#[derive(Default)]
struct PassState {
    /// By session, while its pass runs: what follows it.
    running: HashMap<Jid, WaitingInterest>,
    active: usize,
    waiting: VecDeque<Waker>,
}

/// The passes of a domain.
#[derive(Default)]
pub(super) struct InterestPasses(LeafMutex<PassState>);

/// Permission of a pass; it ends when it is dropped.
pub(super) struct PassPermit(Arc<InterestPasses>);

impl InterestPasses {
    /// A session is interested. Whether the caller must start its pass.
    pub(super) fn add(&self, session: &Jid, names: Vec<String>, accounts: Vec<AccountKey>) -> bool {
        let mut state = self.0.lock();
        let starts = !state.running.contains_key(session);
        let waiting = state.running.entry(session.clone()).or_default();
        for name in names {
            if waiting.names.len() < MAX_NAMES {
                waiting.names.insert(name);
            }
        }
        waiting.accounts.extend(accounts);
        starts
    }

    /// What the pass of a session continues with; `None`: it ends.
    pub(super) fn next(&self, session: &Jid) -> Option<WaitingInterest> {
        let mut state = self.0.lock();
        let waiting = std::mem::take(state.running.get_mut(session)?);
        if waiting.names.is_empty() {
            state.running.remove(session);
            return None;
        }
        Some(waiting)
    }

    /// Waits until there are few enough passes.
    pub(super) async fn permit(self: &Arc<Self>) -> PassPermit {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.active < MAX_ACTIVE {
                state.active += 1;
                return Poll::Ready(());
            }
            state.waiting.push_back(cx.waker().clone());
            Poll::Pending
        })
        .await;
        PassPermit(self.clone())
    }
}

impl Drop for PassPermit {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.0.lock();
            state.active -= 1;
            state.waiting.pop_front()
        };
        next.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Context;

    #[test]
    fn a_session_has_one_pass_that_takes_what_arrives_meanwhile() {
        let passes = InterestPasses::default();
        let session = Jid::parse("romeo@montague.lit/orchard").unwrap();
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(passes.add(&session, names(&["a", "b"]), Vec::new()));
        assert_eq!(passes.next(&session).unwrap().names.len(), 2);
        for _ in 0..1_000 {
            assert!(!passes.add(&session, names(&["a", "c"]), Vec::new()));
        }
        assert_eq!(passes.next(&session).unwrap().names.len(), 2);
        assert_eq!(passes.next(&session), None);
        assert!(passes.add(&session, names(&["a"]), Vec::new()), "again");
    }

    #[test]
    fn passes_wait_for_each_other() {
        let passes = Arc::new(InterestPasses::default());
        let permit = || {
            let mut waits = Box::pin(passes.permit());
            match waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(permit) => Some(permit),
                Poll::Pending => None,
            }
        };
        let mut active: Vec<PassPermit> = (0..MAX_ACTIVE).map(|_| permit().unwrap()).collect();
        assert!(permit().is_none());
        active.pop();
        assert!(permit().is_some());
    }
}
