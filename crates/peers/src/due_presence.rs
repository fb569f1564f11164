//! What other nodes must be sent as soon as there is room: presence, probes, session reports, pushes and changes of accounts that
//! did not fit into their queues, and that they have missed notices.
//!
//! The state of an account is due, not a sequence of stanzas, so an account is due at most once for each node. What is due
//! for a node is bounded in number and octets. Beyond these bounds it is discarded: the node is notified that it has missed
//! something, and both nodes exchange everything again (`presence_resync.rs`). Until that node is notified, nothing else
//! has to be remembered for it. Pushes have a bound of their own (`due_pushes.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use cluster::{Envelope, EnvelopeKind, NodeId};
use jid::Jid;
use store::AddressId;
use throng_core::account::Account;
use throng_core::session::Session;

use super::due_pushes::DuePushes;

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

const OCTETS_OF_PROBER: usize = ITEM_OCTETS + size_of::<Session>();

#[derive(Default)]
struct DueItems {
    changes: BTreeMap<Jid, Vec<EnvelopeKind>>,
    notices: bool,
    reports: BTreeSet<Jid>,
    accounts: BTreeMap<AddressId, DueAccount>,
    /// By address in memory.
    probers: BTreeMap<usize, Weak<Session>>,
    /// Octets that all of them occupy.
    octets: usize,
}

impl DueItems {
    fn len(&self) -> usize {
        let few = self.changes.len() + usize::from(self.notices);
        few + self.reports.len() + self.accounts.len() + self.probers.len()
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
        let (_, session) = self.probers.pop_first()?;
        self.octets -= OCTETS_OF_PROBER;
        Some(DueItem::Prober(session))
    }
}

#[derive(Default)]
struct DueForNode {
    items: DueItems,
    pushes: DuePushes,
    /// The node must be notified that it has missed something. Then there are no items.
    resync: bool,
    running: bool,
    /// The queue may have room again since the last attempt.
    again: bool,
}

impl DueForNode {
    fn next(&mut self) -> Option<DueItem> {
        if std::mem::take(&mut self.resync) {
            return Some(DueItem::Resync);
        }
        let push = self.pushes.can_begin().then_some(DueItem::Push);
        self.items.next_change().or(push).or_else(|| self.items.next())
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

    /// Adds a push. Returns the accounts of older ones that were discarded.
    pub(super) fn add_push(&self, node: NodeId, account: Jid, push: Envelope) -> Vec<Jid> {
        let mut state = self.0.lock();
        let number = state.next_push;
        state.next_push += 1;
        state.nodes.entry(node).or_default().pushes.add(number, account, push)
    }

    /// See [`DuePushes::begin`].
    pub(super) fn begin_push(&self, node: NodeId) -> Option<(u64, Envelope)> {
        self.0.lock().nodes.get_mut(&node)?.pushes.begin()
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

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::InvalidationSubject;
    use throng_core::domains::CurrentHost;
    use throng_core::host::Host;
    use throng_core::router::routing_table::RoutingTable;

    /// Accounts by number.
    fn accounts() -> impl Fn(u32) -> Arc<Account> {
        let host = Arc::new(Host::new(Jid::parse("example.com").unwrap(), Arc::default()));
        let table = RoutingTable::new(cluster::AddressHasher::new([1; 16]));
        let jid = Jid::parse("juliet@example.com").unwrap();
        move |number| {
            let host = CurrentHost::new(host.clone());
            Arc::new(Account::new(AddressId::new(number).unwrap(), jid.clone(), host, &table))
        }
    }

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    /// Octets that are due for a node, after a comparison with its items.
    fn octets(due: &DuePresence, node: NodeId) -> usize {
        let state = due.0.lock();
        let items = &state.nodes[&node].items;
        let addresses = items.changes.keys().chain(&items.reports).map(octets_of_address);
        let accounts = items.accounts.values().map(|due| due.octets);
        let sum = addresses.chain(accounts).sum::<usize>() + items.probers.len() * OCTETS_OF_PROBER;
        assert_eq!(items.octets, sum);
        sum
    }

    #[test]
    fn an_account_is_due_once_for_each_node_and_waits_for_room() {
        let due = DuePresence::default();
        let [a, b] = ["a", "b"].map(node);
        let (one, two) = (accounts()(1), accounts()(2));
        assert!(!due.begin(a), "nothing is due");
        for withdraws in [false, true, false] {
            assert!(due.add_account(a, &one, withdraws));
        }
        assert!(due.add_account(a, &two, false) && due.add_account(b, &two, false));
        assert!(due.begin(a) && !due.begin(a), "one task for each node");
        let first = due.next(a).unwrap();
        assert!(matches!(&first, DueItem::Account(DueAccount { withdraws: true, .. })));
        assert!(!due.put_back(a, first).tries_again, "the queue is full");
        assert!(due.begin(a), "it has room again");
        let first = due.next(a).unwrap();
        assert!(!due.begin(a));
        assert!(due.put_back(a, first).tries_again, "it had room again before the task ended");
        let rest: Vec<DueItem> = std::iter::from_fn(|| due.next(a)).collect();
        assert_eq!(rest.len(), 2);
        assert!(!due.begin(a) && due.begin(b));
        due.forget_node(b);
        assert!(due.0.lock().nodes.is_empty());
    }

    #[test]
    fn changes_of_accounts_are_due_once_each_and_before_anything_else() {
        let due = DuePresence::default();
        let (a, one) = (node("a"), accounts()(1));
        let [deleted, blocklist] =
            [InvalidationSubject::Deleted, InvalidationSubject::Blocklist].map(EnvelopeKind::Invalidation);
        assert!(due.add_account(a, &one, false));
        for _ in 0..2 {
            assert!(due.add_report(a, one.jid.clone()));
            assert!(due.add_notices(a));
            assert!(due.add_change(a, one.jid.clone(), deleted));
            assert!(due.add_change(a, one.jid.clone(), blocklist));
        }
        assert_eq!(due.nodes(), [a]);
        assert!(due.begin(a) && octets(&due, a) > 0);
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let Some(DueItem::Change(_, kind)) = due.next(a) else { panic!("a change") };
            kinds.push(kind);
        }
        assert!(kinds.contains(&deleted) && kinds.contains(&blocklist));
        assert!(matches!(due.next(a), Some(DueItem::Notices)));
        let report = due.next(a).unwrap();
        assert!(matches!(report, DueItem::Report(_)));
        assert_eq!(due.put_back(a, report), PutBack { tries_again: false, fits: true });
        assert!(due.begin(a) && matches!(due.next(a), Some(DueItem::Report(_))));
        assert!(matches!(due.next(a), Some(DueItem::Account(_))));
        assert_eq!(octets(&due, a), 0);
        assert!(due.next(a).is_none() && due.nodes().is_empty());
    }

    fn address(number: u32, length: usize) -> Jid {
        Jid::parse(&format!("{number:0>length$}@example.com")).unwrap()
    }

    /// Adds items until one does not fit. Returns the number of those that did.
    fn fill(mut add: impl FnMut(u32) -> bool) -> usize {
        (1..).take_while(|number| add(*number)).count()
    }

    #[test]
    fn what_is_due_for_a_node_is_bounded_in_number_and_octets() {
        let changed = EnvelopeKind::Invalidation(InvalidationSubject::Roster);
        let [a, b] = ["a", "b"].map(node);
        for (length, most) in [(10, MAX_ITEMS), (1000, MAX_OCTETS / (ITEM_OCTETS + 1012))] {
            let due = DuePresence::default();
            assert!(due.add_prober(b, Weak::new()));
            assert_eq!(fill(|number| due.add_report(a, address(number, length))), most);
            assert_eq!(octets(&due, a), 0);
            assert!(matches!(due.next(a), Some(DueItem::Resync)));
            assert_eq!(fill(|number| due.add_change(a, address(number, length), changed)), most);
            assert_eq!(octets(&due, a), 0);
            assert_eq!(octets(&due, b), OCTETS_OF_PROBER, "the other node keeps its own");
        }
    }

    #[test]
    fn accounts_that_are_due_are_bounded_by_what_they_occupy() {
        let due = DuePresence::default();
        let a = node("a");
        let accounts = accounts();
        let least = ITEM_OCTETS + size_of::<Account>() + "juliet@example.com".len();
        let fits = fill(|number| due.add_account(a, &accounts(number), true));
        assert_eq!(fits, (MAX_OCTETS / least).min(MAX_ITEMS));
    }

    #[test]
    fn what_does_not_fit_is_discarded_until_the_other_node_is_notified() {
        let due = DuePresence::default();
        let a = node("a");
        fill(|number| due.add_report(a, address(number, 1000)));
        assert!(due.begin(a));
        assert!(due.add_report(a, address(1, 10)), "reported once");
        let mut cx = Context::from_waker(Waker::noop());
        assert!(due.poll_room(&mut cx).is_ready(), "the exchange with other nodes goes on");
        let resync = due.next(a).unwrap();
        assert!(matches!(resync, DueItem::Resync));
        assert!(due.add_report(a, address(2, 10)), "it is remembered while the node is being notified");
        assert_eq!(octets(&due, a), ITEM_OCTETS + 22);
        let returned = due.put_back(a, resync);
        assert_eq!(returned, PutBack { tries_again: false, fits: true }, "the queue is full");
        assert_eq!(octets(&due, a), 0);
        assert!(due.begin(a) && matches!(due.next(a), Some(DueItem::Resync)));
        assert!(due.add_report(a, address(2, 10)));
        assert!(matches!(due.next(a), Some(DueItem::Report(_))));
        assert!(due.next(a).is_none() && due.nodes().is_empty());
    }

    #[test]
    fn what_returns_when_there_is_no_room_any_more_is_reported_once() {
        let due = DuePresence::default();
        let a = node("a");
        (1..=MAX_ITEMS as u32).for_each(|number| assert!(due.add_report(a, address(number, 10))));
        assert!(due.begin(a));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(due.poll_room(&mut cx).is_pending(), "half of it is free for what happens meanwhile");
        let first = due.next(a).unwrap();
        assert!(due.add_report(a, address(0, 10)), "another one takes its place");
        assert!(!due.put_back(a, first).fits);
        assert!(due.add_report(a, address(1, 10)), "reported once");
        assert!(due.poll_room(&mut cx).is_ready());
        assert!(due.begin(a) && matches!(due.next(a), Some(DueItem::Resync)));
    }
}
