//! The key of a deployment, with which its nodes authenticate messages and records: HMAC-SHA-256 (RFC 2104), 16 octets of it.
//!
//! Permissions of NATS could not do it: a node publishes on the subjects of all others, and NATS does not tell them which user did.

use std::fmt;

use bytes::Bytes;
use ring::hmac;

/// Octets of a code.
pub(crate) const TAG: usize = 16;

/// A secret of the deployment, the same on all its nodes. Without it nobody can speak for a node.
#[derive(Clone)]
pub struct ClusterKey(hmac::Key);

impl ClusterKey {
    /// A key that other programs cannot know.
    pub fn new(secret: &[u8; 32]) -> ClusterKey {
        ClusterKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The code of these octets for a receiver, or of the record of a node.
    fn code(&self, purpose: u8, node: &str, octets: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        // A name ends with an octet that none has.
        context.update(&[purpose]);
        context.update(node.as_bytes());
        context.update(&[0]);
        context.update(octets);
        context.sign()
    }

    /// Appends the code to a frame for this node.
    pub(crate) fn seal_frame(&self, to: &str, mut frame: Vec<u8>) -> Vec<u8> {
        let code = self.code(FRAME, to, &frame);
        frame.extend(code.as_ref().iter().take(TAG));
        frame
    }

    /// The frame without the code; none if the code is wrong.
    pub(crate) fn open_frame(&self, own: &str, octets: &Bytes) -> Option<Bytes> {
        let (frame, code) = octets.split_last_chunk::<TAG>()?;
        self.is_code(FRAME, own, frame, code).then(|| octets.slice(..frame.len()))
    }

    /// The code of a record in hexadecimal digits.
    pub(crate) fn record_code(&self, node: &str, record: &str) -> String {
        let code = self.code(RECORD, node, record.as_bytes());
        code.as_ref().iter().take(TAG).map(|octet| format!("{octet:02x}")).collect()
    }

    /// Whether this is the code of a record.
    pub(crate) fn is_record_code(&self, node: &str, record: &str, code: &str) -> bool {
        let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let octets: Option<Vec<u8>> = code.as_bytes().chunks(2).map(digits).collect();
        let code = octets.and_then(|octets| <[u8; TAG]>::try_from(octets).ok());
        code.is_some_and(|code| self.is_code(RECORD, node, record.as_bytes(), &code))
    }

    fn is_code(&self, purpose: u8, node: &str, octets: &[u8], code: &[u8; TAG]) -> bool {
        let right = self.code(purpose, node, octets);
        // All octets are compared, so that the time says nothing.
        right.as_ref().iter().zip(code).fold(0, |different, (one, other)| different | (one ^ other)) == 0
    }
}

const FRAME: u8 = 1;
const RECORD: u8 = 2;

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_opened_only_by_its_receiver_and_unchanged() {
        let (key, other) = (ClusterKey::new(&[1; 32]), ClusterKey::new(&[2; 32]));
        let sealed = Bytes::from(key.seal_frame("b", b"frame".to_vec()));
        assert_eq!(sealed.len(), 5 + TAG);
        assert_eq!(key.open_frame("b", &sealed).as_deref(), Some(&b"frame"[..]));
        assert!(key.open_frame("c", &sealed).is_none() && other.open_frame("b", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert!(key.open_frame("b", &changed.into()).is_none(), "octet {at}");
            assert!(key.open_frame("b", &sealed.slice(..at)).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn the_code_of_a_record_depends_on_node_and_text() {
        let key = ClusterKey::new(&[1; 32]);
        let code = key.record_code("a", "text");
        assert_eq!(code.len(), 2 * TAG);
        assert!(key.is_record_code("a", "text", &code));
        for (node, text, code) in [
            ("b", "text", &code[..]),
            ("a", "texT", &code),
            ("a", "text", &code[2..]),
            ("a", "text", "é"),
            ("a", "text", ""),
        ] {
            assert!(!key.is_record_code(node, text, code), "{node} {text} {code}");
        }
    }
}
