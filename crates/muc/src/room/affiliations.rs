//! Affiliations of users with a room: XEP-0045 1.35.5, section 5.2; reserved nicknames: sections 7.10 and 7.12.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use jid::{Jid, JidRef};

use crate::privileges::Affiliation;

/// The affiliation of one user or, for a ban, of a whole domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AffiliationEntry {
    /// Never `None`.
    pub(crate) affiliation: Affiliation,
    /// Reserved nickname.
    pub(crate) nick: Option<Box<str>>,
    pub(crate) reason: Option<Box<str>>,
}

/// All affiliations.
#[derive(Debug, Default)]
pub(crate) struct Affiliations {
    entries: BTreeSet<AffiliatedUser>,
    user_by_nick: BTreeMap<Box<str>, Jid>,
    owners: usize,
    bytes: usize,
}

/// An entry with its user, by whose address it is found. In a box, because a tree has room for eleven, and most rooms have one.
#[derive(Debug)]
struct AffiliatedUser(Box<(Jid, AffiliationEntry)>);

impl AffiliatedUser {
    fn user(&self) -> &Jid {
        &self.0.0
    }

    fn entry(&self) -> &AffiliationEntry {
        &self.0.1
    }
}

impl Borrow<str> for AffiliatedUser {
    fn borrow(&self) -> &str {
        self.user().as_str()
    }
}

impl Ord for AffiliatedUser {
    fn cmp(&self, other: &AffiliatedUser) -> Ordering {
        self.user().as_str().cmp(other.user().as_str())
    }
}

impl PartialOrd for AffiliatedUser {
    fn partial_cmp(&self, other: &AffiliatedUser) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for AffiliatedUser {
    fn eq(&self, other: &AffiliatedUser) -> bool {
        self.user() == other.user()
    }
}

impl Eq for AffiliatedUser {}

/// What an entry counts.
fn entry_bytes(user: &Jid, entry: &AffiliationEntry) -> usize {
    let text = |one: &Option<Box<str>>| one.as_deref().map_or(0, str::len);
    user.as_str().len() + text(&entry.nick) + text(&entry.reason)
}

impl Affiliations {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all addresses, nicknames and reasons.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is an entry of this user or domain.
    pub(crate) fn contains(&self, user: &Jid) -> bool {
        self.entries.contains(user.as_str())
    }

    /// Bytes by which this entry would be longer than that of the user. Without a nickname, the reserved one stays.
    pub(crate) fn growth(&self, user: &Jid, nick: Option<&str>, reason: Option<&str>) -> usize {
        let before = self.entries.get(user.as_str()).map_or(0, |one| entry_bytes(user, one.entry()));
        let nick = nick.or_else(|| self.nick_of(user.as_ref()));
        let text = |text: Option<&str>| text.map_or(0, str::len);
        (user.as_str().len() + text(nick) + text(reason)).saturating_sub(before)
    }

    /// Number of owners who are users. Older rooms may have domains, which own nothing.
    pub(crate) fn owners(&self) -> usize {
        self.owners
    }

    fn entry(&self, address: &str) -> Option<&AffiliationEntry> {
        self.entries.get(address).map(AffiliatedUser::entry)
    }

    /// The affiliation of a user: the user's own, or the ban of the domain.
    pub(crate) fn of(&self, user: JidRef<'_>) -> Affiliation {
        if let Some(entry) = self.entry(user.bare().as_str()) {
            return entry.affiliation;
        }
        match self.entry(user.domain()) {
            Some(entry) if entry.affiliation == Affiliation::Outcast => Affiliation::Outcast,
            _ => Affiliation::None,
        }
    }

    /// The reserved nickname of a user.
    pub(crate) fn nick_of(&self, user: JidRef<'_>) -> Option<&str> {
        self.entry(user.bare().as_str())?.nick.as_deref()
    }

    /// The user that has reserved a nickname.
    pub(crate) fn user_of_nick(&self, nick: &str) -> Option<&Jid> {
        self.user_by_nick.get(nick)
    }

    /// All entries in the order of addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Jid, &AffiliationEntry)> {
        self.entries.iter().map(|one| (one.user(), one.entry()))
    }

    /// The entries with this affiliation.
    pub(crate) fn with(&self, affiliation: Affiliation) -> impl Iterator<Item = (&Jid, &AffiliationEntry)> {
        self.iter().filter(move |(_, entry)| entry.affiliation == affiliation)
    }

    /// Sets an affiliation; `None` removes the entry. A reserved nickname stays unless another or an empty one is given
    /// or the user loses membership. Returns the previous affiliation.
    pub(crate) fn set(
        &mut self,
        user: &Jid,
        affiliation: Affiliation,
        nick: Option<&str>,
        reason: Option<&str>,
    ) -> Affiliation {
        let before = self.entries.take(user.as_str()).map(|one| one.0.1);
        self.bytes -= before.as_ref().map_or(0, |entry| entry_bytes(user, entry));
        let was = before.as_ref().map_or(Affiliation::None, |entry| entry.affiliation);
        let is_user = user.local().is_some();
        self.owners -= usize::from(is_user && was == Affiliation::Owner);
        let old_nick = before.and_then(|entry| entry.nick);
        if let Some(old) = &old_nick {
            self.user_by_nick.remove(old);
        }
        if affiliation == Affiliation::None {
            return was;
        }
        let nick = nick.map(Box::from).or(old_nick);
        let nick = nick.filter(|nick| !nick.is_empty() && affiliation >= Affiliation::Member);
        if let Some(nick) = &nick {
            self.user_by_nick.insert(nick.clone(), user.clone());
        }
        self.owners += usize::from(is_user && affiliation == Affiliation::Owner);
        let entry = AffiliationEntry { affiliation, nick, reason: reason.map(Box::from) };
        self.bytes += entry_bytes(user, &entry);
        self.entries.insert(AffiliatedUser(Box::new((user.clone(), entry))));
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    #[test]
    fn a_reserved_nickname_stays_until_membership_ends() {
        let mut all = Affiliations::default();
        let hag = jid("hag66@shakespeare.lit");
        assert_eq!(all.set(&hag, Affiliation::Member, Some("thirdwitch"), None), Affiliation::None);
        assert_eq!(all.set(&hag, Affiliation::Admin, None, None), Affiliation::Member);
        assert_eq!(all.nick_of(jid("hag66@shakespeare.lit/pda").as_ref()), Some("thirdwitch"));
        assert_eq!(all.user_of_nick("thirdwitch"), Some(&hag));
        let (bytes, growth) = (all.bytes(), all.growth(&hag, None, Some("cauldron")));
        all.set(&hag, Affiliation::Member, None, Some("cauldron"));
        assert_eq!((all.bytes() - bytes, growth), ("cauldron".len(), "cauldron".len()));
        all.set(&hag, Affiliation::Outcast, None, Some("treason"));
        assert_eq!((all.user_of_nick("thirdwitch"), all.nick_of(hag.as_ref())), (None, None));
        assert_eq!(all.bytes(), "hag66@shakespeare.lit".len() + "treason".len());
        all.set(&hag, Affiliation::None, None, None);
        assert_eq!((all.len(), all.bytes()), (0, 0));
    }

    #[test]
    fn section_9_1_a_domain_can_be_banned_and_owners_are_counted() {
        let mut all = Affiliations::default();
        all.set(&jid("spam.example"), Affiliation::Outcast, None, None);
        assert_eq!(all.of(jid("any@spam.example/x").as_ref()), Affiliation::Outcast);
        all.set(&jid("good@spam.example"), Affiliation::Owner, None, None);
        assert_eq!(all.of(jid("good@spam.example").as_ref()), Affiliation::Owner);
        assert_eq!(all.owners(), 1);
        all.set(&jid("good@spam.example"), Affiliation::Member, None, None);
        assert_eq!((all.owners(), all.with(Affiliation::Member).count()), (0, 1));
    }
}
