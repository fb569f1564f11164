//! vCards (XEP-0054 1.3) as opaque bytes, what of them the directory may find, and the hash of their photo.
//!
//! The caller picks the searchable texts out of the card, because only it knows XML; storage folds them into keys (see
//! [`crate::directory`]). Left out: looking into the card.
//!
//! The trap for the next person: card and searchable texts are one write. A card that is put without its texts is not
//! found any more.
use jid::JidRef;

use crate::{StoreError, StoreErrorKind, StoreFuture};

/// The largest card, in bytes (`TooLarge` otherwise). Features set lower limits.
pub const MAX_VCARD_BYTES: usize = 1 << 20;

/// The longest searchable text that is kept, in characters; longer ones are cut.
pub const MAX_SEARCHABLE_CHARS: usize = 256;

/// What the directory finds an account by and shows of it; an empty text is none.
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
    /// As it is kept: every text cut to [`MAX_SEARCHABLE_CHARS`].
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

    /// Whether there is nothing to be found by.
    pub fn is_empty(&self) -> bool {
        self == &SearchableProfile::default()
    }
}

/// SHA-1 of a photo (XEP-0153 section 3.1). It comes with the login, see [`crate::Login`].
pub type PhotoHash = [u8; 20];

/// The vCards of accounts. They go with the account.
pub trait Vcards: Send + Sync {
    /// The card, if any.
    fn get(&self, owner: JidRef<'_>) -> StoreFuture<'_, Option<Vec<u8>>>;

    /// Sets or replaces the card together with what the directory finds and the hash of the photo; without a card all of
    /// them go. False when there is no such account.
    fn put(
        &self,
        owner: JidRef<'_>,
        vcard: Option<Vec<u8>>,
        searchable: SearchableProfile,
        photo: Option<PhotoHash>,
    ) -> StoreFuture<'_, bool>;
}

/// Refuses a card that is too large; every backend calls it first.
///
/// # Errors
/// `TooLarge`.
pub fn check_size(vcard: Option<&[u8]>) -> Result<(), StoreError> {
    if vcard.is_some_and(|vcard| vcard.len() > MAX_VCARD_BYTES) {
        return Err(StoreError::new(StoreErrorKind::TooLarge, "the vCard is too large"));
    }
    Ok(())
}
