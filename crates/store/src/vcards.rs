//! vCards (XEP-0054 1.3) as opaque bytes, their searchable texts, and the hash of their photo.
//!
//! The caller extracts the searchable texts, because only it parses XML; storage folds them into keys (see
//! [`crate::user_search`]).
//!
//! Not implemented: parsing the card.
//!
//! # Pitfalls
//!
//! Card and searchable texts are one write. A card stored without its texts can no longer be found.

use jid::JidRef;

use crate::{StoreError, StoreErrorKind, StoreFuture};

/// Maximum size of a card in bytes (`TooLarge` otherwise). Features set lower limits.
pub const MAX_VCARD_BYTES: usize = 1 << 20;

/// Maximum stored length of a searchable text in characters; longer ones are truncated.
pub const MAX_SEARCHABLE_CHARS: usize = 256;

/// Texts by which user search finds an account and which it shows; empty means absent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SearchableProfile {
    /// The formatted name (`FN`).
    pub name: String,
    /// The given name (`N/GIVEN`).
    pub first: String,
    /// The family name (`N/FAMILY`).
    pub last: String,
    /// `NICKNAME`.
    pub nick: String,
    /// `EMAIL/USERID`.
    pub email: String,
}

impl SearchableProfile {
    /// The stored form: every text truncated to [`MAX_SEARCHABLE_CHARS`].
    #[must_use]
    pub fn truncated(self) -> SearchableProfile {
        let cut = |text: String| match text.char_indices().nth(MAX_SEARCHABLE_CHARS) {
            Some((at, _)) => text[..at].to_owned(),
            None => text,
        };
        SearchableProfile {
            name: cut(self.name),
            first: cut(self.first),
            last: cut(self.last),
            nick: cut(self.nick),
            email: cut(self.email),
        }
    }

    /// Whether all texts are empty.
    pub fn is_empty(&self) -> bool {
        self == &SearchableProfile::default()
    }
}

/// SHA-1 of a photo (XEP-0153, section 3.1). Part of [`crate::Login`].
pub type PhotoHash = [u8; 20];

storage_need! {
    /// vCards of accounts. Removed with the account.
    pub trait Vcards in vcards {
        /// The card, if any.
        fn get(&self, owner: JidRef<'_>) -> StoreFuture<'_, Option<Vec<u8>>>;

        /// Inserts or replaces the card together with its searchable texts and the hash of its photo; without a card all of
        /// them are removed. False if the account does not exist.
        fn put(&self, owner: JidRef<'_>, vcard: Option<Vec<u8>>, searchable: SearchableProfile, photo: Option<PhotoHash>) -> StoreFuture<'_, bool>;

        /// The same, if the stored card is `before`. `None`: it is another one, and nothing was changed.
        fn replace(&self, owner: JidRef<'_>, before: Option<Vec<u8>>, vcard: Option<Vec<u8>>, searchable: SearchableProfile, photo: Option<PhotoHash>) -> StoreFuture<'_, Option<bool>>;
    }
}

/// Rejects a card that is too large; every backend calls it first.
///
/// # Errors
/// `TooLarge`.
pub fn check_size(vcard: Option<&[u8]>) -> Result<(), StoreError> {
    if vcard.is_some_and(|vcard| vcard.len() > MAX_VCARD_BYTES) {
        return Err(StoreError::new(StoreErrorKind::TooLarge, "the vCard is too large"));
    }
    Ok(())
}
