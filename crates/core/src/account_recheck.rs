//! Repeated reads of an account whose view in memory may be outdated, until the view is current or its sessions end.
//!
//! A login reads the account before its session is in the routing table. A write in between does not find the
//! session, so [`Node::bind`] compares the account's epoch and reads the account again. A roster view is also
//! read again when two changes of a roster were reported in the wrong order.
//!
//! The check fails closed: the account may be disabled, or may have blocked a sender or ended a subscription.
//! After [`MAX_ATTEMPTS`] failed reads, about a second apart, the sessions that depend on the view end.
//!
//! # Pitfalls
//!
//! The store bounds the time of each read; nothing here does.

use std::sync::Arc;

use parking_lot::Mutex;
use stanza::{StreamCondition, StreamError};
use store::{StoreError, StoreErrorKind};

use crate::account::Account;
use crate::node::Node;
use crate::server_error::ServerError;
use crate::session::Session;

/// Failed reads after which the sessions end.
const MAX_ATTEMPTS: u32 = 3;

/// Data that must be read again.
enum Outdated {
    /// Everything that a login reads. The number is the revision of the proved credentials.
    Login(Arc<Session>, u64),
    /// The roster view of a connected account.
    Roster(Arc<Account>),
}

/// A check that failed and will be repeated.
struct FailedRecheck {
    outdated: Outdated,
    attempts: u32,
    /// Second of the node's clock.
    due: u32,
}

/// Checks that wait for their next attempt; at most one for each session and one for each account.
#[derive(Default)]
pub(crate) struct AccountRechecks(Mutex<Vec<FailedRecheck>>);

impl Outdated {
    fn account(&self) -> &Account {
        match self {
            Outdated::Login(session, _) => &session.account,
            Outdated::Roster(account) => account,
        }
    }

    /// Whether no session depends on the result any more.
    fn is_obsolete(&self) -> bool {
        match self {
            Outdated::Login(session, _) => session.is_ended(),
            Outdated::Roster(account) => account.sessions().is_empty(),
        }
    }

    fn is_roster_of(&self, account: &Arc<Account>) -> bool {
        matches!(self, Outdated::Roster(own) if Arc::ptr_eq(own, account))
    }
}

impl AccountRechecks {
    fn add(&self, failed: FailedRecheck) {
        let mut waiting = self.0.lock();
        let known = match &failed.outdated {
            Outdated::Roster(account) => waiting.iter().any(|other| other.outdated.is_roster_of(account)),
            Outdated::Login(..) => false,
        };
        if !known {
            waiting.push(failed);
        }
    }

    fn take_due(&self, now: u32) -> Vec<FailedRecheck> {
        let mut waiting = self.0.lock();
        if waiting.is_empty() {
            return Vec::new();
        }
        waiting.extract_if(.., |failed| failed.due <= now).collect()
    }
}

impl Node {
    /// Reads the account of a session again, and ends the session if the account was removed or disabled after
    /// its login had read it and before the session was in the routing table, or if that cannot be verified.
    /// `revision` is that of the proved credentials.
    pub(crate) fn recheck_account(self: &Arc<Self>, session: Arc<Session>, revision: u64) {
        self.spawn_recheck(Outdated::Login(session, revision), 1);
    }

    /// Reads the roster view of a connected account again. If it cannot be read, the account's sessions end.
    pub(crate) fn reload_roster(self: &Arc<Self>, account: Arc<Account>) {
        self.spawn_recheck(Outdated::Roster(account), 1);
    }

    /// Repeats failed checks that are due. Called by the sweep.
    pub(crate) fn retry_rechecks(self: &Arc<Self>, now: u32) {
        for FailedRecheck { outdated, attempts, .. } in self.account_rechecks.take_due(now) {
            self.spawn_recheck(outdated, attempts + 1);
        }
    }

    fn spawn_recheck(self: &Arc<Self>, outdated: Outdated, attempts: u32) {
        let node = self.clone();
        self.spawner.spawn(
            "account recheck",
            Box::pin(async move {
                if outdated.is_obsolete() {
                    return;
                }
                let Err(error) = node.run_recheck(&outdated).await else { return };
                let account = &outdated.account().jid;
                if attempts < MAX_ATTEMPTS {
                    tracing::warn!(%account, %error, attempts, "cannot recheck an account; retrying");
                    let due = node.seconds().saturating_add(1);
                    node.account_rechecks.add(FailedRecheck { outdated, attempts, due });
                    return;
                }
                tracing::warn!(%account, %error, attempts, "cannot recheck an account; ending its sessions");
                let why = ServerError::from(error).stream();
                match &outdated {
                    Outdated::Login(session, _) => node.close_and_end(session, why),
                    Outdated::Roster(account) => {
                        for session in account.sessions() {
                            node.close_and_end(&session, why.clone());
                        }
                    }
                }
            }),
        );
    }

    async fn run_recheck(self: &Arc<Self>, outdated: &Outdated) -> Result<(), StoreError> {
        let account = outdated.account();
        match outdated {
            Outdated::Login(session, revision) => {
                let before = self.blocklist_changes(account.jid.as_ref());
                match self.stores.logins.login(account.id, *revision).await? {
                    Some(login) if !login.disabled => {
                        let blocked = store::blocklists::decode(&login.blocklist)?;
                        account.with(|state| {
                            if login.roster_version >= state.roster_version {
                                state.replace_roster(
                                    &self.routing_table,
                                    &login.roster,
                                    login.roster_version,
                                );
                            }
                        });
                        self.refresh_blocklist(account, &blocked, before);
                    }
                    _ => {
                        let why = StreamError::new(StreamCondition::NotAuthorized)
                            .text("the account was removed, disabled or changed");
                        self.close_and_end(session, why);
                    }
                }
            }
            Outdated::Roster(_) => match self.stores.roster.get(account.id).await {
                Ok(roster) => account.with(|state| {
                    if roster.version >= state.roster_version {
                        state.replace_roster(&self.routing_table, &roster.items, roster.version);
                    }
                }),
                // The removal of the account ends its sessions.
                Err(error) if error.kind == StoreErrorKind::NotFound => {}
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    fn close_and_end(self: &Arc<Self>, session: &Arc<Session>, why: StreamError) {
        session.outbox.close(why);
        self.end_session(session);
    }
}
