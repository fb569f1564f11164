//! What users are about to have, while the store does not have it yet: requests that are under way at the same time share a limit.
//!
//! # Pitfalls
//!
//! A reservation must be made before the store is asked how many there are, and kept until the store has the change. What is both
//! stored and reserved for a moment counts twice, so that nobody exceeds a limit.

use std::sync::Arc;

use base::lock::LeafMutex;
use hashbrown::HashMap;
use jid::Jid;

/// Reservations by bare address.
#[derive(Debug, Default)]
pub(crate) struct Reservations(LeafMutex<HashMap<Jid, u64>>);

/// One of them; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    of: Arc<Reservations>,
    user: Jid,
    /// Those of the user when it was made, without this one.
    pub(crate) others: u64,
}

impl Reservations {
    /// One more of a user.
    pub(crate) fn reserve(self: &Arc<Self>, user: &Jid) -> Reservation {
        let user = user.bare().to_jid();
        let mut all = self.0.lock();
        let count = all.entry(user.clone()).or_default();
        let others = *count;
        *count += 1;
        drop(all);
        Reservation { of: self.clone(), user, others }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut all = self.of.0.lock();
        if let Some(count) = all.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_knows_those_before_it_and_ends() {
        let all = Arc::new(Reservations::default());
        let user = Jid::parse("hamlet@denmark.lit/elsinore").unwrap();
        let (first, second) = (all.reserve(&user), all.reserve(&user.bare().to_jid()));
        assert_eq!((first.others, second.others), (0, 1));
        drop(first);
        assert_eq!(all.reserve(&user).others, 1);
        drop(second);
        assert!(all.0.lock().is_empty());
    }
}
