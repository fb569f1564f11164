//! [`Jid`]: an owned address in normal form, in one allocation and 24 bytes.
//!
//! # Pitfalls
//!
//! `Borrow<str>` requires that hash and order are those of the text; do not derive them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::{JidError, JidRef, RawParts, parse, prepare_domain, prepare_local, prepare_resource, rfc6122};

/// An owned address in normal form. A map keyed by it can be queried with a `&str`.
#[derive(Clone)]
pub struct Jid {
    text: Box<str>,
    at: u16,
    slash: u16,
}

impl Jid {
    /// Parses and normalises an address; [`parse`] does the same without copying.
    ///
    /// # Errors
    /// See [`parse`].
    pub fn parse(text: &str) -> Result<Jid, JidError> {
        parse(text).map(crate::ParsedJid::into_jid)
    }

    /// Builds an address from parts, preparing each.
    ///
    /// # Errors
    /// The first invalid part.
    pub fn from_parts(local: Option<&str>, domain: &str, resource: Option<&str>) -> Result<Jid, JidError> {
        let local = local.map(prepare_local).transpose()?;
        let domain = prepare_domain(domain)?;
        let resource = resource.map(prepare_resource).transpose()?;
        Ok(Jid::join(local.as_deref(), &domain, resource.as_deref()))
    }

    /// Reads an address stored by another server or an older version: parts that RFC 7622 rejects but RFC 6122 allowed
    /// keep their RFC 6122 form.
    ///
    /// Only for storage: such an address must not be accepted from a stream.
    ///
    /// # Errors
    /// If a part is invalid under both.
    pub fn from_stored(text: &str) -> Result<Jid, JidError> {
        RawParts::split(text)
            .prepare(text, [rfc6122::local, rfc6122::domain, rfc6122::resource])
            .map(crate::ParsedJid::into_jid)
    }

    /// The same address, borrowed.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "AsRef cannot return a JidRef by value")]
    pub fn as_ref(&self) -> JidRef<'_> {
        JidRef::from_offsets(&self.text, (self.at, self.slash))
    }

    /// The whole address.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// See [`JidRef::local`].
    #[inline]
    pub fn local(&self) -> Option<&str> {
        self.as_ref().local()
    }

    /// See [`JidRef::domain`].
    #[inline]
    pub fn domain(&self) -> &str {
        self.as_ref().domain()
    }

    /// See [`JidRef::resource`].
    #[inline]
    pub fn resource(&self) -> Option<&str> {
        self.as_ref().resource()
    }

    /// The address without its resourcepart, borrowed.
    #[inline]
    pub fn bare(&self) -> JidRef<'_> {
        self.as_ref().bare()
    }

    /// See [`JidRef::is_bare`].
    #[inline]
    pub fn is_bare(&self) -> bool {
        self.as_ref().is_bare()
    }

    /// See [`JidRef::is_full`].
    #[inline]
    pub fn is_full(&self) -> bool {
        self.as_ref().is_full()
    }

    /// See [`JidRef::is_domain`].
    #[inline]
    pub fn is_domain(&self) -> bool {
        self.as_ref().is_domain()
    }

    /// See [`JidRef::with_resource`].
    ///
    /// # Errors
    /// If the resourcepart is invalid.
    pub fn with_resource(&self, resource: &str) -> Result<Jid, JidError> {
        self.as_ref().with_resource(resource)
    }

    pub(crate) fn from_ref(jid: JidRef<'_>) -> Jid {
        let (at, slash) = jid.offsets();
        Jid { text: jid.as_str().into(), at, slash }
    }

    /// Joins parts in normal form.
    pub(crate) fn join(local: Option<&str>, domain: &str, resource: Option<&str>) -> Jid {
        let length = |part: Option<&str>| part.map_or(0, |part| part.len() + 1);
        let mut text = String::with_capacity(length(local) + domain.len() + length(resource));
        if let Some(local) = local {
            text.push_str(local);
            text.push('@');
        }
        text.push_str(domain);
        let bare = text.len();
        if let Some(resource) = resource {
            text.push('/');
            text.push_str(resource);
        }
        let slash = if resource.is_some() { bare } else { 0 };
        let (at, slash) = JidRef::new(&text, local.map_or(0, str::len), slash).offsets();
        Jid { text: text.into(), at, slash }
    }
}

impl PartialEq for Jid {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Jid {}

impl PartialOrd for Jid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Jid {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Jid {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Borrow<str> for Jid {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl PartialEq<str> for Jid {
    fn eq(&self, other: &str) -> bool {
        &*self.text == other
    }
}

impl PartialEq<JidRef<'_>> for Jid {
    fn eq(&self, other: &JidRef<'_>) -> bool {
        &*self.text == other.as_str()
    }
}

impl FromStr for Jid {
    type Err = JidError;

    fn from_str(text: &str) -> Result<Self, JidError> {
        Jid::parse(text)
    }
}

impl TryFrom<&str> for Jid {
    type Error = JidError;

    fn try_from(text: &str) -> Result<Self, JidError> {
        Jid::parse(text)
    }
}

impl From<JidRef<'_>> for Jid {
    fn from(jid: JidRef<'_>) -> Self {
        Jid::from_ref(jid)
    }
}

impl From<Jid> for String {
    fn from(jid: Jid) -> Self {
        jid.text.into()
    }
}

impl fmt::Display for Jid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Jid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}
