//! Preparation and enforcement of the three parts of an address (RFC 7622, sections 3.2 to 3.4): the slow path for all
//! that `fast_path` does not recognise.
//!
//! * localpart: UsernameCaseMapped (RFC 8265, section 3.3) without the eight excluded characters;
//! * domainpart: IP literals, else IDNA2008: UTS 46 mapping to U-labels, then a check of every U-label against the
//!   IdentifierClass, whose letters, digits and context rules are those of RFC 5892 (UTS 46 alone would allow
//!   symbols), then the lengths of RFC 1034 on the A-label form;
//! * resourcepart: OpaqueString (RFC 8265, section 4.2).
//!
//! RFC 8265 replaced RFC 7613 and uses lower-casing instead of case folding, as the examples of RFC 7622 expect.
//!
//! Not implemented: `IPvFuture` literals, because no version of them was ever defined.
//!
//! # Pitfalls
//!
//! One pass of a profile is not always stable, because normalisation can produce characters to map. The profiles
//! therefore run until the result is stable, as RFC 8264, section 7, advises; otherwise two servers could store
//! different addresses for one account.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use precis_core::profile::{Rules, stabilize};
use precis_profiles::{OpaqueString, UsernameCaseMapped};

use crate::precis_class::PrecisClass;
use crate::{JidError, JidPart, MAX_PART, fast_path};

/// Maximum octets of a part before preparation; longer ones are rejected immediately. Preparation can shorten a text (a
/// full-width letter has three octets, its ASCII equivalent one), but by less than this factor.
const MAX_RAW_PART: usize = 4 * MAX_PART;

/// The normal form of a localpart: an account name, or the name of a room.
///
/// Borrowed if the text is already in normal form, which costs no allocation for ASCII.
pub fn prepare_local(text: &str) -> Result<Cow<'_, str>, JidError> {
    if fast_path::local(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    check_raw_length(text, JidPart::Local)?;
    let text = if text.is_ascii() {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        stabilize(text, enforce_local).map_err(|_| JidError::Forbidden(JidPart::Local))?
    };
    // After mapping, because a full-width `@` has become a plain one (RFC 7622, section 3.1, on separators).
    if text.bytes().any(|b| b.is_ascii() && !fast_path::local(&[b])) {
        return Err(JidError::Forbidden(JidPart::Local));
    }
    check_prepared_length(text, JidPart::Local)
}

/// The normal form of a domainpart: A-labels become U-labels, one final dot is removed (RFC 7622, section 3.2).
///
/// Borrowed if the text is already in normal form except for the final dot.
pub fn prepare_domain(text: &str) -> Result<Cow<'_, str>, JidError> {
    if fast_path::domain(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    check_raw_length(text, JidPart::Domain)?;
    if fast_path::domain(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    if text.starts_with('[') { ip_literal(text) } else { idna_name(text) }
}

/// The form of a normalised domainpart in the DNS and in URLs: A-labels (RFC 5890, section 2.3.2.1) instead of letters
/// outside of ASCII.
///
/// Borrowed if they are the same.
pub fn domain_to_ascii(domain: &str) -> Cow<'_, str> {
    if domain.is_ascii() {
        return Cow::Borrowed(domain);
    }
    let ascii =
        Uts46::new().to_ascii(domain.as_bytes(), AsciiDenyList::STD3, Hyphens::Check, DnsLength::Ignore);
    // A domainpart that was prepared has such a form.
    ascii.unwrap_or(Cow::Borrowed(domain))
}

/// IDNA2008 by table lookup.
fn idna_name(text: &str) -> Result<Cow<'_, str>, JidError> {
    let forbidden = JidError::Forbidden(JidPart::Domain);
    let uts46 = Uts46::new();
    let (name, valid) = uts46.to_unicode(text.as_bytes(), AsciiDenyList::STD3, Hyphens::Check);
    valid.map_err(|_| forbidden)?;
    for label in name.split('.') {
        if !label.is_ascii() && PrecisClass::Identifier.permits(label).is_err() {
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
        return Err(JidError::TooLong(JidPart::Domain));
    }
    // The crate copies internationalised names even if they are unchanged.
    check_prepared_length(if name == text { Cow::Borrowed(text) } else { name }, JidPart::Domain)
}

/// The normal form of a resourcepart: what a client requests when binding, or a nickname in a room.
///
/// Borrowed if the text is already in normal form. Spaces are preserved, also at the edges: example 18 of RFC 7622
/// lists a leading space as invalid, but no rule of the RFC or of OpaqueString forbids it, and other servers send it.
pub fn prepare_resource(text: &str) -> Result<Cow<'_, str>, JidError> {
    if fast_path::resource(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    check_raw_length(text, JidPart::Resource)?;
    let text = stabilize(text, enforce_resource).map_err(|_| JidError::Forbidden(JidPart::Resource))?;
    check_prepared_length(text, JidPart::Resource)
}

/// RFC 8265, section 3.3.3, with the class of `precis_class.rs` instead of the crate's own.
fn enforce_local(text: &str) -> Result<Cow<'_, str>, precis_core::Error> {
    let profile = UsernameCaseMapped::new();
    let text = profile.width_mapping_rule(text)?;
    PrecisClass::Identifier.permits(&text)?;
    let text = profile.case_mapping_rule(text)?;
    let text = profile.normalization_rule(text)?;
    profile.directionality_rule(text)
}

/// RFC 8265, section 4.2.2, with the class of `precis_class.rs` instead of the crate's own.
fn enforce_resource(text: &str) -> Result<Cow<'_, str>, precis_core::Error> {
    let profile = OpaqueString::new();
    PrecisClass::Freeform.permits(text)?;
    let text = profile.additional_mapping_rule(text)?;
    profile.normalization_rule(text)
}

/// `[` IPv6 address, with or without a zone (RFC 3986, section 3.2.2; RFC 6874) `]`, formatted according to RFC 5952.
fn ip_literal(text: &str) -> Result<Cow<'_, str>, JidError> {
    let forbidden = JidError::Forbidden(JidPart::Domain);
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
    check_prepared_length(
        if spelled == text { Cow::Borrowed(text) } else { Cow::Owned(spelled) },
        JidPart::Domain,
    )
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

fn check_raw_length(text: &str, part: JidPart) -> Result<(), JidError> {
    match text.len() {
        0 => Err(JidError::Empty(part)),
        n if n > MAX_RAW_PART => Err(JidError::TooLong(part)),
        _ => Ok(()),
    }
}

/// The length limits of the result (RFC 7622, sections 3.2 to 3.4: 1 to 1023 octets each).
pub(crate) fn check_prepared_length(text: Cow<'_, str>, part: JidPart) -> Result<Cow<'_, str>, JidError> {
    match text.len() {
        0 => Err(JidError::Empty(part)),
        n if n > MAX_PART => Err(JidError::TooLong(part)),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow path applied to ASCII; `fast_path` and the lower-casing above must agree with it.
    fn local_by_tables(text: &str) -> Option<String> {
        let text = stabilize(text, enforce_local).ok().filter(|text| !text.is_empty())?;
        (!text.contains(['"', '&', '\'', '/', ':', '<', '>', '@'])).then(|| text.into_owned())
    }

    fn resource_by_tables(text: &str) -> Option<String> {
        stabilize(text, enforce_resource).ok().filter(|text| !text.is_empty()).map(Cow::into_owned)
    }

    #[test]
    fn the_fast_path_and_the_tables_agree_on_every_ascii_character() {
        for byte in 0..=0x7f_u8 {
            for text in [
                String::from(char::from(byte)),
                format!("a{}z", char::from(byte)),
                format!("{0}{0}", char::from(byte)),
            ] {
                assert_eq!(
                    prepare_local(&text).ok().map(Cow::into_owned),
                    local_by_tables(&text),
                    "{text:?}"
                );
                assert_eq!(
                    prepare_resource(&text).ok().map(Cow::into_owned),
                    resource_by_tables(&text),
                    "{text:?}"
                );
                let same = local_by_tables(&text).as_deref() == Some(&text);
                assert_eq!(fast_path::local(text.as_bytes()), same, "{text:?} is in normal form");
                assert_eq!(
                    fast_path::resource(text.as_bytes()),
                    resource_by_tables(&text).is_some(),
                    "{text:?}"
                );
            }
        }
    }

    /// All names of up to seven characters over the significant characters, on both paths.
    #[test]
    fn the_fast_path_and_the_tables_agree_on_short_domains() {
        const LETTERS: [char; 6] = ['a', 'x', 'n', '7', '-', '.'];
        let mut names = vec![String::new()];
        for _ in 0..7 {
            names = names.iter().flat_map(|name| LETTERS.map(|letter| format!("{name}{letter}"))).collect();
            for name in &names {
                let fast = fast_path::domain(name.as_bytes());
                let slow = idna_name(name);
                // The final dot is removed before both paths; A-labels always take the slow path.
                assert_eq!(fast, slow.as_deref() == Ok(name), "{name:?}: {slow:?}");
            }
        }
    }

    /// Lengths at the limits of a label, of a name and of the vectorised path.
    #[test]
    fn the_fast_path_and_the_tables_agree_on_long_domains() {
        for length in 1..=300 {
            for every in [7, 31, 62, 63, 64, 65, 300] {
                for mark in ['.', '-', '_', 'A'] {
                    let name: String =
                        (1..=length).map(|at| if at % every == 0 { mark } else { 'a' }).collect();
                    let slow = idna_name(&name);
                    assert_eq!(
                        fast_path::domain(name.as_bytes()),
                        slow.as_deref() == Ok(&name),
                        "{name:?}: {slow:?}"
                    );
                }
            }
        }
    }
}
