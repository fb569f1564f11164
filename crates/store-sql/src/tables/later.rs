//! Needs whose tables come with the next schema.
use jid::{Jid, JidRef};
use store::*;

use crate::SqlStores;

fn later<'a, T: Send + 'a>() -> Fut<'a, T> {
    Box::pin(std::future::ready(Err(StoreError::new(ErrorKind::Unavailable, "this is not stored yet"))))
}

impl Blocklists for SqlStores {
    fn blocklist(&self, _: JidRef<'_>) -> Fut<'_, Vec<Jid>> {
        later()
    }
    fn change_blocklist(&self, _: JidRef<'_>, _: Vec<Jid>, _: Unblock, _: u32) -> Fut<'_, BlocklistOutcome> {
        later()
    }
}

impl Tokens for SqlStores {
    fn change_tokens(&self, _: JidRef<'_>, _: TokensFn) -> Fut<'_, bool> {
        later()
    }
}

impl Private for SqlStores {
    fn get(&self, _: JidRef<'_>, _: &str) -> Fut<'_, Option<Vec<u8>>> {
        later()
    }
    fn put(&self, _: JidRef<'_>, _: Vec<(String, Vec<u8>)>, _: PrivateLimits) -> Fut<'_, PutOutcome> {
        later()
    }
    fn remove(&self, _: JidRef<'_>, _: &str) -> Fut<'_, bool> {
        later()
    }
}

impl Vcards for SqlStores {
    fn get(&self, _: JidRef<'_>) -> Fut<'_, Option<Vec<u8>>> {
        later()
    }
    fn put(&self, _: JidRef<'_>, _: Option<Vec<u8>>, _: Searchable) -> Fut<'_, bool> {
        later()
    }
}

impl Directory for SqlStores {
    fn search(&self, _: &str, _: &Query, _: SearchPage) -> Fut<'_, Found> {
        later()
    }
    fn count(&self, _: &str, _: &Query) -> Fut<'_, u64> {
        later()
    }
    fn index(&self, _: &str, _: &Query, _: &str) -> Fut<'_, u64> {
        later()
    }
}

impl LastSeen for SqlStores {
    fn set(&self, _: AddressId, _: Seen) {}
    fn get(&self, _: JidRef<'_>) -> Fut<'_, Option<Seen>> {
        later()
    }
}
