//! Key-value storage per account, in memory.

use std::collections::BTreeMap;

use jid::JidRef;

use super::{MemoryStore, ready};
use crate::account_kv::{check_key_lengths, is_within_limits};
use crate::{AccountKv, AccountKvLimits, PutOutcome, StoreFuture};

/// The pairs of an account.
#[derive(Clone, Default)]
struct KeyValues(BTreeMap<String, Vec<u8>>);

fn kv_size(KeyValues(values): &KeyValues) -> (usize, usize) {
    (values.len(), values.iter().map(|(key, value)| key.len() + value.len()).sum())
}

impl AccountKv for MemoryStore {
    fn get(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        let state = self.state.lock();
        ready(Ok(state
            .account(owner)
            .and_then(|(_, entry)| entry.values.get::<KeyValues>()?.0.get(key).cloned())))
    }

    fn entries(&self, owner: JidRef<'_>) -> StoreFuture<'_, Vec<(String, Vec<u8>)>> {
        let state = self.state.lock();
        let values = state.account(owner).and_then(|(_, entry)| entry.values.get::<KeyValues>());
        ready(Ok(values.into_iter().flat_map(|values| values.0.clone()).collect()))
    }

    fn put(
        &self,
        owner: JidRef<'_>,
        values: Vec<(String, Vec<u8>)>,
        limits: AccountKvLimits,
    ) -> StoreFuture<'_, PutOutcome> {
        if let Err(error) = check_key_lengths(&values) {
            return ready(Err(error));
        }
        let mut state = self.state.lock();
        let Some(entry) = state.account_mut(owner) else { return ready(Ok(PutOutcome::NoAccount)) };
        let before = entry.values.get_or_default::<KeyValues>();
        let mut after = before.clone();
        after.0.extend(values);
        if !is_within_limits(kv_size(before), kv_size(&after), limits) {
            return ready(Ok(PutOutcome::Full));
        }
        *before = after;
        ready(Ok(PutOutcome::Done))
    }

    fn replace(
        &self,
        owner: JidRef<'_>,
        key: &str,
        before: Option<Vec<u8>>,
        value: Vec<u8>,
        limits: AccountKvLimits,
    ) -> StoreFuture<'_, Option<PutOutcome>> {
        let values = vec![(key.to_owned(), value)];
        if let Err(error) = check_key_lengths(&values) {
            return ready(Err(error));
        }
        let mut state = self.state.lock();
        let Some(entry) = state.account_mut(owner) else { return ready(Ok(Some(PutOutcome::NoAccount))) };
        let stored = entry.values.get_or_default::<KeyValues>();
        if stored.0.get(key) != before.as_ref() {
            return ready(Ok(None));
        }
        let mut after = stored.clone();
        after.0.extend(values);
        if !is_within_limits(kv_size(stored), kv_size(&after), limits) {
            return ready(Ok(Some(PutOutcome::Full)));
        }
        *stored = after;
        ready(Ok(Some(PutOutcome::Done)))
    }

    fn remove(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, bool> {
        let mut state = self.state.lock();
        let values = state.account_mut(owner).map(|entry| entry.values.get_or_default::<KeyValues>());
        ready(Ok(values.is_some_and(|values| values.0.remove(key).is_some())))
    }
}
