//! Small values of accounts in memory.
use std::collections::BTreeMap;

use jid::JidRef;

use super::{Memory, ready};
use crate::private::{check, fits};
use crate::{Fut, Private, PrivateLimits, PutOutcome};

fn size(values: &BTreeMap<String, Vec<u8>>) -> (usize, usize) {
    (values.len(), values.iter().map(|(key, value)| key.len() + value.len()).sum())
}

impl Private for Memory {
    fn get(&self, owner: JidRef<'_>, key: &str) -> Fut<'_, Option<Vec<u8>>> {
        let state = self.state.lock();
        ready(Ok(state.account(owner).and_then(|(_, entry)| entry.private.get(key).cloned())))
    }

    fn put(
        &self,
        owner: JidRef<'_>,
        values: Vec<(String, Vec<u8>)>,
        limits: PrivateLimits,
    ) -> Fut<'_, PutOutcome> {
        if let Err(error) = check(&values) {
            return ready(Err(error));
        }
        let mut state = self.state.lock();
        let Some(entry) = state.account_mut(owner) else { return ready(Ok(PutOutcome::NoAccount)) };
        let mut after = entry.private.clone();
        after.extend(values);
        if !fits(size(&entry.private), size(&after), limits) {
            return ready(Ok(PutOutcome::Full));
        }
        entry.private = after;
        ready(Ok(PutOutcome::Done))
    }

    fn remove(&self, owner: JidRef<'_>, key: &str) -> Fut<'_, bool> {
        let mut state = self.state.lock();
        ready(Ok(state.account_mut(owner).is_some_and(|entry| entry.private.remove(key).is_some())))
    }
}
