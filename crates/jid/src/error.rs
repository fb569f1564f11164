//! Why a text is not an address (RFC 7622).
//!
//! The errors name the part and the rule, not the character: they end in `<jid-malformed/>` (RFC 6120,
//! section 8.3.3.8) or in a log line, and must not echo hostile input. Trap: they stay `Copy` and one
//! or two bytes long, because a refused address must cost no allocation either.

use std::fmt;

/// The part of an address that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JidPart {
    /// Before the `@` (RFC 7622, section 3.3).
    Local,
    /// The only part that must be there (RFC 7622, section 3.2).
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

/// Why a text was refused as an address or as a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum JidError {
    /// The part has no octets, although its separator is there (or it is the domain).
    #[error("the {0} of the address is empty")]
    Empty(JidPart),
    /// More than 1023 octets after preparation, or so many before it that it was not tried; for a
    /// domain also a label above 63 or a name above 253 octets in its DNS form (RFC 1034, section 3.1).
    #[error("the {0} of the address is too long")]
    TooLong(JidPart),
    /// A character, or a combination of characters, that the profile of the part forbids.
    #[error("the {0} of the address contains something that is not allowed there")]
    Forbidden(JidPart),
}
