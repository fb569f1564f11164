//! XMPP addresses: parsing, normalisation, comparison and compact storage (RFC 7622; RFC 6122 for stored addresses).
//!
//! ```text
//! jid = [ localpart "@" ] domainpart [ "/" resourcepart ]        1 to 1023 octets each
//! ```
//!
//! [`parse`] is the entry point for addresses in stanzas: text already in normal form is returned borrowed, and if it
//! is ASCII too (nearly always) nothing is allocated and no table is read. [`Jid`] owns an address in 24 bytes and one
//! allocation; [`JidRef`] borrows one. Both compare, order and hash by their text alone, so either can look up the
//! other in a map.
//!
//! Not implemented: URIs (RFC 5122), escaping (XEP-0106, a matter of display), the MUC nickname rules (XEP-0045).
//!
//! # Pitfalls
//!
//! The separators are located before any mapping (section 3.1), because mapping can produce them. Afterwards only the
//! resource can contain `@` or `/`, so two offsets can be recovered from the text.

mod error;
mod fast_path;
mod owned;
mod precis_class;
mod prep;
mod reference;
mod rfc6122;

use std::borrow::Cow;

pub use error::{JidError, JidPart};
pub use owned::Jid;
pub use prep::{domain_to_ascii, prepare_domain, prepare_local, prepare_resource};
pub use reference::JidRef;

/// Maximum octets of each part (RFC 7622, section 3.1).
pub const MAX_PART: usize = 1023;
/// Maximum octets of an address: three parts and two separators.
pub const MAX_JID: usize = 3 * MAX_PART + 2;

/// A parsed address, borrowed from the input if that was in normal form.
#[derive(Clone, Debug)]
pub enum ParsedJid<'a> {
    /// The input, possibly without the final dot of its domain.
    Borrowed(JidRef<'a>),
    /// The input had to be mapped.
    Owned(Jid),
}

impl ParsedJid<'_> {
    /// The address as a reference.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "AsRef cannot return a JidRef by value")]
    pub fn as_ref(&self) -> JidRef<'_> {
        match self {
            ParsedJid::Borrowed(jid) => *jid,
            ParsedJid::Owned(jid) => jid.as_ref(),
        }
    }

    /// The address as an owned value; allocates only if it was borrowed.
    pub fn into_jid(self) -> Jid {
        match self {
            ParsedJid::Borrowed(jid) => jid.to_jid(),
            ParsedJid::Owned(jid) => jid,
        }
    }
}

/// Parses and normalises an address as RFC 7622, section 4, requires of a server.
///
/// # Errors
/// The invalid part and the reason; the stanza error for it is `<jid-malformed/>`.
#[inline]
pub fn parse(text: &str) -> Result<ParsedJid<'_>, JidError> {
    let raw = RawParts::split(text);
    let bytes = |part: Option<&str>, fits: fn(&[u8]) -> bool| part.is_none_or(|part| fits(part.as_bytes()));
    if bytes(raw.local, fast_path::local)
        && fast_path::domain(raw.domain.as_bytes())
        && bytes(raw.resource, fast_path::resource)
    {
        return Ok(ParsedJid::Borrowed(raw.as_normalised(text)));
    }
    raw.prepare(text, [prepare_local, prepare_domain, prepare_resource])
}

/// Preparation function of one part.
type Prepare = fn(&str) -> Result<Cow<'_, str>, JidError>;

/// The three parts as written, before any mapping.
#[derive(Clone, Copy)]
struct RawParts<'a> {
    local: Option<&'a str>,
    domain: &'a str,
    resource: Option<&'a str>,
}

impl<'a> RawParts<'a> {
    /// RFC 7622, section 3.2: split at the first `/`, then at the first `@` of the rest.
    #[inline]
    fn split(text: &'a str) -> Self {
        let (bare, resource) = match memchr::memchr(b'/', text.as_bytes()) {
            Some(slash) => (&text[..slash], Some(&text[slash + 1..])),
            None => (text, None),
        };
        match memchr::memchr(b'@', bare.as_bytes()) {
            Some(at) => RawParts { local: Some(&bare[..at]), domain: &bare[at + 1..], resource },
            None => RawParts { local: None, domain: bare, resource },
        }
    }

    /// The address made of these parts if they are in normal form: `text` up to the end of the last part.
    #[inline]
    fn as_normalised(&self, text: &'a str) -> JidRef<'a> {
        let at = self.local.map_or(0, str::len);
        let bare = at + usize::from(self.local.is_some()) + self.domain.len();
        match self.resource {
            Some(resource) => JidRef::new(&text[..bare + 1 + resource.len()], at, bare),
            None => JidRef::new(&text[..bare], at, 0),
        }
    }

    #[cold]
    fn prepare(
        &self,
        text: &'a str,
        [local, domain, resource]: [Prepare; 3],
    ) -> Result<ParsedJid<'a>, JidError> {
        let local = self.local.map(local).transpose()?;
        let domain = domain(self.domain)?;
        let resource = self.resource.map(resource).transpose()?;
        let is_unchanged = |part: &Option<Cow<'a, str>>| !matches!(part, Some(Cow::Owned(_)));
        match (domain, self.resource) {
            // A domain that only lost its final dot is still a contiguous part of the input.
            (Cow::Borrowed(domain), rest)
                if is_unchanged(&local)
                    && is_unchanged(&resource)
                    && (rest.is_none() || domain.len() == self.domain.len()) =>
            {
                Ok(ParsedJid::Borrowed(RawParts { domain, ..*self }.as_normalised(text)))
            }
            (domain, _) => Ok(ParsedJid::Owned(Jid::join(local.as_deref(), &domain, resource.as_deref()))),
        }
    }
}
