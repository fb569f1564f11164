//! Accounts: creating, removing, listing, and their credentials.
//!
//! RFC 6120 section 13.8 leaves the credentials to the server; here they are opaque bytes. XEP-0077 and the console both
//! end in these calls.
//!
//! The trap for the next person: a removed account may be created again, and a client may still hold the old roster
//! version. Versions therefore start from the time of creation, never from 0.
use std::sync::Arc;

use jid::{Jid, JidRef};

use crate::{AddressId, Page, Paged, RosterItem, StoreFuture};

/// An account as administrators see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccountRecord {
    /// The number of its bare address.
    pub id: AddressId,
    /// Its bare address.
    pub jid: Jid,
    /// Whether logging in is refused.
    pub disabled: bool,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
}

/// One account of a bulk creation. Accounts that share a password may share the bytes.
#[derive(Clone, Debug)]
pub struct NewAccount {
    /// Its bare address.
    pub jid: Jid,
    /// Opaque credentials.
    pub credentials: Arc<[u8]>,
}

/// What became of one account of a bulk creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateOutcome {
    /// It is new.
    New(AddressId),
    /// It was there and was left as it was.
    Exists(AddressId),
}

impl CreateOutcome {
    /// The account's number either way.
    pub const fn id(self) -> AddressId {
        match self {
            CreateOutcome::New(id) | CreateOutcome::Exists(id) => id,
        }
    }
}

/// What is left to do after an account was removed.
#[derive(Clone, PartialEq, Debug)]
pub struct RemovedAccount {
    /// The number the account had. Its address keeps it.
    pub id: AddressId,
    /// Contacts with any subscription or request in either direction; RFC 6121 section 3 wants them cancelled.
    pub contacts: Vec<RosterItem>,
}

/// Where an account's roster versions and message numbers start. A later account of the same name starts higher than an
/// earlier one can have come, as long as that one saw fewer than 1024 changes a millisecond. Fits 53 bits until 2248.
pub const fn first_sequence_number(created_at: u64) -> u64 {
    created_at << 10
}

/// The accounts of this service. Addresses are bare; a resource is cut off.
pub trait Accounts: Send + Sync {
    /// Creates an account with an empty roster. Fails with `AlreadyExists`.
    fn create(&self, account: &Jid, credentials: &[u8]) -> StoreFuture<'_, AddressId>;

    /// Creates many, in chunks of one transaction each; the answers are in the order of the input. After a failure the
    /// call may be repeated with the same input: what is there stays as it is.
    fn create_bulk(&self, accounts: Vec<NewAccount>) -> StoreFuture<'_, Vec<CreateOutcome>>;

    /// Removes an account with everything that this crate keeps for it. Nothing when it was not there.
    fn remove(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<RemovedAccount>>;

    /// Replaces the credentials and empties the [`crate::LoginTokens`], which a changed password must not outlive. False when
    /// there is no such account.
    fn set_credentials(&self, account: JidRef<'_>, credentials: &[u8]) -> StoreFuture<'_, bool>;

    /// Replaces the credentials by others of the same password (XEP-0480) if they still are `expected`, and leaves the
    /// tokens. False when they are not, or when there is no such account.
    fn upgrade_credentials(
        &self,
        account: JidRef<'_>,
        expected: &[u8],
        credentials: &[u8],
    ) -> StoreFuture<'_, bool>;

    /// Shuts or opens an account. False when there is no such account.
    fn set_disabled(&self, account: JidRef<'_>, disabled: bool) -> StoreFuture<'_, bool>;

    /// One account, or nothing.
    fn get(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountRecord>>;

    /// The accounts of a domain, ordered by number, which is the cursor.
    fn list(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>>;

    /// How many accounts a domain has.
    fn count(&self, domain: &str) -> StoreFuture<'_, u64>;

    /// Those accounts of a domain that are shut, ordered by number, which is the cursor.
    fn list_disabled(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>>;

    /// How many accounts of a domain are shut.
    fn count_disabled(&self, domain: &str) -> StoreFuture<'_, u64>;

    /// Whether there is such an account.
    fn exists(&self, account: JidRef<'_>) -> StoreFuture<'_, bool>;
}
