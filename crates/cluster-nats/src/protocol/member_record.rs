//! What a node writes under its name into the key-value bucket, as text: `throng 1 epoch=… envelopes=… frames=…`.
//!
//! Fields that a reader does not know are ignored, so that later versions can add some. The number after `throng` changes when
//! that is not enough.

use cluster::{Envelope, Member, NodeId};

use super::frame::FRAME_VERSION;

/// Greatest epoch that is read, milliseconds since 1970 in general: there are later ones for starts after it.
const MAX_EPOCH: u64 = u64::MAX / 2;
/// Longest record that is read, in octets.
const MAX_RECORD: usize = 1024;

/// A member as its record describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberRecord {
    pub(crate) member: Member,
    /// The highest version of frames that it reads.
    pub(crate) frames: u8,
}

impl MemberRecord {
    pub(crate) fn new(node: NodeId, epoch: u64) -> MemberRecord {
        MemberRecord { member: Member { node, epoch, version: Envelope::VERSION }, frames: FRAME_VERSION }
    }

    pub(crate) fn encode(&self) -> String {
        format!(
            "throng 1 epoch={} envelopes={} frames={}",
            self.member.epoch, self.member.version, self.frames
        )
    }

    /// Reads the record of this node; none if it is not valid.
    pub(crate) fn decode(node: &str, record: &[u8]) -> Option<MemberRecord> {
        let node = NodeId::new(node)?;
        let text = std::str::from_utf8(record).ok().filter(|text| text.len() <= MAX_RECORD)?;
        let fields = text.strip_prefix("throng 1 ")?;
        let field =
            |name: &str| fields.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        Some(MemberRecord {
            member: Member {
                node,
                epoch: field("epoch")?.parse().ok().filter(|epoch| *epoch <= MAX_EPOCH)?,
                version: field("envelopes")?.parse().ok()?,
            },
            frames: field("frames")?.parse().ok()?,
        })
    }

    /// Whether that node reads what this one writes.
    pub(crate) fn is_readable(&self) -> bool {
        self.frames >= FRAME_VERSION && self.member.version >= Envelope::VERSION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_unknown_fields_are_ignored() {
        let record = MemberRecord::new(NodeId::new("node-1").unwrap(), 77);
        assert_eq!(MemberRecord::decode("node-1", record.encode().as_bytes()), Some(record));
        let later = format!("{} colour=blue", record.encode());
        assert_eq!(MemberRecord::decode("node-1", later.as_bytes()), Some(record));
        assert!(record.is_readable());
        let newer = MemberRecord { frames: FRAME_VERSION + 1, ..record };
        assert!(newer.is_readable(), "it reads earlier versions");
        assert!(!MemberRecord { frames: FRAME_VERSION - 1, ..record }.is_readable());
    }

    #[test]
    fn anything_else_is_no_record() {
        let good = "throng 1 epoch=1 envelopes=3 frames=1";
        assert!(MemberRecord::decode("a", good.as_bytes()).is_some());
        assert_eq!(MemberRecord::decode("Not A Name", good.as_bytes()), None);
        let long = format!("{good} {}", "x".repeat(MAX_RECORD));
        let wrong = [
            "",
            "throng 2 epoch=1 envelopes=3 frames=1",
            "throng 1 epoch=x envelopes=3 frames=1",
            "throng 1 epoch=18446744073709551615 envelopes=3 frames=1",
            "throng 1 epoch=1 envelopes=300 frames=1",
            "throng 1 epoch=1 frames=1",
            &long,
        ];
        for record in wrong {
            assert_eq!(MemberRecord::decode("a", record.as_bytes()), None, "{record}");
        }
        assert_eq!(MemberRecord::decode("a", b"\xff"), None);
    }
}
