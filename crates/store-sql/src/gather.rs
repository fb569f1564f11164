//! Taking many waiting requests at once from a bounded queue.
//!
//! A transaction, or a visit to the database's thread, costs the same for one request as for fifty. Under load requests
//! are therefore given a moment to come together. A lone request is never held up: only when the last turn found company
//! does the next one wait for some.
use std::time::Duration;

use tokio::sync::mpsc::Receiver;

pub(crate) struct Gather {
    wait: Duration,
    most: usize,
    company: bool,
}

impl Gather {
    pub(crate) fn new(wait: Duration, most: usize) -> Gather {
        Gather { wait, most: most.max(1), company: false }
    }

    /// Fills `into` with at least one request. False when the queue is closed and empty.
    pub(crate) async fn take<T>(&mut self, queue: &mut Receiver<T>, into: &mut Vec<T>) -> bool {
        if queue.recv_many(into, self.most).await == 0 {
            return false;
        }
        if self.company && into.len() < self.most && !self.wait.is_zero() {
            tokio::time::sleep(self.wait).await;
        }
        self.more(queue, into);
        self.company = into.len() > 1;
        true
    }

    /// Adds what is waiting right now.
    pub(crate) fn more<T>(&self, queue: &mut Receiver<T>, into: &mut Vec<T>) {
        while into.len() < self.most {
            match queue.try_recv() {
                Ok(request) => into.push(request),
                Err(_) => break,
            }
        }
    }
}
