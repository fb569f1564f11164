//! Removes the plain subscriptions of removed PubSub nodes that had too many for the transaction of the removal, in steps that
//! leave the writer free for others in between.
//!
//! The list of such nodes is in the database, so that another start, or another node of the cluster, continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Spawner;
use tokio::sync::mpsc;

use crate::tables::pubsub;
use crate::writer::{Owner, TransactionWriter};

pub(crate) struct SubscriptionCleaner {
    wake: mpsc::Sender<()>,
    is_closed: Arc<AtomicBool>,
}

impl SubscriptionCleaner {
    pub(crate) fn start(writer: Arc<TransactionWriter>, spawner: &dyn Spawner) -> SubscriptionCleaner {
        let (wake, woken) = mpsc::channel(1);
        let is_closed = Arc::new(AtomicBool::new(false));
        spawner.spawn("store-cleaner", Box::pin(run(writer, woken, is_closed.clone())));
        SubscriptionCleaner { wake, is_closed }
    }

    /// A node was removed.
    pub(crate) fn wake(&self) {
        // A full channel already contains a signal; a closed one means that the database is closed.
        let _ = self.wake.try_send(());
    }

    /// It begins no further step.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

async fn run(writer: Arc<TransactionWriter>, mut woken: mpsc::Receiver<()>, is_closed: Arc<AtomicBool>) {
    while woken.recv().await.is_some() {
        loop {
            if is_closed.load(Ordering::Relaxed) {
                return;
            }
            match writer.call(Owner::None, 64, (), |conn, ()| Box::pin(pubsub::clean_some(conn))).await {
                Ok(true) => {}
                // After an error the next removal or the next start continues.
                Ok(false) | Err(_) => break,
            }
        }
    }
}
