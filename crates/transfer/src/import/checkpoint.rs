//! The checkpoint of an import in the store: which records are durable.

use std::collections::BTreeMap;

use store::{AddressId, StoreError, Stores};

/// Its key in [`store::ServerKv`]. There is one import at a time.
const CHECKPOINT_KEY: &str = "import";

/// Progress of an import in the store.
pub(super) struct Checkpoint {
    pub(super) source: String,
    /// Accounts that were created earlier are not the import's, in milliseconds since 1970.
    pub(super) started_at: u64,
    /// Records of the second pass before which everything is stored; `None` if it is finished.
    pub(super) position: Option<u64>,
    /// Stored messages, before those of the next batch, of the owners of those; `None` before they are stored.
    pub(super) messages: Option<BTreeMap<AddressId, u32>>,
    /// The value in the store.
    pub(super) stored: Option<Vec<u8>>,
}

impl Checkpoint {
    pub(super) async fn read(stores: &Stores) -> Result<Option<Checkpoint>, StoreError> {
        let Some(stored) = stores.server_kv.get(CHECKPOINT_KEY).await? else { return Ok(None) };
        let text = String::from_utf8_lossy(&stored).into_owned();
        let mut lines = text.splitn(4, '\n');
        let started_at = lines.next().and_then(|line| line.parse().ok()).unwrap_or(0);
        let position = lines.next().and_then(|line| line.parse().ok());
        let messages = lines.next().filter(|line| !line.is_empty());
        let messages = messages.map(|line| line.split(' ').filter_map(read_message_count).collect());
        let source = lines.next().unwrap_or_default().to_owned();
        Ok(Some(Checkpoint { source, started_at, position, messages, stored: Some(stored) }))
    }

    pub(super) async fn write(&mut self, stores: &Stores) -> Result<(), StoreError> {
        let position = self.position.map_or_else(|| "finished".to_owned(), |position| position.to_string());
        let counts = self.messages.iter().flatten().map(|(owner, count)| format!("{}={count}", owner.get()));
        let messages = counts.collect::<Vec<_>>().join(" ");
        let value = format!("{}\n{position}\n{messages}\n{}", self.started_at, self.source).into_bytes();
        if self.stored.as_ref() != Some(&value) {
            stores.server_kv.put(CHECKPOINT_KEY, &value).await?;
            self.stored = Some(value);
        }
        Ok(())
    }
}

/// `OWNER=COUNT`.
fn read_message_count(text: &str) -> Option<(AddressId, u32)> {
    let (owner, count) = text.split_once('=')?;
    Some((AddressId::new(owner.parse().ok()?)?, count.parse().ok()?))
}
