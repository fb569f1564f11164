//! Invalidations: a node that changes an account in the store reports it to all others, which may have sessions or logins of
//! that account.
//!
//! The report has the subject, and each node reads again what it holds in memory. A login that read the
//! account before sees the changed epoch ([`throng_core::Node::epoch`]), as if the write had been made on its own node.
//!
//! What does not fit into the queue of a node becomes due (`due_presence`). When a node is lost, the others read the
//! accounts that they have again, since it may have written and not reported.
//!
//! Passwords need no report: no node holds them for a session, and the store ends a login that proved a former one
//! ([`store::AccountSecrets::revision`]). The message of the day is a notice of its feature (`notices.rs`).
//!
//! # Pitfalls
//!
//! Must be sent after the write, and before anything that other nodes do because of it.

use std::sync::Arc;

use arc_swap::Guard;
use base::lock::LeafMutex;
use cluster::{
    Envelope, EnvelopeClass, EnvelopeKind, HandoverResult, InvalidationSubject, NodeId, PeerViolation,
    Recipient, RefusalReason, RefusedEnvelope,
};
use hashbrown::HashMap;
use jid::{Jid, JidRef};
use throng_core::account::Account;
use throng_core::router::LifecycleEvent;
use throng_core::session::flags;

use super::home::PeerState;
use super::inbox::settle;
use crate::ClusteredNode;

/// Accounts that are being read because another node changed them. So one read of an account runs at a time, however many changes a
/// node reports.
#[derive(Default)]
pub(super) struct AccountReads(LeafMutex<HashMap<(Jid, InvalidationSubject), ChangesDuringRead>>);

/// What was reported since the read of an account began.
#[derive(Default)]
struct ChangesDuringRead {
    /// It changed again.
    again: bool,
    /// Reports that are settled after the next read.
    reports: Vec<(NodeId, Envelope)>,
}

/// Settles a report.
type SettleReport = Box<dyn Fn(NodeId, &Envelope) + Send>;

/// The only read of an account for a subject; dropping it permits another one, and settles all reports. If it has not ended, all
/// accounts are read again soon.
struct AccountRead {
    state: Arc<PeerState>,
    key: (Jid, InvalidationSubject),
    /// Reports that are settled after it.
    reports: Vec<(NodeId, Envelope)>,
    settle: SettleReport,
    ended: bool,
}

impl AccountRead {
    /// `None` if one is running: it is repeated. A report is settled after the read that covers it.
    fn begin(
        state: &Arc<PeerState>,
        jid: Jid,
        subject: InvalidationSubject,
        report: Option<(NodeId, Envelope)>,
        settle: SettleReport,
    ) -> Option<AccountRead> {
        let key = (jid, subject);
        let mut reads = state.reads.0.lock();
        if let Some(changes) = reads.get_mut(&key) {
            changes.again = true;
            changes.reports.extend(report);
            return None;
        }
        reads.insert(key.clone(), ChangesDuringRead::default());
        drop(reads);
        let reports = report.into_iter().collect();
        Some(AccountRead { state: state.clone(), key, reports, settle, ended: false })
    }

    /// A read is over: settles the reports that it covers.
    fn settle_reports(&mut self) {
        for (from, report) in self.reports.drain(..) {
            (self.settle)(from, &report);
        }
    }

    /// A read is over. Whether the account must be read again.
    fn repeats(&mut self) -> bool {
        let mut reads = self.state.reads.0.lock();
        let changes = reads.get_mut(&self.key).map(std::mem::take).unwrap_or_default();
        self.reports.extend(changes.reports);
        if !changes.again {
            reads.remove(&self.key);
            self.ended = true;
        }
        changes.again
    }
}

impl Drop for AccountRead {
    fn drop(&mut self) {
        if !self.ended {
            // What was reported during the read is not read by anybody else.
            self.state.account_reading.require(0);
            let changes = self.state.reads.0.lock().remove(&self.key);
            self.reports.extend(changes.unwrap_or_default().reports);
        }
        // Also if the task ended by a panic or at shutdown: an unsettled report would stay in the queue of its sender.
        self.settle_reports();
    }
}

impl ClusteredNode<'_> {
    /// Reports a change of an account in the store to all other nodes.
    pub(super) fn invalidate_elsewhere(&self, jid: JidRef<'_>, subject: InvalidationSubject) {
        let recipients = vec![Recipient::Address(jid.bare().to_jid())];
        let kind = EnvelopeKind::Invalidation(subject);
        let envelope =
            Envelope::new(kind, EnvelopeClass::Control, self.cluster.node(), recipients, Vec::new());
        for refused in self.cluster.broadcast(envelope).refused {
            self.change_was_refused(jid, kind, &refused);
        }
    }

    pub(super) fn change_was_refused(
        &self,
        account: JidRef<'_>,
        kind: EnvelopeKind,
        refused: &RefusedEnvelope,
    ) {
        if refused.reason == RefusalReason::QueueFull {
            self.change_is_due(refused.node, account.bare().to_jid(), kind);
        } else {
            let kind = crate::envelope_kinds::name(kind);
            tracing::warn!(%account, kind, %refused, "an account change could not be reported to a node");
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

    /// Another node has changed a blocklist. The report is settled when the list of a connected account was read: the user is not
    /// answered before.
    pub(super) fn on_blocklist_change(&self, from: NodeId, envelope: Envelope) {
        let account = match &envelope.recipients[..] {
            [Recipient::Address(owner)] => Some(owner.clone()),
            _ => None,
        };
        let Some(owner) = account else {
            self.note_violation(from, PeerViolation::Payload);
            return settle(self, from, &envelope, HandoverResult::Safe);
        };
        self.read_blocklist(owner.as_ref(), Some((from, envelope)));
    }

    fn read_blocklist(&self, owner: JidRef<'_>, report: Option<(NodeId, Envelope)>) {
        self.account_views().forget_blocklist(owner);
        self.advance_roster_epoch(owner);
        self.read_account(owner, InvalidationSubject::Blocklist, report);
    }

    /// Another node has changed an account in the store.
    pub(super) fn on_invalidation(&self, jid: JidRef<'_>, subject: InvalidationSubject) {
        match subject {
            InvalidationSubject::SubscriptionRequest => {
                self.advance_roster_epoch(jid);
                self.read_account(jid, subject, None);
            }
            InvalidationSubject::Roster => {
                self.advance_roster_epoch(jid);
                if let Some(account) = self.routing_table.find(jid) {
                    self.note_pushed_version(&account);
                    // The roster that a login has read would answer the first request of a client.
                    account.with(|state| drop(state.take_prefetched()));
                    self.account_views().reload_roster(self, account);
                }
            }
            InvalidationSubject::Blocklist => self.read_blocklist(jid, None),
            // It may be enabled again when this arrives.
            InvalidationSubject::Disabled => {
                self.advance_roster_epoch(jid);
                self.read_account(jid, subject, None);
            }
            InvalidationSubject::Deleted => {
                self.end_sessions_here(jid, "the account was removed");
                self.account_views().forget_blocklist(jid);
            }
        }
    }

    /// Another node, which did not know of the sessions here, has stored a subscription request. They are shown all requests, as
    /// when they became available (RFC 6121, section 3.1.3): one that becomes available at this moment may receive it twice.
    fn show_requests_again(&self, account: &Arc<Account>) {
        let host = Guard::into_inner(account.host());
        for session in account.sessions() {
            if session.priority().is_some() && session.flags.has(flags::REQUESTS_SHOWN) {
                session.flags.clear(flags::REQUESTS_SHOWN);
                self.run_event_spawned(LifecycleEvent::Available(session), host.clone());
            }
        }
    }

    /// Reads a connected account again, or its blocklist, and settles the report then. Its sessions end if it is disabled or cannot
    /// be read.
    fn read_account(
        &self,
        jid: JidRef<'_>,
        subject: InvalidationSubject,
        report: Option<(NodeId, Envelope)>,
    ) {
        let Some(account) = self.routing_table.find(jid) else {
            if let Some((from, report)) = report {
                settle(self, from, &report, HandoverResult::Safe);
            }
            return;
        };
        self.note_pushed_version(&account);
        let node = self.owned();
        let settles: SettleReport =
            Box::new(move |from, report| settle(&node.view(), from, report, HandoverResult::Safe));
        let read = AccountRead::begin(self.state, account.jid.clone(), subject, report, settles);
        let Some(mut read) = read else { return };
        let node = self.owned();
        let task = async move {
            let node = node.view();
            loop {
                // The sessions may have ended, and others begun.
                if let Some(account) = node.routing_table.find(read.key.0.as_ref()) {
                    if subject == InvalidationSubject::Blocklist {
                        node.account_views().reload_blocklist(&node, &account).await;
                    } else if let Err(error) = node.account_views().refresh_account(&node, &account).await {
                        tracing::warn!(account = %account.jid, %error, "cannot read an account that changed");
                        node.end_sessions_here(account.jid.as_ref(), "the account may be disabled");
                    } else if subject == InvalidationSubject::SubscriptionRequest {
                        node.show_requests_again(&account);
                    }
                }
                read.settle_reports();
                if !read.repeats() {
                    return;
                }
            }
        };
        self.spawner.spawn("account recheck", Box::pin(task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_read_of_an_account_runs_at_a_time_and_covers_later_changes() {
        let (state, juliet) = (Arc::<PeerState>::default(), Jid::parse("juliet@example.com").unwrap());
        let begin = |subject| AccountRead::begin(&state, juliet.clone(), subject, None, Box::new(|_, _| {}));
        let mut read = begin(InvalidationSubject::Disabled).expect("the first");
        assert!((0..100).all(|_| begin(InvalidationSubject::Disabled).is_none()));
        assert!(begin(InvalidationSubject::Blocklist).is_some(), "another subject");
        assert!(read.repeats() && !read.repeats());
        drop(read);
        drop(begin(InvalidationSubject::Disabled).expect("the next"));
        assert!(state.reads.0.lock().is_empty(), "also if a read does not end");
    }

    #[test]
    fn a_report_is_settled_after_the_read_that_covers_it() {
        let (state, juliet) = (Arc::<PeerState>::default(), Jid::parse("juliet@example.com").unwrap());
        let node = NodeId::new("a").unwrap();
        let kind = EnvelopeKind::Invalidation(InvalidationSubject::Blocklist);
        let report = |sequence| {
            let mut report = Envelope::new(kind, EnvelopeClass::Control, node, Vec::new(), Vec::new());
            report.header.sequence = sequence;
            Some((node, report))
        };
        let sequences = Arc::<LeafMutex<Vec<u64>>>::default();
        let begin = |sequence| {
            let (subject, sequences) = (InvalidationSubject::Blocklist, sequences.clone());
            let settle = move |_, report: &Envelope| sequences.lock().push(report.header.sequence);
            AccountRead::begin(&state, juliet.clone(), subject, report(sequence), Box::new(settle))
        };
        let settled = || std::mem::take(&mut *sequences.lock());
        let mut read = begin(1).expect("the first");
        assert!(begin(2).is_none() && begin(3).is_none());
        read.settle_reports();
        assert_eq!(settled(), [1]);
        assert!(read.repeats());
        read.settle_reports();
        assert_eq!(settled(), [2, 3]);
        assert!(!read.repeats());
        drop(read);
        assert_eq!(settled(), []);
        // A read that fails is dropped.
        let read = begin(4).expect("the next");
        assert!(begin(5).is_none());
        assert!(!state.account_reading.begin_retry(0));
        drop(read);
        assert_eq!(settled(), [4, 5]);
        assert!(state.account_reading.begin_retry(0), "the next sweep reads what the failed read has not");
        assert!(state.reads.0.lock().is_empty());
    }
}
