//! Set of the online users of the run: membership and a random pick, both in constant time.
//!
//! Not implemented: resources.
//!
//! # Pitfalls
//!
//! Changes of other workers' users are known up to a second late; a message to a user that has just left is stored, not
//! lost.

use super::rng::Rng;

/// The set. Eight bytes per account.
pub(crate) struct OnlineUsers {
    members: Vec<u32>,
    /// Position in `members` plus one; 0 is offline.
    positions: Vec<u32>,
}

impl OnlineUsers {
    /// Creates an empty set for `accounts` accounts.
    pub(crate) fn new(accounts: u32) -> Self {
        Self { members: Vec::new(), positions: vec![0; accounts as usize] }
    }

    /// Whether `user` is online.
    #[inline]
    pub(crate) fn contains(&self, user: u32) -> bool {
        self.positions.get(user as usize).is_some_and(|position| *position != 0)
    }

    /// Sets the state of `user`; true if it changed.
    pub(crate) fn set(&mut self, user: u32, online: bool) -> bool {
        let Some(position) = self.positions.get_mut(user as usize) else { return false };
        if (*position != 0) == online {
            return false;
        }
        if online {
            self.members.push(user);
            *position = self.members.len() as u32;
        } else {
            let at = *position as usize - 1;
            *position = 0;
            self.members.swap_remove(at);
            if let Some(moved) = self.members.get(at) {
                self.positions[*moved as usize] = at as u32 + 1;
            }
        }
        true
    }

    /// Removes all users for which `gone` holds.
    pub(crate) fn remove_if(&mut self, gone: impl Fn(u32) -> bool) {
        let leaving: Vec<u32> = self.members.iter().copied().filter(|user| gone(*user)).collect();
        for user in leaving {
            self.set(user, false);
        }
    }

    /// Picks an online user other than `me`.
    pub(crate) fn pick(&self, me: u32, rng: &mut Rng) -> Option<u32> {
        let others = self.members.len() - usize::from(self.contains(me));
        if others == 0 {
            return None;
        }
        // The last member stands in for the position of `me`, so that all are equally likely.
        let picked = self.members[rng.below(others as u32) as usize];
        if picked == me { self.members.last().copied() } else { Some(picked) }
    }

    /// Picks a user that is not online.
    pub(crate) fn pick_offline(&self, rng: &mut Rng) -> Option<u32> {
        let accounts = self.positions.len() as u32;
        if self.members.len() >= self.positions.len() {
            return None;
        }
        for _ in 0..32 {
            let user = rng.below(accounts);
            if !self.contains(user) {
                return Some(user);
            }
        }
        // Nearly all are online: search from a random position.
        let from = rng.below(accounts);
        (0..accounts).map(|step| (from + step) % accounts).find(|user| !self.contains(*user))
    }
}

#[cfg(test)]
mod tests {
    use super::{OnlineUsers, Rng};

    #[test]
    fn picks_are_uniform_and_exclude_the_user_itself() {
        let mut online = OnlineUsers::new(10);
        let mut rng = Rng::new(3);
        assert_eq!(online.pick(0, &mut rng), None);
        for user in [1, 3, 5, 9] {
            assert!(online.set(user, true) && !online.set(user, true));
        }
        let mut seen = [0_u32; 10];
        for _ in 0..30_000 {
            seen[online.pick(3, &mut rng).unwrap() as usize] += 1;
        }
        assert_eq!(seen.iter().filter(|count| **count > 0).count(), 3);
        assert!(seen.iter().all(|count| *count == 0 || count.abs_diff(10_000) < 500), "{seen:?}");
        for _ in 0..100 {
            assert!(!online.contains(online.pick_offline(&mut rng).unwrap()));
        }
        online.remove_if(|user| user > 1);
        assert_eq!(online.pick(1, &mut rng), None);
        assert_eq!(online.pick(0, &mut rng), Some(1));
    }
}
