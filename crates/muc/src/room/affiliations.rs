//! Affiliations of users with a room: XEP-0045 1.35.5, section 5.2; reserved nicknames: sections 7.10 and 7.12.
//!
//! Of a large room that is stored, members and banned users are in memory by address only ([`StoredUsers`]), and their lists are
//! read from the store in pages.
//!
//! # Pitfalls
//!
//! In a large room `with` and `iter` omit members and banned users that are stored; those with unsaved changes are included.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use jid::{Jid, JidRef};
use store::RoomAffiliation;
use store::rooms::NO_AFFILIATION;

use super::stored_users::StoredUsers;
use crate::privileges::Affiliation;

/// Members and banned users, and bytes of all entries if there are any of these, up to which everything is in memory.
const MAX_ENTRIES: usize = 1_000;
const MAX_BYTES: usize = 64 << 10;
/// Memory of an entry and of a reserved nickname besides their texts, about.
const ENTRY_BYTES: usize = 150;
const NICK_BYTES: usize = 130;

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
    /// In a large room: owners, administrators, and users whose affiliation is not stored yet.
    entries: BTreeSet<AffiliatedUser>,
    /// The other users of a large room.
    stored: Option<Box<StoredUsers>>,
    /// Users by reserved nickname.
    nicks: BTreeMap<Box<str>, Box<str>>,
    /// Bytes of their texts.
    nick_bytes: usize,
    owners: usize,
    bytes: usize,
    /// Users whose affiliation has changed since it was stored.
    unsaved: BTreeSet<Jid>,
    /// The same of the copy on another node, if it has affiliations.
    uncopied: Option<BTreeSet<Jid>>,
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

/// The form of the store; without an entry, that of a removal.
fn stored_form(user: &Jid, entry: Option<&AffiliationEntry>) -> RoomAffiliation {
    let text = |text: Option<&Box<str>>| text.cloned().unwrap_or_default();
    RoomAffiliation {
        user: user.clone(),
        affiliation: entry.map_or(NO_AFFILIATION, |entry| entry.affiliation.number()),
        nick: text(entry.and_then(|entry| entry.nick.as_ref())),
        reason: text(entry.and_then(|entry| entry.reason.as_ref())),
    }
}

impl Affiliations {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.stored.as_ref().map_or(0, |stored| stored.len())
    }

    /// Number of entries with this affiliation.
    pub(crate) fn count(&self, affiliation: Affiliation) -> usize {
        self.with(affiliation).count() + self.stored.as_ref().map_or(0, |stored| stored.count(affiliation))
    }

    /// Bytes of all addresses, nicknames and reasons.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory of all entries, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let stored = self.stored.as_ref().map_or(0, |stored| stored.memory_bytes());
        let texts = if self.is_large() { 0 } else { self.bytes };
        let nicks = self.nick_bytes + self.nicks.len() * NICK_BYTES;
        texts + self.entries.len() * ENTRY_BYTES + nicks + stored
    }

    /// Whether members and banned users are only in the store.
    pub(crate) fn is_large(&self) -> bool {
        self.stored.is_some()
    }

    fn of_stored(&self, address: &str) -> Option<Affiliation> {
        self.stored.as_ref()?.of(address)
    }

    /// The affiliation of this user or domain itself.
    fn own(&self, address: &str) -> Option<Affiliation> {
        self.entry(address).map(|entry| entry.affiliation).or_else(|| self.of_stored(address))
    }

    /// Whether this user or domain itself has this affiliation.
    pub(crate) fn is(&self, user: &Jid, affiliation: Affiliation) -> bool {
        self.own(user.as_str()) == Some(affiliation)
    }

    /// Whether there is an entry of this user or domain.
    pub(crate) fn contains(&self, user: &Jid) -> bool {
        self.own(user.as_str()).is_some()
    }

    /// Bytes by which this entry would be longer than that of the user. Without a nickname, the reserved one stays.
    pub(crate) fn growth(&self, user: &Jid, nick: Option<&str>, reason: Option<&str>) -> usize {
        let of_stored = || Some(self.stored.as_ref()?.bytes(user.as_str())? + user.as_str().len());
        let before = self.entry(user.as_str()).map(|entry| entry_bytes(user, entry)).or_else(of_stored);
        let nick = nick.or_else(|| self.nick_of(user.as_ref()));
        let text = |text: Option<&str>| text.map_or(0, str::len);
        (user.as_str().len() + text(nick) + text(reason)).saturating_sub(before.unwrap_or_default())
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
        if let Some(affiliation) = self.own(user.bare().as_str()) {
            return affiliation;
        }
        match self.own(user.domain()) {
            Some(Affiliation::Outcast) => Affiliation::Outcast,
            _ => Affiliation::None,
        }
    }

    /// The reserved nickname of a user.
    pub(crate) fn nick_of(&self, user: JidRef<'_>) -> Option<&str> {
        let user = user.bare();
        match self.entry(user.as_str()) {
            Some(entry) => entry.nick.as_deref(),
            None => self.stored.as_ref()?.nick(user.as_str()),
        }
    }

    /// Whether another user than this one has reserved a nickname.
    pub(crate) fn is_reserved_by_another(&self, nick: &str, user: &Jid) -> bool {
        self.nicks.get(nick).is_some_and(|owner| **owner != *user.as_str())
    }

    /// All entries in memory in the order of addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Jid, &AffiliationEntry)> {
        self.entries.iter().map(|one| (one.user(), one.entry()))
    }

    /// The entries in memory with this affiliation.
    pub(crate) fn with(&self, affiliation: Affiliation) -> impl Iterator<Item = (&Jid, &AffiliationEntry)> {
        self.iter().filter(move |(_, entry)| entry.affiliation == affiliation)
    }

    /// A page of all entries in memory after an address.
    pub(crate) fn page(&self, after: Option<&Jid>, limit: usize) -> Vec<RoomAffiliation> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let later = self.entries.range::<str, _>((from, Bound::Unbounded)).take(limit);
        later.map(|one| stored_form(one.user(), Some(one.entry()))).collect()
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
        self.unsaved.insert(user.clone());
        if let Some(uncopied) = &mut self.uncopied {
            uncopied.insert(user.clone());
        }
        let (was, old_nick) = self.take(user);
        if affiliation == Affiliation::None {
            return was;
        }
        let nick = nick.map(Box::from).or(old_nick);
        let nick = nick.filter(|nick| !nick.is_empty() && affiliation >= Affiliation::Member);
        self.insert(user.clone(), AffiliationEntry { affiliation, nick, reason: reason.map(Box::from) });
        was
    }

    /// Removes an entry; its affiliation and nickname.
    fn take(&mut self, user: &Jid) -> (Affiliation, Option<Box<str>>) {
        let (was, nick) = match self.entries.take(user.as_str()).map(|one| one.0.1) {
            Some(entry) => {
                self.bytes -= entry_bytes(user, &entry);
                (entry.affiliation, entry.nick)
            }
            None => {
                let stored = self.stored.as_mut();
                let Some(removed) = stored.and_then(|stored| stored.remove(user.as_str())) else {
                    return (Affiliation::None, None);
                };
                self.bytes -= user.as_str().len() + removed.bytes;
                (removed.affiliation, removed.nick)
            }
        };
        self.owners -= usize::from(user.local().is_some() && was == Affiliation::Owner);
        // Of two users of an imported room with the same nickname, one has it.
        if let Some(nick) = nick.as_ref().filter(|nick| !self.is_reserved_by_another(nick, user)) {
            self.remove_nick(nick);
        }
        if self.stored.as_ref().is_some_and(|stored| stored.len() == 0) {
            self.stored = None;
        }
        (was, nick)
    }

    fn remove_nick(&mut self, nick: &str) {
        if let Some(owner) = self.nicks.remove(nick) {
            self.nick_bytes -= nick.len() + owner.len();
        }
    }

    /// Adds the entry of a user who has none.
    fn insert(&mut self, user: Jid, entry: AffiliationEntry) {
        if let Some(nick) = &entry.nick {
            self.remove_nick(nick);
            self.nick_bytes += nick.len() + user.as_str().len();
            self.nicks.insert(nick.clone(), user.as_str().into());
        }
        self.owners += usize::from(user.local().is_some() && entry.affiliation == Affiliation::Owner);
        self.bytes += entry_bytes(&user, &entry);
        self.entries.insert(AffiliatedUser(Box::new((user, entry))));
    }

    /// Adds affiliations that were read from the store, or from a copy; `None` if one is unknown.
    pub(crate) fn add_stored(&mut self, all: Vec<RoomAffiliation>) -> Option<()> {
        for RoomAffiliation { user, affiliation, nick, reason } in all {
            let affiliation = Affiliation::from_number(affiliation).filter(|one| *one != Affiliation::None);
            let affiliation = affiliation?;
            let text = |text: Box<str>| Some(text).filter(|text| !text.is_empty());
            self.take(&user);
            self.insert(user, AffiliationEntry { affiliation, nick: text(nick), reason: text(reason) });
        }
        Some(())
    }

    /// Everything is stored: if the lists are long, members and banned users are left to the store.
    pub(crate) fn mark_stored(&mut self) {
        self.unsaved = BTreeSet::new();
        let is_other = |one: &AffiliatedUser| !one.entry().affiliation.is_privileged();
        if self.stored.is_none() {
            let others = self.entries.iter().filter(|one| is_other(one)).count();
            if others <= MAX_ENTRIES && (others == 0 || self.bytes <= MAX_BYTES) {
                return;
            }
        }
        let mut stored = self.stored.take().unwrap_or_default();
        for one in self.entries.extract_if(.., |one| is_other(one)) {
            let (user, entry) = *one.0;
            let reason = entry.reason.as_deref().map_or(0, str::len);
            stored.insert(user.as_str(), entry.affiliation, entry.nick, reason);
        }
        self.stored = Some(stored);
    }

    /// Nothing is stored any more: what is written later is everything.
    pub(crate) fn forget_unsaved(&mut self) {
        self.unsaved = BTreeSet::new();
    }

    /// Whether there are changes that are not stored.
    pub(crate) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Changes since this was called last; with `all`, every entry in memory.
    pub(crate) fn take_unsaved(&mut self, all: bool) -> Vec<RoomAffiliation> {
        let unsaved = std::mem::take(&mut self.unsaved);
        match all {
            true => self.page(None, usize::MAX),
            false => unsaved.iter().map(|user| stored_form(user, self.entry(user.as_str()))).collect(),
        }
    }

    /// Changes of these users were not stored.
    pub(crate) fn mark_unsaved(&mut self, users: impl IntoIterator<Item = Jid>) {
        self.unsaved.extend(users);
    }

    /// What the copy on another node does not have; every entry, if it has none. Changes are recorded from now on.
    pub(crate) fn take_uncopied(&mut self) -> Vec<RoomAffiliation> {
        match self.uncopied.replace(BTreeSet::new()) {
            None => self.page(None, usize::MAX),
            Some(uncopied) => {
                uncopied.iter().map(|user| stored_form(user, self.entry(user.as_str()))).collect()
            }
        }
    }

    /// The copy on another node, if there is one, has no affiliations.
    pub(crate) fn stop_copying(&mut self) {
        self.uncopied = None;
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
        let hecate = jid("hecate@shakespeare.lit");
        assert!(all.is_reserved_by_another("thirdwitch", &hecate));
        assert!(!all.is_reserved_by_another("thirdwitch", &hag));
        let (bytes, growth) = (all.bytes(), all.growth(&hag, None, Some("cauldron")));
        all.set(&hag, Affiliation::Member, None, Some("cauldron"));
        assert_eq!((all.bytes() - bytes, growth), ("cauldron".len(), "cauldron".len()));
        all.set(&hag, Affiliation::Outcast, None, Some("treason"));
        assert!(!all.is_reserved_by_another("thirdwitch", &hecate));
        assert_eq!(all.nick_of(hag.as_ref()), None);
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

    #[test]
    fn users_of_a_large_room_are_left_to_the_store_and_nothing_else_changes() {
        let user = |n: usize| jid(&format!("u{n}@shakespeare.lit"));
        let (mut large, mut small) = (Affiliations::default(), Affiliations::default());
        let owner = jid("crone1@shakespeare.lit");
        for all in [&mut large, &mut small] {
            all.set(&owner, Affiliation::Owner, Some("crone"), None);
            all.set(&jid("spam.example"), Affiliation::Outcast, None, Some("spam"));
            for n in 0..1_500 {
                let nick = format!("nick{n}");
                let (affiliation, nick, reason) = match n % 3 {
                    0 => (Affiliation::Member, Some(nick.as_str()), None),
                    1 => (Affiliation::Outcast, None, Some("treason")),
                    _ => (Affiliation::Member, None, None),
                };
                all.set(&user(n), affiliation, nick, reason);
            }
        }
        assert_eq!(large.take_unsaved(false).len(), 1_502);
        large.mark_stored();
        assert!(large.is_large() && large.iter().count() == 1, "only the owner is in memory");
        let same = |large: &Affiliations, small: &Affiliations| {
            for n in 0..1_501 {
                let user = user(n);
                assert_eq!(large.of(user.as_ref()), small.of(user.as_ref()), "{n}");
                assert_eq!(large.nick_of(user.as_ref()), small.nick_of(user.as_ref()), "{n}");
                assert_eq!(large.contains(&user), small.contains(&user));
                assert_eq!(large.growth(&user, Some("x"), None), small.growth(&user, Some("x"), None));
                let nick = format!("nick{n}");
                assert_eq!(
                    large.is_reserved_by_another(&nick, &owner),
                    small.is_reserved_by_another(&nick, &owner)
                );
                assert!(!large.is_reserved_by_another(&nick, &user));
            }
            for affiliation in Affiliation::ALL {
                assert_eq!(large.count(affiliation), small.count(affiliation));
            }
            assert_eq!(large.of(jid("any@spam.example").as_ref()), Affiliation::Outcast);
            assert_eq!(
                (large.len(), large.bytes(), large.owners()),
                (small.len(), small.bytes(), small.owners())
            );
        };
        same(&large, &small);
        let changes = [
            (0, Affiliation::Admin, None),
            (1, Affiliation::None, None),
            (2, Affiliation::Member, Some("new")),
            (3, Affiliation::Member, Some("")),
            (4, Affiliation::Owner, None),
            (6, Affiliation::Outcast, None),
            (1_500, Affiliation::Member, None),
        ];
        for (n, affiliation, nick) in changes {
            assert_eq!(
                large.set(&user(n), affiliation, nick, None),
                small.set(&user(n), affiliation, nick, None)
            );
        }
        same(&large, &small);
        let unsaved = large.take_unsaved(false);
        assert_eq!(unsaved.len(), changes.len());
        let first = unsaved.iter().find(|one| one.user == user(0)).unwrap();
        assert_eq!((first.affiliation, &*first.nick), (Affiliation::Admin.number(), "nick0"));
        large.mark_stored();
        same(&large, &small);
        assert_eq!(large.iter().count(), 3, "the owners and the administrator");
        // What was not stored is written again.
        large.set(&user(9), Affiliation::None, None, None);
        let lost = large.take_unsaved(false);
        large.mark_unsaved(lost.iter().map(|one| one.user.clone()));
        assert_eq!(large.take_unsaved(false), lost);
    }

    #[test]
    fn the_memory_of_a_large_room_counts_each_copy_of_a_text() {
        let memory = |nick: usize, reason: usize, address: usize| {
            let mut all = Affiliations::default();
            for n in 0..1_001 {
                let user = jid(&format!("u{n:04}{}@x.example", "x".repeat(address)));
                let (nick, reason) = (format!("{n:04}{}", "n".repeat(nick)), "r".repeat(reason));
                let nick = Some(&*nick).filter(|nick| nick.len() > 4);
                all.set(&user, Affiliation::Member, nick, Some(&*reason).filter(|reason| !reason.is_empty()));
            }
            all.mark_stored();
            let memory = all.memory_bytes();
            for n in 0..1_001 {
                all.set(
                    &jid(&format!("u{n:04}{}@x.example", "x".repeat(address))),
                    Affiliation::None,
                    None,
                    None,
                );
            }
            assert_eq!((all.memory_bytes(), all.bytes(), all.is_large()), (0, 0, false));
            memory
        };
        // An address is in one tree, in two more with a nickname, and in another one with a reason.
        assert_eq!(memory(0, 0, 100) - memory(0, 0, 0), 1_001 * 100);
        assert_eq!(memory(1, 0, 100) - memory(1, 0, 0), 3 * 1_001 * 100);
        assert_eq!(memory(1, 1, 100) - memory(1, 1, 0), 4 * 1_001 * 100);
        assert_eq!(memory(101, 0, 0) - memory(1, 0, 0), 2 * 1_001 * 100);
        // Of a reason its length is in memory.
        assert_eq!(memory(1, 101, 0), memory(1, 1, 0));
    }

    #[test]
    fn lists_that_become_empty_are_in_memory_again() {
        let mut all = Affiliations::default();
        let user = |n: usize| jid(&format!("u{n}@x.example"));
        for n in 0..1_001 {
            all.set(&user(n), Affiliation::Member, None, None);
        }
        all.mark_stored();
        assert!(all.is_large());
        for n in 0..1_000 {
            all.set(&user(n), Affiliation::None, None, None);
        }
        assert!(all.is_large() && all.is(&user(1_000), Affiliation::Member));
        all.set(&user(1_000), Affiliation::Admin, None, None);
        assert!(!all.is_large());
        assert_eq!((all.len(), all.count(Affiliation::Admin)), (1, 1));
    }

    #[test]
    fn of_two_users_with_a_nickname_the_other_keeps_it() {
        let mut all = Affiliations::default();
        let [ann, bob, eve] = ["ann", "bob", "eve"].map(|user| jid(&format!("{user}@x.example")));
        let stored = |user: &Jid| RoomAffiliation {
            user: user.clone(),
            affiliation: Affiliation::Member.number(),
            nick: "nick".into(),
            reason: "".into(),
        };
        all.add_stored(vec![stored(&ann), stored(&bob)]).unwrap();
        all.set(&ann, Affiliation::None, None, None);
        assert!(all.is_reserved_by_another("nick", &eve) && !all.is_reserved_by_another("nick", &bob));
        all.set(&bob, Affiliation::None, None, None);
        assert!(!all.is_reserved_by_another("nick", &eve));
        let unknown = RoomAffiliation { affiliation: 99, ..stored(&eve) };
        assert_eq!(all.add_stored(vec![unknown]), None);
    }
}
