//! An account with at least one connected resource: its sessions and its view of the roster.
//!
//! The view belongs to the account and is shared by its sessions. A contact is a hash, an id and a byte of
//! subscription; names and groups stay in the store. Thus 50 contacts take 800 bytes. Contacts are sorted and
//! found by hash *and* id: two addresses with the same hash are two contacts.
//!
//! Locks: the account's lock may be held while a session's or an outbox's lock is taken, never the other way
//! round (`docs/locks.md`).

use std::sync::Arc;

use base::lock::{RankedMutex, rank};
use cluster::NodeId;
use jid::{Jid, JidRef};
use smallvec::SmallVec;
use store::{AddressId, PhotoHash, RosterItem, RosterSnapshot, RosterUpdateOutcome, Subscription};

use crate::blocklist::Blocklist;
use crate::domains::{CurrentHost, DomainTable, HostGuard};
use crate::router::routing_table::RoutingTable;
use crate::session::flags::{self, AccountFlags};
use crate::session::{Extension, Extensions, Session};

/// A contact in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Keyed hash of the bare address, as in the routing table and the cluster's address directory.
    pub hash: u64,
    /// Id of the bare address in the address dictionary.
    pub id: AddressId,
    /// Subscription bits.
    pub subscription: Subscription,
    /// Its domain had no accounts of this server when the roster was read: presence is routed to its address, which only
    /// the store has.
    pub is_foreign: bool,
}

/// An account with at least one connected resource.
pub struct Account {
    /// Id in the address dictionary.
    pub id: AddressId,
    /// Keyed hash of the bare address.
    pub hash: u64,
    /// The bare address.
    pub jid: Jid,
    host: Arc<CurrentHost>,
    /// Flags of the account that hooks query; see [`crate::session::flags`].
    pub flags: AccountFlags,
    state: RankedMutex<AccountState, { rank::ACCOUNT }>,
}

/// Mutable state of an account.
#[derive(Default)]
pub struct AccountState {
    /// Connected resources in the order of binding; usually one.
    pub sessions: SmallVec<[Arc<Session>; 1]>,
    /// Sorted by hash and id.
    contacts: Box<[Contact]>,
    /// Version of the roster that `contacts` reflects.
    pub roster_version: u64,
    /// Bytes by which the stored roster may at least grow before it reaches its limit; 0 if that is not known.
    roster_bytes_free: u32,
    /// The store may hold messages for this account.
    pub may_have_offline_messages: bool,
    /// Messages for this account are on their way into the store or out of it: a resource that becomes available gets
    /// newer ones after them.
    pub has_messages_in_transit: bool,
    /// Stored messages are being delivered: newer ones are stored after them.
    pub flushing: bool,
    /// State that few accounts have for long.
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    prefetched: Option<RosterSnapshot>,
    blocked: Option<Arc<Blocklist>>,
    photo: Option<Box<PhotoHash>>,
    #[allow(clippy::box_collection, reason = "8 bytes instead of 24, and few accounts are on several nodes")]
    peers: Option<Box<Vec<PeerSessions>>>,
    extensions: Extensions,
}

/// The account's sessions on another node, as that node has reported them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSessions {
    /// The node.
    pub node: NodeId,
    /// Whether it has reported them. Until then there is one without a resource, made of its claim.
    pub reported: bool,
    /// The sessions; never empty.
    pub sessions: Vec<PeerSession>,
}

/// A session on another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerSession {
    /// Its resource.
    pub resource: Box<str>,
    /// Its priority, if it is available.
    pub priority: Option<i8>,
    /// Whether it has no connection and may be resumed.
    pub is_detached: bool,
    /// Its [`crate::session::flags`].
    pub flags: u64,
    /// When it was bound, in milliseconds since 1970, by the clock of its node.
    pub bound_at: u64,
}

impl PeerSessions {
    /// Whether one of the sessions takes messages to the bare address.
    pub fn takes_messages(&self) -> bool {
        self.sessions.iter().any(|session| session.priority.is_some_and(|priority| priority >= 0))
    }
}

impl Account {
    /// An account without sessions.
    pub fn new(id: AddressId, jid: Jid, host: Arc<CurrentHost>, table: &RoutingTable) -> Account {
        let hash = table.hash(jid.as_ref());
        Account {
            id,
            hash,
            jid,
            host,
            flags: AccountFlags::default(),
            state: RankedMutex::new(AccountState::default()),
        }
    }

    /// The current host, which a reload may replace. Load it once for each stanza.
    pub fn host(&self) -> HostGuard {
        self.host.load()
    }

    /// Whether another account belongs to the same domain, and thus always has the same host.
    pub(crate) fn shares_host(&self, other: &Account) -> bool {
        Arc::ptr_eq(&self.host, &other.host)
    }

    /// Runs `f` on the locked state. `f` must be fast.
    pub fn with<T>(&self, f: impl FnOnce(&mut AccountState) -> T) -> T {
        f(&mut self.state.lock())
    }

    /// Replaces the blocklist and updates its flag.
    pub fn set_blocked(&self, state: &mut AccountState, entries: &[Jid]) {
        let blocked = Blocklist::new(entries).map(Arc::new);
        if blocked.is_some() {
            self.flags.set(flags::ACCOUNT_BLOCKS);
        } else {
            self.flags.clear(flags::ACCOUNT_BLOCKS);
        }
        state.rare(|rare| rare.blocked = blocked);
    }

    /// Replaces the photo hash and updates its flag.
    pub fn set_photo(&self, state: &mut AccountState, photo: Option<PhotoHash>) {
        if photo.is_some() {
            self.flags.set(flags::ACCOUNT_PHOTO);
        } else if self.flags.has(flags::ACCOUNT_PHOTO) {
            self.flags.clear(flags::ACCOUNT_PHOTO);
        } else {
            return;
        }
        state.rare(|rare| rare.photo = photo.map(Box::new));
    }

    /// The hash of the account's photo.
    pub fn photo(&self) -> Option<PhotoHash> {
        if !self.flags.has(flags::ACCOUNT_PHOTO) {
            return None;
        }
        self.state.lock().rare.as_ref()?.photo.as_deref().copied()
    }

    /// The blocklist, if it is not empty.
    pub fn blocked(&self) -> Option<Arc<Blocklist>> {
        if !self.flags.has(flags::ACCOUNT_BLOCKS) {
            return None;
        }
        self.state.lock().rare.as_ref()?.blocked.clone()
    }

    /// Whether the account has blocked this address.
    pub fn blocks(&self, jid: JidRef<'_>) -> bool {
        self.blocked().is_some_and(|blocked| blocked.matches(jid))
    }

    /// Subscription bits of another connected account; none if it is not in the roster.
    pub fn subscription(&self, contact: &Account) -> Subscription {
        self.state.lock().find(contact.hash, contact.id)
    }

    /// Sets [`flags::ACCOUNT_CARBONS`] if a session of the account has [`flags::CARBONS`], here or on another node; `ending`
    /// is not counted. Must be called under the lock, after each change of them.
    pub fn refresh_carbons(&self, state: &AccountState, ending: Option<&Arc<Session>>) {
        let here =
            |s: &Arc<Session>| s.flags.has(flags::CARBONS) && !ending.is_some_and(|e| Arc::ptr_eq(e, s));
        if state.sessions.iter().any(here) || state.has_peer_with(flags::CARBONS) {
            self.flags.set(flags::ACCOUNT_CARBONS);
        } else {
            self.flags.clear(flags::ACCOUNT_CARBONS);
        }
    }

    /// Full addresses of the available resources on other nodes, as far as this one knows.
    pub fn available_peers(&self) -> Vec<Jid> {
        self.with(|state| {
            let sessions = state.peers().iter().flat_map(|peer| &peer.sessions);
            let available = sessions.filter(|session| session.priority.is_some());
            available.filter_map(|session| self.jid.as_ref().with_resource(&session.resource).ok()).collect()
        })
    }

    /// Calls `f` for each session.
    pub fn for_each_session(&self, mut f: impl FnMut(&Arc<Session>)) {
        for session in &self.state.lock().sessions {
            f(session);
        }
    }

    /// The sessions, for work that must not happen under the lock.
    pub fn sessions(&self) -> SmallVec<[Arc<Session>; 1]> {
        self.state.lock().sessions.clone()
    }

    /// The session with this resource.
    pub fn session(&self, resource: &str) -> Option<Arc<Session>> {
        self.state.lock().sessions.iter().find(|s| s.resource() == resource).cloned()
    }
}

impl AccountState {
    fn rare<T>(&mut self, f: impl FnOnce(&mut Rare) -> T) -> T {
        let mut rare = self.rare.take().unwrap_or_default();
        let done = f(&mut rare);
        self.rare = Some(rare).filter(|r| {
            r.prefetched.is_some()
                || r.blocked.is_some()
                || r.photo.is_some()
                || r.peers.is_some()
                || !r.extensions.is_empty()
        });
        done
    }

    /// State of type `T`, if the account has it.
    pub fn extension<T: Extension>(&mut self) -> Option<&mut T> {
        self.rare.as_mut()?.extensions.get()
    }

    /// Inserts state and replaces what was there. It lasts until the account's last session has ended.
    pub fn insert_extension<T: Extension>(&mut self, value: T) {
        self.rare(|rare| rare.extensions.insert(value));
    }

    /// Removes state. The memory of an account without state is freed.
    pub fn remove_extension<T: Extension>(&mut self) -> Option<Box<T>> {
        self.rare.as_ref()?;
        self.rare(|rare| rare.extensions.remove())
    }

    /// Sessions of the account on other nodes, as far as this one knows.
    pub fn peers(&self) -> &[PeerSessions] {
        self.rare.as_ref().and_then(|rare| rare.peers.as_ref()).map_or(&[], |peers| peers)
    }

    /// Whether a session on another node has these flags.
    pub fn has_peer_with(&self, flags: u64) -> bool {
        self.peers().iter().flat_map(|peer| &peer.sessions).any(|session| session.flags & flags == flags)
    }

    /// Changes what is known of sessions on other nodes.
    pub fn update_peers<T>(&mut self, f: impl FnOnce(&mut Vec<PeerSessions>) -> T) -> T {
        self.rare(|rare| {
            let mut peers = rare.peers.take().unwrap_or_default();
            let done = f(&mut peers);
            rare.peers = Some(peers).filter(|peers| !peers.is_empty());
            done
        })
    }

    /// The roster as the login read it, until it is taken.
    pub fn prefetched(&self) -> Option<&RosterSnapshot> {
        self.rare.as_ref()?.prefetched.as_ref()
    }

    /// Takes that roster; `None` if it is outdated or already taken.
    pub fn take_prefetched(&mut self) -> Option<RosterSnapshot> {
        self.prefetched()?;
        self.rare(|rare| rare.prefetched.take())
    }

    pub(crate) fn set_prefetched(&mut self, roster: RosterSnapshot) {
        self.rare(|rare| rare.prefetched = Some(roster));
    }

    /// Fills the view from the store's roster.
    pub fn replace_roster(
        &mut self,
        table: &RoutingTable,
        domains: &DomainTable,
        items: &[RosterItem],
        version: u64,
    ) {
        let of = |item: &RosterItem| Contact {
            hash: table.hash(item.jid.as_ref()),
            id: item.contact,
            subscription: item.subscription,
            is_foreign: domains.is_foreign(item.jid.as_ref()),
        };
        let mut contacts: Vec<Contact> = items.iter().map(of).collect();
        contacts.sort_unstable_by_key(Contact::key);
        self.contacts = contacts.into();
        self.roster_version = version;
        self.roster_bytes_free = 0;
    }

    /// Whether the stored roster certainly has room for this number of further bytes. If not, its size must be read.
    pub fn fits_in_roster(&self, bytes: u64) -> bool {
        bytes <= u64::from(self.roster_bytes_free)
    }

    /// Notes by how many bytes the stored roster may still grow. Changes that are applied later are subtracted.
    pub fn set_roster_bytes_free(&mut self, bytes: u64) {
        self.roster_bytes_free = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// A contact as the view has it, and as the store had it before this change, if another node has changed it in between: the
    /// view is read again later, and has this change then already.
    pub fn missed_change(
        &self,
        hash: u64,
        domains: &DomainTable,
        change: &RosterUpdateOutcome,
    ) -> Option<[Contact; 2]> {
        if change.version <= self.roster_version {
            return None;
        }
        let item = change.before.as_ref().or(change.after.as_ref())?;
        let stored = change.before.as_ref().map_or(Subscription::NONE, |before| before.subscription);
        let viewed = self.find(hash, item.contact);
        let differs = (viewed.0 ^ stored.0) & Subscription::BOTH.0 != 0;
        let is_foreign = domains.is_foreign(item.jid.as_ref());
        let contact = |subscription| Contact { hash, id: item.contact, subscription, is_foreign };
        differs.then(|| [viewed, stored].map(contact))
    }

    /// Applies one change of the roster to the view. False if a later change was applied before: the view of
    /// this contact may be wrong then. `hash` is that of the contact's address.
    #[must_use = "a view received out of order must be read again"]
    pub fn apply_change(&mut self, hash: u64, domains: &DomainTable, change: &RosterUpdateOutcome) -> bool {
        self.take_prefetched();
        let in_order = change.version >= self.roster_version;
        self.roster_version = self.roster_version.max(change.version);
        let grown = change.added_bytes().try_into().unwrap_or(u32::MAX);
        self.roster_bytes_free = self.roster_bytes_free.saturating_sub(grown);
        // Neither before nor after: the contact was never in the roster.
        let Some(id) = change.after.as_ref().or(change.before.as_ref()).map(|item| item.contact) else {
            return in_order;
        };
        let after = change.after.as_ref().map(|item| {
            let is_foreign = domains.is_foreign(item.jid.as_ref());
            Contact { hash, id, subscription: item.subscription, is_foreign }
        });
        let position = self.contacts.binary_search_by_key(&(hash, id), Contact::key);
        match (position, after) {
            (Ok(at), Some(contact)) => self.contacts[at] = contact,
            (Ok(at), None) => {
                let mut list = std::mem::take(&mut self.contacts).into_vec();
                list.remove(at);
                self.contacts = list.into();
            }
            (Err(at), Some(contact)) => {
                let mut list = std::mem::take(&mut self.contacts).into_vec();
                list.insert(at, contact);
                self.contacts = list.into();
            }
            (Err(_), None) => {}
        }
        in_order
    }

    /// All contacts with a subscription state.
    pub fn contacts(&self) -> &[Contact] {
        &self.contacts
    }

    /// Subscription bits of the contact with this hash and id.
    pub fn find(&self, hash: u64, id: AddressId) -> Subscription {
        match self.contacts.binary_search_by_key(&(hash, id), Contact::key) {
            Ok(at) => self.contacts[at].subscription,
            Err(_) => Subscription::NONE,
        }
    }

    /// Whether a contact may have this address. Only for uses in which a false positive is harmless: other
    /// addresses can have the same hash.
    pub fn may_contain(&self, hash: u64) -> bool {
        self.with_hash(hash).next().is_some()
    }

    /// Like [`AccountState::may_contain`], for a contact to whose presence the account is subscribed. For a
    /// connected address, [`Account::subscription`] decides exactly.
    pub fn may_be_subscribed_to(&self, hash: u64) -> bool {
        self.with_hash(hash).any(|contact| contact.subscription.contains(Subscription::TO))
    }

    fn with_hash(&self, hash: u64) -> impl Iterator<Item = &Contact> {
        let at = self.contacts.partition_point(|contact| contact.hash < hash);
        self.contacts.iter().skip(at).take_while(move |contact| contact.hash == hash)
    }
}

impl Contact {
    /// Contacts that have a subscription bit in the second of two views of a roster and not in the first one.
    pub fn gained<'a>(
        before: &'a [Contact],
        after: &'a [Contact],
        bit: Subscription,
    ) -> impl Iterator<Item = &'a Contact> {
        let had = move |contact: &Contact| {
            let at = before.binary_search_by_key(&contact.key(), Contact::key);
            at.is_ok_and(|at| before[at].subscription.contains(bit))
        };
        after.iter().filter(move |contact| contact.subscription.contains(bit) && !had(contact))
    }

    fn key(&self) -> (u64, AddressId) {
        (self.hash, self.id)
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({})", self.jid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(number: u32, jid: &str, subscription: Subscription) -> RosterItem {
        let mut item = RosterItem::new(Jid::parse(jid).unwrap());
        item.contact = AddressId::new(number).unwrap();
        item.subscription = subscription;
        item
    }

    fn table() -> RoutingTable {
        RoutingTable::new(cluster::AddressHasher::new([7; 16]))
    }

    fn domains() -> Arc<DomainTable> {
        Arc::clone(&crate::domains::Domains::new(crate::Hosts::default()).load())
    }

    fn change(before: Option<RosterItem>, after: Option<RosterItem>, version: u64) -> RosterUpdateOutcome {
        RosterUpdateOutcome { before, after, version }
    }

    #[test]
    fn a_contact_is_sixteen_bytes() {
        assert_eq!(size_of::<Contact>(), 16);
    }

    #[test]
    fn an_account_without_extensions_has_no_memory_for_them() {
        struct Visits(u32);
        impl Extension for Visits {}
        let mut state = AccountState::default();
        assert!(state.extension::<Visits>().is_none() && state.remove_extension::<Visits>().is_none());
        assert!(state.rare.is_none(), "a look-up allocates nothing");
        state.insert_extension(Visits(1));
        state.extension::<Visits>().unwrap().0 += 1;
        assert_eq!(state.remove_extension::<Visits>().map(|visits| visits.0), Some(2));
        assert!(state.rare.is_none(), "the last one frees the memory");
    }

    #[test]
    fn the_roster_view_follows_changes() {
        let (table, domains) = (table(), domains());
        let hash = |jid: &str| table.hash(Jid::parse(jid).unwrap().as_ref());
        let find = |state: &AccountState, number: u32, jid: &str| {
            state.find(hash(jid), AddressId::new(number).unwrap())
        };
        let [a, b, c] = [(1, "a@x"), (2, "b@x"), (3, "c@x")];
        let mut state = AccountState::default();
        let of = |(number, jid): (u32, &str), subscription| item(number, jid, subscription);
        state.replace_roster(&table, &domains, &[of(a, Subscription::BOTH), of(b, Subscription::TO)], 3);
        assert_eq!(find(&state, 1, "a@x"), Subscription::BOTH);
        assert_eq!(find(&state, 3, "c@x"), Subscription::NONE);
        assert!(state.apply_change(hash("c@x"), &domains, &change(None, Some(of(c, Subscription::FROM)), 4)));
        let before = Some(of(b, Subscription::TO));
        assert!(state.apply_change(
            hash("b@x"),
            &domains,
            &change(before, Some(of(b, Subscription::NONE)), 5)
        ));
        assert!(state.apply_change(hash("a@x"), &domains, &change(Some(of(a, Subscription::BOTH)), None, 6)));
        assert_eq!(find(&state, 1, "a@x"), Subscription::NONE);
        assert_eq!(find(&state, 2, "b@x"), Subscription::NONE);
        assert_eq!(find(&state, 3, "c@x"), Subscription::FROM);
        assert_eq!((state.contacts().len(), state.roster_version), (2, 6));
        assert!(
            !state.apply_change(hash("b@x"), &domains, &change(Some(of(b, Subscription::NONE)), None, 4)),
            "version 5 was first"
        );
    }

    #[test]
    fn contacts_that_gained_a_subscription_are_those_of_the_second_view_only() {
        let view = |contacts: &[(u64, Subscription)]| -> Vec<Contact> {
            let id = AddressId::new(1).unwrap();
            let contact = |(hash, subscription): &(u64, Subscription)| Contact {
                hash: *hash,
                id,
                subscription: *subscription,
                is_foreign: false,
            };
            contacts.iter().map(contact).collect()
        };
        let (to, from, both) = (Subscription::TO, Subscription::FROM, Subscription::BOTH);
        let (before, after) =
            (view(&[(1, to), (2, from), (3, both)]), view(&[(1, to), (2, both), (3, from), (4, to)]));
        let gained = |before, after| -> Vec<u64> {
            Contact::gained(before, after, to).map(|contact| contact.hash).collect()
        };
        assert_eq!((gained(&before, &after), gained(&after, &before)), (vec![2, 4], vec![3]));
    }

    #[test]
    fn contacts_with_the_same_hash_are_distinguished() {
        let (same, domains) = (0xC0_11_1D_ED, domains());
        let number = |n| AddressId::new(n).unwrap();
        let mut state = AccountState::default();
        assert!(state.apply_change(
            same,
            &domains,
            &change(None, Some(item(1, "a@x", Subscription::FROM)), 1)
        ));
        assert_eq!(
            state.find(same, number(2)),
            Subscription::NONE,
            "another address with this hash is no contact"
        );
        assert!(state.apply_change(same, &domains, &change(None, Some(item(2, "b@x", Subscription::TO)), 2)));
        assert_eq!(state.find(same, number(1)), Subscription::FROM, "the later contact did not overwrite it");
        assert_eq!(state.find(same, number(2)), Subscription::TO);
        assert!(state.apply_change(
            same,
            &domains,
            &change(Some(item(1, "a@x", Subscription::FROM)), None, 3)
        ));
        assert_eq!(state.find(same, number(1)), Subscription::NONE);
        assert_eq!(state.find(same, number(2)), Subscription::TO, "the other one stayed");
        assert!(state.may_contain(same) && !state.may_contain(same + 1));
    }
}
