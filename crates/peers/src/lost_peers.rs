//! Nodes that have left or are lost: their sessions end, so contacts and other resources are sent `unavailable` for them
//! (RFC 6121, section 4.5).
//!
//! The claims of the node name accounts, not resources, so contacts are sent `unavailable` from the bare address, and then
//! the presence of the resources that are left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use base::spawn::yield_now;
use cluster::{Claim, NodeId};
use jid::JidRef;
use store::{AddressId, Subscription};
use throng_core::account::{Account, Contact};
use throng_core::session::ToRewrite;
use throng_core::shared_stanza::SharedStanza;

use super::peer_presence::{own_contact, unavailable};
use crate::ClusteredNode;

/// Seconds for which the end of a subscription is remembered: longer than the detection of a lost node.
const REMEMBERED_SECONDS: u32 = 60;
/// Maximum number of remembered ends, of all accounts and of one.
const MAX_REMEMBERED: usize = 16_384;
const MAX_REMEMBERED_OF_ACCOUNT: usize = 256;
/// Maximum number of contacts that are withdrawn later.
const MAX_TO_WITHDRAW: usize = 65_536;
/// Seconds after which the addresses of contacts are read again that could not be read.
const RETRY_SECONDS: u32 = 5;
/// Accounts whose sessions receive presence before the task yields.
const YIELD_EVERY: usize = 64;

#[derive(Debug)]
struct EndedSubscription {
    account: Weak<Account>,
    contact: (u64, AddressId),
    /// Second of the node's clock.
    at: u32,
}

/// Subscriptions that ended a moment ago. The contact's node sends `unavailable` then; if it is lost before, this node does,
/// and the roster does not have the contact any more.
#[derive(Default)]
pub(super) struct EndedSubscriptions(LeafMutex<EndedByAccount>);

#[derive(Default)]
struct EndedByAccount {
    /// By the hash of the account; no list is empty.
    accounts: HashMap<u64, Vec<EndedSubscription>>,
    count: usize,
    /// When old ones of all accounts were removed.
    swept_at: u32,
}

impl EndedSubscription {
    fn is_old(&self, now: u32) -> bool {
        now.saturating_sub(self.at) >= REMEMBERED_SECONDS
    }
}

impl EndedSubscriptions {
    /// One that does not fit displaces the oldest of the same account, if it has one: an account cannot displace those of
    /// others.
    fn note(&self, account: u64, subscription: EndedSubscription) {
        let now = subscription.at;
        let mut ended = self.0.lock();
        if ended.count >= MAX_REMEMBERED && ended.swept_at != now {
            ended.swept_at = now;
            ended.accounts.retain(|_, list| {
                list.retain(|one| !one.is_old(now));
                !list.is_empty()
            });
            ended.count = ended.accounts.values().map(Vec::len).sum();
        }
        let mut list = ended.accounts.remove(&account).unwrap_or_default();
        let others = ended.count - list.len();
        list.retain(|one| one.contact != subscription.contact && !one.is_old(now));
        if list.len() >= MAX_REMEMBERED_OF_ACCOUNT
            || others + list.len() >= MAX_REMEMBERED && !list.is_empty()
        {
            list.remove(0);
        }
        if others + list.len() < MAX_REMEMBERED {
            list.push(subscription);
        }
        ended.count = others + list.len();
        if !list.is_empty() {
            ended.accounts.insert(account, list);
        }
    }

    /// Ended subscriptions to one of these contacts, which must be sorted.
    fn of(&self, lost: &[(u64, AddressId)], now: u32) -> Vec<((u64, AddressId), Arc<Account>)> {
        let ended = self.0.lock();
        let recent = ended.accounts.values().flatten().filter(|ended| !ended.is_old(now));
        let lost = recent.filter(|ended| lost.binary_search(&ended.contact).is_ok());
        lost.filter_map(|ended| Some((ended.contact, ended.account.upgrade()?))).collect()
    }
}

/// Contacts on lost nodes whose addresses the store could not read: subscribers see them until it can.
#[derive(Default)]
pub(super) struct ContactsToWithdraw(LeafMutex<PendingContacts>);

#[derive(Default)]
struct PendingContacts {
    /// Sorted, as the contacts of a lost node are.
    contacts: BTreeSet<(u64, AddressId)>,
    /// Second of the node's clock.
    retry_at: u32,
}

impl ContactsToWithdraw {
    /// Returns whether all fit.
    fn add(&self, contacts: impl Iterator<Item = (u64, AddressId)>, retry_at: u32) -> bool {
        let mut pending = self.0.lock();
        pending.retry_at = retry_at;
        for contact in contacts {
            if pending.contacts.len() >= MAX_TO_WITHDRAW && !pending.contacts.contains(&contact) {
                return false;
            }
            pending.contacts.insert(contact);
        }
        true
    }

    /// Removes and returns them if it is time to try again.
    fn take_due(&self, now: u32) -> Vec<(u64, AddressId)> {
        let mut pending = self.0.lock();
        if now < pending.retry_at {
            return Vec::new();
        }
        std::mem::take(&mut pending.contacts).into_iter().collect()
    }
}

/// Accounts with a session here that had sessions on a lost node, each with the resources of these that were available, if that
/// node had reported them.
type SharedAccounts = Vec<(Arc<Account>, Option<Vec<Box<str>>>)>;

/// Accounts with a session here by a contact to whose presence they are subscribed.
type Subscribers = BTreeMap<AddressId, (Contact, Vec<Arc<Account>>)>;

impl ClusteredNode<'_> {
    /// A node with these claims has left. One that has shut down (`is_orderly`) has sent what was due before (`departure`).
    pub(super) fn on_peer_left(&self, node: NodeId, is_orderly: bool, claims: &[Claim]) {
        self.state.forget_node(node);
        if is_orderly {
            self.forget_directed_presence(claims);
        } else {
            self.withdraw_directed_presence(self.take_directed_presence(node, claims));
        }
        self.state.forwarded.forget_node(node, is_orderly, self.seconds());
        let shared = self.forget_sessions_of(node, claims);
        self.return_due_errors(node);
        if !is_orderly {
            // Its last roster pushes may not have arrived.
            shared.iter().for_each(|(account, _)| self.mark_roster_outdated(account));
        }
        let mut lost: Vec<(u64, AddressId)> = claims
            .iter()
            .filter_map(|claim| claim.number.map(|number| (claim.address, AddressId(number))))
            .collect();
        lost.sort_unstable();
        if lost.is_empty() && shared.is_empty() {
            return;
        }
        let this = self.owned();
        let task = async move {
            let this = this.view();
            this.withdraw_sessions_of(node, shared).await;
            this.withdraw_contacts(&lost).await;
        };
        self.spawner.spawn("presence of a lost node", Box::pin(task));
    }

    /// Removes what is known of the sessions on a node, at once: the next stanzas must not be sent there, and must follow
    /// stored ones.
    fn forget_sessions_of(&self, node: NodeId, claims: &[Claim]) -> SharedAccounts {
        let mut shared = SharedAccounts::new();
        let mut forget = |account: Arc<Account>| {
            let resources = self.forget_peer(&account, node);
            // The store may have what its sessions had not read.
            account.with(|state| state.may_have_offline_messages = true);
            self.deliver_stored(&account);
            shared.push((account, resources));
        };
        let mut unnumbered = Vec::new();
        if claims.iter().any(|claim| claim.number.is_none()) {
            self.routing_table.for_each(|account| {
                if account.id == AddressId::UNASSIGNED {
                    unnumbered.push(account.clone());
                }
            });
        }
        unnumbered.into_iter().for_each(&mut forget);
        for claim in claims {
            let Some(number) = claim.number else { continue };
            if let Some(account) = self.routing_table.find_by_id(claim.address, AddressId(number)) {
                forget(account);
            }
        }
        shared
    }

    /// The other resources of these accounts receive `unavailable` for those on a lost node.
    async fn withdraw_sessions_of(&self, lost: NodeId, accounts: SharedAccounts) {
        for chunk in accounts.chunks(YIELD_EVERY) {
            // A node that has returned may have sent new presence, so the other nodes are asked for it.
            let has_returned = self.cluster.members().iter().any(|member| member.node == lost);
            for (account, resources) in chunk {
                match resources.as_ref().filter(|_| !has_returned) {
                    Some(resources) => self.withdraw_resources(account, &absent(account, resources)),
                    None => self.withdraw_other_resources(account),
                }
            }
            yield_now().await;
        }
    }

    /// Subscribers receive `unavailable` for contacts on a lost node. `lost` is sorted.
    async fn withdraw_contacts(&self, lost: &[(u64, AddressId)]) {
        let subscribers = self.subscribers_of(lost).await;
        if subscribers.is_empty() {
            return;
        }
        let ids: Vec<AddressId> = subscribers.keys().copied().collect();
        match self.stores.addresses.resolve(&ids).await {
            Ok(found) => {
                for (id, jid) in found {
                    if let Some((contact, accounts)) = subscribers.get(&id) {
                        self.withdraw_presence(jid.as_ref(), *contact, accounts);
                        yield_now().await;
                    }
                }
            }
            Err(error) => {
                let contacts = subscribers.values().map(|(contact, _)| (contact.hash, contact.id));
                let fit = self.state.contacts_to_withdraw.add(contacts, self.seconds() + RETRY_SECONDS);
                tracing::warn!(
                    %error,
                    all_later = fit,
                    "contacts of a lost node are shown as available until the database answers"
                );
            }
        }
    }

    /// Withdraws contacts whose addresses could not be read. If one has come back, its presence follows. Called by the sweep.
    pub(super) fn withdraw_remaining_contacts(&self) {
        let contacts = self.state.contacts_to_withdraw.take_due(self.seconds());
        if contacts.is_empty() {
            return;
        }
        let this = self.owned();
        let task = async move { this.view().withdraw_contacts(&contacts).await };
        self.spawner.spawn("presence of a lost node", Box::pin(task));
    }

    /// The sessions of an account here receive `unavailable` for its resources on another node.
    pub(super) fn withdraw_resources(&self, account: &Account, resources: &[Box<str>]) {
        for resource in resources {
            let full = account.jid.as_ref().with_resource(resource).ok();
            let Some(stanza) = full.and_then(|full| unavailable(full.as_ref())) else { continue };
            self.send_to_available(account, &stanza);
        }
    }

    /// The sessions of an account here receive `unavailable` for all its resources, and then the presence of those that are left.
    /// For a node whose presence may have arrived before its report.
    pub(super) fn withdraw_other_resources(&self, account: &Arc<Account>) {
        let Some(stanza) = unavailable(account.jid.as_ref()) else { return };
        self.send_to_available(account, &stanza);
        self.show_other_resources(account);
    }

    /// The sessions of an account here receive the presence of its resources.
    pub(super) fn show_other_resources(&self, account: &Arc<Account>) {
        let presences: Vec<SharedStanza> = account
            .sessions()
            .iter()
            .filter_map(|session| session.with(|state| state.presence.clone()))
            .collect();
        for presence in &presences {
            self.send_to_available(account, presence);
        }
        for session in account.sessions().iter().filter(|session| session.is_available()) {
            self.probe_contacts(session, &[own_contact(account)]);
        }
    }

    pub(super) fn note_ended_subscription(&self, account: &Arc<Account>, contact: (u64, AddressId)) {
        let ended = EndedSubscription { account: Arc::downgrade(account), contact, at: self.seconds() };
        self.state.ended_subscriptions.note(account.hash, ended);
    }

    pub(super) fn send_to_available(&self, account: &Account, stanza: &SharedStanza) {
        for session in account.sessions() {
            if session.is_available() {
                self.enqueue(&session, stanza.clone(), ToRewrite::Bare);
            }
        }
    }

    /// `lost` is sorted.
    async fn subscribers_of(&self, lost: &[(u64, AddressId)]) -> Subscribers {
        let mut found = Subscribers::new();
        for shard in 0..self.routing_table.shard_count() {
            let mut accounts = Vec::new();
            self.routing_table.for_each_in_shard(shard, |account| accounts.push(account.clone()));
            if !accounts.is_empty() {
                yield_now().await;
            }
            for account in accounts {
                account.with(|state| {
                    for contact in state.contacts() {
                        if contact.subscription.contains(Subscription::TO)
                            && lost.binary_search(&(contact.hash, contact.id)).is_ok()
                        {
                            found
                                .entry(contact.id)
                                .or_insert_with(|| (*contact, Vec::new()))
                                .1
                                .push(account.clone());
                        }
                    }
                });
            }
        }
        // After the rosters: a subscription that ends meanwhile is found here.
        for ((hash, id), account) in self.state.ended_subscriptions.of(lost, self.seconds()) {
            let contact = Contact { hash, id, subscription: Subscription::NONE, is_foreign: false };
            found.entry(id).or_insert_with(|| (contact, Vec::new())).1.push(account);
        }
        found
    }

    fn withdraw_presence(&self, jid: JidRef<'_>, contact: Contact, subscribers: &[Arc<Account>]) {
        let Some(stanza) = unavailable(jid) else { return };
        let here = self.routing_table.find_by_id(contact.hash, contact.id);
        for account in subscribers {
            if account.blocks(jid) {
                continue;
            }
            self.send_to_available(account, &stanza);
            // What is left of its resources.
            if here.is_some() {
                self.send_presence_of_contact_here(account, jid);
            }
            for session in account.sessions().iter().filter(|session| session.is_available()) {
                self.probe_contacts(session, &[contact]);
            }
        }
    }
}

/// Those of the resources that are on no node now: a client may have connected again.
fn absent(account: &Account, resources: &[Box<str>]) -> Vec<Box<str>> {
    account.with(|state| {
        let is_present = |resource: &str| {
            let elsewhere = state.peers().iter().flat_map(|peer| &peer.sessions);
            state.sessions.iter().any(|session| session.resource() == resource)
                || elsewhere.map(|session| &*session.resource).any(|known| known == resource)
        };
        resources.iter().filter(|resource| !is_present(resource)).cloned().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(hash: u64) -> (u64, AddressId) {
        (hash, AddressId::new(7).unwrap())
    }

    fn note(ended: &EndedSubscriptions, account: u64, hash: u64, at: u32) {
        ended.note(account, EndedSubscription { account: Weak::new(), contact: contact(hash), at });
    }

    fn remembered(ended: &EndedSubscriptions) -> usize {
        let ended = ended.0.lock();
        assert_eq!(ended.count, ended.accounts.values().map(Vec::len).sum::<usize>());
        assert!(ended.accounts.values().all(|list| !list.is_empty()));
        ended.count
    }

    #[test]
    fn contacts_are_withdrawn_later_once_in_order_and_bounded() {
        let pending = ContactsToWithdraw::default();
        assert!(pending.add([contact(2), contact(1), contact(2)].into_iter(), 10));
        assert_eq!(pending.take_due(9), []);
        assert_eq!(pending.take_due(10), [contact(1), contact(2)]);
        assert_eq!(pending.take_due(11), []);
        let many = MAX_TO_WITHDRAW as u64;
        assert!(pending.add((0..many).map(contact), 10));
        assert!(pending.add([contact(0)].into_iter(), 10));
        assert!(!pending.add([contact(many)].into_iter(), 10));
        assert_eq!(pending.take_due(10).len(), MAX_TO_WITHDRAW);
    }

    #[test]
    fn ended_subscriptions_are_remembered_for_a_while_and_bounded() {
        let ended = EndedSubscriptions::default();
        for account in 0..3 * MAX_REMEMBERED as u64 {
            note(&ended, account, account, 10);
        }
        assert_eq!(remembered(&ended), MAX_REMEMBERED);
        note(&ended, 1, 1, 10 + REMEMBERED_SECONDS);
        assert_eq!(remembered(&ended), 1, "the others are too old");
        assert!(ended.of(&[contact(1)], 11).is_empty(), "an account that is gone");
    }

    #[test]
    fn an_account_does_not_displace_the_ended_subscriptions_of_others() {
        let ended = EndedSubscriptions::default();
        note(&ended, 1, 1, 10);
        for _ in 0..3 * MAX_REMEMBERED {
            note(&ended, 2, 2, 10);
        }
        assert_eq!(remembered(&ended), 2, "one contact counts once");
        for hash in 0..3 * MAX_REMEMBERED as u64 {
            note(&ended, 2, hash, 10);
        }
        assert_eq!(remembered(&ended), 1 + MAX_REMEMBERED_OF_ACCOUNT);
        let state = ended.0.lock();
        assert_eq!(state.accounts[&1].len(), 1);
        assert_eq!(state.accounts[&2].last().unwrap().contact, contact(3 * MAX_REMEMBERED as u64 - 1));
    }
}
