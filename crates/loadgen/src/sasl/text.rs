//! Text encoding of SASL messages: base64 in XMPP (RFC 6120, section 6.4).
//!
//! # Pitfalls
//!
//! An empty initial response or additional data is `=`, an empty later response is the empty string (RFC 6120, sections
//! 6.4.2 to 6.4.6).

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
