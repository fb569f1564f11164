//! PLAIN (RFC 4616): `[authzid] NUL authcid NUL passwd` in one message.
//!
//! Not implemented: verification of the password. It costs a PBKDF2 (see `credentials.rs`), so the caller does it on a
//! thread for blocking work.
//!
//! # Pitfalls
//!
//! The password is sent in plaintext. Offer PLAIN only under TLS, or answer [`crate::Failure::EncryptionRequired`].

use base::Secret;

use crate::failure::FailureReason;
use crate::saslprep::prepare;

/// Longest message in bytes: two addresses, a password and two NULs.
pub const MAX_MESSAGE: usize = 8192;
/// Longest password in bytes. RFC 4616 requires at least 255; JSON Web Tokens that are sent as passwords have some kilobytes.
pub const MAX_PASSWORD: usize = 4096;

#[derive(Debug)]
pub(crate) struct PlainMessage {
    pub(crate) authzid: Option<String>,
    /// Prepared with SASLprep.
    pub(crate) username: String,
    /// As received; [`crate::Credentials::verify_password`] prepares it.
    pub(crate) password: Secret,
}

pub(crate) fn parse(message: &[u8]) -> Result<PlainMessage, FailureReason> {
    if message.len() > MAX_MESSAGE {
        return Err(FailureReason::TooLong);
    }
    let text = std::str::from_utf8(message).map_err(|_| FailureReason::InvalidEncoding)?;
    let mut parts = text.split('\0');
    let (Some(authzid), Some(username), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(FailureReason::InvalidEncoding);
    };
    if username.is_empty() || password.is_empty() {
        return Err(FailureReason::InvalidEncoding);
    }
    if password.len() > MAX_PASSWORD {
        return Err(FailureReason::TooLong);
    }
    let username = prepare(username).map_err(|_| FailureReason::InvalidUsernameEncoding)?;
    if username.is_empty() {
        return Err(FailureReason::InvalidUsernameEncoding);
    }
    Ok(PlainMessage {
        authzid: Some(authzid.to_owned()).filter(|authzid| !authzid.is_empty()),
        username: username.into_owned(),
        password: Secret::from(password),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_parts_are_parsed() {
        let plain = parse(b"\0tim\0tanstaaftanstaaf").unwrap();
        assert_eq!((plain.authzid, plain.username.as_str()), (None, "tim"));
        assert_eq!(plain.password.expose(), b"tanstaaftanstaaf");
        let plain = parse("Ursel\0Kurt\u{ad}\0xip\u{e9}".as_bytes()).unwrap();
        assert_eq!((plain.authzid.as_deref(), plain.username.as_str()), (Some("Ursel"), "Kurt"));
    }

    #[test]
    fn malformed_plain_messages_are_refused() {
        for message in [
            &b""[..],
            b"a",
            b"\0",
            b"\0\0",
            b"\0u\0",
            b"\0\0p",
            b"\0u\0p\0",
            b"\0u\0p\0x",
            b"u\0p",
            b"\0u\0\xff",
        ] {
            assert_eq!(parse(message).unwrap_err(), FailureReason::InvalidEncoding, "{message:?}");
        }
        for username in ["a\tb", "\u{ad}", "\u{627}1"] {
            let message = format!("\0{username}\0p");
            assert_eq!(
                parse(message.as_bytes()).unwrap_err(),
                FailureReason::InvalidUsernameEncoding,
                "{username:?}"
            );
        }
        let long = |len| format!("\0u\0{}", "p".repeat(len)).into_bytes();
        assert!(parse(&long(MAX_PASSWORD)).is_ok());
        assert_eq!(parse(&long(MAX_PASSWORD + 1)).unwrap_err(), FailureReason::TooLong);
        assert_eq!(parse(&long(MAX_MESSAGE)).unwrap_err(), FailureReason::TooLong);
    }
}
