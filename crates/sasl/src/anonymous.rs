//! ANONYMOUS (RFC 4505): no identity, and optional trace text, which is validated and discarded.
//!
//! XEP-0175 (1.2), section 3: in XMPP the client usually sends no message and receives `<success/>` immediately, where
//! RFC 4422 would send an empty challenge. Both are accepted.
//!
//! Not implemented: the "trace" profile of stringprep, because the text is not stored.

use crate::failure::FailureReason;

/// Longest trace in characters (RFC 4505, section 2, `token`).
const MAX_TRACE: usize = 255;

pub(crate) fn check(message: &[u8]) -> Result<(), FailureReason> {
    // A character has at most four bytes; this avoids counting the characters of a megabyte.
    if message.len() > MAX_TRACE * 4 {
        return Err(FailureReason::TooLong);
    }
    let text = std::str::from_utf8(message).map_err(|_| FailureReason::InvalidEncoding)?;
    match text.chars().count() {
        0..=MAX_TRACE if !text.contains('\0') => Ok(()),
        0..=MAX_TRACE => Err(FailureReason::InvalidEncoding),
        _ => Err(FailureReason::TooLong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_may_be_anything_short() {
        assert_eq!(check(b""), Ok(()));
        assert_eq!(check(b"sirhc"), Ok(()));
        assert_eq!(check("é".repeat(255).as_bytes()), Ok(()));
        assert_eq!(check("é".repeat(256).as_bytes()), Err(FailureReason::TooLong));
        assert_eq!(check(&[b'a'; 4096]), Err(FailureReason::TooLong));
        assert_eq!(check(b"\xff"), Err(FailureReason::InvalidEncoding));
        assert_eq!(check(b"a\0"), Err(FailureReason::InvalidEncoding));
    }
}
