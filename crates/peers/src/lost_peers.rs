//! Nodes that have left or are lost: their sessions end, so contacts and other resources are sent `unavailable` for them
//! (RFC 6121, section 4.5).
//!
//! The claims of the node name accounts, not resources, so contacts are sent `unavailable` from the bare address, and then
//! the presence of the resources that are left.

use std::collections::{BTreeMap, VecDeque};
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
/// Maximum number of remembered ends.
const MAX_REMEMBERED: usize = 16_384;

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
pub(super) struct EndedSubscriptions(LeafMutex<VecDeque<EndedSubscription>>);

impl EndedSubscriptions {
    fn note(&self, subscription: EndedSubscription) {
        let mut ended = self.0.lock();
        let is_old =
            |first: &mut EndedSubscription| subscription.at.saturating_sub(first.at) >= REMEMBERED_SECONDS;
        while ended.pop_front_if(is_old).is_some() {}
        if ended.len() >= MAX_REMEMBERED {
            ended.pop_front();
        }
        ended.push_back(subscription);
    }

    /// Ended subscriptions to one of these contacts, which must be sorted.
    fn of(&self, lost: &[(u64, AddressId)], now: u32) -> Vec<((u64, AddressId), Arc<Account>)> {
        let ended = self.0.lock();
        let recent = ended.iter().filter(|ended| now.saturating_sub(ended.at) < REMEMBERED_SECONDS);
        let lost = recent.filter(|ended| lost.binary_search(&ended.contact).is_ok());
        lost.filter_map(|ended| Some((ended.contact, ended.account.upgrade()?))).collect()
    }
}

/// Accounts with a session here by a contact to whose presence they are subscribed.
type Subscribers = BTreeMap<AddressId, (Contact, Vec<Arc<Account>>)>;

impl ClusteredNode<'_> {
    /// A node with these claims has left.
    pub(super) fn on_peer_left(&self, node: NodeId, claims: &[Claim]) {
        self.state.forget_node(node);
        self.forget_sessions_of(node, claims);
        let mut lost: Vec<(u64, AddressId)> = claims
            .iter()
            .filter_map(|claim| claim.number.map(|number| (claim.address, AddressId(number))))
            .collect();
        lost.sort_unstable();
        if lost.is_empty() {
            return;
        }
        let node = self.owned();
        let task = async move {
            let node = node.view();
            let subscribers = node.subscribers_of(&lost).await;
            if subscribers.is_empty() {
                return;
            }
            let ids: Vec<AddressId> = subscribers.keys().copied().collect();
            match node.stores.addresses.resolve(&ids).await {
                Ok(found) => {
                    for (id, jid) in found {
                        if let Some((contact, accounts)) = subscribers.get(&id) {
                            node.withdraw_presence(jid.as_ref(), *contact, accounts);
                            yield_now().await;
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "contacts of a lost node are still shown as available"),
            }
        };
        self.spawner.spawn("presence of a lost node", Box::pin(task));
    }

    /// The other resources of an account are known by their reports.
    fn forget_sessions_of(&self, node: NodeId, claims: &[Claim]) {
        let forget = |account: &Arc<Account>| {
            match self.forget_peer(account, node) {
                Some(resources) => self.withdraw_resources(account, &resources),
                None => self.withdraw_other_resources(account),
            }
            // The store may have what its sessions had not read.
            account.with(|state| state.may_have_offline_messages = true);
            self.deliver_stored_as_home(account, Some(node));
        };
        let mut unnumbered = Vec::new();
        if claims.iter().any(|claim| claim.number.is_none()) {
            self.routing_table.for_each(|account| {
                if account.id == AddressId::UNASSIGNED {
                    unnumbered.push(account.clone());
                }
            });
        }
        unnumbered.iter().for_each(forget);
        for claim in claims {
            let Some(number) = claim.number else { continue };
            if let Some(account) = self.routing_table.find_by_id(claim.address, AddressId(number)) {
                forget(&account);
            }
        }
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
    fn withdraw_other_resources(&self, account: &Arc<Account>) {
        let Some(stanza) = unavailable(account.jid.as_ref()) else { return };
        self.send_to_available(account, &stanza);
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
        let account = Arc::downgrade(account);
        self.state.ended_subscriptions.note(EndedSubscription { account, contact, at: self.seconds() });
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
            if let Some(other) =
                here.as_ref().filter(|other| other.subscription(account).contains(Subscription::FROM))
            {
                for session in other.sessions() {
                    if let Some(presence) = session.with(|state| state.presence.clone()) {
                        self.send_to_available(account, &presence);
                    }
                }
            }
            for session in account.sessions().iter().filter(|session| session.is_available()) {
                self.probe_contacts(session, &[contact]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_subscriptions_are_remembered_for_a_while_and_bounded() {
        let ended = EndedSubscriptions::default();
        let contact = |hash| (hash, AddressId::new(7).unwrap());
        let entry = |hash, at| EndedSubscription { account: Weak::new(), contact: contact(hash), at };
        for hash in 0..3 * MAX_REMEMBERED as u64 {
            ended.note(entry(hash, 10));
        }
        assert_eq!(ended.0.lock().len(), MAX_REMEMBERED);
        ended.note(entry(1, 10 + REMEMBERED_SECONDS));
        assert_eq!(ended.0.lock().len(), 1, "the others are too old");
        assert!(ended.of(&[contact(1)], 11).is_empty(), "an account that is gone");
    }
}
