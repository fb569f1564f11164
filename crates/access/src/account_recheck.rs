//! Repeated reads of an account whose view in memory may be outdated, until the view is current or its sessions end.
//!
//! A login reads the account before its session is in the routing table. A write in between does not find the
//! session, so `Node::bind` compares the account's epoch and reads the account again. A roster view is also
//! read again when two changes of a roster were reported in the wrong order.
//!
//! The check fails closed: the account may be disabled, or may have blocked a sender or ended a subscription.
//! After [`MAX_ATTEMPTS`] failed reads, about a second apart, the sessions that depend on the view end.
//!
//! A client can cause such changes as fast as it writes its roster, so an account has at most one reload of its view:
//! a change that is reported during a read repeats the read after it ([`RosterReload`]).
//!
//! # Pitfalls
//!
//! The store bounds the time of each read; nothing here does.

use std::sync::Arc;

use base::lock::LeafMutex;
use stanza::{StreamCondition, StreamError};
use store::{StoreError, StoreErrorKind};
use throng_core::account::Account;
use throng_core::server_error::ServerError;
use throng_core::session::{Extension, Session};

use crate::account_views::Views;

/// Failed reads after which the sessions end.
const MAX_ATTEMPTS: u32 = 3;

/// Data that must be read again.
enum Outdated {
    /// Everything that a login reads. The number is the revision of the proved credentials.
    Login(Arc<Session>, u64),
    /// The roster view of a connected account.
    Roster(RosterReload),
}

/// A check that failed and will be repeated.
struct FailedRecheck {
    outdated: Outdated,
    attempts: u32,
    /// Second of the node's clock.
    due: u32,
}

/// Checks that wait for their next attempt.
#[derive(Default)]
pub(crate) struct AccountRechecks(LeafMutex<Vec<FailedRecheck>>);

/// State of an account whose roster view is being reloaded.
struct ReloadingRoster {
    /// The view became outdated again since its last read began.
    outdated: bool,
}

impl Extension for ReloadingRoster {}

/// The only reload of an account's roster view, with its repetitions; dropping it permits another one.
struct RosterReload {
    account: Arc<Account>,
    ended: bool,
}

impl RosterReload {
    /// Begins a reload. `None` if there is one: it reads again.
    fn begin(account: Arc<Account>) -> Option<RosterReload> {
        let begun = account.with(|state| match state.extension::<ReloadingRoster>() {
            Some(reloading) => {
                reloading.outdated = true;
                false
            }
            None => {
                state.insert_extension(ReloadingRoster { outdated: true });
                true
            }
        });
        begun.then(|| RosterReload { account, ended: false })
    }

    /// Must be called before each read: the read covers all changes reported so far.
    fn start_read(&self) {
        self.account.with(|state| {
            if let Some(reloading) = state.extension::<ReloadingRoster>() {
                reloading.outdated = false;
            }
        });
    }

    /// Ends the reload after a successful read. False if the view became outdated meanwhile.
    fn try_end(&mut self) -> bool {
        self.ended = self.account.with(|state| {
            let outdated = state.extension::<ReloadingRoster>().is_some_and(|reloading| reloading.outdated);
            if !outdated {
                state.remove_extension::<ReloadingRoster>();
            }
            !outdated
        });
        self.ended
    }
}

impl Drop for RosterReload {
    fn drop(&mut self) {
        if !self.ended {
            self.account.with(|state| state.remove_extension::<ReloadingRoster>());
        }
    }
}

impl Outdated {
    fn account(&self) -> &Arc<Account> {
        match self {
            Outdated::Login(session, _) => &session.account,
            Outdated::Roster(reload) => &reload.account,
        }
    }

    /// Whether no session depends on the result any more.
    fn is_obsolete(&self) -> bool {
        match self {
            Outdated::Login(session, _) => session.is_ended(),
            Outdated::Roster(reload) => reload.account.sessions().is_empty(),
        }
    }

    /// Ends the check after a successful read. False if another read is needed.
    fn try_end(&mut self) -> bool {
        match self {
            Outdated::Login(..) => true,
            Outdated::Roster(reload) => reload.try_end(),
        }
    }
}

impl AccountRechecks {
    fn add(&self, failed: FailedRecheck) {
        self.0.lock().push(failed);
    }

    fn take_due(&self, now: u32) -> Vec<FailedRecheck> {
        let mut rechecks = self.0.lock();
        if rechecks.is_empty() {
            return Vec::new();
        }
        rechecks.extract_if(.., |failed| failed.due <= now).collect()
    }
}

impl Views<'_> {
    /// Repeats the checks that are due.
    pub(crate) fn repeat_rechecks(&self, now: u32) {
        for FailedRecheck { outdated, attempts, .. } in self.state.rechecks.take_due(now) {
            self.spawn_recheck(outdated, attempts + 1);
        }
    }

    /// See [`throng_core::account_views::AccountViews::recheck_login`].
    pub(crate) fn recheck_login(&self, session: Arc<Session>, revision: u64) {
        self.spawn_recheck(Outdated::Login(session, revision), 1);
    }

    /// See [`throng_core::account_views::AccountViews::reload_roster`].
    pub(crate) fn reload_roster(&self, account: Arc<Account>) {
        if let Some(reload) = RosterReload::begin(account) {
            self.spawn_recheck(Outdated::Roster(reload), 1);
        }
    }

    /// See [`throng_core::account_views::AccountViews::refresh_account`].
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn refresh_account(&self, account: &Arc<Account>) -> Result<(), StoreError> {
        let jid = account.jid.as_ref();
        for _ in 0..MAX_ATTEMPTS {
            let before = self.state.blocklists.record_change(jid);
            // The two reads of a login: those of several accounts share a statement.
            let Some(secrets) = self.stores.logins.secrets(jid).await?.filter(|secrets| !secrets.disabled)
            else {
                break;
            };
            match self.stores.logins.login(account.id, secrets.revision).await? {
                Some(login) if !login.disabled => {
                    let blocked = store::blocklists::decode(&login.blocklist)?;
                    let former = account.blocked();
                    // First: contacts that the new roster shows presence to may be blocked.
                    self.set_blocklist(account, Some(blocked), before).await?;
                    self.replace_roster_view(account, &login.roster, login.roster_version);
                    self.exchange_presence_after_block(account, former).await;
                    return Ok(());
                }
                Some(_) => break,
                // The password was changed between the two.
                None => {}
            }
        }
        let text = "the account was removed or disabled";
        self.end_sessions(jid, &StreamError::new(StreamCondition::NotAuthorized).text(text));
        self.state.blocklists.record_change(jid);
        Ok(())
    }

    fn spawn_recheck(&self, mut outdated: Outdated, mut attempts: u32) {
        let views = self.owned();
        self.spawner.spawn(
            "account recheck",
            Box::pin(async move {
                let node = views.view();
                let error = loop {
                    if outdated.is_obsolete() {
                        return;
                    }
                    match node.run_recheck(&outdated).await {
                        Err(error) => break error,
                        Ok(()) if outdated.try_end() => return,
                        Ok(()) => attempts = 1,
                    }
                };
                let account = &outdated.account().jid;
                if attempts < MAX_ATTEMPTS {
                    tracing::warn!(%account, %error, attempts, "cannot recheck an account; retrying");
                    let due = node.seconds().saturating_add(1);
                    node.state.rechecks.add(FailedRecheck { outdated, attempts, due });
                    return;
                }
                tracing::warn!(%account, %error, attempts, "cannot recheck an account; ending its sessions");
                let reason = ServerError::from(error).stream();
                match &outdated {
                    Outdated::Login(session, _) => node.close_and_end(session, reason),
                    Outdated::Roster(reload) => {
                        for session in reload.account.sessions() {
                            node.close_and_end(&session, reason.clone());
                        }
                    }
                }
            }),
        );
    }

    async fn run_recheck(&self, outdated: &Outdated) -> Result<(), StoreError> {
        let account = outdated.account();
        match outdated {
            Outdated::Login(session, revision) => {
                let before = self.blocklist_changes(account.jid.as_ref());
                match self.stores.logins.login(account.id, *revision).await? {
                    Some(login) if !login.disabled => {
                        let blocked = store::blocklists::decode(&login.blocklist)?;
                        self.replace_roster_view(account, &login.roster, login.roster_version);
                        self.set_blocklist(account, Some(blocked), before).await?;
                    }
                    _ => {
                        let reason = StreamError::new(StreamCondition::NotAuthorized)
                            .text("the account was removed, disabled or changed");
                        self.close_and_end(session, reason);
                    }
                }
            }
            Outdated::Roster(reload) => {
                reload.start_read();
                match self.stores.roster.get(account.id).await {
                    Ok(roster) => self.replace_roster_view(account, &roster.items, roster.version),
                    // The removal of the account ends its sessions.
                    Err(error) if error.kind == StoreErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn close_and_end(&self, session: &Arc<Session>, reason: StreamError) {
        session.outbox.close(reason);
        self.end_session(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_core::Host;
    use throng_core::router::routing_table::RoutingTable;

    fn account() -> Arc<Account> {
        let host = Host::new(jid::Jid::parse("example.com").unwrap(), Arc::default());
        let table = RoutingTable::new(cluster::AddressHasher::new([1; 16]));
        let jid = jid::Jid::parse("juliet@example.com").unwrap();
        let host = throng_core::domains::CurrentHost::new(Arc::new(host));
        Arc::new(Account::new(store::AddressId::UNASSIGNED, jid, host, &table))
    }

    #[test]
    fn a_change_reported_during_a_read_repeats_that_read_only() {
        let (juliet, romeo) = (account(), account());
        let mut reload = RosterReload::begin(juliet.clone()).unwrap();
        assert!(
            RosterReload::begin(juliet.clone()).is_none(),
            "the read has not begun, so it covers this change"
        );
        reload.start_read();
        assert!(reload.try_end());
        let mut reload = RosterReload::begin(juliet.clone()).expect("another one may begin");
        reload.start_read();
        assert!(RosterReload::begin(juliet.clone()).is_none() && !reload.try_end(), "read again");
        reload.start_read();
        assert!(reload.try_end());
        drop(reload);
        // One that fails permits another one, too, and accounts do not delay each other.
        drop(RosterReload::begin(juliet.clone()).unwrap());
        let _juliet = RosterReload::begin(juliet).unwrap();
        let _romeo = RosterReload::begin(romeo).unwrap();
    }
}
