//! How many frames carry what nodes say to one another: each costs a wake-up of the sender, of NATS and of the receiver.

use std::sync::Arc;

use cluster::{
    Claim, Cluster, Envelope, EnvelopeClass, EnvelopeKind, HandoverResult, Inbox, MembershipChange, NodeId,
    PeerViolation, Recipient, Ticket,
};
use jid::Jid;

use super::network::{Faults, SimulatedNetwork, SimulatedNode, name};

/// Settles every envelope at once.
struct Settling(Arc<SimulatedNode>);

impl Inbox for Settling {
    fn on_envelope(&self, from: NodeId, envelope: Envelope) {
        self.0.settle(from, envelope.ticket(), HandoverResult::Safe);
    }

    fn on_receipts(&self, _: NodeId, _: Ticket, _: &[Ticket]) {}

    fn on_refused(&self, from: NodeId, _: Envelope) {
        panic!("refused by {from}");
    }

    fn on_undelivered(&self, to: NodeId, _: Envelope) {
        panic!("not delivered to {to}");
    }

    fn on_membership_change(&self, _: MembershipChange) {}

    fn on_violation(&self, from: NodeId, violation: PeerViolation) {
        panic!("{from}: {violation:?}");
    }
}

fn message(from: NodeId) -> Envelope {
    let to = Recipient::from(Jid::parse("juliet@example.com").unwrap());
    Envelope::new(EnvelopeKind::RunChain, EnvelopeClass::Message, from, vec![to], &b"x"[..])
}

fn frames(network: &SimulatedNetwork) -> u64 {
    let nodes = network.nodes.lock().clone();
    nodes.iter().map(|node| node.core.status().statistics.frames_sent).sum()
}

fn network(names: &[&str]) -> Arc<SimulatedNetwork> {
    let network = SimulatedNetwork::new(names, 1, Faults::default());
    let nodes = network.nodes.lock().clone();
    for node in nodes {
        node.attach(Arc::new(Settling(node.clone())));
    }
    assert!(network.run(5_000, SimulatedNetwork::is_quiet));
    network.run(1_000, |_| false);
    network
}

#[test]
fn a_lone_message_does_not_wait() {
    let network = network(&["a", "b"]);
    let node = network.node(name("a"));
    node.deliver(name("b"), message(name("a"))).unwrap();
    network.step();
    assert_eq!(network.node(name("b")).core.status().statistics.envelopes_received, 1);
}

#[test]
fn receipts_travel_with_the_messages_of_the_other_direction() {
    let network = network(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|node| network.node(name(node)));
    let before = frames(&network);
    for millis in 0..1_000 {
        match millis % 8 {
            0 => drop(a.deliver(name("b"), message(name("a"))).unwrap()),
            4 => drop(b.deliver(name("a"), message(name("b"))).unwrap()),
            _ => {}
        }
        network.step();
    }
    // 250 messages, and nothing for their receipts and acknowledgements.
    let sent = frames(&network) - before;
    assert!((200..=260).contains(&sent), "{sent} frames");
}

#[test]
fn logins_cost_frames_by_time_and_not_by_number() {
    let names: Vec<String> = (10..22).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let network = network(&names);
    let nodes = network.nodes.lock().clone();
    let before = frames(&network);
    // Two seconds with a login each 10 ms on each of 12 nodes, and a message each 100 ms to one node, which needs the claims first.
    for millis in 0..2_000_u64 {
        for (number, node) in (0_u64..).zip(&nodes) {
            if (millis + number) % 10 == 0 {
                let address = 1 + 1_000_000 * number + millis;
                node.claim(Claim { address, number: None, since: millis, takes_messages: true });
            }
            if (millis + number) % 100 == 0 {
                let next = &nodes[(number as usize + 1) % nodes.len()];
                node.deliver(next.core.node(), message(node.core.node())).unwrap();
            }
        }
        network.step();
    }
    let sent = frames(&network) - before;
    // A frame each 55 ms on each of 132 links would be 4 800; a frame for each login on each link 26 400.
    assert!(sent < 6_000, "{sent} frames");
    assert!(network.run(1_000, SimulatedNetwork::is_quiet));
    for node in &nodes {
        assert_eq!(node.core.status().peer_claims, 11 * 200);
    }
}
