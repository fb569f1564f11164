//! SASLprep (RFC 4013) for user names and passwords, with a fast path for ASCII.
//!
//! The tables are those of the `stringprep` crate. Text is treated as "stored" (RFC 3454, section 7): code points
//! unassigned in Unicode 3.2 are rejected, so a password with a newer emoji cannot be set.
//!
//! # Pitfalls
//!
//! RFC 8265 (OpaqueString) obsoletes it, but RFC 5802 and RFC 7677 name SASLprep and clients implement it. The two
//! differ (full-width letters), so a server with the other preparation would refuse correct passwords.

use std::borrow::Cow;

/// Text that SASLprep prohibits: control characters, mixed directions, unassigned or private code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("contains characters that SASLprep (RFC 4013) prohibits")]
pub struct PrepError;

/// Prepares `text`; ASCII is returned unchanged and borrowed. The result may be empty.
///
/// # Errors
/// If it contains code points that RFC 4013, sections 2.3 to 2.5, prohibit.
pub fn prepare(text: &str) -> Result<Cow<'_, str>, PrepError> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(Cow::Borrowed(text));
    }
    stringprep::saslprep(text).map_err(|_| PrepError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4013_section_3() {
        assert_eq!(prepare("I\u{ad}X").as_deref(), Ok("IX"));
        assert_eq!(prepare("user").as_deref(), Ok("user"));
        assert_eq!(prepare("USER").as_deref(), Ok("USER"));
        assert_eq!(prepare("\u{aa}").as_deref(), Ok("a"));
        assert_eq!(prepare("\u{2168}").as_deref(), Ok("IX"));
        assert_eq!(prepare("\u{7}"), Err(PrepError));
        assert_eq!(prepare("\u{627}\u{31}"), Err(PrepError));
    }

    #[test]
    fn ascii_is_not_copied_and_its_controls_are_refused() {
        assert!(matches!(prepare(" !~aZ09"), Ok(Cow::Borrowed(_))));
        assert_eq!(prepare("a\tb"), Err(PrepError));
        assert_eq!(prepare("a\u{7f}"), Err(PrepError));
        assert_eq!(prepare("\u{ad}").as_deref(), Ok(""), "mapped to nothing: callers check for empty");
    }
}
