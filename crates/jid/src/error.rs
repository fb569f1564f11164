//! Address errors: why a text is not an address (RFC 7622).
//!
//! They name the part and the rule, not the character, because they end in `<jid-malformed/>` (RFC 6120, section
//! 8.3.3.8) or in a log line and must not echo hostile input.
//!
//! # Pitfalls
//!
//! The errors must stay `Copy` and one or two bytes long: rejecting an address must not allocate.

use std::fmt;

/// The part of an address that an error concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JidPart {
    /// Before the `@` (RFC 7622, section 3.3).
    Local,
    /// The only mandatory part (RFC 7622, section 3.2).
    Domain,
    /// After the first `/` (RFC 7622, section 3.4).
    Resource,
}

impl fmt::Display for JidPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JidPart::Local => "localpart",
            JidPart::Domain => "domainpart",
            JidPart::Resource => "resourcepart",
        })
    }
}

/// The reason why a text was rejected as an address or as a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum JidError {
    /// The part is empty although its separator is present, or the domain is empty.
    #[error("the {0} of the address is empty")]
    Empty(JidPart),
    /// More than 1023 octets after preparation, or too many before it to attempt preparation; for a domain also a label
    /// above 63 or a name above 253 octets in its DNS form (RFC 1034, section 3.1).
    #[error("the {0} of the address is too long")]
    TooLong(JidPart),
    /// A character, or a combination of characters, that the profile of the part forbids.
    #[error("the {0} of the address contains something that is not allowed there")]
    Forbidden(JidPart),
}
