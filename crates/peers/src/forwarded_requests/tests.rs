//! Bounds of forwarded requests, their order, and what ends them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cluster::NodeId;

use super::inbound::{HeldEntry, PartOutcome, RequestResult};
use super::*;
use crate::home::PeerState;

fn names() -> [NodeId; 2] {
    ["a", "b"].map(|name| NodeId::new(name).expect("a name"))
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn response(head: usize, body: usize) -> HeldResponse {
    HeldResponse { head: vec![1; head], body: Box::new(vec![2; body]), awaits_end: false }
}

#[test]
fn each_status_has_a_byte_of_its_own() {
    for byte in 0..5 {
        assert_eq!(ResponseStatus::from_byte(byte).map(|status| status as u8), Some(byte));
    }
    assert_eq!(ResponseStatus::from_byte(5), None);
}

#[test]
fn a_response_is_cut_into_parts_that_join_to_it() {
    for (head, body) in [(0, 0), (4, 0), (0, 1), (4, PART_BYTES - 4), (4, PART_BYTES), (30, 3 * PART_BYTES)] {
        let response = response(head, body);
        let (mut joined, mut at, mut parts) = (Vec::new(), 0, 0);
        while let Some(part) = response.part(at) {
            assert!(part.concat().len() <= PART_BYTES);
            joined.extend(part.concat());
            at += part.concat().len().max(1);
            parts += 1;
        }
        assert_eq!(joined, [vec![1; head], vec![2; body]].concat());
        assert_eq!(parts, (head + body).div_ceil(PART_BYTES).max(1));
    }
}

#[test]
fn open_requests_are_bounded_for_each_node_and_in_all() {
    let [a, b] = names();
    let requests = ForwardedRequests::default();
    let client = |number: usize| (number / MAX_OPEN_PER_CLIENT) as u64;
    let first = requests.begin(a, 0, 10).expect("room");
    assert!((1..MAX_OPEN_PER_NODE).all(|number| requests.begin(a, client(number), 10).is_some()));
    assert_eq!(requests.begin(a, 100, 10), None);
    assert!((0..MAX_OPEN_PER_NODE).all(|number| requests.begin(b, 200 + client(number), 10).is_some()));
    assert_eq!(requests.begin(NodeId::new("c").expect("a name"), 100, 10), None);
    requests.remove_for_client(first, 0);
    assert!(requests.begin(a, 0, 10).is_some());
}

#[test]
fn one_client_does_not_use_all_requests() {
    let [a, _] = names();
    let requests = ForwardedRequests::default();
    let first = requests.begin(a, 7, 10).expect("room");
    assert!((1..MAX_OPEN_PER_CLIENT).all(|_| requests.begin(a, 7, 10).is_some()));
    assert_eq!(requests.begin(a, 7, 10), None);
    assert!(requests.begin(a, 8, 10).is_some(), "another client");
    requests.answered(first, a, ResponseStatus::AwaitsEnd, b"");
    assert_eq!(requests.begin(a, 7, 10), None, "it has not taken its response");
    requests.remove_for_client(first, 7);
    assert!(requests.begin(a, 7, 10).is_some());
}

#[test]
fn octets_of_responses_are_bounded() {
    let [a, b] = names();
    let requests = ForwardedRequests::default();
    let part = vec![0; 16 << 20];
    let numbers: Vec<u64> = (0..5).map(|client| requests.begin(a, client, 10).expect("room")).collect();
    for number in &numbers {
        assert!(requests.answered(*number, a, ResponseStatus::Part, &part));
        assert!(requests.answered(*number, b, ResponseStatus::Part, &part), "not its node: ignored");
    }
    assert_eq!(requests.retained_bytes(), MAX_RETAINED_BYTES);
    assert!(!requests.answered(numbers[0], a, ResponseStatus::Part, &part), "more than a response has");
    assert_eq!(requests.retained_bytes(), 48 << 20, "freed although nobody has asked for it");
    requests.expire(9);
    assert_eq!(requests.retained_bytes(), 48 << 20);
    requests.expire(10);
    assert_eq!(requests.retained_bytes(), 0, "their clients have had enough time");
    (0..).zip(&numbers).for_each(|(client, number)| requests.remove_for_client(*number, client));
    assert_eq!(requests.retained_bytes(), 0);
}

#[test]
fn responses_that_one_client_does_not_take_leave_room_for_others() {
    let [a, _] = names();
    let requests = ForwardedRequests::default();
    let part = vec![0; 1 << 20];
    for _ in 0..100 {
        let number = requests.begin(a, 7, 10).expect("room");
        assert!(requests.answered(number, a, ResponseStatus::Complete, &part));
    }
    assert_eq!(requests.retained_bytes(), MAX_RETAINED_PER_CLIENT);
    let other = requests.begin(a, 8, 10).expect("room");
    for _ in 0..24 {
        assert!(requests.answered(other, a, ResponseStatus::Part, &part));
    }
    assert_eq!(requests.retained_bytes(), MAX_RETAINED_PER_CLIENT + (24 << 20), "a single one may be large");
}

#[test]
fn parts_of_requests_are_bounded_and_forgotten() {
    let [a, b] = names();
    let state = PeerState::default();
    let inbound = &state.inbound_requests;
    assert_eq!(inbound.add_part(a, 1, (0, b"ab"), true, 0), PartOutcome::Incomplete);
    assert_eq!(inbound.add_part(b, 1, (0, b"xy"), false, 0), PartOutcome::Complete(b"xy".to_vec()));
    assert_eq!(inbound.add_part(a, 1, (2, b"c"), false, 0), PartOutcome::Complete(b"abc".to_vec()));
    let part = vec![0; 4 << 20];
    for number in 1..=16 {
        assert_eq!(inbound.add_part(a, number, (0, &part), true, 0), PartOutcome::Incomplete);
    }
    assert_eq!(inbound.add_part(a, 17, (0, &part), true, 0), PartOutcome::Busy);
    assert_eq!(inbound.add_part(a, 1, (4 << 20, b"x"), true, 0), PartOutcome::Invalid);
    inbound.sweep(100);
    assert_eq!(inbound.add_part(a, 17, (0, &part), true, 100), PartOutcome::Incomplete);
    inbound.end(a, 17, RequestResult::Broken);
    assert_eq!(inbound.add_part(a, 17, (0, b"x"), false, 100), PartOutcome::Complete(b"x".to_vec()));
}

#[test]
fn the_rest_of_a_request_is_none() {
    let [a, _] = names();
    let state = PeerState::default();
    let inbound = &state.inbound_requests;
    assert_eq!(inbound.add_part(a, 1, (0, b"ab"), true, 0), PartOutcome::Incomplete);
    inbound.sweep(100);
    assert_eq!(inbound.add_part(a, 1, (2, b"cd"), true, 100), PartOutcome::Busy);
    assert_eq!(inbound.add_part(a, 1, (4, b"<body/>"), false, 100), PartOutcome::Busy);
    assert_eq!(inbound.add_part(a, 2, (0, b"ab"), true, 100), PartOutcome::Incomplete);
    assert_eq!(inbound.add_part(a, 2, (4, b"ef"), false, 100), PartOutcome::Busy, "one is missing");
}

#[test]
fn held_requests_are_bounded_for_each_node() {
    let [a, b] = names();
    let state = PeerState::default();
    let inbound = &state.inbound_requests;
    assert!((0..MAX_OPEN_PER_NODE as u64).all(|number| inbound.hold(a, number, 0, 10)));
    assert!(!inbound.hold(a, u64::MAX, 0, 10));
    assert!(inbound.hold(b, 1, MAX_RETAINED_BYTES, 10));
    assert!(!inbound.hold(b, 1, 0, 10), "a number is held once");
    assert!(!inbound.hold(b, 2, 1, 10), "too many octets");
}

#[test]
fn a_held_request_ends_with_its_result_its_time_or_its_node() {
    let [a, _] = names();
    let state = Arc::<PeerState>::default();
    let cx = &mut Context::from_waker(Waker::noop());
    let inbound = &state.inbound_requests;
    for (end, expected) in [
        (&(|| inbound.end(a, 1, RequestResult::Sent)) as &dyn Fn(), RequestResult::Sent),
        (&|| inbound.sweep(10), RequestResult::Broken),
        (&|| inbound.forget_node(a), RequestResult::Broken),
    ] {
        assert!(inbound.hold(a, 1, 0, 10));
        let entry = HeldEntry::new(state.clone(), a, 1);
        inbound.sweep(9);
        assert_eq!(entry.poll_result(cx), Poll::Pending);
        end();
        assert_eq!(entry.poll_result(cx), Poll::Ready(expected));
    }
    assert!(inbound.hold(a, 1, 0, 10), "the entry is gone");
}

/// Holds requests of one group at these positions.
fn hold(state: &Arc<PeerState>, most: usize, positions: &[u64]) -> Vec<HeldEntry> {
    let [a, _] = names();
    let entries = (0..).zip(positions).map(|(number, position)| {
        assert!(state.inbound_requests.hold(a, number, 100, 10));
        let mut entry = HeldEntry::new(state.clone(), a, number);
        entry.join(&RequestGroup { id: 5, position: *position, most });
        entry
    });
    entries.collect()
}

#[test]
fn a_repeated_request_and_one_too_many_replace_an_earlier_one() {
    let state = Arc::<PeerState>::default();
    let cx = &mut Context::from_waker(Waker::noop());
    let entries = hold(&state, 3, &[1, 2, 3, 2, 4]);
    let results: Vec<_> = entries.iter().map(|entry| entry.poll_result(cx)).collect();
    let replaced = Poll::Ready(RequestResult::Replaced);
    assert_eq!(results, [replaced, replaced, Poll::Pending, Poll::Pending, Poll::Pending]);
    let many = hold(&Arc::default(), 3, &[7; 500]);
    let open = many.iter().filter(|entry| entry.poll_result(cx).is_pending()).count();
    assert_eq!(open, 1, "a client repeats a request");
}

#[test]
fn requests_of_a_group_are_handled_in_the_order_in_which_they_arrived() {
    let state = Arc::<PeerState>::default();
    let mut entries = hold(&state, 9, &[1, 3, 2]);
    assert!(poll(pin!(entries[1].turn())).is_pending() && poll(pin!(entries[2].turn())).is_pending());
    assert_eq!(poll(pin!(entries[0].turn())), Poll::Ready(Ok(())));
    entries[0].handled();
    assert_eq!(poll(pin!(entries[1].turn())), Poll::Ready(Ok(())));
    assert!(poll(pin!(entries[2].turn())).is_pending());
    drop(entries.remove(1));
    assert_eq!(poll(pin!(entries[1].turn())), Poll::Ready(Ok(())), "the one before it is gone");
}

#[test]
fn octets_of_waiting_responses_are_bounded_for_each_group_and_node() {
    let state = Arc::<PeerState>::default();
    let entries = hold(&state, 9, &[1, 2, 3]);
    entries.iter().for_each(HeldEntry::handled);
    assert!(entries[0].retain(MAX_RETAINED_PER_CLIENT - 1));
    assert!(entries[1].retain(1) && !entries[2].retain(1));
    entries[0].sent(None);
    assert!(entries[2].retain(1000));
    drop(entries);
    let [a, _] = names();
    assert!(state.inbound_requests.hold(a, 1, MAX_RETAINED_BYTES, 10), "nothing is left");
}

#[test]
fn responses_wait_in_line_for_room_in_the_queue() {
    let [a, _] = names();
    let state = Arc::<PeerState>::default();
    let inbound = &state.inbound_requests;
    let mut entries = hold(&state, 9, &[1, 2, 3]);
    let turn = |entry: &HeldEntry| poll(pin!(entry.turn_to_send()));
    assert_eq!(turn(&entries[0]), Poll::Ready(Ok(())));
    assert!(turn(&entries[1]).is_pending() && turn(&entries[2]).is_pending());
    assert!(turn(&entries[0]).is_pending(), "the queue was full");
    inbound.send_waiting(a);
    assert!(turn(&entries[1]).is_pending(), "the first one is served first");
    assert_eq!(turn(&entries[0]), Poll::Ready(Ok(())));
    entries[0].sent(None);
    assert_eq!(turn(&entries[1]), Poll::Ready(Ok(())));
    drop(entries.remove(1));
    assert_eq!(turn(&entries[1]), Poll::Ready(Ok(())), "the one before it is gone");
}

#[test]
fn nothing_waits_for_clients_when_the_node_shuts_down() {
    let state = Arc::<PeerState>::default();
    let cx = &mut Context::from_waker(Waker::noop());
    let entries = hold(&state, 9, &[1, 2]);
    entries[0].sent(Some(60));
    state.inbound_requests.close(0);
    assert_eq!(entries[0].poll_result(cx), Poll::Ready(RequestResult::Broken));
    assert_eq!(entries[1].poll_result(cx), Poll::Pending, "its response follows");
    entries[1].sent(Some(60));
    assert_eq!(entries[1].poll_result(cx), Poll::Ready(RequestResult::Broken));
}

#[test]
fn a_lost_node_may_return_and_one_that_left_does_not() {
    let [a, b] = names();
    let requests = ForwardedRequests::default();
    let number = requests.begin(a, 1, 10).expect("room");
    requests.forget_node(a, false, 0);
    requests.forget_node(b, true, 0);
    assert_eq!(requests.failure_of(number), Some(ForwardingFailure::Retry));
    assert_eq!(requests.lost_node(|node| *node == a, 9), Some(a));
    assert_eq!(requests.lost_node(|node| *node == a, 10), None);
    assert_eq!(requests.lost_node(|node| *node == b, 0), None);
}
