//! Keeps the connections to a server: opens those of the minimum, also after a failure, and closes those that were idle
//! for too long.

use std::sync::Arc;
use std::time::Duration;

use base::Spawner;
use tokio::sync::Notify;

use crate::DatabaseOptions;
use crate::dialect::ConnectionPool;

/// Time between two visits.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// The task; it ends with [`PoolKeeper::close`] or when the value is dropped.
pub(crate) struct PoolKeeper {
    closed: Arc<Notify>,
}

impl PoolKeeper {
    /// Opens the minimum, if the server accepts that many connections, and starts the task.
    pub(crate) async fn start(
        pools: &[ConnectionPool],
        spawner: &dyn Spawner,
        options: &DatabaseOptions,
    ) -> PoolKeeper {
        for pool in pools {
            pool.maintain().await;
        }
        let closed = Arc::new(Notify::new());
        let interval = (options.idle_timeout / 4).clamp(MIN_INTERVAL, MAX_INTERVAL);
        spawner.spawn("store-connections", Box::pin(run(pools.to_vec(), interval, closed.clone())));
        PoolKeeper { closed }
    }

    /// Ends the task. A connection that it is opening is returned to its pool first.
    pub(crate) fn close(&self) {
        self.closed.notify_one();
    }
}

impl Drop for PoolKeeper {
    fn drop(&mut self) {
        self.close();
    }
}

async fn run(pools: Vec<ConnectionPool>, interval: Duration, closed: Arc<Notify>) {
    while tokio::time::timeout(interval, closed.notified()).await.is_err() {
        for pool in &pools {
            pool.maintain().await;
        }
    }
}
