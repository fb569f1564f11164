//! Passes over the nodes of contacts, which send last items to clients that are interested: one of each session at a time, and of all
//! sessions a bounded number. A session that waits costs the names and the numbers of its contacts.

use base::lock::LeafMutex;
use hashbrown::{HashMap, HashSet};
use jid::Jid;
use queues::semaphore::{Semaphore, SemaphorePermit};

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

/// By session, while its pass runs: what follows it.
type RunningPasses = HashMap<Jid, WaitingInterest>;

/// The passes of a domain.
pub(super) struct InterestPasses {
    running: LeafMutex<RunningPasses>,
    permits: Semaphore,
}

impl Default for InterestPasses {
    fn default() -> InterestPasses {
        // Sessions have a bound, and each has one pass.
        InterestPasses { running: LeafMutex::default(), permits: Semaphore::new(MAX_ACTIVE, usize::MAX) }
    }
}

impl InterestPasses {
    /// A session is interested. Whether the caller must start its pass.
    pub(super) fn add(&self, session: &Jid, names: Vec<String>, accounts: Vec<AccountKey>) -> bool {
        let mut running = self.running.lock();
        let starts = !running.contains_key(session);
        let waiting = running.entry(session.clone()).or_default();
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
        let mut running = self.running.lock();
        let waiting = std::mem::take(running.get_mut(session)?);
        if waiting.names.is_empty() {
            running.remove(session);
            return None;
        }
        Some(waiting)
    }

    /// Waits until there are few enough passes; never `None`.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit> {
        self.permits.acquire().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
