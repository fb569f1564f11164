//! Bounds of forwarded requests, and what ends them.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cluster::NodeId;

use super::inbound::{PartOutcome, RequestResult};
use super::*;
use crate::home::PeerState;

fn names() -> [NodeId; 2] {
    ["a", "b"].map(|name| NodeId::new(name).expect("a name"))
}

#[test]
fn each_status_has_a_byte_of_its_own() {
    for byte in 0..5 {
        assert_eq!(ResponseStatus::from_byte(byte).map(|status| status as u8), Some(byte));
    }
    assert_eq!(ResponseStatus::from_byte(5), None);
}

#[test]
fn content_is_cut_into_parts_that_join_to_it() {
    for length in [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES] {
        let content = vec![7; length];
        let (mut joined, mut at, mut parts) = (Vec::new(), 0, 0);
        while let Some(part) = next_part(&content, at) {
            joined.extend_from_slice(part);
            at += part.len().max(1);
            parts += 1;
        }
        assert_eq!((joined.len(), parts), (length, length.div_ceil(PART_BYTES).max(1)));
    }
}

#[test]
fn open_requests_are_bounded_for_each_node_and_in_all() {
    let [a, b] = names();
    let requests = ForwardedRequests::default();
    let first = requests.begin(a, 10).expect("room");
    assert!((1..MAX_OPEN_PER_NODE).all(|_| requests.begin(a, 10).is_some()));
    assert_eq!(requests.begin(a, 10), None);
    assert!((0..MAX_OPEN_PER_NODE).all(|_| requests.begin(b, 10).is_some()));
    assert_eq!(requests.begin(NodeId::new("c").expect("a name"), 10), None);
    requests.remove(first);
    requests.remove(first);
    assert!(requests.begin(a, 10).is_some());
}

#[test]
fn octets_of_responses_are_bounded() {
    let [a, b] = names();
    let requests = ForwardedRequests::default();
    let part = vec![0; 16 << 20];
    let numbers: Vec<u64> = (0..5).map(|_| requests.begin(a, 10).expect("room")).collect();
    for number in &numbers {
        assert!(requests.answered(*number, a, ResponseStatus::Part, &part));
        assert!(requests.answered(*number, b, ResponseStatus::Part, &part), "not its node: ignored");
    }
    assert_eq!(requests.retained_bytes(), MAX_RETAINED_BYTES);
    assert!(!requests.answered(numbers[0], a, ResponseStatus::Part, &part), "more than a response has");
    numbers.iter().for_each(|number| requests.remove(*number));
    assert_eq!(requests.retained_bytes(), 0);
}

#[test]
fn parts_of_requests_are_bounded_and_forgotten() {
    let [a, b] = names();
    let state = PeerState::default();
    let inbound = &state.inbound_requests;
    assert_eq!(inbound.add_part(a, 1, b"ab", true, 0), PartOutcome::Incomplete);
    assert_eq!(inbound.add_part(b, 1, b"xy", false, 0), PartOutcome::Complete(b"xy".to_vec()));
    assert_eq!(inbound.add_part(a, 1, b"c", false, 0), PartOutcome::Complete(b"abc".to_vec()));
    let part = vec![0; 16 << 20];
    for number in 1..=4 {
        assert_eq!(inbound.add_part(a, number, &part, true, 0), PartOutcome::Incomplete);
    }
    assert_eq!(inbound.add_part(a, 5, &part, true, 0), PartOutcome::Busy);
    assert_eq!(inbound.add_part(a, 1, &part, true, 0), PartOutcome::Invalid);
    inbound.sweep(100);
    assert_eq!(inbound.add_part(a, 5, &part, true, 100), PartOutcome::Incomplete);
    inbound.end(a, 5, RequestResult::Broken);
    assert_eq!(inbound.add_part(a, 5, b"x", false, 100), PartOutcome::Complete(b"x".to_vec()));
}

#[test]
fn held_requests_are_bounded_for_each_node() {
    let [a, b] = names();
    let state = PeerState::default();
    assert!((0..MAX_OPEN_PER_NODE as u64).all(|number| state.inbound_requests.hold(a, number, 10)));
    assert!(!state.inbound_requests.hold(a, u64::MAX, 10));
    assert!(state.inbound_requests.hold(b, 1, 10));
    assert!(!state.inbound_requests.hold(b, 1, 10), "a number is held once");
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
        assert!(inbound.hold(a, 1, 10));
        let entry = inbound::HeldEntry::new(state.clone(), a, 1);
        inbound.sweep(9);
        assert_eq!(entry.poll_result(cx), Poll::Pending);
        end();
        assert_eq!(entry.poll_result(cx), Poll::Ready(expected));
    }
    assert!(inbound.hold(a, 1, 10), "the entry is gone");
}
