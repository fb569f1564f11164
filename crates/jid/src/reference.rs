//! [`JidRef`]: a borrowed address in normal form. Two `u16` offsets make every part a slice.
//!
//! # Pitfalls
//!
//! An offset of 0 means "no such part". It is never a valid offset, because neither the localpart nor the bare address
//! is ever empty.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::{Jid, JidError, MAX_PART, RawParts, prepare_resource};

/// A borrowed address in normal form. Compares, orders and hashes by its text (octet by octet, RFC 7622, section 3).
#[derive(Clone, Copy)]
pub struct JidRef<'a> {
    text: &'a str,
    /// Offset of the `@`, 0 without a localpart.
    at: u16,
    /// Offset of the `/`, 0 without a resourcepart.
    slash: u16,
}

impl<'a> JidRef<'a> {
    /// `text` must be in normal form with its separators at these offsets (0: none).
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "both are below 2048: parts have at most 1023 octets")]
    pub(crate) fn new(text: &'a str, at: usize, slash: usize) -> Self {
        debug_assert!(at <= MAX_PART && slash <= 2 * MAX_PART + 1);
        JidRef { text, at: at as u16, slash: slash as u16 }
    }

    /// An address from storage that was written by this crate: only the separators and lengths are checked, so that a
    /// roster loads at memory speed. `None` if it cannot be one.
    ///
    /// Never use it for external text: use [`crate::parse`], or [`Jid::from_stored`] for foreign databases.
    pub fn from_normalised(text: &'a str) -> Option<JidRef<'a>> {
        let raw = RawParts::split(text);
        let fits = |part: &str| (1..=MAX_PART).contains(&part.len());
        let sound = raw.local.is_none_or(fits) && fits(raw.domain) && raw.resource.is_none_or(fits);
        sound.then(|| raw.as_normalised(text))
    }

    /// The part before the `@`: an account or a room.
    #[inline]
    pub fn local(&self) -> Option<&'a str> {
        (self.at != 0).then(|| &self.text[..usize::from(self.at)])
    }

    /// The mandatory part. Internationalised names are U-labels.
    #[inline]
    pub fn domain(&self) -> &'a str {
        let start = if self.at == 0 { 0 } else { usize::from(self.at) + 1 };
        &self.text[start..self.bare_len()]
    }

    /// The part after the `/`: a client, or an occupant of a room.
    #[inline]
    pub fn resource(&self) -> Option<&'a str> {
        (self.slash != 0).then(|| &self.text[usize::from(self.slash) + 1..])
    }

    /// The address without its resourcepart: a slice of the same text.
    #[inline]
    #[must_use]
    pub fn bare(&self) -> JidRef<'a> {
        JidRef { text: &self.text[..self.bare_len()], at: self.at, slash: 0 }
    }

    /// Whether there is no resourcepart: `local@domain` or `domain`.
    #[inline]
    pub fn is_bare(&self) -> bool {
        self.slash == 0
    }

    /// Whether there is a resourcepart (RFC 6120, section 1.4: `local@domain/resource` or `domain/resource`).
    #[inline]
    pub fn is_full(&self) -> bool {
        self.slash != 0
    }

    /// Whether it is only a domain: a server or a service.
    #[inline]
    pub fn is_domain(&self) -> bool {
        self.at == 0 && self.slash == 0
    }

    /// The whole address.
    #[inline]
    pub fn as_str(&self) -> &'a str {
        self.text
    }

    /// An owned copy; one allocation.
    pub fn to_jid(&self) -> Jid {
        Jid::from_ref(*self)
    }

    /// This address with another resourcepart, which is prepared.
    ///
    /// # Errors
    /// If the resourcepart is invalid.
    pub fn with_resource(&self, resource: &str) -> Result<Jid, JidError> {
        Ok(Jid::join(self.local(), self.domain(), Some(&prepare_resource(resource)?)))
    }

    #[inline]
    pub(crate) fn offsets(&self) -> (u16, u16) {
        (self.at, self.slash)
    }

    /// From offsets that [`JidRef::offsets`] returned for the same text.
    #[inline]
    pub(crate) fn from_offsets(text: &'a str, (at, slash): (u16, u16)) -> Self {
        JidRef { text, at, slash }
    }

    #[inline]
    fn bare_len(&self) -> usize {
        if self.slash == 0 { self.text.len() } else { usize::from(self.slash) }
    }
}

impl PartialEq for JidRef<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for JidRef<'_> {}

impl PartialOrd for JidRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for JidRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(other.text)
    }
}

impl Hash for JidRef<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialEq<str> for JidRef<'_> {
    fn eq(&self, other: &str) -> bool {
        self.text == other
    }
}

impl PartialEq<Jid> for JidRef<'_> {
    fn eq(&self, other: &Jid) -> bool {
        self.text == other.as_str()
    }
}

impl fmt::Display for JidRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text)
    }
}

impl fmt::Debug for JidRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.text, f)
    }
}
