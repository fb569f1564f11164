//! Messages in the store for an account with sessions on several nodes: one node delivers them. XEP-0160 1.0.1, section 2.
//!
//! A node that has stored a message reports it to all nodes with sessions of the account. The first of them, by its claim, whose
//! sessions take messages delivers it; if none has such a session, nobody does.
//!
//! A session that becomes available while another node has sessions that take messages leaves to that node what the store has: its
//! sessions may have received it, and not acknowledged it yet. Sessions without a connection do not count, because they may never
//! return. When sessions of a node end or do not take messages any more, the others decide anew by its report.
//!
//! A node may have left to another one what was stored while its own session had no connection. When that is resumed, the node decides
//! once more: the other one may have learnt of that before it learnt of the message.
//!
//! Nodes may differ about all that as long as a report is on its way. When it arrives, they decide again; a message is then delivered
//! twice at most, with the same stanza-id.

use std::sync::Arc;

use arc_swap::Guard;
use base::lock::LeafMutex;
use cluster::{Envelope, EnvelopeClass, NodeClaim, NodeId, Recipient, RefusalReason};
use hashbrown::HashMap;
use jid::{Jid, JidRef};
use throng_core::account::{Account, AccountState, PeerSessions};
use throng_core::router::LifecycleEvent;
use throng_core::router::peer_routing::address_number;
use throng_core::session::{Extension, Session};

use crate::ClusteredNode;
use crate::envelope_kinds::MESSAGE_STORED;

/// Seconds for which a stored message is remembered: claims of logins that its node did not know of arrive within them.
const REMEMBERED_SECONDS: u32 = 60;
/// Maximum number of remembered recipients.
const MAX_REMEMBERED: usize = 16_384;

/// Recipients of messages that this node stored a moment ago. A node on which one of them logged in before the write, and whose
/// claim arrives after it, must read the store.
#[derive(Default)]
pub(super) struct RecentlyStored(LeafMutex<HashMap<u64, (Jid, u32)>>);

impl RecentlyStored {
    fn note(&self, hash: u64, owner: JidRef<'_>, now: u32) {
        let mut stored = self.0.lock();
        if stored.len() >= MAX_REMEMBERED {
            stored.retain(|_, (_, at)| now.saturating_sub(*at) < REMEMBERED_SECONDS);
            if stored.len() >= MAX_REMEMBERED {
                // The messages wait for the next login.
                stored.clear();
            }
        }
        stored.insert(hash, (owner.bare().to_jid(), now));
    }

    fn find(&self, hash: u64, now: u32) -> Option<Jid> {
        let stored = self.0.lock();
        let (owner, at) = stored.get(&hash)?;
        (now.saturating_sub(*at) < REMEMBERED_SECONDS).then(|| owner.clone())
    }
}

/// Content of a report that leaves all stored messages to its receiver. Other reports are empty.
const LEFT_TO_RECEIVER: &[u8] = &[1];
/// Content of the answer of a node that has no session any more to which it could deliver them.
const NOT_DELIVERED: &[u8] = &[2];

/// Mark of an account whose stored messages this node has decided to deliver.
struct DeliversStored;

impl Extension for DeliversStored {}

fn takes_messages(session: &Session) -> bool {
    !session.is_ended() && session.priority().is_some_and(|priority| priority >= 0)
}

/// Whether a session on another node takes messages and has a connection.
pub(super) fn has_connected_session(peer: &PeerSessions) -> bool {
    peer.sessions.iter().any(|session| session.priority >= Some(0) && !session.is_detached)
}

/// The same for a node with a claim, whose report may not have arrived.
fn claims_connected_session(state: &AccountState, at: &NodeClaim) -> bool {
    let reported = state.peers().iter().find(|peer| peer.node == at.node && peer.reported);
    at.claim.takes_messages && reported.is_none_or(has_connected_session)
}

impl ClusteredNode<'_> {
    /// A node has claimed an address for whose account this one may just have stored a message.
    pub(super) fn report_recently_stored(&self, to: NodeId, hash: u64) {
        let Some(owner) = self.state.stored.find(hash, self.seconds()) else { return };
        let sent = self.send_change_of_account(to, owner.clone(), MESSAGE_STORED);
        if sent == Err(RefusalReason::QueueFull) {
            self.change_is_due(to, owner, MESSAGE_STORED);
        }
    }

    fn stored_report(&self, owner: JidRef<'_>, octets: &[u8]) -> Envelope {
        let recipients = vec![Recipient::Address(owner.bare().to_jid())];
        Envelope::new(MESSAGE_STORED, EnvelopeClass::Control, self.cluster.node(), recipients, octets)
    }

    /// Reports to the other nodes with sessions of an account that the store has a message for it.
    pub(super) fn report_stored_message(&self, owner: JidRef<'_>) {
        let own = self.cluster.node();
        let hash = self.routing_table.hash(owner);
        // Before the directory is read: a claim that arrives later finds it.
        self.state.stored.note(hash, owner, self.seconds());
        let location = self.cluster.locate(hash, None);
        for node in location.other_nodes(own) {
            if let Err(refused) = self.cluster.deliver(node, self.stored_report(owner, &[])) {
                self.change_was_refused(owner, MESSAGE_STORED, &refused);
            }
        }
    }

    /// Another node has stored a message for an account, or has left what is stored to this one. If its recipient has logged in
    /// here meanwhile, it is delivered. False if the octets are neither.
    pub(super) fn on_message_stored(&self, from: NodeId, owner: JidRef<'_>, octets: &[u8]) -> bool {
        let account = self.note_stored_message(owner);
        let deliver_here = || account.as_ref().is_some_and(|account| self.deliver_stored_here(account));
        match octets {
            [] => account.iter().for_each(|account| self.deliver_stored(account)),
            LEFT_TO_RECEIVER if !deliver_here() => {
                if let Err(refused) = self.cluster.deliver(from, self.stored_report(owner, NOT_DELIVERED)) {
                    self.change_was_refused(owner, MESSAGE_STORED, &refused);
                }
            }
            LEFT_TO_RECEIVER => {}
            NOT_DELIVERED => {
                deliver_here();
            }
            _ => return false,
        }
        true
    }

    /// See [`throng_core::router::PeerRouting::delivers_stored`].
    pub(super) fn delivers_stored(&self, account: &Account) -> bool {
        let own = self.cluster.node();
        let location = self.cluster.locate(account.hash, address_number(account));
        let claims = location.claims();
        let [connected, ready] = account.with(|state| {
            let mut here = state.sessions.iter().filter(|session| takes_messages(session)).peekable();
            let is_ready = here.peek().is_some();
            let is_connected = here.any(|session| !session.outbox.is_detached());
            let connected = claims
                .iter()
                .find(|at| if at.node == own { is_connected } else { claims_connected_session(state, at) });
            let ready =
                claims.iter().find(|at| if at.node == own { is_ready } else { at.claim.takes_messages });
            [connected, ready]
        });
        // None on several nodes: this one knows of its own sessions only.
        connected.or(ready).is_none_or(|at| at.node == own)
    }

    /// Delivers what the store may have for an account, if this node is the one that does.
    pub(super) fn deliver_stored(&self, account: &Arc<Account>) {
        if account.with(|state| state.may_have_offline_messages) && self.delivers_stored(account) {
            self.deliver_stored_here(account);
        }
    }

    /// A session has a connection again. If the store may have messages, they are delivered as if it had become available.
    pub(super) fn session_resumed(&self, session: &Arc<Session>) {
        self.report_sessions(&session.account);
        if takes_messages(session) && self.begin_flushing(&session.account) {
            let host = Guard::into_inner(session.account.host());
            self.run_event_spawned(LifecycleEvent::Available(session.clone()), host);
        }
    }

    /// Whether the store may have messages for an account. Then later ones follow them from now on, if a session takes messages. The
    /// handlers of [`LifecycleEvent::Available`], which must run next, clear that.
    pub(super) fn begin_flushing(&self, account: &Account) -> bool {
        let keeps = account.host().stores_offline_messages;
        account.with(|state| {
            let waits = state.may_have_offline_messages;
            state.flushing |= keeps && waits && state.sessions.iter().any(|session| takes_messages(session));
            waits
        })
    }

    /// False if no session here takes messages.
    fn deliver_stored_here(&self, account: &Arc<Account>) -> bool {
        let host = Guard::into_inner(account.host());
        if !host.stores_offline_messages {
            return true;
        }
        let ready = account.with(|state| {
            let session = state.sessions.iter().find(|session| takes_messages(session)).cloned();
            if session.is_some() {
                // Later messages must follow it. The handlers of the event clear the flag.
                state.flushing = true;
                state.insert_extension(DeliversStored);
            }
            session
        });
        let Some(session) = ready else { return false };
        self.run_event_spawned(LifecycleEvent::Available(session), host);
        true
    }

    /// See [`throng_core::router::PeerRouting::leave_stored`].
    pub(super) fn leave_stored(&self, account: &Account, delivers: bool) -> bool {
        let own = self.cluster.node();
        let location = self.cluster.locate(account.hash, address_number(account));
        let other = account.with(|state| {
            if state.remove_extension::<DeliversStored>().is_some() || delivers {
                return None;
            }
            let mut others = location.claims().iter().filter(|at| at.node != own);
            others.find(|at| claims_connected_session(state, at)).map(|at| at.node)
        });
        let Some(other) = other else { return false };
        self.cluster.deliver(other, self.stored_report(account.jid.as_ref(), LEFT_TO_RECEIVER)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_of_stored_messages_are_remembered_for_a_while_and_bounded() {
        let stored = RecentlyStored::default();
        let juliet = Jid::parse("juliet@example.com/balcony").unwrap();
        stored.note(1, juliet.as_ref(), 10);
        assert_eq!(stored.find(1, 11).map(|jid| jid.to_string()), Some("juliet@example.com".to_owned()));
        assert!(stored.find(2, 11).is_none() && stored.find(1, 10 + REMEMBERED_SECONDS).is_none());
        for hash in 0..3 * MAX_REMEMBERED as u64 {
            stored.note(hash, juliet.as_ref(), 100);
        }
        assert!(stored.0.lock().len() <= MAX_REMEMBERED);
    }
}
