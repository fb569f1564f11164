//! Key-value storage of the server, in memory.

use super::{MemoryStore, ready};
use crate::server_kv::check_sizes;
use crate::{ServerKv, StoreFuture};

impl ServerKv for MemoryStore {
    fn get(&self, key: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        ready(Ok(self.state.lock().server_kv.get(key).cloned()))
    }

    fn put(&self, key: &str, value: &[u8]) -> StoreFuture<'_, ()> {
        ready(check_sizes(key, value).map(|()| {
            self.state.lock().server_kv.insert(key.into(), value.to_vec());
        }))
    }

    fn put_if_absent(&self, key: &str, value: &[u8]) -> StoreFuture<'_, Vec<u8>> {
        ready(check_sizes(key, value).map(|()| {
            self.state.lock().server_kv.entry(key.into()).or_insert_with(|| value.to_vec()).clone()
        }))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> StoreFuture<'_, bool> {
        ready(check_sizes(key, value).map(|()| {
            let mut state = self.state.lock();
            let equal = state.server_kv.get(key).map(Vec::as_slice) == expected;
            if equal {
                state.server_kv.insert(key.into(), value.to_vec());
            }
            equal
        }))
    }
}
