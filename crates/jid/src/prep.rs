//! Preparation and enforcement of the three parts (RFC 7622, sections 3.2 to 3.4), the road for everything that
//! `ascii` does not recognise.
//!
//! * localpart: UsernameCaseMapped (RFC 8265, section 3.3) without the eight excluded characters;
//! * domainpart: IP literals, else IDNA2008: UTS 46 mapping to U-labels, then every U-label is held to the
//!   IdentifierClass, whose letters, digits and context rules are those of RFC 5892 (UTS 46 alone would let
//!   symbols pass), then the lengths of RFC 1034 on the A-label form;
//! * resourcepart: OpaqueString (RFC 8265, section 4.2).
//!
//! RFC 8265 replaced RFC 7613 and lower-cases instead of case-folding, as the examples of RFC 7622 expect.
//! Left out: `IPvFuture` literals, because no version of them was ever defined.
//!
//! Trap: one pass of a profile is not always stable (normalisation can uncover something to map), so the
//! profiles run until the result no longer changes, as RFC 8264 (section 7) advises; else two servers could
//! hold different addresses for one account.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use precis_core::StringClass;
use precis_core::profile::{Rules, stabilize};
use precis_profiles::{OpaqueString, UsernameCaseMapped};

use crate::class::Class;
use crate::{JidError, MAX_PART, Part, ascii};

/// Octets of a part before preparation above which it is refused at once. Preparation can shorten a text (a
/// full-width letter has three octets, its ASCII twin one), but by less than this.
const MAX_RAW: usize = 4 * MAX_PART;

/// The normal form of a localpart: an account name, or the name of a room.
///
/// Borrowed when the text is in normal form already, which costs no allocation for ASCII.
pub fn prepare_local(text: &str) -> Result<Cow<'_, str>, JidError> {
    if ascii::local(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    before(text, Part::Local)?;
    let text = if text.is_ascii() {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        stabilize(text, enforce_local).map_err(|_| JidError::Forbidden(Part::Local))?
    };
    // Only now: a full-width `@` has become a plain one (RFC 7622, section 3.1, on separators).
    if text.bytes().any(|b| b.is_ascii() && !ascii::local(&[b])) {
        return Err(JidError::Forbidden(Part::Local));
    }
    after(text, Part::Local)
}

/// The normal form of a domainpart: A-labels become U-labels, one final dot is dropped (RFC 7622, section 3.2).
///
/// Borrowed when the text is in normal form already, but for the final dot.
pub fn prepare_domain(text: &str) -> Result<Cow<'_, str>, JidError> {
    if ascii::domain(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    before(text, Part::Domain)?;
    if ascii::domain(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    if text.starts_with('[') {
        return ip_literal(text);
    }
    let forbidden = JidError::Forbidden(Part::Domain);
    let uts46 = Uts46::new();
    let (name, valid) = uts46.to_unicode(text.as_bytes(), AsciiDenyList::STD3, Hyphens::Check);
    valid.map_err(|_| forbidden)?;
    for label in name.split('.') {
        if !label.is_ascii() && Class::Identifier.allows(label).is_err() {
            return Err(forbidden);
        }
    }
    // A second pass over the result: it must map to itself and have a DNS form of legal length.
    let ascii_form = uts46
        .to_ascii(name.as_bytes(), AsciiDenyList::STD3, Hyphens::Check, DnsLength::Ignore)
        .map_err(|_| forbidden)?;
    if ascii_form.split('.').any(str::is_empty) {
        return Err(forbidden);
    }
    if !idna::uts46::verify_dns_length(&ascii_form, false) {
        return Err(JidError::TooLong(Part::Domain));
    }
    // The crate copies internationalised names even when it changed nothing.
    after(if name == text { Cow::Borrowed(text) } else { name }, Part::Domain)
}

/// The normal form of a resourcepart: what a client asks for when it binds, or a nickname in a room.
///
/// Borrowed when the text is in normal form already. Spaces are kept, also at the edges: example 18 of RFC 7622
/// lists a leading space as wrong, but no rule of the RFC or of OpaqueString forbids it, and other servers send it.
pub fn prepare_resource(text: &str) -> Result<Cow<'_, str>, JidError> {
    if ascii::resource(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    before(text, Part::Resource)?;
    let text = stabilize(text, enforce_resource).map_err(|_| JidError::Forbidden(Part::Resource))?;
    after(text, Part::Resource)
}

/// RFC 8265, section 3.3.3, with the class of `class.rs` in place of the crate's own.
fn enforce_local(text: &str) -> Result<Cow<'_, str>, precis_core::Error> {
    let profile = UsernameCaseMapped::new();
    let text = profile.width_mapping_rule(text)?;
    Class::Identifier.allows(&text)?;
    let text = profile.case_mapping_rule(text)?;
    let text = profile.normalization_rule(text)?;
    profile.directionality_rule(text)
}

/// RFC 8265, section 4.2.2, likewise.
fn enforce_resource(text: &str) -> Result<Cow<'_, str>, precis_core::Error> {
    let profile = OpaqueString::new();
    Class::Freeform.allows(text)?;
    let text = profile.additional_mapping_rule(text)?;
    profile.normalization_rule(text)
}

/// `[` IPv6 address, with or without a zone (RFC 3986, section 3.2.2, and RFC 6874) `]`, spelled as RFC 5952 wants.
fn ip_literal(text: &str) -> Result<Cow<'_, str>, JidError> {
    let forbidden = JidError::Forbidden(Part::Domain);
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or(forbidden)?;
    let (address, zone) = match inner.split_once("%25") {
        Some((address, zone)) => (address, Some(zone)),
        None => (inner, None),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| forbidden)?;
    let spelled = match zone {
        None => format!("[{address}]"),
        Some(zone) if zone_id(zone.as_bytes()) => format!("[{address}%25{zone}]"),
        Some(_) => return Err(forbidden),
    };
    after(if spelled == text { Cow::Borrowed(text) } else { Cow::Owned(spelled) }, Part::Domain)
}

/// `1*( unreserved / pct-encoded )` (RFC 6874, section 2).
fn zone_id(mut zone: &[u8]) -> bool {
    if zone.is_empty() {
        return false;
    }
    loop {
        zone = match zone {
            [] => return true,
            [b'%', a, b, rest @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => rest,
            [b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~', rest @ ..] => rest,
            _ => return false,
        }
    }
}

fn before(text: &str, part: Part) -> Result<(), JidError> {
    match text.len() {
        0 => Err(JidError::Empty(part)),
        n if n > MAX_RAW => Err(JidError::TooLong(part)),
        _ => Ok(()),
    }
}

/// The limits that hold for the result (RFC 7622, sections 3.2 to 3.4: 1 to 1023 octets each).
pub(crate) fn after(text: Cow<'_, str>, part: Part) -> Result<Cow<'_, str>, JidError> {
    match text.len() {
        0 => Err(JidError::Empty(part)),
        n if n > MAX_PART => Err(JidError::TooLong(part)),
        _ => Ok(text),
    }
}
