//! Accounts: creation, removal, listing, and credentials.
//!
//! RFC 6120, section 13.8, leaves the storage of credentials to the server; here they are opaque bytes. XEP-0077 and
//! the console both use these calls.
//!
//! # Pitfalls
//!
//! A removed account may be created again while a client still holds the old roster version. Versions therefore start
//! from the time of creation, never from 0.

use std::sync::Arc;

use jid::{Jid, JidRef};

use crate::{AddressId, Page, Paged, RosterItem, StoreFuture};

/// An account as shown to administrators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccountRecord {
    /// Id of its bare address.
    pub id: AddressId,
    /// Its bare address.
    pub jid: Jid,
    /// Whether login is refused.
    pub disabled: bool,
    /// Creation time in milliseconds since 1970.
    pub created_at: u64,
}

/// One account of a bulk creation. Accounts with the same password may share the bytes.
#[derive(Clone, Debug)]
pub struct NewAccount {
    /// Its bare address.
    pub jid: Jid,
    /// Opaque credentials.
    pub credentials: Arc<[u8]>,
}

/// Result for one account of a bulk creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateOutcome {
    /// It was created.
    New(AddressId),
    /// It already existed and was not changed.
    Exists(AddressId),
}

impl CreateOutcome {
    /// The account's id in either case.
    pub const fn id(self) -> AddressId {
        match self {
            CreateOutcome::New(id) | CreateOutcome::Exists(id) => id,
        }
    }
}

/// Work left for the caller after an account was removed.
#[derive(Clone, PartialEq, Debug)]
pub struct RemovedAccount {
    /// The account's id. Its address keeps it.
    pub id: AddressId,
    /// Contacts with any subscription or request in either direction; RFC 6121, section 3, requires their cancellation.
    pub contacts: Vec<RosterItem>,
}

/// First roster version and message number of an account. A later account of the same name starts above every number of
/// the earlier one, provided that one had fewer than 1024 changes per millisecond. Fits 53 bits until 2248.
pub const fn first_sequence_number(created_at: u64) -> u64 {
    created_at << 10
}

storage_need! {
    /// The accounts of this service. Addresses are bare; a resource is ignored.
    pub trait Accounts in accounts {
        /// Creates an account with an empty roster. Fails with `AlreadyExists`.
        fn create(&self, account: &Jid, credentials: &[u8]) -> StoreFuture<'_, AddressId>;

        /// Creates accounts in chunks of one transaction each; the results are in the order of the input. After a failure
        /// the call may be repeated with the same input: existing accounts are not changed.
        fn create_bulk(&self, accounts: Vec<NewAccount>) -> StoreFuture<'_, Vec<CreateOutcome>>;

        /// Removes an account and all its data in this store. `None` if it did not exist.
        fn remove(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<RemovedAccount>>;

        /// Replaces the credentials and clears the [`crate::LoginTokens`], which must not outlive a changed password. False
        /// if the account does not exist.
        fn set_credentials(&self, account: JidRef<'_>, credentials: &[u8]) -> StoreFuture<'_, bool>;

        /// Replaces the credentials by others for the same password (XEP-0480) if they still equal `expected`; the tokens
        /// stay. False if they differ or the account does not exist.
        fn upgrade_credentials(&self, account: JidRef<'_>, expected: &[u8], credentials: &[u8]) -> StoreFuture<'_, bool>;

        /// Disables or enables an account. False if it does not exist.
        fn set_disabled(&self, account: JidRef<'_>, disabled: bool) -> StoreFuture<'_, bool>;

        /// One account, or `None`.
        fn get(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountRecord>>;

        /// The accounts of a domain, ordered by id, which is the cursor.
        fn list(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>>;

        /// Number of accounts of a domain.
        fn count(&self, domain: &str) -> StoreFuture<'_, u64>;

        /// The disabled accounts of a domain, ordered by id, which is the cursor.
        fn list_disabled(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>>;

        /// Number of disabled accounts of a domain.
        fn count_disabled(&self, domain: &str) -> StoreFuture<'_, u64>;

        /// Whether the account exists.
        fn exists(&self, account: JidRef<'_>) -> StoreFuture<'_, bool>;
    }
}
