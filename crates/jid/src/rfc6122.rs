//! Stored addresses that follow the older rules of RFC 6122 (Nodeprep, Nameprep, Resourceprep).
//!
//! RFC 7622, section 1, warns that addresses valid under RFC 6122 may be invalid: Nodeprep allowed symbols
//! (`♚@example.com`), and IDNA2003 allowed domains that IDNA2008 rejects. Accounts and roster items imported from an
//! older server must stay readable, or their owners lose them. Addresses in stanzas must never be accepted by these
//! rules.
//!
//! Each part is prepared by RFC 7622 first. Only a rejected part is tried with the older profile, so an address valid
//! under both has one form only.
//!
//! # Pitfalls
//!
//! Nameprep alone does not forbid ASCII such as `/` or a space, so that is checked here.

use std::borrow::Cow;

use crate::prep::{check_prepared_length, prepare_domain, prepare_local, prepare_resource};
use crate::{JidError, JidPart};

pub(crate) fn local(text: &str) -> Result<Cow<'_, str>, JidError> {
    prepare_local(text).or_else(|error| {
        only_forbidden(error)?;
        check_prepared_length(stringprep::nodeprep(text).map_err(|_| error)?, JidPart::Local)
    })
}

pub(crate) fn domain(text: &str) -> Result<Cow<'_, str>, JidError> {
    prepare_domain(text).or_else(|error| {
        only_forbidden(error)?;
        let name = stringprep::nameprep(text.strip_suffix('.').unwrap_or(text)).map_err(|_| error)?;
        let sound = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !name.split('.').all(|label| !label.is_empty() && label.chars().all(sound)) {
            return Err(error);
        }
        check_prepared_length(name, JidPart::Domain)
    })
}

pub(crate) fn resource(text: &str) -> Result<Cow<'_, str>, JidError> {
    prepare_resource(text).or_else(|error| {
        only_forbidden(error)?;
        check_prepared_length(stringprep::resourceprep(text).map_err(|_| error)?, JidPart::Resource)
    })
}

/// Only a forbidden character justifies the older profile: the length limits are the same in both RFCs.
fn only_forbidden(error: JidError) -> Result<(), JidError> {
    if matches!(error, JidError::Forbidden(_)) { Ok(()) } else { Err(error) }
}
