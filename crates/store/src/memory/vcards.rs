//! vCards in memory.
use jid::JidRef;

use super::{Memory, ready};
use crate::{Fut, PhotoHash, Searchable, Vcards};

impl Vcards for Memory {
    fn get(&self, owner: JidRef<'_>) -> Fut<'_, Option<Vec<u8>>> {
        let state = self.state.lock();
        ready(Ok(state.account(owner).and_then(|(_, entry)| entry.vcard.clone())))
    }

    fn put(
        &self,
        owner: JidRef<'_>,
        vcard: Option<Vec<u8>>,
        searchable: Searchable,
        photo: Option<PhotoHash>,
    ) -> Fut<'_, bool> {
        if let Err(error) = crate::vcards::check(vcard.as_deref()) {
            return ready(Err(error));
        }
        let mut state = self.state.lock();
        let Some(entry) = state.account_mut(owner) else { return ready(Ok(false)) };
        entry.searchable = if vcard.is_some() { searchable.settled() } else { Searchable::default() };
        entry.photo = photo.filter(|_| vcard.is_some());
        entry.vcard = vcard;
        ready(Ok(true))
    }
}
