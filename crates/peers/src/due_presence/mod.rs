//! What other nodes must be sent as soon as there is room: presence, probes, session reports, pushes and changes of accounts that
//! did not fit into their queues, what they must have of moved sessions, and that they have missed notices.
//!
//! The state of an account is due, not a sequence of stanzas, so an account is due at most once for each node. What is due
//! for a node is bounded in number and octets. Beyond these bounds it is discarded: the node is notified that it has missed
//! something, and both nodes exchange everything again (`presence_resync.rs`). Until that node is notified, nothing else
//! has to be remembered for it. Pushes have a bound of their own (`due_pushes.rs`).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use cluster::{Envelope, EnvelopeKind, NodeId};
use jid::Jid;
use store::AddressId;
use throng_core::account::Account;
use throng_core::session::Session;

use crate::due_pushes::DuePushes;
use crate::envelope_kinds::PUSHES_MISSED;

/// Maximum number of items that are due for one node.
const MAX_ITEMS: usize = 65_536;
/// Maximum octets of memory that these occupy.
const MAX_OCTETS: usize = 16 << 20;
/// Octets that an item occupies besides what it keeps.
const ITEM_OCTETS: usize = 128;

/// What is due for a node.
pub(super) enum DueItem {
    /// It has missed what did not fit here.
    Resync,
    /// An envelope of this kind about an account, without content: it changed in the store, or pushes to its sessions were lost.
    Change(Jid, EnvelopeKind),
    /// Pushes wait (`due_pushes.rs`), and none is being sent.
    Push,
    /// It has missed notices of features.
    Notices,
    /// The sessions of an account.
    Report(Jid),
    Account(DueAccount),
    /// The session requests presence from that node.
    Prober(Weak<Session>),
    /// Presence or a probe for accounts whose sessions have moved there.
    Forwarded(Envelope),
}

/// An account whose presence is due.
pub(super) struct DueAccount {
    pub(super) account: Arc<Account>,
    /// Contacts may show resources that are gone, so all are withdrawn first.
    pub(super) withdraws: bool,
    /// What it occupies: its sessions may end meanwhile, and then nothing else keeps it.
    octets: usize,
}

impl DueAccount {
    fn new(account: &Arc<Account>, withdraws: bool) -> DueAccount {
        let contacts = account.with(|state| size_of_val(state.contacts()));
        let octets = ITEM_OCTETS + size_of::<Account>() + account.jid.as_str().len() + contacts;
        DueAccount { account: account.clone(), withdraws, octets }
    }
}

fn octets_of_address(address: &Jid) -> usize {
    ITEM_OCTETS + address.as_str().len()
}

fn octets_of_forwarded(envelope: &Envelope) -> usize {
    ITEM_OCTETS + envelope.encoded_len()
}

const OCTETS_OF_PROBER: usize = ITEM_OCTETS + size_of::<Session>();

#[derive(Default)]
struct DueItems {
    changes: BTreeMap<Jid, Vec<EnvelopeKind>>,
    notices: bool,
    reports: BTreeSet<Jid>,
    accounts: BTreeMap<AddressId, DueAccount>,
    /// By address in memory.
    probers: BTreeMap<usize, Weak<Session>>,
    forwarded: VecDeque<Envelope>,
    /// Octets that all of them occupy.
    octets: usize,
}

impl DueItems {
    fn len(&self) -> usize {
        let few = self.changes.len() + usize::from(self.notices);
        few + self.reports.len() + self.accounts.len() + self.probers.len() + self.forwarded.len()
    }

    fn has_room_for(&self, octets: usize) -> bool {
        self.len() < MAX_ITEMS && self.octets + octets <= MAX_OCTETS
    }

    /// Adds an item, or returns it if there is no room.
    fn add(&mut self, item: DueItem) -> Result<(), DueItem> {
        let (known, octets) = match &item {
            DueItem::Resync => return Err(item),
            DueItem::Push => return Ok(()),
            DueItem::Change(account, _) => (self.changes.contains_key(account), octets_of_address(account)),
            DueItem::Notices => (self.notices, 0),
            DueItem::Report(account) => (self.reports.contains(account), octets_of_address(account)),
            DueItem::Account(due) => (self.accounts.contains_key(&due.account.id), due.octets),
            DueItem::Prober(session) => {
                (self.probers.contains_key(&session.as_ptr().addr()), OCTETS_OF_PROBER)
            }
            DueItem::Forwarded(envelope) => (false, octets_of_forwarded(envelope)),
        };
        if !known {
            if !self.has_room_for(octets) {
                return Err(item);
            }
            self.octets += octets;
        }
        match item {
            DueItem::Resync | DueItem::Push => {}
            DueItem::Change(account, kind) => {
                // An account has few kinds of changes.
                let kinds = self.changes.entry(account).or_default();
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            DueItem::Notices => self.notices = true,
            DueItem::Report(account) => _ = self.reports.insert(account),
            DueItem::Account(due) => {
                let withdraws = due.withdraws;
                self.accounts.entry(due.account.id).or_insert(due).withdraws |= withdraws;
            }
            DueItem::Prober(session) => _ = self.probers.insert(session.as_ptr().addr(), session),
            DueItem::Forwarded(envelope) => self.forwarded.push_back(envelope),
        }
        Ok(())
    }

    /// Changes of accounts are first, because sessions may have to end.
    fn next_change(&mut self) -> Option<DueItem> {
        let mut changes = self.changes.first_entry()?;
        let kind = changes.get_mut().pop();
        let account = changes.key().clone();
        if changes.get().is_empty() {
            changes.remove();
            self.octets -= octets_of_address(&account);
        }
        kind.map(|kind| DueItem::Change(account, kind))
    }

    fn next(&mut self) -> Option<DueItem> {
        if std::mem::take(&mut self.notices) {
            return Some(DueItem::Notices);
        }
        if let Some(account) = self.reports.pop_first() {
            self.octets -= octets_of_address(&account);
            return Some(DueItem::Report(account));
        }
        if let Some((_, due)) = self.accounts.pop_first() {
            self.octets -= due.octets;
            return Some(DueItem::Account(due));
        }
        if let Some((_, session)) = self.probers.pop_first() {
            self.octets -= OCTETS_OF_PROBER;
            return Some(DueItem::Prober(session));
        }
        let envelope = self.forwarded.pop_front()?;
        self.octets -= octets_of_forwarded(&envelope);
        Some(DueItem::Forwarded(envelope))
    }

    /// Whether the node must be notified that pushes to an account were lost.
    fn has_missed_pushes(&self, account: &Jid) -> bool {
        self.changes.get(account).is_some_and(|kinds| kinds.contains(&PUSHES_MISSED))
    }
}

#[derive(Default)]
struct DueForNode {
    items: DueItems,
    pushes: DuePushes,
    /// The node must be notified that it has missed something. Then there are no items.
    resync: bool,
    /// It is being notified that it has missed something, maybe pushes: later pushes must not overtake that.
    notifies: bool,
    running: bool,
    /// The queue may have room again since the last attempt.
    again: bool,
}

impl DueForNode {
    /// Called when the item before was sent.
    fn next(&mut self) -> Option<DueItem> {
        let next = if std::mem::take(&mut self.resync) {
            Some(DueItem::Resync)
        } else {
            let push = self.pushes.can_begin().then_some(DueItem::Push);
            self.items.next_change().or(push).or_else(|| self.items.next())
        };
        self.notifies = matches!(next, Some(DueItem::Resync | DueItem::Change(_, PUSHES_MISSED)));
        next
    }

    /// See [`DuePushes::begin`]. The node must first be notified of pushes to the same account that were lost.
    fn begin_push(&mut self) -> Option<(u64, Envelope)> {
        let is_held = self.notifies
            || self.resync
            || self.pushes.first_account().is_some_and(|account| self.items.has_missed_pushes(account));
        if is_held { None } else { self.pushes.begin() }
    }

    /// Whether nothing is due, and no task runs.
    fn is_idle(&self) -> bool {
        self.items.len() == 0 && self.pushes.is_empty() && !self.resync && !self.running
    }

    /// Adds an item. Returns what must be dropped after the lock is released, if it does not fit.
    fn add(&mut self, item: DueItem) -> Option<(DueItem, DueItems)> {
        if matches!(item, DueItem::Push) {
            return None;
        }
        if self.resync {
            return Some((item, DueItems::default()));
        }
        let item = self.items.add(item).err()?;
        self.resync = true;
        Some((item, std::mem::take(&mut self.items)))
    }

    /// Also while the node must be notified: nothing is added until then, and everything is exchanged with it afterwards. So
    /// a node that handles nothing does not stop the exchange with others.
    fn has_much_room(&self) -> bool {
        self.items.len() <= MAX_ITEMS / 2 && self.items.octets <= MAX_OCTETS / 2
    }
}

#[derive(Default)]
struct DueState {
    nodes: BTreeMap<NodeId, DueForNode>,
    /// Number of the next push.
    next_push: u64,
    /// The task that waits for room.
    waiting: Option<Waker>,
}

impl DueState {
    fn has_much_room(&self) -> bool {
        self.nodes.values().all(DueForNode::has_much_room)
    }

    /// Who must be woken after the lock is released.
    fn take_waker(&mut self) -> Option<Waker> {
        if self.waiting.is_some() && self.has_much_room() { self.waiting.take() } else { None }
    }
}

/// Result of [`DuePresence::put_back`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PutBack {
    /// It must be tried again immediately.
    pub(super) tries_again: bool,
    /// False if it no longer fits, so that everything must be exchanged with the node again; once until that has begun.
    pub(super) fits: bool,
}

/// What is due, by node.
#[derive(Default)]
pub(super) struct DuePresence(LeafMutex<DueState>);

impl DuePresence {
    /// False if it does not fit, so that everything must be exchanged with this node again; once until that has begun.
    fn add(&self, node: NodeId, item: DueItem) -> bool {
        let mut state = self.0.lock();
        let due = state.nodes.entry(node).or_default();
        let knew = due.resync;
        let discarded = due.add(item);
        let waker = state.take_waker();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        discarded.is_none() || knew
    }

    pub(super) fn add_account(&self, node: NodeId, account: &Arc<Account>, withdraws: bool) -> bool {
        // Users without an account have no contacts.
        account.id == AddressId::UNASSIGNED
            || self.add(node, DueItem::Account(DueAccount::new(account, withdraws)))
    }

    pub(super) fn add_prober(&self, node: NodeId, session: Weak<Session>) -> bool {
        self.add(node, DueItem::Prober(session))
    }

    pub(super) fn add_notices(&self, node: NodeId) -> bool {
        self.add(node, DueItem::Notices)
    }

    pub(super) fn add_report(&self, node: NodeId, account: Jid) -> bool {
        self.add(node, DueItem::Report(account))
    }

    pub(super) fn add_change(&self, node: NodeId, account: Jid, kind: EnvelopeKind) -> bool {
        self.add(node, DueItem::Change(account, kind))
    }

    pub(super) fn add_forwarded(&self, node: NodeId, envelope: Envelope) -> bool {
        self.add(node, DueItem::Forwarded(envelope))
    }

    /// Adds a push. It is due to notify the node of older ones that were discarded for it. Returns their number, and false if that
    /// does not fit (as [`DuePresence::add_change`]).
    pub(super) fn add_push(&self, node: NodeId, account: Jid, push: Envelope) -> (usize, bool) {
        let mut state = self.0.lock();
        let number = state.next_push;
        state.next_push += 1;
        let due = state.nodes.entry(node).or_default();
        let knew = due.resync;
        let missed = due.pushes.add(number, account, push);
        let count = missed.len();
        let changes = missed.into_iter().map(|account| DueItem::Change(account, PUSHES_MISSED));
        let discarded: Vec<_> = changes.filter_map(|change| due.add(change)).collect();
        let waker = state.take_waker();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        (count, discarded.is_empty() || knew)
    }

    /// See [`DuePushes::begin`].
    pub(super) fn begin_push(&self, node: NodeId) -> Option<(u64, Envelope)> {
        self.0.lock().nodes.get_mut(&node)?.begin_push()
    }

    /// See [`DuePushes::end`].
    pub(super) fn end_push(&self, node: NodeId, number: u64, waits: bool) {
        let mut state = self.0.lock();
        let Some(due) = state.nodes.get_mut(&node) else { return };
        due.pushes.end(number, waits);
        if due.is_idle() {
            state.nodes.remove(&node);
        }
    }

    /// The nodes for which something is due.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.0.lock().nodes.keys().copied().collect()
    }

    /// Number of items that are due, and of the tasks that may send one. 0 only if everything was sent.
    pub(super) fn count(&self) -> usize {
        self.0.lock().nodes.values().map(|due| 1 + due.items.len() + due.pushes.count()).sum()
    }

    /// Whether the caller must start a task. A task that is running tries again instead.
    pub(super) fn begin(&self, node: NodeId) -> bool {
        match self.0.lock().nodes.get_mut(&node) {
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

    pub(super) fn next(&self, node: NodeId) -> Option<DueItem> {
        let mut state = self.0.lock();
        let due = state.nodes.get_mut(&node)?;
        due.again = false;
        let next = due.next();
        if next.is_none() {
            due.running = false;
            // A push that is being sent may have to wait.
            if due.is_idle() {
                state.nodes.remove(&node);
            }
        }
        let waker = state.take_waker();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        next
    }

    /// Returns what the queue did not accept.
    pub(super) fn put_back(&self, node: NodeId, item: DueItem) -> PutBack {
        let mut state = self.0.lock();
        let due = state.nodes.entry(node).or_default();
        let knew = due.resync || matches!(item, DueItem::Resync);
        // What did not fit is due again with everything else.
        let discarded = due.add(item);
        due.notifies = false;
        due.running = std::mem::take(&mut due.again);
        let running = due.running;
        let waker = state.take_waker();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        PutBack { tries_again: running, fits: discarded.is_none() || knew }
    }

    pub(super) fn forget_node(&self, node: NodeId) {
        let mut state = self.0.lock();
        let forgotten = state.nodes.remove(&node);
        let waker = state.take_waker();
        drop(state);
        drop(forgotten);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits until little is due for every node. For one task.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.has_much_room() {
            return Poll::Ready(());
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }
}
