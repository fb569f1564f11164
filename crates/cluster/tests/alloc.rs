//! Test that a single node allocates nothing for the cluster, and that an envelope is decoded without reserving what it
//! only announces.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::hint::black_box;

use counting_allocator::{count, peak_bytes, reset_peak};
use throng_cluster::conformance::{test_claim, test_envelope};
use throng_cluster::{
    AddressLocation, Cluster, Envelope, EnvelopeClass, HandoverResult, NodeId, SingleNode, Ticket,
};

#[test]
fn a_single_node_allocates_nothing() {
    let node = NodeId::new("alone").unwrap();
    let cluster: Box<dyn Cluster> = Box::new(SingleNode::new(node));
    let claim = test_claim(1, 1, 1);
    let envelope = test_envelope(node, EnvelopeClass::Control, "nobody receives it");
    let allocations = count(|| {
        assert!(black_box(&cluster).is_single());
        cluster.claim(claim);
        cluster.set_takes_messages(claim.address, claim.number, true);
        assert_eq!(cluster.locate(claim.address, claim.number), AddressLocation::Here);
        cluster.release(claim.address, claim.number);
        let result = cluster.broadcast(envelope);
        assert!(result.accepted.is_empty() && result.refused.is_empty());
        assert!(!cluster.settle(node, Ticket { epoch: 0, sequence: 1 }, HandoverResult::Safe));
    });
    assert_eq!(allocations, 0);
}

#[test]
fn what_an_envelope_announces_is_not_reserved() {
    let mut octets = Vec::new();
    let own = NodeId::new("a").unwrap();
    test_envelope(own, EnvelopeClass::Message, "").encode(&mut octets).unwrap();
    // 8 192 recipients, of which none follows; then 512 kB, of which nothing follows.
    let head = &octets[..24];
    for rest in [&[0x20, 0][..], &[0, 0, 0, 8, 0, 0]] {
        let input = [head, rest].concat();
        let before = reset_peak();
        assert!(Envelope::decode(black_box(&input)).is_err());
        assert!(peak_bytes() - before < 256, "{}", peak_bytes() - before);
    }
}
