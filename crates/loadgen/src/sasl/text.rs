//! Text encodings of SASL messages: base64 in XMPP (RFC 6120, section 6.4), escaped SCRAM names, SASLprep.
//!
//! SASLprep (RFC 4013) is provided by the stringprep crate.
//!
//! # Pitfalls
//!
//! An empty initial response or additional data is `=`, an empty later response is the empty string (RFC 6120, sections
//! 6.4.2 to 6.4.6).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::SaslError;

/// Appends a message in base64; `empty` replaces an empty one: `=` for an initial response, otherwise nothing.
pub fn to_base64(data: &[u8], empty: &str, out: &mut String) {
    if data.is_empty() {
        out.push_str(empty);
    } else {
        STANDARD.encode_string(data, out);
    }
}

/// Decodes the text of `<challenge/>` or `<success/>`; surrounding white space is ignored, `=` is the empty message.
///
/// # Errors
/// Base64.
pub fn from_base64(text: &str) -> Result<Vec<u8>, SaslError> {
    match text.trim_ascii() {
        "" | "=" => Ok(Vec::new()),
        text => STANDARD.decode(text).map_err(|_| SaslError::Base64),
    }
}

/// SASLprep (RFC 4013) for a stored string; printable ASCII is unchanged. Empty results are refused.
pub(super) fn prepare(text: &str) -> Result<Cow<'_, str>, SaslError> {
    match stringprep::saslprep(text) {
        Ok(text) if !text.is_empty() => Ok(text),
        _ => Err(SaslError::Credentials),
    }
}

/// Appends a `saslname` (RFC 5802, section 5.1): `=` and `,` are escaped.
pub(super) fn escape(name: &str, out: &mut String) {
    for part in name.chars() {
        match part {
            '=' => out.push_str("=3D"),
            ',' => out.push_str("=2C"),
            other => out.push(other),
        }
    }
}
