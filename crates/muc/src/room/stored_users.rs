//! Members and banned users of a large room as far as they are in memory: addresses, nicknames, and lengths of reasons.
//!
//! Addresses and not hashes of them, because what decides who may enter must not confuse two users.

use std::collections::{BTreeMap, BTreeSet};

use crate::privileges::Affiliation;

/// Memory of an address, of a nickname and of a length in a tree besides their texts, about.
const ADDRESS_BYTES: usize = 40;
const NICK_BYTES: usize = 110;
const REASON_BYTES: usize = 75;

/// The users.
#[derive(Debug, Default)]
pub(super) struct StoredUsers {
    members: BTreeSet<Box<str>>,
    /// Banned users and domains.
    outcasts: BTreeSet<Box<str>>,
    /// Bytes of all texts.
    text_bytes: usize,
    /// Reserved nicknames by user.
    nicks: BTreeMap<Box<str>, Box<str>>,
    /// Bytes of reasons by user.
    reasons: BTreeMap<Box<str>, u32>,
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
        self.members.len() + self.outcasts.len()
    }

    /// Memory of all of them, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let others = self.nicks.len() * NICK_BYTES + self.reasons.len() * REASON_BYTES;
        self.text_bytes + self.len() * ADDRESS_BYTES + others
    }

    /// Number of those with this affiliation.
    pub(super) fn count(&self, affiliation: Affiliation) -> usize {
        match affiliation {
            Affiliation::Member => self.members.len(),
            Affiliation::Outcast => self.outcasts.len(),
            _ => 0,
        }
    }

    /// The affiliation of this user or domain.
    pub(super) fn of(&self, address: &str) -> Option<Affiliation> {
        if self.members.contains(address) {
            return Some(Affiliation::Member);
        }
        self.outcasts.contains(address).then_some(Affiliation::Outcast)
    }

    /// The nickname of a user.
    pub(super) fn nick(&self, address: &str) -> Option<&str> {
        self.nicks.get(address).map(|nick| &**nick)
    }

    /// Bytes of nickname and reason of a user.
    pub(super) fn bytes(&self, address: &str) -> Option<usize> {
        self.of(address)?;
        let reason = self.reasons.get(address).map_or(0, |bytes| *bytes as usize);
        Some(self.nick(address).map_or(0, str::len) + reason)
    }

    /// Adds a user who is not there.
    pub(super) fn insert(
        &mut self,
        address: &str,
        affiliation: Affiliation,
        nick: Option<Box<str>>,
        reason: usize,
    ) {
        let users = if affiliation == Affiliation::Member { &mut self.members } else { &mut self.outcasts };
        users.insert(address.into());
        if let Some(nick) = nick {
            self.nicks.insert(address.into(), nick);
        }
        if reason > 0 {
            self.reasons.insert(address.into(), u32::try_from(reason).unwrap_or(u32::MAX));
        }
        self.text_bytes += self.texts_of(address);
    }

    /// Bytes of the texts of a user: each tree has the address.
    fn texts_of(&self, address: &str) -> usize {
        let nick = self.nicks.get(address).map_or(0, |nick| address.len() + nick.len());
        let reason = if self.reasons.contains_key(address) { address.len() } else { 0 };
        address.len() + nick + reason
    }

    /// Removes a user.
    pub(super) fn remove(&mut self, address: &str) -> Option<RemovedUser> {
        let bytes = self.bytes(address)?;
        let affiliation = self.of(address)?;
        self.text_bytes -= self.texts_of(address);
        self.members.remove(address);
        self.outcasts.remove(address);
        self.reasons.remove(address);
        Some(RemovedUser { affiliation, nick: self.nicks.remove(address), bytes })
    }
}
