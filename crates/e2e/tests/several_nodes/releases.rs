//! A node of another release beside nodes of this one, as in a rolling upgrade: it refuses kinds of envelopes that it does not know, and
//! sends ones that this release does not know.

use cluster::conformance::InboxEvent;
use cluster::{Cluster, Envelope, EnvelopeClass, EnvelopeKind, HandoverResult, PeerViolation};
use peers::session_transfer::offer_session;

use crate::handovers::{Peer, chat, messages};

/// The peer refuses every envelope of the engine, as a release without these kinds does. Returns their numbers.
fn refuse_kinds_of_the_engine(test: &Peer) -> Vec<u8> {
    let mut refused = Vec::new();
    for event in test.inbox.events() {
        if let InboxEvent::Envelope(from, envelope) = event {
            let of_engine = matches!(envelope.header.kind, EnvelopeKind::Engine(_));
            refused.extend(envelope.header.kind.to_byte().filter(|_| of_engine));
            let result = if of_engine { HandoverResult::Refused } else { HandoverResult::Safe };
            test.peer.settle(from, envelope.ticket(), result);
        }
    }
    test.nodes.settle();
    refused
}

#[test]
fn a_node_that_refuses_kinds_that_it_does_not_know_stops_nothing() {
    let test = Peer::new();
    test.nodes.node(0).befriend("romeo", "juliet");
    let [romeo, juliet] =
        [("romeo", "orchard"), ("juliet", "balcony")].map(|(user, resource)| test.online(0, user, resource));
    romeo.send("<presence><show>away</show></presence>");
    test.nodes.settle();
    let refused = refuse_kinds_of_the_engine(&test);
    assert!(!refused.is_empty(), "presence and probes were refused");
    romeo.send(&chat("1"));
    test.nodes.settle();
    assert_eq!(messages(&juliet).len(), 1);
    for violation in [PeerViolation::Kind, PeerViolation::Payload, PeerViolation::Envelope] {
        assert_eq!(test.violations(violation), 0, "{violation}");
    }
}

#[test]
fn a_session_that_is_offered_to_a_node_without_offers_stays_where_it_is() {
    let test = Peer::new();
    let juliet = test.nodes.node(0).connect("juliet", "balcony");
    juliet.enable_resumption();
    juliet.send("<presence/>");
    test.nodes.settle();
    juliet.recv();
    let node = &test.nodes.node(0).node;
    let account = node.routing_table.find(juliet.bare()).expect("an account");
    let session = account.session("balcony").expect("a session");
    refuse_kinds_of_the_engine(&test);
    assert!(offer_session(node, &session, Peer::id()), "it is sent");
    test.nodes.settle();
    assert!(refuse_kinds_of_the_engine(&test).contains(&(128 + 26)));
    assert!(!session.is_ended());
    test.nodes.node(0).connect("romeo", "orchard").send(&chat("1"));
    test.nodes.settle();
    assert_eq!(messages(&juliet).len(), 1);
}

#[test]
fn kinds_of_a_later_release_are_refused_and_what_follows_arrives() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    for number in [100, EnvelopeKind::MAX_ENGINE] {
        let kind = EnvelopeKind::Engine(number);
        let envelope = Envelope::new(kind, EnvelopeClass::Control, Peer::id(), Vec::new(), &b"later"[..]);
        test.peer.deliver(test.nodes.id(0), envelope).expect("accepted");
    }
    test.nodes.settle();
    let refused = test.inbox.events().into_iter().filter(|event| matches!(event, InboxEvent::Refused(..)));
    assert_eq!((refused.count(), test.violations(PeerViolation::Kind)), (2, 2));
    test.nodes.node(1).connect("romeo", "orchard").send(&chat("1"));
    test.nodes.settle();
    assert_eq!(messages(&juliet).len(), 1);
}
