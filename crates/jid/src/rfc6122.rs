//! Addresses that were stored under the older rules (RFC 6122: Nodeprep, Nameprep, Resourceprep).
//!
//! RFC 7622 (section 1) warns that addresses which were valid before may not be so now: Nodeprep kept symbols
//! (`♚@example.com`), IDNA2003 kept domains that IDNA2008 refuses. Accounts and roster items brought over from an
//! older server must stay readable, or their owners lose them. Nothing that arrives in a stanza may come this way.
//!
//! Each part is read by RFC 7622 first; only a part that it refuses is tried with the old profile, so an address
//! that both accept has one form only.
//!
//! Trap: Nameprep alone does not forbid ASCII such as `/` or a space, so that is tested here.

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

/// Only a forbidden character is worth a second look: the limits are the same in both RFCs.
fn only_forbidden(error: JidError) -> Result<(), JidError> {
    if matches!(error, JidError::Forbidden(_)) { Ok(()) } else { Err(error) }
}
