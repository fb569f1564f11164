//! The property of the fuzz target, shared with the tests: any octets from another node are read or refused, within bounds.
#![allow(clippy::panic, reason = "a property that does not hold panics")]

use base::clock::Millis;
use bytes::Bytes;
use cluster::NodeId;

use super::core::Core;
use super::directory::DirectoryLimits;
use super::frame::{FRAME_VERSIONS, FrameHeader, decode_frame, encode_frame};
use super::member_record::MemberRecord;
use crate::cluster_key::ClusterKey;

/// Checks the octets as a frame, and as the items of a frame of a member.
pub fn check_frame(octets: &[u8]) {
    let frame = Bytes::copy_from_slice(octets);
    if let Ok((header, items)) = decode_frame(&frame) {
        assert!(items.len() <= octets.len(), "more items than octets");
        let written = Bytes::from(encode_frame(&header, [].iter()));
        assert_eq!(decode_frame(&written).map(|(header, _)| header), Ok(header));
    }
    let (Some(own), Some(other)) = (NodeId::new("b"), NodeId::new("a")) else { return };
    let key = ClusterKey::new(&[1; 32]);
    let core =
        Core::new(own, key.clone(), DirectoryLimits { total: 1_000, per_node: 1_000, per_address: 16 });
    core.start(2);
    let now = Millis(1);
    let _ = core.see_member(now, &MemberRecord::new(other, 1));
    let mut header = FrameHeader {
        version: FRAME_VERSIONS.newest,
        from: other,
        from_epoch: 1,
        from_link: 1,
        to_epoch: 2,
        to_link: 1,
        received: 1,
        has_gap: false,
        first: 1,
    };
    let mut with_items = encode_frame(&header, [].iter());
    // Number and items are the input's.
    with_items.truncate(with_items.len() - 2);
    with_items.extend_from_slice(octets);
    let seal = |frame| Bytes::from(key.seal_frame(own.as_str(), frame));
    core.receive(now, &seal(with_items));
    core.receive(now, &seal(octets.to_vec()));
    core.receive(now, &frame);
    header.first = 1_000_000;
    core.receive(now, &seal(encode_frame(&header, [].iter())));
    assert!(core.status().peer_claims <= 1_000, "more claims than the limit");
    assert!(core.members().len() <= 2, "a node that nobody has seen");
    core.poll(now.plus(1_000), 16, true);
}
