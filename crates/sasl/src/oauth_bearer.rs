//! OAUTHBEARER (RFC 7628): a bearer token (RFC 6750) in one message.
//!
//! ```text
//! n,a=romeo@example.net,^Ahost=example.net^Aport=5222^Aauth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==^A^A
//! ```
//! where `^A` is 0x01. A refused token gets a challenge with a JSON error, which the client answers with `^A`; then the
//! exchange fails (section 3.2.2). An empty `auth` is how a client asks for that error (section 4.3).
//!
//! Not implemented: the check of the token, which is the caller's; channel binding (the RFC registers no such mechanism);
//! authorization schemes other than `Bearer`; discovery of the authorization server in the error.
//!
//! # Pitfalls
//!
//! The token is sent in plaintext. Offer the mechanism only under TLS, like PLAIN.

use base::Secret;

use crate::failure::FailureReason;

/// Longest message in bytes: JSON Web Tokens with many claims have some kilobytes.
pub const MAX_MESSAGE: usize = 8192;
/// Separator of key-value pairs (section 3.1).
const SEPARATOR: u8 = 0x01;
/// The challenge for a refused token: the error of RFC 6750, section 3.1, that reveals nothing about the account.
pub(crate) const REFUSED: &[u8] = br#"{"status":"invalid_token"}"#;

#[derive(Debug)]
pub(crate) struct BearerMessage {
    /// The requested identity, unescaped.
    pub(crate) authzid: Option<String>,
    /// `None`: the client asks for the error.
    pub(crate) token: Option<Secret>,
}

pub(crate) fn parse(message: &[u8]) -> Result<BearerMessage, FailureReason> {
    if message.len() > MAX_MESSAGE {
        return Err(FailureReason::TooLong);
    }
    // The list ends with an empty pair, so the message ends with two separators.
    let body = message.strip_suffix(&[SEPARATOR, SEPARATOR]).ok_or(FailureReason::InvalidEncoding)?;
    let mut parts = body.split(|byte| *byte == SEPARATOR);
    let authzid = parse_header(parts.next().unwrap_or_default())?;
    let mut token = None;
    for pair in parts {
        let at = pair.iter().position(|byte| *byte == b'=').ok_or(FailureReason::InvalidEncoding)?;
        let (key, value) = pair.split_at(at);
        if key.is_empty() || !key.iter().all(u8::is_ascii_alphabetic) || std::str::from_utf8(value).is_err() {
            return Err(FailureReason::InvalidEncoding);
        }
        // Other keys, such as `host` and `port`, are information about the client's view.
        if key == b"auth" && token.replace(parse_authorization(&value[1..])?).is_some() {
            return Err(FailureReason::InvalidEncoding);
        }
    }
    Ok(BearerMessage { authzid, token: token.ok_or(FailureReason::InvalidEncoding)? })
}

/// The GS2 header (RFC 5801, section 4) without channel binding: `n,` or `y,`, then `a=…` or nothing, then `,`.
fn parse_header(header: &[u8]) -> Result<Option<String>, FailureReason> {
    let header = std::str::from_utf8(header).map_err(|_| FailureReason::InvalidEncoding)?;
    if header.starts_with("p=") {
        return Err(FailureReason::ChannelBindingNotSupported);
    }
    let rest = header.strip_prefix("n,").or_else(|| header.strip_prefix("y,"));
    let authzid = rest.and_then(|rest| rest.strip_suffix(',')).ok_or(FailureReason::InvalidEncoding)?;
    if authzid.is_empty() {
        return Ok(None);
    }
    let escaped =
        authzid.strip_prefix("a=").filter(|escaped| !escaped.is_empty() && !escaped.contains([',', '\0']));
    let mut name = String::with_capacity(authzid.len());
    let mut pieces = escaped.ok_or(FailureReason::InvalidEncoding)?.split('=');
    name.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (character, rest) = match (piece.strip_prefix("2C"), piece.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(FailureReason::InvalidUsernameEncoding),
        };
        name.push(character);
        name.push_str(rest);
    }
    Ok(Some(name))
}

/// The token of `Bearer <token>`: the scheme in any case, and a b64token (RFC 6750, section 2.1). `None` for an empty value.
fn parse_authorization(value: &[u8]) -> Result<Option<Secret>, FailureReason> {
    const SCHEME: &[u8] = b"bearer ";
    if value.is_empty() {
        return Ok(None);
    }
    let (scheme, token) = value.split_at_checked(SCHEME.len()).ok_or(FailureReason::InvalidEncoding)?;
    let token = token.trim_ascii();
    let permitted = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if !scheme.eq_ignore_ascii_case(SCHEME) || token.is_empty() || !token.iter().all(permitted) {
        return Err(FailureReason::InvalidEncoding);
    }
    Ok(Some(Secret::new(token)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_7628_section_4_1_the_example_is_parsed() {
        let message = b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01\
            auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01";
        let parsed = parse(message).unwrap();
        assert_eq!(parsed.authzid.as_deref(), Some("user@example.com"));
        assert_eq!(parsed.token.unwrap().expose(), b"vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==");
    }

    #[test]
    fn rfc_7628_section_4_3_an_empty_authorization_has_no_token() {
        let message = b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=\x01\x01";
        let parsed = parse(message).unwrap();
        assert_eq!(parsed.authzid.as_deref(), Some("user@example.com"));
        assert!(parsed.token.is_none());
    }

    #[test]
    fn the_identity_is_optional_and_unescaped() {
        assert_eq!(parse(b"n,,\x01auth=Bearer x\x01\x01").unwrap().authzid, None);
        assert_eq!(parse(b"y,,\x01auth=bearer  x\x01\x01").unwrap().token.unwrap().expose(), b"x");
        let parsed = parse(b"n,a=a=2Cb=3D=2C,\x01auth=BEARER x.y-z\x01\x01").unwrap();
        assert_eq!(parsed.authzid.as_deref(), Some("a,b=,"));
    }

    #[test]
    fn malformed_messages_are_refused() {
        for (message, reason) in [
            (&b""[..], FailureReason::InvalidEncoding),
            (b"\x01", FailureReason::InvalidEncoding),
            (b"\x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01auth=Bearer x\x01", FailureReason::InvalidEncoding),
            (b"n,,auth=Bearer x\x01\x01", FailureReason::InvalidEncoding),
            (b"n\x01auth=Bearer x\x01\x01", FailureReason::InvalidEncoding),
            (b"n,romeo,\x01auth=Bearer x\x01\x01", FailureReason::InvalidEncoding),
            (b"n,a=,\x01auth=Bearer x\x01\x01", FailureReason::InvalidEncoding),
            (b"n,a=a,b,\x01auth=Bearer x\x01\x01", FailureReason::InvalidEncoding),
            (b"n,a=a=2c,\x01auth=Bearer x\x01\x01", FailureReason::InvalidUsernameEncoding),
            (b"p=tls-exporter,,\x01auth=Bearer x\x01\x01", FailureReason::ChannelBindingNotSupported),
            (b"n,,\x01auth=Basic eA==\x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01auth=Bearer \x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01auth=Bearer x y\x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01auth=Bearer\x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01auth=\x01auth=Bearer y\x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01auth= \x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01=x\x01auth=Bearer x\x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01host\x01auth=Bearer x\x01\x01", FailureReason::InvalidEncoding),
            (b"n,,\x01host=\xff\x01auth=Bearer x\x01\x01", FailureReason::InvalidEncoding),
            (b"n,a=\xff,\x01auth=Bearer x\x01\x01", FailureReason::InvalidEncoding),
        ] {
            assert_eq!(parse(message).unwrap_err(), reason, "{:?}", message.escape_ascii().to_string());
        }
        let long = |len| [&b"n,,\x01auth=Bearer "[..], "x".repeat(len).as_bytes(), b"\x01\x01"].concat();
        assert!(parse(&long(MAX_MESSAGE - 18)).is_ok());
        assert_eq!(parse(&long(MAX_MESSAGE)).unwrap_err(), FailureReason::TooLong);
    }
}
