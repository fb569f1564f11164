//! Input of a faulty node: octets of other versions, cut and huge ones, false claims, receipts and numbers. It is counted, and
//! neither loses nor doubles messages of others.
//!
//! False recipients and random contents are in `handovers.rs`, the decoder's own tests in `cluster/tests/envelope.rs`, and a
//! node that ignores its bounds in `features/tests/lanes.rs`.

use std::collections::BTreeSet;

use cluster::conformance::InboxEvent;
use cluster::{Cluster, Envelope, EnvelopeClass, EnvelopeKind, HandoverResult, PeerViolation, Recipient};
use jid::Jid;

use crate::handovers::{JULIET, Peer, chat, handed_over, messages};

fn juliets_address() -> Vec<Recipient> {
    vec![Jid::parse(JULIET).expect("an address").into()]
}

#[test]
fn envelopes_of_other_versions_cut_ones_and_huge_ones_are_counted_and_the_next_one_arrives() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    let (kind, class) = (EnvelopeKind::RunChain, EnvelopeClass::Message);
    let envelope = Envelope::new(kind, class, Peer::id(), juliets_address(), handed_over("1").as_bytes());
    let mut whole = Vec::new();
    envelope.encode(&mut whole).expect("an envelope");
    let of_version = |version: u8| [&[version][..], &whole[1..]].concat();
    let (older, newer) = (Envelope::VERSION - 1, Envelope::VERSION + 1);
    let mut wrong: Vec<Vec<u8>> = [0, older, newer, u8::MAX].map(of_version).into();
    // A later version may have more fields.
    wrong.push([of_version(newer), vec![0; 1000]].concat());
    wrong.extend((0..whole.len()).map(|end| whole[..end].to_vec()));
    let mut huge = whole.clone();
    huge.resize(2 * Envelope::MAX, 0);
    wrong.push(huge);
    for octets in &wrong {
        test.nodes.bus.inject(Peer::id(), test.nodes.id(0), octets);
    }
    test.nodes.settle();
    assert_eq!(test.violations(PeerViolation::Envelope), wrong.len() as u64);
    assert!(messages(&juliet).is_empty());
    test.send(kind, juliets_address(), &handed_over("2"));
    assert_eq!(messages(&juliet).len(), 1);
}

/// Each kind of the engine has a layout of its own.
#[test]
fn what_nodes_send_each_other_may_be_cut_anywhere() {
    let test = Peer::new();
    test.nodes.node(0).befriend("romeo", "juliet");
    test.claim(0);
    let [romeo, juliet] =
        [("romeo", "orchard"), ("juliet", "balcony")].map(|(user, resource)| test.online(0, user, resource));
    romeo.send("<presence><show>away</show></presence>");
    romeo.send(&chat("1"));
    juliet.send("<iq type='set' id='b'><block xmlns='urn:xmpp:blocking'><item jid='a@b'/></block></iq>");
    juliet.send("<presence type='unavailable'/>");
    test.nodes.settle();
    let envelope = |event| match event {
        InboxEvent::Envelope(from, envelope) if from == test.nodes.id(0) => Some(envelope),
        _ => None,
    };
    let sent: Vec<Envelope> = test.inbox.events().into_iter().filter_map(envelope).collect();
    let kinds: BTreeSet<u8> = sent.iter().filter_map(|envelope| envelope.header.kind.to_byte()).collect();
    assert!(kinds.len() >= 3, "kinds {kinds:?}");
    let mut last = None;
    for Envelope { header, recipients, bytes } in sent {
        for end in 0..bytes.len() {
            let recipients = recipients.clone();
            let mut cut = Envelope::new(header.kind, header.class, Peer::id(), recipients, &bytes[..end]);
            cut.header.hops = header.hops;
            let ticket = test.peer.deliver(test.nodes.id(0), cut).expect("accepted");
            last = Some(ticket).filter(|ticket| ticket.has_receipt()).or(last);
        }
        test.nodes.settle();
        for client in [&romeo, &juliet] {
            client.recv();
        }
    }
    test.nodes.settle();
    assert!(test.inbox.receipt(test.nodes.id(0)) >= last, "every ticket ends");
    let late = test.online(0, "juliet", "late");
    test.send(EnvelopeKind::RunChain, juliets_address(), &handed_over("last"));
    let received = messages(&late);
    let count = received.iter().filter(|message| message.contains(" id='last'")).count();
    assert_eq!(count, 1, "{received:?}");
}

/// Their kind is all that they say.
#[test]
fn what_must_be_empty_is_counted_if_it_is_not() {
    let test = Peer::new();
    for kind in [12, 13].map(EnvelopeKind::Engine) {
        test.send(kind, juliets_address(), "");
        test.send(kind, Vec::new(), "x");
        test.send(kind, Vec::new(), "");
    }
    assert_eq!((test.violations(PeerViolation::Payload), test.violations(PeerViolation::Kind)), (4, 0));
}

/// The node with the oldest claim is the home: the next claim is asked when it refuses, or is gone.
#[test]
fn a_false_claim_on_the_address_of_another_node_loses_and_doubles_no_message() {
    let test = Peer::new();
    test.claim(0);
    let (juliet, romeo) = (test.online(1, "juliet", "balcony"), test.online(0, "romeo", "orchard"));
    romeo.send(&chat("1"));
    test.nodes.settle();
    let received = test.received();
    assert_eq!((received.len(), received[0].header.kind), (1, EnvelopeKind::RunChain));
    assert!(messages(&juliet).is_empty() && romeo.handled() < romeo.sent());
    test.settle_reports();
    assert!(test.peer.settle(test.nodes.id(0), received[0].ticket(), HandoverResult::Refused));
    test.nodes.settle();
    assert_eq!(messages(&juliet).len(), 1);
    romeo.send(&chat("2"));
    test.nodes.settle();
    assert!(messages(&juliet).is_empty());
    test.nodes.bus.crash(Peer::id());
    test.nodes.settle();
    // The stanzas of a stream wait for a poll of it.
    romeo.recv();
    test.nodes.settle();
    let late = messages(&juliet);
    assert!(late.len() == 1 && late[0].contains(" id='2'"), "{late:?}");
    assert_eq!(romeo.handled(), romeo.sent());
}

#[test]
fn a_node_that_repeats_and_skips_numbers_loses_and_doubles_no_message() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    let mut received = Vec::new();
    for id in 0..10 {
        test.nodes.bus.inject_numbers(Peer::id(), test.nodes.id(0));
        test.send(EnvelopeKind::RunChain, juliets_address(), &handed_over(&id.to_string()));
        received.extend(messages(&juliet));
    }
    let in_order = received.iter().enumerate().all(|(id, text)| text.contains(&format!(" id='{id}'")));
    assert!(received.len() == 10 && in_order, "{received:?}");
}

#[test]
fn a_receipt_for_what_was_never_sent_acknowledges_no_message() {
    let test = Peer::new();
    test.claim(0);
    let romeo = test.online(0, "romeo", "orchard");
    romeo.send(&chat("1"));
    test.nodes.settle();
    assert_eq!(romeo.sent() - romeo.handled(), 1);
    for _ in 0..3 {
        test.nodes.bus.inject_receipts(Peer::id(), test.nodes.id(0), u64::MAX, Vec::new(), Vec::new());
    }
    test.nodes.settle();
    assert_eq!((test.violations(PeerViolation::Receipt), romeo.sent() - romeo.handled()), (3, 1));
}

/// It stays a member, so no detection of failures ends what it has received.
#[test]
fn a_node_that_settles_nothing_does_not_stop_the_streams_of_clients() {
    let test = Peer::new();
    test.claim(1);
    let romeo = test.online(0, "romeo", "orchard");
    romeo.send(&chat("1"));
    let juliet = test.online(1, "juliet", "balcony");
    test.release();
    test.settle_reports();
    romeo.send(&chat("2"));
    test.nodes.settle();
    assert!(messages(&juliet).is_empty() && messages(&romeo).is_empty());
    test.nodes.advance(30);
    test.nodes.settle();
    let errors = messages(&romeo);
    assert!(
        errors.len() == 1 && errors[0].contains(" id='1'") && errors[0].contains("type='error'"),
        "{errors:?}"
    );
    test.nodes.settle();
    let received = messages(&juliet);
    assert!(received.len() == 1 && received[0].contains(" id='2'"), "{received:?}");
    test.nodes.settle();
    assert_eq!((romeo.handled(), test.violations(PeerViolation::Unsettled)), (romeo.sent(), 1));
    // Its sender has the error.
    let late = test.received()[0].ticket();
    assert!(test.peer.settle(test.nodes.id(0), late, HandoverResult::Refused));
    test.nodes.settle();
    assert!(messages(&juliet).is_empty());
}

#[test]
fn a_report_of_a_session_that_is_bound_in_the_future_ends_no_session() {
    let test = Peer::new();
    let juliet = test.online(0, "juliet", "balcony");
    test.claim(u64::MAX);
    let report = |bound_at: u64| {
        let octets = [&[0, 7][..], b"balcony", &[1, 0], &[0; 8], &bound_at.to_be_bytes()].concat();
        let kind = EnvelopeKind::SessionReport;
        let envelope = Envelope::new(kind, EnvelopeClass::Control, Peer::id(), juliets_address(), octets);
        test.peer.deliver(test.nodes.id(0), envelope).expect("accepted");
        test.nodes.settle();
        (juliet.session.is_ended(), test.violations(PeerViolation::Payload))
    };
    assert_eq!(report(u64::MAX), (false, 1));
    let again = test.online(0, "juliet", "balcony");
    assert!(!again.session.is_ended() && juliet.session.is_ended());
    // What the first report has is older than the session here.
    assert_eq!(report(0), (true, 1));
    // Two clocks need not agree.
    assert_eq!(report(test.nodes.node(0).node.clock.unix_millis() + 1000), (true, 1));
    assert!(again.session.is_ended());
}
