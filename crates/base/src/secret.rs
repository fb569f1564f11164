//! Secrets: not printable, wiped from freed memory, and compared in constant time.
//!
//! Not implemented: `Display`, `serde`, `Hash` and order. A secret is read only through [`Secret::expose`], so that
//! every use can be found by name.
//!
//! # Pitfalls
//!
//! Wiping covers the given buffer, not earlier copies made by the caller, such as those of a `String` that grew.

use std::fmt;
use std::str::Utf8Error;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Confidential bytes such as passwords and keys. Wiped when dropped, compared in constant time.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of the bytes without copying them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(Zeroizing::new(bytes.into()))
    }

    /// The bytes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as text.
    ///
    /// # Errors
    /// If the bytes are not UTF-8.
    pub fn expose_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.0)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret::new(text)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        constant_time_eq(&self.0, &other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Whether `a` and `b` are equal, in a time that depends only on their lengths.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_stars_only() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(secret.expose(), b"hunter2");
        assert_eq!(secret.expose_str(), Ok("hunter2"));
        assert!(Secret::new([0xff]).expose_str().is_err());
        assert_eq!((secret.len(), secret.is_empty()), (7, false));
    }

    #[test]
    fn comparison_covers_every_byte_and_the_length() {
        assert!(constant_time_eq(b"", b""));
        assert!(constant_time_eq(b"abc", b"abc"));
        for other in [&b"xbc"[..], b"axc", b"abx", b"ab", b"abcd", b""] {
            assert!(!constant_time_eq(b"abc", other), "{other:?}");
            assert_ne!(Secret::new(*b"abc"), Secret::new(other));
        }
        assert_eq!(Secret::new(*b"abc"), Secret::from(String::from("abc")));
    }
}
