//! One file per storage trait: its statements and its implementation.

pub(crate) mod account_kv;
pub(crate) mod accounts;
pub(crate) mod address_dictionary;
pub(crate) mod blocklists;
pub(crate) mod last_seen;
pub(crate) mod logins;
pub(crate) mod offline;
pub(crate) mod roster;
pub(crate) mod server_kv;
pub(crate) mod tokens;
pub(crate) mod user_search;
pub(crate) mod vcards;

use jid::{Jid, JidRef};
use store::{AddressId, StoreError, StoreErrorKind};

use crate::error::corrupt;

/// Converts a dictionary number read from the database.
fn id(number: u64) -> Result<AddressId, StoreError> {
    u32::try_from(number)
        .ok()
        .and_then(AddressId::new)
        .filter(|id| *id != AddressId::UNASSIGNED)
        .ok_or_else(|| StoreError::new(StoreErrorKind::TooLarge, "the address dictionary is full"))
}

/// Parses an address read from the database, which stores normalised ones only.
fn address(text: &str) -> Result<Jid, StoreError> {
    Ok(JidRef::from_normalised(text)
        .ok_or_else(|| corrupt("the database contains an invalid address"))?
        .to_jid())
}

/// The text of the bare address, owned so that it can move to another task.
fn bare(account: JidRef<'_>) -> Box<str> {
    account.bare().as_str().into()
}
