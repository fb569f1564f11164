//! EXTERNAL (RFC 4422, appendix A): the client has already authenticated, here with a TLS certificate, and optionally
//! names the identity to use. XEP-0178 (1.2), section 2, defines how the caller matches the two.
//!
//! Not implemented: the certificate. The caller checks which addresses it names and whether they are accounts.
//!
//! # Pitfalls
//!
//! An empty message and no message differ. The first is complete ("the identity of the certificate"), the second is
//! answered with an empty challenge.

use crate::failure::FailureReason;

/// Longest authorization identity in bytes: a bare address of RFC 7622.
pub(crate) const MAX_MESSAGE: usize = 2047;

/// Parses the authorization identity, if one was sent.
pub(crate) fn parse(message: &[u8]) -> Result<Option<String>, FailureReason> {
    if message.len() > MAX_MESSAGE {
        return Err(FailureReason::TooLong);
    }
    let text = std::str::from_utf8(message).map_err(|_| FailureReason::InvalidEncoding)?;
    if text.contains('\0') {
        return Err(FailureReason::InvalidEncoding);
    }
    Ok(Some(text.to_owned()).filter(|authzid| !authzid.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_an_identity_or_nothing() {
        assert_eq!(parse(b""), Ok(None));
        assert_eq!(parse(b"juliet@example.com"), Ok(Some("juliet@example.com".to_owned())));
        assert_eq!(parse(b"a\0b"), Err(FailureReason::InvalidEncoding));
        assert_eq!(parse(b"\xff"), Err(FailureReason::InvalidEncoding));
        assert_eq!(parse(&[b'a'; MAX_MESSAGE + 1]), Err(FailureReason::TooLong));
    }
}
