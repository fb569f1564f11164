//! Resynchronisation of another node: presence after it was cut off, and presence, session reports and changes of accounts
//! after its queue was full.
//!
//! The state of an account is due, not a sequence of stanzas, so an account is due at most once for each node. Accounts are
//! sent one by one until the queue to that node is full: changes of accounts first, because sessions may have to end. Sending
//! continues when that node has handled some of them, and once a second.
//!
//! A node that was cut off has also missed what changed accounts meanwhile: accounts that are connected here are read
//! again before their presence is sent, since their rosters decide who receives it.
//!
//! Not implemented: directed presence (RFC 6121, section 4.6) after a partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use base::spawn::yield_now;
use cluster::{Claim, EnvelopeKind, NodeId, RefusalReason};
use jid::Jid;
use store::{AddressId, Subscription};
use throng_core::account::Account;
use throng_core::session::Session;

use crate::ClusteredNode;

/// What is due for a node.
enum DueItem {
    /// An account changed in the store.
    Change(Jid, EnvelopeKind),
    /// The sessions of an account.
    Report(Jid),
    Account(DueAccount),
    /// The session requests presence from that node.
    Prober(Weak<Session>),
}

/// An account whose presence is due.
struct DueAccount {
    account: Arc<Account>,
    /// Contacts may show resources that are gone, so all are withdrawn first.
    withdraws: bool,
}

#[derive(Default)]
struct DueForNode {
    changes: BTreeMap<Jid, Vec<EnvelopeKind>>,
    reports: BTreeSet<Jid>,
    accounts: BTreeMap<AddressId, DueAccount>,
    /// By address in memory.
    probers: BTreeMap<usize, Weak<Session>>,
    running: bool,
    /// The queue may have room again since the last attempt.
    again: bool,
}

/// Whether accounts are being read again. Nodes that are lost meanwhile repeat it once.
#[derive(Default)]
pub(super) struct AccountReading(LeafMutex<ReadingState>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReadingState {
    #[default]
    Idle,
    Running,
    RunningAndDue,
}

impl AccountReading {
    /// Whether the caller must begin.
    fn begin(&self) -> bool {
        let mut state = self.0.lock();
        let begins = *state == ReadingState::Idle;
        *state = if begins { ReadingState::Running } else { ReadingState::RunningAndDue };
        begins
    }

    /// A pass is over. Whether the caller must begin another one.
    fn repeats(&self) -> bool {
        let mut state = self.0.lock();
        let repeats = *state == ReadingState::RunningAndDue;
        *state = if repeats { ReadingState::Running } else { ReadingState::Idle };
        repeats
    }
}

/// What is due, by node.
#[derive(Default)]
pub(super) struct DuePresence(LeafMutex<BTreeMap<NodeId, DueForNode>>);

impl DuePresence {
    fn add(&self, node: NodeId, account: &Arc<Account>, withdraws: bool) {
        // Users without an account have no contacts.
        if account.id != AddressId::UNASSIGNED {
            let mut nodes = self.0.lock();
            let due = nodes.entry(node).or_default().accounts.entry(account.id);
            due.or_insert_with(|| DueAccount { account: account.clone(), withdraws }).withdraws |= withdraws;
        }
    }

    fn add_prober(&self, node: NodeId, session: Weak<Session>) {
        let mut nodes = self.0.lock();
        nodes.entry(node).or_default().probers.insert(session.as_ptr().addr(), session);
    }

    fn add_report(&self, node: NodeId, account: Jid) {
        self.0.lock().entry(node).or_default().reports.insert(account);
    }

    fn add_change(&self, node: NodeId, account: Jid, kind: EnvelopeKind) {
        let mut nodes = self.0.lock();
        let kinds = nodes.entry(node).or_default().changes.entry(account).or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }

    /// The nodes for which something is due.
    fn nodes(&self) -> Vec<NodeId> {
        self.0.lock().keys().copied().collect()
    }

    /// Whether the caller must start a task. A task that is running tries again instead.
    fn begin(&self, node: NodeId) -> bool {
        match self.0.lock().get_mut(&node) {
            Some(due) if due.running => {
                due.again = true;
                false
            }
            Some(due) => {
                due.running = true;
                true
            }
            None => false,
        }
    }

    fn next(&self, node: NodeId) -> Option<DueItem> {
        let mut nodes = self.0.lock();
        let due = nodes.get_mut(&node)?;
        due.again = false;
        if let Some(mut changes) = due.changes.first_entry() {
            let kind = changes.get_mut().pop();
            let account = changes.key().clone();
            if changes.get().is_empty() {
                changes.remove();
            }
            if let Some(kind) = kind {
                return Some(DueItem::Change(account, kind));
            }
        }
        if let Some(account) = due.reports.pop_first() {
            return Some(DueItem::Report(account));
        }
        if let Some((_, account)) = due.accounts.pop_first() {
            return Some(DueItem::Account(account));
        }
        let prober = due.probers.pop_first().map(|(_, session)| DueItem::Prober(session));
        if prober.is_none() {
            nodes.remove(&node);
        }
        prober
    }

    /// Returns what the queue did not accept. True if it must be tried again immediately.
    fn put_back(&self, node: NodeId, item: DueItem) -> bool {
        match item {
            DueItem::Change(account, kind) => self.add_change(node, account, kind),
            DueItem::Report(account) => self.add_report(node, account),
            DueItem::Account(DueAccount { account, withdraws }) => self.add(node, &account, withdraws),
            DueItem::Prober(session) => self.add_prober(node, session),
        }
        let mut nodes = self.0.lock();
        nodes.get_mut(&node).is_some_and(|due| {
            due.running = std::mem::take(&mut due.again);
            due.running
        })
    }

    pub(super) fn forget_node(&self, node: NodeId) {
        drop(self.0.lock().remove(&node));
    }
}

impl ClusteredNode<'_> {
    /// Contacts on `node` did not receive presence of this account: they receive all of it as soon as there is room.
    pub(super) fn presence_is_due(&self, node: NodeId, account: &Arc<Account>) {
        self.state.due_presence.add(node, account, true);
    }

    /// `node` did not receive the probe of this session.
    pub(super) fn probe_is_due(&self, node: NodeId, session: &Arc<Session>) {
        self.state.due_presence.add_prober(node, Arc::downgrade(session));
    }

    /// `node` did not receive the report of this account's sessions.
    pub(super) fn report_is_due(&self, node: NodeId, account: &Jid) {
        self.state.due_presence.add_report(node, account.clone());
    }

    /// `node` did not receive that this account changed in the store.
    pub(super) fn change_is_due(&self, node: NodeId, account: Jid, kind: EnvelopeKind) {
        self.state.due_presence.add_change(node, account, kind);
    }

    /// Sends what is due for all nodes. Called by the sweep.
    pub(super) fn send_all_due(&self) {
        self.state.due_presence.nodes().into_iter().for_each(|node| self.send_due_presence(node));
    }

    /// Sends what is due for a node, if anything.
    pub(super) fn send_due_presence(&self, to: NodeId) {
        if !self.state.due_presence.begin(to) {
            return;
        }
        let node = self.owned();
        let task = async move {
            let node = node.view();
            while let Some(item) = node.state.due_presence.next(to) {
                match node.send_due_item(to, &item) {
                    Ok(()) => {}
                    Err(RefusalReason::QueueFull) => {
                        if !node.state.due_presence.put_back(to, item) {
                            return;
                        }
                    }
                    Err(RefusalReason::UnknownNode | RefusalReason::OwnNode) => {
                        return node.state.due_presence.forget_node(to);
                    }
                    Err(reason @ (RefusalReason::TooLarge | RefusalReason::Undefined)) => {
                        tracing::debug!(node = %to, %reason, "presence cannot be sent");
                    }
                }
                yield_now().await;
            }
        };
        self.spawner.spawn("presence for another node", Box::pin(task));
    }

    fn send_due_item(&self, to: NodeId, item: &DueItem) -> Result<(), RefusalReason> {
        match item {
            DueItem::Change(account, kind) => self.send_change_of_account(to, account.clone(), *kind),
            DueItem::Report(account) => self.report_again(to, account.as_ref()),
            // All sessions may have ended since, and others begun.
            DueItem::Account(DueAccount { account, withdraws }) => {
                match self.routing_table.find_by_id(account.hash, account.id) {
                    Some(connected) => self.send_presence_of(&connected, to, *withdraws),
                    None => self.send_presence_of(account, to, *withdraws),
                }
            }
            DueItem::Prober(session) => match session.upgrade() {
                Some(session) if session.is_available() => self.probe_on(&session, to),
                _ => Ok(()),
            },
        }
    }

    /// A node is lost. It may have changed accounts and crashed before it could report it, so all accounts that are connected
    /// here are read again. A login in progress reads its account again, too.
    pub(super) fn read_accounts_again(&self) {
        self.advance_all_roster_epochs();
        if !self.state.account_reading.begin() {
            return;
        }
        let node = self.owned();
        let task = async move {
            let node = node.view();
            loop {
                node.read_all_accounts().await;
                if !node.state.account_reading.repeats() {
                    return;
                }
            }
        };
        self.spawner.spawn("accounts after the loss of a node", Box::pin(task));
    }

    async fn read_all_accounts(&self) {
        for shard in 0..self.routing_table.shard_count() {
            let mut accounts = Vec::new();
            self.routing_table.for_each_in_shard(shard, |account| accounts.push(account.clone()));
            for account in accounts.iter().filter(|account| account.id != AddressId::UNASSIGNED) {
                if let Err(error) = self.account_views().refresh_account(self, account).await {
                    tracing::warn!(account = %account.jid, %error, "cannot read an account again after a node was lost");
                }
                yield_now().await;
            }
        }
    }

    /// A node has joined with these claims. If it was considered lost before, both sides have withdrawn presence, and
    /// neither has seen what the other one changed.
    pub(super) fn on_joined_with(&self, from: NodeId, mut claims: Vec<Claim>) {
        let was_lost = self.state.lost.lock().remove(&from);
        for claim in &claims {
            self.report_recently_stored(from, claim.address);
        }
        if was_lost {
            self.handle_missed_notices();
        }
        if !was_lost && claims.is_empty() {
            return;
        }
        claims.sort_unstable_by_key(|claim| (claim.address, claim.number));
        let node = self.owned();
        let task = async move {
            let node = node.view();
            for shard in 0..node.routing_table.shard_count() {
                let mut accounts = Vec::new();
                node.routing_table.for_each_in_shard(shard, |account| accounts.push(account.clone()));
                for account in accounts.iter().filter(|account| account.id != AddressId::UNASSIGNED) {
                    node.rejoin_account(account, from, &claims, was_lost).await;
                    yield_now().await;
                }
                // One shard at a time: contacts of earlier accounts do not wait for the last one.
                node.send_due_presence(from);
            }
        };
        self.spawner.spawn("rejoin of a node", Box::pin(task));
    }

    async fn rejoin_account(&self, account: &Arc<Account>, from: NodeId, claims: &[Claim], was_lost: bool) {
        let claim = |hash: u64, id: AddressId| {
            claims.binary_search_by_key(&(hash, Some(id.0)), |claim| (claim.address, claim.number)).ok()
        };
        let shared = claim(account.hash, account.id).and_then(|at| claims.get(at));
        if let Some(claim) = shared {
            self.on_peer_claim(from, *claim);
        }
        if was_lost && let Err(error) = self.account_views().refresh_account(self, account).await {
            tracing::warn!(account = %account.jid, %error, "cannot read an account again after a partition");
        }
        let concerned = shared.is_some()
            || account.with(|state| {
                state.contacts().iter().any(|contact| {
                    contact.subscription.contains(Subscription::FROM)
                        && claim(contact.hash, contact.id).is_some()
                })
            });
        if concerned {
            self.state.due_presence.add(from, account, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::InvalidationSubject;
    use throng_core::host::Host;
    use throng_core::router::routing_table::RoutingTable;

    fn account(number: u32) -> Arc<Account> {
        let host = Host::new(jid::Jid::parse("example.com").unwrap(), Arc::default());
        let table = RoutingTable::new(cluster::AddressHasher::new([1; 16]));
        let jid = jid::Jid::parse("juliet@example.com").unwrap();
        let host = throng_core::domains::CurrentHost::new(Arc::new(host));
        Arc::new(Account::new(AddressId::new(number).unwrap(), jid, host, &table))
    }

    #[test]
    fn an_account_is_due_once_for_each_node_and_waits_for_room() {
        let due = DuePresence::default();
        let [a, b] = ["a", "b"].map(|name| NodeId::new(name).unwrap());
        let (one, two) = (account(1), account(2));
        assert!(!due.begin(a), "nothing is due");
        for withdraws in [false, true, false] {
            due.add(a, &one, withdraws);
        }
        due.add(a, &two, false);
        due.add(b, &two, false);
        assert!(due.begin(a) && !due.begin(a), "one task for each node");
        let first = due.next(a).unwrap();
        assert!(matches!(&first, DueItem::Account(DueAccount { withdraws: true, .. })));
        assert!(!due.put_back(a, first), "the queue is full");
        assert!(due.begin(a), "it has room again");
        let first = due.next(a).unwrap();
        assert!(!due.begin(a));
        assert!(due.put_back(a, first), "it had room again before the task ended");
        let rest: Vec<DueItem> = std::iter::from_fn(|| due.next(a)).collect();
        assert_eq!(rest.len(), 2);
        assert!(!due.begin(a) && due.begin(b));
        due.forget_node(b);
        assert!(due.0.lock().is_empty());
    }

    #[test]
    fn nodes_that_are_lost_during_a_pass_over_all_accounts_cause_one_more() {
        let reading = AccountReading::default();
        assert!(reading.begin() && !reading.begin() && !reading.begin());
        assert!(reading.repeats() && !reading.repeats());
        assert!(reading.begin());
    }

    #[test]
    fn changes_of_accounts_are_due_once_each_and_before_anything_else() {
        let due = DuePresence::default();
        let (a, one) = (NodeId::new("a").unwrap(), account(1));
        let [deleted, blocklist] =
            [InvalidationSubject::Deleted, InvalidationSubject::Blocklist].map(EnvelopeKind::Invalidation);
        due.add(a, &one, false);
        for _ in 0..2 {
            due.add_report(a, one.jid.clone());
            due.add_change(a, one.jid.clone(), deleted);
            due.add_change(a, one.jid.clone(), blocklist);
        }
        assert_eq!(due.nodes(), [a]);
        assert!(due.begin(a));
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let Some(DueItem::Change(_, kind)) = due.next(a) else { panic!("a change") };
            kinds.push(kind);
        }
        assert!(kinds.contains(&deleted) && kinds.contains(&blocklist));
        let report = due.next(a).unwrap();
        assert!(matches!(report, DueItem::Report(_)));
        assert!(!due.put_back(a, report));
        assert!(due.begin(a) && matches!(due.next(a), Some(DueItem::Report(_))));
        assert!(matches!(due.next(a), Some(DueItem::Account(_))));
        assert!(due.next(a).is_none() && due.nodes().is_empty());
    }
}
