//! The accounts that an import has created: the only ones that it may change.
//!
//! Between an interruption and the continuation a node may run, and users may register, or remove an account and register its
//! address again. So the time of creation does not tell whose an account is: each account of the import is on a list in the
//! store, by its id and the time of its creation.
//!
//! ```text
//! list = parts, with the keys "import accounts 0", "import accounts 1", …; the first that is missing or empty ends it
//! part = *(id created_at)                               4 and 8 bytes, big-endian
//! ```
//!
//! # Pitfalls
//!
//! Accounts are listed after they were created. Those of the batch that an interruption has cut off are recognised by their
//! credentials.

use std::collections::HashMap;

use store::server_kv::MAX_VALUE_BYTES;
use store::{AccountRecord, AddressId, StoreError, Stores};

const ENTRY_BYTES: usize = 12;

/// Accounts of one part.
const PART_ACCOUNTS: usize = MAX_VALUE_BYTES / ENTRY_BYTES;

/// The list, of which each account takes about 30 bytes of memory.
#[derive(Default)]
pub(super) struct CreatedAccounts {
    /// Times of creation, in milliseconds since 1970.
    accounts: HashMap<AddressId, u64>,
    /// Number of the last part, and its value.
    part: usize,
    value: Vec<u8>,
}

impl CreatedAccounts {
    pub(super) async fn read(stores: &Stores) -> Result<CreatedAccounts, StoreError> {
        let mut list = CreatedAccounts::default();
        for number in 0.. {
            let Some(value) = read_part(stores, number).await? else { break };
            list.accounts.extend(value.chunks_exact(ENTRY_BYTES).filter_map(read_entry));
            (list.part, list.value) = (number, value);
        }
        Ok(list)
    }

    /// Removes a list. What an interruption leaves of it is again a list.
    pub(super) async fn clear(stores: &Stores) -> Result<(), StoreError> {
        let mut parts = 0;
        while read_part(stores, parts).await?.is_some() {
            parts += 1;
        }
        for number in (0..parts).rev() {
            stores.server_kv.put(&part_key(number), b"").await?;
        }
        Ok(())
    }

    /// Adds accounts that were created.
    pub(super) async fn add(
        &mut self,
        stores: &Stores,
        created: impl IntoIterator<Item = AccountRecord>,
    ) -> Result<(), StoreError> {
        let mut changed = false;
        for account in created {
            if self.value.len() >= PART_ACCOUNTS * ENTRY_BYTES {
                stores.server_kv.put(&part_key(self.part), &self.value).await?;
                self.part += 1;
                self.value.clear();
            }
            self.accounts.insert(account.id, account.created_at);
            self.value.extend_from_slice(&account.id.get().to_be_bytes());
            self.value.extend_from_slice(&account.created_at.to_be_bytes());
            changed = true;
        }
        if changed {
            stores.server_kv.put(&part_key(self.part), &self.value).await?;
        }
        Ok(())
    }

    /// Whether the import has created this account, and not another one of the same address.
    pub(super) fn contains(&self, account: &AccountRecord) -> bool {
        self.accounts.get(&account.id) == Some(&account.created_at)
    }

    /// Whether the import has created an account of this address, which may be gone.
    pub(super) fn contains_address(&self, address: AddressId) -> bool {
        self.accounts.contains_key(&address)
    }
}

fn part_key(number: usize) -> String {
    format!("import accounts {number}")
}

async fn read_part(stores: &Stores, number: usize) -> Result<Option<Vec<u8>>, StoreError> {
    let value = stores.server_kv.get(&part_key(number)).await?;
    Ok(value.filter(|value| !value.is_empty()))
}

fn read_entry(entry: &[u8]) -> Option<(AddressId, u64)> {
    let (id, created_at) = entry.split_first_chunk::<4>()?;
    Some((AddressId::new(u32::from_be_bytes(*id))?, u64::from_be_bytes(created_at.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jid::Jid;
    use std::sync::Arc;
    use store::conformance::block_on_ready;

    fn account(number: u32) -> AccountRecord {
        AccountRecord {
            id: AddressId::new(number + 1).unwrap(),
            jid: Jid::parse("a@b").unwrap(),
            disabled: false,
            created_at: u64::from(number) + 7,
        }
    }

    #[test]
    fn a_list_of_several_parts_is_read_again_and_removed() {
        let stores = store::memory::stores(Arc::new(base::ManualClock::default()));
        let accounts = u32::try_from(2 * PART_ACCOUNTS).unwrap();
        let mut list = CreatedAccounts::default();
        for first in (0..accounts).step_by(1_000) {
            let created = (first..accounts.min(first + 1_000)).map(account);
            block_on_ready(list.add(&stores, created)).unwrap();
        }
        let mut found = block_on_ready(CreatedAccounts::read(&stores)).unwrap();
        assert_eq!(found.accounts, list.accounts);
        block_on_ready(found.add(&stores, [account(accounts)])).unwrap();
        let found = block_on_ready(CreatedAccounts::read(&stores)).unwrap();
        assert!((0..=accounts).all(|number| found.contains(&account(number))));
        let again = AccountRecord { created_at: 5, ..account(3) };
        assert!(!found.contains(&again) && found.contains_address(again.id));
        block_on_ready(CreatedAccounts::clear(&stores)).unwrap();
        assert!(block_on_ready(CreatedAccounts::read(&stores)).unwrap().accounts.is_empty());
    }
}
