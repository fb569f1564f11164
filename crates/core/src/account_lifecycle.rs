//! Creation and removal of accounts in the running node, and the end of their sessions.

use std::sync::Arc;

use cluster::InvalidationSubject;
use jid::JidRef;
use stanza::{StreamCondition, StreamError};
use store::RosterItem;

use crate::host::Host;
use crate::node::Node;
use crate::router::LifecycleEvent;
use crate::session::Session;

impl Node {
    /// Ends the session with this address, or all sessions of a bare address; returns their number.
    pub fn end_sessions(self: &Arc<Self>, jid: JidRef<'_>, reason: &StreamError) -> usize {
        let Some(account) = self.routing_table.find(jid) else { return 0 };
        let mut ended = 0;
        for session in account.sessions() {
            if jid.resource().is_none_or(|r| r == session.resource()) {
                session.outbox.close(reason.clone());
                self.end_session(&session);
                ended += 1;
            }
        }
        ended
    }

    /// Reports a created account to features.
    pub fn account_created(self: &Arc<Self>, host: &Arc<Host>, jid: JidRef<'_>) {
        self.run_event_spawned(LifecycleEvent::Created(jid.to_jid()), host.clone());
    }

    /// Reports a removed account to features and ends its sessions.
    pub fn account_removed(self: &Arc<Self>, host: &Arc<Host>, jid: JidRef<'_>, contacts: Vec<RosterItem>) {
        self.run_removed(host, jid, contacts, None);
    }

    /// Like [`Node::account_removed`], for a removal requested by one of its sessions: that one is closed after
    /// the response.
    pub fn account_removed_by(
        self: &Arc<Self>,
        host: &Arc<Host>,
        by: &Arc<Session>,
        contacts: Vec<RosterItem>,
    ) {
        self.run_removed(host, by.bare(), contacts, Some(by));
    }

    fn run_removed(
        self: &Arc<Self>,
        host: &Arc<Host>,
        jid: JidRef<'_>,
        contacts: Vec<RosterItem>,
        by: Option<&Arc<Session>>,
    ) {
        // A login that has read the account is either found here or sees the changed epoch.
        self.advance_roster_epoch(jid);
        if let Some(account) = self.routing_table.find(jid) {
            for session in account.sessions() {
                session
                    .outbox
                    .close(StreamError::new(StreamCondition::NotAuthorized).text("the account was removed"));
                if by.is_none_or(|by| !Arc::ptr_eq(by, &session)) {
                    self.end_session(&session);
                }
            }
        }
        self.account_views().forget_blocklist(jid);
        self.invalidate_elsewhere(jid, InvalidationSubject::Deleted);
        let event = LifecycleEvent::Removed { jid: jid.bare().to_jid(), contacts };
        self.run_event_spawned(event, host.clone());
    }

    /// Ends the sessions of an account that was disabled in the store, on all nodes.
    pub fn account_disabled(self: &Arc<Self>, jid: JidRef<'_>) {
        self.end_sessions_here(jid, "the account was disabled");
        self.invalidate_elsewhere(jid, InvalidationSubject::Disabled);
    }

    /// Ends sessions with `not-authorized` (RFC 6120, section 4.9.3.12).
    pub fn end_sessions_here(self: &Arc<Self>, jid: JidRef<'_>, reason: &'static str) {
        // A login that has read the account is either found here or sees the changed epoch.
        self.advance_roster_epoch(jid);
        self.end_sessions(jid.bare(), &StreamError::new(StreamCondition::NotAuthorized).text(reason));
    }
}
