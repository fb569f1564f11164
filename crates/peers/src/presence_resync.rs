//! Resynchronisation of another node: presence after it was cut off, and presence, session reports and changes of accounts
//! after its queue was full.
//!
//! What is due (`due_presence`) is sent one by one until the queue to that node is full. Sending continues when that node has
//! handled some of it, and once a second.
//!
//! A node that was cut off has also missed what changed accounts meanwhile, and so has one that served clients before it reached the
//! others for the first time: accounts that are connected here are read again when a node joins that was lost, has sessions or
//! is older than this one, before their presence is sent, since their rosters decide who receives it.
//!
//! If too much was due for a node, both nodes repeat for all accounts that are connected to them what they do at a login: an account
//! is read again, its contacts are withdrawn, and their presence is requested. That goes on only while little is due for any
//! node, so that it does not discard anything itself. A node for which everything was discarded has nothing due: it gets an
//! exchange of its own when it handles something again.
//!
//! Not implemented: directed presence (RFC 6121, section 4.6) after a partition.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::lock::LeafMutex;
use base::spawn::{BoxFuture, join_all, yield_now};
use cluster::{Claim, Envelope, EnvelopeClass, EnvelopeKind, NodeId, RefusalReason};
use jid::Jid;
use store::{AddressId, StoreError, Subscription};
use throng_core::account::{Account, Contact};
use throng_core::session::Session;

use super::due_presence::{DueAccount, DueItem, PutBack};
use super::peer_presence::unavailable;
use crate::ClusteredNode;
use crate::envelope_kinds::{NOTICES_MISSED, RESYNC};

/// Seconds after which the accounts are read again if one could not be read.
const RETRY_SECONDS: u32 = 5;
/// Accounts that are read at the same time: a database reads them with one statement, as it does those that log in together.
const MAX_CONCURRENT_READS: usize = 32;

/// Runs the work for each account, for [`MAX_CONCURRENT_READS`] of them at a time.
async fn run_in_groups<'a>(
    accounts: &'a [Arc<Account>],
    work: impl Fn(&'a Arc<Account>) -> BoxFuture<'a, ()>,
) {
    for group in accounts.chunks(MAX_CONCURRENT_READS) {
        join_all(group.iter().map(&work).collect()).await;
        yield_now().await;
    }
}

/// Whether a pass over all accounts is running. What happens meanwhile repeats it once.
#[derive(Default)]
pub(super) struct AccountPass(LeafMutex<PassState>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PassState {
    #[default]
    Idle,
    Running,
    RunningAndDue,
    /// An account could not be read.
    Failed {
        /// Second of the node's clock.
        retry_at: u32,
    },
}

impl AccountPass {
    /// Whether the caller must begin.
    fn begin(&self) -> bool {
        let mut state = self.0.lock();
        let begins = matches!(*state, PassState::Idle | PassState::Failed { .. });
        *state = if begins { PassState::Running } else { PassState::RunningAndDue };
        begins
    }

    /// Whether a pass has failed and the caller must begin another one.
    pub(super) fn begin_retry(&self, now: u32) -> bool {
        let mut state = self.0.lock();
        let due = matches!(*state, PassState::Failed { retry_at } if retry_at <= now);
        if due {
            *state = PassState::Running;
        }
        due
    }

    /// The pass has ended early.
    fn fail(&self, retry_at: u32) {
        *self.0.lock() = PassState::Failed { retry_at };
    }

    /// An account could not be read outside a pass: there will be one.
    pub(super) fn require(&self, retry_at: u32) {
        let mut state = self.0.lock();
        *state = match *state {
            PassState::Idle => PassState::Failed { retry_at },
            PassState::Running => PassState::RunningAndDue,
            other => other,
        };
    }

    /// A pass is over. Whether the caller must begin another one.
    fn repeats(&self) -> bool {
        let mut state = self.0.lock();
        let repeats = *state == PassState::RunningAndDue;
        *state = if repeats { PassState::Running } else { PassState::Idle };
        repeats
    }
}

/// Result of sending the first push that waits for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushOutcome {
    Sent,
    /// There is none, or another thread is sending, which sends this one, too, or the node must be notified of lost ones before: then the
    /// task that does that sends it.
    NotNow,
}

/// Nodes with which everything must be exchanged again.
#[derive(Default)]
struct ResyncNodes {
    /// What was due for them was discarded here.
    discarded_for: BTreeSet<NodeId>,
    /// They have discarded what was due for this node.
    missed_from: BTreeSet<NodeId>,
}

/// The exchange with these nodes.
#[derive(Default)]
pub(super) struct Resync {
    pass: AccountPass,
    nodes: LeafMutex<ResyncNodes>,
}

impl ClusteredNode<'_> {
    /// Contacts on `node` did not receive presence of this account: they receive all of it as soon as there is room.
    pub(super) fn presence_is_due(&self, node: NodeId, account: &Arc<Account>) {
        let fits = self.state.due_presence.add_account(node, account, true);
        self.note_discarded(node, fits);
    }

    /// `node` did not receive the probe of this session.
    pub(super) fn probe_is_due(&self, node: NodeId, session: &Arc<Session>) {
        let fits = self.state.due_presence.add_prober(node, Arc::downgrade(session));
        self.note_discarded(node, fits);
    }

    /// `node` did not receive the report of this account's sessions.
    pub(super) fn report_is_due(&self, node: NodeId, account: &Jid) {
        let fits = self.state.due_presence.add_report(node, account.clone());
        self.note_discarded(node, fits);
    }

    /// `node` did not receive what is for accounts whose sessions have moved there.
    pub(super) fn forwarding_is_due(&self, node: NodeId, envelope: Envelope) {
        let fits = self.state.due_presence.add_forwarded(node, envelope);
        self.note_discarded(node, fits);
    }

    /// `node` did not receive a notice.
    pub(super) fn notices_are_due(&self, node: NodeId) {
        let fits = self.state.due_presence.add_notices(node);
        self.note_discarded(node, fits);
    }

    /// Sends a push to `node`, behind those that wait for room.
    pub(super) fn push_in_order(&self, node: NodeId, account: &Account, push: Envelope) {
        let (discarded, fits) = self.state.due_presence.add_push(node, account.jid.clone(), push);
        self.note_discarded(node, fits);
        if discarded > 0 {
            tracing::warn!(%node, discarded, "discarded the oldest roster and blocklist pushes for a node that is too slow");
            // It is notified before later pushes, so that it answers the next roster requests of their clients in full.
            self.send_due_presence(node);
        }
        loop {
            match self.send_push(node) {
                Ok(PushOutcome::Sent) | Err(RefusalReason::TooLarge | RefusalReason::Undefined) => {}
                Ok(PushOutcome::NotNow) | Err(_) => return,
            }
        }
    }

    /// Sends the first push that waits.
    fn send_push(&self, to: NodeId) -> Result<PushOutcome, RefusalReason> {
        let Some((number, push)) = self.state.due_presence.begin_push(to) else {
            return Ok(PushOutcome::NotNow);
        };
        let sent =
            self.cluster.deliver(to, push).map(|_| PushOutcome::Sent).map_err(|refused| refused.reason);
        self.state.due_presence.end_push(to, number, sent == Err(RefusalReason::QueueFull));
        if let Err(reason) = sent {
            tracing::debug!(node = %to, %reason, "a push waits for room, or was discarded");
        }
        sent
    }

    /// `node` did not receive that this account changed in the store.
    pub(super) fn change_is_due(&self, node: NodeId, account: Jid, kind: EnvelopeKind) {
        let fits = self.state.due_presence.add_change(node, account, kind);
        self.note_discarded(node, fits);
    }

    /// Counts that what was due for a node was discarded, unless it fits.
    fn note_discarded(&self, node: NodeId, fits: bool) {
        if !fits {
            self.metrics.cluster_resyncs.inc();
            tracing::warn!(%node, "too much is due for a node that does not handle it; presence will be exchanged with it again");
        }
    }

    /// Sends what is due for all nodes. Called by the sweep, and often while this node shuts down.
    pub(super) fn send_all_due(&self) {
        self.state.due_errors.nodes().into_iter().for_each(|node| self.send_due_errors(node));
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
                        let PutBack { tries_again, fits } = node.state.due_presence.put_back(to, item);
                        node.note_discarded(to, fits);
                        if !tries_again {
                            return;
                        }
                    }
                    Err(RefusalReason::UnknownNode | RefusalReason::OwnNode) => {
                        return node.state.due_presence.forget_node(to);
                    }
                    Err(reason @ (RefusalReason::TooLarge | RefusalReason::Undefined)) => {
                        tracing::debug!(node = %to, %reason, "an item that was due cannot be sent");
                    }
                }
                yield_now().await;
            }
        };
        self.spawner.spawn("presence for another node", Box::pin(task));
    }

    fn send_due_item(&self, to: NodeId, item: &DueItem) -> Result<(), RefusalReason> {
        match item {
            DueItem::Resync => self.announce_resync(to),
            DueItem::Push => self.send_push(to).map(drop),
            DueItem::Change(account, kind) => self.send_change_of_account(to, account.clone(), *kind),
            DueItem::Notices => self.send_empty(to, NOTICES_MISSED),
            DueItem::Report(account) => self.report_again(to, account.as_ref()),
            // All sessions may have ended since, and others begun.
            DueItem::Account(DueAccount { account, withdraws, .. }) => {
                match self.routing_table.find_by_id(account.hash, account.id) {
                    Some(connected) => self.send_presence_of(&connected, to, *withdraws),
                    None => self.send_presence_of(account, to, *withdraws),
                }
            }
            DueItem::Prober(session) => match session.upgrade() {
                Some(session) if session.is_available() => self.probe_on(&session, to),
                _ => Ok(()),
            },
            DueItem::Forwarded(envelope) => self.hand_over_presence(to, envelope.clone()),
        }
    }

    /// A node is lost. It may have changed accounts and crashed before it could report it, so all accounts that are connected
    /// here are read again, until all could be read. A login in progress reads its account again, too.
    pub(super) fn read_accounts_again(&self) {
        self.advance_all_roster_epochs();
        if self.state.account_reading.begin() {
            self.spawn_account_pass();
        }
    }

    /// Begins the pass over all accounts again that has failed. Called by the sweep.
    pub(super) fn retry_account_pass(&self) {
        if self.state.account_reading.begin_retry(self.seconds()) {
            self.spawn_account_pass();
        }
    }

    fn spawn_account_pass(&self) {
        let node = self.owned();
        let task = async move {
            let node = node.view();
            loop {
                if !node.read_all_accounts().await {
                    node.state.account_reading.fail(node.seconds() + RETRY_SECONDS);
                    return;
                }
                if !node.state.account_reading.repeats() {
                    return;
                }
            }
        };
        self.spawner.spawn("accounts after the loss of a node", Box::pin(task));
    }

    /// False if an account could not be read: the pass ends there.
    async fn read_all_accounts(&self) -> bool {
        let failed = AtomicBool::new(false);
        for shard in 0..self.routing_table.shard_count() {
            let accounts = self.stored_accounts(shard);
            let read = async |account: &Arc<Account>| {
                if failed.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) = self.read_account_again(account).await
                    && !failed.swap(true, Ordering::Relaxed)
                {
                    tracing::warn!(
                        account = %account.jid,
                        %error,
                        "cannot read the accounts again after a node was lost; retrying"
                    );
                }
            };
            run_in_groups(&accounts, |account| Box::pin(read(account))).await;
            if failed.load(Ordering::Relaxed) {
                return false;
            }
        }
        true
    }

    /// Reads an account again. If its roster has changes that were not pushed, its clients have missed them.
    async fn read_account_again(&self, account: &Arc<Account>) -> Result<(), StoreError> {
        self.note_pushed_version(account);
        self.account_views().refresh_account(self, account).await?;
        self.mark_missed_pushes(account);
        Ok(())
    }

    /// The connected accounts of a shard, except anonymous ones (SASL ANONYMOUS), which are not in the store.
    fn stored_accounts(&self, shard: usize) -> Vec<Arc<Account>> {
        let mut accounts = Vec::new();
        self.routing_table.for_each_in_shard(shard, |account| {
            if account.id != AddressId::UNASSIGNED {
                accounts.push(account.clone());
            }
        });
        accounts
    }

    /// A node has joined with these claims. If it was considered lost before, both sides have withdrawn presence, and neither has
    /// seen what the other one changed; nor has a node that served clients before it reached the other one.
    pub(super) fn on_joined_with(&self, from: NodeId, mut claims: Vec<Claim>) {
        let was_lost = self.state.lost.lock().remove(&from);
        for claim in &claims {
            self.report_recently_stored(from, claim.address);
        }
        self.handle_missed_notices(from);
        self.show_interrupted_sessions(from);
        // Each start of a node would otherwise have the others read all their accounts.
        if !was_lost && claims.is_empty() && !self.is_older(from) {
            return;
        }
        claims.sort_unstable_by_key(|claim| (claim.address, claim.number));
        let node = self.owned();
        let task = async move {
            let node = node.view();
            for shard in 0..node.routing_table.shard_count() {
                let accounts = node.stored_accounts(shard);
                let rejoin = async |account| node.rejoin_account(account, from, &claims).await;
                run_in_groups(&accounts, |account| Box::pin(rejoin(account))).await;
                // One shard at a time: contacts of earlier accounts do not wait for the last one.
                node.send_due_presence(from);
            }
        };
        self.spawner.spawn("rejoin of a node", Box::pin(task));
    }

    /// Whether another member was started before this node: its epoch is lower.
    fn is_older(&self, other: NodeId) -> bool {
        let own = self.cluster.node();
        let members = self.cluster.members();
        let epoch = |node| members.iter().find(|member| member.node == node).map(|member| member.epoch);
        epoch(other) < epoch(own)
    }

    async fn rejoin_account(&self, account: &Arc<Account>, from: NodeId, claims: &[Claim]) {
        let claim = |hash: u64, id: AddressId| {
            claims.binary_search_by_key(&(hash, Some(id.0)), |claim| (claim.address, claim.number)).ok()
        };
        let shared = claim(account.hash, account.id).and_then(|at| claims.get(at));
        if let Some(claim) = shared {
            self.on_peer_claim(from, *claim);
        }
        if let Err(error) = self.read_account_again(account).await {
            tracing::warn!(account = %account.jid, %error, "cannot read an account again after a node joined; retrying");
            self.state.account_reading.require(self.seconds() + RETRY_SECONDS);
        }
        let concerned = shared.is_some()
            || account.with(|state| {
                state.contacts().iter().any(|contact| {
                    contact.subscription.contains(Subscription::FROM)
                        && claim(contact.hash, contact.id).is_some()
                })
            });
        if concerned {
            let fits = self.state.due_presence.add_account(from, account, false);
            self.note_discarded(from, fits);
        }
    }

    /// Tells a node that what was due for it was discarded.
    fn announce_resync(&self, to: NodeId) -> Result<(), RefusalReason> {
        self.send_empty(to, RESYNC)?;
        self.resynchronise(|nodes| nodes.discarded_for.insert(to));
        Ok(())
    }

    /// Sends an envelope that says everything by its kind.
    pub(super) fn send_empty(&self, to: NodeId, kind: EnvelopeKind) -> Result<(), RefusalReason> {
        let own = self.cluster.node();
        let envelope = Envelope::new(kind, EnvelopeClass::Control, own, Vec::new(), Vec::new());
        self.cluster.deliver(to, envelope).map_err(|refused| refused.reason)?;
        Ok(())
    }

    /// Another node has discarded what was due for this one.
    pub(super) fn on_resync(&self, from: NodeId) {
        self.handle_missed_notices(from);
        self.read_accounts_again();
        self.resynchronise(|nodes| nodes.missed_from.insert(from));
    }

    /// Begins an exchange with the nodes that `add` adds.
    fn resynchronise(&self, add: impl FnOnce(&mut ResyncNodes) -> bool) {
        add(&mut self.state.resync.nodes.lock());
        if !self.state.resync.pass.begin() {
            return;
        }
        let node = self.owned();
        let task = async move {
            let node = node.view();
            loop {
                let nodes = std::mem::take(&mut *node.state.resync.nodes.lock());
                node.exchange_all(&nodes).await;
                if !node.state.resync.pass.repeats() {
                    return;
                }
            }
        };
        self.spawner.spawn("presence of all accounts", Box::pin(task));
    }

    async fn exchange_all(&self, nodes: &ResyncNodes) {
        for shard in 0..self.routing_table.shard_count() {
            for account in &self.stored_accounts(shard) {
                poll_fn(|cx| self.state.due_presence.poll_room(cx)).await;
                if !nodes.discarded_for.is_empty() {
                    self.report_sessions(account);
                }
                for session in account.sessions().iter().filter(|session| session.is_available()) {
                    for node in &nodes.discarded_for {
                        if self.probe_on(session, *node).is_err() {
                            self.probe_is_due(*node, session);
                        }
                    }
                }
                if !nodes.missed_from.is_empty()
                    && let Err(error) = self.request_all_presence(account, &nodes.missed_from).await
                {
                    tracing::warn!(account = %account.jid, %error, "contacts may be shown as available that are not");
                }
                yield_now().await;
            }
        }
    }

    /// Withdraws what the sessions of an account have received from other nodes, and requests it again.
    async fn request_all_presence(
        &self,
        account: &Arc<Account>,
        missed_from: &BTreeSet<NodeId>,
    ) -> Result<(), StoreError> {
        account.with(|state| state.may_have_offline_messages = true);
        self.deliver_stored(account);
        if account.with(|state| state.peers().iter().any(|peer| missed_from.contains(&peer.node))) {
            self.withdraw_other_resources(account);
            self.mark_roster_outdated(account);
        }
        let contacts: Vec<Contact> = account.with(|state| {
            let of = |contact: &&Contact| contact.subscription.contains(Subscription::TO);
            state.contacts().iter().filter(of).filter(|contact| !contact.is_foreign).copied().collect()
        });
        if contacts.is_empty() || !account.sessions().iter().any(|session| session.is_available()) {
            return Ok(());
        }
        let ids: Vec<AddressId> = contacts.iter().map(|contact| contact.id).collect();
        for (_, contact) in self.stores.addresses.resolve(&ids).await? {
            if !account.blocks(contact.as_ref())
                && let Some(stanza) = unavailable(contact.as_ref())
            {
                self.send_to_available(account, &stanza);
                self.send_presence_of_contact_here(account, contact.as_ref());
            }
        }
        for session in account.sessions().iter().filter(|session| session.is_available()) {
            self.probe_contacts(session, &contacts);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_during_a_pass_over_all_accounts_causes_one_more() {
        let pass = AccountPass::default();
        assert!(pass.begin() && !pass.begin() && !pass.begin());
        assert!(pass.repeats() && !pass.repeats());
        assert!(pass.begin());
    }

    #[test]
    fn a_pass_that_failed_is_repeated_later() {
        let pass = AccountPass::default();
        assert!(!pass.begin_retry(100));
        assert!(pass.begin());
        pass.fail(5);
        assert!(!pass.begin_retry(4) && pass.begin_retry(5) && !pass.begin_retry(6));
        // What happens meanwhile does not wait.
        pass.fail(10);
        assert!(pass.begin() && !pass.begin_retry(10) && !pass.repeats());
        pass.require(20);
        assert!(pass.begin_retry(20));
        pass.require(30);
        assert!(pass.repeats() && !pass.repeats());
    }
}
