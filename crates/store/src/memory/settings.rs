//! Settings in memory.
use super::{Memory, ready};
use crate::settings::check;
use crate::{Fut, Settings};

impl Settings for Memory {
    fn get(&self, key: &str) -> Fut<'_, Option<Vec<u8>>> {
        ready(Ok(self.state.lock().settings.get(key).cloned()))
    }

    fn put(&self, key: &str, value: &[u8]) -> Fut<'_, ()> {
        ready(check(key, value).map(|()| {
            self.state.lock().settings.insert(key.into(), value.to_vec());
        }))
    }

    fn put_if_absent(&self, key: &str, value: &[u8]) -> Fut<'_, Vec<u8>> {
        ready(
            check(key, value).map(|()| {
                self.state.lock().settings.entry(key.into()).or_insert_with(|| value.to_vec()).clone()
            }),
        )
    }
}
