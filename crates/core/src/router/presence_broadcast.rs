//! Presence broadcast to contacts: one stanza, one queue entry for each session. RFC 6121, sections 4.2.2 and
//! 4.4.2.
//!
//! The stanza has no `to`; each receiver's bare address is inserted when its queue is written. Thus a presence
//! for 150 contacts is one allocation and 150 pointers. More contacts than a chunk are handled by a task
//! (`presence_queue.rs`).

use std::cell::RefCell;
use std::sync::Arc;

use base::spawn::BoxFuture;
use jid::{Jid, JidRef};
use store::{AddressId, Subscription};

use super::multicast::CHUNK;
use super::{Continuation, ResumedChain, RoutingWork};
use crate::account::{Account, Contact};
use crate::blocklist::Blocklist;
use crate::effect::Effects;
use crate::host::Host;
use crate::multicast::Multicast;
use crate::node::Node;
use crate::session::backlog::sender_address;
use crate::session::{QueuedStanza, Session, ToRewrite};
use crate::shared_stanza::{QueueClass, SharedStanza};

thread_local! {
    static CONTACTS: RefCell<Vec<Contact>> = const { RefCell::new(Vec::new()) };
}

impl Node {
    /// Sends presence to every available resource of each contact with one of the subscription bits.
    pub(crate) fn broadcast(
        self: &Arc<Self>,
        account: &Arc<Account>,
        stanza: &SharedStanza,
        to: Subscription,
        work: &mut RoutingWork,
    ) {
        let mut contacts = CONTACTS.take();
        contacts.clear();
        account.with(|state| {
            contacts.extend(state.contacts().iter().filter(|c| c.subscription.0 & to.0 != 0));
        });
        if contacts.len() > CHUNK || self.is_broadcasting(account.hash) {
            self.broadcast_in_chunks(account, stanza, to, &contacts, work);
        } else {
            let host = &account.host();
            let sessions: u64 =
                contacts.iter().map(|contact| self.send_to_contact((host, account), contact, stanza)).sum();
            self.metrics.fanout.record(sessions);
        }
        if let Some(peers) = self.peers() {
            peers.broadcast_to_peers(self, account, &contacts, stanza);
        }
        let foreign: Vec<AddressId> =
            contacts.iter().filter(|contact| contact.is_foreign).map(|contact| contact.id).collect();
        if !foreign.is_empty() && self.domains().has_presence_routes() {
            work.pending.push(self.broadcast_to_foreign(account.clone(), stanza.clone(), foreign));
        }
        CONTACTS.set(contacts);
    }

    /// Routes presence to contacts of domains without accounts, whose addresses only the store has.
    fn broadcast_to_foreign(
        self: &Arc<Self>,
        account: Arc<Account>,
        stanza: SharedStanza,
        contacts: Vec<AddressId>,
    ) -> BoxFuture<'static, ResumedChain> {
        let node = self.clone();
        Box::pin(async move {
            let mut effects = Effects::default();
            match (node.stores.addresses.resolve(&contacts).await, stanza.sender()) {
                (Ok(found), Some(from)) => {
                    let blocked = account.blocked();
                    let visible =
                        |jid: &Jid| !blocked.as_ref().is_some_and(|list| list.matches(jid.as_ref()));
                    let to: Arc<[Jid]> = found.into_iter().map(|(_, jid)| jid).filter(visible).collect();
                    effects.multicast(Multicast::new(stanza, from, to));
                }
                (Err(error), _) => {
                    tracing::warn!(account = %account.jid, %error, "presence did not reach contacts of other domains");
                }
                (Ok(_), None) => {}
            }
            ResumedChain { effects, continuation: Continuation::Nothing }
        })
    }

    /// Returns the number of sessions that accepted it.
    fn send_to_contact(
        self: &Arc<Self>,
        (host, sender): (&Arc<Host>, &Account),
        contact: &Contact,
        stanza: &SharedStanza,
    ) -> u64 {
        match self.routing_table.find_by_id(contact.hash, contact.id) {
            Some(account) => self.send_to_account((host, sender), &account, stanza, true),
            None => 0,
        }
    }

    /// As [`Node::send_to_contact`], for an account with sessions here. With `hides`, the sender's blocklist applies.
    pub fn send_to_account(
        self: &Arc<Self>,
        (host, sender): (&Arc<Host>, &Account),
        account: &Arc<Account>,
        stanza: &SharedStanza,
        hides: bool,
    ) -> u64 {
        let blocked = sender.blocked().filter(|_| hides);
        self.send_unless_blocked((host, sender), account, stanza, blocked.as_deref())
    }

    /// As [`Node::send_to_account`], with the entries of the sender's blocklist that apply.
    pub(super) fn send_unless_blocked(
        self: &Arc<Self>,
        (host, sender): (&Arc<Host>, &Account),
        account: &Arc<Account>,
        stanza: &SharedStanza,
        blocked: Option<&Blocklist>,
    ) -> u64 {
        let hidden = |jid: JidRef<'_>| blocked.is_some_and(|list| list.matches(jid));
        if hidden(account.jid.as_ref()) || account.blocks(sender.jid.as_ref()) {
            return 0;
        }
        let other;
        let host = if account.shares_host(sender) {
            host
        } else {
            other = account.host();
            &other
        };
        let mut sessions = 0;
        for session in account.sessions() {
            if session.is_available() && !hidden(session.full()) {
                // A full queue drops its oldest presence; a closed one needs none.
                let item = QueuedStanza::new(stanza.clone(), ToRewrite::Bare);
                sessions += u64::from(self.push_item_with_host(host, &session, item, false).is_ok());
            }
        }
        sessions
    }

    /// Marks presence that the client of a session did not ask for. A broadcast, whose `to` is inserted at
    /// writing, only reaches subscribers, so it needs no look-up.
    pub(super) fn mark_unsubscribed(&self, session: &Session, item: QueuedStanza) -> QueuedStanza {
        let broadcast = item.to_rewrite != ToRewrite::None;
        let expected = item.stanza.class() != QueueClass::Presence
            || broadcast
            || item.stanza.is_requested()
            || self.expects_presence(session, &item.stanza);
        if expected { item } else { item.from_unsubscribed() }
    }

    /// Whether the account is subscribed to the sender of this presence, or the session has sent presence to it.
    /// Presence of the server and of the account itself is always expected.
    fn expects_presence(&self, session: &Session, stanza: &SharedStanza) -> bool {
        let account = &session.account;
        let Some(from) = sender_address(stanza, account.jid.as_ref()) else { return true };
        let Some(from) = JidRef::from_normalised(from) else { return false };
        self.is_subscribed_to(account, from) || session.has_directed_presence_to(from)
    }

    /// Whether the account is subscribed to presence of this address. An address that is not connected here has no
    /// id to compare, and nobody can choose one that has the keyed hash of a contact.
    fn is_subscribed_to(&self, account: &Account, from: JidRef<'_>) -> bool {
        account.with(|state| state.may_be_subscribed_to(self.routing_table.hash(from)))
            && self
                .routing_table
                .find(from)
                .is_none_or(|contact| account.subscription(&contact).contains(Subscription::TO))
    }

    /// Calls `f` with the last presence of every available resource of each contact that this session may see:
    /// the result of probes to local contacts (RFC 6121, section 4.3).
    pub fn for_each_contact_presence(&self, receiver: &Session, mut f: impl FnMut(&SharedStanza)) {
        let account = &receiver.account;
        let blocked = account.blocked();
        let hidden = |jid: JidRef<'_>| blocked.as_ref().is_some_and(|list| list.matches(jid));
        let contacts: Vec<Contact> = account.with(|state| {
            state.contacts().iter().copied().filter(|c| c.subscription.contains(Subscription::TO)).collect()
        });
        for contact in contacts {
            let Some(other) = self.routing_table.find_by_id(contact.hash, contact.id) else { continue };
            // The contact's roster is authoritative, not that of this account.
            if !other.subscription(account).contains(Subscription::FROM) {
                continue;
            }
            if hidden(other.jid.as_ref()) || other.blocks(receiver.full()) {
                continue;
            }
            other.for_each_session(|session| {
                if hidden(session.full()) {
                    return;
                }
                session.with(|state| {
                    if let Some(presence) = &state.presence {
                        f(presence);
                    }
                });
            });
        }
    }

    /// Whether a presence broadcast of the account reaches this address, here or on another node. Not for decisions about
    /// trust: an address without a session here is compared by its keyed hash only.
    pub fn reaches_by_broadcast(&self, account: &Account, contact: JidRef<'_>) -> bool {
        match self.routing_table.find(contact) {
            Some(contact) => account.subscription(&contact).contains(Subscription::FROM),
            None => {
                let hash = self.routing_table.hash(contact);
                account.with(|state| {
                    state.contacts().iter().any(|known| {
                        known.hash == hash
                            && known.subscription.contains(Subscription::FROM)
                            && (known.is_foreign || !self.is_single())
                    })
                })
            }
        }
    }
}
