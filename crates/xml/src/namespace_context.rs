//! Namespace declarations of a stream header, in scope for every element of the stream (RFC 6120, section 4.8).
//!
//! Not implemented: `xml:lang` of the header, which is not a namespace.
//!
//! # Pitfalls
//!
//! The context is not forwarded with a stanza. A stanza that depends on one must be normalised before it leaves its
//! stream (section 4.8.4).

use crate::{Error, Limits, Namespace, Ns, Reader};

/// Default namespace and prefixes of a stream. Sixteen bytes inline for the usual headers, a box for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceContext {
    /// Default namespace, if it is a known one.
    default: Option<Ns>,
    /// Whether the prefix `stream` is bound to the stream namespace.
    stream: bool,
    /// All other declarations; the empty prefix is an unknown default namespace.
    extra: Option<Box<Declarations>>,
}

/// Prefixes and namespace names as written. The vector is boxed so that the context is 16 bytes.
type Declarations = Vec<(Box<str>, Box<str>)>;

const _: () = assert!(size_of::<NamespaceContext>() <= 16);

pub(crate) static EMPTY: NamespaceContext = NamespaceContext::empty();

impl NamespaceContext {
    /// No declaration but `xml`: for a standalone document such as a WebSocket message.
    pub const fn empty() -> NamespaceContext {
        NamespaceContext { default: None, stream: false, extra: None }
    }

    /// The usual client stream: default `jabber:client`, `stream` bound.
    pub const fn client() -> NamespaceContext {
        NamespaceContext { default: Some(Ns::Client), stream: true, extra: None }
    }

    /// The usual server stream without dialback: default `jabber:server`, `stream` bound.
    pub const fn server() -> NamespaceContext {
        NamespaceContext { default: Some(Ns::Server), stream: true, extra: None }
    }

    /// This default namespace and no prefix: for a stanza stored or transferred without its stream.
    pub const fn with_default(default: Ns) -> NamespaceContext {
        NamespaceContext { default: Some(default), stream: false, extra: None }
    }

    /// The declarations in the start tag of a stream. Allocates only for declarations other than a known default
    /// namespace and the usual `stream` prefix.
    pub fn from_open_tag(bytes: &[u8], limits: &Limits) -> Result<NamespaceContext, Error> {
        let start = Reader::open_tag(bytes, limits)?;
        let mut scope = NamespaceContext::empty();
        for declared in start.declarations() {
            let prefix = if declared.prefix.is_some() { declared.name } else { "" };
            let ns = Namespace::from_raw(declared.raw);
            match (prefix, ns.id) {
                ("", Some(known)) => scope.default = Some(known),
                ("", None) if ns.is_none() => {}
                ("stream", Some(Ns::Stream)) => scope.stream = true,
                ("xml", _) => {}
                _ => scope.extra.get_or_insert_default().push((prefix.into(), ns.text.into())),
            }
        }
        Ok(scope)
    }

    /// The default namespace, if there is one.
    pub fn default_namespace(&self) -> Namespace<'_> {
        match self.default {
            Some(ns) => Namespace::known(ns),
            None => self.extra("").unwrap_or(Namespace::NONE),
        }
    }

    /// The namespace bound to a prefix. The empty prefix returns the default namespace.
    pub fn namespace(&self, prefix: &str) -> Option<Namespace<'_>> {
        match prefix {
            "" => Some(self.default_namespace()),
            "stream" if self.stream => Some(Namespace::known(Ns::Stream)),
            _ => self.extra(prefix),
        }
    }

    fn extra(&self, prefix: &str) -> Option<Namespace<'_>> {
        let (_, text) = self.extra.as_ref()?.iter().find(|(p, _)| **p == *prefix)?;
        Some(Namespace { id: Ns::from_str(text), text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(tag: &str) -> NamespaceContext {
        NamespaceContext::from_open_tag(tag.as_bytes(), &Limits::DEFAULT).unwrap()
    }

    #[test]
    fn usual_headers_need_no_heap() {
        let tag =
            "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='a'>";
        assert_eq!(scope(tag), NamespaceContext::client());
    }

    #[test]
    fn other_declarations_are_preserved() {
        let s =
            scope("<s:stream xmlns='urn:x' xmlns:s='http://etherx.jabber.org/streams' xmlns:d='a&amp;b'>");
        assert_eq!(s.default_namespace().text, "urn:x");
        assert_eq!(s.namespace("s").unwrap().id, Some(Ns::Stream));
        assert_eq!(s.namespace("d").unwrap().name(), "a&b");
        assert_eq!(s.namespace("stream"), None);
    }

    #[test]
    fn a_header_with_an_undeclared_prefix_has_its_own_error() {
        let bad = NamespaceContext::from_open_tag(b"<stream:stream xmlns='jabber:client'>", &Limits::DEFAULT);
        assert_eq!(bad, Err(Error::BadNamespacePrefix));
    }
}
