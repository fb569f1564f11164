//! Encoding of SASL data in `<auth/>`, `<challenge/>`, `<response/>` and `<success/>` (RFC 6120, sections 6.4.2 to
//! 6.4.6): base 64 of RFC 4648, section 4, with `=` for data of length zero.
//!
//! Not implemented: white space. RFC 6120, section 13.9.1, requires characters outside the alphabet to be rejected.
//!
//! # Pitfalls
//!
//! No text and `=` differ in `<auth/>` and `<success/>` (no data, and empty data); they mean the same in a challenge or
//! response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::failure::Failure;

/// Longest text to decode, in bytes; no message that this crate reads is longer.
pub const MAX_TEXT: usize = 16_384;

/// Decodes the initial response in `<auth/>`: `None` if there is none, empty if it is `=`.
///
/// # Errors
/// [`Failure::IncorrectEncoding`] if it is not base 64, [`Failure::MalformedRequest`] above [`MAX_TEXT`].
pub fn decode_initial_response(text: &str) -> Result<Option<Vec<u8>>, Failure> {
    if text.is_empty() { Ok(None) } else { decode_response(text).map(Some) }
}

/// Decodes the data in `<response/>`.
///
/// # Errors
/// As [`decode_initial_response`].
pub fn decode_response(text: &str) -> Result<Vec<u8>, Failure> {
    match text {
        "" | "=" => Ok(Vec::new()),
        _ if text.len() > MAX_TEXT => Err(Failure::MalformedRequest),
        _ => STANDARD.decode(text).map_err(|_| Failure::IncorrectEncoding),
    }
}

/// Decodes the data of an element of XEP-0388 (section 3.2), where an empty element is empty data, without `=`.
/// Surrounding white space is accepted, since the examples have it.
///
/// # Errors
/// As [`decode_initial_response`].
pub fn decode_sasl2(text: &str) -> Result<Vec<u8>, Failure> {
    match text.trim_matches([' ', '\t', '\r', '\n']) {
        text if text.len() > MAX_TEXT => Err(Failure::MalformedRequest),
        text => STANDARD.decode(text).map_err(|_| Failure::IncorrectEncoding),
    }
}

/// Encodes the text of `<challenge/>`; an empty challenge has none.
pub fn encode_challenge(data: &[u8]) -> String {
    STANDARD.encode(data)
}

/// Encodes the text of `<success/>`: empty if there is no additional data, `=` if it has length zero.
pub fn encode_additional_data(data: Option<&[u8]>) -> String {
    match data {
        None => String::new(),
        Some([]) => "=".to_owned(),
        Some(data) => STANDARD.encode(data),
    }
}

/// Short digest: half a SHA-256 in base 64 (XEP-0509, section 2.3.1). Not for secrets.
pub fn short_digest(bytes: &[u8]) -> String {
    STANDARD.encode(&crate::ScramHash::Sha256.digest(bytes).expose()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    //= https://www.rfc-editor.org/rfc/rfc6120#section-6.4.6
    //= type=test
    //# If the receiving entity needs to send additional data of zero length, it MUST transmit the data as a single
    //# equals sign character ("=").
    #[test]
    fn absent_and_empty_values_are_distinguished() {
        assert_eq!(decode_initial_response(""), Ok(None));
        assert_eq!(decode_initial_response("="), Ok(Some(vec![])));
        assert_eq!(
            decode_initial_response("AGp1bGlldAByMG0zMG15cjBtMzA=").unwrap().unwrap(),
            b"\0juliet\0r0m30myr0m30"
        );
        assert_eq!(decode_response(""), Ok(vec![]));
        assert_eq!(decode_response("="), Ok(vec![]));
        assert_eq!(
            (
                encode_additional_data(None),
                encode_additional_data(Some(b"")),
                encode_additional_data(Some(b"v"))
            ),
            (String::new(), "=".into(), "dg==".into())
        );
        assert_eq!((encode_challenge(b""), encode_challenge(b"r")), (String::new(), "cg==".into()));
    }

    #[test]
    fn xep_0388_does_not_encode_empty_data_as_an_equals_sign() {
        assert_eq!(decode_sasl2(""), Ok(vec![]));
        assert_eq!(decode_sasl2("\n    SSdtIGJvcmVkIG5vdy4=\n  ").unwrap(), b"I'm bored now.");
        for wrong in ["=", "SSdt IGJv", "SSdt\nIGJv", "a"] {
            assert_eq!(decode_sasl2(wrong), Err(Failure::IncorrectEncoding), "{wrong:?}");
        }
        assert_eq!(decode_sasl2(&"A".repeat(MAX_TEXT + 4)), Err(Failure::MalformedRequest));
    }

    #[test]
    fn invalid_base64_is_an_incorrect_encoding() {
        for wrong in
            ["==", "a", "ab", "ab=", "abc", "ab c", "abcd\n", " abcd", "ab==cd==", "a-_b", "cf==", "é"]
        {
            assert_eq!(decode_response(wrong), Err(Failure::IncorrectEncoding), "{wrong:?}");
        }
        assert_eq!(decode_response(&"A".repeat(MAX_TEXT + 4)), Err(Failure::MalformedRequest));
        assert_eq!(decode_response(&"A".repeat(MAX_TEXT)).unwrap().len(), MAX_TEXT / 4 * 3);
    }
}
