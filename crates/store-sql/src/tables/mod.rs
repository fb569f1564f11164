//! One file per storage trait: its statements and its implementation. A further one is a file and a line in `tables!`.

pub(crate) mod account_kv;
pub(crate) mod accounts;
pub(crate) mod address_dictionary;
pub(crate) mod blocklists;
pub(crate) mod last_seen;
pub(crate) mod logins;
pub(crate) mod offline;
pub(crate) mod pubsub;
pub(crate) mod rooms;
pub(crate) mod roster;
pub(crate) mod server_kv;
pub(crate) mod subscription_sets;
pub(crate) mod tokens;
pub(crate) mod user_search;
pub(crate) mod vcards;

use jid::{Jid, JidRef};
use store::{AddressId, StoreError, StoreErrorKind};

use crate::dialect::Dialect;
use crate::error::corrupt;

/// The statements of one file.
pub(crate) trait TableStatements {
    /// Tables with a column `owner`, whose rows are removed with that account.
    const OWNED_TABLES: &'static [&'static str] = &[];

    /// Writes them for a database.
    fn new(dialect: &dyn Dialect) -> Self;

    /// Those whose plan is tested: all that read, change or remove rows.
    #[cfg(test)]
    fn all(&self) -> Vec<&str>;
}

macro_rules! tables {
    ($($file:ident: $statements:ident,)+) => {
        /// The statements of all files.
        pub(crate) struct Statements {
            $(pub(crate) $file: $file::$statements,)+
        }

        impl Statements {
            pub(crate) fn new(dialect: &dyn Dialect) -> Statements {
                Statements { $($file: $file::$statements::new(dialect),)+ }
            }

            #[cfg(test)]
            pub(crate) fn all(&self) -> Vec<&str> {
                [$(self.$file.all()),+].concat()
            }
        }

        /// Tables whose rows are removed with their account, by file.
        const OWNED_TABLES: &[&[&str]] = &[$($file::$statements::OWNED_TABLES),+];
    };
}

tables! {
    account_kv: AccountKvStatements,
    accounts: AccountStatements,
    address_dictionary: AddressStatements,
    blocklists: BlocklistStatements,
    last_seen: LastSeenStatements,
    logins: LoginStatements,
    offline: OfflineStatements,
    pubsub: PubSubStatements,
    rooms: RoomStatements,
    roster: RosterStatements,
    server_kv: ServerKvStatements,
    subscription_sets: SubscriptionStatements,
    tokens: TokenStatements,
    user_search: UserSearchStatements,
    vcards: VcardStatements,
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::Row;
    use std::collections::BTreeSet;

    /// Otherwise data of a removed account would stay, and belong to the next account with its address.
    #[test]
    fn every_table_with_an_owner_is_emptied_with_its_account() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let of_schema: BTreeSet<String> = runtime.block_on(async {
            let mut conn = crate::migrate::in_memory().await;
            let query =
                "SELECT t.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE c.name = 'owner'";
            let rows = sqlx::query(query).fetch_all(&mut conn).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        });
        let declared: BTreeSet<String> =
            OWNED_TABLES.iter().copied().flatten().map(|table| (*table).to_owned()).collect();
        assert_eq!(of_schema, declared);
        assert!(declared.contains("roster"));
    }
}
