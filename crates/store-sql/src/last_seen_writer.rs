//! Write-behind queue of last logouts: the newest per account, collected for a second, then written in chunks that
//! leave the writer free for others in between.
//!
//! # Pitfalls
//!
//! An entry that is being written must remain readable here until its transaction is done.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Spawner;
use base::lock::LeafMutex;
use store::last_seen::MAX_PENDING_ACCOUNTS;
use store::{AddressId, LastActivity, StoreError, StoreErrorKind};
use tokio::sync::{mpsc, oneshot};

use crate::tables::last_seen;
use crate::writer::{Owner, TransactionWriter};

/// Entries in one transaction; a few milliseconds.
const ROWS_PER_TRANSACTION: usize = 512;

pub(crate) struct LastSeenWriter {
    entries: Arc<PendingEntries>,
    wake: mpsc::Sender<Signal>,
}

enum Signal {
    /// The first entry was queued.
    Set,
    /// Write now, and tell when it is done.
    Flush(oneshot::Sender<Result<(), StoreError>>),
    Close(oneshot::Sender<()>),
}

#[derive(Default)]
struct PendingEntries {
    maps: LeafMutex<EntryMaps>,
    flushes: AtomicU64,
}

#[derive(Default)]
struct EntryMaps {
    waiting: HashMap<AddressId, LastActivity>,
    writing: HashMap<AddressId, LastActivity>,
}

impl LastSeenWriter {
    pub(crate) fn start(
        writer: Arc<TransactionWriter>,
        spawner: &dyn Spawner,
        interval: Duration,
    ) -> LastSeenWriter {
        let entries = Arc::new(PendingEntries::default());
        // Room for one `Set` per time that the queue was empty, and one `Close`.
        let (wake, signals) = mpsc::channel(4);
        spawner.spawn("store-seen", Box::pin(run(entries.clone(), writer, signals, interval)));
        LastSeenWriter { entries, wake }
    }

    pub(crate) fn set(&self, owner: AddressId, seen: LastActivity) {
        if owner == AddressId::UNASSIGNED {
            return;
        }
        let first = {
            let waiting = &mut self.entries.maps.lock().waiting;
            if waiting.len() >= MAX_PENDING_ACCOUNTS && !waiting.contains_key(&owner) {
                return;
            }
            waiting.insert(owner, seen);
            waiting.len() == 1
        };
        if first {
            // A full channel already contains a signal; a closed one means that the database is closed.
            let _ = self.wake.try_send(Signal::Set);
        }
    }

    /// The entry that is not on the disk yet.
    pub(crate) fn get(&self, owner: AddressId) -> Option<LastActivity> {
        let maps = self.entries.maps.lock();
        maps.waiting.get(&owner).or_else(|| maps.writing.get(&owner)).cloned()
    }

    /// Rises each time that entries went from here to the disk.
    pub(crate) fn flush_count(&self) -> u64 {
        self.entries.flushes.load(Ordering::Acquire)
    }

    /// Drops the pending entries of these accounts, which were removed or created.
    pub(crate) fn discard(&self, owners: impl IntoIterator<Item = AddressId>) {
        let maps = &mut *self.entries.maps.lock();
        if maps.waiting.is_empty() && maps.writing.is_empty() {
            return;
        }
        for owner in owners {
            maps.waiting.remove(&owner);
            maps.writing.remove(&owner);
        }
    }

    /// Writes the pending entries without gathering further ones.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        let closed = || StoreError::new(StoreErrorKind::Unavailable, "the database is closed");
        let (done, wait) = oneshot::channel();
        self.wake.send(Signal::Flush(done)).await.map_err(|_| closed())?;
        wait.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Writes the pending entries, then accepts no more.
    pub(crate) async fn close(&self) {
        let (done, wait) = oneshot::channel();
        if self.wake.send(Signal::Close(done)).await.is_ok() {
            // An error means that the task has ended, which is the goal.
            let _ = wait.await;
        }
    }
}

async fn run(
    entries: Arc<PendingEntries>,
    writer: Arc<TransactionWriter>,
    mut signals: mpsc::Receiver<Signal>,
    interval: Duration,
) {
    loop {
        let mut closing = None;
        let mut flushing = None;
        let idle = entries.maps.lock().waiting.is_empty();
        if idle {
            match signals.recv().await {
                Some(Signal::Set) => {}
                Some(Signal::Flush(done)) => flushing = Some(done),
                Some(Signal::Close(done)) => closing = Some(Some(done)),
                None => return,
            }
        }
        while closing.is_none() && flushing.is_none() {
            match tokio::time::timeout(interval, signals.recv()).await {
                Err(_) => break,
                Ok(Some(Signal::Set)) => {}
                Ok(Some(Signal::Flush(done))) => flushing = Some(done),
                Ok(Some(Signal::Close(done))) => closing = Some(Some(done)),
                Ok(None) => closing = Some(None),
            }
        }
        let written = flush(&entries, &writer).await;
        if let Some(done) = flushing {
            // An error means that nobody waits any more.
            let _ = done.send(written);
        }
        if let Some(done) = closing {
            signals.close();
            if let Some(done) = done {
                let _ = done.send(());
            }
            return;
        }
    }
}

/// Writes all pending entries. Entries that cannot be written are queued again. After one chunk that the database did not
/// take the others are not tried: each would wait for its deadline, and a node that ends with it. Fails with the first
/// error.
async fn flush(entries: &Arc<PendingEntries>, writer: &TransactionWriter) -> Result<(), StoreError> {
    let mut written = Ok(());
    let mut all: Vec<(AddressId, LastActivity)> = {
        let maps = &mut *entries.maps.lock();
        maps.writing = std::mem::take(&mut maps.waiting);
        maps.writing.iter().map(|(owner, seen)| (*owner, seen.clone())).collect()
    };
    // In the order of the table, so that a chunk touches few pages.
    all.sort_unstable_by_key(|(owner, _)| *owner);
    let mut refused = false;
    for chunk in all.chunks(ROWS_PER_TRANSACTION) {
        let rows = {
            let maps = entries.maps.lock();
            // Without entries that were discarded meanwhile.
            chunk.iter().filter(|(owner, _)| maps.writing.contains_key(owner)).cloned().collect::<Vec<_>>()
        };
        let bytes = rows.len() * 64;
        if !refused {
            let put =
                writer.call(Owner::None, bytes, rows, |conn, rows| Box::pin(last_seen::put(conn, rows)));
            let result = put.await;
            refused = result.as_ref().is_err_and(|error| error.retryable);
            written = written.and(result);
        }
        let maps = &mut *entries.maps.lock();
        for (owner, _) in chunk {
            if let Some(seen) = maps.writing.remove(owner)
                && refused
                && maps.waiting.len() < MAX_PENDING_ACCOUNTS
            {
                maps.waiting.entry(*owner).or_insert(seen);
            }
        }
        entries.flushes.fetch_add(1, Ordering::Release);
    }
    written
}
