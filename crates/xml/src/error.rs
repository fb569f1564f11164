//! XML errors and the stream error condition of each (RFC 6120, section 4.9.3).
//!
//! Not implemented: the position of an error. A stream ends with its first error, so no peer could use it.
//!
//! # Pitfalls
//!
//! Limits are `policy-violation`, never `not-well-formed`: a peer that exceeds one has sent valid XML. So has a peer
//! whose names only the fifth edition of XML 1.0 allows, because section 4.9.3.13 refers to the rules of `[XML]`, that
//! edition.

/// A construct that XML has and XMPP forbids (RFC 6120, section 11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Restriction {
    /// `<!-- … -->`
    Comment,
    /// `<?target … ?>`; also an XML declaration that is not the first thing of the document.
    ProcessingInstruction,
    /// `<!DOCTYPE`, and any other markup declaration (`<!ENTITY`, `<!ELEMENT`, …).
    Doctype,
    /// A reference to an entity other than the five predefined ones.
    Entity,
}

impl Restriction {
    /// Name of the construct in XML 1.0.
    pub const fn as_str(self) -> &'static str {
        match self {
            Restriction::Comment => "comment",
            Restriction::ProcessingInstruction => "processing instruction",
            Restriction::Doctype => "document type declaration",
            Restriction::Entity => "entity reference",
        }
    }
}

/// The reason why input was rejected. Small and `Copy`; contains no text of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// No end within [`Limits::element_bytes`](crate::Limits) bytes.
    #[error("the element is larger than allowed")]
    TooLarge,
    /// A start tag of more bytes than [`Limits::start_tag_bytes`](crate::Limits).
    #[error("the start tag is longer than allowed")]
    TagTooLong,
    /// More open elements than [`Limits::depth`](crate::Limits).
    #[error("elements are nested deeper than allowed")]
    TooDeep,
    /// More attributes in one tag than [`Limits::attributes`](crate::Limits).
    #[error("the element has more attributes than allowed")]
    TooManyAttributes,
    /// More namespace declarations in scope than [`Limits::prefixes`](crate::Limits), or more than
    /// [`MAX_ATTRIBUTE_PREFIXES`](crate::MAX_ATTRIBUTE_PREFIXES) prefixes on the attributes of one tag.
    #[error("more namespace declarations than allowed")]
    TooManyPrefixes,
    /// A name longer than [`Limits::name_bytes`](crate::Limits) or a namespace name longer than
    /// [`MAX_NAMESPACE_BYTES`](crate::MAX_NAMESPACE_BYTES).
    #[error("a name is longer than allowed")]
    NameTooLong,
    /// A construct forbidden in XMPP.
    #[error("XMPP forbids this XML feature: {}", .0.as_str())]
    Restricted(Restriction),
    /// A rule of XML 1.0 is broken; the text names the rule.
    #[error("not well-formed: {0}")]
    NotWellFormed(&'static str),
    /// A rule of Namespaces in XML 1.0 is broken; the text names the rule.
    #[error("not namespace-well-formed: {0}")]
    BadNamespace(&'static str),
    /// A namespace name is not a URI (Namespaces in XML 1.0, section 2.2). That breaks no rule of well-formedness.
    #[error("a namespace name is no URI")]
    BadNamespaceName,
    /// A name that only the fifth edition of XML 1.0 allows. RFC 6120 cites that edition, so such a name is
    /// well-formed; rejecting it is a policy, for clients that implement the fourth edition.
    #[error("a name that only the fifth edition of XML 1.0 allows")]
    NameOfFifthEdition,
    /// The stream header itself uses a prefix that it does not declare.
    #[error("the prefix of the stream element is not declared")]
    BadNamespacePrefix,
    /// The bytes are not valid UTF-8.
    #[error("not UTF-8")]
    BadUtf8,
    /// A character that XML 1.0 does not allow, literal or by reference.
    #[error("a character that XML does not allow")]
    BadCharacter,
    /// The declaration names another encoding, or the first bytes are UTF-16 or UTF-32.
    #[error("the encoding is not UTF-8")]
    UnsupportedEncoding,
    /// The XML version is not 1.0, or the stream element is empty.
    #[error("the XML document is not one that a stream can be: {0}")]
    InvalidXml(&'static str),
}

/// The stream error condition for an [`Error`] (RFC 6120, section 4.9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamErrorKind {
    /// `<not-well-formed/>`, section 4.9.3.13. Covers namespace-well-formedness (section 11.3).
    NotWellFormed,
    /// `<restricted-xml/>`, section 4.9.3.18.
    RestrictedXml,
    /// `<policy-violation/>`, section 4.9.3.14: a limit of this server, a namespace name that is not a URI, or a name
    /// that only the fifth edition of XML 1.0 allows.
    PolicyViolation,
    /// `<bad-namespace-prefix/>`, section 4.9.3.2.
    BadNamespacePrefix,
    /// `<unsupported-encoding/>`, section 4.9.3.22.
    UnsupportedEncoding,
    /// `<invalid-xml/>`, section 4.9.3.11.
    InvalidXml,
}

impl Error {
    /// The stream error condition to close the stream with.
    pub const fn kind(self) -> StreamErrorKind {
        match self {
            Error::TooLarge
            | Error::TagTooLong
            | Error::TooDeep
            | Error::TooManyAttributes
            | Error::TooManyPrefixes
            | Error::NameTooLong
            | Error::BadNamespaceName
            | Error::NameOfFifthEdition => StreamErrorKind::PolicyViolation,
            Error::Restricted(_) => StreamErrorKind::RestrictedXml,
            // Section 11.3: data that is not namespace-well-formed ends the stream with not-well-formed.
            // Section 11.6 and XML 1.0, section 4.3.3, treat invalid UTF-8 the same way: unsupported-encoding is for a
            // peer that declares or shows that it uses another encoding.
            Error::NotWellFormed(_) | Error::BadNamespace(_) | Error::BadUtf8 | Error::BadCharacter => {
                StreamErrorKind::NotWellFormed
            }
            Error::BadNamespacePrefix => StreamErrorKind::BadNamespacePrefix,
            Error::UnsupportedEncoding => StreamErrorKind::UnsupportedEncoding,
            Error::InvalidXml(_) => StreamErrorKind::InvalidXml,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restriction_is_named_as_in_xml() {
        let text = |restriction| Error::Restricted(restriction).to_string();
        assert_eq!(text(Restriction::Doctype), "XMPP forbids this XML feature: document type declaration");
        for restriction in [Restriction::Comment, Restriction::ProcessingInstruction, Restriction::Entity] {
            assert!(text(restriction).ends_with(restriction.as_str()));
        }
    }
}
