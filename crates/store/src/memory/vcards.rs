//! vCards, in memory.

use jid::JidRef;

use super::{AccountEntry, MemoryStore, ready};
use crate::{PhotoHash, SearchableProfile, StoreFuture, Vcards};

impl Vcards for MemoryStore {
    fn get(&self, owner: JidRef<'_>) -> StoreFuture<'_, Option<Vec<u8>>> {
        let state = self.state.lock();
        ready(Ok(state.account(owner).and_then(|(_, entry)| entry.vcard.clone())))
    }

    fn put(
        &self,
        owner: JidRef<'_>,
        vcard: Option<Vec<u8>>,
        searchable: SearchableProfile,
        photo: Option<PhotoHash>,
    ) -> StoreFuture<'_, bool> {
        if let Err(error) = crate::vcards::check_size(vcard.as_deref()) {
            return ready(Err(error));
        }
        let mut state = self.state.lock();
        let Some(entry) = state.account_mut(owner) else { return ready(Ok(false)) };
        put_card(entry, vcard, searchable, photo);
        ready(Ok(true))
    }

    fn replace(
        &self,
        owner: JidRef<'_>,
        before: Option<Vec<u8>>,
        vcard: Option<Vec<u8>>,
        searchable: SearchableProfile,
        photo: Option<PhotoHash>,
    ) -> StoreFuture<'_, Option<bool>> {
        if let Err(error) = crate::vcards::check_size(vcard.as_deref()) {
            return ready(Err(error));
        }
        let mut state = self.state.lock();
        let Some(entry) = state.account_mut(owner) else { return ready(Ok(Some(false))) };
        if entry.vcard != before {
            return ready(Ok(None));
        }
        put_card(entry, vcard, searchable, photo);
        ready(Ok(Some(true)))
    }
}

fn put_card(
    entry: &mut AccountEntry,
    vcard: Option<Vec<u8>>,
    searchable: SearchableProfile,
    photo: Option<PhotoHash>,
) {
    entry.searchable = if vcard.is_some() { searchable.truncated() } else { SearchableProfile::default() };
    entry.photo = photo.filter(|_| vcard.is_some());
    entry.vcard = vcard;
}
