//! What a node writes under its name into the key-value bucket, as text: `throng 1 epoch=… envelopes=3-3 frames=1-1 code=…`, with the
//! versions of both that it reads ([`super::frame`]), and at its end the code of the text before ([`ClusterKey`]). A node that
//! drains ([`Member::drains`]) adds `retires=1` before the code.
//!
//! Fields that a reader does not know are ignored, so that later versions can add some. The number after `throng` changes when
//! that is not enough.

use cluster::{Envelope, Member, NodeId};

use super::frame::FRAME_VERSIONS;
use super::version_range::VersionRange;
use crate::cluster_key::ClusterKey;

/// The versions of envelopes that are read.
const ENVELOPE_VERSIONS: VersionRange = VersionRange::only(Envelope::VERSION);

/// Greatest epoch that is read, milliseconds since 1970 in general: there are later ones for starts after it.
const MAX_EPOCH: u64 = u64::MAX / 2;
/// Longest record that is read, in octets.
const MAX_RECORD: usize = 1024;

const CODE: &str = " code=";

fn with_code(key: &ClusterKey, node: NodeId, text: &str) -> String {
    format!("{text}{CODE}{}", key.record_code(node.as_str(), text))
}

/// A member as its record describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberRecord {
    pub(crate) member: Member,
    pub(crate) envelopes: VersionRange,
    pub(crate) frames: VersionRange,
}

impl MemberRecord {
    pub(crate) fn new(node: NodeId, epoch: u64) -> MemberRecord {
        MemberRecord {
            member: Member { node, epoch, version: Envelope::VERSION, drains: false },
            envelopes: ENVELOPE_VERSIONS,
            frames: FRAME_VERSIONS,
        }
    }

    pub(crate) fn encode(&self, key: &ClusterKey) -> String {
        let text = format!(
            "throng 1 epoch={} envelopes={} frames={}{}",
            self.member.epoch,
            self.envelopes,
            self.frames,
            if self.member.drains { " retires=1" } else { "" }
        );
        with_code(key, self.member.node, &text)
    }

    /// Reads the record of this node; none if it is not valid.
    pub(crate) fn decode(key: &ClusterKey, node: &str, record: &[u8]) -> Option<MemberRecord> {
        let node = NodeId::new(node)?;
        let text = std::str::from_utf8(record).ok().filter(|text| text.len() <= MAX_RECORD)?;
        let (text, code) = text.rsplit_once(CODE)?;
        if !key.is_record_code(node.as_str(), text, code) {
            return None;
        }
        let fields = text.strip_prefix("throng 1 ")?;
        let field =
            |name: &str| fields.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let envelopes = VersionRange::parse(field("envelopes")?)?;
        Some(MemberRecord {
            member: Member {
                node,
                epoch: field("epoch")?.parse().ok().filter(|epoch| *epoch <= MAX_EPOCH)?,
                version: envelopes.newest,
                drains: field("retires") == Some("1"),
            },
            envelopes,
            frames: VersionRange::parse(field("frames")?)?,
        })
    }

    /// The version of frames to that node; none if the two cannot communicate.
    pub(crate) fn common_version(&self) -> Option<u8> {
        self.envelopes.common(ENVELOPE_VERSIONS)?;
        self.frames.common(FRAME_VERSIONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_unknown_fields_are_ignored() {
        let (key, node) = (ClusterKey::new(&[1; 32]), NodeId::new("node-1").unwrap());
        let record = MemberRecord::new(node, 77);
        let text = record.encode(&key);
        assert_eq!(MemberRecord::decode(&key, "node-1", text.as_bytes()), Some(record));
        let draining = MemberRecord { member: Member { drains: true, ..record.member }, ..record };
        assert_eq!(MemberRecord::decode(&key, "node-1", draining.encode(&key).as_bytes()), Some(draining));
        let later = with_code(&key, node, &text.replace(CODE, " colour=blue code_of_others="));
        assert_eq!(MemberRecord::decode(&key, "node-1", later.as_bytes()), Some(record));
        for (key, node, text) in [
            (&ClusterKey::new(&[2; 32]), "node-1", &text),
            (&key, "node-2", &text),
            (&key, "node-1", &text.replace("77", "78")),
            (&key, "node-1", &text[..text.len() - 1].to_owned()),
        ] {
            assert_eq!(MemberRecord::decode(key, node, text.as_bytes()), None, "{node} {text}");
        }
        let with_frames = |text| MemberRecord { frames: VersionRange::parse(text).unwrap(), ..record };
        assert_eq!(record.common_version(), Some(1));
        assert_eq!(with_frames("1-2").common_version(), Some(1), "it reads earlier versions");
        assert_eq!(with_frames("2-3").common_version(), None);
        let other = MemberRecord { envelopes: VersionRange::only(Envelope::VERSION + 1), ..record };
        assert_eq!(other.common_version(), None);
    }

    #[test]
    fn anything_else_is_no_record() {
        let good = "throng 1 epoch=1 envelopes=3 frames=1";
        let key = ClusterKey::new(&[1; 32]);
        let a = NodeId::new("a").unwrap();
        assert_eq!(MemberRecord::decode(&key, "a", good.as_bytes()), None, "without a code");
        let decode = |record: &str| MemberRecord::decode(&key, "a", with_code(&key, a, record).as_bytes());
        assert!(decode(good).is_some());
        assert_eq!(MemberRecord::decode(&key, "Not A Name", good.as_bytes()), None);
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
            assert_eq!(decode(record), None, "{record}");
        }
        assert_eq!(MemberRecord::decode(&key, "a", b"\xff"), None);
    }
}
