//! Invalidations: what changes an account on one node reaches the nodes that have its sessions, or a login of it in
//! progress.
//!
//! A node that writes sends the subject to all others; each reads again what it holds in memory. A login that read the
//! account before sees the changed epoch ([`Node::epoch`]), as if the write had been made on its own node.
//!
//! What does not fit into the queue of a node becomes due (`presence_resync.rs`). When a node is lost, the others read the
//! accounts that they have again, since it may have written and not reported.
//!
//! Not implemented: passwords, rates and the message of the day, because no node holds them for a session.
//!
//! # Pitfalls
//!
//! Must be sent after the write, and before anything that other nodes do because of it.

use std::sync::Arc;

use cluster::{
    Envelope, EnvelopeClass, EnvelopeKind, InvalidationSubject, NodeId, Recipient, RefusalReason,
    RefusedEnvelope,
};
use jid::{Jid, JidRef};
use stanza::{StreamCondition, StreamError};

use crate::node::Node;

/// The store has a message for the recipient: a session that becomes available must read it.
pub(super) const MESSAGE_STORED: EnvelopeKind = EnvelopeKind::Engine(6);

impl Node {
    /// Reports a change of an account in the store to all other nodes.
    pub(crate) fn invalidate_elsewhere(&self, jid: JidRef<'_>, subject: InvalidationSubject) {
        if self.is_single() {
            return;
        }
        let recipients = vec![Recipient::Address(jid.bare().to_jid())];
        let kind = EnvelopeKind::Invalidation(subject);
        let envelope =
            Envelope::new(kind, EnvelopeClass::Control, self.cluster.node(), recipients, Vec::new());
        for refused in self.cluster.broadcast(envelope).refused {
            self.change_was_refused(jid, kind, &refused);
        }
    }

    fn change_was_refused(&self, account: JidRef<'_>, kind: EnvelopeKind, refused: &RefusedEnvelope) {
        if refused.reason == RefusalReason::QueueFull {
            self.change_is_due(refused.node, account.bare().to_jid(), kind);
        } else {
            tracing::warn!(%account, ?kind, %refused, "a node does not learn that an account changed");
        }
    }

    /// Reports a change of an account to one node.
    pub(super) fn send_change_of_account(
        &self,
        node: NodeId,
        account: Jid,
        kind: EnvelopeKind,
    ) -> Result<(), RefusalReason> {
        let own = self.cluster.node();
        let recipients = vec![Recipient::Address(account)];
        let envelope = Envelope::new(kind, EnvelopeClass::Control, own, recipients, Vec::new());
        self.cluster.deliver(node, envelope).map(drop).map_err(|refused| refused.reason)
    }

    /// Reports to the other nodes with sessions of an account that the store has a message for it.
    pub(crate) fn report_stored_message(&self, owner: JidRef<'_>) {
        let own = self.cluster.node();
        let location = self.cluster.locate(self.routing_table.hash(owner), None);
        for node in location.other_nodes(own) {
            let recipients = vec![Recipient::Address(owner.bare().to_jid())];
            let envelope = Envelope::new(MESSAGE_STORED, EnvelopeClass::Control, own, recipients, Vec::new());
            if let Err(refused) = self.cluster.deliver(node, envelope) {
                self.change_was_refused(owner, MESSAGE_STORED, &refused);
            }
        }
    }

    /// Another node has changed an account in the store.
    pub(super) fn on_invalidation(self: &Arc<Self>, jid: JidRef<'_>, subject: InvalidationSubject) {
        match subject {
            InvalidationSubject::Roster | InvalidationSubject::Subscriptions => {
                self.advance_roster_epoch(jid);
                if let Some(account) = self.routing_table.find(jid) {
                    self.reload_roster(account);
                }
            }
            InvalidationSubject::Blocklist => self.reload_blocklist(jid),
            // It may be enabled again when this arrives.
            InvalidationSubject::Disabled => self.check_account(jid),
            InvalidationSubject::Deleted => {
                self.end_sessions_here(jid, "the account was removed");
                self.forget_blocklist(jid);
            }
            // Sessions hold nothing of these.
            InvalidationSubject::Password
            | InvalidationSubject::Rates
            | InvalidationSubject::MessageOfTheDay => {}
        }
    }

    /// Reads an account again, which ends its sessions if it is disabled or cannot be read.
    fn check_account(self: &Arc<Self>, jid: JidRef<'_>) {
        self.advance_roster_epoch(jid);
        let Some(account) = self.routing_table.find(jid) else { return };
        let node = self.clone();
        let task = async move {
            if let Err(error) = node.refresh_account(&account).await {
                tracing::warn!(account = %account.jid, %error, "cannot read an account that changed");
                node.end_sessions_here(account.jid.as_ref(), "the account may be disabled");
            }
        };
        self.spawner.spawn("account recheck", Box::pin(task));
    }

    /// Ends the sessions of an account that was disabled in the store, on all nodes.
    pub fn account_disabled(self: &Arc<Self>, jid: JidRef<'_>) {
        self.end_sessions_here(jid, "the account was disabled");
        self.invalidate_elsewhere(jid, InvalidationSubject::Disabled);
    }

    /// Ends sessions with `not-authorized` (RFC 6120, section 4.9.3.12).
    fn end_sessions_here(self: &Arc<Self>, jid: JidRef<'_>, reason: &'static str) {
        // A login that has read the account is either found here or sees the changed epoch.
        self.advance_roster_epoch(jid);
        self.end_sessions(jid.bare(), &StreamError::new(StreamCondition::NotAuthorized).text(reason));
    }
}
