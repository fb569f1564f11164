//! One file per need: its statements and its trait.
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

/// A number of the dictionary that came from the database.
fn id(number: u64) -> Result<AddressId, StoreError> {
    u32::try_from(number)
        .ok()
        .and_then(AddressId::new)
        .filter(|id| *id != AddressId::UNASSIGNED)
        .ok_or_else(|| StoreError::new(StoreErrorKind::TooLarge, "the address dictionary is full"))
}

/// An address that came from the database, where only normalised ones go.
fn address(text: &str) -> Result<Jid, StoreError> {
    Ok(JidRef::from_normalised(text).ok_or_else(|| corrupt("the database holds a wrong address"))?.to_jid())
}

/// The text of the bare address, owned for the trip to another task.
fn bare(account: JidRef<'_>) -> Box<str> {
    account.bare().as_str().into()
}
