//! Tests of what is due for other nodes.

use cluster::{EnvelopeClass, InvalidationSubject};
use throng_core::domains::CurrentHost;
use throng_core::host::Host;
use throng_core::router::routing_table::RoutingTable;

use super::*;
use crate::envelope_kinds::PUSH;

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
    let forwarded = items.forwarded.iter().map(octets_of_forwarded);
    let sum =
        addresses.chain(accounts).chain(forwarded).sum::<usize>() + items.probers.len() * OCTETS_OF_PROBER;
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

fn push_of(node: NodeId, octets: usize) -> Envelope {
    Envelope::new(PUSH, EnvelopeClass::Control, node, Vec::new(), vec![0; octets])
}

/// A client that received a later push first would take its version for the current one.
#[test]
fn a_push_does_not_overtake_that_earlier_ones_of_its_account_were_lost() {
    let (due, a) = (DuePresence::default(), node("a"));
    let [juliet, romeo] = [1, 2].map(|number| address(number, 10));
    let large = || push_of(a, 3 << 20);
    assert_eq!(due.add_push(a, juliet.clone(), large()), (0, true));
    assert_eq!(due.add_push(a, juliet.clone(), large()), (1, true));
    assert!(due.begin_push(a).is_none(), "the node is not notified yet");
    assert!(due.begin(a));
    let change = due.next(a).unwrap();
    assert!(matches!(&change, DueItem::Change(of, PUSHES_MISSED) if *of == juliet));
    assert!(due.begin_push(a).is_none(), "it is being notified");
    due.put_back(a, change);
    assert!(due.begin_push(a).is_none(), "the queue is full");
    assert!(due.begin(a) && matches!(due.next(a), Some(DueItem::Change(..))));
    assert!(matches!(due.next(a), Some(DueItem::Push)));
    let (number, _) = due.begin_push(a).expect("the node is notified");
    due.end_push(a, number, false);
    // Pushes of others do not wait, but for what concerns all accounts.
    assert!(due.add_change(a, juliet, PUSHES_MISSED));
    due.add_push(a, romeo.clone(), push_of(a, 1));
    let (number, _) = due.begin_push(a).expect("another account");
    due.end_push(a, number, false);
    due.add_push(a, romeo, push_of(a, 1));
    fill(|number| due.add_report(a, address(number, 1000)));
    assert!(due.begin_push(a).is_none() && matches!(due.next(a), Some(DueItem::Resync)));
    assert!(due.begin_push(a).is_none() && matches!(due.next(a), Some(DueItem::Push)));
    assert!(due.begin_push(a).is_some());
}

#[test]
fn what_is_forwarded_to_moved_sessions_waits_for_room_and_is_bounded() {
    let (due, a) = (DuePresence::default(), node("a"));
    assert!(due.add_forwarded(a, push_of(a, 1)) && due.add_forwarded(a, push_of(a, 2)));
    assert!(due.begin(a) && octets(&due, a) > 0);
    let first = due.next(a).unwrap();
    assert!(matches!(&first, DueItem::Forwarded(envelope) if envelope.bytes.len() == 1));
    due.put_back(a, first);
    assert!(due.begin(a));
    let rest: Vec<DueItem> = std::iter::from_fn(|| due.next(a)).collect();
    assert!(rest.len() == 2 && due.nodes().is_empty());
    let fits = fill(|_| due.add_forwarded(a, push_of(a, 100_000)));
    assert!((1..MAX_OCTETS / 100_000 + 1).contains(&fits));
    assert_eq!(octets(&due, a), 0);
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
