//! Members and banned users of a large room as far as they are in memory: a fingerprint of 64 bits for each, nicknames, and lengths of
//! reasons.
//!
//! # Pitfalls
//!
//! Fingerprints are keyed hashes, so two users of a room with 100 000 have the same one with a probability below 2^-29, and nobody can
//! look for such a user.

use std::collections::{BTreeMap, BTreeSet};

use crate::privileges::Affiliation;

/// The bit of a fingerprint that says that the user is a member.
const MEMBER: u64 = 1;

/// The users.
#[derive(Debug, Default)]
pub(super) struct StoredUsers {
    users: BTreeSet<u64>,
    members: usize,
    /// Reserved nicknames by user.
    nicks: BTreeMap<u64, Box<str>>,
    /// Bytes of reasons by user.
    reasons: BTreeMap<u64, u32>,
}

/// What a user had.
pub(super) struct RemovedUser {
    pub(super) affiliation: Affiliation,
    pub(super) nick: Option<Box<str>>,
    /// Bytes of nickname and reason.
    pub(super) bytes: usize,
}

impl StoredUsers {
    /// Number of users.
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }

    /// Memory of all of them, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.users.len() * 13 + self.nicks.len() * 64 + self.reasons.len() * 20
    }

    /// Number of those with this affiliation.
    pub(super) fn count(&self, affiliation: Affiliation) -> usize {
        match affiliation {
            Affiliation::Member => self.members,
            Affiliation::Outcast => self.users.len() - self.members,
            _ => 0,
        }
    }

    /// The affiliation of the user with this hash.
    pub(super) fn of(&self, hash: u64) -> Option<Affiliation> {
        if self.users.contains(&(hash | MEMBER)) {
            return Some(Affiliation::Member);
        }
        self.users.contains(&(hash & !MEMBER)).then_some(Affiliation::Outcast)
    }

    /// The nickname of a user.
    pub(super) fn nick(&self, hash: u64) -> Option<&str> {
        self.nicks.get(&hash).map(|nick| &**nick)
    }

    /// Bytes of nickname and reason of a user.
    pub(super) fn bytes(&self, hash: u64) -> Option<usize> {
        self.of(hash)?;
        let reason = self.reasons.get(&hash).map_or(0, |bytes| *bytes as usize);
        Some(self.nick(hash).map_or(0, str::len) + reason)
    }

    /// Adds a user who is not there.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        affiliation: Affiliation,
        nick: Option<Box<str>>,
        reason: usize,
    ) {
        let is_member = affiliation == Affiliation::Member;
        let fingerprint = if is_member { hash | MEMBER } else { hash & !MEMBER };
        self.members += usize::from(self.users.insert(fingerprint) && is_member);
        if let Some(nick) = nick {
            self.nicks.insert(hash, nick);
        }
        if reason > 0 {
            self.reasons.insert(hash, u32::try_from(reason).unwrap_or(u32::MAX));
        }
    }

    /// Removes a user.
    pub(super) fn remove(&mut self, hash: u64) -> Option<RemovedUser> {
        let bytes = self.bytes(hash)?;
        let affiliation = self.of(hash)?;
        self.users.remove(&if affiliation == Affiliation::Member { hash | MEMBER } else { hash & !MEMBER });
        self.members -= usize::from(affiliation == Affiliation::Member);
        self.reasons.remove(&hash);
        Some(RemovedUser { affiliation, nick: self.nicks.remove(&hash), bytes })
    }
}
