//! Queues to another node that are full, because it is lost and the others have not noticed yet.

use cluster::conformance::InboxEvent;
use cluster::{Claim, Cluster, EnvelopeKind, HandoverResult, Recipient};
use jid::Jid;
use testkit::NodeClient;

use super::handovers::{JULIET, Peer, chat, messages};

/// Numbers of messages and octets of their bodies, for more than the queue to the peer holds. The last leave less room than an
/// error needs.
const MESSAGES: [(usize, usize); 4] = [(30, 200_000), (30, 10_000), (50, 500), (20, 1)];

/// Sends them; how many.
fn fill_queue(test: &Peer, client: &NodeClient, to: &str) -> usize {
    let bodies = MESSAGES.iter().flat_map(|(count, octets)| std::iter::repeat_n(*octets, *count));
    let mut sent = 0;
    for octets in bodies {
        client.send(&chat(&sent.to_string()).replace(JULIET, to).replace("Hello", &"x".repeat(octets)));
        sent += 1;
    }
    test.nodes.settle();
    sent
}

/// The peer has an older claim on this user's address than any other node, from a session that ended with it.
fn claim_as_home(test: &Peer, user: &str) {
    let principal = test.nodes.node(0).principal(user);
    let address = test.nodes.node(0).node.routing_table.hash(principal.jid.as_ref());
    test.peer.claim(Claim { address, number: Some(principal.id.0), since: 0, takes_messages: true });
    test.nodes.settle();
    test.nodes.clock.advance(10);
}

/// A full queue must not choose another home: that one would deliver before what is in the queue.
#[test]
fn a_message_that_does_not_fit_into_the_queue_of_its_home_returns_with_an_error() {
    let test = Peer::new();
    test.claim(0);
    test.nodes.clock.advance(10);
    let juliet = test.online(1, "juliet", "balcony");
    let romeo = test.online(0, "romeo", "orchard");
    let sent = fill_queue(&test, &romeo, JULIET);
    let errors = messages(&romeo);
    assert!(!errors.is_empty() && errors.iter().all(|error| error.contains("<resource-constraint")));
    let accepted = test.received().len();
    assert_eq!(accepted + errors.len(), sent);
    assert!(messages(&juliet).is_empty(), "her home is the other node");
    let counted = test.nodes.node(0).node.metrics.cluster_not_queued.get(["queue-full"]);
    assert_eq!(counted, errors.len() as u64);
}

/// The sender has begun its session anew after the loss of that node. Its stream counts the refused messages, so a lost error
/// would be a lost message.
#[test]
fn a_sender_whose_former_node_is_not_known_to_be_lost_receives_the_error_of_a_full_queue() {
    let test = Peer::new();
    test.claim(0);
    claim_as_home(&test, "romeo");
    let romeo = test.online(0, "romeo", "orchard");
    romeo.enable_stream_management();
    let sent = fill_queue(&test, &romeo, JULIET);
    let errors = messages(&romeo);
    assert!(!errors.is_empty() && errors.iter().all(|error| error.contains("<resource-constraint")));
    assert_eq!(test.received().len() + errors.len(), sent);
}

#[test]
fn an_error_goes_to_the_node_of_its_recipient_if_the_queue_to_an_older_claim_is_full() {
    let test = Peer::new();
    claim_as_home(&test, "romeo");
    let juliet = test.online(0, "juliet", "balcony");
    let romeo = test.online(1, "romeo", "orchard");
    fill_queue(&test, &juliet, "romeo@example.com");
    assert!(!messages(&juliet).is_empty(), "the queue is full");
    let absent = chat("absent").replace(JULIET, "juliet@example.com/absent").replace("'chat'", "'normal'");
    romeo.send(&absent);
    test.nodes.settle();
    let errors = messages(&romeo);
    assert!(errors.len() == 1 && errors[0].contains("<service-unavailable"), "{errors:?}");
}

/// Romeo is at the peer, and a message of his client causes an error here. The queue to the peer is full. Returns the number of messages that
/// the peer has received.
fn error_without_room(test: &Peer) -> usize {
    claim_as_home(test, "romeo");
    let juliet = test.online(0, "juliet", "balcony");
    fill_queue(test, &juliet, "romeo@example.com");
    assert!(!messages(&juliet).is_empty(), "the queue is full");
    let before = test.received().len();
    let to = Recipient::Address(Jid::parse("juliet@example.com/absent").expect("an address"));
    let lost = "<message from='romeo@example.com/far' to='juliet@example.com/absent' id='lost'><body>x</body></message>";
    test.send(EnvelopeKind::RunChain, vec![to], lost);
    assert_eq!(test.received().len(), before, "there is no room");
    before
}

/// The client resumes its stream there.
#[test]
fn an_error_that_waits_for_room_follows_its_recipient_if_the_node_is_lost() {
    let test = Peer::new();
    error_without_room(&test);
    let romeo = test.online(1, "romeo", "far");
    test.nodes.bus.crash(Peer::id());
    test.nodes.settle();
    let errors: Vec<_> = messages(&romeo).into_iter().filter(|error| error.contains("id='lost'")).collect();
    assert!(errors.len() == 1 && errors[0].contains("<service-unavailable"), "{errors:?}");
}

/// A home whose store fails answers with errors when the queues are full.
#[test]
fn an_error_that_does_not_fit_into_the_queue_to_its_recipient_is_sent_when_there_is_room() {
    let test = Peer::new();
    let before = error_without_room(&test);
    for event in test.inbox.events() {
        if let InboxEvent::Envelope(from, envelope) = event {
            test.peer.settle(from, envelope.ticket(), HandoverResult::Safe);
        }
    }
    test.nodes.settle();
    let received: Vec<_> = test.received().into_iter().skip(before).collect();
    let error = received.iter().map(|envelope| String::from_utf8_lossy(&envelope.bytes));
    let error: Vec<_> = error.filter(|error| error.contains("id='lost'")).collect();
    assert!(error.len() == 1 && error[0].contains("<service-unavailable"), "{error:?}");
}

/// Octets of what has arrived at the peer and contains a probe.
fn probe_octets(test: &Peer) -> usize {
    let octets = |event| match event {
        InboxEvent::Envelope(_, envelope) => {
            let is_probe = envelope.bytes.windows(12).any(|part| part == b"type='probe'");
            is_probe.then(|| envelope.encoded_len())
        }
        _ => None,
    };
    test.inbox.events().into_iter().filter_map(octets).sum()
}

/// Somebody prepares it with sessions on two nodes, and waits until one is lost.
#[test]
fn probes_after_the_loss_of_a_node_take_no_room_of_messages() {
    let mut test = Peer::new();
    let resources = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| format!("{number:0>200}"));
    let recipients = resources.each_ref().map(|resource| test.online(0, "juliet", resource));
    for account in 0..30 {
        let user = format!("user{account}");
        test.nodes.node(0).create_user(&user);
        claim_as_home(&test, &user);
        for session in 0..20 {
            let sender = test.nodes.node(1).connect(&user, &format!("{session:0>200}"));
            sender.send("<presence/>");
            for resource in &resources {
                sender.send(&format!("<presence to='{JULIET}/{resource}'/>"));
            }
        }
        test.nodes.settle();
        recipients.iter().for_each(|recipient| drop(recipient.recv()));
    }
    test.settle_reports();
    test.nodes.crash(1);
    test.nodes.settle();
    let octets = probe_octets(&test);
    assert!((1 << 20..=2 << 20).contains(&octets), "{octets}");
}
