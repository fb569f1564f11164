//! The property of the decoder, shared by the ordinary tests and the fuzz target.

use throng_cluster::{Envelope, HandoverResult};

/// Decodes a batch. What is accepted is within the limits and encodes to the same octets; nothing panics.
pub(crate) fn check(octets: &[u8]) {
    let mut rest = octets;
    while let Ok((envelope, next)) = Envelope::decode(rest) {
        let used = &rest[..rest.len() - next.len()];
        let mut again = Vec::new();
        assert_eq!(envelope.encode(&mut again), Ok(()));
        assert_eq!(again, used);
        assert!(envelope.fits() && used.len() <= Envelope::MAX);
        assert!((1..=Envelope::MAX_HOPS).contains(&envelope.header.hops));
        let all = envelope.recipients.len();
        let refused =
            envelope.clone().refused(&HandoverResult::Refused).map(|envelope| envelope.recipients.len());
        assert_eq!(refused, Some(all));
        // Refusals that another node makes up: the octets of this input.
        let positions = octets.iter().map(|octet| u16::from(*octet)).collect();
        let some = envelope.refused(&HandoverResult::RefusedFor(positions));
        assert!(some.is_none_or(|envelope| envelope.recipients.len() <= all));
        rest = next;
    }
}
