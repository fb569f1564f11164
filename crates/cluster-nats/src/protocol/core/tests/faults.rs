//! Cuts, crashes, restarts, long envelopes, floods of changes, damaged directories.

use std::sync::Arc;

use cluster::conformance::{InboxEvent, InboxRecorder, test_claim, test_envelope};
use cluster::{
    AddressLocation, Claim, ClaimChange, Cluster, Envelope, EnvelopeClass, EnvelopeKind, MembershipChange,
    NodeId, Recipient, RefusalReason,
};

use super::network::{Faults, SimulatedNetwork, name};
use crate::protocol::directory::Digest;
use crate::protocol::entry::NodeSlot;
use crate::protocol::member_record::MemberRecord;
use crate::protocol::state::UnusableMember;
use crate::protocol::version_range::VersionRange;

struct Pair {
    network: Arc<SimulatedNetwork>,
    nodes: [Arc<dyn Cluster>; 2],
    inboxes: [Arc<InboxRecorder>; 2],
}

fn pair_with(attach: fn(&Arc<dyn Cluster>) -> Arc<InboxRecorder>) -> Pair {
    let network = SimulatedNetwork::new(&["a", "b"], 1, Faults::default());
    let nodes = ["a", "b"].map(|node| network.node(name(node)) as Arc<dyn Cluster>);
    let inboxes = [attach(&nodes[0]), attach(&nodes[1])];
    network.run(100, SimulatedNetwork::is_quiet);
    Pair { network, nodes, inboxes }
}

fn connected_pair() -> Pair {
    pair_with(InboxRecorder::attach)
}

fn message(text: &str) -> Envelope {
    test_envelope(name("a"), EnvelopeClass::Message, text)
}

fn left(inbox: &InboxRecorder) -> Vec<(NodeId, Vec<Claim>, bool)> {
    let left = |event| match event {
        InboxEvent::Changed(MembershipChange::Left { node, claims, orderly }) => {
            Some((node, claims, orderly))
        }
        _ => None,
    };
    inbox.events().into_iter().filter_map(left).collect()
}

fn undelivered(inbox: &InboxRecorder) -> Vec<String> {
    let text = |event| match event {
        InboxEvent::Undelivered(_, envelope) => Some(String::from_utf8_lossy(&envelope.bytes).into_owned()),
        _ => None,
    };
    inbox.events().into_iter().filter_map(text).collect()
}

#[test]
fn a_node_that_is_cut_off_is_gone_after_ten_seconds_and_joins_again_with_its_claims() {
    let Pair { network, nodes: [one, two], inboxes: [inbox, other] } = connected_pair();
    let claim = test_claim(7, 1, 5);
    two.claim(claim);
    assert!(network.run(50, |_| one.locate(7, None).contains(name("a"), name("b"))));
    assert!(one.deliver(name("b"), message("before")).is_ok());
    network.run(50, SimulatedNetwork::is_quiet);
    network.cut(name("a"), name("b"));
    let cut_at = network.now();
    assert!(one.deliver(name("b"), message("lost")).is_ok());
    network.run(6_000, |_| false);
    assert!(left(&inbox).is_empty(), "a short interruption ends nothing");
    assert!(network.run(20_000, |_| !left(&inbox).is_empty() && !left(&other).is_empty()));
    assert!(network.now().since(cut_at) <= 10_001, "{}", network.now().since(cut_at));
    assert_eq!(left(&inbox), [(name("b"), vec![claim], false)]);
    assert_eq!(undelivered(&inbox), ["lost"]);
    assert_eq!(one.locate(7, None), AddressLocation::Nowhere);
    assert_eq!((one.members().len(), two.members().len()), (1, 1));
    let refused = one.deliver(name("b"), message("gone")).unwrap_err();
    assert_eq!(refused.reason, RefusalReason::UnknownNode);
    two.claim(test_claim(8, 1, 6));
    network.heal(name("a"), name("b"));
    assert!(network.run(5_000, SimulatedNetwork::is_connected), "healed with the next records");
    assert!(network.run(50, |_| one.locate(8, None).contains(name("a"), name("b"))));
    assert_eq!(inbox.claims().last().map(|(_, claim)| claim.address), Some(8));
    let ticket = one.deliver(name("b"), message("after")).unwrap();
    network.run(50, SimulatedNetwork::is_quiet);
    assert_eq!(other.texts(name("a")), ["before", "after"]);
    assert!(other.tickets(name("a")).is_sorted_by(|one, next| one < next));
    assert_eq!(inbox.receipt(name("b")), Some(ticket));
}

/// A node that is gone never takes what is for it.
#[test]
fn a_node_that_leaves_tells_each_other_one_as_soon_as_nothing_follows() {
    let network = SimulatedNetwork::new(&["a", "b", "c"], 1, Faults::default());
    let [one, two] = ["a", "b"].map(|node| network.node(name(node)) as Arc<dyn Cluster>);
    let inbox = InboxRecorder::attach(&one);
    let _other = InboxRecorder::attach(&two);
    network.run(100, SimulatedNetwork::is_quiet);
    network.crash(name("c"));
    two.claim(test_claim(7, 1, 5));
    let leaver = network.node(name("b"));
    leaver.core.begin_leave();
    assert!(network.run(1_000, |_| {
        assert!(!leaver.core.send_leave(false), "the node that is gone has not answered");
        !left(&inbox).is_empty()
    }));
    assert_eq!(left(&inbox), [(name("b"), vec![test_claim(7, 1, 5)], true)]);
    // What follows is for the other one only.
    two.release(7, test_claim(7, 1, 5).number);
    network.run(100, |_| leaver.core.send_leave(false));
    assert!(leaver.core.send_leave(true));
    assert_eq!(left(&inbox).len(), 1);
}

#[test]
fn a_short_interruption_loses_nothing_and_ends_nothing() {
    let Pair { network, nodes: [one, two], inboxes: [inbox, other] } = connected_pair();
    let mut sent = Vec::new();
    for number in 0..60 {
        if number % 10 == 3 {
            network.cut(name("a"), name("b"));
        }
        if number % 10 == 8 {
            network.heal(name("a"), name("b"));
        }
        let text = number.to_string();
        assert!(one.deliver(name("b"), message(&text)).is_ok());
        two.claim(test_claim(number, 1, 1));
        sent.push(text);
        network.run(300, |_| false);
    }
    assert!(network.run(10_000, SimulatedNetwork::is_quiet));
    assert_eq!(other.texts(name("a")), sent);
    assert!(left(&inbox).is_empty() && left(&other).is_empty());
    assert_eq!(inbox.claims().len(), 60);
}

#[test]
fn only_one_side_notices_a_partition_and_the_link_begins_again() {
    let Pair { network, nodes: [one, two], inboxes: [inbox, other] } = connected_pair();
    assert!(two.deliver(name("a"), message("first")).is_ok());
    network.run(50, SimulatedNetwork::is_quiet);
    // A process that was stopped for a while finds that it has received nothing.
    let late = network.now().plus(10_001);
    network.node(name("a")).core.poll(late, 8, true);
    network.node(name("a")).core.run_calls();
    assert_eq!(left(&inbox).len(), 1);
    assert!(network.run(10_000, SimulatedNetwork::is_connected));
    assert!(network.run(1_000, |_| left(&other).len() == 1 && two.members().len() == 2));
    assert!(one.deliver(name("b"), message("second")).is_ok());
    assert!(two.deliver(name("a"), message("second")).is_ok());
    network.run(100, SimulatedNetwork::is_quiet);
    assert_eq!(
        (inbox.texts(name("b")), other.texts(name("a"))),
        (vec!["first".into(), "second".into()], vec!["second".into()])
    );
}

#[test]
fn a_link_that_works_in_one_direction_ends_on_both_sides_and_returns_what_was_sent() {
    let Pair { network, nodes: [one, two], inboxes: [inbox, other] } = connected_pair();
    network.cut_one_way(name("a"), name("b"));
    let cut_at = network.now();
    assert!(one.deliver(name("b"), message("lost")).is_ok());
    assert!(network.run(60_000, |_| !left(&inbox).is_empty() && !left(&other).is_empty()));
    // A node begins another link after ten seconds with the next record, at the latest three seconds later.
    assert!(network.now().since(cut_at) <= 14_000, "{}", network.now().since(cut_at));
    assert_eq!(undelivered(&inbox), ["lost"]);
    for _ in 0..60 {
        network.run(1_000, |_| false);
        assert_eq!((one.members().len(), two.members().len()), (1, 1));
    }
    assert_eq!(network.node(name("b")).core.status().statistics.lost_nodes, 1);
    network.heal(name("a"), name("b"));
    assert!(network.run(5_000, SimulatedNetwork::is_connected));
    assert!(one.deliver(name("b"), message("after")).is_ok());
    network.run(100, SimulatedNetwork::is_quiet);
    assert_eq!(other.texts(name("a")), ["after"]);
}

#[test]
fn a_node_whose_messages_never_arrived_is_no_member() {
    let network = SimulatedNetwork::new(&["a"], 1, Faults::default());
    network.cut_one_way(name("b"), name("a"));
    let one = network.node(name("a"));
    let two = network.join(name("b"));
    network.run(30_000, |_| false);
    assert_eq!((one.members().len(), two.members().len()), (1, 1));
    network.heal(name("a"), name("b"));
    assert!(network.run(1_000, SimulatedNetwork::is_connected));
}

#[test]
fn a_node_that_restarts_ends_its_former_epoch_at_once() {
    let Pair { network, nodes: [one, _], inboxes: [inbox, _] } = connected_pair();
    assert!(one.deliver(name("b"), message("on its way")).is_ok());
    network.crash(name("b"));
    let again = network.join(name("b"));
    let recorder = InboxRecorder::attach(&(again.clone() as Arc<dyn Cluster>));
    assert!(network.run(4_000, SimulatedNetwork::is_connected), "with the next record");
    assert_eq!(left(&inbox), [(name("b"), vec![], false)]);
    assert_eq!(undelivered(&inbox), ["on its way"]);
    assert!(one.deliver(name("b"), message("to the new one")).is_ok());
    network.run(50, SimulatedNetwork::is_quiet);
    assert_eq!(recorder.texts(name("a")), ["to the new one"]);
}

#[test]
fn another_process_with_the_same_name_ends_this_one() {
    let Pair { network, nodes: [one, two], inboxes: [_, other] } = connected_pair();
    let record = MemberRecord::new(name("b"), 1_000);
    assert!(network.node(name("b")).core.see_member(network.now(), &record).is_ok());
    network.node(name("b")).core.run_calls();
    assert_eq!(left(&other).len(), 1);
    assert_eq!(two.members().len(), 1);
    assert_eq!(two.deliver(name("a"), message("x")).unwrap_err().reason, RefusalReason::UnknownNode);
    // A record of an earlier start is none.
    let record = MemberRecord::new(name("a"), 0);
    assert!(network.node(name("a")).core.see_member(network.now(), &record).is_ok());
    assert_eq!(one.members().len(), 2);
}

#[test]
fn nodes_of_two_versions_communicate_in_the_one_that_both_read() {
    let network = SimulatedNetwork::new(&["a"], 1, Faults::default());
    let newer = network.join(name("b"));
    let record = MemberRecord { frames: VersionRange { oldest: 1, newest: 7 }, ..newer.core.record() };
    newer.announce(record);
    assert!(network.run(5_000, SimulatedNetwork::is_connected));
    let header = network.node(name("a")).core.with(|state| state.next_header(name("b")));
    assert_eq!(header.map(|header| header.version), Some(1));
    let newest = network.join(name("c"));
    newest.announce(MemberRecord { frames: VersionRange { oldest: 2, newest: 7 }, ..newest.core.record() });
    network.run(5_000, |_| false);
    assert_eq!(network.node(name("a")).core.members().len(), 2);
    assert!(network.node(name("a")).core.status().statistics.unreadable_nodes > 0);
}

/// Each release reads the versions of the release before: nodes are upgraded one after the other, and exchange what both know.
#[test]
fn a_rolling_upgrade_keeps_nodes_of_neighbouring_releases_together() {
    let Pair { network, nodes, inboxes } = connected_pair();
    // b is stopped, and comes back as the next release, which reads both.
    network.crash(name("b"));
    let upgraded = network.join(name("b"));
    upgraded.announce(MemberRecord {
        frames: VersionRange { oldest: 1, newest: 2 },
        envelopes: VersionRange { oldest: Envelope::VERSION, newest: Envelope::VERSION + 1 },
        ..upgraded.core.record()
    });
    let cluster: Arc<dyn Cluster> = upgraded.clone();
    let inbox = InboxRecorder::attach(&cluster);
    assert!(network.run(15_000, SimulatedNetwork::is_connected));
    assert!(cluster.deliver(name("a"), message("from the next release")).is_ok());
    assert!(nodes[0].deliver(name("b"), message("from this one")).is_ok());
    assert!(network.run(5_000, |_| {
        inboxes[0].texts(name("b")) == ["from the next release"]
            && inbox.texts(name("a")) == ["from this one"]
    }));
    // The one after that does not read the versions of a any more.
    network.crash(name("b"));
    let later = network.join(name("b"));
    later.announce(MemberRecord { frames: VersionRange { oldest: 2, newest: 3 }, ..later.core.record() });
    network.run(15_000, |_| false);
    let a = network.node(name("a"));
    assert_eq!(a.core.members().len(), 1, "they do not see each other");
    assert!(a.core.status().statistics.unreadable_nodes > 0, "and a says so");
}

#[test]
fn a_node_joins_after_any_earlier_epoch() {
    let network = SimulatedNetwork::new(&["a"], 1, Faults::default());
    let core = &network.node(name("a")).core;
    for (earlier, next) in [(7, 8), (3, 8), (u64::MAX - 1, u64::MAX), (u64::MAX, u64::MAX)] {
        core.start_after(earlier);
        assert_eq!(core.record().member.epoch, next);
    }
}

#[test]
fn an_envelope_of_the_largest_size_arrives_in_parts() {
    let Pair { network, nodes: [one, _], inboxes: [inbox, other] } = connected_pair();
    let address = jid::Jid::parse("juliet@example.com").unwrap();
    let recipients = vec![Recipient::from(address); 8192];
    let bytes = vec![b'x'; Envelope::MAX_BYTES];
    let large = Envelope::new(EnvelopeKind::RunChain, EnvelopeClass::Message, name("a"), recipients, bytes);
    let mut tickets = Vec::new();
    for _ in 0..3 {
        assert!(one.deliver(name("b"), message("small")).is_ok());
        tickets.push(one.deliver(name("b"), large.clone()).unwrap());
    }
    assert!(network.run(1_000, SimulatedNetwork::is_quiet));
    assert_eq!(other.texts(name("a")).len(), 6);
    assert_eq!(inbox.receipt(name("b")), tickets.last().copied());
}

#[test]
fn a_flood_of_changes_becomes_a_snapshot() {
    let Pair { network, nodes: [one, two], inboxes: [_, _] } = connected_pair();
    network.cut(name("a"), name("b"));
    let claims = 1_000;
    for round in 0..600 {
        for address in 0..claims {
            let claim = test_claim(address << 44, 1, 1);
            one.claim(claim);
            if round < 599 {
                one.release(claim.address, claim.number);
            }
        }
        network.run(6, |_| false);
    }
    network.heal(name("a"), name("b"));
    assert!(network.run(8_000, SimulatedNetwork::is_quiet));
    assert!((0..claims).all(|address| two.locate(address << 44, None) != AddressLocation::Nowhere));
    assert_eq!(network.node(name("b")).core.status().peer_claims, usize::try_from(claims).unwrap());
}

#[test]
fn a_digest_that_differs_causes_another_snapshot() {
    let Pair { network, nodes: [one, two], inboxes: [_, other] } = connected_pair();
    (0..100).for_each(|address| one.claim(test_claim(address, 1, 1)));
    // Until the digest was sent that follows from these claims.
    network.run(6_000, |_| false);
    let reader = network.node(name("b"));
    let mut digest = Digest::default();
    for address in 0..10 {
        let lost = ClaimChange::Released(address, test_claim(0, 1, 0).number);
        reader.core.directory.apply(NodeSlot(1), &mut digest, lost);
        let ghost = ClaimChange::Claimed(test_claim(1_000 + address, 1, 1));
        reader.core.directory.apply(NodeSlot(1), &mut digest, ghost);
    }
    // The digest of what was applied is right until the directory is compared: damage it, too.
    reader.core.with(|state| state.damage_digest(name("a"), digest));
    assert!(network.run(6_000, |_| two.locate(3, None) != AddressLocation::Nowhere), "by the next digest");
    assert_eq!(two.locate(1_003, None), AddressLocation::Nowhere);
    assert!(other.claims().len() >= 110, "those that were missing are reported again");
    assert_eq!(reader.core.status().statistics.digest_mismatches, 1);
    network.run(20_000, |_| false);
    assert_eq!(reader.core.status().statistics.digest_mismatches, 1);
}

#[test]
fn claims_that_had_no_room_are_known_once_there_is_room() {
    let Pair { network, nodes: [one, two], inboxes: [_, _] } = connected_pair();
    let reader = network.node(name("b"));
    // The limit of these tests is 5 000.
    (0..5_100).for_each(|address| one.claim(test_claim(address, 1, 1)));
    network.run(50, SimulatedNetwork::is_quiet);
    assert_eq!(reader.core.status().peer_claims, 5_000);
    network.run(70_000, |_| false);
    assert_eq!(reader.core.status().statistics.digest_mismatches, 0, "a snapshot would not have room");
    (0..200).for_each(|address| one.release(address, test_claim(0, 1, 1).number));
    assert!(network.run(6_000, |_| reader.core.status().peer_claims == 4_900));
    assert_ne!(two.locate(5_099, None), AddressLocation::Nowhere);
    network.run(70_000, |_| false);
    assert_eq!(reader.core.status().statistics.digest_mismatches, 1);
}

#[test]
fn a_snapshot_in_parts_is_reported_once_and_slots_of_gone_nodes_are_used_again() {
    let Pair { network, nodes: [one, two], inboxes: [_, other] } = connected_pair();
    // More than two items of a snapshot.
    let count = 4_900;
    (0..count).for_each(|address| one.claim(test_claim(address << 50, 1, 1)));
    network.run(100, SimulatedNetwork::is_quiet);
    assert_eq!(other.claims().len(), 4_900);
    for round in 1..4 {
        network.cut(name("a"), name("b"));
        assert!(network.run(20_000, |_| left(&other).len() == round));
        assert_eq!(left(&other)[round - 1].1.len(), 4_900);
        assert_eq!(network.node(name("b")).core.status().peer_claims, 0);
        network.heal(name("a"), name("b"));
        assert!(network.run(20_000, |network| network.is_connected() && network.is_quiet()));
        assert_eq!(other.claims().len(), 4_900 * (round + 1));
        assert!((0..count).all(|address| two.locate(address << 50, None).contains(name("b"), name("a"))));
    }
}

#[test]
fn envelopes_of_a_millisecond_share_a_frame_and_claims_go_with_them() {
    let Pair { network, nodes: [one, _], inboxes: [_, other] } = connected_pair();
    network.run(5, |_| false);
    let before = network.node(name("a")).core.status().statistics.frames_sent;
    for number in 0..200 {
        one.claim(test_claim(number, 1, 1));
        assert!(one.deliver(name("b"), message(&number.to_string())).is_ok());
    }
    network.run(3, |_| false);
    assert_eq!(other.texts(name("a")).len(), 200);
    assert_eq!(other.claims().len(), 200);
    let frames = network.node(name("a")).core.status().statistics.frames_sent - before;
    assert!(frames <= 2, "{frames}");
}

#[test]
fn a_queue_that_is_full_refuses_and_has_room_after_receipts() {
    let Pair { network, nodes: [one, two], inboxes: [inbox, other] } =
        pair_with(InboxRecorder::attach_unsettled);
    let envelope = message(&"x".repeat(100_000));
    let fill = || (0..1_000).take_while(|_| one.deliver(name("b"), envelope.clone()).is_ok()).count();
    let room = fill();
    assert!((50..100).contains(&room), "{room}");
    let refused = one.deliver(name("b"), envelope.clone()).unwrap_err();
    assert_eq!(refused.envelope, envelope, "it was not prepared to be sent, which takes time");
    let best_effort = test_envelope(name("a"), EnvelopeClass::BestEffort, &"x".repeat(100_000));
    let refused = (0..20).filter(|_| one.deliver(name("b"), best_effort.clone()).is_err()).count();
    assert!(refused > 5, "best effort has a bound of its own");
    network.run(1_000, SimulatedNetwork::is_quiet);
    let tickets: Vec<_> =
        other.tickets(name("a")).into_iter().filter(|ticket| ticket.has_receipt()).collect();
    assert_eq!(tickets.len(), room);
    for ticket in tickets {
        assert!(two.settle(name("a"), ticket, cluster::HandoverResult::Safe));
    }
    network.run(1_000, SimulatedNetwork::is_quiet);
    assert!(inbox.receipt(name("b")).is_some());
    assert_eq!(fill(), room);
}

#[test]
fn envelopes_for_all_nodes_together_are_bounded_and_each_has_a_share() {
    let names: Vec<String> = (0..14).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let network = SimulatedNetwork::new(&names, 1, Faults::default());
    let sender = network.node(name("n0"));
    let envelope = message(&"x".repeat(500_000));
    let mut rooms = Vec::new();
    for to in &names[1..] {
        rooms.push((0..100).take_while(|_| sender.deliver(name(to), envelope.clone()).is_ok()).count());
    }
    assert_eq!(rooms[0], 16);
    assert_eq!(rooms[12], 2, "the share of a node");
    assert!(sender.core.status().kept_bytes < 70 << 20, "{}", sender.core.status().kept_bytes);
}

#[test]
fn a_cluster_has_a_largest_number_of_nodes_and_refuses_other_versions() {
    let network = SimulatedNetwork::new(&["a"], 1, Faults::default());
    let core = &network.node(name("a")).core;
    let mut old = MemberRecord::new(name("old"), 5);
    old.frames = VersionRange::only(0);
    assert_eq!(core.see_member(network.now(), &old), Err(UnusableMember::NoCommonVersion));
    for number in 0..100 {
        let node = NodeId::new(&format!("node-{number}")).unwrap();
        let seen = core.see_member(network.now(), &MemberRecord::new(node, 5));
        assert_eq!(seen, if number < 63 { Ok(()) } else { Err(UnusableMember::TooManyNodes) });
    }
    assert_eq!(core.status().statistics.unreadable_nodes, 1 + 100 - 63);
    network.run(11_000, |_| false);
    assert_eq!(core.members().len(), 1, "none has ever answered");
}
