//! Batched receiving from a bounded queue.
//!
//! A transaction, or a round trip to the database's thread, costs the same for one request as for fifty. Under load,
//! requests are therefore collected for a moment. A lone request is never delayed: the receiver waits only if the
//! previous batch contained more than one request.

use std::time::Duration;

use tokio::sync::mpsc::Receiver;

pub(crate) struct BatchReceiver {
    delay: Duration,
    max_batch: usize,
    last_was_shared: bool,
}

/// Result of waiting for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// At least one request.
    Batch,
    /// None arrived in this time.
    Nothing,
    /// The queue is closed and empty.
    Closed,
}

impl BatchReceiver {
    pub(crate) fn new(wait: Duration, most: usize) -> BatchReceiver {
        BatchReceiver { delay: wait, max_batch: most.max(1), last_was_shared: false }
    }

    /// Fills `into` with at least one request. Returns false when the queue is closed and empty.
    pub(crate) async fn recv_batch<T>(&mut self, queue: &mut Receiver<T>, into: &mut Vec<T>) -> bool {
        if queue.recv_many(into, self.max_batch).await == 0 {
            return false;
        }
        self.complete_batch(queue, into).await;
        true
    }

    /// As [`BatchReceiver::recv_batch`], and returns without a request when none has arrived for this time.
    pub(crate) async fn recv_batch_within<T>(
        &mut self,
        time: Duration,
        queue: &mut Receiver<T>,
        into: &mut Vec<T>,
    ) -> Received {
        match tokio::time::timeout(time, queue.recv_many(into, self.max_batch)).await {
            Err(_) => return Received::Nothing,
            Ok(0) => return Received::Closed,
            Ok(_) => self.complete_batch(queue, into).await,
        }
        Received::Batch
    }

    async fn complete_batch<T>(&mut self, queue: &mut Receiver<T>, into: &mut Vec<T>) {
        if self.last_was_shared && into.len() < self.max_batch && !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        self.drain_ready(queue, into);
        self.last_was_shared = into.len() > 1;
    }

    /// Adds the requests that are queued already.
    pub(crate) fn drain_ready<T>(&self, queue: &mut Receiver<T>, into: &mut Vec<T>) {
        while into.len() < self.max_batch {
            match queue.try_recv() {
                Ok(request) => into.push(request),
                Err(_) => break,
            }
        }
    }
}
